# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Code that real runtimes generate has the names that they write into files: node, OpenJDK, Python 3.12 and later.

Each does a number of rounds, so that its start is as small a part of it on a busy machine.
"""
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from captures import rows
from shares import near

SCRIPT = """
function alpha(n) { let s = 0; for (let i = 0; i < n; i++) s = (s * 31 + i) % 1000003; return s }
function beta(n) { return n < 2 ? n : beta(n - 1) + beta(n - 2) }
let x = 0
for (let i = 0; i < ROUNDS; i++) {
    x += alpha(200000)
    x += beta(20)
    if (i == 100) console.log("warm")
}
"""
JAVASCRIPT = SCRIPT.replace("ROUNDS", "1000")
JAVA = """
public class Work {
    static int alpha(int n) { int s = 0; for (int i = 0; i < n; i++) s = (s * 31 + i) % 1000003; return s; }
    public static void main(String[] a) {
        long x = 0;
        for (int i = 0; i < 1500; i++) x += alpha(200000);
        System.exit(x == 1 ? 1 : 0);
    }
}
"""
PYTHON = """
import time
def leaf(n):
    x = 0
    for i in range(n): x ^= i * 7
    return x
def mid70(n): return leaf(n * 7) + 1
def mid30(n): return leaf(n * 3) + 2
took = [0, 0]
while sum(took) < 0.8:
    for i, function in enumerate((mid70, mid30)):
        begin = time.thread_time()
        function(3000)
        took[i] += time.thread_time() - begin
with open("share", "w") as file:
    file.write(str(took[0] / sum(took)))
"""
HAS_NODE = shutil.which("node") is not None
HAS_JAVA = shutil.which("java") is not None and shutil.which("javac") is not None


def new_python():
    """A Python that can say what it calls, or None."""
    for name in "python3.13", "python3.12", "/usr/bin/python3":
        path = shutil.which(name)
        if path and subprocess.run([path, "-X", "perf", "-c", "import sys; assert sys.version_info >= (3, 12)"],
                                   stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return path
    return None


@pytest.fixture
def record(profctl, profcapture, capture, tmp_path):
    """Records a command in a folder of its own; what its functions are called and how many percent hit each itself."""

    def start(*command):
        before = set(Path("/tmp").glob("perf-*.map"))
        profctl("record", "-F", 499, "-o", capture, "--", *command, prefix=["env", "-C", tmp_path])
        for path in set(Path("/tmp").glob("perf-*.map")) - before:
            path.unlink()
        rows = profcapture.json("report", capture, "--limit", 0)["data"]["rows"]
        again = profcapture("symbolize", capture).stdout
        assert ": 0 symbols and 0 lines" in again, again
        return rows

    return start


def share(rows, start, kind="jit"):
    """Of all that is called so, inlined or not."""
    return sum(row["self_pct"] for row in rows if row["name"].startswith(start) and row["kind"] == kind)


@pytest.mark.skipif(not HAS_NODE, reason="there is no node")
@pytest.mark.parametrize("option", ["--perf-basic-prof", "--perf-prof"])
def test_node(record, tmp_path, option):
    (tmp_path / "work.js").write_text(JAVASCRIPT)
    rows = record("node", option, "work.js")
    alpha, beta = share(rows, "JS:*alpha "), share(rows, "JS:*beta ")
    assert alpha > 20 and beta > 2 and alpha + beta > 60, rows[:5]


@pytest.mark.skipif(not HAS_NODE, reason="there is no node")
def test_node_lines(record, profcapture, capture, tmp_path):
    """A dump knows the lines too: each is in the function that the script has there."""
    source = JAVASCRIPT.replace("{ let s = 0; for", "{\nlet s = 0;\nfor").replace("; return s }", ";\nreturn s\n}")
    (tmp_path / "work.js").write_text(source)
    loop = 1 + source.split("\n").index(next(line for line in source.split("\n") if line.startswith("for")))
    record("node", "--perf-prof", "work.js")
    rows = profcapture.json("report", capture, "--by", "line", "--limit", 0)["data"]["rows"]
    rows = [row for row in rows if row["name"].startswith("JS:*alpha ") and (row["file"] or "").endswith("work.js")]
    assert sum(row["self_pct"] for row in rows if row["line"] == loop) > 15, rows
    assert {row["line"] for row in rows} <= set(range(loop - 2, loop + 2)), rows


@pytest.mark.skipif(not HAS_JAVA, reason="there is no JDK")
def test_java(record, tmp_path):
    (tmp_path / "Work.java").write_text(JAVA)
    subprocess.run(["javac", "Work.java"], cwd=tmp_path, check=True)
    rows = record("java", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", "Work")
    assert sum(row["self_pct"] for row in rows if "Work.alpha" in row["name"] and row["kind"] == "jit") > 40, rows[:5]


@pytest.mark.skipif(new_python() is None, reason="there is no Python that writes what it calls")
@pytest.mark.parametrize("option", ["perf", "perf_jit"])
def test_python(record, profcapture, capture, tmp_path, option):
    """Each function is below its caller: what leaf() is called by takes the share of the time that the script measures."""
    python = new_python()
    if subprocess.run([python, "-X", option, "-c", "import sys; assert sys.is_stack_trampoline_active()"],
                      stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip(f"this Python has no -X {option}")
    (tmp_path / "work.py").write_text(PYTHON)
    record(python, "-X", option, "work.py")
    mid70 = float((tmp_path / "share").read_text())
    chains = [[frame["name"] for frame in row["frames"]] for row in rows(profcapture, capture, "sample", "--resolve")]
    chains = [[name.split(":")[2] for name in names if name.startswith("py::")] for names in chains]
    leaves = [names for names in chains if names[:1] == ["leaf"]]
    assert len(leaves) > 100
    whole = [names for names in leaves if names in (["leaf", "mid70", "<module>"], ["leaf", "mid30", "<module>"])]
    assert len(whole) >= 0.99 * len(leaves), leaves[:5]
    assert near(sum("mid70" in names for names in whole), len(whole), mid70, slack=0.02)


@pytest.mark.skipif(not HAS_NODE or os.geteuid() != 0, reason="needs node, and root for a namespace")
def test_other_pid_namespace(profctl, profcapture, capture, spawn):
    """While it lives its map is found by the pid that it has for itself, in its own /tmp."""
    inside = 'mount -t tmpfs none /tmp && exec node --perf-basic-prof -e "$0"'
    node = spawn("unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c", inside, SCRIPT.replace("ROUNDS", "1e9"), stdout=subprocess.PIPE)
    assert node.stdout.readline() == b"warm\n"
    profctl("record", "-F", 999, "-d", 0.7, "--system", "-o", capture)
    rows = profcapture.json("report", capture, "--limit", 0, "--comm", "node")["data"]["rows"]
    assert share(rows, "JS:*alpha ") > 10, rows[:5]
