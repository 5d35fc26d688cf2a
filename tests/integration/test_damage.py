# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Damage is never silent: if any bit of a capture is wrong, every verb warns and reports the damage
in its JSON.

format_reader.py, which follows docs/format.md, determines what is damaged.
"""
import collections
import json
import random
import re
import shutil
import subprocess

import pytest
import schema
from captures import HEADER_BYTES, QUERY, make
from exports import read_page
from format_reader import Capture, Chunk
from slices import part

CHUNK_HEADER = 96
ROWS = 300
FORMATS = "folded", "firefox", "pprof", "speedscope", "svg", "callgrind", "chrome", "perf-script", "heaptrack", "massif", "syscap", "html", "sqlite"
# FLIPPED, WHOLE and NEW are replaced by the paths of the damaged capture, the original, and the output
VERBS = [
    ["info", "FLIPPED", "--json"], ["dump", "FLIPPED", "--json"], ["dump", "FLIPPED", "--json", "--table", "sample", "--resolve"],
    ["report", "FLIPPED", "--json"], ["report", "FLIPPED", "--json", "--tree"], ["report", "FLIPPED", "--json", "--inline"],
    *(["report", "FLIPPED", "--json", "--by", by] for by in ("line", "image", "thread", "process", "cgroup")),
    ["report", "FLIPPED", "--json", "--metric", "off-cpu"], ["report", "FLIPPED", "--json", "--by", "state"],
    ["locks", "FLIPPED", "--json"], ["critical-path", "FLIPPED", "--json"], ["events", "FLIPPED", "--json"],
    ["counters", "FLIPPED", "--json", "--timeline"], ["summary", "FLIPPED", "--json"],
    ["report", "FLIPPED"], ["annotate", "FLIPPED", "--json", "main"], ["memory", "FLIPPED", "--json"],
    ["memory", "FLIPPED", "--json", "--leaks"], ["marks", "FLIPPED", "--json"], ["counters", "FLIPPED", "--json"],
    ["sql", "FLIPPED", "--json", QUERY], ["diff", "WHOLE", "FLIPPED", "--json"], ["diff", "FLIPPED", "WHOLE", "--json"],
    *(["export", "FLIPPED", "--to", name, "-o", "NEW", *(["--pid", "1276"] if name == "heaptrack" else [])] for name in FORMATS),
    *(["export", "FLIPPED", "--to", name, "--table", "sample", "-o", "NEW"] for name in ("csv", "ndjson")),
    ["cut", "FLIPPED", "--from", "0", "-o", "NEW"], ["compact", "FLIPPED", "-o", "NEW"], ["symbolize", "FLIPPED"],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("damage") / "whole.cap", "--all-tables", "--rows", ROWS, "--chunk-rows", 100)


@pytest.fixture(scope="module")
def chunks(whole):
    return Capture(whole.read_bytes())


def places(chunks):
    """Yields an offset in each part of the first chunk of each kind and table, and in both copies
    of the file header."""
    first, at = {}, HEADER_BYTES
    while at < len(chunks.data):
        chunk = Chunk(chunks.data, at, chunks.salt)
        first.setdefault((chunk.kind, chunk.table), chunk)
        at = chunk.end
    yield from (40, HEADER_BYTES - 40)
    for chunk in first.values():
        yield chunk.offset + 40
        if chunk.stored:
            yield chunk.offset + CHUNK_HEADER + chunk.stored // 2
        if chunk.stored % 8:
            yield chunk.offset + CHUNK_HEADER + chunk.stored


def flip(source, target, offset):
    data = bytearray(source.read_bytes())
    data[offset] ^= 0x10
    target.write_bytes(data)
    return target


def flip_in(chunks, source, target, table, number=0):
    """Flips a bit in the payload of one of a table's chunks, by default the first. Returns that chunk."""
    chunk = [chunk for chunk in chunks.chunks if chunk.table == chunks.table(table)["id"]][number]
    flip(source, target, chunk.offset + CHUNK_HEADER + chunk.stored // 2)
    return chunk


def states(output):
    """Returns the states of all captures that the output mentions."""
    found = [output["capture"]["state"]]
    return found + [capture["state"] for capture in output["data"].get("captures", [])]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb))
