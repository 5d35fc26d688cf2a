# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The verb memory, in all formats, on generated captures. The generator counts the expected results
in the simplest way."""
import csv
import io
import json
import os
import re
import subprocess

import pytest
import schema
from slices import SANITIZED, part

MAKE_HEAP = os.environ["MAKE_HEAP"]
VIEWS = [[], ["--leaks"], ["--temporary"], ["--peak"], ["--at", "1ms"], ["--diff", "1ms", "2ms"], ["--sizes"], ["--lifetimes"],
         ["--threads"], ["--cross-thread"], ["--reallocs"]]
HEAPS = [[], ["--epoch", 7000], ["--killed"], ["--checkpoint", 0], ["--threads", 7, "--live", 5000]]
TREES = [[], ["--leaks"], ["--temporary"], ["--peak"], ["--at", "1ms"], ["--diff", "1ms..2ms"], ["--cross-thread"], ["--reallocs"]]


def make(path, *options):
    done = subprocess.run([MAKE_HEAP, *map(str, options), path], check=True, capture_output=True, text=True, timeout=120)
    return path, json.loads(done.stdout)


@pytest.fixture(scope="module", params=part(HEAPS, 3), ids=str)
def heap(request, tmp_path_factory):
    return make(tmp_path_factory.mktemp("memory") / "heap.cap", *request.param)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("memory") / "whole.cap")[0]


def ask(profcapture, capture, *options):
    output = profcapture.json("memory", capture, *options)
    schema.check(profcapture, "memory", output)
    assert not output["truncated"] or "--tree" in options or "--inverted" in options
    return output["data"]


def by_function(data, field):
    return {row["name"]: row[field] for row in data["rows"] if row[field]}


def test_summary(profcapture, heap):
    capture, want = heap
    data = ask(profcapture, capture)
    summary = data["summary"]
    calls = {name: count for name, count in summary["calls"].items() if count}
    assert calls == {name: want[name] for name in ("malloc", "realloc", "free")}
    assert summary["allocations"] == want["malloc"] + want["realloc"]
    for name in "allocated_bytes", "freed_bytes", "temporary":
        assert summary[name] == want[name]
    assert (summary["peak_bytes"], summary["peak_ns"]) == (want["peak"]["bytes"], want["peak_ns"])
    assert (summary["leaked_bytes"], summary["leaked_blocks"]) == (want["leaked"]["bytes"], want["leaked"]["blocks"])
    assert (summary["live_bytes"], summary["live_blocks"]) == (want["leaked"]["bytes"], want["leaked"]["blocks"])
    assert by_function(data, "leaked_bytes") == want["leaked"]["functions"]
    assert by_function(data, "peak_bytes") == want["peak"]["functions"]
    assert summary["lost"] == summary["failed"] == summary["foreign_frees"] == 0 and not data["incomplete"]
    [process] = data["processes"]
    assert process["pid"] == 1000 and process["comm"] == "made-up" and process["excluded"] is None
    for name in summary:
        assert process[name] == summary[name], name
    for field in "allocations", "allocated_bytes", "freed_bytes", "live_bytes", "temporary":
        assert sum(row[field] for row in data["rows"]) == summary[field], field


def test_time_of_the_peak(profcapture, heap):
    """Text has three digits of the peak's time. JSON has all, so --at with that time shows the
    peak."""
    capture, want = heap
    found = re.search(r"^The heap was largest at ([\d.]+) (ns|us|ms|s), with ", profcapture("memory", "--peak", capture).stdout, re.M)
    time = ask(profcapture, capture, "--peak")["summary"]["peak_ns"]
    assert float(found[1]) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[found[2]] == pytest.approx(time, rel=0.01)
    assert ask(profcapture, capture, "--at", f"{time}ns")["summary"]["live_bytes"] == want["peak"]["bytes"]


def test_what_lives(profcapture, heap):
    capture, want = heap
    for options, key in ((["--leaks"], "leaked"), (["--peak"], "peak"), (["--at", f"{want['at_ns']}ns"], "then")):
        data = ask(profcapture, capture, *options)
        field = "leaked" if key == "leaked" else "live"
        assert data["view"] == options[0][2:]
        assert data["summary"][field + "_bytes"] == want[key]["bytes"]
        assert data["summary"][field + "_blocks"] == want[key]["blocks"]
        assert by_function(data, field + "_bytes") == want[key]["functions"]
        root = ask(profcapture, capture, *options, "--tree", "--limit", 0)["root"]
        assert (root["total_bytes"], root["total_blocks"]) == (want[key]["bytes"], want[key]["blocks"])
        check_tree(root)
    assert data["at_ns"] == want["at_ns"]


def check_tree(node):
    for field in "bytes", "blocks":
        assert node["total_" + field] == node["self_" + field] + sum(child["total_" + field] for child in node["children"])
    for child in node["children"]:
        check_tree(child)


def test_cut(profcapture, heap, tmp_path):
    """A part cut from a capture has the blocks that were live when it began, so its results equal
    those of the whole capture for the same time."""
    capture, _ = heap
    part = tmp_path / "part.cap"
    profcapture("cut", "--from", "1ms", "--to", "2ms", "-o", part, capture)
    for there, here in (([], []), (["--peak"], ["--peak"]), (["--at", "2ms"], ["--at", "1ms"]), (["--diff", "1ms", "2ms"], ["--diff", "0s", "1ms"])):
        stretch = [] if there and there[0] != "--peak" else ["--from", "1ms", "--to", "2ms"]
        want, got = ask(profcapture, capture, *there, *stretch, "--limit", 0), ask(profcapture, part, *here, "--limit", 0)
        for name in "live_bytes", "live_blocks", "peak_bytes", "allocations", "allocated_bytes", "freed_bytes":
            assert got["summary"][name] == want["summary"][name], name
        for row in want["rows"] + got["rows"]:
            row.pop("peak_ns")
        assert there == [] or got["rows"] == want["rows"]


def test_diff(profcapture, heap):
    capture, want = heap
    later = f"{want['at_ns'] * 3 // 2}ns"
    before = by_function(ask(profcapture, capture, "--at", f"{want['at_ns']}ns"), "live_bytes")
    after = by_function(ask(profcapture, capture, "--at", later), "live_bytes")
    for options in ["--diff", f"{want['at_ns']}ns", later], ["--diff", f"{want['at_ns']}ns..{later}"]:
        data = ask(profcapture, capture, *options)
        assert {row["name"]: row["delta_bytes"] for row in data["rows"] if row["delta_bytes"]} == {
            name: after.get(name, 0) - before.get(name, 0) for name in before.keys() | after.keys() if after.get(name, 0) != before.get(name, 0)}
        assert by_function(data, "before_bytes") == before


def test_other_rows(profcapture, heap):
    """The rows of each other view add up to the totals of the summary."""
    capture, want = heap
    sizes, threads = ask(profcapture, capture, "--sizes"), ask(profcapture, capture, "--threads")
    for data in sizes, threads:
        for field in "allocations", "allocated_bytes", "freed_bytes", "live_bytes", "leaked_bytes", "peak_bytes", "temporary":
            assert sum(row[field] for row in data["rows"]) == data["summary"][field], field
        for name in "malloc", "realloc", "free":
            assert sum(row["calls"][name] for row in data["rows"]) == want[name]
    for row, following in zip(sizes["rows"], sizes["rows"][1:]):
        assert row["size_to"] < following["size_from"]
        assert row["size_from"] * row["allocations"] <= row["allocated_bytes"] <= row["size_to"] * row["allocations"]
    lived = ask(profcapture, capture, "--lifetimes")["rows"]
    assert sum(row["allocated_bytes"] for row in lived) == want["freed_bytes"]
    assert lived[-1]["lifetime_from_ns"] is None and lived[-1]["leaked_bytes"] == want["leaked"]["bytes"]
    pairs = ask(profcapture, capture, "--cross-thread")["rows"]
    assert sum(row["calls"]["free"] for row in pairs if row["alloc_tid"] != row["free_tid"]) == want["crossed"]
    assert sum(row["freed_bytes"] for row in pairs) == want["freed_bytes"]
    reallocs = ask(profcapture, capture, "--reallocs")["rows"]
    assert sum(row["reallocs"] for row in reallocs) == want["realloc"]


def test_ranges_add_up(profcapture, heap):
    capture, want = heap
    parts = [ask(profcapture, capture, "--to", f"{want['at_ns']}ns"), ask(profcapture, capture, "--from", f"{want['at_ns'] + 1}ns")]
    for field in "allocations", "allocated_bytes", "freed_bytes", "leaked_bytes":
        whole = want["malloc"] + want["realloc"] if field == "allocations" else want[field] if field in want else want["leaked"]["bytes"]
        assert sum(part["summary"][field] for part in parts) == whole, field
    assert parts[0]["summary"]["live_bytes"] == want["then"]["bytes"]
    assert parts[1]["summary"]["live_bytes"] == want["leaked"]["bytes"]
    assert max(part["summary"]["peak_bytes"] for part in parts) == want["peak"]["bytes"]
    for part in parts:
        assert sum(row["peak_bytes"] for row in part["rows"]) == part["summary"]["peak_bytes"]


def test_threads_pass(profcapture, heap):
    capture, want = heap
    threads = ask(profcapture, capture, "--threads")["rows"]
    for options in ["--tid", 1000], ["--pid", 1000], ["--pid", 7], ["--tid", 7], ["--comm", "made-up"]:
        rows = [row for row in threads
                if {"--tid": row["tid"], "--pid": row["pid"], "--comm": row["comm"]}[options[0]] == options[1]]
        data = ask(profcapture, capture, *options)
        for field in "allocations", "allocated_bytes", "leaked_bytes", "live_bytes":
            assert data["summary"][field] == sum(row[field] for row in rows), (options, field)
        assert data["summary"]["calls"]["free"] == sum(row["calls"]["free"] for row in rows)
        leaks = ask(profcapture, capture, "--leaks", *options)
        assert leaks["summary"]["leaked_bytes"] == data["summary"]["leaked_bytes"]
        peak = ask(profcapture, capture, "--peak", *options)
        assert peak["summary"]["peak_bytes"] == data["summary"]["peak_bytes"]


@pytest.mark.parametrize("view", part(VIEWS, 6), ids=str)
def test_formats(profcapture, whole, view):
    output = profcapture.json("memory", whole, *view)
    schema.check(profcapture, "memory", output)
    rows = output["data"]["rows"]
    assert rows
    lines = profcapture("memory", whole, *view, "--format", "ndjson").stdout.splitlines()
    assert [json.loads(line) for line in lines[1:]] == rows and json.loads(lines[0])["schema"] == "profcapture.memory/1"
    table = list(csv.DictReader(io.StringIO(profcapture("memory", whole, *view, "--format", "csv").stdout)))
    assert [{name: "" if value is None else json.dumps(value, separators=(",", ":")) if isinstance(value, dict) else str(value)
             for name, value in row.items()} for row in rows] == table
    text = profcapture("memory", whole, *view, "--limit", 1).stdout
    if view == ["--leaks"]:  # text has a row for each stack
        places = int(re.search(r", (\d+) places? ", text)[1])
        assert places == output["data"]["stacks_total"] > 1 and f"\n{places - 1} more places, " in text
    else:  # text has no row for a function that only calls functions with blocks
        hidden = re.search(r"\n(\d+) more (function|row)s?\b.* \(--limit 0\)\n", text)
        assert hidden and 0 < int(hidden[1]) < len(rows)
    assert profcapture.json("memory", whole, *view, "--limit", 1)["truncated"] == (len(rows) > 1)
    assert text == profcapture("memory", whole, *view, "--limit", 1).stdout


@pytest.mark.parametrize("view", part(TREES, 4), ids=str)
def test_trees(profcapture, whole, view):
    """The nodes of a function in a tree add up to the function's row."""
    root = ask(profcapture, whole, *view, "--tree", "--limit", 0)["root"]
    check_tree(root)
    assert root["name"] == "<root>" and root["total_blocks"] > 0
    if view not in ([], ["--cross-thread"]):
        self_blocks = {}
        walk = [root]
        while walk:
            node = walk.pop()
            self_blocks[node["name"]] = self_blocks.get(node["name"], 0) + node["self_blocks"]
            walk += node["children"]
        field = {"--leaks": "leaked_blocks", "--temporary": "temporary", "--reallocs": "reallocs"}.get(view[0], "live_blocks")
        rows = by_function(ask(profcapture, whole, *view), field)
        assert {name: count for name, count in self_blocks.items() if count} == rows
    text = profcapture("memory", whole, *view, "--tree").stdout
    assert "f1" in text and "\nBranches below 1 % are not shown (--limit 0).\n" in text
    assert profcapture.json("memory", whole, *view, "--tree", "--limit", 1)["truncated"]


