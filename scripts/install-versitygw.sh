#!/usr/bin/env bash
# Installs versitygw, the S3 server the tests run against, into .cache/bin. Does nothing when the
# pinned version is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v1.8.0
bin="$PWD/.cache/bin"
mkdir -p "$bin"
if [[ -x "$bin/versitygw" && "$(cat "$bin/versitygw.version" 2>/dev/null)" == "$version" ]]; then
  exit 0
fi
echo "building versitygw $version (a few minutes the first time)" >&2
GOBIN="$bin" GOFLAGS=-buildvcs=false go install "github.com/versity/versitygw/cmd/versitygw@$version"
echo "$version" >"$bin/versitygw.version"
