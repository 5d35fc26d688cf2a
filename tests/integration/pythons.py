# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The Python executables that tests use: Debian's, and one of those that pyenv built (which one
depends on the commit; a soak uses all). PROF_TEST_PYTHONS names more, separated by colons.

    PYTHONS = pythons(0)    # a different number in each scenario, so that all scenarios use more of them
"""
import os
import re
import subprocess
from pathlib import Path

from slices import part

SUPPORTED = range(8, 15)  # minor versions


def pythons(turn):
    built = [path for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
             if int(re.match(r"3\.(\d+)", path.parts[-3])[1]) in SUPPORTED]
    named = filter(None, os.environ.get("PROF_TEST_PYTHONS", "").split(":"))
    return ["/usr/bin/python3", *map(str, part(built, 1, turn)), *named]


def is_free_threaded(python):
    code = "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED'))"
    return subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout == "1\n"