def test_bytes_of_rows(profcapture, whole):
    """In JSON, the rows of --temporary and --reallocs have the bytes of the inverted tree."""
    for view, count in ("--temporary", "temporary"), ("--reallocs", "reallocs"):
        rows = ask(profcapture, whole, view)["rows"]
        root = ask(profcapture, whole, view, "--inverted", "--limit", 0)["root"]
        assert {row["name"]: (row["self_bytes"], row[count]) for row in rows if row[count]} == {
            node["name"]: (node["total_bytes"], node["total_blocks"]) for node in root["children"]}


def paths(root, flip):
    """Returns {functions from the root on: (bytes, blocks)} of a tree. flip: it is inverted."""
    found, walk = {}, [(root, ())]
    while walk:
        node, path = walk.pop()
        if node is not root:
            path = (node["name"], *path) if flip else (*path, node["name"])
        if node["self_blocks"]:
            found[path] = (node["self_bytes"], node["self_blocks"])
        walk += [(child, path) for child in node["children"]]
    return found


@pytest.mark.parametrize("view", part(TREES, 4, 1), ids=str)
def test_inverted(profcapture, whole, view):
    """An inverted tree has the stacks of the tree, but from the leaf to the root."""
    root = ask(profcapture, whole, *view, "--inverted", "--limit", 0)["root"]
    check_tree(root)
    assert paths(root, True) == paths(ask(profcapture, whole, *view, "--tree", "--limit", 0)["root"], False)
    if view not in ([], ["--cross-thread"], ["--diff", "1ms..2ms"]):
        rows = {row["name"]: row for row in ask(profcapture, whole, *view)["rows"]}
        field = {"--leaks": "leaked_blocks", "--temporary": "temporary", "--reallocs": "reallocs"}.get(view[0], "live_blocks")
        assert {node["name"]: node["total_blocks"] for node in root["children"]} == {
            name: row[field] for name, row in rows.items() if row[field]}
    text = profcapture("memory", whole, *view, "--inverted").stdout
    assert "f1" in text and "\nBranches below 1 % are not shown (--limit 0).\n" in text
    cut = ask(profcapture, whole, *view, "--inverted", "--limit", 3)["root"]
    assert len(cut["children"]) == 3 and cut["total_blocks"] == root["total_blocks"]


