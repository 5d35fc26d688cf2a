# SPDX-License-Identifier: BSD-2-Clause-Patent
"""What bash offers, asked from the function that bash would call."""
import os
import shlex
import subprocess
from pathlib import Path

import pytest

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


@pytest.fixture
def complete(profctl, tmp_path):
    (tmp_path / "some.cap").write_text("")

    def ask(*words):
        script = ASK.format(
            script=shlex.quote(str(SCRIPT)),
            folder=shlex.quote(str(Path(profctl.path).parent)),
            words=" ".join(map(shlex.quote, ("profctl", *words))),
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", script], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=60
        )
        assert done.returncode == 0 and done.stderr == ""
        return done.stdout.split()

    return ask


def test_verbs(complete):
    assert complete("doc") == ["doctor"]
    assert "schema" in complete("")
    assert "--version" in complete("--v")
    assert complete("help", "doc") == ["doctor"]
    assert complete("schema", "doc") == ["doctor"]


def test_options(complete):
    assert complete("doctor", "--j") == ["--json"]
    assert sorted(complete("doctor", "-")) == ["--color", "--help", "--json"]
    assert complete("doctor", "--nothing") == []


def test_choices(complete):
    assert complete("doctor", "--color", "al") == ["always"]
    assert complete("doctor", "--color", "=") == ["auto", "always", "never"]
    assert complete("doctor", "--color", "=", "n") == ["never"]


def test_files(complete):
    assert complete("doctor", "some") == ["some.cap"]
