#!/usr/bin/env bash
# Checks format (clang-format, ruff) and runs the analyses (clang-tidy, ruff, mypy). `--fix` formats in place instead.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin

folders=()
for folder in include src tests bench; do
    [ -d "$folder" ] && folders+=("$folder")
done
mapfile -d '' c_files < <(find "${folders[@]}" -name '*.[ch]' -print0 | sort -z)

if [ "${1:-}" = --fix ]; then
    "$bin/clang-format" -i "${c_files[@]}"
    "$bin/ruff" check --quiet --fix
    "$bin/ruff" format --quiet
    exit
fi

failed=0
check() {
    echo "lint: $1"
    shift
    "$@" || failed=1
}

# clang-tidy sees what the build compiles, and not what it generates. One process per file, one per core.
tidy() {
    make --no-print-directory build/build.ninja
    "$bin/python" - <<'PYTHON' |
import json, os
for entry in json.load(open("build/compile_commands.json")):
    path = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
    if not path.startswith("build"):
        print(path, end="\0")
PYTHON
        sort -zu | xargs -0 -r -n 1 -P "$(nproc)" "$bin/clang-tidy" -p build --quiet
}

check "clang-format" "$bin/clang-format" --dry-run -Werror --ferror-limit=1 "${c_files[@]}"
check "ruff" "$bin/ruff" check --quiet
check "ruff format" "$bin/ruff" format --quiet --check
check "mypy" "$bin/mypy"
check "clang-tidy" tidy
exit "$failed"
