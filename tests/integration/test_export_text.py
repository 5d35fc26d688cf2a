# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Exports to perf script text, callgrind and flame graphs have the same numbers as `report`, and so
have exports of comparisons. The programs that read these formats accept the exports."""
import base64
import collections
import html
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
from browsers import CHROMIUM, NODE
from captures import make
from exports import SVG, check, names, perf_name, read_chrome, read_perf_script, read_svg, svg_stacks

FLAMEGRAPH = Path("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
needs_node = pytest.mark.skipif(
    not ((NODE / "speedscope").exists() and shutil.which("node") and CHROMIUM), reason="npm's packages or a browser are not installed: ./dev setup --peers"
)

PROGRAM = r"""
#include <pthread.h>
#include <stdlib.h>
static volatile unsigned long sink;
static inline void twist(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink ^= i * n; }
__attribute__((noinline)) static void odd(int left);
__attribute__((noinline)) static void even(int left) { twist(SIZE); if (left) odd(left - 1); sink++; }
__attribute__((noinline)) static void odd(int left) { twist(900000); if (left) even(left - 1); sink++; }
__attribute__((noinline)) static void deep(int left) { twist(200000); if (left) deep(left - 1); sink++; }
static void *work(void *data)
{
	for (int i = 0; i < 40; i++) {
		even(5);
		deep(20);
		free(malloc(100));
	}
	return data;
}
int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, work, NULL);
	pthread_setname_np(thread, "own name");
	work(NULL);
	pthread_join(thread, NULL);
}
"""


def record(profctl, compile_c, tmp_path_factory, name, size):
    path = tmp_path_factory.mktemp(name) / f"{name}.cap"
    profctl("record", "-q", "-F", 2999, "-o", path, "--", compile_c(name, PROGRAM, "-O2", "-pthread", "-D_GNU_SOURCE", f"-DSIZE={size}"))
    return path


@pytest.fixture(scope="module")
def capture(profctl, compile_c, tmp_path_factory):
    return record(profctl, compile_c, tmp_path_factory, "turns", 600000)


@pytest.fixture(scope="module")
def later(profctl, compile_c, tmp_path_factory):
    """A recording of the same program as in `capture`, but with another name, and with a function
    that takes three times as long."""
    return record(profctl, compile_c, tmp_path_factory, "turns2", 1800000)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    prefix = "<script>alert(1)</script>]]>&\"';\\\n\t\x1b[31m\u202e" + b"\xff\xc2".decode(errors="surrogateescape")
    return make(tmp_path_factory.mktemp("hostile") / "x.cap", "--all-tables", "--rows", 800, "--prefix", prefix)


@pytest.fixture
def report(profcapture):
    return lambda path, *options: profcapture.json("report", path, "--limit", 0, *options)["data"]


INLINE = pytest.mark.parametrize("options", [("--no-inline",), ()], ids=" ".join)


# ---- perf script's text


@INLINE
def test_perf_script(profcapture, capture, report, options):
    text = profcapture("export", capture, "--to", "perf-script", *options).stdout
    samples, data = read_perf_script(text), report(capture, *options)
    # FlameScope searches for times in lines without a tab, and reads the other lines as frames
    heads = [line for line in text.splitlines() if line and line[0] != "\t"]
    assert [float(re.search(r" +([0-9.]+): .+?:", head)[1]) for head in heads] == [sample[4] for sample in samples]
    assert len(re.findall(r"^[\t ]*[0-9a-f]+ .+ \(.*?\)$", text, re.MULTILINE)) == sum(len(sample[-1]) for sample in samples)
    check(data, [([perf_name(frame) for frame in sample[-1]], 1) for sample in samples])
    assert [sample[4] for sample in samples] == sorted(sample[4] for sample in samples)
    assert sum(sample[5] for sample in samples) == data["total_weight"]
    threads = report(capture, "--by", "thread")["rows"]
    by_thread = collections.Counter()
    for row in threads:
        by_thread[row["pid"], row["tid"]] += row["self"]
    assert collections.Counter(sample[1:3] for sample in samples) == +by_thread
    assert {"turns", "own name"} <= {sample[0] for sample in samples}
    rows = profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
    assert sorted((row["time_ns"], row["cpu"]) for row in rows) == sorted((round(sample[4] * 1e9), sample[3]) for sample in samples)
    # each function begins at the same address in every frame
    starts = collections.defaultdict(set)
    for *_, frames in samples:
        for name, address, shift, image in frames:
            if shift is not None and image != "inlined":
                starts[name, image].add(address - shift)
    assert len(starts["even", next(image for name, image in starts if name == "even")]) == 1
    assert any(name == "twist" and image == "inlined" for *_, frames in samples for name, _, _, image in frames) == (not options)


def test_perf_itself(capture, compile_c, require, tmp_path):
    """The reader that these tests use for our text can also read perf's own text."""
    require("perf", root=True)
    program = compile_c("perf", PROGRAM, "-O2", "-pthread", "-D_GNU_SOURCE", "-DSIZE=1000")
    subprocess.run(["perf", "record", "-q", "-F", "99", "-e", "cpu-clock", "--call-graph", "dwarf", "--sample-cpu", "-o", tmp_path / "x.data", "--", program],
                   check=True, capture_output=True, timeout=60)
    fields = "comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso"
    done = subprocess.run(["perf", "script", "-i", tmp_path / "x.data", "--ns", "-F", fields], check=True, capture_output=True, text=True, timeout=60)
    samples = read_perf_script(done.stdout)
    assert samples and any("deep" in [frame[0] for frame in sample[-1]] for sample in samples)


