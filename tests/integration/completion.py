# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Calls the function that completes words in bash, as bash would call it."""
import os
import shlex
import subprocess
from pathlib import Path

SCRIPT = Path(os.environ["PROF_SOURCE_DIR"]) / "data/completions/profd-tools.bash"

# bash passes an interactive line as COMP_WORDS, where "=" is a separate word.
ASK = """
source {script}
PATH={folder}:$PATH
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_profd_tools "${{COMP_WORDS[0]}}" "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def offered(program, *words, **options):
    """Returns the words offered in place of the last word. program is a Program of conftest.py, options are
    those of subprocess.run()."""
    script = ASK.format(
        script=shlex.quote(str(SCRIPT)),
        folder=shlex.quote(str(Path(program.path).parent)),
        words=" ".join(map(shlex.quote, (Path(program.path).name, *map(str, words)))),
    )
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, encoding="utf-8", timeout=60, **options)
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout.split()
