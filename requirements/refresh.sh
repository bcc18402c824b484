#!/usr/bin/env bash
# Updates the pins of requirements/*.in: hashes for every platform, no index named. Needs uv on the PATH or from `make build`.
set -euo pipefail
cd "$(dirname "$0")"
uv=$(command -v uv || echo ../.cache/uv-bin/bin/uv)
compile() {
    "$uv" pip compile --universal --python-version 3.11 --generate-hashes --excludes exclude.txt --no-header --quiet "${@:2}" "$1.in" -o "$1.txt"
}
for name in uv build dev; do
    compile "$name" "$@"
done
compile test --constraints dev.txt
