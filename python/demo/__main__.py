"""`make demo`: the stock loader and Belady side by side on this machine, in three regimes.

    PYTHONPATH=python python3 -m demo

Everything is made in a temporary folder and removed at the end. Nothing outside this machine is
asked for anything.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch

from belady import daemon
from belady.trial import serving
from demo import regimes, same, samples
from demo.regimes import Row, Speed

BLOBS, BLOB_BYTES = 1500, 100_000
PHOTOS = 1200
RAM = 512 << 20
DOUBTFUL = 1.05  # of a roofline: more than measuring errs on an idle machine

_began = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - _began:4.0f} s] {text}", flush=True)


def table(rows: list[Row]) -> str:
    lines = [("regime", "stock, best of 0/2/4", "Belady, best of 0/2/4", "roofline",
              "origin MB/epoch")]
    for row in rows:
        lines.append((
            row.regime, _speed(row.stock), _speed(row.belady), f"{row.roofline:,.0f}",
            f"{row.stock.origin_bytes / 1e6:.0f} → {row.belady.origin_bytes / 1e6:.0f}",
        ))
    widths = [max(len(cell) for cell in column) for column in zip(*lines)]
    return "\n".join(
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(line, widths)))
        for line in lines
    )


def _speed(speed: Speed) -> str:
    return f"{speed.samples_a_second:,.0f} ({speed.workers} workers)"


def gains(rows: list[Row]) -> str:
    return "\n".join(
        f"{row.regime}: {row.belady.samples_a_second / row.stock.samples_a_second:.2f} × stock,"
        f" {row.belady.samples_a_second / row.roofline:.2f} × roofline; {_remark(row)}"
        for row in rows
    )


def _remark(row: Row) -> str:
    """Nothing passes a roofline: if something did, it was measured in a worse moment."""
    if max(row.stock, row.belady).samples_a_second > DOUBTFUL * row.roofline:
        return ("the machine was busy while the roofline was measured, so the figures are doubtful:"
                " run it again when nothing else runs")
    return row.remark


def resumed(source: str) -> bool:
    """examples/kill_and_resume.py on the demo's own samples; it prints what it proves."""
    script = Path(__file__).resolve().parents[2] / "examples" / "kill_and_resume.py"
    return subprocess.run([sys.executable, str(script), source], check=False).returncode == 0


def main() -> int:
    # That 4 workers are many on a small machine is what the demo finds out.
    warnings.filterwarnings("ignore", "This DataLoader will create")
    torch.set_num_threads(1)  # so that a core does the work of one, and sums have one order
    with tempfile.TemporaryDirectory(prefix="belady-demo") as name:
        work = Path(name)
        blobs, photos = work / "blobs", work / "photos"
        say(f"writing {BLOBS} files of {BLOB_BYTES // 1000} KB and {PHOTOS} JPEGs")
        samples.write_blobs(blobs, BLOBS, BLOB_BYTES)
        samples.write_photos(photos, PHOTOS)
        rows = [regimes.slow_origin(blobs, work, say)]
        with serving(work / "fast", str(RAM), str(regimes.STAGING)) as place:
            pid = int(daemon.status(place.socket)["pid"])
            rows.append(regimes.warm_page_cache(blobs, pid, say))
            rows.append(regimes.decode_bound(photos, pid, say))
            print(f"\nSamples a second, from the second epoch on:\n\n{table(rows)}\n")
            print(f"{gains(rows)}\n", flush=True)
            theirs, ours = same.both(photos)
            order = theirs.order == ours.order
            weights = theirs.weights == ours.weights
            print(f"same order: {'yes' if order else 'NO'}")
            print(f"weights after training, sha256: stock {theirs.weights[:16]}…, Belady"
                  f" {ours.weights[:16]}…: {'equal' if weights else 'DIFFERENT'}", flush=True)
            once = resumed(str(blobs))
    say("done; everything was removed")
    return 0 if order and weights and once else 1


if __name__ == "__main__":
    sys.exit(main())
