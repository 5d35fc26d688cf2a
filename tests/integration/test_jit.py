# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Generated code, and stacks that a program reports: from the program's call to the names that
readers show."""
import os
import platform
import re
import subprocess
import sys
from collections import Counter

import pytest
import schema
from captures import rows
from exports import read_page

LIBRARY = os.environ["LIBPROFCOLLECTOR"]
pytestmark = pytest.mark.usefixtures("nothing_is_left")

# A function that counts its argument down: a loop of two instructions, and a return instruction.
MACHINE_CODE = {"x86_64": "48ffcf75fbc3", "aarch64": "000400f1e1ffff54c0035fd6"}

COMMON = """
import ctypes, mmap, os, sys, time
from _ctypes import dlclose
prof = ctypes.CDLL(sys.argv[1])
for name in ("prof_mark_instant_with_stack", "prof_mark_begin_with_stack", "prof_mark_complete_with_stack", "prof_mark_complete",
             "prof_log_with_stack", "prof_jit_load", "prof_jit_move", "prof_jit_unload"):
    getattr(prof, name).restype = ctypes.c_bool
prof.prof_clock_ns.restype = ctypes.c_uint64
RETURNS, INTERRUPTED, EXACT = 0, 1, 2
class Stack(ctypes.Structure):
    _fields_ = [("pcs", ctypes.POINTER(ctypes.c_void_p)), ("n", ctypes.c_size_t), ("kind", ctypes.c_uint64)]
def stack(*pcs, kind=EXACT):
    return ctypes.byref(Stack((ctypes.c_void_p * len(pcs))(*pcs), len(pcs), kind))
def mark(name, at, group=b"jit"):
    assert prof.prof_mark_instant_with_stack(group, name, None, ctypes.c_size_t(0), at)
def load(address, size, name):
    assert prof.prof_jit_load(ctypes.c_void_p(address), ctypes.c_size_t(size), name)
def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value
libc = ctypes.CDLL(None)
"""


def record_script(profctl, capture, script, *options, arguments=()):
    path = capture.with_name("script.py")
    path.write_text(COMMON + script)
    return profctl("record", *options, "-o", capture, "--", sys.executable, path, LIBRARY, *arguments).stdout


@pytest.fixture
def record(profctl, capture):
    """Returns a function that records a script in Python and returns its output."""
    return lambda *arguments, **options: record_script(profctl, capture, *arguments, **options)


def frames(row):
    return [(frame["name"], frame["kind"]) for frame in row["frames"]]


CODE = """
code = mmap.mmap(-1, 8192, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
at = ctypes.addressof(ctypes.c_char.from_buffer(code))
machine = bytes.fromhex(sys.argv[2])
code[:len(machine)] = code[4096:4096 + len(machine)] = machine
def run(phase, address):
    begin, until = prof.prof_clock_ns(), time.process_time() + 0.12
    call = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address)
    while time.process_time() < until:
        call(1000000)
    assert prof.prof_mark_complete(ctypes.c_uint64(begin), b"phase", phase, None, ctypes.c_size_t(0))
"""


def test_python_names(record, profcapture, capture):
    """Code that Python generates, with the name "py::NAME:FILE", is shown as the function NAME."""
    path = "/srv/lib/python3.12/site-packages/shop/till.py"
    record(f"""
at = ctypes.addressof(ctypes.create_string_buffer(64))
load(at, 32, b"py::Till.sell:{path}")
load(at + 32, 16, b"py::no file")
load(at + 48, 16, b"py::C::of:f(int)")
mark(b"sold", stack(at, at + 32, at + 48))
""", "-F", 0, "--no-off-cpu")
    [mark] = [row for row in rows(profcapture, capture, "mark", "--resolve") if row["name"] == "sold"]
    assert frames(mark) == [("shop.till.Till.sell", "jit"), ("py::no file", "jit"), ("py::C::of:f(int)", "jit")]
    assert mark["frames"][0]["file"] == path


@pytest.mark.skipif(platform.machine() not in MACHINE_CODE, reason="nobody has written the code for this architecture")
def test_machine_code(record, profcapture, capture, tmp_path):
    """Samples in machine code have the right name, or none: after the code is loaded, moved,
    replaced and unloaded, and in a forked child."""
    record(CODE + """
