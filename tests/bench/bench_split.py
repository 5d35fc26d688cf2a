# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The cost of having three processes (profd, profd-files and profd-engine), and whether they grow.

The split costs at most profd's own time: a single process would also do the work of the engine and
of profd-files. (profd-files opens files and reads /proc. It must be a separate process in any case,
because it can hang.) profd's share of the CPU time in a steady recording is therefore an upper
bound of the split's cost.

Then a long recording, during which processes start and end all the time, shows each process's
memory without rings, and number of descriptors, over time. BENCH_CHURN limits how many processes
are started per second; without it, as many as possible are started. With it, only this part runs,
and records only these processes: in a recording of everything, each program that is new on the
machine is one more image that stays open, so memory would grow while somebody compiles programs.
This part needs no quiet machine:

    BENCH_SECONDS=1800 BENCH_CHURN=50 ./dev bench bench_split
"""

import os
import signal
import subprocess
import sys
import time

import bench

NAMES = ("profd", "profd-files", "profd-engine")
CHURN = "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; /bin/ls / >/dev/null; done; sleep 0.05"


def churn_loop(rate):
    """Returns the body of a shell loop that starts about `rate` processes a second, or, if `rate`
    is 0, as many as possible."""
    if not rate:
        return CHURN
    return "/bin/true; " * (max(rate // 10, 2) - 1) + "sleep 0.1"


def start(folder, seconds, *what):
    path = os.path.join(folder, f"split-{seconds}-{time.monotonic_ns()}.cap")
    return subprocess.Popen([bench.program("PROFCTL", "profctl"), "record", *(what or ["--system"]), "--bus", "private",
                             "-d", str(seconds), "--no-symbols", "-q", "-e", "cpu-clock", "-o", path],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def ours(child):
    return {bench.comm(pid): pid for pid in bench.descendants(child.pid) if bench.comm(pid) in NAMES}


def split(table, folder, seconds):
    with bench.Work(folder) as work:
        work.python()
        work.c()
        child = start(folder, seconds)
        time.sleep(3)  # the first seconds are not steady
        before = {name: bench.cpu_ns(pid) for name, pid in ours(child).items()}
        time.sleep(seconds - 5)
        used = {name: bench.cpu_ns(pid) - before[name] for name, pid in ours(child).items() if name in before}
        child.wait(timeout=120)
    share = 100 * used.get("profd", 0) / max(sum(used.values()), 1)
    for name in NAMES:
        table.row(f"CPU of {name}, ms", used.get(name, 0) / 1e6)
    table.row("share of profd, %", share, goal="under 5", met=share < 5)


def measure(child):
    found = {}
    for name, pid in ours(child).items():
        try:
            found[name] = (bench.rss_without_rings(pid), len(os.listdir(f"/proc/{pid}/fd")))
        except OSError:
            continue
    return found


def slope(points):
    """Returns the slope per hour, by least squares."""
    n = len(points)
    mean_t = sum(t for t, _ in points) / n
    mean_v = sum(v for _, v in points) / n
    over = sum((t - mean_t) ** 2 for t, _ in points)
    return 3600 * sum((t - mean_t) * (v - mean_v) for t, v in points) / over if over else 0.0


def churn(table, folder, seconds, rate):
    series = {name: [] for name in NAMES}
    with bench.Work(folder) as work:
        loops = [work.loop(churn_loop(rate)) for _ in range(1 if rate else 2)]
        child = start(folder, seconds, *(["--pid", str(loops[0].pid)] if rate else []))
        begin = time.monotonic()
        while time.monotonic() - begin < seconds - 3:
            time.sleep(min(10, seconds / 20))
            now = time.monotonic() - begin
            for name, (rss, fds) in measure(child).items():
                series[name].append((now, rss, fds))
        child.wait(timeout=120)
    for name, points in series.items():
        # an epoch lasts 30 seconds, and the memory that epochs need shows only after the second one
        late = [point for point in points if point[0] > min(90, seconds / 3)]
        if len(late) < 3:
            continue
        early_rss, late_rss = late[0][1] / 1e6, max(rss for _, rss, _ in late[-3:]) / 1e6
        print(f"# {name}: RSS MB " + " ".join(f"{rss / 1e6:.1f}" for _, rss, _ in points[:: max(len(points) // 12, 1)])
              + "; fds " + " ".join(str(fds) for _, _, fds in points[:: max(len(points) // 12, 1)]))
        table.row(f"{name}: RSS, MB an hour", slope([(t, rss / 1e6) for t, rss, _ in late]),
                  goal="flat", met=late_rss < 1.2 * early_rss + 4)
        table.row(f"{name}: descriptors an hour", slope([(t, float(fds)) for t, _, fds in late]),
                  goal="flat", met=late[-1][2] <= late[0][2] + 64)


def main():
    seconds = int(os.environ.get("BENCH_SECONDS", "1800"))
    rate = int(os.environ.get("BENCH_CHURN", "0"))
    missed = 0
    with bench.scratch() as folder:
        if not rate:
            table = bench.Table(f"What the split costs, {min(seconds, 60)} s")
            split(table, folder, min(seconds, 60))
            missed = table.missed
        churn_table = bench.Table(f"A recording of {seconds} s with process churn")
        churn(churn_table, folder, seconds, rate)
    return missed + churn_table.missed


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(1 if main() else 0)
