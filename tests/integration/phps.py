# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The PHP executables that tests use. PROF_TEST_PHPS names more, separated by colons."""
from pathlib import Path

from interpreted_chains import programs

HERE = Path(__file__).parent
ROOTS = ("once",)
PHPS = programs("/usr/bin/php", ["-r", "echo PHP_VERSION;"], ("8.2.", "8.3.", "8.4.", "8.5."), "PROF_TEST_PHPS")


def make_oracle(directory):
    """Writes the oracle without declare(ticks=1), because ordinary programs lack it. Returns the
    path of the oracle."""
    for name in "php_oracle.php", "php_oracle_included.php":
        text = (HERE / name).read_text()
        (directory / name).write_text(text.replace("<?php declare(ticks=1);", "<?php"))
    return directory / "php_oracle.php"
