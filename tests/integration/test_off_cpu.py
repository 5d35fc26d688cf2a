# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Waiting: where threads wait, for what, and how long.

Each thread of the program waits in one function, and measures the time with its own clock. This
clock also counts the time in which the thread runs or is ready, so the recorded waits are shorter,
by at most that time. The test computes that time from the context switches.
"""
import collections
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import schema
from captures import rows
from exports import read_chrome, read_page
from format_reader import Capture
from recordings import until
from test_damage import flip_in

SOURCE = Path(os.environ["PROF_SOURCE_DIR"]) / "tests/tools/waits.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("waits") / "waits"
    subprocess.run(["gcc", "-O2", "-g", "-pthread", SOURCE, "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def recordings(profctl, profcapture, program):
    """Returns [(capture, {tid: (function, ns)})]: captures, and what each thread measured. The best
    capture is the last."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    # On each CPU, the stacks of about 500 sleeps a second are copied, whichever process sleeps. So
    # up to five recordings are made; the one with the most known stacks is the best.
    made = []
    for i in range(5):
        capture = program.with_name(f"waits{i}.cap")
        done = profctl("record", "-q", "--off-cpu", "-o", capture, "--", program, program.with_name("data"))
        lines = [line.split() for line in done.stdout.splitlines()]
        row, = profcapture.json("sql", capture, "SELECT sum(duration * (user_stop = 'root')) * 1.0 / sum(duration) AS share FROM wait")["data"]["rows"]
        made.append((row["share"], capture, {int(tid): (function, int(ns)) for function, tid, ns in lines}))
        if row["share"] > 0.995:
            break
    return [recording[1:] for recording in sorted(made, key=lambda recording: recording[0])]


@pytest.fixture(scope="module")
def recorded(recordings):
    return recordings[-1]


@pytest.fixture(scope="module")
def by_state(profcapture, recorded):
    return profcapture.json("report", recorded[0], "--by", "state", "--limit", 0)


def states(profcapture, capture):
    """Returns {tid: {state: ns}} from the context switches."""
    query = "SELECT tid, state, sum(duration_ns) AS ns FROM thread_states GROUP BY tid, state"
    found = collections.defaultdict(collections.Counter)
    for row in profcapture.json("sql", capture, query)["data"]["rows"]:
        found[row["tid"]][row["state"]] += row["ns"]
    return found


def waits(profcapture, capture):
    return profcapture.json("sql", capture, "SELECT * FROM wait")["data"]["rows"]


def test_times(profcapture, recorded):
    """The waits of each thread add up exactly to its waiting time in the table of switches."""
    capture, _ = recorded
    sums = collections.Counter()
    for row in waits(profcapture, capture):
        sums[row["tid"]] += row["duration"]
    waited = {tid: of["waiting"] for tid, of in states(profcapture, capture).items() if of["waiting"]}
    assert dict(sums) == waited


def without_stack(profcapture, capture, tids):
    """Returns the time of waits without a stack, which test_stacks limits."""
    return sum(row["duration"] for row in waits(profcapture, capture) if row["tid"] in tids and row["stack_source"] in ("none", "raced"))


def test_functions(profcapture, recorded):
    """Each function waits as long as its threads measured, minus the time in which they ran or were
    ready."""
    capture, measured = recorded
    threads = states(profcapture, capture)
    for tid, (function, ns) in measured.items():
        report = profcapture.json("report", capture, "--metric", "off-cpu", "--tid", tid, "--limit", 0)
        schema.check(profcapture, "report", report)
        assert report["data"]["metric"] == "off-cpu" and report["data"]["unit"] == "ns"
        found = sum(row["total_weight"] for row in report["data"]["rows"] if row["name"] == function)
        rest = sum(ns for state, ns in threads[tid].items() if state != "waiting")
        found_all = found + without_stack(profcapture, capture, [tid])
        assert 0.99 * (ns - rest) <= found_all + 1e6 and found <= ns, (function, found, ns, rest)


def test_stacks(profcapture, recordings):
    """In each recording, known stacks reach the root, and most of the waiting time has known
    stacks: nearly all of it, unless other programs used up the copies."""
    for capture, measured in recordings:
        all_ns = known = rooted = 0
        for row in waits(profcapture, capture):
            if row["tid"] not in measured:
                continue
            all_ns += row["duration"]
            known += row["duration"] * (row["stack_source"] not in ("none", "raced"))
            rooted += row["duration"] * (row["user_stop"] == "root")
        assert rooted >= 0.99 * known and rooted >= 0.9 * all_ns, (capture, rooted, known, all_ns)
    assert rooted >= 0.99 * all_ns  # in the best recording


