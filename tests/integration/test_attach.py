# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl record --memory --pid: a dormant process that was started with the library is asked to
record its allocations."""
import os
import signal
import subprocess

import pytest

from buses import NOBODY
from captures import rows
from recordings import children, processes, until

SIZE = 1009
MAGIC = b"\x7fProfWake\n\xe3\x1d\x95\x06\x5a\xc8"
BYTES, REQUESTED, RECEIVED, MODE = 1272, 1256, 1264, 24  # from libcollector/attach.h
MODE_REQUESTED = 0x40

# A program that follows commands, and allocates only on command.
TARGET = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void *blocks[100000];
static int n_blocks;
static char **arguments;
__attribute__((noinline)) static void allocate(int n)
{
	for (int i = 0; i < n; i++)
		blocks[n_blocks++] = malloc(1009);
}
static void *in_thread(void *n)
{
	for (int i = 0; i < *(int *)n; i++)
		free(malloc(1009));
	return NULL;
}
static int to_worker[2], from_worker[2];
static void *work(void *unused)
{
	int n;

	while (read(to_worker[0], &n, sizeof(n)) == sizeof(n)) {
		in_thread(&n);
		write(from_worker[1], "", 1);
	}
	return NULL;
}
static void begin_work(int n)
{
	pthread_t thread;

	if (to_worker[1] == 0) {
		pipe(to_worker);
		pipe(from_worker);
		pthread_create(&thread, NULL, work, NULL);
	}
	write(to_worker[1], &n, sizeof(n));
}
static void let_work(int n)
{
	char done;

	begin_work(n);
	read(from_worker[0], &done, 1);
}
static void do_as_told(char what, int n)
{
	struct sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = { 1, &pass };
	pthread_t thread;
	int status;
	pid_t child;

	switch (what) {
	case 'a':
		allocate(n);
		break;
	case 'b':
		for (int i = 0; i < n; i++)
			free(malloc(1));
		break;
	case 'f':
		for (; n_blocks > 0; free(blocks[--n_blocks]))
			;
		break;
	case 'k':
		child = fork();
		if (child == 0) {
			allocate(n);
			_exit(0);
		}
		waitpid(child, &status, 0);
		break;
	case 'p': /* from now on the child is told */
		child = fork();
		if (child != 0)
			waitpid(child, &status, 0);
		break;
	case 'v':
		child = vfork();
		if (child == 0) {
			/* in the parent's memory, where a request waits */
			free(malloc(1));
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		waitpid(child, &status, 0);
		break;
	case 't':
		pthread_create(&thread, NULL, in_thread, &n);
		pthread_join(thread, NULL);
		break;
	case 'w':
		let_work(n);
		break;
	case 'W':
		begin_work(n);
		break;
	case 'c':
		syscall(SYS_close_range, 3, ~0U, 0);
		break;
	case 's':
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
		break;
	case 'u':
		if (setgid(n) == 0 && setuid(n) == 0)
			break;
		_exit(1);
	case 'd':
		dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
		break;
	case 'x':
		execv(arguments[0], arguments);
		break;
	case 'm': /* what reads as a collector */
		status = open("libprofpreload-memory.so", O_RDWR);
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, status, 0);
	}
}
int main(int argc, char **argv)
{
	char line[32];

	arguments = argv;
	while (write(1, "+", 1) == 1 && read(0, line, sizeof(line)) > 1)
		do_as_told(line[0], atoi(line + 1));
	return 0;
}
"""


@pytest.fixture(scope="session")
def program(compile_c):
    built = compile_c("told", TARGET, "-pthread")
    for folder in built.parents:
        if folder.stat().st_uid == os.getuid() and str(folder) != "/":
            folder.chmod(folder.stat().st_mode | 0o111)
    return built


