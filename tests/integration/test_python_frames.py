# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The BPF program reads the frames of Python programs: each chain is one that the program can have
(python_oracle.py), the shares are right, and hostile processes harm only themselves."""
import os
import subprocess
from pathlib import Path

import pytest
from interpreted_chains import DEEPER, NO_THREAD, TORN, walk
from interpreted_programs import check_hostile, check_shares, check_walk, record_chains
from pythons import pythons

HERE = Path(__file__).parent
PYTHONS = pythons(2)

SHARES = """
def spin():
    total = 0
    for i in range(200):
        total += i & 7
    return total
def seventy(): spin(); spin(); spin(); spin(); spin(); spin(); spin()
def thirty(): spin(); spin(); spin()
while True:
    seventy(); thirty()
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_chains(python, tmp_path_factory):
    chains = record_chains(tmp_path_factory, python, HERE / "python_oracle.py")
    check_walk([python, HERE / "python_oracle.py", "run", "60"], chains)


@pytest.mark.parametrize("python", PYTHONS)
def test_shares(python, tmp_path):
    program = tmp_path / "shares.py"
    program.write_text(SHARES)
    check_shares([python, program], "shares.seventy", "shares.thirty", slack=0.01)


CASES = ["cycle", "names", "nothing", "key", "thread", "type"]


@pytest.mark.parametrize("program, case", [
    *(("FAKE_PYTHON", case) for case in CASES),
    *(("FAKE_PYTHON_THREADS", case) for case in [*CASES, "lock", "copy", "copies"]),
])
def test_hostile(program, case):
    check_hostile([os.environ[program], case], {"cycle": DEEPER, "names": DEEPER, "key": NO_THREAD}.get(case, TORN))


def frames_of(*command):
    return {frame for line in walk(command, 999, 0.5) if line[0] != "#" for frame in line.split("\t")[1].split("|") if frame}


def test_copy():
    """A thread may execute a copy of a function's bytecode. The line follows from the position in
    the copy."""
    assert frames_of(os.environ["FAKE_PYTHON_THREADS"], "moved") == {"ffff.ffff@7:8"}


def test_other_libc(require, tmp_path):
    """Frames are found with musl, too, which keeps thread-specific data at another place."""
    require("musl-gcc")
    source, program = Path(os.environ["PROF_SOURCE_DIR"]), tmp_path / "python3.12"
    subprocess.run(["musl-gcc", "-rdynamic", "-I", source, "-o", program, source / "tests/tools/fake-python.c"], check=True)
    assert frames_of(program, "cycle") == {"ffff.ffff@7:7"}
