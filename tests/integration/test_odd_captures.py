# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Captures with almost no content, or with only rare content: every --json matches its schema."""
import csv
import io
import json
import re
import sqlite3

import pytest
import schema
from captures import MAKERS, QUERY, TABLE_FORMATS, command, make
from slices import part

VERBS = [
    ["info"], ["verify"], ["dump"], ["dump", "--resolve"], ["dump", "--table", "sample"], ["dump", "--table", "string"],
    ["dump", "--table", "loss"], ["report"], ["report", "--tree"], ["report", "--callers", "x"], ["report", "--callees", "x"],
    ["dump", "--table", "mark", "--resolve"], ["sql", QUERY], ["sql"],
    *(["report", "--by", by] for by in ("image", "thread", "process", "cgroup")),
]


# verbs that have a result only if the capture has rows for them, or losses
OF_OTHERS = [["marks"], ["counters"], ["memory"], ["memory", "--leaks"]]


def appended(path):
    make(path, "--rows", 30)
    make(path, "--append", "--first", 30, "--rows", 0)
    return make(path, "--append", "--first", 30, "--rows", 0, "--crash")


def damaged(path):
    data = bytearray(make(path, "--rows", 160, "--chunk-rows", 20, "--only", "sample").read_bytes())
    data[len(data) // 3 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 3)
    path.write_bytes(data)
    return path


# name: (how the capture is made, its state, its number of samples; None: unknown)
CAPTURES = {
    "no samples": (lambda path: make(path, "--rows", 0), "finished", 0),
    "no samples, unfinished": (lambda path: make(path, "--rows", 0, "--crash"), "unfinished", 0),
    "only losses": (lambda path: make(path, "--only", "loss", "--rows", 30), "finished", 0),
    "only losses, unfinished": (lambda path: make(path, "--only", "loss", "--rows", 30, "--crash"), "unfinished", 0),
    "only metadata": (lambda path: make(path, "--only", "metadata", "--rows", 30), "finished", 0),
    "only tasks": (lambda path: make(path, "--only", "task", "--rows", 30), "finished", 0),
    "one row": (lambda path: make(path, "--all-tables", "--rows", 1), "finished", 1),
    "empty segments": (appended, "unfinished", 30),
    "unfinished": (lambda path: make(path, "--all-tables", "--foreign-table", "--rows", 20, "--crash"), "unfinished", 20),
    "damaged": (damaged, "damaged", None),
}


@pytest.fixture(scope="module", params=CAPTURES)
def odd(request, tmp_path_factory):
    """A capture, its state, its number of samples, and its index, for the parameter `turn` of
    part()."""
    how, state, samples = CAPTURES[request.param]
    return how(tmp_path_factory.mktemp("odd") / "odd.cap"), state, samples, list(CAPTURES).index(request.param)


def test_json(profcapture, odd):
    path, state, samples, turn = odd
    for verb in part(VERBS, 9, turn):
        done = profcapture(verb[0], path, *verb[1:], "--json", "--limit", 0, check=3 if verb[0] == "verify" and state != "finished" else 0)
        output = json.loads(done.stdout)
        schema.check(profcapture, verb[0], output)
        # report reads only what it needs, so it may not notice damage
        assert output["capture"]["state"] == state or state == "damaged" and verb[0] not in ("info", "verify")
        assert output["capture"]["samples"] == samples or samples is None
        assert output["truncated"] is False
        if verb[0] == "report" and samples == 0:
            data = output["data"]
            assert not data.get("rows") and data.get("self_total", 0) == 0 and data.get("function") is None


def test_what_was_not_recorded(profcapture, odd, request):
    """A verb whose data was not recorded prints no answer, but an error that says how to record
    it."""
    path, state, *_ = odd
    holds = request.node.callspec.params["odd"] in ("one row", "unfinished", "only losses", "only losses, unfinished")
    for verb in OF_OTHERS:
        for options in [], ["--json"]:
            done = profcapture(*verb, path, *options, check=0 if holds else 6)
            assert (done.stdout == "") != holds
            assert holds or re.search(f"'{path}' has no (marks|counters|allocations)", done.stderr) and "profctl record" in done.stderr
            assert ("unfinished" in done.stderr) == (state == "unfinished")
            if holds and options:
                schema.check(profcapture, verb[0], json.loads(done.stdout))


def test_other_formats(profcapture, odd):
    path, state, samples, turn = odd
    for verb in part(VERBS, 5, turn + 1):
        finished = verb[0] != "verify" or state == "finished"
        status = 3 if not finished else 2 if samples and verb[-1] == "x" else 0
        assert "nan" not in profcapture(verb[0], path, *verb[1:], check=status).stdout.replace("nanos", "")
        if verb[0] != "verify" and "--tree" not in verb and "--callers" not in verb and "--callees" not in verb:
            lines = profcapture(verb[0], path, *verb[1:], "--format", "ndjson").stdout.splitlines()
            assert json.loads(lines[0])["schema"] == f"profcapture.{verb[0]}/1" and all(json.loads(line) for line in lines)
        if verb[0] in ("report", "dump", "sql") and "--tree" not in verb and "--callers" not in verb and "--callees" not in verb:
            table = list(csv.reader(io.StringIO(profcapture(verb[0], path, *verb[1:], "--format", "csv").stdout, newline="")))
            assert len(table) == len(lines) and len({len(row) for row in table}) == 1


def test_exported_tables(profcapture, odd, tmp_path):
    """Each format has every sample, and a message says if a capture is unfinished or damaged."""
    path, state, samples, _ = odd
    new, found = tmp_path / "new", []
    for to in TABLE_FORMATS:
        new.unlink(missing_ok=True)
        done = profcapture(*command(to, path, new))
        assert (f"'{path}' is {state}" in done.stderr) == (state != "finished")
        if to == "sqlite":
            found += sqlite3.connect(new).execute("SELECT count(*) FROM sample").fetchone()
        elif to == "csv":
            found.append(len(list(csv.reader(io.StringIO(new.read_text(), newline="")))) - 1)
        else:
            found.append(len([json.loads(line) for line in new.read_text().splitlines()]) - 1)
    assert len(set(found)) == 1 and (samples is None or found[0] == samples), found


def test_losses_are_told(profcapture, tmp_path):
    """If there are only losses, they are reported."""
    path = make(tmp_path / "losses.cap", "--only", "loss", "--rows", 30)
    capture = profcapture.json("info", path)["capture"]
    assert capture["lost"] > 0 and capture["samples"] == capture["events"] == 0
    for verb, line in ("info", 1), ("report", 1), ("dump", 0):
        assert profcapture(verb, path).stdout.splitlines()[line].startswith("Lost: ")


@pytest.mark.parametrize("maker", MAKERS)
def test_made_from_it(profcapture, odd, tmp_path, maker):
    path, state, samples, turn = odd
    new = tmp_path / "new.cap"
    profcapture(*command(maker, path, new))
    profcapture("verify", new)
    for verb in part(VERBS[:3], 1, turn + MAKERS.index(maker)):
        schema.check(profcapture, verb[0], profcapture.json(*verb, new))
    before, after = (profcapture.json("report", file)["data"] for file in (path, new))
    if samples is not None:
        assert before["rows"] == after["rows"] and before["self_total"] == after["self_total"] == samples


def test_symbolize(profcapture, odd):
    path, *_ = odd
    assert "unnamed places" in profcapture("symbolize", path).stdout
    profcapture("symbolize", path)
