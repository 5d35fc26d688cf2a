# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The report page in a browser: its numbers are those of the command that it names, everything
works by mouse and keyboard, and no capture breaks it."""
import base64
import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import browsers
import pytest
from captures import make
from captures import rows as rows_of
from exports import read_page
from format_reader import Capture
from recordings import until
from slices import part

PROGRAM = r"""
#include "libcollector/prof-collector.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void heavy(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; }
__attribute__((noinline)) static void light(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink ^= i; }
__attribute__((noinline)) static void deep(int left) { if (left) deep(left - 1); else heavy(300000); sink++; }
__attribute__((noinline)) static void *keep(void) { return calloc(1, 3000); }
static void *work(void *data)
{
	for (int i = 0; i < 60; i++) {
		void *volatile brief = malloc(8ul << i % 8);

		prof_mark_begin(0, "shop", "turn", NULL, 0);
		heavy(2000000);
		light(i < 30 ? 300000 : 1300000); /* takes longer in the second half */
		deep(30);
		if (i % 2)
			free(keep());
		else
			sink += (unsigned long)keep();
		free(brief);
		prof_mark_end(0, "shop", "turn", NULL, 0);
		if (i % 10 == 0)
			usleep(3000);
	}
	return data;
}
int main(void)
{
	pthread_t threads[4];
	uint32_t level = prof_counter_define("shop", "level", "", 0);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 20; i++) {
		prof_counter_set(level, i);
		usleep(10000);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
"""


CHUNK_HEADER_BYTES = 96


@pytest.fixture(scope="module")
def capture(profctl, compile_c, tmp_path_factory):
    path = tmp_path_factory.mktemp("html") / "city.cap"
    program = compile_c("city", PROGRAM, "-g", "-pthread", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"])
    profctl("record", "-q", "-F", 1999, "--memory", "-o", path, "--", program)
    return path


@pytest.fixture(scope="module")
def page_of(profcapture, tmp_path_factory):
    """Writes the page of a capture, once for the same capture, options and limit of size."""
    pages = {}

    def write(path, *options):
        key = path, path.stat().st_mtime_ns, os.environ.get("PROF_PAGE_BYTES"), *options
        if key not in pages:
            pages[key] = tmp_path_factory.mktemp("page") / (path.stem + ".html")
            profcapture("export", path, "--to", "html", "-o", pages[key], "-q", *options)
        return pages[key]

    return write


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    with browsers.firefox(tmp_path_factory.mktemp("firefox")) as drive_firefox:
        yield drive_firefox


@pytest.fixture(params=["chromium", "firefox"])
def drive(request):
    return request.getfixturevalue(request.param)


# ---- the data in the page

KEPT, RUNTIME = 1, 2  # kinds of allocations


def not_freed(profcapture, *arguments):
    """The size and the number of blocks that memory says are not freed."""
    text = profcapture("memory", *arguments).stdout
    return re.search(r"Not freed at exit: (\S+ \S+) in ([\d ]+) block", text.replace("\u00a0", " ")).groups()


def test_data(profcapture, page_of, capture):
    """The sums of the columns are those of report."""
    header, columns = read_page(page_of(capture))
    report = profcapture.json("report", capture)["data"]
    assert sum(columns["samples.count"]) == report["total"] and sum(columns["samples.weight"]) == report["total_weight"]
    assert header["capture"]["duration_ns"] == profcapture.json("info", capture)["capture"]["duration_ns"]
    assert {f["name"] for f in header["functions"]} >= {"heavy", "light", "deep", "work"}
    parents = columns["stacks.parent"]
    assert all(parent < i for i, parent in enumerate(parents) if i)
    memory = profcapture.json("memory", capture)["data"]["summary"]
    assert sum(columns["allocations.blocks"]) == memory["allocations"] and sum(columns["allocations.bytes"]) == memory["allocated_bytes"]
    live = [(n, size) for n, size, kind in zip(columns["allocations.blocks"], columns["allocations.bytes"], columns["allocations.kind"]) if kind in (KEPT, RUNTIME)]
    assert (sum(n for n, _ in live), sum(size for _, size in live)) == (memory["leaked_blocks"], memory["leaked_bytes"])
    turns = next(row for row in profcapture.json("marks", capture)["data"]["rows"] if row["name"] == "turn")
    lengths = sorted(n for n, name in zip(columns["marks.length"], columns["marks.name"]) if header["mark_names"][int(name)]["name"] == "turn")
    assert len(lengths) == turns["count"] == 240 and lengths[-1] == turns["max_ns"] and sum(lengths) == turns["total_ns"]


def test_verdict(profcapture, page_of, chromium, capture):
    """The page begins with the sentences of report, and with the numbers of memory and marks. The sentence on
    the longest mark selects its time."""
    page = page_of(capture)
    header, columns = read_page(page)
    cost, *where, waited, freed, longest = header["verdict"]
    head = profcapture("report", capture).stdout.split("\n\n")[0].splitlines()
    assert cost["text"] == head[0] and cost["figure"] in head[0]
    names = [re.fullmatch(r"in (.+?)(?: \((.+) (\d+ %)\))? and the library code that it calls", sentence["text"]).group(1) for sentence in where]
    assert head[1].startswith("Most in ") and names and all(f"{name} {sentence['figure']}" in head[1] for name, sentence in zip(names, where))
    assert waited["text"] in head and waited["figure"] in waited["text"]
    assert freed["figure"] == not_freed(profcapture, capture)[0].replace("\u00a0", " ") and freed["text"].startswith("not freed at exit")
    (mark,) = profcapture.json("marks", capture)["data"]["rows"]
    length, off = value(longest["figure"].replace(" ", "\u00a0").replace("us", "µs"))
    assert abs(length - mark["max_ns"]) <= off and mark["name"] in longest["text"]
    begin, end = longest["show"]["range"]
    assert end - begin == mark["max_ns"] and begin // header["mark_unit_ns"] == dict(zip(columns["marks.length"], columns["marks.time"]))[mark["max_ns"]]
    _, link, (first, *_) = chromium(page, {"open": ""}, {"eval": "[...document.querySelectorAll('#verdict a')].pop().click()"}, {"eval": "location.hash"}, {"eval": in_panel("Longest")})
    low, high = map(float, re.search(r"range=([\d.]+)-([\d.]+)", link).groups())
    assert begin - header["grid_ns"] < low <= begin and end <= high < end + header["grid_ns"] and "tab=marks" in link
    assert value(first[1]) == (length, off)
    assert chromium(page, {"open": ""}, {"eval": "[...document.querySelectorAll('#verdict a')].filter((link) => link.scrollWidth > link.clientWidth).map((link) => link.textContent)"}) == [[]]  # none is cut


@pytest.mark.parametrize("options", [[], ["--compare", "later"], ["--with-source"]])
def test_same_bytes(profcapture, capture, tmp_path, options):
    """The page does not depend on when it was written, and neither its text nor its compressed data
    name the directory it was written to."""
    first, other = tmp_path / "city.html", tmp_path / "elsewhere" / "another.html"
    other.parent.mkdir()
    options = [capture if option == "later" else option for option in options]
    profcapture("html", capture, *options, "-o", first, "-q")
    time.sleep(1.1)  # a time in seconds would differ
    profcapture("html", capture, *options, "-o", other, "-q")
    assert first.read_bytes() == other.read_bytes()
    data = gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', first.read_text(encoding="utf-8"))[1]))
    assert str(capture).encode() in data  # the path, as given on the command line
    for text in first.read_bytes(), data:
        assert str(tmp_path).encode() not in text and first.name.encode() not in text


def test_self_contained(page_of, capture):
    text = page_of(capture).read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert not re.search(r'\b(src|href)="', text) and not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


# ---- in a browser


def value(text):
    """The number in "1.23 s" or "4.50 KiB", and how far the exact value may be from it."""
    number, unit = re.fullmatch(r"([\d\u202f.]+)(?:\u00a0(\S+))?", text).groups()
    factor = {None: 1, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
    digits = number.replace("\u202f", "")
    return float(digits) * factor, 0.5001 * 10.0 ** -len(digits.partition(".")[2]) * factor


ROWS = "[...(document.querySelector('#panel table')?.querySelectorAll('tbody tr:not([aria-hidden])') ?? [])].map((row) => [...row.cells].map((cell) => cell.querySelector('.name')?.title || cell.textContent))"


def check_functions(profcapture, command, rows, total, n=12):
    """Returns how many numbers of the table were compared with those that the named command prints."""
    report = profcapture.json(*shlex.split(command)[1:], "--limit", 0)["data"]
    shown, off = value(total)
    assert abs(shown - report["self_total_weight"]) <= off
    wanted = {}
    for row in report["rows"]:
        wanted.setdefault(row["name"], []).append((row["self_weight"], row["total_weight"]))
    for cells in rows[:n]:
        own, off = value(cells[0]) if cells[0] != "–" else (0, 0)
        assert any(abs(own - weight) <= off for weight, _ in wanted[cells[-1]]), cells
        share = float(cells[3].split("\u00a0")[0].strip("<\u200a"))
        assert any(abs(share - 100 * whole / report["self_total_weight"]) <= 0.51 for _, whole in wanted[cells[-1]]), cells
    return 1 + 2 * len(rows[:n])


def test_same_numbers(profcapture, page_of, drive, capture):
    """At least 50 numbers agree: of the whole capture, of ranges and of a thread. The last range
    may have no samples."""
    page = page_of(capture)
    steps = [{"open": "tab=functions"}, {"text": "#command"}, {"eval": ROWS}, {"text": "#sum"}]
    for x0, x1 in (300, 700), (250, 1000), (500, 520):
        steps += [{"drag": ["#timeline-canvas", x0, x1, 60]}, {"text": "#command"}, {"eval": ROWS}, {"text": "#sum"}]
    steps += [{"at": ["#timeline-canvas", 40, 75]}, {"text": "#command"}, {"eval": ROWS}, {"text": "#sum"}]
    results = drive(page, *steps)
    compared = 0
    for (command,), rows, (total,) in zip(results[::3], results[1::3], results[2::3]):
        compared += check_functions(profcapture, command, rows, total)
    commands = [command for (command,) in results[::3]]
    assert len(set(commands)) == 5 and "--from" in commands[1] and "--tid" in commands[4]
    assert compared >= 50


def seconds(ns):
    return f"{ns / 1e9:.9f}s"


def test_same_numbers_of_panels(profcapture, page_of, chromium, capture):
    """The sum of a search is that of report --focus, and each function on a stack counts once. The
    open path of the call tree has the times of report --tree, also in two ranges, and that of the inverted
    one those of report --inverted. Sizes of blocks are those of memory
    --sizes. The changes between two ranges are those between two reports."""
    page = page_of(capture)
    header, _ = read_page(page)
    half = header["capture"]["duration_ns"] // 2 // header["grid_ns"] * header["grid_ns"]
    patterns = ["^(deep|heavy)$", "ight$", "^(deep|heavy)$"]
    hot, both = ROWS.replace(":not([aria-hidden])", ":has(.strong)"), f"base=0-{half}&range={half}-{2 * half}"
    steps = [{"open": "tab=tree"}, {"eval": hot}, {"key": "i"}, {"eval": hot}, {"text": "#command"}, {"open": f"tab=tree&{both}"}, {"eval": hot}, {"open": "tab=memory"}, {"eval": in_panel("Sizes")}, {"open": f"tab=functions&{both}"}, {"eval": in_panel("Changes")}, {"text": "#panel .note"}]
    for pattern, link in zip(patterns, ("", "inverted=true", f"range={half}-{2 * half}")):
        steps += [{"open": link}, {"type": ["#search", pattern]}, {"text": "#found"}]
    path, inverted, (command,), compared, sizes, changes, (within, *_), *found = chromium(page, *steps, size=(1280, 4000))
    first, second = (["--from", seconds(begin), "--to", seconds(begin + half - 1)] for begin in (0, half))
    limits = [[], [], second]
    for pattern, limit, (said,) in zip(patterns, limits, found):
        sum_, off = value(said.split(",")[0])
        data = profcapture.json("report", capture, "--focus", pattern, *limit)["data"]
        assert abs(sum_ - data["self_total_weight"]) <= off and 0 < sum_ < data["total_weight"] * 0.99, (pattern, said)
    for rows, option in (path, "--tree"), (inverted, "--inverted"):
        node, wanted = profcapture.json("report", capture, option, "--limit", 0)["data"]["root"], []
        while node["children"]:
            hottest = max(node["children"], key=lambda child: child["total_weight"])
            if wanted and 2 * hottest["total_weight"] < node["total_weight"]:
                break
            node = hottest
            wanted.append((node["name"], node["total_weight"]))
        assert len(rows) == len(wanted) > 1
        for cells, (name, weight) in zip(rows, wanted):
            total, off = value(cells[2])
            assert cells[-1] == name and abs(total - weight) <= off, (cells, name, weight)
    assert len(path) > 3 and command.endswith(" --inverted")
    nodes = [profcapture.json("report", capture, "--tree", "--limit", 0, *limit)["data"]["root"] for limit in (first, second)]
    assert len(compared) > 3
    for change, noise, _, before, after, name in compared:
        nodes = [next(child for child in node["children"] if child["name"] == name) for node in nodes]
        for cell, node in zip((before, after), nodes):
            total, off = value(cell)
            assert abs(total - node["total_weight"]) <= off, (cell, name)
        (change, off), (noise, noise_off) = value(re.sub("[+\u2212]", "", change)), value(noise)
        a, b = (node["total_weight"] for node in nodes)
        assert abs(change - abs(b - a)) <= off and abs(noise - 1.96 * ((a + b) * header["capture"]["sample_weight"]) ** 0.5) <= noise_off
    data = profcapture.json("memory", capture, "--sizes", "--limit", 0)["data"]
    wanted = [(row["allocated_bytes"], row["allocations"]) for row in data["rows"] if row["allocations"]]
    assert len(sizes) == len(wanted) > 7
    for (_, _, *texts, _, _), numbers in zip(sizes, wanted):
        assert all(abs(value(text)[0] - number) <= value(text)[1] for text, number in zip(texts, numbers)), (texts, numbers)
    assert [row[0].replace("\u00a0", " ") for row in sizes if row[0] != "–"] == [not_freed(profcapture, capture)[0]]
    sums, functions = [], {}
    for side, limit in enumerate((first, second)):
        rows = profcapture.json("report", capture, "--limit", 0, *limit)["data"]["rows"]
        sums.append({})
        for row in rows:
            sums[-1].setdefault(row["name"], []).append(row["self_weight"])
            functions.setdefault((row["name"], row["image"], row["file"], row["line"]), [0, 0])[side] += row["self_weight"]
    small = [(a, b) for a, b in functions.values() if a != b and abs(b - a) <= 1.96 * ((a + b) * header["capture"]["sample_weight"]) ** 0.5]
    assert small and within == f"{len(small)} more changes are within noise."
    assert changes
    for change, noise, _, *cells, name in changes:
        before, after = [value(cell) if cell not in ("new", "vanished") else (0, 0) for cell in cells]
        for (shown, off), weights in zip((before, after), sums):
            assert any(abs(shown - weight) <= off for weight in [*weights.get(name, []), 0]), (name, cells)
        (noise, off), both = value(noise), before[0] + after[0]
        assert abs(noise - 1.96 * (both * header["capture"]["sample_weight"]) ** 0.5) <= off + 0.01 * noise and value(re.sub("[+\u2212]", "", change))[0] > noise
        assert change[0] == ("+" if after[0] > before[0] else "\u2212")


def test_filters(profcapture, page_of, chromium, capture):
    """f, x and h focus on the selected function, ignore its stacks or hide it. The numbers are those of the copied
    command, of samples and of waits; chips remove the filters."""
    page = page_of(capture)
    names = [function["name"] for function in read_page(page)[0]["functions"]]
    deep, light, heavy = (names.index(name) for name in ("deep", "light", "heavy"))
    shown, steps = [{"text": "#command"}, {"eval": ROWS}, {"text": "#sum"}, {"text": "#sum + *"}, {"text": "#scope .chip"}], []
    for link in f"focus={deep}", f"ignore={deep}", f"hide={deep}", f"focus={deep}-{light}&hide={heavy}", f"ignore={light}&hide={deep}&range=0-1000000000&group=thread":
        steps += [{"open": "tab=functions&" + link}, *shown]
    results, compared = chromium(page, *steps), 0
    chips = [["focus deep✕"], ["ignore deep✕"], ["hide deep✕"], ["focus deep✕", "focus light✕", "hide heavy✕"], ["ignore light✕", "hide deep✕"]]
    for (command,), rows, (total,), (events,), texts, wanted in zip(*(results[i::5] for i in range(5)), chips, strict=True):
        compared += check_functions(profcapture, command, rows, total)
        assert events.replace("\u202f", "") == f"in {profcapture.json(*shlex.split(command)[1:])['data']['self_total']} samples"
        assert [text for text in texts if text.split()[0] in ("focus", "ignore", "hide")] == wanted
    assert compared > 30
    steps = [{"open": f"hide={heavy}"}, {"key": "f"}, {"text": "#announcement"}, {"click": "#scope .chip button"}, {"text": "#command"}, {"open": f"tab=memory&hide={heavy}"}, {"text": "#command"}, {"text": "#scope .chip"},
             {"open": f"tab=tree&fn={deep}"}, {"key": "f"}, {"text": "#command"}, {"eval": ROWS.replace(":not([aria-hidden])", ":has(.strong)")}]
    (said,), (whole,), (memory,), none, (tree,), rows = chromium(page, *steps)
    assert said == "select a function first" and whole.endswith("report " + str(capture)) and memory.endswith("memory " + str(capture)) and none == []
    node = profcapture.json(*shlex.split(tree)[1:], "--limit", 0)["data"]["root"]
    for cells in rows:
        node = max(node["children"], key=lambda child: child["total_weight"])
        total, off = value(cells[2])
        assert cells[-1] == node["name"] and abs(total - node["total_weight"]) <= off, (cells, node["name"])


def test_scope_of_panels(profcapture, page_of, chromium, capture):
    """The scope bar has the sum of what the panel shows: unfreed or allocated bytes above the memory, the number
    of marks above the marks. A measure that the panel does not show opens the flame graph."""
    page = page_of(capture)
    half = read_page(page)[0]["capture"]["duration_ns"] // 2
    shown = "['#scope [aria-pressed=true]', '#sum', '#sum + *', '#tabs [aria-selected=true]', '#command'].map((id) => document.querySelector(id)?.textContent)"
    press = "[...document.querySelectorAll('#scope button')].find((button) => button.textContent === '%s').click()"
    steps = [{"open": f"tab=memory&range=0-{half}"}, {"eval": shown}, {"eval": press % "Allocated"}, {"eval": shown}, {"eval": press % "CPU time"}, {"eval": shown},
             {"open": f"tab=marks&range=0-{half}"}, {"eval": shown}, {"at": ["#timeline-canvas", 40, 75]}, {"eval": shown}]
    live, _, allocated, _, cpu, marks, of_thread = chromium(page, *steps)
    memory = profcapture.json(*shlex.split(live[4])[1:])["data"]["summary"]
    assert live[0] == "Not freed" and live[1].replace("\u00a0", " ") == not_freed(profcapture, *shlex.split(live[4])[2:])[0] and live[2].endswith(" blocks")
    amount, off = value(allocated[1])
    assert allocated[0] == "Allocated" and allocated[3] == "Memory" and abs(amount - memory["allocated_bytes"]) <= off
    assert allocated[2] == f"in {memory['allocations']} blocks"
    assert cpu[0] == "CPU time" and cpu[2].endswith(" samples") and cpu[3] == "Flame graph"
    for pressed, n, *_, command in marks, of_thread:
        (turns,) = profcapture.json(*shlex.split(command)[1:])["data"]["rows"]
        assert pressed is None and n == str(turns["count"])
    assert 0 < int(of_thread[1]) < int(marks[1])


TABLES = """Object.fromEntries([...document.querySelectorAll('#panel table')].map((table) => [table.getAttribute('aria-label'),
	[...table.querySelectorAll('tbody [role=row]')].map((row) => [row.getAttribute('aria-level'), ...[...row.cells].map((cell) => cell.querySelector('.name')?.title || cell.textContent)])]))"""
# Tips of the live heap at three places of the timeline.
HEAP_TIPS = """[400, 600, 800].map((x) => {
	const canvas = document.querySelector('#timeline-canvas'), box = canvas.getBoundingClientRect(), tip = document.querySelector('#tip');
	tip.textContent = '';
	for (let y = 60; y < box.height && !tip.textContent.startsWith('Heap'); y += 4) canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.x + x, clientY: box.y + y }));
	return tip.textContent.split('\\n').pop();
})"""


@pytest.fixture(scope="module")
def of_range(page_of, chromium, capture):
    """The tables and the command of each panel for one range, and the numbers in the timeline."""
    page = page_of(capture)
    header, _ = read_page(page)
    grid, duration = header["grid_ns"], header["capture"]["duration_ns"]
    limits = [duration * tenths // 10 // grid * grid for tenths in (3, 7)]
    keys = {"tree": "3", "waiting": "4", "memory": "5", "marks": "6", "allocated": "2a", "live": "l", "waits": "w"}
    steps = [{"open": f"range={limits[0]}-{limits[1]}"}]
    for pressed in keys.values():
        steps += [*({"key": key} for key in pressed), {"eval": TABLES}, {"text": "#command"}, {"text": "#sum"}]
    *results, tips, lines = chromium(page, *steps, {"eval": HEAP_TIPS}, {"eval": "new Promise((done) => setTimeout(() => done([...document.querySelectorAll('#lines-table tr')].map((row) => [...row.cells].map((cell) => cell.textContent))), 500))"}, size=(1280, 4000))
    shown = {name: (tables, command, total) for name, tables, (command,), (total,) in zip(keys, results[::3], results[1::3], results[2::3])}
    return shown, dict(lines), dict(zip((400, 600, 800), tips)), limits, duration


def near(text, number):
    amount, off = value(text) if text != "–" else (0, 0.5)
    return abs(amount - number) <= off


def compare_tree(shown, run):
    tables, command, _ = shown["tree"]
    wanted, work = {}, [((), run(command)["root"])]
    while work:
        path, node = work.pop()
        for child in node["children"]:
            wanted.setdefault((*path, child["name"]), []).append((child["total_weight"], child["self_weight"]))
            work.append(((*path, child["name"]), child))
    path = []
    for level, _, _, total, own, name in tables["Call tree"]:
        path[int(level) - 1:] = [name]
        assert any(near(total, numbers[0]) and near(own, numbers[1]) for numbers in wanted[tuple(path)]), (path, total, own)
    return 2 * len(tables["Call tree"])


def compare_places(shown, run):
    tables, command, _ = shown["waiting"]
    return check_places([cells for _, *cells in tables["Places"]], run(command)["places"])


def compare_threads(shown, run):
    tables, command, _ = shown["waiting"]
    wanted = {f"{row['comm']} {row['tid']}": row for row in run(command.replace("--by state", "--by thread"))["rows"]}
    for _, waited, ready, ran, _, _, name in tables["Threads"]:
        row = wanted[name]
        assert near(waited, row["wait_ns"]) and near(ready, row["preempted_ns"] + row["runnable_ns"]) and near(ran, row["run_ns"]), (name, waited, ready, ran, row)
    return 3 * len(tables["Threads"])


def compare_owners(shown, run):
    """Allocations count for the innermost function of the program on the stack."""
    tables, command, _ = shown["memory"]
    wanted, work = {}, [("no function of the program", run(f"{command} --tree --no-fold")["root"])]
    while work:
        owner, node = work.pop()
        wanted[owner] = wanted.get(owner, 0) + node["self_bytes"]
        work += [(child["name"] if (child["image"] or "").endswith("/city") else owner, child) for child in node["children"]]
    for _, _, _, allocated, _, _, name in tables["Allocating functions"]:
        assert near(allocated, wanted[name]), (name, allocated, wanted)
    return len(tables["Allocating functions"])


def compare_sizes(shown, run):
    tables, command, _ = shown["memory"]
    wanted = [row for row in run(f"{command} --sizes")["rows"] if row["allocations"]]
    for (_, live, _, allocated, blocks, _, _), row in zip(tables["Sizes"], wanted, strict=True):
        assert near(live, row["leaked_bytes"]) and near(allocated, row["allocated_bytes"]) and near(blocks, row["allocations"])
    return 3 * len(wanted)


def compare_marks(shown, run):
    tables, command, _ = shown["marks"]
    wanted = {f"{row['group']}: {row['name']}": row for row in run(command)["rows"]}
    for _, count, *lengths, name in tables["Marks"]:
        row = wanted.pop(name)
        assert near(count, row["count"])
        for text, key in zip(lengths, ("total_ns", "median_ns", "p95_ns", "p99_ns", "max_ns"), strict=True):
            assert near(text, row[key]), (key, text, row)
    assert not wanted
    return 6 * len(tables["Marks"])


def compare_functions(measure, own):
    def compare(shown, run):
        tables, command, sum_ = shown[measure]
        data = run(command)
        assert near(sum_, data["summary"][own])
        wanted = {}
        for row in data["rows"]:
            wanted.setdefault(row["name"], []).append((row[own], row["total_bytes"]))
        for _, self_bytes, _, _, total, name in tables["Functions"]:
            percent = float(total.split("\u00a0")[0].strip("<\u200a"))
            assert any(near(self_bytes, numbers[0]) and abs(percent - 100 * numbers[1] / data["summary"][own]) <= 0.51 for numbers in wanted[name]), (name, self_bytes, total, wanted[name])
        return 1 + 2 * len(tables["Functions"])

    return compare


COMPARISONS = {"tree": compare_tree, "places": compare_places, "threads": compare_threads, "owners": compare_owners, "sizes": compare_sizes, "marks": compare_marks,
               "allocated": compare_functions("allocated", "allocated_bytes"), "live": compare_functions("live", "leaked_bytes")}


def test_range_comparisons(profcapture, of_range):
    """The numbers of each table of a range are those of the panel's command; together at least 50."""
    shown, *_ = of_range
    compared = {name: compare(shown, lambda command: profcapture.json(*shlex.split(command)[1:], "--limit", 0)["data"]) for name, compare in COMPARISONS.items()}
    assert min(compared.values()) > 1 and sum(compared.values()) >= 50, compared