def test_suppressions(profcapture, whole, tmp_path):
    rules = tmp_path / "rules"
    rules.write_text("# what is known\nleak:^f1$\nleak:no such function\n")
    plain, data = ask(profcapture, whole, "--leaks"), ask(profcapture, whole, "--leaks", "--suppressions", rules)
    one, none = data["suppressed"]
    assert one["pattern"] == "^f1$" and one["bytes"] > 0 and none == {"pattern": "no such function", "bytes": 0, "blocks": 0}
    assert data["summary"]["leaked_bytes"] + one["bytes"] == plain["summary"]["leaked_bytes"]
    assert "f1" not in by_function(data, "leaked_bytes")
    # f1 also calls other functions, whose blocks are suppressed with f1's own
    assert one["bytes"] > by_function(plain, "leaked_bytes")["f1"]
    assert re.search(r" blocks \(.*\) suppressed by --suppressions\.\n", profcapture("memory", whole, "--leaks", "--suppressions", rules).stdout)
    rules.write_text("leak:lib/made-up\n")
    assert ask(profcapture, whole, "--leaks", "--suppressions", rules)["summary"]["leaked_blocks"] == 0
    rules.write_text("leak f1\n")
    assert "line 1" in profcapture("memory", whole, "--leaks", "--suppressions", rules, check=2).stderr
    errors = profcapture("memory", whole, "--suppressions", tmp_path / "none", check=1).stderr
    assert errors == f"profcapture: cannot read suppressions '{tmp_path / 'none'}': No such file or directory\n"


