#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Prints the line coverage of each folder of a build with -Db_coverage=true, after its tests ran.

    coverage.py BUILD [--json FILE]

Sources are compiled more than once; a line counts as reached if any of its objects reached it. A
process that is killed, or whose sandbox refuses to write a file, does not report its lines, so
the figures are lower bounds.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lines_of(data):
    """Returns [(source, line, whether it was reached)] of one object."""
    output = subprocess.run(
        ["gcov", "--json-format", "--stdout", data], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=data.parent, check=True
    ).stdout
    found = []
    for document in output.splitlines():
        for file in json.loads(document)["files"]:
            path = Path(os.path.normpath(BUILD / file["file"]))
            if path.is_relative_to(SOURCE) and not path.is_relative_to(SOURCE / "tests") and not path.is_relative_to(BUILD):
                name = str(path.relative_to(SOURCE))
                found += [(name, line["line_number"], line["count"] > 0) for line in file["lines"]]
    return found


def folder(name):
    parts = Path(name).parts[:-1]
    return "/".join(parts[:2]) if parts[0] in ("daemon", "tools") else parts[0]


def main():
    global BUILD, SOURCE
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    BUILD = options.build.resolve()
    SOURCE = BUILD.parent
    reached = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lines_of, BUILD.rglob("*.gcno")):
            for name, line, hit in found:
                reached[name, line] = reached.get((name, line), False) or hit
    folders = collections.defaultdict(lambda: [0, 0])
    for (name, _), hit in reached.items():
        folders[folder(name)][0] += hit
        folders[folder(name)][1] += 1
    for name, (hit, lines) in sorted(folders.items()):
        print(f"{name:20} {100 * hit / lines:5.1f} % of {lines} lines")
    if options.json:
        files = collections.defaultdict(list)
        for (name, line), hit in sorted(reached.items()):
            if not hit:
                files[name].append(line)
        options.json.write_text(json.dumps({"folders": folders, "not_reached": files}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
