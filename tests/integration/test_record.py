# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl record from the command line to the file, with the real kernel; and every way in which a
recording can end."""
import contextlib
import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import jsonschema
import pytest
import schema

from recordings import children, info, processes, recorded, stolen_ns, until, wait_for_samples

pytestmark = pytest.mark.usefixtures("nothing_is_left")
SPIN = "while :; do :; done"
LATE_NS = 1.5e9  # how late an engine may be on a busy machine
PROFCTL = os.environ["PROFCTL"]
PROFCAPTURE = os.environ["PROFCAPTURE"]


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


# ---- recorded data


def test_system(profctl, profcapture, capture, busy):
    begin = time.monotonic_ns()
    done = profctl("record", "--json", "-a", "-d", "0.5", "-o", capture)
    data = json.loads(done.stdout)["data"]
    assert data["reason"] == "duration"
    assert data["command"] is None
    assert 0.4e9 < data["elapsed_ns"] < time.monotonic_ns() - begin
    assert data["samples"] > 50
    assert data["bytes"] == capture.stat().st_size
    assert data["next"][-1] == f"profcapture report {capture}"
    seen = info(profcapture, capture)
    assert seen["state"] == "finished"
    assert seen["samples"] == data["samples"]
    assert seen["frequency_hz"] == 999
    assert seen["host"] == os.uname().nodename
    # record, report, and info count the same processes
    duration, n = re.match(rf"Recorded the system: ([\d.]+ m?s), {data['samples']} samples in (\d+) processes\.", done.stderr).groups()
    said = profcapture("report", capture).stdout
    assert re.match(rf"The system used .* of CPU in {duration} \(.*\), {n} processes\. profd itself: <?\d+(\.\d)? %\.\n", said), said
    assert f" in {n} processes: " in profcapture("info", capture).stdout
    # the report begins with a row for each program, which includes all of its processes
    (programs,) = [block for block in profcapture("report", capture, "--limit", 0).stdout.split("\n\n") if block.splitlines()[0].endswith("  program")]
    cells = [line.rsplit("  ", 1) for line in programs.splitlines()[1:]]
    counts = {name: int(numbers.split()[-1]) for numbers, name in cells}
    processes = profcapture.json("report", capture, "--by", "process", "--limit", 0)["data"]["rows"]
    assert not {row["comm"] for row in processes if row["self"]} - set(counts), programs
    comm = Path(f"/proc/{busy.pid}/comm").read_text().strip()
    assert counts[comm] >= sum(row["comm"] == comm and row["self"] > 0 for row in processes) >= 1


def test_pids(profctl, profcapture, capture, spawn, busy):
    other, stranger = spawn("sh", "-c", SPIN), spawn("sh", "-c", SPIN)
    profctl("record", "--no-symbols", "-p", f"{busy.pid},{other.pid}", "-d", 0.7, "-o", capture)
    rows = profcapture.json("report", capture, "--by", "process")["data"]["rows"]
    assert {row["pid"] for row in rows} == {busy.pid, other.pid}
    assert stranger.poll() is None


def test_pid_of_a_thread_or_a_zombie(profctl, capture, spawn, compile_c):
    source = """#include <pthread.h>
    #include <unistd.h>
    static void *sleep_long(void *unused) { sleep(1000); return unused; }
    int main(void) { pthread_t thread; if (fork() == 0) return 0; pthread_create(&thread, 0, sleep_long, 0); sleep(1000); }"""
    process = spawn(compile_c("threaded", source, "-pthread"))
    tasks = Path(f"/proc/{process.pid}/task")
    until(lambda: len(list(tasks.iterdir())) == 2)
    tid = max(int(task.name) for task in tasks.iterdir())
    zombie = int((tasks / str(process.pid) / "children").read_text())
    until(lambda: "State:\tZ" in Path(f"/proc/{zombie}/status").read_text())
    done = profctl("record", "-p", tid, "-d", 1, "-o", capture, check=1)
    assert done.stderr == f"profctl: {tid} is a thread ('threaded') of process {process.pid}; use --pid {process.pid}\n"
    done = profctl("record", "-p", f"{process.pid},{zombie}", "-d", 1, "-o", capture, check=1)
    assert f"process {zombie} has ended" in done.stderr and "(zombie)" in done.stderr
    assert not capture.exists()


def test_pid_of_a_kernel_thread(profctl, capture, require):
    require(root=True)
    if Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("a container has no kernel threads")
    done = profctl("record", "-p", 2, "-d", 0.2, "-o", capture, check=None)
    assert "process 2 ('kthreadd') is a kernel thread" in done.stderr


@pytest.mark.parametrize("n", [1, 2])
def test_processes_that_are_left(profctl, capture, tmp_path, n):
    """Processes that the command leaves running are listed by pid, even daemons, which are no
    longer its children. Processes that have ended are not."""
    script = "sleep 0.01 & " + f"(setsid sleep 30 >/dev/null 2>&1 & echo $! >>{tmp_path}/pids); " * n + "sleep 0.1"
    done = profctl("record", "--json", "-o", capture, "--", "sh", "-c", script)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert json.loads(done.stdout)["data"]["command"]["still_running"] == sorted(pids)
    listed = ",".join(map(str, sorted(pids)))
    assert f"{n} process{'es' * (n > 1)} it started {'is' if n == 1 else 'are'} still running: --pid {listed}\n" in done.stderr



def test_command_and_its_children(profctl, profcapture, capture, busy):
    script = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; true"
    data = recorded(profctl, "--no-symbols", "-F", 4999, "-o", capture, "--", "sh", "-c", script)
    rows = profcapture.json("report", capture, "--by", "process")["data"]["rows"]
    assert busy.pid not in {row["pid"] for row in rows}
    assert len(rows) >= 1
    assert any(row["pid"] != data["command"]["pid"] for row in rows), "the child has samples"
    assert info(profcapture, capture)["command"] == ["sh", "-c", script]


def test_command_is_recorded_from_its_first_instruction(profctl, profcapture, capture):
    pid = recorded(profctl, "--no-symbols", "-o", capture, "--", "true")["command"]["pid"]
    rows = profcapture.json("dump", capture, "--table", "task")["data"]["rows"]
    events = [row["event"] for row in rows if row["pid"] == pid]
    assert "exec" in events and "exit" in events


def test_names(profctl, profcapture, capture, compile_c):
    """Names are found for the kernel, and for a program whose file is removed during the recording,
    because profd keeps the file open."""
    source = "static int work(void) { for (volatile int i = 0; i < 300000000; i++) ; return 0; } int main(void) { return work(); }"
    program = compile_c("worker", source)
    data = recorded(profctl, "-o", capture, "sh", "-c", f"{program} & sleep 0.3; rm {program}; wait")
    assert data["symbols"] is True
    assert 0 <= data["unresolved_samples"] < data["samples"] / 4
    assert data["next"] == [f"profcapture report {capture}"]
    rows = profcapture.json("report", capture)["data"]["rows"]
    assert rows[0]["name"] == "work" and rows[0]["image"].startswith(str(program))
    assert any(row["kind"] == "kernel" for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"])
    for text in (profcapture("report", capture, "--limit", 0).stdout,
                 profcapture("dump", capture, "--table", "sample", "--resolve").stdout):
        assert "  [kernel]" in text and "[[" not in text


SCHEDSTAT = r"""
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void)
{
	char text[99] = { 0 };
	int fd = open("/proc/self/schedstat", O_RDONLY);

	for (int round = 0; round < 20; round++) {
		for (volatile int i = 0; i < 20000000; i++)
			;
		nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	pread(fd, text, sizeof(text) - 1, 0);
	fputs(text, stdout);
	return 0;
}
"""


def test_run_time_is_what_the_kernel_counts(profctl, profcapture, capture, compile_c):
    program, stolen = compile_c("sleeper", SCHEDSTAT), stolen_ns()
    done = profctl("record", "--no-symbols", "-o", capture, "--", program)
    stolen = stolen_ns(since=stolen)
    run_ns = int(done.stdout.split()[0])
    every = profcapture.json("report", capture, "--by", "thread", "--limit", 0)["data"]["rows"]
    (row,) = (row for row in every if row["comm"] == "sleeper")
    # the kernel's run time includes the time between fork and exec, which profd counts in the row
    # of the thread before exec; the kernel's run time excludes time stolen by the host
    # (update_rq_clock_task()), which switch records include
    slack = max(0.01 * run_ns, 20e6)
    assert run_ns - slack <= row["run_ns"] <= run_ns + slack + stolen
    assert row["wait_ns"] >= 20 * 5e6 * 0.9
    text = profcapture("report", capture, "--by", "thread").stdout
    # in text, the thread before and after exec is one row, unless it ran for long before exec
    sums = [sum(each[key] for each in every if each["tid"] == row["tid"]) / 1e9 for key in ("run_ns", "wait_ns", "preempted_ns", "runnable_ns")]
    shown = re.findall(rf"^ *[<\d.]+ +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) +[\d.]+ +{row['tid']} (?:sleeper|profctl)\b", text, re.MULTILINE)
    assert 1 <= len(shown) <= 2
    assert all(abs(sum(map(float, column)) - whole) <= 0.0051 * len(shown) for column, whole in zip(zip(*shown), sums)), (shown, sums)


# Each `brief` thread prints when it began and ended. `sleeper` only pauses, so it is never switched
# if it existed before the recording.
WALL = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static unsigned long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (unsigned long)time.tv_sec * 1000000000 + (unsigned long)time.tv_nsec;
}
static int named;
static void *sleeper(void *argument)
{
	prctl(PR_SET_NAME, "sleeper");
	__atomic_add_fetch(&named, 1, __ATOMIC_RELAXED);
	for (;;)
		pause();
}
static void *spinner(void *argument)
{
	prctl(PR_SET_NAME, "spinner");
	__atomic_add_fetch(&named, 1, __ATOMIC_RELAXED);
	for (;;)
		;
}
static void *brief(void *argument)
{
	unsigned long begin = now(), ran, delay;
	char path[64], text[99] = { 0 };
	FILE *file;

	prctl(PR_SET_NAME, "brief");
	while (now() - begin < 100000000)
		;
	for (int i = 0; i < 50; i++)
		usleep(4000);
	snprintf(path, sizeof(path), "/proc/self/task/%ld/schedstat", (long)syscall(SYS_gettid));
	file = fopen(path, "r");
	if (!file || fscanf(file, "%lu %lu", &ran, &delay) != 2)
		abort();
	printf("%ld %lu %lu %lu\n", (long)syscall(SYS_gettid), begin, now(), delay);
	fflush(stdout);
	return NULL;
}
int main(int argc, char **argv)
{
	pthread_t thread, briefs[100];
	int n = atoi(argv[1]);

	prctl(PR_SET_NAME, "wall");
	pthread_create(&thread, NULL, sleeper, NULL);
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, spinner, NULL);
	while (__atomic_load_n(&named, __ATOMIC_RELAXED) < 4)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < n; i++) {
		usleep(150000);
		pthread_create(&briefs[i], NULL, brief, NULL);
	}
	for (int i = 0; i < n; i++)
		pthread_join(briefs[i], NULL);
	return 0;
}
"""


def times_of(profcapture, *arguments):
    """Returns {(comm, tid): the sum of all states of the thread, in ns}."""
    rows = profcapture.json("report", "--by", "thread", "--limit", 0, *arguments)["data"]["rows"]
    return {(row["comm"], row["tid"]): sum(row[key] or 0 for key in ("run_ns", "wait_ns", "preempted_ns", "runnable_ns"))
            for row in rows if row["run_ns"] is not None}


def test_all_time_is_known(profctl, profcapture, capture, compile_c):
    """Running, waiting and runnable time add up to a thread's lifetime by its own clock, also in a
    range of time."""
    done = profctl("record", "--no-symbols", "-o", capture, "--", compile_c("wall", WALL, "-O1", "-pthread"), 6)
    briefs = [list(map(int, line.split())) for line in done.stdout.splitlines() if line != "ready"]
    times = times_of(profcapture, capture)
    assert len(briefs) == 6
    for tid, begin, end, _ in briefs:
        (found,) = [ns for (comm, of), ns in times.items() if of == tid]
        # `found` lasts from the fork, before the thread runs, to its exit, which is late if several
        # threads share its CPU
        assert 0.995 * (end - begin) <= found <= 1.005 * (end - begin) + 150e6, (tid, end - begin, found)
    piece = capture.with_name("piece.cap")
    profcapture("cut", "--from", "0.4s", "--to", "0.9s", capture, "-o", piece)
    for sliced in times_of(profcapture, "--from", "0.4s", "--to", "0.9s", capture), times_of(profcapture, piece):
        whole = [comm for comm, tid in times if comm in ("sleeper", "spinner", "wall")]
        assert sorted(whole) == ["sleeper", "spinner", "spinner", "spinner", "wall"]
        for (comm, tid), ns in sliced.items():
            if comm in whole:
                assert abs(ns - 500e6) <= 0.005 * 500e6, (comm, ns)
        assert {comm for comm, tid in sliced} >= set(whole)


def test_runnable(profctl, profcapture, capture, compile_c):
    """A thread that was woken is runnable until it runs, for the time that the kernel counts."""
    done = profctl("record", "--no-symbols", "-o", capture, "--", compile_c("wall", WALL, "-O1", "-pthread"), 6)
    rows = {row["tid"]: row for row in profcapture.json("report", "--by", "thread", "--limit", 0, capture)["data"]["rows"]}
    if {row["runnable_ns"] for row in rows.values() if row["run_ns"] is not None} == {None}:
        pytest.skip("the tracepoint sched_wakeup cannot be had")
    for line in done.stdout.splitlines()[1:]:
        tid, begin, end, delay = map(int, line.split())
        # the thread slept 50 times for 4 ms, or longer if a timer was late; before that it computed
        # for 100 ms
        assert 200e6 <= rows[tid]["wait_ns"] <= end - begin - 100e6, rows[tid]
        # the kernel's number includes time stolen by the host; `outside`: recorded time before and
        # after the thread's own two clock readings, in which it may also have been ready
        outside = max(sum(rows[tid][key] for key in ("run_ns", "wait_ns", "preempted_ns", "runnable_ns")) - (end - begin), 0)
        ready = rows[tid]["runnable_ns"] + rows[tid]["preempted_ns"]
        assert 0.85 * delay - 10e6 <= ready <= 1.15 * delay + 10e6 + outside, (delay, outside, rows[tid])
        assert rows[tid]["runnable_ns"] > 0


def test_all_time_of_others_is_known(profctl, profcapture, capture, compile_c, spawn):
    """Like test_all_time_is_known(), for threads that existed before the recording. One of them is
    never switched."""
    target = spawn(compile_c("wall", WALL, "-O1", "-pthread"), "100", stdout=subprocess.PIPE)
    assert target.stdout.readline().strip() in ("ready", b"ready")
    started = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    profctl("record", "--no-symbols", "-d", "1", "-o", capture, "--pid", target.pid)
    ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    duration = profcapture.json("info", capture)["capture"]["duration_ns"]
    # a `brief` thread has its creator's name until it runs
    times = {(comm, tid): ns for (comm, tid), ns in times_of(profcapture, capture).items()
             if comm != "brief" and (comm != "wall" or tid == target.pid)}
    assert sorted(comm for comm, tid in times) == ["sleeper", "spinner", "spinner", "spinner", "wall"]
    assert 1e9 <= duration <= ended - started
    for key, ns in times.items():
        assert abs(ns - duration) <= 0.005 * duration + 5e6, (key, ns, duration)
    (sleeper,) = profcapture.json("report", "--by", "thread", "--comm", "sleeper", capture)["data"]["rows"]
    assert (sleeper["run_ns"], sleeper["preempted_ns"]) == (0, 0)


RENAMED = r"""
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>
static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}
__attribute__((noinline)) void spin(double seconds)
{
	for (double end = now() + seconds; now() < end;)
		;
}
static void *work(void *argument)
{
	prctl(PR_SET_NAME, "first");
	spin(0.3);
	prctl(PR_SET_NAME, "second");
	spin(0.6);
	prctl(PR_SET_NAME, "third");
	spin(0.1);
	return NULL;
}
int main(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, work, NULL);
	pthread_join(thread, NULL);
	return 0;
}
"""


def test_thread_that_renames_itself(profctl, profcapture, capture, compile_c):
    """--comm and stacks use the thread's name at the time of each sample. The thread computes for
    0.3, 0.6 and 0.1 s under its three names."""
    program, stolen = compile_c("renamed", RENAMED, "-O1", "-pthread"), stolen_ns()
    profctl("record", "--no-symbols", "-o", capture, "--", program)
    # CPU time excludes the time stolen by the host
    stolen = stolen_ns(since=stolen)
    expected = {"first": 300, "second": 600, "third": 100}
    folded, rows = Counter(), profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
    # Scheduling and sampling may be in step, so each slice of CPU time may have a sample more or
    # less.
    slices = Counter(row["comm"] for row in
                     profcapture.json("dump", capture, "--table", "switch", "--limit", 0)["data"]["rows"])
    for line in profcapture("export", "--to", "folded", capture).stdout.splitlines():
        folded[line.split(";")[0]] += int(line.rsplit(" ", 1)[1])
    for name, samples in expected.items():
        found = profcapture.json("report", "--by", "thread", "--comm", name, capture)["data"]
        slack = 0.05 * samples + 5 + slices[name]
        assert -slack <= found["self_total"] - samples <= slack + stolen / 1e6
        assert found["self_total"] == folded[name] == len([row for row in rows if row["comm"] == name])
        (row,) = [row for row in found["rows"] if row["self"]]
        assert (row["comm"], row["names"]) == ("third", 3)
        slack = 0.05 * samples * 1e6 + 10e6
        assert -slack <= row["run_ns"] - samples * 1e6 <= slack + stolen
    assert " third (3 names)" in profcapture("report", "--by", "thread", capture).stdout


HOSTILE = r"""
#include <sys/prctl.h>
int main(void)
{
	prctl(PR_SET_NAME, "\033[31m\r\n\302\233");
	for (volatile int i = 0; i < 30000000; i++)
		;
	return 0;
}
"""


def test_hostile_names(profctl, profcapture, capture, compile_c, tmp_path):
    """Control characters in a comm, a path, or a command line reach neither the terminal nor a
    parser."""
    evil = tmp_path / "\x1b]0;x\x07\n\u202e,\".so"
    compile_c("plain", HOSTILE).rename(evil)
    seen = profctl("record", "-o", capture, "--", evil, "\x1b[H").stderr
    for verb in ["info"], ["verify"], ["dump", "--resolve"], ["dump", "--table", "process"], *(
            ["report", "--by", by] for by in ("function", "image", "thread", "process", "cgroup")), ["report", "--tree"]:
        done = profcapture(*verb, capture)
        seen += done.stdout + done.stderr
        profcapture.json(*verb, capture)
    assert "\\x1b[31m" in seen and "\\x1b]0;x" in seen
    assert not [c for c in seen if (ord(c) < 32 and c not in "\n\t") or ord(c) in (0x7f, 0x9b, 0x202e)]
    for verb in ["dump", "--table", "task"], ["dump", "--table", "image"], ["report"], ["report", "--by", "image"]:
        table = list(csv.reader(io.StringIO(profcapture(*verb, capture, "--format", "csv").stdout, newline="")))
        assert len({len(row) for row in table}) == 1
        lines = profcapture(*verb, capture, "--format", "ndjson").stdout.splitlines()
        assert len(lines) == len(table) and all(json.loads(line) for line in lines)


def test_summary_is_what_the_schema_says(profctl, capture):
    schema = json.loads(profctl("schema", "record").stdout)
    for arguments in (["true"], ["--no-symbols", "-a", "-d", "100ms"], ["-F", 0, "false"]):
        done = profctl("record", "--json", "--force", "-o", capture, *arguments, check=None)
        summary = json.loads(done.stdout)
        jsonschema.validate(summary, schema)
        assert summary["schema"] == "profctl.record/1"


def test_no_symbols(profctl, profcapture, capture):
    data = recorded(profctl, "--no-symbols", "-o", capture, "ls", "/")
    assert data["symbols"] is False
    assert data["next"][0] == f"profcapture symbolize {capture}"
    profcapture("symbolize", capture)


def test_frequency_and_event(recorder, profcapture, capture, busy):
    """A program gets the same number of samples per second of run time, whatever share of a CPU it
    gets."""
    recording = recorder("--no-symbols", "-p", busy.pid, "-F", 200, "-e", "task-clock", "-o", capture)
    wait_for_samples(capture, 0, more_than=50)
    recording.send_signal(signal.SIGINT)
    recording.communicate(timeout=60)
    seen = info(profcapture, capture)
    assert (seen["event"], seen["frequency_hz"]) == ("task-clock", 200)
    (row,) = profcapture.json("report", capture, "--by", "thread")["data"]["rows"]
    expected = row["run_ns"] / 1e9 * 200
    assert 0.7 * expected - 5 < seen["samples"] < 1.2 * expected + 5 and seen["samples"] > 0


def events_of(profcapture, capture):
    return profcapture.json("info", capture)["data"]["options"]["events"]


def test_several_events(profctl, profcapture, capture):
    """Several events are given as for perf: with commas, or by repeated options; duplicates count
    once."""
    for arguments in (["-e", "cpu-clock,page-faults"], ["-e", "cpu-clock", "-e", "page-faults"], ["-ecpu-clock,page-faults,cpu-clock"],
                      ["-e", "cpu-clock", "--event=cpu-clock,page-faults", "-e", "cpu-clock"]):
        profctl("record", "--no-symbols", "--force", "-o", capture, *arguments, "true")
        assert events_of(profcapture, capture) == ["cpu-clock", "page-faults"]
    profctl("record", "--no-symbols", "--force", "-o", capture, "-e", "sched:sched_switch:k,task-clock:u", "true")
    assert events_of(profcapture, capture) == ["sched:sched_switch:k", "task-clock:u"]


def test_commas_of_terms(profctl, profcapture, capture):
    """Commas between slashes do not separate events: a PMU gets all of its terms, even if the PMU
    does not exist."""
    for event in "software/config=0,config1=0/", "nothing/event=1,umask=2/u":
        done = profctl("record", "--no-symbols", "--force", "-o", capture, "-e", f"cpu-clock,{event},page-faults", "true", check=None)
        if done.returncode == 0:
            assert events_of(profcapture, capture) == ["cpu-clock", event, "page-faults"]
        else:
            assert done.returncode == 2 and f'"{event}"' in done.stderr
    assert '"cpu/event=1,umask=2"' in profctl("record", "-o", capture.with_name("x"), "-e", "cpu/event=1,umask=2", "true", check=2).stderr


def test_options_are_kept(profctl, profcapture, recorder, capture, busy):
    recording = recorder("-p", busy.pid, "-F", 200, "-e", "task-clock", "-o", capture)
    wait_for_samples(capture, 0)
    recording.send_signal(signal.SIGINT)
    recording.communicate(timeout=60)
    report = profcapture.json("info", capture)
    schema.check(profcapture, "info", report)
    assert report["data"]["options"] == {"call-graph": "auto", "events": ["task-clock"], "frequency": 200,
                                         "kernel": True, "off-cpu": True, "off-cpu-max-rate": 3000, "pids": [busy.pid]}
    text = profcapture("info", capture).stdout
    assert f"{capture}: processes on {report['capture']['host']}, " in text and " of task-clock at 200 Hz on each CPU; user stacks from DWARF, " in text
    assert f"Host      Linux {report['capture']['kernel']}, {report['capture']['arch']}, {os.cpu_count()} CPU" in text
    assert '"events":["task-clock"]' in profcapture("info", "--verbose", capture).stdout
    profctl("record", "--force", "-o", capture, "--", "echo", 'a "b"')
    report = profcapture.json("info", capture)
    assert "command" not in report["data"]["options"] and report["capture"]["command"] == ["echo", 'a "b"']
    assert profcapture("info", capture).stdout.startswith(f"{capture}: echo 'a \"b\"' on ")


def test_tracepoint(profctl, profcapture, capture):
    data = recorded(profctl, "--no-symbols", "-e", "sched:sched_switch", "-o", capture, "--", "sh", "-c",
                    "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01; done")
    assert data["samples"] >= 10


def test_no_sampling(profctl, profcapture, capture):
    data = recorded(profctl, "--no-symbols", "-F", 0, "-o", capture, "--", "sh", "-c", "sleep 0.1; true")
    assert data["samples"] == 0
    assert data["events"] > 0


def test_no_kernel(profctl, profcapture, capture, spawn):
    spawn("dd", "if=/dev/zero", "of=/dev/null", "bs=1M")
    spawn("sh", "-c", SPIN)
    profctl("record", "-a", "--no-kernel", "--no-symbols", "-d", 0.4, "-o", capture)
    rows = profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
    assert {row["mode"] for row in rows} == {"user"}


def test_delay(profctl, profcapture, capture, busy):
    begin = time.monotonic_ns()
    data = recorded(profctl, "--no-symbols", "-p", busy.pid, "-D", "700ms", "-d", "500ms", "-o", capture)
    assert data["samples"] > 0
    rows = profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
    assert rows[0]["time_ns"] + info(profcapture, capture)["start_monotonic_ns"] > begin + 700e6


@pytest.fixture
def cgroup():
    """A cgroup in the hierarchy that perf uses, made before the recording begins."""
    folder = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        kind, _, options = line.partition(" - ")[2].split(" ", 2)
        if kind == "cgroup" and "perf_event" in options.split(",") or kind == "cgroup2":
            folder = Path(line.split()[4]) / f"prof-test-{os.getpid()}"
            if kind == "cgroup":
                break
    if not folder:
        pytest.skip("no cgroups are mounted here")
    folder.mkdir()
    yield folder
    for pid in (folder / "cgroup.procs").read_text().split():
        (folder.parent / "cgroup.procs").write_text(pid)
    folder.rmdir()


def test_cgroup(profctl, profcapture, capture, require, cgroup, busy):
    require(machine=True)
    (cgroup / "cgroup.procs").write_text(str(busy.pid))
    profctl("record", "--no-symbols", "-a", "-d", 1, "-o", capture)
    rows = profcapture.json("report", capture, "--by", "cgroup", "--pid", busy.pid)["data"]["rows"]
    assert [row["cgroup"] for row in rows] == [f"/{cgroup.name}"]


def test_cgroup_of_waits(profctl, profcapture, capture, require, cgroup):
    """A wait counts for the cgroup that the thread was in at that time, also if the thread was
    moved during the recording."""
    require(root=True, machine=True)
    nap, move = "for i in $(seq 20); do sleep 0.02; done", f"echo $$ >{cgroup}/cgroup.procs"
    profctl("record", "-q", "--no-symbols", "--off-cpu", "-o", capture, "--", "sh", "-c", f"{nap}; {move}; {nap}")
    report = profcapture.json("report", capture, "--metric", "off-cpu", "--by", "cgroup", "--comm", "sleep")["data"]
    found = {row["cgroup"]: row["total_weight"] for row in report["rows"]}
    assert None not in found and len(found) == 2
    assert found[f"/{cgroup.name}"] == pytest.approx(report["total_weight"] / 2, rel=0.2)


@pytest.mark.changes_machine
def test_cpu_that_goes_and_comes_back(recorder, profcapture, capture, spawn):
    switch = Path("/sys/devices/system/cpu/cpu1/online")
    if not switch.exists():
        pytest.skip("no CPU can be taken offline")
    for _ in range(2 * os.cpu_count()):
        spawn("sh", "-c", SPIN)
    process = recorder("-a", "-d", 4, "-o", capture, stderr=subprocess.DEVNULL)
    wait_for_samples(capture)
    try:
        switch.write_text("0")
        time.sleep(0.7)
    finally:
        switch.write_text("1")
    back = time.monotonic_ns()
    assert process.wait(timeout=30) == 0
    seen = profcapture.json("info", capture)
    times = [row["time_ns"] + seen["capture"]["start_monotonic_ns"]
             for row in profcapture.json("dump", capture, "--table", "sample", "--cpu", 1, "--limit", 0)["data"]["rows"]]
    assert min(time for time in times if time > back) - back < 1e9
    assert "cpu-offline" in {loss["cause"] for loss in seen["data"]["loss"]}


# ---- exit statuses


@pytest.mark.parametrize("script, status", [
    ("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -SEGV $$", 139), ("exit 255", 255),
])
def test_status_of_the_command(profctl, capture, script, status):
    command = recorded(profctl, "--no-symbols", "-o", capture, "sh", "-c", script, check=status)["command"]
    if script.startswith("kill"):
        assert (command["exit"], command["signal"]) == (None, status - 128)
    else:
        assert (command["exit"], command["signal"]) == (status, None)


def test_very_long_command(profctl, profcapture, capture):
    """The capture has the beginning of a very long command, and readers show it."""
    words = ["true", "x" * 100, *(str(number) for number in range(10000))]
    recorded(profctl, "--no-symbols", "-o", capture, *words)
    command = info(profcapture, capture)["command"]
    assert command[-1] == "…" and command[:-1] == words[:len(command) - 1] and len(command) > 1000
    recorded(profctl, "--no-symbols", "-o", capture, "--force", "true", "x" * 100_000)
    assert info(profcapture, capture)["command"] == ["true", "…"]


def test_command_that_is_not_there(profctl, capture, tmp_path):
    done = profctl("record", "-o", capture, "--", "no-such-program", check=127)
    assert "no-such-program" in done.stderr and "not found" in done.stderr
    assert not capture.exists()
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    for name in plain, tmp_path:
        assert f"'{name}'" in profctl("record", "-o", capture, "--", name, check=126).stderr
    for name in "", plain / "x", tmp_path / "missing", "--":
        assert f"'{name}'" in profctl("record", "-o", capture, "--", name, check=127).stderr
    assert not capture.exists()


def test_command_keeps_its_environment(profctl, capture):
    wanted = dict(os.environ, PROF_TEST="x y")
    output = subprocess.run(
        [PROFCTL, "record", "-q", "--no-symbols", "-o", capture, "env"], env=wanted, stdout=subprocess.PIPE, check=True
    ).stdout
    plain = subprocess.run(["env"], env=wanted, stdout=subprocess.PIPE, check=True).stdout
    lines = [line for line in output.splitlines() if not line.startswith((b"PROF_CONTROL=", b"SYSPROF_CONTROL_FD="))]
    assert sorted(lines) == sorted(plain.splitlines())


def test_command_gets_no_descriptor_of_ours(profctl, capture):
    output = profctl("record", "-q", "--no-symbols", "--no-sysprof", "-o", capture, "ls", "/proc/self/fd").stdout
    assert set(output.split()) <= {"0", "1", "2", "3"}
    output = profctl("record", "-q", "--no-symbols", "--force", "-o", capture, "sh", "-c", "echo $SYSPROF_CONTROL_FD; exec ls /proc/self/fd").stdout
    asked, *descriptors = output.split()
    assert set(descriptors) <= {"0", "1", "2", "3", asked}


def test_usage(profctl, capture, busy):
    assert "exclude" in profctl("record", "-p", busy.pid, "true", check=2).stderr
    assert "Did you mean '--system'?" in profctl("record", "--sistem", check=2).stderr
    done = profctl("record", "-e", "cpu-clok", "-o", capture, "true", check=2)
    assert 'did you mean "cpu-clock"?' in done.stderr
    done = profctl("record", "-e", "sched:sched_swich", "-o", capture, "true", check=2)
    assert 'did you mean "sched:sched_switch"?' in done.stderr
    assert "perf_event_max_sample_rate" in profctl("record", "-F", 10**8, "-o", capture, "true", check=2).stderr
    assert "system bus" in profctl("record", "--bus", "system", "-o", capture, "true", check=5).stderr
    assert not capture.exists()


def test_pid_that_is_gone(profctl, capture, spawn):
    gone = spawn("true")
    gone.wait()
    assert f"no process {gone.pid}" in profctl("record", "-p", gone.pid, "-o", capture, check=1).stderr
    assert not capture.exists()


def test_progress_on_a_terminal(profctl, capture, busy):
    """Progress is one line, which is redrawn about once a second, and removed before the
    summary."""
    ours, theirs = pty.openpty()
    done = profctl("record", "--json", "-p", busy.pid, "-d", "1.5", "-o", capture, stderr=theirs)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # EIO at the end; a read may return only a part before that
        while part := os.read(ours, 1 << 16):
            seen += part
    os.close(ours)
    seen = seen.decode()
    drawn, _, summary = seen.rpartition("\r\x1b[K")
    updates = [line for line in drawn.split("\r") if " samples, " in line]
    assert 1 <= len(updates) <= 4 * json.loads(done.stdout)["data"]["elapsed_ns"] / 1e9 + 1
    assert all(re.fullmatch(rf"Recording process {busy.pid}: [\d.]+ m?s, [\d,]+ samples, [\d.]+ [KM]?i?B, nothing lost\.( Ctrl-C stops\.)?\x1b\[K", line)
               for line in updates), updates
    n = json.loads(done.stdout)["data"]["samples"]
    first, last = summary.split("\r\n")[0::len(summary.split("\r\n")) - 2][:2]
    assert re.fullmatch(rf"Recorded process {busy.pid}: 1\.\d+ s, {n} samples in 1 process\. Lost: nothing\.", first), first
    assert re.fullmatch(rf"{re.escape(str(capture))} \([\d.]+ KiB\)\. Next: profcapture report {re.escape(str(capture))}", last), last
    assert "\x1b" not in summary


def test_summary(profctl, profcapture, capture, compile_c):
    """The summary's text says the same as JSON. A thread that executes a program counts once. A
    summary that is not printed on a terminal names no next step."""
    source = """#include <pthread.h>
    static void *spin(void *unused) { for (volatile long i = 0; i < 200000000; i++) ; return 0; }
    int main(void) { pthread_t t[2]; for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, spin, 0); for (int i = 0; i < 2; i++) pthread_join(t[i], 0); }"""
    program = compile_c("two", source, "-pthread")
    done = profctl("record", "--json", "-o", capture, "--", program, "a b")
    data = json.loads(done.stdout)["data"]
    first, *_, last = done.stderr.splitlines()
    found = re.fullmatch(r"Recorded (.*): ([\d.]+ m?s), (\d+) samples in (\d) threads\. Lost: nothing\.", first)
    assert found and int(found[3]) == data["samples"], done.stderr
    assert found[1] == f"{program} 'a b'" or found[1].endswith(("…", "...")) and len(found[1]) <= 60
    assert found[4] == "3", first
    for verb, form in ("report", r" in ([\d.]+ m?s) \(.*, (\d+) threads\."), ("info", r" UTC, ([\d.]+ m?s)\.[^\0]*Threads +(\d+) in 1 process"):
        said = profcapture(verb, capture).stdout
        assert re.search(form, said).groups() == (found[2], found[4]), said
    assert re.fullmatch(rf"{re.escape(str(capture))} \([\d.]+ KiB\)\.", last)
    none = profctl("record", "--no-symbols", "--force", "-F", 0, "-o", capture, "--", "true").stderr
    assert re.match(r"Recorded true: [\d.]+ m?s, no samples, \d+ events\. Lost: nothing\.\n", none), none


def test_quiet(profctl, capture, busy):
    done = profctl("record", "-q", "-p", busy.pid, "-d", "300ms", "-o", capture)
    assert done.stdout == done.stderr == ""


def test_nothing_captured(profctl, capture, spawn):
    sleeper = spawn("sleep", 60)
    done = profctl("record", "--no-off-cpu", "-p", sleeper.pid, "-d", "300ms", "-o", capture, check=6)
    assert "nothing was captured" in done.stderr


def test_a_process_that_only_waits(profctl, profcapture, capture, spawn):
    """A recording of waits without samples is no failure: the next step is a report of the
    waits."""
    sleeper = spawn("sleep", 60)
    done = profctl("record", "--json", "-p", sleeper.pid, "-d", "300ms", "-o", capture)
    data = json.loads(done.stdout)["data"]
    assert data["samples"] == 0 and "Threads waited" in done.stderr and "nothing" not in done.stderr.replace("Lost: nothing", "")
    assert data["next"] == [f"profcapture report {capture} --metric off-cpu"]
    assert "nanosleep" in profcapture(*data["next"][0].split()[1:]).stdout
    assert "Waited " in profcapture("report", capture).stdout


def test_nobody_is_told_the_ways_out(profctl, tmp_path):
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1:
        pytest.skip("kernel.perf_event_paranoid lets everybody record")
    tmp_path.chmod(0o777)
    done = profctl("record", "-a", "-o", "/dev/null", "-d", 1, check=4,
                   prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    for way in ("kernel.perf_event_paranoid", "CAP_PERFMON", "sudo"):
        assert way in done.stderr


def test_profd_that_is_not_there(profctl, capture, tmp_path):
    done = profctl("record", "-o", capture, "true", check=5, env={"PROF_LIBEXEC_DIR": tmp_path})
    assert str(tmp_path / "profd") in done.stderr
    assert not capture.exists()


# ---- the output file


def test_default_name(profctl, tmp_path, busy):
    profctl("record", "--no-symbols", "true", cwd=tmp_path)
    profctl("record", "--no-symbols", "-d", "100ms", "-a", cwd=tmp_path)
    profctl("record", "--no-symbols", "-d", "300ms", "-p", busy.pid, cwd=tmp_path)
    names = sorted(path.name[: -len("-YYYYmmdd-HHMMSS.cap")] for path in tmp_path.glob("*-????????-??????.cap"))
    assert names == [f"pid-{busy.pid}", "system", "true"]


def test_next_command_can_be_typed(profctl, tmp_path):
    path = f"{Path(PROFCAPTURE).parent}:{os.environ['PATH']}"
    for name in "-dash.cap", "a b's $(id)*?#~&;.cap":
        (command,) = recorded(profctl, f"--output={name}", "true", cwd=tmp_path)["next"]
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, timeout=60)
        assert done.returncode == 0 and done.stdout, command
    (tmp_path / "-true").symlink_to("/bin/true")
    (command,) = recorded(profctl, "--", "-true", cwd=tmp_path, env={"PATH": f"{tmp_path}:{path}"})["next"]
    assert subprocess.run(["sh", "-c", command], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, timeout=60).returncode == 0


def test_existing_file(profctl, profcapture, capture):
    profctl("record", "--no-symbols", "-o", capture, "true")
    before = capture.read_bytes()
    done = profctl("record", "-o", capture, "true", check=1)
    assert "--force" in done.stderr and "--append" in done.stderr
    assert profctl("record", "--force", "-o", capture, "-e", "nonsense", "true", check=2)
    assert capture.read_bytes() == before
    profctl("record", "--no-symbols", "--force", "-o", capture, "true")
    assert info(profcapture, capture)["state"] == "finished"
    assert capture.read_bytes() != before
    assert [path.name for path in capture.parent.iterdir()] == [capture.name]


def test_append(profctl, profcapture, capture, busy):
    first = recorded(profctl, "--no-symbols", "-p", busy.pid, "-d", "300ms", "-o", capture)["samples"]
    second = recorded(profctl, "--no-symbols", "-p", busy.pid, "-d", "300ms", "-o", capture, "--append")["samples"]
    whole = profcapture.json("info", capture)
    assert whole["capture"]["samples"] == first + second
    assert whole["data"]["segments"] == 2
    assert "cannot append" in profctl("record", "--append", "-o", f"{capture}.none", "true", check=1).stderr


@pytest.mark.parametrize("cut", [1, 50, 97])
def test_append_to_what_is_not_whole(profctl, profcapture, capture, cut):
    """A recording can be appended to an empty file, and to the readable rows of a capture that was
    cut."""
    capture.touch()
    profctl("record", "--no-symbols", "--append", "-o", capture, "true")
    profcapture("verify", capture)
    first = profcapture.json("info", capture)["capture"]["events"]
    with capture.open("r+b") as file:
        file.truncate(capture.stat().st_size - cut)
    profcapture("verify", capture, check=3)
    profctl("record", "--no-symbols", "--append", "-o", capture, "true")
    profcapture("verify", capture)
    whole = profcapture.json("info", capture)
    assert whole["capture"]["state"] == "finished"
    assert whole["data"]["segments"] == 2 and whole["capture"]["events"] > first


def test_two_writers(profctl, profcapture, capture, recorder, busy):
    profctl("record", "--no-symbols", "-o", capture, "true")
    first = info(profcapture, capture)["samples"]
    process = recorder("--no-symbols", "-p", busy.pid, "-o", capture, "--append")
    wait_for_samples(capture, 0, first)
    assert "another process" in profctl("record", "--append", "-o", capture, "true", check=1).stderr
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    profcapture("verify", capture)


def test_pipe_without_a_reader_can_be_interrupted(recorder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    process = recorder("-a", "-o", tmp_path / "pipe")
    until(lambda: Path(f"/proc/{process.pid}/wchan").read_text() == "wait_for_partner")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == -signal.SIGINT


def test_target_that_exits(profctl, capture, spawn):
    busy = spawn("timeout", 0.7, "sh", "-c", SPIN)
    data = recorded(profctl, "--no-symbols", "-p", busy.pid, "-F", 4999, "-o", capture, check=None)
    assert data["reason"] == "target-exited"


@pytest.mark.parametrize("arguments", [[], ["--no-symbols"]])
def test_standard_output(profctl, busy, arguments):
    recording = subprocess.Popen([PROFCTL, "record", "-q", "-p", str(busy.pid), "-d", "0.5", "-o", "-", *arguments],
                                 stdout=subprocess.PIPE)
    reading = subprocess.run([PROFCAPTURE, "info", "-", "--json"], stdin=recording.stdout, stdout=subprocess.PIPE,
                             timeout=60)
    recording.stdout.close()
    assert recording.wait(timeout=20) == 0
    seen = json.loads(reading.stdout)["capture"]
    assert seen["state"] == "finished"
    assert seen["samples"] > 0


def test_output_of_the_command_stays_out_of_the_capture(tmp_path):
    with open(tmp_path / "out", "wb") as out, open(tmp_path / "err", "wb") as err:
        subprocess.run([PROFCTL, "record", "-q", "-o", "-", "echo", "hello"], stdout=out, stderr=err, check=True)
    assert b"hello" in (tmp_path / "err").read_bytes()
    subprocess.run([PROFCAPTURE, "verify", tmp_path / "out"], check=True, stdout=subprocess.DEVNULL)


def test_terminal_is_refused(profctl):
    ours, theirs = pty.openpty()
    done = subprocess.run([PROFCTL, "record", "-o", "-", "true"], stdout=theirs, stderr=subprocess.PIPE)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert b"terminal" in done.stderr


def test_device_that_is_full(profctl):
    done = profctl("record", "-o", "/dev/full", "true", check=1)
    assert "No space left" in done.stderr
    profctl("record", "-o", "/dev/null", "true")


def test_disk_that_fills(profcapture, tmp_path, busy, require):
    """The disk is a tmpfs of 512 KiB in a mount namespace; the capture is copied out of it for the
    readers."""
    require("unshare")
    if subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("unshare -m is not possible here, as in a chroot")
    script = """mount -t tmpfs -o size=512k tmpfs "$1" && shift && { "$@"; status=$?; cp "$DISK/full.cap" "$OUT"; exit $status; }"""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", disk, PROFCTL, "record", "-a", "-F", "20000", "-e", "cpu-clock",
         "-d", "60", "-o", disk / "full.cap"],
        env={**os.environ, "DISK": str(disk), "OUT": str(tmp_path / "out.cap")}, stderr=subprocess.PIPE,
        encoding="utf-8", timeout=100,
    )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    seen = profcapture.json("info", tmp_path / "out.cap")
    assert seen["capture"]["samples"] > 100
    assert any(loss["cause"] == "disk-full" for loss in seen["data"]["loss"])