def test_options(profcapture, whole):
    for options, message in (
        (["--leaks", "--peak"], "--peak cannot be combined with --leaks"),
        (["--at", "1s", "--sizes"], "cannot be combined with"),
        (["--sizes", "--tree"], "--tree cannot be combined with --sizes"),
        (["--sizes", "--inverted"], "--inverted cannot be combined with --sizes"),
        (["--tree", "--format", "csv"], "--tree is printed as text or json"),
        (["--diff", "1s"], "--diff takes two times"),
        (["--diff", "2s", "1s"], "is after"),
        (["--at", "1s", "--from", "0"], "--from and --to do not go with --at"),
        (["--threshold", "-1"], "--threshold"),
        (["--peak", "--suppressions", "/dev/null"], "--suppressions cannot be combined with --peak"),
        (["--at", "1s", "--suppressions", "/dev/null"], "--suppressions cannot be combined with --at"),
        (["--diff", "1s", "2s", "--suppressions", "/dev/null"], "--suppressions cannot be combined with --diff"),
        (["--peak", "--no-suppressions"], "--no-suppressions cannot be combined with --peak"),
        (["--timeline", "--suppressions", "/dev/null"], "--suppressions cannot be combined with --timeline"),
        (["--timeline", "--tree"], "--tree cannot be combined with --timeline"),
        (["--timeline", "--by-blocks"], "--by-blocks cannot be combined with --timeline"),
        (["--leaks", "--threshold", "1"], "--threshold cannot be combined with --leaks"),
        (["--leaks", "--within", "1s"], "--within cannot be combined with --leaks"),
        (["--peak", "--threshold", "2"], "--threshold cannot be combined with --peak"),
        (["--at", "1s", "--within", "1s"], "--within cannot be combined with --at"),
        (["--at", "soon"], "--at"),
        (["--at", "@mark:none"], "has no mark 'none'"),
    ):
        assert message in profcapture("memory", whole, *options, check=2).stderr, options


