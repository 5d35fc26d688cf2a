# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The programs of a plain Debian get names: at least 90 % of the samples of python3 and of gcc, stripped or not."""
import os
import signal
import subprocess

import pytest

SECONDS, RATE = 1, 4000
PYTHON = "while True: sorted(str(i * 7919 % 10007) for i in range(4000))"
FUNCTION = "int f{0}(int *a, int n) {{ int s = {0}; for (int i = 0; i < n; i++) s ^= a[i] * {0} >> (i % 7); return s; }}\n"


@pytest.fixture(scope="module")
def capture(profctl, require, tmp_path_factory):
    """A recording of the whole system while python3 computes and gcc compiles."""
    require("gcc", root=True)
    folder = tmp_path_factory.mktemp("names")
    source = folder / "work.c"
    source.write_text("".join(FUNCTION.format(i) for i in range(3000)))
    loops = [
        subprocess.Popen(command, start_new_session=True)
        for command in (
            ["/usr/bin/python3", "-c", PYTHON],
            ["sh", "-c", 'while :; do gcc -O2 -c -o "$0.o" "$0"; done', source],
        )
    ]
    try:
        profctl("record", "--system", "-d", SECONDS, "-F", RATE, "-o", folder / "names.cap")
    finally:
        for loop in loops:
            os.killpg(loop.pid, signal.SIGKILL)
            loop.wait()
    return folder / "names.cap"


@pytest.mark.parametrize("comm", ["python3", "cc1"])
def test_samples_resolve(profcapture, capture, comm):
    data = profcapture.json("report", capture, "--comm", comm, "--limit", 0)["data"]
    assert data["self_total"] > 100, f"no samples of {comm}: the machine was too busy, or they were lost"
    resolved = sum(row["self"] for row in data["rows"] if row["kind"] != "unresolved")
    assert resolved >= 0.9 * data["self_total"], [row for row in data["rows"] if row["kind"] == "unresolved"][:5]
