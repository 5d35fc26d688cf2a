# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Python programs show their functions: each chain is one that the program can have
(python_oracle.py), in threads and forked children, from the start or attached late, and frames of
the program and of C functions that call it are in order. PROF_TEST_PYTHONS names further
interpreters, separated by colons."""
import collections
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from captures import rows
from interpreted_chains import Capture, check, rights, settled
from recordings import recorded

HERE = Path(__file__).parent
PYTHONS = ["/usr/bin/python3", *filter(None, os.environ.get("PROF_TEST_PYTHONS", "").split(":"))]

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


@pytest.fixture(scope="module", params=PYTHONS)
def python(request):
    return request.param


@pytest.fixture(scope="module")
def chains(python, tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    subprocess.run([python, HERE / "python_oracle.py", "record", path], check=True, timeout=120)
    return path


def test_command(profctl, profcapture, capture, python, chains):
    """A command with three threads is recorded from its start."""
    recorded(profctl, "-F", 2999, "-o", capture, "--", python, HERE / "python_oracle.py", "run", 4)
    check(Capture(profcapture, capture), chains)


def test_pid(profctl, profcapture, capture, python, chains, spawn):
    target = spawn(python, HERE / "python_oracle.py", "run", 60)
    time.sleep(1)
    recorded(profctl, "-F", 2999, "-o", capture, "--pid", target.pid, "-d", 3)
    check(Capture(profcapture, capture), chains)


def test_callbacks(profctl, profcapture, capture, python, tmp_path):
    """The C function that sorts is between the function that calls it and the one that it calls,
    also in a forked child."""
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


WAITS = """
import collections, json, os, sys, threading, time
spent = collections.Counter()
def nap(seconds): time.sleep(seconds)
def often(): nap(0.002)
def seldom(): nap(0.03)
def reads(): os.read(source, 1)
def writes():
    for _ in range(60):
        time.sleep(0.01)
        os.write(sink, b"x")
def timed(function):
    begin = time.perf_counter()
    function()
    spent[function.__name__] += time.perf_counter() - begin
source, sink = os.pipe()
thread = threading.Thread(target=writes)
time.sleep(0.5)
thread.start()
for _ in range(60): timed(reads)
for _ in range(100):
    timed(often)
    timed(often)
    timed(seldom)
thread.join()
print(json.dumps(spent))
"""


def test_waits(profctl, profcapture, capture, python, tmp_path):
    """report shows the functions in which a program waits, for as long as the program measured. Two
    callers of one function that have the same native stack are distinguished."""
    program = tmp_path / "waits.py"
    program.write_text(WAITS)
    done = profctl("record", "--off-cpu", "-o", capture, "--", python, program)
    Capture(profcapture, capture)
    spent = json.loads(done.stdout.splitlines()[0])
    shown = {row["name"]: row for row in profcapture.json("report", capture, "--metric", "off-cpu", "--limit", 0)["data"]["rows"]}
    # The program measures until it runs again, so on a busy machine its times include those in
    # which it was ready.
    ready, = profcapture.json("sql", capture, "SELECT sum(duration_ns) / 1e9 AS s FROM thread_states WHERE tid = pid AND state NOT IN ('running', 'waiting')")["data"]["rows"]
    for name, seconds in spent.items():
        waited = shown[f"waits.{name}"]["total_weight"] / 1e9
        assert 0.9 * (seconds - ready["s"]) <= waited <= 1.01 * seconds, (name, waited, seconds, ready)
    counts = collections.Counter()
    for row in rows(profcapture, capture, "wait"):
        counts[row["interpreter"]] += row["duration"]
    assert counts["complete"] > 0.8 * sum(counts.values())
    assert "Stacks of waits have" not in profcapture("report", capture, "--metric", "off-cpu").stdout


FREQUENT = """
import collections, json, os, threading, time
spent = collections.Counter()
def turn():
    os.write(sink, b"x")
    os.read(source, 1)
def often():
    for _ in range(30): turn()
def seldom():
    for _ in range(10): turn()
def answers():
    while os.read(asked, 1): os.write(answer, b"x")
def timed(function):
    begin = time.perf_counter()
    function()
    spent[function.__name__] += time.perf_counter() - begin
asked, sink = os.pipe()
source, answer = os.pipe()
threading.Thread(target=answers, daemon=True).start()
time.sleep(0.5)
while sum(spent.values()) < 3:
    timed(often)
    timed(seldom)
print(json.dumps(spent))
os._exit(0)
"""


def test_frequent_waits(profctl, profcapture, capture, python, tmp_path):
    """Frames are not read before each of so many sleeps. The others get the frames of one that was
    read, chosen by chance, so that callers keep their shares."""
    program = tmp_path / "frequent.py"
    program.write_text(FREQUENT)
    done = profctl("record", "--off-cpu", "-o", capture, "--", "taskset", "-c", min(os.sched_getaffinity(0)), python, program)
    spent = json.loads(done.stdout.splitlines()[0])
    shown = {row["name"]: row["total_weight"] for row in profcapture.json("report", capture, "--metric", "off-cpu", "--limit", 0)["data"]["rows"]}
    sleeping = shown["frequent.turn"]
    share = spent["often"] / sum(spent.values())
    assert abs(shown["frequent.often"] / sleeping - share) < 0.1, (shown, spent)
    known = collections.Counter()
    for row in rows(profcapture, capture, "wait"):
        known[row["interpreter"]] += 1
    assert known["complete"] > 0.9 * sum(known.values()) and sum(known.values()) > 10000, known


def test_report(profctl, profcapture, capture, python, tmp_path):
    program = tmp_path / "callbacks.py"
    program.write_text(CALLBACKS)
    recorded(profctl, "-o", capture, "--", python, program)
    Capture(profcapture, capture)
    shown = {row["name"]: row for row in profcapture.json("report", capture)["data"]["rows"]}
    assert (shown["callbacks.key"]["file"], shown["callbacks.key"]["kind"]) == (str(program), "python")
    assert shown["callbacks.key"]["self"] > 0.5 * sum(row["self"] for row in shown.values())
