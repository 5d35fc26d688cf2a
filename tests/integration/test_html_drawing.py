# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The page draws known numbers correctly: the folded boxes of the flame graph, the heat
map, long trees, and what was not measured."""
import re
import shlex

import pytest
from captures import make
from exports import read_page, write_page

ROWS = "[...document.querySelectorAll('#panel table tbody tr:not([aria-hidden])')].map((row) => [...row.cells].map((cell) => cell.textContent))"
REST = "new Promise((done) => setTimeout(done, 500))"  # what needs a rest of the selection is filled in
OWN, LIBRARY, LIBC, KERNEL = range(4)
SAMPLE_NS = 1000000


@pytest.fixture(scope="module")
def empty(profcapture, tmp_path_factory):
    """A page without rows, whose header has all that a page needs."""
    folder = tmp_path_factory.mktemp("drawing")
    profcapture("html", make(folder / "none.cap", "--rows", 0), "-o", folder / "none.html", "-q")
    return folder / "none.html"


def page_with(empty, path, functions, stacks, samples, times=None, **changes):
    """A page with functions (name, origin), stacks (parent, function) after the root, and samples of
    a list of stacks: one in each millisecond, or at the given ones."""
    header, _ = read_page(empty)
    times = times or range(len(samples))
    header["capture"].update({"duration_ns": (times[-1] + 1) * SAMPLE_NS, "is_time": True, "sample_weight": SAMPLE_NS, "cpus": 1, **changes})
    header.update(sample_unit_ns=SAMPLE_NS, grid_ns=SAMPLE_NS, images=["/bin/shop"], threads=[{"name": "shop", "tid": 7, "process": 0}], processes=[{"program": "shop", "pid": 7}],
                  functions=[{"name": name, "kind": "kernel" if origin == KERNEL else "user", "origin": origin, "image": 0} for name, origin in functions])
    columns = {"samples.time": times, "samples.thread": [0] * len(samples), "samples.stack": samples, "samples.count": [1] * len(samples),
               "stacks.parent": [0, *(parent for parent, _ in stacks)], "stacks.function": [0, *(function for _, function in stacks)], "stacks.cause": [0] * (1 + len(stacks))}
    return write_page(empty, path, header, columns)


def test_folded(empty, chromium, tmp_path):
    """A chain of library functions, or of kernel functions, is one box that unfolds; the program's own
    functions and different kinds do not fold. Boxes zoom by mouse and by keyboard."""
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
    #        clear trap | compute | lib_c lib_b lib_a | main; fault | copy | work | main
    steps = [{"open": "inverted=true"}, boxes, {"eval": "document.querySelector('#flame').focus()"}, {"key": "ArrowLeft"}, said, {"key": "Enter"}, boxes, {"key": "ArrowDown"}, said, {"key": "Enter"}, boxes, chips]
    folded, _, (chain,), unfolded, (trap,), zoomed, chip = chromium(page, *steps)
    assert folded == 8 and chain.startswith("clear. … 2 frames, to trap. 120\u00a0ms") and unfolded == 9
    assert trap.startswith("trap. 120\u00a0ms") and zoomed == 5 and chip[0].startswith("zoomed")


def test_long_tree(empty, chromium, tmp_path):
    """A tree with more rows than a page can show says how many are missing, and so does the flame graph."""
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
    has more."""
    times = [i for i in range(40000) if i * i // 7000 % 3]
    page = page_with(empty, tmp_path / "heat.html", [("none", OWN), ("main", OWN)], [(0, 1)], [1] * len(times), times)
    duration = (times[-1] + 1) * SAMPLE_NS
    for level, (view, cells) in zip((1, 8, 64), chromium(page, {"open": ""}, {"eval": HEAT})[0]):
        begin, end = view or (0, duration)
        assert abs((end - begin) * level - duration) < 3 * level
        width, shades = (end - begin) / (218 * 7), {}
        for bin_, red, tip in cells:
            low, high = begin + bin_ * width, begin + (bin_ + 1) * width
            counts = {sum(low + off <= time * SAMPLE_NS < high + off for time in times) for off in (-2, 0, 2)}
            said = re.fullmatch(r"([\d.]+)\u00a0(ms|s) in ([\d.]+)\u00a0(ms|µs)", tip)
            shown = float(said[1])
            assert shown in counts, (level, bin_, tip, counts)
            shades.setdefault(shown, set()).add(red)
        order = [max(shades[count]) for count in sorted(shades)]
        assert len(order) > 1 and order == sorted(order, reverse=True), shades


def test_unknown(profcapture, empty, chromium, tmp_path):
    """Numbers that were not measured are unknown, not 0: the CPUs of the machine, when a woken thread was ready,
    and how long threads ran if only another event was recorded."""
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
