# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl record --counters: the kernel's counts, compared with what the test reads from /proc
before and after, and with the known actions of a test program."""
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
import schema

from captures import rows as dumped
from exports import read_page

MIB = 1 << 20
TICK = 10**9 // os.sysconf("SC_CLK_TCK")
# Waits, then writes and reads many times, touches pages, starts threads, opens files, and waits.
LOAD = """
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char block[65536];
static void *sleeper(void *unused)
{
	sleep(100);
	return unused;
}
int main(int argc, char **argv)
{
	long writes = atol(argv[1]), pages = atol(argv[2]), threads = atol(argv[3]), files = atol(argv[4]);
	pthread_t thread;
	usleep(400000);
	int out = open("/dev/null", O_WRONLY), in = open("/dev/zero", O_RDONLY);
	for (long i = 0; i < writes; i++)
		if (write(out, block, sizeof(block)) < 0 || read(in, block, sizeof(block) / 2) < 0)
			return 1;
	char *p = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(p, pages * 4096, MADV_NOHUGEPAGE);
	for (long i = 0; i < pages; i++)
		p[i * 4096] = 1;
	for (long i = 0; i < threads; i++)
		pthread_create(&thread, NULL, sleeper, NULL);
	for (long i = 0; i < files; i++)
		open("/dev/null", O_RDONLY);
	usleep(700000);
	return 0;
}
"""
WRITES, PAGES, THREADS, FILES = 400, 3000, 7, 20


def words(path):
    """Returns the numbers in each line of a file, by the line's first word."""
    rows = (line.replace(":", " ").split() for line in Path(path).read_text().splitlines())
    return {row[0]: [int(word) for word in row[1:] if word.isdigit()] for row in rows if len(row) > 1}


def machine():
    """Returns the machine's sums by the name of the counter, as the test itself reads them."""
    stat, vm = words("/proc/stat"), words("/proc/vmstat")
    sums = {f"cpu/{name}": number * TICK for name, number in zip(("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"), stat["cpu"])}
    sums["cpu/context switches"], sums["cpu/forks"] = stat["ctxt"][0], stat["processes"][0]
    sums["memory/page faults"], sums["memory/major faults"] = vm["pgfault"][0], vm["pgmajfault"][0]
    for line in Path("/proc/net/dev").read_text().splitlines()[2:]:
        name, numbers = line.split(":")
        numbers = [int(number) for number in numbers.split()]
        sums[f"network/{name.strip()} received"], sums[f"network/{name.strip()} sent"] = numbers[0], numbers[8]
    for path in Path("/sys/block").glob("*/stat"):
        numbers = [int(number) for number in path.read_text().split()]
        sums[f"disk/{path.parent.name} read"], sums[f"disk/{path.parent.name} written"] = numbers[2] * 512, numbers[6] * 512
    for path in Path("/proc/pressure").glob("*"):
        for line in path.read_text().splitlines() if path.name != "irq" else []:
            if not (path.name == "cpu" and line.startswith("full")):
                sums[f"pressure/{path.name} {line.split()[0]}"] = int(line.split("total=")[1]) * 1000
    return sums


@pytest.fixture(scope="module")
def recorded(profctl, profcapture, compile_c, tmp_path_factory):
    """Records the load with all counters. Returns machine() before, the counters' rows, machine() after, the
    capture, and the result of profctl."""
    program = compile_c("counted", LOAD, "-pthread")
    capture = tmp_path_factory.mktemp("counters") / "counters.cap"
    before = machine()
    done = profctl("record", "-F", 0, "--counters", "-o", capture, "--", program, WRITES, PAGES, THREADS, FILES)
    after = machine()
    output = profcapture.json("counters", capture, "--limit", 0)
    schema.check(profcapture, "counters", output)
    return before, output["data"]["rows"], after, capture, done


def by_name(rows, pid=None):
    return {f"{row['group']}/{row['name']}": row for row in rows if (row["pid"] is None if pid is None else row["pid"] == pid)}


