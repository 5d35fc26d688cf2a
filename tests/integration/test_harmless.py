# SPDX-License-Identifier: BSD-2-Clause-Patent
"""While the real profd records programs, is stopped, or is killed, the programs continue unhurt,
and each mark that was reported as recorded is in the capture; other marks are counted."""
import json
import os
import re
import signal
import struct
import subprocess
import time
from collections import Counter, namedtuple
from pathlib import Path

import pytest

from captures import rows
from recordings import children, until
from slices import part

pytestmark = pytest.mark.usefixtures("nothing_is_left")
BUILD = Path(os.environ["PROF_BUILD_DIR"])
CONFIG = (BUILD / "config.h").read_text()
STEADY = os.environ["STEADY"]
ZOO = os.environ["ZOO"]
INCLUDE = Path(os.environ["PROF_SOURCE_DIR"]) / "libcollector"
LIBRARY = Path(os.environ["LIBPROFCOLLECTOR"])

# ---- where the library is found

FRONT = '#include <prof/mark.h>\nint main(void) { return prof_instant("front", "here") ? 0 : 3; }\n'


@pytest.fixture(scope="module")
def front(compile_c):
    """A program that uses only our header."""
    return compile_c("front", FRONT, "-I", INCLUDE)


def names(profcapture, capture):
    return [mark["name"] for mark in rows(profcapture, capture, "mark")]


def test_library_of_a_build_tree(profctl, profcapture, capture, front):
    """The library is found although the loader's search path does not contain it."""
    profctl("record", "-o", capture, "--no-symbols", "--", front, env={"LD_LIBRARY_PATH": None})
    assert names(profcapture, capture) == ["here"]


def test_library_of_an_installation(profctl, profcapture, capture, front, require):
    """profctl sets PROF_LIB_DIR, so the library is found in a folder such as one below /opt."""
    require("unshare", root=True, mounts=True)
    folder = Path(re.search('PROF_DEFAULT_LIB_DIR "(.*)"', CONFIG)[1])
    if not str(folder).startswith(("/usr/local/", "/opt/")):
        pytest.skip("what is installed would hide the system's own libraries")
    script = f"mount -t tmpfs none /{folder.parts[1]}/{folder.parts[2]} && mkdir -p {folder} && " \
        f"ln -s {LIBRARY.resolve()} {folder}/libprofcollector.so.0 && exec \"$@\""
    profctl("record", "-o", capture, "--no-symbols", "--", front, prefix=["unshare", "-m", "sh", "-c", script, "sh"],
            env={"LD_LIBRARY_PATH": None, "PROF_LIB_DIR": None})
    assert names(profcapture, capture) == ["here"]


def test_library_that_is_not_there(profctl, profcapture, capture, front, tmp_path):
    for folder in (tmp_path, "x" * 5000, ""):
        profctl("record", "--force", "-o", capture, "--no-symbols", "--", front, check=3,
                env={"LD_LIBRARY_PATH": None, "PROF_LIB_DIR": folder})
        assert names(profcapture, capture) == []


# ---- profd is stopped or killed

Line = namedtuple("Line", "recorded lost waits waited_us longest_us")
AT_ONCE = 40  # number of threads of steady that wait at the same time
# how long another process may be delayed on a busy machine before it runs again
LATE_US = 500_000


class Steady:
    """tests/tools/steady.c in a recording; it reports the result of each request."""

    def __init__(self, recorder, folder, capture, policy, *prefix):
        os.mkfifo(folder / "go")
        self.go, self.counts = os.open(folder / "go", os.O_RDWR), folder / "counts"
        command = " ".join(map(str, [*prefix, STEADY, self.counts]))
        self.profctl = recorder("--policy", policy, "-o", capture, "--no-symbols", "--", "sh", "-c",
                                f"exec 9<>{folder}/go; exec {command} 9<&- <{folder}/go")
        self.unknown = 0  # marks of processes that did not register in time
        self.do("s")
        self.profd = children(self.profctl.pid)["profd"]
        self.engine = children(self.profd)["profd-engine"]

    def line(self):
        line = self.profctl.stdout.readline()
        assert line, self.profctl.stderr.read()
        return Line(*map(int, line.split()))

    def do(self, what):
        os.write(self.go, what.encode())
        found = [self.line() for _ in what]
        return found if len(found) > 1 else found[0]

    def fork(self):
        """Forks children until the marks of one are recorded, because profd may be busy for longer
        than a child waits."""
        recorded = self.counts_now()[1]
        self.do("f")
        while self.counts_now()[1] == recorded:
            self.unknown += 100
            self.do("f")

    def counts_now(self):
        """Returns the numbers of marks that were begun, and of those reported as recorded."""
        return struct.unpack("<QQ", self.counts.read_bytes())

    def end(self):
        """Ends the recording. profctl has the exit status of the program."""
        os.close(self.go)
        assert self.profctl.wait(60) in (0, 1)
        self.begun, self.recorded = self.counts_now()

    def check_law(self, profcapture, capture):
        """Checks that marks reported as recorded are in the capture, and that the others are
        counted."""
        lost = Counter()
        for row in rows(profcapture, capture, "loss"):
            if row["stream"].startswith("collector"):
                lost[row["cause"]] += row["count"]
        late = lost.pop("late", 0)
        found = len(rows(profcapture, capture, "mark"))
        assert found == self.recorded, (late, lost, self.begun, self.unknown, rows(profcapture, capture, "loss"))
        # a process that did not register in time counts as one loss, if it is still alive when
        # profd detects this
        assert 0 <= sum(lost.values()) - (self.begun - self.recorded - self.unknown) <= self.unknown // 100
        return lost


