# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Processes that register and record from inside: which ones may, and what the capture contains,
however they end.

tests/tools/collect.c registers, and prints the status of each registration (enum control_status).
"""
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import buses
from buses import DAEMON, NOBODY, pids
from captures import rows
from recordings import children, until
from test_dbus_private import profd, variant  # noqa: F401 (fixture)

pytestmark = pytest.mark.usefixtures("nothing_is_left")
COLLECT = os.environ["COLLECT"]
OK, NOT_A_TARGET, NO_SESSION, LIMIT = "0", "1", "2", "4"
NONE = 9
SESSION = "org.profd.Profiler1.Session"
MANY = 64  # the broker's MAX_REFUSED, and its MANY_QUEUED for engine_is_behind()
SMALLEST_MESSAGE = 512  # the kernel's minimum charge for one message in a socket
COLLECT_LATER = 'read -r PROF_CONTROL; export PROF_CONTROL; exec "$0" "$@"'


def marks(profcapture, capture):
    return rows(profcapture, capture, "mark")


def assert_whole(found, *, each, processes):
    """Checks that `found` is sorted by time and has marks 1 to `each` of `processes` processes."""
    assert len(found) == each * processes
    assert {mark["name"] for mark in found} == {"step"}
    times = [mark["time_ns"] for mark in found]
    assert times == sorted(times)
    assert Counter(mark["id"] for mark in found) == {i: processes for i in range(1, each + 1)}


def statuses(output):
    return [line for line in output.splitlines() if line.isdigit()]


def environment_of(pid):
    text = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in text if b"=" in entry)


@pytest.fixture
def waiting(recorder, capture, tmp_path):
    """Returns a function that records a waiting program. That function returns the profctl process,
    the program's pid, and a function that lets the program continue."""
    os.mkfifo(tmp_path / "go")
    go = os.open(tmp_path / "go", os.O_RDWR)

    def start(*steps):
        script = f"exec {COLLECT} 10 {' '.join(steps)} < {tmp_path}/go"
        profctl = recorder("-o", capture, "--no-symbols", "--", "sh", "-c", script)
        line = ""
        while line != "ready\n":
            line = profctl.stdout.readline()
            assert line, profctl.stderr.read()
        return profctl, children(profctl.pid)["collect"], lambda: os.write(go, b"x")

    yield start
    os.close(go)


# ---- recorded processes


