# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Limits of one user of a profd that serves many users, a client that never reads and must not harm
others, and the rights of profd's processes."""
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import buses
from buses import DAEMON, MANAGER, NOBODY, PROFILER, ROOT, pids, refusal, variant
from recordings import let_run, until
from test_dbus_private import FLOOD, HOSTILE_ENGINE

OWN = buses.rules(allow={"record-own": ["nobody", "daemon"]})
KEPT = sum(1 << bit for bit in (2, 5, 6, 7, 8, 14, 19, 23, 34, 38, 39, 40))  # capabilities; test_capabilities has their names


@pytest.fixture
def busy(spawn):
    """Returns a function that starts a process as the user with the given uid."""
    return lambda uid=NOBODY: spawn("sleep", 600, user=uid, group=uid, extra_groups=[])


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
def engine(bus, monkeypatch):
    """engine(script) replaces the engine of a copy of profd, because the system's profd starts only the
    engine in its own folder."""

    def install(script):
        folder = bus.folder / "libexec"
        folder.mkdir(mode=0o755)
        built = Path(os.environ["PROFD"])
        for name in (built.name, "profd-files"):
            shutil.copy(built.parent / name, folder)
        (folder / "profd-engine").write_text(HOSTILE_ENGINE % script)
        (folder / "profd-engine").chmod(0o755)
        monkeypatch.setenv("PROFD", str(folder / built.name))

    return install


def limit(client, name):
    return client.get(ROOT, name, PROFILER)


def size(pid):
    """Returns the memory and the number of descriptors of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


# ---- limits of a user


def test_sessions(bus, file, busy):
    """A user's limit holds for all connections of the user together, also after many refusals. Root
    can open sessions up to the limit for all users; other users cannot open ReservedSessions of
    these."""
    bus.start(OWN)
    first, second, daemon, root = bus.client(NOBODY), bus.client(NOBODY), bus.client(DAEMON), bus.client(0)
    own, others = pids(busy().pid), pids(busy(DAEMON).pid)
    paths = [client.create(own, file) for client in (first, second) for _ in range(limit(root, "MaxSessionsPerUser") // 2)]
    before = size(bus.profd.pid)
    for n in range(250):
        name, message = refusal((first, second)[n % 2].create, own, file)
        assert name == "LimitExceeded" and "MaxSessionsPerUser" in message
    until(lambda: size(bus.profd.pid)[1] <= before[1])
    assert size(bus.profd.pid)[0] - before[0] < 1 << 20
    for _ in range(200):  # when Close is answered, there is room for a session
        second.session(paths[-1], "Close")
        paths[-1] = first.create(own, file)
    daemon.create(others, file)
    for n in range(limit(root, "MaxSessions") - len(paths) - 1):
        root.create(buses.SYSTEM, file)
        if n == limit(root, "MaxSessions") - limit(root, "ReservedSessions") - len(paths) - 2:
            name, message = refusal(daemon.create, others, file)
            assert name == "LimitExceeded" and "ReservedSessions" in message
    for client, options in (root, buses.SYSTEM), (daemon, others):
        name, message = refusal(client.create, options, file)
        assert name == "LimitExceeded" and "MaxSessions;" in message
    first.session(paths[-1], "Close")
    root.create(buses.SYSTEM, file)


def test_memory_of_engines(bus, files, busy):
    """A user's recordings may take a limited amount of memory together."""
    bus.start(OWN)
    client, other = bus.client(NOBODY), bus.client(DAEMON)
    own = pids(busy().pid)
    count = limit(client, "MaxEngineBytesPerUser") // limit(client, "MaxEngineBytes")
    paths = [client.create(own, files()) for _ in range(count + 1)]
    for path in paths[:-1]:
        client.session(path, "Start")
    name, message = refusal(client.session, paths[-1], "Start")
    assert name == "LimitExceeded" and "MaxEngineBytesPerUser" in message
    assert len(bus.engines()) == count
    path = other.create(pids(busy(DAEMON).pid), files())
    other.session(path, "Start")
    client.session(paths[0], "Stop")
    assert client.wait("Finished", paths[0])[0]
    client.session(paths[-1], "Start")
    assert client.get(paths[-1], "State") == "running"


@pytest.mark.parametrize("option, name", [("max-bytes", "MaxCaptureBytes"), ("max-duration", "MaxDuration"), ("max-rate", "MaxSampleRate")])
def test_more_than_the_limit(bus, file, busy, option, name):
    bus.start(OWN)
    client, root = bus.client(NOBODY), bus.client(0)
    most, own = limit(client, name), pids(busy().pid)
    error, message = refusal(client.create, {**own, option: variant("t", most + 1)}, file)
    assert error == "LimitExceeded" and f'"{option}"' in message and name in message
    client.create({**own, option: variant("t", most)}, file)
    root.create({**own, option: variant("t", most + 1)}, file)


