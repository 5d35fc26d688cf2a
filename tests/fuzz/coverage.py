#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Prints how many lines of its parser each corpus reaches, and fails below the limit.

    coverage.py BUILD SOURCE LIMIT_PCT

BUILD was configured with clang and -fprofile-instr-generate -fcoverage-mapping
-fcoverage-compilation-dir=.; its tests/fuzz/targets.txt names the sources of each target's
parser, and which functions of them count.
"""
import fnmatch
import json
import os
import subprocess
import sys
from pathlib import Path

LLVM = "-14"
CODE, GAP = 0, 3  # region kinds: CounterMappingRegion in llvm/ProfileData/Coverage


def counts(function, patterns):
    """Returns whether a function counts. The last pattern that matches decides; if none matches, the
    function counts if all patterns are negative."""
    verdict = not any(not pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        if fnmatch.fnmatchcase(function, pattern.lstrip("!")):
            verdict = not pattern.startswith("!")
    return verdict


def line_counts(function):
    """Returns how often each line of the function ran: the highest of the counts of the innermost
    region that reaches into the line, and of the regions that start on it."""
    regions = sorted(
        (line, column, line_end, column_end, count, kind)
        for line, column, line_end, column_end, count, file, _, kind in function["regions"]
        if file == 0 and kind in (CODE, GAP)
    )
    counted = {}
    for line in range(regions[0][0], regions[0][2] + 1):
        starting = [r[4] for r in regions if r[0] == line and r[5] == CODE]
        around = [r[4] for r in regions if r[0] < line and (r[2], r[3]) > (line, 1)]
        counted[line] = max(starting + around[-1:], default=0)
    return counted


def coverage(build, source, name, parsers, patterns):
    """Returns how many lines the counted functions have, how many of these were reached, and the
    functions that were never entered."""
    program = build / "tests/fuzz" / f"fuzz_{name}"
    raw, data = build / f"{name}.profraw", build / f"{name}.profdata"
    subprocess.run(
        [program, "-runs=0", source / "tests/fuzz/corpus" / name],
        env={**os.environ, "LLVM_PROFILE_FILE": str(raw)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=600,
    )
    subprocess.run([f"llvm-profdata{LLVM}", "merge", "-sparse", raw, "-o", data], check=True)
    export = subprocess.run(
        [f"llvm-cov{LLVM}", "export", program, f"-instr-profile={data}"], stdout=subprocess.PIPE, check=True
    ).stdout
    paths = {str(source / parser) for parser in parsers}
    lines = {}
    unreached = []
    for function in json.loads(export)["data"][0]["functions"]:
        short = function["name"].rpartition(":")[2]
        path = os.path.realpath(build / function["filenames"][0])
        if path not in paths or not counts(short, patterns):
            continue
        lines.update({(path, line): count for line, count in line_counts(function).items()})
        if function["count"] == 0:
            unreached.append(short)
    return len(lines), sum(1 for count in lines.values() if count), unreached


def main(build, source, limit):
    failed = False
    targets = [line.split() for line in (build / "tests/fuzz/targets.txt").read_text().splitlines() if line.strip()]
    if not targets:
        print("no fuzz target is in tests/fuzz/meson.build")
        return 1
    for name, parsers, *patterns in targets:
        lines, reached, unreached = coverage(build, source, name, parsers.split(","), patterns)
        pct = 100 * reached / lines if lines else 0
        failed |= pct < limit
        print(
            f"{'FAIL' if pct < limit else 'ok':4} {name:14} {pct:5.1f} % of {lines} lines of {parsers}"
            + (f"   never entered: {' '.join(unreached)}" if unreached else "")
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), float(sys.argv[3])))
