# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Exports for heaptrack, massif's tools and Sysprof agree with `memory` and `report`, whether this
test, these programs or Sysprof's library reads them."""
import collections
import ctypes
import ctypes.util
import json
import os
import re
import shutil
import struct
import subprocess

import pytest
from captures import make, unprintable
from exports import check
from slices import SANITIZED

HOSTILE = b"=1+1,\";'\\\n\r\t\x1b[31m\xe2\x80\xae\xff\xc2\x9b#1"
# These tests check programs that are not ours, so a build with a sanitizer would find nothing more
# than the other build.
by_peers = pytest.mark.skipif(SANITIZED, reason="none of this is our code")


def peer(name):
    return pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed: ./dev setup --peers")


def make_heap(path, *options):
    subprocess.run([os.environ["MAKE_HEAP"], *map(str, options), path], check=True, capture_output=True, text=True, timeout=60)
    return path


@pytest.fixture(scope="module", params=[[], ["--epoch", 7000], ["--threads", 1]], ids=str)
def heap(request, tmp_path_factory):
    return make_heap(tmp_path_factory.mktemp("heap") / "heap.cap", *request.param)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture with every table, and harmful names."""
    path = tmp_path_factory.mktemp("export") / "x.cap"
    return make(path, "--all-tables", "--epochs", 3, "--rows", 1200, "--chunk-rows", 200, "--prefix", HOSTILE.decode(errors="surrogateescape"))


@pytest.fixture
def export(profcapture, tmp_path):
    def run(path, to, *options):
        new = tmp_path / f"x.{to}"
        profcapture("export", path, "--to", to, "-o", new, "--force", *options)
        return new

    return run


@pytest.fixture
def memory(profcapture):
    return lambda path, *options: profcapture.json("memory", path, "--limit", 0, *options)["data"]


# ---- heaptrack


class Heaptrack:
    """A heaptrack file, interpreted by heaptrack's own rules."""

    def __init__(self, path):
        self.strings, pointers, traces, kinds = [""], [None], [None], []
        self.live = self.peak = self.allocations = self.temporary = self.ms = self.rss = 0
        self.by_function, self.stacks, last = collections.Counter(), set(), None
        for line in path.read_text("utf-8").splitlines():
            name, *words = line.split(" ")
            if name == "s":
                text = " ".join(words[1:])
                assert int(words[0], 16) == len(text.encode()) and text not in self.strings[1:]
                self.strings.append(text)
                continue
            if name in "vXI#":
                continue
            numbers = [int(word, 16) for word in words]
            if name == "i":
                assert len(numbers) % 3 == 2 and max(numbers[1:2] + numbers[2::3] + numbers[3::3]) < len(self.strings)
                pointers.append([(self.strings[f], self.strings[file], at) for f, file, at in zip(*[iter(numbers[2:])] * 3)])
            elif name == "t":
                assert 0 < numbers[0] < len(pointers) and numbers[1] < len(traces)
                traces.append((pointers[numbers[0]], numbers[1]))
            elif name == "a":
                assert 0 < numbers[1] < len(traces)
                kinds.append(numbers)
            elif name == "+":
                size, trace = kinds[numbers[0]]
                assert numbers[0] > 0
                self.live, self.allocations, last = self.live + size, self.allocations + 1, numbers[0]
                self.peak = max(self.peak, self.live)
                self.by_function[traces[trace][0][0][0]] += 1
                self.stacks.add(trace)
            elif name == "-":
                self.live, self.temporary, last = self.live - kinds[numbers[0]][0], self.temporary + (last == numbers[0]), None
            elif name == "c":
                assert numbers[0] > self.ms
                self.ms = numbers[0]
            else:
                assert name == "R"
                self.rss = max(self.rss, numbers[0])
        self.traces = traces


def functions(data, key):
    """Sums the rows of a view by name, because several functions may have one name."""
    counts = collections.Counter()
    for row in data["rows"]:
        counts[row["name"]] += row[key]
    return +counts


def test_heaptrack(memory, export, heap):
    data, have = memory(heap, "--threshold", 0), Heaptrack(export(heap, "heaptrack"))
    summary = data["summary"]
    assert (have.allocations, have.peak, have.live) == (summary["allocations"], summary["peak_bytes"], summary["leaked_bytes"])
    assert have.by_function == functions(data, "allocations")
    # heaptrack does not always count a temporary block that is live at a time stamp or at the peak
    assert summary["temporary"] > 0 and 0 <= summary["temporary"] - have.temporary <= 2 * (have.ms + 2)


