#!/usr/bin/env bash
# All that `make test` checks, after set-up. Every stage runs even when an earlier one failed (but nothing is tested
# that was not built), and the last line counts them all: "N passed, N failed, N skipped". Ctrl-C ends all of it.
set -euo pipefail
trap 'echo "== interrupted"; exit 130' INT
trap 'echo "== terminated"; exit 143' TERM
cd "$(dirname "$0")/.."

release_log=build/meson-logs/testlog.json
sanitize_log=build-sanitize/meson-logs/testlog.json
cli_log=build/meson-logs/pytest.xml
cli_sanitize_log=build-sanitize/meson-logs/pytest.xml
python_log=build/meson-logs/python.xml
triton_log=build/meson-logs/triton.xml
frontend_log=build/meson-logs/frontend.xml
# No old results.
rm -f "$release_log" "$sanitize_log" "$cli_log" "$cli_sanitize_log" "$python_log" "$triton_log" "$frontend_log"

results=() # STAGE:EXIT STATUS[:FILE OF RESULTS], for summary.py

# stage NAME FILE COMMAND...: the command is one external program, so that its status is the whole truth.
stage() {
    local name=$1 file=$2 status=0
    shift 2
    printf '\n== %s\n' "$name"
    "$@" || status=$?
    [ "$status" -eq 0 ] || printf '== %s: FAILED (exit %d)\n' "$name" "$status"
    results+=("$name:$status${file:+:$file}")
    return "$status"
}

# Python tests run side by side: what they measure is only for the search to go on with.
if stage "release build" "" make --no-print-directory build; then
    stage "release tests" "$release_log" meson test -C build --no-rebuild --print-errorlogs || true
    stage "command line" "$cli_log" \
        env EQUIFORGE_BUILD=build .venv/bin/python -m pytest -q -n auto tests/cli --junit-xml="$cli_log" || true
    stage "front end" "$frontend_log" \
        env EQUIFORGE_BUILD=build .venv/bin/python -m pytest -q -n auto tests/frontend --junit-xml="$frontend_log" || true
    stage "python" "$python_log" \
        env EQUIFORGE_BUILD=build .venv/bin/python -m pytest -q -n auto tests/python --junit-xml="$python_log" || true
    stage "generated Triton" "$triton_log" \
        env EQUIFORGE_BUILD=build .venv/bin/python -m pytest -q -n auto -W ignore tests/triton --junit-xml="$triton_log" || true
    stage "lint" "" tools/lint.sh || true
fi
if stage "sanitizer build" "" make --no-print-directory sanitize; then
    stage "sanitizer tests" "$sanitize_log" \
        meson test -C build-sanitize --no-rebuild --print-errorlogs --timeout-multiplier 6 || true
    stage "sanitizer command line" "$cli_sanitize_log" \
        env EQUIFORGE_BUILD=build-sanitize .venv/bin/python -m pytest -q -n auto tests/cli tests/frontend/test_absurd.py \
        --junit-xml="$cli_sanitize_log" ||
        true
fi

echo
exec .venv/bin/python tools/summary.py "${results[@]}"
