# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The Ruby programs that tests run. PROF_TEST_RUBIES names further ones, separated by colons."""
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOTS = ("Object#once", "Object#fiber_once")


def supported(ruby):
    try:
        done = subprocess.run([ruby, "-e", "print RUBY_VERSION"], stdout=subprocess.PIPE, encoding="utf-8", timeout=60)
    except FileNotFoundError:
        return pytest.param(ruby, marks=pytest.mark.skip(f"no {ruby}"))
    if not done.stdout.startswith("3.1."):
        return pytest.param(ruby, marks=pytest.mark.skip(f"{ruby} is of version {done.stdout}, which is not supported"))
    return ruby


RUBIES = [supported(ruby) for ruby in ["/usr/bin/ruby", *filter(None, os.environ.get("PROF_TEST_RUBIES", "").split(":"))]]
