# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Verbs of profcapture on captures that make-capture wrote: complete, cut, damaged, appended, with
unknown tables."""
import collections
import csv
import io
import json
import os
import re
import subprocess
from decimal import Decimal

import pytest
import schema
from captures import make
from format_reader import Capture
from slices import SANITIZED, part

FIRST, SECOND = 2400, 400  # rows of each table in the two segments; there is a row every 500 us
ROWS = FIRST + SECOND
TIMED = ["sample", "task", "mapping", "switch", "alloc", "free", "heap", "live", "wait", "mark", "log", "counter_value", "loss", "metadata", "jit"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A capture with two segments, four epochs, every table, and a table that readers do not
    know."""
    path = tmp_path_factory.mktemp("readers") / "whole.cap"
    make(path, "--all-tables", "--foreign-table", "--epochs", 3, "--rows", FIRST, "--chunk-rows", 500)
    return make(path, "--append", "--first", 4000, "--all-tables", "--foreign-table", "--rows", SECOND)


def copy(source, target, change=None):
    data = bytearray(source.read_bytes())
    if change:
        change(data)
    target.write_bytes(data)
    return target


def rows(profcapture, path, *options):
    output = profcapture("dump", path, "--format", "ndjson", *options).stdout.splitlines()
    return [json.loads(line) for line in output[1:]]


# ---- output and its form


@pytest.mark.parametrize("by", ["function", "image", "thread", "process", "cgroup"])
def test_report_adds_up(profcapture, whole, by):
    report = profcapture.json("report", whole, "--by", by, "--limit", 0)
    schema.check(profcapture, "report", report)
    data = report["data"]
    assert data["by"] == by and not report["truncated"]
    assert data["self_total"] == sum(row["self"] for row in data["rows"]) == report["capture"]["samples"] == ROWS
    assert all(row["self"] <= row["total"] <= data["total"] for row in data["rows"])
    order = [(-row["self"], -row["total"]) for row in data["rows"]]
    assert order == sorted(order)


def test_report_is_the_same_each_time(profcapture, whole):
    one, two = (profcapture("report", whole, "--json", "--limit", 0).stdout for _ in range(2))
    assert one == two


def test_tree_has_the_same_verdict(profcapture, tmp_path):
    """A tree that leaves out small branches reads the samples twice, but counts them once."""
    path = make(tmp_path / "large.cap", "--rows", 70000, "--chunk-rows", 500, "--epochs", 4)
    verdict, of_tree = (profcapture("report", path, *options).stdout.partition("\n\n")[0] for options in ([], ["--tree"]))
    assert verdict.count("%") > 2 and verdict == of_tree


def test_tree_agrees_with_functions(profcapture, whole):
    tree = profcapture.json("report", whole, "--tree", "--limit", 0)
    schema.check(profcapture, "report", tree)
    flat = profcapture.json("report", whole, "--limit", 0)
    found = {}

    def walk(node):
        assert node["total"] == node["self"] + sum(child["total"] for child in node["children"])
        key = (node["name"], node["image"], node["offset"])
        found[key] = found.get(key, 0) + node["self"]
        for child in node["children"]:
            walk(child)

    walk(tree["data"]["root"])
    for row in flat["data"]["rows"]:
        assert found[(row["name"], row["image"], row["offset"])] == row["self"]


def test_callers_and_callees(profcapture, whole):
    top = profcapture.json("report", whole, "--limit", 1)["data"]["rows"][0]
    report = profcapture.json("report", whole, "--callers", top["name"], "--limit", 0)
    schema.check(profcapture, "report", report)
    data = report["data"]
    assert data["function"]["total"] >= top["total"]
    assert sum(row["self"] for row in data["callees"]) <= data["function"]["total"]
    for row in data["callers"]:
        assert row["total"] <= data["function"]["total"]


SORT = r"""
#include <algorithm>
#include <vector>
static volatile unsigned sink;
__attribute__((noinline)) static bool is_less(unsigned a, unsigned b) { for (int i = 0; i < 30; i++) sink += i; return a < b; }
__attribute__((noinline)) static void sort_all(std::vector<unsigned> &all) { std::sort(all.begin(), all.end(), is_less); sink++; }
int main()
{
	std::vector<unsigned> all(100000);
	for (int turn = 0; turn < 5; turn++) {
		for (unsigned i = 0; i < all.size(); i++)
			all[i] = i * 2654435761u;
		sort_all(all);
	}
}
"""


