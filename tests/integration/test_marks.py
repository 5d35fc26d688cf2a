# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The verbs marks and counters print what this test computes from the rows of dump, even for rows
that are random."""
import csv
import io
import json
import math
import os
import re
import struct
import subprocess
from collections import defaultdict

import pytest
import schema
from captures import make, rows
from slices import SANITIZED

ROWS = 3200


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Two segments of one boot, several epochs, and marks that begin and end at random."""
    path = make(tmp_path_factory.mktemp("marks") / "whole.cap", "--all-tables", "--rows", ROWS, "--epochs", 3)
    return make(path, "--append", "--first", ROWS + 10, "--all-tables", "--rows", 500)


@pytest.fixture(scope="module")
def found(profcapture, whole):
    """The marks, combined as docs/format.md specifies: (kind, start, end, pid, tid, group,
    name)."""
    process = {row["id"]: row["process"] for row in rows(profcapture, whole, "thread")}  # ids are the same in each epoch
    first, second, marks = [], [], rows(profcapture, whole, "mark")
    for row in marks:
        (first if row["time_ns"] < ROWS * 500000 else second).append(row)
    assert len(first) == ROWS and len(second) == 500
    return [*pair(first, process), *pair(second, process)]


def pair(marks, process):
    found, begun = [], defaultdict(list)
    for row in marks:
        at, mark = row["time_ns"], (row["pid"], row["tid"], row["group"], row["name"])
        key = (row["id"], process[row["thread"]] if row["id"] else row["thread"], row["group"], row["name"])
        if row["kind"] == "instant":
            found.append(("instant", at, at, *mark))
        elif row["kind"] == "complete":
            found.append(("span", at - row["duration"], at, *mark))
        elif row["kind"] == "begin":
            begun[key].append((at, mark))
        elif begun[key]:
            begin, mark = begun[key].pop()
            found.append(("span", begin, at, *mark))
        else:
            found.append(("no begin", at, at, *mark))
    return found + [("no end", start, start, *mark) for left in begun.values() for start, mark in left]


def nearest_rank(durations, percent):
    return sorted(durations)[math.ceil(len(durations) * percent / 100) - 1]


def expected(found):
    series = defaultdict(lambda: {"durations": [], "count": 0, "no end": 0, "no begin": 0})
    for kind, start, end, _, _, group, name in found:
        at = series[group, name, "instant" if kind == "instant" else "span"]
        if kind == "span":
            at["durations"].append(end - start)
        if kind in ("no end", "no begin"):
            at[kind] += 1
        else:
            at["count"] += 1
    answer = {}
    for key, at in series.items():
        d = at["durations"]
        times = [sum(d), min(d), math.floor(sum(d) / len(d) + 0.5), *(nearest_rank(d, p) for p in (50, 95, 99)), max(d)] if d else [None] * 7
        answer[key] = [at["count"], *times, at["no end"], at["no begin"]]
    return answer


FIELDS = ["count", "total_ns", "min_ns", "mean_ns", "median_ns", "p95_ns", "p99_ns", "max_ns", "unmatched_begin", "unmatched_end"]


def answer(profcapture, whole, *options):
    output = profcapture.json("marks", whole, *options)
    schema.check(profcapture, "marks", output)
    return {(row["group"], row["name"], row["kind"]): [row[field] for field in FIELDS] for row in output["data"]["rows"]}