def request(pid, *offsets):
    """Returns the words at these offsets of the library's attach structure, and the word with the mode."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            if " rw-p " in line and "libprofpreload-memory.so" in line:
                start, end = (int(number, 16) for number in line.split()[0].split("-"))
                memory.seek(start)
                data = memory.read(end - start)
                at = data.index(MAGIC)
                memory.seek(int.from_bytes(data[at + MODE:at + MODE + 8], "little"))
                words = [data[at + offset:at + offset + 4] for offset in offsets] + [memory.read(4)]
                return [int.from_bytes(word, "little") for word in words]
    return [0] * (len(offsets) + 1)


def has_answered(pid):
    asked, taken, _ = request(pid, REQUESTED, RECEIVED)
    return asked == taken


class Told:
    def __init__(self, process):
        self.process, self.pid = process, process.pid
        self.answer()

    def answer(self):
        assert self.process.stdout.read(1) == b"+"

    def __call__(self, *what):
        for one in what:
            self.process.stdin.write(one.encode().ljust(32, b"\0"))
            self.process.stdin.flush()
            self.answer()

    def has_socket(self):
        return any("socket:" in os.path.realpath(f"/proc/{self.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{self.pid}/fd"))

    def is_joined(self):
        self("b1")
        return self.has_socket()


@pytest.fixture
def start(spawn, program):
    def make(preload=os.environ["LIBPROFPRELOAD_MEMORY"], **options):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PROF_")}
        if preload:
            environment["LD_PRELOAD"] = preload
        return Told(spawn(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, **options))

    return make


@pytest.fixture
def record(spawn, profctl):
    """Starts a recording, and returns when the target has the request; the returned function ends
    the recording and returns its output."""
    def begin(target, capture, *options, **more):
        before, _ = request(target.pid, REQUESTED)

        def is_asked():
            asked, mode = request(target.pid, REQUESTED)
            return asked != before and mode & MODE_REQUESTED

        recorder = spawn(*profctl.command("record", "--bus", "private", "--memory", "-F", 0, "-q", "--force", "--no-symbols", "-o", capture, *options,
                                          "--pid", target.pid), stderr=subprocess.PIPE, text=True, **more)
        until(lambda: is_asked() or recorder.poll() is not None)

        def end(status=130):
            recorder.send_signal(signal.SIGINT)
            said = recorder.communicate(timeout=30)[1]
            assert recorder.returncode == status, said
            return said

        return end

    return begin


def join(target):
    until(target.is_joined)


def blocks(profcapture, capture):
    """Returns the number of blocks of SIZE that were allocated, by pid."""
    processes = {row["id"]: row["pid"] for row in rows(profcapture, capture, "process")}
    owner = {row["id"]: processes[row["process"]] for row in rows(profcapture, capture, "thread")}
    found = {}
    for row in rows(profcapture, capture, "alloc"):
        if row["size"] == SIZE:
            found[owner[row["thread"]]] = found.get(owner[row["thread"]], 0) + 1
    return found


def test_joined(start, record, profcapture, capture):
    """Blocks allocated before the target joined are unknown, later blocks are complete. The output
    of memory begins with a sentence about this."""
    target = start()
    target("a100", "t5")
    end = record(target, capture)
    join(target)
    target("f", "a700", "t50", "k30")
    assert end() == ""
    found = blocks(profcapture, capture)
    assert found.pop(target.pid) == 750 and list(found.values()) == [30]
    text = profcapture("memory", capture).stdout
    assert "In 1 process, allocations are recorded only since it was joined" in text.splitlines()[0]
    data = profcapture.json("memory", capture)["data"]
    assert data["summary"]["foreign_frees"] in (100, 101) and data["summary"]["lost"] == 0
    (process,) = [row for row in data["processes"] if row["pid"] == target.pid]
    assert process["leaked_blocks"] == 700 and process["end"] == "running" and process["excluded"] is None


def test_bound_before(start, record, profcapture, capture):
    """The calls of a module that was opened with RTLD_DEEPBIND cannot be recorded. The module is
    reported even if it was opened before the recording."""
    target = start()
    target("d", "d")
    end = record(target, capture)
    join(target)
    target("d", "a1")
    assert end() == ""
    warnings = [warning["text"] for warning in profcapture.json("memory", capture)["data"]["warnings"]]
    assert sum("RTLD_DEEPBIND" in text for text in warnings) == 1


def test_again(start, record, profcapture, capture):
    """The process is dormant before, between and after three recordings, one of which samples. The
    process closes its descriptors before each recording."""
    target = start()
    for options, expected in ([], 700), (["--memory=sample:1", "--memory-min", SIZE], 700), ([], 700):
        target("f", "a40", "c")
        end = record(target, capture, *options)
        until(lambda: (target("a1"), target.is_joined())[1])
        target("f", "a700")
        assert end() == ""
        assert expected <= blocks(profcapture, capture)[target.pid] <= expected + 1
        target("a500")
        until(lambda: not target.is_joined())


def test_again_unnoticed(start, record, profcapture, capture):
    """When the next session asks the process to join, the process has not noticed yet that the last
    session is over."""
    target = start()
    for first, options in ("w1", []), ("b1", ["--memory=sample:1G"]), ("w1", []):
        end = record(target, capture, *options)
        target(first)
        join(target)
        target("w700")
        assert end() == ""
        assert blocks(profcapture, capture).get(target.pid, 0) >= (0 if options else 700)


def test_forks(start, record, profcapture, capture):
    """A child does not consume the request, even a child of vfork(), which runs in its parent's memory."""
    target = start()
    end = record(target, capture)
    target("v")
    target("v", "k10", "a1", "f")
    join(target)
    target("v", "a20")
    end()
    found = blocks(profcapture, capture)
    assert found.pop(target.pid) >= 20 and list(found.values()) == [10]


