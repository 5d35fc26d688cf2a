# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The report page of a million samples on 60 000 stacks, and of a day at 99 Hz on two CPUs: written,
opened in a browser, and counted again for ranges that a mouse drags.

Times in the browser are those of headless Chromium without a frame limit. The peer's column is
speedscope's page, which imports the same samples of the same capture but cannot select a range.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import bench

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "tests/integration/drive_page.mjs"
NODE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "profd-tests/node_modules"
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
UNLIMITED = ("--disable-frame-rate-limit", "--disable-gpu-vsync")
SAMPLES = 1_000_000
DAY_S = 86400

# Eight functions call each other by chance, each through a wrapper, so that nearly each sample has
# a stack of its own.
PROGRAM = r"""
#include "libcollector/prof-collector.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#define PAIR(n) \
	__attribute__((noinline)) static void work_##n(unsigned *seed, int left) { spin(seed); if (left) next(seed, left - 1); spin(seed); } \
	__attribute__((noinline)) static void call_##n(unsigned *seed, int left) { work_##n(seed, left); spin(seed); }
static void next(unsigned *seed, int left);
static inline void spin(unsigned *seed) { for (volatile int i = 0; i < 200; i++) *seed = *seed * 1664525u + 1013904223u; }
PAIR(0) PAIR(1) PAIR(2) PAIR(3) PAIR(4) PAIR(5) PAIR(6) PAIR(7)
static void (*const calls[8])(unsigned *, int) = { call_0, call_1, call_2, call_3, call_4, call_5, call_6, call_7 };
__attribute__((always_inline)) static inline void next(unsigned *seed, int left) { calls[*seed >> 29](seed, left); }
static void *work(void *data)
{
	unsigned seed = (unsigned)(size_t)data;
	for (;;) {
		prof_mark_begin(0, "bench", "turn", NULL, 0);
		for (int i = 0; i < 20000; i++)
			next(&seed, 4);
		void *volatile block = malloc(seed >> 16); // volatile: else the compiler leaves it out
		free(block);
		prof_mark_end(0, "bench", "turn", NULL, 0);
	}
	return data;
}
int main(int argc, char **argv)
{
	pthread_t threads[2];
	for (size_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	sleep((unsigned)atoi(argv[argc - 1]));
	_exit(0);
}
"""


def record(folder, name, seconds, hertz, *options):
    profctl = bench.program("PROFCTL", "profctl")
    source, program, capture = (os.path.join(folder, name + end) for end in (".c", "", ".cap"))
    Path(source).write_text(PROGRAM, encoding="utf-8")
    library = Path(os.environ["LIBPROFCOLLECTOR"])
    bench.run("gcc", "-O1", "-g", "-fno-optimize-sibling-calls", "-I", ROOT, "-o", program, source, library, f"-Wl,-rpath,{library.parent}", "-pthread")
    bench.run(profctl, "record", "-q", "-F", hertz, "-o", capture, *options, "--", program, seconds)
    return capture


def repeat(folder, capture, copies):
    """Returns a capture of that many copies, one after the other."""
    tool, path = bench.program("BENCH_CAPTURE", "bench-capture"), os.path.join(folder, "long.cap")
    bench.run(tool, "grow", capture, path, int(os.path.getsize(capture) * (copies - 0.5)), 4096)
    bench.run(tool, "finish", path)
    return path


def browse(page, *steps, size=(1280, 800)):
    done = subprocess.run(["node", DRIVER, CHROMIUM, NODE / "playwright-core", page, *map(str, size), *UNLIMITED],
                          input="\n".join(map(json.dumps, steps)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench: the page cannot be driven:\n{done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    if answer["errors"]:
        sys.exit(f"bench: errors in the page: {answer['errors']}")
    return answer["results"]


def places(n=60, left=200, right=1260):
    """Where a drag goes: the range grows, shrinks, and has another length each time."""
    return [left] + [left + 20 + (i * 389) % (right - left - 20) for i in range(n)]


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def measure(table, title, folder, capture, goals):
    profcapture, page = bench.program("PROFCAPTURE", "profcapture"), os.path.join(folder, "page.html")
    command = [profcapture, "html", capture, "-o", page, "--force", "-q"]
    took = bench.median_seconds(command, 3)
    memory = bench.run_json(bench.program("PEAK_MEMORY", "peak-memory"), *command)["bytes"]
    size = os.path.getsize(page)
    table.row(f"{title}: write the page, s", took, goal=f"under {goals['write_s']}", met=took < goals["write_s"])
    table.row(f"{title}: its memory, MB", memory / 1e6, goal=f"under {goals['write_mb']}", met=memory < goals["write_mb"] * 1e6, digits=0)
    table.row(f"{title}: size, MB", size / 1e6, goal=f"at most {goals['page_mb']}", met=size <= goals["page_mb"] * 1e6)
    if not (CHROMIUM and (NODE / "playwright-core").is_dir()):
        print("no browser to drive is installed: ./dev setup --peers")
        return
    url, times = Path(page).as_uri(), "[Number(document.documentElement.dataset.painted), Number(document.documentElement.dataset.ready)]"
    opens = [browse(url, {"open": ""}, {"eval": times})[0] for _ in range(7)]
    painted, ready = (statistics.median(column) for column in zip(*opens))
    table.row(f"{title}: first paint, ms", painted, goal=f"under {goals['paint_ms']}", met=painted < goals["paint_ms"], digits=0)
    table.row(f"{title}: all panels work, ms", ready, goal=f"under {goals['open_ms']}", met=ready < goals["open_ms"], digits=0)
    for tab in "flame", "functions", "tree":
        (frames,) = browse(url, {"open": f"tab={tab}"}, {"latency": ["#timeline-canvas", 60, places()]})
        most = quantile(frames, 0.95)
        table.row(f"{title}: drag, {tab}, p50 ms", statistics.median(frames), digits=1)
        table.row(f"{title}: drag, {tab}, p95 ms", most, goal=f"at most {goals['range_ms']}", met=most <= goals["range_ms"], digits=1)


def stacks_of(page):
    """The number of rows of the page's table of stacks."""
    script = "document.documentElement.dataset.stacks"
    return int(browse(Path(page).as_uri(), {"open": ""}, {"eval": script})[0])


def main():
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    table = bench.Table("The report page")
    with bench.scratch() as folder:
        capture = record(folder, "stacks", 8, 10000)
        samples = bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"]
        path = repeat(folder, capture, max(1, round(SAMPLES / samples)))
        measure(table, "1 M samples", folder, path, {"write_s": 1.5, "write_mb": 300, "page_mb": 5, "paint_ms": 500, "open_ms": 1000, "range_ms": 50})
        capture = record(folder, "day", 60, 99, "--memory=sample:65536")
        path = repeat(folder, capture, DAY_S // 60)
        measure(table, "24 hours", folder, path, {"write_s": 60, "write_mb": 1000, "page_mb": 16, "paint_ms": 1000, "open_ms": 1000, "range_ms": 100})
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
