# SPDX-License-Identifier: BSD-2-Clause-Patent
"""report on a terminal: lines fit, colors follow the settings, and the text goes to a pager, which
may end at any time."""
import fcntl
import os
import re
import select
import shutil
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from captures import make

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
QUIET = {"TERM": "xterm", "PAGER": "cat", "COLUMNS": "", "NO_COLOR": "", "CLICOLOR_FORCE": "", "PROFCTL_PAGER": None}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("terminal") / "whole.cap", "--all-tables", "--rows", 3000)


class Terminal:
    """A program whose standard input and output are a terminal of this size, which is its
    controlling terminal."""

    def __init__(self, argv, columns=80, rows=24, **environment):
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        variables = {**os.environ, **QUIET, **environment}
        self.process = subprocess.Popen(list(map(str, argv)), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, start_new_session=True,
                                        env={key: value for key, value in variables.items() if value is not None},
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.fd, self.data = ours, b""

    @property
    def text(self):
        return self.data.decode(errors="replace").replace("\r\n", "\n")

    def read(self, until=None, seconds=20):
        """Returns the program's output, up to the text `until` or to the program's end."""
        deadline = time.monotonic() + seconds
        while until is None or until not in self.text:
            assert time.monotonic() < deadline, self.text[-500:]
            if not select.select([self.fd], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.data += data
        return self.text

    def write(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        self.read()
        os.close(self.fd)
        status = self.process.wait(timeout=20)
        assert self.process.stderr.read() == b""
        self.process.stderr.close()
        return status


def shown(profcapture, *arguments, **options):
    terminal = Terminal([profcapture.path, *arguments], **options)
    assert terminal.end() == 0
    return terminal.text


@pytest.mark.parametrize("view", [[], ["--tree"], ["--inverted"], ["--by", "line"], ["--by", "image"], ["--by", "thread"], ["--by", "cgroup"]])
def test_fits(profcapture, whole, view):
    for columns in 60, 100:
        lines = COLOUR.sub("", shown(profcapture, "report", whole, "--limit", 0, *view, columns=columns)).split("\n")
        rows = [line for line in lines if re.match(r" +<?\d[\d.]* ", line)]
        numbers = re.match(r".*(?=  (function|line|image|thread|cgroup))", next(line for line in lines if "self %" in line))[0]
        narrow = len(numbers) + 3  # the numbers alone may be wider than the terminal
        # a part of each name and its image is shown, however deep in a tree
        least = lambda line: len(line) - len(line.lstrip(" 0123456789.<│├└─")) + 16 + len((re.findall(r"  \[.*$|  \S+:\d+$", line) or [""])[-1])
        assert rows and all(len(line) <= max(columns, narrow, least(line)) for line in rows), [line for line in rows if len(line) > columns]


def test_how_wide(profcapture, whole):
    """On a terminal, COLUMNS sets the width. Other output is not shortened. --full-names ignores
    the width of the terminal, but aligns the names."""
    wide = profcapture("report", whole, env={**os.environ, "COLUMNS": "40"}).stdout
    assert "…" not in wide and max(map(len, wide.split("\n"))) > 50
    rows = lambda text: [line for line in COLOUR.sub("", text).replace("\r", "").split("\n\n", 1)[1].split("\n") if re.match(r" *<?\d[\d.]* ", line)]
    narrow = rows(shown(profcapture, "report", whole, "--by", "image", COLUMNS="30", columns=200))
    assert any("…" in line for line in narrow) or all(len(line) <= 30 for line in narrow)
    full = rows(shown(profcapture, "report", whole, "--by", "image", "--full-names", columns=30))
    names = lambda lines: [line.rsplit("  ", 1)[1] for line in lines]
    assert names(full) == names(rows(profcapture("report", whole, "--by", "image", "--full-names").stdout))
    assert len({line.rindex("  ") for line in full}) == 1


def test_colours(profcapture, whole):
    coloured = lambda *options, **environment: "\x1b[" in shown(profcapture, "report", whole, *options, **environment)
    assert coloured() and coloured(CLICOLOR_FORCE="1", TERM="dumb") and coloured("--color", "always", NO_COLOR="1")
    assert not coloured(NO_COLOR="1") and not coloured(TERM="dumb") and not coloured("--color", "never", CLICOLOR_FORCE="1")
    piped = lambda **environment: "\x1b[" in profcapture("report", whole, env={**os.environ, **environment}).stdout
    assert not piped() and piped(CLICOLOR_FORCE="1") and not piped(CLICOLOR_FORCE="1", NO_COLOR="1")


def test_pager(profcapture, whole, tmp_path):
    """PROFCTL_PAGER precedes PAGER, and the pager gets the variable LESS. A pager is used only for
    text on a terminal, and gets the same text in the terminal's width."""
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\necho "paged $LESS" "$@"\nexec cat\n')
    pager.chmod(0o755)
    plain = shown(profcapture, "report", whole, "--no-pager")
    paged = shown(profcapture, "report", whole, PAGER=f"{pager} -x 'a b'", LESS=None)
    assert paged == "paged FRX -x a b\n" + plain
    assert shown(profcapture, "report", whole, PAGER="cat", PROFCTL_PAGER=str(pager), LESS="S") == "paged S\n" + plain
    for quiet in {"PAGER": str(pager), "PROFCTL_PAGER": ""}, {"PAGER": "/no/such/program"}, {"PAGER": "'"}:
        assert shown(profcapture, "report", whole, **quiet) == plain
    assert "paged" not in shown(profcapture, "report", whole, "--json", PAGER=str(pager))
    assert "paged" not in profcapture("report", whole, env={**os.environ, "PAGER": str(pager)}).stdout


def test_pager_ends_early(profcapture, whole, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nhead -n 1 >/dev/null\n")
    pager.chmod(0o755)
    terminal = Terminal([profcapture.path, "report", whole, "--tree", "--limit", 0], PAGER=str(pager))
    assert terminal.end() == 0


@pytest.mark.skipif(not shutil.which("less"), reason="less is not installed")
def test_less(profcapture, whole):
    """Text that fits is printed, and less ends; longer text is shown in pages, Ctrl-C does nothing,
    and q ends less."""
    assert "samples of" in shown(profcapture, "report", whole, "--limit", 3, rows=60, columns=120, PAGER=None, LESS=None)
    terminal = Terminal([profcapture.path, "report", whole, "--limit", 0], rows=10, PAGER=None, LESS=None)
    terminal.read(until="Lost: ")
    time.sleep(0.3)
    terminal.write("\x03")
    time.sleep(0.3)
    assert terminal.process.poll() is None
    children = Path(f"/proc/{terminal.process.pid}/task/{terminal.process.pid}/children").read_text().split()
    assert len(children) == 1
    terminal.write("q")
    assert terminal.end() == 0
