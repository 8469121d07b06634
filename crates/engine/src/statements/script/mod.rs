//! The state that statements of a script leave for later ones: variables, sequences, macros, views, prepared
//! statements, settings and transactions.

pub(crate) mod functions;
pub(crate) mod macros;
pub(crate) mod memory;
pub(crate) mod prepared;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod transaction;
pub(crate) mod types;
pub(crate) mod views;