@pytest.fixture
def steady(recorder, tmp_path, capture):
    stopped = []

    def start(policy, *prefix):
        return Steady(recorder, tmp_path, capture, policy, *prefix)

    def stop(*pids):
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        stopped.extend(pids)

    start.stop = stop
    yield start
    for pid in stopped:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def check_bounds(lines, budget_us=1_000_000):
    """Checks that threads waited at most the budget of 1 s a minute (docs/ring.md, section 7), plus
    a late wakeup on a busy machine. Time in which several threads wait counts once."""
    longest_us = max(line.longest_us for line in lines)
    assert longest_us < budget_us + LATE_US, lines
    assert sum(max(line.longest_us, line.waited_us / AT_ONCE) for line in lines) <= budget_us + LATE_US, lines


@pytest.mark.parametrize("policy", ["lossless", "drop"])
def test_engine_stopped(steady, profcapture, capture, policy):
    """While the engine is stopped, nobody reads or recycles rings, or answers requests. When it
    continues, records written meanwhile get into the capture."""
    program = steady(policy)
    steady.stop(program.engine)
    # threads with real-time priority wait neither for room in a ring nor for a ring, even if some
    # of the budget is left
    stopped, realtime = [program.do("m")], program.do("ro") if os.geteuid() == 0 else []
    stopped.append(program.do("c"))
    realtime += program.do("ro") if os.geteuid() == 0 else []
    stopped.append(program.do("t"))
    time.sleep(2.5)  # longer than ended threads are kept after their records
    os.kill(program.engine, signal.SIGCONT)
    program.fork()
    program.end()
    check_bounds(stopped)
    assert sum(line.waits for line in realtime) == 0
    assert stopped[0].recorded > 0 and stopped[0].lost > 0 and stopped[2].lost > 0
    lost = program.check_law(profcapture, capture)
    assert lost["ring-full"] > 0 and lost["ring-refused"] > 0


def test_broker_stopped(steady, profcapture, capture):
    """A registered process notices nothing. A new process waits at most 500 ms, and is not
    registered."""
    program = steady("lossless")
    steady.stop(program.profd)
    check_bounds(program.do("sc"))
    recorded = program.counts_now()[1]
    program.do("f")
    assert program.counts_now()[1] == recorded
    program.unknown += 100
    os.kill(program.profd, signal.SIGCONT)
    program.fork()
    program.end()
    program.check_law(profcapture, capture)


@pytest.mark.parametrize("policy", ["lossless", "drop"])
@pytest.mark.parametrize("victim", ["engine", "profd"])
def test_profd_killed(steady, policy, victim):
    """profd or its engine is killed during all kinds of requests; the program ends as it would
    without profd."""
    program = steady(policy)
    os.write(program.go, b"mtcmf")
    os.kill(getattr(program, victim), signal.SIGKILL)
    # threads notice the death within 10 ms
    check_bounds([program.line() for _ in range(5)], budget_us=10_000)
    program.end()


def test_no_memory(steady, profcapture, capture):
    """Without memory for another arena, marks are lost until the process gets memory again."""
    program = steady("drop")
    limited, behind = program.do("ac")
    program.end()
    assert limited.lost > 0 and behind.recorded > limited.recorded
    assert set(program.check_law(profcapture, capture)) == {"ring-refused"}


