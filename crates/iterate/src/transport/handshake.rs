//! Mutual authentication: both ends of a connection prove that they know the job's secret.
//!
//! Each end first sends the protocol's version and whether it encrypts, which must be equal. If both do, the rest is
//! in a [`Tunnel`]. Each end then sends a nonce and its program, which must be equal too. The dialling end sends an
//! HMAC over both of these messages and the tunnel's exported value under the secret, which itself is never sent,
//! and only if it is correct does the accepting end answer with its own. A stranger that connects therefore receives
//! nothing with which it could test guesses. A stranger that is dialled does, so secrets must be long.
//!
//! Without encryption, a connection is authenticated once, and later messages carry only a checksum. Use a trusted
//! network then.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::transport::secret::random_bytes;
use crate::transport::tunnel::{Encryption, Tunnel};

/// First bytes of every connection, ending with the protocol version. One byte follows: 1 if the end encrypts, or 0.
const MAGIC: [u8; 8] = *b"PLCDITR6";

/// Time limit of a whole handshake.
const LIMIT: Duration = Duration::from_secs(5);

/// The rank that a controller presents in a handshake.
pub(crate) const CONTROLLER: u32 = u32::MAX;

/// The identity that this end presents.
pub(crate) struct Identity<'a> {
    pub secret: &'a [u8],
    pub fingerprint: u64,
    pub rank: u32,
    /// Address that it listens on; empty if it does not listen.
    pub address: &'a str,
    /// `None` does not encrypt.
    pub encryption: Option<&'a Encryption>,
}

/// The identity that the other end presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    pub rank: u32,
    pub address: String,
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

impl Write for Deadline<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The inside of a tunnel during the handshake.
struct Inside<'a> {
    tunnel: Tunnel,
    stream: Deadline<'a>,
}

impl Read for Inside<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tunnel.read(&mut self.stream, buffer)
    }
}

impl Write for Inside<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sealed = BytesMut::new();
        self.tunnel.seal(bytes, &mut sealed)?;
        self.stream.write_all(&sealed).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reason that a handshake failed.
enum Failure {
    Stream(io::Error),
    /// With a message for the user.
    Refused(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Stream(error)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::Refused(message.into())
    }
}

/// Authenticates both ends over a blocking stream. `dialled` is true if this end opened the connection. Returns the
/// other end, and the tunnel of an encrypted connection.
///
/// # Errors
/// If authentication fails, or the versions, programs or options differ, with a message for the user.
pub(crate) fn handshake(
    stream: &TcpStream,
    me: &Identity<'_>,
    dialled: bool,
) -> Result<(Peer, Option<Tunnel>), String> {
    handshake_within(stream, me, dialled, LIMIT)
}

fn handshake_within(
    stream: &TcpStream,
    me: &Identity<'_>,
    dialled: bool,
    limit: Duration,
) -> Result<(Peer, Option<Tunnel>), String> {
    let done = negotiate(Deadline { stream, until: Instant::now() + limit }, me, dialled);
    let done = done.and_then(|done| Ok(stream.set_read_timeout(None).map(|()| done)?));
    done.map_err(|failure| match failure {
        Failure::Refused(message) => message,
        Failure::Stream(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("no answer within {} s; is this a worker or controller of this job?", limit.as_secs())
            }
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                "the other end closed the connection: its secret, version, program or --encrypt differs"
                    .to_string()
            }
            _ => error.to_string(),
        },
    })
}

/// Compares version and encryption, sets the encryption up, and authenticates both ends.
fn negotiate(
    mut stream: Deadline<'_>,
    me: &Identity<'_>,
    dialled: bool,
) -> Result<(Peer, Option<Tunnel>), Failure> {
    let encrypted = me.encryption.is_some();
    stream.write_all(&MAGIC)?;
    stream.write_all(&[u8::from(encrypted)])?;
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic)?;
    if magic[..7] != MAGIC[..7] {
        return Err("it does not speak this protocol; check the address".into());
    }
    if magic != MAGIC {
        return Err("it runs another version of the protocol; start both ends from the same build".into());
    }
    let mut theirs = [0];
    stream.read_exact(&mut theirs)?;
    match (encrypted, theirs[0] != 0) {
        (true, false) => Err("it does not encrypt connections, but this end does; pass --encrypt to the \
                              controller and to all workers, or to none"
            .into()),
        (false, true) => Err("it encrypts connections, but this end does not; pass --encrypt to the \
                              controller and to all workers, or to none"
            .into()),
        _ => match me.encryption {
            None => Ok((authenticate(&mut stream, me, dialled, &[])?, None)),
            Some(encryption) => {
                let (tunnel, binding) = encryption.begin(&mut stream, dialled)?;
                let mut inside = Inside { tunnel, stream };
                Ok((authenticate(&mut inside, me, dialled, &binding)?, Some(inside.tunnel)))
            }
        },
    }
}