def test_temporary_by_threshold(profcapture, whole):
    found = [ask(profcapture, whole, "--threshold", n)["summary"]["temporary"] for n in (0, 1, 2, 100, 1 << 20)]
    assert found == sorted(found) and found[0] < found[-1]
    by_time = [ask(profcapture, whole, "--temporary", "--within", t)["summary"]["temporary"] for t in ("0ns", "1us", "1ms", "1h")]
    assert by_time == sorted(by_time) and by_time[0] == 0
    assert by_time[-1] == ask(profcapture, whole)["summary"]["calls"]["free"]


def column(profcapture, capture, title, *options):
    """Returns the values in a column of the text of memory."""
    *_, table = profcapture("memory", capture, *options, "--color", "never").stdout.split("\n\n")
    titles, *rows = table.splitlines()
    index = titles.split("  ").index(title)
    return {row.split("  ")[index] for row in rows if " more " not in row}


def test_sampled(profcapture, tmp_path):
    """Values that a sampled recording cannot provide are null, and a dash in text."""
    path, _ = make(tmp_path / "sampled.cap", "--sampled", 4096, "--events", 2000)
    assert {row["longest_chain"] for row in ask(profcapture, path, "--reallocs")["rows"]} == {None}
    assert column(profcapture, path, "in a row", "--reallocs") == {"-"}
    for view in "--sizes", "--lifetimes", "--threads", "--cross-thread":
        assert {row["temporary"] for row in ask(profcapture, path, view)["rows"]} == {None}
        assert column(profcapture, path, "temporary", view) == {"-"}
        assert "-" not in column(profcapture, path, "temporary", view, "--within", "1us")


