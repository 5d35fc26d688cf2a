# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profd on a system bus: its objects, access to sessions, and clients that go away. test_bus_polkit
covers polkit."""
import collections
import os
import shutil
import signal
import subprocess
import tempfile
import time
from array import array
from pathlib import Path

import pytest

import buses
from buses import (
    DAEMON, MANAGER, NAME, NOBODY, PROFILER, PROPERTIES, ROOT, SESSION, SYSTEM, Gio, GLib, from_bytes, pids, refusal, variant,
)
from recordings import BUSY, cpu_seconds, let_run, until, whole_cpu_seconds

EVERYTHING = "polkit.addRule(function(action, subject) { return polkit.Result.YES; });"
OWN = buses.rules(allow={"record-own": ["nobody", "daemon"]})


@pytest.fixture
def busy(bus, spawn, compile_c):
    """Returns a function that starts a busy process as the user with the given uid."""
    program = shutil.copy(compile_c("busy", BUSY), bus.folder)
    return lambda uid=NOBODY: spawn(program, user=uid, group=uid, extra_groups=[])


@pytest.fixture
def files(tmp_path):
    opened = []

    def make():
        opened.append(os.open(tmp_path / f"{len(opened)}.cap", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return opened[-1]

    yield make
    for fd in opened:
        os.close(fd)


@pytest.fixture
def record(bus, file, busy):
    """Returns a function that starts a user's recording of their own process, waits for samples,
    and returns (client, session path)."""

    def begin():
        bus.start(OWN)
        client = bus.client(NOBODY)
        path = client.create(pids(busy().pid), file)
        client.session(path, "Start")
        client.wait_samples(path)
        return client, path

    return begin


# ---- the objects that are also tested without a bus


def test_capabilities_are_not_tried_at_each_call(bus, require, tmp_path):
    """The check of what the kernel supports opens about 40 events; a client that repeats
    GetCapabilities does not repeat the check."""
    require("strace")
    bus.start(EVERYTHING)
    client, log = bus.client(NOBODY), tmp_path / "log"
    status = Path(f"/proc/{bus.profd.pid}/status")
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=perf_event_open", "-o", log, "-p", str(bus.profd.pid)])
    try:
        until(lambda: tracer.poll() is not None or "TracerPid:\t0\n" not in status.read_text())
        if tracer.poll() is not None:
            pytest.skip("strace may not trace here")
        answers = [client.call(ROOT, PROFILER, "GetCapabilities") for _ in range(100)]
    finally:
        tracer.terminate()
        tracer.wait()
    assert answers == answers[:1] * 100
    assert 10 < log.read_text().count("perf_event_open(") < 500


def test_root_object(bus):
    bus.start(EVERYTHING)
    client = bus.client(NOBODY)
    assert client.get(ROOT, "Version", PROFILER).count(".") == 2
    capabilities, = client.call(ROOT, PROFILER, "GetCapabilities")
    assert set(capabilities) == {"events", "call-graphs", "max-frequency", "ring-bytes", "kernel", "system", "off-cpu", "interpreters",
                                 "tracepoints"}
    assert capabilities["system"] and capabilities["kernel"]
    assert client.objects() == {}
    text, = client.call(ROOT, "org.freedesktop.DBus.Introspectable", "Introspect")
    served = Gio.DBusNodeInfo.new_for_xml(text)
    assert [m.name for m in served.lookup_interface(PROFILER).methods] == ["CreateSession", "GetCapabilities"]


def test_recording(bus, file, capture, profcapture, busy):
    bus.start(EVERYTHING)
    client, target = bus.client(NOBODY), busy()
    path = client.create(pids(target.pid), file)
    assert client.wait("InterfacesAdded")[0] == path
    client.session(path, "Start")
    assert client.get(path, "State") == "running"
    assert client.get(path, "Uid") == NOBODY
    client.wait("Progress", path)
    client.wait_samples(path)
    client.session(path, "Pause")
    client.session(path, "Resume")
    client.session(path, "Stop")
    ok, reason, summary = client.wait("Finished", path)
    assert (ok, reason) == (True, "stopped") and summary["samples"] >= 20
    assert {s[2] for s in client.signals} >= {"PropertiesChanged", "Progress", "Finished"}
    properties, = client.call(path, PROPERTIES, "GetAll", variant("(s)", (SESSION,)))
    assert properties["State"] == "finished" and properties["Samples"] == summary["samples"]
    assert properties == client.objects()[path][SESSION]
    client.session(path, "Close")
    assert client.wait("InterfacesRemoved") == (path, [SESSION])
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


def test_waits(bus, file, capture, profcapture, spawn):
    """Short waits of a plain user's own processes have stacks, because the service has the rights. Only
    stacks of waits longer than off-cpu-threshold are read while the waits last."""
    bus.start(OWN)
    client = bus.client(NOBODY)
    target = spawn("sh", "-c", "while :; do sleep 0.01; sleep 0.2; done", user=NOBODY, group=NOBODY, extra_groups=[])
    path = client.create({**pids(target.pid), "off-cpu": variant("b", True), "off-cpu-threshold": variant("t", 10**11)}, file)
    client.session(path, "Start")
    client.sleep(3)  # on a busy machine, libc's unwind table may be ready only after a second
    client.session(path, "Stop")
    ok, _, summary = client.wait("Finished", path)
    assert ok and summary["off-cpu"] == "full" and not [s for s in client.signals if s[2] == "Warning" and s[3][0] == "off-cpu"]
    waits = profcapture.json("sql", capture, "SELECT stack_source, user_stop, duration FROM wait WHERE comm = 'sleep'")["data"]["rows"]
    kinds = collections.Counter((row["stack_source"], row["user_stop"]) for row in waits)
    assert kinds["copied", "root"] > 0, (kinds, summary, profcapture("dump", capture, "--table", "wait", "--resolve", "--limit", 20).stdout)
    # no wait was long enough for its stack to be read during the wait
    assert summary["off-cpu-copied"] > 0 and summary["off-cpu-late"] == 0 and max(row["duration"] for row in waits) > 0.15e9


def test_open_image(bus, file, capture, profcapture, compile_c, spawn):
    program = compile_c("spin", "int main(void) { for (volatile int i = 0;; i++) ; }")
    program = Path(shutil.copy(program, bus.folder))  # other users cannot reach the folder in which it is compiled
    process = spawn(program, user=NOBODY, group=NOBODY, extra_groups=[])
    bus.start(EVERYTHING)
    client = bus.client(NOBODY)
    path = client.create(pids(process.pid), file)
    client.session(path, "Start")
    client.wait_samples(path)
    process.kill()
    process.wait()
    client.wait("Finished", path)
    rows = profcapture.json("dump", capture, "--table", "image", "--format", "json")["data"]["rows"]
    image = next(row["id"] for row in rows if (row["path"] or "").startswith(str(program)))
    client.session(path, "OpenImage", variant("(t)", (image,)))
    opened, = client.files
    assert os.read(opened, 10**6) == program.read_bytes()
    os.close(opened)


def test_image_that_the_user_may_not_read(bus, file, capture, profcapture, compile_c, spawn):
    """If another user's program may be run, but not read, its processes may be recorded, but the file
    is not handed out."""
    program = Path(shutil.copy(compile_c("spin", "int main(void) { for (volatile int i = 0;; i++) ; }"), bus.folder))
    os.chown(program, DAEMON, DAEMON)
    program.chmod(0o711)
    process = spawn(program, user=DAEMON, group=DAEMON, extra_groups=[])
    bus.start(buses.rules(allow={"record-others": ["nobody"], "record-system": ["daemon"]}))
    for user, options in (NOBODY, pids(process.pid)), (DAEMON, SYSTEM):
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        client = bus.client(user)
        path = client.create(options, file)
        client.session(path, "Start")
        let_run(process.pid)
        client.session(path, "Stop")
        assert client.wait("Finished", path)[0]
        rows = profcapture.json("dump", capture, "--table", "image", "--format", "json")["data"]["rows"]
        image = variant("(t)", (next(row["id"] for row in rows if row["path"] == str(program)),))
        libc = variant("(t)", (next(row["id"] for row in rows if "libc" in (row["path"] or "")),))
        client.session(path, "OpenImage", libc)
        if user == NOBODY:
            assert refusal(client.session, path, "OpenImage", image)[0] == "NotAuthorized"
        else:
            client.session(path, "OpenImage", image)
        os.close(client.files[0])
        client.session(path, "Close")


# ---- whose session it is


def test_foreign_session(bus, file, busy):
    """Invariant 2 of service.c: other users learn nothing about a session, and cannot affect it."""
    bus.start(OWN)
    owner, other = bus.client(NOBODY), bus.client(DAEMON)
    path = owner.create(pids(busy().pid), file)
    owner.session(path, "Start")
    assert other.objects() == {}
    for method, arguments in (
        ("Start", None), ("Stop", None), ("Pause", None), ("Resume", None), ("Close", None), ("OpenControl", None),
        ("OpenSysprof", None),
        ("OpenImage", variant("(t)", (1,))),
    ):
        assert refusal(other.session, path, method, arguments)[0] == "NotAuthorized"
    assert refusal(other.get, path, "Options")[0] == "NotAuthorized"
    assert refusal(other.call, path, PROPERTIES, "GetAll", variant("(s)", (SESSION,)))[0] == "NotAuthorized"
    assert owner.get(path, "State") == "running"
    assert path in owner.objects()


def test_another_connection_of_the_same_user(bus, file, busy):
    bus.start(OWN)
    owner, other = bus.client(NOBODY), bus.client(NOBODY)
    path = owner.create(pids(busy().pid), file)
    owner.session(path, "Start")
    assert other.get(path, "State") == "running"
    other.session(path, "Stop")
    owner.wait("Finished", path)
    assert path in other.objects()


def test_those_who_manage_others(bus, file, busy):
    """Managers, such as root by polkit's own rule, see and end the sessions of others, but get no
    files of these sessions."""
    bus.start(buses.rules(allow={"record-own": ["nobody"], "manage-others": ["daemon"]}))
    owner, manager = bus.client(NOBODY), bus.client(DAEMON)
    path = owner.create(pids(busy().pid), file)
    owner.session(path, "Start")
    assert path in manager.objects() and path in bus.client(0).objects()
    assert refusal(manager.session, path, "OpenImage", variant("(t)", (1,)))[0] == "NotAuthorized"
    manager.session(path, "Stop")
    owner.wait("Finished", path)


def test_signals_go_to_the_owner_alone(bus, file, busy):
    bus.start(OWN)
    owner, other, root = bus.client(NOBODY), bus.client(DAEMON), bus.client(0)
    for client in (other, root):  # they subscribe to all signals, as somebody who listens to broadcasts would
        with client.current():
            client.bus.signal_subscribe(None, None, None, None, None, 0, client.on_signal)
    path = owner.create(pids(busy().pid), file)
    owner.session(path, "Start")
    owner.wait("Progress", path)
    owner.session(path, "Close")
    owner.wait("InterfacesRemoved")
    for client in (other, root):
        client.get(ROOT, "Version", PROFILER)  # its answer comes after all earlier messages
        while client.context.iteration(False):
            pass
        assert [s for s in client.signals if s[1].startswith(ROOT)] == []


# ---- clients that go


def test_client_gone(bus, record, capture, profcapture):
    client, _ = record()
    root = bus.client(0)
    assert bus.engines()
    client.close()
    until(lambda: root.objects() == {})
    until(lambda: bus.engines() == [])
    info = profcapture.json("info", capture)["capture"]
    assert info["state"] == "finished" and info["samples"] >= 20
    assert root.get(ROOT, "Version", PROFILER)


def test_only_the_sessions_of_the_one_that_goes(bus, files, busy):
    bus.start(OWN)
    stays, goes = bus.client(NOBODY), bus.client(NOBODY)
    paths = [client.create(pids(busy().pid), files()) for client in (stays, goes)]
    stays.session(paths[0], "Start")
    goes.session(paths[1], "Start")
    goes.close()
    until(lambda: list(stays.objects()) == paths[:1])
    assert stays.get(paths[0], "State") == "running"


def test_nothing_is_watched_for_nobody(bus, file, busy):
    """profd removes its match rules for clients that are gone. The test gets the number of rules
    from the bus."""
    bus.start(OWN)
    root = bus.client(0)

    def rules():
        owner, = root.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "GetNameOwner", variant("(s)", (NAME,)),
                           name="org.freedesktop.DBus")
        stats, = root.call("/org/freedesktop/DBus", "org.freedesktop.DBus.Debug.Stats", "GetConnectionStats",
                           variant("(s)", (owner,)), name="org.freedesktop.DBus")
        return stats["MatchRules"]

    before, target = rules(), busy()
    for _ in range(20):
        client = bus.client(NOBODY)
        path = client.create(pids(target.pid), file)
        client.session(path, "Close")
        client.close()
    until(lambda: rules() <= before + 1)


def test_bus_that_hangs(bus, record, capture):
    """profd continues while the bus hangs, and does not accumulate messages that it cannot send;
    afterwards it works as before."""
    client, path = record()
    size = capture.stat().st_size
    bus.daemon.send_signal(signal.SIGSTOP)
    before = memory(bus.profd.pid)
    until(lambda: capture.stat().st_size > size)
    time.sleep(1)  # some Progress signals
    bus.daemon.send_signal(signal.SIGCONT)
    assert memory(bus.profd.pid) - before < 1 << 20
    client.session(path, "Stop")
    assert client.wait("Finished", path)[0]


def memory(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


MANY_THREADS = r"""
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *work(void *data) { pause(); return data; }
int main(int argc, char **argv)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 65536);
	for (int i = 1; i < atoi(argv[1]); i++)
		pthread_create(&thread, &small, work, NULL);
	pause();
}
"""


@pytest.fixture
def threads(compile_c, spawn):
    """Returns a function that starts a process of user nobody with n threads."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(compile_c("many-threads", MANY_THREADS, "-pthread"), folder)

        def make(n):
            target = spawn(program, str(n), user=NOBODY, group=NOBODY, extra_groups=[])
            until(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == n)
            return target

        yield make