def speedscope_profiles(tmp_path, name, data):
    """Returns the names of the profiles that speedscope's page shows."""
    (tmp_path / "x.js").write_text(f"speedscope.loadFileFromBase64('{name}', '{base64.b64encode(data).decode()}');")
    page = f"file://{NODE}/speedscope/dist/release/index.html#localProfilePath={tmp_path}/x.js&view=sandwich"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage",
               f"--user-data-dir={tmp_path}/user", "--virtual-time-budget=10000", "--dump-dom", page]
    done = subprocess.run(command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, timeout=100, check=True)
    return list(map(html.unescape, re.findall(r'<tr title="([^"]*)"', done.stdout.decode("utf-8"))))


def test_perf_script_collapsed(profcapture, capture):
    """Collapsing --to perf-script, as flame graph scripts do with perf's text, gives the stacks of
    --to folded."""
    collapsed, stack = collections.Counter(), []
    for line in profcapture("export", capture, "--to", "perf-script").stdout.splitlines():
        if sample := re.match(r"(\S.*?) +\d+/\d+ +(?:\[\d+\] +)?\d+\.\d+: ", line):
            stack = [sample[1]]
        elif frame := re.match(r"\s+([0-9a-f]+) (.*) \((.*)\)$", line):
            name = re.sub(r"\+0x[0-9a-f]+$", "", frame[2])
            stack.insert(1, perf_name((name, int(frame[1], 16), None, frame[3])).replace(";", ":"))
        else:
            collapsed[";".join(stack)] += 1
    folded = (line.rsplit(" ", 1) for line in profcapture("export", capture, "--to", "folded").stdout.splitlines())
    assert collapsed == {stack: int(count) for stack, count in folded}


@needs_node
def test_perf_script_in_speedscope(profcapture, capture, tmp_path):
    data = profcapture("export", capture, "--to", "perf-script", text=False).stdout
    profiles = speedscope_profiles(tmp_path, "x.txt", data)
    # a thread that was renamed has two profiles
    wanted = {f"{comm} pid: {pid} tid: {tid}" for comm, pid, tid, *_ in read_perf_script(data.decode())}
    assert sorted(profiles) == sorted(wanted)


@needs_node
def test_chrome_in_speedscope(profcapture, capture, tmp_path):
    data = profcapture("export", capture, "--to", "chrome", text=False).stdout
    events, threads = read_chrome(data)
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"turns", "own name"} <= set(named.values())
    # the programs before and after an exec have the same ids, and so the same name
    assert sorted(speedscope_profiles(tmp_path, "x.json", data)) == sorted(f"x.json - {named[pid, tid]}" for pid, tid, _ in threads)


def test_perf_script_of_hostile_names(profcapture, hostile, report):
    samples = read_perf_script(profcapture("export", hostile, "--to", "perf-script").stdout)
    assert len(samples) == report(hostile)["total"]


# ---- callgrind