def test_range_of_timeline(profcapture, of_range, capture):
    """Beside the rows of counters are their largest values in the range; the tips of
    the heap are at least the sizes of memory --at. The sum of waits is that of report."""
    shown, lines, tips, limits, duration = of_range
    options = "--from", seconds(limits[0]), "--to", seconds(limits[1] - 1)
    counters = {row["name"]: row for row in profcapture.json("counters", capture, *options)["data"]["rows"]}
    assert near(lines["level"].removeprefix("max "), counters["level"]["max"]), (lines, counters)
    # the page has the largest size in each small part of the time
    rows = profcapture.json("sql", capture, "SELECT time_ns, freed_ns, bytes FROM allocations")["data"]["rows"]
    steps = [(row["time_ns"], row["bytes"]) for row in rows] + [(row["freed_ns"], -row["bytes"]) for row in rows if row["freed_ns"]]
    sizes = dict(zip((time for time, _ in sorted(steps)), itertools.accumulate(step for _, step in sorted(steps))))
    for x, text in tips.items():
        at = round((x - 176) / 1094 * duration)
        live = profcapture.json("memory", capture, "--at", f"{at}ns")["data"]["summary"]["live_bytes"]
        near_by = [live, *(size for time, size in sizes.items() if abs(time - at) < duration / 500)]
        amount, off = value(text)
        assert min(near_by) - off <= amount <= max(near_by) + off and live <= amount + off, (x, text, live, near_by)
    _, command, total = shown["waits"]
    assert near(total, profcapture.json(*shlex.split(command)[1:])["data"]["self_total_weight"])


