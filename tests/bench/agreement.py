# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Compares the results of profd and perf on the same work at the same time.

Both sample cpu-clock at the same rate over the whole system; only the time in which both sampled is
compared. For each program, the ten symbols with the largest self share in either must agree within
max(3 percentage points, 4 sigma). If only one of the two has a name, only the shares of the images
are compared. The numbers of samples must agree within 2 % (in a small run, 4 sigma).
"""

import collections
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time

import bench

# git first: it creates a repository before the others occupy the CPUs
PROGRAMS = {
    "git": (lambda work: [work.git()], ["git"]),
    "C": (lambda work: [work.c()], ["loop"]),
    "python3": (lambda work: [work.python()], ["python3"]),
    "gcc": (lambda work: [work.gcc()], ["gcc", "cc1", "as"]),
}


def wait_for_samples(processes, *paths):
    """Waits until perf and profctl have written samples to their files, because each of them may
    start late on a busy machine."""
    begun = {}
    while len(begun) < len(paths) or any(os.path.getsize(path) == begun[path] for path in paths):
        for process in processes:
            if process.poll() is not None:
                raise PerfDied(process.args[0], process.returncode)
        time.sleep(0.05)
        for path in paths:
            if path not in begun and os.path.exists(path) and os.path.getsize(path) > 0:
                begun[path] = os.path.getsize(path)


def record_both(folder, names, seconds, frequency):
    """Records the programs with profd and perf at the same time. Returns the paths of the capture
    and of perf's data."""
    capture, data = os.path.join(folder, "both.cap"), os.path.join(folder, "both.data")
    with bench.Work(folder) as work:
        for name in names:
            PROGRAMS[name][0](work)
        time.sleep(0.5)
        perf = subprocess.Popen(["perf", "record", "-q", "-B", "-N", "-a", "-k", "CLOCK_MONOTONIC", "-F", str(frequency), "-e", "cpu-clock", "-o", data],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        profctl = subprocess.Popen([bench.program("PROFCTL", "profctl"), "record", "--system", "-q", "-e", "cpu-clock", "-F",
                                    str(frequency), "-o", capture], stdin=subprocess.DEVNULL)
        try:
            wait_for_samples((perf, profctl), capture, data)
            time.sleep(seconds)
        finally:
            perf.send_signal(signal.SIGINT)
            profctl.send_signal(signal.SIGINT)
            perf.wait(timeout=60)
            profctl.wait(timeout=60)
    return capture, data


class PerfDied(Exception):
    """perf or profctl failed. perf 6.1 aborts on some machines (build-id.c: an assertion, then a
    smashed stack)."""


def common_time(capture, data):
    """Returns (start of the capture, from, to) in seconds of CLOCK_MONOTONIC; between `from` and
    `to`, both were sampling."""
    script = subprocess.run(["perf", "script", "-i", data, "-F", "time"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if script.returncode != 0:
        raise PerfDied(script.returncode, script.stderr[-300:])
    perf = [float(line.strip().rstrip(":")) for line in script.stdout.splitlines() if line.strip()]
    info = json.loads(bench.run(bench.program("PROFCAPTURE", "profcapture"), "info", capture, "--json"))
    start = info["capture"]["start_monotonic_ns"]
    samples, = [table for table in info["data"]["tables"] if table["name"] == "sample"]
    ours = [(start + samples[end]) / 1e9 for end in ("t_min_ns", "t_max_ns")]
    return start / 1e9, max(ours[0], min(perf)), min(ours[1], max(perf))


def perf_rows(data, comms, first, last):
    """Returns perf's {(image, symbol or None): samples} of the processes with these names."""
    report = subprocess.run(["perf", "report", "-i", data, "--time", f"{first:.6f},{last:.6f}", "--stdio", "--no-children", "-g", "none", "-F",
                             "sample,comm,dso,sym", "-t", "\t", "--comms", ",".join(comms)],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if report.returncode != 0:
        raise PerfDied(report.returncode, report.stderr[-300:])
    rows = collections.Counter()
    for line in report.stdout.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("\t")]  # perf omits the column comm for a single name
        count, image, symbol = parts[0], parts[-2], parts[-1]
        kind, _, name = symbol.partition("] ")
        name = name.strip()
        image = "[kernel]" if "k" in kind else os.path.basename(image)
        rows[image, None if re.fullmatch(r"(0x)?[0-9a-f]{8,}|\[unknown\]", name) else name] += int(count)
    return rows


def our_rows(capture, comms, first, last):
    filters = ["--from", f"{first:.6f}s", "--to", f"{last:.6f}s"]
    filters += [arg for comm in comms for arg in ("--comm", comm)]
    report = json.loads(bench.run(bench.program("PROFCAPTURE", "profcapture"), "report", capture, "--json", "--no-inline",
                                  "--interpreter-frames", "--limit", "0", *filters))
    rows = collections.Counter()
    for row in report["data"]["rows"]:
        if not row["self"]:
            continue
        image = "[kernel]" if row["kind"] == "kernel" else os.path.basename(row["image"] or "")
        named = row["kind"] != "unresolved" and not re.search(r"\+0x[0-9a-f]+$", row["name"])
        if row["kind"] == "python":  # perf reports only the interpreter's function
            image, row["name"] = os.path.basename(os.path.realpath("/usr/bin/python3")), "_PyEval_EvalFrameDefault"
        rows[image, row["name"] if named else None] += row["self"]
    return rows


CLONE = re.compile(r"(\.(isra|part|constprop|llvm|lto_priv|cold|localalias|__uniq)\.[0-9a-f]+|\.cold|\.localalias)+$")


def plain(name):
    """Returns a name without the parts that profd and perf print differently: parameters, version
    suffixes, and suffixes of clones, which profd does not count as separate functions."""
    return CLONE.sub("", re.sub(r"@.*$", "", re.sub(r"\(.*$", "", name))) if name else None


def fold(rows):
    folded = collections.Counter()
    for (image, name), count in rows.items():
        folded[image, plain(name)] += count
    return folded


def images(rows):
    total = collections.Counter()
    for (image, _), count in rows.items():
        total[image] += count
    return total


def disagreements(ours, theirs):
    """Returns lines that describe differences beyond the bound, and the table of the comparison."""
    n_ours, n_theirs = sum(ours.values()), sum(theirs.values())
    problems, lines = [], []

    def compare(label, a, b):
        p, q = a / n_ours, b / n_theirs
        mean = (a + b) / (n_ours + n_theirs)
        sigma = math.sqrt(mean * (1 - mean) * (1 / n_ours + 1 / n_theirs))
        bound = max(0.03, 4 * sigma)
        lines.append(f"    {label:<60} {p * 100:6.2f} % {q * 100:6.2f} %  within {bound * 100:.2f}")
        if abs(p - q) > bound:
            problems.append(f"{label}: {p * 100:.2f} % and perf {q * 100:.2f} %")

    top = {key for rows in (ours, theirs) for key, _ in rows.most_common(10)}
    for key in sorted(top, key=lambda k: -theirs[k]):
        if key[1] is not None and theirs[key] and ours[key]:
            compare(f"{key[0]} {key[1]}", ours[key], theirs[key])
        elif key[1] is not None:
            # only profd or only perf has a name: the images are compared below
            lines.append(f"    {key[0]} {key[1]}: named by one only ({ours[key]}, {theirs[key]})")
            if max(ours[key] / n_ours, theirs[key] / n_theirs) > 0.03 and not (ours[key[0], None] or theirs[key[0], None]):
                problems.append(f"{key}: {ours[key]} and perf {theirs[key]}, and the image has no unnamed samples")
    ours_by_image, theirs_by_image = images(ours), images(theirs)
    for image, _ in (ours_by_image + theirs_by_image).most_common(6):
        compare(f"{image} (image)", ours_by_image[image], theirs_by_image[image])
    difference = abs(n_ours - n_theirs)
    if difference > max(0.02 * n_theirs, 4 * math.sqrt(n_theirs)):
        problems.append(f"samples: {n_ours} and perf {n_theirs}")
    return problems, lines


def check(folder, names, seconds, frequency, attempts=3):
    """Returns {name: (problems, lines, our samples, perf's samples)}. Repeats the recording if perf
    failed."""
    for left in reversed(range(attempts)):
        try:
            capture, data = record_both(folder, names, seconds, frequency)
            start_s, first, last = common_time(capture, data)
            theirs = {name: fold(perf_rows(data, PROGRAMS[name][1], first, last)) for name in names}
            break
        except PerfDied:
            if not left:
                raise
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, "both.cap"))
    results = {}
    for name in names:
        ours = fold(our_rows(capture, PROGRAMS[name][1], first - start_s, last - start_s))
        n_ours, n_theirs = sum(ours.values()), sum(theirs[name].values())
        problems, lines = disagreements(ours, theirs[name]) if n_ours and n_theirs else (["no samples"], [])
        results[name] = problems, lines, n_ours, n_theirs
    return results


def main():
    if not bench.peer("perf"):
        sys.exit("bench: perf is not installed: ./dev setup --peers")
    failed = 0
    print("\n## Agreement with perf, cpu-clock, both at once: self shares of the top ten of either\n")
    with bench.scratch() as folder:
        for name in PROGRAMS:
            problems, lines, ours, theirs = check(folder, [name], 24, 999)[name]
            os.unlink(os.path.join(folder, "both.cap"))
            print(f"  {name}: {ours:,} samples, perf {theirs:,}: {'agree' if not problems else 'DISAGREE'}")
            print("\n".join(lines))
            for problem in problems:
                print(f"    DISAGREES: {problem}")
            failed += bool(problems)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
