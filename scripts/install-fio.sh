#!/usr/bin/env bash
# Install fio, which measures the disk that the ssd benchmarks are compared with; does nothing when
# it is there.
set -euo pipefail

command -v fio >/dev/null && exit 0
give_up() {
	echo "the ssd benchmarks need fio, and $1: install the package fio." >&2
	exit 1
}
command -v apt-get >/dev/null || give_up "there is no apt-get to install it with"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	sudo -n true 2>/dev/null || give_up "this user may not install packages"
	as_root=(sudo -n)
fi
echo "Installing fio"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq || give_up "apt-get update failed"
"${as_root[@]}" apt-get install -y -qq --no-install-recommends fio >/dev/null ||
	give_up "apt-get install failed"
command -v fio >/dev/null || give_up "the package was installed but brought no fio"
