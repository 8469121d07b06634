//! Messages between workers and the controller, and the checks that they pass.

pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod ports;
pub(crate) mod records;
pub(crate) mod validity;
