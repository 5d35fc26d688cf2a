# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Processes that are killed, stopped, or started with closed streams or with limits, and what the
captures and record report then."""
import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from recordings import children, info, stolen_ns, wait_for_samples

pytestmark = pytest.mark.usefixtures("nothing_is_left")
PROFCTL = os.environ["PROFCTL"]


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def engine_of(recording):
    return children(children(recording.pid)["profd"])["profd-engine"]


def test_engine_that_stands_still(recorder, spawn, capture):
    """While the engine is stopped, rings overflow: every tick is a sample, missed, or lost in a
    ring, and none is counted twice. Lost side-band records, as on a busy machine, are not ticks."""
    for _ in range(os.cpu_count()):
        spawn("sh", "-c", "while :; do :; done")
    stolen = stolen_ns()
    recording = recorder("--json", "--no-symbols", "-a", "-F", 20000, "-o", capture)
    wait_for_samples(capture, 0)
    engine = engine_of(recording)
    os.kill(engine, signal.SIGSTOP)
    time.sleep(2)
    os.kill(engine, signal.SIGCONT)
    recording.send_signal(signal.SIGINT)
    data = json.loads(recording.communicate(timeout=60)[0])["data"]
    ticks = 20000 * os.cpu_count() * data["elapsed_ns"] / 1e9
    lost = {}
    for row in data["loss"]:
        lost[row["cause"]] = lost.get(row["cause"], 0) + row["count"]
    assert lost["perf-ring"] > 10000
    lost.pop("side-band", None)
    least = 0.9 * ticks - 20000 * stolen_ns(since=stolen) / 1e9
    assert least < data["samples"] + sum(lost.values()) < 1.03 * ticks, lost


def test_engine_that_is_killed_before_it_wrote(recorder, capture):
    """record reports no samples that cannot be read, and leaves no file without samples."""
    for _ in range(5):
        recording = recorder("-F", 99, "-o", capture, "--", "sh", "-c", "echo go; exec sleep 1")
        assert recording.stdout.readline() == "go\n"
        os.kill(engine_of(recording), signal.SIGKILL)
        errors = recording.communicate(timeout=30)[1]
        if "has what was written until then" not in errors:
            break
        capture.unlink()  # the engine writes each second: this kill came after the first write, so try again
    assert "nothing was recorded" in errors and "Recorded" not in errors, errors
    assert recording.returncode == 1 and not capture.exists()


def closed(*fds):
    def close():
        for fd in fds:
            os.close(fd)

    return close


@pytest.mark.parametrize("fds", [(1,), (2,), (0, 1, 2)])
def test_closed_standard_streams(profctl, profcapture, capture, fds):
    """No output gets into the capture, whose descriptor could get the number of the closed
    stream."""
    script = "echo out; echo err >&2"
    subprocess.run([PROFCTL, "record", "--json", "-o", capture, "sh", "-c", script], preexec_fn=closed(*fds),
                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    assert profcapture.json("verify", capture)["data"]["state"] == "finished"
    profctl("record", "-o", "-", "true", check=1, preexec_fn=closed(1))


@pytest.mark.parametrize("limit", [1000, 40000, 200000])
def test_limited_file_size(profctl, profcapture, capture, spawn, limit):
    """The process that reaches the limit reports it, and is not killed by a signal. New processes
    fill the file even with few samples."""
    for _ in range(os.cpu_count()):
        spawn("sh", "-c", "while :; do /bin/true; done")

    def limits():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = profctl("record", "-a", "-F", 5000, "-d", 60, "-o", capture, check=1, preexec_fn=limits)
    assert "File too large" in done.stderr
    assert "signal" not in done.stderr and "unexpectedly" not in done.stderr
    if capture.exists():
        assert profcapture.json("info", capture)["capture"]["samples"] > 0


def test_reader_that_is_slow(recorder, profcapture, capture, spawn):
    """A pipe is read more slowly than it is written: record waits at the end, as long as the reader
    makes progress."""
    for _ in range(os.cpu_count()):
        spawn("sh", "-c", "while :; do :; done")
    pipe = capture.with_suffix(".fifo")
    os.mkfifo(pipe)
    recording = recorder("--no-symbols", "-a", "-F", 20000, "-d", 1, "-o", pipe)
    with open(pipe, "rb", buffering=0) as source, open(capture, "wb") as copy:
        begin = time.monotonic()
        while piece := source.read(4096 if time.monotonic() - begin < 4 else 65536):
            copy.write(piece)
            time.sleep(0.25)
    assert time.monotonic() - begin > 4
    told = recording.communicate(timeout=20)[1]
    assert recording.returncode == 0, told
    assert "Next" not in told, "a pipe cannot be read again"
    assert "(0 B)" not in told
    assert info(profcapture, capture)["state"] == "finished"


def test_rights_of_the_engine(recorder, busy, capture):
    recording = recorder("--no-symbols", "-p", busy.pid, "-o", capture)
    wait_for_samples(capture, 0)
    status = dict(line.split(":\t", 1) for line in
                  Path(f"/proc/{engine_of(recording)}/status").read_text().splitlines())
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert "0" not in status["Uid"].split() + status["Gid"].split()
    assert status["NoNewPrivs"] == "1"
    if status["Seccomp"] == "0":
        pytest.skip("a sanitizer's runtime cannot live behind the filter")
    assert status["Seccomp"] == "2"