def annotate(path, inclusive):
    """Returns callgrind_annotate's total, and a (name, value) for each function, except those that
    represent threads."""
    command = ["callgrind_annotate", "--auto=no", "--threshold=100", "--show-percs=no", f"--inclusive={inclusive}", path]
    # version 3.22 lists functions twice if their file is below the current folder
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=path.parent)
    assert done.stderr == ""
    total, functions = 0, []
    for value, place in re.findall(r"^\s*([\d,]+)(?:\s+[\d,.]+)?\s{2,}(\S.*)$", done.stdout, re.MULTILINE):
        value = int(value.replace(",", ""))
        if place.startswith("PROGRAM TOTALS"):
            total = value
        elif not place.startswith("threads:"):
            functions.append((re.sub(r" \[(\[.*\]|[^\]]*)\]$", "", place).split(":", 1)[1], value))
    return total, functions


@INLINE
def test_callgrind_annotate(profcapture, capture, report, tmp_path, options):
    profcapture("export", capture, "--to", "callgrind", "-o", tmp_path / "callgrind.out", *options)
    data = report(capture, *options)
    for inclusive, key in ("no", "self_weight"), ("yes", "total_weight"):
        total, functions = annotate(tmp_path / "callgrind.out", inclusive)
        assert total == data["total_weight"]
        sums = collections.Counter()
        for name, value in functions:
            sums[name] += value
        assert +sums == names(data["rows"], key)
    assert sums["deep"] <= total and sums["even"] <= total  # recursive functions do not count twice


def test_callgrind_lines_and_calls(profcapture, capture):
    text = profcapture("export", capture, "--to", "callgrind", "--inline").stdout
    assert re.search(r"^(?:fl|cfi)=\(\d+\) \S*turns\.c$", text, re.MULTILINE)
    # each name is written once
    defined = re.findall(r"^c?(ob|f[ln]|fi)=\((\d+)\) (.*)$", text, re.MULTILINE)
    assert len({(kind[0] + kind[1].replace("i", "l"), number) for kind, number, _ in defined}) == len(defined)
    # even() and odd() call each other: the inner calls of both have no cost
    calls = re.findall(r"^cfn=\((\d+)\).*\ncalls=(\d+) \d+\n(\d+) (\d+) \d+$", text, re.MULTILINE)
    assert calls and all(int(count) > 0 for _, count, _, _ in calls) and any(cost == "0" for *_, cost in calls)


def test_callgrind_of_hostile_names(profcapture, hostile, report, tmp_path):
    profcapture("export", hostile, "--to", "callgrind", "-o", tmp_path / "callgrind.out")
    assert annotate(tmp_path / "callgrind.out", "no")[0] == report(hostile)["total"]


# ---- flame graphs


@INLINE
def test_svg(profcapture, capture, report, options):
    root, boxes = read_svg(profcapture("export", capture, "--to", "svg", *options).stdout)
    data = report(capture, *options)
    assert boxes[0][1:3] == ("all", data["total"])
    hidden = [text.text for text in root.iter(f"{SVG}text") if text.get("id") == "hidden"]
    if not hidden:
        check(data, [(path[1:], value) for path, value in svg_stacks(boxes)])
    assert {"turns", "own name"} <= {box[1] for box in boxes if box[0] == 1}
    # the width of a box is proportional to its samples, and its text fits
    for depth, _, value, _, rect, group in boxes:
        if group.get("data-v"):
            assert float(rect["width"]) == pytest.approx(1180 * value / data["total"], abs=0.011)
        text = group.find(f"{SVG}text")
        assert text is None or len(text.text) * 7.3 + 6 <= float(rect["width"]) + 0.1
    classes = {name: group.get("class") for _, name, _, _, _, group in boxes}
    assert classes["even"] == "own" and classes["turns"] == "other"
    assert len(list(root.iter(f"{SVG}script"))) == 1


def test_svg_colors(profcapture, capture):
    """Text has a contrast of at least 4.5 on each color except "muted"; the background does not
    depend on the viewer."""
    root, _ = read_svg(profcapture("export", capture, "--to", "svg").stdout)
    style = root.find(f"{SVG}style").text

    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    colors = dict(re.findall(r"\.(\w+)(?:,\s+\.\w+)* \{\s+fill: (#\w{6})", style))
    (text,) = re.findall(r"^text \{[^}]*fill: (#\w{6})", style, re.MULTILINE)
    assert {"own", "library", "libc", "runtime", "kernel", "other", "bg", "more1", "less1"} <= set(colors) and "var(" not in style
    for name, color in colors.items():
        if name != "muted":
            assert (luminance(color) + 0.05) / (luminance(text) + 0.05) >= 4.5, name
    assert root.find(f"{SVG}rect[@class='bg']").attrib == {"class": "bg", "width": "100%", "height": "100%"}


