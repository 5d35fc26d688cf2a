# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The critical path: what a thread's time consisted of, through all threads that it waited for.

A program of a few threads runs steps whose durations are known. Each step waits for the one before
it, so the path must go through all of them.
"""
import os
import re
import subprocess

import pytest
import schema
from captures import rows
from slices import SANITIZED

PROGRAM = r"""
#define _GNU_SOURCE
#ifdef MARKS
#include "libcollector/prof-collector.h"
#else
#define prof_mark_begin(...)
#define prof_mark_end(...)
#endif
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#define STEP __attribute__((noinline)) static void
static volatile unsigned long sink;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_done, pipes[2];
static uint64_t now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}
/* uses a CPU for that long, however busy the machine is */
#define SPIN(ms) for (uint64_t end = now(CLOCK_THREAD_CPUTIME_ID) + ms * 1000000ull; now(CLOCK_THREAD_CPUTIME_ID) < end;) for (int i = 0; i < 100000; i++) sink++
STEP prepare(void) { SPIN(100); }
STEP produce(void) { SPIN(200); }
STEP deliver(void) { usleep(50000); }
STEP finish(void) { SPIN(60); }
STEP launch(void) { SPIN(80); }
STEP conclude(void) { SPIN(40); }
STEP receive(void) { char byte; if (read(pipes[0], &byte, 1) != 1) sink++; sink++; }
STEP await(void) { pthread_mutex_lock(&mutex); while (!is_done) pthread_cond_wait(&changed, &mutex); is_done = 0; pthread_mutex_unlock(&mutex); }
STEP announce(void) { pthread_mutex_lock(&mutex); is_done = 1; pthread_cond_signal(&changed); pthread_mutex_unlock(&mutex); }
static void *supply(void *data)
{
	pthread_setname_np(pthread_self(), "supplier");
	produce();
	deliver();
	return write(pipes[1], "x", 1) == 1 ? NULL : data;
}
static void *work(void *data)
{
	pthread_t supplier;

	pthread_setname_np(pthread_self(), "worker");
	pthread_create(&supplier, NULL, supply, data);
	receive();
	finish();
	announce();
	pthread_join(supplier, NULL);
	return NULL;
}
static void *late(void *data)
{
	pthread_setname_np(pthread_self(), "late");
	finish();
	announce();
	return data;
}
static void *start(void *data)
{
	pthread_t thread;

	pthread_setname_np(pthread_self(), "starter");
	launch();
	pthread_create(&thread, NULL, late, data);
	pthread_detach(thread);
	return NULL;
}
int main(void)
{
	pthread_t threads[2];
	uint64_t times[4] = { now(CLOCK_MONOTONIC) };
	cpu_set_t first;

	/* On one machine, Linux 6.18 reported no event of the idle task of CPU 1, for a reason that
	 * is not known: nothing told what woke a thread there. */
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	sched_setaffinity(0, sizeof(first), &first);
	if (pipe(pipes) != 0)
		return 1;
	prepare();
	pthread_create(&threads[0], NULL, work, NULL);
	prof_mark_begin(0, "path", "await", NULL, 0);
	times[1] = now(CLOCK_MONOTONIC);
	await();
	times[2] = now(CLOCK_MONOTONIC);
	prof_mark_end(0, "path", "await", NULL, 0);
	pthread_create(&threads[1], NULL, start, NULL);
	await();
	conclude();
	times[3] = now(CLOCK_MONOTONIC);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("%lu %lu\n", times[2] - times[1], times[3] - times[0]);
}
"""


@pytest.fixture(scope="module")
def relay(profctl, compile_c, tmp_path_factory):
    """A capture, the duration of the first wait, and that of the program, both by the program's own
    clock."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    collector = [] if SANITIZED else ["-DMARKS", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"]]
    program = compile_c("relay", PROGRAM, "-g", "-pthread", *collector)
    capture = tmp_path_factory.mktemp("path") / "relay.cap"
    done = profctl("record", "-q", "--wakers", "-o", capture, "--", program)
    return capture, *map(int, done.stdout.split())


def children(node, kind, name=None):
    """A node's children of that kind: waits by their function, or threads by their name."""
    return [child for child in node["children"] if child["kind"] == kind and name in (None, child.get("comm"), child.get("function", {}).get("name"))]


def child(node, kind, name=None):
    found = children(node, kind, name)
    assert len(found) == 1, (kind, name, node)
    return found[0]


