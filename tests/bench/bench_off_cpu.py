# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Where threads wait: how much of the blocked time of five programs has a stack to the root,
whether stacks that were read late are right, and what recording costs.

A plain user's recording has no copied stacks: each was read late, while the thread slept, and is
known only if no switch came in between. The oracle is a second recording of the same time, by root,
in which the kernel copied each stack when the sleep began: the same wait must have the same frames
in both. A recording by root is compared with another one that samples each switch, and so has the
stack of each sleep. A wait's own stack must be the same in both. A shared stack may be another one,
but the sums of time by stack must agree. The cost is measured on a program that passes a byte to
and fro at a given rate: in turn without a recorder, with one that records no waits, with one that
records waits, with one that also records wakers, with perf, and with bpftrace. perf copies the
stack at each switch of the program; bpftrace sums up the waits of all programs by thread and stack
in the kernel. The speed of a machine may change between two runs, so costs are compared within each
turn, and the median of the turns counts.
"""

import bisect
import collections
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench

MAKEFILE = "all: " + " ".join(f"f{i}.o" for i in range(40)) + "\n%.o: %.c\n\tgcc -O2 -c $< -o $@\n"
SQLITE = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("create table t(a, b)")
for i in range(400):
    db.execute("insert into t values (?, ?)", (i, "x" * 100))
    db.commit()
"""
HTTP = """
import http.server, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * 1000)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
def get():
    for _ in range(200):
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read()
threads = [threading.Thread(target=get) for _ in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
server.shutdown()
"""
SLEEPS = """
import random, threading, time
def run():
    for _ in range(450):
        time.sleep(random.uniform(0.0003, 0.02))
threads = [threading.Thread(target=run) for _ in range(4)]
[t.start() for t in threads], [t.join() for t in threads]
"""
# Most sleeps last until their stacks are read.
LONG_SLEEPS = """
import random, threading, time
def rest(n):
    time.sleep(random.uniform(0.12, 0.35)) if n == 0 else rest(n - 1)
def run():
    for turn in range(55):
        rest(turn % 8)
threads = [threading.Thread(target=run) for _ in range(80)]
[t.start() for t in threads], [t.join() for t in threads]
"""
CONVOY = r"""
#include <pthread.h>
#include <time.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *run(void *data)
{
	for (int i = 0; i < 400; i++) {
		pthread_mutex_lock(&mutex);
		for (volatile int k = 0; k < 200000; k++)
			;
		pthread_mutex_unlock(&mutex);
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
	}
	return data;
}
int main(void)
{
	pthread_t threads[6];
	for (int i = 0; i < 6; i++)
		pthread_create(&threads[i], NULL, run, NULL);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
}
"""
# Passes a byte to and fro, and prints the CPU time of a switch in ns.
PACE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
static int to[2], from[2];
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}
static double used(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return r.ru_utime.tv_sec + r.ru_stime.tv_sec + 1e-6 * (r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}
static void pin(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(0, &set);
	sched_setaffinity(0, sizeof(set), &set);
}
static void *echo(void *data)
{
	char byte;
	pin();
	while (read(to[0], &byte, 1) == 1 && byte != 'q' && write(from[1], &byte, 1) == 1)
		;
	return data;
}
int main(int argc, char **argv)
{
	double rate = atof(argv[1]), seconds = atof(argv[2]), begin, before, next;
	pthread_t thread;
	char byte = 'x';
	long n = 0;
	pin();
	if (argc < 3 || pipe(to) || pipe(from) || pthread_create(&thread, NULL, echo, NULL))
		return 1;
	before = used();
	begin = next = now();
	while (now() - begin < seconds) {
		for (int i = 0; i < 20; i++, n += 2)
			if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1)
				return 1;
		next += 40 / rate;
		double left = next - now();
		if (left > 0)
			nanosleep(&(struct timespec){ .tv_nsec = (long)(left * 1e9) }, NULL);
	}
	printf("%.0f\n", (used() - before) * 1e9 / n);
	byte = 'q';
	if (write(to[1], &byte, 1) == 1)
		pthread_join(thread, NULL);
}
"""
# Sums up the waits by thread and user stack. The command begins as a child of profctl. The waits of
# this child before its exec are not recorded.
BPFTRACE = """
tracepoint:sched:sched_switch /args->prev_state & 15 && args->prev_comm != "profctl"/ {
	@begun = count();
	@begin[args->prev_pid] = nsecs;
	@stack[args->prev_pid] = ustack;
}
tracepoint:sched:sched_switch /@begin[args->next_pid]/ {
	@waited[args->next_pid, @stack[args->next_pid]] = stats(nsecs - @begin[args->next_pid]);
	delete(@begin[args->next_pid]);
}
"""
WAITED = re.compile(r"^@waited\[(\d+), (.*?)\]: count (\d+), average \d+, total (\d+)$", re.M | re.S)
MOUNT_TRACEFS = "[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing || exit; "
NO_CPU = 0xffffffff  # in a switch row: the thread is on no CPU
PLAIN = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
NEAR_NS = 20_000
COPY_NS = 20_000  # maximum time that both recorders together take to copy the stack of a wait
COST_S = 3
TURNS = 5
DEFAULT_RATE = 3000  # waits are recorded by default if there are at most this many a second


def workloads(folder):
    """Creates the programs, anew in each call. Returns {name: command}."""
    make = Path(folder, "make")
    shutil.rmtree(make, ignore_errors=True)
    make.mkdir(mode=0o777)
    make.chmod(0o777)
    for i in range(40):
        (make / f"f{i}.c").write_text(f"#include <stdio.h>\nint f{i}(int x)\n{{\n\treturn printf(\"%d\", x + {i});\n}}\n")
    (make / "Makefile").write_text(MAKEFILE)
    for name, text in ("sqlite.py", SQLITE), ("server.py", HTTP), ("sleeps.py", SLEEPS), ("convoy.c", CONVOY), ("pace.c", PACE):
        Path(folder, name).write_text(text)
    for name in "convoy", "pace":
        bench.run("gcc", "-O2", "-g", "-pthread", Path(folder, name + ".c"), "-o", Path(folder, name))
    python = "/usr/bin/python3"
    return {
        "make -j2": ["make", "-s", "-j2", "-C", make],
        "sqlite with fsync": [python, f"{folder}/sqlite.py", f"{folder}/make/x.db"],
        "http.server with clients": [python, f"{folder}/server.py"],
        "mutex convoy": [f"{folder}/convoy"],
        "random sleeps": [python, f"{folder}/sleeps.py"],
    }


def profctl(*options):
    return [bench.program("PROFCTL", "profctl"), "record", "-q", "--bus", "private", "--force", *map(str, options)]


def sql(capture, query):
    return bench.run_json(bench.program("PROFCAPTURE", "profcapture"), "sql", capture, query, "--json", "--limit", "0")["data"]["rows"]


def dump(capture):
    """Yields the waits with their user frames: (tid, begin, duration, source, stop, frames)."""
    command = [bench.program("PROFCAPTURE", "profcapture"), "dump", str(capture), "--table", "wait", "--resolve", "--format", "ndjson", "--limit", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        head = json.loads(child.stdout.readline())
        start = head["capture"]["start_monotonic_ns"]
        for line in child.stdout:
            row = json.loads(line)
            frames = tuple((frame["image"], frame["offset"]) for frame in row["frames"] if frame["kind"] != "kernel" and not frame["inline"])
            yield row["tid"], row["time_ns"] + start - row["duration"], row["duration"], row["stack_source"], row["user_stop"], frames


def cover(table, name, folder, command, bpftrace):
    """Measures the share of blocked time with a stack to the root in a recording by root, and the
    time that bpftrace measures for the same threads."""
    capture = Path(folder, "full.cap")
    recording = [*profctl("--off-cpu", "-o", capture), "--", *command]
    capture.unlink(missing_ok=True)  # bpftrace succeeds even if its command fails
    bench.run(*(bpftrace(recording) if bpftrace else recording))
    row, = sql(capture, """SELECT count(*) AS n, sum(duration) AS ns, sum(duration * (stack_source IN ('copied', 'late', 'shared-out') AND user_stop = 'root')) AS rooted,
               sum(duration * (stack_source = 'raced')) AS raced, sum(duration * (stack_source = 'none')) AS none, sum(stack_source = 'copied') AS copied FROM wait""")
    share = 100 * row["rooted"] / row["ns"]
    table.row(f"{name}: blocked time with a stack to the root, %", share, goal="99", met=share >= 99)
    table.row(f"  {row['n']:,} waits, of these copied, %", 100 * row["copied"] / row["n"])
    table.row("  time of raced stacks, %", 100 * row["raced"] / row["ns"])
    missing = 100 * (row["raced"] + row["none"]) / row["ns"]
    if not bpftrace:
        table.row("  time without a stack, %", missing)
        return
    tids = {one["tid"] for one in sql(capture, "SELECT DISTINCT tid FROM wait")}
    waits, lost = bpftrace_waits(folder)
    theirs = [(ns, stack) for tid, stack, _, ns in waits if tid in tids]
    total = sum(ns for ns, _ in theirs)
    table.row("  time without a stack, %, next to bpftrace", missing, 100 * sum(ns for ns, stack in theirs if not stack) / total)
    # bpftrace's waits last until the thread runs again, and begin before the stacks are copied
    ready, = sql(capture, """SELECT sum(duration_ns) AS ns FROM (SELECT state, duration_ns, lag(state) OVER (PARTITION BY tid ORDER BY time_ns) AS before
                 FROM thread_states) WHERE state = 'runnable' AND before = 'waiting'""")
    ours = row["ns"] + (ready["ns"] or 0)
    table.row("  waits", row["n"], sum(n for tid, _, n, _ in waits if tid in tids))
    table.row("  their time until the threads run, s", ours / 1e9, total / 1e9, goal="within 1 % and 20 µs a wait",
              met=abs(ours - total) <= 0.01 * total + COPY_NS * row["n"])
    table.row("  all waits that are not in bpftrace's sums", lost)


def check(name, folder, command):
    """Returns the numbers of right and wrong late stacks of a plain user's recording."""
    oracle, late = Path(folder, "oracle.cap"), Path(folder, "late.cap")
    with subprocess.Popen(profctl("--system", "--off-cpu", "--no-interpreters", "-F", 0, "-o", oracle)) as recorder:
        time.sleep(1.5)
        bench.run(*PLAIN, *profctl("--off-cpu", "--no-interpreters", "-F", 0, "-o", late), "--", *command)
        recorder.send_signal(signal.SIGINT)
        if recorder.wait(timeout=300) not in (0, 130):
            sys.exit(f"bench: the oracle of {name} failed")
    truth = collections.defaultdict(list)
    for tid, begin, _, source, stop, frames in dump(oracle):
        if source == "copied" and stop == "root":
            truth[tid].append((begin, frames))
    for waits in truth.values():
        waits.sort()
    right = wrong = 0
    for tid, begin, _, source, stop, frames in dump(late):
        waits = truth.get(tid)
        if source != "late" or stop != "root" or not waits:
            continue
        at = bisect.bisect_left(waits, (begin,))
        nearest = min(waits[max(at - 1, 0):at + 1], key=lambda wait: abs(wait[0] - begin))
        if abs(nearest[0] - begin) > NEAR_NS:
            continue
        right += nearest[1] == frames
        wrong += nearest[1] != frames
    return right, wrong


