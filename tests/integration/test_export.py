# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The output of `export` agrees with `report`, whether it is read by this test or by the programs
for its formats."""
import base64
import collections
import gzip
import html
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest
from captures import make, unprintable
from exports import check, firefox_paths, names, read_chrome, read_perf_script, read_pprof, read_svg
from slices import SANITIZED, part

# These tests check programs that are not ours, so a build with a sanitizer would find nothing more
# than the other build.
by_peers = pytest.mark.skipif(SANITIZED, reason="none of this is our code")
FORMATS = ["folded", "firefox", "pprof", "speedscope", "svg", "callgrind", "chrome", "perf-script"]
BY_NAME = ["folded", "svg", "callgrind"]  # formats that merge threads of the same name
FLAMEGRAPH = Path("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
HOSTILE = b"=1+1,\";'\\\n\r\t\x1b[31m\xe2\x80\xae\xff\xc2\x9b"


@pytest.fixture(scope="module", params=["hostile"] if SANITIZED else ["plain", "hostile"])
def capture(request, tmp_path_factory):
    """A capture with several epochs, threads and every table. "hostile": all names are harmful.
    "real": a recording of an interpreter, and of a compiler that replaces a shell by exec."""
    path = tmp_path_factory.mktemp("export") / "x.cap"
    if request.param == "real":
        (path.parent / "x.c").write_text("".join(f"long f{i}(long n) {{ long s = 0; for (long i = 0; i < n; i++) s += i * {i} ^ n; return s; }}\n" for i in range(250)))
        script = "import json, re\nfor i in range(60):\n    json.loads(json.dumps({str(k): [k] * 9 for k in range(900)}))\n    re.search('(a+)+b', 'a' * 15)\n"
        request.getfixturevalue("profctl")("record", "-q", "-e", "cpu-clock", "-F", 999, "--off-cpu", "-o", path, "--", "sh", "-c",
                                                f'(i=0; while [ $i -lt 9000 ]; do : < /dev/null; i=$((i+1)); done; exec $(cc -print-prog-name=cc1) -quiet -O2 -o x.s x.c); /usr/bin/python3 -c "{script}"', cwd=path.parent)
        return path
    prefix = ["--prefix", HOSTILE.decode(errors="surrogateescape")] if request.param == "hostile" else []
    return make(path, "--all-tables", "--epochs", 3, "--rows", 1200, "--chunk-rows", 200, *prefix)


@pytest.fixture(scope="module")
def report(profcapture, capture):
    return lambda *options: profcapture.json("report", capture, "--limit", 0, *options)["data"]


@pytest.fixture
def export(profcapture, capture, tmp_path):
    def run(to, *options):
        path = tmp_path / f"x.{to}"
        profcapture("export", capture, "--to", to, "-o", path, "--force", *options)
        return path.read_bytes()

    return run


FILTERS = [(), ("--mode", "kernel"), ("--ignore", "module-1")]


# ---- folded stacks


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_folded(profcapture, capture, report, export, options):
    text = export("folded", *options).decode("utf-8")
    assert not unprintable(text) and "\t" not in text
    lines = [line.rsplit(" ", 1) for line in text.splitlines()]
    assert all(re.fullmatch(r"\d+", count) for _, count in lines)
    assert [stack for stack, _ in lines] == sorted({stack for stack, _ in lines}, key=str.encode)
    data = report(*options)
    assert sum(int(count) for _, count in lines) == data["self_total"]
    # a stack begins with the thread's name at the time of the sample; --ignore removes some samples
    rows = [row for row in profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
            if row["mode"] == "kernel" or "kernel" not in options]
    shown = {stack.split(";")[0] for stack, _ in lines}
    assert len(shown) == len({row["comm"] for row in rows}) or ("--ignore" in options and len(shown) < len(rows))
    leaves = collections.Counter()
    for stack, count in lines:
        leaves[stack.rsplit(";", 1)[-1]] += int(count)
    # only the counts are compared, because the export escapes names and replaces ';' in them
    assert sorted(leaves.values()) == sorted(names(data["rows"], "self").values())


# ---- pprof


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_pprof(report, export, options):
    types, samples = read_pprof(export("pprof", *options))
    assert types[0] == ("samples", "count")
    by_thread = collections.Counter()
    for _, values, labels in samples:
        assert set(labels) == {"thread", "pid", "tid"}
        by_thread[(labels["pid"][3] or [0])[0], (labels["tid"][3] or [0])[0]] += values[0]
    check(report(*options), [([frame[0] for frame in frames], values[0]) for frames, values, _ in samples])
    threads = report("--by", "thread", *options)["rows"]
    # "+" removes threads that have allocations but no samples
    assert +by_thread == {(row["pid"] or 0, row["tid"] or 0): row["self"] for row in threads if row["self"]}


# ---- speedscope


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_speedscope(report, export, options):
    profile = json.loads(export("speedscope", *options))
    frames = [frame["name"] for frame in profile["shared"]["frames"]]
    period = report(*options)["period_ns"] or 1
    stacks, sums = [], []
    for thread in profile["profiles"]:
        assert thread["unit"] in ("nanoseconds", "none") and thread["endValue"] == sum(thread["weights"])
        assert len(thread["samples"]) == len(thread["weights"])
        stacks += [([frames[i] for i in stack], weight // period) for stack, weight in zip(thread["samples"], thread["weights"])]
        sums.append(thread["endValue"] // period)
    check(report(*options), stacks)
    threads = report("--by", "thread", *options)["rows"]
    assert sorted(sums) == sorted(row["self"] for row in threads if row["self"])


def test_many_samples_are_merged(profcapture, tmp_path):
    path = make(tmp_path / "many.cap", "--rows", 60000)
    threads = profcapture.json("report", path, "--by", "thread", "--limit", 0)["data"]["rows"]
    profile = json.loads(profcapture("export", path, "--to", "speedscope").stdout)
    assert sum(len(thread["samples"]) for thread in profile["profiles"]) < 60000
    period = profcapture.json("report", path)["data"]["period_ns"] or 1
    assert sum(thread["endValue"] for thread in profile["profiles"]) == 60000 * period
    assert len(profile["profiles"]) == sum(row["self"] > 0 for row in threads)


# ---- waits


@pytest.fixture(scope="module")
def sleeper(profctl, compile_c, tmp_path_factory):
    path = tmp_path_factory.mktemp("sleeper") / "x.cap"
    source = "#include <unistd.h>\nint main(void) { for (volatile long i = 0; i < 100000000; i++); for (int i = 0; i < 5; i++) usleep(20000); }"
    profctl("record", "-q", "-e", "cpu-clock", "-F", 499, "--off-cpu", "-o", path, "--", compile_c("sleeper", source))
    return path


@pytest.mark.parametrize("metric", ["off-cpu", "wall"])
def test_waits_are_not_called_cpu_time(profcapture, sleeper, metric):
    """No format labels the time that threads waited as CPU time."""
    def export(to, *options):
        return subprocess.run([profcapture.path, "export", sleeper, "--to", to, *options], capture_output=True, check=True, timeout=60).stdout

    data, options = profcapture.json("report", sleeper, "--metric", metric)["data"], ("--metric", metric)
    total, word, each = data["total_weight"], metric.replace("-", "_"), "waits" if metric == "off-cpu" else "samples"
    assert data["total"] > 0
    types, samples = read_pprof(export("pprof", *options))
    assert types == [(each, "count"), (metric, "nanoseconds")] and sum(values[1] for _, values, _ in samples) == total
    assert f"\nevents: {word} {each}\nsummary: {total} {data['total']}\n" in export("callgrind", *options).decode()
    assert {sample[6] for sample in read_perf_script(export("perf-script", *options).decode())} == {metric}
    root, _ = read_svg(export("svg", *options))
    assert root.findtext("{*}title").startswith(f"Flame graph of {metric}: ")
    assert f"{total} ns of {metric}" in [text.text for text in root.findall("{*}text")]
    for thread in json.loads(export("speedscope", *options))["profiles"]:
        assert thread["unit"] == "nanoseconds" and thread["name"].endswith(f" {metric}")
    profile = json.loads(export("firefox", *options))
    assert profile["meta"]["product"].startswith(f"{metric}, ")
    assert {thread["samples"]["weightType"] for thread in profile["threads"]} == {"tracing-ms"}
    assert not any("threadCPUDelta" in thread["samples"] for thread in profile["threads"])
    assert sum(sum(thread["samples"]["weight"]) for thread in profile["threads"]) * 1e6 == pytest.approx(total)


# ---- the Firefox Profiler's


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_firefox(profcapture, capture, report, export, options):
    profile = json.loads(export("firefox", *options))
    paths = [[frame[0] for frame in path] for path in firefox_paths(profile)]
    stacks, counts, marks = [], {}, 0
    for thread in profile["threads"]:
        samples = thread["samples"]
        assert samples["length"] == len(samples["stack"]) == len(samples["timeDeltas"])
        assert all(delta >= 0 for delta in samples["timeDeltas"])
        stacks += [(paths[stack], 1) for stack in samples["stack"]]
        if samples["length"]:
            counts[thread["pid"], thread["tid"]] = counts.get((thread["pid"], thread["tid"]), 0) + samples["length"]
        markers = thread["markers"]
        assert all(len(column) == markers["length"] for key, column in markers.items() if key != "length")
        marks += sum(data["type"] == "Mark" for data in markers["data"])
    check(report(*options), stacks)
    threads = report("--by", "thread", *options)["rows"]
    assert counts == {(str(row["pid"] or 0), row["tid"] or 0): row["self"] for row in threads if row["self"]}
    # unlike the counts of `marks`, the profile includes begins and ends without a match
    table = profcapture.json("marks", capture, "--limit", 0)["data"]["rows"]
    assert marks == sum(row["count"] + row["unmatched_begin"] + row["unmatched_end"] for row in table) > 0
    assert profile["meta"]["symbolicated"] is True


@pytest.mark.parametrize("options", [(), ("--from", "200ms..500ms")], ids=" ".join)
def test_firefox_waits(profcapture, capture, export, options):
    """Each wait is a marker of its thread."""
    profile = json.loads(export("firefox", *options))
    have = collections.Counter()
    for thread in profile["threads"]:
        table = thread["markers"]
        for name, start, end, phase, data in zip(*(table[key] for key in ("name", "startTime", "endTime", "phase", "data"))):
            if data["type"] == "Wait":
                assert phase == 1 and start < end
                have[profile["shared"]["stringArray"][name], thread["pid"], thread["tid"]] += end - start
    times = ("--from", "200ms", "--to", "500ms") if options else ()
    rows = profcapture.json("report", capture, "--by", "thread", "--limit", 0, *times)["data"]["rows"]
    want = collections.Counter()
    for row in rows:
        for key, name in ("wait_ns", "Waiting"), ("preempted_ns", "Preempted"), ("runnable_ns", "Ready to run"):
            want[name, str(row["pid"] or 0), row["tid"] or 0] += (row[key] or 0) / 1e6
    assert have and "extra" not in profile["meta"]
    assert have == pytest.approx({key: ns for key, ns in want.items() if ns}, abs=1e-3)


def test_firefox_has_the_longest_waits(profcapture, tmp_path):
    path = make(tmp_path / "waits.cap", "--only", "switch", "--rows", 120000)
    profile = json.loads(profcapture("export", path, "--to", "firefox").stdout)
    waits = sum(data["type"] == "Wait" for thread in profile["threads"] for data in thread["markers"]["data"])
    assert waits == 50000
    entry = profile["meta"]["extra"][0]["entries"][0]
    assert entry["label"] == "Waits left out" and int(entry["value"].split(",")[0]) > 0


def test_firefox_marks_without_an_end(capture, export):
    """Marks without an end are in order of time, and the same in each run."""
    profiles = [export("firefox") for _ in range(3)]
    assert profiles[0] == profiles[1] == profiles[2]
    marks = [thread["markers"] for thread in json.loads(profiles[0])["threads"]]
    starts = [[start for start, phase in zip(table["startTime"], table["phase"]) if phase == 2] for table in marks]
    assert any(len(times) > 1 for times in starts)
    assert all(times == sorted(times) for times in starts)


# the exported changes of a gauge add up to its value, those of a sum to its growth
@pytest.mark.parametrize("options", [(), ("--from", "100ms..400ms"), ("--pid", "137")], ids=" ".join)
def test_firefox_counters(profcapture, capture, export, options):
    profile = json.loads(export("firefox", *options))
    shown = []
    for counter in profile["counters"]:
        samples = counter["samples"]
        assert samples["length"] == len(samples["count"]) == len(samples["timeDeltas"]) and samples["count"][0] == 0
        assert all(delta >= 0 for delta in samples["timeDeltas"])
        assert profile["threads"][counter["mainThreadIndex"]]["pid"] == counter["pid"]
        is_sum = counter["display"]["graphType"] == "line-rate"
        values = list(itertools.accumulate(samples["count"]))[not is_sum :]
        shown.append((counter["category"], counter["name"], is_sum, counter["pid"], len(values), values[-1], max(values) - min(values)))
    rows = [row for row in profcapture.json("counters", capture, "--limit", 0, *options)["data"]["rows"] if row["last"] is not None]
    pids = {thread["pid"] for thread in profile["threads"]}
    first = profile["threads"][0]["pid"]
    wanted = []
    for row in rows:
        pid, is_sum = str(row["pid"] or 0), row["kind"] == "sum"
        pid = pid if pid in pids else first
        wanted.append((row["group"], row["name"], is_sum, pid, row["last"] - (row["first"] if is_sum else 0), row["max"] - row["min"]))
    assert wanted
    for have, want in zip(sorted(shown), sorted(wanted), strict=True):
        assert have[:4] == want[:4] and have[5:] == pytest.approx(want[4:], abs=1e-3)
    if not options:
        assert sum(have[4] for have in shown) == sum(row["count"] for row in rows)


# ---- Chrome's


@pytest.mark.parametrize("options", [*FILTERS, ("--from", "200ms..500ms")], ids=" ".join)
def test_chrome(profcapture, capture, report, export, options):
    """Samples, marks, waits and counters agree with the other verbs."""
    events, threads = read_chrome(export("chrome", *options))
    times = ("--from", "200ms", "--to", "500ms") if "--from" in options else options
    check(report(*times), [(path, 1) for *_, samples in threads for path, _ in samples if path != ["(idle)"]])
    rows = report("--by", "thread", *times)["rows"]
    have = collections.Counter()
    for pid, tid, samples in threads:
        have[pid, tid] += sum(path != ["(idle)"] for path, _ in samples)
        assert samples[-1][0] == ["(idle)"]
    assert have == {(row["pid"] or 0, row["tid"] or 0): row["self"] for row in rows if row["self"]}
    if not options:
        samples = profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"]
        assert sorted(row["time_ns"] // 1000 for row in samples) == sorted(us for *_, all in threads for path, us in all if path != ["(idle)"])
    if "--mode" in options or "--ignore" in options:
        return
    waits, marks = collections.Counter(), 0
    for event in events:
        if event.get("cat") == "wait":
            assert event["ph"] == "X" and event["dur"] > 0
            waits[event["name"], event["pid"], event["tid"]] += event["dur"]
        else:
            marks += event["ph"] in "XBi"
    want = collections.Counter()
    for row in rows:
        for key, name in ("wait_ns", "Waiting"), ("preempted_ns", "Preempted"), ("runnable_ns", "Ready to run"):
            want[name, row["pid"] or 0, row["tid"] or 0] += (row[key] or 0) / 1e3
    assert waits and waits == pytest.approx({key: us for key, us in want.items() if us}, abs=1)
    counters = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            (unit, value), = event["args"].items()
            counters[event["pid"], event["name"], unit].append(value)
    wanted = {(row["pid"] or 0, f"{row['group']} {row['name']}" if row["group"] else row["name"], row["unit"] or "value"): row
              for row in profcapture.json("counters", capture, "--limit", 0, *times)["data"]["rows"] if row["last"] is not None}
    assert wanted and counters.keys() == wanted.keys()
    for key, values in counters.items():
        row = wanted[key]
        assert (values[0], values[-1], max(values)) == pytest.approx((row["first"], row["last"], row["max"]))
    if not options:
        table = profcapture.json("marks", capture, "--limit", 0)["data"]["rows"]
        assert marks == sum(row["count"] + row["unmatched_begin"] + row["unmatched_end"] for row in table) > 0


def test_chrome_waits_have_causes(profcapture, sleeper):
    """A thread that sleeps is idle between two samples, and its wait names the function that slept."""
    events, threads = read_chrome(profcapture("export", sleeper, "--to", "chrome").stdout)
    naps = [event for event in events if event["ph"] == "X" and event["args"].get("cause") == "timer" and event["args"]["function"] == "main"]
    # the kernel's timer begins before the thread leaves its CPU, and a busy machine may delay the
    # leaving, so a wait may be shorter than its sleep
    assert len(naps) == 5 and statistics.median(event["dur"] for event in naps) > 19000
    _, _, samples = max(threads, key=lambda thread: len(thread[2]))
    at = [us for _, us in samples]
    assert all(later - us < 20000 or path == ["(idle)"] for (path, us), later in zip(samples, at[1:]))


# ---- allocations


@pytest.fixture(scope="module", params=[[], ["--epoch", 7000], ["--killed"]], ids=str)
def heap(request, tmp_path_factory):
    """A capture that has only allocations, and its generator's counts."""
    path = tmp_path_factory.mktemp("heap") / "heap.cap"
    done = subprocess.run([os.environ["MAKE_HEAP"], *map(str, request.param), path], check=True, capture_output=True, text=True, timeout=60)
    return path, json.loads(done.stdout)