@pytest.fixture
def many_threads(threads):
    return threads(1000)


class Served:
    """Measures the CPU time of profd's main thread between answers, while other clients wait, and
    that of the whole process."""

    def __init__(self, bus):
        self.pid = bus.profd.pid
        self.whole, self.times = whole_cpu_seconds(self.pid), [cpu_seconds(self.pid)]

    def answer(self):
        self.times.append(cpu_seconds(self.pid))

    def check(self):
        longest = max(end - begin for begin, end in zip(self.times, self.times[1:]))
        assert longest < (whole_cpu_seconds(self.pid) - self.whole) / 3


def test_others_are_served_while_many_threads_are_looked_at(bus, file, threads):
    """CreateSession reads the owner of each of the process's threads; other clients are served
    meanwhile."""
    bus.start(OWN)
    client, other = bus.client(NOBODY), bus.client(DAEMON)
    target = threads(4000)
    create, served = client.begin_create(pids(target.pid), file), Served(bus)
    while not create.done:
        assert other.objects() == {}
        served.answer()
        client.context.iteration(False)
    assert create.error is None
    served.check()


@pytest.mark.parametrize("how", ["leave", "terminate"])
def test_end_while_many_threads_are_looked_at(bus, file, threads, how):
    bus.start(OWN)
    client, other = bus.client(NOBODY), bus.client(NOBODY)
    target = threads(4000)
    create = client.begin_create(pids(target.pid), file)
    assert other.objects() == {}
    if how == "leave":
        client.close()
        last = other.create(pids(target.pid), file)  # began later and takes as long, so the first call is over
        assert list(bus.client(0).objects()) == [last]
        return
    assert bus.end(bus.profd) == 0
    bus.profd = None
    client.spin(lambda: create.done)
    assert create.error is not None