def test_svg_hides_small_branches(profcapture, tmp_path):
    path = make(tmp_path / "x.cap", "--rows", 20000)
    root, boxes = read_svg(profcapture("export", path, "--to", "svg").stdout)
    (hidden,) = [text.text for text in root.iter(f"{SVG}text") if text.get("id") == "hidden"]
    number, share = re.fullmatch(r"(\d+) branches narrower than 0\.3 pixels are merged: ([\d.]+) %", hidden).groups()
    small = [re.match(r"(\d+) small branches, ([\d.]+) %", box[1]).groups() for box in boxes if not box[5].get("data-v")]
    assert 0 < sum(int(n) for n, _ in small) <= int(number) and sum(float(part) for _, part in small) <= float(share) + 0.01 * len(small)
    assert all(float(box[4]["width"]) >= 0.3 for box in boxes)


def test_svg_of_hostile_names(profcapture, hostile):
    root, boxes = read_svg(profcapture("export", hostile, "--to", "svg").stdout)
    assert any("<script>alert(1)</script>]]>&\"';" in box[1] for box in boxes)
    assert len(list(root.iter(f"{SVG}script"))) == 1
    assert not any(name.startswith("on") or "href" in name for element in root.iter() for name in element.keys())


def test_svg_in_a_browser(profcapture, chromium, capture, hostile, report, tmp_path):
    page = tmp_path / "x.svg"
    profcapture("export", capture, "--to", "svg", "-o", page)
    shown = "[...document.querySelectorAll('#boxes > g:not(.away)')].length"
    width = "[...document.querySelectorAll('#boxes > g')].find((g) => g.querySelector('title').textContent.startsWith('even\\n')).querySelector('rect').getAttribute('width')"
    click = "[...document.querySelectorAll('#boxes > g')].find((g) => g.querySelector('title').textContent.startsWith('even\\n')).dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    small = "[...document.querySelectorAll('#boxes > g')].filter((g) => / small branch/.test(g.textContent)).reduce((sum, g) => sum + Number(g.querySelector('rect').getAttribute('width')), 0)"
    merged, found, broken, everything, none, before, _, during, wide, after = chromium(
        page, {"open": ""}, {"eval": small},
        {"type": ["#search", "^(even|odd)$"]}, {"text": "#found"}, {"type": ["#search", "("]}, {"text": "#found"},
        {"type": ["#search", "."]}, {"text": "#found"}, {"type": ["#search", ""]}, {"text": "#found"},
        {"eval": shown}, {"eval": click}, {"eval": shown}, {"eval": width}, {"key": "Escape"}, {"eval": shown})
    rows = {row["name"]: row for row in report(capture, "--no-inline")["rows"]}
    total = report(capture)["total"]
    assert broken == ["not a regular expression"] and none == [""]

    def matched(text):
        return float(re.fullmatch(r"matched: ([\d.]+) %", *text)[1])

    # boxes of merged small branches have no names, so no search finds them
    unnamed = 100 * merged / 1180
    assert 0 <= unnamed < 1 and matched(everything) >= 100 - unnamed - 0.006
    # only even() calls odd(), so a sample in both counts once
    share = 100 * rows["even"]["total"] / total
    assert share - unnamed - 0.011 < matched(found) < share + 0.006
    assert during < before == after and float(wide) == 1180
    profcapture("export", hostile, "--to", "svg", "-o", page, "--force")
    chromium(page, {"open": ""}, {"type": ["#search", "script"]})


# ---- comparisons


def lines_of(text):
    return [re.fullmatch(r"(.+) (\d+) (\d+)", line).groups() for line in text.splitlines()]


def test_folded_comparison(profcapture, capture, later, report):
    lines = lines_of(profcapture("export", capture, "--to", "folded", "--no-inline", "--compare", later).stdout)
    total = report(later)["total"]
    # as in diff, shares are compared: both captures are scaled to the total of the later one
    assert sum(int(before) for _, before, _ in lines) == sum(int(now) for *_, now in lines) == total
    assert [line[0] for line in lines] == sorted({line[0] for line in lines}, key=str.encode)
    frames = {line[0].split(";")[0] for line in lines}
    assert {"<renamed>", "own name"} <= frames and not frames & {"turns", "turns2"}
    # diff leaves interrupts out of its shares, exports do not
    change = profcapture.json("diff", capture, later, "--no-inline", "--limit", 0)["data"]
    change = change["rows"] if "rows" in change else change["functions"]
    # diff has two functions "even", because the image was renamed too
    even = {side: sum(row[side] for row in change if row["name"] == "even") for side in "ab"}
    ends = [(int(before), int(now)) for stack, before, now in lines if stack.endswith(";even")]
    assert 100 * sum(before for before, _ in ends) / total == pytest.approx(even["a"], rel=0.1)
    assert 100 * sum(now for _, now in ends) / total == pytest.approx(even["b"], rel=0.1)


