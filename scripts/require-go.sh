#!/usr/bin/env bash
# require-go.sh MINIMUM: fail with one clear sentence unless a recent enough Go is on PATH.
set -euo pipefail
minimum=$1

if ! command -v go >/dev/null; then
	echo "Belady needs Go $minimum or newer, and no go was found on PATH: see https://go.dev/dl" >&2
	exit 1
fi
found=$(go env GOVERSION)
found=${found#go}
oldest=$(printf '%s\n%s\n' "$minimum" "$found" | sort --version-sort | head -n 1)
if [ "$oldest" != "$minimum" ]; then
	echo "Belady needs Go $minimum or newer, and go on PATH is $found: see https://go.dev/dl" >&2
	exit 1
fi
