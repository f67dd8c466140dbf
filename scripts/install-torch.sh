#!/usr/bin/env bash
# Make $PYTHON able to import the modules named (all of the tests' by default); does nothing when it
# already can.
#
# The tests compare orders with a real PyTorch and pixels with real decoders, so a missing one is an
# error, not a skip.
set -euo pipefail
python=${PYTHON:-/usr/bin/python3}
modules=("$@")
[ $# -gt 0 ] || modules=(torch torchvision PIL pytest ensurepip)

packages=()
for module in "${modules[@]}"; do
	case $module in
	PIL) packages+=(python3-pil) ;;
	ensurepip) packages+=(python3-venv) ;;
	*) packages+=("python3-$module") ;;
	esac
done

can_import() { "$python" -c "import $(IFS=, && echo "${modules[*]}")" 2>/dev/null; }

can_import && exit 0
give_up() {
	echo "$python needs ${modules[*]}, and $1:" \
		"install ${packages[*]}, or set PYTHON to one that has them." >&2
	exit 1
}
command -v apt-get >/dev/null || give_up "there is no apt-get to install them with"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	sudo -n true 2>/dev/null || give_up "this user may not install packages"
	as_root=(sudo -n)
fi
echo "Installing ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq || give_up "apt-get update failed"
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" \
	>/dev/null || give_up "apt-get install failed"
can_import || give_up "the packages were installed but cannot be imported"