def switches(capture):
    """Returns the sleeps of a recording of sched_switch: {tid: [(time, stop, frames)]}, by time."""
    command = [bench.program("PROFCAPTURE", "profcapture"), "dump", str(capture), "--table", "sample", "--resolve", "--format", "ndjson", "--limit", "0"]
    found = collections.defaultdict(list)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        start = json.loads(child.stdout.readline())["capture"]["start_monotonic_ns"]
        for line in child.stdout:
            row = json.loads(line)
            frames = tuple((frame["image"], frame["offset"]) for frame in row["frames"] or () if frame["kind"] != "kernel" and not frame["inline"])
            found[row["tid"]].append((row["time_ns"] + start, row["user_stop"], frames))
    for sleeps in found.values():
        sleeps.sort()
    return found


def compare(table, name, folder, command):
    """Records a command's waits and, in a second recording by root, the stack of each sleep. Compares
    both. Returns the numbers of right and wrong stacks; shared-out stacks do not count."""
    oracle, full = Path(folder, "oracle.cap"), Path(folder, "full.cap")
    with subprocess.Popen(profctl("--system", "--no-interpreters", "-e", "sched:sched_switch/prev_state & 15/", "-o", oracle)) as recorder:
        time.sleep(1.5)
        bench.run(*profctl("--off-cpu", "--no-interpreters", "-F", 0, "-o", full), "--", *command)
        recorder.send_signal(signal.SIGINT)
        if recorder.wait(timeout=300) not in (0, 130):
            sys.exit(f"bench: the oracle of {name} failed")
    truth, counts, wrong = switches(oracle), collections.Counter(), collections.Counter()
    shown, real, all_ns, rooted_ns, compared_ns = collections.Counter(), collections.Counter(), 0, 0, 0
    for tid, begin, duration, source, stop, frames in dump(full):
        all_ns += duration
        rooted_ns += duration * (stop == "root" and source in ("copied", "late", "shared-out"))
        sleeps = truth.get(tid, [])
        # The tracepoint comes before the switch; a sample after the switch is of the next sleep.
        at = bisect.bisect_left(sleeps, (begin,)) - 1
        if at < 0 or begin - sleeps[at][0] > NEAR_NS or sleeps[at][1] != "root":
            continue
        own = sleeps[at][2]
        compared_ns += duration
        real[own] += duration
        shown[frames if stop == "root" else None] += duration
        if stop == "root":
            counts[source] += own == frames
            wrong[source] += own != frames
    error = sum(abs(real[stack] - shown[stack]) for stack in real.keys() | shown.keys())
    table.row(f"{name}: blocked time with a stack to the root, %", 100 * rooted_ns / all_ns, goal="99", met=rooted_ns >= 0.99 * all_ns)
    table.row("  of it with its own stack in the other recording, %", 100 * compared_ns / all_ns)
    table.row("  summed error of the time by stack, %", 100 * error / compared_ns, goal="1", met=error <= 0.01 * compared_ns)
    for source in ("copied", "late", "shared-out"):
        table.row(f"  {source}: right", counts[source])
        table.row("    another stack of the thread" if source == "shared-out" else "    wrong", wrong[source])
    return counts["copied"] + counts["late"], wrong["copied"] + wrong["late"]


