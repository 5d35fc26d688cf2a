# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profcapture diff matches the rows of two captures, and separates changes from noise."""
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
from captures import make, unprintable
from format_reader import Capture
from slices import SANITIZED

SLOW = 7
SOURCE = Path(os.environ["PROF_SOURCE_DIR"]) / "tests/tools/mix.c"


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Makes two builds of a program without the build tree's options, because a sanitizer would add
    functions and start-up time."""
    folder = tmp_path_factory.mktemp("builds")
    mix, other = folder / "first" / "mix", folder / "mix"
    mix.parent.mkdir()
    for path, build_id in (mix, "0x5678"), (other, "0x1234"):
        subprocess.run(["gcc", "-O2", "-g", "-pthread", f"-Wl,--build-id={build_id}", SOURCE, "-o", path], check=True)
    return mix, other


def record_mix(profctl, path, *command, frequency):
    """Returns whether samples were lost."""
    done = profctl("record", "-q", "--json", "-F", frequency, "-e", "cpu-clock", "--force", "-o", path, "--", *command)
    return json.loads(done.stdout)["data"]["lost"]


@pytest.fixture(scope="module")
def recordings(profctl, builds, tmp_path_factory):
    """Records the same program twice, and another build of it, in another folder and with a function
    that takes twice as long. If a recording lost samples, as may happen with a sanitizer or on a busy
    machine, all are repeated at a lower rate."""
    folder = tmp_path_factory.mktemp("diff")
    mix, other = builds
    programs = {"one": [mix], "two": [mix], "slow": [other]}
    captures = {name: folder / f"{name}.cap" for name in programs}
    for frequency in 10000, 5000, 2500:
        for name, program in programs.items():
            slower = [str(SLOW), "100"] if name == "slow" else []
            if record_mix(profctl, captures[name], *program, "0.8", *slower, frequency=frequency) and frequency > 2500:
                break
        else:
            break
    return captures


def diff(profcapture, a, b, *options):
    output = profcapture.json("diff", a, b, *options)
    schema.check(profcapture, "diff", output)
    return output["data"]


def test_equals_are_equal(profctl, profcapture, recordings, builds, tmp_path):
    one, two = recordings["one"], recordings["two"]
    data = diff(profcapture, one, two)
    if data["significant"]:
        # A row is significant by chance in 1 of 200 comparisons, so compare two other recordings.
        one, two = tmp_path / "one.cap", tmp_path / "two.cap"
        for path in one, two:
            record_mix(profctl, path, builds[0], "0.8", frequency=5000)
        data = diff(profcapture, one, two)
    assert data["significant"] == 0 and not [row for row in data["rows"] if row["significant"]]
    assert data["compared"] >= 20 and data["normalised_by"] == "samples" and data["unit"] == "percent"
    done = profcapture("diff", one, two, "--normalise", "samples", "--fail-over", "0%")
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == "No function changed by more than noise. Only the functions' shares of all samples are compared."
    assert re.fullmatch(r"[\d,]+ functions within noise, [\d,]+ with too few samples \(--all\)", lines[-1])


def test_slower_in_another_build(profcapture, recordings):
    """A change is found by function and by path, although the build-ids and folders differ."""
    for options in [], ["--paths"], ["--no-inline"], ["--mode", "user"]:
        data = diff(profcapture, recordings["one"], recordings["slow"], *options)
        first = data["rows"][0]
        assert first["verdict"] == "slower" and first["samples_needed"] is None
        assert first["name"] == f"work_{SLOW}" and first["significant"] and first["delta"] > first["noise"] > 0
        assert 50 < first["delta_pct"] < 140
        assert abs(first["b"] - first["a"] - first["delta"]) < 1e-9
        works = [row["name"] for row in data["rows"] if row["name"].startswith("work_") and row["a"] > 1]
        assert sorted(works) == sorted(f"work_{i}" for i in range(20))
        if "--paths" in options:
            assert first["path"][-2:] == ["run", f"work_{SLOW}"]


@pytest.mark.parametrize("table", ["string", "image", "frame", "stack", "symbol", "sample"])
def test_damage_leaves_no_verdict(profcapture, recordings, tmp_path, table):
    """With one wrong bit in the slower capture there is no verdict, whichever side it is on,
    because the missing part may be the change."""
    whole, damaged = recordings["slow"], tmp_path / "damaged.cap"
    profcapture("diff", recordings["one"], whole, "--fail-over", "5%", check=7)
    data, layout = bytearray(whole.read_bytes()), Capture(whole.read_bytes())
    chunk = next(chunk for chunk in layout.chunks if chunk.table == layout.table(table)["id"])
    data[chunk.offset + 96 + chunk.stored // 2] ^= 4
    damaged.write_bytes(data)
    for sides in (recordings["one"], damaged), (damaged, recordings["one"]):
        for options in [], ["--paths"], ["--normalise", "time"]:
            done = profcapture("diff", *sides, "--fail-over", "5%", *options, check=8)
            assert f"capture '{damaged}' is damaged" in done.stderr
            assert "No verdict" not in done.stderr
            assert done.stdout.startswith(f"No verdict: {damaged} is damaged. Record again.\n")
            assert "The whole run" not in done.stdout and "within noise" not in done.stdout and "slower" not in done.stdout
            found = diff(profcapture, *sides, *options)
            assert found["significant"] is None and "damage" in [note["code"] for note in found["notes"]]
            assert {row["significant"] for row in found["rows"]} == {None}
            assert {row["verdict"] for row in [*found["rows"], found["all"]]} == {None}
    # recover writes a whole capture, but without the rows that the damaged one has lost
    profcapture("recover", damaged, "-o", tmp_path / "recovered.cap")
    done = profcapture("diff", recordings["one"], tmp_path / "recovered.cap", "--fail-over", "5%", check=8)
    assert "was made of a damaged capture. Record again." in done.stdout.splitlines()[0]


def test_sums(profcapture, recordings):
    """The rows' shares add up to 100 %, without the time of interrupts."""
    for options in [], ["--paths"]:
        data = diff(profcapture, recordings["one"], recordings["slow"], *options)
        for side in "a", "b":
            assert abs(sum(row[side] for row in data["rows"] if row["name"] != "<interrupts>") - 100) < 1e-6
        order = [(not row["significant"], -abs(row["delta"])) for row in data["rows"]]
        assert order == sorted(order)


