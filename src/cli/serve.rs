//! `carom serve`: the proxy, its routes file, and the signals that it listens to.
//!
//! The workers carry requests, another thread follows the files, and this one waits for signals.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use carom::bounce::Routes;
use carom::config::caution::{cautions, unheard};
use carom::config::certs::Found;
use carom::config::file::{self, Config, Control, Listen, Log, Status};
use carom::config::report::Report;
use carom::config::state::{self, default_state_path};
use carom::config::sticky_key;
use carom::config::{default_certs_path, default_routes_path};
use carom::ops::access::{Access, Format, To, Writer};
use carom::ops::control::{Control as ControlServer, Reloads, RoutesFile, Served, Socket};
use carom::ops::failures::Failures;
use carom::ops::health::Checks;
use carom::ops::names::Names;
use carom::ops::stats::Stats;
use carom::proxy::{self, BindError, Proxy};
use carom::settings::StickyKey;
use carom::table::Table;
use carom::table::balance::Balance;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::Serve;
use super::board::{self, Bound};
use super::follow::Follow;
use super::past::{First, Past};
use super::shelf::{Folder, Shelf};
use super::talk::usual_place;

/// Why `serve` did not serve: what to say, and how to exit.
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) code: u8,
}

/// The files and addresses that `serve` would use, which `check` and `explain` look at too.
pub(super) struct Told {
    pub(super) config: Config,
    pub(super) routes: PathBuf,
    pub(super) listen: Vec<Listen>,
    /// The folder of certificates, where an address speaks TLS or one is named.
    pub(super) certs: Option<Folder>,
    /// The state folder of these routes, which may not be there yet; `None` where nobody says where one could be.
    pub(super) state: Option<PathBuf>,
    /// The control socket: where somebody has said, else by default, where there is a place for one.
    control: Option<(PathBuf, Said)>,
    /// The status listener.
    status: Status,
    self_signed: bool,
}

/// Whether a place was named by somebody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    ByHand,
    ByDefault,
}

/// The configuration is wrong.
pub(super) const WRONG: u8 = 1;

/// The system does not give what is needed: an address, a thread, a file.
pub(super) const REFUSED: u8 = 3;

/// Commands that wait for one another.
const COMMANDS: usize = 16;

/// Serves until a signal says stop.
pub(super) fn run(serve: Serve) -> ExitCode {
    log_to_stderr();
    let serving = async { start(serve).await?.run().await };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused);
    match runtime.and_then(|runtime| runtime.block_on(serving)) {
        Ok(code) => code,
        Err(failure) => failure.exit(),
    }
}

impl Failure {
    /// Says why, and gives the exit code.
    pub(super) fn exit(self) -> ExitCode {
        say!("{}", self.text.trim_end());
        ExitCode::from(self.code)
    }
}

impl Told {
    /// From flags, from carom.toml where there are none, else the defaults.
    pub(super) fn by(serve: Serve) -> Result<Self, Failure> {
        let config = configuration(serve.config.as_deref())?;
        let routes = routes_path(serve.routes, &config)?;
        let tls = serve.tls.into_iter().map(|address| Listen { tls: true, ..Listen::from(address) });
        let flags: Vec<Listen> = serve.listen.into_iter().map(Listen::from).chain(tls).collect();
        let listen = [flags, config.listen.clone()].into_iter().find(|addresses| !addresses.is_empty());
        let listen = listen.unwrap_or_else(|| vec![SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 80).into()]);
        let named = serve.certs.or_else(|| config.certs.clone()).map(|path| Folder { path, named: true });
        let speaks_tls = listen.iter().any(|listen| listen.tls);
        if serve.tls_self_signed && !speaks_tls {
            let text = "carom: --tls-self-signed without an address that speaks TLS\nhelp: --tls '[::]:443'".to_owned();
            return Err(Failure { text, code: WRONG });
        }
        let usual = || Folder { path: default_certs_path(&routes), named: false };
        let certs = named.or_else(|| speaks_tls.then(usual));
        let state = serve.state.or_else(|| config.state.clone()).or_else(default_state_path);
        let state = state.map(|state| state::of_routes(&state, &routes));
        let control = match serve.control.or_else(|| config.control.clone()) {
            Some(Control::At(path)) => Some((path, Said::ByHand)),
            Some(Control::Off) => None,
            None => usual_place(state.as_deref()).map(|path| (path, Said::ByDefault)),
        };
        let status = board::told(serve.status, &config)?;
        Ok(Self { config, routes, listen, certs, state, control, status, self_signed: serve.tls_self_signed })
    }

    /// Where it listens.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.listen.iter().map(|listen| listen.address).collect()
    }
}

