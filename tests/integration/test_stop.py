# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Stop takes less than a second of CPU time, whatever the state of the engine, the file and the
samples, and never waits for them."""
import contextlib
import fcntl
import os
import resource
import select
import signal
import time

import pytest
from gi.repository import GLib

from recordings import let_run, until, wait_for_samples, whole_cpu_seconds
from slices import SANITIZED
from test_dbus_private import SYSTEM, profd, running, variant  # noqa: F401 (fixtures)

SECOND = 10 if SANITIZED else 1  # our programs wait longer if they are built with a sanitizer


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def options(**more):
    return {**SYSTEM, "events": variant("as", ["cpu-clock"]), **more}


def cpu_seconds_so_far(profd):
    """Returns the CPU time of profd, of its engine, and of its ended children."""
    while True:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # an engine may just have ended
            return sum(whole_cpu_seconds(pid) for pid in (profd.process.pid, *profd.engines()))


def stop(profd, path):
    """Stops a session. Returns the CPU time that profd and its engine used for it, and the
    arguments of Finished."""
    before = cpu_seconds_so_far(profd)
    with contextlib.suppress(GLib.Error):
        profd.session(path, "Stop")  # the session may have ended by itself
    arguments = profd.wait("Finished", path, 30 * SECOND)
    until(lambda: not profd.engines())
    return cpu_seconds_so_far(profd) - before, arguments


def warnings(profd):
    return [arguments[0] for _, _, name, arguments in profd.signals if name == "Warning"]


def is_whole_up_to_its_end(profcapture, capture):
    """Returns whether only the end of the capture is missing, and the rows before it can be read."""
    data = profcapture.json("verify", capture, check=3)["data"]
    return data["state"] == "unfinished" and all(row["reason"] == "cut" for row in data["damaged"])


def load(spawn, count=os.cpu_count()):
    for _ in range(count):
        spawn("sh", "-c", "while :; do :; done")


def test_plain(profd, file, busy):
    path = profd.create(options(), file)
    profd.session(path, "Start")
    profd.wait_samples(path)
    took, (ok, reason, _) = stop(profd, path)
    assert (ok, reason) == (True, "stopped")
    assert took < SECOND


def test_engine_that_hangs(profd, file, capture, profcapture, busy):
    path = profd.create(options(), file)
    profd.session(path, "Start")
    wait_for_samples(capture, 0)
    engine, = profd.engines()
    os.kill(engine, signal.SIGSTOP)
    begin = time.monotonic()
    profd.session(path, "Stop")
    assert profd.get(path, "State") == "stopping" and not warnings(profd), "Stop did not return at once"
    ok, reason, _ = profd.wait("Finished", path)
    assert (ok, reason) == (False, "internal")
    assert time.monotonic() - begin < 5 * SECOND  # profd waits a second, and may be delayed on a busy machine
    assert warnings(profd).count("engine-hangs") == 1
    assert is_whole_up_to_its_end(profcapture, capture)
    assert profcapture.json("info", capture)["capture"]["samples"] > 0


def test_pipe_that_nobody_reads(profd, capture, profcapture, spawn):
    load(spawn)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 65536)
    path = profd.create(options(frequency=variant("u", 20000)), writing)
    profd.session(path, "Start")
    until(lambda: not select.select([], [writing], [], 0)[1])
    os.close(writing)
    took, (ok, _, _) = stop(profd, path)
    assert not ok  # the engine abandons the file, or the broker ends the engine
    assert took < SECOND
    with open(reading, "rb") as pipe:
        capture.write_bytes(pipe.read())
    assert is_whole_up_to_its_end(profcapture, capture)


def test_full_disk(profd, file, capture, profcapture, spawn):
    """A limit of the file's size is like a full disk to a writer."""
    load(spawn)
    resource.prlimit(profd.process.pid, resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
    path = profd.create(options(frequency=variant("u", 20000)), file)
    profd.session(path, "Start")
    until(lambda: capture.stat().st_size == 300_000)
    took, (ok, reason, _) = stop(profd, path)
    assert (ok, reason) == (False, "disk-full")
    assert took < SECOND
    assert profcapture.json("info", capture)["capture"]["samples"] > 0


DEEP = """
#include <alloca.h>
#include <string.h>
static volatile long sum;
static int down(int depth)
{
	volatile char *room = alloca(1000 + depth % 7);
	memset((char *)room, depth, 1000);
	if (depth)
		return down(depth - 1) + room[depth % 1000];
	for (int i = 0; i < 20000; i++)
		sum += i;
	return (int)sum;
}
int main(void)
{
	for (;;)
		down(60);
}
"""


def test_wide_stacks_at_ten_kilohertz(profd, file, capture, profcapture, compile_c, spawn):
    deep = compile_c("deep", DEEP, "-O1")
    for _ in range(os.cpu_count() + 1):
        spawn("nice", "-n", "19", deep)
    path = profd.create(options(frequency=variant("u", 10000), **{"call-graph": variant("s", "dwarf")}), file)
    profd.session(path, "Start")
    profd.wait_samples(path, 5000)
    took, (ok, reason, summary) = stop(profd, path)
    assert (ok, reason) == (True, "stopped")
    assert took < SECOND
    found = profcapture.json("info", capture)
    assert found["capture"]["state"] == "finished"
    assert found["capture"]["samples"] + found["capture"]["lost"] >= summary["samples"]


def test_engine_that_is_behind(profd, file, capture, profcapture, compile_c, spawn):
    """Rings are full of large stacks: samples for which there is no time are counted as lost, so
    that every tick is a sample or a loss."""
    deep = compile_c("deep", DEEP, "-O1")
    for _ in range(os.cpu_count() + 1):
        spawn("nice", "-n", "19", deep)
    path = profd.create(options(frequency=variant("u", 10000), **{"call-graph": variant("s", "dwarf")}), file)
    profd.session(path, "Start")
    profd.wait_samples(path, 1000)
    engine, = profd.engines()
    os.kill(engine, signal.SIGSTOP)
    time.sleep(1)
    os.kill(engine, signal.SIGCONT)
    took, (ok, reason, summary) = stop(profd, path)
    assert (ok, reason) == (True, "stopped")
    assert took < SECOND
    found = profcapture.json("info", capture)
    assert found["capture"]["state"] == "finished"
    ticks = 10000 * os.cpu_count() * (summary["stop-time"] - summary["start-time"]) / 1e9
    # on a busy machine, the ring of the side band may overflow, too; its losses are not ticks
    counted = summary["samples"] + sum(row["count"] for row in found["data"]["loss"] if row["cause"] != "side-band")
    assert 0.85 * ticks < counted < 1.1 * ticks
    assert sum(row["count"] for row in found["data"]["loss"]) == summary["lost"] + summary["missed-ticks"]


def test_many_programs_that_are_new(profd, file, profcapture, capture, compile_c, spawn, tmp_path):
    """Samples in new files wait for the files' tables, even at the end of the recording."""
    deep = compile_c("deep", DEEP, "-O1")
    copies = []
    for n in range(20):
        copies.append(tmp_path / f"deep-{n}")
        copies[-1].write_bytes(deep.read_bytes() + bytes([n]))
        copies[-1].chmod(0o755)
    path = profd.create(options(frequency=variant("u", 10000), **{"call-graph": variant("s", "dwarf")}), file)
    profd.session(path, "Start")
    profd.wait_samples(path)
    started = [spawn("nice", "-n", "19", copy) for copy in copies]  # niced, so that this process gets CPU time, too
    until(lambda: all(os.readlink(f"/proc/{process.pid}/exe") == str(copy) for process, copy in zip(started, copies)))
    let_run(started[-1].pid, 0.02)
    took, (ok, reason, _) = stop(profd, path)
    assert (ok, reason) == (True, "stopped")
    assert took < SECOND
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"
