#!/usr/bin/env bash
# The readers of access logs, against one in the Combined Log Format of a real run: combined.sh PORT SECURE LOG FAIL2BAN
# PORT is carom's, in front of solo.localhost and down.localhost, SECURE the same over TLS, FAIL2BAN where that is unpacked.
set -uo pipefail
cd "$(dirname "$0")" || exit
. ./check.sh

port=$1 secure=$2 log=$3 fail2ban=$4
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

# ask ARGUMENTS...: one request, one line
asked=0
ask() {
    curl --silent --max-time 30 --output /dev/null "$@" || true
    asked=$((asked + 1))
}

# bad BYTES: a request that nobody can understand
bad=0
bad() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%b' "$1" >&3
    timeout 10 cat <&3 >/dev/null
    exec 3>&-
    asked=$((asked + 1)) bad=$((bad + 1))
}

traffic() {
    local solo=http://solo.localhost:$port n
    for n in {1..20}; do ask "$solo/?page=$n" -e "$solo/?page=$((n - 1))" -A 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36'; done
    ask "$solo/" --http1.0
    ask "$solo/" -I
    ask "$solo/" -X OPTIONS
    ask "$solo/" -d 'a=1'
    ask "$solo/" -A ''
    ask "$solo/" -A 'says "quotes", \\ and a	tab'
    ask "$solo/" -e 'not an address at all'
    ask "$solo/%22quoted%22/%0a/%E2%82%AC?x=\"1\"&y=[]" --globoff
    ask "$solo/$(printf 'x%.0s' {1..3000})"
    ask "https://solo.localhost:$secure/" --insecure --http2
    ask "https://solo.localhost:$secure/over-tls" --insecure --http1.1
    ask "http://down.localhost:$port/"
    for n in wp-login.php .env phpmyadmin/index.php; do ask "http://nobody.localhost:$port/$n"; done
    bad 'GET /caf\xc3\xa9/\xff HTTP/1.1\r\nHost: solo.localhost\r\nUser-Agent: \xff\xfe\r\nConnection: close\r\n\r\n'
    bad 'GET /two HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n'
    bad '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n'
}

# Lines are written ten times a second.
written() {
    for _ in {1..100}; do
        [[ $(wc -l <"$log") -ge $asked ]] && break
        sleep 0.1
    done
    same "$(wc -l <"$log")" "$asked"
}

goaccess_reads_all() {
    # Its own name of the format; no configuration of this machine.
    goaccess "$log" --log-format=COMBINED --no-global-config --output="$scratch/report.json" --invalid-requests="$scratch/invalid" \
        >"$scratch/goaccess" 2>&1 </dev/null || { cat "$scratch/goaccess"; return 1; }
    same "$(python3 -c 'import json, sys; g = json.load(open(sys.argv[1]))["general"]; print(g["valid_requests"], g["failed_requests"])' \
        "$scratch/report.json") $(cat "$scratch/invalid")" "$asked 0 "
}

# matched FILTER: what fail2ban-regex says of its lines
matched() {
    PYTHONPATH=$fail2ban/usr/lib/python3/dist-packages /usr/bin/python3 "$fail2ban/usr/bin/fail2ban-regex" \
        --config "$fail2ban/etc/fail2ban" "$log" "$1" 2>&1 | grep -o 'Lines: .*' | head -n 1
}

fail2ban_reads_all() {
    same "$(matched '^<HOST> - - \[\] "[^"]*" \d{3} \d+ "[^"]*" "[^"]*"$')" "Lines: $asked lines, 0 ignored, $asked matched, 0 missed"
}

fail2ban_finds_bad_requests() {
    same "$(matched nginx-bad-request)" "Lines: $asked lines, 0 ignored, $bad matched, $((asked - bad)) missed"
}

traffic
check 'combined: the log has a line for each request' written
check "combined: goaccess reads all $asked lines" goaccess_reads_all
check "combined: fail2ban reads all $asked lines" fail2ban_reads_all
check "combined: fail2ban's filter for bad requests finds those of nginx's format" fail2ban_finds_bad_requests
