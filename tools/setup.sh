#!/usr/bin/env bash
# Installs what the build and the tests need on Debian 12 or 13, and only what is missing. `make setup` runs it once;
# it runs again when this file or requirements-dev.txt changes.
set -euo pipefail
cd "$(dirname "$0")/.."

# No versions here: a Debian release pins them (it only takes security fixes). Each name exists in both releases.
packages=(
    gcc libc6-dev make meson ninja-build pkg-config # the build; gcc brings libasan and libubsan
    libxxhash-dev libjansson-dev libzip-dev libsqlite3-dev libglpk-dev # libraries of the core
    libcmocka-dev                                   # unit tests
    clang                                           # libFuzzer builds
    python3 python3-venv ca-certificates            # command-line tests and lint
)

missing=()
if command -v dpkg-query >/dev/null; then
    for package in "${packages[@]}"; do
        status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing+=("$package")
    done
else
    for tool in gcc meson ninja pkg-config python3; do
        command -v "$tool" >/dev/null || missing=("${packages[@]}")
    done
fi

if [ ${#missing[@]} -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "setup: this is not Debian; install the equivalents of: ${missing[*]}" >&2
        exit 1
    elif [ "$(id -u)" -eq 0 ]; then
        as_root=()
    elif command -v sudo >/dev/null; then
        as_root=(sudo)
    else
        echo "setup: not root and no sudo; as root, run: apt-get install --no-install-recommends ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    ${as_root[@]+"${as_root[@]}"} apt-get update -qq
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# Debian's own Python where there is one: python3-venv belongs to it.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c '' 2>/dev/null; then
    rm -rf .venv
    "$python" -m venv .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r tools/requirements-dev.txt
touch .venv/.setup-stamp
