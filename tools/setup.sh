#!/usr/bin/env bash
# Makes this checkout ready: a virtual environment in .venv, the pinned requirements, the package with its compiled
# codec, and Java for Spark. `tools/setup.sh interop` adds Maven, which fetches Apache Kafka for the interop tests.
#
# Safe to run again: every step leaves a stamp with a checksum of what it was made from and is skipped while that
# holds. Ends with one clear sentence when something is missing that it may not install.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
PYTHON=${PYTHON:-}

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_updated=
apt_install() {
    local log
    log=$(mktemp)
    if [ -z "$apt_updated" ]; then
        apt-get update -qq >"$log" 2>&1 || { cat "$log" >&2; fail "apt-get update failed (see above)"; }
        apt_updated=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1 ||
        { tail -n 20 "$log" >&2; fail "apt-get install $* failed (see above)"; }
    rm -f "$log"
}

# fresh NAME FILE...: whether the stamp NAME was made from just these files.
checksum() { cat "$@" | sha256sum | cut -d ' ' -f 1; }
fresh() { local name=$1; shift; [ "$(cat "$VENV/stamp-$name" 2>/dev/null)" = "$(checksum "$@")" ]; }
stamp() { local name=$1; shift; checksum "$@" >"$VENV/stamp-$name"; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name
    for name in $PYTHON python3 python3.11 python3.12 python3.13 python; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            PYTHON=$name
            return
        fi
    done
    fail "Python 3.11 or newer is needed and none was found; install it, or name it with PYTHON=/path/to/python3."
}

make_venv() {
    # A half-made environment (ensurepip missing) has a python but no pip.
    if [ -x $VENV/bin/python ] && new_enough $VENV/bin/python && $VENV/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    find_python
    say "virtual environment in $VENV"
    rm -rf $VENV
    if ! "$PYTHON" -m venv $VENV >/dev/null 2>&1; then
        rm -rf $VENV
        may_install || fail "\`$PYTHON -m venv\` does not work: install the package python3-venv, then run this again."
        apt_install python3-venv
        "$PYTHON" -m venv $VENV || fail "\`$PYTHON -m venv\` does not work even with python3-venv installed."
    fi
}

install_requirements() {
    fresh requirements requirements/build.txt requirements/dev.txt && return
    say "requirements (pinned by hash)"
    # The build tools come first: what ships no wheel (pyspark) is then built with them, not with unpinned ones.
    $VENV/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/build.txt
    $VENV/bin/python -m pip install -q --disable-pip-version-check --require-hashes --no-build-isolation \
        -r requirements/dev.txt
    stamp requirements requirements/build.txt requirements/dev.txt
}

compiled_sources() {
    local pxd
    for pxd in $(find src -name '*.pxd' | sort); do
        echo "$pxd"
        echo "${pxd%.pxd}.py"
    done
}

have_compiler() { command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null; }

install_package() {
    local sources
    sources="pyproject.toml setup.py $(compiled_sources)"
    # shellcheck disable=SC2086  # a list of file names without blanks
    if fresh package $sources && { ! have_compiler || [ -n "$(find src -name '*.so' -print -quit)" ]; }; then
        return
    fi
    say "the package, with its compiled codec"
    if ! have_compiler && may_install && [ "${NO_COMPILER:-}" = "" ]; then
        apt_install gcc libc6-dev python3-dev
    fi
    find src -name '*.so' -delete
    $VENV/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall -e .
    # shellcheck disable=SC2086
    stamp package $sources
}

# What pip does with a package that it copies. Where Python may write no bytecode (PYTHONDONTWRITEBYTECODE), each process
# would compile what it imports, a fifth of a second for a broker.
compile_bytecode() { $VENV/bin/python -m compileall -q src tests sim bench || true; }

say_compiled() {
    if [ -z "$(find src -name '*.so' -print -quit)" ]; then
        say "no C compiler: the codecs run interpreted; everything works, slower"
    fi
}

java_version() { java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1; }

install_java() {
    if command -v java >/dev/null && [ "$(java_version)" -ge 17 ] 2>/dev/null; then
        return
    fi
    may_install || fail "Spark needs Java 17 or newer: install it (Debian: default-jre-headless), then run this again."
    say "Java, for Spark"
    apt_install default-jre-headless
    [ "$(java_version)" -ge 17 ] 2>/dev/null ||
        fail "Spark needs Java 17 or newer, but \`java -version\` says $(java_version); put a newer one first on the PATH."
}

install_maven() {
    command -v mvn >/dev/null && return
    may_install || fail "the interop tests fetch Apache Kafka with Maven: install it (Debian: maven), then run this again."
    say "Maven, for Apache Kafka as a peer"
    apt_install maven
}

make_venv
install_requirements
install_package
compile_bytecode
say_compiled
install_java
for extra in "$@"; do
    case $extra in
        interop) install_maven ;;
        *) fail "unknown part: $extra (known: interop)" ;;
    esac
done