def test_own_callers(profctl, profcapture, require, tmp_path):
    """Text shows which function of the program called the library, and how many of the library's
    frames are between this function and the selected one."""
    require("g++")
    program, source, capture = tmp_path / "sorts", tmp_path / "sorts.cc", tmp_path / "sorts.cap"
    source.write_text(SORT)
    subprocess.run(["g++", "-O1", "-g", source, "-o", program], check=True, timeout=120)
    profctl("record", "-q", "-F", 999, "-o", capture, "--", program)
    text = profcapture("report", capture, "--callers", "is_less").stdout
    assert re.search(r"^\d.*  sort_all  \+\d+(-\d+)?\b", text, re.M), text


def test_one_row(profcapture, whole, tmp_path):
    """If everything is in one row, text says so, and names the options that divide it."""
    one = make(tmp_path / "one.cap", "--only", "sample", "--rows", 1)
    ends = {"image": "--by function divides them.", "process": "--by thread or --by function divides them.",
            "thread": "--by function divides them.", "cgroup": "--by process or --by function divides them."}
    seen = 0
    for capture in one, whole:
        for by, end in ends.items():
            rows = profcapture.json("report", capture, "--by", by, "--limit", 0)["data"]["rows"]
            last = profcapture("report", capture, "--by", by, "--limit", 0).stdout.splitlines()[-1]
            seen += len(rows) == 1
            assert (last.startswith("All samples are ") and last.endswith(end)) == (len(rows) == 1), (by, last)
    assert seen


def test_newest_capture(profcapture, whole, tmp_path):
    """report without FILE reads the newest capture of the folder, and names it."""
    done = profcapture("report", cwd=tmp_path, check=2)
    assert "no capture (*.cap)" in done.stderr and done.stdout == ""
    for i, name in enumerate(["old.cap", "new.cap", "later.txt"]):
        (tmp_path / name).write_bytes(whole.read_bytes() if name == "new.cap" else b"nothing")
        os.utime(tmp_path / name, ns=(0, 10**18 + i))
    os.mkfifo(tmp_path / "pipe.cap")
    done = profcapture("report", "--json", "--limit", 3, cwd=tmp_path)
    assert "Reading 'new.cap'" in done.stderr
    assert json.loads(done.stdout)["data"] == profcapture.json("report", whole, "--limit", 3)["data"]


def test_unknown_function_is_no_error(profcapture, whole):
    done = profcapture("report", whole, "--callees", "nothing", "--json")
    assert json.loads(done.stdout)["data"]["function"] is None
    assert f"no function named 'nothing' in {whole}" in done.stderr
    done = profcapture("report", whole, "--callees", "nothing", check=2)
    assert f"no function named 'nothing' in {whole}" in done.stderr and done.stdout == ""


def test_info(profcapture, whole):
    info = profcapture.json("info", whole, "--limit", 0)
    schema.check(profcapture, "info", info)
    tables = {table["name"]: table for table in info["data"]["tables"]}
    assert tables["sensor"]["rows"] == tables["sample"]["rows"] == ROWS
    assert info["data"]["segments"] == 2 and info["data"]["epochs"] == 4
    assert sum(image["samples"] for image in info["data"]["images"]) == ROWS
    assert sum(process["samples"] for process in info["data"]["processes"]) == ROWS
    missed = sum(loss["count"] for loss in info["data"]["loss"] if loss["cause"] == "ticks-missed")
    assert info["capture"]["missed_ticks"] == missed
    assert info["capture"]["lost"] == sum(loss["count"] for loss in info["data"]["loss"]) - missed


def test_loss_first(profcapture, whole):
    """Losses are reported before any table, but after the sentences with which the text begins."""
    for options in [], ["--by", "thread"], ["--tree"]:
        lines = profcapture("report", whole, *options).stdout.split("\n\n")[0].splitlines()
        losses = [i for i, line in enumerate(lines) if line.startswith("Lost: ")]
        assert losses and " samples of " in lines[0] and not any(line.startswith("Lost: nothing") for line in lines)
        assert losses == list(range(losses[0], losses[-1] + 1))
    verdict, loss, *_ = profcapture("info", whole).stdout.splitlines()
    assert verdict.startswith(f"{whole}: ") and " Complete (" in verdict and "Lost" not in verdict and loss.startswith("Lost: ")