def test_a_flipped_bit_anywhere(profcapture, whole, chunks, tmp_path, verb):
    flipped = tmp_path / "flipped.cap"
    for offset in part(places(chunks), 10, VERBS.index(verb)):
        flip(whole, flipped, offset)
        (tmp_path / "new").unlink(missing_ok=True)
        names = {"FLIPPED": flipped, "WHOLE": whole, "NEW": tmp_path / "new"}
        done = profcapture(*(names.get(word, word) for word in verb), check=None)
        assert done.returncode in (0, 6) or verb[0] == "annotate" and done.returncode == 2, (offset, done.stderr)
        assert f"capture '{flipped}' is damaged" in done.stderr, offset
        if "--json" in verb and done.returncode == 0:
            output = json.loads(done.stdout)
            schema.check(profcapture, verb[0], output)
            assert "damaged" in states(output), offset


def test_nothing_is_said_of_a_whole_one(profcapture, whole, tmp_path):
    for verb in VERBS:
        copy = shutil.copy(whole, tmp_path / "copy.cap")
        names = {"FLIPPED": copy, "WHOLE": whole, "NEW": tmp_path / "new"}
        (tmp_path / "new").unlink(missing_ok=True)
        done = profcapture(*(names.get(word, word) for word in verb), check=None)
        assert "is damaged" not in done.stderr and "second capture" not in done.stderr
        if "--json" in verb and done.returncode == 0:
            output = json.loads(done.stdout)
            assert set(states(output)) == {"finished"}
            assert output["capture"]["unreadable"] == [] and output["capture"]["second_capture_at"] is None


def test_the_same_is_lost_to_all(profcapture, whole, chunks, tmp_path):
    """verify, info and report count the rows of a damaged chunk once, and report the same
    number."""
    flipped = tmp_path / "flipped.cap"
    for table in "sample", "symbol", "stack", "alloc", "loss", "metadata", "task":
        chunk = flip_in(chunks, whole, flipped, table)
        assert profcapture.json("verify", flipped, check=3)["data"]["rows_lost"] == chunk.rows
        for verb in ["verify"], ["info"], ["report"], ["report", "--by", "thread"], ["dump"]:
            capture = profcapture.json(*verb, flipped, check=3 if verb == ["verify"] else 0)["capture"]
            assert capture["unreadable"] == [{"table": table, "chunks": 1, "rows": chunk.rows}], verb
            assert capture["samples"] == ROWS - (chunk.rows if table == "sample" else 0)
        assert f"1 unreadable chunk with {chunk.rows} rows ({table})" in profcapture("report", flipped).stderr


@pytest.mark.parametrize("table, name", [("sample", "samples"), ("switch", "context switches"), ("wait", "waits")])
def test_damage_is_said_in_numbers(profcapture, whole, chunks, tmp_path, table, name):
    """report says how many rows of each table are missing. verify prints their range of time in the
    form of --from and --to; outside of that range, no row is missing."""
    flipped = tmp_path / "flipped.cap"
    chunk = flip_in(chunks, whole, flipped, table, 1)
    rows = {part["name"]: part["rows"] for part in profcapture.json("info", whole)["data"]["tables"]}[table]
    found = re.search(rf"^Lost: {chunk.rows} of {rows} {name} \((\d+) %\), in 1 damaged\s+chunk\.", profcapture("report", flipped).stdout, re.MULTILINE)
    assert int(found[1]) == round(100 * chunk.rows / rows)
    start, end = re.search(r"^Affected: .*, (\d+\.\d+) s to (\d+\.\d+) s\.", profcapture("verify", flipped, check=3).stdout, re.MULTILINE).groups()
    rows_of = lambda file, *part: profcapture.json("dump", "--table", table, file, "--limit", 0, *part)["data"]["rows"]
    for part, lost in (["--from", start, "--to", end], chunk.rows), (["--to", start], 0), (["--from", end], 0):
        assert len(rows_of(whole, *part)) == len(rows_of(flipped, *part)) + lost, part
    lost = profcapture.json("verify", flipped, check=3)["data"]
    assert float(start) <= lost["lost_from_ns"] / 1e9 < lost["lost_to_ns"] / 1e9 < float(end)