size = len(machine)
load(at, size, b"alpha")
run(b"alpha", at)
assert prof.prof_jit_move(ctypes.c_void_p(at), ctypes.c_void_p(at + 4096))
run(b"alpha", at + 4096)
run(b"", at)
load(at, size, b"beta")
run(b"beta", at)
if os.fork() == 0:
    run(b"beta", at)
    os._exit(0)
os.wait()
load(at - 0, size, b"gamma")
run(b"gamma", at)
assert prof.prof_jit_unload(ctypes.c_void_p(at))
run(b"", at)
""", "-F", "1999", arguments=[MACHINE_CODE[platform.machine()]])
    assert not [row for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector")]
    events = rows(profcapture, capture, "jit")
    assert [(row["event"], row["name"]) for row in events] == [
        ("load", "alpha"), ("move", None), ("load", "beta"), ("load", "gamma"), ("unload", None)]
    code = int(events[0]["address"], 16)
    phases = [(row["time_ns"] - row["duration"], row["time_ns"], row["pid"], row["name"] or "")
              for row in rows(profcapture, capture, "mark") if row["group"] == "phase"]
    assert [name for *_, name in phases] == ["alpha", "alpha", "", "beta", "beta", "gamma", ""]

    def check(file):
        found, seen = Counter(), Counter()
        for row in rows(profcapture, file, "sample", "--resolve"):
            leaf = row["frames"][0] if row["frames"] else None
            if not leaf or not (leaf["image"] or "").endswith(("anon", "[unknown]")):
                continue
            for i, (begin, end, pid, name) in enumerate(phases):
                if begin <= row["time_ns"] <= end and row["pid"] == pid:
                    seen[i] += 1
                    if name:
                        assert (leaf["name"], leaf["kind"]) == (name, "jit"), (i, leaf)
                        found[name] += 1
                    else:
                        assert leaf["kind"] == "unresolved", (i, leaf)
        return found, seen

    found, seen = check(capture)
    assert all(seen[i] > 40 for i in range(len(phases))), seen
    # report has all samples of a function, wherever its code was
    report = profcapture.json("report", capture, "--limit", 0)
    schema.check(profcapture, "report", report)
    functions = {row["name"]: row for row in report["data"]["rows"] if row["kind"] == "jit"}
    by_name = Counter()
    for row in report["data"]["rows"]:
        if row["kind"] == "jit":
            by_name[row["name"]] += row["self"]
    assert by_name == found and int(functions["alpha"]["offset"], 16) == code
    assert sum(row["self"] for row in report["data"]["rows"]) == report["capture"]["samples"]
    tree = profcapture.json("report", capture, "--tree", "--limit", 0)

    def walk(node):
        yield node
        for child in node["children"]:
            yield from walk(child)

    by_name = Counter()
    for node in walk(tree["data"]["root"]):
        if node.get("kind") == "jit":
            by_name[node["name"]] += node["self"]
    assert by_name == found
    # a part cut from the capture also has the names of code that was loaded earlier
    begin = next(begin for begin, _, _, name in phases[1:] if name == "alpha")
    part = tmp_path / "part.cap"
    profcapture("cut", capture, "--from", f"{begin}ns", "-o", part)
    shift = begin
    phases[:] = [(start - shift, end - shift, pid, name) for start, end, pid, name in phases[1:]]
    found, seen = check(part)
    assert found["alpha"] > 40 and found["beta"] > 80 and found["gamma"] > 40


def test_stacks(record, profcapture, capture):
    """For each kind of mark, and for a log, a reported stack may have frames in a library, in
    generated code, and in memory that only has a name."""
    output = record(CODE + """
