# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The cost of recording allocations, compared with heaptrack (with its interpreter, and --raw): the
program's own time for a pair of malloc and free, the CPU time of all processes, and bytes a pair
in the capture.

    bench_memory.py [pairs] [programs] [counts] [random] [sampled]     all of them without an argument
    PROF_BENCH_RUNS=N                                         runs of each, 3 by default; medians are printed
"""

import ctypes
import json
import os
import re
import resource
import shlex
import signal
import statistics
import struct
import subprocess
import sys
import threading
import time

import bench

LOAD = os.environ.get("HEAP_LOAD")
LOAD_FP = os.environ.get("HEAP_LOAD_FP")
HEAPTRACK = "/usr/lib/heaptrack/libheaptrack_preload.so"
RUNS = int(os.environ.get("PROF_BENCH_RUNS", "3"))
FIXED = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
LIMIT = 300  # seconds, for any one run
PR_SET_CHILD_SUBREAPER = 36

SQL = """create table t(a integer primary key, b text, c real);
with recursive n(x) as (select 1 union all select x+1 from n limit 200000) insert into t select x, hex(randomblob(8)), x*1.5 from n;
select count(*) from (select b from t order by b);
"""
PYTHON = """
import json
for i in range(6):
    rows = [dict(id=i, name="name %d" % i, tags=["a%d" % (i % 7), "b"], value=i / 3) for i in range(8000)]
    assert json.loads(json.dumps(rows)) == rows
"""
JQ = '[.[]|{k:.id,t:(.tags|join(","))}]|length'
PERL = 'for my $r(1..4){my %h;for my $i(1..300000){$h{$i}=[$i,"x$i"]} $s+=keys %h} print $s'
CPLUSPLUS = "#include <algorithm>\n#include <iostream>\n#include <map>\n#include <regex>\n#include <string>\n#include <vector>\n" \
    "int main(int argc, char **argv) { std::map<std::string, std::vector<int>> all; std::regex word(\"a+b*\");\n" \
    "for (int i = 0; i < argc; i++) if (std::regex_match(argv[i], word)) all[argv[i]].push_back(i); std::cout << all.size(); return 0; }\n"


# ---- Measuring ---------------------------------------------------------------------------------

def reap_all():
    """Reaps the processes that the command left behind; they are children of this process now."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