/// Everything that is there before the first request.
struct Running {
    proxy: Proxy,
    follow: Follow,
    log: Option<Writer>,
    routes: Routes,
    dns_servers: Vec<SocketAddr>,
    failures: Failures,
    stats: Option<Stats>,
    control: Option<Socket>,
    board: Option<Bound>,
    /// The state folder of the routes.
    state: Option<PathBuf>,
    /// For people: `http://[::]:80`.
    listening: Vec<String>,
    /// What is said once signals are listened to.
    ready: String,
}

async fn start(serve: Serve) -> Result<Running, Failure> {
    let (workers, strict) = (serve.workers, serve.strict);
    let told = Told::by(serve)?;
    let addresses = told.addresses();
    let Told { config, routes: path, listen, certs, state, control, status, self_signed } = told;
    let mut past = Past::new(state.as_deref());
    let First { bytes, table, from, broken } =
        past.first(&path, &addresses, strict).map_err(|report| wrong(&report))?;
    let certs = certs.filter(|_| listen.iter().any(|listen| listen.tls));
    let mut shelf = certs.map(|folder| Shelf::new(folder, config.default_cert.clone(), self_signed));
    let found = shelf.as_mut().map(|shelf| first_certificates(shelf, &table)).transpose()?;
    let certificates = found.as_ref().map(|found| Arc::clone(&found.certificates)).unwrap_or_default();
    let routes = Routes::new(table.with_certificates(certificates));

    let mut settings = config.settings.clone();
    settings.sticky_key = sticky_key(state.as_deref(), &routes.current());

    raise_descriptor_limit();
    let mut builder = Proxy::builder()
        .workers(workers.unwrap_or(config.workers))
        .settings(settings)
        .decide(routes.clone())
        .certify(routes.clone());
    for &Listen { address, proxy_protocol, tls } in &listen {
        let address = proxy::Listen::from(address);
        let address = if proxy_protocol { address.proxy_protocol() } else { address };
        builder = if tls { builder.listen_tls(address) } else { builder.listen(address) };
    }
    let mut log = None;
    if let Some((access, writer)) = access_log(&config)? {
        builder = builder.observe(access);
        log = Some(writer);
    }
    let failures = Failures::redacting(config.log.redact.clone());
    if control.is_some() || status.listen.is_some() {
        builder = builder.observe(failures.clone());
    }
    // Counting reads no clock of its own. But where nobody else wants to hear of every request, none is read for the control
    // socket's sake.
    let stats = (log.is_some() && control.is_some() || status.listen.is_some()).then(Stats::new);
    if let Some(stats) = &stats {
        builder = builder.observe(stats.clone());
    }
    let board = Bound::to(status)?;
    let proxy = builder.bind().await.map_err(|error| cannot_listen(&error))?;
    let control = control.map(|(path, said)| control_socket(path, said)).transpose()?.flatten();
    let listening = written(proxy.addresses(), &listen);
    let mut ready = ready(&listening, &from, &routes.current());
    if let Some(board) = &board {
        let _ = write!(ready, "\n{}", board.place()?);
    }
    let name = file_name(&path);
    let unheard = if shelf.is_none() { unheard(&routes.current(), &name) } else { None };
    for caution in cautions(&routes.current(), &name).into_iter().chain(unheard) {
        let _ = write!(ready, "\n{caution}");
    }
    let file = RoutesFile { path, applied: SystemTime::now(), broken, reloads: Reloads::default(), trial: None };
    let follow = Follow::new(file, bytes, proxy.addresses().to_vec(), routes.clone(), shelf.zip(found), past);
    let running = Running {
        proxy,
        routes,
        dns_servers: config.dns_servers,
        follow,
        log,
        failures,
        stats,
        control,
        board,
        state,
        listening,
        ready,
    };
    Ok(running)
}

