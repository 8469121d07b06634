//! Messages between workers and the controller, and the checks that they pass.

pub(crate) mod message;
pub(crate) mod validity;
