# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The Perl executables that tests use. PROF_TEST_PERLS names more, separated by colons."""
import re
from pathlib import Path

from interpreted_chains import programs

HERE = Path(__file__).parent
ORACLE = HERE / "perl_oracle.pl"
ROOTS = ("main::once",)
PERLS = programs("/usr/bin/perl", ["-e", "print $^V"], ("v5.36.", "v5.38.", "v5.40."), "PROF_TEST_PERLS")


def without_first_lines(line):
    """Replaces the first line of each function by 1, because perl_oracle.pl prints 1 there."""
    return re.sub(r"@\d+:", "@1:", line)