def test_empty_range(page_of, drive, capture):
    """If a range has no samples, each panel says so, because an empty table would look like an error."""
    page = page_of(capture)
    header, columns = read_page(page)
    times, grid = [time * header["sample_unit_ns"] for time in columns["samples.time"]], header["grid_ns"]
    gap, start = max((later - time, time) for time, later in zip(times, times[1:]))
    first = (start // grid + 1) * grid
    assert gap > 2 * grid
    steps = [{"open": f"range={first}-{first + grid}"}]
    for key in "123":
        steps += [{"key": key}, {"text": "#panel"}]
    steps += [{"text": "#sum"}, {"key": "Escape"}, {"open": "tab=functions"}, {"eval": f"{ROWS}.length > 3"}]
    *said, (total,), rows = drive(page, *steps)
    assert said == [["No samples in this range."]] * 3 and value(total)[0] == 0 and rows


def test_mouse_and_keyboard(page_of, drive, capture):
    page = page_of(capture)
    shown = "[document.querySelector('[role=tab][aria-selected=true]').textContent, document.querySelector('#scope [aria-pressed=true]').textContent, location.hash]"
    results = drive(
        page, {"open": ""}, {"eval": shown},
        {"key": "2"}, {"eval": shown}, {"key": "l"}, {"eval": shown}, {"key": "Escape"}, {"eval": shown}, {"key": "3"}, {"eval": shown},
        {"drag": ["#timeline-canvas", 300, 700, 60]}, {"eval": shown}, {"drag": ["#timeline-canvas", 800, 1000, 60, "Control"]}, {"eval": shown},
        {"key": "1"}, {"eval": "document.querySelector('#flame').dataset.boxes > 5"},
        {"key": "i"}, {"eval": "document.querySelector('#flame').dataset.boxes > 5"},
        {"type": ["#search", "^heavy$"]}, {"text": "#found"}, {"key": "Escape"},
        {"key": "?"}, {"eval": "document.querySelector('#keys').open"}, {"key": "Escape"}, {"eval": "document.querySelector('#keys').open"},
        {"key": "ArrowRight"}, {"eval": "location.hash"}, {"key": "z"}, {"eval": "/view=/.test(location.hash)"},
    )
    assert [result[:2] for result in results[:5]] == [
        ["Flame graph", "CPU time"], ["Functions", "CPU time"], ["Functions", "Not freed"], ["Functions", "CPU time"], ["Call tree", "CPU time"]]
    assert "range=" in results[5][2] and "base=" in results[6][2]
    assert results[7:9] == [True, True]
    found, share = re.fullmatch(r"(.*), ([\d.]+)\u00a0%", results[9][0]).groups()
    assert value(found)[0] > 0 and 30 < float(share) < 95
    assert results[10:12] == [True, False]
    assert results[12] != results[6][2] and results[13] is True


def in_panel(label):
    return ROWS.replace("#panel table", f'#panel table[aria-label="{label}"]')


def test_inverted_allocations(page_of, chromium, capture):
    """The inverted tree of allocations begins at functions of the program, with the bytes of the panel
    Memory, and not at the allocator."""
    steps = [{"open": "tab=tree&measure=alloc&inverted=true"}, {"eval": ROWS.replace(":not([aria-hidden])", '[aria-level="1"]')}, {"open": "tab=memory"}, {"eval": in_panel("Allocating functions")}]
    tree, owners = chromium(page_of(capture), *steps, size=(1280, 4000))
    assert {"keep", "work"} <= {row[-1] for row in tree}
    assert sorted((row[-1], row[2]) for row in tree if row[-1] in ("keep", "work")) == sorted((row[-1], row[2]) for row in owners if row[-1] in ("keep", "work"))
    assert not [row for row in tree if "alloc" in row[-1]]


def test_neighbors(profcapture, page_of, chromium, capture):
    """Callers and callees of a function are those of report --callers; a click on one shows that
    function."""
    names = "document.querySelector('#panel .focus .name').textContent"
    steps = [{"open": "tab=functions"}, {"click": "#panel table[aria-label=Functions] [title=heavy]"}, {"eval": names}, {"text": "#panel .focus div + div"},
             {"eval": in_panel("Called by")}, {"click": "#panel table[aria-label='Called by'] [title=work]"}, {"eval": names}, {"text": "#panel .focus div + div"}, {"eval": in_panel("Calls")}]
    heavy, (said,), callers, work, (total,), callees = chromium(page_of(capture), *steps)
    assert (heavy, work) == ("heavy", "work")
    for name, key, shown, total in ("heavy", "callers", callers, said), ("work", "callees", callees, total):
        data = profcapture.json("report", capture, "--callers", name, "--limit", 0)["data"]
        amount, off = value(re.match(r"total (.*?) \(", total)[1])
        assert abs(amount - data["function"]["total_weight"]) <= off
        wanted = {}  # the libraries of the program have more than one free()
        for row in data[key]:
            if row["name"]:
                wanted.setdefault(row["name"], []).append(row["total_weight"])
        assert len(shown) > 1 and len([cells for cells in shown if cells[-1] in wanted]) > 1
        for cells in shown:
            if cells[-1] in wanted:
                amount, off = value(cells[0])
                assert min(abs(amount - weight) for weight in wanted[cells[-1]]) <= off, cells


HEAP = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile unsigned long sink;
static void burn(void) { for (unsigned long i = 0; i < 60000000; i++) sink += i; }
__attribute__((noinline)) static void keep(void) { sink += (unsigned long)strdup("kept"); sink += (unsigned long)calloc(1, 300000); }
__attribute__((noinline)) static void spike(void) { char *volatile p = malloc(8 << 20); p[0] = 1; free(p); }
int main(int argc, char **argv)
{
	for (int i = 0; i < 3; i++) {
		void *volatile p = malloc(100000);
		keep();
		burn();
		free(p);
	}
	spike();
	burn();
	if (argc > 1 && argv[1][0]-- > '1')
		execv("/proc/self/exe", argv);
}
"""


def test_heap(profctl, profcapture, compile_c, page_of, chromium, tmp_path):
    """The peak equals that of `memory`, even a short one after many processes. The blocks of a
    range that are not freed equal those of the copied command, also on a page of a range."""
    capture, label = tmp_path / "heap.cap", re.compile(r"peak (\S+\u00a0\S+) at")
    profctl("record", "-q", "-F", 199, "--memory", "-o", capture, "--", compile_c("heap", HEAP, "-g"), "3")
    wanted = profcapture.json("memory", capture, "--peak")["data"]["summary"]["peak_bytes"]
    end = profcapture.json("info", capture)["capture"]["duration_ns"]
    part = [{"open": f"tab=memory&measure=live&range={end // 5}-{end * 3 // 4}"}, {"text": "#panel h2"}, {"text": "#command"}, {"text": "#sum"}]
    labels = """(() => {
        const areas = [...document.querySelectorAll('.heap path')].map((area) => [area.style.fill, area.nextElementSibling.localName === 'text' && area.nextElementSibling.textContent]);
        const rows = [...document.querySelectorAll('#panel table[aria-label="Allocating functions"] .name')].map((name) => [name.firstChild.style.background, name.title]);
        return [areas.filter(([, text]) => text), rows];
    })()"""
    (text,), (labeled, owners), *rest = chromium(page_of(capture), {"open": "tab=memory"}, {"text": ".heap .strong"}, {"eval": labels}, *part)
    assert labeled == [[color, name] for color, name in owners if name == "keep"]  # at the end, main and spike have freed all
    size, off = value(label.search(text)[1])
    assert abs(size - wanted) <= off and wanted < 10 << 20, text
    for (_, head, *_), (command,), (total,) in rest, chromium(page_of(capture, "--from", "0.01s"), *part):
        bytes_, blocks = not_freed(profcapture, *shlex.split(command)[2:])
        assert "--from" in command and "--to" in command
        assert total == bytes_.replace(" ", "\u00a0") and head.startswith(f"{total} not freed at exit"), (command, head, total)
    middle = f"{end // 5}ns..{end * 3 // 4}ns"
    verdict = {sentence["show"]["measure"]: sentence["figure"] for sentence in read_page(page_of(capture, "--from", middle))[0]["verdict"] if "measure" in sentence["show"]}
    assert verdict["live"] == not_freed(profcapture, capture, "--from", middle)[0]


def test_selection(profcapture, page_of, chromium, capture):
    """A page of a part of the capture names the options, and its commands have them. Its verdict is that of
    report, and it does not say that what they leave out was not recorded."""
    tid = max(profcapture.json("report", capture, "--by", "thread")["data"]["rows"], key=lambda row: row["self"])["tid"]
    times = profcapture.json("sql", capture, "SELECT min(time_ns) AS first, max(time_ns) AS last FROM sample")["data"]["rows"][0]
    middle = [f"{round((times['first'] * (4 - i) + times['last'] * i) / 4e9, 2):g}s" for i in (1, 3)]
    lists = [["--cpu", "0", "--focus", "heavy|light"], ["--from", "..".join(middle)], ["--tid", str(tid), "--ignore", "a b"], ["--comm", "city"]]
    for options in lists:
        page = page_of(capture, *options)
        steps = [{"open": "tab=functions"}, {"text": "#command"}, {"eval": ROWS}, {"text": "#sum"}, {"text": "#scope .only"}, {"text": "#meta"}, {"eval": "document.title"}, {"text": "#verdict"},
                 {"drag": ["#timeline-canvas", 300, 700, 60]}, {"text": "#command"}, {"eval": ROWS}, {"text": "#sum"}, {"key": "5"}, {"text": "#panel"}, {"key": "7"}, {"text": "#panel"}]
        (command,), rows, (total,), (chip,), (meta,), title, (verdict,), (part,), part_rows, (part_total,), (memory,), (about,) = chromium(page, *steps)
        first, *_ = profcapture("report", capture, *options).stdout.splitlines()
        assert check_functions(profcapture, command, rows, total) > 2
        check_functions(profcapture, part, part_rows, part_total)
        said = "--from {} --to {}".format(*middle) if "--from" in options else " ".join(shlex.quote(word) for word in options)
        assert all(text.count(said) == 1 for text in (chip, meta, title, about)), (chip, meta, title)
        assert "--from" in options or (command.endswith(said) and part.endswith(said))
        assert first in verdict
        assert ("left out by --" in memory) == bool({"--cpu", "--focus", "--ignore"} & set(options)) and "not recorded" not in memory
    (panel,), (waiting,) = chromium(page_of(capture, "--from", "100s..200s"), {"open": "tab=memory"}, {"text": "#panel"}, {"open": "tab=marks"}, {"text": "#panel"})
    assert panel == "Allocations were recorded, but left out by --from 100s --to 200s." and waiting.startswith("Marks were recorded, but left out")


@pytest.mark.parametrize("options", [["--cpu", "7777"], ["--from", "1ns..1ns"], ["--focus", "nowhere"]])
def test_nothing_selected(profcapture, capture, tmp_path, options):
    """An empty page has one warning, the most exact one."""
    said = profcapture("html", capture, *options, "-o", tmp_path / "x.html", "-q").stderr
    assert said.count("warning: ") == 1 and ("nothing of CPU 7777 in " if "--cpu" in options else "leave out all samples") in said


def test_about(profcapture, page_of, chromium, capture, tmp_path):
    """The page says in words how the capture was recorded and by which versions. Anything that
    the capture lacks is shown as unknown."""
    made = make(tmp_path / "made.cap", "--rows", 20)
    for path, version in (capture, profcapture("--version").stdout.split()[1]), (made, "unknown"):
        keys, values = chromium(page_of(path), {"open": "tab=about"}, {"text": "#panel dt"}, {"text": "#panel dd"})
        facts = dict(zip(keys, values))
        assert facts["Recorded by profd"] == version and facts["Page by profcapture"] == profcapture("--version").stdout.split()[1]
        if path == capture:
            machine = os.uname()
            assert (facts["Host"], facts["Kernel"], facts["Architecture"]) == (machine.nodename, machine.release, machine.machine)
            assert "allocations" in facts["Options"] and "1\u202f999 samples a second" in facts["Options"] and not re.search(r'[{}"]|true|false', facts["Options"])


def test_quality(profcapture, page_of, chromium, capture, tmp_path):
    """The page says what report says of stacks and names, and which version wrote it."""
    lossy = make(tmp_path / "lossy.cap", "--all-tables", "--rows", 200)
    (said,) = [line for line in profcapture("report", lossy).stdout.splitlines() if "Without a name: " in line or "Stacks cut short: " in line]
    verdict, (about,) = chromium(page_of(lossy), {"open": "tab=about"}, {"text": "#verdict li"}, {"text": "#panel"})
    assert verdict[-1].lstrip("!") in said and ": " in verdict[-1]
    assert profcapture("--version").stdout.split()[1] in about


ODD_LINKS = ["search=%", "search=%28", "thread=length", "tab=constructor", "measure=toString", "fn=-1&mark=1.5&sort=__proto__&group=valueOf", "range=%ff",
             "range=5-3", "range=-5-99999999999999", "range=NaN-0", "range=0-0&base=0-0", "tab=flame&zoom=999999", "thread=-1"]


def test_broken_links(page_of, drive, capture):
    """A link that makes no sense shows the page."""
    steps = [[{"open": link}, {"text": "#sum"}, {"eval": "document.documentElement.dataset.failed || ''"}, {"text": "#tabs [aria-selected=true]"}] for link in ODD_LINKS]
    results = drive(page_of(capture), *(step for link in steps for step in link))
    for link, (total,), failed, (tab,) in zip(ODD_LINKS, results[::3], results[1::3], results[2::3], strict=True):
        assert value(total)[0] > 0 and not failed and tab == "Flame graph", link


def test_command_of_panel(profcapture, page_of, chromium, capture):
    """The command is the one that prints the numbers of the panel."""
    page, first = page_of(capture), "[...document.querySelectorAll('#panel tbody tr:not([aria-hidden])')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    heavy = [function["name"] for function in read_page(page)[0]["functions"]].index("heavy")
    ((leaks,),) = chromium(page, {"open": "tab=functions&measure=live"}, {"text": "#command"})
    assert shlex.split(leaks) == ["profcapture", "memory", str(capture), "--leaks"]
    steps = [{"open": "tab=marks"}, {"text": "#command"}, {"drag": ["#timeline-canvas", 300, 700, 60]}, {"text": "#command"}, {"eval": first}, {"key": "5"}, {"text": "#command"}, {"key": "4"}, {"text": "#command"},
             {"open": f"tab=functions&fn={heavy}"}, {"text": "#command"}, {"open": "tab=tree"}, {"text": "#command"}]
    (marks,), (part,), rows, (memory,), (waiting,), (callers,), (tree,) = chromium(page, *steps)
    assert shlex.split(marks) == ["profcapture", "marks", str(capture)]
    (turn,) = profcapture.json(*shlex.split(part)[1:])["data"]["rows"]
    assert rows[0][0] == str(turn["count"]) and abs(value(rows[0][1])[0] - turn["total_ns"]) <= value(rows[0][1])[1]
    assert memory.startswith(f"profcapture memory {capture} --from") and "--by state --from" in waiting and tree.endswith(" --tree")
    assert callers.endswith(" --callers heavy")
    for command in memory, waiting, callers:
        profcapture(*shlex.split(command)[1:])


def test_recursion(page_of, chromium, capture):
    """In each panel, a function that calls itself has at most 100 %."""
    percents = "[...document.querySelectorAll('#panel td')].map((cell) => /^(\\d[\\d.]*)\u00a0%/.exec(cell.textContent)).filter(Boolean).map((found) => Number(found[1]))"
    page = page_of(capture)
    deep = [function["name"] for function in read_page(page)[0]["functions"]].index("deep")
    steps = [{"open": f"tab=functions&fn={deep}"}, {"eval": percents}, {"key": "3"}, {"eval": percents},
             {"type": ["#search", "^deep$"]}, {"text": "#found"}]
    functions, tree, (found,) = chromium(page, *steps)
    assert len(functions) > 10 and len(tree) > 5 and max(functions + tree) <= 100
    assert 0 < float(re.search(r"([\d.]+)\u00a0%", found)[1]) < 100


LABELS = "JSON.parse(document.querySelector('#timeline').dataset.rows)"


def test_keyboard_only(page_of, drive, capture, tmp_path):
    """Without a mouse: a second range, the values of counters and the texts of logs, and each
    process and thread."""
    texts = "['#lines-table', '#logs-table'].map((id) => document.querySelector(id).textContent)"
    steps = [{"open": ""}, {"key": "+"}, {"key": "-"}, {"key": "-"}, {"key": "b"}, {"eval": "location.hash"}, {"key": "b"}, {"eval": "location.hash"}, {"eval": f"new Promise((done) => setTimeout(() => done({texts}), 500))"}]
    both, one, (lines, _) = drive(page_of(capture), *steps)
    assert "range=" in both and "base=" in both and "range=" in one and "base=" not in one
    assert re.search(r"level\S*max \d", lines) and re.search(r"turn\d+", lines), lines
    many = make(tmp_path / "many.cap", "--all-tables", "--rows", 3000)
    few, more, again = drive(page_of(many), {"open": ""}, {"eval": LABELS}, {"key": "t"}, {"eval": LABELS}, {"key": "t"}, {"eval": LABELS})
    assert few == again and len(few) < len(more) and few[2:] != more[2:]


def test_ended_processes(profctl, profcapture, page_of, chromium, tmp_path):
    """The values of a process end with it, and have its last name."""
    capture = tmp_path / "ended.cap"
    profctl("record", "-q", "-F", 99, "--memory", "-o", capture, "--", "sh", "-c", "exec 3<&0; /usr/bin/python3 -c 'import time; time.sleep(0.4)'; sleep 0.5")
    exits = {row["comm"]: row["time_ns"] for row in profcapture.json("dump", capture, "-t", "task", "--limit", 0)["data"]["rows"] if row["event"] == "exit"}
    counters = [counter for counter in read_page(page_of(capture))[0]["counters"] if counter["is_rss"]]
    assert sorted(exits.values())[0] in [counter["end_ns"] for counter in counters] and len(counters) >= 2
    begin, end = int(exits["python3"]) + 20_000_000, int(exits["sleep"])
    table = "new Promise((done) => setTimeout(() => done([...document.querySelectorAll('#lines-table tr')].map((row) => row.textContent)), 500))"
    whole, late = chromium(page_of(capture), {"open": ""}, {"eval": table}, {"open": f"range={begin}-{end}"}, {"eval": table})
    for name, held in ("rss python3 ", False), ("rss sh ", True):
        assert any(row.startswith(name) and "max" in row for row in whole), whole
        assert any(row.startswith(name) and ("max" in row) == held for row in late), late


def said_by_rows(drive, page, *more):
    """Goes down the rows of the timeline by keyboard, to the first event of each. Returns the labels of the
    rows, and what was said at each."""
    (labels,) = drive(page, {"open": ""}, {"eval": LABELS})
    steps = [{"open": ""}, {"eval": "document.querySelector('#timeline-canvas').focus()"}]
    for _ in labels[2:]:
        steps += [{"key": "ArrowDown"}, {"key": "]"}, {"text": "#announcement"}, {"text": "#tip"}]
    results = drive(page, *steps)[1:]
    return labels, dict(zip(labels[2:], zip(results[::2], results[1::2])))


def test_tips_by_keyboard(profcapture, page_of, drive, capture, tmp_path):
    """With the keyboard, each row has the text of its tip: states of threads, sizes of the heap, values of
    counters, lengths of marks, texts of logs."""
    labels, said = said_by_rows(drive, page_of(capture))
    assert labels[:2] == ["Time", "Activity"] and all(tip and tip[0].split("\n")[0] in text[0] for text, tip in said.values())
    (text,), _ = said[next(label for label in labels if label.startswith("city"))]
    assert re.search(r"(running|ready|waiting) \d+\u00a0%", text), text
    assert re.search(r"\d (B|KiB|MiB)", said[next(label for label in labels if label.startswith("Heap"))][0][0].replace("\u00a0", " "))
    assert re.search(r"level\. [^.]*\.\d+\u00a0s\. \d", said["level"][0][0]), said["level"]
    assert re.search(r"turn of city \d+: \d", said["turn"][0][0]), said["turn"]
    logged = make(tmp_path / "logged.cap", "--all-tables", "--rows", 60)
    _, said = said_by_rows(drive, page_of(logged))
    texts = [log["text"] or "a log without text" for log in read_page(page_of(logged))[0]["logs"]]
    assert any(text in said["Logs"][0][0] for text in texts), said["Logs"]


FORKS = r"""
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile unsigned long sink;
static void *work(void *data) { for (unsigned long i = 0; i < 30000000; i++) sink += i; return data; }
int main(void)
{
	for (int i = 0; i < 2; i++)
		if (fork() == 0) {
			pthread_t threads[3];
			for (int k = 0; k < 3; k++)
				pthread_create(&threads[k], NULL, work, NULL);
			for (int k = 0; k < 3; k++)
				pthread_join(threads[k], NULL);
			_exit(0);
		}
	work(NULL);
	while (wait(NULL) > 0)
		;
}
"""


@pytest.fixture(scope="module")
def forks(profctl, compile_c, tmp_path_factory):
    path = tmp_path_factory.mktemp("forks") / "forks.cap"
    profctl("record", "-q", "-F", 999, "-o", path, "--", compile_c("forks", FORKS, "-O1", "-pthread"))
    return path


def test_process_lanes(profcapture, page_of, drive, forks):
    """A process has the sum of its threads, which unfold by mouse and by keyboard."""
    page = page_of(forks)
    row = "document.querySelector('#timeline-canvas').focus()"
    steps = [{"open": ""}, {"eval": LABELS}, {"at": ["#timeline-canvas", 40, 85]}, {"eval": LABELS}, {"at": ["#timeline-canvas", 40, 85]}, {"eval": LABELS},
             {"eval": row}, {"key": "ArrowDown"}, {"key": "ArrowDown"}, {"key": "Enter"}, {"eval": LABELS}, {"key": "ArrowDown"}, {"text": "#announcement"}, {"key": "Enter"}, {"text": "#scope .chip"}, {"key": "u"}, {"key": "u"}, {"eval": LABELS}]
    folded, unfolded, again, _, opened, (thread,), chips, last = drive(page, *steps)
    assert folded == again == last and unfolded == opened and len(unfolded) == len(folded) + 4
    process = unfolded[3]
    pid = int(re.search(r"\((\d+)\)", process)[1])
    tids = {row["tid"]: row for row in profcapture.json("report", forks, "--by", "thread", "--limit", 0)["data"]["rows"] if row["pid"] == pid}
    assert {int(re.search(r"\d+$", label)[0]) for label in unfolded[4:8]} >= set(tids) and thread.startswith(unfolded[4]) and unfolded[4] in chips[0]


def test_next_match(page_of, drive, capture):
    """n and N go through the functions that match the search, in every panel; u goes back."""
    chosen = "new URLSearchParams(location.hash.slice(1)).get('fn')"
    steps = [{"open": "tab=functions"}, {"key": "n"}, {"text": "#announcement"}, {"type": ["#search", "^(heavy|light|deep)$"]}, {"eval": "document.querySelector('#search').blur()"}]
    for key in "nnnnN":
        steps += [{"key": key}, {"text": "#announcement"}, {"eval": chosen}]
    steps += [{"key": "1"}, {"key": "n"}, {"text": "#announcement"}, {"key": "u"}, {"eval": chosen}]
    (nothing,), _, *rest = drive(page_of(capture), *steps)
    assert nothing == "search first: /"
    said, numbers = [text for (text,) in rest[:10:2]], rest[1:10:2]
    assert [re.match(r"(\d) of 3: ", text)[1] for text in said] == list("12313") and len(set(numbers[:3])) == 3 and numbers[3] == numbers[0]
    assert re.match(r"1 of 3", rest[10][0]) and rest[11] == numbers[4]


def test_all_keys_listed(page_of, chromium, capture):
    """The list of keys names every key that the page handles."""
    (keys,) = chromium(page_of(capture), {"open": ""}, {"key": "?"}, {"eval": "[...document.querySelectorAll('#keys kbd')].map((key) => key.textContent)"})
    source = (Path(os.environ["PROF_SOURCE_DIR"]) / "data/report/main.js").read_text(encoding="utf-8")
    actions = re.search(r"const ACTIONS = \{\n(.*?)\n\};", source, re.DOTALL)[1]
    handled = {quoted or plain for quoted, plain in re.findall(r"^\t(?:'(.+?)'|(\w+)):? ", actions, re.MULTILINE)}
    names = {"ArrowLeft": "←", "ArrowRight": "→", "Escape": "Esc", "-": "−", "=": "+"}
    assert len(handled) > 20 and {names.get(key, key) for key in handled} <= set(keys)


def test_copied_command(page_of, chromium, capture):
    """`y` puts the command into the clipboard, or selects its text if a page may not use the
    clipboard."""
    steps = [{"open": "tab=functions"}, {"eval": "(Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } }), 0)"}, {"key": "y"},
             {"eval": "window.copied"}, {"text": "#command"}, {"text": "#announcement"},
             {"eval": "(Object.defineProperty(navigator.clipboard, 'writeText', { value: async () => { throw Error('no'); } }), 0)"}, {"key": "y"}, {"eval": "String(getSelection())"}, {"text": "#announcement"}]
    _, copied, (command,), (said,), _, selected, (other,) = chromium(page_of(capture), *steps)
    assert copied == command == selected and said == "copied" and "Ctrl+C" in other


def test_flame_grouping(page_of, chromium, capture):
    """Grouped by thread, each thread has its boxes; the third key returns to the first grouping."""
    boxes = "[location.hash, Number(document.querySelector('#flame').dataset.boxes)]"
    merged, *others, again = chromium(page_of(capture), {"open": ""}, {"eval": boxes}, {"key": "g"}, {"eval": boxes}, {"key": "g"}, {"eval": boxes}, {"key": "g"}, {"eval": boxes})
    assert merged == again and len({merged[0], *(where for where, _ in others)}) == 3
    assert max(n for _, n in others) > merged[1]


MARKS = r"""
#include "libcollector/prof-collector.h"
int main(void)
{
	volatile unsigned long sink = 0;

	for (int i = 0; i < 100000; i++) {
		prof_mark_begin(0, "load", "turn", NULL, 0);
		for (int k = 0; k < 3000; k++)
			sink += k;
		prof_mark_end(0, "load", "turn", NULL, 0);
	}
}
"""


CPLUSPLUS = r"""
#include <map>
#include <string>
#include <thread>
#include <vector>
static void work(int seed)
{
	std::map<std::string, std::vector<double>> all;
	for (int i = 0; i < 60000; i++)
		all["item " + std::to_string(i * 7919 % 1009 + seed)].push_back(i);
}
int main()
{
	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++)
		threads.emplace_back(work, i);
	for (auto &thread : threads)
		thread.join();
}
"""


HOSTILE = b"</script><b>\"';,\\\n\r\t\x1b[31m\xe2\x80\xae\xff\xc2\x9b=1+1"
PROGRAMS = ["gcc", "marks", "python3", "c++"]  # these are recorded
ODD = ["empty", "hostile", "damaged", "flipped"]


@pytest.fixture(scope="module")
def kind_of_capture(request, profctl, compile_c, require, tmp_path_factory):
    """A capture of a program, or an odd one, and its name."""
    kind, options = request.param, []
    folder = tmp_path_factory.mktemp(kind)
    path = folder / "x.cap"
    if kind == "gcc":
        (folder / "x.c").write_text("".join(f"int f{i}(int a, int b) {{ for (int i = 0; i < a; i++) b = b * {i} + (a ^ i); return b; }}\n" for i in range(700)))
        command = ["/usr/bin/gcc", "-O2", "-c", folder / "x.c", "-o", "/dev/null"]
    elif kind == "marks":
        command = [compile_c("marks", MARKS, "-g", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"])]
    elif kind == "python3":
        command = ["/usr/bin/python3", "-c", "print(sum(len(str(i)) for i in range(2000000)))"]
    elif kind == "c++":
        require("g++")
        command, options = [folder / "threads"], ["--memory"]
        (folder / "threads.cc").write_text(CPLUSPLUS)
        subprocess.run(["g++", "-O2", "-g", "-pthread", folder / "threads.cc", "-o", *command], check=True, timeout=120)
    if kind in PROGRAMS:
        profctl("record", "-q", "-F", 1999, *options, "-o", path, "--", *command)
    elif kind == "empty":
        make(path, "--rows", 0)
    elif kind == "hostile":
        make(path, "--all-tables", "--rows", 60, "--prefix", HOSTILE.decode(errors="surrogateescape"))
    elif kind == "flipped":
        data = bytearray(make(path, "--all-tables", "--rows", 300, "--chunk-rows", 100).read_bytes())
        chunks = Capture(data)
        _, middle, _ = [chunk for chunk in chunks.chunks if chunk.table == chunks.table("sample")["id"]]
        data[middle.offset + CHUNK_HEADER_BYTES + middle.stored // 2] ^= 0x10
        path.write_bytes(data)
    else:
        whole = request.getfixturevalue("capture").read_bytes()
        path.write_bytes(whole[:-len(whole) // 3])
    return kind, path


ZOOM = """(() => {
	const flame = document.querySelector('#flame'), box = flame.getBoundingClientRect(), isZoomed = () => [...document.querySelectorAll('#scope .chip')].some((chip) => chip.textContent.startsWith('zoomed'));
	for (let click = 0; click < 20 && !isZoomed(); click++) flame.dispatchEvent(new MouseEvent('click', { clientX: box.x + 300, clientY: box.y + 10 })); // unfolds first
	return isZoomed();
})()"""


def check_accessible(nodes):
    """Each control of an accessibility tree has a role and a name."""
    assert not [node for node in nodes if node[2] and node[0] != "generic" and not (node[0] and node[1].strip())]
    roles = [role for role, _, can_focus in nodes if can_focus]
    assert roles.count("tab") >= 7 and roles.count("button") >= 6 and {"searchbox", "tabpanel"} <= set(roles)


# Each kind in one of the browsers, and in a soak in both.
@pytest.mark.parametrize("kind_of_capture, drive", part([(kind, browser) for kind in PROGRAMS + ODD for browser in ("chromium", "firefox")], 4), indirect=True)
def test_kinds_of_captures(profcapture, page_of, drive, kind_of_capture, request):
    """The pages of a compiler, a program with very many marks, Python, four threads of C++ with allocations,
    and of captures that are empty, damaged, or have names with markup, have the numbers of the
    commands. Ranges, search, zoom, callers and callees, and each key work."""
    kind, path = kind_of_capture
    page = page_of(path)
    header, _ = read_page(page)
    has_samples = kind != "empty"
    numbers = [{"text": "#command"}, {"eval": ROWS}, {"text": "#sum"}]
    chips = {"text": "#scope .chip"}
    shown = {"eval": f"[{TREE}, document.documentElement.dataset.failed || '', document.querySelectorAll('#panel b, #panel script').length]"}
    results = drive(page, {"open": "tab=functions"}, {"text": "#loss"}, *numbers, {"drag": ["#timeline-canvas", 300, 900, 60]}, *numbers,
                    {"drag": ["#timeline-canvas", 920, 1200, 60, "Control"]}, chips, {"eval": TREE}, {"key": "Escape"}, chips)
    (loss,), *results = results
    said = {"hostile": "lost", "damaged": "The capture is unfinished", "flipped": "damaged"}.get(kind)
    assert said in loss if said else not loss, loss
    compared = sum(check_functions(profcapture, command, rows, total) for (command,), rows, (total,) in (results[:3], results[3:6]) if has_samples)
    assert compared > 20 or kind not in PROGRAMS
    both, bad, one = results[6:]
    assert bad == [] and [" against " in " ".join(both), " against " in " ".join(one)] == [True, False]
    assert all(sentence["figure"] in sentence["text"] for sentence in header["verdict"] if sentence["color"] in ("idle", "ready"))
    if has_samples:
        row = "document.querySelector('#panel table[aria-label=Functions] [aria-selected=true] .name').title"
        neighbors = "['Called by', 'Calls'].map((label) => document.querySelectorAll(`#panel table[aria-label=\"${label}\"] tbody [role=row]`).length)"
        (found,), listed, kept, (again,), zoomed, first, (shown_name,), name, (callers, callees) = drive(
            page, {"open": "tab=functions"}, {"type": ["#search", "[a-z]"]}, {"text": "#found"}, {"eval": f"{ROWS}.length"}, {"key": "Escape"}, {"eval": "document.querySelector('#search').value"}, {"key": "n"}, {"text": "#announcement"},
            {"open": ""}, {"eval": ZOOM}, {"open": "tab=functions"}, {"eval": "(document.querySelector('#panel table').focus(), document.querySelector('#panel table tbody .name').title)"}, {"key": "ArrowDown"}, {"key": "Enter"},
            {"text": "#panel .focus .name"}, {"eval": row}, {"eval": neighbors})
        assert re.search(r", [\d.]+\u00a0%$", found) and listed > 0 and again.startswith("1 of ") and zoomed
        assert kept == "[a-z]" and shown_name == name == first and callers + callees > 0
    keys = "1234567cwalcig+-bz[]tuy?"
    steps = [{"open": ""}]
    for key in keys:
        steps += [{"key": key}, shown]
    results = drive(page, *steps, {"key": "Escape"}, {"key": "2"}, {"accessibility": None})
    assert results[:-1] == [[[], "", 0]] * len(keys)
    check_accessible(results[-1])


@pytest.fixture(scope="module")
def waited(profctl, tmp_path_factory):
    """A capture of threads that wait, each in a function of its own and for a cause of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program = tmp_path_factory.mktemp("waited") / "waits"
    subprocess.run(["gcc", "-O2", "-g", "-pthread", Path(os.environ["PROF_SOURCE_DIR"]) / "tests/tools/waits.c", "-o", program], check=True)
    profctl("record", "-q", "--off-cpu", "-o", program.with_name("waits.cap"), "--", program, program.with_name("data"))
    return program.with_name("waits.cap")