objects = [bytearray(64) for _ in range(2)]
load(at, 64, b"made")
load(id(objects[0]), 16, b"interpreted")
getpid = address_of(libc.getpid)
here = lambda kind: stack(id(objects[0]), getpid + 1, at + 64, kind=kind)
mark(b"instant", stack(id(objects[0]), at + 5, getpid))
mark(b"returns", stack(at + 64, getpid + 1, kind=RETURNS))
mark(b"interrupted", stack(at, at + 64, kind=INTERRUPTED))
mark(b"nothing", stack())
mark(b"none", None)
mark(b"unknown", stack(4096))
assert prof.prof_mark_begin_with_stack(ctypes.c_uint64(5), b"jit", b"begin", None, ctypes.c_size_t(0), stack(at))
assert prof.prof_mark_complete_with_stack(ctypes.c_uint64(prof.prof_clock_ns()), b"jit", b"complete", None, ctypes.c_size_t(0),
                                          stack(at))
assert prof.prof_log_with_stack(6, b"jit", b"short", stack(at))
assert prof.prof_log_with_stack(6, b"jit", b"x" * 100000, stack(getpid))
""", arguments=["00"])
    assert output == ""
    marks = {row["name"]: row for row in rows(profcapture, capture, "mark", "--resolve") if row["group"] == "jit"}
    made, interpreted = ("made", "jit"), ("interpreted", "jit")
    names = {name: frames(row) for name, row in marks.items()}
    (getpid,) = {name for name, kind in names["instant"] if kind == "user"}
    assert "getpid" in getpid
    assert names["instant"] == [interpreted, made, (getpid, "user")]
    assert names["returns"] == [made, (getpid, "user")]
    assert names["interrupted"] == [made, made]
    assert names["nothing"] == names["none"] == [] and marks["nothing"]["stack"] is None
    assert [kind for _, kind in names["unknown"]] == ["unresolved"]
    assert names["begin"] == names["complete"] == [made]
    logs = rows(profcapture, capture, "log", "--resolve")
    assert [(len(row["text"]), frames(row)) for row in logs] == [(5, [made]), (100000, [(getpid, "user")])]
    # a file has one id, whether samples or marks refer to it
    libc = [row for row in rows(profcapture, capture, "image") if (row["path"] or "").endswith("/libc.so.6") and row["build_id"]]
    frame = next(frame for frame in marks["instant"]["frames"] if frame["kind"] == "user")
    assert {row["build_id"] for row in libc} == {frame["build_id"]}
    pid = marks["instant"]["pid"]
    mapped = {row["image"] for row in rows(profcapture, capture, "mapping") if row["pid"] == pid}
    used = {row["id"] for row in libc if row["path"] == frame["image"]}
    assert used & mapped, (used, mapped)
    text = profcapture("dump", capture, "--table", "mark", "--resolve", "--limit", 0).stdout
    assert "\tinterpreted  [anon]\n\tmade  [anon]\n" in text
    schema.check(profcapture, "dump", profcapture.json("dump", capture, "--table", "mark", "--resolve"))


def test_epochs(record, profcapture, capture):
    """With many stacks, and more names than a thread caches, each stack has the right names."""
    record("""
getpid, base = address_of(libc.getpid), 1 << 50
for i in range(3000):
    load(base + 4096 * i, 16, b"f%d" % i)
    mark(b"n%d" % i, stack(base + 4096 * i, getpid, base + 4096 * (i % 7)))
""")
    marks = rows(profcapture, capture, "mark", "--resolve")
    lost = sum(row["count"] for row in rows(profcapture, capture, "loss") if row["stream"].startswith("collector"))
    assert lost == 0 and len(marks) == 3000
    for i, row in enumerate(marks):
        names = [frame["name"] for frame in row["frames"]]
        assert row["name"] == f"n{i}" and [names[0], names[2]] == [f"f{i}", f"f{i % 7}"] and "getpid" in names[1]


def test_dead_child(record, profcapture, capture):
    """Children's stacks have names, although the children ended before profd could read their
    mappings."""
    record("""