def test_forked_meanwhile(nothing_is_left, start, record, profcapture, capture):
    """A child is forked while another thread waits for the engine's answer: the child is recorded, and
    can be attached to again."""
    target = start()
    target("w1")
    end = record(target, capture)
    (engine,) = processes("profd-engine")
    os.kill(engine, signal.SIGSTOP)
    target("W1")
    until(target.has_socket)
    target("p")
    parent = target.pid
    (target.pid,) = children(parent).values()
    os.kill(engine, signal.SIGCONT)
    until(lambda: has_answered(parent))
    for again in False, True:
        if again:
            end = record(target, capture)
        target("a50", "f")
        assert end() == ""
        assert blocks(profcapture, capture)[target.pid] == 50
    target.process.stdin.close()


@pytest.mark.parametrize("what", ["b1", "b200000"])
def test_engine_killed(nothing_is_left, start, record, profcapture, capture, tmp_path, what):
    """A session without its engine is over: the next request works, also in a process whose ring is
    full."""
    target = start()
    end = record(target, capture)
    join(target)
    for engine in processes("profd-engine"):
        os.kill(engine, signal.SIGKILL)
    end(status=1)
    target(what)
    assert target.has_socket() == (what == "b1")
    end = record(target, tmp_path / "next.cap")
    join(target)
    target("a700")
    assert end() == ""
    assert blocks(profcapture, tmp_path / "next.cap")[target.pid] == 700


def test_nothing_there(start, record, profctl, capture):
    """A process cannot be attached to if it was started without the library, or does not exist. In
    the first case, the message says how to start the process."""
    target = start(preload=None)
    said = profctl("record", "--bus", "private", "--memory", "-F", 0, "-o", capture, "--pid", target.pid, check=1).stderr
    assert f"process {target.pid} has no collector" in said and f"LD_PRELOAD={os.environ['LIBPROFPRELOAD_MEMORY']}," in said
    said = profctl("record", "--bus", "private", "--memory", "-F", 0, "-o", capture, "--pid", 2**22 - 3, check=1).stderr
    assert "there is no process 4194301" in said
    assert not capture.exists()
    target("a1")


def test_silent(start, record, capture):
    """A process that allocates nothing does not join. Its calls after the recording find no request."""
    target = start()
    assert f"process {target.pid} allocated and freed nothing" in record(target, capture)()
    target("a5", "f")
    assert not target.is_joined()


def test_executed(start, record, profcapture, capture):
    """A request does not apply to the program that the process executes next."""
    target = start()
    end = record(target, capture)
    target("x")
    target("a5", "f")
    assert not target.is_joined()
    assert end() == ""