@pytest.mark.skipif(not FLAMEGRAPH.exists(), reason="flamegraph.pl is not installed: ./dev setup --peers")
def test_flamegraph_of_a_comparison(profcapture, capture, later, tmp_path):
    profcapture("export", capture, "--to", "folded", "--no-inline", "--compare", later, "-o", tmp_path / "x.folded")
    done = subprocess.run(["perl", FLAMEGRAPH, tmp_path / "x.folded"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "" and re.search(r"even \([\d,]+ samples, [\d.]+%; \+[\d.]+%\)", done.stdout)


def test_svg_comparison(profcapture, capture, later, report):
    _, boxes = read_svg(profcapture("export", capture, "--to", "svg", "--compare", later).stdout)
    total = report(later)["total"]
    assert boxes[0][2:4] == (total, total)
    classes = [(box[5].get("class").rstrip("123"), box[2] - box[3]) for box in boxes if box[5].get("data-v")]
    assert all(kind == "other" or (kind == "more") == (change > 0) for kind, change in classes) and classes[0] == ("other", 0)
    # sum over all threads, because the samples of the second thread have another name until that
    # thread is named
    inside, sums = math.inf, [0, 0]
    for depth, name, *values in (box[:4] for box in boxes):
        inside = math.inf if depth <= inside else inside
        if name == "deep" and inside == math.inf:
            inside, sums = depth, [sums[0] + values[0], sums[1] + values[1]]
    assert 0 < sums[0] < sums[1]
    assert {"more1", "more2", "more3"} & {box[5].get("class") for box in boxes if box[1] == "even"}
    same, _ = read_svg(profcapture("export", later, "--to", "svg", "--compare", later).stdout)
    assert {group.get("class") for group in same.find(f"{SVG}g[@id='boxes']")} == {"other"}


def test_speedscope_comparison(profcapture, capture, later):
    both = json.loads(profcapture("export", capture, "--to", "speedscope", "--compare", later).stdout)
    alone = [json.loads(profcapture("export", path, "--to", "speedscope").stdout) for path in (capture, later)]
    wanted = [(side + thread["name"], [[one["shared"]["frames"][i]["name"] for i in stack] for stack in thread["samples"]], thread["weights"])
              for side, one in zip(("before: ", "after: "), alone) for thread in one["profiles"]]
    frames = [frame["name"] for frame in both["shared"]["frames"]]
    assert [(thread["name"], [[frames[i] for i in stack] for stack in thread["samples"]], thread["weights"]) for thread in both["profiles"]] == wanted
    if (NODE / "speedscope").exists():
        jsonschema.validate(both, json.loads((NODE / "speedscope/dist/release/file-format-schema.json").read_text()))


def test_comparison_of_allocations(profcapture, tmp_path):
    """Bytes are compared as they are, not as shares."""
    sums = []
    for name, events in ("a", 2000), ("b", 6000):
        subprocess.run([os.environ["MAKE_HEAP"], "--events", str(events), tmp_path / f"{name}.cap"], check=True, capture_output=True, timeout=60)
        text = profcapture("export", tmp_path / f"{name}.cap", "--to", "folded", "--value", "alloc-space").stdout
        sums.append(sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines()))
    options = ["--value", "alloc-space", "--compare", tmp_path / "b.cap"]
    lines = lines_of(profcapture("export", tmp_path / "a.cap", "--to", "folded", *options).stdout)
    assert [sum(int(line[i]) for line in lines) for i in (1, 2)] == sums and sums[0] < sums[1]
    _, boxes = read_svg(profcapture("export", tmp_path / "a.cap", "--to", "svg", *options).stdout)
    assert list(boxes[0][3:1:-1]) == sums


def test_comparison_without_a_capture(profcapture, capture, tmp_path):
    done = profcapture("export", capture, "--to", "folded", "--compare", tmp_path / "no.cap", "-o", tmp_path / "x", check=1)
    assert "no.cap" in done.stderr and not (tmp_path / "x").exists()