/// Exchanges identities and proofs. Proofs cover `binding`, so that they are valid on this connection only.
fn authenticate(
    stream: &mut (impl Read + Write),
    me: &Identity<'_>,
    dialled: bool,
    binding: &[u8],
) -> Result<Peer, Failure> {
    let mine = hello(me)?;
    stream.write_all(&mine)?;
    let theirs = read_hello(stream, me.fingerprint)?;
    let (first, second) = if dialled { (&mine, &theirs) } else { (&theirs, &mine) };
    let proof = |end: &[u8]| {
        // HMAC accepts keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(me.secret).map_err(io::Error::other)?;
        [end, first, second, binding].iter().for_each(|part| mac.update(part));
        Ok::<_, io::Error>(mac)
    };
    if dialled {
        stream.write_all(&proof(b"dialled")?.finalize().into_bytes())?;
    }
    let mut answer = [0; 32];
    stream.read_exact(&mut answer)?;
    let end: &[u8] = if dialled { b"accepted" } else { b"dialled" };
    if proof(end)?.verify_slice(&answer).is_err() {
        return Err(if binding.is_empty() {
            "it does not know the job's secret; start both ends with the same secret".into()
        } else {
            "it does not know the job's secret, or the connection is intercepted; start both ends with the \
             same secret"
                .into()
        });
    }
    if !dialled {
        stream.write_all(&proof(b"accepted")?.finalize().into_bytes())?;
    }
    let rank = u32::from_le_bytes([theirs[24], theirs[25], theirs[26], theirs[27]]);
    let address = String::from_utf8_lossy(&theirs[29..]).into_owned();
    Ok(Peer { rank, address })
}

/// Builds the first message: program, nonce, rank, address.
fn hello(me: &Identity<'_>) -> io::Result<Vec<u8>> {
    let mut hello = Vec::with_capacity(64);
    hello.extend_from_slice(&me.fingerprint.to_le_bytes());
    hello.extend_from_slice(&random_bytes::<16>()?);
    hello.extend_from_slice(&me.rank.to_le_bytes());
    let address = &me.address.as_bytes()[..me.address.len().min(255)];
    hello.push(address.len() as u8);
    hello.extend_from_slice(address);
    Ok(hello)
}

