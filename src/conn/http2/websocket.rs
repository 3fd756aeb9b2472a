//! WebSockets over HTTP/2 (RFC 8441), to backends that know those of HTTP/1 (RFC 6455 section 4).
//!
//! HTTP/2 has no key and no answer to it: towards the backend the handshake is ours.

use std::hash::{BuildHasher, RandomState};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Writes the fields that ask for the switch, and gives what a server answers that has understood them. The key is random
/// so that no answer can have been stored; it is no secret.
pub(super) fn ask(out: &mut Vec<u8>) -> Vec<u8> {
    let random = RandomState::new();
    let key =
        STANDARD.encode([random.hash_one(0).to_ne_bytes(), random.hash_one(1).to_ne_bytes()].concat()).into_bytes();
    out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: ");
    out.extend_from_slice(&key);
    out.extend_from_slice(b"\r\n");
    accept(&key)
}

fn accept(key: &[u8]) -> Vec<u8> {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    STANDARD.encode(hash.finalize()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_answer_are_as_rfc_6455_has_them() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
