# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Allocations of many threads that reuse each other's addresses, of processes that end in different
ways, and of programs that run while the engine is stopped."""
import json
import os
import resource
import signal
import subprocess
import time

import pytest

import memory_oracle as oracle
from captures import rows
from recordings import children
from test_dbus_private import running, variant

LIFE = os.environ["HEAP_LIFE"]

REUSED = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "MALLOC_ARENA_MAX": "1"}
TELLS_STATUS = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 15)
OWN, CHILD = "1008", "2000"  # the size classes of heap-counts that contain heap-life's sizes


def record(profctl, capture, *command, env=None, **options):
    options.setdefault("stdout", subprocess.DEVNULL)

    def run():
        profctl("record", "--memory", "-F", "0", "-q", "--force", "--no-symbols", "-o", capture, "--", *command, env=env,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)), **options)

    return oracle.whole(run, capture)[1]


def memory(profcapture, capture, *options):
    return profcapture.json("memory", *options, capture)["data"]


def test_reuse(profctl, profcapture, capture):
    """In eight processes, threads free and reuse each other's addresses: each free ends the block
    that is at its address at that time."""
    script = f"for i in 1 2 3 4 5 6 7 8; do {LIFE} reuse 4 2000 || exit; done"
    counts = record(profctl, capture, "sh", "-c", script, env=REUSED)
    assert counts["lost"] == 0
    found = [process for process in counts["processes"] if process["exe"] == LIFE]
    assert len(found) == 8
    assert sum(process["cross"] for process in found) > 4000
    for process in found:
        assert process["allocs"]["realloc"] > 8000
        said = [process[name] for name in ("leaked_blocks", "foreign", "untold", "wrong", "live_rows", "heap_blocks")]
        assert said == [0] * 6, process
    assert all(row["temporary"] == 0 for row in memory(profcapture, capture, "--cross-thread")["rows"] if row["alloc_tid"] != row["free_tid"])
    for process in memory(profcapture, capture)["processes"]:
        if process["comm"] == "heap-life":
            assert (process["leaked_blocks"], process["leaked_bytes"], process["foreign_frees"], process["lost"]) == (0, 0, 0, 0)


def test_hand_over(profctl, profcapture, capture):
    """A block that another thread frees at once counts as freed by another thread, not as
    temporary."""
    n = 2000
    counts = record(profctl, capture, LIFE, "hand-over", n)
    (process,) = counts["processes"]
    assert (process["cross"], process["leaked_blocks"], counts["lost"]) == (n, 0, 0)
    said = memory(profcapture, capture)["summary"]
    assert (said["leaked_blocks"], said["foreign_frees"], said["temporary"]) == (0, 0, process["temporary"])
    assert said["temporary"] < 20


@pytest.mark.parametrize("end", ["exit", "_exit", "kill", "abort", "exec", "fork", "vfork", "spawn"])
def test_end(profctl, profcapture, capture, end):
    """All allocations before a process's end are recorded, separately for each process."""
    n = 5000
    status = {"kill": 128 + signal.SIGKILL, "abort": 128 + signal.SIGABRT}.get(end, 0)
    counts = record(profctl, capture, LIFE, end, n, check=status)
    assert counts["lost"] == 0
    made = sorted((process["sizes"].get(OWN, 0), process["sizes"].get(CHILD, 0)) for process in counts["processes"])
    assert made == ([(0, n)] if end in ("exec", "fork", "vfork", "spawn") else []) + [(n, 0)]
    for process in counts["processes"]:
        assert process["wrong"] == process["untold"] == process["foreign"] == 0
        assert process["leaked_blocks"] == process["live_rows"] == process["heap_blocks"] >= n
        assert (process["begins"], process["ends"]) == (1, 1)
    said = memory(profcapture, capture)
    assert sorted(process["leaked_blocks"] for process in said["processes"]) == sorted(p["leaked_blocks"] for p in counts["processes"])
    killed = "killed" if TELLS_STATUS else "exit"
    first = {"kill": killed, "abort": killed, "exec": "exec"}.get(end, "exit")
    assert sorted(process["end"] for process in said["processes"]) == sorted([first] + ["exit"] * (len(said["processes"]) - 1))