def ran(node, function):
    """Returns how long the function ran directly in the node, without its waits."""
    return sum(each["total_ns"] for runs in children(node, "runs") for each in children(runs, "function", function))


def leaves(node):
    return node["self_ns"] + sum(map(leaves, node["children"]))


def near(ns, expected_ms, samples=0):
    """Returns whether a time is near the expected one. If samples divide a running time among functions,
    it may differ by three standard deviations of a binomial share."""
    slack = 0.05 * expected_ms + 3 * samples ** 0.5
    return abs(ns / 1e6 - expected_ms) <= slack


def test_path(profcapture, relay):
    """The children of each wait show what the thread that ended the wait did meanwhile, and for how
    long."""
    capture, _, all_ns = relay
    output = profcapture.json("critical-path", capture)
    schema.check(profcapture, "critical-path", output)
    data = output["data"]
    assert data["spans"] == 1 and data["mark"] is None and not data["is_deep"]
    main = child(data["root"], "thread")
    assert main["comm"] == "relay"
    assert near(ran(main, "prepare"), 100, 100) and near(ran(main, "conclude"), 40, 100)

    work, late = sorted(children(main, "waits", "await"), key=lambda wait: wait["comm"], reverse=True)
    assert work["waker"] == "thread" and work["cause"] == "futex" and work["comm"] == "worker"
    receive = child(work, "waits", "receive")
    assert receive["comm"] == "supplier" and receive["cause"] in ("pipe", "file")
    assert near(ran(receive, "produce"), 200, 200)
    deliver = child(receive, "waits", "deliver")
    assert deliver["waker"] == "interrupt" and deliver["cause"] == "timer" and 49e6 <= deliver["self_ns"] <= 70e6
    assert near(ran(work, "finish"), 60, 60)

    assert late["comm"] == "late" and near(ran(late, "finish"), 60, 60)
    created = child(late, "created")
    assert created["comm"] == "starter" and near(ran(created, "launch"), 80, 80)

    # the time is that of the thread's life, which begins before main() and ends after its last line
    tasks = [row for row in rows(profcapture, capture, "task") if row["pid"] == row["tid"] and row["comm"] == "relay"]
    begin, end = (next(row["time_ns"] for row in tasks if row["event"] == event) for event in ("exec", "exit"))
    assert all_ns <= data["total_ns"] and data["total_ns"] == pytest.approx(end - begin, abs=1e6)


def test_sums(profcapture, relay):
    """The tree, its threads and its states all add up to the time."""
    capture, _, _ = relay
    data = profcapture.json("critical-path", capture)["data"]
    assert data == profcapture.json("critical-path", capture)["data"]  # equal times keep their order
    kinds = ("running_ns", "ready_ns", "waiting_ns", "unknown_ns")
    slack = 1000  # each function's time is rounded by less than a nanosecond
    assert abs(leaves(data["root"]) - data["total_ns"]) <= slack
    assert abs(sum(data[kind] for kind in kinds) - data["total_ns"]) <= slack
    for kind in kinds:
        assert sum(thread[kind] for thread in data["threads"]) == data[kind]
    assert {thread["comm"] for thread in data["threads"]} == {"relay", "worker", "supplier", "starter", "late"}
    assert data["unknown_ns"] <= 0.01 * data["total_ns"]


@pytest.mark.skipif(SANITIZED, reason="the program is built without the sanitizer that the collector needs")
def test_mark(profcapture, relay):
    """The path of a mark covers exactly the mark's time."""
    capture, wait_ns, _ = relay
    data = profcapture.json("critical-path", capture, "--mark", "await")["data"]
    assert data["spans"] == 1 and data["tid"] is None
    assert abs(data["total_ns"] - wait_ns) <= 0.01 * wait_ns + 2e6 + data["ready_ns"]
    assert {thread["comm"] for thread in data["threads"]} == {"relay", "worker", "supplier"}
    assert profcapture("critical-path", capture, "--mark", "await").stdout.split("Critical path")[1].startswith(" of mark 'await', 1 time: ")
    assert "no-such" in profcapture("critical-path", capture, "--mark", "no-such", check=2).stderr


