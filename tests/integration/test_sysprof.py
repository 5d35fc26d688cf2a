# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Programs that use sysprof's collector are recorded unchanged: one of ours with Debian's library,
and Debian's GTK 4.

The variable SYSPROF_CONTROL_FD names the socket, which every process of the command inherits.
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections import Counter

import pytest

import schema
from captures import rows
from recordings import children, until

LOAD = os.environ.get("SYSPROF_LOAD")
N = 500
LATE = {"late"}  # a loss that occurs on a busy machine, although the rows exist
pytestmark = pytest.mark.usefixtures("nothing_is_left")
with_library = pytest.mark.skipif(not LOAD, reason="libsysprof-4-dev is not installed")


@pytest.fixture
def record(profctl, profcapture, capture):
    """Returns a function that records a command without samples, and returns its marks and its
    output."""

    def run(*command, options=(), **more):
        done = profctl("record", "-F", 0, "--no-symbols", *options, "-o", capture, "--", *command, **more)
        assert "given up" not in done.stderr, done.stderr
        marks = rows(profcapture, capture, "mark")
        times = [mark["time_ns"] for mark in marks]
        assert times == sorted(times)
        return marks, done.stdout.split()

    return run


def losses(profcapture, capture):
    return {row["cause"]: row["count"] for row in profcapture.json("info", capture)["data"]["loss"]
            if row["stream"].startswith("collector")}


@with_library
def test_everything(record, profcapture, capture):
    marks, _ = record(LOAD, "everything", N)
    assert len(marks) == N
    assert {(mark["group"], mark["name"], mark["kind"]) for mark in marks} == {("load", "span", "complete")}
    assert [mark["argument_texts"] for mark in marks] == [[f"number {i}"] for i in range(N)]
    assert {tuple(mark["arguments"]) for mark in marks} == {("message",)}
    assert {mark["comm"] for mark in marks} == {"sysprof-load"} and {mark["pid"] == mark["tid"] for mark in marks} == {True}
    logs = rows(profcapture, capture, "log")
    assert [log["text"] for log in logs] == [f"line {i}" for i in range(N)]
    assert {(log["level"], log["domain"]) for log in logs} == {("warning", "load")}
    counters = {row["name"]: row for row in profcapture.json("counters", capture)["data"]["rows"]}
    assert counters["whole"]["last"] == N - 1 and counters["real"]["last"] == (N - 1) / 2
    assert {row["count"] for row in counters.values()} == {N} and {row["group"] for row in counters.values()} == {"load"}
    assert set(losses(profcapture, capture)) <= LATE


@with_library
@pytest.mark.parametrize("mode,expected", [
    ("threads", {"thread": 8 * N}),
    ("closed", {}),
    ("reused", {}),
])
def test_modes(record, profcapture, capture, mode, expected):
    marks, output = record(LOAD, mode, N)
    assert Counter(mark["name"] for mark in marks) == expected
    assert output == [str(N), str(int(bool(expected)))]
    assert set(losses(profcapture, capture)) <= LATE


@with_library
def test_children(record, profcapture, capture):
    """Eight children send requests over one socket at the same time. Each mark belongs to the
    process that wrote it, whichever answer that process received."""
    marks, _ = record(LOAD, "children", N)
    assert set(losses(profcapture, capture)) <= LATE
    assert {mark["name"] == f"child {mark['pid']}" for mark in marks} == {True}
    assert sorted(Counter(mark["pid"] for mark in marks).values()) == [N] * 8


@with_library
def test_exec(record, profcapture, capture):
    marks, _ = record(LOAD, "exec")
    assert Counter(mark["name"] for mark in marks) == {"first": 1000, "second": 1000}
    process = {row["id"]: row for row in rows(profcapture, capture, "process")}
    thread = {row["id"]: process[row["process"]] for row in rows(profcapture, capture, "thread")}
    generations = {(mark["name"], thread[mark["thread"]]["exec_generation"]) for mark in marks}
    assert len(generations) == 2 and len({generation for _, generation in generations}) == 2


@with_library
def test_fork(record, profcapture, capture):
    """Two processes write into one ring, which the library does not support: no mark is recorded
    twice, and the engine continues."""
    marks, output = record(LOAD, "fork", N)
    names = Counter(mark["name"] for mark in marks)
    assert names["before"] == 1 and names["both"] <= 2 * N and names["after"] <= N
    assert names["both"] + names["after"] == 3 * N or losses(profcapture, capture).get("ring-corrupt", 0) > 0
    assert output == [str(N), "1"]


