# Read by the run.sh of each example: options, tools, inputs, a private server with two clients, jobs.
# An example sets `tools` (words "command=package") and `split_tasks` beforehand, and calls `begin "$@"`.
# shellcheck shell=sh

here=$(cd "$(dirname "$0")" && pwd)
example=$(basename "$here")
top=$(dirname "$(dirname "$here")")
parts=8
server=
inputs=
output=
install=
only_check=
clients=
watching=
wrong=
server_pid=
home=

usage() {
    cat <<END
usage: $0 [--install] [--server URL] [--parts N] [--inputs DIR] [--output DIR] [--check]

  --install      install missing tools with apt-get first (as root)
  --server URL   use this server, whose clients have the tools; else a private one is started and stopped
  --parts N      into how many parts the split tasks are cut (default 8)
  --inputs DIR   keep what is downloaded there, and use it next time
  --output DIR   leave the results there
  --check        only check the tools and get the inputs
END
}

say() { echo "$*" >&2; }

fail() {
    say "$0: $*"
    exit 1
}

# Tools or reads are not there: nothing is wrong with the example.
lack() {
    say "$0: $*"
    exit 77
}

begin() {
    while [ $# -gt 0 ]; do
        case $1 in
            --install) install=yes ;;
            --check) only_check=yes ;;
            --server | --parts | --inputs | --output)
                [ $# -gt 1 ] || fail "$1 needs a value"
                case $1 in
                    --server) server=$2 ;;
                    --parts) parts=$2 ;;
                    --inputs) inputs=$2 ;;
                    --output) output=$2 ;;
                esac
                shift
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            *)
                usage >&2
                fail "$1: there is no such option"
                ;;
        esac
        shift
    done
    [ -n "$server" ] || check_tools
    command -v awe >/dev/null || PATH=$PATH:$top/.venv/bin
    command -v awe >/dev/null || fail "the command awe is not on the PATH: run 'make setup' in $top first"
    trap finish EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    home=$(mktemp -d "${TMPDIR:-/tmp}/awe-$example-XXXXXX")
    : "${inputs:=$home/inputs}"
    mkdir -p "$inputs" ${output:+"$output"}
    inputs=$(cd "$inputs" && pwd)
}

check_tools() {
    missing=
    for tool in $tools; do
        command -v "${tool%%=*}" >/dev/null || missing="$missing ${tool#*=}"
    done
    [ -n "$missing" ] || return 0
    # shellcheck disable=SC2086  # a list of words
    missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
    [ -n "$install" ] || lack "missing tools: apt-get install --no-install-recommends $missing(or add --install)"
    [ "$(id -u)" = 0 ] || fail "--install needs root; missing: $missing"
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2
}

# from_package PACKAGE PATH: print where a file of a Debian package lies. The package need not be installed; and where it
# is, its examples may have been left out, as in slim images. Then it is downloaded and unpacked, not installed.
from_package() {
    if [ -r "$2" ]; then
        echo "$2"
        return
    fi
    if [ ! -d "$inputs/$1" ]; then
        say "downloading the Debian package $1"
        new=$inputs/.new-$$
        rm -rf "$home/deb" "$new"
        mkdir "$home/deb"
        (cd "$home/deb" && apt-get -qq -o APT::Sandbox::User=root download "$1") >&2 ||
            lack "the package $1 cannot be downloaded (see above); apt-get update may help"
        dpkg-deb -x "$home"/deb/*.deb "$new" >&2 || fail "the package $1 cannot be unpacked (see above)"
        # Under its name it is whole, whenever we are ended; another run may have been first.
        mv -T "$new" "$inputs/$1" 2>/dev/null || [ -d "$inputs/$1" ] || fail "$inputs/$1 cannot be made"
    fi
    [ -r "$inputs/$1$2" ] || fail "this version of the Debian package $1 has no $2"
    echo "$inputs/$1$2"
}

start() {
    if [ -n "$only_check" ]; then
        say "tools and inputs are there"
        exit 0
    fi
    if [ -n "$server" ]; then
        export AWE_SERVER="$server"
        return
    fi
    awe-server serve --host 127.0.0.1 --port 0 --data "$home/data" >"$home/server.log" 2>&1 &
    server_pid=$!
    i=0
    until AWE_SERVER=$(sed -n 's/.*awe-server listening on \([^ ]*\).*/\1/p' "$home/server.log") && [ -n "$AWE_SERVER" ]; do
        i=$((i + 1))
        if [ $i -gt 300 ] || ! kill -0 "$server_pid" 2>/dev/null; then
            cat "$home/server.log" >&2
            fail "the server did not start"
        fi
        sleep 0.1
    done
    export AWE_SERVER
    say "server: $AWE_SERVER"
    for i in 1 2; do
        awe-client run --server "$AWE_SERVER" --group default --apps '*' --slots 2 --name "$example-$i" \
            --work "$home/work-$i" >"$home/client-$i.log" 2>&1 &
        clients="$clients $!"
        say "client: $example-$i, 2 slots"
    done
}

