#!/usr/bin/env bash
# Install fio, which measures the disk that the ssd benchmarks are compared with.
set -euo pipefail
exec "$(dirname "$0")/install-program.sh" fio fio