def nanoseconds(duration):
    """Returns the time in a text such as "618 us" or "2 min 05 s"."""
    words = duration.split()
    return sum(float(number) * {"us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}[unit] for number, unit in zip(words[::2], words[1::2]))


def assert_waiting(text, data):
    """Checks that the first lines of a report match the waiting time and the longest waits of --by
    state."""
    head = text.split("\n\n")[0]
    found = re.search(r"^Waited (.*) in all threads: (.*?)(; .* ready, without a CPU)?\.$", head, re.M)
    assert found, head
    waited = sum(row["time_ns"] for row in data["rows"] if row["state"] not in ("running", "runnable", "preempted"))
    assert nanoseconds(found[1]) == pytest.approx(waited, rel=0.006)
    places = found[2].split(", ")
    assert len(places) == min(len(data["places"]), 3)
    for place, row in zip(places, data["places"]):
        time, said = re.fullmatch(r"((?:\d+ min )?[\d.]+ \w+) (.*)", place).groups()
        assert nanoseconds(time) == pytest.approx(row["time_ns"], rel=0.006), (place, row)
        # places of threads that slept during the whole recording have equal times; any may be first
        names = [(one["call"] or one["cause"]) + (f" in {one['function']} (" if one["function"] else " (")
                 for one in data["places"] if one["time_ns"] == pytest.approx(row["time_ns"], rel=0.006)]
        assert any((said + " (").startswith(name) for name in names), (place, names)


def test_states(profcapture, recorded, by_state):
    """The states add up to the threads' lifetimes, and the causes to the waiting time. Hardly any
    time has an unknown cause."""
    schema.check(profcapture, "report", by_state)
    data = by_state["data"]
    assert sum(row["time_ns"] for row in data["rows"]) == data["total_ns"]
    assert sum(row["time_ns"] for row in data["causes"]) == data["waited_ns"]
    unknown = sum(row["time_ns"] for row in data["places"] if row["cause"] == "unknown")
    assert unknown <= 0.01 * data["waited_ns"]
    for options in (), ("--by", "thread"), ("--by", "process"):
        assert_waiting(profcapture("report", recorded[0], *options).stdout, data)


@pytest.mark.parametrize("cause", ["timer", "futex", "pipe", "network", "poll", "file", "process", "fault"])
def test_causes(profcapture, recorded, by_state, cause):
    """Each function waits for its own cause, as long as its threads measured, minus the time in
    which they ran or were ready."""
    capture, measured = recorded
    own = {tid: ns for tid, (function, ns) in measured.items() if function == f"wait_{cause}"}
    if cause == "fault" and not own:
        pytest.skip("the kernel does not permit userfaultfd")
    threads = states(profcapture, capture)
    rest = sum(ns for tid in own for state, ns in threads[tid].items() if state != "waiting")
    found, aside = collections.Counter(), 0
    for row in by_state["data"]["places"]:
        if row["function"] == f"wait_{cause}":
            found[row["cause"]] += row["time_ns"]
            # the kernel also waits on behalf of a thread: for pages that a fork shares, and on the
            # way back to user mode
            aside += row["time_ns"] * (row["cause"] != cause and (row["cause"] == "fault" or row["call"] in (None, "fork")))
    found_all = found[cause] + aside + without_stack(profcapture, capture, own)
    assert 0.99 * (sum(own.values()) - rest) <= found_all + 1e6 and found[cause] <= sum(own.values()), (found, own, rest)
    assert found.most_common(1)[0][0] == cause and found[cause] + aside >= 0.99 * found.total(), found


def test_wall(profcapture, recorded):
    """The states of each thread add up to the time from its fork to its exit."""
    capture, measured = recorded
    lived = {}
    for row in rows(profcapture, capture, "task"):
        if row["event"] in ("fork", "exit") and row["tid"] in measured:
            lived.setdefault(row["tid"], {})[row["event"]] = row["time_ns"]
    sums = states(profcapture, capture)
    assert set(lived) == set(measured)
    for tid, times in lived.items():
        wall = times["exit"] - times["fork"]
        assert abs(sum(sums[tid].values()) - wall) <= 0.005 * wall


def test_nothing_matches(profctl, profcapture, capture, require):
    """If options leave out all waits of a capture without samples, report fails and exports
    warn."""
    require(root=True)
    profctl("record", "-q", "--off-cpu", "-F", 0, "-o", capture, "--", "sleep", 0.2)
    assert re.search(r" in (1 wait|[2-9] waits), in ", profcapture("report", capture, "--metric", "off-cpu", "--comm", "sleep").stdout)
    for metric, word in ("off-cpu", "wait"), ("wall", "sample"):
        done = profcapture("report", capture, "--metric", metric, "--focus", "nothing", check=6)
        assert done.stdout == "" and f"no {word} in '{capture}' matches these options" in done.stderr
        assert "leave out all samples" in profcapture("export", capture, "--to", "folded", "--metric", metric, "--focus", "nothing").stderr


def test_wall_of_lost_events(profcapture, recorded, tmp_path):
    """If damage hides which event the samples count, the message says so."""
    flip_in(Capture(recorded[0].read_bytes()), recorded[0], tmp_path / "flipped.cap", "source")
    assert "what the samples count is lost" in profcapture("report", tmp_path / "flipped.cap", "--metric", "wall", check=3).stderr


def test_stopped(profctl, profcapture, require, tmp_path):
    """The time in which a process is stopped has the state "stopped" and the call "stop", not the
    state and the call that the stop interrupts."""
    require(root=True)
    capture = tmp_path / "stopped.cap"
    profctl("record", "-q", "--off-cpu", "-e", "page-faults", "-o", capture, "--", "sh", "-c", "sleep 0.1 & kill -STOP $!; sleep 0.6; kill -CONT $!; wait")
    data = profcapture.json("report", capture, "--by", "state")["data"]
    found = {row["state"]: row["time_ns"] for row in data["rows"]}
    assert 0.5e9 < found["stopped"] and found["sleeping"] > 0.5e9
    assert sum(row["time_ns"] for row in data["places"] if row["call"] == "stop") == found["stopped"]
    assert_waiting(profcapture("report", capture).stdout, data)  # the waits, whatever event was recorded
    for metric in "cpu", "off-cpu", "wall":
        assert "not recorded" not in profcapture("report", capture, "--by", "state", "--metric", metric).stdout


def test_ranges(profcapture, recorded):
    """A range counts the parts of waits that are in it, in report and in cut."""
    capture, _ = recorded
    middle = f"{sorted(row['time_ns'] for row in waits(profcapture, capture))[100]}ns"
    total = profcapture.json("report", capture, "--metric", "off-cpu")["data"]["total_weight"]
    parts = [profcapture.json("report", capture, "--metric", "off-cpu", *range_)["data"]["total_weight"] for range_ in (["--to", middle], ["--from", middle])]
    assert abs(sum(parts) - total) <= 100  # each wait that crosses the border may be off by a nanosecond
    piece = capture.with_name("piece.cap")
    profcapture("cut", capture, "--to", middle, "-o", piece, "--force")
    assert abs(profcapture.json("report", piece, "--metric", "off-cpu")["data"]["total_weight"] - parts[0]) <= 100


@pytest.mark.parametrize("options", [(), ("--tree",), ("--callers", "wait_futex")])
def test_text(profcapture, recorded, options):
    """The text speaks of waits, not of samples or the CPU."""
    text = profcapture("report", recorded[0], "--metric", "off-cpu", *options).stdout
    assert re.search(r"\bwaits  ", text) and "samples" not in text and "CPU" not in text, text


def test_exports(profcapture, recorded):
    """Exports count waits like report."""
    capture, _ = recorded
    total = profcapture.json("report", capture, "--metric", "off-cpu")["data"]["total_weight"]
    folded = profcapture("export", capture, "--to", "folded", "--metric", "off-cpu").stdout
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()) == total
    profile = json.loads(profcapture("export", capture, "--to", "firefox").stdout)
    marks = collections.Counter()
    for thread in profile["threads"]:
        table = thread["markers"]
        for start, end, data in zip(table["startTime"], table["endTime"], table["data"]):
            if "cause" in data:
                marks[data["cause"]] += end - start
    causes = {row["cause"]: row["time_ns"] / 1e6 for row in profcapture.json("report", capture, "--by", "state")["data"]["causes"]}
    assert marks == pytest.approx({cause: ms for cause, ms in causes.items() if cause != "unknown"}, abs=0.1)


@pytest.fixture(scope="module")
def reports(profcapture, recorded):
    """Returns {metric: data of the plain report}."""
    found = {metric: profcapture.json("report", recorded[0], "--metric", metric, "--limit", 0)["data"] for metric in ("cpu", "off-cpu", "wall")}
    for key in "total", "total_weight":
        assert found["wall"][key] == found["cpu"][key] + found["off-cpu"][key]
    return found


@pytest.mark.parametrize("by", ["line", "image", "thread", "process", "cgroup"])
def test_metrics_by(profcapture, recorded, reports, by):
    """Each grouping has all of the weight, and in each row, wall is the sum of cpu and off-cpu."""
    keys = {"line": ("name", "file", "line", "image"), "thread": ("pid", "tid", "comm"), "process": ("pid", "comm")}.get(by, (by,))
    found = {metric: collections.Counter() for metric in reports}
    for metric, sums in found.items():
        output = profcapture.json("report", recorded[0], "--metric", metric, "--by", by, "--limit", 0)
        schema.check(profcapture, "report", output)
        for row in output["data"]["rows"]:
            sums[tuple(row[key] for key in keys)] += row["self_weight"]
        assert sums.total() == output["data"]["total_weight"] == reports[metric]["total_weight"]
    assert found["wall"] == found["cpu"] + found["off-cpu"]
    if by == "cgroup":
        assert set(found["cpu"]) == set(found["off-cpu"]) and (None,) not in found["off-cpu"], found


@pytest.mark.parametrize("metric", ["off-cpu", "wall"])
def test_metrics_annotate(profcapture, recorded, reports, metric):
    """A function has the weight that the report shows, and its lines add up to its self weight."""
    output = profcapture.json("annotate", recorded[0], "wait_futex", "--metric", metric)
    schema.check(profcapture, "annotate", output)
    data, report = output["data"], reports[metric]
    row, = (row for row in report["rows"] if row["name"] == "wait_futex")
    for key in "total", "total_weight":
        assert data["function"][key] == row[key] > 0
    for key in "self", "self_weight":  # without (own_) and with the functions inlined into it
        assert data["function"][f"own_{key}"] == row[key] and data["function"][key] >= row[key]
    assert (data["samples"], data["weight"]) == (report["total"], report["total_weight"])
    assert sum(line["self_weight"] for line in data["lines"]) == data["function"]["self_weight"]


@pytest.mark.parametrize("metric", ["off-cpu", "wall"])
def test_metrics_exports(profcapture, recorded, reports, metric, tmp_path):
    """The trace for Chrome and the page have report's totals, and diff compares the same metric."""
    capture, _ = recorded
    _, threads = read_chrome(profcapture("export", capture, "--to", "chrome", "--metric", metric).stdout)
    busy = [after - us for *_, samples in threads for (path, us), (_, after) in zip(samples, samples[1:]) if path != ["(idle)"]]
    assert len(busy) == reports[metric]["total"]
    if metric == "off-cpu":
        assert sum(busy) == pytest.approx(reports[metric]["total_weight"] / 1000, abs=len(busy))
    profcapture("export", capture, "--to", "html", "--metric", metric, "-o", tmp_path / "page")
    header, columns = read_page(tmp_path / "page")
    assert header["capture"]["metric"] == metric
    assert (sum(columns["samples.count"]), sum(columns["samples.weight"])) == (reports[metric]["total"], reports[metric]["total_weight"])
    diff = profcapture.json("diff", capture, capture, "--metric", metric, "--limit", 0, check=8)  # too few waits for a verdict
    schema.check(profcapture, "diff", diff)
    assert diff["data"]["metric"] == metric
    shares = collections.Counter()
    for row in diff["data"]["rows"]:
        # a function and a system call may have the same name
        shares[row["name"]] += row["a"] * (row["name"] != "<interrupts>")
    assert all(row["delta"] == 0 for row in diff["data"]["rows"]) and shares.total() == pytest.approx(100)
    # diff leaves out waits without a stack
    most = max(reports[metric]["rows"], key=lambda row: row["self_weight"])
    assert shares[most["name"]] == pytest.approx(100 * most["self_weight"] / reports[metric]["total_weight"], rel=0.02)


# Waits by syscall(2), whose name does not give the cause, as in programs without the C library.
BARE = """
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char byte;

__attribute__((noinline)) static void wait_timer(void)
{
	syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = 300000000 }, NULL);
	__asm__ volatile("");
}
__attribute__((noinline)) static void wait_futex(void)
{
	int word = 0;

	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &(struct timespec){ .tv_nsec = 300000000 });
	__asm__ volatile("");
}
__attribute__((noinline)) static void wait_pipe(int fd)
{
	syscall(SYS_read, fd, &byte, 1);
	__asm__ volatile("");
}
__attribute__((noinline)) static void wait_network(int fd)
{
	syscall(SYS_read, fd, &byte, 1);
	__asm__ volatile("");
}
int main(void)
{
	int pipes[2], sockets[2], asked[2], n = 2;

	if (pipe(pipes) || pipe(asked) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		return 1;
	if (fork() == 0) {
		for (int i = 0; i < 2 * n; i++) {
			if (read(asked[0], &byte, 1) != 1)
				return 1;
			usleep(300000);
			if (write(i % 2 ? sockets[1] : pipes[1], "x", 1) != 1)
				return 1;
		}
		return 0;
	}
	for (int i = 0; i < n; i++) {
		wait_timer();
		wait_futex();
		if (write(asked[1], "x", 1) != 1)
			return 1;
		wait_pipe(pipes[0]);
		if (write(asked[1], "x", 1) != 1)
			return 1;
		wait_network(sockets[0]);
	}
}
"""


def test_causes_without_names(profctl, profcapture, compile_c, capture, require):
    """If no function's name gives the cause of a wait, the cause follows from the system call and
    its object. One of two waits is enough, because on a busy machine a wait may end before
    profd reads the thread's system call."""
    require(root=True)
    profctl("record", "-q", "--off-cpu", "-o", capture, "--", compile_c("bare", BARE, "-g"))
    causes, queried = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    for row in profcapture.json("report", capture, "--by", "state", "--limit", 0)["data"]["places"]:
        causes[row["function"]][row["cause"]] += row["time_ns"]
    for row in profcapture.json("sql", capture, "SELECT stack, cause, sum(duration_ns) AS ns FROM waits WHERE stack LIKE '%wait_%' GROUP BY 1, 2")["data"]["rows"]:
        if function := re.search("wait_(timer|futex|pipe|network)", row["stack"]):  # "_" in LIKE is any character
            queried[function[0]][row["cause"]] += row["ns"]
    for cause in "timer", "futex", "pipe", "network":
        for found in causes, queried:
            assert found[f"wait_{cause}"][cause] > 0.9 * found[f"wait_{cause}"].total() > 0.2e9, (cause, found)


SLOWER = """
#include <stdlib.h>
#include <time.h>

__attribute__((noinline)) static void save(long ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	(void)argc;
	for (int i = 0; i < 100; i++) {
		for (volatile int k = 0; k < 1000000; k++)
			;
		save(atoi(argv[1]));
	}
}
"""


SPAWNER = """
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The child opens a pipe before its exec, and waits for a writer; vfork() waits for the exec. */
__attribute__((noinline)) static int start(char *fifo)
{
	char *words[] = { "true", NULL };
	posix_spawn_file_actions_t actions;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, fifo, O_RDONLY, 0);
	return posix_spawnp(&pid, "true", &actions, NULL, words, environ) == 0 && waitpid(pid, NULL, 0) == pid;
}
int main(int argc, char **argv)
{
	for (int i = 0; i < 6; i++) {
		if (fork() == 0) {
			usleep(150000);
			return close(open(argv[argc - 1], O_WRONLY));
		}
		if (!start(argv[argc - 1]) || wait(NULL) < 0)
			return 1;
	}
	return 0;
}
"""


def test_spawn(profctl, profcapture, compile_c, capture, require, tmp_path):
    """posix_spawn() waits for its child like vfork(), although in another system call."""
    require(root=True)
    os.mkfifo(tmp_path / "fifo")
    profctl("record", "-q", "--off-cpu", "-o", capture, "--", compile_c("spawner", SPAWNER, "-g"), tmp_path / "fifo")
    data = profcapture.json("report", capture, "--by", "state", "--limit", 0)["data"]
    found = collections.Counter()
    for row in data["places"]:
        found[row["cause"], row["call"]] += row["time_ns"] * (row["function"] == "start")
    assert found["process", "vfork"] > 6 * 0.13e9, found


def test_names_of_long_waits(profctl, profcapture, capture, require):
    """A long wait has the names of its system call and of its descriptor's object, also if its
    stack was copied when it began."""
    require(root=True)
    for attempt in range(4):  # on a busy machine, this sleep may be one of those whose stacks are not copied
        profctl("record", "-q", "--off-cpu", "-F", 0, "--force", "-o", capture, "--", "sh", "-c", "sleep 0.7 | cat")
        row, = (row for row in waits(profcapture, capture) if row["comm"] == "cat" and row["duration"] > 0.5e9)
        assert row["syscall"] == "read" and row["object"].startswith("pipe:"), row
        if row["stack_source"] == "copied":
            break
    assert row["stack_source"] == "copied"
    places = profcapture.json("report", capture, "--by", "state", "--limit", 0)["data"]["places"]
    assert any(place["cause"] == "pipe" and place["time_ns"] >= row["duration"] for place in places)


def test_slower_by_waiting(profctl, profcapture, require, compile_c, tmp_path):
    """A program that computes as before but waits longer is slower; diff says where it waits."""
    require(root=True)
    program = compile_c("slower", SLOWER, "-g")
    for name, ms in ("a", 2), ("b", 8):
        profctl("record", "-q", "--off-cpu", "-e", "cpu-clock", "-o", tmp_path / name, "--", program, ms)
    data = profcapture.json("diff", tmp_path / "a", tmp_path / "b", check=None)["data"]
    note, = [note["text"] for note in data["notes"] if note["code"] == "waiting"]
    assert "timer in save" in note
    data = profcapture.json("diff", tmp_path / "b", tmp_path / "a", check=None)["data"]
    assert not [note for note in data["notes"] if note["code"] == "waiting"]


IDLE = """
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int pipes[2], sockets[2], poller, locked, again, size = 100;

__attribute__((noinline)) static void wait_long(void)
{
	char byte;

	if (read(pipes[0], &byte, 1) == 1)
		pause();
}

static void *run(void *data)
{
	wait_long();
	return data;
}

static void *receive(void *data)
{
	char byte;

	return recv(sockets[0], &byte, 1, 0) == 1 ? data : NULL;
}

static void *poll_long(void *data)
{
	struct epoll_event event;

	return epoll_wait(poller, &event, 1, -1) == 1 ? data : NULL;
}

static void *lock_file(void *data)
{
	return flock(again, LOCK_EX) == 0 ? data : NULL;
}

/* The frame has a size that only the frame pointer shows. */
static __attribute__((noinline)) void wait_cut(int size)
{
	char bytes[size];

	__asm__ volatile("" : : "r"(bytes) : "memory");
	pause();
	__asm__ volatile("" : : : "memory");
}

static void *run_cut(void *data)
{
	wait_cut(*(volatile int *)data);
	return data;
}

/* Starts a process that is traced, and stops. */
static pid_t trace(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(0);
	}
	return waitpid(pid, NULL, 0);
}

/* While the child runs, the return address of vfork() is in a register only. */
static __attribute__((noinline)) int fork_long(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return pid < 0;
}

int main(int argc, char **argv)
{
	void *(*const waits[])(void *) = { run, receive, poll_long, lock_file, run_cut };
	pthread_t thread;

	if (argc != 2 || pipe(pipes) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
		return 1;
	poller = epoll_create1(0);
	locked = open(argv[1], O_RDONLY);
	again = open(argv[1], O_RDONLY);
	if (poller < 0 || again < 0 || flock(locked, LOCK_EX) != 0)
		return 1;
	for (int i = 0; i < 5; i++)
		if (pthread_create(&thread, NULL, waits[i], &size) != 0)
			return 1;
	return dprintf(1, "%d\\n", trace()) < 0 || fork_long();
}
"""


@pytest.mark.parametrize("pointers", ["-fomit-frame-pointer", "-fno-omit-frame-pointer", "-O0"])
@pytest.mark.parametrize("plain", [False, True])
def test_sleepers(profctl, profcapture, plain, pointers, require, tmp_path, spawn):
    """A thread that sleeps during the whole recording has a stack, also if it is recorded without
    privilege. Only its program counter and stack pointer are known, so a function's frame pointer
    is found from the function's prologue. The thread's state is the one in /proc."""
    require(root=True)
    (tmp_path / "idle.c").write_text(IDLE)
    subprocess.run(["gcc", "-O2", pointers, "-g", "-pthread", tmp_path / "idle.c", "-o", tmp_path / "idle"], check=True)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if plain else []
    idle, stopped = spawn(*prefix, tmp_path / "idle", tmp_path / "idle.c", stdout=subprocess.PIPE), spawn(*prefix, "sleep", 60)
    traced = int(idle.stdout.readline())
    until(lambda: Path(f"/proc/{stopped.pid}/comm").read_text() == "sleep\n")  # before, it may still be root's process
    os.kill(stopped.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{stopped.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    shared = tmp_path / "open"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    capture = shared / "idle.cap"
    profctl("record", "-q", "--bus", "private", "--off-cpu", "-o", capture, "-p", f"{idle.pid},{stopped.pid},{traced}", "-d", 1, "-F", 0, prefix=prefix)
    rows = waits(profcapture, capture)
    states_of = lambda pid: {row["state"] for row in rows if row["pid"] == pid}
    assert states_of(stopped.pid) == {"stopped"} and states_of(traced) == {"traced"}
    assert {row["state"] for row in rows if row["tid"] == idle.pid} == {"uninterruptible"}  # until its child of vfork() ends
    found = {row["stack_source"]: row for row in rows if row["syscall"] == "read" and row["pid"] == idle.pid}
    row = found["late"]
    assert row["user_stop"] == "root" and row["object"].startswith("pipe:") and row["duration"] > 0.8e9
    assert row["state"] == "sleeping"
    objects = {row["syscall"]: row["object"] for row in rows if row["pid"] == idle.pid}
    polled = objects.get("epoll_wait", objects.get("epoll_pwait"))  # some architectures have the latter only
    assert polled == "anon_inode:[eventpoll]"
    assert re.fullmatch(r"socket:\[\d+\]", objects["recvfrom"]) and objects["flock"] == str(tmp_path / "idle.c")
    causes = profcapture.json("sql", capture, "SELECT cause FROM waits WHERE syscall = 'read'")["data"]["rows"]
    assert {row["cause"] for row in causes} == {"pipe"}
    tree = profcapture("report", capture, "--metric", "off-cpu", "--tree").stdout
    assert "kernel: read of a pipe" in tree
    data = profcapture.json("report", capture, "--by", "state", "--limit", 0)["data"]
    for state, call in ("stopped", "stop"), ("traced", "trace stop"):
        assert sum(row["time_ns"] for row in data["places"] if row["call"] == call) == sum(row["time_ns"] for row in data["rows"] if row["state"] == state) > 0.8e9
    causes = profcapture.json("sql", capture, "SELECT cause FROM waits WHERE state IN ('stopped', 'traced')")["data"]["rows"]
    assert len(causes) == 2 and {row["cause"] for row in causes} == {"other"}
    assert {("wait_long", "pipe"), ("fork_long", "vfork"), ("wait_cut", "signal")} <= {(row["function"], row["call"]) for row in data["places"]}
    # where an unknown frame pointer is needed, the stack ends with the reason no-rule; if the C
    # library keeps frame pointers, pause() has stored the pointer
    stops = {row["user_stop"] for row in rows if row["syscall"] == "pause" and row["pid"] == idle.pid}
    functions = {row["name"] for row in profcapture.json("report", capture, "--metric", "off-cpu", "--callers", "wait_cut", "--limit", 0)["data"]["callers"]}
    assert stops == {"no-rule"} or (stops == {"root"} and functions == {"run_cut"})


def test_sleep_after_a_quiet_time(profctl, profcapture, require, tmp_path):
    """The stack of a plain user's wait is read while the thread waits, also if nothing happened for
    a while before, but only if the wait is longer than the time given with --off-cpu."""
    require(root=True)
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)
    capture = tmp_path / "quiet.cap"
    profctl("record", "-q", "--bus", "private", "--off-cpu=300ms", "-o", capture, "-F", 0, "--", "sh", "-c", "sleep 0.1; sleep 1.2; sleep 1.5",
            prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    found = [row["stack_source"] for row in waits(profcapture, capture) if row["comm"] == "sleep" and row["duration"] > 0.08e9]
    assert len(found) == 3 and found[0] != "late" and found[1:] == ["late", "late"]


LOCKED = """
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define SIZE (512u << 20)

/* Holds the lock of the process's memory most of the time. */
static void *protect(void *memory)
{
	for (int i = 0;; i++)
		mprotect(memory, SIZE, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE);
	return NULL;
}

int main(void)
{
	char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;

	madvise(memory, SIZE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < SIZE; i += 4096)
		memory[i] = 1;
	if (fork() == 0) {
		prctl(PR_SET_NAME, "free");
		munmap(memory, SIZE);
	} else if (pthread_create(&thread, NULL, protect, memory) != 0) {
		return 1;
	}
	for (int i = 0; i < 80; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
}
"""


def test_locked_memory(profctl, profcapture, compile_c, require, tmp_path):
    """The stacks of a process that holds the lock of its memory for long are read less often than
    those of other processes. The user is not root, so no stacks are copied when a sleep begins."""
    require(root=True)
    program = compile_c("locked", LOCKED, "-pthread")
    for folder in (tmp_path, *tmp_path.parents[:2], program.parent, *program.parent.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o755)
    tmp_path.chmod(0o777)
    capture = tmp_path / "locked.cap"
    profctl("record", "-q", "--bus", "private", "--off-cpu", "-o", capture, "-F", 0, "--", program,
            prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    read = collections.Counter(row["comm"] for row in waits(profcapture, capture) if row["duration"] > 0.02e9 and row["stack_source"] in ("late", "raced"))
    assert read["locked"] < read["free"] / 2, read


STORM = """
import os, signal, time
pipes = os.pipe(), os.pipe()
signal.signal(signal.SIGUSR1, lambda *_: None)
print(flush=True)
signal.pause()
end = time.monotonic() + 0.1
if os.fork() == 0:
    while time.monotonic() < end:
        os.write(pipes[0][1], os.read(pipes[1][0], 1))
    os._exit(0)
while time.monotonic() < end:
    os.write(pipes[1][1], b"x")
    os.read(pipes[0][0], 1)
"""
STOPPER = '''
import os, signal, sys, time
from pathlib import Path

def is_engine(folder, depth=2):
    """Returns whether a process is the engine below profctl, which is our parent."""
    try:
        name, _, fields = (folder / "stat").read_text().rpartition(")")
    except OSError:
        return False
    parent = int(fields.split()[1])
    if depth == 2 and not name.endswith("(profd-engine"):
        return False
    return parent == os.getppid() or (depth > 0 and is_engine(Path(f"/proc/{parent}"), depth - 1))

def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass

compute(0.1)
(engine,) = [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if is_engine(folder)]
begin = time.monotonic()
os.kill(engine, signal.SIGSTOP)
os.kill(int(sys.argv[1]), signal.SIGUSR1)
compute(0.1)
os.kill(engine, signal.SIGCONT)
print(time.monotonic() - begin)
'''


def test_copies_cost_no_samples(profctl, profcapture, require, tmp_path, spawn):
    """Stacks of other processes' sleeps are copied, too, in bursts that the engine may read late.
    The copies take no room from the samples, whose rings hold a quarter of a second."""
    require(root=True)
    capture, seconds = tmp_path / "burst.cap", 1
    for _ in range(5):  # on a busy machine, the engine may be stopped for longer
        storm = spawn("/usr/bin/python3", "-c", STORM, stdout=subprocess.PIPE)
        assert storm.stdout.read(1)
        done = profctl("record", "-q", "--force", "--off-cpu", "-o", capture, "--", "/usr/bin/python3", "-c", STOPPER, storm.pid)
        seconds = float(done.stdout)
        if seconds < 0.15:
            break
    assert seconds < 0.15, "the engine could not be stopped for 0.1 s"
    assert {row["cause"] for row in rows(profcapture, capture, "loss")} <= {"ticks-missed"}


def test_default(profctl, profcapture, require, tmp_path, spawn):
    """By default, waits of commands and processes are recorded, but not waits of the whole system.
    The summary says whether they were, and the report says where threads waited."""
    require(root=True)
    tmp_path.chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o755)

    def record(*options, prefix=()):
        done = profctl("record", "--json", "--bus", "private", "--force", "--no-symbols", "-o", tmp_path / "x.cap", *options, prefix=prefix)
        output = json.loads(done.stdout.splitlines()[-1])
        schema.check(profctl, "record", output)
        return output["data"]["off_cpu"], done.stderr

    found, said = record("--", "sleep", "0.3")
    assert found["recorded"] == "full" and found["copied_ns"] + found["late_ns"] > 0.25e9
    assert re.search(r"^Threads waited [\d.]+ m?s(; [\d.]+ % of that has a stack \([\d.]+ % read too late, [\d.]+ % not read\))?\.$", said, re.M)
    assert record("--pid", spawn("sleep", 60).pid, "-d", "0.3")[0]["recorded"] == "full"
    found, said = record("--system", "-d", "0.2")
    assert found["recorded"] == "none" and "(--off-cpu records it)" in said
    assert "Waited" not in profcapture("report", tmp_path / "x.cap").stdout
    record("--system", "--off-cpu", "-d", "0.2")
    assert_waiting(profcapture("report", tmp_path / "x.cap").stdout, profcapture.json("report", tmp_path / "x.cap", "--by", "state")["data"])
    found, said = record("--", "sleep", "0.5", prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    missing, waited = found["raced_ns"] + found["none_ns"], sum(ns for name, ns in found.items() if name.endswith("_ns"))
    assert found["recorded"] == "own" and found["late_ns"] > 0
    assert ("short waits need root" in said) == (missing >= 0.0005 * waited)


PING = r"""
#include <time.h>
#include <unistd.h>
int main(void)
{
	struct timespec now, nap = { 0, 1000 };
	int to[2], back[2];
	char c = 0;
	time_t end;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now.tv_sec + 3;
	if (pipe(to) || pipe(back))
		return 1;
	if (fork() == 0) {
		close(to[1]);
		while (read(to[0], &c, 1) == 1 && write(back[1], &c, 1) == 1)
			;
		return 0;
	}
	for (; clock_gettime(CLOCK_MONOTONIC, &now), now.tv_sec < end; nanosleep(&nap, 0))
		for (int i = 0; i < 100; i++)
			if (write(to[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
				return 1;
	return 0;
}
"""


def test_too_many_waits(profctl, compile_c, tmp_path):
    """If a program waits too often, only the times of its waits are recorded. A warning says so,
    except with --quiet, which prints errors only."""
    program = compile_c("ping", PING)
    record = ["record", "--json", "--bus", "private", "--force", "--no-symbols", "-o", tmp_path / "x.cap"]
    loud, quiet = profctl(*record, "--", program), profctl(*record, "-q", "--", program)
    for done in loud, quiet:
        assert json.loads(done.stdout.splitlines()[-1])["data"]["off_cpu"]["recorded"] == "stopped"
    assert re.search(r"^profctl: warning: threads wait \d+ times a second, and .* waits have times but no stacks \(--off-cpu records them\)$", loud.stderr, re.M)
    assert "they waited too often" in loud.stderr and quiet.stderr == ""


def test_wakers(profctl, profcapture, require, tmp_path):
    """Each wait for a lock is ended by a thread that released it, and each sleep by a timer."""
    require(root=True)
    program, capture = tmp_path / "convoy", tmp_path / "convoy.cap"
    subprocess.run(["gcc", "-O2", "-g", "-pthread", SOURCE.with_name("convoy.c"), "-o", program], check=True)
    lines = profctl("record", "-q", "--wakers", "-F", 0, "-o", capture, "--", program).stdout.splitlines()
    locks = {int(address, 16) for _, address, _, _ in map(str.split, lines)}
    found = waits(profcapture, capture)
    waiting = [row for row in found if row["argument"] in locks]
    assert len(waiting) > 200
    released = [row for row in waiting if row["waker"] == "thread" and row["waker_argument"] == row["argument"]]
    assert len(released) >= 0.99 * len(waiting)
    assert all(row["waker_thread"] not in (None, row["thread"]) for row in released)
    stacks = sum(row["waker_stack_source"] in ("copied", "shared-out") for row in released)
    assert stacks >= 0.9 * len(released)  # the stacks of places that occur once may not be copied
    # the main thread waits for the other threads to end; most other waits are sleeps, ended by timers
    kinds = collections.Counter(row["waker"] for row in found if row["argument"] not in locks)
    assert kinds["interrupt"] >= 0.9 * (kinds.total() - kinds["unknown"]) and kinds["interrupt"] > 100, kinds


def test_absent(profctl, profcapture, program, tmp_path):
    """If waits were not recorded, the message says how to record them."""
    capture = tmp_path / "none.cap"
    profctl("record", "-q", "--no-symbols", "--no-off-cpu", "-o", capture, "--", "sleep", "0.1")
    done = profcapture("report", capture, "--metric", "off-cpu", check=6)
    assert "--off-cpu" in done.stderr
    assert rows(profcapture, capture, "wait") == []
    done = profctl("record", "--off-cpu", "--no-off-cpu", "--", "true", check=2)
    assert "exclude" in done.stderr