def test_executed_later(start, record, profcapture, capture):
    """After exec, the next program of a joined process begins dormant: it is neither recorded nor
    hurt, and the earlier part is complete."""
    target = start()
    end = record(target, capture)
    join(target)
    target("a60", "x", "a50", "t5", "k5", "f")
    assert not target.is_joined()
    assert end() == ""
    assert blocks(profcapture, capture) == {target.pid: 60}
    processes = profcapture.json("memory", capture)["data"]["processes"]
    assert {(row["leaked_blocks"], row["end"]) for row in processes if row["pid"] == target.pid} >= {(60, "exec")}


def test_recorded_already(start, record, profcapture, capture, tmp_path):
    target = start()
    end = record(target, capture)
    join(target)
    other = record(target, tmp_path / "other.cap")
    target("a50", "f")
    assert "another session already" in other()
    target("a60")
    end()
    assert blocks(profcapture, capture)[target.pid] == 110


def test_filtered(start, profctl, capture):
    """A process with a seccomp filter is refused, because the filter could kill it for the
    system calls that recording needs."""
    target = start()
    target("s")
    said = profctl("record", "--bus", "private", "--memory", "-F", 0, "-o", capture, "--pid", target.pid, check=1).stderr
    assert f"process {target.pid} has a seccomp filter" in said
    target("a1")


@pytest.mark.parametrize("forged", ["version", "address", "cut"])
def test_hostile(start, profctl, capture, tmp_path, forged):
    """Memory that only looks like a collector causes at most an error or an empty recording, and
    the target keeps running."""
    page = bytearray(4096)
    page[64:80] = MAGIC
    page[80:96] = (9 if forged == "version" else 1).to_bytes(4, "little") + BYTES.to_bytes(4, "little") + (0x1001 << 40).to_bytes(8, "little")
    (tmp_path / "libprofpreload-memory.so").write_bytes(page if forged != "cut" else page[:64 + 20])
    target = start(preload=None, cwd=tmp_path)
    target("m")
    done = profctl("record", "--bus", "private", "--memory", "-F", 0, "-d", 0.1, "-o", capture, "--pid", target.pid, check=None)
    expected = "cannot ask process" if forged == "address" else "of another version"
    assert expected in done.stderr and done.returncode in (0, 1, 6)
    target("b1")


def test_as_anybody(start, record, profcapture, tmp_path, require):
    """A user who may trace a process needs no other right to attach to it."""
    require("setpriv", root=True)
    folder = tmp_path / "nobody"
    folder.mkdir()
    folder.chmod(0o777)
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and str(parent) != "/":
            parent.chmod(parent.stat().st_mode | 0o111)
    as_nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    target = start(**as_nobody)
    capture = folder / "own.cap"
    end = record(target, capture, **as_nobody)
    join(target)
    target("a77")
    end()
    assert blocks(profcapture, capture)[target.pid] == 77


def test_changed_credentials(start, record, profctl, profcapture, capture, tmp_path, require):
    """A process that changed its user may not be attached to by the new user, because it may still know
    secrets of the old user; root may attach to it."""
    require("setpriv", root=True)
    target = start()
    target(f"u{NOBODY}")
    done = profctl("record", "--bus", "private", "--memory", "-F", 0, "-o", tmp_path / "x.cap", "--pid", target.pid, check=4, user=NOBODY,
                   group=NOBODY, extra_groups=[])
    assert "the right to trace it" in done.stderr
    end = record(target, capture)
    join(target)
    target("a30")
    assert end() == ""
    assert blocks(profcapture, capture) == {target.pid: 30}


def test_of_others(start, profctl, tmp_path, require):
    require("setpriv", root=True)
    target = start()
    done = profctl("record", "--bus", "private", "--memory", "-F", 0, "-o", tmp_path / "x.cap", "--pid", target.pid, check=4, user=NOBODY,
                   group=NOBODY, extra_groups=[])
    assert "the right to trace it" in done.stderr
