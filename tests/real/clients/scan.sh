#!/usr/bin/env bash
# What scanners find on a port that speaks TLS: scan.sh PORT HOST AUTHORITY ROOM
#
# testssl.sh and sslscan look at protocols, ciphers, key exchange and known holes, not at the certificate, which is the
# site's. Nothing may be found that is worse than "low".
set -euo pipefail
. "$(dirname "$0")/check.sh"
port=$1 host=$2 authority=$3 room=$4

# Each finding of testssl.sh that is worse than low, on a line.
worse_than_low() {
    python3 - "$1" <<'PY'
import json, sys

findings = json.load(open(sys.argv[1]))
assert len(findings) > 40, f"only {len(findings)} findings"
assert any(f["id"] == "TLS1_3" and f["severity"] == "OK" for f in findings), "it did not find TLS 1.3"
for finding in findings:
    if finding["severity"] in ("MEDIUM", "HIGH", "CRITICAL", "FATAL"):
        print(finding["id"], finding["severity"], finding["finding"])
PY
}

testssl_finds_nothing() {
    rm -f "$room/testssl.json"
    # It ends with the number of its findings.
    testssl --quiet --color 0 --warnings off --ip 127.0.0.1 --add-ca "$authority" -p -s -f -P -U \
        --jsonfile "$room/testssl.json" "https://$host:$port/" >"$room/testssl.log" 2>&1 </dev/null || true
    same "$(worse_than_low "$room/testssl.json")" ''
}

sslscan_finds_nothing() {
    sslscan --no-colour --sni-name="$host" --xml="$room/sslscan.xml" "127.0.0.1:$port" >"$room/sslscan.log" </dev/null
    python3 - "$room/sslscan.xml" <<'PY'
import sys, xml.etree.ElementTree as tree

test = tree.parse(sys.argv[1]).getroot().find("ssltest")
spoken = {p.get("type") + p.get("version") for p in test.iter("protocol") if p.get("enabled") == "1"}
ciphers = list(test.iter("cipher"))
weak = [c.get("cipher") for c in ciphers if c.get("strength") not in ("strong", "acceptable")]
holes = [h.tag for h in test.iter("heartbleed") if h.get("vulnerable") == "1"]
assert ciphers and spoken == {"tls1.2", "tls1.3"} and not weak and not holes, (spoken, weak, holes)
PY
}

check 'sslscan: only TLS 1.2 and 1.3, with strong ciphers' sslscan_finds_nothing
check 'testssl.sh: nothing worse than low' testssl_finds_nothing
