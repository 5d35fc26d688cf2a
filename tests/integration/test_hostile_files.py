# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Targets use files that block, mislead or flood the process that opens them: all other targets are
still recorded."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

import fuse
from recordings import children, cpu_seconds, let_run, processes, until

pytestmark = pytest.mark.usefixtures("nothing_is_left")

SPIN = "int spin(void); int spin(void) { for (volatile int i = 0;; i++) ; } int main(void) { return spin(); }"

# A program that leaves most of the CPU time to others, for a recording that takes seconds.
NAP = "#include <unistd.h>\nint main(void) { for (;; usleep(10000)) for (volatile int i = 0; i < 1000000; i++) ; }"

# A program whose memory cannot be inspected: one thread waits for a page of a file; another thread
# maps the file without its cached pages, and holds the lock of the process's mappings while it waits
# for that page. argv: the user to become, the file.
LOCKED_MEMORY = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
static int cached, direct;
static char buffer[4096];
static void *read_page(void *data)
{
	return pread(cached, buffer, sizeof(buffer), 0) < 0 ? NULL : data;
}
static void *map_page(void *data)
{
	usleep(200000);
	return mmap(0, 4096, PROT_READ, MAP_PRIVATE, direct, 0);
}
int main(int argc, char **argv)
{
	uid_t uid = (uid_t)atoi(argv[1]);
	pthread_t a, b;

	cached = open(argv[2], O_RDONLY);
	direct = open(argv[2], O_RDONLY | O_APPEND);
	if (cached < 0 || direct < 0 || setresgid(uid, uid, uid) || setresuid(uid, uid, uid) || prctl(PR_SET_DUMPABLE, 1))
		return 1;
	if (write(1, "x", 1) != 1 || read(0, buffer, 1) != 1)
		return 1;
	pthread_create(&a, 0, read_page, 0);
	pthread_create(&b, 0, map_page, 0);
	for (;; usleep(10000))
		for (volatile int i = 0; i < 1000000; i++)
			;
}
"""

# A program that maps a file, and runs a loop of two bytes at 0x2000 in it.
RUN_FILE = r"""
#include <fcntl.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDONLY);
	char *map = mmap(0, 0x100000, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);

	((void (*)(void))(map + 0x2000))();
}
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


@pytest.fixture
def spin(compile_c):
    return compile_c("spin", SPIN)


@pytest.fixture
def nap(compile_c):
    return compile_c("nap", NAP)


@pytest.fixture
def public():
    """A folder that everybody can reach, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="prof-test-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def served(public, spin, spawn, recorder):
    """served(bytes) mounts a filesystem with a file of these bytes; it is unmounted before the
    processes that it blocks are ended."""
    with contextlib.ExitStack() as stack:
        def make(content):
            try:
                return stack.enter_context(fuse.mounted(public / "mount", content, public / "stop"))
            except OSError as error:
                pytest.skip(f"no FUSE can be mounted here: {error}")

        yield make


class Recording:
    """Runs profctl record --system while a command sleeps; `end` returns profctl's messages. (If
    profctl recorded only a process that waits for a file, profctl would wait forever.)"""

    def __init__(self, recorder, capture, *arguments):
        self.process = recorder("--system", "--no-symbols", "-o", capture, *arguments, "--", "sleep", 100)
        until(lambda: processes("profd-files"))
        self.helpers = processes("profd-files")

    def wait(self, *processes):
        """Waits until the recording has begun. Then lets one process after the other run long
        enough to have samples, and stops it, to save CPU time."""
        until(lambda: "sleep" in children(self.process.pid))
        for process in processes:
            process.send_signal(signal.SIGCONT)
            let_run(process.pid, 0.2)
            process.send_signal(signal.SIGSTOP)

    def wait_for_stuck(self):
        """Waits until profd has killed one of the first profd-files processes."""
        until(lambda: any(is_killed(pid) for pid in self.helpers))

    def end_command(self):
        os.kill(children(self.process.pid)["sleep"], signal.SIGINT)

    def end(self):
        self.end_command()
        status = self.process.wait(timeout=30)
        # Do not read to EOF, because a stuck, sanitized profd-files also has stderr open.
        errors = os.read(self.process.stderr.fileno(), 65536).decode()
        assert status == 130, errors
        return errors


def is_killed(pid):
    """Returns whether SIGKILL was sent to a process, even if it is blocked and cannot end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = re.findall(r"^S(?:ig|hd)Pnd:\t(\w+)$", status, re.MULTILINE)
    return any(int(bits, 16) & 1 << signal.SIGKILL - 1 for bits in pending)


@pytest.fixture
def record(recorder, capture):
    return lambda *arguments: Recording(recorder, capture, *arguments)


def rows(profcapture, capture, table, *options):
    return profcapture.json("dump", capture, "--table", table, *options)["data"]["rows"]


