# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The man pages have every verb and option, and explain the exit status."""
import itertools
import lzma
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from captures import make

SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
PAGES = sorted((SOURCE / "data/man").glob("*.scd"))


def page(name):
    return (SOURCE / "data/man" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["profctl", "profcapture"])
def test_every_verb_and_option_is_described(name, request):
    program = request.getfixturevalue(name)
    text = page(f"{name}.1.scd").replace("\\", "")
    missing, known = [], set()
    for verb in program("--complete").stdout.split():
        if verb.startswith("-"):
            known.add(verb)
            continue
        if not re.search(rf"^\*{name} {verb}\*", text, re.M):
            missing.append(verb)
        if verb == "help":
            continue
        for line in program(verb, "--complete").stdout.split():
            option = line.split("=")[0]
            known.add(option)
            if option != "--help" and not re.search(rf"(?<![\w-]){option}(?![\w-])", text):
                missing.append(f"{verb} {option}")
    assert missing == [], f"describe these in data/man/{name}.1.scd"
    terms = "".join(line for line in text.splitlines(True) if line.startswith("*-") or line.startswith(f"*{name} "))
    described = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", terms))
    assert len(described) > 20 and described - known == set(), "these do not exist"


def test_every_option_of_profd_is_described():
    usage = subprocess.run([os.environ["PROFD"], "--help"], capture_output=True, encoding="utf-8", timeout=60, check=True).stdout
    options = re.findall(r"--[\w-]+", usage)
    assert len(options) >= 5 and [option for option in options if f"{option}*" not in page("profd.8.scd")] == []


EXAMPLES = [
    line.split("#")[0].strip()
    for path in (*PAGES, SOURCE / "README.md")
    for line in path.read_text(encoding="utf-8").splitlines()
    if re.match(r"\s*profcapture \w[\w-]* [\w.]+(?!.*\[)", line) and "*" not in line
]


def test_examples_work(profcapture, tmp_path):
    """The examples in the man pages and the README that read a capture work."""
    assert len(EXAMPLES) >= 5
    make(tmp_path / "system.cap", "--rows", 500, "--all-tables")
    wakers = Path(os.environ["PROF_SOURCE_DIR"]) / "tests/data/wakers.cap.xz"
    (tmp_path / "wakers.cap").write_bytes(lzma.decompress(wakers.read_bytes()))
    for example in EXAMPLES:
        name = "wakers.cap" if example.split()[1] in ("locks", "critical-path") else "system.cap"
        words = shlex.split(re.sub(r"FILE|OLD|NEW|(before|after|waits)\.cap", name, example))
        # A generated capture lacks the function that --focus names, and the message says so.
        done = profcapture(*words[1:], cwd=tmp_path, check=6 if "--focus" in words else 0)
        assert done.stdout or "matches these options" in done.stderr, example


def test_examples_of_profctl(profctl):
    """The examples of profctl use verbs and options that exist."""
    code = "".join(re.sub(r"^(?!    ).*", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
                   for path in (SOURCE / "README.md", *(SOURCE / "docs").glob("*.md")))
    code += "".join(block for path in PAGES for block in re.findall(r"^```\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    examples = [shlex.split(line, comments=True) for line in re.findall(r"^ *(?:\$ )?(?:sudo |[A-Z]+=\w+ )?(profctl \w.*)", code, re.MULTILINE)]
    assert len(examples) >= 15
    for _, verb, *words in examples:
        known = {word.split("=")[0] for word in profctl(verb, "--complete").stdout.split()}
        options = itertools.takewhile(lambda word: word != "--", words)
        assert known and [word for word in options if word.startswith("-") and word.split("=")[0] not in known] == [], words


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_page(path, require):
    text = path.read_text(encoding="utf-8")
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"):
        assert f"\n# {section}\n" in text, section
    require("scdoc")
    with path.open() as source:
        done = subprocess.run(["scdoc"], stdin=source, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
