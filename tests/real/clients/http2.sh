#!/usr/bin/env bash
# curl by HTTP/2 over TLS and in the clear: http2.sh TLS_PORT PLAIN_PORT CERT FOLDER
set -uo pipefail
cd "$(dirname "$0")" || exit
. ./check.sh

tls=$1 plain=$2 cert=$3 folder=$4
one=https://one.sites.test:$tls
two=https://two.sites.test:$tls
asgi=https://asgi.sites.test:$tls
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
curl() {
    command curl --silent --show-error --max-time 30 --http2 --cacert "$cert" \
        --connect-to "one.sites.test:$tls:127.0.0.1:$tls" --connect-to "two.sites.test:$tls:127.0.0.1:$tls" \
        --connect-to "asgi.sites.test:$tls:127.0.0.1:$tls" --connect-to "other.test:$tls:127.0.0.1:$tls" "$@"
}

get() {
    same "$(curl "$one/" -w ' %{http_code} %{http_version}')" 'express-1 200 2' &&
        same "$(curl "$two/" -w ' %{http_code} %{http_version}')" 'express-2 200 2'
}

many() {
    local urls=()
    for i in {1..60}; do urls+=("$one/url/$i" -o "$scratch/$i"); done
    same "$(curl --parallel --parallel-max 60 "${urls[@]}" -w '%{num_connects}\n' | sort | uniq -c | tr -s ' \n' ' ')" ' 59 0 1 1 ' &&
        same "$(cat "$scratch"/{1..60} | tr -d /a-z | sed 's/url//g')" "$(printf %s {1..60})"
}

head_and_range() {
    same "$(curl --head "$one/static/big.bin" -o /dev/null -w '%{http_code} %{size_download}')" '200 0' &&
        same "$(curl -r 1000-1999 "$one/static/big.bin" -o "$scratch/part" -w '%{http_code} %{size_download}')" '206 1000' &&
        cmp <(tail -c +1001 "$folder/big.bin" | head -c 1000) "$scratch/part"
}

download() {
    curl "$one/static/big.bin" -o "$scratch/big" && cmp "$folder/big.bin" "$scratch/big"
}

upload() {
    local answer
    answer=$(curl -T "$folder/big.bin" "$asgi/upload") && [[ $answer == *"$(sha256 "$folder/big.bin")"* ]] || { echo "$answer"; return 1; }
    answer=$(curl -T - "$asgi/upload" <"$folder/big.bin") && [[ $answer == *"$(sha256 "$folder/big.bin")"* ]] || { echo "$answer"; return 1; }
}

expect() {
    local log
    log=$(curl -v -H 'Expect: 100-continue' --expect100-timeout 5 -T "$folder/big.bin" "$asgi/upload" 2>&1 >"$scratch/answer")
    grep -q '< HTTP/2 100' <<<"$log" || { echo "no 100: $log"; return 1; }
    grep -q "\"sha256\":\"$(sha256 "$folder/big.bin")\"" "$scratch/answer" || { cat "$scratch/answer"; return 1; }
}

hints() {
    local log
    log=$(curl -v "$one/hints" 2>&1)
    grep -q '< HTTP/2 103' <<<"$log" || { echo "no 103: $log"; return 1; }
}

trailers() {
    local log
    log=$(curl -v "$one/trailers" 2>&1)
    grep -q 'x-sum: 4' <<<"$log" || { echo "no trailer: $log"; return 1; }
}

cut_off() {
    local code=0
    curl "$one/cut" -o /dev/null 2>/dev/null || code=$?
    same "$code" 92 # a stream error, not the end of a body
}

misdirected() {
    same "$(curl -H 'Host: other.test' "$one/" -o /dev/null -w '%{http_code}')" 421
}

chosen() {
    same "$(curl --http1.1 "$one/" -w ' %{http_code} %{http_version}')" 'express-1 200 1.1'
}

clear() {
    same "$(command curl -s --http2-prior-knowledge --connect-to "one.sites.test:$plain:127.0.0.1:$plain" "http://one.sites.test:$plain/url/x" -w ' %{http_version}')" '/url/x 2'
}

check 'http2 curl: each site by its name' get
check 'http2 curl: sixty at once over one connection' many
check 'http2 curl: HEAD and a range' head_and_range
check 'http2 curl: 16 MB down' download
check 'http2 curl: 16 MB up, with a length and without' upload
check 'http2 curl: Expect: 100-continue' expect
check 'http2 curl: early hints' hints
check 'http2 curl: trailers' trailers
check 'http2 curl: a body that breaks off is a broken stream' cut_off
check 'http2 curl: a host that the certificate is not for' misdirected
check 'http2 curl: HTTP/1.1 is there for those who want it' chosen
check 'http2 curl: in the clear, with prior knowledge' clear