def test_others_are_served_while_many_threads_are_opened(bus, file, busy, tmp_path, many_threads):
    bus.start(OWN)
    client, other = bus.client(NOBODY), bus.client(DAEMON)
    with open(tmp_path / "other.cap", "w+b") as capture:
        session = other.create(pids(busy(DAEMON).pid), capture.fileno())
    path = client.create(pids(many_threads.pid), file)
    start, served = client.begin(path, SESSION, "Start"), Served(bus)
    while not start.done:
        assert other.get(session, "State") == "created"
        served.answer()
        client.context.iteration(False)
    assert start.error is None
    served.check()
    client.session(path, "Stop")
    assert client.wait("Finished", path)[0]


def test_stop_while_many_threads_are_opened(bus, file, capture, profcapture, many_threads):
    """However many events are open when the recording is stopped, the capture is complete, although
    it may be empty."""
    bus.start(OWN)
    client = bus.client(NOBODY)
    path = client.create(pids(many_threads.pid), file)
    start = client.begin(path, SESSION, "Start")
    client.session(path, "Stop")
    assert client.wait("Finished", path)[:2] == (True, "stopped")
    client.spin(lambda: start.done)
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


@pytest.mark.parametrize("how", ["leave", "terminate"])
def test_end_while_many_threads_are_opened(bus, file, many_threads, how):
    bus.start(OWN)
    client = bus.client(NOBODY)
    path = client.create(pids(many_threads.pid), file)
    client.begin(path, SESSION, "Start")
    until(bus.engines)
    if how == "terminate":
        assert bus.end(bus.profd) == 0
        bus.profd = None
    else:
        client.close()
        until(lambda: not bus.engines())
        assert bus.client(NOBODY).objects() == {}


