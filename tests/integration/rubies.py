# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The Ruby executables that tests use. PROF_TEST_RUBIES names more, separated by colons."""
from pathlib import Path

from interpreted_chains import programs

HERE = Path(__file__).parent
ROOTS = ("Object#once", "Object#fiber_once")
RUBIES = programs("/usr/bin/ruby", ["-e", "print RUBY_VERSION"], ("3.1.", "3.2.", "3.3.", "3.4."), "PROF_TEST_RUBIES")