def test_heaptrack_of_a_time(memory, export, heap):
    summary = memory(heap, "--from", "1ms", "--to", "2ms")["summary"]
    have = Heaptrack(export(heap, "heaptrack", "--from", "1ms..2ms"))
    assert (have.peak, have.live) == (summary["peak_bytes"], summary["live_bytes"])


def test_heaptrack_of_names(profcapture, memory, export, capture):
    pid = max(memory(capture)["processes"], key=lambda row: row["allocations"])["pid"]
    text = export(capture, "heaptrack", "--pid", str(pid))
    have, summary = Heaptrack(text), memory(capture, "--pid", str(pid))["summary"]
    # the rest of a partly unmapped mapping is exported as a new allocation
    rows = profcapture.json("dump", capture, "--table", "alloc", "--limit", 0)["data"]["rows"]
    rests = sum(row["kind"] == "mmap" and row["prior"] > 0 for row in rows)
    assert summary["allocations"] <= have.allocations <= summary["allocations"] + rests and have.live == summary["live_bytes"]
    assert any("\\x1b[31m" in name for name in have.strings)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's runtime is in the way")
def test_heaptrack_has_one_process(profctl, profcapture, memory, export, compile_c, tmp_path):
    """If a file had two processes, blocks of a process that has ended would count while the heap of the
    other process grows."""
    path, source = tmp_path / "x.cap", "#include <stdlib.h>\nvoid *volatile kept;\nint main(void) { for (int i = 0; i < 40; i++) kept = malloc(50000); }"
    program = compile_c("keeps", source)
    profctl("record", "-q", "--memory", "-o", path, "--", "sh", "-c", f"{program}; {program}; true")
    rows = [row for row in memory(path)["processes"] if row["comm"] == "keeps"]
    pids = {row["pid"] for row in memory(path)["processes"] if row["allocations"]}
    done = profcapture("export", path, "--to", "heaptrack", "-o", tmp_path / "no", check=2)
    assert f"{len(pids)} allocated: --pid selects one of " in done.stderr and set(map(int, re.findall(r"\d{2,}", done.stderr))) >= pids
    assert not (tmp_path / "no").exists() and len(rows) == 2
    for row in rows:
        have = Heaptrack(export(path, "heaptrack", "--pid", str(row["pid"])))
        assert (have.peak, have.live) == (row["peak_bytes"], row["leaked_bytes"]) and row["peak_bytes"] >= 2000000


def test_heaptrack_needs_every_allocation(profcapture, tmp_path):
    path = make_heap(tmp_path / "s.cap", "--sampled", 4096)
    done = profcapture("export", path, "--to", "heaptrack", "-o", tmp_path / "x", check=1)
    assert "--to massif" in done.stderr and not (tmp_path / "x").exists()
    done = profcapture("export", path, "--to", "syscap", "-o", tmp_path / "y")
    assert "allocations are left out" in done.stderr


@pytest.mark.parametrize("to", ["heaptrack", "massif"])
def test_without_allocations(profcapture, tmp_path, to):
    plain = make(tmp_path / "plain.cap", "--rows", 10)
    assert "no allocations" in profcapture("export", plain, "--to", to, "-o", tmp_path / "x", check=6).stderr
    assert "allocations only" in profcapture("export", plain, "--to", to, "--mode", "user", check=2).stderr


def human(number):
    """Returns a number of bytes as heaptrack_print writes it."""
    for unit in "B", "K", "M", "G":
        if number < 1000:
            return f"{number}B" if unit == "B" else f"{number:.2f}{unit}"
        number /= 1000


@by_peers
@peer("heaptrack_print")
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_heaptrack_print(profcapture, memory, heap, tmp_path, packed):
    new = tmp_path / f"x.heaptrack{packed}"
    profcapture("export", heap, "--to", "heaptrack", "-o", new)
    done = subprocess.run(["heaptrack_print", "-n", "10", "-s", "0", "-f", new], capture_output=True, text=True, timeout=60, check=True)
    data = memory(heap)
    summary = data["summary"]
    said = dict(re.findall(r"^([a-z][a-z ()A-Z]+): +([\d.]+[BKMG]?)", done.stdout, re.MULTILINE))
    assert int(said["calls to allocation functions"]) == summary["allocations"]
    assert said["peak heap memory consumption"] == human(summary["peak_bytes"])
    assert said["total memory leaked"] == human(summary["leaked_bytes"])
    assert "failed" not in done.stderr and "out of bounds" not in done.stderr
    top = re.findall(r"^(\d+) calls to allocation functions with \S+ peak consumption from\n(.+)", done.stdout, re.MULTILINE)
    want = functions(data, "allocations")
    assert len(top) == 10 and [int(n) for n, _ in top] == [n for _, n in want.most_common(10)]
    assert all(want[name] == int(n) for n, name in top)


