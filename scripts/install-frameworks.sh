#!/usr/bin/env bash
# Put Lightning, Accelerate, Transformers and torchdata into .cache/venv, above $PYTHON's own
# packages; does nothing when the versions of python/tests/frameworks.txt are there already.
#
# The tests train with the real ones, so a missing one is an error, not a skip. About 170 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
venv=.cache/venv
wanted=python/tests/frameworks.txt
stamp="$("$python" -c 'import sys; print(sys.executable, sys.version)') $(sha256sum <"$wanted")"

if [ "$(cat "$venv/stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$venv/bin/python" ]; then
	exit 0
fi
give_up() {
	echo "The tests need Lightning, Accelerate, Transformers and torchdata from PyPI, and $1." >&2
	exit 1
}
rm -rf "$venv"
mkdir -p .cache
if ! "$python" -m venv --system-site-packages "$venv" >/dev/null 2>&1; then
	# Debian keeps what venv needs in a package of its own.
	command -v apt-get >/dev/null ||
		give_up "$python cannot make a virtual environment: install its venv module"
	as_root=()
	if [ "$(id -u)" -ne 0 ]; then
		sudo -n true 2>/dev/null ||
			give_up "this user may not install python3-venv, without which $python can make none"
		as_root=(sudo -n)
	fi
	DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq \
		--no-install-recommends python3-venv >/dev/null ||
		give_up "apt-get install python3-venv failed"
	rm -rf "$venv"
	"$python" -m venv --system-site-packages "$venv" ||
		give_up "$python cannot make a virtual environment"
fi
echo "Installing the training frameworks that the tests use into $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile \
	--requirement "$wanted" || give_up "pip could not install them"
"$venv/bin/python" -c 'import accelerate, lightning.pytorch, torchdata.stateful_dataloader' ||
	give_up "what was installed into $venv cannot be imported"
echo "$stamp" >"$venv/stamp"
