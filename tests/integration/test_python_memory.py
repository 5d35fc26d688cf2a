# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Allocations of Python programs show the functions that made them: each block of a known size has
exactly its callers and lines, also through C functions that call back, in threads, in forked
children and in a program that is already running, with and without the interpreter's lock."""
import collections
import json
import os
import re
import signal
import subprocess
import time

import pytest

from captures import rows
from pythons import is_free_threaded, pythons
from recordings import recorded

PYTHONS = pythons(4)

# Each call site allocates blocks of a size of its own, by which the test finds them. malloc()
# serves these sizes.
CALLERS = """
import re, threading
kept = []
def make(n, size):
    for _ in range(n):
        kept.append(bytes(size))
def outer():
    make(100, 30007)
    make(50, 30107)
def key(x):
    kept.append(bytes(30207))
    return -x
def sorting():
    return sorted(range(40), key=key)
def replace(match):
    kept.append(bytes(30307))
    return "y"
def matching():
    return re.sub("x", replace, "x" * 30)
class Maker:
    def method(self):
        return (bytes(30407), bytes(30407))
def generate():
    for _ in range(5):
        yield bytes(30507)
def consume():
    for block in generate():
        kept.append(block)
def worker():
    make(20, 30607)
outer()
sorting()
matching()
kept.append(Maker().method())
consume()
thread = threading.Thread(target=worker)
thread.start()
thread.join()
"""
HEADER = 33  # bytes of a bytes object without its contents
# Defines block(), which replaces bytes() in builds whose objects are not allocated by malloc().
BLOCK = "import ctypes; block = ctypes.PyDLL(None).malloc; block.restype = ctypes.c_void_p"
# {size: (number of blocks, callers with their lines, innermost first)}
EXPECTED = {
    30007: (100, "make:6 outer:8 <module>:31"),
    30107: (50, "make:6 outer:9 <module>:31"),
    30207: (40, "key:11 sorting:14 <module>:32"),
    30307: (30, "replace:16 sub matching:19 <module>:33"),
    30407: (2, "method:22 <module>:34"),
    30507: (5, "generate:25 consume:27 <module>:35"),
    30607: (20, "make:6 worker:30 run _bootstrap_inner _bootstrap"),
}

LOCKS = """
import ctypes, os, sys, threading
def function(library):
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    return library.malloc
without, within = function(ctypes.CDLL(None)), function(ctypes.PyDLL(None))
def unlocked(n):
    for _ in range(n):
        without(30740)
def locked(n):
    for _ in range(n):
        within(30840)
def deep(n):
    if n > 0:
        return deep(n - 1)
    return bytes(30907)
def child():
    locked(6)
    unlocked(7)
unlocked(30)
locked(40)
threads = [threading.Thread(target=unlocked, args=(10,)) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
deep(150)
if os.fork() == 0:
    child()
    os._exit(0)
os.wait()
"""

# Each function may reuse the memory of the function before it.
REDEFINED = """
for number in range(900):
    names = {}
    exec(compile(f"def function{number}():\\n return bytes({30000 - 33 + number})", f"<{number}>", "exec"), names)
    names[f"function{number}"]()
"""

INTERPRETERS = """
import threading
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
def outside():
    made = interpreters.create()
    run(made, "def inside():\\n return (bytes(30007), bytes(30007))\\ninside()")
    interpreters.destroy(made)
outside()
thread = threading.Thread(target=outside)
thread.start()
thread.join()
"""

# malloc() itself is the handler of signal 14, so each signal allocates 14 bytes, at any instruction
# of functions that allocate nothing.
HANDLER = """
import ctypes
libc = ctypes.CDLL(None)
def leaf(x): return x
def middle(x): return leaf(x) + leaf(1)
def key(x): return middle(x) & 3
items = list(range(20))
def loop():
    for _ in range(20000):
        items.sort(key=key)
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.signal(14, ctypes.cast(libc.malloc, ctypes.c_void_p))
interval = (ctypes.c_long * 4)(0, 300, 0, 300)
libc.setitimer(0, ctypes.byref(interval), None)
loop()
libc.signal(14, 1)
"""