def test_verify_says_which_answers_are_affected(profcapture, whole, chunks, tmp_path):
    """Damaged rows of events make numbers wrong in the time range of these rows, damaged names make
    names wrong; other answers are still right."""
    flipped = tmp_path / "flipped.cap"
    number = profcapture.json("verify", whole)["data"]["chunks"]
    losses = re.search(r"^Lost: .*\n(?:  .*\n)*", profcapture("report", whole).stdout, re.MULTILINE)[0]
    assert profcapture("verify", whole).stdout == f"{whole} is complete: {number} chunks, all whole.\n{losses}"
    assert profcapture.json("verify", whole)["data"]["lost_from_ns"] is None
    for table, affected, others in ("mark", "marks, ", ("report", "counters")), ("sample", "report, annotate, ", ("marks", "memory")), \
            ("symbol", "names in report, annotate, places of waiting, memory.", ("marks", "counters")), ("alloc", "memory, ", ("report", "annotate")):
        chunk = flip_in(chunks, whole, flipped, table)
        verdict, blank, titles, row, last = profcapture("verify", flipped, check=3).stdout.splitlines()
        kind = "rows" if table == "symbol" else "events"
        assert re.fullmatch(rf"{flipped} is damaged: 1 of \d+ chunks, {chunk.rows} of \d+ {kind} are lost\.( Samples are whole\.)?", verdict)
        assert ("Samples are whole" in verdict) == (table != "sample") and blank == "" and titles.split() == ["at", "byte", "size", "table", "rows", "what"]
        at, _, unit, name, rows, *what = row.split()
        assert (int(at), name, int(rows), " ".join(what)) == (chunk.offset, table, chunk.rows, "checksum wrong") and unit in ("B", "KiB")
        affects, _, not_affected = last.removeprefix("Affected: ").partition(" Not affected: ")
        assert affects.startswith(affected) and set(others) <= set(not_affected.rstrip(".").split(", ")), last
        assert (" to " in affects) == (table != "symbol")
        times = profcapture.json("verify", flipped, check=3)["data"]
        assert (times["lost_from_ns"] is None) == (times["lost_to_ns"] is None) == (table == "symbol")
    # now the file's end is missing
    flipped.write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    last = profcapture("verify", flipped, check=3).stdout.splitlines()[-1]
    assert last.startswith("Affected: ") and "Not affected" not in last
    end, = re.search(r"everything after (\d+\.\d+) s\.", last).groups()
    capture = profcapture.json("info", flipped)["capture"]
    assert float(end) <= capture["duration_ns"] / 1e9 < float(end) + 0.001


def test_what_lies_outside_of_the_range(profcapture, whole, chunks, tmp_path):
    """Damaged names matter at any time. Other damaged rows matter between --from and --to, even if
    the answer does not need them; verify checks everything."""
    flipped, end = tmp_path / "flipped.cap", profcapture.json("info", whole)["capture"]["duration_ns"]
    late = ["--from", f"{end - 1}ns"]
    flip_in(chunks, whole, flipped, "alloc")
    assert profcapture.json("report", flipped, *late)["capture"]["state"] == "finished"
    assert profcapture.json("report", flipped, "--to", "1ms")["capture"]["state"] == "damaged"
    assert profcapture.json("verify", flipped, check=3)["capture"]["state"] == "damaged"
    flip_in(chunks, whole, flipped, "symbol")
    assert profcapture.json("report", flipped, *late)["capture"]["state"] == "damaged"