def test_thread(profcapture, relay):
    """--comm and --from restrict the path to another thread, or to a part of the time."""
    capture, _, _ = relay
    data = profcapture.json("critical-path", capture, "--comm", "worker")["data"]
    root = child(data["root"], "thread")
    assert root["comm"] == "worker" and near(ran(child(root, "waits", "receive"), "produce"), 200, 200)
    whole = profcapture.json("critical-path", capture)["data"]["total_ns"]
    middle = f"{profcapture.json('info', capture)['capture']['duration_ns'] // 2}ns"
    parts = [profcapture.json("critical-path", capture, *range_)["data"]["total_ns"] for range_ in (["--to", middle], ["--from", middle])]
    assert abs(sum(parts) - whole) <= 1000
    assert profcapture("critical-path", capture, "--comm", "nobody", check=6).stderr


def test_text(profcapture, relay):
    capture, _, _ = relay
    text = profcapture("critical-path", capture).stdout
    assert "Critical path of relay (thread " in text and "Threads: " in text
    threads = profcapture.json("critical-path", capture)["data"]["threads"]
    some, full = (re.search(r"Threads: (.*?)\.(?:\s|$)", profcapture("critical-path", capture, *options).stdout, re.DOTALL)[1]
                   for options in ([], ["--limit", 0]))
    assert len(threads) > 3 and len(full.split(", ")) == len(threads) and len(some.split(", ")) == 4
    assert re.fullmatch(r"and \d+ others?\s+\(--limit 0\)", some.split(", ")[-1])
    assert "waits for supplier in receive" in text and "is created by starter" in text
    every = profcapture("critical-path", capture, "--limit", 0).stdout  # on a busy machine, the wait may be a branch below 1 %
    assert "waits in deliver: nanosleep" in every or "waits in deliver: timer" in every
    assert "text or json" in profcapture("critical-path", capture, "--format", "csv", check=2).stderr


def test_without_samples(profctl, profcapture, require, tmp_path):
    """A path needs no samples, and its text says that the functions that ran are unknown. A command that
    runs other programs has one path."""
    require(root=True)
    capture = tmp_path / "shell.cap"
    profctl("record", "-q", "--wakers", "-F", 0, "-o", capture, "--", "sh", "-c", "sleep 0.1; sleep 0.2; true")
    data = profcapture.json("critical-path", capture)["data"]
    root = child(data["root"], "thread", "sh")
    waits = [wait for wait in children(root, "waits") if wait.get("comm") == "sleep"]
    assert {wait["cause"] for wait in waits} == {"process"} and sum(wait["waits"] for wait in waits) >= 2
    # the shell may do something else at first, so the first wait may begin late
    assert 0.25e9 <= sum(wait["total_ns"] for wait in waits) < data["total_ns"]
    assert "unknown which functions ran" in profcapture("critical-path", capture).stdout


def test_without_waits(profctl, profcapture, require, tmp_path):
    """The path of a program that never waits consists of running only."""
    require(root=True)
    capture = tmp_path / "busy.cap"
    profctl("record", "-q", "--wakers", "-o", capture, "--", "/usr/bin/python3", "-S", "-c", "for i in range(1000000): pass")
    data = profcapture.json("critical-path", capture)["data"]
    root = child(data["root"], "thread", "python3")
    assert abs(sum(runs["total_ns"] for runs in children(root, "runs")) - data["running_ns"]) <= 1000
    assert data["running_ns"] + data["ready_ns"] >= 0.8 * data["total_ns"]
    assert profcapture("locks", capture).stdout


def test_hostile(profcapture, tmp_path):
    """The path is finite even if threads repeatedly execute programs, and wake each other while
    they wait."""
    capture = tmp_path / "chains.cap"
    subprocess.run([os.environ["MAKE_DENSE"], "wait-chains", capture], check=True, timeout=60)
    data = profcapture.json("critical-path", capture)["data"]
    assert data["total_ns"] > 0 and data["threads"]
    assert abs(leaves(data["root"]) - data["total_ns"]) <= 1000


def test_absent(profctl, profcapture, require, tmp_path):
    """Without wakers, the message says how to record them; for a system-wide recording, it asks for
    --tid."""
    require(root=True)
    capture = tmp_path / "none.cap"
    profctl("record", "-q", "--no-symbols", "--off-cpu", "-o", capture, "--", "sleep", "0.1")
    assert "--wakers" in profcapture("critical-path", capture, check=6).stderr
    profctl("record", "-q", "--no-symbols", "--system", "--wakers", "-d", "0.3s", "-o", capture, "--force")
    assert "--tid" in profcapture("critical-path", capture, check=2).stderr
