# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Samples count by their weights, and samples of different events are never added.

The program counts its own page faults (getrusage), and dump prints the rows as they were
recorded.
"""
import collections
import csv
import io
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import schema
from captures import rows
from exports import firefox_paths, read_pprof

SOURCE = Path(os.environ["PROF_SOURCE_DIR"]) / "tests/tools/faults.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "faults"
    subprocess.run(["gcc", "-O1", "-g", SOURCE, "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def faults(profctl, program):
    """A capture of page faults, and the numbers of faults in the slow and in the fast half of the
    program."""
    capture = program.with_name("faults.cap")
    done = profctl("record", "-q", "-e", "page-faults", "-F", 10000, "-o", capture, "--", program)
    return capture, *map(int, done.stdout.split())


@pytest.fixture(scope="module")
def two(profctl, program):
    """A capture of time and page faults, and of an event that this program never causes."""
    capture = program.with_name("two.cap")
    profctl("record", "-q", "-e", "cpu-clock,page-faults,emulation-faults", "--no-kernel", "-F", 5000, "-o", capture, "--", program, "400")
    return capture


def report(profcapture, capture, *options):
    """Returns report's data without inlined functions: they count for their callers, as in recorded
    rows."""
    plain = [] if "--by" in options else ["--no-inline"]
    output = profcapture.json("report", capture, "--limit", 0, *plain, *options)
    schema.check(profcapture, "report", output)
    return output["data"]


def recorded(profcapture, capture, event):
    """Returns {innermost function: (samples, weight)}, from the recorded rows."""
    sources = {row["id"]: row for row in rows(profcapture, capture, "source")}
    found = collections.defaultdict(lambda: [0, 0])
    for row in rows(profcapture, capture, "sample", "--resolve"):
        if sources[row["source"]]["name"] == event:
            here = found[next(frame["name"] for frame in row["frames"] if not frame["inline"])]
            here[0] += 1
            here[1] += row["weight"]
    return {name: tuple(counts) for name, counts in found.items()}


def by_name(data):
    found = collections.defaultdict(lambda: [0, 0])
    for row in data["rows"]:
        if row["self"]:
            found[row["name"]][0] += row["self"]
            found[row["name"]][1] += row["self_weight"]
    return {name: tuple(counts) for name, counts in found.items()}


def share(values, name):
    """Returns the share of a function, in percent of all counts in the program's two halves."""
    counted = [(stack, count) for stack, count in values if {"slow_toucher", "fast_toucher"} & set(stack)]
    return 100 * sum(count for stack, count in counted if name in stack) / sum(count for _, count in counted)


def test_shares_are_those_of_the_program(profcapture, faults):
    """The slow half has 4 % of the page faults, but about 40 % of the samples, because the kernel
    adapts the period."""
    capture, slow, fast = faults
    data = report(profcapture, capture)
    rows_of = {row["name"]: row for row in data["rows"]}
    found = [rows_of[name]["total_weight"] for name in ("slow_toucher", "fast_toucher")]
    assert found == [pytest.approx(slow, rel=0.2), pytest.approx(fast, rel=0.1)]
    # there are enough samples to show that counting samples gives another result
    by_count = rows_of["fast_toucher"]["total"] * slow / fast
    assert rows_of["slow_toucher"]["total"] > by_count + 10 * by_count**0.5
    for name in "slow_toucher", "fast_toucher":
        assert rows_of[name]["total_pct"] == pytest.approx(100 * rows_of[name]["total_weight"] / data["total_weight"])
    assert (data["event"], data["unit"], data["period_ns"]) == ("page-faults", "events", None)


def test_every_reader_sums_weights(profcapture, faults):
    """Each view has the sums of the recorded rows' weights."""
    capture, slow, fast = faults
    want = recorded(profcapture, capture, "page-faults")
    weight = sum(counts[1] for counts in want.values())
    data = report(profcapture, capture)
    assert by_name(data) == want and data["total_weight"] == data["self_total_weight"] == weight
    for row in data["rows"]:
        assert row["self_pct"] == pytest.approx(100 * row["self_weight"] / weight)
        assert row["total_pct"] == pytest.approx(100 * row["total_weight"] / weight)
    assert [row["self_weight"] for row in data["rows"]] == sorted((row["self_weight"] for row in data["rows"]), reverse=True)
    for by in "line", "image", "thread", "process", "cgroup":
        assert sum(row["self_weight"] for row in report(profcapture, capture, "--by", by)["rows"]) == weight
        assert sum(row["self_weight"] for row in report(profcapture, capture, "--by", by, "--ignore", "no such function")["rows"]) == weight
    root = report(profcapture, capture, "--tree")["root"]
    assert root["total_weight"] == weight == sum(child["total_weight"] for child in root["children"])
    timeline = report(profcapture, capture, "--timeline")["rows"]
    assert all(sum(row["timeline_weight"]) == row["self_weight"] and sum(row["timeline"]) == row["self"] for row in timeline)
    kept = report(profcapture, capture, "--ignore", "^fast_toucher$")
    assert kept["self_total_weight"] == weight - next(row["total_weight"] for row in data["rows"] if row["name"] == "fast_toucher")
    (edges,) = report(profcapture, capture, "--callers", "slow_toucher")["callers"]
    assert edges["name"] == "main" and edges["total_weight"] == next(r["total_weight"] for r in data["rows"] if r["name"] == "slow_toucher")
    columns = list(csv.DictReader(io.StringIO(profcapture("report", capture, "--limit", 0, "--format", "csv").stdout)))
    assert sum(int(row["self_weight"]) for row in columns) == weight


