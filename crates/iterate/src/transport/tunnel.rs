//! Encryption of connections: TLS 1.3 without certificates.
//!
//! The accepting end presents a key made for this process (a raw public key, RFC 7250), and the dialling end accepts
//! any. TLS alone therefore protects only against listeners. Authentication is the handshake inside the tunnel
//! (`handshake.rs`): its proofs cover a value that only the two ends of one tunnel know (`tls-exporter`, RFC 9266),
//! so a man in the middle, who has two tunnels, cannot relay them. No stranger receives anything that depends on the
//! secret.
//!
//! Data travels in records, each of which is authenticated with its position. A record that was changed, repeated,
//! left out or moved is an error.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, PeerMisbehaved, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::transport::secret::random_bytes;

/// Start of an Ed25519 key in PKCS #8 (RFC 8410, section 7); the 32 random bytes of the key follow.
const ED25519_KEY: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// Label of the exporter for channel binding (RFC 9266).
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// Bytes encrypted at once, which are the content of one record at most.
const RECORD_BYTES: usize = 16 << 10;

/// Bytes per read of encrypted data.
const READ_BYTES: usize = 64 << 10;

/// This process's configuration of encrypted connections.
pub(crate) struct Encryption {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Encryption {
    /// Makes a key for this process.
    ///
    /// # Errors
    /// If the operating system has no random bytes.
    pub fn new() -> Result<Self, String> {
        Self::make().map_err(|error| format!("cannot set up encryption: {error}"))
    }

    fn make() -> Result<Self, Box<dyn std::error::Error>> {
        let provider = Arc::new(ring::default_provider());
        let key = [&ED25519_KEY[..], &random_bytes::<32>()?].concat();
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(key))?;
        let public = key.public_key().ok_or("the key has no public part")?;
        let key = CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key);
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(key))));
        // Connections are not resumed: each has its own keys.
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyKey(provider.signature_verification_algorithms)))
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { client: client.into(), server: server.into() })
    }

    /// Encrypts a connection over a blocking stream. `dialled` is true if this end opened it. Returns the tunnel, and
    /// the value that only its two ends know.
    ///
    /// # Errors
    /// If the stream fails, or the other end violates the protocol.
    pub fn begin(
        &self,
        stream: &mut (impl Read + io::Write),
        dialled: bool,
    ) -> io::Result<(Tunnel, [u8; 32])> {
        let mut connection: Connection = if dialled {
            // Part of the interface only: the name is neither sent nor compared.
            let name = ServerName::try_from("pellucid").map_err(io::Error::other)?;
            ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?.into()
        } else {
            ServerConnection::new(self.server.clone()).map_err(io::Error::other)?.into()
        };
        while connection.is_handshaking() {
            if connection.complete_io(stream)? == (0, 0) {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let binding = connection.export_keying_material([0; 32], EXPORTER_LABEL, Some(&[]));
        let tunnel = Tunnel { connection, sealed: vec![0; READ_BYTES].into(), unread: 0..0, drained: false };
        Ok((tunnel, binding.map_err(io::Error::other)?))
    }
}

/// Accepts every key, if the signature shows that the other end owns it.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// One end of an encrypted connection. Does no I/O of its own.
pub(crate) struct Tunnel {
    connection: Connection,
    /// Buffer for bytes from the stream.
    sealed: Box<[u8]>,
    /// The part of `sealed` that was not decrypted yet.
    unread: std::ops::Range<usize>,
    /// True if the last read of the stream returned all that it had.
    drained: bool,
}

impl Tunnel {
    /// Encrypts bytes and appends them to `out`.
    ///
    /// # Errors
    /// If the connection cannot encrypt any more.
    pub fn seal(&mut self, bytes: &[u8], out: &mut BytesMut) -> io::Result<()> {
        for part in bytes.chunks(RECORD_BYTES) {
            io::Write::write_all(&mut self.connection.writer(), part)?;
            while self.connection.wants_write() {
                self.connection.write_tls(&mut out.writer())?;
            }
        }
        Ok(())
    }

    /// Reads decrypted bytes, like [`Read::read`]. Fills `into` unless the stream has no more at present.
    ///
    /// # Errors
    /// The error of the stream, or [`ErrorKind::InvalidData`] if a record is not authentic.
    pub fn read(&mut self, mut stream: impl Read, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.connection.reader().read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.unread.is_empty() {
                        if filled > 0 && self.drained {
                            break;
                        }
                        match stream.read(&mut self.sealed) {
                            Ok(0) => break,
                            Ok(read) => (self.unread, self.drained) = (0..read, read < self.sealed.len()),
                            // The next read reports it.
                            Err(_) if filled > 0 => break,
                            Err(error) => return Err(error),
                        }
                    }
                    self.unread.start += self.connection.read_tls(&mut &self.sealed[self.unread.clone()])?;
                    self.connection.process_new_packets().map_err(invalid)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

fn invalid(error: Error) -> io::Error {
    let text = match error {
        Error::DecryptError => "its data was changed on the way (a record is not authentic)".into(),
        error => format!("its encrypted data is invalid: {error}"),
    };
    io::Error::new(ErrorKind::InvalidData, text)
}