/// Reads the other end's first message.
fn read_hello(stream: &mut impl Read, fingerprint: u64) -> Result<Vec<u8>, Failure> {
    let mut hello = vec![0; 29];
    stream.read_exact(&mut hello)?;
    if hello[..8] != fingerprint.to_le_bytes() {
        return Err("it runs another program or another version; start both ends from the same build \
                    with the same options"
            .into());
    }
    let length = usize::from(hello[28]);
    hello.resize(29 + length, 0);
    stream.read_exact(&mut hello[29..])?;
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    const SECRET: &str = "a secret of some length";

    fn identity(secret: &str, rank: u32) -> Identity<'_> {
        Identity { secret: secret.as_bytes(), fingerprint: 7, rank, address: "host:1", encryption: None }
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (dialled, listener.accept().unwrap().0)
    }

    /// Runs one end of a handshake on another thread, within `limit`. Returns the rank of the other end.
    fn run(
        stream: TcpStream,
        encrypted: bool,
        dialled: bool,
        limit: Duration,
    ) -> JoinHandle<Result<u32, String>> {
        std::thread::spawn(move || {
            let encryption = encrypted.then(|| Encryption::new().unwrap());
            let rank = if dialled { 2 } else { 3 };
            let me = Identity { encryption: encryption.as_ref(), ..identity(SECRET, rank) };
            let (peer, tunnel) = handshake_within(&stream, &me, dialled, limit)?;
            assert_eq!((tunnel.is_some(), peer.address.as_str()), (encrypted, "host:1"));
            Ok(peer.rank)
        })
    }

    #[test]
    fn both_ends_learn_the_other_ends_rank_and_address() {
        for encrypted in [false, true] {
            let (dialled, accepted) = pair();
            let ends = [run(dialled, encrypted, true, LIMIT), run(accepted, encrypted, false, LIMIT)];
            assert_eq!(ends.map(|end| end.join().unwrap()), [Ok(3), Ok(2)]);
        }
    }

    #[test]
    fn ends_that_differ_in_encryption_are_both_told() {
        for encrypts in [false, true] {
            let (dialled, accepted) = pair();
            let ends = [run(dialled, encrypts, true, LIMIT), run(accepted, !encrypts, false, LIMIT)];
            let [dialled, accepted] = ends.map(|end| end.join().unwrap().unwrap_err());
            let (with, without) = if encrypts { (dialled, accepted) } else { (accepted, dialled) };
            assert!(with.starts_with("it does not encrypt connections, but this end does"), "{with}");
            assert!(without.starts_with("it encrypts connections, but this end does not"), "{without}");
            assert!(with.contains("--encrypt") && without.contains("--encrypt"));
        }
    }

    /// The man in the middle has a tunnel with each end, and relays what is said in them.
    #[test]
    fn man_in_the_middle_is_refused() {
        let ((dialled, to_dialled), (to_accepted, accepted)) = (pair(), pair());
        let ends = [run(dialled, true, true, LIMIT), run(accepted, true, false, LIMIT)];
        let own = Encryption::new().unwrap();
        let begin = |mut stream, dials| {
            let mut first = [0; MAGIC.len() + 1];
            Read::read_exact(&mut stream, &mut first).unwrap();
            Write::write_all(&mut stream, &first).unwrap();
            let mut stream = Deadline { stream, until: Instant::now() + LIMIT };
            let (tunnel, binding) = own.begin(&mut stream, dials).unwrap();
            (Inside { tunnel, stream }, binding)
        };
        let (mut dialling, one) = begin(&to_dialled, false);
        let (mut accepting, other) = begin(&to_accepted, true);
        assert_ne!(one, other);
        const HELLO: usize = 29 + "host:1".len();
        let mut message = [0; HELLO];
        accepting.read_exact(&mut message).unwrap();
        dialling.write_all(&message).unwrap();
        let mut message = [0; HELLO + 32];
        dialling.read_exact(&mut message).unwrap();
        accepting.write_all(&message).unwrap();
        // The accepting end sends no proof that could be relayed.
        let _ = accepting.read_to_end(&mut Vec::new()).map(|read| assert_eq!(read, 0));
        to_dialled.shutdown(std::net::Shutdown::Both).unwrap();
        let [dialled, accepted] = ends.map(|end| end.join().unwrap().unwrap_err());
        assert!(accepted.contains("the connection is intercepted"), "{accepted}");
        assert!(dialled.contains("the other end closed the connection"), "{dialled}");
    }

    #[test]
    fn accepting_end_sends_no_proof_to_a_stranger() {
        let (mut dialled, accepted) = pair();
        let other = std::thread::spawn(move || handshake(&accepted, &identity(SECRET, 3), false).err());
        dialled.write_all(&MAGIC).unwrap();
        dialled.write_all(&[0]).unwrap();
        dialled.write_all(&hello(&identity("guess", 2)).unwrap()).unwrap();
        dialled.write_all(&[0; 32]).unwrap();
        let mut received = Vec::new();
        // The accepting end may close with unread bytes, which resets the connection.
        let _ = dialled.read_to_end(&mut received);
        assert_eq!(received.len(), MAGIC.len() + 1 + 29 + "host:1".len(), "more than the first message");
        let error = other.join().unwrap().unwrap();
        assert!(error.contains("does not know the job's secret"), "{error}");
    }

    #[test]
    fn bytes_now_and_then_do_not_extend_the_deadline() {
        let limit = Duration::from_millis(300);
        // The second is a record of a TLS handshake, of which the first bytes announce 512.
        let tls = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[7; 64]].concat();
        for (encrypted, slow) in [(false, hello(&identity(SECRET, 2)).unwrap()), (true, tls)] {
            let ((mut dialled, accepted), started) = (pair(), Instant::now());
            let other = run(accepted, encrypted, false, limit);
            dialled.write_all(&MAGIC).unwrap();
            dialled.write_all(&[u8::from(encrypted)]).unwrap();
            for byte in slow {
                std::thread::sleep(limit / 6);
                if dialled.write_all(&[byte]).is_err() || other.is_finished() {
                    break;
                }
            }
            let error = other.join().unwrap().unwrap_err();
            assert!(error.contains("no answer within"), "{error}");
            // The whole message would have taken six times the limit or more.
            assert!(started.elapsed() < limit * 5, "{:?}", started.elapsed());
        }
    }

    #[test]
    fn damaged_handshake() {
        let intact = [("host:1", 2), ("", CONTROLLER), ("[::1]:65535", 7)];
        let intact =
            intact.map(|(address, rank)| hello(&Identity { address, ..identity(SECRET, rank) }).unwrap());
        let inputs = pellucid_fuzz::Inputs::binary(intact.to_vec(), &[&MAGIC, b"PLCDITR3", b"\xff"]);
        pellucid_fuzz::fuzz("damaged_handshake", |random| {
            read_hello(&mut &inputs.damaged(random)[..], 7).is_ok_and(|hello| hello.len() >= 37)
        });
    }
}