def test_exports_say_what_they_count(profcapture, faults):
    capture, *_ = faults
    data = report(profcapture, capture)
    weight, found = data["total_weight"], {row["name"]: row["total_weight"] for row in data["rows"]}
    want = 100 * found["slow_toucher"] / (found["slow_toucher"] + found["fast_toucher"])
    lines = [line.rsplit(" ", 1) for line in profcapture("export", capture, "--to", "folded").stdout.splitlines()]
    folded = [(stack.split(";"), int(count)) for stack, count in lines]
    types, samples = read_pprof(profcapture("export", capture, "--to", "pprof", text=False).stdout)
    assert types == [("samples", "count"), ("page-faults", "count")]
    pprof = [([frame[0] for frame in frames], values[1]) for frames, values, _ in samples]
    profile = json.loads(profcapture("export", capture, "--to", "speedscope").stdout)
    frames = [frame["name"] for frame in profile["shared"]["frames"]]
    assert all(thread["unit"] == "none" and thread["name"].endswith(" page-faults") for thread in profile["profiles"])
    speedscope = [([frames[i] for i in stack], count) for thread in profile["profiles"]
                  for stack, count in zip(thread["samples"], thread["weights"])]
    profile = json.loads(profcapture("export", capture, "--to", "firefox").stdout)
    paths = [[frame[0] for frame in path] for path in firefox_paths(profile)]
    assert profile["meta"]["product"].startswith("page-faults, ")
    firefox = [(paths[stack], count) for thread in profile["threads"]
               for stack, count in zip(thread["samples"]["stack"], thread["samples"]["weight"] or [])]
    for values in folded, pprof, speedscope, firefox:
        assert sum(count for _, count in values) == weight
        assert share(values, "slow_toucher") == pytest.approx(want)


def test_text_names_what_is_counted(profcapture, faults):
    capture, *_ = faults
    data = report(profcapture, capture)
    text = profcapture("report", capture, "--no-inline").stdout
    head = next(line for line in text.splitlines() if "samples of" in line)
    assert "page-faults" in head and re.sub(r"\D", "", head.split("which stand for ")[1]) == str(data["total_weight"])
    assert "one every" not in text and "also recorded" not in text
    titles = next(line for line in text.splitlines() if "self %" in line).split()
    assert titles == ["self", "%", "total", "%", "samples", "page-faults", "function"]
    line = next(line for line in text.splitlines() if re.search(r"  fast_toucher  faults\.c:\d+$", line)).split()
    row = next(row for row in data["rows"] if row["name"] == "fast_toucher")
    assert line[:4] == [f"{row['self_pct']:.1f}", f"{row['total_pct']:.1f}", str(row["self"]), str(row["self_weight"])]


def test_annotate(profcapture, faults):
    capture, *_ = faults
    row = next(row for row in report(profcapture, capture)["rows"] if row["name"] == "fast_toucher")
    output = profcapture.json("annotate", capture, "fast_toucher", "--total")
    schema.check(profcapture, "annotate", output)
    data = output["data"]
    assert (data["event"], data["unit"], data["function"]["self_weight"]) == ("page-faults", "events", row["self_weight"])
    assert sum(line["self_weight"] for line in data["lines"]) == sum(at["self_weight"] for at in data["instructions"]) == row["self_weight"]
    for at in data["lines"] + data["instructions"]:
        assert at["self_pct"] == pytest.approx(100 * at["self_weight"] / row["self_weight"])
    assert data["function"]["total_pct"] == pytest.approx(row["total_pct"])
    text = profcapture("annotate", capture, "fast_toucher").stdout
    assert "Samples of page-faults, which stand for" in text and "page-faults" in next(l for l in text.splitlines() if "self %" in l)


