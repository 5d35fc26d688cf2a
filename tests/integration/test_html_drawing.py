# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The page draws known numbers correctly: the folded boxes of the flame graph, the heat
map, long trees, and what was not measured."""
import bisect
import collections
import re
import shlex

import pytest
from captures import make
from exports import read_page, write_page

ROWS = "[...document.querySelectorAll('#panel table tbody tr:not([aria-hidden])')].map((row) => [...row.cells].map((cell) => cell.textContent))"
REST = "new Promise((done) => setTimeout(done, 500))"  # waits for texts that the page fills in when the selection rests
OWN, LIBRARY, LIBC, KERNEL = range(4)
SAMPLE_NS = 1000000


@pytest.fixture(scope="module")
def empty(profcapture, tmp_path_factory):
    """A page without rows, whose header has all that a page needs."""
    folder = tmp_path_factory.mktemp("drawing")
    profcapture("html", make(folder / "none.cap", "--rows", 0), "-o", folder / "none.html", "-q")
    return folder / "none.html"


def page_with(empty, path, functions, stacks, samples, times=None, more=None, columns=None, **changes):
    """Writes a page with functions (name, origin), stacks (parent, function) after the root, and
    one sample for each stack number in `samples`, at the milliseconds `times` (default: one in each
    millisecond). `more`, `columns`: other parts of the header, other columns."""
    header, _ = read_page(empty)
    times = times or range(len(samples))
    header["capture"].update({"duration_ns": (times[-1] + 1) * SAMPLE_NS, "is_time": True, "sample_weight": SAMPLE_NS, "cpus": 1, **changes})
    header.update(sample_unit_ns=SAMPLE_NS, grid_ns=SAMPLE_NS, images=["/bin/shop"], threads=[{"name": "shop", "tid": 7, "process": 0}], processes=[{"program": "shop", "pid": 7}],
                  functions=[{"name": name, "kind": "kernel" if origin == KERNEL else "user", "origin": origin, "image": 0} for name, origin in functions])
    header.update(more or {})
    columns = {"samples.time": times, "samples.thread": [0] * len(samples), "samples.stack": samples, "samples.count": [1] * len(samples),
               "stacks.parent": [0, *(parent for parent, _ in stacks)], "stacks.function": [0, *(function for _, function in stacks)], "stacks.cause": [0] * (1 + len(stacks)), **(columns or {})}
    return write_page(empty, path, header, columns)


def test_folded(empty, chromium, tmp_path):
    """A chain of library functions, or of kernel functions, is one box that unfolds. The program's own
    functions do not fold, nor do functions of different kinds fold together. Boxes zoom by mouse and by
    keyboard."""
    names = [("none", OWN), ("main", OWN), ("lib_a", LIBRARY), ("lib_b", LIBRARY), ("lib_c", LIBC), ("compute", OWN), ("trap", KERNEL), ("clear", KERNEL), ("work", OWN), ("copy", LIBC), ("fault", KERNEL)]
    #            main    lib_a   lib_b   lib_c   compute trap    clear   work    copy    fault
    stacks = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10)]
    page = page_with(empty, tmp_path / "folded.html", names, stacks, [7] * 120 + [10] * 80)
    boxes, said = {"eval": "Number(document.querySelector('#flame').dataset.boxes)"}, {"text": "#announcement"}
    chips = {"text": "#scope .chip"}
    steps = [{"open": ""}, boxes, {"eval": "document.querySelector('#flame').focus()"}, {"key": "ArrowDown"}, said, {"key": "ArrowUp"}, said, {"key": "ArrowDown"}, {"key": "Enter"}, boxes,
             {"key": "ArrowDown"}, {"key": "ArrowDown"}, {"key": "ArrowDown"}, said, {"key": "Enter"}, boxes, chips, {"key": "Escape"}, boxes, {"key": "Escape"}, boxes,
             {"at": ["#flame", 300, 28]}, boxes, {"at": ["#flame", 300, 85]}, boxes, chips, {"at": ["#flame", 300, 10]}, {"at": ["#flame", 300, 28]}, boxes]
    folded, _, (chain,), (main,), unfolded, (compute,), zoomed, chip, again, first, *mouse = chromium(page, *steps)
    assert folded == first == 7 and unfolded == again == 9 and zoomed == 5 and chip[0].startswith("zoomed")
    assert chain.startswith("lib_a. … 3 frames, to lib_c. 120\u00a0ms, 60.0\u00a0% ± 6.8 of 200\u00a0ms. self 0\u00a0s")
    assert main.startswith("main. 200\u00a0ms, 100.0\u00a0%") and compute.startswith("compute. 120\u00a0ms")
    assert mouse[:2] == [9, 5] and mouse[2][0].startswith("zoomed")
    # The two inverted stacks, with | between boxes: clear trap | compute | lib_c lib_b lib_a | main; fault | copy | work | main
    steps = [{"open": "inverted=true"}, boxes, {"eval": "document.querySelector('#flame').focus()"}, {"key": "ArrowLeft"}, said, {"key": "Enter"}, boxes, {"key": "ArrowDown"}, said, {"key": "Enter"}, boxes, chips]
    folded, _, (chain,), unfolded, (trap,), zoomed, chip = chromium(page, *steps)
    assert folded == 8 and chain.startswith("clear. … 2 frames, to trap. 120\u00a0ms") and unfolded == 9
    assert trap.startswith("trap. 120\u00a0ms") and zoomed == 5 and chip[0].startswith("zoomed")


def test_long_tree(empty, chromium, tmp_path):
    """A tree with more rows than a page can show says how many it shows, and how many are missing at least.
    The flame graph says how many functions are too small to draw."""
    n = 25000
    page = page_with(empty, tmp_path / "long.html", [("none", OWN), ("main", OWN), *((f"f{i}", OWN) for i in range(n))], [(0, 1), *((1, i + 2) for i in range(n))], range(2, n + 2))
    steps = [{"open": "tab=tree"}, {"text": "#panel .note"}, {"eval": "document.querySelector('#panel table').ariaRowCount"}, {"open": ""}, {"eval": "document.querySelector('#flame').focus()"},
             {"key": "ArrowDown"}, {"text": "#announcement"}]
    (note,), rows, _, (small,) = chromium(page, *steps)
    assert rows == "20001" and "Only the first 20\u202f000 rows are shown; 5\u202f001 or more are not." in note
    assert small == "25\u202f000 functions that are too small to draw"


def test_cut_lists(profcapture, empty, chromium, tmp_path):
    """Each list that is cut names the command that prints all of it."""
    page = page_with(empty, tmp_path / "cut.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * 700)
    header, columns = read_page(page)
    header.update(mark_names=[{"name": "it's", "group": "", "count": 600}], mark_unit_ns=SAMPLE_NS, logs=[{"time_ns": i * SAMPLE_NS, "text": f"log {i}"} for i in range(60)],
                  threads=[{"name": "shop", "tid": 7 + i, "process": 0} for i in range(55)])
    columns = {name: [int(n) for n in numbers] for name, numbers in columns.items() if name != "places.weight"}
    columns.update({"marks.time": range(600), "marks.length": [SAMPLE_NS] * 600, "marks.name": [0] * 600, "marks.thread": [0] * 600})
    steps = [{"open": "tab=marks"}, {"text": "#panel .note"}, {"eval": REST}, {"text": "#logs-table caption"}, {"text": "#timeline-table caption"}]
    (marks,), _, (logs,), (threads,) = chromium(write_page(empty, page, header, columns), *steps)
    for said, start, verb in (marks, "The longest 500 of 600. All: ", "sql"), (logs, "Logs in the selected range: the first 50 of 60; all: ", "dump"), (threads, "Threads in the selected range: the first 50 of 55; CPU time of all: ", "report"):
        assert said.startswith(start + "profcapture " + verb), said
        profcapture(*shlex.split(said[len(start):])[1:], check=None if verb == "report" else 0)  # the capture has no sample
    assert "WHERE name = 'it''s' ORDER BY" in shlex.split(marks)[-1]


HEAT = """(async () => {
	const canvas = document.querySelector('#timeline-canvas'), box = canvas.getBoundingClientRect(), found = [];
	for (const level of [1, 8, 64]) {
		document.querySelector(`#levels [data-level="${level}"]`).click();
		await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)));
		const view = /view=(\\d+)[\\d.]*-(\\d+)/.exec(location.hash), copy = new OffscreenCanvas(1094, 80).getContext('2d');
		copy.drawImage(canvas, -176, 0);
		const pixels = copy.getImageData(0, 0, 1094, 80).data;
		const cells = [];
		for (let k = 0; k < 7; k++) for (let x = 0; x < 218; x++) {
			const px = Math.floor((x + 0.5) * 1094 / 218), py = 21 + 1 + 5 * k + 2;
			cells.push([x * 7 + k, pixels[4 * (py * 1094 + px)], px + 176, py]);
		}
		const said = cells.filter((cell, i) => i % 97 === 0 || cell[1] === Math.min(...cells.map((each) => each[1]))).slice(0, 40).map(([bin, red, x, y]) => {
			canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.x + x, clientY: box.y + y }));
			return [bin, red, document.querySelector('#tip').textContent.split('\\n').pop()];
		});
		found.push([view && view.slice(1).map(Number), said]);
	}
	return found;
})()"""


def test_heat(empty, chromium, tmp_path):
    """At each zoom level, the tip of a cell of the heat map has the sum of its time, and a darker cell
    has more time."""
    times = [i for i in range(40000) if i * i // 7000 % 3]
    page = page_with(empty, tmp_path / "heat.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * len(times), times)
    duration, begins = (times[-1] + 1) * SAMPLE_NS, [time * SAMPLE_NS for time in times]
    for level, (view, cells) in zip((1, 8, 64), chromium(page, {"open": ""}, {"eval": HEAT})[0]):
        begin, end = view or (0, duration)
        assert abs((end - begin) * level - duration) < 3 * level
        width, shades = (end - begin) / (218 * 7), {}
        for bin_, red, tip in cells:
            low, high = begin + bin_ * width, begin + (bin_ + 1) * width
            counts = {bisect.bisect_left(begins, high + off) - bisect.bisect_left(begins, low + off) for off in (-2, 0, 2)}
            said = re.fullmatch(r"([\d.]+)\u00a0(ms|s) in ([\d.]+)\u00a0(ms|µs)", tip)
            shown = float(said[1])
            assert shown in counts, (level, bin_, tip, counts)
            shades.setdefault(shown, set()).add(red)
        order = [max(shades[count]) for count in sorted(shades)]
        assert len(order) > 1 and order == sorted(order, reverse=True), shades


def test_order_of_rows(empty, chromium, tmp_path):
    """The memory of many processes comes after marks and logs, which are visible without scrolling."""
    usage = [{"group": "memory", "name": name, "unit": "bytes", "pid": pid, "comm": "shop", "is_rss": name == "rss", "times": [0], "values": [pid]} for pid in (7, 8, 9) for name in ("rss", "pss")]
    own = {"group": "shop", "name": "level", "unit": "", "pid": 7, "comm": "shop", "is_rss": False, "times": [0], "values": [1]}
    page = page_with(empty, tmp_path / "rows.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * 50, more={"counters": [*usage, own], "mark_names": [{"name": "turn", "group": "", "count": 1}], "mark_unit_ns": SAMPLE_NS, "logs": [{"time_ns": 1, "text": "a log"}]},
                     columns={"marks.time": [1], "marks.length": [SAMPLE_NS], "marks.name": [0], "marks.thread": [0]})
    labels, bottom = chromium(page, {"open": ""}, {"eval": "JSON.parse(document.querySelector('#timeline').dataset.rows)"}, {"eval": "document.querySelector('#timeline').clientHeight"})
    assert labels == ["Time", "Activity", "shop", "level shop 7", "turn", "Logs", *(f"{name} shop {pid}" for pid in (7, 8, 9) for name in ("rss", "pss"))]
    assert bottom > 200  # the rows from the time to the logs have 166 pixels


def test_legend(empty, chromium, tmp_path):
    """The legend names the colors that the page has, and hides no button, in windows of 1000 to 3840 pixels."""
    names = [("none", OWN), ("main", OWN), ("copy", LIBC), ("trap", KERNEL)]
    page = page_with(empty, tmp_path / "legend.html", names, [(0, 1), (1, 2), (1, 3)], [2, 3] * 50)
    fits = "[...document.querySelectorAll('#tabs button, .legend > *')].every((each) => { const { left, right, bottom } = each.getBoundingClientRect(), area = each.parentElement.getBoundingClientRect(); return right > left && right <= innerWidth && right <= area.right + 1 && bottom <= area.bottom + 1; })"
    for width in 1280, 1000, 3840:
        legend, all_fit = chromium(page, {"open": ""}, {"text": ".legend > *"}, {"eval": fits}, size=(width, 800))
        assert legend == ["program", "libraries", "kernel", "inlined"] and all_fit, width


def test_names_do_not_reorder_texts(empty, chromium, tmp_path):
    """A name with characters that reorder text cannot reverse the sentence, the number or the tip beside it."""
    name = "shop\u202ereversed\u2067"
    page = page_with(empty, tmp_path / "order.html", [("none", OWN), (name, OWN)], [(0, 1)], [1] * 50, title=name, summary=name, losses=[{"text": f"{name}: 3 lost", "count": 3, "from_ns": 0, "to_ns": 1}],
                     more={"verdict": [{"figure": "1 s", "text": f"in {name} of all", "color": "run", "show": {}}], "mark_names": [{"name": name, "group": name, "count": 1}], "mark_unit_ns": SAMPLE_NS,
                           "threads": [{"name": name, "tid": 7, "process": 0}], "processes": [{"program": name, "pid": 7}], "logs": [{"time_ns": 1, "text": name}]},
                     columns={"marks.time": [1], "marks.length": [SAMPLE_NS], "marks.name": [0], "marks.thread": [0]})
    said = "[document.title, document.body.textContent.replace(document.querySelector('#data').textContent, '')].map((text) => [/[\\u202a-\\u202e\\u2066-\\u2069]/.test(text), text.includes('shop\\\\u{202e}reversed\\\\u{2067}')])"
    steps = [{"open": ""}, {"eval": RECORD}]
    for key in "1234567":
        steps += [{"key": key}, {"eval": REST}, {"eval": said}]
    *shown, drawn = chromium(page, *steps, {"eval": "document.querySelector('#timeline-canvas').focus()"}, {"key": "ArrowDown"}, {"key": "]"}, {"text": "#tip"}, {"eval": DRAWN})[1:]
    texts = [text for text in shown if text is not None]
    (tip,), tabs = texts.pop(), texts
    assert tabs == [[[False, True]] * 2] * 7 and "\\u{202e}" in tip
    assert drawn and not [text for text, *_ in drawn if "\u202e" in text]


def test_unknown(profcapture, empty, chromium, tmp_path):
    """Numbers that were not measured are unknown, not 0: the CPUs of the machine, when a woken thread was ready,
    and how long threads ran if the recorded event is not a time."""
    made = make(tmp_path / "made.cap", "--all-tables", "--rows", 300)
    profcapture("html", made, "-o", tmp_path / "made.html", "-q")
    rows, _, ready = chromium(tmp_path / "made.html", {"open": "tab=waiting"}, {"eval": ROWS}, {"eval": REST}, {"text": "#timeline-table td:nth-child(3)"})
    rows = [row[1] for row in rows if len(row) == 6]
    for texts in rows, ready:
        assert len(texts) > 5 and all(text == "unknown" or text.startswith("≥ ") for text in texts), texts
    names, stacks = [("none", OWN), ("main", OWN)], [(0, 1)]
    other = page_with(empty, tmp_path / "other.html", names, stacks, [1] * 50, is_time=False)
    _, ran = chromium(other, {"open": ""}, {"eval": REST}, {"text": "#timeline-table td"})
    assert ran == ["unknown"] * 3
    ((activity,),) = chromium(page_with(empty, tmp_path / "cpus.html", names, stacks, [1] * 50, cpus=0), {"open": ""}, {"key": "]"}, {"text": "#announcement"})
    assert activity.endswith(". 1.00 CPUs")


BOXES = """(() => {
	const canvas = document.querySelector('#flame'), area = canvas.getBoundingClientRect(), tip = document.querySelector('#tip'), found = [];
	const height = Math.round(1.45 * parseFloat(getComputedStyle(document.documentElement).fontSize));
	for (let row = 0; row < 6; row++) for (let x = 2; x < area.width; x += 6) {
		canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: area.x + x, clientY: area.y + (row + 0.5) * height }));
		const last = found.at(-1);
		if (tip.hidden) continue;
		if (last && last[0] === row && last[1] === tip.textContent && last[2] + last[3] === x) last[3] += 6;
		else found.push([row, tip.textContent, x, 6]);
	}
	return [area.width, found];
})()"""


def boxes_of(width, found, whole):
    """Counts the boxes by row, name, value and earlier value, and checks that the width of each is
    its share of `whole`. In `found`, adjacent boxes with equal tips are one entry."""
    boxes = collections.Counter()
    for row, tip, _, wide in found:
        name, amount, *rest = tip.split("\n")
        now, before = round(float(amount.split("\u00a0")[0])), [re.fullmatch(r"before: ([\d.]+)\u00a0\w+(?: \(within noise\))?", line) for line in rest]
        before = sum(round(float(said[1])) for said in before if said)
        one = width * (now + before) / whole
        alike = round(wide / one)
        assert abs(wide - alike * one) <= 12 and alike, (tip, wide, width)
        boxes[row, name, now, before] += alike
    return boxes


def boxes_by(samples, path_of):
    """Counts the boxes of samples. A sample: [is before, thread, functions from the root]."""
    sums = collections.Counter()
    for is_before, *sample in samples:
        path = path_of(*sample)
        for end in range(len(path)):
            sums[tuple(path[:end + 1]), is_before] += 1
    paths = {path for path, _ in sums}
    return collections.Counter((len(path) - 1, path[-1], sums[path, False], sums[path, True]) for path in paths)


def test_boxes(empty, chromium, tmp_path):
    """Each box has the sum of its samples: from callers to callees and inverted, for all, by process and
    by thread, and for two ranges."""
    names = ["none", "main", "serve", "bake", "knead", "wait"]
    paths = [("main", "serve", "knead"), ("main", "bake", "knead"), ("main", "bake"), ("main", "bake", "knead", "wait"), ("main", "serve", "main", "wait")]
    stacks, number = [], {(): 0}
    for path in paths:
        for end in range(1, len(path) + 1):
            if path[:end] not in number:
                number[path[:end]] = len(number)
                stacks.append((number[path[:end - 1]], names.index(path[end - 1])))
    chosen = [paths[i] for i, (first, second) in enumerate([(60, 20), (30, 50), (20, 40), (50, 60), (40, 30)]) for _ in range(first)]
    chosen += [paths[i] for i, (first, second) in enumerate([(60, 20), (30, 50), (20, 40), (50, 60), (40, 30)]) for _ in range(second)]
    threads, task = [i % 3 // 2 for i in range(400)], ["shop", "till"]
    tasks = {"threads": [{"name": name, "tid": 7 + i, "process": i} for i, name in enumerate(task)], "processes": [{"program": name, "pid": 7 + i} for i, name in enumerate(task)]}
    page = page_with(empty, tmp_path / "boxes.html", [(name, OWN) for name in names], stacks, [number[path] for path in chosen], more=tasks, columns={"samples.thread": threads})
    samples = list(zip(threads, chosen))
    modes = {"": lambda thread, path: path, "inverted=true": lambda thread, path: path[::-1],
             "group=thread": lambda thread, path: (f"{task[thread]} ({7 + thread})", *path), "group=process&inverted=true": lambda thread, path: (*path[::-1], f"{task[thread]} ({7 + thread})")}
    steps = [step for mode in modes for step in ({"open": mode}, {"eval": BOXES})]
    differences = [f"base=0-{200 * SAMPLE_NS}&range={200 * SAMPLE_NS}-{400 * SAMPLE_NS}{mode}" for mode in ("", "&inverted=true")]
    steps += [step for link in differences for step in ({"open": link}, {"eval": BOXES})]
    results = chromium(page, *steps)
    for (mode, path_of), (width, found) in zip(modes.items(), results):
        assert boxes_of(width, found, 400) == boxes_by([(False, *sample) for sample in samples], path_of), mode
    for path_of, (width, found) in zip((lambda thread, path: path, lambda thread, path: path[::-1]), results[-2:]):
        assert boxes_of(width, found, 400) == boxes_by([(i < 200, *sample) for i, sample in enumerate(samples)], path_of)


RECORD = """(() => {
	globalThis.drawn = [];
	const { fillText } = CanvasRenderingContext2D.prototype;
	CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
		globalThis.drawn.push([text, x, y, this.font]);
		return fillText.call(this, text, x, y);
	};
	return 0;
})()"""
DRAWN = "globalThis.drawn.splice(0)"
# For each column of pixels from y to y + height in the timeline, the number of pixels of each color.
COLUMNS = """((y, height, names) => {
	const { width } = document.querySelector('#timeline-canvas'), copy = new OffscreenCanvas(width, height).getContext('2d');
	const style = getComputedStyle(document.documentElement), colors = names.map((name) => style.getPropertyValue('--' + name).trim().slice(1));
	copy.drawImage(document.querySelector('#timeline-canvas'), 0, -y);
	const { data } = copy.getImageData(0, 0, width, height), hex = (at) => [0, 1, 2].map((i) => data[at + i].toString(16).padStart(2, '0')).join('');
	return Array.from({ length: width - 186 }, (_, x) => names.map((name, k) => Array.from({ length: height }, (_, row) => hex(4 * (row * width + x + 176))).filter((color) => color === colors[k]).length));
})"""


def test_lanes(empty, chromium, tmp_path):
    """Each column of pixels of a lane has the shares of the states in its time, even if states are shorter
    than a pixel. The table of threads has the sums of the states."""
    unit, slices = 1000, []  # 100 ms: running, ready, waiting; then 900 times 0.1 ms of each
    for n, repeat in ((100_000, 1), (100, 900)):
        slices += [(n, kind) for _ in range(repeat) for kind in (0, 1, 2)]
    columns = {"slices.thread": [0] * len(slices), "slices.gap": [0] * len(slices), "slices.length": [n for n, _ in slices], "slices.kind": [kind for _, kind in slices]}
    page = page_with(empty, tmp_path / "lanes.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * 570, more={"slice_unit_ns": unit, "has_wakeups": True}, columns=columns)
    lane = f"{COLUMNS}(60, 16, ['run', 'ready', 'idle'])"
    pixels, _, sums = chromium(page, {"open": "theme=light"}, {"eval": lane}, {"eval": REST}, {"text": "#timeline-table td"})
    height, n = 14, len(pixels)
    assert n == 1094 and sums[:3] == ["190\u00a0ms"] * 3
    for x, counts in enumerate(pixels):
        begin, end = (at * 570 / n for at in (x, x + 1))
        if end < 300 and int(begin // 100) == int(end // 100):
            assert counts == [height if kind == begin // 100 else 0 for kind in range(3)], (x, counts)
        elif begin > 300:
            assert all(abs(count - height / 3) < 3 for count in counts), (x, counts)


def test_axis(empty, chromium, tmp_path):
    """The texts of the axis are beside the lines of their times, at round times, at each zoom."""
    page = page_with(empty, tmp_path / "axis.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * 700)
    for level, drawn in zip((8, 64, 1), chromium(page, {"open": ""}, {"eval": RECORD}, *(step for level in (8, 64, 1) for step in ({"click": f"[data-level='{level}']"}, {"eval": f"[{DRAWN}, /view=([\\d.]+)-([\\d.]+)/.exec(location.hash)?.slice(1)]"})))[1:]):
        texts, view = drawn
        begin, end = map(float, view or (0, 700 * SAMPLE_NS))
        ticks = [(float(text.split()[0]), x) for text, x, *_ in texts if re.fullmatch(r"\d+\.?\d*( s)?", text)]
        steps = {round(1e9 * (b[0] - a[0])) for a, b in zip(ticks, ticks[1:])}
        assert len(ticks) > 3 and len(steps) == 1 and re.fullmatch("[125]0*", str(steps.pop())), ticks
        assert all(abs(x - 176 - (seconds * 1e9 - begin) / (end - begin) * 1094) <= 1 for seconds, x in ticks), (level, ticks)


def test_hatch(empty, chromium, tmp_path):
    """The time range of a loss is hatched and labeled with the number of lost records, and the
    banner has the loss's text. Neither applies to ticks that the kernel missed."""
    losses = [{"is_tick": False, "count": 42, "from_ns": 200 * SAMPLE_NS, "to_ns": 300 * SAMPLE_NS, "text": "42 records were lost."}, {"is_tick": False, "count": 0, "from_ns": 600 * SAMPLE_NS, "to_ns": 650 * SAMPLE_NS, "text": "Some were lost."},
              {"is_tick": True, "count": 5, "from_ns": 0, "to_ns": 100 * SAMPLE_NS, "text": "5 ticks."}]
    page = page_with(empty, tmp_path / "hatch.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * 1000, losses=losses)
    clear = f"{COLUMNS}(24, 30, ['heat2']).map(([n]) => n)"  # the CPU was busy all the time
    _, texts, pixels, (banner,), (meta,), (about,) = chromium(page, {"open": "theme=light"}, {"eval": RECORD}, {"key": "z"}, {"click": "#theme"}, {"click": "#theme"}, {"eval": DRAWN}, {"eval": clear}, {"text": "#loss"}, {"text": "#meta"}, {"key": "7"}, {"text": "#panel"})
    lost = {text: x for text, x, *_ in texts if text.endswith("lost")}
    assert list(lost) == ["42 lost", "some lost"] and abs(lost["42 lost"] - 176 - 0.25 * 1094) <= 1 and "nothing lost" not in meta
    inside = [n for x, n in enumerate(pixels) if 0.205 < x / 1094 < 0.295 or 0.605 < x / 1094 < 0.645]
    outside = [n for x, n in enumerate(pixels) if not (0.199 < x / 1094 < 0.301 or 0.599 < x / 1094 < 0.651)]
    assert sum(inside) == 0 and sum(n > 9 for n in outside) > len(outside) / 2
    assert "42 records were lost." in banner and "5 ticks." not in banner and "5 ticks." in about


def test_inlined(empty, chromium, tmp_path):
    """Inlined functions are in italics, and the tip and the call tree say so."""
    more = {"functions": [{"name": name, "kind": "user", "origin": OWN, "image": 0, "inlined": name == "inner"} for name in ("none", "main", "inner")]}
    page = page_with(empty, tmp_path / "inlined.html", [], [(0, 1), (1, 2)], [2] * 300, more=more)
    _, drawn, (_, found), tree = chromium(page, {"open": ""}, {"eval": RECORD}, {"key": "i"}, {"eval": DRAWN}, {"eval": BOXES}, {"open": "tab=tree"}, {"eval": ROWS})
    fonts = {text.split()[0]: font.startswith("italic") for text, *_, font in drawn if text.startswith(("main", "inner"))}
    assert fonts == {"main": False, "inner": True}
    assert {tip.split("\n")[0]: tip.endswith("inlined") for _, tip, *_ in found} == fonts and [cells[-1].endswith("inlined") for cells in tree] == [False, True]


def test_sampled_heap(empty, chromium, tmp_path):
    """If only some allocations were recorded, the sums say that they are estimates."""
    columns = {f"allocations.{name}": numbers for name, numbers in {"time": [10, 20], "freed": [30, 0], "thread": [0, 0], "stack": [1, 1], "kind": [0, 1], "size": [10, 10], "bytes": [8192, 16384], "blocks": [9, 18], "brief": [0, 0]}.items()}
    more = {"sample_interval": 8192, "allocation_unit_ns": SAMPLE_NS, "heap": [{"peak_ns": 20 * SAMPLE_NS, "peak_bytes": 24576, "points": [[10 * SAMPLE_NS, 8192], [20 * SAMPLE_NS, 24576], [30 * SAMPLE_NS, 16384]]}]}
    page = page_with(empty, tmp_path / "sampled.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * 50, more=more, columns=columns)
    titles, rows = chromium(page, {"open": "tab=memory"}, {"text": "#panel h2"}, {"eval": ROWS})
    assert titles[1] == "16.0\u00a0KiB not freed at exit of 24.0\u00a0KiB in 27 blocks; estimated, 1 sample per 8.00\u00a0KiB"
    assert rows[0][0] == "16.0\u00a0KiB" and rows[0][2:4] == ["24.0\u00a0KiB", "27"]


def test_not_recorded(empty, chromium):
    """A panel of something that was not recorded says so, and how to record it."""
    steps = [step for key in "4567" for step in ({"key": key}, {"text": "#panel .empty"})]
    *panels, buttons = chromium(empty, {"open": ""}, *steps, {"eval": "[...document.querySelectorAll('#scope button')].map((button) => [button.textContent, button.disabled, button.title])"})
    assert panels == [["Where threads waited was not recorded.profctl record --off-cpu", "When threads ran and waited was not recorded.profctl record (without --no-switches)"],
                      ["Allocations were not recorded.profctl record --memory -- COMMAND"], ["Marks were not recorded.prof_mark_begin() in the program, see the manual"], []]
    assert buttons == [["CPU time", True, "Samples were not recorded."], ["Waiting", True, "Where threads waited was not recorded. profctl record --off-cpu"],
                       *([name, True, "Allocations were not recorded. profctl record --memory"] for name in ("Allocated", "Not freed"))]


def test_selecting(empty, chromium, tmp_path):
    """Rows of tables, ends of ranges, double clicks, chips, and links of the verdict make the right selection. A
    window of at least 1700 pixels has the functions beside the flame graph: those of the range, callers and callees, or
    the changes."""
    names = [("none", OWN), ("main", OWN), ("bake", OWN), ("serve", OWN)]
    verdict = [{"figure": "60 %", "text": "in bake", "color": "own", "show": {"tab": "functions", "measure": "cpu", "fn": 2}}, {"figure": "1", "text": "early", "color": "run", "show": {"range": [0, 100 * SAMPLE_NS], "tab": "tree"}}]
    page = page_with(empty, tmp_path / "select.html", names, [(0, 1), (1, 2), (1, 3)], [2] * 600 + [3] * 400, more={"verdict": verdict})
    link, chosen = "Object.fromEntries(new URLSearchParams(location.hash.slice(1)))", {"text": "#panel .focus .name"}
    table, side = "(document.querySelector('#panel table').focus(), 0)", "[...document.querySelectorAll('#side table')].map((table) => table.getAttribute('aria-label'))"
    steps = [{"open": "tab=functions"}, {"eval": table}, {"key": "ArrowDown"}, {"key": "ArrowDown"}, {"eval": "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).cells[5].textContent"}, {"key": "Enter"}, chosen, {"key": "ArrowUp"}, {"key": "Enter"}, chosen,
             {"open": f"range={100 * SAMPLE_NS}-{200 * SAMPLE_NS}"}, {"key": "Shift+ArrowRight"}, {"eval": link}, {"key": "Shift+ArrowLeft"}, {"key": "ArrowLeft"}, {"eval": link},
             {"click": "#verdict li:nth-child(2) a"}, {"eval": link}, {"click": "#verdict a"}, {"eval": link}, chosen]
    _, focused, serve, bake, longer, moved, early, first, (shown,) = chromium(page, *steps)
    assert (focused.split()[0], serve, bake) == ("serve", ["serve"], ["bake"]), (focused, serve, bake)
    assert longer["range"] == "100000000-210000000" and moved["range"] == "90000000-190000000", (longer, moved)
    assert early == {"tab": "tree", "range": "0-100000000"} and first == {"tab": "functions", "fn": "2"} and shown == "bake"
    steps = [{"open": f"thread=0&range={100 * SAMPLE_NS}-{700 * SAMPLE_NS}"}, {"eval": side}, {"text": "#side tbody tr"}, {"click": "#side tbody tr"}, {"eval": side}, {"at": ["#timeline-canvas", 700, 60, {"clickCount": 2}]}, {"eval": link}]
    steps += [{"open": f"thread=0&range={100 * SAMPLE_NS}-{300 * SAMPLE_NS}&base={600 * SAMPLE_NS}-{800 * SAMPLE_NS}"}, {"eval": side}, {"text": "#scope .chip"}, {"accessibility": None}]
    for _ in range(2):
        steps += [{"click": "#scope .chip button"}, {"eval": link}]
    functions, rows, neighbors, twice, changes, chips, nodes, *removed = chromium(page, *steps, size=(1700, 900))
    assert (functions, neighbors, changes) == (["Functions"], ["Called by"], ["Changes"])
    assert rows == ["500\u00a0ms500\u00a0msbake", "100\u00a0ms100\u00a0msserve", "–600\u00a0msmain"]
    selected = f"{100 * SAMPLE_NS}-{700 * SAMPLE_NS}"
    assert {("list", "Verdict", False), ("link", "in bake", True), ("complementary", "Functions", False), ("image", "Timeline", True), ("grid", "Changes", True)} <= set(map(tuple, nodes))
    assert twice == {"thread": "0", "fn": "2", "range": selected, "view": selected}
    assert len(chips) == 2 and removed == [{"range": f"{100 * SAMPLE_NS}-{300 * SAMPLE_NS}", "thread": "0"}, {"thread": "0"}]
