# SPDX-License-Identifier: BSD-2-Clause-Patent
"""kill -9 of each of our processes at random times of a session's life, with a bus and without:
nothing is left, at most the last second of the file is missing, and the next session works.

Sessions run in parallel. Their victims are all killed at once, when each session is at a different
point of its life. The commit chooses the times (see slices.py).
"""
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from recordings import RUN, info, processes, recorded, until, wait_for_samples
from slices import SEED, SOAK

pytestmark = pytest.mark.usefixtures("nothing_is_left")
MOMENTS = 50 if SOAK else 4
KINDS = 5  # ranges of start and stop times, see Session
HELPERS = ("profd-engine", "profd-files")
YES = "polkit.addRule(function(action, subject) { return polkit.Result.YES; });"
SECOND_NS = 1.2e9
# the recorded load uses only a fifth of a CPU, because the sessions need the rest
SOME_LOAD = """
import time
while True:
    end = time.process_time() + 0.005
    while time.process_time() < end:
        pass
    time.sleep(0.02)
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def table():
    """Returns {pid: (parent, name)} of all processes except zombies."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = stat.read_text().rpartition(")")
            if rest.split()[0] != "Z":
                found[int(stat.parent.name)] = int(rest.split()[1]), head.partition("(")[2]
    return found


def has_open(pid, path):
    with contextlib.suppress(OSError):
        return any(os.readlink(fd) == str(path) for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False


class Private:
    """Each session has its own profd, which ends with the session."""

    options, at_once, pace = ["--bus", "private"], 16, 1
    env = {}
    brokers = frozenset()

    def broker_of(self, session, processes):
        return next((pid for pid, (parent, name) in processes.items() if parent == session.pid and name == "profd"), None)

    def engine_of(self, session, processes, engines):
        return engines[0] if engines else None

    def restore(self):
        pass

    def check_descriptors(self):
        pass


class System:
    """One profd serves all sessions, and does not end with them. profd starts only one session at a
    time."""

    options, at_once, pace = ["--bus", "system"], 10, 2

    def __init__(self, bus):
        self.bus = bus.start(YES)
        self.env = {"DBUS_SYSTEM_BUS_ADDRESS": bus.address}
        self.descriptors = {}

    @property
    def brokers(self):
        return {self.bus.profd.pid}

    def broker_of(self, session, processes):
        return self.bus.profd.pid if self.bus.profd.pid in processes else None

    def engine_of(self, session, processes, engines):
        """Returns the engine that has the session's capture open, so that no other session's engine
        is killed instead."""
        return next((pid for pid in engines if has_open(pid, session.capture)), None)

    def restore(self):
        if self.bus.profd.poll() is not None:
            self.bus.start_profd()

    def check_descriptors(self):
        """profd may have no more descriptors than after its first sessions."""
        pid = self.bus.profd.pid
        count = len(os.listdir(f"/proc/{pid}/fd"))
        until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= self.descriptors.setdefault(pid, count), 10)


@pytest.fixture(params=["private", "system"])
def form(request):
    if request.param == "private":
        return Private()
    return System(request.getfixturevalue("bus"))


def waited_ns(pid):
    """Returns how long the threads of a process have waited for a CPU so far, 0 if it has ended."""
    total = 0
    with contextlib.suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                total += int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[1])
    return total


class Session:
    """A recording whose start and stop are chosen relative to the kill. The age of an `is_long`
    recording counts from its first rows, so that it has rows when it is killed."""

    def __init__(self, chance, n, form, capture):
        self.capture, self.is_long = capture, n % KINDS == KINDS - 1 and n < form.at_once
        self.age, self.stopped = [
            lambda: (chance.uniform(0, 0.1) * form.pace, None),  # created, started
            lambda: (chance.uniform(0.03, 0.3) * form.pace, None),
            lambda: (chance.uniform(0.1, 0.7) * form.pace, None),  # recording
            lambda: (chance.uniform(0.4, 0.9) * form.pace, chance.uniform(0, 0.06) * form.pace),  # stopping
            lambda: (chance.uniform(0.05, 0.5) * form.pace, None),
        ][n % KINDS]()
        self.recording = self.victim = self.killed_ns = self.waited_ns = None

    @property
    def pid(self):
        return self.recording.pid

    def start(self, recorder, form):
        self.recording = recorder("-a", "-F", 99, "-g", "fp", "--no-symbols", *form.options, "-o", self.capture,
                                  stderr=subprocess.DEVNULL, env={**os.environ, **form.env})

    def acts(self, recorder, form):
        """The session's actions, each with the time that is left until the kill."""
        yield self.age, (lambda: None) if self.is_long else lambda: self.start(recorder, form)
        if self.stopped is not None:
            yield self.stopped, lambda: self.recording.send_signal(signal.SIGINT)


