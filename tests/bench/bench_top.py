# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The cost of profctl top while the whole system is busy, compared with perf top: CPU time of each
process, in % of one core."""

import itertools
import os
import shlex
import statistics
import subprocess
import sys
import time

import bench

SECONDS = 10
TURNS = 3
OURS = ("profd", "profd-files", "profd-engine")


class Terminal:
    """A program in a terminal of tmux, until the `with` block ends."""

    turn = itertools.count()

    def __init__(self, folder, command):
        self.tmux = ["tmux", "-S", os.path.join(folder, f"tmux-{next(self.turn)}"), "-f", "/dev/null"]
        self.command = shlex.join(map(str, command))

    def __enter__(self):
        bench.run(*self.tmux, "new-session", "-d", "-x", 160, "-y", 50, f"exec {self.command}")
        return int(bench.run(*self.tmux, "display-message", "-p", "#{pane_pid}"))

    def __exit__(self, *_):
        bench.run(*self.tmux, "kill-server")


def shares(folder, command, also=()):
    """Returns the CPU shares, in % of a core, of the program itself and of its descendants named in
    `also`."""
    with Terminal(folder, command) as pid:
        time.sleep(5)
        below = [task for task in bench.descendants(pid) if bench.comm(task) in also]
        before = bench.cpu_ns(pid), sum(map(bench.cpu_ns, below))
        time.sleep(SECONDS)
        after = bench.cpu_ns(pid), sum(map(bench.cpu_ns, below))
    return [(then - now) / 1e7 / SECONDS for now, then in zip(before, after)]


def medians(turns):
    return [statistics.median(turn[i] for turn in turns) for i in range(2)]


def main():
    profctl, perf = bench.program("PROFCTL", "profctl"), bench.peer("perf")
    table = bench.Table("A live view of the system, 999 Hz, all CPUs busy")
    with bench.scratch() as folder, bench.Work(folder) as work:
        for start in (work.python, work.node, work.gcc):
            start()
        ours, theirs = [], []
        for _ in range(TURNS):
            ours.append(shares(folder, [profctl, "top", "--bus", "private", "--system"], OURS))
            if perf:
                theirs.append(shares(folder, [perf, "top", "-F", "999", "-e", "cpu-clock", "-g"]))
        view, daemon = medians(ours)
        table.row("CPU time of the view, % of a core", view, medians(theirs)[0] if perf else None, goal="under 2", met=view < 2)
        table.row("… of the daemon, which unwinds", daemon)
    return table.missed


if __name__ == "__main__":
    subprocess.run(["tmux", "-V"], stdout=subprocess.DEVNULL, check=True)
    sys.exit(1 if main() else 0)