def test_marks(profcapture, whole, found):
    kinds = [kind for kind, *_ in found]
    assert all(kinds.count(kind) > ROWS // 20 for kind in ("span", "instant", "no begin", "no end"))
    assert answer(profcapture, whole) == expected(found)


def test_filters(profcapture, whole, found):
    """Filters select a mark by its start and the thread that began it, so the counts of adjacent
    ranges add up."""
    _, middle, _, pid, tid, _, _ = found[len(found) // 2]
    early, late = f"{middle - 1}ns", f"{middle}ns"
    for options, passes in (
        (["--from", late], lambda at: at[1] >= middle),
        (["--to", early], lambda at: at[1] < middle),
        (["--from", late, "--pid", pid], lambda at: at[1] >= middle and at[3] == pid),
        (["--tid", tid], lambda at: at[4] == tid),
        (["--pid", "4294967295"], lambda at: False),
    ):
        assert answer(profcapture, whole, *options) == expected(filter(passes, found)), options


def test_one_after_the_other(profcapture, whole, found):
    """csv and ndjson have the rows of JSON. Text has those with the longest total time, and counts
    the others."""
    output = profcapture.json("marks", whole)["data"]["rows"]
    assert [row["total_ns"] or 0 for row in output] == sorted((row["total_ns"] or 0 for row in output), reverse=True)
    lines = profcapture("marks", whole, "--format", "ndjson").stdout.splitlines()
    assert [json.loads(line) for line in lines[1:]] == output and json.loads(lines[0])["schema"] == "profcapture.marks/1"
    table = list(csv.DictReader(io.StringIO(profcapture("marks", whole, "--format", "csv").stdout)))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in output] == table
    text = profcapture("marks", whole, "--limit", 3).stdout
    threads = {mark[3:5] for mark in found if mark[0] == "span" and mark[5:] == (output[0]["group"], output[0]["name"])}
    said = re.search(r"^(\d+) .* took .*? over (\d+) threads", text, re.MULTILINE)
    assert said and (int(said[1]), int(said[2])) == (output[0]["count"], len(threads)), (text, threads)
    assert f"{len(output) - 3} more rows (--limit 0)" in text and output[0]["name"] in text and "without an end" in text


def test_from_mark_to_mark(profcapture, whole, found):
    """@mark:NAME in a range is the first mark of that name, which may consist of two rows, its
    begin and its end."""
    found = [at for at in found if at[0] != "no begin" and at[6]]
    end_of_all = profcapture.json("marks", whole)["capture"]["duration_ns"]
    first = {}
    for kind, start, end, *_, name in sorted(found, key=lambda at: (at[1], -at[2])):
        first.setdefault(name, (kind, start, end_of_all if kind == "no end" else end))
    kinds = {kind: name for name, (kind, _, _) in first.items()}
    assert {"span", "instant"} <= kinds.keys()
    times = [row["time_ns"] for row in rows(profcapture, whole, "sample")]
    for name in kinds.values():
        _, start, end = first[name]
        for options, passes in ((["--from", f"@mark:{name}"], lambda t: start <= t), (["--to", f"@mark:{name}"], lambda t: t <= end),
                                (["--from", f"@mark:{name}..@mark:{name}"], lambda t: start <= t <= end)):
            report = profcapture.json("report", whole, *options)
            assert report["data"]["self_total"] == sum(map(passes, times)), (name, options)


def test_per_mark(profcapture, whole, found):
    """--per-mark NAME counts a sample if its process (with --mark-scope thread: its thread) has an
    open mark of that name."""
    process = {row["id"]: row["process"] for row in rows(profcapture, whole, "thread")}
    assert len({(row["pid"], row["tid"]) for row in rows(profcapture, whole, "thread")}) == len(process)
    thread = {(row["pid"], row["tid"]): row["id"] for row in rows(profcapture, whole, "thread")}
    name = max((at[6] for at in found if at[0] == "span" and at[6]), key=[at[6] for at in found].count)
    samples = rows(profcapture, whole, "sample")
    for options, low, high in (([], -math.inf, math.inf), (["--from", "0.5s", "--to", "2s"], 5 * 10**8, 2 * 10**9)):
        named = [at for at in found if at[6] == name and at[1] <= high and at[2] >= low]
        for scope, owner in (("process", lambda pid, tid: process[thread[pid, tid]]), ("thread", lambda pid, tid: thread[pid, tid])):
            spans = defaultdict(list)
            for _, start, end, pid, tid, *_ in (at for at in named if at[0] == "span"):
                spans[owner(pid, tid)].append((start, end))
            inside = [row for row in samples if low <= row["time_ns"] <= high
                      and any(start <= row["time_ns"] <= end for start, end in spans[owner(row["pid"], row["tid"])])]
            for by in "function", "thread":
                report = profcapture.json("report", whole, "--per-mark", name, "--mark-scope", scope, "--by", by, *options)
                schema.check(profcapture, "report", report)
                data = report["data"]
                assert data["self_total"] == sum(row["self"] for row in data["rows"]) == len(inside) > 0
            kinds = [at[0] for at in named]
            assert data["per_mark"] == {
                "name": name, "scope": scope, "spans": kinds.count("span"), "total_ns": sum(at[2] - at[1] for at in named if at[0] == "span"),
                "unmatched_begin": kinds.count("no end"), "unmatched_end": kinds.count("no begin"), "incomplete": True}
    assert f"Inside of {kinds.count('span')} spans of '{name}'" in profcapture("report", whole, "--per-mark", name, *options).stdout
    assert "per_mark" not in profcapture.json("report", whole)["data"]
    assert "has no mark 'nothing'" in profcapture("report", whole, "--per-mark", "nothing", check=2).stderr
    assert "--per-mark" in profcapture("report", whole, "--mark-scope", "thread", check=2).stderr


def test_arguments(profcapture, whole):
    """A mark's arguments are four lists; --resolve adds one list with names and values."""
    def value(kind, bits, text):
        signed = bits - (1 << 64) if bits >> 63 else bits
        return {"s64": signed, "u64": bits, "double": struct.unpack("<d", struct.pack("<Q", bits))[0], "string": text, "address": hex(bits)}[kind]

    output = profcapture.json("dump", whole, "--table", "mark", "--resolve", "--limit", 2000)
    schema.check(profcapture, "dump", output)
    kinds = set()
    for row in output["data"]["rows"]:
        lists = [row["arguments"], row["argument_kinds"], row["argument_values"], row["argument_texts"]]
        expected = [{"name": name, "kind": kind, "value": value(kind, bits, text)} for name, kind, bits, text in zip(*lists)]
        assert row["named_arguments"] == expected and len({len(one) for one in lists}) == 1
        kinds.update(row["argument_kinds"])
    assert kinds == {"s64", "u64", "double", "string", "address"}
    row = next(row for row in output["data"]["rows"] if "u64" in row["argument_kinds"] and "string" in row["argument_kinds"])
    line = profcapture("dump", whole, "--table", "mark", "--from", f"{row['time_ns']}ns", "--limit", 1).stdout.splitlines()
    line = next(one for one in line if " mark " in one)
    for argument in row["named_arguments"]:
        if argument["kind"] in ("u64", "string"):
            assert f"{argument['name']}:{argument['value']}" in line


def test_counters(profcapture, whole):
    """In each segment, a counter's value is valid until its next value, or the end of the process
    or the segment. A range of time counts the parts that are in it."""
    values, counters = rows(profcapture, whole, "counter_value"), defaultdict(list)
    known = {row["id"]: row for row in rows(profcapture, whole, "counter")}  # ids are the same in each epoch
    for row in values:
        counters[row["counter"]].append(row)
    exits = {}
    for row in rows(profcapture, whole, "task"):
        if row["event"] == "exit":
            exits[row["pid"]] = max(row["time_ns"], exits.get(row["pid"], 0))
    for options, low, high in (([], -math.inf, math.inf), (["--from", "1s", "--to", "1.5s"], 10**9, 15 * 10**8)):
        output = profcapture.json("counters", whole, *options)
        schema.check(profcapture, "counters", output)
        got = {(row["pid"], row["group"], row["name"], row["unit"], row["kind"]): row for row in output["data"]["rows"]}
        seen = 0
        for id_, series in counters.items():
            row = known[id_]
            at = got.get((row["pid"], row["group"], row["name"], row["unit"], row["kind"]))
            same = [other for other in known.values() if all(other[key] == row[key] for key in ("pid", "group", "name", "unit", "kind"))]
            if len(same) > 1 or row["pid"] in exits:
                continue
            inside = [one for one in series if low <= one["time_ns"] <= high]
            before = [one for one in series if one["time_ns"] < low and one["time_ns"] < ROWS * 500000]
            held = [one["value"] for one in before[-1:] + inside]
            assert at["count"] == len(inside)
            assert [at[key] for key in ("first", "last", "min", "max")] == [held[0], held[-1], min(held), max(held)]
            assert at["min"] <= at["mean"] <= at["max"]
            if high != math.inf:
                times = [max(one["time_ns"], low) for one in before[-1:] + inside] + [high]
                weighted = sum(value * (b - a) for value, a, b in zip(held, times, times[1:]))
                assert at["mean"] == pytest.approx(weighted / (high - times[0]))
            seen += 1
        assert seen > 3


def test_a_process_of_its_own(profcapture, whole):
    output = profcapture.json("counters", whole)["data"]["rows"]
    pid = output[0]["pid"]
    assert profcapture.json("counters", whole, "--pid", pid)["data"]["rows"] == [row for row in output if row["pid"] == pid]
    table = list(csv.DictReader(io.StringIO(profcapture("counters", whole, "--format", "csv").stdout)))
    assert [row["name"] for row in table] == [row["name"] for row in output]
    assert re.search(rf"^.*  \S+/\S+.*  \S+ {pid}$", profcapture("counters", whole).stdout, re.MULTILINE)


@pytest.mark.skipif(SANITIZED, reason="the program is built without the sanitizer")
def test_refused_counters(compile_c):
    """A program that defines more counters than allowed gets id 0 for them, and they take no memory."""
    program = compile_c("refused", """
#include "libcollector/prof-collector.h"
#include <stdio.h>
#include <unistd.h>
static int pages(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	int n = -1;

	if (fscanf(file, "%d", &n) == 1)
		fclose(file);
	return n;
}
int main(void)
{
	int before = 0, refused = 0;
	char name[32];

	for (int i = 0; i < 4000; i++) {
		if (i == 2000)
			before = pages();
		snprintf(name, sizeof(name), "counter %d", i);
		refused += prof_counter_define("many", name, "", 0) == 0;
	}
	printf("%d %d", refused, pages() - before);
	return 0;
}
""", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"])
    refused, grown = map(int, subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.split())
    assert refused == 4000 - 1024 and grown < 100, grown


@pytest.mark.skipif(SANITIZED, reason="the program is built without the sanitizer")
def test_over_time(profctl, profcapture, compile_c, capture, monkeypatch):
    """A sentence names the counter that grew most, and each row shows when its counter grew."""
    program = compile_c("grows", """
#include "libcollector/prof-collector.h"
#include <unistd.h>
int main(void)
{
	uint32_t queue = prof_counter_define("shop", "queue", "bytes", 0), level = prof_counter_define("shop", "level", "", 0);
	uint32_t sum = prof_counter_define("shop", "sum", "", PROF_COUNT_SUM);
	prof_counter_set(level, 7);
	for (int i = 1; i <= 8; i++) {
		prof_counter_set(queue, i << 20);
		prof_counter_add(sum, 1000);
		usleep(50000);
	}
	return 0;
}
""", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"])
    profctl("record", "-q", "-F", 0, "-o", capture, "--", program)
    lines = profcapture("counters", capture).stdout.splitlines()
    # a sum always grows, so it is not named as the counter that grew most
    assert lines[:3] == ["shop/queue grew most: 1.00 to 8.00 MiB.", "Lost: nothing.", ""]
    header, *table = lines[3:]
    assert re.fullmatch(r"first  last  mean  max  growth  per second  0-[\d.]+ s  counter", header)
    drawn = {name: bars for line in table for bars, name in re.findall(r"  (.{24})  shop/(\w+)", line)}
    assert set(drawn) == {"queue", "level", "sum"} and all(line.endswith(f"  grows {json_pid(profcapture, capture)}") for line in table)
    # a sum shows its growth, but no values, because they depend on when the sum began
    cells = {re.search(r"shop/(\w+)", line)[1]: line.split("  ") for line in table}
    assert cells["sum"][:5] == ["-"] * 4 + ["7000"] and float(cells["sum"][5].replace(" ", "")) > 0
    assert cells["queue"][4:6] == ["-", "-"] and cells["level"][:4] == ["7"] * 4
    only = profcapture("counters", capture, "--counter", "shop/sum").stdout.splitlines()
    assert re.fullmatch(r"shop/sum grew most: by 7000, \d+ per second\.", only[0])
    assert re.fullmatch(r"growth  per second  0-[\d.]+ s  counter", only[3])
    rows = {row["name"]: row for row in profcapture.json("counters", capture)["data"]["rows"]}
    assert (rows["sum"]["first"], rows["sum"]["growth"], rows["queue"]["growth"]) == (1000, 7000, None)
    assert set(drawn["level"].strip()) == {"█"}
    bars = drawn["queue"].strip()
    assert list(bars) == sorted(bars) and {"▁", "▃", "▆", "█"} <= set(bars)
    monkeypatch.setenv("LC_ALL", "C")
    ascii_lines = profcapture("counters", capture).stdout.splitlines()[4:]
    assert ascii_lines == [line.translate(str.maketrans("▁▂▃▄▅▆▇█", ".:-=+*#@")) for line in table]
    # a range of time shows the values in it; it begins and ends at times of rows, because on a busy
    # machine the program may sleep for longer than it requests
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    values = profcapture.json("dump", capture, "--table", "counter_value")["data"]["rows"]
    times = [row["time_ns"] for row in values if row["value"] >= 1 << 20]
    assert len(times) == 8
    part = profcapture("counters", capture, "--from", f"{times[1]}ns", "--to", f"{times[5]}ns").stdout
    assert "shop/queue grew most: 2.00 to 6.00 MiB." in part
    shown = re.search(r"  ([\d.]+)-([\d.]+) s ", part)
    assert [float(number) for number in shown.groups()] == pytest.approx([times[1] / 1e9, times[5] / 1e9], abs=0.006)
    assert profcapture("counters", capture, "--from", f"{values[-1]['time_ns'] + 1}ns").stdout.startswith("No counter grew.\n")


def json_pid(profcapture, capture):
    return profcapture.json("counters", capture)["data"]["rows"][0]["pid"]


def test_what_was_lost_is_told(profcapture, tmp_path):
    path = make(tmp_path / "lost.cap", "--only", "mark", "--rows", 100)
    assert profcapture.json("marks", path)["data"]["incomplete"] is False
    assert "missing" not in profcapture("marks", path).stdout
    assert "has no counters" in profcapture("counters", path, check=6).stderr
    assert "no process 4000000 in" in profcapture("marks", path, "--pid", 4000000, check=6).stderr
    assert "nothing from" in profcapture("marks", path, "--from", "999h", check=6).stderr
    make(path, "--append", "--first", 100, "--only", "loss", "--rows", 50)
    for verb in "marks", "counters":
        assert profcapture.json(verb, path)["data"]["incomplete"] is True
        assert profcapture.json(verb, path, "--to", "1ns")["data"]["incomplete"] is False
        text = profcapture(verb, path).stdout
        assert "Lost: " in text and "may be missing" in text


def test_memory(tmp_path):
    """With eight times as many marks, the verb marks needs more memory only for their durations."""
    if SANITIZED:
        pytest.skip("a sanitizer keeps what was freed")
    took = []
    for count in 20000, 160000:
        path = make(tmp_path / f"{count}.cap", "--only", "mark", "--rows", count)
        command = [os.environ["PEAK_MEMORY"], os.environ["PROFCAPTURE"], "marks", path]
        took.append(json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)["bytes"])
    assert took[1] - took[0] < 140000 * 64, took
