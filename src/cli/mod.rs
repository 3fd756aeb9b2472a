//! The command line: one file a verb.

/// Says a line on standard error. Whoever reads that may be gone, which is no reason to stop serving: `eprintln!` would.
macro_rules! say {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($text)*)));
    }};
}

/// Says a line on standard output, likewise.
macro_rules! tell {
    ($($text:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stdout(), format_args!("{}\n", format_args!($($text)*)));
    }};
}

mod attempt;
mod board;
mod check;
mod demo;
mod deploy;
mod drain;
mod explain;
mod follow;
mod history;
mod last;
mod past;
mod pause;
mod reload;
mod serve;
mod set;
mod shelf;
mod status;
mod talk;
mod tap;
mod top;
mod trial;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use carom::config::file::Control;
use carom::ops::control::deploy::Deploy;
use clap::{Args, Parser, Subcommand};

/// Bounces each HTTP request to the right backend, by its Host, as routes.toml says.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Carom {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// The routes file (bouncy's command line: `carom ROUTES PORT [ADDRESS]`)
    #[arg(requires = "port")]
    routes: Option<PathBuf>,
    /// The port to listen on
    port: Option<u16>,
    /// The address to listen on [default: every one]
    address: Option<std::net::IpAddr>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve the routes, and follow the file as it changes
    Serve(Serve),
    /// Say what serve would say of its files: exit 0 when they are fine, 1 when not
    ///
    /// Where they are not, serve would start from the last table that was good, unless it is told to be --strict.
    Check(Serve),
    /// Say which route covers a URL, which backend it gets, why, and what nearly covers it; or why requests have failed
    Explain {
        /// `http://shop.example.com/api/x`, or without its scheme
        #[arg(required_unless_present = "last")]
        url: Option<String>,
        /// Ask the carom that runs which requests have failed lately, and say what would cure that
        #[arg(long, value_name = "STATUS|REASON", num_args = 0..=1, default_missing_value = "")]
        last: Option<String>,
        /// How many of them
        #[arg(short = 'n', long, requires = "last", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
        count: u16,
        /// As JSON, as it is documented with the control socket
        #[arg(long, requires = "last")]
        json: bool,
        /// The routes file of the carom that is asked
        #[arg(long = "routes", value_name = "FILE", requires = "last")]
        of: Option<PathBuf>,
        #[command(flatten)]
        serve: Serve,
    },
    /// Send a site to these targets: change its line of the routes file, or add one
    ///
    /// Comments, order and layout of the file stay, and so does what the line says of targets that stay. Nothing is written
    /// when the result would be wrong. A carom that serves the file applies the change as any other save.
    Set {
        /// As the file's keys are compared: a host, `*.apps.example.com`, `shop.example.com/api/`
        site: String,
        /// A port of this machine, `10.0.0.7:9000`, `https://…`, `unix:/path`
        #[arg(required = true, value_name = "TARGET")]
        targets: Vec<String>,
        #[command(flatten)]
        to: To,
    },
    /// Take a site out of the routes file: its line, or its name out of another line's `also`
    Unset {
        /// As the file's keys are compared
        site: String,
        #[command(flatten)]
        to: To,
    },
    /// Say which tables were live, the newest first; or what one of them said
    History {
        /// The number of a table, whose text is printed
        number: Option<u64>,
        #[command(flatten)]
        to: To,
    },
    /// Write a table that was live into the routes file again
    ///
    /// It is read as a save is: what is good no more, as when a certificate is gone, is said, and nothing is written. A
    /// carom that serves the file applies it as any other save, and keeps it as a new table.
    Rollback {
        /// Its number in `carom history` [default: the newest that says something else than the file does now]
        number: Option<u64>,
        #[command(flatten)]
        to: To,
    },
    /// Say how a carom that runs is: its sites, their instances, which of them are down and why
    Status {
        /// One site: its key in the routes, or a name in its `also`
        site: Option<String>,
        /// As JSON, as it is documented with the control socket
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        to: To,
    },
    /// Watch a carom that runs: its sites and instances, what they serve a second, and what fails
    ///
    /// `s` sorts, `r` turns the order, `/` filters, Enter shows one site, `q` ends.
    Top {
        /// How often it is asked
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
        interval: Duration,
        #[command(flatten)]
        to: To,
    },
    /// Show the heads of a site's requests and responses as they are forwarded, until Ctrl-C
    ///
    /// A request as the instance gets it, a response as the client does. What lets somebody in is not shown:
    /// Authorization, Proxy-Authorization, Cookie, Set-Cookie, and fields and parameters that are named like a token, a
    /// secret, an API key, a password, a credential or a signature. Where requests come faster than they are shown, some
    /// are left out, with a word; they are never held up.
    Tap {
        /// Its key in the routes, or a name in its `also`
        site: String,
        /// Only those that are answered with 4xx or 5xx, by whomever, or break off
        #[arg(long)]
        errors: bool,
        /// End after so many requests have been answered or have broken off
        #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
        /// Show what lets somebody in, too
        #[arg(long)]
        show_secrets: bool,
        /// A line of JSON each, as it is documented with the control socket
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        to: To,
    },
    /// Have the routes read now: exit 0 when they are fine, 1 when not, and nothing has changed
    Reload(To),
    /// Give an instance no new requests, also after a save; those that are with it go on
    Drain {
        #[command(flatten)]
        which: Which,
        /// Wait until it has none: exit 0, or 1 when it still has some after so long
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        wait: Option<Duration>,
        #[command(flatten)]
        to: To,
    },
    /// Give a drained instance requests again
    Undrain {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        to: To,
    },
    /// Let a site's new requests wait, also after a save; what is under way goes on
    Pause {
        /// Its key in the routes, or a name in its `also`
        site: String,
        /// What those are told that have waited in vain
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        /// How long each request waits before it gets 503
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
        wait: Duration,
        #[command(flatten)]
        to: To,
    },
    /// Let the requests of a paused site go on
    Resume {
        /// Its key in the routes, or a name in its `also`
        site: String,
        #[command(flatten)]
        to: To,
    },
    /// Send a site to new instances once they are healthy, and wait until the old ones are idle
    ///
    /// The carom that serves the site asks the new targets. When all are healthy, the routes file is changed as by `set`, and
    /// applied in the same moment. Exit 0 when nothing is with the old ones any more; 1 when nothing has changed, and why,
    /// or when the old ones still have requests after --drain, which go on.
    Deploy {
        /// As the file's keys are compared
        site: String,
        /// Its targets from then on
        #[arg(long, required = true, value_delimiter = ',', value_name = "TARGET,…")]
        to: Vec<String>,
        /// What is asked for [default: the site's own check, else a connection]
        #[arg(long, value_name = "PATH")]
        health: Option<String>,
        /// How long the new instances have until they are healthy
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
        timeout: Duration,
        /// How long the old ones are waited for
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
        drain: Duration,
        #[command(flatten)]
        carom: To,
    },
    /// Have other routes run on trial, without touching the file: they go back by themselves when they do harm, or when
    /// nobody confirms them
    ///
    /// Exit 0 when they are kept, 1 when they have gone back, with the reason.
    Try {
        /// The routes to try
        file: PathBuf,
        /// After so long without a confirmation they go back
        #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
        length: Duration,
        #[command(flatten)]
        to: To,
    },
    /// Write what is on trial into the routes file
    Confirm(To),
    /// Show the job at once: embedded backends, and a routes file to edit
    Demo {
        /// The port to listen on
        #[arg(long, default_value_t = 8080)]
        port: u16,
        /// Speak TLS too, with certificates of a local authority in certs/local
        #[arg(long)]
        tls: bool,
        /// The port that speaks TLS
        #[arg(long, default_value_t = 8443, requires = "tls")]
        tls_port: u16,
    },
}

