# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profd --private as an IDE would use it: the objects of docs/dbus.md on a socketpair, without
profctl."""
import contextlib
import errno
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import gi
import pytest

import as_user
from captures import rows
from recordings import info, let_run, until, wait_for_samples

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib  # noqa: E402

ROOT = "/org/profd/Profiler1"
PROFILER = "org.profd.Profiler1"
SESSION = "org.profd.Profiler1.Session"
MANAGER = "org.freedesktop.DBus.ObjectManager"
PROPERTIES = "org.freedesktop.DBus.Properties"
ERROR = "org.profd.Profiler1.Error."


def variant(kind, value):
    return GLib.Variant(kind, value)


SYSTEM = {"system": variant("b", True)}


class Profd:
    """A private profd, and a D-Bus connection to it that stores the signals it receives."""

    def __init__(self, before=None, **environment):
        """Starts profd. before() runs in the new process."""
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [os.environ["PROFD"], f"--private={theirs.fileno()}"], pass_fds=[theirs.fileno()],
            env={**os.environ, **environment}, preexec_fn=before,
        )
        theirs.close()
        stream = Gio.Socket.new_from_fd(ours.detach()).connection_factory_create_connection()
        self.context = GLib.MainContext.new()
        self.context.push_thread_default()
        self.bus = Gio.DBusConnection.new_sync(
            stream, None, Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT, None, None
        )
        self.bus.set_exit_on_close(False)
        self.signals = []
        self.bus.signal_subscribe(None, None, None, None, None, 0, self.on_signal)

    def on_signal(self, bus, sender, path, interface, name, arguments):
        self.signals.append((time.monotonic(), path, name, arguments.unpack()))

    def call(self, path, interface, method, arguments=None, fds=(), timeout=20000):
        files = Gio.UnixFDList.new()
        for fd in fds:
            files.append(fd)
        reply, files = self.bus.call_with_unix_fd_list_sync(
            None, path, interface, method, arguments, None, 0, timeout, files, None
        )
        self.files = files.steal_fds() if files else []
        return reply.unpack()

    def create(self, options, fd, *more):
        return self.call(ROOT, PROFILER, "CreateSession", variant("(a{sv}h)", (options, 0)), [fd, *more])[0]

    def session(self, path, method, arguments=None):
        return self.call(path, SESSION, method, arguments)

    def get(self, path, name, interface=SESSION):
        return self.call(path, PROPERTIES, "Get", variant("(ss)", (interface, name)))[0]

    def wait(self, name, path=None, timeout=20, first=None):
        """Waits for the first signal with this name, path and first argument, and returns its
        arguments. The signal may have arrived already."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for _, where, what, arguments in self.signals:
                if what == name and path in (None, where) and first in (None, arguments[0]):
                    return arguments
            if not self.context.iteration(False):
                time.sleep(0.01)
        pytest.fail(f"no signal {name} in {timeout} s; there were {[s[2] for s in self.signals]}")

    def wait_samples(self, path, count=20):
        """Waits until the session has this many samples."""
        until(lambda: self.get(path, "Samples") >= count, 60)

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.context.iteration(False):
                time.sleep(0.01)

    def engines(self):
        return engines_of(self.process.pid)

    def close(self):
        if not self.bus.is_closed():
            self.bus.close_sync()
        return self.process.wait(timeout=20)


def as_nobody():
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)


