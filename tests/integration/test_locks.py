# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Locks: who waits for which lock, and who releases it.

The threads of convoy.c measure with their own clock how long they wait for each mutex, and how long
they hold it. This clock also counts the time in which a thread is ready and no CPU is free.
"""
import collections
import os
import re
import subprocess
from pathlib import Path

import pytest
import schema
from captures import check_cut
from recordings import info
from test_terminal import shown

SOURCE = Path(os.environ["PROF_SOURCE_DIR"]) / "tests/tools/convoy.c"


@pytest.fixture(scope="module")
def convoy(profctl, tmp_path_factory):
    """Returns a capture; {address: (name, waits, ns)}, which its threads measured for each mutex;
    and {name: [(tid, begin, end)]}, the times for which they held each mutex."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program = tmp_path_factory.mktemp("locks") / "convoy"
    subprocess.run(["gcc", "-O2", "-g", "-pthread", SOURCE, "-o", program], check=True)
    capture = program.with_name("convoy.cap")
    done = profctl("record", "-q", "--wakers", "-F", 0, "-o", capture, "--", program, program.with_name("holds"))
    lines = [line.split() for line in done.stdout.splitlines()]
    holds = collections.defaultdict(list)
    for line in program.with_name("holds").read_text().splitlines():
        name, *numbers = line.split()
        holds[name].append(tuple(map(int, numbers)))
    return capture, {address: (name, int(waits), int(ns)) for name, address, waits, ns in lines}, holds


def by_lock(data):
    sums = collections.defaultdict(collections.Counter)
    for row in data["rows"]:
        sums[row["address"]].update(waits=row["waits"], ns=row["total_ns"])
    return sums


def test_convoy(profcapture, convoy):
    """Each mutex has the waits and the time that its threads measured, and the two places where it
    is acquired and released."""
    capture, measured, _ = convoy
    output = profcapture.json("locks", capture, "--limit", 0)
    schema.check(profcapture, "locks", output)
    check_cut(profcapture, "locks", capture)
    data = output["data"]
    query = "SELECT sum(duration_ns) AS ns FROM thread_states WHERE state = 'runnable'"
    ready = profcapture.json("sql", capture, query)["data"]["rows"][0]["ns"]
    found = by_lock(data)
    assert set(found) == set(measured)
    for address, (name, waits, ns) in measured.items():
        assert 0.95 * ns - ready <= found[address]["ns"] <= 1.001 * ns, (name, found[address], ns, ready)
        # a thread may be woken, find the mutex taken, and sleep again; or it may get the mutex
        # without sleeping
        assert 0.8 * waits <= found[address]["waits"] <= 1.5 * waits, (name, found[address], waits)
    assert sum(ns for _, _, ns in measured.values()) - sum(of["ns"] for of in found.values()) <= ready + 0.05 * sum(ns for _, _, ns in measured.values())
    places = collections.Counter()
    for row in data["rows"]:
        places[row["waiter"], row["waiter_file"] and Path(row["waiter_file"]).name, row["releaser"]] += row["total_ns"]
    assert places["acquire", "convoy.c", "release"] >= 0.9 * places.total(), places
    # the rest are waits for futexes that are not locks: the main thread joins the other threads
    waits = profcapture.json("sql", capture, "SELECT sum(duration) AS ns FROM wait WHERE argument > 4096 AND waker = 'thread'")["data"]["rows"][0]["ns"]
    rest = sum(of["total_ns"] for of in data["rest"].values())
    assert abs(waits - rest - sum(of["ns"] for of in found.values())) <= 0.01 * waits


def test_holders(profcapture, convoy):
    """Threads wait for a mutex while another thread holds it, or was woken by its release and has
    not run yet."""
    capture, measured, holds = convoy
    start = info(profcapture, capture)["start_monotonic_ns"]
    found = by_lock(profcapture.json("locks", capture, "--limit", 0)["data"])
    ready = {}
    for row in profcapture.json("sql", capture, "SELECT tid, time_ns, duration_ns FROM thread_states WHERE state = 'runnable'", "--limit", 0)["data"]["rows"]:
        ready[row["tid"], row["time_ns"]] = row["time_ns"] + row["duration_ns"]
    for address, (name, _, _) in measured.items():
        query = f"SELECT tid, time_ns, duration FROM wait WHERE argument = {int(address, 16)} AND waker = 'thread'"
        waits = profcapture.json("sql", capture, query, "--limit", 0)["data"]["rows"]
        assert sum(row["duration"] for row in waits) == found[address]["ns"]
        taken = [(tid, begin - start, end - start) for tid, begin, end in holds[name]]
        taken += [(row["tid"], row["time_ns"], ready.get((row["tid"], row["time_ns"]), 0)) for row in waits]
        taken.sort(key=lambda each: each[1])
        covered = 0
        for row in waits:
            at, end = row["time_ns"] - row["duration"], row["time_ns"]
            for tid, begin, last in taken:
                if tid != row["tid"] and min(last, end) > max(begin, at):
                    covered += min(last, end) - max(begin, at)
                    at = min(last, end)
        assert covered >= 0.97 * found[address]["ns"], (name, covered, found[address])  # a hold begins a few µs after its thread begins to run


