#!/usr/bin/env bash
# `make demo`: PyTorch's DataLoader and Belady's side by side, in Python (python/demo).
#
# With PYTHON=no it is the daemon alone: a generated dataset behind an origin throttled to 200 MB/s
# and 20 ms, memory for half of it, and an emulated training loop.
set -euo pipefail
cd "$(dirname "$0")/.."
belady=$PWD/bin/belady

python=${PYTHON:-/usr/bin/python3}
if [ "$python" != no ]; then
	echo "PyTorch's DataLoader beside Belady's; 'make demo PYTHON=no' goes without Python."
	PYTHON=$python scripts/install-torch.sh torch torchvision PIL
	BELADY_BIN=$belady PYTHONPATH=$PWD/python exec "$python" -m demo
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/belady-demo.XXXXXX")
export BELADY_DIR=$dir BELADY_SOCKET=$dir/belady.sock
daemon=
finish() {
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap finish EXIT

bold= plain=
if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

say "1. A dataset: 8,000 samples of 110 KB behind a slow origin (200 MB/s, 20 ms a request)"
"$belady" dataset add demo \
	'throttle+synth://demo?samples=8000&size=110KB&classes=10&throttle.rate=200MB&throttle.latency=20ms&throttle.concurrency=256'

say "2. What a rank will read is known from the seed: PyTorch's DistributedSampler, epoch 0, seed 7"
"$belady" order --kind torch-distributed --samples 8000 --seed 7 --epoch 0 --world 1 --rank 0 \
	>"$dir/order"
echo "first samples: $(head -n 8 "$dir/order" | tr '\n' ' ')…"

say "3. A daemon with 500 MiB: about half of the dataset can be kept beside 64 MiB of staging"
"$belady" serve --ram 500MiB 2>"$dir/log" &
daemon=$!
for _ in $(seq 100); do
	[ -S "$BELADY_SOCKET" ] && break
	kill -0 "$daemon" 2>/dev/null || { cat "$dir/log" >&2; exit 1; }
	sleep 0.05
done

say "4. Four epochs of training, emulated: batches of 64, 25 ms of compute each"
"$belady" read demo --seed 7 --epochs 4 --batch 64 --compute 25

say "5. What the daemon says"
"$belady" status
cat <<'END'

The first epoch reads every sample once, as fast as the origin gives them, and the head of the
second besides. From then on half of them come from memory and the rest were fetched before they
were asked for: the loop waits for nothing, and an epoch takes as long as the computing alone
(× roofline close to 1).
END