def engines_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
            fields = rest.split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z" and name.endswith("(profd-engine"):
            found.append(int(stat.parent.name))
    return found


@contextlib.contextmanager
def running(before=None, **environment):
    client = Profd(before, **environment)
    try:
        yield client
        with contextlib.suppress(GLib.Error):
            client.close()
    finally:
        client.process.kill()
        client.process.wait()
        client.context.pop_thread_default()


@pytest.fixture
def profd():
    with running() as client:
        yield client


@pytest.fixture(scope="module")
def rights():
    if os.geteuid() != 0:
        pytest.skip("records the whole system, which needs root")


def refusal(call, *arguments):
    """Returns the name and the message of the error that the call must return."""
    with pytest.raises(GLib.Error) as raised:
        call(*arguments)
    error = raised.value
    name = Gio.DBusError.get_remote_error(error)
    return name.removeprefix(ERROR), error.message.partition(": ")[2]


def programs_of(pid):
    """Returns how many BPF programs the process holds."""
    return sum("bpf-prog" in os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir())


# ---- without a recording


def test_interfaces_are_those_of_the_xml(profd):
    text, = profd.call(ROOT, "org.freedesktop.DBus.Introspectable", "Introspect")
    served = Gio.DBusNodeInfo.new_for_xml(text)
    written = Gio.DBusNodeInfo.new_for_xml(
        (Path(os.environ["PROF_SOURCE_DIR"]) / "data/dbus/org.profd.Profiler1.xml").read_text()
    )
    for name in (PROFILER, MANAGER):
        ours, theirs = served.lookup_interface(name), written.lookup_interface(name)
        assert [m.name for m in ours.methods] == [m.name for m in theirs.methods]
        assert [p.name for p in ours.properties] == [p.name for p in theirs.properties]


def test_version_and_capabilities(profd):
    assert profd.get(ROOT, "Version", PROFILER).count(".") == 2
    capabilities, = profd.call(ROOT, PROFILER, "GetCapabilities")
    assert set(capabilities) == {"events", "call-graphs", "max-frequency", "ring-bytes", "kernel", "system", "off-cpu", "interpreters",
                                 "tracepoints"}
    assert "fp" in capabilities["call-graphs"]
    assert capabilities["max-frequency"] > 0
    assert ("interpreters-reason" in capabilities) == (
        capabilities["interpreters"] != ["python", "ruby", "php", "perl", "javascript"])
    assert ("tracepoints-reason" in capabilities) != capabilities["tracepoints"]
    if os.geteuid() == 0:
        assert bool(capabilities["interpreters"]) == ("WALK_INTERPRETED" in os.environ)
        with running(as_nobody) as other:
            capabilities, = other.call(ROOT, PROFILER, "GetCapabilities")
        assert capabilities["interpreters"] == [] and "CAP_BPF" in capabilities["interpreters-reason"]
        assert not capabilities["tracepoints"]


@pytest.mark.parametrize(
    "key, value",
    [
        ("system", variant("s", "yes")),
        ("pids", variant("as", ["1"])),
        ("pids", variant("ai", [1])),
        ("frequency", variant("t", 99)),
        ("events", variant("s", "cycles")),
        ("call-graph", variant("b", True)),
        ("lifetime", variant("s", "")),
        ("max-bytes", variant("u", 1)),
        ("command", variant("as", ["ls"])),
    ],
)
def test_option_of_another_type(profd, file, key, value):
    name, message = refusal(profd.create, {**SYSTEM, key: value}, file)
    assert name == "InvalidOption"
    assert f'"{key}"' in message and value.get_type_string() in message


@pytest.mark.parametrize(
    "options, said",
    [
        ({**SYSTEM, "frequenzy": variant("u", 99)}, '"frequenzy"'),
        ({}, "pids"),
        ({**SYSTEM, "pids": variant("au", [1])}, "both"),
        ({"pids": variant("au", [])}, "pids"),
        ({"pids": variant("au", [1] * 257)}, "257"),
        ({**SYSTEM, "frequency": variant("u", 10**9)}, "perf_event_max_sample_rate"),
        ({**SYSTEM, "frequency": variant("u", 0), "events": variant("as", ["cpu-clock"])}, "frequency 0"),
        ({**SYSTEM, "events": variant("as", [])}, "events"),
        ({**SYSTEM, "events": variant("as", ["cpu-clock"] * 17)}, "17"),
        ({**SYSTEM, "events": variant("as", ["cpu-clok"])}, "cpu-clock"),
        ({**SYSTEM, "events": variant("as", ["../../etc:passwd"])}, "unknown event"),
        ({**SYSTEM, "call-graph": variant("s", "lbr")}, "lbr"),
        ({**SYSTEM, "policy": variant("s", "maybe")}, "maybe"),
        ({**SYSTEM, "lifetime": variant("h", 7)}, "lifetime"),
    ],
)
def test_refused_by_name(profd, file, options, said):
    name, message = refusal(profd.create, options, file)
    assert name == "InvalidOption"
    assert said in message
    assert profd.call(ROOT, MANAGER, "GetManagedObjects") == ({},)


def test_process_that_is_gone(profd, file):
    gone = subprocess.Popen(["true"])
    gone.wait()
    name, message = refusal(profd.create, {"pids": variant("au", [gone.pid])}, file)
    assert (name, message) == ("Failed", f"there is no process {gone.pid}")


def test_wrong_argument_types(profd):
    for interface, method, arguments in (
        (PROFILER, "CreateSession", variant("(s)", ("x",))),
        (PROFILER, "CreateSession", variant("(a{ss}h)", ({}, 0))),
        (PROFILER, "GetCapabilities", variant("(u)", (1,))),
        (MANAGER, "GetManagedObjects", variant("(b)", (True,))),
    ):
        with pytest.raises(GLib.Error) as raised:
            profd.call(ROOT, interface, method, arguments)
        assert Gio.DBusError.get_remote_error(raised.value).endswith("InvalidArgs")


def test_captures_that_are_none(profd, tmp_path):
    filled = tmp_path / "filled"
    filled.write_bytes(b"data")
    pair = socket.socketpair()
    opened = [
        os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY),
        os.open(filled, os.O_RDWR),
        os.open(tmp_path / "new", os.O_RDONLY | os.O_CREAT),
        os.open("/dev/full", os.O_RDWR),
        os.open(filled, os.O_PATH),
        pair[0].fileno(),
    ]
    for fd in opened:
        assert refusal(profd.create, SYSTEM, fd)[0] == "InvalidOption"
    write_only = os.open(filled, os.O_WRONLY)
    append = {**SYSTEM, "append": variant("b", True)}
    assert refusal(profd.create, append, write_only)[0] == "InvalidOption"
    assert refusal(profd.call, ROOT, PROFILER, "CreateSession", variant("(a{sv}h)", (SYSTEM, 3)))[0] == "InvalidOption"
    for fd in [*opened[:5], write_only]:
        os.close(fd)


