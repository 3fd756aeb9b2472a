//! WebSockets over HTTP/2 (RFC 8441), to backends that know those of HTTP/1 (RFC 6455 section 4).
//!
//! HTTP/2 has no key and no answer to it: towards the backend the handshake is ours.

use std::hash::{BuildHasher, RandomState};

use sha1::{Digest, Sha1};

/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes the fields that ask for the switch, and gives what a server answers that has understood them. The key is random
/// so that no answer can have been stored; it is no secret.
pub(super) fn ask(out: &mut Vec<u8>) -> Vec<u8> {
    let random = RandomState::new();
    let key = base64(&[random.hash_one(0).to_ne_bytes(), random.hash_one(1).to_ne_bytes()].concat());
    out.extend_from_slice(b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: ");
    out.extend_from_slice(&key);
    out.extend_from_slice(b"\r\n");
    accept(&key)
}

fn accept(key: &[u8]) -> Vec<u8> {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(GUID);
    base64(&hash.finalize())
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let six = (group >> (18 - 6 * place) & 63) as usize;
            text.push(if place > three.len() { b'=' } else { ALPHABET[six] });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_answer_are_as_rfc_6455_has_them() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for (bytes, text) in [(&b""[..], &b""[..]), (b"f", b"Zg=="), (b"fo", b"Zm8="), (b"foobar", b"Zm9vYmFy")] {
            assert_eq!(base64(bytes), text);
        }
    }
}