# ---- unplanned ends


def test_interrupt_stops_and_finishes(recorder, profcapture, capture, busy):
    process = recorder("--no-symbols", "-a", "-o", capture)
    wait_for_samples(capture, 0)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    assert info(profcapture, capture)["state"] == "finished"
    assert "Recorded" in process.stderr.read()


def test_interrupt_with_a_command_waits_for_it(recorder, profcapture, capture):
    process = recorder("--no-symbols", "-o", capture, "sh", "-c", "trap 'sleep 0.5; exit 7' INT; echo ready; while :; do :; done")
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 7
    assert info(profcapture, capture)["state"] == "finished"


def test_third_interrupt_gives_up(recorder, profcapture, capture):
    process = recorder("-o", capture, "sh", "-c", "trap '' INT; echo ready; sleep 1000", stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == "ready\n"
    for _ in range(3):
        assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.3)
    assert process.wait(timeout=20) == 130
    os.killpg(process.pid, signal.SIGKILL)
    until(lambda: info(profcapture, capture)["state"] == "finished")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_reaches_the_command(recorder, profcapture, capture, number):
    process = recorder("--no-symbols", "-o", capture, "sh", "-c", "echo ready; exec sleep 1000")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(timeout=20) == 128 + number
    assert info(profcapture, capture)["state"] == "finished"