@pytest.mark.parametrize("keep", [0.7, 0.95])
def test_a_cut_capture(profcapture, memory, tmp_path, keep):
    """Exports of a truncated capture have the rows that survive."""
    path, new = make_heap(tmp_path / "x.cap"), tmp_path / "new"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    summary = memory(path, "--peak")["summary"]
    for to in "heaptrack", "massif", "syscap":
        done = profcapture("export", path, "--to", to, "-o", new, "--force")
        assert "unfinished" in done.stderr
        if to == "heaptrack":
            assert Heaptrack(new).peak == summary["peak_bytes"]
        elif to == "massif":
            assert max(snapshot[1] for snapshot in read_massif(new)[1]) == summary["peak_bytes"]
        else:
            assert names_of(read_syscap(new))


# ---- massif


def read_massif(path):
    """Returns the header, and [(time, bytes, kind, tree)] of the snapshots. A node of a tree is
    (bytes, text, nodes)."""
    lines = iter(path.read_text("utf-8").splitlines())
    header = [next(lines) for _ in range(3)]
    assert [line.split(":")[0] for line in header] == ["desc", "cmd", "time_unit"]

    def node(depth):
        line = next(lines)
        children, size, text = re.fullmatch(r" {%d}n(\d+): (\d+) ?(.*)" % depth, line).groups()
        return int(size), text, [node(depth + 1) for _ in range(int(children))]

    snapshots = []
    for line in lines:
        assert line == "#-----------" and next(lines) == f"snapshot={len(snapshots)}" and next(lines) == "#-----------"
        fields = [next(lines).split("=") for _ in range(5)]
        assert [name for name, _ in fields] == ["time", "mem_heap_B", "mem_heap_extra_B", "mem_stacks_B", "heap_tree"]
        values = [value for _, value in fields]
        snapshots.append((int(values[0]), int(values[1]), values[4], None if values[4] == "empty" else node(0)))
    return header, snapshots


def check_nodes(tree, most):
    size, _, nodes = tree
    assert size <= most and sum(n[0] for n in nodes) <= size + len(nodes)
    for child in nodes:
        check_nodes(child, size)


def check_peak(data, snapshots):
    peaks = [snapshot for snapshot in snapshots if snapshot[2] == "peak"]
    assert len(peaks) == 1
    time, size, _, tree = peaks[0]
    assert size == round(data["summary"]["peak_bytes"]) == max(snapshot[1] for snapshot in snapshots)
    assert time == data["summary"]["peak_ns"] // 1000000
    check_nodes(tree, size)
    counts = collections.Counter()
    for bytes_, text, _ in tree[2]:
        counts[re.sub(r"^0x[0-9A-F]+: | \([^()]*\)$", "", text)] += bytes_
    wanted = functions(data, "live_bytes")
    shown = {name: count for name, count in counts.items() if "massif's threshold" not in name}
    assert shown and all(wanted[name] == pytest.approx(count, abs=1) for name, count in shown.items())
    assert all(name in shown for name, count in wanted.items() if count * 1000 > size * 1.001)


def test_massif(memory, export, heap):
    header, snapshots = read_massif(export(heap, "massif"))
    assert len(snapshots) == 101 and [snapshot[0] for snapshot in snapshots] == sorted(snapshot[0] for snapshot in snapshots)
    check_peak(memory(heap, "--peak"), snapshots)
    assert sum(snapshot[2] == "detailed" for snapshot in snapshots) >= 10
    # the last snapshot has the blocks that were not freed
    assert snapshots[-1][1:3] == (memory(heap)["summary"]["live_bytes"], "detailed")
    at = memory(heap, "--at", f"{snapshots[-1][0]}ms")["summary"]["live_bytes"]
    assert snapshots[-1][1] == pytest.approx(at, rel=0.2)


def test_massif_of_samples(memory, export, tmp_path):
    path = make_heap(tmp_path / "s.cap", "--sampled", 4096)
    header, snapshots = read_massif(export(path, "massif"))
    assert "sampled each 4096 bytes" in header[0]
    check_peak(memory(path, "--peak"), snapshots)


def test_massif_of_names(memory, export, capture):
    header, snapshots = read_massif(export(capture, "massif"))
    data = memory(capture, "--peak")
    assert max(snapshot[1] for snapshot in snapshots) == data["summary"]["peak_bytes"]
    assert not any("#" in line for line in header)


