# SPDX-License-Identifier: BSD-2-Clause-Patent
"""What bash offers, asked from the function that bash would call."""
import os
import shlex
import subprocess
from pathlib import Path

SCRIPT = Path(os.environ["PROF_SOURCE_DIR"]) / "data/completions/profd-tools.bash"

# bash hands an interactive line over as COMP_WORDS; "=" is a word of its own there.
ASK = """
source {script}
PATH={folder}:$PATH
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_profd_tools "${{COMP_WORDS[0]}}" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offered(program, *words, **options):
    """What can stand in place of the last word; program is conftest's, options are those of subprocess.run()."""
    script = ASK.format(
        script=shlex.quote(str(SCRIPT)),
        folder=shlex.quote(str(Path(program.path).parent)),
        words=" ".join(map(shlex.quote, (Path(program.path).name, *map(str, words)))),
    )
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, encoding="utf-8", timeout=60, **options)
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout.split()
