//! Certificates, all of one authority that is made anew for each run, and clients that trust nobody else.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SignatureAlgorithm};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned, SupportedProtocolVersion};
use x509_parser::asn1_rs::{Any, DerParser, FromDer, Sequence, SequenceIterator};

use super::wire::Wire;
use super::{Client, PATIENCE};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate to be made.
pub struct Leaf {
    params: CertificateParams,
    algorithm: &'static SignatureAlgorithm,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Made {
    pub cert: String,
    pub chain: String,
    pub key: String,
}

/// The authority that has signed everything, through one that stands between.
struct Authority {
    root: CertifiedIssuer<'static, KeyPair>,
    between: CertifiedIssuer<'static, KeyPair>,
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let params = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let root = CertifiedIssuer::self_signed(params("Test Root"), KeyPair::generate().unwrap()).unwrap();
        let between =
            CertifiedIssuer::signed_by(params("Test Intermediate"), KeyPair::generate().unwrap(), &root).unwrap();
        Authority { root, between }
    })
}

/// The certificate of the authority, for those who are to trust it.
pub fn root() -> String {
    authority().root.pem()
}

/// A certificate for these names that nobody has signed but its own key.
pub fn stranger(names: &[&str]) -> Made {
    let leaf = leaf(names);
    let key = KeyPair::generate_for(leaf.algorithm).unwrap();
    Made { cert: leaf.params.self_signed(&key).unwrap().pem(), chain: String::new(), key: key.serialize_pem() }
}

/// The same for a server that is its own authority, as `openssl req -x509` makes it: marked as a CA's.
pub fn self_signed(names: &[&str], from: i64, to: i64) -> Made {
    let mut leaf = leaf(names).valid(from, to);
    leaf.params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(leaf.algorithm).unwrap();
    Made { cert: leaf.params.self_signed(&key).unwrap().pem(), chain: String::new(), key: key.serialize_pem() }
}

/// A certificate for these names, ECDSA P-256, valid from yesterday for ninety days.
pub fn leaf(names: &[&str]) -> Leaf {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let leaf = Leaf { params: CertificateParams::new(names).unwrap(), algorithm: &rcgen::PKCS_ECDSA_P256_SHA256 };
    leaf.valid(-1, 90)
}

/// The PEM of a certificate for these names with all that belongs to it.
pub fn pem(names: &[&str]) -> String {
    leaf(names).make().whole()
}

impl Leaf {
    /// Valid from and to so many days from now.
    pub fn valid(mut self, from: i64, to: i64) -> Self {
        let time = |days: i64| match u32::try_from(days) {
            Ok(days) => SystemTime::now() + DAY * days,
            Err(_) => SystemTime::now() - DAY * u32::try_from(-days).unwrap(),
        };
        self.params.not_before = time(from).into();
        self.params.not_after = time(to).into();
        self
    }

    pub fn algorithm(mut self, algorithm: &'static SignatureAlgorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    pub fn make(self) -> Made {
        let key = KeyPair::generate_for(self.algorithm).unwrap();
        let cert = self.params.signed_by(&key, &authority().between).unwrap();
        Made { cert: cert.pem(), chain: authority().between.pem(), key: key.serialize_pem() }
    }
}

impl Made {
    /// The key without what PKCS #8 puts around it (RFC 5208 section 5), as its kind has it by itself.
    pub fn bare_key(&self, label: &str) -> String {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        let (_, parts) = Sequence::from_der(key.secret_der()).unwrap();
        let parts: Vec<Any<'_>> =
            SequenceIterator::<Any<'_>, DerParser>::new(&parts.content).map(Result::unwrap).collect();
        let lines: Vec<String> =
            base64(parts[2].data).as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into()).collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    pub fn fullchain(&self) -> String {
        format!("{}{}", self.cert, self.chain)
    }

    pub fn whole(&self) -> String {
        format!("{}{}", self.fullchain(), self.key)
    }
}

/// How a server of this certificate speaks TLS. With `asking` it wants to see one of the authority's in return.
pub fn server(made: &Made, asking: bool) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(rustls::ALL_VERSIONS).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(authority().root.der().clone()).unwrap();
    let visitors = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let chain = CertificateDer::pem_slice_iter(made.fullchain().as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
    let builder = if asking { builder.with_client_cert_verifier(visitors) } else { builder.with_no_client_auth() };
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// How a client speaks TLS. Clones remember the same sessions.
pub fn config(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(authority().root.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

/// A client that trusts this authority, in PEM.
pub fn config_trusting(authority: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(roots).with_no_client_auth()
}

/// Connects and shakes hands.
#[track_caller]
pub fn connect(address: SocketAddr, name: &str) -> Client {
    try_connect(address, name, config(rustls::ALL_VERSIONS))
        .unwrap_or_else(|error| panic!("no TLS for {name}: {error}"))
}

/// Connects and shakes hands like this, or says why it could not.
pub fn try_connect(address: SocketAddr, name: &str, config: ClientConfig) -> Result<Client, std::io::Error> {
    shake(TcpStream::connect(address)?, name, config)
}

/// Connects, sends these bytes and shakes hands.
#[track_caller]
pub fn connect_behind(address: SocketAddr, bytes: &[u8], name: &str) -> Client {
    let mut socket = TcpStream::connect(address).expect("connect");
    socket.write_all(bytes).expect("send");
    shake(socket, name, config(rustls::ALL_VERSIONS)).unwrap_or_else(|error| panic!("no TLS for {name}: {error}"))
}

fn shake(mut socket: TcpStream, name: &str, config: ClientConfig) -> Result<Client, std::io::Error> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).map_err(std::io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(Client::over(Wire::tls(StreamOwned::new(session, socket))))
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for bytes in bytes.chunks(3) {
        let bits = bytes.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - bytes.len()));
        for digit in 0..=bytes.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
        text.push_str(&"=="[..3 - bytes.len()]);
    }
    text
}