def test_info_summary(profcapture, whole, tmp_path):
    """A line says what the file is, where and when it was recorded, and whether it is complete;
    --verbose adds the parts of the file."""
    info, text = profcapture.json("info", whole, "--limit", 0), profcapture("info", whole).stdout
    lines = dict(re.findall(r"^(Samples|Also|Threads|Code|Host|Not here) {2,}(.*)$", text, re.MULTILINE))
    rows = {table["name"]: table["rows"] for table in info["data"]["tables"]}
    assert lines["Samples"].startswith(f"{ROWS} of ") and f"{rows['sensor']} rows of sensor" in lines["Also"]
    for table, name in ("switch", "context switches"), ("mark", "marks"), ("alloc", "allocations"), ("counter_value", "counter values"):
        assert f"{rows[table]} {name}" in lines["Also"]
    pids = {process["pid"] for process in info["data"]["processes"]}
    assert f" in {len(pids)} processes: " in lines["Threads"] and "Not here" not in lines
    first = os.path.basename(info["data"]["images"][0]["path"])
    assert lines["Code"].startswith(f"{first} {100 * info['data']['images'][0]['samples'] / ROWS:.0f} %")
    # info names what this capture lacks although it can be recorded
    plain = make(tmp_path / "plain.cap", "--only", "sample", "--rows", 10)
    text = profcapture("info", plain).stdout
    assert "Not here  context switches, allocations (--memory), marks, counters" in text and "\n\nSamples   10 of " in text
    assert text.splitlines()[0].endswith(" Lost: nothing.")
    verbose = profcapture("info", "--verbose", whole, "--limit", 0).stdout
    assert verbose.startswith(profcapture("info", whole, "--limit", 0).stdout.splitlines()[0])
    words = [line.split() for line in verbose.splitlines()]
    for table in info["data"]["tables"]:
        assert not table["chunks"] or any(line[:2] == [str(table["rows"]), str(table["chunks"])] and line[-1] == table["name"] for line in words)
    for image in info["data"]["images"]:
        assert [str(image["samples"]), image["path"]] in words
    assert f"Events: {info['capture']['events']}, segments: 2, epochs: 4" in verbose


def test_many_losses_do_not_hide_the_rest(profcapture, whole):
    """Text shows the largest losses and the sum of the others; info --limit 0 lists all."""
    def told(*arguments):
        text = profcapture(*arguments).stdout
        found = re.search(r"^Lost: (\d+) records \(([\d.]+) % of all\):\n((?:  .*\n)+)", text, re.MULTILINE)
        lines = found[3].splitlines()
        assert int(found[1]) == lost and float(found[2]) == pytest.approx(100 * lost / (lost + capture["events"]), abs=0.06)
        return lines, [int(re.match(r"  (\d+) ", line)[1]) for line in lines]

    capture = profcapture.json("info", whole)["capture"]
    lost = capture["lost"]
    everything, counts = told("info", whole, "--limit", 0)
    assert sum(counts) == lost and len(counts) > 100 and counts == sorted(counts, reverse=True)
    for arguments, most in (["report", whole], 8), (["report", whole, "--limit", 0], 8), (["dump", whole, "--limit", 1], 8), (["info", whole], 20), (["info", whole, "--limit", 3], 3):
        lines, counts = told(*arguments)
        assert lines[:-1] == everything[:most] and sum(counts) == lost
        assert f"for {len(everything) - most} other reasons" in lines[-1] and "--limit 0" in lines[-1]


def test_losses_are_in_words(profcapture, whole):
    """The text of a loss has the number of records, their share of all, the reason and the time."""
    capture = profcapture.json("info", whole)["capture"]
    loss = max((loss for loss in profcapture.json("info", whole)["data"]["loss"] if loss["cause"] == "perf-ring"), key=lambda loss: loss["count"])
    share = 100 * loss["count"] / (capture["lost"] + capture["events"])
    line = next(line for line in profcapture("info", whole).stdout.splitlines() if re.match(rf"  {loss['count']} records? \(", line))
    found = re.search(r"^  \d+ records? \(([\d.]+) %, [^)]*\): a perf ring was full \(.*, perf-ring\), from (\d+\.\d+) s to (\d+\.\d+) s$", line)
    assert float(found[1]) == pytest.approx(share, abs=0.06)
    # The range can be pasted after --from and --to, and contains the whole loss.
    assert float(found[2]) <= loss["from_ns"] / 1e9 <= loss["to_ns"] / 1e9 < float(found[3]) <= loss["to_ns"] / 1e9 + 0.002
    assert profcapture.json("report", whole, "--from", found[2], "--to", found[3])["capture"]["state"] == "finished"