def processes_of(form, session, processes):
    """Returns {name: pid} of a session's processes. pid: None if the process has not started, or has ended."""
    broker = form.broker_of(session, processes)
    helpers = {kind: sorted(pid for pid, (parent, comm) in processes.items() if parent == broker and comm == kind)
               for kind in HELPERS}
    engine = form.engine_of(session, processes, helpers["profd-engine"])
    return {
        "profctl": session.pid if session.pid in processes else None, "profd": broker, "profd-engine": engine,
        # started immediately after the engine
        "profd-files": next((pid for pid in helpers["profd-files"] if engine and pid > engine), None),
    }


def kill(form, name, sessions):
    there = table()
    for session in sessions:
        found = processes_of(form, session, there)
        session.victim, session.waited_ns = found[name], waited_ns(found["profd-engine"])
    for session in sessions:
        if session.victim:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session.victim, signal.SIGKILL)
        session.killed_ns = time.monotonic_ns()


def left(form):
    return (processes("profd") - form.brokers) | processes("profctl") | processes(HELPERS[0]) | processes(HELPERS[1])


def held():
    """Returns the memfds and perf events that surviving processes of this test run, except this one, have
    open or mapped."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) == os.getpid() or RUN not in (folder / "environ").read_bytes():
                continue
            names = [os.readlink(fd) for fd in (folder / "fd").iterdir()] + (folder / "maps").read_text().splitlines()
            found += [(folder.name, name) for name in names if "perf_event" in name or "memfd:" in name]
    return found


def run(form, name, sessions, recorder):
    """Runs all sessions, and checks that nothing is left."""
    for session in filter(lambda session: session.is_long, sessions):
        session.start(recorder, form)
        wait_for_samples(session.capture, 0)
    acts = sorted((act for session in sessions for act in session.acts(recorder, form)), key=lambda act: -act[0])
    kill_at = time.monotonic() + acts[0][0]
    for before, act in acts:
        time.sleep(max(0, kill_at - before - time.monotonic()))
        act()
    time.sleep(max(0, kill_at - time.monotonic()))
    kill(form, name, sessions)
    for session in sessions:
        if name == "profd-files" or not session.victim:  # a killed profd-files is replaced
            session.recording.send_signal(signal.SIGINT)
    for session in sessions:
        session.recording.wait(timeout=100)
    until(lambda: not left(form), 60)
    until(lambda: not held(), 60)
    form.restore()


def check(session, name, profcapture):
    """Checks the session's capture, and returns its state; "none" if there is no capture."""
    found = profcapture("verify", session.capture, "--json", check=None) if session.capture.exists() else None
    if not found or not found.stdout:
        assert not session.is_long, "there is nothing of a recording that ran"
        return "none"
    data = json.loads(found.stdout)["data"]
    assert all(row["reason"] == "cut" for row in data["damaged"]), data
    assert data["state"] == "finished" or name == "profd-engine" and session.victim, data
    if session.is_long and session.victim:
        samples = profcapture.json("dump", session.capture, "--table", "sample", "--limit", 0)["data"]["rows"]
        assert samples, "there is nothing of a recording that ran"
        last = info(profcapture, session.capture)["start_monotonic_ns"] + samples[-1]["time_ns"]
        assert session.killed_ns - last < SECOND_NS + session.waited_ns
    return data["state"]


@pytest.mark.parametrize("name", ["profctl", "profd", *HELPERS])
def test_killed_at_random_moments(form, recorder, profctl, profcapture, spawn, tmp_path, name):
    chance = random.Random(f"profd {name} {SEED}")
    # profd-files also ends when the others do, and another test covers its replacement, so fewer
    # kills suffice
    moments = MOMENTS if name != "profd-files" else max(3, MOMENTS // 5)
    spawn(sys.executable, "-c", SOME_LOAD)
    seen, hit, n = Counter(), 0, 0
    while hit < moments:
        sessions = [Session(chance, i, form, tmp_path / f"{i}.cap") for i in range(n, n + min(form.at_once, max(KINDS, moments - hit)))]
        n += len(sessions)
        assert n <= 5 * moments, "they are hardly ever there to be killed"
        run(form, name, sessions, recorder)
        found = Counter(check(session, name, profcapture) for session in sessions)
        seen += found
        if found["none"] > len(sessions) // 2:
            form.pace *= 2  # this machine takes longer to start all sessions
        for session in sessions:
            hit += session.victim is not None
            if session.victim and session.stopped is None and name != "profd-files":
                assert session.recording.returncode != 0, "nobody told the client"
        data = recorded(profctl, "-a", "-d", "0.2", *form.options, "-o", tmp_path / f"next-{n}.cap", env=form.env)
        assert data["samples"] > 0
        form.check_descriptors()
    print(f"{hit} of {n} killed; captures: {dict(seen)}")
    assert n - seen["none"] >= moments // 4