def test_waits(profcapture, page_of, drive, waited):
    """The measure "Waiting" has the counts of report --metric off-cpu: for the whole capture, for
    ranges, for a thread, and with filters."""
    page = page_of(waited)
    pipe, network = ([function["name"] for function in read_page(page)[0]["functions"]].index(name) for name in ("wait_pipe", "wait_network"))
    steps = [{"open": "tab=functions"}, {"key": "w"}, {"text": "#command"}, {"eval": ROWS}, {"text": "#scope"}]
    for x0, x1 in (300, 700), (250, 1000), (480, 530):
        steps += [{"drag": ["#timeline-canvas", x0, x1, 60]}, {"text": "#command"}, {"eval": ROWS}, {"text": "#scope"}]
    steps += [{"at": ["#timeline-canvas", 40, 75]}, {"at": ["#timeline-canvas", 40, 92]}, {"text": "#command"}, {"eval": ROWS}, {"text": "#scope"}]
    steps += [{"open": f"tab=functions&measure=wait&ignore={pipe}&hide={network}"}, {"text": "#command"}, {"eval": ROWS}, {"text": "#scope"}]
    results, compared = drive(page, *steps), 0
    for (command,), rows, (scope,) in zip(results[::3], results[1::3], results[2::3]):
        total, waits = re.search(r"Not freed(.+?)in ([\d\u202f]+) waits", scope).groups()
        assert "--metric off-cpu" in command
        compared += check_functions(profcapture, command, rows, total)
        assert int(waits.replace("\u202f", "")) == profcapture.json(*shlex.split(command)[1:])["data"]["self_total"]
    assert compared >= 50 and len({command for (command,) in results[::3]}) == 6