/// What `serve` is told.
#[derive(Args, Debug, Default)]
struct Serve {
    /// The routes file [default: the first of routes.toml, config/routes.toml, /etc/carom/routes.toml]
    routes: Option<PathBuf>,
    /// carom.toml: times, limits, logs; needed for nothing
    #[arg(long)]
    config: Option<PathBuf>,
    /// An address to listen on, as often as needed: `[::]:80`, `127.0.0.1:8080`, `:8080` [default: [::]:80 without --tls]
    #[arg(long, value_parser = carom::config::file::listen_address)]
    listen: Vec<SocketAddr>,
    /// An address that speaks TLS, as often as needed
    #[arg(long, value_name = "ADDRESS", value_parser = carom::config::file::listen_address)]
    tls: Vec<SocketAddr>,
    /// The folder of certificates [default: certs, beside the routes file]
    #[arg(long, value_name = "FOLDER")]
    certs: Option<PathBuf>,
    /// Make the certificates that are missing, signed by a local authority in the folder's `local/`: for development
    #[arg(long)]
    tls_self_signed: bool,
    /// The folder of what outlives a run [default: $STATE_DIRECTORY, $XDG_STATE_HOME/carom or ~/.local/state/carom]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Refuse to start when the routes file is broken, in place of serving the last table that was good
    #[arg(long)]
    strict: bool,
    /// The control socket, or `off` [default: control.sock in $RUNTIME_DIRECTORY or in the state folder]
    #[arg(long, value_name = "SOCKET")]
    control: Option<Control>,
    /// The address of the status page and metrics, such as 127.0.0.1:9180; any other than this machine's own needs a token in carom.toml
    #[arg(long, value_name = "ADDRESS", value_parser = carom::config::file::listen_address)]
    status: Option<SocketAddr>,
    /// Threads that carry requests [default: one a core]
    #[arg(long)]
    workers: Option<usize>,
}

