#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Counts the cases of the last `meson test` in each build folder: the TAP lines, pytest cases and
plain programs.

    summary.py [--strict] [--failed STEP]… [--stages FILE] [--slowest N] [--json FILE] BUILD…
    summary.py --list-failed BUILD

Prints the failed and the skipped cases, and last "N passed, N failed, N skipped". A test that
ran again counts by its second result, and is listed as flaky if it failed first. The exit status
is 1 if a case failed. --strict counts a skip that tests/expected-skips does not name as a
failure. --failed counts STEP, such as a build, as a failed case. --slowest prints the N
slowest tests of each build, with the wall and CPU time that tests/timed.py measured. --stages
prints a line for each stage of a CI run; FILE has a line "WALL USER SYSTEM NAME" for each, in
seconds. --json writes all times and counts to FILE. --list-failed prints the names of the failed
tests.
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

LOG = "testlog-timed.py"  # meson adds the name of the wrapper to that of the log

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
    """Returns the cases of a test. A failed test has at least one failed case, whatever it
    printed."""
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
    """Returns {test: its record}."""
    if not log.exists():
        return {}
    records = map(json.loads, log.read_text(encoding="utf-8", errors="replace").splitlines())
    return {record["name"]: record for record in records}


def read_build(build):
    first = read_log(build / "meson-logs/testlog-first.json")
    last = read_log(build / f"meson-logs/{LOG}.json")
    for test, record in last.items():
        if test in first and PLAIN.get(first[test]["result"], "failed") == "failed" and record["result"] in PLAIN:
            print(f"FLAKY {build.name}:{short(test)} failed, and passed when it was run again")
    cases = []
    for record in {**first, **last}.values():
        cases += cases_of(build, record)
    return cases or [Case(f"{build.name}", "failed", "no test ran")]


def list_failed(build):
    for test, record in read_log(build / f"meson-logs/{LOG}.json").items():
        if PLAIN.get(record["result"], "failed") == "failed":
            print(short(test))


def read_times(build):
    """Returns {name: {wall_s, cpu_s}} of each test, slowest first. If a test ran twice, the times
    are added."""
    names, times = {}, {}
    for log in "testlog-first", LOG:
        for test, record in read_log(build / f"meson-logs/{log}.json").items():
            names[tuple(record.get("command", []))] = short(test)
    file = build / "test-results/times.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        record = json.loads(line)
        name = next((name for command, name in names.items() if command[-len(record["command"]):] == tuple(record["command"])), None)
        if name:
            before = times.get(name, {"wall_s": 0, "cpu_s": 0})
            times[name] = {unit: round(before[unit] + record[unit], 3) for unit in before}
    return dict(sorted(times.items(), key=lambda item: -item[1]["wall_s"]))


def print_times(build, times, limit):
    wall, cpu = (sum(time[unit] for time in times.values()) for unit in ("wall_s", "cpu_s"))
    print(f"{build.name}: {len(times)} tests took {wall:.0f} s one after the other, {cpu:.0f} s of CPU time. The slowest:")
    for name, time in list(times.items())[:limit]:
        print(f"  {time['wall_s']:7.1f} s  CPU {time['cpu_s']:7.1f} s  {name}")


def read_stages(path):
    """Returns [{name, wall_s, cpu_s}] of a file with a line "WALL USER SYSTEM NAME" for each
    stage."""
    stages = []
    for line in path.read_text(encoding="utf-8").splitlines():
        wall, user, system, name = line.split(None, 3)
        stages.append({"name": name, "wall_s": float(wall), "cpu_s": round(float(user) + float(system), 3)})
    return stages


def expected_skips(path):
    """Returns the patterns of a file with lines "PATTERN why". A pattern matches TEST:CASE or
    BUILD:TEST:CASE."""
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
    parser.add_argument("--slowest", type=int, default=0)
    parser.add_argument("--stages", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("builds", nargs="*", type=Path)
    options = parser.parse_args()
    if options.list_failed:
        return list_failed(*options.builds)
    patterns = expected_skips(Path(__file__).parent / "expected-skips")
    counts = collections.Counter(passed=0, failed=len(options.failed), skipped=0)
    for step in options.failed:
        print(f"FAIL {step}")
    times = {build.name: read_times(build) for build in options.builds}
    for build in options.builds:
        if options.slowest and times[build.name]:
            print_times(build, times[build.name], options.slowest)
    stages = read_stages(options.stages) if options.stages else []
    for stage in stages:
        print(f"stage {stage['wall_s']:7.1f} s  CPU {stage['cpu_s']:7.1f} s  {stage['name']}")
    for build in options.builds:
        for case in read_build(build):
            surprise = options.strict and case.result == "skipped" and not is_expected(build, case, patterns)
            result = "failed" if surprise else case.result
            counts[result] += 1
            if result != "passed":
                word = {"failed": "FAIL", "skipped": "SKIP"}[result] + (", as it was skipped:" if surprise else "")
                print(f"{word} {build.name}:{case.id} {case.reason}".rstrip())
    if options.json:
        options.json.write_text(json.dumps({"counts": counts, "stages": stages, "builds": times}, indent=1), encoding="utf-8")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