# ---- errors of a client


def test_wrong_types_everywhere(bus, file, busy):
    bus.start(OWN)
    client = bus.client(NOBODY)
    path = client.create(pids(busy().pid), file)
    wrong = [variant("(s)", ("x",)), variant("(u)", (1,)), variant("(a{sv})", ({},)), variant("(hh)", (0, 1)),
             variant("(v)", (variant("s", ""),)), variant("(ttt)", (1, 2, 3)), None]
    right = {"CreateSession": "(a{sv}h)", "OpenImage": "(t)"}
    for where, interface, methods in (
        (ROOT, PROFILER, ["CreateSession", "GetCapabilities"]),
        (ROOT, MANAGER, ["GetManagedObjects"]),
        (path, SESSION, ["Start", "Stop", "Pause", "Resume", "OpenImage", "OpenControl", "OpenSysprof", "Close"]),
    ):
        for method in methods:
            for arguments in wrong:
                if (arguments.get_type_string() if arguments else "()") == right.get(method, "()"):
                    continue
                assert refusal(client.call, where, interface, method, arguments)[0].endswith("Error.InvalidArgs"), method
    assert client.get(path, "State") == "created"
    with pytest.raises(GLib.Error):
        client.call(path, PROPERTIES, "Set", variant("(ssv)", (SESSION, "State", variant("s", "running"))))
    with pytest.raises(GLib.Error):
        client.get(path, "Nothing")
    with pytest.raises(GLib.Error):
        client.session(path, "Nothing")