@by_peers
@peer("ms_print")
def test_ms_print(memory, export, heap):
    done = subprocess.run(["ms_print", "--threshold=0", export(heap, "massif")], capture_output=True, text=True, timeout=60, check=True)
    peak = memory(heap, "--peak")
    assert "Number of snapshots: 101" in done.stdout and re.search(r"\d+ \(peak\)", done.stdout)
    tree = done.stdout.split(f"100.00% ({peak['summary']['peak_bytes']:,}B) (heap allocation functions)")[1].split("\n----")[0]
    shown = collections.Counter()
    for size, name in re.findall(r"^->[\d.]+% \(([\d,]+)B\) 0x[0-9A-F]+: (.*) \([^()]*\)$", tree, re.MULTILINE):
        shown[name] += int(size.replace(",", ""))
    wanted = functions(peak, "live_bytes")
    assert len(shown) >= 10 and [n for _, n in shown.most_common(10)] == [n for _, n in wanted.most_common(10)]
    assert all(wanted[name] == n for name, n in shown.most_common(10))


# ---- Sysprof

FRAME = struct.Struct("<HhiqB7x")
NAMED = 0xE000000000000000


def read_syscap(path):
    """Returns {type: [(pid, time, body, CPU)]} of the frames in a file."""
    data = path.read_bytes()
    magic, version, little, start, end = struct.unpack_from("<IBB66xqq", data)
    assert (magic, version, little) == (0xFDCA975E, 1, 1) and start <= end
    at, frames = 256, collections.defaultdict(list)
    while at < len(data):
        size, cpu, pid, time, kind = FRAME.unpack_from(data, at)
        assert size % 8 == 0 and size >= 24 and at + size <= len(data)
        frames[kind].append((pid, time - start, data[at + 24 : at + size], cpu))
        at += size
    return frames


def text_at(data):
    return data[: data.index(b"\0")].decode("utf-8")


def names_of(frames):
    names = {}
    for _, _, body, _ in frames[7]:
        at = 4
        for _ in range(struct.unpack_from("<I", body)[0]):
            address, name = struct.unpack_from("<Q", body, at)[0], text_at(body[at + 8 :])
            assert address not in names and address & NAMED == NAMED
            names[address] = name
            at += 9 + len(name.encode())
    return names


def stack_of(names, body, at, n):
    return [names[address] for address in struct.unpack_from(f"<{n}Q", body, at)][::-1]


@pytest.mark.parametrize("options", [(), ("--mode", "kernel"), ("--ignore", "module-1"), ("--from", "200ms..500ms")], ids=" ".join)
def test_syscap_samples(profcapture, capture, export, options):
    frames = read_syscap(export(capture, "syscap", *options))
    names = names_of(frames)
    stacks = [(stack_of(names, body, 8, struct.unpack_from("<H", body)[0]), 1) for _, _, body, _ in frames[2]]
    if options[:1] == ("--from",):
        options = ("--from", "200ms", "--to", "500ms")
    check(profcapture.json("report", capture, "--limit", 0, *options)["data"], stacks)
    threads = profcapture.json("report", capture, "--by", "thread", "--limit", 0, *options)["data"]["rows"]
    have = collections.Counter((pid, struct.unpack_from("<4xi", body)[0]) for pid, _, body, _ in frames[2])
    want = collections.Counter()
    for row in threads:
        want[row["pid"] or 0, row["tid"] or 0] += row["self"]
    assert have == +want
    cpus = collections.Counter(row["cpu"] for row in profcapture.json("dump", capture, "--table", "sample", "--limit", 0)["data"]["rows"])
    shown = collections.Counter(cpu for _, _, _, cpu in frames[2])
    assert shown and (shown == cpus or options) and all(count <= cpus[cpu] for cpu, count in shown.items())


def test_syscap_redacted(capture, export):
    frames = read_syscap(export(capture, "syscap", "--redact"))
    metadata = {text_at(body): text_at(body[40:]) for _, _, body, _ in frames[11]}
    assert "host" not in metadata and not frames[12] and frames[10]


def test_syscap_tables(profcapture, capture, export):
    frames = read_syscap(export(capture, "syscap"))
    table = profcapture.json("marks", capture, "--limit", 0)["data"]["rows"]
    assert len(frames[10]) == sum(row["count"] + row["unmatched_begin"] + row["unmatched_end"] for row in table) > 0
    counters = profcapture.json("counters", capture, "--limit", 0)["data"]["rows"]
    assert len(frames[8]) == sum(row["count"] > 0 for row in counters) and len(frames[9]) == sum(row["count"] for row in counters)
    rows = {name: profcapture.json("dump", capture, "--table", name, "--limit", 0)["data"]["rows"] for name in ("log", "mapping")}
    assert len(frames[12]) == len(rows["log"]) > 0 and len(frames[3]) == len(rows["mapping"]) > 0
    for kind, fixed in (3, 32), (4, 0), (10, 72), (11, 40), (12, 40):
        assert frames[kind] and not any(unprintable(text_at(body[fixed:])) for _, _, body, _ in frames[kind])