def test_one(profcapture, tmp_path):
    path, _ = make(tmp_path / "one.cap", "--events", 1)
    for options, line in ((["--leaks"], "Not freed at exit: .* in 1 block, 1 place \\(still reachable or not: unknown\\)\\."),
                          (["--peak"], "The heap was largest at [\\d.]+ .?s, with .* in 1 block\\."),
                          (["--at", "-0s"], "At .* s the heap had .* in 1 block\\.")):
        first, *others = profcapture("memory", path, *options, "--color", "never").stdout.split("\n\n")[0].splitlines()
        assert re.fullmatch(line, first) and others[-1] == "Lost: nothing."


def test_no_row_without_numbers(profcapture, heap):
    """Text has no rows whose numbers are all empty, and --timeline has no row for the end if no
    block is live then."""
    capture, want = heap
    if want["leaked"]["blocks"]:
        for view in "--temporary", "--reallocs":
            text = profcapture("memory", capture, view, "--limit", 0).stdout
            for line in text.split("\n\n")[1].splitlines()[1:] if "\n\n" in text else []:
                assert re.match(r" *[\d>≥<]", line) and not line.startswith(" " * 24), line
    *_, last = profcapture("memory", capture, "--timeline").stdout.splitlines()
    assert len(last.split()) > 2, last


def test_nothing_matches(profcapture, heap):
    """If the capture lacks a process or a time, memory fails; it does not say that nothing
    leaked."""
    capture, _ = heap
    for options, message in ((["--leaks", "--pid", 5], "no process 5 in "), (["--from", "999h"], "nothing from "),
                             (["--at", "999h"], "nothing from "), (["--diff", "998h", "999h"], "nothing from ")):
        done = profcapture("memory", capture, *options, check=6)
        assert done.stdout == "" and message in done.stderr
        assert message in profcapture("memory", capture, *options, "--json").stderr


def test_timeline(profcapture, heap):
    """In every format, a point has what --at shows for its time, and --limit sets the number of
    points, up to 1000."""
    capture, want = heap
    points = ask(profcapture, capture, "--timeline")["series"]
    assert len(points) == 240 and points == sorted(points, key=lambda point: point["time_ns"])
    assert {point["rss_bytes"] for point in points} == {None}  # not recorded
    for point in points[::40] + points[-1:]:
        then = ask(profcapture, capture, "--at", f"{point['time_ns']}ns")
        assert (point["live_bytes"], point["live_blocks"]) == (then["summary"]["live_bytes"], then["summary"]["live_blocks"])
        if point["live_bytes"]:
            assert point["largest_bytes"] == by_function(then, "live_bytes")[point["largest"]] == max(row["live_bytes"] for row in then["rows"])
        else:
            assert (point["largest"], point["largest_bytes"]) == (None, 0)
    data = ask(profcapture, capture, "--timeline", "--limit", 7)
    assert len(data["series"]) == 7 and data["summary"]["peak_bytes"] == want["peak"]["bytes"] and data["summary"]["peak_ns"] == want["peak_ns"]
    lines = profcapture("memory", capture, "--timeline", "--limit", 7, "--format", "ndjson").stdout.splitlines()
    assert [json.loads(line) for line in lines[1:]] == data["series"]
    table = list(csv.DictReader(io.StringIO(profcapture("memory", capture, "--timeline", "--limit", 7, "--format", "csv").stdout)))
    assert [{name: "" if value is None else str(value) for name, value in point.items()} for point in data["series"]] == table
    assert len(ask(profcapture, capture, "--timeline", "--limit", 10**9)["series"]) == 1000
    text = profcapture("memory", capture, "--timeline").stdout
    assert re.match(r"Live heap, 0-\S+ s, at most .*:  [ ▁▂▃▄▅▆▇█.:=+*#@-]+\n", text)
    assert 1 + 4 <= len(text.split("\n\n")[1].splitlines()) <= 1 + 10
    part = ask(profcapture, capture, "--timeline", "--from", "1ms", "--to", "2ms", "--limit", 2)["series"]
    assert [point["time_ns"] for point in part] == [1500000, 2000000]


