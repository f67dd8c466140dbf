#!/usr/bin/env bash
# install-program.sh PROGRAM PACKAGE: make a program of the system's packages available; does nothing
# when it is there.
set -euo pipefail
program=$1 package=$2

# Programs that only root runs are often not on a user's PATH.
PATH=$PATH:/usr/sbin:/sbin
command -v "$program" >/dev/null && exit 0
give_up() {
	echo "$program is needed, and $1: install the package $package." >&2
	exit 1
}
command -v apt-get >/dev/null || give_up "there is no apt-get to install it with"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	sudo -n true 2>/dev/null || give_up "this user may not install packages"
	as_root=(sudo -n)
fi
echo "Installing $package"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq || give_up "apt-get update failed"
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
	give_up "apt-get install failed"
command -v "$program" >/dev/null || give_up "the package was installed but did not bring it"
