//! The program: started with a folder of its own, watched from outside only.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::client::Client;
use super::{PATIENCE, Watched};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_carom");

/// What a carom is started with.
pub struct Setup {
    routes: String,
    config: String,
    workers: usize,
    descriptors: Option<usize>,
    listen: Vec<String>,
    tls: Vec<String>,
    /// Files below `certs/`.
    certs: Vec<(String, String)>,
    link_folder: bool,
    files: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    log: String,
}

/// A running carom. Dropped, it is killed and waited for.
pub struct Carom {
    pid: Pid,
    folder: tempfile::TempDir,
    routes: PathBuf,
    addresses: Vec<SocketAddr>,
    stdout: Arc<Watched<Vec<String>>>,
    stderr: Arc<Watched<Vec<String>>>,
    status: Arc<Watched<Option<ExitStatus>>>,
}

impl Carom {
    /// A carom with these routes: one worker, one port of 127.0.0.1, the log as JSON on stdout.
    pub fn serving(routes: impl ToString) -> Setup {
        Setup {
            routes: routes.to_string(),
            config: String::new(),
            workers: 1,
            descriptors: None,
            listen: vec!["127.0.0.1:0".to_owned()],
            tls: Vec::new(),
            certs: Vec::new(),
            link_folder: false,
            files: Vec::new(),
            environment: Vec::new(),
            log: "access = \"stdout\"\nformat = \"json\"".to_owned(),
        }
    }

    /// A carom whose one route is `a.test`, to this port.
    pub fn to(port: u16) -> Setup {
        Self::serving(format!("\"a.test\" = {port}\n"))
    }
}

impl Setup {
    /// Adds to `carom.toml`.
    pub fn config(mut self, text: &str) -> Self {
        self.config.push_str(text);
        self.config.push('\n');
        self
    }

    /// Logs as this says, and not as the other tests read it.
    pub fn log(mut self, text: &str) -> Self {
        self.log = text.to_owned();
        self
    }

    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// `ulimit -n`.
    pub fn descriptors(mut self, descriptors: usize) -> Self {
        self.descriptors = Some(descriptors);
        self
    }

    /// Listens there instead.
    pub fn listen(mut self, addresses: &[&str]) -> Self {
        self.listen = addresses.iter().map(ToString::to_string).collect();
        self
    }

