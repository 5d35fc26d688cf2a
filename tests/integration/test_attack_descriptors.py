# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A compromised engine can only read from its descriptors, except for perf events and the
capture."""
import collections
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import fuse
from test_dbus_private import HOSTILE_ENGINE, SYSTEM, hostile, variant  # noqa: F401 (fixtures)

NOBODY = 65534
MANY = 64  # messages that may wait for an engine in addition to those in its socket
CONFIG, CPU, SNAPSHOT, IMAGE, EVENTS, OUTPUTS = 1, 2, 7, 8, 9, 15
SEALED = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
SERIALS = 1, 2, 3  # of the requested snapshots: the one read ahead, one of all processes, one of one process
STACKS, MAX_STACK = 4, 1 << 16  # the serial of the requested stacks; maximum bytes of a stack
PATH_IMAGE, MAPPED_IMAGE = 10, 11

# An engine that reports the descriptors of each message, and requests everything that it can.
TELL = """
import fcntl, hashlib, json
def look(fd):
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        seals = None
    return os.readlink("/proc/self/fd/" + str(fd)), fcntl.fcntl(fd, fcntl.F_GETFL), seals
def tell(datagram, fds):
    kind, length, number = struct.unpack("IIQ", datagram[:16].ljust(16, b"\\0"))
    text = json.dumps([kind, number & 0xffffffff, [look(fd) for fd in fds]])
    send(WARNING, struct.pack("32s480s", b"descriptors", text.encode()))
def ask_image(number, start, end, path):
    send(IMAGE, struct.pack("5QiI", number, start, end, 0, 0, who, len(path)) + path)
who = %d or os.getpid()
def ask_stacks(tids):
    send(MEMORY_USAGE, struct.pack("III%%di" %% len(tids), 4, 1, len(tids), *tids))
def tell_stacks(fd):
    # Reports [(tid, sp, SHA-256 of the stack, its size)] of an answer.
    answer, stacks = os.pread(fd, 1 << 24, 0), []
    while answer:
        kind, length, _, tid, _ = struct.unpack_from("IIiiQ", answer)
        if kind == 14:  # SNAPSHOT_STACK
            _, _, _, sp, _, size, _ = struct.unpack_from("QqQQQII", answer, 24)
            stack = answer[24 + length - size:24 + length]
            stacks.append((tid, sp, hashlib.sha256(stack).hexdigest(), size))
        answer = answer[24 + length:]
    send(WARNING, struct.pack("32s480s", b"stacks", json.dumps(stacks).encode()))
def ask(path):
    ask_stacks(%s)
    with open("/proc/" + str(who) + "/maps") as maps:
        library = next(line.split() for line in maps if ".so" in line and " r-xp " in line)
    for serial, pid in (1, 0), (2, 0), (3, who):
        send(SNAPSHOT, struct.pack("IiII", serial, pid, 0, 0))
    ask_image(10, 0, 0, path)
    ask_image(11, *(int(end, 16) for end in library[0].split("-")), library[5].encode())
while True:
    datagram, fds, *_ = socket.recv_fds(sock, 65536, 64)
    if not datagram:
        break
    tell(datagram, fds)
    if datagram[:4] == struct.pack("I", 7) and datagram[8:12] == struct.pack("I", 4):
        tell_stacks(fds[0])
    if datagram[:4] == struct.pack("I", 3):  # MESSAGE_START
        started()
        ask(%r)
"""

# An engine that requests very many files before it reads their answers, and one more file afterwards.
# It reports how often each answer came, as {"error, descriptors": number}, and the last answer.
ASK_UNREAD = """
import collections, json
path = os.readlink(b"/proc/self/exe")
def ask(number):
    send(IMAGE, struct.pack("5QiI", number, 0, 0, 0, 0, os.getpid(), len(path)) + path)
def answer():
    while True:
        datagram, fds, *_ = socket.recv_fds(sock, 65536, 64)
        for fd in fds:
            os.close(fd)
        if datagram[:4] == struct.pack("I", 8):  # MESSAGE_IMAGE
            return "%%d, %%d" %% (struct.unpack_from("i", datagram, 16)[0], len(fds))
while sock.recv(65536)[:4] != struct.pack("I", 3):  # MESSAGE_START
    pass
started()
for number in range(%d):
    ask(number)
answers = collections.Counter(answer() for _ in range(%d))
ask(1 << 20)
send(WARNING, struct.pack("32s480s", b"answers", json.dumps([answers, answer()]).encode()))
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