def test_states_before_start(profd, file):
    path = profd.create(SYSTEM, file)
    assert profd.get(path, "State") == "created"
    for method in ("Stop", "Pause", "Resume"):
        assert refusal(profd.session, path, method)[0] == "InvalidState"
    assert refusal(profd.session, path, "OpenImage", variant("(t)", (1,)))[0] == "NoSuchImage"
    control, = profd.session(path, "OpenControl")
    assert re.fullmatch("unix-abstract:profd-[0-9a-f]{32},token:[0-9a-f]{32}", control)
    assert profd.get(path, "StartTime") == 0


def test_objects_come_and_go(profd, file):
    path = profd.create({**SYSTEM, "frequency": variant("u", 100)}, file)
    assert profd.wait("InterfacesAdded")[0] == path
    objects, = profd.call(ROOT, MANAGER, "GetManagedObjects")
    properties = objects[path][SESSION]
    assert properties["State"] == "created"
    assert properties["Uid"] == os.geteuid()
    assert properties["Options"]["frequency"] == 100
    assert properties["Options"]["events"]
    profd.session(path, "Close")
    assert profd.wait("InterfacesRemoved") == (path, [SESSION])
    assert profd.call(ROOT, MANAGER, "GetManagedObjects") == ({},)
    with pytest.raises(GLib.Error):
        profd.session(path, "Start")


def test_too_many_sessions(profd, file):
    paths = [profd.create(SYSTEM, file) for _ in range(64)]
    assert len(set(paths)) == 64
    assert refusal(profd.create, SYSTEM, file)[0] == "LimitExceeded"
    profd.session(paths[0], "Close")
    profd.wait("InterfacesRemoved", first=paths[0])
    assert profd.create(SYSTEM, file) not in paths


def test_profd_ends_with_its_client(profd, file):
    profd.create(SYSTEM, file)
    assert profd.close() == 0


def test_sigterm_ends_it(profd):
    profd.process.send_signal(signal.SIGTERM)
    assert profd.process.wait(timeout=10) == 0


def test_bytes_that_are_no_dbus(profd):
    ours, theirs = socket.socketpair()
    process = subprocess.Popen([os.environ["PROFD"], f"--private={theirs.fileno()}"], pass_fds=[theirs.fileno()],
                               stderr=subprocess.DEVNULL)
    theirs.close()
    ours.sendall(os.urandom(4096))
    ours.close()
    assert process.wait(timeout=10) == 1


# ---- recordings


def test_recording(rights, profd, file, capture, profcapture, busy):
    path = profd.create({"pids": variant("au", [busy.pid])}, file)
    before = time.monotonic_ns()
    profd.session(path, "Start")
    assert profd.get(path, "State") == "running"
    assert before < profd.get(path, "StartTime") < time.monotonic_ns()
    profd.wait_samples(path)
    profd.session(path, "Stop")
    ok, reason, summary = profd.wait("Finished", path)
    assert (ok, reason) == (True, "stopped")
    assert profd.get(path, "State") == "finished"
    assert summary["samples"] >= 20 and summary["stop-time"] > summary["start-time"]
    assert profd.get(path, "Samples") == summary["samples"]
    found = info(profcapture, capture)
    assert found["state"] == "finished" and found["samples"] == summary["samples"]
    assert refusal(profd.session, path, "Start")[0] == "InvalidState"
    assert refusal(profd.session, path, "Stop")[0] == "InvalidState"