def test_fail_over(profcapture, recordings):
    one, slow = recordings["one"], recordings["slow"]
    done = profcapture("diff", one, slow, "--fail-over", "5%", check=7)
    assert re.search(rf"^work_{SLOW} grew by \d+\.\d %, more than 5 %\.$", done.stderr, re.M)
    assert f"Slower: work_{SLOW} by " in done.stdout
    # a decrease is no failure; small functions, and those of the kernel, may differ by chance
    assert "work_" not in profcapture("diff", one, slow, "--fail-over", "150%", check=None).stderr
    assert "work_" not in profcapture("diff", slow, one, "--fail-over=30", check=None).stderr
    for wrong in "", "x", "5x", "-1", "nan", "1e3", "5%%", ".5", "5.", "0x5", "99999999999":
        assert "--fail-over" in profcapture("diff", one, slow, "--fail-over", wrong, check=2).stderr


def test_screen(profcapture, recordings):
    """The verdict comes first. Rows within noise are hidden, but not the whole run."""
    one, slow = recordings["one"], recordings["slow"]
    text = profcapture("diff", one, slow).stdout
    lines = text.splitlines()
    assert re.match(rf"Slower: work_{SLOW} by \d+ % \(\+[\d.]+ ms\)[,.]", lines[0])
    assert len(re.findall(r"\([+-][\d.]+ \S?s\)", lines[0].split("The whole run")[0])) <= 3
    assert lines[1].startswith("A: ") and "B: " in text and "Lost: " in text
    rows = lines[lines.index("") + 2:]
    assert rows[0].endswith("(whole run)")
    assert re.fullmatch(rf" *\+[\d.]+ % +±[\d.]+ % +\S+ ms +\S+ ms +slower +work_{SLOW}  mix\.c:\d+", rows[1])
    assert "within noise" in rows[-1] and not any(" same " in row for row in rows[1:])
    every = profcapture("diff", one, slow, "--all", "--limit", 0).stdout.splitlines()
    data = diff(profcapture, one, slow, "--normalise", "run")
    words = [re.findall(r"  (slower|faster|new|gone|same|unclear|-)(?=  )", row)[-1] for row in every[every.index("") + 3:]]
    assert words == [row["verdict"] or "-" for row in data["rows"]] and {"slower", "same"} <= set(words)
    assert len(profcapture("diff", one, slow, "--all", "--limit", 3).stdout.splitlines()) == len(lines[:lines.index("")]) + 1 + 1 + 4 + 1
    # in shares of all samples, the whole run is the same on both sides
    shares = profcapture("diff", one, slow, "--normalize", "samples").stdout
    assert "Only the functions' shares of all samples are compared." in shares and re.search(r" - +\(whole run\)$", shares, re.M)
    for options in [], ["--paths"]:
        assert diff(profcapture, one, slow, "--inline", *options) == diff(profcapture, one, slow, *options)