@pytest.fixture
def told(hostile):  # noqa: F811
    """told(capture, image, options) records, and returns {(type, number): [(name, F_GETFL,
    F_GET_SEALS)]}: the descriptors of all messages to the engine. number: the first word of a
    message's body, which is a serial, an image or a CPU, and in CONFIG 1 for "system"."""
    wanted = {(SNAPSHOT, serial) for serial in SERIALS} | {(IMAGE, PATH_IMAGE), (IMAGE, MAPPED_IMAGE)}

    def record(capture, image, **options):
        with hostile(TELL % (0, "[os.getpid()]", os.fsencode(image))) as profd:
            path = profd.create({**SYSTEM, **options}, capture)
            profd.session(path, "Start")
            got = {}
            while not wanted <= set(got):
                text = profd.wait("Warning", path, first="descriptors")[1]
                profd.signals = [s for s in profd.signals if s[3][1:2] != (text,)]
                kind, number, fds = json.loads(text)
                got[kind, number] = fds
            os.kill(profd.engines()[0], signal.SIGKILL)
            profd.wait("Finished", path)
        return got

    return record


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(b"\177ELF")
    path.chmod(0o666)
    return path


@pytest.fixture
def served(tmp_path):
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(fuse.mounted(tmp_path / "mount", b"\177ELF" * 5000, tmp_path / "stop"))
        except OSError as error:
            pytest.skip(f"no FUSE can be mounted here: {error}")
        yield server.file


def empty_file(capture, flags=os.O_RDWR):
    return os.open(capture, flags | os.O_CREAT | os.O_EXCL, 0o600)


def assert_sealed(fds):
    (name, _, seals), = fds
    assert name.startswith("/memfd:") and seals == SEALED


def assert_read_only(fds, *names):
    assert [name for name, *_ in fds] == list(names)
    assert all(flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_PATH for _, flags, _ in fds)


def test_everything_that_is_read(told, image, capture):
    """Files of /proc and images are open for reading only; memfds are sealed."""
    fd = empty_file(capture)
    got = told(fd, image, **{"call-graph": variant("s", "dwarf")})
    os.close(fd)
    assert_read_only(got[CONFIG, 1][1:], "/proc/stat", "/sys/devices/system/cpu/online", "/proc/kallsyms")
    for serial in SERIALS:
        assert_sealed(got[SNAPSHOT, serial])
    assert_read_only(got[IMAGE, PATH_IMAGE], str(image))
    (library, *_), = got[IMAGE, MAPPED_IMAGE]
    assert ".so" in library
    assert_read_only(got[IMAGE, MAPPED_IMAGE], library)
    events = [fd for (kind, _), fds in got.items() if kind == CPU for fd in fds]
    assert events and all(name == "anon_inode:[perf_event]" for name, *_ in events)
    assert {kind for kind, _ in got if got[kind, _]} == {CONFIG, CPU, SNAPSHOT, IMAGE}


def test_nothing_that_is_not_needed(told, image, capture):
    """Without copied stacks, the engine gets no images; without the kernel, no kernel symbols."""
    fd = empty_file(capture)
    got = told(fd, image, kernel=variant("b", False), **{"call-graph": variant("s", "fp")})
    os.close(fd)
    assert_read_only(got[CONFIG, 1][1:], "/proc/stat", "/sys/devices/system/cpu/online")
    assert got[IMAGE, PATH_IMAGE] == got[IMAGE, MAPPED_IMAGE] == []


def test_copy_of_a_file_that_is_served(served, told, capture):
    fd = empty_file(capture)
    got = told(fd, served, **{"call-graph": variant("s", "dwarf")})
    os.close(fd)
    assert_sealed(got[IMAGE, PATH_IMAGE])


def test_files_that_nobody_takes(hostile, capture):  # noqa: F811
    """An engine that does not read gets no more files than its socket and profd's queue hold. The
    engine may request the other files again, and gets them when it reads."""
    held = int(Path("/proc/sys/net/core/wmem_default").read_text()) // 512  # maximum number of messages in a socket
    # When the engine begins to read, up to `held` + 256 requests may still wait or be worked on; all
    # others are answered.
    answered = held + 200
    asked = answered + held + 256
    fd = empty_file(capture)
    with hostile(ASK_UNREAD % (asked, asked)) as profd:
        path = profd.create({**SYSTEM, "call-graph": variant("s", "dwarf")}, fd)
        profd.session(path, "Start")
        answers, last = json.loads(profd.wait("Warning", path, first="answers")[1])
        os.kill(profd.engines()[0], signal.SIGKILL)
        profd.wait("Finished", path)
    os.close(fd)
    file, again = "0, 1", f"{errno.EAGAIN}, 0"
    assert set(answers) == {file, again} and sum(answers.values()) == asked
    assert answers[again] >= answered - held - MANY
    assert last == file