def recorder_ns(child):
    """Returns the CPU time of the recorder's processes so far, and whether the program has
    begun."""
    comms = {pid: bench.comm(pid) for pid in bench.descendants(child.pid)}
    return sum(bench.cpu_ns(pid) for pid, comm in comms.items() if comm != "pace"), "pace" in comms.values()


def measure_cost(command):
    """Returns the CPU time of a switch in ns; that of the recorder's processes after the program's
    first second, in percent of a core; and what they take beyond that for their start, in ms."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        while not recorder_ns(child)[1] and child.poll() is None:
            time.sleep(0.01)
        begin = time.monotonic()
        time.sleep(1)
        early, first = recorder_ns(child)[0], time.monotonic()
        time.sleep(max(0, begin + COST_S - 0.5 - time.monotonic()))
        late, last = recorder_ns(child)[0], time.monotonic()
        output = child.communicate(timeout=120)[0]
    steady = (late - early) / (last - first)
    return float(output.split()[0]), steady / 1e7, (late - steady * (last - begin)) / 1e6


def find_bpftrace(folder):
    """Returns a function that returns the command by which bpftrace records a program's waits; None
    if bpftrace does not work here. The command creates a mount namespace, because it may have to
    mount tracefs."""
    script, output = Path(folder, "waits.bt"), Path(folder, "waits.txt")
    script.write_text(BPFTRACE)

    def command(program):
        run = MOUNT_TRACEFS + 'export BPFTRACE_MAP_KEYS_MAX=65536; exec bpftrace -o "$0" "$1" -c "$2"'
        return ["unshare", "--mount", "sh", "-c", run, output, script, " ".join(map(str, program))]

    if not bench.peer("bpftrace"):
        print("bench: bpftrace is not installed (./dev setup --peers)")
        return None
    done = subprocess.run(command(["/bin/true"]), capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0 or "@" not in output.read_text():
        print(f"bench: bpftrace cannot run on this kernel: {(done.stderr.splitlines() or [done.returncode])[-1]}")
        return None
    return command


def bpftrace_waits(folder):
    """Returns the sums of bpftrace, (tid, frames, number of waits, ns), and how many waits ended
    but are in none of the sums."""
    text = Path(folder, "waits.txt").read_text()
    waits = [(int(tid), stack.split(), int(n), int(ns)) for tid, stack, n, ns in WAITED.findall(text)]
    begun, = re.findall(r"^@begun: (\d+)$", text, re.M)
    unended = len(re.findall(r"^@begin\[", text, re.M))
    return waits, int(begun) - unended - sum(n for _, _, n, _ in waits)


def perf_lost(data):
    """Returns the share of samples that perf lost, in %."""
    text = bench.run("perf", "report", "--stats", "-i", data)
    stats = text[text.index("sched:sched_switch stats:"):]
    made, lost = (int(found[1]) if (found := re.search(rf"\b{kind} events: +(\d+)", stats)) else 0 for kind in ("SAMPLE", "LOST_SAMPLES"))
    return 100 * lost / (made + lost)


def cost(table, folder, rate, bpftrace):
    capture, program = f"{folder}/cost.cap", [f"{folder}/pace", str(rate), str(COST_S)]
    commands = {
        "none": program,
        "no waits": [*profctl("--no-off-cpu", "-e", "cpu-clock", "-o", capture), "--", *program],
        "waits": [*profctl("--off-cpu", "-e", "cpu-clock", "-o", capture), "--", *program],
        "wakers": [*profctl("--wakers", "-e", "cpu-clock", "-o", capture), "--", *program],
        "perf": ["perf", "record", "-q", "-B", "-N", "-e", "sched:sched_switch", "--call-graph", "dwarf", "-o", f"{folder}/perf.data", "--", *program],
        "bpftrace": bpftrace and bpftrace(program),
    }
    if not bench.peer("perf"):
        del commands["perf"]
    commands = {name: command for name, command in commands.items() if command}
    turns = []
    for turn in range(TURNS):
        names = list(commands) if turn % 2 == 0 else list(reversed(commands))
        turns.append({name: measure_cost(commands[name]) for name in names})

    def median(at, name, base=None, scale=1):
        """Returns the median of a figure, or of its difference from the figure of another command
        in the same turn."""
        if name in commands:
            return statistics.median((turn[name][at] - (turn[base][at] if base else 0)) * scale for turn in turns)
        return None

    in_core = rate / 1e7  # from ns a switch to % of a core
    waits, whole = median(0, "waits", "no waits", in_core), median(0, "waits", "none", in_core)
    perf, trace = median(0, "perf", "none", in_core), median(0, "bpftrace", "none", in_core)
    table.row(f"{rate:,} switches/s: slowdown by recording waits, % of a core", waits, perf,
              goal="1" if rate <= 5000 else "-", met=waits <= 1 if rate <= 5000 else None)
    table.row("  next to bpftrace", waits, trace)
    table.row("  with samples and switches", whole, perf)
    table.row("  next to bpftrace", whole, trace)
    recorder, more = median(1, "waits"), median(1, "waits", "no waits")
    table.row("  the recorder, % of a core", recorder, median(1, "perf"), goal="5", met=recorder <= 5)
    table.row("  next to bpftrace", recorder, median(1, "bpftrace"))
    table.row("  more than without waits", more, goal="1" if rate <= DEFAULT_RATE else "-", met=more <= 1 if rate <= DEFAULT_RATE else None)
    table.row("  the recorder's start, ms of CPU time", median(2, "waits"), median(2, "perf"))
    table.row("  next to bpftrace", median(2, "waits"), median(2, "bpftrace"))
    table.row("  more than without waits", median(2, "waits", "no waits"))
    table.row("  slowdown by recording wakers as well, % of a core", median(0, "wakers", "waits", in_core))
    table.row("  the recorder: more with wakers, % of a core", median(1, "wakers", "waits"))
    bench.run(*commands["waits"])
    info = bench.run_json(bench.program("PROFCAPTURE", "profcapture"), "info", capture, "--json")
    tables = {one["name"]: one for one in info["data"]["tables"]}
    size, rows = tables["wait"]["bytes"], tables["wait"]["rows"]
    table.row("  bytes of a wait", size / rows, goal="12", met=size <= 12 * rows)
    switches, = sql(capture, f"SELECT count(*) AS n FROM switch WHERE cpu < {NO_CPU}")
    size = sum(tables[name]["bytes"] for name in ("switch", "wait", "stack", "frame") if name in tables)
    table.row("  bytes of a switch with its states, wait and stack", size / switches["n"], goal="12", met=size <= 12 * switches["n"])
    table.row("  lost", info["capture"]["lost"], goal="0", met=info["capture"]["lost"] == 0)
    shared, = sql(capture, "SELECT avg(stack_source NOT IN ('copied', 'late')) AS share FROM wait")
    table.row("  waits without a stack of their own; perf: lost, %", 100 * shared["share"], perf_lost(f"{folder}/perf.data") if "perf" in commands else None)
    if "bpftrace" in commands:
        table.row("  all waits that are not in bpftrace's sums", bpftrace_waits(folder)[1])


def read_many(table, folder):
    """Measures reports on a recording that is repeated until it has 10 million switches."""
    tool, profcapture = bench.program("BENCH_CAPTURE", "bench-capture"), bench.program("PROFCAPTURE", "profcapture")
    short, long = f"{folder}/cost.cap", f"{folder}/long.cap"
    rows = {one["name"]: one["rows"] for one in bench.run_json(profcapture, "info", short, "--json")["data"]["tables"]}
    bench.run(tool, "grow", short, long, str(os.path.getsize(short) * (1 + 10_000_000 // rows["switch"])), "20000")
    bench.run(tool, "finish", long)
    rows = {one["name"]: one["rows"] for one in bench.run_json(profcapture, "info", long, "--json")["data"]["tables"]}
    table.row(f"switches in a capture, and {rows['wait']:,} waits", rows["switch"])
    for options in [], ["--metric", "off-cpu"], ["--by", "state"]:
        took = bench.median_seconds([profcapture, "report", *options, long], TURNS)
        table.row(f"  report{''.join(f' {option}' for option in options)}, s", took, goal="2", met=took < 2)


def main():
    if os.geteuid() != 0:
        print("bench: skipped: needs root")
        return 0
    table = bench.Table("Where threads wait")
    wanted = sys.argv[1:] or ["cover", "late", "truth", "cost"]
    with bench.scratch() as folder:
        os.chmod(folder, 0o777)
        right = wrong = verified = refuted = 0
        bpftrace = find_bpftrace(folder) if {"cover", "cost"} & set(wanted) else None
        for name in workloads(folder):
            if "cover" in wanted:
                cover(table, name, folder, workloads(folder)[name], bpftrace)
            if "truth" in wanted:
                good, bad = compare(table, name, folder, workloads(folder)[name])
                verified, refuted = verified + good, refuted + bad
            if "late" in wanted:
                good, bad = check(name, folder, workloads(folder)[name])
                table.row(f"{name}: late stacks that are right", good)
                table.row("  wrong", bad, goal="0", met=bad == 0)
                right, wrong = right + good, wrong + bad
        if "late" in wanted:
            Path(folder, "long.py").write_text(LONG_SLEEPS)
            good, bad = check("long sleeps", folder, ["/usr/bin/python3", f"{folder}/long.py"])
            right, wrong = right + good, wrong + bad
            table.row("all late stacks that are right", right, goal="3,000", met=right >= 3000 and wrong == 0)
        if "truth" in wanted:
            table.row("all own stacks that are right", verified, goal="3,000", met=verified >= 3000 and refuted == 0)
            table.row("  wrong", refuted, goal="0", met=refuted == 0)
        for rate in [DEFAULT_RATE, 5000, 20000] if "cost" in wanted else []:
            cost(table, folder, rate, bpftrace)
        if "cost" in wanted:
            read_many(table, folder)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