@pytest.mark.parametrize("options", [
    {f"key{i}": variant("s", "x" * 100) for i in range(20000)},
    {"events": variant("as", ["x" * 100] * 20000)},
    {"pids": from_bytes("au", array("I", range(1, 200000)).tobytes())},
    {"command": GLib.Variant.new_array(GLib.VariantType("ay"), [from_bytes("ay", b"x" * 1000)] * 1000)},
    {"call-graph": variant("s", "x" * 10**6)},
], ids=["keys", "events", "pids", "command", "text"])
def test_giant_options(bus, file, options):
    bus.start(EVERYTHING)
    client = bus.client(NOBODY)
    before = memory(bus.profd.pid)
    assert refusal(client.create, {**SYSTEM, **options}, file)[0] in ("InvalidOption", "LimitExceeded")
    assert client.objects() == {}
    assert memory(bus.profd.pid) - before < 64 << 20


def test_handles_of_nothing(bus, file):
    bus.start(EVERYTHING)
    client = bus.client(NOBODY)
    for index in (1, 2**31 - 1, -1):
        with pytest.raises(GLib.Error):
            client.call(ROOT, PROFILER, "CreateSession", variant("(a{sv}h)", (SYSTEM, index)), [file])
    with pytest.raises(GLib.Error):
        client.call(ROOT, PROFILER, "CreateSession", variant("(a{sv}h)", ({**SYSTEM, "lifetime": variant("h", 7)}, 0)),
                    [file])
    before = len(os.listdir(f"/proc/{bus.profd.pid}/fd"))
    for _ in range(20):
        with pytest.raises(GLib.Error):
            client.create({"nothing": variant("b", True)}, file, file, file)
    # GIO's thread releases a message a little later
    until(lambda: len(os.listdir(f"/proc/{bus.profd.pid}/fd")) <= before)