def samples_of(profcapture, capture, pid):
    return rows(profcapture, capture, "sample", "--pid", pid)


def assert_recorded(profcapture, capture, pid):
    """Checks that this process has samples, and stacks walked through its files."""
    samples = samples_of(profcapture, capture, pid)
    assert len(samples) > 20
    assert sum(row["user_stop"] == "root" for row in samples) > len(samples) / 2


def test_file_that_hangs(served, spin, spawn, record, profcapture, capture):
    server = served(spin.read_bytes())
    other = spawn(spin)
    victim = spawn(server.file)
    let_run(victim.pid, 0.01)
    victim.send_signal(signal.SIGSTOP)  # a sample would make profd-files open the file
    server.hang()
    recording = record()
    recording.wait(other, victim)
    until(lambda: processes("profd-files") - recording.helpers)  # a stuck profd-files is replaced
    recording.wait_for_stuck()
    errors = recording.end()
    assert f"process {victim.pid} " in errors
    assert_recorded(profcapture, capture, other.pid)
    assert samples_of(profcapture, capture, victim.pid)
    server.let_go()


def test_file_that_begins_to_hang(served, spin, spawn, record, profcapture, capture):
    """The file's server stops answering after the engine got a copy of the file."""
    server = served(spin.read_bytes())
    other = spawn(spin)
    victim = spawn(server.file)
    recording = record()
    recording.wait(victim)
    server.hang()
    late = spawn("sh", "-c", 'exec "$0"', server.file)
    until(lambda: state_of(late) in "SD")  # the late process waits for the server
    recording.wait(victim, other)
    recording.end()
    # the engine had a copy of the file, and did not read it again
    assert_recorded(profcapture, capture, victim.pid)
    assert_recorded(profcapture, capture, other.pid)
    server.let_go()


@pytest.fixture
def locked(served, compile_c, spawn):
    """locked(uid, …) starts, for each uid, a process that waits while it holds the lock of its own
    mappings."""
    program = compile_c("locked", LOCKED_MEMORY, "-pthread")

    def start(*uids):
        server = served(b"x" * 8192)
        started = [spawn(program, uid, server.file, stdout=subprocess.PIPE, stdin=subprocess.PIPE) for uid in uids]
        for process in started:
            assert process.stdout.read(1) == b"x"
        server.hang()
        for process in started:
            process.stdin.write(b"x")
            process.stdin.flush()
        for process in started:  # the thread that has the lock waits for the page
            until(lambda: "D" in [state_of(process, tid) for tid in os.listdir(f"/proc/{process.pid}/task")])
        return started

    return start


def state_of(process, tid=None):
    return Path(f"/proc/{process.pid}/task/{tid or process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_locked_memory(locked, nap, spawn, record, profcapture, capture):
    other = spawn(nap)
    victim, = locked(0)
    late = spawn(nap)
    recording = record()
    recording.wait(other, late)
    recording.wait_for_stuck()
    errors = recording.end()
    assert f"process {victim.pid} did not let itself be read" in errors
    found = {row["pid"]: row for row in rows(profcapture, capture, "process")}
    assert not found[victim.pid]["cmdline"]
    # processes started before and after the victim; each is recorded once
    for process in (other, late):
        assert found[process.pid]["cmdline"] == [str(nap)]
        assert_recorded(profcapture, capture, process.pid)
        told = [row for row in rows(profcapture, capture, "task")
                if row["event"] == "exists" and row["tid"] == process.pid]
        assert len(told) == 1


PATIENCE = 4  # number of hangs that one user may cause (stall-quota.c); each takes a second


def test_many_that_hang(locked, nap, spawn, profctl, profcapture, capture):
    """One user cannot block a recording for longer than a few seconds."""
    victims = locked(*[65534] * 8)
    other = spawn(nap)
    errors = profctl("record", "--system", "--no-symbols", "-d", 1, "-o", capture).stderr
    hung = [victim for victim in victims if f"process {victim.pid} did not let itself be read" in errors]
    assert 0 < len(hung) <= PATIENCE
    found = {row["pid"] for row in rows(profcapture, capture, "process")}
    assert found >= {victim.pid for victim in victims}
    assert len(samples_of(profcapture, capture, other.pid)) > 0


def put_link(path):
    path.symlink_to("/etc/shadow")


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)
        listener.bind(path.name)


PUTS = {
    "link": put_link,
    "fifo": os.mkfifo,
    "device": lambda path: os.mknod(path, 0o20666, os.makedev(1, 5)),
    "folder": lambda path: path.mkdir(),
    "socket": put_socket,
    "proc": lambda path: path.symlink_to("/proc/kcore"),
}