def test_a_cut_file_is_not_damaged(profcapture, whole, tmp_path):
    cut = tmp_path / "cut.cap"
    cut.write_bytes(whole.read_bytes()[:-1000])
    for verb in "info", "report", "dump":
        done = profcapture(verb, cut, "--json")
        assert "is unfinished" in done.stderr and "is damaged" not in done.stderr
        assert json.loads(done.stdout)["capture"]["state"] == "unfinished"


def run_times(chunks, lost):
    """Returns {tid: (ns run, waited, preempted)} from the rows of switches, without those of the
    chunk at the offset `lost`. The time between two rows counts only if no row between them can be
    missing."""
    names = ["wait", "preempted", "running", "preempted"]  # by switch.state; woken but without a CPU is preempted
    tids = {row["id"]: row["tid"] for row, _ in chunks.rows("thread")}
    left, times, skipped = {}, {}, False
    for row, chunk in chunks.rows("switch"):
        if chunk.offset == lost:
            left = {}
            continue
        time = times.setdefault(tids.get(row["thread"]), dict.fromkeys(names + ["run"], 0))
        start = min(row["start"], row["time"])
        time["run"] += row["time"] - start
        if row["thread"] in left:
            ended, how = left[row["thread"]]
            time[names[how]] += max(start - ended, 0)
        left[row["thread"]] = row["time"], row["state"]
    times.pop(None, None)
    found = {tid: (time["run"], time["wait"], time["preempted"]) for tid, time in times.items()}
    return {tid: time for tid, time in found.items() if any(time)}


