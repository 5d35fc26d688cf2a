# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Python programs show their functions. Each chain is one that the program can have
(python_oracle.py), also in threads, forked children, another PID namespace and programs that embed
Python, and whether the program is recorded from its start or attached later. Frames of Python
functions are in order with those of the C functions that call them."""
import collections
import json
import os
import subprocess
from pathlib import Path

import pytest

from interpreted_chains import check, rights, settled
from interpreted_programs import (
    SOME, Programs, check_callbacks, check_pid, check_unsupported, check_waits, named, record_chains,
)
from pythons import pythons
from shares import near

HERE = Path(__file__).parent
PYTHONS = pythons(0)

CALLBACKS = """
import os, time
def key(x):
    total = 0
    for i in range(100):
        total += i & 7
    return x
def child_only():
    finish = time.process_time() + 0.3
    while time.process_time() < finish:
        sorted(range(30), key=key)
def parent_only():
    finish = time.process_time() + 0.3
    while time.process_time() < finish:
        sorted(range(30), key=key)
if os.fork() == 0:
    child_only()
    os._exit(0)
parent_only()
os.wait()
"""

SUB = """
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
def outer():
    run(interpreters.create(), '''
import time
def key(x):
    total = 0
    for i in range(100):
        total += i & 7
    return x
finish = time.process_time() + 0.3
while time.process_time() < finish:
    sorted(range(30), key=key)
''')
outer()
"""

# A running program opens Python's library and calls Py_Initialize() and PyRun_SimpleString().
EMBEDDED = """
#include <dlfcn.h>
#include <time.h>
int main(int argc, char **argv)
{
    void *library;

    while (clock() < CLOCKS_PER_SEC / 5)
        ;
    library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return 1;
    ((void (*)(void))dlsym(library, "Py_Initialize"))();
    return ((int (*)(const char *))dlsym(library, "PyRun_SimpleString"))(argv[2]);
}
"""
LATE = """
import time
def inner():
    for i in range(20000): pass
def late():
    finish = time.process_time() + 0.4
    while time.process_time() < finish: inner()
late()
"""

# stats[2] is cProfile's tottime: the time in a function without the functions that it calls.
PROFILED = """
import cProfile, json, os, sys, time
def first():
    for i in range(350000): pass
def second():
    for i in range(250000): pass
def third():
    for i in range(180000): pass
def fourth():
    for i in range(130000): pass
def fifth():
    for i in range(90000): pass
profile = cProfile.Profile(time.process_time)
profile.enable()
while time.process_time() < 0.6:
    first(); second(); third(); fourth(); fifth()
profile.disable()
profile.create_stats()
spent = {name: stats[2] for (_, line, name), stats in profile.stats.items() if line > 0 and name != "<module>"}
json.dump([os.getpid(), spent], open(sys.argv[1], "w"))
"""
# Each thread calls a function of its own. In a free-threaded build, the threads run in parallel.
THREADS = """
import sys, threading, time
def first(): return 1
def second(): return 2
def third(): return 3
def work(function):
    while time.thread_time() < 0.3:
        for i in range(1000): function()
