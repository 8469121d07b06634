//! The information that a worker needs to join a job, and its way through the environment.

use std::process::Command;

use crate::transport::secret::{check_secret, random_bytes};

const ADDRESS: &str = "PELLUCID_ITERATE_CONTROLLER";
const SECRET: &str = "PELLUCID_ITERATE_SECRET";
const RANK: &str = "PELLUCID_ITERATE_RANK";
const ENCRYPT: &str = "PELLUCID_ITERATE_ENCRYPT";

/// The information that a worker needs to join a job.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Address of the controller: `host:port`.
    pub controller: String,
    /// Secret shared by the processes of the job.
    pub secret: String,
    /// True if the processes of the job encrypt their connections.
    pub encrypted: bool,
}

impl std::fmt::Debug for Invitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invitation to {}", self.controller)
    }
}

impl Invitation {
    /// Adds the invitation to the environment of a process to be started.
    pub fn put_into(&self, command: &mut Command, rank: u32) {
        command.env(ADDRESS, &self.controller).env(SECRET, &self.secret).env(RANK, rank.to_string());
        command.env(ENCRYPT, if self.encrypted { "1" } else { "0" });
    }

    /// Reads this process's invitation and rank from its environment. Returns `None` if it is not a worker.
    ///
    /// # Errors
    /// If only some of the variables are set, or one of them is invalid.
    pub fn from_environment() -> Result<Option<(Self, u32)>, String> {
        let get = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
        let (controller, rank) = (get(ADDRESS), get(RANK));
        if controller.is_none() && rank.is_none() {
            return Ok(None);
        }
        let missing = |name| format!("{name} is not set; a worker needs {ADDRESS}, {SECRET} and {RANK}");
        let controller = controller.ok_or_else(|| missing(ADDRESS))?;
        let secret = Self::secret_from_environment()?.ok_or_else(|| missing(SECRET))?;
        let rank = rank.ok_or_else(|| missing(RANK))?;
        let rank = rank.parse().map_err(|_| format!("{RANK}={rank}: a worker's rank is a number from 0"))?;
        let encrypted = match get(ENCRYPT).as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(format!("invalid {ENCRYPT}={other}; expected 0 or 1")),
        };
        Ok(Some((Self { controller, secret, encrypted }, rank)))
    }

    /// Reads only the secret, for a controller whose workers are started elsewhere. Returns `None` if it is not set.
    ///
    /// # Errors
    /// If it is too short.
    pub fn secret_from_environment() -> Result<Option<String>, String> {
        let Some(secret) = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty()) else {
            return Ok(None);
        };
        check_secret(&secret).map_err(|cause| format!("cannot use {SECRET}: {cause}"))?;
        Ok(Some(secret))
    }

    /// Returns 32 random bytes as hexadecimal digits.
    pub(crate) fn random_secret() -> Result<String, String> {
        let bytes =
            random_bytes::<32>().map_err(|error| format!("cannot generate a random secret: {error}"))?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