FULL = """
#include <prof/mark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char piece[1 << 16];

static long read_number(const char *path)
{
	FILE *file = fopen(path, "r");
	long value = 0;

	if (!file || fscanf(file, "%ld", &value) != 1)
		exit(2);
	fclose(file);
	return value;
}

/* But for what a process has in advance of what it takes. */
static void fill(const char *usage, long limit)
{
	while (read_number(usage) < limit - (1 << 20))
		memset(malloc(sizeof(piece)), 1, sizeof(piece));
}

int main(int argc, char **argv)
{
	long n = 0;

	(void)prof_instant("full", "first");
	fill(argv[1], atol(argv[2]));
	for (int i = 0; i < 200000; i++)
		n += prof_instant("full", "mark");
	printf("%ld\\n", n);
	return 0;
}
"""


@pytest.mark.changes_machine
def test_full_memory(profctl, profcapture, capture, compile_c, require, request):
    """The cgroup is so full that one more page would end the process, but the process can write
    marks, because the pages of its rings count as the engine's."""
    require(root=True)
    folder, _, usage = request.getfixturevalue("memory_cgroup")
    program = compile_c("full", FULL, "-I", INCLUDE)
    script = f"echo $$ >{folder}/cgroup.procs && exec {program} {usage} {24 << 20}"
    done = profctl("record", "-F", 0, "--policy", "drop", "-o", capture, "--no-symbols", "--", "sh", "-c", script)
    recorded = profcapture.json("marks", capture)["data"]["rows"]
    counts = {row["name"]: row["count"] for row in recorded}
    lost = sum(row["count"] for row in rows(profcapture, capture, "loss") if row["cause"] == "ring-full")
    assert counts["first"] == 1 and counts["mark"] == int(done.stdout) > 20000
    assert counts["mark"] + lost == 200000


# ---- the target is killed


