//! What a reason code means to the operator, and what cures it.

/// Of one reason code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What has happened.
    pub what: &'static str,
    /// What to do about it.
    pub cure: &'static str,
}

/// What is known of a reason code; `None` for what is none.
#[rustfmt::skip] // one row a line
pub fn of(code: &str) -> Option<Cause> {
    let (what, cure) = match code {
        "malformed-head"          => ("the request head breaks RFC 9112, or could be read in two ways", "mend the client; a scanner is harmless, nothing of it has reached a backend"),
        "malformed-body"          => ("the framing of the request body is broken", "mend the client; the backend was told that the body had broken off"),
        "bad-host"                => ("the Host is missing, repeated or no host", "mend the client"),
        "plain-http"              => ("plain HTTP came to a port that speaks TLS", "use https:// in front of that port's address"),
        "https-only"              => ("plain HTTP came to a site with https = \"only\"", "use https://, or https = \"redirect\" in the site's line"),
        "no-route"                => ("no line of the routes covers this host, or this path under it", "`carom explain URL` shows what nearly covers it; `carom set HOST TARGET` adds a line"),
        "head-timeout"            => ("the request head was not whole within timeouts.head", "a slow client, or one that opens connections and says nothing; raise timeouts.head if real people are hit"),
        "body-timeout"            => ("the client was silent in the middle of its body for timeouts.body", "a slow or gone client; raise timeouts.body for long uploads and streams"),
        "body-too-large"          => ("the request body is over limits.body", "raise limits.body if it should pass"),
        "target-too-long"         => ("the request target is over limits.target", "raise limits.target if it should pass"),
        "head-too-large"          => ("the request head is over limits.head or limits.fields", "often a cookie that grows: clear it, or raise the limit"),
        "misdirected"             => ("the connection's certificate is not for this host, or the host is passed through", "none is needed: browsers connect again by themselves"),
        "bad-decision"            => ("what the program that uses the library decided can't be done", "its log says what"),
        "unknown-protocol"        => ("an extended CONNECT asked for something else than a WebSocket", "mend the client"),
        "backend-refused"         => ("nothing listens at the backend's address", "start it; is the port the one that it listens on? `ss -ltnp` lists those that are"),
        "backend-unreachable"     => ("the backend's address can't be reached", "is the machine up, the route there, the firewall open?"),
        "backend-name"            => ("the backend's name has no address", "does it resolve? `getent hosts NAME`; [dns] servers, if others are to be asked"),
        "backend-tls"             => ("no TLS connection to the backend", "the warning in carom's log beside it names the certificate's fault; `ca`, `server_name`, `client_cert`"),
        "backend-closed"          => ("the backend closed a fresh connection before it answered anything", "look into its log at this time: it most likely crashed, or was stopped; `retries = 2` tries another instance"),
        "backend-closed-idle"     => ("the backend closed a kept connection just as a request was sent that may not be sent twice", "raise its keep-alive time-out above timeouts.backend_idle (or lower that below its)"),
        "backend-closed-mid-head" => ("the backend closed in the middle of its response head", "look into its log at this time: it most likely crashed"),
        "backend-closed-mid-body" => ("the backend broke off in the middle of its body; the client saw that too", "look into its log at this time: it most likely crashed, or gave up by a time-out of its own"),
        "backend-gone"            => ("the backend's side of a tunnel broke off", "look into its log at this time"),
        "backend-garbled"         => ("the backend's response breaks RFC 9112, or could be read in two ways", "mend the backend: two lengths, a folded field or a wrong chunk are the usual faults"),
        "backend-head-too-large"  => ("the backend's response head is over limits.response_head or limits.fields", "raise the limit if it should pass"),
        "backend-busy"            => ("all instances have as many requests as max_connections allows, for as long as wait says", "more instances, or a higher max_connections"),
        "no-backend"              => ("no instance was left to try", "`carom status SITE` says which are down, aside or drained, and why"),
        "queue-full"              => ("limits.waiting requests wait for the site already", "more instances; a longer queue only helps for a moment"),
        "paused"                  => ("the site is paused", "`carom resume SITE`"),
        "no-descriptor"           => ("carom has as many files and connections open as the system lets it", "raise the limit (`ulimit -n`, LimitNOFILE=); leave limits.connections at 0, so that clients don't use them all"),
        "draining"                => ("carom was being stopped, and timeouts.drain had passed", "raise timeouts.drain if requests take longer"),
        "connect-timeout"         => ("connecting to the backend took longer than timeouts.connect", "is it overloaded (its accept queue full), or does a firewall drop packets?"),
        "response-timeout"        => ("the backend was silent: no response head within timeouts.response_head, or nothing of a body within timeouts.response_body", "what is slow there? Raise the time-out if it may take that long"),
        "client-gone"             => ("the client went away before it had its answer", "none; many at one path often mean that it is slow"),
        "idle-timeout"            => ("one side was silent for too long", "timeouts.send for clients that take nothing, timeouts.tunnel and half_closed for tunnels"),
        _ => return None,
    };
    Some(Cause { what, cure })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::refuse::every_code;

    #[test]
    fn every_code_has_a_cause_and_a_cure() {
        for code in every_code() {
            let cause = of(code).expect(code);
            assert!(!cause.what.is_empty() && !cause.cure.is_empty(), "{code}");
        }
        assert_eq!(of("no-such-code"), None);
    }
}