def test_missed_ticks_are_no_loss(profcapture, whole):
    """info --verbose always reports the number of missed ticks; info and report do if it is more
    than one percent of all ticks."""
    missed = profcapture.json("info", whole)["capture"]["missed_ticks"]
    assert missed > 0
    function = profcapture.json("report", whole, "--limit", 1)["data"]["rows"][0]["name"]
    for verb, *more in ["info", "--verbose"], ["info"], ["report"], ["dump"]:
        lines = profcapture(verb, *more, whole, "--limit", 1).stdout.splitlines()
        assert not [line for line in lines if "ticks-missed" in line]
        found = [line for line in lines if line.startswith("Missed: ")]
        if more or (verb != "dump" and missed > 0.01 * (missed + ROWS)):
            assert len(found) == 1 and found[0].replace(" ", "").startswith(f"Missed:{missed}timerticks")
            assert re.search(r" from \d+\.\d+ s to \d+\.\d+ s\.$", found[0])
        else:
            assert not found
    # The verdict comes first, then what was lost.
    assert missed > 0.01 * (missed + ROWS)
    for verb, *more in ["report"], ["report", "--callers", function], ["annotate", function]:
        arguments = [verb, whole, *more] if verb == "annotate" else [verb, *more, whole]
        head = profcapture(*arguments).stdout.split("\n\n")[0].splitlines()
        starts = [line.split(":")[0] for line in head if re.match(r"Lost: |Missed: ", line)]
        assert starts == ["Lost", "Missed"] and not re.match(r"Lost: |Missed: ", head[0])


def test_times_of_a_dump_have_one_unit(profcapture, whole):
    row = rows(profcapture, whole, "--table", "switch", "--limit", 1)[0]
    line = profcapture("dump", whole, "--table", "switch", "--limit", 1).stdout.splitlines()[-2]
    assert re.search(r"\bstart=(\S+)", line)[1] == f"{row['start'] / 1e9:.9f}"
    assert line.split()[0] == f"{row['time_ns'] / 1e9:.9f}"


def test_dump_has_every_row_in_order(profcapture, whole):
    found = rows(profcapture, whole)
    counts = {}
    for row in found:
        counts[row["table"]] = counts.get(row["table"], 0) + 1
    assert counts == {table: ROWS for table in TIMED + ["sensor"]}
    times = [row["time_ns"] for row in found]
    assert times == sorted(times)


def test_dump_formats_agree(profcapture, whole):
    whole_json = profcapture.json("dump", whole, "--table", "switch")
    schema.check(profcapture, "dump", whole_json)
    assert whole_json["data"]["rows"] == rows(profcapture, whole, "--table", "switch")
    table = list(csv.DictReader(io.StringIO(profcapture("dump", whole, "--table", "switch", "--format", "csv").stdout)))
    assert [int(row["time_ns"]) for row in table] == [row["time_ns"] for row in whole_json["data"]["rows"]]
    assert [row["comm"] for row in table] == [row["comm"] or "" for row in whole_json["data"]["rows"]]


def test_dump_resolves_frames(profcapture, whole):
    dump = profcapture.json("dump", whole, "--table", "sample", "--resolve", "--limit", 50)
    schema.check(profcapture, "dump", dump)
    assert dump["truncated"] and len(dump["data"]["rows"]) == 50
    assert all(row["frames"] for row in dump["data"]["rows"])
    assert "\t" in profcapture("dump", whole, "--table", "sample", "--resolve", "--limit", 1).stdout


def test_filters_partition_the_samples(profcapture, whole):
    processes = profcapture.json("report", whole, "--by", "process", "--limit", 0)["data"]["rows"]
    for row in processes[:5]:
        filtered = profcapture.json("report", whole, "--pid", row["pid"])["data"]
        same_pid = sum(other["self"] for other in processes if other["pid"] == row["pid"])
        assert filtered["self_total"] == same_pid
        assert len(rows(profcapture, whole, "--table", "sample", "--pid", row["pid"])) == same_pid
    halves = [
        profcapture.json("report", whole, option, "500ms")["data"]["self_total"] for option in ("--from", "--to")
    ]
    exactly = sum(row["time_ns"] == 5 * 10**8 for row in rows(profcapture, whole, "--table", "sample"))
    assert sum(halves) == ROWS + exactly


