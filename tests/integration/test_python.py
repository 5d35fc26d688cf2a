# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Python programs show their functions: each chain is one that the program can have
(python_oracle.py), in threads and forked children, from the start or attached late, and frames of
the program and of C functions that call it are in order. PROF_TEST_PYTHONS names further
interpreters, separated by colons."""
import collections
import os
import subprocess
import time
from pathlib import Path

import pytest

from captures import rows
from python_chains import judge
from recordings import recorded

HERE = Path(__file__).parent
PYTHONS = ["/usr/bin/python3", *filter(None, os.environ.get("PROF_TEST_PYTHONS", "").split(":"))]
TORN = 0x4

CALLBACKS = """
import os, time
def key(x):
    total = 0
    for i in range(100):
        total += i & 7
    return x
def child_only():
    while time.process_time() < 1:
        sorted(range(30), key=key)
def parent_only():
    while time.process_time() < 1:
        sorted(range(30), key=key)
if os.fork() == 0:
    child_only()
    os._exit(0)
parent_only()
os.wait()
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)
    if "WALK_PYTHON" not in os.environ:
        pytest.skip("built without libbpf, bpftool or clang")


class Capture:
    """The samples of a capture, with their frames, innermost first."""

    def __init__(self, profcapture, path):
        missing = [row["value"] for row in rows(profcapture, path, "metadata") if row["key"] == "interpreters.missing"]
        if missing:
            pytest.skip(missing[0])
        self.samples = rows(profcapture, path, "sample", "--resolve")

    def chain(self, sample):
        """Functions of the program as python_oracle.py writes them; None: another frame."""
        for frame in sample["frames"]:
            is_program = frame["kind"] == "python"
            yield f"{frame['name']}@{frame['line']}:{frame['at_line'] or 0}" if is_program else None

    def printed(self):
        """The samples as walk-python prints them."""
        for sample in self.samples:
            if sample["interpreter"] in ("complete", "deeper"):
                yield "0\t" + "|".join(filter(None, self.chain(sample))) + "|"
            elif sample["interpreter"] in ("torn", "missing"):
                yield f"{TORN if sample['interpreter'] == 'torn' else 0:x}\t"


def settled(samples):
    """Without those before the interpreter of their process was found."""
    begun, kept = set(), []
    for sample in samples:
        if sample["interpreter"] == "complete":
            begun.add(sample["pid"])
        if sample["pid"] in begun and sample["interpreter"] != "idle":
            kept.append(sample)
    return kept


def check(capture, chains):
    capture.samples = settled(capture.samples)
    counts, impossible = judge(chains, capture.printed())
    print(dict(counts), impossible.most_common(3))
    assert not impossible
    assert counts["judged"] > 200
    assert counts["torn"] <= 2 + 0.002 * counts["all"]
    assert counts["missing"] + counts["without a name"] <= 5 + 0.01 * counts["all"]


@pytest.fixture(scope="module", params=PYTHONS)
def python(request):
    return request.param


@pytest.fixture(scope="module")
def chains(python, tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    subprocess.run([python, HERE / "python_oracle.py", "record", path], check=True, timeout=120)
    return path


def test_command(profctl, profcapture, capture, python, chains):
    """Three threads, from the start."""
    recorded(profctl, "-F", 2999, "-o", capture, "--", python, HERE / "python_oracle.py", "run", 4)
    check(Capture(profcapture, capture), chains)


def test_pid(profctl, profcapture, capture, python, chains, spawn):
    target = spawn(python, HERE / "python_oracle.py", "run", 60)
    time.sleep(1)
    recorded(profctl, "-F", 2999, "-o", capture, "--pid", target.pid, "-d", 3)
    check(Capture(profcapture, capture), chains)


def test_callbacks(profctl, profcapture, capture, python, tmp_path):
    """The function that sorts is between the one that calls it and the one that it calls, also in
    a forked child."""
    program = tmp_path / "callbacks.py"
    program.write_text(CALLBACKS)
    recorded(profctl, "-F", 999, "-o", capture, "--", python, program)
    found = Capture(profcapture, capture)
    counts = collections.Counter()
    for sample in settled(found.samples):
        chain = [name and name.split("@")[0] for name in found.chain(sample)]
        for caller in ("callbacks.child_only", "callbacks.parent_only"):
            if caller not in chain:
                continue
            counts[caller, sample["pid"]] += 1
            if "callbacks.key" in chain:
                inside = chain[chain.index("callbacks.key") + 1:chain.index(caller)]
                counts["right" if inside and not any(inside) else "wrong"] += 1
    print(counts)
    callers = [key for key in counts if isinstance(key, tuple)]
    assert len(callers) == len({pid for _, pid in callers}) == 2
    assert min(counts[key] for key in callers) > 100
    assert counts["wrong"] <= 0.005 * counts["right"]


def test_report(profctl, profcapture, capture, python, tmp_path):
    program = tmp_path / "callbacks.py"
    program.write_text(CALLBACKS)
    recorded(profctl, "-o", capture, "--", python, program)
    Capture(profcapture, capture)
    shown = {row["name"]: row for row in profcapture.json("report", capture)["data"]["rows"]}
    assert (shown["callbacks.key"]["file"], shown["callbacks.key"]["kind"]) == (str(program), "python")
    assert shown["callbacks.key"]["self"] > 0.5 * sum(row["self"] for row in shown.values())