# ---- the bus and the service


def test_policy(bus):
    """Our policy lets only root own the name, and everybody call profd's methods; it allows nothing
    else."""
    bus.start(EVERYTHING, profd=False)
    nobody, root = bus.client(NOBODY), bus.client(0)
    own = variant("(su)", (NAME, 4))
    error = refusal(lambda: nobody.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "RequestName", own,
                                        name="org.freedesktop.DBus"))
    assert error[0].endswith("AccessDenied")
    assert root.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "RequestName", own, name="org.freedesktop.DBus") == (1,)
    for interface in ("org.profd.Other", "org.freedesktop.systemd1.Manager"):
        assert refusal(nobody.call, ROOT, interface, "Method")[0].endswith("AccessDenied")
    root.call("/org/freedesktop/DBus", "org.freedesktop.DBus", "ReleaseName", variant("(s)", (NAME,)),
              name="org.freedesktop.DBus")


def test_second_profd(bus):
    bus.start(EVERYTHING)
    first = bus.profd
    second = bus.start_profd(wait=False)
    assert second.wait(timeout=20) == 1
    bus.profd = first
    assert bus.client().get(ROOT, "Version", PROFILER)


def test_ends_when_nobody_needs_it(bus, file, busy):
    """profd exits when it has no sessions, recording or not, and the idle timeout has passed since the
    last answered call."""
    bus.start(OWN, profd=False)
    profd = bus.start_profd("--idle-timeout=1")
    client = bus.client(NOBODY)
    path = client.create(pids(busy().pid), file)
    client.sleep(1.5)
    assert profd.poll() is None
    client.session(path, "Start")
    client.sleep(1.5)
    client.session(path, "Stop")
    assert client.wait("Finished", path)[0]
    client.session(path, "Close")
    begin = answered = time.monotonic()
    while answered - begin < 1.5:
        client.sleep(0.1)
        asked = time.monotonic()
        try:
            assert client.objects() == {}
        except GLib.Error:
            assert asked - answered > 1, "profd is gone too soon"
            break
        answered = asked
    assert profd.wait(timeout=10) == 0
    bus.profd = None


def test_sigterm_finishes_the_files(bus, record, capture, profcapture):
    record()
    assert bus.end(bus.profd) == 0
    bus.profd = None
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


def test_sigterm_beside_a_bus_that_hangs(bus, record, capture, profcapture):
    """profd finishes the files and exits, although the bus does not confirm the release of profd's
    name."""
    record()
    bus.daemon.send_signal(signal.SIGSTOP)
    bus.profd.send_signal(signal.SIGTERM)
    try:
        assert bus.profd.wait(timeout=10) == 0
    finally:
        bus.daemon.send_signal(signal.SIGCONT)
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


def test_bus_restart(bus, record, file, capture, profcapture):
    """Without a bus the clients are unknown: files are finished, and profd exits. When the bus runs
    again, another profd works."""
    record()
    bus.stop_daemon()
    assert bus.profd.wait(timeout=20) == 0
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"
    bus.stop_polkit()
    bus.clients.clear()
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    client, path = record()
    client.session(path, "Stop")
    assert client.wait("Finished", path)[0]


def test_engine_is_the_one_beside_profd(bus, file, busy, tmp_path):
    """A service's environment does not choose the engine: profd starts the engine in its own folder."""
    bus.start(EVERYTHING, profd=False)
    bus.start_profd(PROF_LIBEXEC_DIR=str(tmp_path))
    client = bus.client(NOBODY)
    path = client.create(pids(busy().pid), file)
    client.session(path, "Start")
    assert len(bus.engines()) == 1