def test_syscap_allocations(memory, export, heap):
    frames = read_syscap(export(heap, "syscap"))
    names, live, made = names_of(frames), {}, collections.Counter()
    for pid, _, body, _ in frames[14]:
        address, size, _, n = struct.unpack_from("<QqiH", body)
        if size:
            assert address not in live
            live[address] = size
            made[stack_of(names, body, 24, n)[-1]] += 1
        else:
            assert live.pop(address) and n == 0
    data = memory(heap)
    assert sum(live.values()) == data["summary"]["leaked_bytes"]
    # the format cannot represent blocks of 0 bytes
    empty = sum(row["allocations"] for row in memory(heap, "--sizes")["rows"] if row["size_to"] == 0)
    want = functions(data, "allocations")
    assert sum(want.values()) - sum(made.values()) == empty and all(made[name] <= n for name, n in want.items())


LIBRARY = ctypes.util.find_library("sysprof-4")


class Node(ctypes.Structure):
    """A node of the library's call graph: the fields that this test reads."""


Node._fields_ = [("name", ctypes.c_char_p), ("total", ctypes.c_uint32), ("size", ctypes.c_uint32), ("parent", ctypes.c_void_p),
                 ("next", ctypes.POINTER(Node)), ("first", ctypes.POINTER(Node))]


class Graph(ctypes.Structure):
    _fields_ = [("references", ctypes.c_int), ("root", ctypes.POINTER(Node))]


def generate(kind, path):
    """Returns the root of the call graph that Sysprof's library makes from a file."""
    library, glib, pointer = ctypes.CDLL(LIBRARY), ctypes.CDLL("libglib-2.0.so.0"), ctypes.c_void_p
    new = getattr(library, f"sysprof_{kind}_profile_new")
    for function in (library.sysprof_capture_reader_new, new, glib.g_main_loop_new):
        function.restype = pointer
    library.sysprof_capture_reader_new.argtypes = [ctypes.c_char_p]
    reader, profile = library.sysprof_capture_reader_new(os.fsencode(path)), new()
    assert reader and profile
    loop, ok = pointer(glib.g_main_loop_new(None, 0)), []

    @ctypes.CFUNCTYPE(None, pointer, pointer, pointer)
    def done(source, result, _):
        ok.append(library.sysprof_profile_generate_finish(pointer(source), pointer(result), None))
        glib.g_main_loop_quit(loop)

    library.sysprof_profile_set_reader(pointer(profile), pointer(reader))
    library.sysprof_profile_generate(pointer(profile), None, done, None)
    glib.g_main_loop_run(loop)
    assert ok == [1]
    stash = getattr(library, f"sysprof_{kind}_profile_get_stash")
    stash.restype = ctypes.POINTER(Graph)
    return stash(pointer(profile)).contents.root


@by_peers
@pytest.mark.skipif(not LIBRARY, reason="libsysprof-4 is not installed: ./dev setup --peers")
def test_library_of_sysprof(profcapture, memory, export, tmp_path):
    """The library's call graphs of samples and of allocated bytes have the same functions as report
    and memory."""
    path = make(tmp_path / "plain.cap", "--rows", 3000)
    own, total = collections.Counter(), collections.Counter()

    def walk(node, above):
        while node:
            at = node.contents
            name = at.name.decode("utf-8")
            own[name] += at.size & 0x7FFFFFFF
            if name not in above:
                total[name] += at.total
            walk(at.first, above | {name})
            node = at.next

    walk(generate("callgraph", export(path, "syscap")), frozenset())
    data = profcapture.json("report", path, "--limit", 0)["data"]
    assert total["[Everything]"] == data["self_total"] == sum(own.values())
    assert all(own[name] == count for name, count in functions(data, "self").items())
    assert all(total[name] == count for name, count in functions(data, "total").most_common(10))

    own.clear()
    heap = make_heap(tmp_path / "heap.cap")
    walk(generate("memprof", export(heap, "syscap")), frozenset())
    data = memory(heap)
    assert sum(own.values()) == data["summary"]["allocated_bytes"]
    assert {name: count for name, count in own.items() if count} == functions(data, "allocated_bytes")