def test_normalised(profcapture, recordings):
    """--normalise time shows shares of a CPU, --normalise run shows times. In both, the rows add up
    to the whole run."""
    one, slow = recordings["one"], recordings["slow"]
    for norm, unit in ("time", "percent_cpu"), ("run", "ns"):
        data = diff(profcapture, one, slow, "--normalise", norm)
        assert data["normalised_by"] == norm and data["unit"] == unit
        rows = sum(row["a"] for row in data["rows"] if row["name"] != "<interrupts>")
        assert abs(rows - data["all"]["a"]) < 1e-6 * rows
    # each of two threads runs for 0.8 s; a virtual machine may miss up to half of the ticks
    assert 0.6e9 < data["all"]["a"] < 2.4e9
    assert "has no mark 'x'" in profcapture("diff", one, slow, "--normalise", "mark:x", check=2).stderr
    assert "Did you mean 'time'?" in profcapture("diff", one, slow, "--normalise", "tim", check=2).stderr


def test_same_twice(profcapture, recordings):
    data = diff(profcapture, recordings["one"], recordings["one"])
    assert all(row["delta"] == 0 and not row["significant"] for row in data["rows"])
    # a busy machine loses some samples, which is reported
    assert {note["code"] for note in data["notes"]} <= {"loss"}


def test_formats(profcapture, recordings):
    files = [recordings["one"], recordings["slow"], "--limit", 3]
    rows = list(csv.DictReader(io.StringIO(profcapture("diff", *files, "--format", "csv").stdout)))
    assert [row["name"] for row in rows] == [row["name"] for row in diff(profcapture, *files)["rows"]]
    assert rows[0]["significant"] == "true" and len(rows) == 3
    assert len(profcapture("diff", *files, "--format", "ndjson").stdout.splitlines()) == 4
    assert rows[0]["verdict"] == "slower" and rows[0]["samples_needed"] == ""
    colored = profcapture("diff", *files, "--color", "always").stdout
    assert "\x1b[" in colored and not re.search("\x1b\\[[0-9;]*m\x1b\\[0?m", colored)


# ---- generated captures


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made") / "made.cap", "--all-tables", "--rows", 600, "--epochs", 2)


def test_made_up(profcapture, made):
    for options in [], ["--paths"], ["--no-inline"], ["--normalise", "time"], ["--memory"], ["--memory", "--no-inline"], ["--memory=calls", "--paths"], ["--memory=peak"]:
        data = diff(profcapture, made, made, *options)
        assert data["significant"] == 0 and all(row["delta"] == 0 for row in data["rows"])
        assert ("processes" in data) == any("memory" in option for option in options)
        profcapture("diff", made, made, *options)
    data = diff(profcapture, made, made, "--to", made, made, made)
    assert data["runs"] == [2, 3] and data["significant"] == 0 and all(abs(row["delta"]) < 1e-9 for row in data["rows"])
    for wrong in ["--memory", "--mode", "user"], ["--memory", "--focus", "f"], ["--memory=peak", "--paths"], ["--memory=peek"], ["--memory=peak", "--normalise", "time"]:
        profcapture("diff", made, made, *wrong, check=2)


def test_marks(profcapture, made):
    """With --normalise mark:NAME, every value is divided by the number of marks with this name."""
    mark = next(row for row in profcapture.json("marks", made)["data"]["rows"] if row["name"] and row["count"])
    name = mark["name"]
    data = diff(profcapture, made, made, "--normalise", f"mark:{name}")
    assert data["normalised_by"] == f"mark:{name}" and data["unit"].endswith("_per_mark")
    assert data["all"]["a"] == data["all"]["b"] > 0


