#!/usr/bin/env bash
# Prometheus before the status listener: prometheus.sh STATUS_PORT FOLDER
set -uo pipefail
cd "$(dirname "$0")" || exit
. ./check.sh

target=127.0.0.1:$1 folder=$2
scratch=$(mktemp -d)
curl() { command curl --silent --show-error --max-time 30 "$@"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

cat >"$scratch/prometheus.yml" <<YAML
global: { scrape_interval: 500ms, scrape_timeout: 500ms }
scrape_configs:
  - job_name: carom
    static_configs: [{ targets: ["$target"] }]
YAML
listen=127.0.0.1:$(free_port)
prometheus --config.file "$scratch/prometheus.yml" --storage.tsdb.path "$scratch/data" --web.listen-address "$listen" \
    >"$folder/prometheus.log" 2>&1 &
prometheus=$!
trap 'kill $prometheus; wait $prometheus; rm -r "$scratch"' EXIT

lint() {
    local seen
    seen=$(curl "http://$target/metrics" | promtool check metrics 2>&1) || { echo "$seen"; return 1; }
    same "$seen" ''
}

# result QUERY: the first value that it has, waited for
result() {
    local value
    for _ in {1..150}; do
        value=$(curl "http://$listen/api/v1/query" --data-urlencode "query=$1" 2>/dev/null |
            python3 -c 'import json, sys; print(json.load(sys.stdin)["data"]["result"][0]["value"][1])' 2>/dev/null) &&
            [[ $value != NaN ]] && { echo "$value"; return; }
        sleep 0.1
    done
    echo "nothing for $1"
    return 1
}

scraped() {
    same "$(result up)" 1 &&
        same "$(result 'sum(carom_requests_total{class="2xx"}) > bool 0')" 1 &&
        same "$(result 'histogram_quantile(0.95, sum by (le) (carom_request_duration_seconds_bucket)) > bool 0')" 1 &&
        same "$(result 'count(carom_backend_up) > bool 5')" 1 &&
        same "$(result 'carom_build_info')" 1 &&
        same "$(result 'time() - process_start_time_seconds < bool 3600')" 1 &&
        same "$(result 'scrape_samples_scraped > bool 100')" 1
}

no_error() {
    curl "http://$listen/api/v1/targets" | python3 -c '
import json, sys
target, = json.load(sys.stdin)["data"]["activeTargets"]
assert target["health"] == "up" and not target["lastError"], target'
    ! grep -i 'level=\(warn\|error\)' "$folder/prometheus.log"
}

check 'prometheus: promtool has nothing to say of the metrics' lint
check 'prometheus: scrapes them, and can be asked' scraped
check 'prometheus: no scrape has failed' no_error