class Peak(threading.Thread):
    """The maximum resident memory of profd or of profd-engine, whichever is larger."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.is_over, self.bytes = pid, False, 0
        self.start()

    def run(self):
        while not self.is_over:
            for pid in bench.descendants(self.pid):
                if bench.comm(pid) in ("profd", "profd-engine"):
                    try:
                        self.bytes = max(self.bytes, bench.rss_without_rings(pid))
                    except (OSError, ValueError):
                        pass
            time.sleep(0.05)


def cpu_of(command, env=None, watch=False):
    """Returns the CPU time in seconds of a command and its descendants, whether or not they were
    waited for; the command's output; and, with `watch`, the bytes of Peak."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.Popen([str(part) for part in command], env={**os.environ, **FIXED, **(env or {})}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    peak = Peak(child.pid) if watch else None
    try:
        output, errors = child.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        reap_all()
        return None, "", 0
    if peak:
        peak.is_over = True
        peak.join()
    reap_all()
    if child.returncode != 0:
        sys.exit(f"bench: {command} failed with {child.returncode}:\n{output[-2000:]}\n{errors[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, output, peak.bytes if peak else 0


def ours(path, command, memory="--memory", options=()):
    return [bench.program("PROFCTL", "profctl"), "record", "--bus", "private", memory, "-F", "0", "-q", "--no-symbols", "--force", *options,
            "-o", path, "--", *command]


def theirs(path, command, raw):
    return ["heaptrack", *(["--raw"] if raw else []), "-o", path, *command]


def medians(*commands, runs=RUNS, **options):
    """Runs the commands alternately, so that other work on the machine affects all of them equally.
    Returns [(median of CPU seconds, outputs, maximum of bytes)]."""
    found = [[] for _ in commands]
    for _ in range(runs):
        for command, results in zip(commands, found):
            if command is not None:
                results.append(cpu_of(*command, **options))
    done = []
    for results in found:
        took = [seconds for seconds, _, _ in results if seconds is not None]
        done.append((statistics.median(took) if took and len(took) == len(results) else None,
                     [output for _, output, _ in results], max((most for _, _, most in results), default=0)))
    return done


def heaptrack_file(path, raw):
    for suffix in ([".raw"] if raw else [""]):
        for kind in (".zst", ".gz", ""):
            if os.path.exists(path + suffix + kind):
                return os.path.getsize(path + suffix + kind)
    return None


# ---- A pair ------------------------------------------------------------------------------------

def pair(folder, program, depth, threads, n, how):
    path = os.path.join(folder, "pairs")
    command = [program, "pairs", str(depth), str(threads), str(n)]
    if how == "ours":
        return (ours(path, command),)
    if how == "theirs":
        return (theirs(path, command, raw=True),)
    if how == "alone":
        return (command, {"LD_PRELOAD": HEAPTRACK, "DUMP_HEAPTRACK_OUTPUT": "/dev/null"})
    return (command,)


def pairs(table, folder):
    n = 1000000
    goals = {(8, False): 190, (8, True): 80, (25, False): 350, (25, True): None}
    for (depth, with_fp), goal in goals.items():
        program = LOAD_FP if with_fp else LOAD
        for threads in (0, 1, 2, 4):  # 0: the main thread, without another thread
            if threads > 1 and (depth, with_fp) != (8, False):
                continue
            has_peer = bench.peer("heaptrack") and os.path.exists(HEAPTRACK)
            results = medians(*(pair(folder, program, depth, threads, n // max(threads, 1) if how != "bare" else n, how) if has_peer or how in ("bare", "ours")
                                else None for how in ("bare", "ours", "theirs", "alone")))
            bare, recorded, full, alone = (statistics.median(map(float, outputs_of(outputs))) if outputs else None for _, outputs, _ in results)
            over = recorded - bare
            what = f"a pair over bare ({bare:.1f} ns), depth {depth}, {'with' if with_fp else 'no'} fp, {threads or 'no other'} threads"
            table.row(what, over, full - bare if full else None, goal=f"{goal} ns" if goal and threads == 1 else None,
                      met=over <= goal if goal and threads == 1 else None, digits=1)
            lost = rows_of(os.path.join(folder, "pairs"))[1]
            table.row("  lost by the last run", lost, goal="0", met=lost == 0)
            if alone:
                table.row("  heaptrack's library alone, into /dev/null", over, alone - bare, digits=1)
    for n_each in (n // 4, n):
        four_by_one(table, folder, n_each)


def four_by_one(table, folder, n):
    """Measures the cost of a pair in four threads, relative to that in one. Each thread makes the
    same number of pairs, because a thread begins with a small ring, and pays for each larger one.
    Four threads that only allocate are faster than the engine; records that get no room in time
    are lost, and the loss is reported."""
    has_peer = bench.peer("heaptrack")
    results = medians(*(pair(folder, LOAD, 8, threads, n, how) if has_peer or how != "theirs" else None
                        for threads, how in ((1, "bare"), (1, "theirs"), (4, "theirs"), (1, "ours"), (4, "ours"))))
    bare, their_one, their_four, one, four = (statistics.median(map(float, outputs_of(outputs))) if outputs else None for _, outputs, _ in results)
    ratio = (four - bare) / (one - bare)
    table.row(f"four threads by one, {n:,} pairs each", ratio, (their_four - bare) / (their_one - bare) if their_one else None, goal="1.3",
              met=ratio <= 1.3)
    table.row("  lost by the last run", rows_of(os.path.join(folder, "pairs"))[1])


def outputs_of(outputs):
    """Yields, for each output, the line that the program itself printed, among heaptrack's
    lines."""
    for output in outputs:
        for line in output.splitlines():
            try:
                float(line)
            except ValueError:
                continue
            yield line
            break


# ---- Programs ----------------------------------------------------------------------------------

def programs(folder):
    """Returns {name: (command, environment, whether heaptrack's interpreter can handle it, goal of
    bytes per pair)}."""

    def file(name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    rows = json.dumps([{"id": i, "tags": [f"t{i % 13}", f"u{i % 7}"], "value": i * 1.5} for i in range(40000)])
    plusplus = file("t.cc", CPLUSPLUS)
    bench.run("g++", "-E", plusplus, "-o", os.path.join(folder, "t.ii"))
    cc1plus = bench.run("g++", "-print-prog-name=cc1plus").strip()
    found = {
        "sqlite3": (["/usr/bin/sqlite3", ":memory:", f".read {file('q.sql', SQL)}"], {}, True, 2.5),
        "python3": (["/usr/bin/python3", "-c", PYTHON], {"PYTHONMALLOC": "malloc"}, True, 2.5),
        "jq": (["/usr/bin/jq", "-c", JQ, file("d.json", rows)], {}, True, 2.5),
        "perl": (["/usr/bin/perl", "-e", PERL], {}, True, 4),
        "cc1plus": ([cc1plus, "-fpreprocessed", os.path.join(folder, "t.ii"), "-quiet", "-O1", "-o", "/dev/null"], {}, False, 4),
        "clang": (["/usr/bin/clang-14", "-fsyntax-only", plusplus], {}, False, None),
    }
    return {name: entry for name, entry in found.items() if os.path.exists(entry[0][0])}


def rows_of(path):
    info = bench.run_json(bench.program("PROFCAPTURE", "profcapture"), "info", path, "--format", "json")["data"]
    rows = {table["name"]: table["rows"] for table in info["tables"]}
    return rows.get("alloc", 0), sum(row["count"] for row in info["loss"] if row["stream"].startswith("collector"))


def programs_table(table, folder):
    has_peer = bench.peer("heaptrack")
    for name, (command, env, can_interpret, goal) in programs(folder).items():
        path, theirs_path = os.path.join(folder, "ours.cap"), os.path.join(folder, "theirs")
        bare, recorded, raw, full = medians(
            (command, env), (ours(path, command), env, True), (theirs(theirs_path, command, True), env) if has_peer else None,
            (theirs(theirs_path, command, False), env) if has_peer and can_interpret else None)
        n, lost = rows_of(path)
        table.row(f"{name}: CPU s of all, bare {bare[0]:.2f}, heaptrack --raw", recorded[0], raw[0], goal="under it",
                  met=recorded[0] < raw[0] if raw[0] else None)
        if full[0]:
            table.row("  heaptrack with its interpreter", recorded[0], full[0], goal="half of it", met=recorded[0] < full[0] / 2)
        size = os.path.getsize(path) / max(n, 1)
        raw_size, full_size = heaptrack_file(theirs_path, True), heaptrack_file(theirs_path, False) if can_interpret else None
        table.row(f"  bytes of the capture a pair, of {n:,}; heaptrack --raw", size, raw_size / n if raw_size else None,
                  goal=f"{goal}" if goal else None, met=size <= goal if goal else None)
        if full_size:
            table.row("  heaptrack, interpreted", size, full_size / n)
        table.row("  ns of all a pair over bare; heaptrack --raw", 1e9 * (recorded[0] - bare[0]) / n,
                  1e9 * (raw[0] - bare[0]) / n if raw[0] else None, digits=0)
        table.row("  lost", lost, goal="0", met=lost == 0)
        table.row("  RSS of profd's processes at most, MB", recorded[2] / 1e6, goal="150" if name == "cc1plus" else None,
                  met=recorded[2] < 150e6 if name == "cc1plus" else None, digits=1)


# ---- How many allocations are seen --------------------------------------------------------------

SYSPROF = ["--no-perf", "--no-decode", "--no-cpu", "--no-disk", "--no-memory", "--no-network", "--no-battery", "--memprof"]
SYSPROF_ALLOCATION = 14  # SYSPROF_CAPTURE_FRAME_ALLOCATION
SYSPROF_LIMIT = 30  # seconds, because sysprof-cli may not exit


def calls_of_memusage(command, env):
    """Returns the number of calls of malloc, calloc and realloc that glibc's own libmemusage
    counts."""
    done = subprocess.run(command, env={**os.environ, **FIXED, **env, "LD_PRELOAD": "libmemusage.so"}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", timeout=LIMIT, check=True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)
    return sum(int(re.search(rf"^\s*{name}\|\s+(\d+)", text, re.M).group(1)) for name in ("malloc", "calloc", "realloc"))


def calls_of_heaptrack(path, command, env, can_interpret):
    if can_interpret:
        cpu_of(theirs(path, command, False), env)
        found = re.search(r"calls to allocation functions: (\d+)", bench.run("heaptrack_print", "-f", f"{path}.zst", "-l", "1"))
        return int(found.group(1))
    cpu_of(theirs(path, command, True), env)
    return int(bench.run("sh", "-c", f"zstd -dcq {shlex.quote(path)}.raw.zst | grep -c '^+'"))


def calls_of_sysprof(path, command, env):
    """Returns the number of allocation frames in sysprof-cli's capture. sysprof-cli may never exit
    after the command."""
    run = ["timeout", "-s", "KILL", str(SYSPROF_LIMIT), "sysprof-cli", *SYSPROF, "-c", shlex.join(command), "-f", path]
    subprocess.run(run, env={**os.environ, **FIXED, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   check=False)
    reap_all()
    with open(path, "rb") as file:
        data = file.read()
    at, n = 256, 0
    while at + 24 <= len(data):
        (length,) = struct.unpack_from("<H", data, at)
        if length < 24:
            break
        if data[at + 16] == SYSPROF_ALLOCATION and at + 40 <= len(data):
            n += struct.unpack_from("<q", data, at + 32)[0] > 0
        at += length
    return n


def counts_table(table, folder):
    """Compares our counts and those of heaptrack and sysprof with libmemusage's. heaptrack's
    library does not see aligned allocations, and links libstdc++, which adds one allocation."""
    for name, (command, env, can_interpret, _) in programs(folder).items():
        path = os.path.join(folder, "counts")
        expected = calls_of_memusage(command, env)
        cpu_of(ours(f"{path}.cap", command), env)
        n, lost = rows_of(f"{path}.cap")
        heaptrack = calls_of_heaptrack(path, command, env, can_interpret) if bench.peer("heaptrack") else None
        sysprof = calls_of_sysprof(f"{path}.syscap", command, env) if bench.peer("sysprof-cli") else None
        table.row(f"{name}: allocations seen, of {expected:,} of memusage; heaptrack", n + lost, heaptrack, digits=0)
        table.row("  sysprof --memprof", n + lost, sysprof, digits=0)
        for old in os.listdir(folder):
            if old.startswith("counts"):
                os.unlink(os.path.join(folder, old))


def random_table(table, folder):
    n = 1000000
    path, theirs_path = os.path.join(folder, "random.cap"), os.path.join(folder, "random")
    command = [LOAD, "random", str(n)]
    has_peer = bench.peer("heaptrack")
    bare, recorded, raw = medians((command,), (ours(path, command),), (theirs(theirs_path, command, True),) if has_peer else None)
    table.row(f"random sizes, 100 k live, 1000 stacks: CPU s, bare {bare[0]:.2f}", recorded[0], raw[0], goal="under it",
              met=recorded[0] < raw[0] if raw[0] else None)
    size, raw_size = os.path.getsize(path) / n, heaptrack_file(theirs_path, True)
    table.row("  bytes of the capture a pair", size, raw_size / n if raw_size else None, goal="8", met=size <= 8)


# ---- Sampled -----------------------------------------------------------------------------------

def by_function(path):
    bench.run(bench.program("PROFCAPTURE", "profcapture"), "symbolize", path)
    data = bench.run_json(bench.program("PROFCAPTURE", "profcapture"), "memory", "--limit", "0", "--json", path)["data"]
    return {row["name"]: row["allocated_bytes"] for row in data["rows"] if row["allocated_bytes"]}


def sampled_table(table, folder):
    path, n = os.path.join(folder, "sampled.cap"), 1000000
    command = [LOAD, "pairs", "8", "1", "20000000"]
    results = medians((command,), (ours(path, command, "--memory=sample:524288"),), runs=5 * RUNS)
    bare, sampled = (statistics.median(map(float, outputs)) for _, outputs, _ in results)
    table.row(f"sample:512K, a pair over bare ({bare:.1f} ns)", sampled - bare, goal="3 ns", met=sampled - bare < 3)
    command = [LOAD, "shares", str(n)]
    exact = {name: int(count) for name, count in (line.split() for line in bench.run(*command).splitlines())}
    errors = []
    for _ in range(RUNS):
        cpu_of(ours(path, command, "--memory=sample:524288"))
        found = by_function(path)
        errors.append(max(abs(found.get(name, 0) / exact[name] - 1) for name in exact))
    table.row("  bytes of the ten functions, by what they count themselves: worst error, %", 100 * statistics.median(errors), goal="5", met=statistics.median(errors) < 0.05)


def main():
    if not LOAD or not LOAD_FP:
        sys.exit("bench: run this through ./dev bench")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parts = {"pairs": pairs, "programs": programs_table, "counts": counts_table, "random": random_table, "sampled": sampled_table}
    bench.touch_memory()
    table = bench.Table("Allocations; the peer is heaptrack")
    for name in sys.argv[1:] or parts:
        with bench.scratch() as folder:
            parts[name](table, folder)
    return table.missed


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(1 if main() else 0)
