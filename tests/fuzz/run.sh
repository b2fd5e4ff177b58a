#!/usr/bin/env bash
# Fuzzes the text form for TIME seconds (600) on one core, starting from the corpus and the programs. New inputs stay in
# build-fuzz/; `run.sh --minimise` then puts the fewest files with the same coverage into tests/fuzz/corpus, at most 190
# of at most 2 KiB, beside the hand-written seed_*.ef. A finding is left as build-fuzz/crash-*, and the exit status is not 0.
set -euo pipefail
cd "$(dirname "$0")/../.."

time=${TIME:-600}
corpus=tests/fuzz/corpus
work=build-fuzz
mkdir -p "$corpus" "$work/found" "$work/seeds"
ir=()
for source in src/ir/*.c; do
    [ "$source" = src/ir/eval.c ] || ir+=("$source")
done
clang -std=gnu17 -g -O1 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -Isrc \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    -o "$work/fuzz_text" tests/fuzz/fuzz_text.c "${ir[@]}" src/support/*.c -lxxhash -lzip -lm
find tests/programs tests/derivations -name '*.ef' -exec cp -t "$work/seeds" {} +

common=(-dict=tests/fuzz/text.dict -max_len=2048 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/")
if [ "${1:-}" = --minimise ]; then
    rm -rf "$work/minimal" && mkdir "$work/minimal"
    "$work/fuzz_text" "${common[@]}" -set_cover_merge=1 "$work/minimal" "$corpus" "$work/found" "$work/seeds"
    find "$corpus" -type f ! -name 'seed_*' -delete
    find "$work/minimal" -type f -size -3k -printf '%s %p\n' | sort -n | tail -n 190 | cut -d' ' -f2- |
        xargs -r cp -t "$corpus"
    exit
fi
"$work/fuzz_text" "${common[@]}" -max_total_time="$time" -print_final_stats=1 "$work/found" "$corpus" "$work/seeds"
