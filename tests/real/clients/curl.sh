#!/usr/bin/env bash
# curl against the Express and ASGI sites: curl.sh PORT FOLDER
set -uo pipefail
cd "$(dirname "$0")" || exit
. ./check.sh

port=$1 folder=$2
solo=http://solo.localhost:$port
pair=http://pair.localhost:$port
asgi=http://asgi.localhost:$port
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
curl() { command curl --silent --show-error --max-time 30 "$@"; }

http_1_0() {
    same "$(curl --http1.0 "$solo/" -w ' %{http_code} %{http_version}')" 'express-1 200 1.1' &&
        same "$(curl --http1.0 "$solo/stream" | cut -d ' ' -f 1 | tr -d '\n')" 01234 &&
        same "$(curl --http1.0 -o /dev/null "$solo/" "$solo/" -w '%{num_connects}' -o /dev/null)" 11
}

expect() {
    local log
    log=$(curl -v -H 'Expect: 100-continue' --expect100-timeout 5 -T "$folder/big.bin" "$asgi/upload" 2>&1 >"$scratch/answer")
    grep -q '< HTTP/1.1 100 Continue' <<<"$log" || { echo "no 100 Continue: $log"; return 1; }
    grep -q "\"sha256\":\"$(sha256 "$folder/big.bin")\"" "$scratch/answer" || { cat "$scratch/answer"; return 1; }
}

chunked_upload() {
    local answer
    answer=$(curl -H 'Transfer-Encoding: chunked' -T - "$asgi/upload" <"$folder/big.bin")
    [[ $answer == *"$(sha256 "$folder/big.bin")"* ]] || { echo "$answer"; return 1; }
}

range() {
    same "$(curl -r 1000-1999 "$solo/static/big.bin" -o "$scratch/part" -w '%{http_code} %{size_download}')" '206 1000' &&
        cmp <(tail -c +1001 "$folder/big.bin" | head -c 1000) "$scratch/part"
}

resume() {
    head -c 3000000 "$folder/big.bin" >"$scratch/big" &&
        curl -C - "$solo/static/big.bin" -o "$scratch/big" && cmp "$folder/big.bin" "$scratch/big"
}

head_only() {
    local head
    head=$(curl -I "$solo/static/big.bin" | tr -d '\r')
    same "$(head -n 1 <<<"$head")" 'HTTP/1.1 200 OK' &&
        same "$(grep -i '^content-length' <<<"$head")" "Content-Length: $(stat -c %s "$folder/big.bin")"
}

parallel() {
    local codes
    codes=$(curl -Z --parallel-max 20 -o /dev/null -w '%{http_code}\n' "$pair/?[1-100]" | sort | uniq -c | tr -s ' ')
    same "$codes" ' 100 200'
}

# One connection, two hosts by turns: each request is routed for itself.
two_hosts() {
    local any=http://127.0.0.1:$port answers
    answers=$(for host in solo asgi solo asgi; do
        [[ -s $scratch/config ]] && echo next
        printf 'silent\nurl = "%s/"\nheader = "Host: %s.localhost"\nwrite-out = " %%{num_connects};"\n' "$any" "$host"
        echo next >"$scratch/config"
    done | curl --config -)
    same "$answers" 'express-1 1;asgi 0;express-1 0;asgi 0;'
}

slow_reader() {
    curl --limit-rate 4M "$solo/static/big.bin" -o "$scratch/big" && cmp "$folder/big.bin" "$scratch/big"
}

slow_writer() {
    local answer
    answer=$(curl --limit-rate 4M -T "$folder/big.bin" "$asgi/upload")
    [[ $answer == *"$(sha256 "$folder/big.bin")"* ]] || { echo "$answer"; return 1; }
}

broken_body() {
    curl "$solo/cut" >"$scratch/cut" 2>"$scratch/why"
    same "$? $(cat "$scratch/cut")" '18 0123456789'
}

no_route() {
    same "$(curl "http://127.0.0.1:$port/" -H 'Host: nobody.example' -o /dev/null -w '%{http_code} %header{carom-error}')" \
        '404 no-route'
}

down() {
    same "$(curl "http://down.localhost:$port/" -o /dev/null -w '%{http_code} %header{carom-error}')" '502 backend-refused'
}

# Python's own server speaks HTTP/1.0 and closes after each answer.
old_backend() {
    local old=http://old.localhost:$port
    curl "$old/big.bin" -o "$scratch/big" && cmp "$folder/big.bin" "$scratch/big" &&
        same "$(curl "$old/small.txt?[1-20]" -w '%{http_code} %{num_connects} ' | tr -d '\n' | sed 's/plain200 0 //g')" \
            'plain200 1 '
}

unix_socket() {
    same "$(curl "http://unix.localhost:$port/" "http://unix.localhost:$port/static/small.txt")" "express-2plain"
}

odd_target() {
    local target="/url/a/../b/./%2e%2E//c;d=%zz|%C3%A9?q=[1]&&'\\"
    same "$(curl --path-as-is --globoff "$solo$target")" "$target"
}

long_path() {
    local path
    path=$(printf 'a%.0s' {1..6000})
    same "$(curl "$asgi/scope/$path" | grep -o 'a*' | awk '{ if (length > most) most = length } END { print most }')" 6000
}

check 'curl: HTTP/1.0 gets whole answers, and a close' http_1_0
check 'curl: -T waits for 100 Continue' expect
check 'curl: an upload of unknown length' chunked_upload
check 'curl: a range' range
check 'curl: a download goes on where it stopped' resume
check 'curl: -I' head_only
check 'curl: 100 requests in parallel' parallel
check 'curl: two hosts on one connection' two_hosts
check 'curl: a slow reader gets all of it' slow_reader
check 'curl: a slow writer too' slow_writer
check 'curl: a body cut off is an error' broken_body
check 'curl: an HTTP/1.0 backend, and one connection of the client all the same' old_backend
check 'curl: a backend behind a unix socket' unix_socket
check 'curl: an odd target stays as it is' odd_target
check 'curl: a long target' long_path
check 'curl: a host that no route names' no_route
check 'curl: a backend that is down' down
