# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl top on a terminal of tmux: its display, its keys, and its end."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recordings import until

BURN = "def fib(n):\n return n if n < 2 else fib(n - 1) + fib(n - 2)\nwhile True: fib(18)\n"
BURNER = """
__attribute__((noipa)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(void) { for (;;) fib(18); }
"""


class Terminal:
    def __init__(self, folder):
        self.tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.status = folder / "status"
        self.errors = folder / "errors"

    def run(self, *args):
        # newer versions of meson set LINES and COLUMNS, which curses prefers to the terminal's size
        env = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        return subprocess.run([*self.tmux, *args], check=True, stdout=subprocess.PIPE, encoding="utf-8", env=env).stdout

    def start(self, command, columns=110, lines=20, term="tmux-256color"):
        script = f"TERM={term} {shlex.join(map(str, command))} 2>{self.errors}; echo $? >{self.status}; exec sleep 60"
        self.run("new-session", "-d", "-x", str(columns), "-y", str(lines), script)

    def lines(self):
        return self.run("capture-pane", "-p").splitlines()

    def press(self, *keys):
        self.run("send-keys", *keys)

    def shows(self, pattern):
        """Waits for a line that matches, and returns the match."""
        deadline = time.monotonic() + 40
        while True:
            lines = self.lines()
            for line in lines:
                if found := re.search(pattern, line):
                    return found
            assert time.monotonic() < deadline, "\n".join(lines)
            time.sleep(0.02)

    def ended(self):
        until(lambda: self.status.exists() and self.status.read_text().strip(), timeout=40)
        return int(self.status.read_text())


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    yield terminal
    subprocess.run([*terminal.tmux, "kill-server"], check=False, stderr=subprocess.DEVNULL)


def test_views_and_keys(profctl, spawn, compile_c, terminal):
    burner = spawn(compile_c("burner", BURNER, "-O1", "-fomit-frame-pointer"))
    terminal.start(profctl.command("top", "--bus", "private", "--pid", burner.pid))
    terminal.shows(r"^process %d, last \d+ s: [1-9]\d* samples, CPU \d+ %%\. Lost: nothing\.$" % burner.pid)
    terminal.shows(r"^ *self %  total %  samples  function$")
    # fib has a name although the program has no frame pointers or debug symbols, and takes most of
    # the CPU time
    share = terminal.shows(r"^ *(\d\d+\.\d) +(\d+\.\d) +\d+  fib +burner")
    assert float(share[1]) <= float(share[2]) <= 100
    terminal.shows(r"q quit")
    terminal.press("?")
    terminal.shows(r"^  Enter +callers of the function; functions of the process or thread$")
    terminal.press("x")
    terminal.shows(r"q quit")
    terminal.press("p")
    cpu = terminal.shows(r"^ *(\d+\.\d) +100\.0 +\d+ +%d  burner" % burner.pid)
    assert 0 < float(cpu[1]) < 110
    terminal.press("Enter")
    terminal.shows(r"^only burner, pid %d$" % burner.pid)
    terminal.press("/")
    terminal.press("-l", "fib")
    terminal.shows(r"/fib_")
    until(lambda: len([line for line in terminal.lines()[3:-1] if line.strip()]) == 1)
    terminal.press("Enter")
    terminal.press("Enter")
    terminal.shows(r"callers of fib")
    terminal.press("BSpace")
    terminal.press("BSpace")
    terminal.shows(r"f p t view  Enter open")
    terminal.shows(r"^nothing to show$")  # the filter matches nothing
    terminal.press("t")
    terminal.press("/")
    terminal.press("Escape")
    terminal.shows(r"^ *\d+\.\d +100\.0 +\d+ +%d  burner" % burner.pid)
    terminal.press("s")
    terminal.shows("by total")
    terminal.press("q")
    assert terminal.ended() == 0
    assert terminal.errors.read_text() == ""


