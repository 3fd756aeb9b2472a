//! What of a head lets somebody in, and is not shown unless it is asked for.

/// What stands in its place.
const HIDDEN: &str = "[redacted]";

/// Fields that are secrets as a whole.
const FIELDS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "set-cookie"];

/// What is in the names of others, and of parameters.
const PARTS: [&str; 8] = ["token", "secret", "api-key", "apikey", "api_key", "passw", "credential", "signature"];

/// Fields that hold an address.
const ADDRESSES: [&str; 3] = ["referer", "location", "content-location"];

/// A line of a head without what is secret in it: the value of a field, or of a parameter in an address.
pub(super) fn hidden(line: &str) -> String {
    // A line that begins a head has no colon before its first space; a field's name is followed by one.
    let field = line.split_once(':').filter(|(name, _)| !name.contains(' '));
    let Some((name, value)) = field else { return in_address(line) };
    let lower = name.to_ascii_lowercase();
    match lower.as_str() {
        name if FIELDS.contains(&name) || is_secret(name) => format!("{}: {HIDDEN}", &line[..name.len()]),
        name if ADDRESSES.contains(&name) => format!("{}:{}", &line[..name.len()], in_address(value)),
        _ => line.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

/// `/x?token=abc&b=2` as `/x?token=[redacted]&b=2`.
fn in_address(text: &str) -> String {
    let parameters = text.split_inclusive(['?', '&', ';', '#', ' ']).map(|part| {
        let value = part.trim_end_matches(['?', '&', ';', '#', ' ']);
        match value.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}{}", &part[value.len()..]),
            _ => part.to_owned(),
        }
    });
    parameters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lets_somebody_in_is_hidden_and_the_rest_stays() {
        for (line, shown) in [
            ("Authorization: Basic Zm9v", "Authorization: [redacted]"),
            ("COOKIE:a=1; b=2", "COOKIE: [redacted]"),
            ("Set-Cookie: a=1; HttpOnly", "Set-Cookie: [redacted]"),
            ("X-Api-Key: 1", "X-Api-Key: [redacted]"),
            ("X-CSRF-Token: 1", "X-CSRF-Token: [redacted]"),
            ("Host: a.test", "Host: a.test"),
            ("Date: Tue, 01 Dec 2026 01:00:00 GMT", "Date: Tue, 01 Dec 2026 01:00:00 GMT"),
            ("GET /x?access_token=a=b&c=2 HTTP/1.1", "GET /x?access_token=[redacted]&c=2 HTTP/1.1"),
            ("GET http://a.test/?secret=1 HTTP/1.1", "GET http://a.test/?secret=[redacted] HTTP/1.1"),
            ("Referer: https://a.test/?password=1#x", "Referer: https://a.test/?password=[redacted]#x"),
            ("Location: /?q=1", "Location: /?q=1"),
            ("HTTP/1.1 200 OK", "HTTP/1.1 200 OK"),
            ("", ""),
        ] {
            assert_eq!(hidden(line), shown);
        }
    }
}