FOREVER = """
import time
kept = []
def ask():
    kept.append(bytes(30007))
def loop():
    while True:
        ask()
        time.sleep(0.001)
loop()
"""

# A program that exports an interpreter's symbols, but whose list of frames begins at an invalid
# address.
FAKE = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
const unsigned long Py_Version = VERSION;
uint64_t PyCode_Type[64];
uint8_t _PyRuntime[4096];
void _PyEval_EvalFrameDefault(void) {}
static uint8_t thread[256], activation[64];
void *PyThreadState_GetUnchecked(void) { return thread; }
int main(void)
{
	void *at = activation, *nothing = (void *)8;
	uint32_t tss[2] = { 1, 0 };
	pthread_key_t key;

	pthread_key_create(&key, NULL);
	pthread_setspecific(key, thread);
	tss[1] = key;
	memcpy(_PyRuntime + 1544, tss, sizeof(tss)); /* offsets of 3.12 */
	memcpy(thread + 56, &at, sizeof(at));
	memcpy(activation, &nothing, sizeof(nothing));
	for (int i = 0; i < 50; i++) {
		void *volatile block = malloc(30007);

		free(block);
	}
	return 0;
}
"""


def short(frame):
    """Returns a frame's function, and its line, except in the standard library, where lines differ
    between versions."""
    line = f":{frame['at_line']}" if frame["file"].startswith("/tmp") or "program" in frame["file"] else ""
    return frame["name"].rpartition(".")[2] + line


def chains(profcapture, capture):
    """Returns the number of blocks by size, pid and callers in Python, innermost first."""
    found = collections.Counter()
    for line in profcapture("dump", capture, "-t", "alloc", "--resolve", "--limit", 0, "--format", "ndjson").stdout.split("\n"):
        if re.search(r'"size":30\d{3},', line[:300]):  # most rows are of the interpreter's start, and parsing takes long
            row = json.loads(line)
            functions = [short(frame) for frame in row["frames"] if frame["kind"] == "python"]
            found[row["size"] - HEADER, row["pid"], " ".join(functions)] += 1
    return found


@pytest.fixture(params=PYTHONS)
def python(request):
    return request.param


def write(folder, text, python):
    path = folder / "program.py"
    if is_free_threaded(python):
        text = BLOCK + re.sub(r"bytes\(([^()]*)\)", rf"block(\1 + {HEADER})", text)
        text = text.replace("names = {}", "names = {'block': block}").replace('"def inside', f'"{BLOCK}\\ndef inside')
    path.write_text(text)
    return path


def test_callers(profctl, profcapture, capture, python, tmp_path):
    program = write(tmp_path, CALLERS, python)
    recorded(profctl, "--no-symbols", "--memory", "-F", 0, "-o", capture, "--", python, program)
    found = collections.Counter()
    for (size, _, functions), n in chains(profcapture, capture).items():
        found[size, functions] += n
    assert found == {(size, functions): n for size, (n, functions) in EXPECTED.items()}


def test_reader(profctl, profcapture, capture, python, tmp_path):
    """Python's functions have rows; the interpreter's own functions are shown only on request."""
    program = write(tmp_path, CALLERS, python)
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", python, program)
    data = profcapture.json("memory", capture, "--limit", 0)["data"]
    functions = {row["name"]: row for row in data["rows"]}
    is_callee = is_free_threaded(python)  # a function of ctypes allocates the block (see BLOCK)
    blocks, n_bytes = ("total_blocks", "total_bytes") if is_callee else ("allocations", "allocated_bytes")
    for name in ("key", "replace", "generate"):
        size, (n, _) = next((size, one) for size, one in EXPECTED.items() if one[1].startswith(name))
        row = functions[f"program.{name}"]
        assert row[blocks] >= n and row[n_bytes] >= n * (size + HEADER)
    text = profcapture("memory", capture, "--tree", "--no-fold", "--limit", 0).stdout
    assert "program.outer" in text and "EvalFrame" not in text
    own = profcapture("memory", capture, "--tree", "--no-fold", "--limit", 0, "--interpreter-frames").stdout
    assert "program.outer" in own and "EvalFrame" in own
    assert "<functions not read>" not in own
    folded = profcapture("export", capture, "--to", "folded", "--value", "alloc-space").stdout
    assert f";program.sorting;program.key{';' if is_callee else ' '}" in folded


def test_left_out(profctl, profcapture, capture, python, tmp_path):
    """With --no-interpreters neither samples nor waits nor allocations have functions of Python."""
    program = write(tmp_path, CALLERS + "import time\nwhile time.process_time() < 0.5: pass\ntime.sleep(0.01)\n", python)
    recorded(profctl, "--no-symbols", "--memory", "--no-interpreters", "-o", capture, "--", python, program)
    assert {functions for _, _, functions in chains(profcapture, capture)} == {""}
    assert not [row for row in rows(profcapture, capture, "image") if row["kind"] == "interpreter"]
    for table in ("sample", "wait"):
        assert {row["interpreter"] for row in rows(profcapture, capture, table)} == {"none"}
    assert profcapture.json("report", capture)["data"]["interpreter"] is None
    assert "functions of interpreted programs (--no-interpreters)" in " ".join(profcapture("info", capture).stdout.split())
    assert profcapture.json("info", capture)["data"]["options"]["interpreters"] is False


def test_locks(profctl, profcapture, capture, python, tmp_path):
    """While a thread does not hold the interpreter's lock, its frames are those that called the C
    function that released the lock."""
    program = write(tmp_path, LOCKS, python)
    recorded(profctl, "--no-symbols", "--memory", "-F", 0, "-o", capture, "--", python, program)
    found, pids = collections.Counter(), collections.defaultdict(set)
    for (size, pid, functions), n in chains(profcapture, capture).items():
        deep = functions.count("deep:")
        found[size + HEADER, "deep" if deep else functions] += n
        pids[functions].add(pid)
        assert deep in (0, 151)
    inside = "run _bootstrap_inner _bootstrap"
    assert found == {
        (30740, "unlocked:9 <module>:20"): 30,
        (30840, "locked:12 <module>:21"): 40,
        (30740, f"unlocked:9 {inside}"): 30,
        (30940, "deep"): 1,
        (30840, "locked:12 child:18 <module>:29"): 6,
        (30740, "unlocked:9 child:19 <module>:29"): 7,
    }
    assert pids["locked:12 child:18 <module>:29"] == pids["unlocked:9 child:19 <module>:29"]
    assert len(set.union(*pids.values())) == 2


def test_redefined(profctl, profcapture, capture, python, tmp_path):
    """A code object that has the address of an earlier one is shown as a different function."""
    program = write(tmp_path, REDEFINED, python)
    recorded(profctl, "--no-symbols", "--memory", "-F", 0, "-o", capture, "--", python, program)
    found = chains(profcapture, capture)
    assert {(size, functions) for size, _, functions in found} >= {
        (30000 - HEADER + number, f"function{number} <module>:5") for number in range(900)
    }


def test_interpreters(profctl, profcapture, capture, python, tmp_path):
    """If a thread runs a second interpreter, the functions of that interpreter are shown."""
    program = write(tmp_path, INTERPRETERS, python)
    recorded(profctl, "--no-symbols", "--memory", "-F", 0, "-o", capture, "--", python, program)
    found = collections.Counter()
    for (size, _, functions), n in chains(profcapture, capture).items():
        found[size, functions] += n
    assert found == {(30007, "inside <module>"): 4}


def test_handler(profctl, profcapture, capture, python, tmp_path):
    """If a handler interrupts the interpreter while it changes its list of frames, the allocation
    has a list that is possible, or says that the list was not read."""
    program = write(tmp_path, HANDLER, python)
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", python, program)
    found = collections.Counter()
    for row in rows(profcapture, capture, "alloc", "--resolve"):
        names = [frame["name"].rpartition(".")[2] for frame in row["frames"] if frame["kind"] == "python"]
        if row["size"] == 14 and "loop" in names:
            found[" ".join(names)] += 1
        elif row["size"] == 14:
            found["not read"] += row["frames"][-1]["name"] == "<functions not read>"
    unread = found.pop("not read", 0)
    print(found, unread)
    whole = "leaf middle key loop <module>".split()
    assert set(found) <= {" ".join(whole[i:]) for i in range(4)} and len(found) > 2
    assert unread <= 5 + 0.05 * found.total()


def test_sampled(profctl, profcapture, capture, python, tmp_path):
    """Sampled allocations have the same callers as without sampling."""
    program = write(tmp_path, CALLERS, python)
    recorded(profctl, "--no-symbols", "--memory=sample:30000", "-F", 0, "-o", capture, "--", python, program)
    expected = {(size, functions) for size, (_, functions) in EXPECTED.items()}
    found = {(size, functions) for size, _, functions in chains(profcapture, capture)}
    assert len(found) > 2 and found <= expected


def test_joined(profcapture, profctl, capture, python, tmp_path, spawn):
    """If --pid attaches to a running program, the program's functions are shown."""
    program = write(tmp_path, FOREVER, python)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROF_")}
    environment["LD_PRELOAD"] = os.environ["LIBPROFPRELOAD_MEMORY"]
    target = spawn(python, program, env=environment)
    time.sleep(1)
    recorder = spawn(*profctl.command("record", "--bus", "private", "--no-symbols", "--memory", "-F", 0, "-q", "-o", capture,
                                      "-d", 2, "--pid", target.pid), stderr=subprocess.PIPE, text=True)
    said = recorder.communicate(timeout=60)[1]
    assert recorder.returncode in (0, 128 + signal.SIGINT), said
    found = collections.Counter()
    for (size, _, functions), n in chains(profcapture, capture).items():
        found[size, functions] += n
    assert list(found) == [(30007, "ask:5 loop:8 <module>:10")]
    assert found.total() > 10