GIL = """
import threading, time
def compute():
    until = time.monotonic() + 0.7
    while time.monotonic() < until:
        sum(range(1000))
threads = [threading.Thread(target=compute) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_interpreter_lock(profctl, require, page_of, chromium, tmp_path):
    """Waiting for the interpreter's lock is not shown as intended, although Python waits on a
    condition variable."""
    require(root=True)
    (tmp_path / "gil.py").write_text(GIL)
    profctl("record", "-q", "--off-cpu", "-o", tmp_path / "gil.cap", "--", "/usr/bin/python3", tmp_path / "gil.py")
    (places,) = chromium(page_of(tmp_path / "gil.cap"), {"open": "tab=waiting&measure=wait"}, {"eval": ROWS.replace("#panel table", "#panel table[aria-label=Places]")})
    kinds = [row[5] for row in places] + ["usually intended:"]
    lock = [value(row[0])[0] for row in places[:kinds.index("usually intended:")] if row[5] == "futex" and row[6].startswith("gil.compute")]
    assert sum(lock) > 0.1e9, places


def check_places(rows, places):
    """Compares the panel's places with those of report --by state. Returns how many there are."""
    wanted, shown = {}, set()
    for row in places:
        key = row["function"] or "no function of the program", row["call"] or {"other": "something else"}.get(row["cause"], row["cause"])
        wanted[key] = wanted.get(key, 0) + row["time_ns"]
    for took, _, _, _, _, call, name in rows:
        if took:
            key = name, call.split(",")[0]
            amount, off = value(took)
            shown.add(key)
            wanted[key] -= amount
            assert wanted[key] >= -2 * off
    assert shown == set(wanted)
    return len(shown)