/// Which instance is meant.
#[derive(Args, Debug)]
struct Which {
    /// Its site: the key in the routes, or a name in its `also`
    site: String,
    /// The target, as it stands in the routes or as `carom status` shows it
    instance: String,
}

/// Which carom is talked to, and which routes file is meant.
#[derive(Args, Clone, Debug, Default)]
struct To {
    /// Its control socket
    #[arg(long, value_name = "SOCKET")]
    control: Option<Control>,
    /// Its routes file [default: the first of routes.toml, config/routes.toml, /etc/carom/routes.toml]
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Its carom.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Its state folder
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

impl From<To> for Serve {
    fn from(to: To) -> Self {
        let To { control, routes, config, state } = to;
        Self { control, routes, config, state, ..Self::default() }
    }
}

/// How often somebody may want to be told.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let may_be = Duration::from_millis(100)..=Duration::from_secs(3600);
    may_be.contains(&interval).then_some(interval).ok_or_else(|| "it is between 100ms and 1h".to_owned())
}

/// Runs the program.
pub(crate) fn run() -> ExitCode {
    let carom = Carom::parse();
    match (carom.verb, carom.routes, carom.port) {
        (Some(Verb::Serve(serve)), ..) => serve::run(serve),
        (Some(Verb::Check(serve)), ..) => check::run(serve),
        (Some(Verb::Explain { url, last: Some(what), count, json, of, serve }), ..) => {
            // Without a URL, what stands alone is the routes file.
            let routes = of.or(serve.routes).or(url.map(PathBuf::from));
            let to = To { control: serve.control, routes, config: serve.config, state: serve.state };
            last::run(&last::Asked { what, count, json }, to)
        }
        (Some(Verb::Explain { url, serve, .. }), ..) => explain::run(&url.unwrap_or_default(), serve),
        (Some(Verb::Set { site, targets, to }), ..) => set::set(&site, &targets, to),
        (Some(Verb::Unset { site, to }), ..) => set::unset(&site, to),
        (Some(Verb::History { number, to }), ..) => history::show(number, to),
        (Some(Verb::Rollback { number, to }), ..) => history::rollback(number, to),
        (Some(Verb::Status { site, json, to }), ..) => status::run(site.as_deref(), json, to),
        (Some(Verb::Top { interval, to }), ..) => top::run(interval, to),
        (Some(Verb::Tap { site, errors, count, show_secrets, json, to }), ..) => {
            tap::run(&tap::Asked { site, errors, count, secrets: show_secrets, json }, to)
        }
        (Some(Verb::Reload(to)), ..) => reload::run(to),
        (Some(Verb::Drain { which, wait, to }), ..) => drain::drain(&which, wait, to),
        (Some(Verb::Undrain { which, to }), ..) => drain::undrain(&which, to),
        (Some(Verb::Pause { site, message, wait, to }), ..) => pause::pause(&site, message.as_deref(), wait, to),
        (Some(Verb::Resume { site, to }), ..) => pause::resume(&site, to),
        (Some(Verb::Deploy { site, to, health, timeout, drain, carom }), ..) => {
            let patience = deploy::Patience { healthy: timeout, drain };
            deploy::run(&Deploy { site, to, health, within_ms: None }, &patience, carom)
        }
        (Some(Verb::Try { file, length, to }), ..) => attempt::attempt(&file, length, to),
        (Some(Verb::Confirm(to)), ..) => attempt::confirm(to),
        (Some(Verb::Demo { port, tls, tls_port }), ..) => demo::run(port, tls.then_some(tls_port), |demo| {
            let (listen, tls, state) = (demo.listen, demo.tls, Some(demo.state));
            let (certs, tls_self_signed) = (Some(PathBuf::from("certs")), !tls.is_empty());
            let routes = Some(demo.routes);
            serve::run(Serve { routes, listen, tls, certs, tls_self_signed, state, ..Serve::default() })
        }),
        (None, Some(routes), Some(port)) => {
            let address = carom.address.unwrap_or(std::net::Ipv6Addr::UNSPECIFIED.into());
            let listen = vec![SocketAddr::new(address, port)];
            serve::run(Serve { routes: Some(routes), listen, ..Serve::default() })
        }
        // clap asks for one of these.
        (None, ..) => ExitCode::from(2),
    }
}
