"""SIGKILL at random points: after resuming, every sample of every epoch was read once."""

from __future__ import annotations

import os
import random

import pytest

from conftest import Node, temporary
from exactly_once import Kill, Run, Shape, kill_trainer, kill_worker

# Failures print it, and setting it draws the same points to kill at.
SEED = int(os.environ.get("BELADY_TEST_SEED", random.SystemRandom().getrandbits(32)))
# What is left divides by every world below, so not even padding is read twice.
SAMPLES = 360
SOURCE = f"synth://once?samples={SAMPLES}&size=2KB"


def begun(node: Node) -> Run:
    print(f"BELADY_TEST_SEED={SEED}")
    return Run(SOURCE, temporary(), SEED, node.log)


@pytest.mark.parametrize("first, kill, later", [
    (Shape(2, 0), kill_trainer, Shape(3, 1)),
    (Shape(2, 2), kill_worker, Shape(3, 0)),
    (Shape(3, 1), kill_worker, Shape(2, 2)),
], ids=["trainer", "worker", "worker, fewer ranks"])
def test_killed_and_resumed(node: Node, first: Shape, kill: Kill, later: Shape) -> None:
    run = begun(node)
    run.leg(first, kill)
    run.leg(later, kill_trainer)
    run.leg(first, None)
    run.check(SAMPLES)


@pytest.mark.parametrize("shape", [Shape(2, 0), Shape(1, 2)], ids=str)
def test_daemon_killed(own_node: Node, shape: Shape) -> None:
    """Nobody resumes: the loops go on with the batch that was due when a daemon is there again."""
    def kill_daemon(*_: object) -> None:
        own_node.kill()
        own_node.start()

    run = begun(own_node)
    run.leg(shape, kill_daemon)
    run.check(SAMPLES)
