# SPDX-License-Identifier: BSD-2-Clause-Patent
"""./dev refuses wrong arguments and selects the right tests; the summary at the end of a CI run
hides no failure or skip."""
import json
import os
import subprocess
import tempfile
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
            ["/usr/bin/python3", script, *map(str, args), build], stdout=subprocess.PIPE, encoding="utf-8", timeout=60
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
    status, lines = summary([("plain", "OK", "")], "--failed", "build build-tsan")
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


def test_times(tmp_path, summary):
    """The times that timed.py measures are in the summary and its JSON. The summary also has the
    times of CI's stages."""
    times = tmp_path / "build/test-results/times.jsonl"
    times.parent.mkdir(parents=True)
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    command = ["/usr/bin/python3", "-c", spin]
    subprocess.run([SOURCE / "tests/timed.py", times, *command], check=True, timeout=60)
    (tmp_path / "stages").write_text("12.5 3.25 1.0 test build\n")
    log = tmp_path / "build/meson-logs/testlog-timed.py.json"
    log.parent.mkdir()
    log.write_text(json.dumps({"name": "profd:x / spin", "result": "OK", "stdout": "", "command": ["timed.py", "FILE", *command]}))
    status, lines = summary(None, "--slowest", 5, "--stages", tmp_path / "stages", "--json", tmp_path / "all.json")
    assert status == 0 and lines[-1] == "1 passed, 0 failed, 0 skipped"
    assert "stage    12.5 s  CPU     4.2 s  test build" in lines
    found = json.loads((tmp_path / "all.json").read_text())
    assert 0.3 <= found["builds"]["build"]["spin"]["cpu_s"] < 3 and found["counts"]["passed"] == 1
    assert any(line.endswith(" s  spin") for line in lines)


@pytest.mark.parametrize("program, status", [("exit 3", 3), ("kill -TERM $$", -15)])
def test_wrapper_ends_as_the_test_does(tmp_path, program, status):
    done = subprocess.run([SOURCE / "tests/timed.py", tmp_path / "times", "sh", "-c", program], check=False, timeout=60)
    assert done.returncode == status
    assert json.loads((tmp_path / "times").read_text())["command"] == ["sh", "-c", program]


def select(*args):
    done = subprocess.run(
        ["/usr/bin/python3", SOURCE / "tests/selection.py", os.environ["PROF_BUILD_DIR"], *args],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=120,
    )
    return done.returncode, done.stdout.split(), done.stderr


def test_selection_by_name_and_folder():
    assert select("cfi") == (0, ["cfi"], "")
    tests = select("libcapture/")[1]
    assert {"capture-cut", "fuzz-capture_chunk"} <= set(tests) and "cfi" not in tests
    status, tests, error = select("cfi", "nothing")
    assert status == 2 and not tests and "nothing" in error


def test_selection_builds_only_what_is_used():
    assert select("cfi", "--programs")[1] == ["tests/unit/test-cfi"]
    programs = select("readers", "--programs")[1]
    assert "tools/profcapture/profcapture" in programs and "tests/tools/make-capture" in programs
    assert "tests/tools/heap-zoo" not in programs


def affected_by(*files):
    return {name for name in select("--affected-by", *files)[1] if not name.startswith("lint-")}


def test_selection_of_what_a_change_affects():
    found = affected_by("arch/cfi.c")
    assert {"cfi", "walk", "engine-unwind", "stacks"} <= found and not {"intern", "capture-cut"} & found
    assert affected_by("arch/cfi.h") >= found - {"stacks"}
    for name in affected_by("tests/integration/fuse.py"):
        text = (SOURCE / f"tests/integration/test_{name.replace('-', '_')}.py").read_text()
        assert "fuse" in text
    assert affected_by("tests/integration/test_readers.py") == {"readers"}
    # Files that tests read, or compile themselves.
    readers = {"tests/data/order.cap.xz": "format", "data/man/profctl.1.scd": "man", "docs/examples/record.py": "examples",
               "tests/unit/data/rust-names.txt": "demangle", "tests/timed.py": "dev", "tests/tools/convoy.c": "off-cpu"}
    found = affected_by(*readers)
    assert {*readers.values()} <= found and not {"readers", "cfi"} & found
    assert affected_by("README.md") != affected_by(f"none-{os.getpid()}/file-{os.getpid()}") == set()


def test_unknown_test_is_refused():
    for verb in "test", "stress":
        done = dev(verb, "no-such-test")
        assert done.returncode != 0 and "no-such-test" in done.stderr


def test_names_of_tests_are_unique():
    """No two tests have the same name, so a name selects one test."""
    tests = json.loads(Path(os.environ["PROF_BUILD_DIR"], "meson-info/intro-tests.json").read_text())
    names = [test["name"] for test in tests]
    assert len(set(names)) == len(names)


def test_demo_of_a_plain_user(require):
    """For a user who may not record the whole system and has no sudo, the demo records its own two
    programs and explains the limit."""
    require("setpriv", root=True)
    build = Path(os.environ["PROF_BUILD_DIR"])
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*nobody, "test", "-r", build / "meson-private/coredata.dat"], check=False).returncode:
        pytest.skip("the build tree cannot be read by others")
    script = "source ./dev; demo_seconds=1; verb_setup() { :; }; verb_build() { :; }; command() { [ \"$2\" != sudo ] && builtin command \"$@\"; }; verb_demo"
    with tempfile.TemporaryDirectory(prefix="profd-demo-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o777)
        Path(folder, "dev").write_text((SOURCE / "dev").read_text())
        Path(folder, "build").symlink_to(build)
        done = subprocess.run([*nobody, "bash", "-c", script], cwd=folder, env={**os.environ, "HOME": folder},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=120)
        assert done.returncode == 0 and Path(folder, "demo.cap").exists(), done.stdout
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 0:
        assert "here only python3 and gcc are recorded" in done.stdout
    assert "python3" in done.stdout and "samples" in done.stdout