def test_sums_of_the_machine(recorded):
    """Each sum's first and last value lie between what the test read before and after."""
    before, rows, after, _, _ = recorded
    found, wrong = by_name(rows), []
    # iowait and idle may decrease, and the kernel updates steal late: man 5 proc_stat
    loose = {"cpu/iowait", "cpu/idle", "cpu/steal"}
    for name, low in before.items():
        row = found.get(name)
        if row is None:
            assert after[name] == 0 or name.startswith(("disk", "network")) and low == 0, name
            continue
        assert row["kind"] == "sum" and row["pid"] is None
        slack = 20 * TICK if name in loose else 0
        if not low - slack <= row["first"] <= row["last"] + slack <= after[name] + 2 * slack:
            wrong.append((name, low, row["first"], row["last"], after[name]))
    assert not wrong
    assert {"cpu/user", "cpu/context switches", "memory/page faults"} <= set(found) and any(name.startswith("network/lo") for name in found)
    # the load's faults are among the machine's
    assert found["memory/page faults"]["last"] - found["memory/page faults"]["first"] >= PAGES
    for name in "memory/free", "memory/available", "memory/cached":
        row = found[name]
        assert row["kind"] == "gauge" and row["unit"] == "bytes" and 0 < row["min"] <= row["max"] < words("/proc/meminfo")["MemTotal"][0] * 1024
        assert row["rate"] is None


