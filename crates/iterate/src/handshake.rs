//! Mutual authentication: both ends of a connection prove that they know the job's secret.
//!
//! Each end sends a nonce. The dialling end then sends an HMAC over both nonces under the secret, which itself
//! is never sent, and only if it is correct does the accepting end answer with its own. A stranger that
//! connects therefore receives nothing with which it could test guesses. A stranger that is dialled does, so
//! secrets must be long. Protocol version and program are compared too, so that a mismatch is reported as such. A
//! connection is authenticated once; later messages carry a checksum but are not encrypted. Between machines,
//! use a trusted network.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// First bytes of every connection, ending with the protocol version.
const MAGIC: [u8; 8] = *b"PLCDITR4";

/// Time limit of a whole handshake.
const LIMIT: Duration = Duration::from_secs(5);

/// Minimum length of a secret. A proof that was recorded lets shorter ones be guessed.
const MIN_SECRET: usize = 16;

/// The rank that a controller presents in a handshake.
pub(crate) const CONTROLLER: u32 = u32::MAX;

/// The identity that this end presents.
pub(crate) struct Identity<'a> {
    pub secret: &'a [u8],
    pub fingerprint: u64,
    pub rank: u32,
    /// Address that it listens on; empty if it does not listen.
    pub address: &'a str,
}

/// The identity that the other end presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub rank: u32,
    pub address: String,
}

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

/// A stream with one deadline for all reads. Writes need none: a handshake fits into an empty send buffer.
struct Deadline<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Read for Deadline<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer)
    }
}

/// Authenticates both ends over a blocking stream. `dialled` is true if this end opened the connection.
///
/// # Errors
/// If authentication fails or the versions or programs differ, with a message for the user.
pub(crate) fn handshake(stream: &TcpStream, me: &Identity<'_>, dialled: bool) -> Result<Peer, String> {
    handshake_within(stream, me, dialled, LIMIT)
}

fn handshake_within(
    mut stream: &TcpStream,
    me: &Identity<'_>,
    dialled: bool,
    limit: Duration,
) -> Result<Peer, String> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("no answer within {} s; is this a worker or controller of this job?", limit.as_secs())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "the other end closed the connection: its secret, version or program differs".to_string()
        }
        _ => error.to_string(),
    };
    let mut input = Deadline { stream, until: Instant::now() + limit };
    let mine = hello(me).map_err(failed)?;
    stream.write_all(&mine).map_err(failed)?;
    let theirs = read_hello(&mut input, me.fingerprint).map_err(|error| error.unwrap_or_else(failed))?;
    let (first, second) = if dialled { (&mine, &theirs) } else { (&theirs, &mine) };
    let proof = |end: &[u8]| {
        // HMAC accepts keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(me.secret).map_err(|error| error.to_string())?;
        [end, first, second].iter().for_each(|part| mac.update(part));
        Ok::<_, String>(mac)
    };
    let prove = |mut stream: &TcpStream, end: &[u8]| {
        let bytes = proof(end)?.finalize().into_bytes();
        stream.write_all(&bytes).map_err(failed)
    };
    let verify = |input: &mut Deadline<'_>, end: &[u8]| {
        let mut answer = [0; 32];
        input.read_exact(&mut answer).map_err(failed)?;
        let verified = proof(end)?.verify_slice(&answer);
        verified.map_err(|_| {
            "it does not know the job's secret; start both ends with the same secret".to_string()
        })
    };
    if dialled {
        prove(stream, b"dialled")?;
        verify(&mut input, b"accepted")?;
    } else {
        verify(&mut input, b"dialled")?;
        prove(stream, b"accepted")?;
    }
    stream.set_read_timeout(None).map_err(failed)?;
    let rank = u32::from_le_bytes([theirs[32], theirs[33], theirs[34], theirs[35]]);
    let address = String::from_utf8_lossy(&theirs[37..]).into_owned();
    Ok(Peer { rank, address })
}

