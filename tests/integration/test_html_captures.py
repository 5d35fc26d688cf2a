# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The report page of many kinds of captures: no capture breaks it, and its numbers of waits,
sources and comparisons are those of the commands. All cases that may use either browser use the
same one in a run, because a second browser takes 10 s of CPU time; test_html.py uses both."""
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from captures import make
from captures import rows as rows_of
from exports import read_page
from format_reader import Capture
from pages import BROWSERS, LABELS, ROWS, TREE, check_functions, check_places, drive, firefox, in_a_browser, not_freed, page_of, value  # noqa: F401 (fixtures)
from slices import part

CHUNK_HEADER_BYTES = 96
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
    """The peak equals that of `memory`, even if the peak is short and follows several execs. The
    unfreed blocks of a range equal those that the copied command shows, also on a page of a
    range."""
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


def test_ended_processes(profctl, profcapture, page_of, chromium, tmp_path):
    """The memory usage of a process ends with the process, and has the process's last name."""
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


@in_a_browser(0)
def test_process_lanes(profcapture, page_of, drive, forks):
    """The row of a process unfolds to the rows of its threads, by mouse and by keyboard."""
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
    """Returns the kind and the path of a capture of a program, or of an unusual capture."""
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
        whole = request.getfixturevalue("two")[0].read_bytes()
        path.write_bytes(whole[:-len(whole) // 3])
    return kind, path


ZOOM = """(() => {
	const flame = document.querySelector('#flame'), box = flame.getBoundingClientRect(), isZoomed = () => [...document.querySelectorAll('#scope .chip')].some((chip) => chip.textContent.startsWith('zoomed'));
	for (let click = 0; click < 20 && !isZoomed(); click++) flame.dispatchEvent(new MouseEvent('click', { clientX: box.x + 300, clientY: box.y + 10 })); // unfolds first
	return isZoomed();
})()"""


def check_accessible(nodes):
    """Checks that each control of an accessibility tree has a role and a name."""
    assert not [node for node in nodes if node[2] and node[0] != "generic" and not (node[0] and node[1].strip())]
    roles = [role for role, _, can_focus in nodes if can_focus]
    assert roles.count("tab") >= 7 and roles.count("button") >= 6 and {"searchbox", "tabpanel"} <= set(roles)


# Each kind of capture is opened in one of the browsers; in a soak, in both.
@pytest.mark.parametrize("kind_of_capture, drive", part([(kind, browser) for kind in PROGRAMS + ODD for browser in part(BROWSERS, 1)], 4), indirect=True)
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
    """A capture of threads that wait, each in a different function and for a different cause."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program = tmp_path_factory.mktemp("waited") / "waits"
    subprocess.run(["gcc", "-O2", "-g", "-pthread", Path(os.environ["PROF_SOURCE_DIR"]) / "tests/tools/waits.c", "-o", program], check=True)
    profctl("record", "-q", "--off-cpu", "-o", program.with_name("waits.cap"), "--", program, program.with_name("data"))
    return program.with_name("waits.cap")


@in_a_browser(0)
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
    while time.thread_time() < 0.35:
        sum(range(1000))
threads = [threading.Thread(target=compute) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_interpreter_lock(profctl, require, page_of, chromium, tmp_path):
    """Waiting for the interpreter's lock is not listed as "usually intended", although Python waits on
    a condition variable."""
    require(root=True)
    (tmp_path / "gil.py").write_text(GIL)
    profctl("record", "-q", "--off-cpu", "-o", tmp_path / "gil.cap", "--", "/usr/bin/python3", tmp_path / "gil.py")
    (places,) = chromium(page_of(tmp_path / "gil.cap"), {"open": "tab=waiting&measure=wait"}, {"eval": ROWS.replace("#panel table", "#panel table[aria-label=Places]")})
    kinds = [row[5] for row in places] + ["usually intended:"]
    lock = [value(row[0])[0] for row in places[:kinds.index("usually intended:")] if row[5] == "futex" and row[6].startswith("gil.compute")]
    assert sum(lock) > 0.1e9, places


def test_waiting_panel(profcapture, page_of, chromium, waited):
    """The panel has the places of report --by state, with the median and the longest of their
    waits; the longest is a button that selects its time. The tip of a thread's row says what the
    thread waits for."""
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
    """Yields (level, kind, ns, function) for each node of a critical path in JSON."""
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


def test_size_limit(profcapture, page_of, chromium, monkeypatch, tmp_path):
    """The data of a page that would be too large are merged until the page fits. The page's sums equal
    those of the commands, and the page says what it leaves out."""
    big = make(tmp_path / "big.cap", "--all-tables", "--rows", 20000)
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
    """The banner says that something was lost; the panel About lists all losses of the capture."""
    lossy = make(tmp_path / "lossy.cap", "--all-tables", "--rows", 200)
    (banner,), listed = chromium(page_of(lossy), {"open": "tab=about"}, {"text": "#loss"}, {"text": "#panel h2 + ul li"})
    numbers = [re.search(r": (\d+) (?:lost|timer ticks)", text) for text in listed]
    assert "lost" in banner and len(numbers) > 50
    assert sum(int(found[1]) for found in numbers if found) == sum(row["count"] or 0 for row in rows_of(profcapture, lossy, "loss"))


def test_record_view(profctl, tmp_path, monkeypatch):
    """record --view prints the path of the page, and keeps the status of the command."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    done = profctl("record", "-q", "--view", "-o", tmp_path / "x.cap", "--", "sh", "-c", "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; exit 3", check=3)
    assert read_page(Path(done.stdout.strip()))[0]["capture"]["title"].startswith("sh -c")
    assert "--view" in profctl("record", "--view", "--json", "true", check=2).stderr


def test_source_begins_with_the_program(profctl, profcapture, compile_c, chromium, tmp_path):
    """The panel opens with a function of the program, although a function of the C library has
    more time."""
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
    program = compile_c("gone", "volatile unsigned long sink; /* </script><b>bold</b> */\nint main(void) { for (unsigned long i = 0; i < 400000000; i++) sink += i; /* </script><i>x</i> */ }\n", "-O1", anew=True)
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


@in_a_browser(0)
def test_compare(profcapture, page_of, drive, two):
    """The page opens with the differences of both captures: A and B of each function are those of
    diff, and vanished functions are listed. Without A as the base, the command is a report of B."""
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
    # the page shows only the first rows, and on a busy machine some are of the kernel
    assert len(shown) >= 8 and shown["old"][4] == "vanished" and shown["young"][3] == "new"
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
    """Samples and allocations of both captures are on one axis. Captures that are not runs of a
    command are compared by shares; compared with itself, a capture has no changes."""
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
    or vanished have another, and a capture against itself has none. A search fades functions
    that do not match."""
    steps = [{"open": "theme=light"}, {"eval": PIXELS}]
    for name in "work1", "work2", "young", "old":
        steps += [{"type": ["#search", f"^{name}$"]}, {"eval": PIXELS}]
    assert chromium(page_of(two[0], "--compare", two[1]), *steps) == [[True, True], [True, False], [False, True], [True, False], [False, True]]
    assert chromium(page_of(two[0], "--compare", two[0]), *steps[:2]) == [[False, False]]