def test_empty_damaged_and_hostile(profcapture, made, tmp_path):
    empty = make(tmp_path / "empty.cap", "--rows", 0)
    hostile = make(tmp_path / "hostile.cap", "--rows", 600, "--prefix", "\x1b[31m\u202e\n")
    cut = tmp_path / "cut.cap"
    cut.write_bytes(made.read_bytes()[:made.stat().st_size * 2 // 3])
    for a, b in (empty, made), (made, empty), (empty, empty), (made, cut), (hostile, made), (made, hostile):
        status = 8 if empty in (a, b) else 0
        output = json.loads(profcapture("diff", a, b, "--json", check=status).stdout)
        schema.check(profcapture, "diff", output)
        data = output["data"]
        if empty in (a, b):
            assert data["significant"] == 0 and "few" in [note["code"] for note in data["notes"]]
        done = profcapture("diff", a, b, check=status)
        assert ("recover" in done.stderr or "damaged" in done.stderr or "unfinished" in done.stderr) == (cut in (a, b))
        assert not unprintable(done.stdout) and not unprintable(done.stderr)
    profcapture("diff", made, SOURCE, check=3)
    profcapture("diff", made, tmp_path / "nothing", check=1)
    profcapture("diff", made, check=2)


def test_memory(profcapture, tmp_path):
    """Twice as many calls of allocation functions are more than noise."""
    captures = []
    for n in 1000, 2000:
        captures.append(tmp_path / f"{n}.cap")
        make(captures[-1], "--all-tables", "--rows", n)
    data = diff(profcapture, *captures, "--memory=calls")
    assert data["metric"] == "calls" and data["unit"] == "calls" and data["normalised_by"] == "run"
    assert data["all"]["b"] > 1.5 * data["all"]["a"] > 0 and data["all"]["significant"]
    assert data["all"]["verdict"] == "more"
    done = profcapture("diff", *captures, "--memory=calls", "--fail-over", "50%", check=7)
    assert done.stderr.startswith("The whole run grew by ") and "The whole run uses more (+" in done.stdout
    profcapture("diff", *reversed(captures), "--memory=calls", "--fail-over", "0%")


GROWING = r"""
#include <cstdlib>
#include <vector>
static inline char *copy(int size) { char *made = (char *)malloc(size); asm volatile("" : : "r"(made) : "memory"); return made; }
__attribute__((noinline)) static void parse(int n) {
	for (int i = 0; i < n; i++)
		copy(100 + i % 3);
}
__attribute__((noinline)) static void keep(std::vector<char *> &all, int n) {
	for (int i = 0; i < n; i++)
		all.push_back(nullptr);
}
int main(int, char **argv) {
	parse(2000);
	for (int i = 0; i < 200; i++) {
		std::vector<char *> all, more;
		keep(all, atoi(argv[1]));
		for (int k = 0; k < 200; k++)
			more.push_back(nullptr);
	}
}
"""


def test_memory_callers(profctl, profcapture, require, tmp_path):
    """A row names a function that allocates. If that function is a library's, such as a method of
    std::vector, the row also names the program's function that called it, and the line of the call.
    Inlined functions count as functions."""
    if SANITIZED:
        pytest.skip("the collector is not loaded into sanitized programs")
    require("g++")
    (tmp_path / "growing.cpp").write_text(GROWING)
    subprocess.run(["g++", "-O2", "-g", "-o", tmp_path / "growing", tmp_path / "growing.cpp"], check=True)
    captures = [tmp_path / "a.cap", tmp_path / "b.cap"]
    for capture, n in zip(captures, (100, 1000)):
        profctl("record", "-q", "--memory", "-F", 0, "-o", capture, "--", tmp_path / "growing", str(n))
    line = 1 + GROWING[:GROWING.index("all.push_back")].count("\n")
    push = r"std::vector<char\*>::push_back"
    for kind in "bytes", "calls", "peak":
        text = profcapture("diff", f"--memory={kind}", "--all", *captures).stdout
        assert re.search(rf" (more|new) +{push} < keep +growing\.cpp:{line}$", text, re.M), text
        if kind != "peak":
            assert re.search(rf" (same|unclear) +{push} < main +growing\.cpp:{line + 8}$", text, re.M), text
        assert re.search(r" (same|unclear) +copy( \(inlined\))? +growing\.cpp:4$", text, re.M), text
        assert re.search(r"^ *change .* function < own caller$", text, re.M)
    assert "push_back < keep" in profcapture("diff", "--memory", *captures).stdout.splitlines()[0]
    rows = diff(profcapture, *captures, "--memory")["rows"]
    grown = next(row for row in rows if row["significant"])
    assert "push_back" in grown["name"] and grown["caller"].startswith("keep(") and grown["call_line"] == line
    assert grown["caller_image"].endswith("/growing") and grown["call_file"].endswith("growing.cpp")
    copied = next(row for row in rows if row["name"].startswith("copy"))
    assert copied["caller"] is None and copied["call_line"] == 4 and copied["significant"] is False
    # The rows of a function add up to what it allocated.
    allocated = collections.Counter()
    for row in profcapture.json("dump", "--table", "alloc", "--resolve", "--limit", 0, captures[1])["data"]["rows"]:
        frame = next(frame for frame in row["frames"] if not frame["inline"] and not frame["name"].startswith("operator new"))
        allocated[frame["name"], frame["image"]] += row["size"]
    rows, found = diff(profcapture, *captures, "--memory", "--no-inline")["rows"], collections.Counter()
    for row in rows:
        found[row["name"], row["image"]] += row["b"]
    assert +found == +allocated and len(rows) > len(found)
    plain = profcapture("diff", "--memory", "--all", "--no-inline", *captures).stdout
    assert re.search(r" parse +growing\.cpp:7$", plain, re.M) and "copy" not in plain
    whole = profcapture("diff", "--memory", "--all", "--full-names", *captures).stdout
    assert re.search(r"std::vector<char\*, std::allocator<char\*> ?>::push_back\(.*\) < keep\(.*\)", whole), whole
