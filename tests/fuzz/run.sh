#!/usr/bin/env bash
# Fuzzes the parsers on one core, TIME seconds (600) in all: the text form, starting from the corpus and the programs,
# and `.pt2` archives, starting from those in tests/frontend. New inputs stay in build-fuzz/; `run.sh --minimise` then
# puts the fewest texts with the same coverage into tests/fuzz/corpus, at most 190 of at most 2 KiB, beside the
# hand-written seed_*.ef. A finding is left as build-fuzz/crash-*, and the exit status is not 0.
set -euo pipefail
cd "$(dirname "$0")/../.."

time=${TIME:-600}
corpus=tests/fuzz/corpus
work=build-fuzz
mkdir -p "$corpus" "$work"/{found,seeds,found_pt2,seeds_pt2}
ir=()
for source in src/ir/*.c; do
    [ "$source" = src/ir/eval.c ] || ir+=("$source")
done

# fuzzer NAME SOURCES...
fuzzer() {
    local name=$1
    shift
    clang -std=gnu17 -g -O1 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -Isrc \
        -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -o "$work/$name" "tests/fuzz/$name.c" "$@" src/support/*.c -lxxhash -lzip -ljansson -lm
}
fuzzer fuzz_text "${ir[@]}"
fuzzer fuzz_pt2 src/frontend/pt2*.c
find tests/programs tests/derivations -name '*.ef' -exec cp -t "$work/seeds" {} +
for archive in tests/frontend/archives/*/*.pt2; do
    name=$(basename "$archive")
    cp "$archive" "$work/seeds_pt2/$name"
    python3 - "$archive" "$work/seeds_pt2/$name.json" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as file:
    model = next(name for name in file.namelist() if name.endswith("models/model.json"))
    open(sys.argv[2], "wb").write(file.read(model))
PYTHON
done

common=(-dict=tests/fuzz/text.dict -max_len=2048 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/")
if [ "${1:-}" = --minimise ]; then
    rm -rf "$work/minimal" && mkdir "$work/minimal"
    "$work/fuzz_text" "${common[@]}" -set_cover_merge=1 "$work/minimal" "$corpus" "$work/found" "$work/seeds"
    find "$corpus" -type f ! -name 'seed_*' -delete
    find "$work/minimal" -type f -size -3k -printf '%s %p\n' | sort -n | tail -n 190 | cut -d' ' -f2- |
        xargs -r cp -t "$corpus"
    exit
fi
"$work/fuzz_text" "${common[@]}" -max_total_time=$((time / 2)) -print_final_stats=1 \
    "$work/found" "$corpus" "$work/seeds"
# Every input is a file that is flushed to the disk, which memory does fastest.
[ -w /dev/shm ] && export TMPDIR=/dev/shm
"$work/fuzz_pt2" -max_len=40000 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/" \
    -max_total_time=$((time - time / 2)) -print_final_stats=1 "$work/found_pt2" "$work/seeds_pt2"
