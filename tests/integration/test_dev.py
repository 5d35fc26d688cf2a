# SPDX-License-Identifier: BSD-2-Clause-Patent
"""./dev and the count at the end of a CI run: what they refuse, and that nothing failed or skipped goes by unseen."""
import json
import os
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
VERBS = "setup build demo test soak stress asan tsan foreign coverage fuzz bench format lint".split()


def dev(*args):
    return subprocess.run([SOURCE / "dev", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=60)


def test_no_argument_explains():
    done = dev()
    assert done.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb}" in done.stdout


def test_unknown_verb_is_refused_with_the_list():
    done = dev("biuld")
    assert done.returncode == 2
    assert '"biuld"' in done.stderr
    assert " ".join(VERBS) in done.stderr


@pytest.fixture
def summary(tmp_path):
    """Runs summary.py over one build whose log has the given (name, result, stdout) records."""

    def run(records, *args, junit=None, expected=None):
        script = tmp_path / "tests/summary.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text((SOURCE / "tests/summary.py").read_text())
        (tmp_path / "tests/expected-skips").write_text(expected or "")
        build = tmp_path / "build"
        (build / "meson-logs").mkdir(parents=True, exist_ok=True)
        (build / "test-results").mkdir(exist_ok=True)
        for name, text in (junit or {}).items():
            (build / f"test-results/{name}.xml").write_text(text)
        if records is not None:
            (build / "meson-logs/testlog-timed.py.json").write_text(
                "".join(json.dumps({"name": f"profd:x / {n}", "result": r, "stdout": o}) + "\n" for n, r, o in records)
            )
        done = subprocess.run(
            ["/usr/bin/python3", script, *args, build], stdout=subprocess.PIPE, encoding="utf-8", timeout=60
        )
        return done.returncode, done.stdout.splitlines()

    return run


TAP = "ok 1 test_a\n# test.c:3: note\nok 2 test_b # SKIP no perf here\n1..2\n"
JUNIT = """<testsuites><testsuite><testcase classname="m" name="test_x[1]"/>
<testcase classname="m" name="test_y"><skipped message="needs root"/></testcase>
<testcase classname="m" name="test_z"><failure message="assert 1 == 2"/></testcase></testsuite></testsuites>"""


def test_cases_are_counted(summary):
    status, lines = summary([("unit", "OK", TAP), ("plain", "OK", "")])
    assert (status, lines[-1]) == (0, "2 passed, 0 failed, 1 skipped")
    assert lines[0] == "SKIP build:unit:test_b no perf here"


def test_pytest_cases_are_counted(summary):
    status, lines = summary([("scenario", "FAIL", "")], junit={"scenario": JUNIT})
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")
    assert "FAIL build:scenario:test_z assert 1 == 2" in lines


@pytest.mark.parametrize("result", ["FAIL", "TIMEOUT", "ERROR", "INTERRUPT"])
def test_a_program_that_died_after_its_last_case_failed(summary, result):
    status, lines = summary([("unit", result, TAP)])
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped")


def test_unexpected_skip_fails_only_when_strict(summary):
    assert summary([("unit", "OK", TAP)])[0] == 0
    assert summary([("unit", "OK", TAP)], "--strict")[0] == 1
    assert summary([("unit", "OK", TAP)], "--strict", expected="unit:test_b   no perf in a container\n")[0] == 0
    assert summary([("unit", "OK", TAP)], "--strict", expected="build:unit:*  no perf in a container\n")[0] == 0
    assert summary([("unit", "OK", TAP)], "--strict", expected="other:test_b  no perf in a container\n")[0] == 1


def test_a_failed_step_fails(summary):
    status, lines = summary([("plain", "OK", "")], "--failed", "build build-clang")
    assert (status, lines[-1]) == (1, "1 passed, 1 failed, 0 skipped")


def test_no_log_fails(summary):
    status, lines = summary(None)
    assert (status, lines[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_what_was_run_again_counts_and_is_named(summary, tmp_path):
    logs = tmp_path / "build/meson-logs"
    summary([("shaky", "FAIL", "not ok 1 test_a\n1..1\n"), ("broken", "FAIL", ""), ("plain", "OK", "")])
    assert summary(None, "--list-failed") == (0, ["shaky", "broken"])
    (logs / "testlog-timed.py.json").rename(logs / "testlog-first.json")
    status, lines = summary([("shaky", "OK", "ok 1 test_a\n1..1\n"), ("broken", "FAIL", "")])
    assert (status, lines[-1]) == (1, "2 passed, 1 failed, 0 skipped")
    assert [line.split()[:2] for line in lines if line.startswith("FLAKY")] == [["FLAKY", "build:shaky"]]


def test_expected_skips_have_reasons():
    for line in (SOURCE / "tests/expected-skips").read_text().splitlines():
        assert not line.strip() or line.startswith("#") or len(line.split(None, 1)) == 2, line