@with_library
def test_off(profctl, profcapture, capture):
    done = profctl("record", "-F", 0, "--no-symbols", "--no-sysprof", "-o", capture, "--", LOAD, "everything", N)
    assert done.stdout.split() == [str(N), "0"]
    assert rows(profcapture, capture, "mark") == []


def test_environment(profctl, capture):
    """--no-sysprof keeps the caller's variable, which may be sysprof's own; else the variable names
    our socket, which has a high number."""
    show = ["sh", "-c", "echo $SYSPROF_CONTROL_FD; readlink /proc/self/fd/$SYSPROF_CONTROL_FD"]
    env = {"SYSPROF_CONTROL_FD": 77}
    done = profctl("record", "-F", 0, "--no-sysprof", "-q", "-o", capture, "--", *show, env=env, check=1)
    assert done.stdout.split() == ["77"]
    done = profctl("record", "-F", 0, "--force", "-q", "-o", capture, "--", *show, env=env)
    number, link = done.stdout.split()
    assert int(number) >= 200 and link.startswith("socket:")


@with_library
def test_killed(recorder, profcapture, capture, tmp_path):
    """The recorder ends before the program sends its request: the program gets no answer, and
    continues."""
    go = tmp_path / "go"
    os.mkfifo(go)
    recording = recorder("-F", 0, "--no-symbols", "-o", capture, "--", "sh", "-c",
                         f"{LOAD} everything 10; read x < {go}; exec {LOAD} threads {N}")
    assert recording.stdout.readline() == "10 1\n"
    recording.send_signal(signal.SIGKILL)
    recording.wait(timeout=20)
    until(lambda: profcapture("verify", capture, check=None).returncode == 0)
    go.write_text("\n")
    assert recording.stdout.readline() == f"{N} 0\n"


ASK = """
import os, socket, sys
s = socket.socket(fileno=int(os.environ["SYSPROF_CONTROL_FD"]))
s.settimeout(20)
def ask(text=b"CreatRing\\0"):
    s.send(text)
    message, fds, _, _ = socket.recv_fds(s, 64, 4)
    assert message == b"\\0", message
    return fds
"""


def ask(record, code, **options):
    return record("/usr/bin/python3", "-c", ASK + code, **options)


def test_hostile(record, profcapture, capture):
    """Invalid requests are dropped, and the next valid one is answered; requests beyond a limit get
    no ring, and are counted."""
    ask(record, """
for text in b"", b"x", b"CreatRing", b"CreatRing\\0\\0", b"\\0" * 10, b"x" * 60000:
    s.send(text)
assert len(ask()) == 1
answers = [len(ask()) for _ in range(700)]
assert 0 in answers and set(answers) <= {0, 1}, answers
""")
    assert set(losses(profcapture, capture)) == {"ring-refused"}


@pytest.mark.parametrize("options", [[], ["--system"]])
def test_late(recorder, profcapture, capture, tmp_path, options):
    """A child's mark in a ring that its parent requested is recorded, although the child's own
    request is still in the queue when the command ends."""
    go = tmp_path / "go"
    os.mkfifo(go)
    frame = struct.pack("<HhiQqQ24s40sQ", 104, 0, 0, time.monotonic_ns(), 10, 0, b"group", b"late", 0)
    recording = recorder("-F", 0, "--no-symbols", *options, "-o", capture, "--", "/usr/bin/python3", "-c", ASK + f"""
import mmap, struct
ring_fd, = ask()
print(os.getpid(), flush=True)
open({str(go)!r}).read()
for i in range(50):
    s.send(b"CreatRing\\0")
child = os.fork()
if child == 0:
    s.send(b"CreatRing\\0")
    ring = mmap.mmap(ring_fd, os.fstat(ring_fd).st_size)
    offset, = struct.unpack_from("<I", ring, 8)
    ring[offset:offset + 104] = {frame!r}
    struct.pack_into("<i", ring, offset + 4, os.getpid())
    struct.pack_into("<I", ring, 4, 104)
    os._exit(0)
os.waitpid(child, 0)
""")
    pid = int(recording.stdout.readline())
    broker = children(recording.pid)["profd"]
    os.kill(broker, signal.SIGSTOP)
    go.write_text("")
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    os.kill(broker, signal.SIGCONT)
    recording.wait(timeout=20)
    assert not losses(profcapture, capture)
    assert [mark["name"] for mark in rows(profcapture, capture, "mark")] == ["late"]