def test_stacks(profcapture, convoy):
    """The stacks show the callers of the two places, and the kernel's functions."""
    capture, _, _ = convoy
    output = profcapture.json("locks", capture, "--stacks")
    schema.check(profcapture, "locks", output)
    found = 0
    for row in output["data"]["rows"]:
        waiter, releaser = ([frame["name"] for frame in row[f"{side}_stack"]] for side in ("waiter", "releaser"))
        if (row["waiter"], row["releaser"]) != ("acquire", "release"):
            continue
        found += 1
        assert "run" in waiter and "run" in releaser and {"hold_slow", "hold_quick"} & set(waiter)
        assert any("futex_wake" in name for name in releaser)
    assert found >= 2  # a row for each mutex
    text = profcapture("locks", capture, "--stacks").stdout
    assert "Threads waited " in text and "hold_slow (convoy.c:" in text


NAMED = """
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
namespace shop {
template <typename T> struct Queue {
	std::mutex lock;
	T sum = 0;
	inline __attribute__((always_inline)) void put(T value, const std::string &) {
		std::lock_guard<std::mutex> guard(lock);
		sum += value;
		usleep(3000);
	}
};
static Queue<long> queue;
__attribute__((noinline)) static void work() { for (long i = 0; i < 60; i++) { queue.put(i, ""); } }
}
int main() { std::thread other(shop::work); shop::work(); other.join(); }
"""


def test_names(profctl, profcapture, tmp_path):
    """Names are shortened, and both places of a lock fit on a terminal of 80 columns."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    (tmp_path / "named.cpp").write_text(NAMED)
    subprocess.run(["g++", "-O2", "-g", "-pthread", "named.cpp", "-o", "named"], cwd=tmp_path, check=True)
    profctl("record", "-q", "--wakers", "-F", 0, "-o", tmp_path / "cap", "--", tmp_path / "named")
    place = r"shop::Queue<long>::put \(named\.cpp:\d+\)"
    text = profcapture("locks", tmp_path / "cap").stdout
    assert re.search(rf"  {place}  {place}$", text, re.MULTILINE), text
    screen = shown(profcapture, "locks", tmp_path / "cap", "--color", "never", columns=80)
    assert all(len(line) <= 80 for line in screen.split("\n"))
    assert re.search(rf"\n    waited in    {place}\n    released in  {place}\n", screen), screen
    full = profcapture("locks", tmp_path / "cap", "--full-names").stdout
    assert "shop::Queue<long>::put(long, std::" in full, full
    outer = profcapture("locks", tmp_path / "cap", "--no-inline").stdout
    assert re.search(r"  shop::work \(named\.cpp:\d+\)  shop::work ", outer) and "put" not in outer, outer


def test_ranges(profcapture, convoy):
    """A range counts only the parts of waits within it; a capture cut from it counts the same."""
    capture, _, _ = convoy
    times = "SELECT time_ns FROM wait ORDER BY time_ns LIMIT 1 OFFSET 500"
    middle = f"{profcapture.json('sql', capture, times)['data']['rows'][0]['time_ns']}ns"
    whole = sum(row["total_ns"] for row in profcapture.json("locks", capture)["data"]["rows"])
    parts = [sum(row["total_ns"] for row in profcapture.json("locks", capture, *range_)["data"]["rows"]) for range_ in (["--to", middle], ["--from", middle])]
    assert abs(sum(parts) - whole) <= 1000
    piece = capture.with_name("piece.cap")
    profcapture("cut", capture, "--from", middle, "-o", piece, "--force")
    assert abs(sum(row["total_ns"] for row in profcapture.json("locks", piece)["data"]["rows"]) - parts[1]) <= 1000


def test_absent(profctl, profcapture, require, tmp_path):
    """If wakers were not recorded, the message says how to record them."""
    require(root=True)
    capture = tmp_path / "none.cap"
    profctl("record", "-q", "--no-symbols", "--off-cpu", "-o", capture, "--", "sleep", "0.1")
    assert "--wakers" in profcapture("locks", capture, check=6).stderr
    done = profctl("record", "--wakers", "--no-off-cpu", "--", "true", check=2)
    assert "exclude" in done.stderr


PYTHON = """
import threading, time
lock = threading.Lock()
def work():
    for _ in range(30):
        with lock:
            time.sleep(0.002)
        time.sleep(0.001)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_python(profctl, profcapture, require, tmp_path):
    """Waits for a lock of a Python program are found."""
    require(root=True)
    capture = tmp_path / "python.cap"
    profctl("record", "-q", "--wakers", "-o", capture, "--", "/usr/bin/python3", "-c", PYTHON)
    data = profcapture.json("locks", capture)["data"]
    # 30 times, four threads hold the lock for 2 ms each, one after another
    assert by_lock(data).popitem() and max(of["ns"] for of in by_lock(data).values()) > 0.2e9