def test_example_of_the_documentation(rights, capture, profcapture, busy):
    """The client in docs/dbus.md works unchanged, and the recording ends with the client."""
    text = Path(os.environ["PROF_SOURCE_DIR"], "docs/dbus.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    path = f"{Path(os.environ['PROFD']).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", example + "\nimport time\ntime.sleep(0.5)\n"], cwd=capture.parent,
        env={**os.environ, "PATH": path}, capture_output=True, encoding="utf-8", timeout=60,
    )
    assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
    # after its client's end, profd still needs time to finish the file
    until(lambda: profcapture("verify", capture, check=None).returncode == 0)
    assert profcapture.json("report", capture, "--pid", busy.pid)["data"]["self_total"] > 0


def test_progress_is_about_one_a_second(rights, profd, file, busy):
    """Progress signals come at most about twice a second, even if "command" is empty."""
    path = profd.create({"pids": variant("au", [busy.pid]), "command": variant("aay", [])}, file)
    began = time.monotonic()
    profd.session(path, "Start")
    while sum(s[2] == "Progress" for s in profd.signals) < 3:
        profd.sleep(0.05)
        assert time.monotonic() - began < 60
    assert sum(s[2] == "Progress" for s in profd.signals) <= 2 + 2 * (time.monotonic() - began)
    counters = next(arguments[0] for _, _, name, arguments in profd.signals if name == "Progress")
    assert set(counters) == {"samples", "events", "lost", "bytes"}


def assert_sampled(profcapture, capture, begin, end):
    """Checks that there are 20 samples or more, all between `begin` and `end` (monotonic clock)."""
    start = info(profcapture, capture)["start_monotonic_ns"]
    times = [start + row["time_ns"] for row in rows(profcapture, capture, "sample")]
    assert len(times) >= 20 and begin <= min(times) and max(times) <= end


def test_pause_and_resume(rights, profd, file, capture, profcapture, busy):
    path = profd.create({"pids": variant("au", [busy.pid]), "paused": variant("b", True)}, file)
    profd.session(path, "Start")
    assert profd.get(path, "State") == "paused"
    assert refusal(profd.session, path, "Pause")[0] == "InvalidState"
    let_run(busy.pid)
    begin = time.monotonic_ns()
    profd.session(path, "Resume")
    assert profd.get(path, "State") == "running"
    profd.wait_samples(path)
    profd.session(path, "Pause")
    end = time.monotonic_ns()
    let_run(busy.pid)
    profd.session(path, "Stop")
    profd.wait("Finished", path)
    assert_sampled(profcapture, capture, begin, end)


@pytest.mark.parametrize("method, other, before", [("Pause", "Resume", False), ("Resume", "Pause", True)], ids=["pause", "resume"])
def test_of_an_engine_that_does_not_answer(rights, profd, file, busy, method, other, before):
    """The call fails after a timeout, but takes effect when the engine continues."""
    path = profd.create({"pids": variant("au", [busy.pid]), "paused": variant("b", before)}, file)
    profd.session(path, "Start")
    if not before:
        profd.wait_samples(path)
    engine, = profd.engines()
    os.kill(engine, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        name, message = refusal(profd.session, path, method)
        took = time.monotonic() - begin
    finally:
        os.kill(engine, signal.SIGCONT)
    assert name == "Failed" and message
    assert took > 1.9
    until(lambda: profd.get(path, "State") == ("running" if before else "paused"))
    if before:
        profd.wait_samples(path)
    profd.session(path, other)
    assert profd.get(path, "State") == ("paused" if before else "running")
    profd.session(path, "Stop")
    ok, reason, summary = profd.wait("Finished", path)
    assert (ok, reason) == (True, "stopped") and summary["samples"] >= 20


SWITCH = struct.Struct("<QQI12x")
SWITCH_MAGIC = int.from_bytes(b"PfSWTCH\n", "little")


def test_switch(rights, profd, file, capture, profcapture, busy):
    """A session with a switch begins switched off. A switch message takes effect before it is
    answered."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = profd.create({"pids": variant("au", [busy.pid]), "switch": variant("h", 1)}, file, theirs.fileno())
    theirs.close()
    profd.session(path, "Start")
    assert profd.get(path, "State") == "running" and "switch" not in profd.get(path, "Options")
    let_run(busy.pid)
    begin = time.monotonic_ns()
    for serial, on in ((1, 1), (2, 0)):
        ours.send(SWITCH.pack(SWITCH_MAGIC, serial, on))
        assert SWITCH.unpack(ours.recv(100)) == (SWITCH_MAGIC, serial, on)
        if on:
            profd.wait_samples(path)
    end = time.monotonic_ns()
    let_run(busy.pid)
    profd.session(path, "Stop")
    profd.wait("Finished", path)
    assert ours.recv(100) == b""
    assert_sampled(profcapture, capture, begin, end)


@pytest.mark.parametrize("by_task", [False, True])
def test_interpreters_are_left_out(rights, profd, tmp_path, spawn, by_task):
    """If the option "interpreters" is false, no BPF program that reads interpreters is loaded."""
    program = tmp_path / "spin.py"
    program.write_text("while True:\n    pass\n")
    target, held = spawn("/usr/bin/python3", program), {}
    for wanted in (False, True):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        options = {"pids": variant("au", [target.pid]), "off-cpu": variant("b", True), "interpreters": variant("b", wanted)}
        if by_task:
            options["switch"] = variant("h", 1)
        with open(tmp_path / f"{wanted}.cap", "wb") as file:
            path = profd.create(options, file.fileno(), theirs.fileno())
        profd.session(path, "Start")
        if by_task:
            ours.send(SWITCH.pack(SWITCH_MAGIC, 1, 1))
        profd.wait_samples(path, 200)
        if wanted and "WALK_INTERPRETED" in os.environ:
            until(lambda: programs_of(profd.process.pid))
        held[wanted] = programs_of(profd.process.pid)
        profd.session(path, "Stop")
        profd.wait("Finished", path)
        theirs.close()
        ours.close()
    assert held[False] == 0 and bool(held[True]) == ("WALK_INTERPRETED" in os.environ)


def test_waits_by_task(rights, profd, file, capture, profcapture, spawn):
    """If events are opened for each thread, including threads that start later, waits have stacks
    too."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # the second target sleeps all the time, so there is time to read its stack
    targets = spawn("sh", "-c", "while :; do sleep 0.02; sleep 0.3; done"), spawn("sleep", 60)
    path = profd.create({"pids": variant("au", [target.pid for target in targets]), "switch": variant("h", 1), "off-cpu": variant("b", True)}, file, theirs.fileno())
    theirs.close()
    profd.session(path, "Start")
    ours.send(SWITCH.pack(SWITCH_MAGIC, 1, 1))
    assert SWITCH.unpack(ours.recv(100)) == (SWITCH_MAGIC, 1, 1)
    time.sleep(1.5)
    profd.session(path, "Stop")
    profd.wait("Finished", path)
    rows = profcapture.json("sql", capture, "SELECT comm, stack_source, user_stop, duration FROM wait")["data"]["rows"]
    found = {row["stack_source"] for row in rows if row["user_stop"] == "root"}
    assert {"copied", "late"} <= found, rows


def test_preempted_threads_do_not_sleep(rights, profd, file, capture, profcapture, spawn):
    """The kernel reports no sleep of a thread that only loses its CPU to another thread."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    cpu = min(os.sched_getaffinity(0))
    targets = [spawn("taskset", "-c", cpu, "sh", "-c", "while :; do :; done") for _ in range(2)]
    until(lambda: all(Path(f"/proc/{target.pid}/comm").read_text() == "sh\n" for target in targets))
    # only these threads have events; if preemptions counted as waits, they would exceed the limit
    path = profd.create({"pids": variant("au", [target.pid for target in targets]), "switch": variant("h", 1), "off-cpu": variant("b", True),
                         "off-cpu-max-rate": variant("u", 10), "frequency": variant("u", 999)}, file, theirs.fileno())
    theirs.close()
    profd.session(path, "Start")
    ours.send(SWITCH.pack(SWITCH_MAGIC, 1, 1))
    profd.wait_samples(path, 1500)
    profd.session(path, "Stop")
    _, _, summary = profd.wait("Finished", path)
    assert summary["off-cpu"] == "full"
    preempted, = profcapture.json("sql", capture, "SELECT count(*) AS n FROM thread_states WHERE state = 'preempted'")["data"]["rows"]
    assert preempted["n"] > 50


@pytest.mark.parametrize("limit", [1, 1 << 30])
def test_waits_are_limited(rights, profd, file, spawn, limit):
    """If threads sleep too often in the first second, the stacks of later waits are not copied."""
    target = spawn("sh", "-c", "while :; do sleep 0.01; done")
    path = profd.create({"pids": variant("au", [target.pid]), "off-cpu": variant("b", True), "off-cpu-max-rate": variant("u", limit)}, file)
    profd.session(path, "Start")
    if limit == 1:
        assert "threads wait " in profd.wait("Warning", path, first="off-cpu")[1]
    time.sleep(1.5)
    profd.session(path, "Stop")
    ok, _, summary = profd.wait("Finished", path)
    assert ok and summary["off-cpu"] == ("stopped" if limit == 1 else "full")
    assert sum(summary[f"off-cpu-{source}"] for source in ("copied", "late", "shared-out", "raced", "none")) > 1e9


THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned long sum;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *sleep_in_lock(void *data)
{
	pthread_mutex_lock(&lock);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < atoi(argv[1]); i++) {
		pthread_t id;

		pthread_create(&id, NULL, sleep_in_lock, NULL);
	}
	puts("ready");
	fflush(stdout);
	for (;;)
		sum++;
}
"""


def perf_events_of(pid):
    return sum(os.readlink(entry.path) == "anon_inode:[perf_event]" for entry in os.scandir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("threads,by_task", [(20, True), (1500 if os.cpu_count() > 1 else 3000, False)])
def test_switch_of_threads(rights, profd, file, spawn, compile_c, threads, by_task):
    """If there are few threads, each has its own events; otherwise CPU-wide events are used. The target
    is recorded in both cases."""
    target = spawn(compile_c("threads", THREADS, "-O1", "-pthread"), threads, stdout=subprocess.PIPE)
    assert target.stdout.readline() == b"ready\n"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = profd.create({"pids": variant("au", [target.pid]), "switch": variant("h", 1)}, file, theirs.fileno())
    theirs.close()
    profd.session(path, "Start")
    engine, = profd.engines()
    assert (perf_events_of(engine) > 2 * threads * os.cpu_count()) == by_task
    ours.send(SWITCH.pack(SWITCH_MAGIC, 1, 1))
    assert SWITCH.unpack(ours.recv(100)) == (SWITCH_MAGIC, 1, 1)
    profd.wait_samples(path)
    profd.session(path, "Stop")
    assert profd.wait("Finished", path)[0]


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, None])
def test_switch_that_is_none(profd, file, kind):
    other = socket.socketpair(socket.AF_UNIX, kind)[0].detach() if kind else os.dup(file)
    name, message = refusal(profd.create, {**SYSTEM, "switch": variant("h", 1)}, file, other)
    os.close(other)
    assert name == "InvalidOption" and '"switch"' in message
    assert "names no descriptor" in refusal(profd.create, {**SYSTEM, "switch": variant("h", 7)}, file)[1]


def test_two_sessions_at_once(rights, profd, file, tmp_path, profcapture, busy):
    other = os.open(tmp_path / "other.cap", os.O_RDWR | os.O_CREAT, 0o600)
    paths = [profd.create(SYSTEM, file), profd.create({"pids": variant("au", [busy.pid])}, other)]
    for path in paths:
        profd.session(path, "Start")
    assert len(profd.engines()) == 2
    let_run(busy.pid)
    for path in paths:
        profd.session(path, "Stop")
    for path in paths:
        assert profd.wait("Finished", path)[0]
    os.close(other)
    assert profcapture.json("info", tmp_path / "other.cap")["capture"]["state"] == "finished"
    assert profd.engines() == []


@pytest.mark.parametrize("option, value, reason", [
    ("max-duration", 400_000_000, "duration"),
    ("max-bytes", 100_000, "size"),
])
def test_ends_by_itself(rights, profd, file, busy, option, value, reason):
    path = profd.create({**SYSTEM, "frequency": variant("u", 20000), option: variant("t", value)}, file)
    profd.session(path, "Start")
    assert profd.wait("Finished", path, 30)[:2] == (True, reason)


def test_target_that_exits(rights, profd, file, spawn):
    target = spawn("cat", stdin=subprocess.PIPE)
    path = profd.create({"pids": variant("au", [target.pid])}, file)
    profd.session(path, "Start")
    target.stdin.close()
    assert profd.wait("Finished", path)[:2] == (True, "target-exited")


def test_lifetime(rights, profd, file, capture, profcapture):
    reading, writing = os.pipe()
    path = profd.create({**SYSTEM, "lifetime": variant("h", 1)}, file, reading)
    profd.session(path, "Start")
    os.close(writing)
    os.close(reading)
    assert profd.wait("Finished", path)[1] == "client-gone"
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


def test_lifetime_that_is_over(rights, profd, file):
    reading, writing = os.pipe()
    path = profd.create({**SYSTEM, "lifetime": variant("h", 1)}, file, reading)
    os.close(writing)
    for _ in range(2):  # profd checks its watches before it answers the second call
        profd.get(path, "State")
    name, message = refusal(profd.session, path, "Start")
    assert name == "InvalidState" and '"lifetime"' in message


def test_lifetime_that_never_ends(profd, file):
    """A file is refused, because it never reports a hangup, and poll() blocks if the server of its
    file system does not answer."""
    name, message = refusal(profd.create, {**SYSTEM, "lifetime": variant("h", 1)}, file, file)
    assert name == "InvalidOption" and '"lifetime"' in message


def test_client_that_goes(rights, profd, file, capture, profcapture, busy):
    path = profd.create({"pids": variant("au", [busy.pid])}, file)
    profd.session(path, "Start")
    profd.wait_samples(path)
    assert profd.close() == 0
    found = info(profcapture, capture)
    assert found["state"] == "finished" and found["samples"] >= 20


def test_close_finishes_the_file(rights, profd, file, capture, profcapture):
    path = profd.create(SYSTEM, file)
    profd.session(path, "Start")
    profd.session(path, "Close")
    until(lambda: profd.engines() == [])
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


def test_killed_engine(rights, profd, file, capture, profcapture, busy):
    path = profd.create({"pids": variant("au", [busy.pid])}, file)
    profd.session(path, "Start")
    wait_for_samples(capture, 0)
    engine, = profd.engines()
    os.kill(engine, signal.SIGKILL)
    ok, reason, _ = profd.wait("Finished", path)
    assert (ok, reason) == (False, "internal")
    assert profd.get(path, "State") == "failed"
    found = info(profcapture, capture)
    assert found["state"] == "unfinished" and found["samples"] > 0


def test_killed_broker(rights, profd, file, capture, profcapture, busy):
    path = profd.create({"pids": variant("au", [busy.pid])}, file)
    profd.session(path, "Start")
    engine, = profd.engines()
    profd.wait_samples(path)
    profd.process.kill()
    profd.process.wait()
    until(lambda: not Path(f"/proc/{engine}").exists())
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


def test_open_image(rights, profd, file, capture, profcapture, compile_c, spawn):
    program = compile_c("spin", "int main(void) { for (volatile int i = 0;; i++) ; }")
    code = program.read_bytes()
    process = spawn(program)
    path = profd.create({"pids": variant("au", [process.pid])}, file)
    profd.session(path, "Start")
    profd.wait_samples(path)
    program.unlink()
    process.kill()
    process.wait()
    profd.wait("Finished", path)
    image = next(row["id"] for row in rows(profcapture, capture, "image") if (row["path"] or "").startswith(str(program)))
    profd.session(path, "OpenImage", variant("(t)", (image,)))
    opened, = profd.files
    assert os.read(opened, len(code) + 1) == code
    with pytest.raises(OSError):
        os.write(opened, b"x")
    os.close(opened)
    assert refusal(profd.session, path, "OpenImage", variant("(t)", (10**12,)))[0] == "NoSuchImage"


def test_events_of_every_kind(rights, profd, file, busy):
    names = ["cpu-clock", "page-faults", "context-switches:u", "sched:sched_switch", "msr/tsc/"]
    path = profd.create({**SYSTEM, "events": variant("as", names[:4])}, file)
    assert profd.get(path, "Options")["events"] == names[:4]
    profd.session(path, "Start")
    let_run(busy.pid)
    profd.session(path, "Stop")
    assert profd.wait("Finished", path)[0]


def test_event_that_is_not_there(rights, profd, file):
    """A VM may lack the event "cycles", and other machines have it; this raw event of the software
    PMU exists nowhere."""
    path = profd.create({**SYSTEM, "events": variant("as", ["software/config=255/"])}, file)
    assert refusal(profd.session, path, "Start")[0] in ("NotSupported", "Failed")
    assert profd.get(path, "State") == "failed"
    until(lambda: profd.engines() == [])


@pytest.mark.parametrize("error, name", [
    (errno.EBUSY, "Busy"), (errno.EACCES, "NotAuthorized"), (errno.ENOENT, "NotSupported"), (errno.EMFILE, "LimitExceeded"),
    (errno.ENOMEM, "Failed"),
])
def test_events_that_the_kernel_refuses(rights, file, error, name):
    with running(lambda: as_user.refuse("all", error)) as profd:
        path = profd.create({**SYSTEM, "events": variant("as", ["cpu-clock"])}, file)
        assert refusal(profd.session, path, "Start")[0] == name
        assert profd.get(path, "State") == "failed"


def test_a_changed_option_is_signaled(rights, file, busy):
    """If Start changes Options, a client that caches properties is notified."""
    with running(lambda: as_user.refuse("cpu")) as profd:
        path = profd.create({"pids": variant("au", [busy.pid])}, file)
        assert "reduced" not in profd.get(path, "Options")
        profd.session(path, "Start")
        options = profd.get(path, "Options")
        assert "only the targets' own events" in options["reduced"]

        def changed():
            profd.context.iteration(False)
            return [arguments[1].get("Options") for _, where, name, arguments in profd.signals
                    if (where, name) == (path, "PropertiesChanged")]

        until(lambda: options in changed())


# ---- a compromised engine

HOSTILE_ENGINE = """#!/usr/bin/python3 -SE
import os, socket, struct, sys
sock = socket.socket(fileno=3)
def send(kind, body=b"", length=None):
    sock.send(struct.pack("II", kind, len(body) if length is None else length) + body)
def started():
    send(64)
STARTED, SNAPSHOT, IMAGE, CPU, PROGRESS, WARNING, FINISHED, MEMORY_USAGE = range(64, 72)
%s
while sock.recv(65536):
    pass
"""


@pytest.fixture
def hostile(tmp_path):
    @contextlib.contextmanager
    def make(script):
        folder = tmp_path / "libexec"
        folder.mkdir()
        (folder / "profd-engine").write_text(HOSTILE_ENGINE % script)
        (folder / "profd-engine").chmod(0o755)
        (folder / "profd-files").symlink_to(Path(os.environ["PROFD"]).parent / "profd-files")
        with running(PROF_LIBEXEC_DIR=str(folder)) as client:
            yield client

    return make


@pytest.mark.parametrize("script", [
    "send(0)",
    "send(255)",
    "send(1, b'x' * 100)",
    "sock.send(b'abc')",
    "send(STARTED, b'x')",
    "send(PROGRESS, b'x' * 31)",
    "send(PROGRESS, b'x' * 32, length=2**32 - 1)",
    "send(FINISHED, b'x' * 191)",
    "send(CPU, b'x' * 5)",
    "send(IMAGE, b'x' * 31)",
    "send(MEMORY_USAGE, b'x' * 7)",
])
def test_malformed_message_ends_the_engine(rights, hostile, file, script):
    with hostile(script) as profd:
        path = profd.create(SYSTEM, file)
        assert refusal(profd.session, path, "Start")[0] == "Failed"
        assert profd.wait("Finished", path)[:2] == (False, "internal")
        profd.wait("Warning", path, first="engine-died")
        assert profd.get(path, "State") == "failed"


# profd may accept at most a part of the lie, and still reports how the session ends.
LIE = """started()
sock.settimeout(0.5)
try:
    %s
except OSError:
    pass
sock.settimeout(None)
send(WARNING, struct.pack("32s480s", b"lied", b""))
"""


@pytest.mark.parametrize("script", [
    "send(FINISHED, struct.pack('IIiI', 1, 0, 0, 2**31) + b'x' * 224)",  # more losses than the message contains
    "send(IMAGE, struct.pack('5QiI', 1, 0, 0, 0, 0, 1, 2**31) + b'/bin/sh')",
    "send(MEMORY_USAGE, struct.pack('IIIi', 1, 0, 1, 1))",  # allocations were not requested
    "send(MEMORY_USAGE, struct.pack('IIIi', 1, 1, 1, 1))",  # waits were not requested
    "send(MEMORY_USAGE, struct.pack('III', 1, 0, 2**31))",
    "send(IMAGE, struct.pack('5QiI', 1, 0, 0, 0, 0, -1, 7) + b'/bin/sh')",
    "send(IMAGE, struct.pack('5QiI', 1, 0, 0, 0, 0, 1, 7) + b'\\0\\xff/../x')",
    "send(SNAPSHOT, struct.pack('IiII', 1, -5, 0, 0))",
    "send(CPU, struct.pack('I', 2**32 - 1))",
    "send(WARNING, b'\\xff' * 512)",
    "[send(PROGRESS, b'\\xff' * 32) for i in range(10000)]",
    # the path of an existing file, without links
    "path = os.path.realpath('/bin/cat').encode()\n"
    "    [send(IMAGE, struct.pack('5QiI', i, 0, 0, 0, 0, os.getpid(), len(path)) + path) for i in range(20000)]",
])
def test_lies_of_an_engine_stay_in_its_session(rights, hostile, file, script):
    with hostile(LIE % script) as profd:
        path = profd.create(SYSTEM, file)
        profd.session(path, "Start")
        profd.wait("Warning", path, first="lied")
        assert profd.get(path, "State") in ("running", "stopping", "failed")
        assert profd.get(ROOT, "Version", PROFILER)
        files = len(os.listdir(f"/proc/{profd.process.pid}/fd"))
        # the limits of images and of pending tasks, and 100 other descriptors
        assert files < 4096 + 256 + 100
        os.kill(profd.engines()[0], signal.SIGKILL)
        assert profd.wait("Finished", path)[:2] == (False, "internal")


def snapshot_bytes(pid):
    total = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            total += fd.stat().st_size if "prof-snapshot" in os.readlink(fd) else 0
    return total


def test_snapshots_that_nobody_reads(rights, hostile, file):
    """Each snapshot is a memfd: profd limits how many are unread, and ends an engine that asks for
    more."""
    asks = "sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4608)\nwhile True:\n    send(SNAPSHOT, struct.pack('IiII', 1, 0, 0, 0))"
    with hostile("started()\n" + asks) as profd:
        path = profd.create(SYSTEM, file)
        profd.session(path, "Start")
        most = 0
        while not [s for s in profd.signals if s[2] == "Finished"]:
            profd.sleep(0.05)
            most = max(most, snapshot_bytes(profd.process.pid))
            assert most < 96 << 20
        profd.wait("Warning", path, first="snapshot")
        assert profd.wait("Finished", path)[:2] == (False, "internal")


def test_rings_without_end(rights, hostile, file):
    """A CPU that comes online again gets new rings. profd limits their number, because an engine
    that kept all of them would fill the memory."""
    script = """n = 0
while struct.unpack_from('I', sock.recv(65536))[0] != 3:  # MESSAGE_START
    pass
started()
while True:
    send(CPU, struct.pack('I', 0))
    _, fds, *_ = socket.recv_fds(sock, 65536, 64)
    n += 1
    send(PROGRESS, struct.pack('4Q', n, 0, 0, 0))
    for fd in fds:
        os.close(fd)
"""
    with hostile(script) as profd:
        path = profd.create({**SYSTEM, "call-graph": variant("s", "dwarf")}, file)
        profd.session(path, "Start")
        profd.wait("Warning", path, 60, first="cpu-online")
        profd.sleep(0.3)
        assert profd.get(path, "Samples") <= 1025
        os.kill(profd.engines()[0], signal.SIGKILL)


def test_engine_that_hangs_is_ended(rights, hostile, file):
    """profd ends an engine that does nothing after Stop."""
    with hostile("started()") as profd:
        path = profd.create(SYSTEM, file)
        profd.session(path, "Start")
        profd.session(path, "Stop")
        profd.wait("Warning", path, 15, first="engine-hangs")
        assert profd.wait("Finished", path)[:2] == (False, "internal")


@pytest.mark.parametrize("script", ["started()\n", ""])
def test_engine_that_says_finished_and_stays(rights, hostile, file, script):
    """The engine's summary is valid, but the session does not wait forever for the engine to
    exit."""
    with hostile(script + "send(FINISHED, struct.pack('IIiI', 1, 0, 0, 0) + bytes(224))") as profd:
        path = profd.create(SYSTEM, file)
        with contextlib.suppress(GLib.Error):
            profd.session(path, "Start")
        assert profd.wait("Finished", path, 15)[:2] == (True, "stopped")
        assert profd.get(path, "State") == "finished"


FLOOD = """started()
body = struct.pack('32s480s', b'x', b'y' * 479)
while True:
    send(WARNING, body)
"""
STUCK_CLIENT = """
import os, signal, sys, test_dbus_private as t
with t.running() as profd:
    path = profd.create(t.SYSTEM, os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600))
    profd.session(path, "Start")
    print(profd.process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_client_that_never_reads(rights, tmp_path, capture, spawn):
    """A compromised engine floods the client with warnings. profd drops those that exceed a limit
    per second, because warnings that the client does not read remain in profd's memory."""
    engine = tmp_path / "profd-engine"
    engine.write_text(HOSTILE_ENGINE % FLOOD)
    engine.chmod(0o755)
    (tmp_path / "profd-files").symlink_to(Path(os.environ["PROFD"]).parent / "profd-files")
    client = spawn(sys.executable, "-c", STUCK_CLIENT, capture, stdout=subprocess.PIPE,
                   env={**os.environ, "PROF_LIBEXEC_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent),
                        # AddressSanitizer must not keep freed memory
                        "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"})
    pid = int(client.stdout.readline())
    sizes = []
    for _ in range(3):
        let_run(pid, 0.2)
        sizes.append(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    client.kill()
    until(lambda: not Path(f"/proc/{pid}").exists())
    assert sizes[-1] - sizes[0] < 1 << 20, sizes