def by_leaf(samples, number):
    counts = collections.Counter()
    for frames, values, _ in samples:
        counts[frames[-1][0]] += values[number]
    return {name: count for name, count in counts.items() if count}


def test_pprof_allocations(profcapture, heap):
    path, want = heap
    types, samples = read_pprof(profcapture("export", path, "--to", "pprof", text=False).stdout)
    assert types[-4:] == [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")]
    sums = [sum(values[i] for _, values, _ in samples) for i in range(-4, 0)]
    assert sums == [want["malloc"] + want["realloc"], want["allocated_bytes"], want["leaked"]["blocks"], want["leaked"]["bytes"]]
    assert by_leaf(samples, -1) == want["leaked"]["functions"]


def test_allocations_of_a_time(profcapture, heap):
    path = heap[0]
    summary = profcapture.json("memory", path, "--from", "1ms", "--to", "2ms")["data"]["summary"]
    _, samples = read_pprof(profcapture("export", path, "--to", "pprof", "--from", "1ms..2ms", text=False).stdout)
    sums = [sum(values[i] for _, values, _ in samples) for i in range(-4, 0)]
    assert sums == [summary[name] for name in ("allocations", "allocated_bytes", "live_blocks", "live_bytes")]
    profile = json.loads(profcapture("export", path, "--to", "firefox", "--from", "1ms..2ms").stdout)
    assert sum(sum(thread["nativeAllocations"]["weight"]) for thread in profile["threads"]) == summary["live_bytes"]
    assert not read_pprof(profcapture("export", path, "--to", "pprof", "--pid", 4000000, text=False).stdout)[1]


def retained(profile):
    """Returns the live bytes by function, computed as the Firefox Profiler does: it matches frees
    with allocations by address, for each thread separately."""
    paths, counts = firefox_paths(profile), collections.Counter()
    for thread in profile["threads"]:
        table = thread.get("nativeAllocations")
        if not table:
            continue
        assert all(len(column) == table["length"] for key, column in table.items() if key not in ("length", "weightType"))
        assert table["time"] == sorted(table["time"]) and table["weightType"] == "bytes"
        lives = {}
        for address, weight, stack in zip(table["memoryAddress"], table["weight"], table["stack"]):
            if weight >= 0:
                assert address not in lives and address < 2**53
                lives[address] = weight, paths[stack][-1][0]
            else:
                assert lives.pop(address)[0] == -weight and stack is None
        for weight, function in lives.values():
            counts[function] += weight
    return dict(counts)


def test_firefox_allocations(profcapture, heap):
    path, want = heap
    profile = json.loads(profcapture("export", path, "--to", "firefox").stdout)
    assert retained(profile) == want["leaked"]["functions"]
    tables = [thread["nativeAllocations"] for thread in profile["threads"]]
    assert 0.9 < sum(table["length"] for table in tables) / (want["malloc"] + want["free"] + 2 * want["realloc"]) <= 1
    assert sum(weight for table in tables for weight in table["weight"] if weight > 0) == want["allocated_bytes"]


def value_of(want, value):
    return {"alloc-objects": want["malloc"] + want["realloc"], "alloc-space": want["allocated_bytes"], "inuse-objects": want["leaked"]["blocks"], "inuse-space": want["leaked"]["bytes"]}[value]


@pytest.mark.parametrize("value", ["alloc-objects", "alloc-space", "inuse-objects", "inuse-space"])
def test_allocations_by_stack(profcapture, heap, value):
    path, want = heap
    lines = [line.rsplit(" ", 1) for line in profcapture("export", path, "--to", "folded", "--value", value).stdout.splitlines()]
    assert sum(int(count) for _, count in lines) == value_of(want, value)
    profile = json.loads(profcapture("export", path, "--to", "speedscope", "--value", value).stdout)
    assert all(0 <= frame < len(profile["shared"]["frames"]) for thread in profile["profiles"] for stack in thread["samples"] for frame in stack)
    assert {thread["unit"] for thread in profile["profiles"]} == {"bytes" if "space" in value else "none"}
    assert sum(sum(thread["weights"]) for thread in profile["profiles"]) == value_of(want, value)
    assert read_svg(profcapture("export", path, "--to", "svg", "--value", value).stdout)[1][0][2] == value_of(want, value)
    callgrind = profcapture("export", path, "--to", "callgrind", "--value", value).stdout
    assert f"events: {value.replace('-', '_')}\nsummary: {value_of(want, value)}\n" in callgrind
    if value == "inuse-space":
        leaves = collections.Counter()
        for stack, count in lines:
            leaves[stack.rsplit(";", 1)[-1]] += int(count)
        assert leaves == want["leaked"]["functions"]


def test_allocations_by_stack_of_a_time(profcapture, heap):
    path = heap[0]
    summary = profcapture.json("memory", path, "--from", "1ms", "--to", "2ms")["data"]["summary"]
    text = profcapture("export", path, "--to", "folded", "--value", "inuse-space", "--from", "1ms..2ms").stdout
    assert sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines()) == summary["live_bytes"]