def test_rates(recorded):
    """The times of all modes, summed over all CPUs, are the elapsed time times the number of
    CPUs."""
    _, rows, _, _, _ = recorded
    found = by_name(rows)
    total = sum(found[f"cpu/{mode}"]["rate"] for mode in ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal") if f"cpu/{mode}" in found)
    assert 0.8 * os.cpu_count() < total / 1e9 < 1.1 * os.cpu_count() or found["cpu/steal"]["rate"] > 0
    for row in rows:
        assert (row["rate"] is not None) == (row["kind"] == "sum")
        assert row["growth"] == (pytest.approx(row["last"] - row["first"]) if row["kind"] == "sum" else None)


def test_intervals(profcapture, recorded):
    """A row with a changed value is an interval or more after the counter's previous row, whichever
    other counters were written in between. Exceptions: the sums of a process begin with 0 when
    the process starts, and the last reading is at the end of the recording."""
    values = dumped(profcapture, recorded[3], "counter_value")
    last, before = max(row["time_ns"] for row in values) - 10**8, {}
    for row in values:
        old = before.get(row["counter"])
        assert not old or row["value"] == old["value"] or old["value"] == 0 or row["time_ns"] > last or \
            row["time_ns"] - old["time_ns"] > 3e7, (old, row)
        before[row["counter"]] = row
    assert len(before) > 30


def test_counters_of_the_process(recorded):
    """The load's bytes, faults, threads and files, from its own start on."""
    _, rows, _, _, _ = recorded
    pid = next(row["pid"] for row in rows if row["name"] == "threads" and row["max"] == THREADS + 1)
    found = by_name(rows, pid)
    growth = {name: row["last"] - row["first"] for name, row in found.items()}
    # the loader and exec also read and write a little
    assert WRITES * 65536 <= growth["process/written"] < WRITES * 65536 + 4096
    assert WRITES * 32768 <= growth["process/read"] < WRITES * 32768 + 65536
    assert PAGES <= growth["process/minor faults"] < PAGES + 1500
    assert found["process/threads"]["min"] == 1 and found["process/threads"]["max"] == THREADS + 1
    files = found["process/open files"]
    assert files["max"] - files["first"] in (FILES + 1, FILES + 2), "at first, the loader may have a library open"
    assert found["memory/rss"]["max"] >= PAGES * 4096


def test_timeline(profcapture, recorded):
    """Each value has a time, and the rate of the interval that ends then; there are ten values a
    second."""
    _, rows, _, capture, _ = recorded
    output = profcapture.json("counters", capture, "--timeline", "--limit", 0)
    schema.check(profcapture, "counters", output)
    points = output["data"]["timeline"]
    assert len(points) == sum(row["count"] for row in rows)
    assert [point["time_ns"] for point in points] == sorted(point["time_ns"] for point in points)
    written = [point for point in points if point["name"] == "written"]
    last = {}
    for point in written:
        if point["pid"] in last:
            before = last[point["pid"]]
            seconds = (point["time_ns"] - before["time_ns"]) / 1e9
            # After an exec, the first value of the new program continues that of the old one.
            assert point["rate"] == (pytest.approx((point["value"] - before["value"]) / seconds) if seconds else None) or \
                (point["rate"] is None and point["value"] == before["value"])
        last[point["pid"]] = point
    busy = [point["time_ns"] for point in points if (point["group"], point["name"]) == ("cpu", "context switches")]
    gaps = sorted(b - a for a, b in zip(busy, busy[1:]))
    assert len(busy) >= 5 and gaps[len(gaps) // 2] < 300e6
    only = profcapture.json("counters", capture, "--timeline", "--counter", "cpu/con*", "--limit", 0)["data"]["timeline"]
    assert len(only) == len(busy)
    text = profcapture("counters", capture, "--timeline", "--counter", "cpu").stdout
    assert re.search(r"time +value +per second +counter", text)
    half = profcapture.json("counters", capture, "--timeline", "--from", "500ms", "--limit", 0)["data"]["timeline"]
    assert 0 < len(half) < len(points) and all(point["time_ns"] >= 500e6 for point in half)


def test_what_cannot_be_read_is_said_once(profcapture, recorded):
    """Counters that cannot be read are named by the recording and by the list, and never shown as
    0."""
    _, rows, _, capture, done = recorded
    groups = {row["group"].split(" ")[0] for row in rows}
    missing = re.findall(r"these counters cannot be read here: (.*)", done.stderr)
    absent = missing[0].split(", ") if missing else []
    assert len(missing) <= 1 and not groups & set(absent)
    for group, path in ("energy", "/sys/class/powercap"), ("frequency", "/sys/devices/system/cpu/cpufreq"):
        if not Path(path).exists():
            assert group in absent
    text = profcapture("counters", capture).stdout
    assert text.count("These groups of counters could not be read: ") == len(missing)


def test_lists(profctl, profcapture, capture):
    """Only the listed groups are recorded; an unknown word is refused."""
    profctl("record", "-q", "--no-symbols", "-F", 0, "--counters=memory,process", "-o", capture, "--", "sleep", 0.5)
    rows = profcapture.json("counters", capture, "--limit", 0)["data"]["rows"]
    assert {row["group"] for row in rows} == {"memory", "process"}
    assert "Did you mean 'memory'?" in profctl("record", "--counters=memroy", "--", "true", check=2).stderr
    assert "the list is empty" in profctl("record", "--counters=", "--", "true", check=2).stderr


def test_system(profctl, profcapture, capture, require):
    """A recording of the whole system has no counters of processes or a cgroup, and says so."""
    require(root=True)
    done = profctl("record", "--no-symbols", "-a", "-F", 0, "--counters=cpu,process,cgroup", "-d", 0.5, "-o", capture)
    assert "cannot be read here: cgroup, process" in done.stderr
    rows = profcapture.json("counters", capture, "--limit", 0)["data"]["rows"]
    assert {row["group"] for row in rows} == {"cpu"} and all(row["pid"] is None for row in rows)


def test_cgroup(profctl, profcapture, capture, require):
    """The capture has the CPU time of the command's cgroup, from the cgroup's cpu.stat."""
    require(root=True, machine=True)
    root = next((path for path in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if (path / "cgroup.procs").exists()), None)
    if not root:
        pytest.skip("the unified hierarchy is not mounted")
    group = root / f"profd-test-{os.getpid()}"
    group.mkdir()
    try:
        spin = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
        join = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs")]
        profctl("record", "-q", "--no-symbols", "-F", 0, "--counters=cgroup", "-o", capture, "--", "python3", "-c", spin, prefix=join)
        used = words(group / "cpu.stat")["user_usec"][0] * 1000
        rows = by_name(profcapture.json("counters", capture, "--limit", 0)["data"]["rows"])
        row = rows[f"cgroup /{group.name}/user"]
        assert row["last"] <= used and row["last"] - row["first"] > 0
    finally:
        for _ in range(50):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def test_views(profcapture, recorded, tmp_path):
    """SQL, the HTML report and exports have the counters."""
    _, rows, _, capture, _ = recorded
    faults = next(row for row in rows if row["group"] == "memory" and row["name"] == "page faults")
    answer = profcapture("sql", capture, "select max(value) from counter_value join counter on counter.id = counter_value.counter "
                         "where counter.name = 'page faults'", "--format", "csv").stdout.splitlines()
    assert float(answer[-1]) == faults["last"]
    page = tmp_path / "page.html"
    profcapture("html", capture, "-o", page)
    lanes = {(lane["group"], lane["name"], lane["pid"] or None): lane for lane in read_page(page)[0]["counters"]}
    named = {(row["group"], row["name"], row["pid"]): row for row in rows}
    load = next(row["pid"] for row in rows if row["name"] == "threads" and row["max"] == THREADS + 1)
    wanted = {("cpu", "context switches", None), ("memory", "page faults", None), ("memory", "free", None)} | \
        {("process", name, load) for name in ("written", "threads", "open files")}
    assert wanted <= set(lanes) <= set(named)
    for key, lane in lanes.items():
        assert lane["unit"] == (named[key]["unit"] or "").replace("ns", "s") + "/s" * (named[key]["kind"] == "sum"), lane
        if named[key]["kind"] == "gauge":
            assert named[key]["min"] <= min(lane["values"]) and max(lane["values"]) <= named[key]["max"], lane
    profcapture("export", "--to", "firefox", "-o", tmp_path / "firefox.json", capture)
    counters = json.loads((tmp_path / "firefox.json").read_text())["counters"]
    assert any((counter["category"], counter["name"]) == ("memory", "page faults") for counter in counters)
    table = profcapture("counters", capture, "--format", "csv", "--limit", 0).stdout.splitlines()
    assert table[0].endswith(",rate,growth") and len(table) == len(rows) + 1


def cpu_ns(pid):
    """Returns the CPU time of all threads of a process."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def family(pid):
    """Yields a process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def cost_of_reading():
    """Returns the CPU time that this program takes to read the kernel's files ten times a second."""
    files = [path for path in map(Path, ("/proc/stat", "/proc/meminfo", "/proc/vmstat", "/proc/diskstats", "/proc/net/dev",
                                         "/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io")) if path.exists()]
    begin = time.process_time()
    for _ in range(10):
        time.sleep(0.1)
        for path in files:
            path.read_bytes()
    return time.process_time() - begin


def test_cost(recorder, capture, spawn):
    """Reading all counters ten times a second adds little to the cost of a recording that samples,
    compared with plain reading, which also takes longer on a busy machine."""
    target = spawn("sleep", "60")

    def used(*options):
        record = recorder("-q", "-F", 99, "--no-symbols", "--force", "-o", capture, "-p", target.pid, *options)
        time.sleep(1.5)
        everything = list(family(record.pid))
        before = sum(map(cpu_ns, everything))
        time.sleep(2)
        after = sum(map(cpu_ns, everything))
        record.send_signal(signal.SIGINT)
        record.communicate(timeout=30)
        return (after - before) / 2e9

    reading, without, with_counters = cost_of_reading(), used(), used("--counters")
    print(f"{100 * without:.2f} % of a CPU without, {100 * with_counters:.2f} % with counters, {100 * reading:.2f} % reading")
    assert with_counters - without < 0.01 + 5 * reading
