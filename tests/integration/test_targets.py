# SPDX-License-Identifier: BSD-2-Clause-Patent
"""--pid and COMMAND record the target's threads and later children, all of them, and nothing
else."""
import json
import os
import subprocess
from pathlib import Path

import pytest

from recordings import end_when_recorded, recorded, until

pytestmark = pytest.mark.usefixtures("nothing_is_left")
EVENTS = ("sample", "task", "mapping", "switch")
OWNED = (*EVENTS, "process", "thread")

FAMILY = r"""
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static char *self;
static void spin(int ms)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
}
static void *work(void *data) { spin(2); return data; }
static void *change(void *data) { spin(20); execl(self, self, "leaf", NULL); return data; }
static void leaf(void) { execl(self, self, "leaf", NULL); _exit(1); }
int main(int argc, char **argv)
{
	pthread_t threads[4];
	int i, j;

	self = argv[0];
	if (argc > 1 && strcmp(argv[1], "leaf") == 0) {
		spin(60);
		return 0;
	}
	if (argc > 1 && strcmp(argv[1], "thread-exec") == 0) {
		pthread_create(threads, NULL, change, NULL);
		for (;;)
			pause();
	}
	if (argc > 1)
		(void)!read(0, &j, 1); /* until it is recorded */
	if (fork() == 0) {
		spin(20);
		leaf();
	}
	if (fork() == 0) {
		if (setsid() && fork() == 0)
			spin(60);
		_exit(0);
	}
	for (i = 0; i < 200; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
	}
	for (i = 0; i < 20; i++) {
		for (j = 0; j < 4; j++)
			pthread_create(&threads[j], NULL, work, NULL);
		for (j = 0; j < 4; j++)
			pthread_join(threads[j], NULL);
	}
	if (fork() == 0)
		execl(self, self, "thread-exec", NULL);
	if (vfork() == 0)
		leaf();
	while (wait(NULL) > 0)
		;
	return 0;
}
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


@pytest.fixture(scope="module")
def family(compile_c):
    return compile_c("family", FAMILY, "-O1", "-pthread")


def rows(profcapture, capture, table):
    return profcapture.json("dump", capture, "--table", table, "--limit", 0)["data"]["rows"]


def assert_family(rows_of, first, tables, how):
    """Checks that every task that FAMILY starts is recorded once, and no other task. rows_of(table)
    returns rows. Returns the pids of FAMILY's processes."""
    ours = {first}
    for process in rows_of("process"):
        if process["pid"] != first:
            assert process["ppid"] in ours, process
        ours.add(process["pid"])
    for table in tables:
        for row in rows_of(table):
            assert row["pid"] in ours, (table, row)
    # processes: the first one, 200 short ones, the leaf, the daemon with its parent, the one whose
    # thread execs, and the vfork child
    assert len(ours) == 1 + 200 + 1 + 2 + 1 + 1
    tasks = rows_of("task")
    assert sum(task["event"] == "fork" for task in tasks) == 205 + 80 + 1
    assert sum(task["event"] == "exec" for task in tasks) == 4 + (how == "command")
    started = {task["thread"] for task in tasks if task["event"] in ("exists", "fork", "exec")}
    assert started == {thread["id"] for thread in rows_of("thread")}
    return ours


@pytest.mark.parametrize("how", ["command", "pid"])
def test_family_and_nobody_else(profctl, profcapture, capture, spawn, recorder, family, how):
    spawn("sh", "-c", f"while :; do {family}; done")
    if how == "command":
        data = recorded(profctl, "--no-symbols", "-o", capture, family)
        first = data["command"]["pid"]
    else:
        target = spawn(family, "late", stdin=subprocess.PIPE)
        first = target.pid
        said = end_when_recorded(target, recorder, "--json", "--no-symbols", "-o", capture)
        assert json.loads(said)["data"]["reason"] == "target-exited"
    ours = assert_family(lambda table: rows(profcapture, capture, table), first, OWNED, how)
    # the daemon outlives its parent, and is recorded until its end
    assert {process["pid"] for process in rows(profcapture, capture, "process")} == ours


CHAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int left = atoi(argv[1]);
	struct timespec a, b;
	char text[16];

	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000 < 1000);
	snprintf(text, sizeof(text), "%d", left - 1);
	if (left > 0)
		execl(argv[0], argv[0], text, NULL);
	return 0;
}
"""


def test_exec_chain(profctl, profcapture, capture, compile_c):
    """/proc's state of a process is newer than records that are still in the rings, and must not
    hide them."""
    recorded(profctl, "--no-symbols", "-o", capture, compile_c("chain", CHAIN, "-O1"), 150)
    tasks = rows(profcapture, capture, "task")
    assert sum(task["event"] == "exec" for task in tasks) == 1 + 150
    processes = {row["id"]: row for row in rows(profcapture, capture, "process")}  # a process's row is written again when more is known
    generations = sorted(process["exec_generation"] for process in processes.values())
    assert generations == list(range(generations[0], generations[0] + len(processes)))


@pytest.mark.changes_machine
def test_pid_that_becomes_a_strangers(recorder, profcapture, capture, spawn):
    """Samples of a thread may come after its exit, so profd keeps the thread for some time, unless
    its tid is reused."""
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    keeper, target = spawn("sleep", 60), spawn("sleep", 1)
    recording = recorder("--no-symbols", "-p", keeper.pid, "-p", target.pid, "-d", 2.5, "-o", capture)
    target.wait()
    for _ in range(100):
        last_pid.write_text(str(target.pid - 1))
        stranger = spawn("sh", "-c", "while :; do /bin/true; done")
        if stranger.pid == target.pid:
            break
        stranger.kill()
    else:
        pytest.skip("somebody else got the number each time")
    recording.wait(timeout=20)
    for table in ("sample", "switch", "mapping"):
        assert all(row["comm"] in ("sleep", None) for row in rows(profcapture, capture, table)), table
    assert {row["pid"] for row in rows(profcapture, capture, "process")} == {keeper.pid, target.pid}


def test_summary_counts_what_is_in_the_file(profctl, profcapture, capture, spawn):
    """The summary does not count forks, switches and mappings of other processes as events."""
    spawn("sh", "-c", "while :; do /bin/true; done")
    data = recorded(profctl, "--no-symbols", "-o", capture, "sleep", "0.5")
    seen = profcapture.json("info", capture)["capture"]
    assert (data["samples"], data["events"]) == (seen["samples"], seen["events"])
    assert data["events"] < 100


def test_vdso_has_names(profctl, profcapture, capture, compile_c):
    clock = compile_c("clock", "#include <time.h>\nint main(void) { struct timespec t; for (long i = 0; i < 5000000; i++)"
                               " clock_gettime(CLOCK_MONOTONIC, &t); return 0; }", "-O1")
    data = recorded(profctl, "-o", capture, clock)
    seen = profcapture.json("report", capture, "--limit", 0)["data"]["rows"]
    vdso = [row for row in seen if row["image"] == "[vdso]"]
    assert sum(row["self"] for row in vdso) > data["samples"] / 4
    names = {row["name"] for row in vdso}
    assert names & {"clock_gettime", "__vdso_clock_gettime"}, vdso
    # in some kernel builds, the functions that clock_gettime calls inside the vdso have no name
    assert all(name.startswith("[vdso]+") for name in names - {"clock_gettime", "__vdso_clock_gettime"}), vdso


def test_leader_that_ended_before_its_threads(profctl, profcapture, capture, spawn, compile_c):
    """A leader's /proc folder shows neither program nor mappings after its end, but the folder of a
    thread does."""
    source = """
    #include <pthread.h>
    static volatile long x;
    static void *work(void *data) { for (;;) x++; return data; }
    int main(void) { pthread_t t; pthread_create(&t, NULL, work, NULL); pthread_exit(NULL); }
    """
    process = spawn(compile_c("leaderless", source, "-pthread"), "argument")
    until(lambda: "Z" == Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0])
    recorded(profctl, "-p", process.pid, "-d", "0.5", "-o", capture)
    seen = profcapture.json("report", capture)["data"]["rows"]
    assert seen[0]["name"] == "work"
    instance, = rows(profcapture, capture, "process")
    assert instance["cmdline"][1:] == ["argument"]
    assert instance["exe"].endswith("leaderless")
    assert instance["ppid"] == os.getpid()
