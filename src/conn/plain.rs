//! What becomes of a request that came as plain HTTP, where its site is served over TLS.

use crate::conn::tls::Tls;
use crate::http::head::Head;
use crate::http::refuse::Refusal;
use crate::table::Redirect;
use crate::table::https::{Https, Plain};

/// Below this whoever issues certificates asks for proof, over plain HTTP (RFC 8555 section 8.3).
const ACME: &[u8] = b"/.well-known/acme-challenge/";

/// Where the client is sent instead of being served, if it is. `trusted` are those whose word on how a request came to
/// them is taken.
pub(super) fn instead(
    https: &Https,
    head: &Head<'_>,
    trusted: bool,
    tls: Option<&Tls>,
) -> Result<Option<Redirect>, Refusal> {
    let host = head.host();
    let becomes = https.plain.unwrap_or_else(|| match (host, tls) {
        (Some(host), Some(tls)) if tls.has_certificate_for(host) => Plain::Redirected,
        _ => Plain::Allowed,
    });
    if becomes == Plain::Allowed || head.path().starts_with(ACME) || trusted && came_over_tls(head) {
        return Ok(None);
    }
    match (becomes, host) {
        (Plain::Redirected, Some(host)) => {
            let port = tls.and_then(Tls::port).map(|port| format!(":{port}")).unwrap_or_default();
            // The method stays (RFC 9110 section 15.4.9).
            Ok(Some(Redirect { status: 308, to: format!("https://{host}{port}").into() }))
        }
        _ => Err(Refusal::HttpsOnly),
    }
}

/// Whether the proxy in front says so.
pub(super) fn came_over_tls(head: &Head<'_>) -> bool {
    let is_https = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"https");
    let said = head.field("x-forwarded-proto").is_some_and(|value| value.split(|&byte| byte == b',').all(is_https));
    said || head.field("forwarded").is_some_and(|value| {
        let mut pairs = value.split(|&byte| byte == b';' || byte == b',').map(<[u8]>::trim_ascii);
        pairs.any(|pair| pair.eq_ignore_ascii_case(b"proto=https") || pair.eq_ignore_ascii_case(b"proto=\"https\""))
    })
}
