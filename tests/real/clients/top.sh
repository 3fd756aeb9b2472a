#!/usr/bin/env bash
# `carom top` in a real terminal, tmux's, while requests come: top.sh CAROM ROUTES PORT
set -uo pipefail
cd "$(dirname "$0")" || exit
. ./check.sh

carom=$1 routes=$2 port=$3
tmux() { command tmux -L "carom-$$" -f /dev/null "$@"; }
while :; do curl --silent --max-time 5 -o /dev/null "http://pair.localhost:$port/"; done &
load=$!
trap 'kill $load; tmux kill-server 2>/dev/null' EXIT

screen() { tmux capture-pane -p -t top; }

# shows PATTERN: within 20 seconds
shows() {
    for _ in {1..100}; do
        screen | grep -qE "$1" && return
        sleep 0.2
    done
    echo "no $1 on: $(screen)"
    return 1
}

# What stands in the first line of the list.
first() { screen | grep -A 1 'site, instance' | tail -n 1; }

starts() {
    tmux new-session -d -s top -x 80 -y 24 "echo before; '$carom' top --routes '$routes' --interval 300ms; echo \"ended \$?\"; cat" &&
        shows 'pair\.localhost' && shows 'q quit' && ! screen | grep -q before
}

rates() {
    # How many a second, how many fail, and how long half of them and 19 of 20 take.
    local took='(<1ms|[0-9.]+ms|[0-9.]+s)'
    shows "^. pair\.localhost +(. of . up +)?[1-9][0-9.]* +[0-9.]+ +$took +$took " && shows '^[1-9][0-9.]* req/s'
}

sorts() {
    local by_requests by_name
    by_requests=$(first)
    tmux send-keys -t top s s
    shows 'sort: p95' || return
    tmux send-keys -t top s s
    shows 'sort: name' || return
    by_name=$(first)
    [[ $by_requests == *pair.localhost* && $by_name == *asgi.localhost* ]] || { echo "$by_requests, $by_name"; return 1; }
    tmux send-keys -t top r
    shows 'sort: name ↑' && same "$(first | grep -c asgi)" 0
}

filters_and_opens() {
    tmux send-keys -t top / p a i
    shows '/pai' && tmux send-keys -t top Enter && shows 'filter: pai' && same "$(screen | grep -cE '^. solo\.localhost')" 0 &&
        tmux send-keys -t top Enter && shows 'since the start: [0-9]+ 2xx' && tmux send-keys -t top Escape && shows 'filter: pai'
}

resizes() {
    tmux resize-window -t top -x 50 -y 12 && shows 'req/s +err/s +p50$' && tmux resize-window -t top -x 100 -y 30 && shows 'waiting$'
}

# ends KEY...: and gives the terminal back as it was
ends() {
    tmux send-keys -t top "$@"
    shows 'ended 0' && shows before
}

sigterm() {
    tmux kill-session -t top
    starts || return
    pkill -TERM -P "$(tmux display-message -p -t top '#{pane_pid}')" carom || return
    shows 'ended 0' && shows before
}

piped() {
    local said
    said=$("$carom" top --routes "$routes" 2>&1 | cat)
    [[ $said == *'carom status --json'* ]] || { echo "$said"; return 1; }
}

check 'top: shows sites, on a screen of its own' starts
check 'top: shows what they serve a second' rates
check 'top: a key sorts them anew' sorts
check 'top: a filter leaves some, Enter shows one' filters_and_opens
check 'top: follows the size of the terminal' resizes
check 'top: q gives the terminal back' ends q
check 'top: so does SIGTERM' sigterm
check 'top: without a terminal says what to do' piped