def test_killed_at_random(steady, profcapture, capture):
    """The program counts before and after each mark, so each killed thread makes the counts differ
    by one at most."""
    program, n = steady("lossless"), 6
    program.do("k" * n)
    program.end()
    lost = sum(row["count"] for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector"))
    marks = len(rows(profcapture, capture, "mark"))
    assert 500 * n <= program.recorded <= marks <= program.recorded + 4 * n
    assert program.begun - 4 * n <= marks + lost <= program.begun + 4 * n


# ---- a PID namespace of its own

THREADS = """
#include <prof/mark.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static pthread_barrier_t barrier;

static void *run(void *data)
{
	char name[16];

	snprintf(name, sizeof(name), "worker-%d", (int)(intptr_t)data);
	pthread_setname_np(pthread_self(), name);
	prof_instant("early", name);
	pthread_barrier_wait(&barrier);
	prof_instant("late", name);
	return NULL;
}

static void wait_for_word(void)
{
	char byte;

	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) < 0)
		;
}

int main(void)
{
	pthread_t ids[6];

	pthread_barrier_init(&barrier, NULL, 7);
	prof_instant("leader", "container");
	wait_for_word();
	for (intptr_t i = 0; i < 6; i++)
		pthread_create(&ids[i], NULL, run, (void *)i);
	wait_for_word();
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < 6; i++)
		pthread_join(ids[i], NULL);
	return 0;
}
"""


def test_pid_namespace(recorder, profcapture, capture, compile_c, tmp_path, require):
    """Inside a container, threads have other tids than outside. profd matches them with the side
    band by their tids outside."""
    require("unshare", root=True, mounts=True)
    program = compile_c("container", THREADS, "-I", INCLUDE, "-pthread")
    os.mkfifo(tmp_path / "go")
    go = os.open(tmp_path / "go", os.O_RDWR)
    profctl = recorder("-o", capture, "--no-symbols", "--", "sh", "-c",
                       f"exec unshare --pid --fork --mount-proc {program} <{tmp_path}/go")
    def found():
        # the capture is not finished, and may have no header yet
        done = profcapture("dump", capture, "--table", "mark", "--json", check=None)
        marks = json.loads(done.stdout)["data"]["rows"] if done.returncode == 0 else []
        return Counter((mark["name"], mark["comm"], mark["tid"]) for mark in marks)

    def threads():
        for folder in Path(f"/proc/{inside}/task").iterdir():
            comm = (folder / "comm").read_text(errors="replace").strip()
            yield comm, comm, int(folder.name)

    assert profctl.stdout.readline() == "ready\n"
    inside = children(children(profctl.pid)["unshare"])["container"]
    # when these rows are there, profd has done all reads that it does once for a process
    until(lambda: set(found()) == set(threads()), 30)
    os.write(go, b"x")
    assert profctl.stdout.readline() == "ready\n"
    until(lambda: len({name for name, *_ in threads()}) == 7)
    wanted = set(threads())
    until(lambda: set(found()) == wanted, 30)
    os.write(go, b"x")
    os.close(go)
    assert profctl.wait(60) == 0
    assert found() == Counter({row: 1 if row[0] == "container" else 2 for row in wanted})


# ---- what programs do

# Each mode of the zoo reports how many of its marks are recorded (test_collector.py, which replaces
# the engine, checks losses more exactly).
MODES = ["plain", "fork", "vfork", "vfork-first", "spawn", "exec", "raw-clone", "threads", "many", "destructors",
         "dlclose", "closefrom", "lowest", "seccomp", "seccomp-kill"]


@pytest.mark.parametrize("policy", ["lossless", "drop"])
def test_zoo(profctl, profcapture, capture, tmp_path, policy):
    """Many modes in one recording: processes, threads, descriptors and filters with the real
    profd."""
    results = tmp_path / "results"
    modes = part(MODES, 8)
    script = " && ".join(f"{ZOO} {mode}" for mode in modes)
    profctl("record", "-F", 0, "--policy", policy, "-o", capture, "--no-symbols", "--", "sh", "-c", script, env={"ZOO_RESULTS": results})
    said = Counter()
    for line in results.read_text().splitlines():
        pid, recorded, _ = map(int, line.split())
        said[pid] += recorded
    assert len(said) >= len(modes)
    assert Counter(mark["pid"] for mark in rows(profcapture, capture, "mark")) == +said
    causes = {row["cause"] for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector")}
    assert causes <= {"ring-full", "ring-refused", "late"}


TURN = """
#include <prof/mark.h>
#include <pthread.h>
#include <stdio.h>

static void *mark_once(void *data)
{
	prof_instant("turn", "once");
	return NULL;
}

int main(void)
{
	FILE *maps;
	char line[512];
	int n = 0;

	for (int i = 0; i < 4000; i++) {
		pthread_t id;

		if (pthread_create(&id, NULL, mark_once, NULL) != 0)
			return 1;
		pthread_join(id, NULL);
	}
	maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "memfd:prof-arena") != NULL;
	printf("%d\\n", n);
	return 0;
}
"""


@pytest.mark.parametrize("policy", ["lossless", "drop"])
def test_threads_in_turn(profctl, profcapture, capture, compile_c, policy):
    """Rings of threads that ended are used again: 4000 threads share the 360 rings of 8 arenas."""
    program = compile_c("turn", TURN, "-I", INCLUDE, "-pthread")
    done = profctl("record", "-F", 0, "--policy", policy, "-o", capture, "--no-symbols", "--", program)
    found = rows(profcapture, capture, "mark")
    # an engine that gets no CPU for some time does not recycle rings
    lost = sum(row["count"] for row in rows(profcapture, capture, "loss") if row["cause"] == "ring-refused")
    assert len(found) + lost == 4000 and len(found) > 360
    assert len({mark["tid"] for mark in found}) == len(found)
    assert 1 <= int(done.stdout) <= 8


LONG = """
#include <prof/mark.h>
#include <stdio.h>

static char text[(1 << 20) + 1];

int main(void)
{
	bool ok = true;

	for (size_t i = 0; i + 1 < sizeof(text); i++)
		text[i] = 'a' + i % 26;
	ok = prof_instant("long", text) && ok;
	text[0] = 'b';
	ok = prof_instant_with("long", "argument", PROF_TEXT("text", text)) && ok;
	text[0] = 'c';
	ok = prof_instant_with("long", "name of an argument", PROF_S64(text, 7)) && ok;
	text[0] = 'd';
	ok = prof_message(6, "long", text) && ok;
	ok = prof_instant("long", "behind") && ok;
	puts(ok ? "all" : "some");
	return 0;
}
"""


def test_long_strings(profctl, profcapture, capture, compile_c):
    """A string of a mebibyte is complete wherever a string is allowed; lost records are counted."""
    program = compile_c("long", LONG, "-I", INCLUDE)
    done = profctl("record", "-F", 0, "--policy", "lossless", "-o", capture, "--no-symbols", "--", program)
    tail = "".join(chr(ord("a") + i % 26) for i in range(1, 1 << 20))
    lost = sum(row["count"] for row in rows(profcapture, capture, "loss") if row["cause"] == "ring-full")
    marks = rows(profcapture, capture, "mark")
    if lost == 0:
        assert done.stdout == "all\n"
        assert [mark["name"] for mark in marks] == ["a" + tail, "argument", "name of an argument", "behind"]
        assert marks[1]["argument_texts"] == ["b" + tail]
        assert marks[2]["arguments"] == ["c" + tail]
        assert [log["text"] for log in rows(profcapture, capture, "log")] == ["d" + tail]
    assert len(marks) + len(rows(profcapture, capture, "log")) + lost == 5


# ---- the readers' results

SPANS = """
#include <prof/mark.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static uint64_t id, times[4];

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void spin(unsigned ms)
{
	uint64_t end = now() + ms * 1000000ull;

	while (now() < end)
		;
}

static void say(const char *name)
{
	printf("%s %lu %lu %lu %lu\\n", name, times[0], times[1], times[2], times[3]);
}

static void nested(void)
{
	uint64_t outer[4];

	outer[0] = now();
	{
		prof_scope("spans", "outer");
		outer[1] = times[0] = now();
		{
			prof_scope("spans", "inner");
			times[1] = now();
			spin(40);
			times[2] = now();
		}
		times[3] = now();
		spin(20);
		outer[2] = now();
	}
	outer[3] = now();
	say("inner");
	for (int i = 0; i < 4; i++)
		times[i] = outer[i];
	say("outer");
}

static void begin(const char *name)
{
	id = prof_new_id();
	times[0] = now();
	prof_begin(id, "spans", name);
	times[1] = now();
}

static void *end(void *name)
{
	times[2] = now();
	prof_end(id, "spans", name);
	times[3] = now();
	say(name);
	return NULL;
}

static void overlapping(void)
{
	uint64_t before, first[2];

	begin("first");
	before = id, first[0] = times[0], first[1] = times[1];
	spin(20);
	begin("second");
	spin(20);
	{
		uint64_t after = id, second[2] = { times[0], times[1] };

		id = before, times[0] = first[0], times[1] = first[1];
		end((void *)"first");
		spin(20);
		id = after, times[0] = second[0], times[1] = second[1];
		end((void *)"second");
	}
}

static void crossing(void)
{
	pthread_t thread;

	begin("crossing");
	spin(20);
	pthread_create(&thread, NULL, end, (void *)"crossing");
	pthread_join(thread, NULL);
}

int main(void)
{
	nested();
	overlapping();
	crossing();
	return 0;
}
"""


def test_spans(profctl, profcapture, capture, compile_c):
    """Each span has the duration that the program measured. report counts the samples in the span,
    and no others."""
    program = compile_c("spans", SPANS, "-I", INCLUDE, "-pthread")
    done = profctl("record", "-o", capture, "--no-symbols", "--", program)
    marks = profcapture.json("marks", capture)
    start = marks["capture"]["start_monotonic_ns"]
    totals = {row["name"]: row["total_ns"] for row in marks["data"]["rows"]}
    samples = [row["time_ns"] for row in rows(profcapture, capture, "sample")]
    assert samples
    said = [line.split() for line in done.stdout.splitlines()]
    assert totals.keys() == {name for name, *_ in said} == {"inner", "outer", "first", "second", "crossing"}
    for name, *times in said:
        latest_begin, earliest_end = (int(time) - start for time in times[1:3])
        earliest_begin, latest_end = (int(time) - start for time in times[::3])
        assert earliest_end - latest_begin <= totals[name] <= latest_end - earliest_begin, name
        most = sum(earliest_begin <= time <= latest_end for time in samples)
        least = sum(latest_begin <= time <= earliest_end for time in samples)
        for options in ["--per-mark", name], ["--from", f"@mark:{name}", "--to", f"@mark:{name}"]:
            assert least <= profcapture.json("report", capture, *options)["data"]["self_total"] <= most, (name, options)


# ---- AT_SECURE

SECURE = """
#include <prof/mark.h>
#include <prof-collector.h>
#include <sys/auxv.h>
int main(void)
{
	if (getauxval(AT_SECURE) == 0)
		return 3;
	if (prof_collector_enabled() || prof_mark_instant("secure", "linked", 0, 0) || prof_mark_table)
		return 4;
	return prof_collector_connect(getenv("PROF_CONTROL")) == -1 ? 42 : 5;
}
"""


def test_set_user_id(profctl, profcapture, capture, compile_c, require):
    """In a set-user-ID program the environment is ignored; the program's exit status reports
    that."""
    require(root=True)
    program = compile_c("secure", SECURE, "-I", INCLUDE, BUILD / "libcollector" / "libprofcollector.a", "-static", "-pthread")
    os.chown(program, 65534, 65534)
    os.chmod(program, 0o6755)
    if subprocess.run([program]).returncode == 3:
        pytest.skip("set-user-id programs have no effect on this file system")
    profctl("record", "-o", capture, "--no-symbols", "--", "sh", "-c", f"{program}; exit $?", check=42)
    assert names(profcapture, capture) == []