getpid = address_of(libc.getpid)
for i in range(20):
    if os.fork() == 0:
        load(4096, 16, b"child %d" % i)
        mark(b"child", stack(4096, getpid))
        os._exit(0)
    os.wait()
""")
    marks = rows(profcapture, capture, "mark", "--resolve")
    assert [row["frames"][0]["name"] for row in marks] == [f"child {i}" for i in range(20)]
    assert len({row["pid"] for row in marks}) == 20
    assert all("getpid" in row["frames"][1]["name"] for row in marks)


def test_dlclose(record, profcapture, capture, tmp_path):
    """Two libraries alternate at one address, and in between the address has no name."""
    for name in "first", "second":
        source = tmp_path / f"{name}.c"
        source.write_text(f"int {name}(int x);\nint {name}(int x) {{ return x + 1; }}\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,--build-id", "-o", tmp_path / f"{name}.so", source], check=True)
    output = record("""
seen = {}
for i in range(300):
    name = ("first", "second")[i % 2]
    library = ctypes.CDLL(f"{sys.argv[2]}/{name}.so")
    at = address_of(getattr(library, name))
    seen[at] = seen.get(at, 0) + 1
    mark(name.encode(), stack(at + 4, kind=RETURNS))
    dlclose(library._handle)
    del library
    mark(b"gone", stack(at + 4, kind=RETURNS))