/// The key that outlives this run. Where there is no place for it, serves with another, and says so if that matters now.
fn sticky_key(state: Option<&Path>, table: &Table) -> Option<StickyKey> {
    let why = match state.map(sticky_key::kept_in) {
        Some(Ok(key)) => return Some(key),
        Some(Err(error)) => error.to_string(),
        None => "there is no home for its key".to_owned(),
    };
    if table.sites().any(|site| matches!(site.balance(), Balance::Sticky(_))) {
        say!("carom: sticky sessions begin anew with each start: {why}");
    }
    None
}

pub(super) fn configuration(path: Option<&Path>) -> Result<Config, Failure> {
    path.map_or_else(|| Ok(Config::default()), Config::load).map_err(|report| wrong(&report))
}

/// The routes file: the one named here, or in carom.toml, or the first that exists of the usual places.
pub(super) fn routes_path(named: Option<PathBuf>, config: &Config) -> Result<PathBuf, Failure> {
    named.or_else(|| config.routes.clone()).or_else(default_routes_path).ok_or_else(|| Failure {
        text:
            "carom: no routes file: name one (`carom serve routes.toml`), or make routes.toml, config/routes.toml or \
               /etc/carom/routes.toml\nhelp: \"example.com\" = 8001   is a whole one; `carom demo` shows it at work"
                .to_owned(),
        code: WRONG,
    })
}

impl Running {
    async fn run(self) -> Result<ExitCode, Failure> {
        let mut stop = Stop::new().map_err(refused)?;
        let mut again = Stop::new().map_err(refused)?;
        let hangup = signal(SignalKind::hangup()).map_err(refused)?;
        say!("{}", self.ready);
        // These two ask where instances are and whether they are up, for as long as they are held.
        let names = Names::follow(self.routes.clone(), self.dns_servers).map_err(refused)?;
        let checks = Checks::follow(self.routes.clone()).map_err(refused)?;
        let (commands, asked) = mpsc::channel(COMMANDS);
        let served = Served {
            routes: self.routes,
            listening: self.listening,
            doors: self.proxy.doors(),
            failures: self.failures,
            stats: self.stats,
            file: self.follow.file(),
            commands,
        };
        let board = self.board.map(|board| board.serve(served.clone(), self.state.as_deref())).transpose()?;
        let control = self.control.map(|socket| ControlServer::serve(socket, served)).transpose().map_err(refused)?;
        let following = self.follow.start(hangup, asked).map_err(refused)?;
        let reopen = self.log.as_ref().map(Writer::reopen);
        let mut rotated = signal(SignalKind::user_defined1()).map_err(refused)?;
        let rotating = async {
            while rotated.recv().await.is_some() {
                if let Some(reopen) = &reopen {
                    reopen.now();
                }
            }
        };
        let shutdown = async {
            tokio::select! {
                () = following.ended() => {}
                name = stop.asked() => say!("carom: {name}: answering what is in flight; once more ends at once"),
            }
        };
        let code = tokio::select! {
            drained = self.proxy.run_until(shutdown) => {
                match drained.map_err(refused)?.cut {
                    0 => say!("carom: stopped"),
                    cut => say!("carom: stopped; {cut} connections were busy at timeouts.drain and were cut off"),
                }
                ExitCode::SUCCESS
            }
            code = again.twice() => code,
            // Only where no signal can come any more.
            () = rotating => ExitCode::SUCCESS,
        };
        drop((names, checks, control, board));
        if let Some(log) = self.log {
            log.finish();
        }
        Ok(code)
    }
}

/// The signals that ask for a stop.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// The second one: the exit code that says so.
    async fn twice(&mut self) -> ExitCode {
        self.asked().await;
        let name = self.asked().await;
        say!("carom: {name} again: ended at once");
        ExitCode::from(if name == "SIGINT" { 130 } else { 143 })
    }
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.display().to_string())
}