def test_timeline_steps(profcapture, tmp_path):
    """In text, rows are at round times, except for the last one: the end."""
    units = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
    path, _ = make(tmp_path / "steps.cap", "--events", 3000)
    end = json.loads(profcapture("info", path, "--json").stdout)["capture"]["duration_ns"]
    for options, limit in ([], 10), (["--limit", 3], 3), (["--from", f"{end // 3}ns"], 10):
        lines = profcapture("memory", path, "--timeline", *options).stdout.split("\n\n")[1].splitlines()[1:]
        times = [round(float(line.split()[0]) * units[line.split()[1]]) for line in lines]
        step = times[1] - times[0]
        assert re.fullmatch("[125]0*", str(step)) and len(times) <= limit, (times, end)
        assert all(time % step == 0 for time in times[:-1]) and times[-1] <= end * 1.01, (times, end)


LEAKING = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
static std::vector<char *> *all;
static inline char *copy(int size) { char *made = (char *)malloc(size); asm volatile("" : : "r"(made) : "memory"); return made; }
__attribute__((noinline)) static void parse(int i) {
	copy(100);
	all->push_back(i ? nullptr : (char *)all);
}
int main() {
	all = new std::vector<char *>;
	for (int i = 0; i < 1000; i++)
		parse(i);
	printf("done\n");
	return 0;
}
"""


def test_own_code(profctl, profcapture, compile_c, tmp_path):
    """Text names the program's own lines instead of the library's internal ones, and leaves out
    what the runtime never frees; JSON has everything."""
    if SANITIZED:
        pytest.skip("the collector is not loaded into sanitized programs")
    (tmp_path / "leaking.cpp").write_text(LEAKING)
    subprocess.run(["g++", "-O2", "-g", "-o", tmp_path / "leaking", tmp_path / "leaking.cpp"], check=True)
    capture = tmp_path / "leaking.cap"
    profctl("record", "--memory", "-F", 0, "-q", "-o", capture, "--", tmp_path / "leaking")
    text = profcapture("memory", "--leaks", capture).stdout
    assert re.search(r"^97\.7 KiB +1000 blocks +\d\d\.\d %  copy \(inlined\)  leaking\.cpp:6\n    parse  leaking\.cpp:8\n    main  leaking\.cpp:14\n", text, re.M)
    assert re.search(r" 1 block +\d+\.\d %  parse  leaking\.cpp:9\n    std::vector<char\*>::push_back.*\n    main  leaking\.cpp:14\n", text)
    assert "_M_realloc_insert" not in text and "_start" not in text
    assert re.search(r"^Suppressed: \d+ blocks?, .*\bstdio buffers\b.* \(--no-suppressions\)\.$", text, re.M)
    everything = profcapture("memory", "--leaks", "--no-suppressions", capture).stdout
    assert "Suppressed" not in everything and re.search(r"^    (_IO_puts|puts|printf)", everything, re.M)
    data = ask(profcapture, capture, "--leaks")
    suppressed = {pool["pool"]: pool["leaked_bytes"] for pool in data["runtime"]}
    assert suppressed["stdio buffers"] > 0
    assert data["summary"]["leaked_bytes"] == sum(stack["leaked_bytes"] for stack in data["stacks"]) == sum(row["leaked_bytes"] for row in data["rows"])
    for name, size in suppressed.items():
        assert sum(stack["leaked_bytes"] for stack in data["stacks"] if stack["runtime"] == name) == size
    first = data["stacks"][0]
    assert [(frame["name"], os.path.basename(frame["file"] or ""), frame["line"], frame["inline"]) for frame in first["frames"][:3]] == [
        ("copy", "leaking.cpp", 6, True), ("parse(int)", "leaking.cpp", 8, False), ("main", "leaking.cpp", 14, False)]
    assert "runtime" not in ask(profcapture, capture, "--leaks", "--no-suppressions")
    assert len(profcapture.json("memory", "--leaks", "--limit", 1, capture)["data"]["stacks"]) == 1
    summary = profcapture("memory", capture).stdout
    assert re.search(r"^97\.7 KiB +1000 +97\.7 KiB  copy  leaking\.cpp:6$", summary, re.M)
    assert re.search(r" std::vector<char\*>::push_back < parse  leaking\.cpp:9$", summary, re.M)
    assert re.search(r"^Not freed at exit: .* blocks\. \d+ runtime blocks? \(.*\) suppressed\.$", summary, re.M)
    assert "copy" not in profcapture("memory", "--no-inline", capture).stdout
    # the pool of libstdc++ has more than 64 KiB
    for options, size in ([], "0"), (["--no-suppressions"], r"\d\d\.\d KiB"):
        assert re.search(rf"  {size}  65536 - 131071$", profcapture("memory", "--sizes", *options, capture).stdout.replace("\u00a0", " "), re.M), options


def test_other_captures(profcapture, tmp_path):
    """A capture without allocations has no result. If it has losses, they are reported first."""
    path = tmp_path / "other.cap"
    subprocess.run([os.environ["MAKE_CAPTURE"], "--rows", "100", path], check=True)
    for view in part(VIEWS, 5):
        done = profcapture("memory", path, *view, check=6)
        assert done.stdout == "" and "has no allocations. Record them: profctl record --memory -- " in done.stderr
    subprocess.run([os.environ["MAKE_CAPTURE"], "--append", "--first", "100", "--only", "loss", "--rows", "50", path], check=True)
    for view in part(VIEWS, 5, 1):
        data = ask(profcapture, path, *view, *([] if view[:1] in (["--at"], ["--diff"]) else ["--from", "0"]))
        if view[:1] not in (["--at"], ["--diff"]):
            assert data["incomplete"] and data["summary"]["lost"] > 0
            assert re.match(r"\d+ records were lost \([\d.<]+ % of all\): ", profcapture("memory", path, *view).stdout)


def test_memory(tmp_path):
    """The verb memory needs no more memory for ten times as many rows with as many live blocks."""
    if SANITIZED:
        pytest.skip("a sanitizer keeps what was freed")
    paths = [make(tmp_path / f"{events}.cap", "--events", events)[0] for events in (30000, 300000)]
    for view in [], ["--leaks"], ["--peak"], ["--at", "-0s"], ["--timeline"]:
        took = []
        for path in paths:
            command = [os.environ["PEAK_MEMORY"], os.environ["PROFCAPTURE"], "memory", path, *view]
            took.append(json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)["bytes"])
        assert took[1] - took[0] < 4 << 20, (view, took)


LEAKS = """
#include <string>
#include <vector>
namespace shop {
struct Order { std::string id; char pad[40]; Order(const char *id) : id(id) {} };
struct Cache {
	std::vector<Order> orders;
	Cache() { kept = new char[24]; }
	__attribute__((noinline)) void put(const Order &order) { orders.push_back(order); }
	char *kept;
};
Cache *cache = new Cache;
}
int main()
{
	for (int i = 0; i < 100; i++)
		shop::cache->put(shop::Order("a name that does not fit into the object itself"));
	_Exit(0);
}
"""


def test_leaks_of_one_place(profctl, profcapture, require, tmp_path):
    """Places that look the same in text are shown as one. A file's constructors are called "static
    initialization of" the file."""
    if SANITIZED:
        pytest.skip("the collector is not loaded into sanitized programs")
    require("g++")
    (tmp_path / "leaks.cpp").write_text(LEAKS)
    subprocess.run(["g++", "-g", "-O2", "leaks.cpp", "-o", "leaks"], cwd=tmp_path, check=True)
    profctl("record", "--memory", "-o", tmp_path / "cap", "--", tmp_path / "leaks")
    text = profcapture("memory", tmp_path / "cap", "--leaks").stdout
    places = re.findall(r" %  (.*\n(?:    .*\n)*)", text)
    shown = {re.sub(r"  \+\d+|  \(\d+ sites\)", "", place) for place in places}
    assert len(shown) == len(places) >= 3, text
    assert "static initialization of leaks.cpp" in text and "_GLOBAL__sub" not in text, text
    assert "_GLOBAL__sub_I_" in profcapture("memory", tmp_path / "cap", "--leaks", "--full-names").stdout