def test_times_are_lower_bounds(profcapture, whole, chunks, tmp_path):
    """If switches are damaged, the times of threads are never more than the true values, never
    guessed, and marked as lower bounds."""

    def reported(path):
        rows = profcapture.json("report", path, "--by", "thread", "--limit", 0)["data"]["rows"]
        known = {row["tid"]: (row["run_ns"], row["wait_ns"], row["preempted_ns"]) for row in rows if row["run_ns"] is not None}
        return known, {row["times_incomplete"] for row in rows}

    def states(path):
        """Returns the same times as reported(), but from SQL's thread_states."""
        times = collections.defaultdict(collections.Counter)
        for row in profcapture.json("sql", path, "SELECT tid, state, sum(duration_ns) AS ns FROM thread_states GROUP BY 1, 2")["data"]["rows"]:
            times[row["tid"]][row["state"]] += row["ns"]
        return {tid: (time["running"], time["waiting"], time["preempted"]) for tid, time in times.items()}

    def slices(path):
        """Returns the same times as reported(), but from the HTML page."""
        profcapture("export", path, "--to", "html", "-o", tmp_path / "page.html", "--force")
        header, columns = read_page(tmp_path / "page.html")
        times = collections.defaultdict(lambda: [0, 0, 0])
        for thread, kind, length in zip(*(columns[f"slices.{name}"] for name in ("thread", "kind", "length"))):
            times[header["threads"][int(thread)]["tid"]][(0, 2, 1)[int(kind)]] += length
        return {tid: tuple(time) for tid, time in times.items()}

    flipped = tmp_path / "flipped.cap"
    in_full = run_times(chunks, None)
    assert reported(whole) == (in_full, {False})
    assert "≥" not in profcapture("report", whole, "--by", "thread").stdout
    smaller = 0
    for chunk in [chunk for chunk in chunks.chunks if chunk.table == chunks.table("switch")["id"]]:
        flip(whole, flipped, chunk.offset + CHUNK_HEADER + chunk.stored // 2)
        times, incomplete = reported(flipped)
        assert times == states(flipped) == slices(flipped) == run_times(chunks, chunk.offset) and incomplete == {True}
        assert all(part <= all for tid in times for part, all in zip(times[tid], in_full[tid]))
        smaller += times != in_full
        text = profcapture("report", flipped, "--by", "thread").stdout
        run, wait, preempted = (f"≥{ns / 1e9:.2f}" for ns in next(iter(times.values())))
        assert run in text and wait in text and preempted in text and "times are lower bounds" in text
        assert "times_incomplete" in profcapture("report", flipped, "--by", "thread", "--format", "csv").stdout
    assert smaller >= 2
    c_locale = profcapture("report", flipped, "--by", "thread", env={"LC_ALL": "C"}).stdout
    assert f">={next(iter(times.values()))[0] / 1e9:.2f}" in c_locale
    # a damaged table of samples
    flip_in(chunks, whole, flipped, "sample")
    assert profcapture.json("report", flipped)["data"]["incomplete"]
    assert "counts are lower bounds" in profcapture("report", flipped).stdout
    assert not profcapture.json("report", whole)["data"]["incomplete"]


@pytest.mark.parametrize("maker", ["cut", "compact", "recover"])
def test_a_copy_does_not_hide_damage(profcapture, whole, chunks, tmp_path, maker):
    """A finished capture made from a damaged one has the loss in its table of losses."""
    flipped, new = tmp_path / "flipped.cap", tmp_path / "new.cap"
    for table in "stack", "sample":
        chunk = flip_in(chunks, whole, flipped, table)
        profcapture(maker, flipped, *(["--from", "0"] if maker == "cut" else []), "-o", new, "--force")
        losses = profcapture.json("info", new, "--limit", 0)["data"]["loss"]
        assert (table, chunk.rows) in [(loss["stream"], loss["count"]) for loss in losses if loss["cause"] == "file-damage"]
    # a copy of a time range without damage lists no such loss
    if maker == "cut":
        end = profcapture.json("info", whole)["capture"]["duration_ns"]
        profcapture(maker, flipped, "--from", f"{end - 1}ns", "-o", new, "--force")
        losses = profcapture.json("info", new, "--limit", 0)["data"]["loss"]
        assert "sample" not in [loss["stream"] for loss in losses if loss["cause"] == "file-damage"]


@pytest.mark.parametrize("second", ["another", "the same"])
def test_joined_captures(profcapture, whole, tmp_path, second):
    """If captures were joined by cat(1), the first is read and the rest is reported; recover makes
    a valid capture of the file."""
    other = whole if second == "the same" else make(tmp_path / "other.cap", "--rows", 40)
    joined, size = tmp_path / "it's joined.cap", whole.stat().st_size
    for first in size, size - random.Random(1).randrange(1, 3000):
        joined.write_bytes(whole.read_bytes()[:first] + other.read_bytes())
        done = profcapture("report", joined, "--json")
        capture = json.loads(done.stdout)["capture"]
        assert capture["second_capture_at"] == first and capture["state"] == "damaged"
        assert f"a second capture starts at byte {first} of '{joined}'" in done.stderr
        if first == size:
            assert capture["samples"] == ROWS and "is damaged" not in done.stderr
        command = re.search(r": (tail .*) > second.cap$", done.stderr, re.MULTILINE)[1]
        extracted = subprocess.run(command, shell=True, stdout=subprocess.PIPE, check=True).stdout
        assert extracted == other.read_bytes()
    for verb in ["info"], ["dump"], ["export", "--to", "folded", "-o", tmp_path / "new"]:
        assert "a second capture starts" in profcapture(*verb, joined).stderr
    assert re.search(r"^ *\d+ .* belongs to another capture$", profcapture("verify", joined, check=3).stdout, re.MULTILINE)
    profcapture("recover", joined, "-o", tmp_path / "recovered.cap")
    losses = profcapture.json("info", tmp_path / "recovered.cap", "--limit", 0)["data"]["loss"]
    assert sum(loss["bytes"] for loss in losses if loss["cause"] == "file-damage" and loss["stream"] == "unknown") < other.stat().st_size