/// `carom: listening on http://[::]:80 — 12 routes from routes.toml`
fn ready(listening: &[String], from: &str, table: &Table) -> String {
    let routes = table.routes().len();
    let s = if routes == 1 { "" } else { "s" };
    format!("carom: listening on {} — {routes} route{s} from {from}", listening.join(", "))
}

/// Where it listens, for people.
fn written(addresses: &[SocketAddr], listen: &[Listen]) -> Vec<String> {
    let scheme = |listen: &Listen| if listen.tls { "https" } else { "http" };
    addresses.iter().zip(listen).map(|(address, listen)| format!("{}://{address}", scheme(listen))).collect()
}

/// The control socket. One that somebody has asked for has to be there; without the usual one, it serves all the same.
fn control_socket(path: PathBuf, said: Said) -> Result<Option<Socket>, Failure> {
    match Socket::bind(path) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) if said == Said::ByHand => {
            Err(Failure { text: format!("carom: {error}\nhelp: {}", error.help()), code: REFUSED })
        }
        Err(error) => {
            say!("carom: {error}; it serves without\nhelp: {}", error.help());
            Ok(None)
        }
    }
}

/// The certificates to begin with. What is wrong with some of them is said, and the others are served.
fn first_certificates(shelf: &mut Shelf, table: &Table) -> Result<Found, Failure> {
    let found = shelf.read(table);
    let folder = found.problems.iter().find(|trouble| trouble.file == shelf.folder() && !trouble.file.is_dir());
    if let Some(trouble) = folder.filter(|_| found.certificates.all().is_empty()) {
        let help = "help: name the folder with --certs, or a site's own with tls = { cert = …, key = … }";
        return Err(Failure { text: format!("carom: {trouble}\n{help}"), code: WRONG });
    }
    for trouble in found.problems.iter().chain(&found.expiring) {
        say!("carom: {trouble}");
    }
    if found.certificates.all().is_empty() {
        say!("carom: {} has no certificate yet", shelf.folder().display());
    }
    if let Some(how) = shelf.how_to_trust() {
        say!("{how}");
    }
    Ok(found)
}

fn access_log(config: &Config) -> Result<Option<(Access, Writer)>, Failure> {
    let Log { access, format, redact } = &config.log;
    if access.is_empty() {
        return Ok(None);
    }
    let terminal = *access == [To::Stdout] && std::io::stdout().is_terminal();
    let format = match format {
        Some(file::Format::Pretty) => Format::Pretty { color: terminal && colors() },
        Some(file::Format::Template(template)) => Format::Template(template.clone()),
        None if terminal => Format::Pretty { color: colors() },
        Some(file::Format::Json) | None => Format::Json,
    };
    Access::to(access, format, redact.clone()).map(Some).map_err(|(path, error)| match path {
        None => refused(error),
        Some(path) => {
            let text = format!("carom: the access log {} can't be opened: {error}", path.display());
            Failure { text, code: REFUSED }
        }
    })
}

/// As many descriptors as this process may have: each client is two.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is not allowed, what there is has to do: the number of clients follows from it.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CAROM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second one in a process stays unused: the first goes on.
    let _ = subscriber.with_target(false).with_ansi(colors()).log_internal_errors(false).try_init();
}

/// Whether standard error is a terminal that has colors, and nobody asked for none.
pub(super) fn colors() -> bool {
    std::io::stderr().is_terminal() && colors_are_welcome()
}

/// Whether nobody has asked for none (no-color.org).
pub(super) fn colors_are_welcome() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn wrong(report: &Report) -> Failure {
    Failure { text: report.render(colors()), code: WRONG }
}

pub(super) fn cannot_listen(error: &BindError) -> Failure {
    Failure { text: format!("carom: {error}\nhelp: {}", error.help().replace('\n', "\n      ")), code: REFUSED }
}

pub(super) fn refused(error: std::io::Error) -> Failure {
    Failure { text: format!("carom: {error}"), code: REFUSED }
}
