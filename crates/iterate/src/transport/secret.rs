//! Secrets of jobs, and random bytes.

use std::io::{self, ErrorKind};

/// Minimum length of a secret. A proof that was recorded lets shorter ones be guessed.
const MIN_SECRET: usize = 16;

/// Checks the length of a secret.
///
/// # Errors
/// If it is too short, with a message for the user.
pub(crate) fn check_secret(secret: &str) -> Result<(), String> {
    let length = secret.chars().count();
    if length < MIN_SECRET {
        return Err(format!(
            "the job's secret has {length} characters, fewer than {MIN_SECRET}; make one with \
             `openssl rand -hex 32`"
        ));
    }
    Ok(())
}

/// Returns random bytes from the operating system, without opening a file.
///
/// # Errors
/// If the operating system has none.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: the pointer and length are those of `rest`.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_secret_is_refused_with_advice() {
        let error = check_secret("spark123").unwrap_err();
        assert!(error.contains("8 characters") && error.contains("openssl rand -hex 32"), "{error}");
        assert_eq!(check_secret("0123456789abcdef"), Ok(()));
        assert_ne!(random_bytes::<32>().unwrap(), random_bytes::<32>().unwrap());
    }
}
