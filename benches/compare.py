"""What benches/compare runs: starts backend and proxies, asks them in turn, reads what it cost them, prints it.

The cost of a proxy is its processes' user and system time from /proc, by answered request. Unlike requests/s it hardly
depends on what else the machine does, and it is what a core more or less is about.
"""

import atexit
import datetime
import json
import os
import platform
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOM = Path(sys.argv[1])
RIG = ROOM / "rig/release/rig"
ROUNDS = int(os.environ.get("ROUNDS", 5))
LENGTH = os.environ.get("LENGTH", "2") + "s"
# Of a round where two of a kind are compared: what the machine does meanwhile is to be the same for both.
SLICES = 8
COUNTS = os.environ.get("COUNTS", "yes") == "yes"
CORES = sorted(os.sched_getaffinity(0))
PROXY_CORE, LOAD_CORE = {CORES[0]}, {CORES[-1]}

# What is asked: the load generator's kind, clients, and answers for counting.
KINDS = {
    "get": ("small GET, kept alive", "get", 64, 2000),
    "10k": ("10 KB", "10k", 64, 2000),
    "1m": ("1 MB", "1m", 16, 100),
    "upload": ("upload of 1 MB", "upload", 16, 100),
    "close": ("small GET, connection closed", "close", 64, 4000),
    "tunnel": ("tunnel, 128 B there and back", "tunnel-128", 64, 2000),
    "tunnel64": ("tunnel, 64 KB there and back", "tunnel-65536", 16, 500),
    "rate": ("3,000 requests/s", "rate-3000", 64, 0),
    "tls": ("TLS, small GET, kept alive", "tls-get", 64, 2000),
    "handshake": ("TLS, a full handshake each", "tls-full", 32, 500),
    "resumed": ("TLS, a resumed handshake each", "tls-resumed", 32, 500),
    "tls1m": ("TLS, 1 MB", "tls-1m", 16, 100),
    "h2": ("HTTP/2, small GET", "h2-get", 64, 2000),
    "log": ("small GET, JSON access log to a file, carom with metrics too", "get", 64, 2000),
}
# Who is silent: the load generator's kind, and how many.
IDLE = {
    "idle": ("5,000 idle kept-alive clients", "idle", 5000),
    "idletls": ("2,000 idle kept-alive clients over TLS", "tls-idle", 2000),
    "idleh2": ("2,000 idle connections of HTTP/2", "h2-idle", 2000),
}
TESTS = [*KINDS, "logcost", *IDLE, "two"]
# Who speaks TLS.
SPEAK_TLS = ("carom", "nginx", "haproxy", "caddy", "sozu")


# --- Processes ------------------------------------------------------------------------------------------------------

running = []


def start(command, cores, **more):
    """Starts a process on those cores, and sees to it that it ends with this one."""
    process = subprocess.Popen([str(word) for word in command], preexec_fn=lambda: os.sched_setaffinity(0, cores), **more)
    running.append(process)
    return process


def stop(process):
    for act in (process.terminate, process.kill):
        act()
        try:
            process.wait(5)
            break
        except subprocess.TimeoutExpired:
            pass
    running.remove(process)


atexit.register(lambda: [stop(process) for process in list(running)])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on port {port}: see {ROOM}")