# run_job FOLDER TEMPLATE PARTS OPTION...: run a job to its end, and fetch all its outputs into FOLDER.
run_job() {
    folder=$1 template=$2 count=$3
    shift 3
    say "== $(basename "$template"), split tasks in $count part(s)"
    id=$(awe submit "$template" --set jobname="$example" --set user="$(id -un)" --set totalwork="$count" "$@") ||
        fail "the job was not submitted"
    # In the background, so that a signal ends it at once.
    awe watch "$id" &
    watching=$!
    while kill -0 "$watching" 2>/dev/null; do
        for pid in $clients; do
            kill -0 "$pid" 2>/dev/null || { tail -n 20 "$home"/client-*.log >&2; fail "a client has ended"; }
        done
        sleep 0.2
    done
    wait "$watching" || fail "the job did not complete"
    watching=
    mkdir -p "$folder"
    awe show "$id" >"$home/shown"
    for task in $split_tasks; do
        awk -F '\t' -v task="$task" -v done="$count/$count" \
            '$1 == task && $3 == done { found = 1 } END { exit !found }' "$home/shown" || {
            cat "$home/shown" >&2
            fail "the task $task was not cut into $count parts"
        }
    done
    awk -F '\t' 'outputs { print $2, $4 } $2 == "OUTPUT" { outputs = 1 }' "$home/shown" >"$home/outputs"
    while read -r name node; do
        case $name in
            *'*'*) ;;
            *) awe node get "$node" --output "$folder/$name" 2>"$home/get.log" || fail "$(cat "$home/get.log")" ;;
        esac
    done <"$home/outputs"
}

# check_count WHAT FOUND EXPECTED: a row of the table.
check_count() {
    verdict=ok
    [ "$2" -eq "$3" ] || verdict="NOT AS EXPECTED" wrong=yes
    printf '%-34s %9s %9s   %s\n' "$1" "$2" "$3" "$verdict"
}

# check_sum WHAT FILE SHA256
check_sum() {
    if [ "$(sha256sum <"$2")" = "$3  -" ]; then
        echo "sha256 as expected: $1"
    else
        echo "sha256 is NOT as expected: $1"
        wrong=yes
    fi
}

# check_same WHAT FILE FILE
check_same() {
    if cmp -s "$2" "$3"; then
        echo "split = whole: $1"
    else
        echo "split is NOT whole: $1"
        wrong=yes
    fi
}

conclude() {
    [ -z "$output" ] || say "results: $output"
    [ -z "$wrong" ] || fail "a result is not as expected; the numbers are those of the tools of Debian 12"
}

stop() {
    kill "$1" 2>/dev/null || return 0
    i=0
    while kill -0 "$1" 2>/dev/null; do
        i=$((i + 1))
        # The second one makes a client give back what it runs.
        [ $i -ne 20 ] || kill "$1" 2>/dev/null
        [ $i -lt 200 ] || kill -KILL "$1" 2>/dev/null
        sleep 0.1
    done
}

finish() {
    code=$?
    trap '' HUP INT TERM
    trap - EXIT
    for pid in $watching $clients $server_pid; do
        stop "$pid"
    done
    rm -rf "$home" "$inputs/.new-$$"
    [ -z "$server_pid" ] || say "server and clients are stopped"
    exit $code
}
