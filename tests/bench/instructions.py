#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Counts the instructions of hot paths with callgrind, and compares them with instructions.json.

    instructions.py PROGRAM COMPILER [--store]

Only instructions of PROGRAM itself count, not those of libc, zstd or the kernel, so the counts are
the same on each machine. They differ between compilers: COMPILER, such as "gcc 12.2.0 x86_64
debugoptimized", is the key in the file. Exits with 77 (skipped) if the file has no counts for
COMPILER, or valgrind is missing. A count above LIMIT times the stored one fails. --store replaces
the counts of COMPILER; commit the file together with the change that explains the new counts.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

STORED = Path(__file__).with_name("instructions.json")
PATHS = ("ring-write", "malloc-hook", "new-stack", "unwind-step", "row-decode")
LIMIT = 1.03


def own_instructions(profile, program):
    """Returns the sum of the program's own lines in a callgrind profile, without the costs of the
    functions that they call."""
    names, total, is_own, is_call = {}, 0, False, False
    for line in profile.splitlines():
        place = re.match(r"(c?ob)=(\(\d+\))(?: (.*))?", line)
        if place:
            kind, number, name = place.groups()
            names.setdefault(number, name)
            if kind == "ob":
                is_own = names[number] == program
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[+*\d-]", line):
            if is_own and not is_call:
                total += int(line.split()[1])
            is_call = False
    return total


def count(program, path):
    """Returns the number of instructions per operation."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile")
        done = subprocess.run(
            ["valgrind", "-q", "--tool=callgrind", "--toggle-collect=measured", f"--callgrind-out-file={profile}", program, path],
            capture_output=True, text=True, check=False, timeout=300,
        )
        if done.returncode != 0 or not done.stdout:
            sys.exit(f"instructions: {path}: {done.stderr}")
        return own_instructions(profile.read_text(), program) / int(done.stdout)


def main():
    program, compiler = os.path.realpath(sys.argv[1]), sys.argv[2]
    all_stored = json.loads(STORED.read_text())
    stored = all_stored.get(compiler)
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return 77
    if stored is None and "--store" not in sys.argv:
        print(f"skipped: {STORED.name} has no counts for {compiler}; add them with --store")
        return 77
    counts = {path: round(count(program, path), 1) for path in PATHS}
    if "--store" in sys.argv:
        all_stored[compiler] = counts
        STORED.write_text(json.dumps(all_stored, indent=1, sort_keys=True) + "\n")
        return 0
    is_worse = False
    for path, number in counts.items():
        is_path_worse = number > stored[path] * LIMIT
        is_worse |= is_path_worse
        print(f"{path:12} {number:8.1f} instructions, stored {stored[path]:8.1f}{'  MORE' if is_path_worse else ''}")
    return is_worse


if __name__ == "__main__":
    sys.exit(main())
