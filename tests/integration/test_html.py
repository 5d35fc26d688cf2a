# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The report page in a browser: its numbers are those of the command that it names, and everything
works by mouse and keyboard."""
import base64
import gzip
import itertools
import os
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest
from captures import make
from exports import read_page
from pages import LABELS, ROWS, TREE, capture, check_functions, check_places, drive, firefox, in_a_browser, in_panel, near, not_freed, page_of, value  # noqa: F401 (fixtures)
from recordings import until
from slices import part

# ---- the data in the page

KEPT, RUNTIME = 1, 2  # kinds of allocations


def test_data(profcapture, page_of, capture):
    """The sums of the columns agree with report, memory and marks."""
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


def test_same_numbers(profcapture, page_of, drive, capture):
    """At least 50 numbers agree with report: for the whole capture, ranges and a thread. The last
    range may have no samples."""
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
    """The sum of a search is that of report --focus; a function counts once per stack. The open
    path of the call tree has the times of report --tree, also if two ranges are compared; the open
    path of the inverted tree has those of report --inverted. Sizes of blocks are those of memory
    --sizes. The changes between two ranges are the differences of two reports."""
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
    """f, x and h focus on the selected function, ignore its stacks or hide it. The numbers are
    those of the copied command; chips remove the filters."""
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
    """The scope bar has the sum of what the panel shows: unfreed or allocated bytes in the panel
    Memory, the number of marks in the panel Marks. A measure that the panel does not show opens the
    flame graph."""
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
    """Checks the table of allocating functions: an allocation counts for the innermost function of
    the program on the stack. Returns the number of rows."""
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
    """The numbers of each table of a range are those of the panel's command. At least 50 numbers
    are compared."""
    shown, *_ = of_range
    compared = {name: compare(shown, lambda command: profcapture.json(*shlex.split(command)[1:], "--limit", 0)["data"]) for name, compare in COMPARISONS.items()}
    assert min(compared.values()) > 1 and sum(compared.values()) >= 50, compared


def test_range_of_timeline(profcapture, of_range, capture):
    """Beside the row of a counter is its largest value in the range. The tips of the heap have at
    least the sizes of memory --at. The sum of waits is that of report."""
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


@in_a_browser(0)
def test_empty_range(page_of, drive, capture):
    """If a range has no samples, the first three panels say so, because an empty table would look
    like an error."""
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


def test_inverted_allocations(page_of, chromium, capture):
    """The inverted tree of allocations begins at the program's functions, not at the allocator. The
    bytes of these functions equal those in the panel Memory."""
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


def test_selection(profcapture, page_of, chromium, capture):
    """If options select a part of the capture, the page shows the options, and its commands contain
    them. The verdict is that of report. For data that the options leave out, the page does not say
    that they were not recorded."""
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
    """If the options leave out everything, there is one warning, which names the reason."""
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
    """The page has report's statement on stacks and names, and profcapture's version."""
    lossy = make(tmp_path / "lossy.cap", "--all-tables", "--rows", 200)
    (said,) = [line for line in profcapture("report", lossy).stdout.splitlines() if "Without a name: " in line or "Stacks cut short: " in line]
    verdict, (about,) = chromium(page_of(lossy), {"open": "tab=about"}, {"text": "#verdict li"}, {"text": "#panel"})
    assert verdict[-1].lstrip("!") in said and ": " in verdict[-1]
    assert profcapture("--version").stdout.split()[1] in about


ODD_LINKS = ["search=%", "search=%28", "thread=length", "tab=constructor", "measure=toString", "fn=-1&mark=1.5&sort=__proto__&group=valueOf", "range=%ff",
             "range=5-3", "range=-5-99999999999999", "range=NaN-0", "range=0-0&base=0-0", "tab=flame&zoom=999999", "thread=-1"]


@in_a_browser(1)
def test_broken_links(page_of, drive, capture):
    """A link with invalid parameters still shows the page."""
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
    # also percentages of callers and callees, of which a busy machine's capture has few
    assert len(functions) > 5 and len(tree) > 5 and max(functions + tree) <= 100
    assert 0 < float(re.search(r"([\d.]+)\u00a0%", found)[1]) < 100


@in_a_browser(0)
def test_keyboard_only(page_of, drive, capture, tmp_path):
    """Without a mouse, a user can select a second range, read the values of counters and the
    numbers of marks, and show all processes and threads."""
    texts = "['#lines-table', '#logs-table'].map((id) => document.querySelector(id).textContent)"
    steps = [{"open": ""}, {"key": "+"}, {"key": "-"}, {"key": "-"}, {"key": "b"}, {"eval": "location.hash"}, {"key": "b"}, {"eval": "location.hash"}, {"eval": f"new Promise((done) => setTimeout(() => done({texts}), 500))"}]
    both, one, (lines, _) = drive(page_of(capture), *steps)
    assert "range=" in both and "base=" in both and "range=" in one and "base=" not in one
    assert re.search(r"level\S*max \d", lines) and re.search(r"turn\d+", lines), lines
    many = make(tmp_path / "many.cap", "--all-tables", "--rows", 3000)
    few, more, again = drive(page_of(many), {"open": ""}, {"eval": LABELS}, {"key": "t"}, {"eval": LABELS}, {"key": "t"}, {"eval": LABELS})
    assert few == again and len(few) < len(more) and few[2:] != more[2:]


def said_by_rows(drive, page, *more):
    """Goes down the rows of the timeline by keyboard, to the first event of each row. Returns the
    labels of all rows, and {label: (announcement, tip)}."""
    (labels,) = drive(page, {"open": ""}, {"eval": LABELS})
    steps = [{"open": ""}, {"eval": "document.querySelector('#timeline-canvas').focus()"}]
    for _ in labels[2:]:
        steps += [{"key": "ArrowDown"}, {"key": "]"}, {"text": "#announcement"}, {"text": "#tip"}]
    results = drive(page, *steps)[1:]
    return labels, dict(zip(labels[2:], zip(results[::2], results[1::2])))


@in_a_browser(1)
def test_tips_by_keyboard(profcapture, page_of, drive, capture, tmp_path):
    """With the keyboard, each row announces its tip: states of threads, sizes of the heap, values of
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


