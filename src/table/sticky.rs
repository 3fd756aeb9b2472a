//! Sessions that stay with their instance: a cookie names it, by a token that says nothing about it to others and that
//! nobody else can make.
//!
//! A token is a keyed hash of site and address. So one that was made before a restart, or before a save, names the same
//! instance after it; one of another site, or of another carom, names none.

use std::fmt::Write;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use aws_lc_rs::{constant_time, hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::balance::{Balance, cookies};
use super::site::Instance;
use crate::http::head::Head;
use crate::settings::StickyKey;

/// How a site's sessions are kept together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// The cookie's name.
    pub cookie: Box<str>,
    /// How the instance of a new session is chosen.
    pub then: Balance,
    /// How long a browser keeps the cookie; `None` for as long as it runs.
    pub max_age: Option<Duration>,
    /// Which requests from other sites' pages carry it.
    pub same_site: SameSite,
    /// Whether it goes over TLS only; `None`: where the request that it answers came so.
    pub secure: Option<bool>,
    /// The site, as it is called in what is signed.
    pub site: Box<str>,
    /// The path below which a browser sends it: other sites of the same host have cookies of their own.
    pub path: Box<str>,
}

/// A cookie's `SameSite`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// A link from elsewhere carries it, a form or a picture does not.
    #[default]
    Lax,
    /// Nothing from elsewhere carries it.
    Strict,
    /// Everything does. Browsers want it to be `Secure`.
    None,
}

/// The name of the cookie where none is said.
pub const COOKIE: &str = "carom";

/// Of the hash, so many bytes are the token.
const LENGTH: usize = 16;

/// Tokens, each an instance's; made once, since a table knows no key.
#[derive(Debug, Default)]
pub(super) struct Tokens(OnceLock<Box<[Box<str>]>>);

impl StickyKey {
    /// A key that nobody knows.
    ///
    /// # Errors
    /// A system that gives no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut key = [0; 32];
        rand::fill(&mut key).map_err(|_| io::Error::other("the system gives no random bytes"))?;
        Ok(Self::new(key))
    }
}

impl Tokens {
    /// All of them, of these instances.
    fn all(&self, sticky: &Sticky, instances: &[Instance], key: &StickyKey) -> &[Box<str>] {
        self.0.get_or_init(|| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.bytes());
            instances.iter().map(|instance| token(&key, &sticky.site, &instance.backend.to_string())).collect()
        })
    }

    /// The instance that the request's cookie names, by its index.
    pub(super) fn named(
        &self,
        sticky: &Sticky,
        instances: &[Instance],
        key: &StickyKey,
        head: &Head<'_>,
    ) -> Option<usize> {
        let tokens = self.all(sticky, instances, key);
        // There may be several of the name, of this host and of the domain above it: one of them is ours.
        cookies(head, sticky.cookie.as_bytes()).find_map(|value| {
            let is = |token: &str| constant_time::verify_slices_are_equal(token.as_bytes(), value).is_ok();
            tokens.iter().position(|token| is(token))
        })
    }

    /// What `Set-Cookie` says to a session of the instance with this index.
    pub(super) fn cookie(
        &self,
        sticky: &Sticky,
        instances: &[Instance],
        key: &StickyKey,
        index: usize,
        tls: bool,
    ) -> Option<Box<str>> {
        let token = self.all(sticky, instances, key).get(index)?;
        let mut text = format!(
            "{}={token}; Path={}; HttpOnly; SameSite={}",
            sticky.cookie,
            sticky.path,
            match sticky.same_site {
                SameSite::Lax => "Lax",
                SameSite::Strict => "Strict",
                SameSite::None => "None",
            }
        );
        // Browsers drop the one without the other.
        if sticky.secure.unwrap_or(tls) || sticky.same_site == SameSite::None {
            text.push_str("; Secure");
        }
        if let Some(age) = sticky.max_age {
            // Writing into a String can't fail.
            let _ = write!(text, "; Max-Age={}", age.as_secs().max(1));
        }
        Some(text.into())
    }
}

/// Neither a site nor an address has the byte that stands between them.
fn token(key: &hmac::Key, site: &str, address: &str) -> Box<str> {
    let mut signed = hmac::Context::with_key(key);
    for part in [site.as_bytes(), b"\0", address.as_bytes()] {
        signed.update(part);
    }
    URL_SAFE_NO_PAD.encode(&signed.sign().as_ref()[..LENGTH]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_key_one_site_and_one_address_and_stays_what_it_is() {
        let key = |byte| hmac::Key::new(hmac::HMAC_SHA256, &[byte; 32]);
        let one = token(&key(1), "a.test", "8001");
        assert_eq!(one.len(), 22);
        assert_eq!(one, token(&key(1), "a.test", "8001"));
        for other in
            [token(&key(2), "a.test", "8001"), token(&key(1), "b.test", "8001"), token(&key(1), "a.test", "8002")]
        {
            assert_ne!(one, other);
        }
        // Another way to make them would send every session elsewhere.
        assert_eq!(&*one, "mnbjFEVQNrkEtaA1h6w8VA");
    }
}
