//! Errors of what-ifs.

/// An error of a what-if.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhatIfError {
    /// The question is invalid, or this trace does not support it; the message names what it supports.
    Usage(String),
    /// The trace holds too little information; the message says how to get more.
    Failed(String),
}

impl WhatIfError {
    /// Returns the message for the user.
    pub fn message(&self) -> &str {
        match self {
            WhatIfError::Usage(message) | WhatIfError::Failed(message) => message,
        }
    }
}
