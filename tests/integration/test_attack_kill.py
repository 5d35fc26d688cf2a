# SPDX-License-Identifier: BSD-2-Clause-Patent
"""kill -9 of each of our processes at random moments: nothing is left, the file opens, the next session works.

PROF_TEST_MOMENTS says how many moments; the seed is fixed, so that a failure can be seen again.
"""
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from recordings import RUN, children, info, processes, recorded, until

pytestmark = pytest.mark.usefixtures("nothing_is_left")
MOMENTS = int(os.environ.get("PROF_TEST_MOMENTS", "8"))
OURS = ("profctl", "profd", "profd-engine", "profd-files")


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def moments(victim):
    """Most of them while everything starts, every fourth when a second of it is in the file."""
    spans = ((0, 0.15), (0, 1.2), (0, 0.6), (2, 2.5))
    chance = random.Random(f"profd {victim}")
    return [chance.uniform(*spans[n % len(spans)]) for n in range(MOMENTS)]


def held():
    """Descriptors of memfds and perf events in what survives of this test run, but for this process."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) == os.getpid() or RUN not in (folder / "environ").read_bytes():
                continue
            links = [os.readlink(fd) for fd in (folder / "fd").iterdir()]
        except OSError:
            continue
        found += [(folder.name, link) for link in links if "perf_event" in link or "memfd:" in link]
    return found


def family(recording):
    found = {"profctl": recording.pid, **children(recording.pid)}
    found.update(children(found.get("profd", -1)))
    return found


@pytest.mark.parametrize("victim", OURS)
def test_killed_at_random_moments(recorder, profctl, profcapture, busy, tmp_path, victim):
    readable = 0
    for n, moment in enumerate(moments(victim)):
        capture = tmp_path / f"{n}.cap"
        begin = time.monotonic()
        recording = recorder("-a", "--no-symbols", "-o", capture, stderr=subprocess.DEVNULL)
        time.sleep(moment)
        target = family(recording).get(victim)
        if target:
            os.kill(target, signal.SIGKILL)
        killed = time.monotonic()
        if victim == "profd-files" or not target:
            time.sleep(0.1)
            recording.send_signal(signal.SIGINT)  # it is replaced, and the recording goes on
        recording.wait(timeout=20)
        until(lambda: not any(processes(name) for name in OURS[1:]), 10)
        assert held() == []
        found = profcapture("verify", capture, "--json", check=None) if capture.exists() else None
        if not found or not found.stdout:
            assert killed - begin < 1.2, "there is nothing of a recording that ran"
            continue
        data = json.loads(found.stdout)["data"]
        readable += 1
        assert all(row["reason"] == "cut" for row in data["damaged"]), (moment, data)
        if victim != "profd-engine" and data["state"] != "finished":
            assert killed - begin < 0.5, (moment, data)
    assert readable >= MOMENTS // 4
    recorded(profctl, "-a", "-d", "0.2", "-o", tmp_path / "next.cap")


@pytest.mark.parametrize("victim", ["profd-engine", "profd", "profctl"])
def test_last_second(recorder, profcapture, busy, capture, victim):
    """At most the last second is missing."""
    recording = recorder("-a", "--no-symbols", "-o", capture, stderr=subprocess.DEVNULL)
    until(lambda: capture.exists() and capture.stat().st_size > 0)
    time.sleep(3)
    killed = time.monotonic_ns()
    os.kill(family(recording)[victim], signal.SIGKILL)
    recording.wait(timeout=20)
    until(lambda: not processes("profd-engine"))
    samples = profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
    last = info(profcapture, capture)["start_monotonic_ns"] + samples[-1]["time_ns"]
    assert killed - last < 1.2e9
