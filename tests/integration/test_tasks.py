# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recording with per-task events: by users without privilege, and in sessions that may show only a
user's own processes.

Targets end before their rows are read, so that they take no CPU time from the other tests.

Everything here runs as a plain user who is refused perf's CPU-wide events, for any value of
kernel.perf_event_paranoid, unless noted otherwise.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from recordings import end_when_recorded, recorded, recorded_without_loss, until
from stacks import at, read, settled
from test_record import WALL, times_of
from test_stack_programs import PYTHON, SOURCE
from test_targets import FAMILY, assert_family, rows

pytestmark = pytest.mark.usefixtures("nothing_is_left")
# Users that have no other processes: the kernel limits each user's locked memory
# (perf_event_mlock_kb), and parallel runs of these tests would use up the limit of a common user.
NOBODY, SOMEBODY = 0x40000000 + os.getpid(), 0x50000000 + os.getpid()
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
DRIVE = os.environ["DRIVE_ENGINE"]
PERIOD_NS = 1e9 / 999

SPIN = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static int ms;
static long used_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}
/* A paused virtual machine delivers one tick for the whole pause, while the CPU clock goes on. So a step counts for one period at most. */
__attribute__((noipa)) static void spin(int of)
{
	volatile long turns = 0;
	long left = of * 1000000L, last = used_ns(), now;

	do {
		for (int i = 0; i < 50000; i++)
			turns++;
		now = used_ns();
		left -= now - last < 1000000 ? now - last : 1000000;
		last = now;
	} while (left > 0);
}
static void *work(void *data) { spin(ms); return data; }
"""
THREADS = SPIN + r"""
int main(int argc, char **argv)
{
	int n = atoi(argv[1]), i;
	pthread_t threads[1000];

	ms = atoi(argv[2]);
	for (i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
"""
FORKS = SPIN + r"""
int main(int argc, char **argv)
{
	int n = atoi(argv[1]), i;

	for (i = 0; i < n; i++)
		if (fork() == 0) {
			spin(atoi(argv[2]));
			_exit(0);
		} else if (i % 4 == 3) {
			while (wait(NULL) > 0)
				;
		}
	while (wait(NULL) > 0)
		;
	return 0;
}
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def as_user(*command, uid=NOBODY, refuse="cpu", limits=()):
    prefix = [sys.executable, "-IS", Path(__file__).with_name("as_user.py"), "--uid", uid]
    prefix += ["--refuse", refuse] if refuse else []
    for limit in limits:
        prefix += ["--limit", limit]
    return [str(word) for word in (*prefix, *command)]


@pytest.fixture
def home():
    """A folder that everybody can reach, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="profd-test-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def runs_for_all():
    if subprocess.run(as_user(os.environ["PROFCTL"], "--version", refuse=None), capture_output=True).returncode:
        pytest.skip("nobody cannot run the programs of this build tree")


@pytest.fixture
def capture(runs_for_all, home):
    return home / "test.cap"


@pytest.fixture
def program(home, compile_c):
    def build(name, source, *flags):
        return shutil.copy(compile_c(name, source, "-O1", "-pthread", *flags), home / name)

    return build


def sampled_ns(profcapture, capture, keep=lambda row: True):
    return PERIOD_NS * sum(1 for row in rows(profcapture, capture, "sample") if keep(row))


# ---- all tasks of the targets, each once, and no others


@pytest.mark.parametrize("how", ["command", "pid"])
def test_family_and_nobody_else(profctl, profcapture, capture, spawn, program, how):
    family = program("family", FAMILY)
    spawn("sh", "-c", f"while :; do {family}; done")
    if how == "command":
        first = recorded(profctl, "--no-symbols", "-o", capture, family, prefix=as_user())["command"]["pid"]
    else:
        target = spawn(*as_user(family, "late", refuse=None), stdin=subprocess.PIPE)
        first = target.pid
        until(lambda: Path(f"/proc/{first}/comm").read_text() == "family\n")

        def record(*options, **more):
            return spawn(*as_user(os.environ["PROFCTL"], "record", *options), stdout=subprocess.PIPE, **more)

        said = end_when_recorded(target, record, "--json", "--no-symbols", "-o", capture)
        assert json.loads(said)["data"]["reason"] == "target-exited"
    tables = ("sample", "task", "mapping", "switch", "thread")
    assert_family(lambda table: rows(profcapture, capture, table), first, tables, how)
    assert {process["uid"] for process in rows(profcapture, capture, "process")} == {NOBODY}
    # a thread is on one CPU at a time, and a CPU runs one thread
    for key in ("thread", "cpu"):
        last = {}
        for row in sorted(rows(profcapture, capture, "switch"), key=lambda row: row["time_ns"]):
            assert row["start"] >= last.get(row[key], 0) - 1000, (key, row)
            last[row[key]] = row["time_ns"]


def test_all_time_is_known(profctl, profcapture, capture, program):
    """Times are complete as with privilege, except that wake-ups are not recorded, so the time from
    a wake-up until the thread ran is unknown, not 0."""
    done = profctl("record", "--no-symbols", "-o", capture, "--", program("wall", WALL), 4, prefix=as_user())
    times = {tid: ns for (_, tid), ns in times_of(profcapture, capture).items()}
    for line in done.stdout.splitlines()[1:]:
        tid, begin, end, _ = map(int, line.split())
        assert times[tid] >= 0.995 * (end - begin)
    sliced = times_of(profcapture, "--from", "0.3s", "--to", "0.5s", capture)
    whole = [(comm, ns) for (comm, _), ns in sliced.items() if comm in ("wall", "sleeper", "spinner")]
    assert len(whole) == 5
    for comm, ns in whole:
        assert abs(ns - 200e6) <= 0.005 * 200e6, (comm, ns)
    found = profcapture.json("report", "--by", "thread", capture)["data"]["rows"]
    assert {row["runnable_ns"] for row in found} == {None}
    text = profcapture("report", "--by", "thread", capture).stdout
    assert "runnable" not in text and "because wake-ups were not recorded" in text


def test_without_children(profcapture, capture, program, spawn):
    source = SPIN + r"""
    int main(void)
    {
        pthread_t thread;

        (void)!read(0, &ms, 1);
        if (fork() == 0) { prctl(PR_SET_NAME, "child"); spin(100); _exit(0); }
        ms = 100;
        pthread_create(&thread, NULL, work, NULL);
        pthread_join(thread, NULL);
        wait(NULL);
        return 0;
    }
    """
    target = spawn(*as_user(program("alone", source), refuse=None), stdin=subprocess.PIPE)
    until(lambda: Path(f"/proc/{target.pid}/comm").read_text() == "alone\n")
    end_of_driven(target, spawn(*as_user(DRIVE, capture, 60, f"pids={target.pid}", "children=false"), stdout=subprocess.PIPE))
    assert {row["pid"] for row in rows(profcapture, capture, "process")} == {target.pid}
    assert len(rows(profcapture, capture, "thread")) == 2
    assert sampled_ns(profcapture, capture) > 80e6


@pytest.mark.parametrize("name,source,n,ms", [
    ("one", THREADS, 1, 400), ("four", THREADS, 4, 150), ("many", THREADS, 200, 8), ("forks", FORKS, 40, 15),
], ids=["one", "four", "many", "forks"])
def test_samples_stand_for_the_time(profctl, profcapture, capture, program, name, source, n, ms):
    """Each task spins for a time that it measures with its own clock. The samples of all tasks add
    up to the sum of these times."""
    recorded(profctl, "--no-symbols", "-o", capture, program(name, source), n, ms, prefix=as_user())
    seen = sampled_ns(profcapture, capture)
    # the sampling timer begins anew for each task and CPU, so on average half a tick of each is not
    # sampled
    tasks = len(rows(profcapture, capture, "thread"))
    print(f"{name}: {seen / 1e6:.0f} ms sampled, {n} times {ms} ms used, {tasks} threads", file=sys.stderr)
    assert 0.85 * n * ms * 1e6 - tasks * PERIOD_NS < seen < 1.1 * n * (ms + 1) * 1e6 + tasks * PERIOD_NS


def test_threads_that_come_while_events_are_opened(profcapture, capture, program, spawn):
    """A thread created while profd opens events may have only some of its parent's events, or have
    them twice. Nevertheless, none of its samples is missing or counted twice."""
    source = SPIN + r"""
    static void *next(void *data)
    {
        pthread_attr_t detached;
        pthread_t thread;

        spin(3);
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        pthread_create(&thread, &detached, next, NULL);
        spin(3);
        return data;
    }
    int main(void)
    {
        pthread_t thread;
        for (int i = 0; i < 8; i++)
            pthread_create(&thread, NULL, next, NULL);
        for (;;)
            pause();
    }
    """
    target = spawn(*as_user(program("storm", source), refuse=None))
    until(lambda: len(os.listdir(f"/proc/{target.pid}/task")) > 4)
    subprocess.run(as_user(DRIVE, capture, 1, f"pids={target.pid}", "call-graph=none"), check=True, timeout=60)
    target.kill()
    ran = {}
    for row in rows(profcapture, capture, "switch"):
        ran[row["thread"]] = ran.get(row["thread"], 0) + row["time_ns"] - row["start"]
    seen = {}
    for row in rows(profcapture, capture, "sample"):
        seen[row["thread"]] = seen.get(row["thread"], 0) + PERIOD_NS
    for thread, sampled in seen.items():
        assert sampled <= 1.2 * ran[thread] + 2 * PERIOD_NS, (thread, sampled, ran[thread])
    tasks = rows(profcapture, capture, "task")
    forked = [row["thread"] for row in tasks if row["event"] == "fork"]
    assert len(forked) == len(set(forked)) > 8
    whole = set(forked) & {row["thread"] for row in tasks if row["event"] == "exit"}
    assert whole and sum(seen.get(thread, 0) for thread in whole) > 0.6 * 6e6 * len(whole)  # each spins for 6 ms


# ---- stacks


def programs(folder):
    source = folder / "many.c"
    source.write_text(SOURCE)
    return {
        "python3": (["/usr/bin/python3", "-c", PYTHON], {"python3"}),
        "gcc": (["gcc", "-O2", "-c", "-o", folder / "many.o", source], {"cc1"}),
    }


@pytest.mark.parametrize("name", ["python3", "gcc"])
def test_stacks(profctl, profcapture, capture, home, name):
    command, comms = programs(home)[name]
    data = recorded_without_loss(profctl, "-F", 1999, "-o", capture, "--", "sh", "-c", 'for i in 1 2; do "$@"; done', "sh", *command, prefix=as_user())
    samples = [sample for sample in read(profcapture, capture) if sample.comm in comms]
    print(name, data["unwind"], data["loss"], file=sys.stderr)
    samples = settled(samples)
    assert len(samples) > 200
    assert sum(sample.stop == "root" for sample in samples) >= 0.95 * len(samples)
    assert data["unresolved_samples"] <= 0.05 * data["samples"]
    # processes started by gcc are recorded too, through a chain of short programs that exec others
    seen = {row["comm"] for row in rows(profcapture, capture, "task") if row["event"] == "exec"}
    assert seen >= ({"gcc", "cc1", "as"} if name == "gcc" else {"python3"})


def test_program_that_was_deleted(profctl, profcapture, capture, program):
    """Plain users may not read map_files, and the mapping's path leads nowhere: only /proc/PID/exe
    is left."""
    gone = program("gone", SPIN + "int main(int argc, char **argv) { unlink(argv[0]); spin(300); return 0; }")
    recorded(profctl, "-o", capture, gone, prefix=as_user())
    samples = [sample for sample in read(profcapture, capture) if sample.comm == "gone"]
    assert sum(sample.names[:1] == ["spin"] for sample in samples) > 0.9 * len(samples) > 100


# ---- a user's limits, and the messages about them


def test_what_is_reduced_is_said(profctl, profcapture, capture, program):
    done = profctl("record", "-o", capture, program("one", THREADS), 1, 300, prefix=as_user())
    assert "without CAP_PERFMON" in done.stderr
    seen = profcapture.json("info", capture)["data"]["options"]
    assert "only the targets' own events" in seen["reduced"]
    if int(PARANOID.read_text()) >= 2:
        assert seen["kernel"] is False
        assert not [row for row in rows(profcapture, capture, "sample") if row["mode"] == "kernel"]
    assert any(line.startswith("Reduced ") and "only the targets' own events" in line for line in profcapture("info", capture).stdout.splitlines())


@pytest.mark.parametrize("target", ["command", "system", "pid"])
def test_refusal_names_the_ways_out(profctl, capture, spawn, target):
    other = spawn(*as_user("sleep", 60, refuse=None))
    what = {"command": ["true"], "system": ["-a", "-d", 1], "pid": ["-p", other.pid, "-d", 1]}[target]
    done = profctl("record", "-o", capture, *what, check=4, prefix=as_user(refuse="all"))
    for way in ("kernel.perf_event_paranoid", "CAP_PERFMON", "service", "sudo"):
        assert way in done.stderr, done.stderr
    assert not capture.exists()


def test_others_are_refused(profctl, capture, spawn):
    other = spawn(*as_user("sleep", 60, uid=SOMEBODY, refuse=None))
    until(lambda: Path(f"/proc/{other.pid}/comm").read_text() == "sleep\n")
    done = profctl("record", "-p", other.pid, "-d", 1, "-o", capture, check=4, prefix=as_user())
    assert f"cannot record process {other.pid}: " in done.stderr
    assert "CAP_PERFMON" in done.stderr and "service" in done.stderr


def test_too_few_descriptors(profctl, capture, spawn, program):
    target = spawn(*as_user(program("many", THREADS.replace("spin(ms);", "usleep(ms * 1000);")), 200, 60000, refuse=None))
    until(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == 201)
    done = profctl("record", "-p", target.pid, "-d", 1, "-o", capture, check=1, prefix=as_user(limits=["NOFILE=200"]))
    assert "ulimit -n" in done.stderr and "(now 200)" in done.stderr, done.stderr


def test_many_threads_by_pid(profctl, profcapture, capture, spawn, program):
    """Each thread works for a short time and sleeps for long, so that the machine has time for the
    recorder. Samples are only of user mode, but the run time includes the kernel's, so the share of
    many threads is compared with that of one."""
    many = program("many", THREADS.replace("spin(ms);", "for (;;) { spin(2); usleep(ms * 1000); }"))

    def record(threads, ms):
        target = spawn(*as_user(many, threads, ms, refuse=None))
        until(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == 1 + threads)
        recorded_without_loss(profctl, "--no-symbols", "-p", target.pid, "-d", 1, "-o", capture, prefix=as_user())
        target.kill()
        assert len(rows(profcapture, capture, "thread")) == 1 + threads
        return sampled_ns(profcapture, capture), sum(row["time_ns"] - row["start"] for row in rows(profcapture, capture, "switch"))

    seen, ran = record(1, 0)
    usual = seen / ran
    seen, ran = record(200, 500)
    print(f"{usual:.2f} {seen / ran:.2f}", file=sys.stderr)
    assert 0.85 * usual * ran - 201 * PERIOD_NS < seen < 1.05 * ran + 201 * PERIOD_NS


@pytest.mark.parametrize("bytes", [0, 65536])
def test_little_locked_memory(profctl, profcapture, capture, program, bytes):
    one = program("one", THREADS)
    for _ in range(3):  # repeated, because a recording must return all of its descriptors
        recorded_without_loss(profctl, "-o", capture, one, 2, 150, prefix=as_user(limits=[f"MEMLOCK={bytes}"]))
        samples = settled([sample for sample in read(profcapture, capture) if sample.comm == "one"])
        spinning = at(samples)
        assert len(spinning) > 0.8 * len(samples) > 50, "the rest is the program's beginning"
        assert sum(sample.names[:2] == ["spin", "work"] for sample in spinning) > 0.95 * len(spinning)


def test_several_events(profctl, profcapture, capture, program):
    recorded(profctl, "-e", "cpu-clock:u", "-e", "page-faults:u", "-o", capture, program("one", THREADS), 20, 20,
             prefix=as_user())
    sources = {row["id"]: row["name"] for row in rows(profcapture, capture, "source")}
    seen = {sources[row["source"]] for row in rows(profcapture, capture, "sample")}
    assert seen == {"cpu-clock:u", "page-faults:u"}


@pytest.mark.changes_machine
@pytest.mark.parametrize("level", [2, 1, 0, -1])
def test_real_levels(profctl, profcapture, capture, program, level):
    before = PARANOID.read_text()
    try:
        PARANOID.write_text(str(level))
        done = profctl("record", "-o", capture, program("one", THREADS), 1, 500, prefix=as_user(refuse=None))
    finally:
        PARANOID.write_text(before)
    assert ("only the targets' own events" in done.stderr) == (level > 0)
    assert ("nothing of the kernel" in done.stderr) == (level > 1)
    samples = [sample for sample in read(profcapture, capture) if sample.comm == "one"]
    assert sum("spin" in sample.names for sample in samples) > 0.9 * len(samples) > 300


# ---- sessions that may show only their user's own processes, although root opens the events


def drive(capture, seconds, *options, uid=NOBODY, check=0):
    done = subprocess.run([DRIVE, capture, str(seconds), f"uid={uid}", "own-only=true", *options],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == check, done.stderr
    return done


def drive_to_its_end(spawn, capture, target, uid=NOBODY):
    """Records a target that waits until its standard input is closed, which happens when the
    recording has begun. The recording ends with the target."""
    end_of_driven(target, spawn(DRIVE, capture, 60, f"uid={uid}", "own-only=true", f"pids={target.pid}", stdout=subprocess.PIPE))


def end_of_driven(target, recording):
    assert recording.stdout.readline() == b"started\n"
    target.stdin.close()
    assert b"ok target-exited" in recording.communicate(timeout=60)[0]
    assert recording.returncode == 0


def start_user(spawn, *command, uid=NOBODY, **options):
    """Starts a process that belongs wholly to the user when this returns."""
    process = spawn(*as_user(*command, uid=uid, refuse=None), **options)
    until(lambda: str(command[0]).encode() == Path(f"/proc/{process.pid}/cmdline").read_bytes().partition(b"\0")[0])
    return process


def test_own_only_has_the_kernel_too(profcapture, capture, spawn):
    target = start_user(spawn, "dd", "if=/dev/zero", "of=/dev/null", "bs=1")
    drive(capture, 1, f"pids={target.pid}")
    target.kill()
    assert {row["pid"] for row in rows(profcapture, capture, "sample")} == {target.pid}
    assert {row["mode"] for row in rows(profcapture, capture, "sample")} == {"kernel", "user"}


def test_own_only_opens_each_process_once(capture, spawn):
    """A process given several times gets one set of events, because descriptors are few, and
    opening events delays other users."""
    target = start_user(spawn, "dd", "if=/dev/zero", "of=/dev/null")
    done = subprocess.run(["prlimit", "--nofile=256", DRIVE, capture, "1", f"uid={NOBODY}", "own-only=true",
                           "pids=" + ",".join([str(target.pid)] * 256)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_own_only_has_stacks(profcapture, capture, spawn, program):
    target = start_user(spawn, program("one", THREADS), 1, 60000)
    drive(capture, 1, f"pids={target.pid}")
    target.kill()
    samples = settled([sample for sample in read(profcapture, capture) if sample.images[:1] == ["one"]])
    assert sum(sample.stop == "root" for sample in samples) > 0.95 * len(samples) > 20


def test_own_only_refuses(capture, spawn, home):
    """A session that may show only the user's own processes refuses a process of another user or of
    root, and a process of the user that is not dumpable."""
    secret = home / "unreadable"
    shutil.copy("/bin/sleep", secret)
    secret.chmod(0o711)
    for command, uid in ((("sleep", 60), SOMEBODY), (("sleep", 60), 0), ((secret, 60), NOBODY)):
        target = start_user(spawn, *command, uid=uid)
        done = drive(capture, 1, f"pids={target.pid}", check=1)
        assert "not wholly your own" in done.stderr
        assert list(Path("/proc", str(target.pid), "fd").iterdir())
    assert "processes of your own" in drive(capture, 1, check=1).stderr


def everything(profcapture, print_rows, capture):
    """Returns the bytes of all tables after decompression, and dump's output for the tables."""
    raw = subprocess.run([print_rows, capture], check=True, capture_output=True).stdout
    strings = [bytes.fromhex(cell[1:].decode()) for cell in raw.replace(b"\n", b"\t").split(b"\t") if cell[:1] == b"x"]
    shown = profcapture("dump", capture, "--resolve", "--limit", 0, "--json", text=False).stdout
    return b"\n".join((*strings, raw, shown))


def test_no_foreign_byte(profcapture, home, capture, spawn, program):
    """For two users at once, on every CPU, with children and threads, nothing of one user is in the
    capture of the other user. Children live long enough for profd to determine their owner."""
    source = SPIN.replace("spin", "spin_MARK") + r"""
    int main(int argc, char **argv)
    {
        for (;;) {
            pthread_t thread;

            ms = 3;
            pthread_create(&thread, NULL, work, NULL);
            prctl(PR_SET_NAME, "name-MARK");
            pthread_join(thread, NULL);
            if (fork() == 0) { prctl(PR_SET_NAME, "child-MARK"); spin_MARK(3); usleep(20000); execl(argv[0], argv[0], "short-MARK", NULL); _exit(1); }
            if (getppid() == 1) return 1;
            if (argc > 1 && strncmp(argv[1], "short", 5) == 0) { spin_MARK(3); usleep(20000); return 0; }
            wait(NULL);
        }
    }
    """
    marks = {NOBODY: "olmQ7", SOMEBODY: "axolotlQ7"}
    targets = {uid: start_user(spawn, program(f"file-{mark}", source.replace("MARK", mark)), f"argument-{mark}", uid=uid)
               for uid, mark in marks.items()}
    running = [*targets.values(), spawn("sh", "-c", "while :; do /bin/echo root-newtQ7 >/dev/null; done")]
    texts = {}
    for seconds in 1, 4, 16:  # on a busy machine there may be no child within a second
        for process in running:
            os.killpg(process.pid, signal.SIGCONT)
        recordings = {uid: spawn(DRIVE, home / f"{uid}.cap", seconds, f"uid={uid}", "own-only=true", f"pids={target.pid}")
                      for uid, target in targets.items()}
        assert {recording.wait(timeout=60) for recording in recordings.values()} == {0}
        for process in running:
            os.killpg(process.pid, signal.SIGSTOP)
        for uid in targets:
            texts[uid] = everything(profcapture, os.environ["PRINT_ROWS"], home / f"{uid}.cap")
        if all(texts[uid].count(f"child-{mark}".encode()) > 1 for uid, mark in marks.items()):
            break
    for uid, mark in marks.items():
        text = texts[uid]
        assert text.count(f"child-{mark}".encode()) > 1 and f"name-{mark}".encode() in text
        for other in {*marks.values(), "newtQ7"} - {mark}:
            assert other.encode() not in text, text[text.index(other.encode()) - 300:][:600]
        assert {row["uid"] for row in rows(profcapture, home / f"{uid}.cap", "process")} == {uid}


# ---- targets that change during the recording


BECOME = SPIN + r"""
int main(int argc, char **argv)
{
	if (argc > 2) { /* the setuid program */
		prctl(PR_SET_NAME, "hidden-name");
		spin(200);
		if (fork() == 0) { prctl(PR_SET_NAME, "hidden-child"); spin(50); _exit(0); }
		wait(NULL);
		return 0;
	}
	(void)!read(0, &ms, 1);
	spin(100);
	execl(argv[1], argv[1], "hidden-1", "hidden-2", NULL);
	return 1;
}
"""


@pytest.mark.parametrize("who", ["user", "own-only"])
def test_setuid_program_is_not_recorded(profctl, profcapture, capture, home, program, spawn, who):
    if os.statvfs(home).f_flag & os.ST_NOSUID:
        pytest.skip("setuid programs are none here")
    first = program("first", BECOME)
    setuid = program("other", BECOME)
    os.chown(setuid, 0, 0)
    setuid.chmod(0o4755)
    if who == "user":
        data = recorded(profctl, "-o", capture, first, setuid, prefix=as_user())
        pid = data["command"]["pid"]
    else:
        target = start_user(spawn, first, setuid, stdin=subprocess.PIPE)
        pid = target.pid
        drive_to_its_end(spawn, capture, target)
        assert Path(f"/proc/{pid}/status").exists(), "the session ended with the recorded part"
    assert sampled_ns(profcapture, capture) > 70e6
    end_ns = max(row["time_ns"] for row in rows(profcapture, capture, "task") if row["event"] == "exit")
    samples = rows(profcapture, capture, "sample")
    # during exec the kernel renames a task before it removes the task's events
    assert [row for row in samples if row["comm"] not in ("first", "python3", "profctl") and row["mode"] != "kernel"] == []
    assert [row["time_ns"] - end_ns for row in samples if row["time_ns"] > end_ns] == []
    assert len(samples) * PERIOD_NS < 200e6
    text = everything(profcapture, os.environ["PRINT_ROWS"], capture)
    assert b"hidden" not in text.replace(b"hidden-1", b"") if who == "user" else b"hidden" not in text
    assert {row["pid"] for row in rows(profcapture, capture, "process")} == {pid}
    assert not [row for row in rows(profcapture, capture, "image") if row["path"] == str(setuid)]


def test_target_that_changes_user(profcapture, capture, spawn, program):
    """Only a process of root can change its user. The user at the time of the request counts, and
    the kernel keeps the events of the process."""
    source = SPIN + r"""
    int main(void)
    {
        (void)!read(0, &ms, 1);
        if (setgid(65533) || setuid(65533)) return 1;
        prctl(PR_SET_NAME, "changed");
        spin(300);
        return 0;
    }
    """
    target = start_user(spawn, program("change", source), uid=0, stdin=subprocess.PIPE)
    drive_to_its_end(spawn, capture, target, uid=0)
    assert sampled_ns(profcapture, capture, lambda row: row["comm"] == "changed") > 200e6


def test_target_that_enters_namespaces(profcapture, capture, spawn, program):
    source = SPIN + r"""
    int main(void)
    {
        (void)!read(0, &ms, 1);
        prctl(PR_SET_NAME, unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) == 0 ? "inside" : "outside");
        if (fork() == 0) { prctl(PR_SET_NAME, "child"); spin(200); _exit(0); }
        spin(200);
        wait(NULL);
        return 0;
    }
    """
    target = start_user(spawn, program("enter", source), stdin=subprocess.PIPE)
    drive_to_its_end(spawn, capture, target)
    names = {row["comm"] for row in rows(profcapture, capture, "sample")}
    assert "child" in names and names & {"inside", "outside"}
    assert len({row["pid"] for row in rows(profcapture, capture, "process")}) == 2


def test_target_that_is_gone(profctl, capture, spawn):
    """If the target ends between the request and the opening of events, there is an error, an empty
    recording, or a recording of its last wait."""
    for delay in (0, 0.001, 0.003, 0.01, 0.03, 0.1):
        target = spawn(*as_user("sleep", delay, refuse=None))
        done = profctl("record", "-p", target.pid, "-d", 1, "-o", capture, "--force", check=None, prefix=as_user())
        assert done.returncode in (1, 4, 6) or (done.returncode == 0 and "\nThreads waited " in done.stderr), done.stderr
        assert done.stderr.strip()


@pytest.mark.changes_machine
def test_cpu_that_goes_and_comes(profctl, profcapture, capture, program, recorder):
    online = Path("/sys/devices/system/cpu/cpu1/online")
    if not os.access(online, os.W_OK):
        pytest.skip("CPU 1 cannot go offline")
    recording = subprocess.Popen(as_user(os.environ["PROFCTL"], "record", "-o", capture, program("four", THREADS), 4, 1500))
    try:
        time.sleep(0.7)
        online.write_text("0")
        time.sleep(0.5)
    finally:
        online.write_text("1")
    assert recording.wait(timeout=60) == 0
    late = [row for row in rows(profcapture, capture, "sample") if row["cpu"] == 1]
    first, last = late[0]["time_ns"], late[-1]["time_ns"]
    assert last - first > 1e9, "the events of tasks are there when the CPU is back"


# ---- descriptors in transit, whose number is limited for all processes of a user together

HOG = """import socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for _ in range(3):
    socket.send_fds(ours, [b"x"], [0] * 200)
print("full", flush=True)
sys.stdin.read()
"""


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_too_many_descriptors_on_their_way(capture, home, spawn):
    """The kernel does not report when fewer descriptors are in transit. profd must continue then,
    but must not poll continuously."""
    uid, build = 65531, Path(os.environ["PROFD"]).parent
    (home / "profd").write_text(f'#!/bin/sh\nexec prlimit --nofile=256 {build}/profd "$@"\n')
    (home / "profd").chmod(0o755)
    for name in ("profd-engine", "profd-files"):
        (home / name).symlink_to(build / name)
    hog = spawn(*as_user(sys.executable, "-c", HOG, uid=uid, refuse=None), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert hog.stdout.readline() == b"full\n"
    # profd refuses the request for sysprof's socket, because GDBus would end the connection if it
    # could not send the reply's descriptor.
    recorder = spawn(*as_user(os.environ["PROFCTL"], "record", "-q", "-o", capture, "--", "sleep", 0.2, uid=uid),
                     env={**os.environ, "PROF_LIBEXEC_DIR": str(home)})

    def broker():
        return [pid for pid in Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()
                if Path(f"/proc/{pid}/comm").read_text() == "profd\n"
                and Path(f"/proc/{pid}/task/{pid}/children").read_text().count(" ") == 2]

    until(broker)
    pid, = broker()
    time.sleep(0.5)
    before = cpu_s(pid)
    time.sleep(1)
    assert cpu_s(pid) - before < 0.2 and recorder.poll() is None
    hog.stdin.close()
    assert recorder.wait(timeout=60) == 0