def test_80_columns_and_inlined_functions(profctl, spawn, terminal, tmp_path, require):
    """Names are shortened so that rows fit; inlined functions have separate rows, as in report."""
    source = """#include <map>
    #include <string>
    namespace deep { namespace inside {
    template <typename A, typename B> struct Table { static long hot(long n); };
    static inline __attribute__((always_inline)) long inlined_step(long n) { long s = 0; for (volatile long i = 0; i < 100000; i++) s += i ^ n; return s; }
    template <typename A, typename B> __attribute__((noinline)) long Table<A, B>::hot(long n) { return inlined_step(n) + 1; }
    } }
    int main() { for (volatile long n = 0;; n++) deep::inside::Table<std::map<std::string, std::string>, std::map<long, std::string>>::hot(n); }"""
    require("g++")
    (tmp_path / "spin.cc").write_text(source)
    subprocess.run(["g++", "-g", "-O1", "-o", tmp_path / "spin", tmp_path / "spin.cc"], check=True, timeout=120)
    program = spawn(tmp_path / "spin")
    terminal.start(profctl.command("top", "--bus", "private", "--pid", program.pid), columns=80, lines=60)
    terminal.shows(r"^ *(?:[89]\d|100)(?:\.\d)? +(?:[89]\d|100)(?:\.\d)? +\d+  deep::inside::inlined_step +spin$")
    terminal.shows(r"^ *(?:<?0\.\d)? +(?:[89]\d|100)(?:\.\d)? +\d+  (?:.*::)?Table<….*>::hot +spin$")
    assert terminal.lines()[-1] == "f p t view  Enter callers  Bksp back  s sort  / find  Space hold  ? keys  q quit"
    terminal.press("p")
    terminal.shows("^f p t view  Enter open  .* q quit$")
    terminal.press("q")
    assert terminal.ended() == 0


def test_hold_resize_and_end(profctl, spawn, terminal):
    burner = spawn("/usr/bin/python3", "-c", BURN)
    terminal.start(profctl.command("top", "--bus", "private", "--pid", burner.pid, "--by", "process"))
    terminal.shows(r"python3")
    terminal.press("Space")
    terminal.shows("held; Space continues")
    held = terminal.lines()[0]
    burner.kill()
    burner.wait()
    terminal.shows(r"the recording is over \(target-exited\); q quits")
    assert terminal.lines()[0].split(" samples")[0] == held.split(" samples")[0]
    for columns, lines in ((30, 5), (14, 2), (200, 40)):
        terminal.run("resize-window", "-x", str(columns), "-y", str(lines))
        until(lambda: terminal.lines()[0].startswith(f"process {burner.pid}"[:columns]))
    terminal.press("C-c")
    assert terminal.ended() == 130


@pytest.mark.skipif(os.geteuid() != 0, reason="recording the whole system needs root")
def test_whole_system(profctl, spawn, terminal, tmp_path):
    name = tmp_path / "a\x1b[2Jb"
    name.symlink_to("/usr/bin/python3")
    spawn(name, "-c", "import ctypes; ctypes.CDLL(None).prctl(15, b'x\\x1b[31my', 0, 0, 0)\n" + BURN)
    terminal.start(profctl.command("top", "--bus", "private", "--by", "process"))
    terminal.shows(r"x\\x1b\[31my")
    terminal.press("f")
    terminal.shows(r"\[kernel\]")
    terminal.press("q")
    assert terminal.ended() == 0


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not here")
def test_generated_code(profctl, spawn, terminal):
    """With --no-interpreters, top shows the names that a runtime writes while it runs."""
    loop = "function alpha(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) % 1000003; return s }\nfor (;;) alpha(200000)"
    node = spawn("node", "--perf-basic-prof", "-e", loop)
    try:
        terminal.start(profctl.command("top", "--bus", "private", "--no-interpreters", "--pid", node.pid))
        terminal.shows(r"^ *(?:[5-9]|\d\d+)(?:\.\d)? +\d+(?:\.\d)? +\d+  JS:.?alpha")
        terminal.press("q")
        assert terminal.ended() == 0
    finally:
        Path(f"/tmp/perf-{node.pid}.map").unlink(missing_ok=True)


def test_refusals(profctl, terminal):
    assert "needs a terminal" in profctl("top", check=1).stderr
    assert "100ms to 1h" in profctl("top", "--interval", "1ms", check=2).stderr
    assert "exclude each other" in profctl("top", "--system", "--pid", os.getpid(), check=2).stderr
    terminal.start(profctl.command("top", "--bus", "private", "--pid", os.getpid()), term="no-such-terminal")
    assert terminal.ended() == 1
    assert "cannot show a live view" in terminal.errors.read_text()


def test_gone_process(profctl, terminal, spawn):
    gone = spawn(sys.executable, "-c", "")
    gone.wait()
    terminal.start(profctl.command("top", "--bus", "private", "--pid", gone.pid))
    assert terminal.ended() not in (0, 130)
    assert str(gone.pid) in terminal.errors.read_text()
