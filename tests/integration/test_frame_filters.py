# SPDX-License-Identifier: BSD-2-Clause-Patent
"""report's --focus, --ignore, --hide, --show, --show-from, --inverted and --mode, compared with the
same filters applied here to each sample's frames."""
import collections
import json
import re

import pytest
import schema
from captures import make


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("filters") / "whole.cap"
    return make(path, "--all-tables", "--epochs", 3, "--rows", 1000, "--chunk-rows", 200)


@pytest.fixture(scope="module")
def samples(profcapture, whole):
    """(thread, mode, frames from the root inwards) of each sample."""
    lines = profcapture("dump", whole, "--table", "sample", "--resolve", "--format", "ndjson").stdout.splitlines()
    rows = [json.loads(line) for line in lines[1:]]
    return [((row["pid"], row["tid"]), row["mode"], [f for f in row["frames"][::-1] if not f["inline"]]) for row in rows]


def identity(frame):
    return (frame["name"], frame["image"], frame["offset"])


def matches(pattern, frame):
    return any(re.search(pattern, frame[key] or "") for key in ("name", "raw_name", "file", "image"))


def apply(frames, focus=None, ignore=None, hide=None, show=None, show_from=None):
    """Returns the frames of a stack that pprof's filters keep; None: the sample is left out."""
    if focus and not any(matches(focus, frame) for frame in frames):
        return None
    if ignore and any(matches(ignore, frame) for frame in frames):
        return None
    frames = [frame for frame in frames if not (hide and matches(hide, frame)) and not (show and not matches(show, frame))]
    if show_from:
        first = next((i for i, frame in enumerate(frames) if matches(show_from, frame)), len(frames))
        frames = frames[first:]
    return frames or None


def options(filters):
    return [word for name, pattern in filters.items() for word in (f"--{name.replace('_', '-')}", pattern)]


@pytest.fixture(scope="module")
def patterns(samples):
    """Patterns of three functions that are only in some stacks, most frequent first, and of an image."""
    on = collections.Counter(frame["name"] for _, _, frames in samples for frame in {identity(f): f for f in frames}.values())
    some = [name for name, n in on.most_common() if len(samples) * 0.05 < n < len(samples) * 0.9]
    assert len(some) >= 3
    image = next(frame["image"] for _, _, frames in samples for frame in frames if frame["image"])
    return [f"^{re.escape(some[0])}$", f"^{re.escape(some[1])}$", f"^{re.escape(some[2])}$", re.escape(image.rsplit("/", 1)[-1])]


FILTERS = [
    {"focus": 0},
    {"ignore": 0},
    {"hide": 0},
    {"show": 3},
    {"show_from": 1},
    {"focus": 3, "hide": 3},
    {"focus": 0, "ignore": 1},
    {"focus": 0, "show_from": 0, "hide": 2},
    {"show_from": 0, "hide": 0},
]


@pytest.mark.parametrize("by_number", FILTERS, ids=lambda filters: "-".join(filters))
def test_the_same_as_by_hand(profcapture, whole, samples, patterns, by_number):
    filters = {name: patterns[number] for name, number in by_number.items()}
    own, total, by_thread, passed = collections.Counter(), collections.Counter(), collections.Counter(), 0
    for thread, _, frames in samples:
        left = apply(frames, **filters)
        if left is None:
            continue
        passed += 1
        by_thread[thread] += 1
        own[identity(left[-1])] += 1
        total.update({identity(frame) for frame in left})
    report = profcapture.json("report", whole, "--limit", 0, *options(filters))
    schema.check(profcapture, "report", report)
    data = report["data"]
    assert data["total"] == len(samples) and data["self_total"] == passed
    assert {identity(row): row["self"] for row in data["rows"] if row["self"]} == dict(own)
    assert {identity(row): row["total"] for row in data["rows"]} == dict(total)
    assert all(row["total_pct"] == pytest.approx(100 * row["total"] / len(samples)) for row in data["rows"])
    threads = profcapture.json("report", whole, "--by", "thread", "--limit", 0, *options(filters))["data"]
    assert {(row["pid"], row["tid"]): row["self"] for row in threads["rows"] if row["self"]} == dict(by_thread)
    images = profcapture.json("report", whole, "--by", "image", "--limit", 0, *options(filters))["data"]
    assert images["self_total"] == passed == sum(row["self"] for row in images["rows"])