def test_children_and_programs(profctl, profcapture, capture):
    """Each process registers by itself: a child, a program that it executes, and that program's
    child."""
    done = profctl("record", "-o", capture, "--no-symbols", "--", COLLECT, 100, "fork", "exec", 1, "fork")
    assert statuses(done.stdout) == [OK] * 4
    found = marks(profcapture, capture)
    assert_whole(found, each=100, processes=4)
    assert sorted(Counter(mark["pid"] for mark in found).values()) == [100, 100, 200]
    assert not [row for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector")]


@pytest.mark.parametrize("policy", ["lossless", "drop"])
def test_policy(profctl, profcapture, capture, policy):
    """Marks come faster than they can be drained: each is recorded, or counted as lost."""
    n = 300000
    profctl("record", "--policy", policy, "-o", capture, "--no-symbols", "--", COLLECT, n)
    lost = sum(row["count"] for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector"))
    assert profcapture.json("marks", capture)["data"]["rows"][0]["count"] + lost == n


def test_more_and_without_descriptors(profctl, profcapture, capture):
    done = profctl("record", "-o", capture, "--no-symbols", "--", COLLECT, 50, "more", "again", "close", "again")
    assert statuses(done.stdout) == [OK, OK]
    found = marks(profcapture, capture)
    assert [mark["id"] for mark in found] == list(range(1, 151))


def test_crowd(profctl, profcapture, capture):
    """There is a ring for each of 600 simultaneous threads."""
    profctl("record", "-o", capture, "--no-symbols", "--", os.environ["ZOO"], "crowd", timeout=60)
    lost = [row for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector")]
    assert [row for row in lost if row["cause"] != "ring-refused"] == []
    assert len({mark["tid"] for mark in marks(profcapture, capture)}) == 600


def test_own_variable_is_kept(profctl, capture):
    """profctl appends the caller's PROF_CONTROL to its own, without the caller's token."""
    done = profctl("record", "-o", capture, "--no-symbols", "--", "sh", "-c", "echo $PROF_CONTROL",
                   env={"PROF_CONTROL": "token:00112233445566778899aabbccddeeff,unix:/nowhere"})
    first, token, last = done.stdout.strip().split(",")
    assert first.startswith("unix-abstract:profd-")
    assert token.startswith("token:") and token != "token:00112233445566778899aabbccddeeff"
    assert last == "unix:/nowhere"


def test_strangers(profcapture, capture, waiting):
    """A process that is not a target is refused even if it knows the session's token; a wrong token
    finds no session."""
    profctl, pid, tell = waiting("wait", "again")
    control = environment_of(pid)["PROF_CONTROL"]
    stranger = subprocess.run([COLLECT, "10"], env={**os.environ, "PROF_CONTROL": control}, capture_output=True, text=True)
    assert (stranger.returncode, stranger.stdout) == (NONE, f"{NOT_A_TARGET}\n")
    lost = control.rpartition(":")[0] + ":" + "ab" * 16
    stranger = subprocess.run([COLLECT, "10"], env={**os.environ, "PROF_CONTROL": lost}, capture_output=True, text=True)
    assert (stranger.returncode, stranger.stdout) == (NONE, f"{NO_SESSION}\n")
    tell()
    assert profctl.wait(60) == 0
    assert [mark["id"] for mark in marks(profcapture, capture)] == list(range(1, 21))


# A program that opens the maximum number of unauthenticated connections of a user, and sends
# nothing on them, before it runs a target.
CROWD = """
import os, socket, subprocess, sys
name = os.environ["PROF_CONTROL"].split(",")[0].removeprefix("unix-abstract:")
said = ["0"]
while said == ["0"]:  # they are sent away after a second, which may have been too short
    sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(32)]
    for one in sockets:
        one.connect("\\0" + name)
    child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
    said = child.communicate()[0].split()
print(child.pid, *said, sep="\\n")
"""


def test_no_room_at_the_door(profctl, profcapture, capture):
    """If the broker refuses a target's connection before its hello, the capture counts this
    refusal, and no other loss."""
    done = profctl("record", "-o", capture, "--no-symbols", "--", sys.executable, "-c", CROWD, COLLECT, 10)
    pid, *status = done.stdout.split()
    assert status in ([LIMIT], ["-1"], [])  # the target may find the connection closed before it has read the status
    assert not [mark for mark in marks(profcapture, capture) if mark["pid"] == int(pid)]
    lost = [row for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector")]
    assert [(row["stream"], row["cause"], row["count"]) for row in lost] == [(f"collector/{pid}", "ring-refused", 1)]


def test_of_a_plain_user(profctl, profcapture, tmp_path, require):
    require(root=True)
    prefix = [sys.executable, Path(__file__).with_name("as_user.py"), "--refuse", "cpu"]
    done = subprocess.run([*map(str, prefix), COLLECT, "1"], capture_output=True, text=True)
    if done.returncode != NONE:
        pytest.skip("nobody cannot run the programs of this build tree")
    os.chmod(tmp_path, 0o777)
    for folder in [*tmp_path.parents][:2]:
        os.chmod(folder, 0o755)
    capture = tmp_path / "user.cap"
    done = profctl("record", "-o", capture, "--no-symbols", "--", COLLECT, 100, "fork", prefix=list(map(str, prefix)))
    assert statuses(done.stdout) == [OK] * 2
    assert_whole(marks(profcapture, capture), each=100, processes=2)


# ---- ends


def test_killed(profctl, profcapture, capture):
    """Everything that was written before SIGKILL is in the capture."""
    profctl("record", "-o", capture, "--no-symbols", "--", COLLECT, 100, "fork", "kill", check=128 + signal.SIGKILL)
    assert_whole(marks(profcapture, capture), each=100, processes=2)


@pytest.mark.parametrize("victim", ["profd-engine", "profd"])
def test_profd_killed(waiting, victim):
    """The recorded program continues and ends after profd or its engine is killed."""
    profctl, pid, tell = waiting("wait", "again", "fork")
    profd = children(profctl.pid)["profd"]
    os.kill(profd if victim == "profd" else children(profd)["profd-engine"], signal.SIGKILL)
    until(lambda: not children(profd).get("profd-engine"))
    tell()
    until(lambda: not Path(f"/proc/{pid}").exists())
    profctl.wait(60)


def test_end_of_the_recording(profcapture, capture, waiting):
    """The program continues after the recording ends. The marks from before the end are
    recorded."""
    profctl, pid, tell = waiting("wait", "again")
    os.kill(profctl.pid, signal.SIGTERM)
    tell()
    profctl.wait(60)
    ids = [mark["id"] for mark in marks(profcapture, capture)]
    assert ids[:10] == list(range(1, 11)) and len(ids) <= 20


# ---- an engine that does not read


class Behind:
    """A recording of programs that register on request, and print the status. The engine is
    stopped, the engine's socket is full, and the broker's queue is long enough for
    engine_is_behind()."""

    def __init__(self, profd, file, start, *steps):  # noqa: F811
        self.profd = profd
        self.programs = [start(COLLECT_LATER, COLLECT, *more) for more in steps]
        self.path = profd.create(pids(*(program.pid for program in self.programs)), file)
        self.control, = profd.session(self.path, "OpenControl")
        profd.session(self.path, "Start")
        self.engine, = profd.engines()
        os.kill(self.engine, signal.SIGSTOP)
        for _ in range(int(Path("/proc/sys/net/core/wmem_default").read_text()) // SMALLEST_MESSAGE // 2 + MANY):
            for method in ("Pause", "Resume"):
                profd.bus.call(None, self.path, SESSION, method, None, None, 0, -1, None, None)
        assert profd.get(self.path, "State") == "running"

    def ask(self, i):
        """Lets program i register; returns its output up to the point where it waits."""
        program = self.programs[i]
        program.stdin.write(f"{self.control}\n")
        program.stdin.flush()
        return list(iter(program.stdout.readline, "ready\n"))

    def warnings(self):
        self.profd.get(self.path, "State")  # answered after the warnings were sent
        self.profd.sleep(0.1)
        return [arguments[0] for _, _, name, arguments in self.profd.signals if name == "Warning"]

    def go_on(self):
        os.kill(self.engine, signal.SIGCONT)
        for method in ("Pause", "Resume"):  # answered after the engine has done everything before
            self.profd.session(self.path, method)

    def stop(self):
        self.profd.session(self.path, "Stop")
        assert self.profd.wait("Finished", self.path)[:2] == (True, "stopped")


@pytest.fixture
def behind(profd, file, spawn):  # noqa: F811
    def start(*command):
        return spawn("sh", "-c", *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    return lambda *steps: Behind(profd, file, start, *steps)


def refusals(profcapture, capture):
    return {row["stream"]: row["count"] for row in rows(profcapture, capture, "loss") if row["cause"] == "ring-refused"}


def test_engine_that_is_behind(behind, profcapture, capture):
    """A process that requests rings while the engine does not read is refused at once, and counted.
    A process that requests rings when the engine reads again gets them."""
    recording = behind(["10", "wait"], ["10", "wait"])
    assert recording.ask(0) == [f"{LIMIT}\n"]
    recording.go_on()
    assert recording.ask(1) == [f"{OK}\n"]
    recording.stop()
    refused, taken = recording.programs
    assert refusals(profcapture, capture) == {f"collector/{refused.pid}": 1}
    found = marks(profcapture, capture)
    assert_whole(found, each=10, processes=1)
    assert {mark["pid"] for mark in found} == {taken.pid}
    assert "collectors-refused" not in recording.warnings()


def test_more_are_refused_than_counted(behind, profcapture, capture):
    """The client gets one warning, and only if more processes were refused than can be counted."""
    recording = behind(["0", *["fork"] * (MANY - 1), "wait"], ["0", "fork", "wait"])
    assert recording.ask(0) == [f"{LIMIT}\n"] * MANY
    assert "collectors-refused" not in recording.warnings()
    assert recording.ask(1) == [f"{LIMIT}\n"] * 2
    assert recording.warnings().count("collectors-refused") == 1
    recording.go_on()
    recording.stop()
    counted, beyond = recording.programs
    lost = refusals(profcapture, capture)
    assert lost[f"collector/{counted.pid}"] == 1 and f"collector/{beyond.pid}" not in lost


# ---- the service


def test_well_known_socket(bus, spawn, profcapture, capture):
    """A process without a token registers with a session of its own user that records it; another
    user's process is refused."""
    bus.start(buses.rules(allow={"record-own": ["nobody", "daemon"]}))
    client = bus.client(NOBODY)
    environment = {**os.environ, "PROF_CONTROL": f"unix:{bus.folder}/control"}

    def start(user):
        return spawn("sh", "-c", f"read line; {COLLECT} 10", user=user, group=user, extra_groups=[], env=environment,
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    if subprocess.run([COLLECT, "1"], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True).returncode != NONE:
        pytest.skip("nobody cannot run the programs of this build tree")
    target, other, stranger = start(NOBODY), start(NOBODY), start(DAEMON)
    with open(capture, "w+b") as file:
        path = client.create(pids(target.pid), file.fileno())
        assert f"unix:{bus.folder}/control,token:" in client.session(path, "OpenControl")[0]
        client.session(path, "Start")
        assert stranger.communicate("\n", timeout=60)[0] == f"{NO_SESSION}\n"
        assert other.communicate("\n", timeout=60)[0] == f"{NOT_A_TARGET}\n"
        assert target.communicate("\n", timeout=60)[0] == f"{OK}\n"
        client.wait("Finished", path)
    assert_whole(marks(profcapture, capture), each=10, processes=1)