def test_waiting_panel(profcapture, page_of, chromium, waited):
    """The panel has the places of report --by state, with the median and the longest of their waits, which selects
    its time; a thread's lane says what the thread waits for."""
    page = page_of(waited)
    choose = "[...document.querySelectorAll('#panel tr')].find((row) => row.cells[5]?.textContent === 'pipe' && row.cells[6].querySelector('.name').title === 'wait_pipe').querySelector('button').focus()"
    (total,), places, (note,), (tip,), _, chosen = chromium(page, {"open": "tab=waiting"}, {"text": "#sum"}, {"eval": ROWS.replace("#panel table", "#panel table[aria-label=Places]")}, {"text": "#panel > div > .column:first-child .note"}, {"at": ["#timeline-canvas", 40, 75]}, {"at": ["#timeline-canvas", 700, 92]}, {"text": "#tip"},
                                                           {"open": "tab=waiting"}, {"eval": choose}, {"key": "Enter"}, {"eval": "location.hash"})
    rows = profcapture.json("sql", waited, "SELECT duration_ns AS ns, cause, stack FROM waits")["data"]["rows"]
    for cause, name in ("timer", "wait_timer"), ("poll", "wait_poll"), ("pipe", "wait_pipe"):
        waits = sorted((row for row in rows if row["cause"] == cause and name in row["stack"].split(";")), key=lambda row: row["ns"])
        ((_, _, n, median, longest, *_),) = (cells for cells in places if cells[-1] == name and cells[5].startswith(cause))
        for cell, row in (median, waits[(len(waits) - 1) // 2]), (longest, waits[-1]):
            ns, off = value(cell)
            assert abs(ns - row["ns"]) <= off, (name, cell, row)
        assert n == str(len(waits)) and len(waits) > 50
    link = re.search(r"range=([\d.]+)-([\d.]+)", chosen)
    grid, ns = read_page(page)[0]["grid_ns"], waits[-1]["ns"]
    (end,) = [row["time_ns"] for row in rows_of(profcapture, waited, "wait") if row["duration"] == ns]
    assert end - ns - grid < float(link[1]) <= end - ns and end <= float(link[2]) < end + grid
    sum_, off = value(total)
    assert abs(sum_ - profcapture.json("report", waited, "--metric", "off-cpu")["data"]["total_weight"]) <= off
    compared = check_places(places, profcapture.json("report", waited, "--by", "state", "--limit", 0)["data"]["places"])
    assert compared >= 9 and (not note or "Stacks of waits: " in note)
    tid = int(re.match(r"waits (\d+)", tip)[1])
    time, ns = max(((row["time_ns"], row["duration"]) for row in rows_of(profcapture, waited, "wait") if row["tid"] == tid), key=lambda row: row[1])
    x = 176 + 1094 * (time - ns / 2) / profcapture.json("info", waited)["capture"]["duration_ns"]
    (tip,) = chromium(page, {"open": "tab=waiting"}, {"at": ["#timeline-canvas", 40, 75]}, {"at": ["#timeline-canvas", x, 92]}, {"text": "#tip"})[0]
    assert "waiting" in tip and re.search(r"\nfor [\w ]+ in \w+", tip), tip


def test_critical_path(profctl, profcapture, page_of, chromium, require, tmp_path):
    """The panel Waiting has the tree of critical-path, whose branches open and close."""
    require(root=True)
    capture = tmp_path / "path.cap"
    profctl("record", "-q", "--wakers", "-F", 999, "-o", capture, "--", "sh", "-c", "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; sleep 0.3")
    data = profcapture.json("critical-path", capture)["data"]
    table = '#panel table[aria-label="Critical path"]'
    rows = ROWS.replace("#panel table", table)
    shown, notes, fewer = chromium(page_of(capture), {"open": "tab=waiting"}, {"eval": rows}, {"text": "#panel .note"}, {"click": f"{table} tbody tr"}, {"eval": rows}, size=(1280, 4000))
    (sleep,) = [child for child in data["root"]["children"][0]["children"] if child.get("comm") == "sleep"]
    wanted = {"sh": data["total_ns"], f"waits for sleep in {sleep['function']['name']}": sleep["total_ns"]}
    for _, _, time, name in shown:
        ns, off = value(time)
        assert abs(ns - wanted.pop(name, ns)) <= off, (name, time)
    assert not wanted, [name for *_, name in shown]
    assert len(fewer) == 1 < len(shown)
    note = notes[-1].replace("\u202f", "")
    assert f"estimated from {data['samples']} samples" in note and note.endswith(f"profcapture critical-path {capture}")


def path_rows(node, level=1):
    """The rows of a critical path in JSON: level, kind and time of each node with at least 0.5 %."""
    for child in node["children"]:
        yield level, child["kind"], child["total_ns"], (child.get("function") or {}).get("name")
        yield from path_rows(child, level + 1)


def test_critical_path_of_range(profctl, profcapture, page_of, chromium, require, tmp_path):
    """The tree has the times of critical-path of the selected range, for running, ready and waiting, down
    to functions."""
    require(root=True)
    capture = tmp_path / "path.cap"
    profctl("record", "-q", "--wakers", "-F", 1999, "-o", capture, "--", "sh", "-c", "for n in 1 2 3; do i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; sleep 0.1; done")
    page, table = page_of(capture), '#panel table[aria-label="Critical path"]'
    rows = f"[...document.querySelectorAll('{table} tbody [role=row]')].map((row) => [Number(row.ariaLevel ?? row.getAttribute('aria-level')), ...[...row.cells].map((cell) => cell.textContent)])"
    steps = [{"open": "tab=waiting"}]
    for x0, x1 in (300, 600), (500, 1100), (700, 760):
        steps += [{"drag": ["#timeline-canvas", x0, x1, 40]}, {"eval": rows}, {"eval": "[...document.querySelectorAll('#panel .note code')].pop().textContent"}]
    results, compared = chromium(page, *steps), 0
    for shown, command in zip(results[::2], results[1::2]):
        data = profcapture.json(*shlex.split(command)[1:], "--limit", 0)["data"]
        wanted = {}
        for level, _, ns, _ in path_rows(data["root"]):
            wanted.setdefault(level, []).append(ns)
        assert "--from" in command and shown
        for level, _, _, time, name in shown:
            ns, off = value(time)
            assert any(abs(ns - other) <= off + 1000 for other in wanted[level]), (level, name, time, wanted[level])
            compared += 1
    assert compared >= 12


def test_waits_not_recorded(profctl, page_of, chromium, tmp_path):
    """Without the stacks of waits, the page says how to record them, and shows no number."""
    capture = tmp_path / "none.cap"
    profctl("record", "-q", "--no-off-cpu", "-F", 999, "-o", capture, "--", "sh", "-c", "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; sleep 0.1")
    button = "(() => { const b = [...document.querySelectorAll('#scope button')].find((b) => b.textContent === 'Waiting'); return [b.disabled, b.title]; })()"
    (disabled, title), (panel,), (total,) = chromium(page_of(capture), {"open": "measure=wait"}, {"eval": button}, {"key": "w"}, {"text": "#panel"}, {"text": "#scope [aria-pressed=true]"})
    assert disabled and "profctl record --off-cpu" in title and total == "CPU time"
    assert "Where threads waited was not recorded." in panel and "profctl record --off-cpu" in panel


TREE = """(() => {
	const bad = [];
	for (const canvas of document.querySelectorAll('canvas')) if (!canvas.getAttribute('aria-label')) bad.push(canvas.id);
	for (const button of document.querySelectorAll('button, input, a')) if (!(button.textContent.trim() || button.getAttribute('aria-label') || button.placeholder)) bad.push(button.outerHTML);
	for (const grid of document.querySelectorAll('[role=grid], [role=treegrid]')) if (!grid.getAttribute('aria-label') || !grid.getAttribute('aria-rowcount')) bad.push(grid.outerHTML.slice(0, 80));
	for (const row of document.querySelectorAll('[role=treegrid] tbody [role=row]')) for (const key of ['level', 'setsize', 'posinset']) if (!row.getAttribute('aria-' + key)) bad.push(key);
	for (const stop of document.querySelectorAll('[tabindex="0"]')) if (!stop.role && stop.localName !== 'button') bad.push('a stop without a role: ' + stop.outerHTML.slice(0, 80));
	if (/undefined|NaN/.test(document.querySelector('#panel').textContent)) bad.push('undefined');
	return bad;
})()"""


@pytest.mark.parametrize("size, theme", [((1280, 800), "light"), *part([((3840, 2160), "dark"), ((3840, 2160), "light"), ((1280, 800), "dark")], 1), ((320, 640), "light")])
def test_panels(page_of, chromium, capture, size, theme):
    """Every panel draws, describes itself to those who do not see it, and fits into the window. A
    narrow page scrolls down, its tables also to the side, and clips no other button."""
    fits = "document.documentElement.scrollWidth <= innerWidth && [...document.querySelectorAll('button')].every((button) => button.closest('.scroll') || button.getBoundingClientRect().right <= innerWidth) && [...document.querySelectorAll('#panel th.wide')].every((title) => title.offsetWidth > 80)"
    page = page_of(capture)
    steps = [{"open": f"theme={theme}"}]
    for key in range(1, 8):
        steps += [{"key": str(key)}, {"eval": TREE}, {"eval": "document.querySelector('#panel').textContent.length > 0 || document.querySelector('#panel canvas') !== null"},
                  {"eval": f"{fits} && (innerWidth < 700 || document.documentElement.scrollHeight <= innerHeight)"}]
    results = chromium(page, *steps, size=size)
    assert results == [[], True, True] * 7


PRINTED = """(() => {
	const sections = [...document.querySelectorAll('#paper section')], canvas = document.querySelector('#paper canvas');
	return [sections.map((section) => section.querySelector('h1').textContent), sections.map((section) => section.offsetHeight > 40), !!canvas && canvas.height > 50,
		document.querySelectorAll('#paper .scroll table').length, document.documentElement.dataset.theme, document.querySelectorAll('#paper table').length > 5, document.querySelectorAll('#panel > *').length, [...document.querySelectorAll('#paper h1 + .note code')].map((code) => code.textContent)];
})()"""


def test_print(page_of, chromium, capture):
    """On paper, all panels follow each other, in light colors and with tables in full; afterwards
    the page is as before."""
    steps = [{"open": "tab=functions&theme=dark"}, {"eval": f"{ROWS}.length"}, {"eval": "dispatchEvent(new Event('beforeprint'))"}, {"media": {"media": "print"}}, {"eval": PRINTED},
             {"media": {"media": "screen"}}, {"eval": "dispatchEvent(new Event('afterprint'))"}, {"eval": f"{ROWS}.length"}, {"eval": "[document.documentElement.dataset.theme, document.querySelectorAll('#paper *').length]"}]
    before, _, printed, _, after, restored = chromium(page_of(capture), *steps)
    titles, tall, has_flame, scrolling, theme, has_tables, rest, commands = printed
    assert [shlex.split(command)[1] for command in commands] == ["report", "report", "report", "report", "memory", "marks"]
    assert titles == ["Flame graph", "Functions", "Call tree", "Waiting", "Memory", "Marks", "About"] and all(tall) and has_flame
    assert (scrolling, theme, has_tables, rest) == (0, "light", True, 0)
    assert before == after and restored == ["dark", 0]


def test_forced_colors(page_of, chromium, capture):
    """With forced colors, bars and swatches keep their own colors, and the selected tab, measure and
    row are marked."""
    style = "getComputedStyle(document.querySelector('%s'))"
    steps = [{"media": {"forcedColors": "active"}}, {"open": "tab=functions"}, {"click": "#panel tbody [role=row]"},
             {"eval": f"{style % '#panel .bar'}.backgroundColor !== {style % 'body'}.backgroundColor"},
             {"eval": f"{style % '#tabs [aria-selected=true]'}.borderBottomColor !== {style % '#tabs [aria-selected=false]'}.borderBottomColor"},
             {"eval": f"[{style % '#panel tr[aria-selected=true]'}.outlineStyle, {style % '#scope [aria-pressed=true]'}.outlineStyle]"}]
    assert chromium(page_of(capture), *steps) == [True, True, ["solid", "solid"]]


def test_focus_stays(page_of, drive, capture):
    """A key that changes a panel does not take the focus from the focused element."""
    page = page_of(capture)
    assert drive(page, {"open": "tab=functions"}, {"eval": "[...document.querySelectorAll('#scope button')].find((button) => button.textContent === 'Allocated').focus()"}, {"key": "Enter"},
                 {"eval": "[document.activeElement.textContent, document.activeElement.getAttribute('aria-pressed')]"})[1] == ["Allocated", "true"]


def test_size_limit(profcapture, page_of, chromium, monkeypatch, tmp_path):
    """A page that would be too large is merged until it fits. Its sums stay those of the commands, and it
    says what it leaves out."""
    big = make(tmp_path / "big.cap", "--all-tables", "--rows", 30000)
    first, whole = read_page(page_of(big))[1], page_of(big).stat().st_size
    for most in whole // 2, whole * 2 // 5:
        monkeypatch.setenv("PROF_PAGE_BYTES", str(most))
        page = page_of(big)
        header, columns = read_page(page)
        assert page.stat().st_size <= most
        report = profcapture.json("report", big)["data"]
        assert sum(columns["samples.count"]) == report["total"] and sum(columns["samples.weight"]) == report["total_weight"]
        assert sum(columns["allocations.bytes"]) == sum(first["allocations.bytes"])
        assert any("larger than 32 MiB" in note for note in header["notes"])
        wanted = {row["name"]: row["total_weight"] for row in report["rows"]}
        steps = [{"open": "tab=functions"}, {"eval": ROWS}, {"open": "tab=marks"}, {"text": "#panel .note"}, {"eval": "document.querySelector('#panel tbody td').textContent"}, {"open": "tab=about"}, {"text": "#panel li"}]
        rows, (note,), count, notes = chromium(page, *steps)
        assert len(rows) > 3 and all(cells[-1] in wanted for cells in rows)
        assert "counts are too low" in note and count.startswith("≥ ") and any("longest are here" in text for text in notes)
    monkeypatch.setenv("PROF_PAGE_BYTES", "1000")
    big.write_bytes(big.read_bytes()[:-5000])
    said = profcapture("html", big, "-o", tmp_path / "least.html", "-q").stderr.splitlines()
    assert "the page has" in said[-1] and len(said) > 1 and len(set(said)) == len(said)


def test_shown_losses(profcapture, page_of, chromium, tmp_path):
    """The banner says that something was lost; the losses in the panel About are all of the capture."""
    lossy = make(tmp_path / "lossy.cap", "--all-tables", "--rows", 200)
    (banner,), listed = chromium(page_of(lossy), {"open": "tab=about"}, {"text": "#loss"}, {"text": "#panel h2 + ul li"})
    numbers = [re.search(r": (\d+) (?:lost|timer ticks)", text) for text in listed]
    assert "lost" in banner and len(numbers) > 50
    assert sum(int(found[1]) for found in numbers if found) == sum(row["count"] or 0 for row in rows_of(profcapture, lossy, "loss"))


# ---- the verbs


def test_verbs(profcapture, page_of, capture, tmp_path, monkeypatch):
    """html names its file after the capture and does not overwrite a file; view prints the path of
    a new one."""
    monkeypatch.chdir(tmp_path)
    same = page_of(capture).read_bytes()
    assert "Open it in a browser: city.html" in profcapture("html", capture).stderr
    assert (tmp_path / "city.html").read_bytes() == same
    assert "city.html" in profcapture("html", capture, check=1).stderr
    profcapture("html", capture, "--force", "-q")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    path = Path(profcapture("view", capture).stdout.strip())
    assert path.name == "city.html" and path.read_bytes() == same and path.parent.stat().st_mode & 0o777 == 0o700
    profcapture("view", tmp_path / "none.cap", check=1)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    again = profcapture("view", capture).stdout
    until(lambda: (tmp_path / "opened").exists() and (tmp_path / "opened").read_text() == again)
    shutil.rmtree(Path(again.strip()).parent)
    assert len(list(tmp_path.glob("profcapture-*"))) == 1  # no file is left behind


def test_record_view(profctl, tmp_path, monkeypatch):
    """record --view prints the path of the page, and keeps the status of the command."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    done = profctl("record", "-q", "--view", "-o", tmp_path / "x.cap", "--", "sh", "-c", "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; exit 3", check=3)
    assert read_page(Path(done.stdout.strip()))[0]["capture"]["title"].startswith("sh -c")
    assert "--view" in profctl("record", "--view", "--json", "true", check=2).stderr


# ---- source and assembly


def annotated(profcapture, capture, name, *options):
    data = profcapture.json("annotate", capture, name, *options)["data"]
    return {int(row["address"], 16): row["self_weight"] for row in data["instructions"]}, data


def test_with_source(profcapture, drive, capture, tmp_path):
    """The page's data has for each instruction and each source line the time that annotate gives;
    the panel shows the time in the selected range."""
    page = tmp_path / "source.html"
    profcapture("html", capture, "--with-source", "-o", page, "-q")
    header, columns = read_page(page)
    sums = {}
    for place, weight in zip(columns["places.place"], columns["places.weight"]):
        sums[place] = sums.get(place, 0) + weight
    names = [f["name"] for f in header["functions"]]
    shown = {names[entry["fn"]]: entry for entry in header["sources"]["functions"]}
    assert {"heavy", "light"} <= set(shown) and list(shown)[0] == "heavy" and not set(shown) & {"<interrupts>"}
    for name in "heavy", "light":
        wanted, data = annotated(profcapture, capture, name)
        got = {int(address, 16): sum(sums.get(place, 0) for place in places) for _, address, _, _, _, *places in shown[name]["instructions"]}
        assert got == wanted and sum(got.values()) == data["function"]["self_weight"]
    source = header["sources"]["files"][shown["heavy"]["lines"][0][0]]
    texts = {first + i: text for first, *lines in source["text"] for i, text in enumerate(lines)}
    assert Path(source["path"]).name == "city.c" and not source["is_newer"]
    assert any("void heavy(unsigned long n)" in texts[line] for _, line, *_ in shown["heavy"]["lines"])
    table = "[...document.querySelectorAll('#panel table[aria-label=%s] tbody tr:not([aria-hidden])')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    steps = [{"open": "tab=functions"}, {"eval": "document.querySelector('.link').click()"}, {"eval": table % "Source"}, {"text": "#panel .focus"}, {"drag": ["#timeline-canvas", 300, 700, 60]}, {"text": "#command"}, {"eval": table % "Instructions"},
             {"eval": TREE}, {"open": f"tab=source&fn={shown['light']['fn']}"}, {"eval": table % "Source"}]
    results = drive(page, *steps)
    lines, (head,), (command,), instructions, tree, other = results[-6:]
    hot = next(cells for cells in lines if "void heavy" in cells[4])
    assert hot[3] == str(next(line for line, text in texts.items() if "void heavy" in text)) and float(hot[1].split("\u00a0")[0]) > 90
    assert "heavy" in head and tree == [] and any("void light" in cells[4] for cells in other)
    wanted, _ = annotated(profcapture, capture, "heavy", *shlex.split(command)[4:])
    compared = 0
    for own, _, _, address, *_ in instructions:
        if own:
            amount, off = value(own)
            assert abs(amount - wanted[int(address, 16)]) <= off
            compared += 1
    assert compared == sum(amount > 0 for amount in wanted.values()) > 0


def test_source_begins_with_the_program(profctl, profcapture, compile_c, chromium, tmp_path):
    """The panel opens with a function of the program, although the C library's has more time."""
    source = """#include <string.h>
static char room[1 << 20];
__attribute__((noinline)) static void own(void) { for (volatile long i = 0; i < 3000000; i++); }
int main(void) { for (int i = 0; i < 60; i++) { own(); for (volatile int k = 0; k < 500; k++) memset(room, k, sizeof(room)); } }
"""
    profctl("record", "-q", "-F", 999, "-o", tmp_path / "x.cap", "--", compile_c("begin", source, "-O1", "-g"))
    profcapture("html", tmp_path / "x.cap", "--with-source", "-o", tmp_path / "x.html", "-q")
    header, _ = read_page(tmp_path / "x.html")
    assert "memset" in header["functions"][header["sources"]["functions"][0]["fn"]]["name"]
    (name,), (command,) = chromium(tmp_path / "x.html", {"open": "tab=source"}, {"text": "#panel .focus .name"}, {"text": "#command"})
    assert name == "own" and command.endswith(" own")


def test_source_is_missing(profctl, profcapture, compile_c, page_of, chromium, tmp_path):
    """The panel says what is missing, and source text is not parsed as HTML."""
    program = compile_c("gone", "volatile unsigned long sink; /* </script><b>bold</b> */\nint main(void) { for (unsigned long i = 0; i < 400000000; i++) sink += i; /* </script><i>x</i> */ }\n", "-O1")
    path, page = tmp_path / "gone.cap", tmp_path / "gone.html"
    profctl("record", "-q", "-F", 999, "-o", path, "--", program)
    source = program.with_suffix(".c")

    def found():
        profcapture("html", path, "--with-source", "-o", page, "-q", "--force")
        sources = read_page(page)[0]["sources"]
        file = next((file for file in sources["files"] if file["path"] == str(source)), {})
        return sources["functions"][0]["no_code"], file.get("is_newer"), "text" in file

    def panel():
        text, tags = chromium(page, {"open": "tab=source"}, {"text": "#panel"}, {"eval": "document.querySelectorAll('#panel b, #panel script').length"})
        assert tags == 0
        return text[0]

    assert found() == (None, False, True) and "</script><b>bold</b>" in panel()
    os.utime(source, (2e9, 2e9))
    assert found() == (None, True, True) and "has changed since the recording" in panel()
    source.unlink()
    assert found() == (None, None, False)
    subprocess.run(["strip", program], check=True)
    assert found()[0] is None  # after strip, the lines come from the capture
    program.write_bytes(b"other")
    assert "not" in found()[0]
    program.unlink()
    assert "the file is not here" in found()[0]
    shown = panel()
    assert "could not be read" in shown and "No instructions: the file is not here" in shown


def test_source_of_python(profctl, profcapture, chromium, tmp_path):
    path, page = tmp_path / "python.cap", tmp_path / "python.html"
    profctl("record", "-q", "-F", 999, "-o", path, "--", "/usr/bin/python3", "-c", "print(sum(len(str(i)) for i in range(2000000)))")
    profcapture("html", path, "--with-source", "-o", page, "-q")
    header, columns = read_page(page)
    functions, total = header["sources"]["functions"], sum(columns["samples.weight"])
    assert functions and sum(columns["places.weight"]) <= total
    steps = [{"open": "tab=source"}]
    for entry in functions:
        steps += [{"eval": f"(() => {{ const choice = document.querySelector('#panel select'); choice.value = '{entry['fn']}'; choice.dispatchEvent(new Event('change')); }})()"},
                  {"eval": "[document.querySelector('#panel select').value, document.querySelectorAll('#panel table tbody tr').length > 0]"}]
    assert chromium(page, *steps)[1::2] == [[str(entry["fn"]), True] for entry in functions]


def test_source_refusals(profcapture, page_of, capture, tmp_path):
    assert "name its file" in profcapture("html", capture, "--compare", "-", "--redact", "-o", tmp_path / "x.html", check=2).stderr
    for options in ("--with-source", "--redact"), ("--with-source", "--compare", capture), ("--with-source", "--focus", "x"):
        assert "--with-source cannot be combined with" in profcapture("html", capture, "-o", tmp_path / "x.html", *options, check=2).stderr
    assert "require --with-source" in profcapture("html", capture, "-o", tmp_path / "x.html", "--source-dir", "/", check=2).stderr
    header, columns = read_page(page_of(capture))
    assert "sources" not in header and "places.place" not in columns


# ---- what --redact removes


def contents(path):
    """The bytes of an export, inflated. Base64 may have any letters."""
    data = path.read_bytes()
    packed = re.search(rb'id="data">([^<]*)<', data)
    if packed:
        return data[:packed.start(1)] + data[packed.end(1):] + gzip.decompress(base64.b64decode(packed[1]))
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


SECRETS = r"USER=jane HOST=moon jane@moon moon \\moon\s C:\Users\jane\x jane, MOON.local [fe80::1] mary at sunny /srv/jane/"


@pytest.fixture(scope="module")
def private(profctl, compile_c, tmp_path_factory):
    """A folder with two captures full of secrets: a recorded one, and a generated one, in which
    each text of each table has the name of a user and of a host, in the forms of SECRETS."""
    home = tmp_path_factory.mktemp("house of jane")
    program = home / "city"
    shutil.copy(compile_c("city", PROGRAM, "-g", "-pthread", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"]), program)
    profctl("record", "-q", "-F", 999, "--memory", "-o", home / "city.cap", "--", program, "--password=hunter2")
    make(home / "made-by-jane.cap", "--all-tables", "--rows", 1200, "--prefix", SECRETS)
    make(home / "later.cap", "--all-tables", "--rows", 1200, "--prefix", "mary@sunny Jane Moon")
    return home


@pytest.mark.parametrize("to", ["folded", "firefox", "pprof", "speedscope", "svg", "callgrind", "chrome", "perf-script", "heaptrack", "massif", "syscap", "html"])
def test_redact(profcapture, private, tmp_path, to):
    """--redact removes arguments, users, the host, log lines and folders from every text of every
    format; names remain."""
    recorded, made, path = private / "city.cap", private / "made-by-jane.cap", tmp_path / "out"
    secrets = (b"jane", b"hunter2", b"password", os.fsencode(private.parent))
    profcapture("export", recorded, "--to", to, "-o", path, "--redact", "-q")
    found = contents(path)
    assert (b"keep" if to in ("heaptrack", "massif") else b"heavy") in found and b"city" in found
    assert not [secret for secret in secrets if secret in found]
    if to == "html":
        profcapture("export", recorded, "--to", to, "--compare", recorded, "-o", tmp_path / "two", "--redact", "-q")
        assert not [secret for secret in secrets if secret in contents(tmp_path / "two")]
        facts = dict(read_page(path)[0]["capture"]["facts"])
        assert facts["Command"] == "city" and not {"Host", "Options"} & set(facts)
    one = ("--pid", 1276) if to == "heaptrack" else ()  # this format has one process
    profcapture("export", made, "--to", to, *one, "-o", path, "--redact", "-q", "--force")
    assert not re.search(rb"jane|moon|fe80", contents(path), re.IGNORECASE)
    if to in ("folded", "speedscope", "svg", "html"):
        # names that one capture gives away are in the texts of the other
        profcapture("export", made, "--to", to, "--compare", private / "later.cap", "-o", path, "--redact", "-q", "--force")
        assert not re.search(rb"jane|moon|sunny", contents(path), re.IGNORECASE)
    profcapture("export", made, "--to", to, *one, "-o", path, "-q", "--force")
    assert b"moon" in contents(path) or to in ("heaptrack", "massif")  # they have only allocations, without stacks here


def test_redact_operand(profcapture, private, chromium, tmp_path, monkeypatch):
    """The folders of the capture, as typed, are left out, too."""
    monkeypatch.chdir(private.parent)
    capture, page = f"{private.name}/city.cap", tmp_path / "page.html"
    for options in [], ["--compare", capture]:
        profcapture("html", capture, *options, "--redact", "-o", page, "-q", "--force")
        found = contents(page)
        assert os.fsencode(private.name) not in found and b"city.cap" in found
        assert len(read_page(page)[0]["verdict"]) > 1


def test_redact_names(profcapture, private, chromium, tmp_path, monkeypatch):
    """The names that are redacted in texts are redacted in the names of files, in the options with
    which the page was made, and in everything that the page shows."""
    monkeypatch.chdir(tmp_path)
    made = private / "made-by-jane.cap"
    for options in ["--focus", "jane|moon|."], ["--compare", made], []:
        profcapture("html", made, *options, "--redact", "-q", "--force")
        assert [path.name for path in tmp_path.glob("*.html")] == ["made-by-USER.html"]
        assert not re.search(rb"jane|moon", contents(tmp_path / "made-by-USER.html"), re.IGNORECASE)
    everything = "document.title + document.body.innerText + [...document.querySelectorAll('[title], [aria-label]')].map((e) => e.title + e.ariaLabel).join()"
    steps = [step for key in range(1, 8) for step in ({"key": str(key)}, {"eval": everything})]
    shown = chromium(tmp_path / "made-by-USER.html", {"open": ""}, *steps)
    assert len(set(shown)) == 7 and not [text for text in shown if re.search("jane|moon", text, re.IGNORECASE)]


# ---- two captures

MANY = r"""
#include <stdlib.h>
static volatile unsigned long sink;
#define WORK(n) __attribute__((noinline)) static void work##n(unsigned long k) { for (unsigned long i = 0; i < k; i++) sink += i * n; }
WORK(1) WORK(2) WORK(3) WORK(4) WORK(5) WORK(6) WORK(7) WORK(8) WORK(9) WORK(10)
__attribute__((noinline)) static void LAST(unsigned long k) { for (unsigned long i = 0; i < k; i++) sink ^= i; }
int main(void)
{
	for (int i = 0; i < 120; i++) {
		work1(MORE), work2(LESS), work3(MORE), work4(LESS), work5(MORE);
		work6(LESS), work7(MORE), work8(LESS), work9(MORE), work10(LESS);
		LAST(800000);
		sink += (unsigned long)malloc(MORE / 100);
	}
}
"""


@pytest.fixture(scope="module")
def two(profctl, compile_c, tmp_path_factory):
    """Captures of a program before and after a change of each of its functions."""
    folder = tmp_path_factory.mktemp("two")
    paths = []
    for name, flags in ("first", ("-DMORE=300000", "-DLESS=900000", "-DLAST=old")), ("later", ("-DMORE=900000", "-DLESS=300000", "-DLAST=young")):
        program = compile_c("many", MANY, "-O1", *flags)
        paths.append(folder / f"{name}.cap")
        profctl("record", "-q", "-F", 1999, "--memory", "-o", paths[-1], "--", program)
    return paths


def test_compare(profcapture, page_of, drive, two):
    """The page opens as the differential of both captures: A and B of each function are those of
    diff. Functions that vanished are listed; a range of one capture has a command of its own."""
    first, later = two
    page = page_of(first, "--compare", later)
    steps = [{"open": "tab=functions"}, {"text": "#command"}, {"eval": ROWS}, {"text": "#scope .chip"}, {"text": "#timeline-text"},
             {"drag": ["#timeline-canvas", 800, 1000, 60]}, {"key": "Escape"}, {"text": "#command"}, {"open": "tab=functions&base=null"}, {"text": "#command"}]
    (command,), rows, (chip,), (timeline,), (again,), (apart,) = drive(page, *steps)
    assert shlex.split(command) == ["profcapture", "diff", str(first), str(later)] and again == command
    assert "B later.cap against A first.cap" in chip and "totals" in chip
    assert "A first.cap" in timeline and "B later.cap" in timeline
    assert shlex.split(apart) == ["profcapture", "report", str(later)]
    wanted = {row["name"]: (row["a"], row["b"]) for row in profcapture.json("diff", first, later, "--normalize", "run", "--limit", 0)["data"]["rows"] if row["image"].endswith("/many")}
    shown = {cells[-1]: cells for cells in rows if cells[-1] in wanted}
    assert len(shown) >= 10 and shown["old"][4] == "vanished" and shown["young"][3] == "new"
    for name, cells in shown.items():
        for cell, number in zip(cells[3:5], wanted[name]):
            amount, off = value(cell) if cell not in ("new", "vanished") else (0, 0)
            assert abs(amount - number) <= off, (name, cells, wanted[name])
        change, off = value(cells[0].replace("\u2212", "").lstrip("+"))
        assert abs(change - abs(wanted[name][1] - wanted[name][0])) <= off, cells


def test_compare_verdict(profcapture, page_of, chromium, two):
    """The page begins with the sentences of diff; a click on one opens the comparison."""
    first, later = two
    page = page_of(first, "--compare", later)
    sentences = read_page(page)[0]["verdict"]
    said = " ".join(profcapture("diff", first, later).stdout.split("\n\n")[0].split())
    changes = [sentence for sentence in sentences if sentence["show"].get("compares")]
    assert {sentence["figure"] for sentence in changes} >= {"slower", "faster", "new", "gone"}
    assert all(sentence["text"] in said for sentence in changes)
    assert any("The whole run is" in sentence["text"] for sentence in changes)  # notes may follow, for example about times that differ
    shown, (chip,) = chromium(page, {"open": "tab=memory&base=null"}, {"text": "#verdict li"}, {"click": "#verdict a"}, {"text": "#scope .chip"})
    assert len(shown) == len(sentences) and "B later.cap against A first.cap" in chip
    assert not [sentence for sentence in read_page(page_of(first, "--compare", first))[0]["verdict"] if sentence["figure"] in ("slower", "faster")]


def test_compare_data(profcapture, page_of, two, tmp_path):
    """Samples and allocations of both captures are on one axis. Captures that are no runs of
    commands are compared by shares; compared with itself, a capture has no changes."""
    first, later = two
    header, columns = read_page(page_of(first, "--compare", later))
    boundary = header["compare"]["sides"][1]["from_ns"]
    for path, is_first in (first, True), (later, False):
        samples = [n for n, time in zip(columns["samples.count"], columns["samples.time"]) if (time * header["sample_unit_ns"] < boundary) == is_first]
        assert sum(samples) == profcapture.json("report", path)["data"]["total"]
        memory = profcapture.json("memory", path)["data"]["summary"]
        blocks = [(n, size) for n, size, time in zip(columns["allocations.blocks"], columns["allocations.bytes"], columns["allocations.time"]) if (time * header["allocation_unit_ns"] < boundary) == is_first]
        assert (sum(n for n, _ in blocks), sum(size for _, size in blocks)) == (memory["allocations"], memory["allocated_bytes"])
    assert header["compare"]["scale"] == 1 and header["compare"]["is_by_run"]
    made, other = make(tmp_path / "made.cap", "--all-tables", "--rows", 200), make(tmp_path / "other.cap", "--all-tables", "--rows", 500)
    for pair in (first, later), (made, other), (first, made):
        header, columns = read_page(page_of(pair[0], "--compare", pair[1]))
        boundary, sums = header["compare"]["sides"][1]["from_ns"], {}
        for weight, stack, time in zip(columns["samples.weight"], columns["samples.stack"], columns["samples.time"]):
            sums.setdefault(columns["stacks.function"][int(stack)], [0, 0])[time * header["sample_unit_ns"] >= boundary] += weight
        names = {f: header["functions"][int(f)].get("full", header["functions"][int(f)]["name"]) for f in sums}
        rows = profcapture.json("diff", *pair, "--limit", 0, check=None)["data"]["rows"]
        shown = {f: both for f, both in sums.items() if names[f] != "<interrupts>"}
        whole = [sum(both[side] for both in shown.values()) or 1 for side in (0, 1)]
        wanted = sorted((row["name"], row["a"], row["b"]) for row in rows if row["name"] != "<interrupts>" and (row["a"] or row["b"]))
        got = sorted((names[f], 100 * a / whole[0], 100 * b / whole[1]) for f, (a, b) in shown.items() if a or b)
        assert [name for name, *_ in got] == [name for name, *_ in wanted] and len(got) > 3
        assert [n for _, *both in got for n in both] == pytest.approx([n for _, *both in wanted for n in both], abs=1e-6)
        if not header["compare"]["is_by_run"]:
            assert header["compare"]["scale"] == pytest.approx(whole[1] / whole[0])
    header, columns = read_page(page_of(first, "--compare", first))
    sums = [{}, {}]
    for weight, stack, time in zip(columns["samples.weight"], columns["samples.stack"], columns["samples.time"]):
        side = sums[time * header["sample_unit_ns"] >= header["compare"]["sides"][1]["from_ns"]]
        side[stack] = side.get(stack, 0) + weight
    assert sums[0] == sums[1]


def test_compare_panels(page_of, chromium, two):
    """Every panel, grouping and measure of a comparison draws."""
    page = page_of(two[0], "--compare", two[1])
    steps = [{"open": ""}]
    for key in "1gg234567calz":
        steps += [{"key": key}, {"eval": TREE}]
    steps += [{"open": "tab=waiting"}, {"click": "#panel table[aria-label=Threads] tbody [role=row]"}, {"text": "#command"}]
    results = chromium(page, *steps)
    assert results[:-1] == [[]] * 13
    assert "--tid" in results[-1][0] and "&&" not in results[-1][0]


PIXELS = """(() => {
	const { width, height } = document.querySelector('#flame'), copy = new OffscreenCanvas(width, height).getContext('2d');
	copy.drawImage(document.querySelector('#flame'), 0, 0);
	const { data } = copy.getImageData(0, 0, width, height);
	return ['more', 'less'].map((name) => {
		const [red, green, blue] = [1, 3, 5].map((at) => parseInt(getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim().slice(at, at + 2), 16));
		return data.filter((n, i) => i % 4 === 0 && n === red && data[i + 1] === green && data[i + 2] === blue).length > 100;
	});
})()"""


def test_compare_colors(page_of, chromium, two):
    """In the differential flame graph, functions that grew or are new have one color, those that shrank
    or vanished have another, and a capture against itself has none. A search pales all others."""
    steps = [{"open": "theme=light"}, {"eval": PIXELS}]
    for name in "work1", "work2", "young", "old":
        steps += [{"type": ["#search", f"^{name}$"]}, {"eval": PIXELS}]
    assert chromium(page_of(two[0], "--compare", two[1]), *steps) == [[True, True], [True, False], [False, True], [True, False], [False, True]]
    assert chromium(page_of(two[0], "--compare", two[0]), *steps[:2]) == [[False, False]]