def of_process(pid, name, number):
    """Returns whether a signal is in the set `name` of /proc/PID/status."""
    return int(re.search(rf"^{name}:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1], 16) >> number - 1 & 1


def test_parent_with_signals_of_its_own(recorder, capture):
    """A supervisor may ignore SIGCHLD, or block signals for a signalfd; nohup ignores SIGHUP. The
    command inherits these settings as it would without profctl, and profctl works nevertheless."""
    def of_parent():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMIN])
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR2, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    show = ["grep", "^Sig[BIC]", "/proc/self/status", "nosuch"]
    options = {"preexec_fn": of_parent, "restore_signals": False}
    plain = subprocess.run(show, text=True, capture_output=True, check=False, **options)
    assert plain.returncode == 2
    process = recorder("-q", "--no-symbols", "-o", capture, *show, **options)
    assert (process.communicate(timeout=20)[0], process.returncode) == (plain.stdout, 2)
    process = recorder("-q", "--no-symbols", "-o", capture, "--force", "sh", "-c", "echo ready; exec sleep 1000", **options)
    assert process.stdout.readline() == "ready\n"
    until(lambda: "sleep" in children(process.pid))
    pid = children(process.pid)["sleep"]
    assert of_process(process.pid, "SigIgn", signal.SIGHUP), "as nohup wants it"
    process.send_signal(signal.SIGTERM)  # profctl forwards SIGTERM to sleep, which blocks it
    until(lambda: of_process(pid, "ShdPnd", signal.SIGTERM))
    os.kill(pid, signal.SIGKILL)
    assert process.wait(timeout=20) == 137


@pytest.mark.parametrize("victim, state", [
    ("profctl", "finished"), ("profd", "finished"), ("profd-engine", "unfinished"),
])
def test_killed(recorder, profcapture, capture, busy, victim, state):
    process = recorder("-p", busy.pid, "-o", capture, stderr=subprocess.DEVNULL)
    # long enough for three writes, to notice if rows were written only every two seconds
    wait_for_samples(capture, 3.2)
    profd = children(process.pid)["profd"]
    engine = children(profd)["profd-engine"]
    os.kill({"profctl": process.pid, "profd": profd, "profd-engine": engine}[victim], signal.SIGKILL)
    killed = time.monotonic_ns()
    if victim == "profctl":
        assert process.wait(timeout=20) == -signal.SIGKILL
    else:
        assert process.wait(timeout=20) == 1
    until(lambda: not processes("profd-engine") & {engine})
    seen = info(profcapture, capture)
    assert seen["state"] == state
    rows = profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
    last = seen["start_monotonic_ns"] + rows[-1]["time_ns"]
    assert rows and killed - last < 1e9 + LATE_NS, "at most the last second is missing"
