#!/usr/bin/env bash
# Builds the wheel into dist/: Meson through meson-python, in a build folder of its own that it keeps; then auditwheel
# puts the shared libraries inside. It names no Python version, since the package loads the library with ctypes.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH

command -v auditwheel >/dev/null || { echo "the wheel needs 'make setup' first" >&2; exit 1; }

work=build/wheel
rm -rf "$work"/{raw,tagged} dist
mkdir -p "$work"
log=$work/log.txt
quiet() { "$@" >>"$log" 2>&1 || { tail -n 40 "$log" >&2; echo "wheel: $1 failed, see $log" >&2; exit 1; }; }
: >"$log"

quiet python -m build --wheel --no-isolation --outdir "$work/raw" -Cbuild-dir="$work/tree" .
# The platform tag is that of this machine's C library: Debian 12 has glibc 2.36.
libc=$(getconf GNU_LIBC_VERSION | sed 's/.* //; s/\./_/')
mkdir -p "$work/tagged"
cp "$work"/raw/*.whl "$work/tagged"
quiet python -m wheel tags --remove --python-tag py3 --abi-tag none "$work"/tagged/*.whl
quiet auditwheel repair --plat "manylinux_${libc}_$(uname -m)" --only-plat -w dist "$work"/tagged/*.whl
ls dist/*.whl