def test_value_is_not_there(profcapture, heap, capture, tmp_path):
    done = profcapture("export", heap[0], "--to", "folded")
    assert not done.stdout and "--value alloc-space" in done.stderr
    for more in (["--to", "pprof"], ["--to", "firefox"], ["--to", "folded", "--focus", "x"], ["--to", "folded", "--mode", "user"],
                 ["--to", "speedscope", "--cpu", "0"]):
        assert "--value alloc-space works with folded, speedscope, svg and callgrind only" in profcapture("export", heap[0], "--value", "alloc-space", *more, check=2).stderr
    plain = make(tmp_path / "plain.cap", "--rows", 10)
    done = profcapture("export", plain, "--to", "folded", "--value", "alloc-space", "-o", tmp_path / "x", check=6)
    assert "no allocations" in done.stderr and not (tmp_path / "x").exists()
    assert "--value" not in profcapture("export", plain, "--to", "folded", "--pid", 999999).stderr


@pytest.mark.parametrize("to", ["pprof", "firefox"])
def test_samples_of_a_cpu(profcapture, heap, tmp_path, to):
    """With --cpu, allocations are left out, because they have no CPU."""
    sizes = []
    for more in [], ["--cpu", 0]:
        profcapture("export", heap[0], "--to", to, "--force", "-o", tmp_path / "x", *more)
        sizes.append((tmp_path / "x").stat().st_size)
    assert sizes[0] > 2 * sizes[1]


