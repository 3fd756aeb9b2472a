//! The status listener of `serve`: where it is to be, and that it is there.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use carom::config::file::Config;
use carom::config::history::{History, Kept};
use carom::config::status::{HOW_TO_TOKEN, Status};
use carom::ops::control::Served;
use carom::ops::status::{Board, Shown, WasLive, needs_token};
use carom::proxy::BindError;

use super::serve::{Failure, WRONG, cannot_listen, refused};

/// A status listener that is bound.
pub(super) struct Bound {
    listener: TcpListener,
    token: Option<Box<str>>,
}

/// What a flag says, or carom.toml.
pub(super) fn told(flag: Option<SocketAddr>, config: &Config) -> Result<Status, Failure> {
    let Status { listen, token } = config.status.clone();
    let listen = flag.or(listen);
    match listen.filter(|address| needs_token(*address) && token.is_none()) {
        None => Ok(Status { listen, token }),
        Some(address) => {
            let port = address.port();
            let help = format!("help: --status 127.0.0.1:{port}; or in carom.toml {HOW_TO_TOKEN}");
            let text = format!("carom: --status {address} is not only this machine's, and there is no token\n{help}");
            Err(Failure { text, code: WRONG })
        }
    }
}

impl Bound {
    /// Binds it, where there is to be one.
    pub(super) fn to(status: Status) -> Result<Option<Self>, Failure> {
        let Status { listen: Some(address), token } = status else { return Ok(None) };
        let listener = TcpListener::bind(address);
        let listener = listener.map_err(|source| cannot_listen(&BindError { address, source }))?;
        Ok(Some(Self { listener, token }))
    }

    /// Where it is, for people.
    pub(super) fn place(&self) -> Result<String, Failure> {
        let address = self.listener.local_addr().map_err(refused)?;
        Ok(format!("carom: status page on http://{address}/, metrics at http://{address}/metrics"))
    }

    /// Begins to answer. `state` is the state folder of the routes, where there is one.
    pub(super) fn serve(self, served: Served, state: Option<&Path>) -> Result<Board, Failure> {
        let Self { listener, token } = self;
        let stats = served.stats.clone().unwrap_or_default();
        let history = state.map(History::new);
        let history = move || history.as_ref().map(was_live).unwrap_or_default();
        Board::serve(listener, token, Shown { served, stats, history: Box::new(history) }).map_err(refused)
    }
}

fn was_live(history: &History) -> Vec<WasLive> {
    let time = |kept: &Kept| humantime::format_rfc3339_seconds(kept.time).to_string();
    history.all().into_iter().map(|kept| WasLive { number: kept.number, time: time(&kept), diff: kept.diff }).collect()
}