def test_threads_of_a_user_do_not_take_all_descriptors(bus, files, busy, spawn):
    """The per-thread events of a user take at most a quarter of profd's descriptors. Meanwhile, other
    users can record, and root can record more."""
    bus.start(OWN)
    nobody, daemon, root = bus.client(NOBODY), bus.client(DAEMON), bus.client(0)
    most, a_thread = limit(nobody, "MaxThreadEventsPerUser"), os.cpu_count() * 9
    assert most <= 65536, "profd may open so many that no program has as many threads"
    crowd = spawn("/usr/bin/python3", "-c", f"""
import threading, time
threading.stack_size(65536)
for _ in range({most // a_thread + 20}):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("there", flush=True)
time.sleep(600)
""", user=NOBODY, group=NOBODY, extra_groups=[], stdout=subprocess.PIPE)
    assert crowd.stdout.readline().strip() in ("there", b"there")
    wanted = {**pids(crowd.pid), "events": variant("as", [
        "cpu-clock", "page-faults", "context-switches", "cpu-migrations", "minor-faults", "major-faults", "task-clock", "alignment-faults"])}
    for _ in range(3):
        path = nobody.create(wanted, files())
        name, message = refusal(nobody.session, path, "Start")
        assert name == "LimitExceeded" and "MaxThreadEventsPerUser" in message
    for client, options in (daemon, pids(busy(DAEMON).pid)), (root, wanted):  # root has no limit
        path = client.create(options, files())
        client.session(path, "Start")
        client.session(path, "Stop")
        assert client.wait("Finished", path)[0]


ENDS = """
config = sock.recv(65536)
limited = struct.pack("QQ", %d, %d) in config
while sock.recv(65536)[:4] != struct.pack("I", 3):  # MESSAGE_START
    pass
started()
send(FINISHED, struct.pack("IIiI", 1, %d if limited else 7, 0, 0) + bytes(224))
"""


@pytest.mark.parametrize("reason, number, name", [("size", 4, "MaxCaptureBytes"), ("duration", 3, "MaxDuration")])
def test_end_by_a_limit(bus, engine, file, busy, reason, number, name):
    """The engine gets the limit, and the client learns why the session ended. The engine here only
    pretends to have reached the limit, because a day or 64 GiB would take too long."""
    engine(ENDS % (64 << 30, 24 * 3600 * 10**9, number))
    bus.start(OWN)
    client, root = bus.client(NOBODY), bus.client(0)
    assert (limit(client, "MaxCaptureBytes"), limit(client, "MaxDuration")) == (64 << 30, 24 * 3600 * 10**9)
    path = client.create(pids(busy().pid), file)
    client.session(path, "Start")
    assert client.wait("Finished", path)[:2] == (True, reason)
    assert name in client.wait("Warning", path, first="quota")[1]
    path = root.create(pids(busy().pid), file)  # root has no limits
    root.session(path, "Start")
    assert root.wait("Finished", path)[1] == "internal"


# ---- a client that never reads

STUCK = """
import os, signal, sys, buses
client = buses.Client(sys.argv[1], int(sys.argv[2]))
path = client.create(buses.pids(int(sys.argv[3])), os.open(sys.argv[4], os.O_RDWR | os.O_CREAT, 0o600))
client.session(path, "Start")
print(path, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_client_that_never_reads(bus, engine, file, busy, tmp_path, spawn):
    """The client's engine is compromised and floods the client with warnings, which the bus would
    queue: profd limits them, and serves others meanwhile."""
    engine(FLOOD)
    bus.start(OWN)
    stuck = spawn(sys.executable, "-c", STUCK, bus.address, NOBODY, busy().pid, tmp_path / "stuck.cap", stdout=subprocess.PIPE,
                  env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)})
    path = stuck.stdout.readline().decode().strip()
    other, root = bus.client(DAEMON), bus.client(0)
    daemon = bus.daemon.pid
    let_run(bus.profd.pid, 0.3)
    before = size(bus.profd.pid), size(daemon)
    let_run(bus.profd.pid, 0.5)
    for (memory, _), pid in zip(before, (bus.profd.pid, daemon)):
        assert size(pid)[0] - memory < 2 << 20
    session = other.create(pids(busy(DAEMON).pid), file)
    other.session(session, "Start")
    assert other.get(session, "State") == "running"
    assert set(root.call(ROOT, MANAGER, "GetManagedObjects")[0]) == {path, session}
    stuck.kill()
    until(lambda: path not in root.objects())


# ---- rights of profd's processes


def status(pid):
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


def writable(pid):
    """Returns the regular files, except memfds, that a process could write to by its descriptors,
    without the standard streams."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        if int(fd.name) <= 2:
            continue
        flags = int((Path(f"/proc/{pid}/fdinfo") / fd.name).read_text().split("flags:")[1].split()[0], 8)
        if flags & os.O_ACCMODE != os.O_RDONLY and stat.S_ISREG(fd.stat().st_mode) and not os.readlink(fd).startswith("/memfd:"):
            found.append(os.readlink(fd))
    return found


def test_rights(bus, file, busy, capture):
    """Other tests cover each restriction (broker-sandbox, engine-sandbox, capabilities); here all of
    them are in force together."""
    bus.start(OWN)
    client = bus.client(NOBODY)
    path = client.create(pids(busy().pid), file)
    client.session(path, "Start")
    broker, engine = (status(pid) for pid in (bus.profd.pid, *bus.engines()))
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(broker[kind], 16) & ~KEPT == 0 and int(engine[kind], 16) == 0, kind
    assert not {"0", str(NOBODY)} & {*engine["Uid"].split(), *engine["Gid"].split(), *engine["Groups"].split()}
    for process in broker, engine:
        assert (process["NoNewPrivs"], process["Seccomp"]) == ("1", "2")
    assert int(engine["Seccomp_filters"]) > int(broker["Seccomp_filters"])  # the engine inherits the broker's filter
    # only the engine has the capture
    assert writable(bus.profd.pid) == [] and writable(bus.engines()[0]) == [str(capture)]