@pytest.fixture
def own_engine(tmp_path, spawn, capture):
    """own_engine(off_cpu, call_graph) records a sleeping process of the user `nobody`, in a session of this
    user's own processes, with events by thread. Returns the engine's reports by code, that process, and a
    process of another user, whose stacks the engine also requests."""
    target = spawn("sleep", 60, user=NOBODY, group=NOBODY, extra_groups=[])
    other = spawn("sleep", 60)
    while "sleep" not in os.readlink(f"/proc/{target.pid}/exe") or ".so" not in Path(f"/proc/{target.pid}/maps").read_text():
        pass
    folder = tmp_path / "libexec"
    folder.mkdir()
    asked = sorted([target.pid, other.pid])
    (folder / "profd-engine").write_text(HOSTILE_ENGINE % (TELL % (target.pid, asked, b"/etc/shadow")))
    (folder / "profd-engine").chmod(0o755)
    (folder / "profd-files").symlink_to(Path(os.environ["PROFD"]).parent / "profd-files")

    def record(off_cpu, call_graph="dwarf"):
        done = subprocess.run(
            [os.environ["DRIVE_ENGINE"], capture, "2", f"uid={NOBODY}", "own-only=true", f"pids={target.pid}",
             f"call-graph={call_graph}", "events=cpu-clock,page-faults", f"off-cpu={str(off_cpu).lower()}"],
            env={**os.environ, "PROF_LIBEXEC_DIR": str(folder)}, stderr=subprocess.PIPE, encoding="utf-8", timeout=60, check=False)
        told = collections.defaultdict(list)
        for code, text in re.findall("^drive-engine: (descriptors|stacks): (.*)", done.stderr, re.M):
            told[code].append(json.loads(text))
        return told, target, other

    return record


def test_stacks_of_own_processes(own_engine):
    """The engine gets the stacks of the user's threads, but no other memory, because it cannot
    choose the address."""
    told, target, _ = own_engine(off_cpu=True)
    ((tid, sp, digest, size),), = told["stacks"]
    assert tid == target.pid and 0 < size <= MAX_STACK
    assert sp == int(Path(f"/proc/{tid}/syscall").read_text().split()[-2], 16)
    with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:
        memory.seek(sp)
        assert hashlib.sha256(memory.read(MAX_STACK)).hexdigest() == digest


def test_stacks_that_are_not_walked(own_engine):
    """The engine gets no stacks if it has no use for them."""
    told, *_ = own_engine(off_cpu=True, call_graph="fp")
    assert told["descriptors"] and not told["stacks"]


def test_session_of_own_processes(own_engine):
    """The engine gets events of threads, only files that the user may read, and nothing that is
    open for writing. If waits are not recorded, it gets no stacks."""
    told, *_ = own_engine(off_cpu=False)
    own = {(kind, number): fds for kind, number, fds in told["descriptors"]}
    assert not told["stacks"] and (SNAPSHOT, STACKS) not in own
    assert_read_only(own[CONFIG, 0][1:], "/proc/stat", "/sys/devices/system/cpu/online", "/proc/kallsyms")
    for serial in SERIALS:
        assert_sealed(own[SNAPSHOT, serial])
    assert own[IMAGE, PATH_IMAGE] == []
    (library, *_), = own[IMAGE, MAPPED_IMAGE]
    assert ".so" in library
    assert_read_only(own[IMAGE, MAPPED_IMAGE], library)
    events = {kind: [fd for (other, _), fds in own.items() if other == kind for fd in fds] for kind in (CPU, EVENTS)}
    cpus = os.sysconf("SC_NPROCESSORS_ONLN")
    # two rings a CPU; for each thread the side band (the records about mappings and tasks) and two
    # events on each CPU
    assert len(events[CPU]) == 2 * cpus and len(events[EVENTS]) == 3 * cpus
    assert all(name == "anon_inode:[perf_event]" for name, *_ in events[CPU] + events[EVENTS])
    # with BPF, two events a CPU that only profd's BPF program writes to
    outputs = [fd for (kind, _), fds in own.items() if kind == OUTPUTS for fd in fds]
    assert len(outputs) in (0, 2 * cpus) and all(name == "anon_inode:[perf_event]" for name, *_ in outputs)
    assert {kind for kind, _ in own if own[kind, _]} - {OUTPUTS} == {CONFIG, CPU, EVENTS, SNAPSHOT, IMAGE}


@pytest.mark.parametrize("flags", [
    os.O_RDWR, os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_SYNC | os.O_NONBLOCK, None])
def test_capture_is_what_the_client_opened(told, image, capture, flags):
    """The flags of the client's descriptor decide whether the file is written in place or
    sequentially, and whether a pipe blocks."""
    reading, fd = os.pipe() if flags is None else (None, empty_file(capture, flags))
    opened, inode = fcntl.fcntl(fd, fcntl.F_GETFL), os.fstat(fd).st_ino
    name, given, _ = told(fd, image)[CONFIG, 1][0]
    assert name == (f"pipe:[{inode}]" if flags is None else str(capture))
    assert given == opened == fcntl.fcntl(fd, fcntl.F_GETFL)
    for end in (reading, fd):
        if end is not None:
            os.close(end)
