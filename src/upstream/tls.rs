//! TLS to a backend: who it has to be, the handshake, and why that failed.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, TlsStream};

use crate::http::refuse::Refusal;
use crate::net::stream::Stream;
use crate::table::backend::Backend;
use crate::table::certs::Leaf;
use crate::table::secure::{Roots, Secure, Wanted};

/// What we speak over it.
const HTTP1: &[u8] = b"http/1.1";

/// The same, where HTTP/2 is wanted. HTTP/1 is then offered too: a server that takes it says what it lacks.
const HTTP2: &[u8] = b"h2";

/// Why no configuration can be made of what is wanted.
#[derive(Clone, Debug)]
pub(crate) enum Impossible {
    /// The system trusts nobody, or does not say whom.
    NoSystemRoots(String),
    /// A certificate in the named file is none that could sign.
    BadRoot,
    /// The certificate that we are to show is not the key's, or neither is any.
    BadIdentity(String),
    /// It is neither a name nor an address.
    BadName,
}

/// The configuration for a backend: made once. Reads the system's roots where they are wanted and nobody has yet, which
/// takes a while.
pub(crate) fn prepare(secure: &Secure) -> Result<Arc<ClientConfig>, Impossible> {
    if let Some(config) = secure.config().get() {
        return Ok(Arc::clone(config));
    }
    name(secure)?;
    let config = Arc::new(configure(secure.wanted())?);
    Ok(Arc::clone(secure.config().get_or_init(|| config)))
}

fn configure(wanted: &Wanted) -> Result<ClientConfig, Impossible> {
    let provider = provider();
    let verifier: Arc<dyn ServerCertVerifier> = match &wanted.roots {
        _ if wanted.insecure => Arc::new(Anybody(Arc::clone(provider))),
        Roots::System => verifier(system_roots()?)?,
        Roots::File { certificates, .. } => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates {
                roots.add(certificate.clone()).map_err(|_| Impossible::BadRoot)?;
            }
            Arc::new(Named { signers: verifier(Arc::new(roots))?, certificates: certificates.clone() })
        }
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Impossible::BadIdentity(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &wanted.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
            .map_err(|error| Impossible::BadIdentity(error.to_string()))?,
    };
    config.alpn_protocols = match wanted.http2 {
        true => vec![HTTP2.to_vec(), HTTP1.to_vec()],
        false => vec![HTTP1.to_vec()],
    };
    Ok(config)
}

fn verifier(roots: Arc<RootCertStore>) -> Result<Arc<WebPkiServerVerifier>, Impossible> {
    let builder = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider()));
    builder.build().map_err(|_| Impossible::BadRoot)
}

fn provider() -> &'static Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(aws_lc_rs::default_provider()))
}

/// Whom the system trusts: read once.
fn system_roots() -> Result<Arc<RootCertStore>, Impossible> {
    static ROOTS: OnceLock<Result<Arc<RootCertStore>, String>> = OnceLock::new();
    let read = || {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        match roots.add_parsable_certificates(found.certs) {
            (0, _) => Err(found.errors.first().map_or_else(|| "there are none".to_owned(), ToString::to_string)),
            _ => Ok(Arc::new(roots)),
        }
    };
    ROOTS.get_or_init(read).clone().map_err(Impossible::NoSystemRoots)
}

fn name(secure: &Secure) -> Result<ServerName<'static>, Impossible> {
    let name = secure.server_name().trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(name.to_owned()).map_err(|_| Impossible::BadName)
}

/// Shakes hands over a fresh connection.
pub(crate) async fn handshake(stream: TcpStream, secure: &Arc<Secure>, backend: &Backend) -> Result<Stream, Refusal> {
    let config = match secure.config().get() {
        Some(config) => Ok(Arc::clone(config)),
        None => {
            // Whoever decided has named a backend that no file names. Files are not read where requests are carried.
            let secure = Arc::clone(secure);
            let prepared = tokio::task::spawn_blocking(move || prepare(&secure)).await;
            prepared.unwrap_or_else(|error| Err(Impossible::NoSystemRoots(error.to_string())))
        }
    };
    let (config, name) = match (config, name(secure)) {
        (Ok(config), Ok(name)) => (config, name),
        (Err(why), _) | (_, Err(why)) => {
            tell(backend, secure, &why);
            return Err(Refusal::BackendTls("this proxy can't speak TLS to the site's server"));
        }
    };
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) if secure.wanted().http2 && stream.get_ref().1.alpn_protocol() != Some(HTTP2) => {
            tell(backend, secure, &"it does not speak HTTP/2, which `http2 = true` asks for");
            Err(Refusal::BackendTls("the site's server does not speak HTTP/2 over TLS"))
        }
        Ok(stream) => Ok(Stream::Tls(Box::new(TlsStream::Client(stream)))),
        Err(error) => {
            let (short, long) = cause(&error);
            tell(backend, secure, &long);
            Err(Refusal::BackendTls(short))
        }
    }
}

/// Tells the log, for the access line has only the reason code.
fn tell(backend: &Backend, secure: &Secure, cause: &dyn fmt::Display) {
    if backend.trouble().may_say() {
        tracing::warn!(%backend, server_name = secure.server_name(), %cause, "no TLS to this backend");
    }
}

/// Why a handshake failed: for the client, and for the operator.
fn cause(error: &io::Error) -> (&'static str, String) {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let short = match tls {
        Some(Error::InvalidCertificate(why)) => match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the certificate of the site's server has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the certificate of the site's server is not valid yet"
            }
            CertificateError::UnknownIssuer => {
                "the certificate of the site's server is signed by nobody who is trusted"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the certificate of the site's server is for another name"
            }
            _ => "the certificate of the site's server is not trusted",
        },
        Some(Error::AlertReceived(_)) => "the site's server broke off the TLS handshake",
        Some(Error::InvalidMessage(_)) => "the site's server does not speak TLS",
        Some(_) => "the TLS handshake with the site's server failed",
        None => "the site's server ended the connection within the TLS handshake",
    };
    (short, error.to_string())
}

/// Takes those whom the named certificates have signed, and those who show one of these as their own: many a server of
/// an internal network has signed for itself, as a CA that it is not.
#[derive(Debug)]
struct Named {
    signers: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.certificates.contains(shown) {
            return self.signers.verify_server_cert(shown, chain, name, ocsp, now);
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        let leaf = Leaf::of(shown).map_err(|_| CertificateError::BadEncoding)?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
        if now > leaf.not_after {
            return Err(CertificateError::Expired.into());
        }
        if now < leaf.not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signers.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signers.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signers.supported_verify_schemes()
    }
}

/// Takes whoever comes, as `insecure = true` says. That the other side has the key of its certificate is still proven.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSystemRoots(why) => write!(f, "the system's trusted certificates can't be read: {why}"),
            Self::BadRoot => f.write_str("a certificate in the file can't be one that others are verified by"),
            Self::BadIdentity(why) => write!(f, "the client certificate and its key can't be used: {why}"),
            Self::BadName => f.write_str("neither a name nor an address"),
        }
    }
}
