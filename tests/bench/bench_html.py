# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Measures the report page of a million samples on 60 000 stacks, and of a day at 99 Hz on two
CPUs: writing the page, opening it in a browser, and counting again for ranges that a mouse drags.

Times in the browser are those of headless Chromium without a frame limit: a drag is measured from
each move of the mouse to the end of the second frame after it. For comparison, flamegraph.pl draws
the same stacks; its page has no ranges.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import bench

ROOT = Path(__file__).resolve().parents[2]
FLAMEGRAPH = Path("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
DRIVER = ROOT / "tests/integration/drive_page.mjs"
NODE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "profd-tests/node_modules"
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
UNLIMITED = ("--disable-frame-rate-limit", "--disable-gpu-vsync")
SAMPLES = 1_000_000
DAY_S = 86400

# Eight functions call each other at random, each through a wrapper, so that there are tens of
# thousands of different stacks.
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
    """Returns the path of a capture that has `copies` copies of `capture`, one after the other."""
    tool, path = bench.program("BENCH_CAPTURE", "bench-capture"), os.path.join(folder, "long.cap")
    bench.run(tool, "grow", capture, path, int(os.path.getsize(capture) * (copies - 0.5)), 4096)
    bench.run(tool, "finish", path)
    return path


def browse(page, *steps, size=(1280, 800)):
    done = subprocess.run(["node", DRIVER, CHROMIUM, NODE / "playwright-core", *UNLIMITED], input=json.dumps({"page": page, "size": size, "steps": steps}),
                          capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    if problem := answer.get("failed") or answer["errors"]:
        sys.exit(f"bench: the page cannot be driven: {problem}")
    return answer["results"]


def places(n=60, left=200, right=1260):
    """Returns the positions of a drag: the range grows and shrinks, and no two lengths are equal."""
    return [left] + [left + 20 + (i * 389) % (right - left - 20) for i in range(n)]


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def flamegraph(folder, capture):
    """Draws the folded stacks with flamegraph.pl. Returns the seconds that this takes, without the
    export of the folded stacks, and the URL of a page with the picture."""
    if not FLAMEGRAPH.exists():
        print("flamegraph.pl is not installed: ./dev setup --peers")
        return None, None
    folded, picture, page = (Path(folder, "peer" + end) for end in (".folded", ".svg", ".html"))
    bench.run(bench.program("PROFCAPTURE", "profcapture"), "export", capture, "--to", "folded", "-o", folded, "--force", "-q")
    seconds = bench.median_seconds(["sh", "-c", 'perl "$0" "$1" > "$2"', FLAMEGRAPH, folded, picture])
    drawn = "requestAnimationFrame(() => requestAnimationFrame(() => { const { dataset } = document.documentElement; dataset.painted = dataset.ready = performance.now(); }))"
    svg = picture.read_text(encoding="utf-8").partition("<svg")
    page.write_text(f'<!doctype html><meta charset="utf-8">{svg[1]}{svg[2]}<script>{drawn}</script>', encoding="utf-8")
    return seconds, page.as_uri()


def measure(table, title, folder, capture, **goals):
    profcapture, page = bench.program("PROFCAPTURE", "profcapture"), os.path.join(folder, "page.html")
    command = [profcapture, "html", capture, "-o", page, "--force", "-q"]
    peer_seconds, peer_url = flamegraph(folder, capture)

    def row(what, value, goal=None, peer=None, **options):
        most = goals.get(goal)
        table.row(f"{title}: {what}", value, peer, goal=most and f"at most {most}", met=None if most is None else value <= most, **options)

    row("samples", bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"], digits=0)
    row("write the page, s", bench.median_seconds(command, 1 if goals["is_long"] else 5), "write_s", peer_seconds)
    row("its memory, MB", bench.run_json(bench.program("PEAK_MEMORY", "peak-memory"), *command)["bytes"] / 1e6, "write_mb", digits=0)
    row("size, MB", os.path.getsize(page) / 1e6, "page_mb")
    if not (CHROMIUM and (NODE / "playwright-core").is_dir()):
        print("no browser to drive is installed: ./dev setup --peers")
        return
    url, data = Path(page).as_uri(), "{ ...document.documentElement.dataset }"
    opens, peers = [], []
    for _ in range(7):
        opens += browse(url, {"open": ""}, {"eval": f"({data})"})
        if peer_url:
            peers += browse(peer_url, {"open": ""}, {"eval": f"({data})"})
    painted = statistics.median(float(data["painted"]) for data in peers) if peers else None
    row("rows of the table of stacks", int(opens[0]["stacks"]))
    row("first paint, ms", statistics.median(float(data["painted"]) for data in opens), "paint_ms", painted, digits=0)
    row("all panels work, ms", statistics.median(float(data["ready"]) for data in opens), "open_ms", digits=0)
    for tab in "flame", "functions", "tree":
        (frames,) = browse(url, {"open": f"tab={tab}"}, {"latency": ["#timeline-canvas", 60, places()]})
        row(f"drag, {tab}, median ms", statistics.median(frames), digits=1)
        row(f"drag, {tab}, p95 ms", quantile(frames, 0.95), "range_ms", digits=1)


def main():
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    table = bench.Table("The report page")
    with bench.scratch() as folder:
        capture = record(folder, "stacks", 8, 10000)
        samples = bench.run_json(profcapture, "info", capture, "--json")["capture"]["samples"]
        path = repeat(folder, capture, max(1, round(SAMPLES / samples)))
        measure(table, "1 M samples", folder, path, is_long=False, write_s=1.5, write_mb=300, page_mb=5, paint_ms=500, range_ms=50)
        capture = record(folder, "day", 60, 99, "--memory=sample:65536")
        path = repeat(folder, capture, DAY_S // 60)
        measure(table, "24 hours", folder, path, is_long=True, page_mb=16, open_ms=1000, range_ms=100)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
