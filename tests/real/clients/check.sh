# shellcheck shell=bash
# Names what is checked and says how it went, one line a check: `ok NAME` or `FAILED NAME: what was seen`.
# A check is a function; what it prints says what it saw. To be sourced.

check() {
    local name=$1 seen
    shift
    if seen=$("$@" 2>&1); then
        echo "ok $name"
    else
        echo "FAILED $name: $(tr '\n' ' ' <<<"$seen" | cut -c 1-400)"
    fi
}

# same GOT WANTED
same() {
    [[ $1 == "$2" ]] || { echo "saw '$1', wanted '$2'"; return 1; }
}

sha256() {
    sha256sum "$@" | cut -d ' ' -f 1
}