@pytest.mark.parametrize(
    "verb",
    [["report"], ["report", "--tree"], ["dump"], ["memory"], ["marks"], ["counters"], ["annotate"], ["export"], ["diff"], ["cut"]],
    ids=lambda verb: " ".join(verb),
)
def test_options_that_nothing_passes_are_said(profcapture, whole, tmp_path, verb):
    """If the capture lacks a time, a process, a thread or a CPU, one message says so, and what was
    recorded. Text then fails; exports and formats for programs are empty."""
    name = {"diff": [whole], "annotate": ["main"], "export": ["--to", "folded"], "cut": ["-o", tmp_path / "new.cap"]}.get(verb[0], [])
    pids = sorted({row["pid"] for row in rows(profcapture, whole, "--table", "process")})

    def said(*options, check=6):
        (tmp_path / "new.cap").unlink(missing_ok=True)
        done = profcapture(*verb, whole, *name, *options, check=None)
        if verb in (["dump"], ["export"]):
            assert done.returncode == 0 or verb == ["dump"]
        elif done.returncode == check == 6:
            assert done.stdout == ""
        else:
            assert check != 6, done.stderr
        return done.stderr

    end = profcapture.json("info", whole)["capture"]["duration_ns"] + 10**9
    (time,) = re.findall(rf"nothing from ([0-9.]+) s on: '{re.escape(str(whole))}' is ", said("--from", f"{end}ns"))
    assert Decimal(time) * 10**9 == end
    assert not (tmp_path / "new.cap").exists()
    assert "nothing from" not in said("--from", "0", check=None)
    if verb == ["cut"]:
        return
    absent = pids[-1] + 1
    message = rf"no process {absent} in '{re.escape(str(whole))}'\. Recorded: {pids[0]}( \([^)]+\))?(, {pids[1]}|\n)"
    assert re.search(message, said("--pid", absent))
    assert f"no process {absent} in" in said("--pid", f"{pids[0]},{absent}", check=None)
    assert "no process" not in said("--pid", pids[0], check=None)
    if verb[0] in ("report", "dump", "export", "diff"):
        assert f"no thread {2**31} in '{whole}'. Recorded: " in said("--tid", 2**31)
        assert f"no thread 'nobody' in '{whole}'. Recorded: " in said("--comm", "nobody")
    if verb[0] in ("report", "export"):
        assert f"nothing of CPU 4094 in '{whole}'. Recorded: " in said("--cpu", 4094)


def test_images_have_short_names(profcapture, whole):
    """Images are named by their basenames, with their folders if basenames are equal."""
    answer = profcapture.json("report", whole, "--by", "image")["data"]["rows"]
    paths = [row["image"] for row in answer if row["image"]]
    bases = [os.path.basename(path) for path in paths]
    shown = [line.split()[-1] for line in profcapture("report", whole, "--by", "image", "--limit", 0).stdout.split("\n\n")[1].splitlines()[1:]]
    for path, base in zip(paths, bases):
        short = base if len({path for path in paths if os.path.basename(path) == base}) == 1 else "/".join(path.split("/")[-2:])
        if path.startswith("/") and " " not in path:
            assert short in shown and path not in shown
    code = re.search(r"^Code +(\S+) ", profcapture("info", whole).stdout, re.MULTILINE)[1]
    assert code == paths[0].split("/")[-1] or code == "/".join(paths[0].split("/")[-2:])


@pytest.mark.parametrize("options", [["--ignore", "."], ["--focus", "nothing has this name"], ["--focus", "nothing has this name", "--tree"]])
def test_filter_of_frames_without_match(profcapture, whole, options):
    done = profcapture("report", whole, *options, check=6)
    assert done.stdout == "" and f"no sample in '{whole}' matches these options. Recorded: {ROWS} samples in " in done.stderr
    assert profcapture.json("report", whole, *options)["data"]["self_total"] == 0


def test_report_of_no_time(profcapture, tmp_path):
    """If the duration of a capture is unknown, none is printed, instead of 0."""
    text = profcapture("report", make(tmp_path / "empty.cap", "--rows", 0)).stdout
    assert "No samples.\n" in text and " in 0 ns" not in text


def test_filter_that_matches_nothing(profcapture, whole):
    report = profcapture.json("report", whole, "--comm", "nobody")
    assert report["data"]["rows"] == [] and report["data"]["self_total"] == 0


def test_limit_says_so(profcapture, whole):
    assert profcapture.json("report", whole, "--limit", 3)["truncated"]
    everything = profcapture.json("report", whole)
    hidden = everything["data"]["rows"][3:]
    share = sum(row["self_pct"] for row in hidden)
    assert not everything["truncated"]
    assert f"\n{len(hidden)} more functions, {share:.1f} % (--limit 0)\n" in profcapture("report", whole, "--limit", 3).stdout
    assert f"showing 3 of {ROWS * len(TIMED + ['sensor'])}" in profcapture("dump", whole, "--limit", 3).stdout


def test_standard_input(profcapture, whole):
    with open(whole, "rb") as stdin:
        piped = subprocess.run(
            [profcapture.path, "report", "-", "--json"], input=stdin.read(), stdout=subprocess.PIPE, check=True, timeout=60
        )
    assert json.loads(piped.stdout)["data"] == profcapture.json("report", whole)["data"]


