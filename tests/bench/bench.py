# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Functions that the benchmarks share: find programs, run work, measure processes, print a table.

A benchmark prints rows of: subject, our figure, the peer's figure, their ratio, the goal and
whether it is met. All figures come from the run that prints them. Nothing else should run on the
machine.
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def program(variable, name):
    """Returns the path of a program: in the build tree, if the environment variable is set, or else
    on the system."""
    path = os.environ.get(variable) or shutil.which(name)
    if not path:
        sys.exit(f"bench: '{name}' is not there: run this through ./dev bench")
    return path


def peer(name):
    """Returns the path of a peer's program, or None: its column is then empty."""
    return shutil.which(name)


@contextlib.contextmanager
def scratch():
    """Yields an empty folder on a real disk, which is removed afterwards."""
    path = tempfile.mkdtemp(prefix="prof-bench-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


# One byte of each huge page is enough, because the kernel clears the whole page.
TOUCH = """
import mmap, re
free = int(re.search(r"MemFree: *([0-9]+)", open("/proc/meminfo").read()).group(1)) * 1024 * 3 // 4
memory = mmap.mmap(-1, free, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, free, 1 << 21):
    memory[at] = 1
"""


def touch_memory():
    """Touches most of the free memory once. Otherwise, the host of a virtual machine may allocate
    memory during a measurement, which takes 20 times as long as clearing it. Takes a minute."""
    subprocess.run([sys.executable, "-c", TOUCH], check=False)


def run(*command, **options):
    """Runs a command that must succeed; returns its standard output."""
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"bench: {command} failed with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def run_json(*command):
    return json.loads(run(*command).splitlines()[-1])


def median_seconds(command, runs=5, **options):
    """Returns the median wall time of a whole process, after one warm-up."""
    took = []
    for _ in range(runs + 1):
        start = time.monotonic()
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       check=True, **options)
        took.append(time.monotonic() - start)
    return statistics.median(took[1:])


# ---- work to record ----------------------------------------------------------------------------

PYTHON_LOOP = """
import json, re
words = [("w%d" % (i * 7919 % 1000)) for i in range(2000)]
def tree(n):
    return {"k%d" % i: (tree(n - 1) if n else i) for i in range(4)}
def count():
    seen = {}
    for w in words:
        seen[w] = seen.get(w, 0) + 1
    return sorted(seen.items(), key=lambda x: (-x[1], x[0]))
while True:
    json.loads(json.dumps(tree(4)))
    count()
    re.sub(r"w(\\d+)", lambda m: m.group(1), " ".join(words))
"""

C_LOOP = r"""
#include <math.h>
#include <stdlib.h>
#include <string.h>
static double work[4096];
static int n; /* never the same twice: a turn of one length would keep step with a timer */
static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}
__attribute__((noinline)) static void fill(unsigned *seed)
{
	for (int i = 0; i < n; i++)
		work[i] = (double)(*seed = *seed * 1664525u + 1013904223u);
}
__attribute__((noinline)) static double smooth(void)
{
	double sum = 0;
	for (int k = 0; k < 8; k++)
		for (int i = 1; i < n - 1; i++)
			sum += work[i] = (work[i - 1] + work[i] + work[i + 1]) / 3;
	return sum;
}
__attribute__((noinline)) static double curve(void)
{
	double sum = 0;
	for (int i = 0; i < n; i++)
		sum += sin(work[i]) * exp(-fabs(work[i]) * 1e-9);
	return sum;
}
int main(void)
{
	unsigned seed = 1;
	volatile double sink = 0;
	for (;;) {
		n = 512 + seed / 65536 % 3584;
		fill(&seed);
		sink += smooth() + curve();
		qsort(work, n, sizeof(*work), by_value);
	}
}
"""