def test_stranger(profctl, profcapture, capture):
    """Frames with the pid of a process that sent no request are not recorded: the ring is
    quarantined, and reported."""
    frame = struct.pack("<HhiqQq24s40sQ", 104, 0, 1, time.monotonic_ns(), 10, 0, b"group", b"not mine", 0)
    done = profctl("record", "-F", 0, "--no-symbols", "-o", capture, "--", "/usr/bin/python3", "-c", ASK + f"""
import mmap, struct, time
fd, = ask()
ring = mmap.mmap(fd, os.fstat(fd).st_size)
offset, = struct.unpack_from("<I", ring, 8)
ring[offset:offset + 104] = {frame!r}
struct.pack_into("<I", ring, 4, 104)
time.sleep(1)
""")
    assert "was given up: its tid is wrong" in done.stderr
    assert rows(profcapture, capture, "mark") == []
    assert losses(profcapture, capture)["ring-corrupt"] > 0


def test_full_ring_is_a_loss_of_an_unknown_number(profctl, profcapture, capture):
    """The library does not count the frames that it drops when the ring is full, so their number is
    unknown: null, and never 0."""
    frame = struct.pack("<HhiQqQ24s40sQ", 104, 0, 0, time.monotonic_ns(), 10, 0, b"group", b"mark", 0)
    done = profctl("record", "-F", 0, "--no-symbols", "--json", "-o", capture, "--", "/usr/bin/python3", "-c", ASK + f"""
import mmap, struct
size, fd = min((os.fstat(fd).st_size, fd) for fds in [ask() for _ in range(60)] for fd in fds)
ring = mmap.mmap(fd, size)
offset, body = struct.unpack_from("<II", ring, 8)
n = body // 104 - 1
frames = bytearray({frame!r} * n)
for i in range(n):
    struct.pack_into("<i", frames, i * 104 + 4, os.getpid())
ring[offset:offset + len(frames)] = bytes(frames)
struct.pack_into("<I", ring, 4, len(frames))
""")
    summary = json.loads(done.stdout)["data"]
    info = profcapture.json("info", capture)
    schema.check(profcapture, "info", info)
    late = sum(loss["count"] for loss in summary["loss"] if loss["cause"] == "late")  # on a busy machine
    for losses in summary["loss"], info["data"]["loss"]:
        assert [(loss["cause"], loss["count"]) for loss in losses if loss["cause"] != "late"] == [("ring-full", None)]
    assert summary["lost"] == info["capture"]["lost"] == 1 + late
    assert summary["lost_incomplete"] is info["capture"]["lost_incomplete"] is True
    for text in profcapture("info", capture).stdout, profcapture("marks", capture).stdout:
        assert "  an unknown number of records: a program's ring was full (collector" in text, text


@with_library
def test_first_marks_at_full_speed(profctl, profcapture, capture):
    """Frames that come faster than they are drained wait in the ring, whose size is twice what is
    needed here."""
    profctl("record", "-F", 0, "--no-symbols", "-o", capture, "--", LOAD, "flat", 300000)
    assert {table["name"]: table["rows"] for table in profcapture.json("info", capture)["data"]["tables"]}["mark"] == 300000


@pytest.fixture
def display(spawn):
    read, write = os.pipe()
    spawn("Xvfb", "-displayfd", write, "-screen", 0, "640x480x24", "-nolisten", "tcp", pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read, encoding="ascii") as file:
        return ":" + file.readline().strip()


@pytest.mark.skipif(not shutil.which("gtk4-demo") or not shutil.which("Xvfb"), reason="gtk-4-examples or xvfb is not installed")
def test_gtk(record, profcapture, capture, display, tmp_path):
    """Debian's GTK, unmodified: its frame clock's phases are marks, and its counts are counters."""
    env = {"DISPLAY": display, "GDK_BACKEND": "x11", "GSK_RENDERER": "cairo", "HOME": tmp_path, "XDG_RUNTIME_DIR": tmp_path,
           "GTK_A11Y": "none", "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
    marks, _ = record("gtk4-demo", "--run=spinner", "--autoquit", env=env)
    assert {mark["comm"] for mark in marks} == {"gtk4-demo"}
    names = Counter((mark["group"].lower(), mark["name"].lower()) for mark in marks)
    # the names in GTK 4.8, and in 4.18
    for old, new in ("gtk application startup", "application startup"), ("css validation", "validate css"):
        assert names["gtk", old] + names["gtk", new] > 0, names
    for name in "frameclock cycle", "frameclock layout", "frameclock paint":
        assert names["gtk", name] > 0, names
    assert max(mark["duration"] for mark in marks) < 10**11
    counters = {row["name"]: row for row in profcapture.json("counters", capture)["data"]["rows"]}
    assert counters["created-styles"]["count"] > 0 and counters["created-styles"]["max"] > 0
    assert set(losses(profcapture, capture)) <= LATE