def test_many_allocations_are_cut(profcapture, tmp_path):
    path = tmp_path / "x.cap"
    subprocess.run([os.environ["MAKE_HEAP"], "--events", "520000", path], check=True, capture_output=True, timeout=60)
    done = profcapture("export", path, "--to", "firefox")
    profile = json.loads(done.stdout)
    assert sum(thread["nativeAllocations"]["length"] for thread in profile["threads"]) == 500000
    assert "only allocations and frees up to 0.0" in done.stderr and retained(profile)


def test_samples_without_allocations(export):
    assert "nativeAllocations" not in json.loads(export("firefox", "--hide", "x"))["threads"][0]
    assert len(read_pprof(export("pprof", "--mode", "user"))[0]) <= 2


# ---- the programs of the formats

peers_captures = pytest.mark.parametrize("capture", ["hostile", "real"], indirect=True, scope="module")


def check_functions(data, own, total):
    """Checks a program's counts by name. The program merges functions of the same name, so a sample
    counts once in the total of a name."""
    rows, wanted = collections.Counter(row["name"] for row in data["rows"]), names(data["rows"], "total")
    assert len(rows) > 10 and +own == names(data["rows"], "self") and set(+total) == set(wanted)
    assert all(count == wanted[name] if rows[name] == 1 else 0 < count <= wanted[name] for name, count in (+total).items())