def rig(*arguments):
    """Starts the rig as a backend or a floor; gives it and its port."""
    cores = LOAD_CORE if arguments[0] == "backend" else PROXY_CORE
    process = start([RIG, *arguments], cores, stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def is_secure(kind):
    return kind.startswith(("tls-", "h2-"))


def load(port, kind, clients, amount, cores=LOAD_CORE, strict=True):
    """Asks, and gives what was answered. A wrong answer makes a measurement worthless."""
    command = [RIG, "load", f"127.0.0.1:{port}", kind, clients, amount]
    process = start(command, cores, stdout=subprocess.PIPE, text=True)
    answer = process.stdout.readline()
    stop(process)
    result = json.loads(answer or '{"answers": 0, "wrong": 0}')
    resumed = result.get("resumed", 0)
    if kind == "tls-full" and resumed or kind == "tls-resumed" and resumed < result["answers"] * 0.7:
        sys.exit(f"FAILED {kind} on port {port}: {resumed} of {result['answers']} handshakes were resumed")
    if strict and result["wrong"] or not result["answers"]:
        sys.exit(f"FAILED {kind} on port {port}: {result}")
    return result


# --- Peers ----------------------------------------------------------------------------------------------------------


class Peer:
    """A proxy that runs."""

    def __init__(self, name, backend, workers=1, log=False, cores=PROXY_CORE, under=()):
        self.name = name
        self.label = f"{name} with its log" if log else name
        self.port = backend if name == "direct" else free_port()
        self.tls_port = free_port()
        self.process = None
        # Each its own: a carom would follow what is written into another's routes.
        self.folder = ROOM / f"{name}-{len(running)}"
        # Not beside the routes: whatever happens in their folder wakes those who watch it.
        self.log = self.folder / "log" / "access.log"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.log.parent.mkdir(parents=True)
        if not (ROOM / "certs").exists():
            subprocess.run([RIG, "certificate", ROOM / "certs"], check=True)
        if name == "floor":
            self.process, self.port = rig("floor", f"127.0.0.1:{backend}")
        elif name != "direct":
            command = self.command(backend, workers, log, bool(under))
            # haproxy's access log is its standard output.
            said = self.log if name == "haproxy" and log else self.folder / "out.log"
            with open(said, "wb") as out, open(self.folder / "error.log", "wb") as error:
                self.process = start([*under, *command], cores, stdout=out, stderr=error)
        wait_for(self.port)

    def command(self, backend, workers, log, debugged):
        on = {
            "carom": self.log,
            "nginx": f"{self.log} json buffer=32k flush=1s",
            "haproxy": "log stdout format raw local0 info\n    capture request header Host len 64",
        }
        off = {"carom": "off", "nginx": "off"}
        values = {
            "PORT": self.port,
            "TLSPORT": self.tls_port,
            "CERTS": ROOM / "certs",
            "BACKEND": backend,
            "WORKERS": workers,
            "FOLDER": self.folder,
            "LOG": (on if log else off).get(self.name, ""),
            "STATUS": f'[status]\nlisten = "127.0.0.1:{free_port()}"' if log else "",
        }
        files = {}
        for name in ("carom.toml", "routes.toml", "nginx.conf", "haproxy.cfg", "Caddyfile", "sozu.toml"):
            text = (HERE / "peers" / name).read_text()
            files[name] = self.folder / name
            files[name].write_text(re.sub("@([A-Z]+)@", lambda found: str(values[found[1]]), text))
        path = os.environ["PATH"] + ":/usr/sbin"
        single = ["-g", "master_process off;"] if debugged else []
        return {
            "carom": [os.environ["CAROM"], "serve", "--config", files["carom.toml"]],
            "nginx": [shutil.which("nginx", path=path), "-p", self.folder, "-c", files["nginx.conf"], *single],
            "haproxy": [shutil.which("haproxy", path=path), "-db", "-f", files["haproxy.cfg"]],
            "sozu": [ROOM / "sozu/bin/sozu", "start", "-c", files["sozu.toml"]],
            "caddy": ["env", f"GOMAXPROCS={workers}", ROOM / "venv/bin/caddy", "run", "--config", files["Caddyfile"]],
        }[self.name]

    def at(self, kind):
        """The port that serves such a load."""
        return self.tls_port if is_secure(kind) else self.port

    def stop(self):
        if self.process:
            stop(self.process)

    def processes(self):
        """Its process and all below that."""
        found = [self.process.pid] if self.process else []
        for pid in found:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        return found

    def threads(self):
        """Seconds on a core, by thread, as the scheduler has counted them. What ticks say of a thread that runs briefly and
        often is chance."""
        times = {}
        for pid in self.processes():
            for task in Path(f"/proc/{pid}/task").iterdir():
                times[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
        return times

    def cpu(self):
        return sum(self.threads().values())

    def memory(self):
        """Bytes of its own, of user space."""
        status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in self.processes())
        return 1024 * sum(map(int, re.findall(r"RssAnon:\s+(\d+)", status)))


# --- Measurements ---------------------------------------------------------------------------------------------------


def measure(peer, kind, clients, amount=LENGTH, cores=LOAD_CORE):
    before = peer.cpu()
    result = load(peer.at(kind), kind, clients, amount, cores)
    cost = peer.cpu() - before
    result["cost"] = cost * 1e6 / result["answers"] if peer.process else None
    result["rps"] = result["answers"] / result["seconds"]
    return result


def in_turn(peers, kind, clients, slices=1):
    """Rounds, each of which asks every peer, beginning with another each time; in so many slices."""
    results = {peer.label: [] for peer in peers}
    for peer in peers:
        load(peer.at(kind), kind, clients, "0.3s")
    amount = f"{float(LENGTH[:-1]) / slices}s"
    for number in range(ROUNDS):
        taken = {peer.label: [] for peer in peers}
        for slice_number in range(slices):
            for at in range(len(peers)):
                peer = peers[(number + slice_number + at) % len(peers)]
                taken[peer.label].append(measure(peer, kind, clients, amount))
        for label, parts in taken.items():
            results[label].append(whole(parts))
    return results


def whole(parts):
    """A measurement, from its slices."""
    answers = sum(part["answers"] for part in parts)
    costs = [part["cost"] and part["cost"] * part["answers"] / answers for part in parts]
    return {**parts[-1], "answers": answers, "cost": costs[0] and sum(costs), "rps": answers / sum(p["seconds"] for p in parts)}


def idle(name, backend, kind, count):
    """Bytes for a client that has asked once and is silent."""
    peer = Peer(name, backend)
    load(peer.port, "get", 1, "100n")
    if is_secure(kind):
        load(peer.at("tls-get"), "tls-get", 1, "100n")
    before = peer.memory()
    command = [RIG, "load", f"127.0.0.1:{peer.at(kind)}", kind, count, 0]
    clients = start(command, LOAD_CORE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if f'"answers": {count}' not in clients.stdout.readline():
        sys.exit(f"FAILED {kind}: {name}")
    time.sleep(1)
    each = (peer.memory() - before) / count
    stop(clients)
    peer.stop()
    return {"bytes": each}


def spread_out(name, backend):
    """One worker and two, all cores open to everyone, and so also to the load."""
    found = {}
    for workers in (1, 2):
        peer = Peer(name, backend, workers, cores=set(CORES))
        load(peer.port, "get", 64, "0.3s", set(CORES))
        before = peer.threads()
        result = measure(peer, "get", 64, cores=set(CORES))
        used = sorted(after - before.get(thread, 0) for thread, after in peer.threads().items())
        found[workers] = {**result, "evenness": sum(used) / used[-1]}
        peer.stop()
    one, two = found[1], found[2]
    scale = two["evenness"] * one["cost"] / two["cost"]
    return {"one": one["cost"], "two": two["cost"], "evenness": two["evenness"], "scale": scale, "rps": two["rps"] / one["rps"]}


def perf_counts(event):
    """Whether perf can count that here."""
    if not shutil.which("perf"):
        return False
    tried = subprocess.run(["perf", "stat", "-x,", "-e", event, "true"], capture_output=True, text=True)
    return tried.returncode == 0 and "<not" not in tried.stderr


def by_perf(peer, event, kind, clients, answers):
    out = ROOM / "perf.txt"
    pids = ",".join(map(str, peer.processes()))
    perf = start(["perf", "stat", "-x,", "-o", out, "-e", event, "-p", pids], LOAD_CORE)
    time.sleep(0.5)
    load(peer.at(kind), kind, clients, f"{answers}n")
    perf.send_signal(signal.SIGINT)
    perf.wait(10)
    running.remove(perf)
    return int(re.search(rf"^(\d+),.*{event}", out.read_text(), re.M)[1])


def by_strace(peer, kind, clients, answers):
    out = ROOM / "strace.txt"
    pids = [word for pid in peer.processes() for word in ("-p", pid)]
    strace = start(["strace", "-f", "-c", "-o", out, *pids], LOAD_CORE, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    load(peer.at(kind), kind, clients, f"{answers}n")
    strace.send_signal(signal.SIGINT)
    strace.wait(10)
    running.remove(strace)
    return int(re.search(r"(\d+)\s+(?:\d+\s+)?total", out.read_text())[1])


def by_callgrind(peer, kind, clients, answers):
    def command(word):
        subprocess.run(["vgdb", f"--pid={peer.process.pid}", word], check=True, capture_output=True, timeout=60)

    for old in ROOM.glob("callgrind.*"):
        old.unlink()
    command("zero")
    load(peer.at(kind), kind, clients, f"{answers}n")
    command("dump")
    dump = max(ROOM.glob("callgrind.*"), key=lambda path: path.stat().st_size)
    return int(re.search(r"^(?:totals|summary): (\d+)", dump.read_text(), re.M)[1])


def each(count, answers):
    """Of one answer, without what is done once for a connection or a run."""
    return (count(3 * answers) - count(answers)) / (2 * answers)


def system_calls(peer, kind, clients, answers):
    event = "raw_syscalls:sys_enter"
    if perf_counts(event):
        return each(lambda count: by_perf(peer, event, kind, clients, count), answers)
    if shutil.which("strace"):
        return each(lambda count: by_strace(peer, kind, clients, count), answers)
    return None


def instructions(peer, backend, kind, clients, answers):
    if perf_counts("instructions:u"):
        return each(lambda count: by_perf(peer, "instructions:u", kind, clients, count), answers)
    if not shutil.which("vgdb") or peer.name in ("floor", "caddy", "sozu"):
        return None
    under = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={ROOM}/callgrind.%p", "-q")
    slow = Peer(peer.name, backend, under=under)
    load(slow.at(kind), kind, clients, f"{answers}n")
    found = each(lambda count: by_callgrind(slow, kind, clients, count), answers)
    slow.stop()
    for old in ROOM.glob("callgrind.*"):
        old.unlink()
    return found


# --- The report -----------------------------------------------------------------------------------------------------


def spread(values, digits=1):
    """The median, and from where to where."""
    if None in values:
        return "-"
    middle, least, most = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}..{most})" if len(values) > 1 else middle


def ratio(results, name, key, to="nginx"):
    """The median of the rounds' own ratios: what slows a whole round falls out."""
    if to not in results or results[name][0].get(key) is None:
        return "-"
    rounds = zip(column(results[name], key), column(results[to], key))
    return spread([ours / theirs for ours, theirs in rounds], 2)


def peers_to(peer):
    """Whom a peer is compared with: nginx, which logs where the peer does."""
    return peer.label.replace(peer.name, "nginx")


def column(results, key):
    return [result.get(key) for result in results]


def version(command):
    try:
        told = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "missing"
    found = re.search(r"\d+\.\d+[\w.+~-]*", told.stdout + told.stderr)
    return found[0] if found else "unknown"


def machine(names):
    """What was measured, where and when."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    path = os.environ["PATH"] + ":/usr/sbin"
    told = {"carom": [os.environ["CAROM"], "--version"], "caddy": [ROOM / "venv/bin/caddy", "version"]}
    told |= {"sozu": [ROOM / "sozu/bin/sozu", "--version"]}
    told |= {"nginx": [shutil.which("nginx", path=path) or "nginx", "-v"]}
    told |= {"haproxy": [shutil.which("haproxy", path=path) or "haproxy", "-v"]}
    versions = ", ".join(f"{name} {version(told[name])}" for name in names if name in told)
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return (
        f"{datetime.date.today()}: {versions} (carom's commit {commit}); Linux {platform.release()}, "
        f"{len(CORES)} cores ({model[1] if model else platform.machine()}). Rounds: {ROUNDS}, in turn."
    )


def print_table(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def requests(test, names, backend):
    """The rows of a test that asks for something."""
    title, kind, clients, answers = KINDS[test]
    if test == "log":
        names = [name for name in names if name in ("carom", "nginx", "haproxy")]
    if is_secure(kind):
        names = [name for name in names if name in SPEAK_TLS]
    peers = [Peer(name, backend, log=test == "log") for name in names]
    results = in_turn(peers, kind, clients)
    rows = []
    for peer in peers:
        result = results[peer.label]
        calls = count = None
        if COUNTS and answers and peer.process:
            calls = system_calls(peer, kind, clients, answers)
            count = instructions(peer, backend, kind, clients, answers) if test != "log" else None
        rows.append([
            title,
            peer.name,
            spread(column(result, "cost")),
            ratio(results, peer.label, "cost", peers_to(peer)),
            spread(column(result, "rps"), 0),
            spread(column(result, "p50"), 0),
            spread(column(result, "p99"), 0),
            f"{calls:.2f}" if calls else "-",
            f"{count:,.0f}" if count else "-",
        ])
        print(f"  {title}: {peer.name} {' '.join(rows[-1][2:4])}", file=sys.stderr)
    for peer in peers:
        peer.stop()
        if test == "log":
            with open(peer.log, "rb") as file:
                lines = sum(1 for _ in file)
            print(f"  {peer.name} logged {lines:,} lines", file=sys.stderr)
            peer.log.unlink()
    return rows


def cost_of_logs(names, backend):
    """The rows that say what a log costs: each peer without and with it, side by side."""
    title, kind, clients, _ = KINDS["get"]
    names = [name for name in names if name in ("carom", "nginx", "haproxy")]
    peers = [Peer(name, backend, log=log) for name in names for log in (False, True)]
    results = in_turn(peers, kind, clients, SLICES)
    rows = []
    for peer in peers:
        if peer.label != peer.name:
            without, more = results[peer.name], ratio(results, peer.label, "cost", peer.name)
            costs = [spread(column(without, "cost")), spread(column(results[peer.label], "cost"))]
            rows.append([title, peer.name, *costs, more])
            print(f"  what its log costs: {peer.name} {' '.join(costs)} {more}", file=sys.stderr)
        peer.stop()
        peer.log.unlink(missing_ok=True)
    return rows


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    path = os.environ["PATH"] + ":/usr/sbin"
    names = [name for name in sys.argv[3].split(",") if name not in ("nginx", "haproxy") or shutil.which(name, path=path)]
    tests = TESTS if sys.argv[2] == "all" else sys.argv[2].split(",")
    if "tunnel" in tests and "tunnel64" not in tests:
        tests.insert(tests.index("tunnel") + 1, "tunnel64")
    if unknown := set(tests) - set(TESTS):
        sys.exit(f"no such test: {', '.join(unknown)}; there are {', '.join(TESTS)}")
    backend = rig("backend")[1]
    begun = time.monotonic()

    rows = [row for test in tests if test in KINDS for row in requests(test, names, backend)]
    logs = cost_of_logs(names, backend) if "logcost" in tests else []
    proxies = [name for name in names if name != "direct"]
    held = {test: {name: [] for name in proxies if test == "idle" or name in SPEAK_TLS} for test in IDLE if test in tests}
    scaled = {name: [] for name in proxies if name in ("carom", "nginx", "haproxy")}
    for _ in range(ROUNDS):
        for test, found in held.items():
            for name in found:
                found[name].append(idle(name, backend, *IDLE[test][1:]))
        for name in scaled if "two" in tests else []:
            scaled[name].append(spread_out(name, backend))

    print(machine(names))
    print(
        f"A round is {LENGTH}. The proxy has one worker and a core, load and backend another. Medians, and from the least to the "
        "most; a difference under 10 % is no evidence.\nThe floor has a connection to the backend for each of a client's, and "
        "keeps none for another."
    )
    if rows:
        head = ["work", "proxy", "µs of CPU a request", "× nginx", "requests/s", "p50 µs", "p99 µs", "system calls", "instructions"]
        print_table(head, rows)
    if logs:
        print_table(["what an access log costs", "proxy", "µs without", "µs with it", "×"], logs)
    for test, found in held.items():
        cells = [[name, spread(column(found[name], "bytes"), 0), ratio(found, name, "bytes")] for name in found]
        print_table([IDLE[test][0], "bytes each, user space", "× nginx"], cells)
    if "two" in tests:
        keys = [("one", 1), ("two", 1), ("evenness", 2), ("scale", 2), ("rps", 2)]
        cells = [[name, *(spread(column(scaled[name], key), digits) for key, digits in keys)] for name in scaled]
        head = ["two workers over one", "µs a request, one", "µs, two", "work over the busier's", "× what one could do"]
        print_table([*head, "× requests/s, load on the same cores"], cells)
    print(f"\nin {time.monotonic() - begun:.0f} s; every answer was checked, and right", file=sys.stderr)


if __name__ == "__main__":
    main()