/// Builds the first message: magic, program, nonce, rank, address.
fn hello(me: &Identity<'_>) -> io::Result<Vec<u8>> {
    let mut hello = Vec::with_capacity(64);
    hello.extend_from_slice(&MAGIC);
    hello.extend_from_slice(&me.fingerprint.to_le_bytes());
    hello.extend_from_slice(&random_bytes::<16>()?);
    hello.extend_from_slice(&me.rank.to_le_bytes());
    let address = &me.address.as_bytes()[..me.address.len().min(255)];
    hello.push(address.len() as u8);
    hello.extend_from_slice(address);
    Ok(hello)
}

/// Reads the other end's first message. Fails with a message for the user, or with an error of the stream.
fn read_hello(stream: &mut impl Read, fingerprint: u64) -> Result<Vec<u8>, Result<String, io::Error>> {
    let mut hello = vec![0; 37];
    stream.read_exact(&mut hello[..8]).map_err(Err)?;
    if hello[..7] != MAGIC[..7] {
        return Err(Ok("it does not speak this protocol; check the address".into()));
    }
    if hello[7] != MAGIC[7] {
        return Err(
            Ok("it runs another version of the protocol; start both ends from the same build".into()),
        );
    }
    stream.read_exact(&mut hello[8..]).map_err(Err)?;
    if hello[8..16] != fingerprint.to_le_bytes() {
        return Err(Ok("it runs another program or another version; start both ends from the same build \
                       with the same options"
            .into()));
    }
    let length = usize::from(hello[36]);
    hello.resize(37 + length, 0);
    stream.read_exact(&mut hello[37..]).map_err(Err)?;
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SECRET: &str = "a secret of some length";

    fn identity(secret: &str, rank: u32) -> Identity<'_> {
        Identity { secret: secret.as_bytes(), fingerprint: 7, rank, address: "host:1" }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (dialled, listener.accept().unwrap().0)
    }

    #[test]
    fn both_ends_learn_the_other_ends_rank_and_address() {
        let (dialled, accepted) = pair();
        let other = std::thread::spawn(move || handshake(&accepted, &identity(SECRET, 3), false));
        let peer = |rank| Peer { rank, address: "host:1".into() };
        assert_eq!(handshake(&dialled, &identity(SECRET, 2), true), Ok(peer(3)));
        assert_eq!(other.join().unwrap(), Ok(peer(2)));
    }

    #[test]
    fn accepting_end_sends_no_proof_to_a_stranger() {
        let (mut dialled, accepted) = pair();
        let other = std::thread::spawn(move || handshake(&accepted, &identity(SECRET, 3), false));
        dialled.write_all(&hello(&identity("guess", 2)).unwrap()).unwrap();
        dialled.write_all(&[0; 32]).unwrap();
        let mut received = Vec::new();
        // The accepting end may close with unread bytes, which resets the connection.
        let _ = dialled.read_to_end(&mut received);
        assert_eq!(received.len(), 37 + "host:1".len(), "more than the first message");
        let error = other.join().unwrap().unwrap_err();
        assert!(error.contains("does not know the job's secret"), "{error}");
    }

    #[test]
    fn bytes_now_and_then_do_not_extend_the_deadline() {
        let (mut dialled, accepted) = pair();
        let (limit, started) = (Duration::from_millis(300), Instant::now());
        let other = std::thread::spawn(move || {
            handshake_within(&accepted, &identity(SECRET, 3), false, limit).unwrap_err()
        });
        for byte in hello(&identity(SECRET, 2)).unwrap() {
            std::thread::sleep(limit / 6);
            if dialled.write_all(&[byte]).is_err() || other.is_finished() {
                break;
            }
        }
        let error = other.join().unwrap();
        assert!(error.contains("no answer within"), "{error}");
        // The whole message would have taken seven times the limit.
        assert!(started.elapsed() < limit * 5, "{:?}", started.elapsed());
    }

    #[test]
    fn short_secret_is_refused_with_advice() {
        let error = check_secret("spark123").unwrap_err();
        assert!(error.contains("8 characters") && error.contains("openssl rand -hex 32"), "{error}");
        assert_eq!(check_secret("0123456789abcdef"), Ok(()));
        assert_ne!(random_bytes::<32>().unwrap(), random_bytes::<32>().unwrap());
    }
}
