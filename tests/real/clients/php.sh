#!/usr/bin/env bash
# curl as a browser's stand-in against PHP's own server, which closes every connection: php.sh PORT FOLDER
set -uo pipefail
cd "$(dirname "$0")" || exit
. ./check.sh

port=$1 folder=$2
site=http://php.localhost:$port
curl() { command curl --silent --show-error --max-time 30 "$@"; }

form() {
    same "$(curl "$site/form" -d name=J%C3%BCrgen -d 'list[]=1' -d 'list[]=2')" '{"name":"Jürgen","list":["1","2"]}'
}

server() {
    local wanted
    wanted=$(printf '%s\n' "HTTP_HOST=php.localhost:$port" HTTP_X_FORWARDED_FOR=127.0.0.1 HTTP_X_FORWARDED_PROTO=http \
        "HTTP_X_FORWARDED_HOST=php.localhost:$port" 'REQUEST_URI=/server?a=b%20c')
    same "$(curl "$site/server?a=b%20c" -H 'X-Forwarded-For: 6.6.6.6' -H 'X_Forwarded_For: 6.6.6.6')" "$wanted"
}

upload() {
    same "$(curl "$site/upload" -F "file=@$folder/small.bin;filename=a.bin" -F note=hello)" \
        "a.bin $(stat -c %s "$folder/small.bin") $(sha256 "$folder/small.bin")"
}

put() {
    same "$(curl "$site/put" -T "$folder/small.bin")" "PUT $(sha256 "$folder/small.bin")"
}

redirect() {
    same "$(curl "$site/moved" -o /dev/null -w '%{http_code} %{redirect_url}')" "302 $site/arrived?from=moved" &&
        same "$(curl -L -b '' "$site/moved")" 'arrived with yes'
}

error() {
    same "$(curl "$site/error" -w ' %{http_code}')" 'broken, says PHP 500'
}

# What PHP says without a length ends with its connection.
many() {
    same "$(curl "$site/?[1-200]" -w ' %{http_code}\n' | sort | uniq -c | tr -s ' ')" ' 200 php 200'
}

asset() {
    same "$(curl "$site/small.txt" -w ' %{http_code} %{content_type}')" "plain
 200 text/plain; charset=UTF-8"
}

check 'php: a form' form
check 'php: the script knows host and client, whatever the client claims' server
check 'php: a file upload' upload
check 'php: a PUT' put
check 'php: a redirect and its cookie' redirect
check 'php: an error page of its own' error
check 'php: 200 requests, though PHP closes each connection' many
check 'php: a file without a script' asset
