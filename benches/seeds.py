"""What benches/seeds runs. Everything shares all cores, as it would on a small machine.

An added p50 is taken where the machine has time to spare: at full load, the time to an answer is just the number of those
who wait divided by what is served.
"""

import os
import statistics
import sys
from pathlib import Path

from compare import CORES, HERE, ROOM, Peer, free_port, load, machine, print_table, rig, start, wait_for

APPS = Path(sys.argv[2]) / "apps"
ROUNDS = int(os.environ.get("ROUNDS", 3))
RUNS = [(10, 20), (50, 30), (100, 30), (200, 50), (500, 100)]
ARRIVALS = 50  # users a second, who stay until they have asked for everything
RATE = 1000  # requests/s that leave even the slowest of these backends time
HEAD = ["requests", "errors", "p50 ms", "p95 ms", "p99 ms", "requests/s"]


def node(script, *arguments):
    port = free_port()
    out = open(ROOM / "node.log", "ab")
    environment = {**os.environ, "PORT": str(port), "NODE_ENV": "production"}
    start(["node", script, *arguments], set(CORES), stdout=out, stderr=out, env=environment)
    wait_for(port)
    return port


def express(name):
    path = ROOM / f"{name}.sock"
    path.unlink(missing_ok=True)
    return node(APPS / "express.mjs", name, HERE, path)


def carom(*backends):
    """The port of a carom in front of them."""
    return Peer("carom", ", ".join(map(str, backends)), workers=len(CORES), cores=set(CORES)).port


class Asked:
    """What was answered, by run and by where it was asked."""

    def __init__(self):
        self.found = {}

    def ask(self, run, where, port, kind, clients, amount):
        result = load(port, kind, clients, amount, set(CORES), strict=False)
        self.found.setdefault((run, where), []).append(result)

    def median(self, run, where, key):
        return statistics.median(result[key] for result in self.found[run, where])

    def errors(self):
        return sum(result["wrong"] for results in self.found.values() for result in results)

    def rows(self):
        for (run, where), results in self.found.items():
            times = [f"{self.median(run, where, key) / 1000:.2f}" for key in ("p50", "p95", "p99")]
            served = statistics.median(result["answers"] / result["seconds"] for result in results)
            sums = [sum(result[key] for result in results) for key in ("answers", "wrong")]
            yield [run, where, f"{sums[0]:,}", str(sums[1]), *times, f"{served:,.0f}"]


def main():
    one, two = express("one"), express("two")
    site = {"direct": one, "carom": carom(one), "carom, two instances": carom(one, two)}
    for port in site.values():
        load(port, "site", 20, "2s", set(CORES))  # the engine warms up
    quick = Asked()
    for _ in range(ROUNDS):
        for users, gets in RUNS:
            for where, port in site.items():
                quick.ask(f"{users} × {gets}", where, port, f"users-{gets}", users, f"{max(1, users / ARRIVALS)}s")

    flat, steady = Asked(), Asked()
    light, fast = node(HERE / "peers/node.mjs"), rig("backend")[1]
    backends = {"Express": site, "plain Node": {"direct": light, "carom": carom(light)}}
    backends["as fast as can be"] = {"direct": fast, "carom": carom(fast)}
    for _ in range(ROUNDS):
        for name, ports in backends.items():
            for clients in (100, 500):
                for where, port in ports.items():
                    run = f"{name}, {clients} connections"
                    flat.ask(run, where, port, "site", clients, "2s")
                    steady.ask(run, where, port, f"site-rate-{RATE}", clients, "2s")

    print(machine(["carom"]))
    print("Medians, and sums of requests.")
    print_table([f"Express, users × GETs, {ARRIVALS} users/s", "asked", *HEAD], quick.rows())
    print_table(["asked as fast as it answers", "", *HEAD], flat.rows())
    print_table([f"asked {RATE:,} times a second", "", *HEAD], steady.rows())

    print("\nadded by carom to the p50, ms (to reach: 0.2):")
    for asked in (quick, steady):
        for run in dict.fromkeys(run for run, _ in asked.found):
            added = asked.median(run, "carom", "p50") - asked.median(run, "direct", "p50")
            print(f"  {run}: {added / 1000:+.3f}")
    for clients in (100, 500):
        one, two = (flat.median(f"Express, {clients} connections", where, "answers") for where in list(site)[1:])
        print(f"two instances over one, {clients} connections: × {two / one:.2f} requests")
    errors = sum(asked.errors() for asked in (quick, flat, steady))
    print(f"errors: {errors}")
    sys.exit(errors > 0)


main()