@pytest.mark.skipif(not TELLS_STATUS, reason="before Linux 6.15 nobody but its parent knows how a process ended")
def test_status(profctl, profcapture, capture):
    """The exit statuses of the command and of its children are recorded, each when the parent
    receives it, after the exit."""
    script = f"{LIFE} kill 7; {LIFE} abort 8; {LIFE} _exit 9; ( {LIFE} exit 10; exit 3 ); {LIFE} exit 11; exit 5"
    record(profctl, capture, "bash", "-c", script, check=5)
    threads = {row["id"]: row["process"] for row in rows(profcapture, capture, "thread")}
    found = {threads[row["thread"]]: row["exit_status"] for row in rows(profcapture, capture, "task") if row["event"] == "status"}
    said = {}
    for row in rows(profcapture, capture, "process"):
        if row["id"] in found:
            said.setdefault(os.path.basename(row["exe"]), []).append(found[row["id"]])
    assert said["bash"] == [5 << 8, 3 << 8]
    assert [status & 0x7f for status in said["heap-life"]] == [signal.SIGKILL, signal.SIGABRT, 0, 0, 0]
    ends = [process["end"] for process in memory(profcapture, capture)["processes"] if process["comm"] == "heap-life"]
    assert sorted(ends) == ["exit"] * 3 + ["killed"] * 2


def test_inherit(profctl, profcapture, capture):
    """A forked process has the blocks that its parent had at the fork, whatever the parent then
    does with them; they do not count as allocated or leaked by the child."""
    n = 3000
    counts = record(profctl, capture, LIFE, "inherit", n)
    parent, *others = sorted(counts["processes"], key=lambda process: -process["allocs"]["malloc"])
    assert (counts["lost"], len(others)) == (0, 2)
    assert parent["inherited_ends"] == 0 and parent["allocs"]["malloc"] > n
    for process in counts["processes"]:
        assert process["wrong"] == process["untold"] == process["foreign"] == 0
        assert process["frees"]["free"] == n and process["allocs"]["realloc"] == n / 2
        assert process["inherited_ends"] == (n if process in others else 0)
    said = memory(profcapture, capture)
    assert {process["foreign_frees"] for process in said["processes"]} == {0}


def test_pause(profcapture, capture, file):
    """Allocations during a pause are not recorded, and earlier blocks end at the pause, so that
    they do not look leaked."""
    n = 2000
    command = f'read -r control; exec env LD_PRELOAD={os.environ["LIBPROFPRELOAD_MEMORY"]} PROF_MEMORY=all PROF_CONTROL="$control" {LIFE} phases {n}'
    with running() as profd, subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, text=True) as process:
        path = profd.create({"pids": variant("au", [process.pid]), "memory": variant("b", True)}, file)
        profd.session(path, "Start")
        for text, then in ((profd.session(path, "OpenControl")[0] + "\n", "Pause"), ("x", "Resume")):
            process.stdin.write(text)
            process.stdin.flush()
            profd.sleep(1)
            profd.session(path, then)
            profd.sleep(0.3)
        process.stdin.write("x")
        process.stdin.flush()
        profd.wait("Finished", path)
    assert process.returncode == 0
    counts = oracle.heap_counts(capture)
    (heap,) = [process for process in counts["processes"] if process["exe"] == LIFE]
    assert (heap["sizes"].get(OWN), heap["sizes"].get(CHILD, 0)) == (2 * n, 0)
    assert (heap["frees"]["free"], heap["frees"]["realloc"]) == (n / 2 + n, n / 2)
    assert [heap[name] for name in ("foreign", "untold", "wrong", "leaked_blocks", "live_rows")] == [0, 0, 0, 2, 2]
    events = [json.loads(line)["event"] for line in profcapture("dump", "--table", "heap", "--format", "ndjson", capture).stdout.splitlines()[1:]]
    assert [event for event in events if event in ("paused", "resumed")] == ["paused", "resumed"]
    assert memory(profcapture, capture)["summary"]["leaked_blocks"] == 2


@pytest.mark.parametrize("policy", ["lossless", "drop"])
def test_engine_stands_still(profctl, recorder, tmp_path, policy):
    """Every allocation and free is recorded or counted as lost, even if the engine is stopped."""

    def run(name, stop):
        capture = tmp_path / name
        process = recorder("--memory", "-F", "0", "-q", "--no-symbols", "--policy", policy, "-o", capture, "--", LIFE, "steady")
        assert process.stdout.readline() == "begun\n"
        time.sleep(0.2)
        if stop:
            engine = tree(process.pid)["profd-engine"]
            os.kill(engine, signal.SIGSTOP)
            time.sleep(0.6)
            os.kill(engine, signal.SIGCONT)
        os.kill(tree(process.pid)["heap-life"], signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        counts = oracle.heap_counts(capture)
        (heap,) = counts["processes"]
        rows = sum(heap["allocs"].values()) + sum(heap["frees"].values())
        return rows + counts["lost"] - 2 * int(output.split()[0]), heap, counts["lost"]

    others, _, _ = run("running", False)
    others_stopped, heap, lost_stopped = run("stopped", True)
    assert heap["wrong"] == 0
    if policy == "drop":
        assert lost_stopped > 0
    assert others == others_stopped == 1  # the only other allocation is the buffer of standard output


def tree(pid):
    """Returns {name: pid} of all descendants."""
    found = children(pid)
    for child in list(found.values()):
        found.update(tree(child))
    return found
