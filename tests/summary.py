#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Counts the cases of the last `meson test` in each build folder: the TAP lines, pytest cases and plain programs.

    summary.py [--strict] [--failed STEP]… BUILD…
    summary.py --list-failed BUILD

Prints the failed and the skipped cases, and last "N passed, N failed, N skipped". A test that was run again counts as it
ended then, and is named as flaky where it had failed before. --list-failed prints the names of the tests that failed. The
exit status is 1 where a case failed. With --strict a skip that tests/expected-skips does not name counts as a failure.
--failed counts a step that is not a test, such as a build.
"""
import argparse
import collections
import fnmatch
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TAP = re.compile(r"^(not )?ok\b\s*\d*\s*(?:- )?([^#]*?)\s*(?:#\s*(SKIP)\b\s*(.*))?$", re.IGNORECASE | re.MULTILINE)
PLAIN = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped", "IGNORED": "skipped"}

Case = collections.namedtuple("Case", "id result reason")


def short(name):
    return name.split(" / ")[-1]


def pytest_cases(test, path):
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name, result, reason = f"{test}:{case.get('name')}", "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                result, reason = "failed", (child.get("message") or "").splitlines()[:1]
            elif child.tag == "skipped":
                result, reason = "skipped", [child.get("message") or ""]
        yield Case(name, result, "".join(reason))


def tap_cases(test, output):
    for failed, name, directive, reason in TAP.findall(output):
        result = "skipped" if directive.upper() == "SKIP" else "failed" if failed else "passed"
        yield Case(f"{test}:{name}", result, reason)


def cases_of(build, record):
    """A test's own cases; a test that failed has at least one failed case, whatever it printed."""
    test, output = short(record["name"]), record.get("stdout") or ""
    result = PLAIN.get(record["result"], "failed")
    junit = build / "test-results" / f"{test}.xml"
    if junit.exists():
        cases = list(pytest_cases(test, junit))
    elif re.search(r"^1\.\.\d+", output, re.MULTILINE) or re.search(r"^(not )?ok \d+", output, re.MULTILINE):
        cases = list(tap_cases(test, output))
    else:
        cases = []
    if not cases or (result == "failed" and not any(case.result == "failed" for case in cases)):
        reason = record["result"] if result == "failed" else ""
        cases.append(Case(test, result, reason))
    return cases


def read_log(log):
    """The records by test."""
    if not log.exists():
        return {}
    records = map(json.loads, log.read_text(encoding="utf-8", errors="replace").splitlines())
    return {record["name"]: record for record in records}


def read_build(build):
    first = read_log(build / "meson-logs/testlog-first.json")
    last = read_log(build / "meson-logs/testlog.json")
    for test, record in last.items():
        if test in first and PLAIN.get(first[test]["result"], "failed") == "failed" and record["result"] in PLAIN:
            print(f"FLAKY {build.name}:{short(test)} failed, and passed when it was run again")
    cases = []
    for record in {**first, **last}.values():
        cases += cases_of(build, record)
    return cases or [Case(f"{build.name}", "failed", "no test ran")]


def list_failed(build):
    for test, record in read_log(build / "meson-logs/testlog.json").items():
        if PLAIN.get(record["result"], "failed") == "failed":
            print(short(test))


def expected_skips(path):
    """Lines of "PATTERN  why"; a pattern is that of a case's id, TEST:CASE or BUILD:TEST:CASE."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]


def is_expected(build, case, patterns):
    return any(
        fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in (case.id, f"{build.name}:{case.id}")
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--failed", action="append", default=[])
    parser.add_argument("--list-failed", action="store_true")
    parser.add_argument("builds", nargs="*", type=Path)
    options = parser.parse_args()
    if options.list_failed:
        return list_failed(*options.builds)
    patterns = expected_skips(Path(__file__).parent / "expected-skips")
    counts = collections.Counter(failed=len(options.failed))
    for step in options.failed:
        print(f"FAIL {step}")
    for build in options.builds:
        for case in read_build(build):
            surprise = options.strict and case.result == "skipped" and not is_expected(build, case, patterns)
            result = "failed" if surprise else case.result
            counts[result] += 1
            if result != "passed":
                word = {"failed": "FAIL", "skipped": "SKIP"}[result] + (", as it was skipped:" if surprise else "")
                print(f"{word} {build.name}:{case.id} {case.reason}".rstrip())
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