def test_replaced(spin, tmp_path, spawn, record, profcapture, capture):
    """The path of a mapping leads to something other than the mapped file."""
    victims = {}
    for name in PUTS:
        shutil.copy2(spin, tmp_path / name)
        victims[name] = spawn(tmp_path / name)
    other = spawn(spin)
    for name, put in PUTS.items():
        let_run(victims[name].pid, 0.01)
        victims[name].send_signal(signal.SIGSTOP)
        (tmp_path / name).unlink()
        put(tmp_path / name)
    recording = record()
    recording.wait(*victims.values(), other)
    recording.end()
    assert_recorded(profcapture, capture, other.pid)
    for name, victim in victims.items():
        assert_recorded(profcapture, capture, victim.pid)
        sizes = {row["size"] for row in rows(profcapture, capture, "image") if (row["path"] or "").startswith(str(tmp_path / name))}
        assert sizes <= {spin.stat().st_size, 0, None}, name


def test_sparse(spin, tmp_path, spawn, record, profcapture, capture):
    program = tmp_path / "sparse"
    shutil.copy2(spin, program)
    try:
        os.truncate(program, 100 << 30)
    except OSError:
        pytest.skip("no file of 100 GB here")
    victim = spawn(program)
    other = spawn(spin)
    recording = record()
    recording.wait(victim, other)
    recording.end()
    assert samples_of(profcapture, capture, victim.pid)
    assert_recorded(profcapture, capture, other.pid)
    sizes = {row["size"] for row in rows(profcapture, capture, "image") if row["path"] == str(program)}
    assert sizes <= {0, None}


def test_cut_while_read(compile_c, spin, tmp_path, spawn, record, profcapture, capture):
    program = compile_c("run", RUN_FILE)
    library = tmp_path / "library.so"
    content = bytearray(Path("/lib/x86_64-linux-gnu/libc.so.6").read_bytes())
    content[0x2000:0x2002] = b"\xeb\xfe"
    library.write_bytes(content)
    victim = spawn(program, library)
    other = spawn(spin)
    recording = record()

    def cut_until_read():
        os.truncate(library, 0x3000)
        os.truncate(library, len(content))
        return cpu_seconds(victim.pid) > 0.2 and cpu_seconds(other.pid) > 0.2 and capture.exists() and capture.stat().st_size > 10000

    until(cut_until_read)
    recording.end()
    assert samples_of(profcapture, capture, victim.pid)
    assert_recorded(profcapture, capture, other.pid)


@pytest.mark.parametrize("name", ["two\nlines", "gone (deleted)", "\\012 \x01", "ends with blank "])
def test_names(name, spin, tmp_path, spawn, profctl, profcapture, capture):
    program = tmp_path / name
    shutil.copy2(spin, program)
    victim = spawn(program)
    profctl("record", "--pid", victim.pid, "-d", 0.3, "-o", capture)
    names = {row["name"] for row in profcapture.json("report", capture)["data"]["rows"]}
    assert "spin" in names


def of_recording(recording):
    return children(children(recording.process.pid)["profd"])


def test_killed(spin, spawn, record, profcapture, capture):
    """Recording continues, although profd-files is killed several times."""
    early = spawn(spin)
    recording = record()
    recording.wait()
    for _ in range(3):
        killed = of_recording(recording)["profd-files"]
        os.kill(killed, signal.SIGKILL)
        until(lambda: of_recording(recording).get("profd-files", killed) != killed)
    late = spawn(spin)
    let_run(late.pid, 0.2)
    recording.end()
    for process in early, late:
        assert_recorded(profcapture, capture, process.pid)


def test_descriptors_on_their_way(spin, spawn, profctl, profcapture, capture):
    """The kernel counts descriptors in flight of all processes of a user against the sender's
    limit, so other processes can use up that limit."""
    process = spawn(spin)
    hogs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(6)]
    try:
        for sender, _ in hogs:
            socket.send_fds(sender, [b"x"], [0] * 50)
        profctl("record", "--system", "-d", "0.5", "--no-symbols", "-q", "-o", capture)
    finally:
        for pair in hogs:
            for end in pair:
                end.close()
    assert samples_of(profcapture, capture, process.pid)


def test_rights(spin, spawn, record):
    spawn(spin)
    recording = record()
    recording.wait()
    pid = of_recording(recording)["profd-files"]
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    wanted = sum(1 << bit for bit in (2, 19, 34, 40))  # DAC_READ_SEARCH, SYS_PTRACE, SYSLOG, CHECKPOINT_RESTORE
    for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[kind], 16) & ~wanted == 0
    assert status["NoNewPrivs"] == "1"
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert "Max core file size        0" in limits
    assert status["Seccomp"] in ("2", "0")
    recording.end()


def test_helper_ends_with_profd(spin, spawn, record):
    spawn(spin)
    recording = record()
    recording.wait()
    os.kill(children(recording.process.pid)["profd"], signal.SIGKILL)
    until(lambda: not processes("profd-files"))
    recording.end_command()
    recording.process.communicate(timeout=20)
