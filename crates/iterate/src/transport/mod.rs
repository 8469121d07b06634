//! Connections between the processes of a job: authentication, encryption, and frames of messages.

pub(crate) mod accept;
pub(crate) mod handshake;
pub(crate) mod invitation;
pub(crate) mod mesh;
pub(crate) mod secret;
pub(crate) mod tunnel;
pub(crate) mod wire;