print(max(seen.values()))
""", arguments=[tmp_path])
    assert int(output) == 300, "they are not at one address"
    for row in rows(profcapture, capture, "mark", "--resolve"):
        (frame,) = row["frames"]
        if row["name"] == "gone":
            assert frame["kind"] == "unresolved"
        else:
            assert (frame["name"], frame["image"]) == (row["name"], str(tmp_path / f"{row['name']}.so"))


def test_dlclose_nameless(record, profcapture, capture, tmp_path):
    """Like test_dlclose(), but the program cannot read its own mappings. No name is wrong."""
    for name in "first", "second":
        source = tmp_path / f"{name}.c"
        source.write_text(f"int {name}(int x);\nint {name}(int x) {{ return x + 1; }}\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,--build-id", "-o", tmp_path / f"{name}.so", source], check=True)
    record("""
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
mark(b"none", stack(4096, kind=RETURNS))
for i in range(100):
    name = ("first", "second")[i % 2]
    library = ctypes.CDLL(f"{sys.argv[2]}/{name}.so")
    at = address_of(getattr(library, name))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    mark(name.encode(), stack(at + 4, kind=RETURNS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    dlclose(library._handle)
    del library
""", arguments=[tmp_path])
    marks = rows(profcapture, capture, "mark", "--resolve")
    assert len(marks) == 101
    for row in marks:
        (frame,) = row["frames"]
        assert frame["kind"] == "unresolved" or frame["name"] == row["name"]


def test_long_name(record, profcapture, capture):
    """Names of 1 MiB are complete, even if the same name comes twice."""
    record("""
for i in range(2):
    load(4096 * (i + 1), 64, bytes(97 + k % 26 for k in range(1 << 20)))
mark(b"long", stack(4096, 8192))
""")
    name = "".join(chr(97 + k % 26) for k in range(1 << 20))
    assert [row["name"] == name for row in rows(profcapture, capture, "jit")] == [True, True]
    (row,) = rows(profcapture, capture, "mark", "--resolve")
    assert [frame["name"] == name for frame in row["frames"]] == [True, True]


# Two functions, as a runtime writes them into a jitdump file. Only the first has lines. profd finds
# the file because the program maps it.
DUMP = CODE + """
import struct
size, name = len(machine), f"{sys.argv[3]}/jit-{os.getpid()}.dump"
def record(kind, body):
    return struct.pack("<IIQ", kind, 16 + len(body), prof.prof_clock_ns()) + body
def loaded(address, called, index):
    return record(0, struct.pack("<IIQQQQ", os.getpid(), os.getpid(), address, address, size, index) + called + b"\\0" + machine)
def lines(address, *each):
    said = b"".join(struct.pack("<QII", address + at, line, 0) + file + b"\\0" for at, line, file in each)
    return record(2, struct.pack("<QQ", address, len(each)) + said)
with open(name, "w+b") as dump:
    dump.write(struct.pack("<IIIIIIQQ", 0x4a695444, 1, 40, 62, 0, os.getpid(), prof.prof_clock_ns(), 0))
    dump.write(lines(at, (0, 3, sys.argv[4].encode()), (size - 1, 5, sys.argv[4].encode())) + loaded(at, b"lined", 1))
    dump.write(loaded(at + 4096, b"bare", 2))
    dump.flush()
    seen = mmap.mmap(dump.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE)
mark(b"stack", stack(at, at + size, kind=INTERRUPTED))
run(b"lined", at)
run(b"bare", at + 4096)
"""


@pytest.fixture(scope="module")
def lined(profctl, tmp_path_factory):
    """A recording of code with lines, and its source."""
    folder = tmp_path_factory.mktemp("lined")
    source, capture = folder / "made.script", folder / "test.cap"
    source.write_text("".join(f"line {i + 1} of the script\n" for i in range(6)))
    record_script(profctl, capture, DUMP, "-F", "1999", arguments=[MACHINE_CODE[platform.machine()], folder, source])
    return capture, source


@pytest.mark.skipif(platform.machine() not in MACHINE_CODE, reason="nobody has written the code for this architecture")
def test_dump_has_lines(lined, profcapture):
    """The function loops in line 3, and returns in line 5."""
    capture, source = lined
    at = {(f["name"], f["file"], f["line"], f["at_file"], f["at_line"]) for row in rows(profcapture, capture, "sample", "--resolve")
          for f in row["frames"] if f["kind"] == "jit"}
    assert at - {("lined", None, None, str(source), 5)} == {("lined", None, None, str(source), 3), ("bare", None, None, None, None)}
    (row,) = [row for row in rows(profcapture, capture, "mark", "--resolve") if row["group"] == "jit"]
    assert [(frame["name"], frame["at_line"]) for frame in row["frames"]] == [("lined", 3), ("lined", 5)]
    text = profcapture("dump", capture, "--table", "mark", "--resolve", "--limit", 0).stdout
    assert f"\tlined  [anon]  {source}:3\n\tlined  [anon]  {source}:5\n" in text
    schema.check(profcapture, "dump", profcapture.json("dump", capture, "--table", "mark", "--resolve"))


@pytest.mark.skipif(platform.machine() not in MACHINE_CODE, reason="nobody has written the code for this architecture")
def test_annotate(lined, profcapture):
    """annotate shows the script's lines, with the sums of report. It shows no instructions, because
    the capture lacks the code."""
    capture, source = lined
    report = {row["name"]: row for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"] if row["kind"] == "jit"}
    for name, line, text in ("lined", 3, "line 3 of the script"), ("bare", None, None):
        found = profcapture.json("annotate", capture, name, "--total")
        schema.check(profcapture, "annotate", found)
        data = found["data"]
        keys = ("self", "total", "offset")
        assert [data["function"][key] for key in keys] == [report[name][key] for key in keys] and data["function"]["self"] > 40
        assert data["function"]["length"] == len(bytes.fromhex(MACHINE_CODE[platform.machine()]))
        row = max(data["lines"], key=lambda row: row["self"])
        assert (row["function"], row["file"], row["line"], row["text"]) == (name, line and str(source), line, text)
        assert sum(row["self"] for row in data["lines"]) == report[name]["self"] and row["self"] > 0.9 * report[name]["self"]
        assert row["total"] >= row["self"]
        assert data["instructions"] == [] and "generated code" in data["no_code"]
    place = f"{os.path.basename(report['lined']['image'])}+{hex(int(report['lined']['offset'], 16) + 1)}"
    text = profcapture("annotate", capture, place).stdout
    assert re.match(rf"lined at {source.name}:3 has \d+\.?\d* % of the CPU time itself, \d+\.?\d* % with its callees\.\n", text), text
    assert "line 3 of the script" in text and "Without lines" not in text
    assert "Lines are unknown: no jitdump" in profcapture("annotate", capture, "bare").stdout


@pytest.mark.skipif(platform.machine() not in MACHINE_CODE, reason="nobody has written the code for this architecture")
def test_page_with_source(lined, profcapture, tmp_path):
    """The page has the lines of generated code, with the sums of the whole capture."""
    capture, source = lined
    profcapture("html", capture, "--with-source", "-o", tmp_path / "page.html", "-q")
    header, _ = read_page(tmp_path / "page.html")
    (entry,) = [entry for entry in header["sources"]["functions"] if header["functions"][entry["fn"]]["name"] == "lined"]
    report = {row["name"]: row for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"]}
    assert entry["is_generated"] and entry["instructions"] == [] and sum(line[3] for line in entry["lines"]) == report["lined"]["self_weight"]
    file, line, callee, _ = max(entry["lines"], key=lambda line: line[3])
    assert (header["sources"]["files"][file]["path"], line, callee) == (str(source), 3, None)
    assert "line 3 of the script" in header["sources"]["files"][file]["text"][0]


# Two generated functions that use the frame pointer as a counter. Their dump has unwinding
# information before each function, unless the program gets a second argument. The second function
# is generated after the first one has run; then the first one is moved.
#     push %rbp; mov %rdi,%rbp; loop: dec %rbp; jnz loop; pop %rbp; ret
UNWINDING = r"""
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const uint8_t machine[] = { 0x55, 0x48, 0x89, 0xfd, 0x48, 0xff, 0xcd, 0x75, 0xfb, 0x5d, 0xc3 };
static uint8_t *memory;
static int dump;

struct head { uint32_t id, bytes; uint64_t time; };

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void write_record(uint32_t id, const void *body, size_t n)
{
	struct head head = { id, sizeof(head) + n, now() };
	uint8_t bytes[512];
	memcpy(bytes, &head, sizeof(head));
	memcpy(bytes + sizeof(head), body, n);
	/* in two pieces, as a reader may see it */
	if (write(dump, bytes, 7) != 7 || write(dump, bytes + 7, head.bytes - 7) < 0)
		abort();
}

/* Writes the unwinding data, which is at the first multiple of 8 after the code. */
static size_t frame(uint8_t *to)
{
	uint8_t cie[] = { 20, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0 };
	uint8_t fde[] = { 24, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, sizeof(machine), 0, 0, 0, 0,
			  0x41, 0x0e, 16, 0x86, 2, 0x48, 0x0c, 7, 8, 0xc6, 0 };
	int32_t begin = -(int32_t)((sizeof(machine) + 7) / 8 * 8 + sizeof(cie) + 8);
	memcpy(fde + 8, &begin, 4);
	memcpy(to, cie, sizeof(cie));
	memcpy(to + sizeof(cie), fde, sizeof(fde));
	memset(to + sizeof(cie) + sizeof(fde), 0, 4);
	return sizeof(cie) + sizeof(fde) + 4;
}

static void *load(unsigned at, const char *name, int has_frame)
{
	uint64_t address = (uint64_t)(memory + at), index = at;
	uint8_t body[400] = { 0 };
	uint32_t pid = getpid();
	size_t n;

	memcpy(memory + at, machine, sizeof(machine));
	if (has_frame) {
		n = frame(body + 24);
		memcpy(body, &(uint64_t){ n + 20 }, 8); /* and a header of 20 bytes, which nobody reads */
		memcpy(body + 8, &(uint64_t){ 20 }, 8);
		write_record(4, body, 24 + n + 20);
		memset(body, 0, sizeof(body));
	}
	memcpy(body, &pid, 4);
	memcpy(body + 4, &pid, 4);
	memcpy(body + 8, &address, 8);
	memcpy(body + 16, &address, 8);
	memcpy(body + 24, &(uint64_t){ sizeof(machine) }, 8);
	memcpy(body + 32, &index, 8);
	strcpy((char *)body + 40, name);
	memcpy(body + 41 + strlen(name), machine, sizeof(machine));
	write_record(0, body, 41 + strlen(name) + sizeof(machine));
	return memory + at;
}

static void *move(unsigned from, unsigned to)
{
	uint64_t body[6] = { 0, (uint64_t)(memory + to), (uint64_t)(memory + from), (uint64_t)(memory + to), sizeof(machine), from };
	memcpy(memory + to, machine, sizeof(machine));
	memset(memory + from, 0xcc, sizeof(machine));
	write_record(1, body, sizeof(body));
	return memory + to;
}

__attribute__((noinline)) void first_caller(void *code) { for (int i = 0; i < 100; i++) ((void (*)(uint64_t))code)(3000000); __asm__ volatile(""); }
__attribute__((noinline)) void second_caller(void *code) { for (int i = 0; i < 100; i++) ((void (*)(uint64_t))code)(3000000); __asm__ volatile(""); }
__attribute__((noinline)) void third_caller(void *code) { for (int i = 0; i < 100; i++) ((void (*)(uint64_t))code)(3000000); __asm__ volatile(""); }

int main(int argc, char **argv)
{
	struct { uint32_t magic, version, bytes, machine, zero, pid; uint64_t time, flags; } header = {
		0x4a695444, 1, 40, EM_X86_64, 0, getpid(), now(), 0 };
	char name[4096];
	void *first;

	snprintf(name, sizeof(name), "%s/jit-%d.dump", argv[1], getpid());
	memory = mmap(NULL, 16384, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	dump = open(name, O_RDWR | O_CREAT, 0600);
	if (write(dump, &header, sizeof(header)) < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0) == MAP_FAILED)
		return 1;
	first = load(0, "jit_first", argc < 3);
	first_caller(first);
	second_caller(load(4096, "jit_second", argc < 3));
	third_caller(move(0, 8192));
	return 0;
}
"""


@pytest.fixture
def unwinding(compile_c):
    return compile_c("unwinding", UNWINDING, "-O2")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="nobody has written the code for this architecture")
def test_unwinding_information(profctl, profcapture, capture, tmp_path, unwinding):
    """Stacks of code without frame pointers are right, whether the code exists at the start, is
    generated later, or is moved. Samples before profd reads the unwinding information may be
    wrong."""
    profctl("record", "-F", 999, "-o", capture, "--", unwinding, tmp_path)
    callers = Counter()
    for row in rows(profcapture, capture, "sample", "--resolve"):
        names = [frame["name"] for frame in row["frames"] if frame["kind"] != "kernel"]
        if names and names[0].startswith("jit_"):
            caller = names[1] if len(names) > 1 and "main" in names else None
            callers[names[0], caller] += 1
    for jit, caller in ("jit_first", "first_caller"), ("jit_second", "second_caller"), ("jit_first", "third_caller"):
        assert callers[jit, caller] > 20, callers
    wrong = sum(n for (_, caller), n in callers.items() if caller is None or not caller.endswith("_caller"))
    # samples between a change of the code and the next time that the file is read
    assert wrong <= 0.5 * 999 * 0.1 * 3 and wrong < 0.25 * sum(callers.values()), callers


@pytest.mark.skipif(platform.machine() != "x86_64", reason="nobody has written the code for this architecture")
def test_no_unwinding_information(profctl, profcapture, capture, tmp_path, unwinding):
    """Without unwinding information no caller is found, and none is guessed from the frame pointer,
    which the code uses as a counter."""
    profctl("record", "-F", 999, "-o", capture, "--", unwinding, tmp_path, "none")
    found = [[frame["name"] for frame in row["frames"] if frame["kind"] != "kernel"] for row in rows(profcapture, capture, "sample", "--resolve")]
    assert sum(len(names) == 1 for names in found if names and names[0].startswith("jit_")) > 100