# ---- wrong use


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["reprot"], "Did you mean 'report'"),
        (["report", "--by", "funtion"], "Did you mean 'function'"),
        (["report", "--inline", "--by", "thread"], "--by function"),
        (["dump", "--table", "smaple"], "Did you mean 'sample'"),
        (["report", "--from", "2s", "--to", "1s"], "after --to"),
        (["report", "--tree", "--by", "thread"], "--by function"),
        (["cut", "-o", "x.cap"], "--from"),
    ],
)
def test_usage_errors(profcapture, whole, arguments, said):
    done = profcapture(*arguments, whole, check=2)
    assert said in done.stderr and done.stdout == ""


def test_names_do_not_reach_the_terminal(profcapture, tmp_path):
    path = make(tmp_path / "\x1b[31mred\n.cap", "--rows", 100)
    for verb in "info", "verify", "report":
        done = profcapture(verb, path)
        assert "\x1b" not in done.stdout + done.stderr


def test_color(profcapture, whole):
    def colored(*options, **env):
        return "\x1b" in profcapture("report", whole, *options, env={"NO_COLOR": None, "CLICOLOR_FORCE": None} | env).stdout

    assert not colored()
    assert colored("--color", "always") and colored("--color=always", NO_COLOR="1") and colored(CLICOLOR_FORCE="1")
    assert not colored("--color", "never", CLICOLOR_FORCE="1") and not colored(NO_COLOR="1", CLICOLOR_FORCE="1")
    assert not colored("--color", "always", "--json") and not colored("--color", "always", "--format", "csv")


def test_the_range_is_said(profcapture, whole):
    assert "in 250 ms, from 0.5 s to 0.75 s" in profcapture("report", whole, "--from", "0.5s..0.75s").stdout.splitlines()[0]
    assert ", from " not in profcapture("report", whole).stdout.splitlines()[0]


# ---- damaged and unfinished captures