def test_diff(profctl, profcapture, program, faults, two):
    capture, slow, fast = faults
    data = profcapture.json("diff", capture, two, "--event", "page-faults", "--normalise", "run")
    schema.check(profcapture, "diff", data)
    data = data["data"]
    assert (data["unit"], data["event"]) == ("events", "page-faults")
    row = next(row for row in data["rows"] if row["name"] == "fast_toucher")
    assert row["a"] == next(r["self_weight"] for r in report(profcapture, capture)["rows"] if r["name"] == "fast_toucher")
    assert row["b"] == next(r["self_weight"] for r in report(profcapture, two, "--event", "page-faults")["rows"] if r["name"] == "fast_toucher")
    data = profcapture.json("diff", two, two)["data"]
    assert (data["unit"], data["event"], data["significant"]) == ("percent", "cpu-clock", 0)
    assert "only their shares can be compared" in profcapture("diff", two, capture, "--normalise", "run", check=2).stderr


# ---- several events


def test_one_event_at_a_time(profcapture, two):
    time, touched = report(profcapture, two), report(profcapture, two, "--event", "page-faults")
    assert (time["event"], time["unit"], touched["event"], touched["unit"]) == ("cpu-clock", "ns", "page-faults", "events")
    for event, data in ("cpu-clock", time), ("page-faults", touched):
        want = recorded(profcapture, two, event)
        assert by_name(data) == want and data["total"] == sum(counts[0] for counts in want.values())
    assert time == report(profcapture, two, "--event", "cpu-clock")
    # a function that touches no new pages may still fault, if the kernel has taken one of its
    # pages; such a sample stands for many faults
    assert by_name(touched).get("computes", (0, 0))[1] <= 0.05 * touched["total_weight"] and by_name(time)["computes"][1] > 0.1e9
    head = next(line for line in profcapture("report", two).stdout.splitlines() if " of CPU in " in line)
    assert head.endswith("; also recorded: page-faults, emulation-faults (--event NAME).")
    for verb in ["annotate", two, "fast_toucher"], ["diff", two, two]:
        assert "also recorded: cpu-clock, emulation-faults" in profcapture(*verb, "--event", "page-faults").stdout


def test_exports_have_one_event(profcapture, two):
    for event, unit in ("cpu-clock", ("cpu", "nanoseconds")), ("page-faults", ("page-faults", "count")):
        data = report(profcapture, two, "--event", event)
        done = profcapture("export", two, "--to", "pprof", "--event", event, text=False)
        types, samples = read_pprof(done.stdout)
        assert types == [("samples", "count"), unit]
        assert [sum(values[i] for _, values, _ in samples) for i in (0, 1)] == [data["total"], data["total_weight"]]
        assert f"only the samples of {event} are exported; also recorded: " in done.stderr.decode()
    # with a clock, all samples have the same weight, so the number of a folded stack is the number
    # of its samples
    lines = profcapture("export", two, "--to", "folded").stdout.splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == report(profcapture, two)["total"]


def test_info_lists_events(profcapture, two):
    """info also lists an event that has no samples."""
    output = profcapture.json("info", two)
    schema.check(profcapture, "info", output)
    sources = {source["name"]: source for source in output["capture"]["sources"]}
    assert list(sources) == ["cpu-clock", "page-faults", "emulation-faults"] and output["capture"]["event"] == "cpu-clock"
    for name, unit in ("cpu-clock", "ns"), ("page-faults", "events"), ("emulation-faults", "events"):
        want = recorded(profcapture, two, name).values()
        have = sources[name]
        assert (have["unit"], have["samples"], have["weight"]) == (unit, sum(c[0] for c in want), sum(c[1] for c in want))
    assert (sources["cpu-clock"]["period"], sources["page-faults"]["frequency_hz"]) == (200000, 5000)
    assert sum(source["samples"] for source in sources.values()) == output["capture"]["samples"]
    lines = [line.split() for line in profcapture("info", "--verbose", two).stdout.splitlines()]
    for name, source in sources.items():
        assert [str(number) for number in (source["samples"], source["weight"])] + [source["unit"], name] in lines
    summary = next(line for line in profcapture("info", two).stdout.splitlines() if line.startswith("Samples "))
    assert all(f"{source['samples']} of {name}" in summary for name, source in sources.items())
    assert report(profcapture, two, "--event", "emulation-faults")["rows"] == []


def test_unknown_event(profcapture, two):
    for verb in ["report", two], ["annotate", two, "main"], ["diff", two, two], ["export", two, "--to", "folded"]:
        done = profcapture(*verb, "--event", "cycles", check=2)
        assert "has no samples of event 'cycles'. Recorded: cpu-clock, page-faults, emulation-faults" in done.stderr
