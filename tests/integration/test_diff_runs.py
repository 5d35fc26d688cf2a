# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profcapture diff of several runs per side, and of captures for which it gives no verdict."""
import json
import re

import pytest
from test_diff import builds, diff  # noqa: F401 (fixture)

RUNS = 3


@pytest.fixture(scope="module")
def runs(profctl, builds, tmp_path_factory):
    """Captures of several runs of a program: "a" and "b" are alike, "slow" runs three times as long
    with equal shares."""
    folder = tmp_path_factory.mktemp("runs")
    captures = {"a": [], "b": [], "slow": []}
    for i in range(RUNS):
        for name, seconds in ("a", "0.2"), ("b", "0.2"), ("slow", "0.6"):
            captures[name].append(folder / f"{name}{i}.cap")
            profctl("record", "-q", "-F", "5000", "-e", "cpu-clock", "-o", captures[name][-1], "--", builds[0], seconds)
    return captures


def test_several_runs(profcapture, runs):
    """diff reports the means of the runs, and as noise the standard error times Student's factor.
    The test computes both from each run alone."""
    data = diff(profcapture, *runs["a"], "--to", *runs["b"], "--normalise", "run")
    assert data["runs"] == [RUNS, RUNS] and len(data["captures"]) == 2 * RUNS
    single = [[diff(profcapture, run, run, "--normalise", "run")["all"]["a"] for run in runs[side]] for side in ("a", "b")]
    means = [sum(values) / RUNS for values in single]
    squares = sum((value - mean) ** 2 for values, mean in zip(single, means) for value in values)
    student = 5.59757  # two-sided probability 0.005, four degrees of freedom
    noise = student * (squares / (2 * RUNS - 2) * 2 / RUNS) ** 0.5
    assert [data["all"]["a"], data["all"]["b"]] == pytest.approx(means)
    assert data["all"]["noise"] == pytest.approx(max(noise, 0.001 * max(map(max, single))), rel=1e-4)
    significant = [row for row in data["rows"] if row["significant"]]
    assert len(significant) <= 1, significant  # by chance in 1 of 200 comparisons
    if not significant:
        assert profcapture("diff", *runs["a"], "--to", *runs["b"], "--fail-over", "5").stderr == ""


def test_all_of_it_became_slower(profcapture, runs):
    """If the whole run takes three times as long and all shares are equal, the first row is the
    whole run."""
    a, slow = runs["a"], runs["slow"]
    assert diff(profcapture, *a, "--to", *slow)["significant"] <= 1  # a row is significant by chance in 1 of 200 comparisons
    for files in [*a, "--to", *slow], [a[0], slow[0]]:
        done = profcapture("diff", *files, "--fail-over", "5%", check=7)
        assert re.fullmatch(r"The whole run grew by \d+\.\d %, more than 5 %\.", done.stderr.splitlines()[0])
        lines = done.stdout.splitlines()
        assert re.search(r"The whole run is slower \(\+\d+\.\d %, noise \d+\.\d %\)\.", lines[0])
        assert re.fullmatch(r"change +noise +A +B +verdict +function", lines[lines.index("") + 1].strip())
        assert re.fullmatch(r" *\+\d+\.\d % +±\d+\.\d % +\S+ m?s +\S+ m?s +slower +\(whole run\)", lines[lines.index("") + 2])
        # whole runs are compared by default
        done = profcapture("diff", *files)
        assert done.stdout.splitlines()[0] == lines[0] and ("Hint: runs of the same program" in done.stderr) == (len(files) == 2)
        assert ("mean of 3 runs, " in done.stdout) == (len(files) != 2)
        profcapture("diff", *files, "--fail-over", "1000%")
    assert "The whole run" not in profcapture("diff", *slow, "--to", *a, "--fail-over", "5%", check=None).stderr
    # --to with a time is the end of a range, not a list of captures
    done = profcapture("diff", a[0], slow[0], "--to", "0.2s", "--json", check=None)
    assert json.loads(done.stdout)["data"]["runs"] == [1, 1] and done.returncode in (0, 8)
    for wrong in [a[0], "--to"], ["--to", a[0]], [*a]:
        profcapture("diff", *wrong, check=2)


def test_no_verdict(profctl, profcapture, builds, runs, tmp_path):
    """diff ends with status 8 and a message that says what is needed."""
    good, few, unnamed, cut = runs["a"][0], tmp_path / "few.cap", tmp_path / "unnamed.cap", tmp_path / "cut.cap"
    profctl("record", "-q", "-o", few, "--", builds[0], "0.03")
    profctl("record", "-q", "--no-symbols", "-F", "5000", "-e", "cpu-clock", "-o", unnamed, "--", builds[0], "0.2")
    cut.write_bytes(good.read_bytes()[:-100])
    for file, needed, plain in (few, "; 128 are needed. Record longer or raise -F.", 8), (unnamed, f" Add the names that this machine has: profcapture symbolize {unnamed}", 8), \
            (cut, f"{cut} is unfinished. Record again.", 0):
        for files in [good, file], [file, good], [good, "--to", good, file]:
            done = profcapture("diff", *files, "--fail-over", "5%", check=8)
            said = done.stdout.splitlines()[0]
            assert said.startswith("No verdict: ") and needed in said and str(file) in said and "No verdict" not in done.stderr
            assert "(whole run)" in done.stdout and "The whole run" not in done.stdout
            # without --fail-over, an unfinished capture does not make diff fail
            done = profcapture("diff", *files, check=plain)
            assert done.stdout.splitlines()[0] == said and "No verdict" not in done.stderr
            done = profcapture("diff", *files, "--json", check=plain)
            assert (said in done.stderr) == (plain == 8)
            assert {row["verdict"] for row in json.loads(done.stdout)["data"]["rows"]} == {None}
    done = profcapture("diff", few, few, "--fail-over", "5%", check=8)
    assert re.match(rf"No verdict: {few} has \d+ samples?; 128 are needed\. ", done.stdout)


def test_counts_what_report_counts(profcapture, runs):
    for file in runs["a"]:
        want = profcapture.json("report", file)["data"]["total_weight"]
        rows = diff(profcapture, file, file, "--normalise", "run")["rows"]
        assert sum(row["a"] for row in rows) == sum(row["b"] for row in rows) == want
        line = next(line for line in profcapture("diff", file, file).stdout.splitlines() if line.startswith("A: "))
        found = re.match(rf"A: {file}, (\d+) ms of CPU(?: \(interrupts: ([\d.]+) (m|u)s\))?", line)
        more = float(found[2] or 0) * (1e6 if found[3] == "m" else 1e3)
        assert abs(float(found[1]) * 1e6 + more - want) <= 0.006 * want  # the text has three digits