@peers_captures
@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed: ./dev setup --peers")
@by_peers
def test_go_tool_pprof(report, export, tmp_path):
    (tmp_path / "x.pb.gz").write_bytes(export("pprof"))
    command = ["go", "tool", "pprof", "-symbolize=none", "-sample_index=samples", "-nodecount=100000", "-nodefraction=0"]
    environment = {**os.environ, "HOME": str(tmp_path), "PPROF_TMPDIR": str(tmp_path)}
    done = subprocess.run([*command, "-top", "x.pb.gz"], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
    text = done.stdout.decode("utf-8")
    data = report()
    assert f" of {data['total']} total" in text
    own, total = collections.Counter(), collections.Counter()
    for flat, cum, name in re.findall(r"^ +(\d+) +[\d.]+% +[\d.]+% +(\d+) +[\d.]+%  (.*?)(?: \((?:partial-)?inline\))?$", text, re.MULTILINE):
        own[name] += int(flat)
        total[name] += int(cum)
    check_functions(data, own, total)
    tags = subprocess.run([*command, "-tags", "x.pb.gz"], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True).stdout.decode("utf-8")
    sums = re.findall(r"^ +(\d+)\.0 \( *[\d.]+%\): \d+$", tags.partition(" tid: Total")[2].partition(": Total")[0], re.MULTILINE)
    by_tid = collections.Counter()
    for row in report("--by", "thread")["rows"]:
        by_tid[row["tid"]] += row["self"]
    assert sorted(filter(None, map(int, sums))) == sorted((+by_tid).values())
    # without -sample_index, pprof shows the time, with the type off-cpu
    (tmp_path / "w.pb.gz").write_bytes(export("pprof", "--metric", "off-cpu"))
    done = subprocess.run([*command[:4], "-unit=ns", "-top", "w.pb.gz"], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True)
    assert b"Type: off-cpu\n" in done.stdout and f" of {report('--metric', 'off-cpu')['total_weight']}ns total".encode() in done.stdout


@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed: ./dev setup --peers")
@by_peers
def test_go_tool_pprof_allocations(profcapture, heap, tmp_path):
    path, want = heap
    profcapture("export", path, "--to", "pprof", "-o", tmp_path / "x.pb.gz")
    command = ["go", "tool", "pprof", "-symbolize=none", "-unit=B", "-top", "x.pb.gz"]
    environment = {**os.environ, "HOME": str(tmp_path), "PPROF_TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    # go tool pprof shows live bytes by default
    assert done.stderr == "" and "Type: inuse_space" in done.stdout and f" of {want['leaked']['bytes']}B total" in done.stdout


@peers_captures
@pytest.mark.skipif(not FLAMEGRAPH.exists(), reason="flamegraph.pl is not installed: ./dev setup --peers")
@by_peers
def test_flamegraph(report, export, tmp_path):
    (tmp_path / "x.folded").write_bytes(export("folded"))
    done = subprocess.run(["perl", FLAMEGRAPH, "--minwidth=0", "--width=1000000", tmp_path / "x.folded"], capture_output=True, timeout=60, check=True)
    assert done.stderr == b"" and f">all ({report()['total']:,} samples, 100%)".encode() in done.stdout
    boxes = re.findall(r'<title>(.*) \(([\d,]+) samples?, [\d.]+%\)</title><rect x="([\d.]+)" y="([\d.]+)"', done.stdout.decode("utf-8"))
    own, path = collections.Counter(), []
    for x, y, name, count in sorted((float(x), -float(y), name, int(count.replace(",", ""))) for name, count, x, y in boxes):
        while path and path[-1][0] >= y:
            path.pop()
        if path:
            own[path[-1][1]] -= count
        path.append((y, html.unescape(name)))
        own[path[-1][1]] += count
    wanted = collections.Counter()
    for name, count in names(report()["rows"], "self").items():
        wanted[name.translate(str.maketrans("<>;", "():"))] += count  # flamegraph.pl replaces '<' and '>', the export ';'
    assert +own == wanted


NODE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "profd-tests/node_modules"
needs_node = pytest.mark.skipif(not (NODE / "speedscope").exists() or not shutil.which("node"), reason="npm's packages are not installed: ./dev setup --peers")


@pytest.fixture
def sockets():
    """A folder with a short name, because the length of a socket's path is limited."""
    with tempfile.TemporaryDirectory(prefix="profd-") as folder:
        yield folder


@needs_node
@by_peers
@pytest.mark.parametrize("capture, to", part([("hostile", "firefox"), ("real", "firefox"), ("real", "perf-script")], 1), indirect=["capture"], scope="module")
def test_profiler_cli(report, export, tmp_path, sockets, to):
    path = tmp_path / "x"
    path.write_bytes(export(to))
    environment = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(sockets)}

    def run(*arguments):
        command = [NODE / ".bin/profiler-cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, timeout=60)

    try:
        # `load` may stop waiting for the program's daemon before the daemon has started
        run("load", path, "--session", "x")
        for _ in range(40):
            done = run("profile", "info", "--all", "--session", "x", "--json")
            if done.returncode == 0:
                break
            time.sleep(0.5)
        info = json.loads(done.stdout)
        handles = [thread["threadHandle"] for process in info["processes"] for thread in process["threads"]]
        data, rows = report(), [row for row in report("--by", "thread")["rows"] if row["self"]]
        if to == "firefox":
            counters = json.loads(run("counter", "list", "--session", "x", "--json").stdout)["counters"]
            profile = json.loads(path.read_bytes())
            assert len(counters) == len(profile["counters"]) and info["threadCount"] == len(profile["threads"])
            assert sum(thread["samples"]["length"] > 0 for thread in profile["threads"]) == len(rows)  # other threads have only marks
        else:
            assert info["threadCount"] == len({(row["pid"], row["tid"]) for row in rows})
        answer = json.loads(run("thread", "functions", "--thread", ",".join(handles), "--limit", "0", "--session", "x", "--json").stdout)
        own, total = collections.Counter(), collections.Counter()
        for function in answer["functions"]:
            own[function["name"]] += function["selfSamples"]
            total[function["name"]] += function["totalSamples"]
        if to == "firefox":
            assert +own == names(data["rows"], "self") and +total == names(data["rows"], "total")
            return
        # for perf's text, the profiler shows some addresses as [unknown], and inlined copies of a
        # function as other functions
        wanted = {name: count for name, count in names(data["rows"], "self").items() if "+0x" not in name}
        assert sum(own.values()) == data["total"] and {name: count for name, count in (+own).items() if name in wanted} == wanted
        assert {name for name in names(data["rows"], "total") if "+0x" not in name} <= set(+total)
    finally:
        run("stop", "--all")


@needs_node
def test_speedscope_schema(export):
    rules = json.loads((NODE / "speedscope/dist/release/file-format-schema.json").read_text())
    jsonschema.validate(json.loads(export("speedscope")), rules)


CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")


@needs_node
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed: ./dev setup --peers")
@peers_captures
@by_peers
def test_speedscope_page(report, export, tmp_path):
    """speedscope's own page shows each thread with its weight, and the hottest functions of the
    thread with the most weight."""
    data = export("speedscope")
    (tmp_path / "x.js").write_text(f"speedscope.loadFileFromBase64('x.json', '{base64.b64encode(data).decode()}');")
    page = f"file://{NODE}/speedscope/dist/release/index.html#localProfilePath={tmp_path}/x.js&view=sandwich"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage",
               f"--user-data-dir={tmp_path}/user", "--virtual-time-budget=10000", "--dump-dom", page]
    done = subprocess.run(command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, timeout=100, check=True)
    text = done.stdout.decode("utf-8")
    profile = json.loads(data)
    assert f"<title>{html.escape(profile['name'], quote=False)} - speedscope</title>" in text
    nanoseconds = profile["profiles"][0]["unit"] == "nanoseconds"

    def text_of(weight):
        scale, unit = next((10**power, unit) for power, unit in ((9, "s"), (6, "ms"), (3, "µs"), (0, "ns")) if weight >= 10**power or not power)
        return f"{weight / scale:.2f}{unit}" if nanoseconds else f"{weight}"

    threads = re.findall(r'<tr title="([^"]*)"[^>]*><td[^>]*>\d+</td><td[^>]*>.*?</td><td[^>]*>([^<]*)</td>', text, re.DOTALL)
    shown = [(html.unescape(name), weight) for name, weight in threads]
    assert shown == [(thread["name"], text_of(thread["endValue"])) for thread in profile["profiles"]]
    most = max(profile["profiles"], key=lambda thread: thread["endValue"])
    comm, pid, tid = re.search(r"(.*) \((\d+)/(\d+)\)$", most["name"], re.DOTALL).groups()
    # a program that had the same ids before an exec is shown as another thread
    shared = sum(thread["name"].endswith(f" ({pid}/{tid})") for thread in profile["profiles"]) > 1
    rows = report("--pid", pid, "--tid", tid, *(("--comm", comm) if shared else ()))["rows"]
    plain = html.unescape(re.sub(r"</?(?!td|/td)[^>]*>", "", text))
    found = re.findall(r"<td[^>]*>([\d.]+[mnµs]*) \(<?[\d.]+%\)</td><td[^>]*>([\d.]+[mnµs]*) \(<?[\d.]+%\)</td><td[^>]*>(.*?)</td>", plain, re.DOTALL)
    assert len(found) >= 10
    wanted = sorted(((row["total_weight"], row["self_weight"], row["name"]) if nanoseconds else (row["total"], row["self"], row["name"]) for row in rows), key=lambda row: -row[1])
    assert {(text_of(total), text_of(own), name) for total, own, name in wanted} >= set(found)
    assert [own for _, own, _ in found[:10]] == [text_of(own) for _, own, _ in wanted[:10]]


# ---- the command


def test_compressed(profcapture, capture, tmp_path):
    plain = profcapture("export", capture, "--to", "folded", text=False).stdout
    profcapture("export", capture, "--to", "folded", "-o", tmp_path / "x.gz")
    assert gzip.decompress((tmp_path / "x.gz").read_bytes()) == plain
    assert gzip.decompress(profcapture("export", capture, "--to", "pprof", text=False).stdout)


def test_an_empty_range(profcapture, capture):
    for to in FORMATS:
        profcapture("export", capture, "--to", to, "--pid", 4000000, text=False)


@pytest.mark.parametrize("options, said", [
    (["--pid", 4000000], "no process 4000000 in "), (["--tid", 4000000], "no thread 4000000 in "), (["--cpu", 7777], "nothing of CPU 7777 in "),
    (["--from", "900s"], "nothing from 900.0 s on"), (["--focus", "no such function"], "the options leave out all samples")])
def test_nothing_is_said_once(profcapture, tmp_path, options, said):
    path = make(tmp_path / "x.cap", "--rows", 100)
    done = profcapture("export", path, "--to", "folded", *options)
    assert done.stdout == "" and done.stderr.count("warning: ") == 1 and said in done.stderr


def numbers_of(to, data):
    """Returns the numbers of samples and of threads in an export."""
    if to == "folded":
        lines = data.decode().splitlines()
        return sum(int(line.rsplit(" ", 1)[1]) for line in lines), len({line.split(";")[0] for line in lines})
    if to == "pprof":
        samples = read_pprof(data)[1]
        return sum(values[0] for _, values, _ in samples), len({(str(labels["pid"]), str(labels["tid"])) for _, values, labels in samples if values[0]})
    if to == "svg":
        boxes = read_svg(data)[1]
        return boxes[0][2], sum(box[0] == 1 for box in boxes)
    if to == "callgrind":
        return int(re.search(rb"^events: samples\nsummary: (\d+)$|^events: \w+ samples\nsummary: \d+ (\d+)$", data, re.MULTILINE).expand(rb"\1\2")), 0
    if to == "chrome":
        threads = read_chrome(data)[1]
        return sum(path != ["(idle)"] for *_, samples in threads for path, _ in samples), len(threads)
    if to == "perf-script":
        samples = read_perf_script(data.decode())
        return len(samples), len({sample[1:3] for sample in samples})
    profile = json.loads(data)
    if to == "speedscope":
        return sum(thread["endValue"] for thread in profile["profiles"]), len(profile["profiles"])
    return sum(thread["samples"]["length"] for thread in profile["threads"]), sum(thread["samples"]["length"] > 0 for thread in profile["threads"])


def test_an_empty_capture(profcapture, tmp_path):
    """The export of an empty capture can be opened: speedscope needs at least one profile, the
    Firefox Profiler one thread."""
    path = make(tmp_path / "x.cap", "--rows", 0)
    for to in FORMATS:
        done = profcapture("export", path, "--to", to, text=False)
        assert numbers_of(to, done.stdout) == (0, 1 if to == "speedscope" else 0) and done.stderr == b""
    profile = json.loads(profcapture("export", path, "--to", "firefox").stdout)
    assert len(profile["threads"]) == 1 and firefox_paths(profile)


def test_a_long_name(profctl, profcapture, compile_c, tmp_path):
    """A function's name of 16 KiB is complete in every format."""
    name, path = "f" + "x" * 16380 + "end", tmp_path / "long.cap"
    program = compile_c("long", f"static volatile unsigned long sink; __attribute__((noinline)) void {name}(void) {{ for (long i = 0; i < 100000000; i++) sink += i; }} int main(void) {{ {name}(); }}", "-g")
    profctl("record", "-q", "-F", 999, "-o", path, "--", program)
    assert profcapture.json("report", path)["data"]["rows"][0]["name"] == name
    for to in *FORMATS, "html", "syscap", "sqlite":
        profcapture("export", path, "--to", to, "-o", tmp_path / "out", "-q", "--force")
        data = (tmp_path / "out").read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        packed = re.search(rb'id="data">([^<]*)<', data)
        assert name.encode() in (gzip.decompress(base64.b64decode(packed[1])) if packed else data), to


@pytest.mark.parametrize("to", FORMATS)
def test_a_cut_capture(profcapture, tmp_path, to):
    path = make(tmp_path / "x.cap", "--rows", 3000, "--chunk-rows", 200)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    rows = profcapture.json("report", path, "--by", "thread", "--limit", 0)["data"]
    wanted = sum(row["self"] for row in rows["rows"]), sum(row["self"] > 0 for row in rows["rows"])
    for source in [{"args": [path]}, {"args": ["-"], "stdin": path}]:
        with open(source.get("stdin", os.devnull), "rb") as given:
            done = profcapture("export", *source["args"], "--to", to, "-o", "-", text=False, stdin=given)
        assert b"unfinished" in done.stderr
        samples, threads = numbers_of(to, done.stdout)
        assert 0 < samples == wanted[0] < 3000
        assert threads == wanted[1] or to in BY_NAME


@pytest.mark.parametrize("options", [("--pid", "137"), ("--comm", "x"), ("--cpu", "1"), ("--from", "200ms..500ms"), ("--from", "@mark:M")], ids=" ".join)
def test_filters(profcapture, capture, report, export, options):
    """Samples that report leaves out are not exported."""
    if "x" in options:
        name = next(row["comm"] for row in report("--by", "thread")["rows"] if row["comm"])
        options = ("--comm", name)
    if "@mark:M" in options:
        name = next(row["name"] for row in profcapture.json("marks", capture, "--limit", 0)["data"]["rows"] if row["count"] and row["name"])
        options = ("--from", f"@mark:{name}")
    if "\ufffd" in "".join(options):
        return  # JSON cannot represent the name's bytes, so no option can select it
    rows = report("--by", "thread", *options)["rows"]
    period = report(*options)["period_ns"] or 1
    samples, threads = sum(row["self"] for row in rows), sum(row["self"] > 0 for row in rows)
    assert 0 < samples < report()["total"]
    for to in FORMATS:
        have = numbers_of(to, export(to, *options))
        assert have[0] == samples * (period if to == "speedscope" else 1)
        assert have[1] == threads or to in BY_NAME


@pytest.mark.parametrize("to, how", [("folded", "Draw a flame graph: flamegraph.pl 'my {to}' > flame.svg"), ("firefox", "Open it at profiler.firefox.com"),
                                     ("pprof", "Open it: go tool pprof -http=: 'my {to}'"), ("speedscope", "Open it in speedscope"),
                                     ("svg", "Open it in a browser: 'my {to}'"), ("callgrind", "Open it: kcachegrind 'my {to}'"),
                                     ("chrome", "Open it at ui.perfetto.dev"),
                                     ("perf-script", "Open it in FlameScope, in speedscope or at profiler.firefox.com"),
                                     ("html", "Open it in a browser: 'my {to}'"), ("syscap", "Open it: sysprof 'my {to}'"),
                                     ("heaptrack", "Open it: heaptrack_gui 'my {to}'"), ("massif", "Print it: ms_print 'my {to}', or open it in massif-visualizer"),
                                     ("csv", "Read it with any program for tables: 'my {to}'"),
                                     ("ndjson", "The first line is about the capture, each other line is a row: tail -n +2 'my {to}' | jq .")])
def test_how_to_open_it(profcapture, tmp_path, to, how):
    """If the output is a file, a line says how to open it; if it is a pipe or a device, which
    another program reads, there is no such line."""
    path = tmp_path / "x.cap"
    if to in ("heaptrack", "massif"):
        subprocess.run([os.environ["MAKE_HEAP"], "--events", "100", path], check=True, capture_output=True, timeout=60)
    else:
        make(path, "--only", "sample", "--rows", 10)
    to_it = ["--to", to, *(["--table", "sample"] if to in ("csv", "ndjson") else [])]
    done = profcapture("export", path, *to_it, "-o", f"my {to}", cwd=tmp_path)
    assert done.stderr == how.format(to=to) + "\n" and done.stdout == ""
    assert profcapture("export", path, *to_it, "-o", f"my {to}", "--force", "--quiet", cwd=tmp_path).stderr == ""
    packed = profcapture("export", path, *to_it, "-o", "-x.gz", cwd=tmp_path).stderr
    unpack = "" if to in ("firefox", "pprof", "chrome", "heaptrack") else "Unpack it: gunzip ./-x.gz. "
    assert packed == unpack + how.format(to=to).replace(f"'my {to}'", "./-x" if unpack else "./-x.gz") + "\n"
    for output in [], ["-o", "-"], ["-o", "/dev/null"]:
        assert profcapture("export", path, *to_it, *output, text=False).stderr == b""


def test_a_file_that_exists(profcapture, capture, tmp_path):
    path = tmp_path / "x"
    path.write_text("mine")
    done = profcapture("export", capture, "--to", "folded", "-o", path, check=1)
    assert "--force" in done.stderr and path.read_text() == "mine"


@pytest.mark.parametrize("to", [*FORMATS, "heaptrack", "massif", "syscap"])
def test_a_full_disk(profcapture, capture, to):
    one = ("--pid", 1276) if to == "heaptrack" else ()  # this format has one process
    done = profcapture("export", capture, "--to", to, *one, "-o", "/dev/full", check=1)
    assert "No space left" in done.stderr and "/dev/full" in done.stderr


@pytest.mark.parametrize("arguments, said", [([], "--to with one of folded"), (["--to", "pprov"], "Did you mean 'pprof'"), (["--to", "pprof", "--compare", "x.cap"], "--compare works with folded, speedscope, svg and html only"), (["--to", "pprof", "--focus", "["], "--focus")])
def test_usage_errors(profcapture, capture, arguments, said):
    done = profcapture("export", capture, *arguments, check=2)
    assert said in done.stderr and done.stdout == ""