C_SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
struct item { int key; double value; char name[32]; };
""" + "\n".join(f"""
static int f{i}(struct item *items, int n) {{
	int best = 0;
	for (int i = 0; i < n; i++) {{
		switch ((items[i].key * {i + 3}) % 7) {{
		case 0: items[i].value += sin(items[i].value * {i}); break;
		case 1: snprintf(items[i].name, sizeof(items[i].name), "item %d", i + {i}); break;
		case 2: items[i].key ^= {i * 31 + 1}; break;
		case 3: if (strcmp(items[i].name, items[best].name) < 0) best = i; break;
		default: items[i].value /= {i + 1}.5; best = (best + i) % n; break;
		}}
		for (int k = 0; k < {i % 5 + 2}; k++) best += items[(best + k) % n].key & k;
		best %= n; if (best < 0) best = -best;
	}}
	return best;
}}""" for i in range(120)) + """
int main(int argc, char **argv) {
	struct item *items = calloc(1000, sizeof(*items)); int sum = argc;
""" + "\n".join(f"	sum += f{i}(items, 1000);" for i in range(120)) + """
	printf("%d\\n", sum + (int)(argv[0][0])); return 0;
}
"""

NODE_LOOP = """
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
const words = Array.from({length: 2000}, (_, i) => 'w' + (i * 7919 % 1000));
for (;;) { fib(20); JSON.parse(JSON.stringify(words)); words.map(w => w.replace(/w/, 'x')).sort(); }
"""


class Work:
    """Programs that run until the `with` block ends. Each is killed with its process group."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def start(self, *command):
        self.running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL, start_new_session=True, cwd=self.folder))
        return self.running[-1]

    def loop(self, command):
        return self.start("/bin/sh", "-c", f"while :; do {command}; done")

    def stop(self):
        for child in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def python(self):
        return self.start("/usr/bin/python3", "-c", PYTHON_LOOP)

    def node(self):
        return self.start("node", "-e", NODE_LOOP)

    def c(self):
        source, binary = self.file("loop.c", C_LOOP), os.path.join(self.folder, "loop")
        run("gcc", "-O2", "-o", binary, source, "-lm")
        return self.start(binary)

    def gcc(self, name="source.c"):
        return self.loop(f"gcc -O2 -c -o {name}.o {self.file(name, C_SOURCE)}")

    def git(self):
        repository = os.path.join(self.folder, "repository")
        run("git", "init", "-q", "-b", "main", repository)
        lines = []
        for i in range(1500):
            message, text = f"commit {i}\n\nbody {i * 7919}\n", f"line {i}\n" * (i % 40 + 1)
            lines.append(f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + i} +0000\n"
                         f"data {len(message)}\n{message}\nM 644 inline file{i % 50}\ndata {len(text)}\n{text}\n")
        run("git", "-C", repository, "fast-import", "--quiet", input="".join(lines), stdin=None)
        return self.loop(f"git -C {repository} log --stat -p --all >/dev/null")


# ---- the cost of a process ---------------------------------------------------------------------

def descendants(pid):
    """Returns pid and all its descendants."""
    found = [pid]
    for task in found:
        try:
            for tid in os.listdir(f"/proc/{task}/task"):
                with open(f"/proc/{task}/task/{tid}/children", encoding="ascii") as file:
                    found.extend(int(c) for c in file.read().split())
        except OSError:
            continue
    return found


def cpu_ns(pid):
    """Returns the CPU time of a process in ns, from the scheduler: the sum of its threads'
    schedstat; 0 if it has exited."""
    total = 0
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    except OSError:
        pass
    return total


def rss_without_rings(pid):
    """Returns the resident bytes of a process without its perf rings."""
    total, ring = 0, False
    with open(f"/proc/{pid}/smaps", encoding="ascii", errors="replace") as file:
        for line in file:
            if line[0] in "0123456789abcdef" and "-" in line.split()[0]:
                ring = "perf_event" in line
            elif line.startswith("Rss:") and not ring:
                total += int(line.split()[1]) * 1024
    return total


def comm(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


# ---- the table ---------------------------------------------------------------------------------

class Table:
    def __init__(self, title):
        self.missed = 0
        print(f"\n## {title}\n")
        print(f"{'what':<58} {'profd':>14} {'peer':>14} {'ratio':>8}  goal")

    def row(self, what, ours, theirs=None, goal=None, met=None, unit="", digits=2):
        def show(value):
            return "-" if value is None else f"{value:,.{digits}f}{unit}" if isinstance(value, float) else f"{value:,}{unit}"
        ratio = f"{ours / theirs:.3f}" if theirs else "-"
        verdict = "" if met is None else "  met" if met else "  MISSED"
        self.missed += met is False
        print(f"{what:<58} {show(ours):>14} {show(theirs):>14} {ratio:>8}  {goal or '-'}{verdict}", flush=True)