def chains(node, above=()):
    for child in node["children"]:
        here = above + (identity(child),)
        yield here, child["total"], child["parent_pct"] * node["total"] / 100
        yield from chains(child, here)


@pytest.mark.parametrize("by_number", [{}, {"hide": 0}, {"focus": 1}], ids=lambda filters: "-".join(filters) or "all")
def test_inverted(profcapture, whole, samples, patterns, by_number):
    filters = {name: patterns[number] for name, number in by_number.items()}
    expected = collections.Counter()
    for _, _, frames in samples:
        left = [identity(frame) for frame in apply(frames, **filters) or []][::-1]
        expected.update(tuple(left[:n]) for n in range(1, len(left) + 1))
    tree = profcapture.json("report", whole, "--inverted", "--limit", 0, *options(filters))
    schema.check(profcapture, "report", tree)
    found = list(chains(tree["data"]["root"]))
    assert {chain: total for chain, total, _ in found} == dict(expected)
    assert all(total == pytest.approx(share) for _, total, share in found)
    assert "function < caller" in profcapture("report", whole, "--inverted", *options(filters)).stdout


def test_modes(profcapture, whole, samples):
    counts = collections.Counter(mode for _, mode, _ in samples)
    data = profcapture.json("report", whole)["data"]
    assert data["modes"] == {"user": counts["user"], "kernel": counts["kernel"]} and all(counts.values())
    for mode, count in counts.items():
        only = profcapture.json("report", whole, "--mode", mode)["data"]
        assert only["total"] == count and only["modes"][mode] == count


def test_no_children(profcapture, whole):
    every = profcapture.json("report", whole, "--limit", 0)["data"]["rows"]
    own = profcapture.json("report", whole, "--limit", 0, "--no-children")["data"]["rows"]
    assert own and own == [row for row in every if row["self"]]
    assert "total %" not in profcapture("report", whole, "--no-children").stdout


@pytest.mark.parametrize("view", [["--by", "function"], ["--by", "line"], ["--by", "image"], ["--inline", "--hide", "1"]])
def test_timeline(profcapture, whole, view):
    report = profcapture.json("report", whole, "--limit", 0, "--timeline", *view)
    schema.check(profcapture, "report", report)
    data = report["data"]
    assert all(sum(row["timeline"]) == row["self"] for row in data["rows"])
    assert sum(map(sum, (row["timeline"] for row in data["rows"]))) == data["self_total"]
    # The first bin's counts are those of a report on only the time of this bin.
    end = data["timeline"]["from_ns"] + data["timeline"]["bin_ns"] - 1
    first = profcapture.json("report", whole, "--limit", 0, "--to", f"{end}ns", *view)["data"]["rows"]
    count = lambda rows, self: {json.dumps([row.get(key) for key in ("name", "image", "build_id", "offset", "line", "kind")]): self(row) for row in rows if self(row)}
    assert count(first, lambda row: row["self"]) == count(data["rows"], lambda row: row.get("timeline", [0])[0])
    titles = next(line for line in profcapture("report", whole, "--timeline", *view).stdout.splitlines() if "self %" in line)
    assert re.search(r"  samples(  cycles)?  0-[\d.]+ m?s ", titles)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--focus", "("], "--focus: '(' is not a regular expression: missing"),
        (["--inverted", "--callers", "x"], "--inverted cannot be combined with"),
        (["--inverted", "--by", "thread"], "--by function or image"),
        (["--no-children", "--tree"], "--no-children applies to rows"),
        (["--timeline", "--tree"], "--timeline cannot be combined with --tree"),
        (["--timeline", "--by", "thread"], "--timeline needs --by function, line or image"),
    ],
)
def test_usage_errors(profcapture, whole, arguments, said):
    done = profcapture("report", whole, *arguments, check=2)
    assert said in done.stderr and done.stdout == ""


def test_hostile_patterns_end(profcapture, whole):
    """A pattern that backtracks without end is abandoned, and matches nothing."""
    profcapture("report", whole, "--focus", "(.*)*(.*)*(.*)*(.*)*\x01$", check=6)