    /// Listens on one port of 127.0.0.1, where every connection begins with a PROXY header from one of these.
    pub fn proxied(mut self, trust: &str) -> Self {
        self.listen.clear();
        self.config(&format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\n[forwarded]\ntrust = [{trust}]"
        ))
    }

    /// Speaks TLS, on a port of 127.0.0.1 beside the plain one, with this file in its folder of certificates.
    pub fn tls(mut self, file: &str, pem: impl ToString) -> Self {
        if self.tls.is_empty() {
            self.tls.push("127.0.0.1:0".to_owned());
        }
        self.certs.push((file.to_owned(), pem.to_string()));
        self
    }

    /// Like [`Setup::proxied`], and TLS behind the header, with a certificate.
    pub fn proxied_tls(mut self, trust: &str, file: &str, pem: impl ToString) -> Self {
        self.listen.clear();
        self.certs.push((file.to_owned(), pem.to_string()));
        self.config(&format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nproxy_protocol = true\ntls = true\n[forwarded]\ntrust = [{trust}]"
        ))
    }

    /// Puts the routes behind two symbolic links, as a mounted Kubernetes volume has them:
    /// `routes.toml → ..data/routes.toml`, `..data → ..first`.
    pub fn link_folder(mut self) -> Self {
        self.link_folder = true;
        self
    }

    /// Puts a file into its folder, beside the routes.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Sets a variable of its environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command, in a folder that it fills.
    fn command(&self, folder: &Path) -> (Command, PathBuf) {
        let routes = folder.join("routes.toml");
        if self.link_folder {
            std::fs::create_dir(folder.join("..first")).expect("folder");
            std::fs::write(folder.join("..first/routes.toml"), &self.routes).expect("routes");
            symlink("..first", folder.join("..data")).expect("link");
            symlink("..data/routes.toml", &routes).expect("link");
        } else {
            std::fs::write(&routes, &self.routes).expect("routes");
        }
        for (name, text) in &self.files {
            std::fs::write(folder.join(name), text).expect("file");
        }
        let config = format!("{}\n[log]\n{}\n", self.config, self.log);
        std::fs::write(folder.join("carom.toml"), config).expect("config");
        let mut command = match self.descriptors {
            None => Command::new(BINARY),
            Some(count) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {count}; exec \"$0\" \"$@\""), BINARY]);
                shell
            }
        };
        command.arg("serve").arg(&routes).arg("--config").arg(folder.join("carom.toml"));
        for address in &self.listen {
            command.args(["--listen", address]);
        }
        for (name, pem) in &self.certs {
            let file = folder.join("certs").join(name);
            std::fs::create_dir_all(file.parent().expect("folder")).expect("folder");
            std::fs::write(file, pem).expect("certificate");
        }
        for address in &self.tls {
            command.args(["--tls", address]);
        }
        command.args(["--workers", &self.workers.to_string()]).arg("--state").arg(folder.join("state"));
        command
            .current_dir(folder)
            .env_remove("CAROM_LOG")
            .env_remove("RUNTIME_DIRECTORY")
            .envs(self.environment.iter().cloned());
        (command, routes)
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub fn start(self) -> Carom {
        let folder = tempfile::tempdir().expect("folder");
        let (mut command, routes) = self.command(folder.path());
        let carom = Carom::spawn(&mut command, folder, routes);
        assert_eq!(
            carom.addresses.len(),
            (self.listen.len() + self.tls.len()).max(1),
            "addresses: {:?}",
            carom.addresses
        );
        carom
    }

    /// Starts what can't start: its exit code and what it said.
    #[track_caller]
    pub fn fail(self) -> (Option<i32>, String) {
        let folder = tempfile::tempdir().expect("folder");
        let (mut command, _) = self.command(folder.path());
        run(&mut command)
    }
}

impl Carom {
    /// Starts one in a folder, with these arguments.
    #[track_caller]
    pub fn in_folder(folder: tempfile::TempDir, arguments: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(folder.path()).env_remove("CAROM_LOG");
        command
            .env_remove("STATE_DIRECTORY")
            .env_remove("RUNTIME_DIRECTORY")
            .env("XDG_STATE_HOME", folder.path().join("state"));
        let routes = folder.path().join("routes.toml");
        Self::spawn(&mut command, folder, routes)
    }

    #[track_caller]
    fn spawn(command: &mut Command, folder: tempfile::TempDir, routes: PathBuf) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{BINARY}: {e}"));
        let (stdout, out) = lines_of(child.stdout.take().expect("piped"));
        let (stderr, err) = lines_of(child.stderr.take().expect("piped"));
        let status = Arc::new(Watched::new(None));
        let pid = Pid::from_child(&child);
        let ended = Arc::clone(&status);
        std::thread::spawn(move || {
            let status = child.wait().expect("wait");
            // Whoever knows that it has ended may look at what it has said to its end.
            for reading in [out, err] {
                reading.join().ok();
            }
            ended.change(|slot| *slot = Some(status));
        });
        let mut carom = Self { pid, folder, routes, addresses: Vec::new(), stdout, stderr, status };
        let ready = carom.stderr(0, "the line that says it listens", |line| line.contains("listening on "));
        carom.addresses = addresses_in(&ready);
        assert!(!carom.addresses.is_empty(), "no address in {ready:?}");
        carom
    }
}

/// Runs a command that ends by itself: its exit code, and what it said on both streams.
#[track_caller]
pub fn run(command: &mut Command) -> (Option<i32>, String) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let pid = Pid::from_child(&child);
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let status = Arc::new(Watched::new(None));
    let ended = Arc::clone(&status);
    std::thread::spawn(move || {
        let mut said = String::new();
        out.read_to_string(&mut said).ok();
        err.read_to_string(&mut said).ok();
        let status = child.wait().expect("wait");
        ended.change(|slot| *slot = Some((status.code(), said)));
    });
    let Some(ended) = status.wait_for(PATIENCE, Option::clone) else {
        kill_process(pid, Signal::KILL).ok();
        panic!("{command:?} did not end");
    };
    ended
}