@in_a_browser(0)
def test_next_match(page_of, drive, capture):
    """n and N go through the functions that match the search, in the panels Functions and Flame
    graph; u goes back."""
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
    """g groups the boxes by process or by thread; a third g restores the first grouping."""
    boxes = "[location.hash, Number(document.querySelector('#flame').dataset.boxes)]"
    merged, *others, again = chromium(page_of(capture), {"open": ""}, {"eval": boxes}, {"key": "g"}, {"eval": boxes}, {"key": "g"}, {"eval": boxes}, {"key": "g"}, {"eval": boxes})
    assert merged == again and len({merged[0], *(where for where, _ in others)}) == 3
    assert max(n for _, n in others) > merged[1]


@pytest.mark.parametrize("size, theme", [((1280, 800), "light"), *part([((3840, 2160), "dark"), ((3840, 2160), "light"), ((1280, 800), "dark")], 1), ((320, 640), "light")])
def test_panels(page_of, chromium, capture, size, theme):
    """Every panel draws, is accessible, and fits into the window. A narrow page scrolls down, its
    tables also to the side, and no button outside of a table is clipped."""
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


@in_a_browser(1)
def test_focus_stays(page_of, drive, capture):
    """A key that changes a panel does not take the focus from the focused element."""
    page = page_of(capture)
    assert drive(page, {"open": "tab=functions"}, {"eval": "[...document.querySelectorAll('#scope button')].find((button) => button.textContent === 'Allocated').focus()"}, {"key": "Enter"},
                 {"eval": "[document.activeElement.textContent, document.activeElement.getAttribute('aria-pressed')]"})[1] == ["Allocated", "true"]


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
    assert len(list(tmp_path.glob("profcapture-*"))) == 1  # the folder of the first view; the failed view left none


# ---- source and assembly


def annotated(profcapture, capture, name, *options):
    data = profcapture.json("annotate", capture, name, *options)["data"]
    return {int(row["address"], 16): row["self_weight"] for row in data["instructions"]}, data


@in_a_browser(0)
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


def test_source_refusals(profcapture, page_of, capture, tmp_path):
    assert "name its file" in profcapture("html", capture, "--compare", "-", "--redact", "-o", tmp_path / "x.html", check=2).stderr
    for options in ("--with-source", "--redact"), ("--with-source", "--compare", capture), ("--with-source", "--focus", "x"):
        assert "--with-source cannot be combined with" in profcapture("html", capture, "-o", tmp_path / "x.html", *options, check=2).stderr
    assert "require --with-source" in profcapture("html", capture, "-o", tmp_path / "x.html", "--source-dir", "/", check=2).stderr
    header, columns = read_page(page_of(capture))
    assert "sources" not in header and "places.place" not in columns