threads = [threading.Thread(target=work, args=(function,)) for function in (first, second, third)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
HAS_NAMESPACES = subprocess.run(["unshare", "-m", "-p", "--fork", "true"], capture_output=True, check=False).returncode == 0


def library_of(python):
    """Returns the library that has the interpreter; None: the interpreter is in the program."""
    code = "import sysconfig as s, os; print(os.path.join(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME') or ''))"
    path = Path(subprocess.run([python, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    return path if ".so" in path.name and path.exists() else None


@pytest.fixture(scope="module", params=PYTHONS)
def python(request):
    return request.param


@pytest.fixture(scope="module")
def chains(python, tmp_path_factory):
    return record_chains(tmp_path_factory, python, HERE / "python_oracle.py")


@pytest.fixture(scope="module")
def programs(profctl, profcapture, python, compile_c, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    library = library_of(python)
    (folder / "callbacks.py").write_text(CALLBACKS)
    (folder / "sub.py").write_text(SUB)
    (folder / "threads.py").write_text(THREADS)
    (folder / "profiled.py").write_text(PROFILED)
    return Programs(profctl, profcapture, folder, "python", {
        "oracle": [python, HERE / "python_oracle.py", "run", 1.5],
        "callbacks": [python, folder / "callbacks.py"],
        "sub": [python, folder / "sub.py"],
        "threads": [python, folder / "threads.py"],
        "profiled": ["sh", "-c", '"$0" nothing & "$@"; kill $!', os.environ["FAKE_PYTHON"], python,
                     folder / "profiled.py", folder / "profiled.json"],
        **({"embedded": [compile_c("embedded", EMBEDDED), library, LATE]} if library else {}),
        **({"namespace": ["unshare", "-m", "-p", "--fork", python, folder / "callbacks.py"]} if HAS_NAMESPACES else {}),
    })


def test_command(programs, chains):
    """A command with three threads is recorded from its start."""
    check(programs.part("oracle"), chains)


def test_pid(profctl, profcapture, capture, python, chains, spawn):
    check_pid(profctl, profcapture, capture, "python", chains, spawn(python, HERE / "python_oracle.py", "run", 60))


def test_callbacks(programs):
    """The C function sorted() is between the function that calls it and the function that it calls,
    also in a forked child."""
    check_callbacks(programs.part("callbacks"), ["callbacks.child_only", "callbacks.parent_only"],
                    lambda _: [("callbacks.key", SOME)])


@pytest.mark.skipif(not HAS_NAMESPACES, reason="no PID namespace can be made")
def test_namespace(programs):
    """Like test_callbacks(), in another PID namespace."""
    check_callbacks(programs.part("namespace"), ["callbacks.child_only", "callbacks.parent_only"],
                    lambda _: [("callbacks.key", SOME)])


def test_embedded(programs, python):
    """If a program opens the interpreter's library late, functions are shown from then on."""
    if not library_of(python):
        pytest.skip("this Python has no library")
    counts = collections.Counter()
    for sample in settled(programs.part("embedded").samples):
        functions = [frame["name"] for frame in sample["frames"] if frame["kind"] == "python"]
        counts[sample["interpreter"]] += 1
        counts["late"] += functions[-2:] == ["<string>.late", "<string>.<module>"]
        counts["since"] += counts["late"] > 0  # without the interpreter's start
        counts["inner"] += functions == ["<string>.inner", "<string>.late", "<string>.<module>"]
    print(counts)
    assert counts["late"] > 200 and counts["late"] > 0.9 * counts["since"]
    assert counts["inner"] > 0.9 * counts["late"]
    assert counts["torn"] + counts["missing"] <= 5 + 0.01 * counts["complete"]


def test_agrees_with_cprofile(programs):
    """The five functions have the shares of time that cProfile measures. Samples of another
    process, whose frames cannot be read, are "torn", not "complete"."""
    pid, spent = json.loads((programs.folder / "profiled.json").read_text())
    part, counts, others = programs.part("profiled"), collections.Counter(), collections.Counter()
    for sample in settled(part.samples):
        functions = [frame["name"] for frame in sample["frames"] if frame["kind"] == "python"]
        if sample["pid"] == pid and functions[1:] == ["profiled.<module>"]:
            counts[functions[0].removeprefix("profiled.")] += 1
            assert sample["interpreter"] == "complete"
    for sample in part.samples:
        others[sample["interpreter"]] += sample["pid"] != pid
    total, seconds = sum(counts[name] for name in spent), sum(spent.values())
    print(counts, spent, others)
    assert total > 1000 and others["torn"] > 100 and not others["complete"]
    assert counts.keys() >= spent.keys() == {"first", "second", "third", "fourth", "fifth"}
    for name, time in spent.items():
        assert near(counts[name], total, time / seconds, slack=0.01)


def test_subinterpreter(programs):
    """Stacks have the functions of a sub-interpreter at the right place. The functions of the
    calling interpreter are missing, and the samples are "deeper"."""
    part, counts = programs.part("sub"), collections.Counter()
    for sample in part.samples:
        chain = [name and name.rsplit(".", 1)[-1] for name in named(part.chain(sample))]
        if "key" in chain:
            counts[sample["interpreter"]] += 1
            counts["executes"] += chain[0] == "key"  # in the innermost activation, which calls nothing
            counts["has outer"] += "outer" in chain
    print(counts)
    assert counts["deeper"] > 100 and not counts["complete"]
    assert counts["executes"] > 0.1 * counts["deeper"] and not counts["has outer"]


def test_threads(programs):
    """Each thread has only the functions that it executes itself."""
    part, functions, counts = programs.part("threads"), collections.defaultdict(set), collections.Counter()
    for sample in settled(part.samples):
        chain = [name for name in named(part.chain(sample)) if name]
        if "threads.work" in chain:
            functions[sample["tid"]] |= set(chain[:chain.index("threads.work")])
            counts[sample["tid"]] += 1
    print(counts)
    assert sorted(functions.values(), key=str) == [{"threads.first"}, {"threads.second"}, {"threads.third"}]
    assert min(counts.values()) > 100


WAITS = """
import collections, json, os, sys, threading, time
spent = collections.Counter()
def nap(seconds): time.sleep(seconds)
def often(): nap(0.002)
def seldom(): nap(0.03)
def reads(): os.read(source, 1)
def writes():
    for _ in range(60):
        time.sleep(0.01)
        os.write(sink, b"x")
def timed(function):
    begin = time.perf_counter()
    function()
    spent[function.__name__] += time.perf_counter() - begin
source, sink = os.pipe()
thread = threading.Thread(target=writes)
time.sleep(0.5)
thread.start()
for _ in range(60): timed(reads)
for _ in range(100):
    timed(often)
    timed(often)
    timed(seldom)
thread.join()
print(json.dumps(spent))
"""


def test_waits(profctl, profcapture, capture, python, tmp_path):
    program = tmp_path / "waits.py"
    program.write_text(WAITS)
    check_waits(profctl, profcapture, capture, "python", [python, program], "waits.{}")


FREQUENT = """
import os, threading, time
def turn():
    os.write(sink, b"x")
    os.read(source, 1)
def often():
    for _ in range(30): turn()
def seldom():
    for _ in range(10): turn()
def answers():
    while os.read(asked, 1): os.write(answer, b"x")
asked, sink = os.pipe()
source, answer = os.pipe()
threading.Thread(target=answers, daemon=True).start()
time.sleep(0.5)
end = time.monotonic() + 3
while time.monotonic() < end:
    often()
    seldom()
os._exit(0)
"""


def test_frequent_waits(profctl, profcapture, capture, python, tmp_path):
    """If threads sleep very often, frames are read before only some of the sleeps. Every remaining
    sleep gets the frames of a randomly chosen sleep whose frames were read, so that callers keep
    their shares."""
    program = tmp_path / "frequent.py"
    program.write_text(FREQUENT)
    profctl("record", "--off-cpu", "-o", capture, "--", "taskset", "-c", min(os.sched_getaffinity(0)), python, program)
    shown = {row["name"]: row["total"] for row in profcapture.json("report", capture, "--metric", "off-cpu", "--limit", 0)["data"]["rows"]}
    # often() makes 30 of 40 turns. Compare numbers of waits, because a few long waits may take a
    # tenth of the time. Frames of more than 500 sleeps are read, so five standard deviations are
    # less than 0.1.
    assert abs(shown["frequent.often"] / shown["frequent.turn"] - 30 / 40) < 0.1, shown
    query = "SELECT interpreter, count(*) AS n FROM wait GROUP BY interpreter"
    known = {row["interpreter"]: row["n"] for row in profcapture.json("sql", capture, query)["data"]["rows"]}
    print(known)
    assert known["complete"] > 0.9 * sum(known.values()) and sum(known.values()) > 10000, known


def test_report(profcapture, programs):
    shown = programs.rows(profcapture, "callbacks")
    key = shown["callbacks.key"]
    assert (key["file"], key["kind"]) == (str(programs.folder / "callbacks.py"), "python")
    assert key["self"] > 0.5 * shown["callbacks.parent_only"]["total"]


def test_other_build(profctl, profcapture, capture, spawn, tmp_path):
    """If a build of Python does not declare its offsets, no frames are read, and a hint says so."""
    program = tmp_path / "python3.14t"
    data = Path(os.environ["FAKE_PYTHON_THREADS"]).read_bytes()
    assert data.count(b"xdebugpy") == 1
    program.write_bytes(data.replace(b"xdebugpy", b"xdebugpx"))
    program.chmod(0o755)
    check_unsupported(profctl, profcapture, capture, spawn(program, "cycle"),
                      "this build of Python 3.14t is not supported", ("python-perf", "--python-perf"))