impl Carom {
    /// A verb, asked of this carom: its exit code, and what it said.
    #[track_caller]
    pub fn verb(&self, arguments: &[&str]) -> (Option<i32>, String) {
        run(&mut self.command(arguments))
    }

    /// The command of a verb that is asked of this carom.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).arg("--routes").arg(&self.routes).arg("--state").arg(self.folder().join("state"));
        command.current_dir(self.folder()).env_remove("RUNTIME_DIRECTORY");
        command
    }

    /// What `carom status --json` says.
    #[track_caller]
    pub fn status(&self) -> Value {
        let (code, said) = self.verb(&["status", "--json"]);
        assert_eq!(code, Some(0), "{said}");
        parsed(&said)
    }

    /// Its control socket.
    pub fn control(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.folder().join("state")).expect("state folder");
        let mut sockets = entries.map(|entry| entry.expect("entry").path().join("control.sock"));
        sockets.find(|path| path.exists()).expect("a control socket")
    }

    /// The first address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Puts a file into the folder of certificates, by a rename.
    pub fn save_cert(&self, file: &str, pem: impl AsRef<[u8]>) {
        let file = self.folder().join("certs").join(file);
        std::fs::create_dir_all(file.parent().expect("folder")).expect("folder");
        let new = self.folder().join("new.pem");
        std::fs::write(&new, pem).expect("write");
        std::fs::rename(&new, &file).expect("rename");
    }

    /// Waits until carom says what has changed of the certificates, after a mark.
    #[track_caller]
    pub fn wait_certs(&self, mark: usize) -> String {
        self.stderr(mark, "that the certificates changed", |line| line.contains("certs changed"))
    }

    /// The address that speaks TLS.
    pub fn tls_address(&self) -> SocketAddr {
        *self.addresses.last().expect("an address")
    }

    /// A new TLS connection to it, for this name.
    #[track_caller]
    pub fn tls_client(&self, name: &str) -> Client {
        super::tls::connect(self.tls_address(), name)
    }

    /// A new connection to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub fn routes_file(&self) -> &Path {
        &self.routes
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Saves new routes in one step and waits until carom says what changed.
    #[track_caller]
    pub fn reroute(&self, routes: &str) -> String {
        let before = self.mark();
        self.save_by_rename(routes);
        self.wait_changed(before)
    }

    /// Writes a new file and renames it over the old one.
    pub fn save_by_rename(&self, routes: &str) {
        let new = self.folder.path().join("routes.toml.new");
        std::fs::write(&new, routes).expect("write");
        std::fs::rename(&new, &self.routes).expect("rename");
    }

    /// Waits for the next message that the routes have changed, after a mark.
    #[track_caller]
    pub fn wait_changed(&self, mark: usize) -> String {
        self.stderr(mark, "that the routes changed", |line| line.contains("routes.toml changed"))
    }

    /// How many lines of stderr there are: what comes later is what came of what follows.
    pub fn mark(&self) -> usize {
        self.stderr.look(Vec::len)
    }

    /// Waits for a line of stderr after a mark.
    #[track_caller]
    pub fn stderr(&self, mark: usize, what: &str, mut is: impl FnMut(&str) -> bool) -> String {
        let find = |lines: &Vec<String>| lines.iter().skip(mark).find(|line| is(line)).cloned();
        match self.stderr.wait_for(PATIENCE, find) {
            Some(line) => line,
            None => panic!("carom did not say {what}; it said {:#?}", self.stderr.look(Vec::clone)),
        }
    }

    /// All of stderr after a mark.
    pub fn said(&self, mark: usize) -> Vec<String> {
        self.stderr.look(|lines| lines[mark..].to_vec())
    }

    /// Waits for an access line.
    #[track_caller]
    pub fn logged(&self, what: &str, mut is: impl FnMut(&Value) -> bool) -> Value {
        let find = |lines: &Vec<String>| lines.iter().map(|line| parsed(line)).find(|entry| is(entry));
        match self.stdout.wait_for(PATIENCE, find) {
            Some(entry) => entry,
            None => panic!("not in the access log: {what}; it has {:#?}", self.stdout.look(Vec::clone)),
        }
    }

    /// Waits for the access line of this path.
    #[track_caller]
    pub fn logged_path(&self, path: &str) -> Value {
        self.logged(path, |entry| entry["path"] == path)
    }

    /// The access log so far.
    pub fn log(&self) -> Vec<Value> {
        self.stdout.look(|lines| lines.iter().map(|line| parsed(line)).collect())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("kill");
    }

    /// Waits for its end; gives its exit code.
    #[track_caller]
    pub fn exit_code(&self) -> Option<i32> {
        match self.status.wait_for(PATIENCE, |status| *status) {
            Some(status) => status.code(),
            None => panic!("carom does not end; it said {:#?}", self.stderr.look(Vec::clone)),
        }
    }

    #[track_caller]
    pub fn assert_running(&self) {
        let status = self.status.look(|status| *status);
        assert!(status.is_none(), "carom ended with {status:?}; it said {:#?}", self.stderr.look(Vec::clone));
    }

    /// Open descriptors once it has all that it needs for itself: it has served a request, and followed a save.
    #[track_caller]
    pub fn descriptors_at_rest(&self) -> usize {
        let mark = self.mark();
        let text = std::fs::read_to_string(&self.routes).expect("read");
        self.save_by_rename(&format!("{text}# saved again\n"));
        self.stderr(mark, "that it has read the file again", |line| line.contains("routes.toml"));
        let mut client = self.client();
        assert_eq!(client.get("nobody.at-rest.test", "/").status(), 404);
        self.descriptors() - 1
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(self.proc("fd")).map_or(0, Iterator::count)
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> usize {
        let status = std::fs::read_to_string(self.proc("status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).unwrap_or(0) * 1024
    }

    /// CPU time that its threads have used so far, as the scheduler has counted it: what ticks say of a thread that wakes
    /// up with the tick is chance.
    pub fn cpu_time(&self) -> Duration {
        let threads = std::fs::read_dir(self.proc("task")).expect("tasks");
        let used = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok());
        let nanoseconds =
            used.map(|used| used.split(' ').next().and_then(|time| time.parse::<u64>().ok()).expect(&used));
        Duration::from_nanos(nanoseconds.sum())
    }

    pub fn threads(&self) -> usize {
        std::fs::read_dir(self.proc("task")).map_or(0, Iterator::count)
    }

    fn proc(&self, what: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{what}", self.pid.as_raw_nonzero()))
    }
}

impl Drop for Carom {
    fn drop(&mut self) {
        if self.status.look(Option::is_none) {
            kill_process(self.pid, Signal::KILL).ok();
            self.status.wait_for(PATIENCE, |status| *status);
        }
        if std::thread::panicking() {
            eprintln!("carom's stderr: {:#?}", self.stderr.look(Vec::clone));
            eprintln!("carom's stdout: {:#?}", self.stdout.look(|lines| lines[..lines.len().min(20)].to_vec()));
        }
    }
}

fn lines_of(stream: impl Read + Send + 'static) -> (Arc<Watched<Vec<String>>>, JoinHandle<()>) {
    let lines = Arc::new(Watched::new(Vec::new()));
    let filled = Arc::clone(&lines);
    let reading = std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            filled.change(|lines| lines.push(line));
        }
    });
    (lines, reading)
}

fn addresses_in(ready: &str) -> Vec<SocketAddr> {
    let Some((_, list)) = ready.split_once("listening on ") else { return Vec::new() };
    list.split([',', ' ']).filter_map(|word| word.rsplit("://").next()?.parse().ok()).collect()
}

#[track_caller]
fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|e| panic!("a log line that is no JSON ({e}): {line}"))
}
