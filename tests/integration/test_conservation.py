# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Every record that a program attempts is in the capture, or counted there as lost. The sum is exact;
for a killed program, each thread may have counted one attempt that it did not begin.

tests/tools/conserve.c counts its attempts in a file that outlives the process, and later compares
the rows with these counts; ./dev soak makes 10^7 attempts, and ./dev bench 10^8.
"""
import os
import random
import subprocess

import pytest
from recordings import recorded
from slices import SOAK

pytestmark = pytest.mark.usefixtures("nothing_is_left")
CONSERVE = os.environ["CONSERVE"]
HEAP_PAIRS = os.environ["HEAP_PAIRS"]
MARKS = 10_000_000 if SOAK else 1_000_000
THREADS = 4
KILLED = 10 if SOAK else 5


def check(capture, files):
    done = subprocess.run([CONSERVE, "check", capture, *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return map(int, done.stdout.split())


@pytest.mark.parametrize("policy", ["lossless", "drop"])
def test_law(profctl, capture, tmp_path, policy):
    profctl("record", "-F", 0, "--policy", policy, "--no-symbols", "-o", capture, "--",
            CONSERVE, "write", 0, THREADS, MARKS // THREADS, tmp_path / "counts")
    tried, rows, lost, killed = check(capture, [tmp_path / "counts"])
    assert (tried, killed) == (MARKS, 0)
    assert rows + lost == tried
    assert rows > 0


@pytest.mark.parametrize("threads", [1, 4, 16])
def test_nothing_lost(profctl, capture, spawn, threads):
    """With no idle CPU, no allocation is lost: threads wait for room as long as their process's budget of
    a second lasts. But if the engine gets no CPU for half a second when the program starts, the summary
    says that the program did not register."""
    for _ in range(os.cpu_count()):
        spawn("sh", "-c", "while :; do :; done")
    n = 0
    for _ in range(9):
        summary = recorded(profctl, "--force", "-F", 0, "--memory", "--no-symbols", "-o", capture, "--",
                           HEAP_PAIRS, threads, 5_000, 4, 1)
        if summary["memory"]["excluded"]["unregistered"]:
            continue
        assert summary["loss"] == []
        assert summary["events"] >= threads * 10_000
        n += 1
        if n == 3:
            break
    assert n == 3


@pytest.mark.parametrize("policy", ["lossless", "drop"])
def test_killed(profctl, capture, tmp_path, policy):
    """Several programs are killed, each at an arbitrary instruction; a thread may have counted an
    attempt that it did not begin."""
    delays = [random.randrange(1000, 150000) for _ in range(KILLED)]
    lines = [f"{CONSERVE} write {i} {THREADS} 1000000000 {tmp_path}/{i} {delay}" for i, delay in enumerate(delays)]
    profctl("record", "-F", 0, "--policy", policy, "--no-symbols", "-o", capture, "--", "sh", "-c", "\n".join([*lines, "true"]))
    tried, rows, lost, killed = check(capture, [tmp_path / str(i) for i in range(KILLED)])
    # a program that is killed early may not have started all of its threads
    assert KILLED <= killed <= KILLED * THREADS, delays
    assert 0 <= tried - rows - lost <= killed, (delays, tried, rows, lost)
    assert rows > 0
