# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Names, lines and inlined functions of a recording, from its end to the report, compared with
perf; and the cost of one lookup.

The program is C++ with -g -O2 and consists of inlined templates. Both profilers walk stacks by
unwind tables: perf walks them, and finds names, while it reports; profd walks them while it
records, and finds names when the recording ends.
"""

import os
import re
import shutil
import subprocess
import sys
import time

import bench

STEPS = 48
SECONDS = 20  # gives at most 20 000 samples at 999 Hz
SOURCE = r"""
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <unordered_map>
#include <vector>
template <int N> struct step {
	static unsigned long run(unsigned long a) { return step<N - 1>::run(a * 2654435761u ^ (a >> (N % 13 + 1))); }
};
template <> struct step<0> {
	static unsigned long run(unsigned long a) { return a; }
};
static volatile unsigned long sink;
template <int N> __attribute__((noinline)) static void spin(std::vector<unsigned long> &v)
{
	for (auto &x : v)
		x = step<N>::run(x + N);
	std::sort(v.begin(), v.end());
	sink = sink + std::accumulate(v.begin(), v.end(), 0ul);
}
template <int... N> static void all(std::vector<unsigned long> &v, std::integer_sequence<int, N...>)
{
	(spin<N + 1>(v), ...);
}
int main()
{
	std::vector<unsigned long> v(400);
	std::map<std::string, int> tree;
	std::unordered_map<std::string, int> table;
	for (unsigned long i = 0;; i++) {
		std::iota(v.begin(), v.end(), i);
		all(v, std::make_integer_sequence<int, 48>());
		for (auto x : v) {
			tree[std::to_string(x % 997)]++;
			table[std::to_string(x % 991)]++;
		}
	}
}
"""


def seconds(command, **options):
    start = time.monotonic()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, **options)
    return time.monotonic() - start


def lookup_ns(program, capture, profcapture):
    """Returns the ns per lookup of the sampled addresses in the flattened DWARF units."""
    rows = bench.run(profcapture, "dump", capture, "-t", "frame", "--format", "csv").splitlines()
    columns = rows[0].split(",")
    offsets = {row.split(",")[columns.index("offset")] for row in rows[1:]}
    done = subprocess.run([os.environ["DEBUG_PLACES"], program], input="\n".join(offsets) + "\n", capture_output=True, text=True, check=True)
    return float(re.search(r"([\d.]+) ns", done.stderr)[1])


def forget_files():
    """Drops all files from the page cache, which only root may do."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def node(profctl, profcapture, folder, table):
    capture = os.path.join(folder, "node.cap")
    with bench.Work(folder) as work:
        bench.run(profctl, "record", "-p", work.node().pid, "-d", SECONDS, "-q", "--no-symbols", "-o", capture)
    samples = bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"]
    took = seconds([profcapture, "symbolize", capture]) + seconds([profcapture, "report", capture])
    table.row(f"node, {samples / 1e3:.1f} k samples: symbolize and report, s", took, None, goal="under 1", met=took < 1, digits=3)


def system(profctl, profcapture, folder, table):
    """Measures a minute of the whole system, first without files in the page cache, as after a
    boot, then again."""
    plain, capture = os.path.join(folder, "plain.cap"), os.path.join(folder, "system.cap")
    with bench.Work(folder) as work:
        for start in (work.python, work.node, work.gcc, work.git):
            start()
        bench.run(profctl, "record", "-a", "-d", 60, "-q", "--no-symbols", "-o", plain)
    samples = bench.run_json(profcapture, "info", plain, "--json")["capture"]["samples"]
    for label, goal in ("cold", 3), ("warm", 0.5):
        shutil.copyfile(plain, capture)
        if label == "cold":
            try:
                forget_files()
            except OSError as error:
                print(f"# not cold: {error}")
                continue
        took = seconds([profcapture, "symbolize", capture])
        table.row(f"60 s of the system, {samples / 1e3:.0f} k samples: symbolize, {label}, s", took, None, goal=f"under {goal}",
                  met=took < goal, digits=3)


def main():
    profctl, profcapture, perf = bench.program("PROFCTL", "profctl"), bench.program("PROFCAPTURE", "profcapture"), bench.peer("perf")
    table = bench.Table("Names, lines and inlined functions")
    with bench.scratch() as folder:
        program, capture, data = (os.path.join(folder, name) for name in ("spin", "run.cap", "run.data"))
        bench.run("g++", "-g", "-O2", "-std=c++17", "-x", "c++", "-o", program, "-", input=SOURCE, stdin=None)
        with bench.Work(folder) as work:
            child = work.start(program)
            bench.run(profctl, "record", "-p", child.pid, "-d", SECONDS, "-q", "--no-symbols", "-o", capture)
            if perf:
                bench.run(perf, "record", "-q", "-p", child.pid, "-F", "999", "-e", "cpu-clock", "--call-graph", "dwarf", "-o", data,
                          "--", "sleep", SECONDS)
        samples = bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"]
        symbolize = seconds([profcapture, "symbolize", capture])
        report = seconds([profcapture, "report", capture, "--inline", "--tree"])
        theirs = None
        if perf:
            theirs = seconds([perf, "report", "-i", data, "--stdio", "--inline"])
        table.row(f"{samples / 1e3:.1f} k samples: symbolize and report --inline, s", symbolize + report, theirs, goal="under 2",
                  met=symbolize + report < 2, digits=3)
        found = bench.run(profcapture, "report", capture, "--inline", "--json")
        inlined = len(set(re.findall(r"step<\d+>::run", found)))
        table.row(f"inlined functions among its rows, of {STEPS}", inlined, goal="all", met=inlined == STEPS, digits=0)
        lookup = lookup_ns(program, capture, profcapture)
        table.row("a lookup of a flattened address, ns", lookup, goal="under 1000", met=lookup < 1000, digits=0)
        node(profctl, profcapture, folder, table)
        system(profctl, profcapture, folder, table)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