def fake(compile_c, version):
    return compile_c("fake", FAKE.replace("VERSION", version), "-rdynamic")


def test_unreadable(profctl, profcapture, capture, compile_c):
    """Stacks whose functions could not be read say so, and have all of their native frames."""
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", fake(compile_c, "0x030c00f0"))
    blocks = [row for row in rows(profcapture, capture, "alloc", "--resolve") if row["size"] == 30007]
    assert len(blocks) == 50
    for row in blocks:
        names = [frame["name"] for frame in row["frames"]]
        assert names[0] == "main" and names[-2:] == ["_start", "<functions not read>"]
    text = profcapture("memory", capture, "--tree").stdout
    assert "stacks of 50 allocations do not show the functions" in text.splitlines()[0]
    assert "<functions not read>" in text


LOADS = """
#include <dlfcn.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);

    if (!dlopen(argv[1], RTLD_NOW)) /* once more: it is said once */
        return 1;
    return ((int (*)(void))dlsym(library, "main"))();
}
"""


@pytest.mark.parametrize("version, what", [("0x03630000", "another version"), ("0x030d00f0", "another build"),
                                           ("0x030c00f0", "opened with dlopen()")])
def test_unsupported(profctl, profcapture, capture, compile_c, version, what):
    """The first line says that the functions of an interpreter were not read, and why."""
    program = [fake(compile_c, version)]
    if "dlopen" in what:
        library = compile_c("libpython3.12.so", FAKE.replace("VERSION", version), "-shared", "-fPIC")
        program = [compile_c("loads", LOADS), library]
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", *program)
    warning, = profcapture.json("memory", capture)["data"]["warnings"]
    assert "do not show the functions of the program's Python" in warning["text"] and what in warning["text"]
    assert warning["text"] in profcapture("memory", capture).stdout.splitlines()[0]
    kinds = {frame["kind"] for row in rows(profcapture, capture, "alloc", "--resolve") for frame in row["frames"]}
    assert "python" not in kinds