def flip_in_chunk(profcapture, path, table):
    """Flips a bit in the table's first chunk. Returns verify's entry for this chunk."""
    data = bytearray(path.read_bytes())
    whole = Capture(bytes(data))
    chunk = next(chunk for chunk in whole.chunks if chunk.table == whole.table(table)["id"])
    data[chunk.offset + 96 + chunk.stored // 2] ^= 0x40
    path.write_bytes(data)
    damage, = profcapture.json("verify", path, check=3)["data"]["damaged"]
    assert damage["table"] == table
    return damage


def test_a_flipped_byte(profcapture, whole, tmp_path):
    path = copy(whole, tmp_path / "flipped.cap")
    damage = flip_in_chunk(profcapture, path, "sample")
    verify = profcapture.json("verify", path, check=3)
    schema.check(profcapture, "verify", verify)
    assert verify["data"]["state"] == "damaged" and verify["data"]["rows_lost"] == damage["rows"]
    done = profcapture("report", path, "--json", "--limit", 0)
    report = json.loads(done.stdout)
    assert "is damaged" in done.stderr and report["capture"]["state"] == "damaged"
    assert report["data"]["self_total"] == report["capture"]["samples"] == ROWS - damage["rows"]
    dump = profcapture.json("dump", path, "--table", "sample")
    assert len(dump["data"]["rows"]) == ROWS - damage["rows"] and dump["capture"]["state"] == "damaged"

    profcapture("recover", path, "-o", tmp_path / "recovered.cap")
    recovered = profcapture.json("info", tmp_path / "recovered.cap")
    assert recovered["capture"]["state"] == "finished"
    assert recovered["capture"]["samples"] == ROWS - damage["rows"]
    lost = [
        row for row in rows(profcapture, tmp_path / "recovered.cap", "--table", "loss")
        if row["cause"] == "file-damage" and row["stream"] == "sample" and row["bytes"] == damage["bytes"]
    ]
    assert [row["count"] for row in lost] == [damage["rows"]]
    again = profcapture.json("report", tmp_path / "recovered.cap", "--limit", 0)
    assert again["data"]["rows"] == report["data"]["rows"]


def test_a_lost_dictionary(profcapture, whole, tmp_path):
    path = copy(whole, tmp_path / "flipped.cap")
    flip_in_chunk(profcapture, path, "stack")
    report = profcapture.json("report", path, "--limit", 0)
    assert report["data"]["self_total"] == ROWS
    assert "<lost>" in [row["name"] for row in report["data"]["rows"]]
    assert "<lost>" in profcapture("report", path).stdout
    profcapture("recover", path, "-o", tmp_path / "recovered.cap")
    again = profcapture.json("report", tmp_path / "recovered.cap", "--limit", 0)
    assert again["data"]["rows"] == report["data"]["rows"]


def test_unfinished(profcapture, tmp_path):
    path = make(tmp_path / "crashed.cap", "--all-tables", "--crash", "--rows", 1500, "--chunk-rows", 500)
    done = profcapture("report", path, "--json", "--limit", 0)
    assert "unfinished" in done.stderr and json.loads(done.stdout)["capture"]["state"] == "unfinished"
    assert profcapture.json("verify", path, check=3)["data"]["state"] == "unfinished"
    profcapture("recover", path, "-o", tmp_path / "recovered.cap")
    profcapture("verify", tmp_path / "recovered.cap")
    again = profcapture.json("report", tmp_path / "recovered.cap", "--limit", 0)
    unfinished = json.loads(done.stdout)["data"]
    # the kernel's names are written at the end; even without them, kernel code does not count as
    # the program's own
    assert (unfinished["hint"].pop("advice"), again["data"]["hint"].pop("advice")) == ("unfinished", "kernel-names")
    assert again["data"] == unfinished
    assert "[kernel]+0x" not in profcapture("report", path).stdout.split("\n\n")[0]


def test_a_cut_file_is_unfinished_to_every_verb(profcapture, whole, tmp_path):
    path = tmp_path / "cut.cap"
    data = whole.read_bytes()
    for length in range(len(data) // 2, len(data) // 2 + 400, 80):
        path.write_bytes(data[:length])
        verify = profcapture.json("verify", path, check=3)
        schema.check(profcapture, "verify", verify)
        states = {profcapture.json(verb, path, "--limit", 1)["capture"]["state"] for verb in ("info", "report", "dump")}
        assert states == {"unfinished"} == {verify["data"]["state"], verify["capture"]["state"]}


# ---- captures made from captures


def comparable(profcapture, path):
    """Returns a capture's rows by table, without ids, because another capture has other ids."""
    ids = {"stack", "thread", "process", "source", "image", "counter", "parent", "sensor", "waker_thread", "waker_stack"}
    found = collections.defaultdict(list)
    for row in rows(profcapture, path, "--resolve"):
        found[row["table"]].append({key: value for key, value in row.items() if key not in ids})
    return found


@pytest.fixture(scope="module")
def small(profcapture, tmp_path_factory):
    """Returns a capture like `whole`, but with fewer rows, and its rows by table."""
    path = make(tmp_path_factory.mktemp("small") / "small.cap", "--all-tables", "--foreign-table", "--epochs", 3, "--rows", 400, "--chunk-rows", 90)
    make(path, "--append", "--first", 600, "--all-tables", "--foreign-table", "--rows", 100)
    return path, comparable(profcapture, path)


@pytest.mark.parametrize("verb", ["compact", "recover"])
def test_nothing_is_lost_on_the_way(profcapture, small, tmp_path, verb):
    path, before = small
    profcapture(verb, path, "-o", tmp_path / "new.cap")
    profcapture("verify", tmp_path / "new.cap")
    after = comparable(profcapture, tmp_path / "new.cap")
    for table in TIMED + ["sensor"]:
        assert before[table] == after[table] and len(after[table]) == 500, table
    for by in "function", "thread", "cgroup":
        old, new = (profcapture.json("report", file, "--by", by, "--limit", 0)["data"] for file in (path, tmp_path / "new.cap"))
        assert old == new
    assert profcapture.json("info", tmp_path / "new.cap")["data"]["segments"] == 2


def test_compact_fills_chunks(profcapture, tmp_path):
    path = make(tmp_path / "small.cap", "--rows", 70000, "--chunk-rows", 500, "--epochs", 4)
    profcapture("compact", path, "-o", tmp_path / "new.cap")
    tables = {table["name"]: table for table in profcapture.json("info", tmp_path / "new.cap")["data"]["tables"]}
    assert tables["sample"]["chunks"] == 2
    assert (tmp_path / "new.cap").stat().st_size < path.stat().st_size


def test_cut_stands_alone(profcapture, whole, tmp_path):
    profcapture("cut", whole, "--from", "500ms..1s", "-o", tmp_path / "new.cap")
    profcapture("verify", tmp_path / "new.cap")
    for table in "sample", "mark", "log", "sensor":
        old = rows(profcapture, whole, "--table", table, "--from", "500ms..1s")
        new = rows(profcapture, tmp_path / "new.cap", "--table", table)
        for row in new:
            row["time_ns"] += 5 * 10**8
        drop = lambda found: [{k: v for k, v in row.items() if k in ("time_ns", "pid", "tid", "cpu", "text", "name")} for row in found]
        assert drop(old) == drop(new) and old
    old, new = (
        profcapture.json("report", *arguments, "--limit", 0)["data"]["rows"]
        for arguments in ([whole, "--from", "500ms..1s"], [tmp_path / "new.cap"])
    )
    assert old == new
    info = profcapture.json("info", tmp_path / "new.cap")
    assert info["data"]["segments"] == 1 and info["capture"]["duration_ns"] == 5 * 10**8
    assert len(rows(profcapture, tmp_path / "new.cap", "--table", "metadata")) >= FIRST


@pytest.mark.parametrize("only", ["sample", "loss", "mark", "switch"])
def test_a_slice_lasts_as_long_as_was_asked_for(profcapture, tmp_path, only):
    """A slice has the requested length, wherever its last row is, even if losses reach beyond its
    end. It ends no later than the capture."""
    whole = make(tmp_path / "whole.cap", "--only", only, "--rows", 1000)
    end = profcapture.json("info", whole)["capture"]["duration_ns"]
    for start, stop in (0, 10**8), (123456789, 234567891), (10**8, end + 10**9), (end - 10**6, end):
        profcapture("cut", whole, "--from", f"{start}ns", "--to", f"{stop}ns", "-o", tmp_path / "new.cap", "--force")
        profcapture("verify", tmp_path / "new.cap")
        assert profcapture.json("info", tmp_path / "new.cap")["capture"]["duration_ns"] == min(stop, end) - start


def test_cut_of_the_second_segment(profcapture, whole, tmp_path):
    end = profcapture.json("info", whole)["capture"]["duration_ns"]
    profcapture("cut", whole, "--from", "-100ms", "-o", tmp_path / "new.cap")
    profcapture("verify", tmp_path / "new.cap")
    info = profcapture.json("info", tmp_path / "new.cap")
    assert info["data"]["segments"] == 1
    expected = [row for row in rows(profcapture, whole, "--table", "sample") if row["time_ns"] >= end - 10**8]
    assert info["capture"]["samples"] == len(expected) > 0


# ---- size


# each chunk has 8 rows; the shorter capture has enough chunks to fill the blocks of compact
EPOCHS = (20,) if SANITIZED else (20, 80)
BY_LENGTH = [(verb, state) for verb in ("dump", "report", "info", "memory", "marks", "counters", "verify", "compact", "recover", "cut")
             for state in ("finished", "unfinished")]


@pytest.fixture(scope="module")
def lengths(tmp_path_factory):
    """Captures of 12,000 and of 47,000 chunks, each finished and as after a crash. With a
    sanitizer, memory is not compared, so only the smaller ones are made."""
    folder = tmp_path_factory.mktemp("lengths")
    return {state: [make(folder / f"{state}{epochs}.cap", "--epochs", epochs, "--rows", 4000 * epochs, "--chunk-rows", 8, *options)
                    for epochs in EPOCHS]
            for state, options in (("finished", []), ("unfinished", ["--crash"]))}


@pytest.mark.parametrize("verb, state", part(BY_LENGTH, len(BY_LENGTH) // 2))
def test_memory_by_length(tmp_path, lengths, verb, state):
    """Four times as many rows and chunks take hardly more memory: the list of chunks is packed, and
    unpacked in pieces. compact keeps 20 bytes (measured) for each chunk until its new file is
    complete: 0.7 MB for the 35,000 additional chunks. The rest of its limit is for memory that the
    C library keeps after free(). A peak varies by the pages that the kernel maps around those that
    are read, if they are cached already, so the captures are measured in turn."""
    more = 2e6 if verb == "compact" else 0.75e6
    options = {"compact": ["-o"], "recover": ["-o"], "cut": ["--from", "1s", "-o"]}.get(verb, [])
    took = [[] for _ in lengths[state]]
    for _ in range(1 if SANITIZED else 4):
        for path, peaks in zip(lengths[state], took):
            output = [*options, tmp_path / path.name] if options else []
            command = [os.environ["PEAK_MEMORY"], os.environ["PROFCAPTURE"], verb, path, *output]
            measured = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=120).stdout)
            assert measured["status"] in (0, 3, 6)
            peaks.append(measured["bytes"])
            if output:
                output[-1].unlink()
        if SANITIZED or took[1][-1] < took[0][-1] * 1.05 + more:
            return
    pytest.fail(f"bytes of the short and of the long capture: {took}")
