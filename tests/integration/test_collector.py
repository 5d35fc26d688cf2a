# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Programs with marks, recorded by a stand-in for the engine: recording does not break the program,
and each mark that was reported as recorded arrives, from any process, thread or handler."""
import collections
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recordings import until
from slices import SANITIZED

STAND_IN = os.environ["STAND_IN"]
ZOO = os.environ["ZOO"]
LIBRARY = os.environ["LIBPROFCOLLECTOR"]
SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
INCLUDE = SOURCE / "libcollector"
without_sanitizer = pytest.mark.skipif(SANITIZED, reason="a sanitizer's runtime is in the way")


class Recorded:
    """The result of a run: peers, records, and the report of each process."""

    def __init__(self, output, results, done):
        lines = [json.loads(line) for line in output.read_text(encoding="utf-8", errors="replace").splitlines()]
        self.peers = [line for line in lines if "peer" in line]
        self.records = [line for line in lines if "peer" not in line]
        self.marks = [record for record in self.records if record["type"] == 5]
        self.said = collections.Counter()
        self.lost = collections.Counter()
        for line in results.read_text().splitlines() if results.exists() else ():
            pid, true, false = map(int, line.split())
            self.said[pid] += true
            self.lost[pid] += false
        self.done = done

    def by_pid(self, name):
        counted = collections.Counter()
        for peer in self.peers:
            counted[peer["peer"]] += peer[name]
        return counted

    def check_law(self):
        """Every attempted record is counted, no name is unknown, and no ring was quarantined."""
        for peer in self.peers:
            counted = sum(peer[name] for name in ("records", "abandoned", "unpublished", "lost"))
            assert peer["fault"] == "none", peer
            assert peer["attempted"] == counted, peer
            assert peer["nameless"] == 0, peer


@pytest.fixture
def run(tmp_path):
    """run("fork", "--rings", 2) runs a mode of the zoo, or a command, with options for the
    stand-in."""

    def start(command, *options, status=0, env=None, prefix=(), timeout=100):
        output, results = tmp_path / "output", tmp_path / "results"
        results.unlink(missing_ok=True)
        command = [ZOO, command] if isinstance(command, str) else command
        done = subprocess.run(
            [*prefix, STAND_IN, "--output", output, *map(str, options), "--", *map(str, command)],
            env={**os.environ, "ZOO_RESULTS": str(results), **(env or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=timeout,
        )
        assert done.returncode == status, done.stderr
        assert done.stdout == "" and done.stderr == ""
        recorded = Recorded(output, results, done)
        recorded.check_law()
        return recorded

    return start


# [mode, the stand-in's options]. In each run, every mark that a process reports as recorded is
# found.
EXACT = [
    ("plain", []),
    ("plain", ["--deaf", "--bytes", 4096]),
    ("plain", ["--deaf", "--lossless", "--bytes", 4096]),
    ("fork", []),
    ("fork", ["--lossless", "--bytes", 4096]),
    ("fork-threads", []),
    ("vfork", []),
    ("vfork-first", []),
    ("spawn", []),
    ("exec", []),
    ("raw-clone", []),
    ("daemon", []),
    ("threads", []),
    ("threads", ["--lossless", "--rings", 3, "--bytes", 4096]),
    ("turn", []),
    ("many", []),
    ("many", ["--no-growth", "--rings", 4]),
    ("destructors", []),
    ("dlclose", []),
    ("handler", []),
    ("closefrom", ["--rings", 4]),
    ("lowest", []),
    ("seccomp", []),
    ("seccomp-kill", []),
    ("ended", ["--end-after", 500]),
]


@pytest.mark.parametrize("mode,options", EXACT, ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value)))
def test_zoo(run, mode, options):
    if SANITIZED and mode in ("raw-clone", "seccomp", "seccomp-kill"):
        pytest.skip("a sanitizer's runtime is in the way")
    recorded = run(mode, *options)
    assert sum(recorded.said.values()) > 0
    said = collections.Counter({pid: n for pid, n in recorded.said.items() if n})
    assert +recorded.by_pid("marks") == said


def test_fork_handler(run):
    """A signal handler forks in the middle of a mark: the child continues with a copy of that mark,
    which the stand-in never receives."""
    recorded = run("fork-handler")
    marks = recorded.by_pid("marks")
    assert len(recorded.said) == 101
    assert all(0 <= said - marks[pid] <= 1 for pid, said in recorded.said.items())
    assert sum(marks[peer["peer"]] == recorded.said[peer["peer"]] for peer in recorded.peers if peer["parent"] == 0) == 1


def test_static(run, tmp_path):
    if "ZOO_STATIC" not in os.environ:
        pytest.skip("a sanitizer's runtime is in the way")
    for mode in ("fork", "threads", "everything"):
        recorded = run([os.environ["ZOO_STATIC"], mode])
        assert +recorded.by_pid("marks") == +recorded.said


def check_names(marks):
    """Each mark's name ends with the mark's first argument, unless there was no room for the name."""
    marks = [mark for mark in marks if mark["name"] != ""]
    assert len(marks) > 0
    for mark in marks:
        assert mark["name"].split()[1] == str(mark["args"][0]["value"]), mark


def test_names(run):
    """A handler and the code it interrupts use more names than are cached."""
    recorded = run("handler", "--records", "--rings", 1)
    names = {mark["name"].split(" ")[0] for mark in recorded.marks}
    assert names >= {"handler", "main"}
    check_names(recorded.marks)


@pytest.mark.parametrize("n_bytes", [1 << 22, 4096])
def test_siglongjmp(run, n_bytes):
    """A handler makes a mark, then jumps out and so abandons the interrupted mark, which may be
    recorded although its caller gets no report of it."""
    recorded = run("siglongjmp", "--records", "--bytes", n_bytes)
    assert sum(mark["name"] == "behind" for mark in recorded.marks) == 10
    check_names([mark for mark in recorded.marks if mark["name"] != "behind"])
    (peer,) = recorded.peers
    assert peer["marks"] >= recorded.said[peer["peer"]] > 0


def test_parents(run):
    recorded = run("fork")
    pids = [peer["peer"] for peer in recorded.peers]
    assert len(pids) == 3
    assert [peer["parent"] for peer in recorded.peers] == [0, *pids[:2]]


def test_everything(run):
    recorded = run("everything", "--records")
    instant, begin, end, complete = recorded.marks
    assert [(mark["group"], mark["name"], mark["kind"]) for mark in recorded.marks] == [
        ("zoo", "instant", 0), ("zoo", "span", 1), ("zoo", "span", 2), ("", "complete", 3),
    ]
    assert [(arg["name"], arg["kind"]) for arg in instant["args"]] == [
        ("s64", 0), ("u64", 1), ("double", 2), ("text", 3), ("address", 4),
    ]
    assert instant["args"][0]["value"] == 2**64 - 5
    assert instant["args"][2]["value"] == 0x3FE0000000000000
    assert instant["args"][3]["text"] == "value"
    assert begin["id"] == end["id"] != 0
    assert 2_000_000 <= complete["duration"] < 10_000_000_000
    counters = {record["id"]: record for record in recorded.records if record["type"] == 6}
    values = [(counters[record["id"]]["name"], record["value"]) for record in recorded.records if record["type"] == 7]
    assert values == [("gauge", 7), ("gauge", 4), ("sum", 0x3FE0000000000000), ("sum", 0x3FE8000000000000)]
    assert {(counter["name"], counter["unit"], counter["kind"]) for counter in counters.values()} == {
        ("gauge", "bytes", 0), ("sum", "", 3),
    }
    (log,) = [record for record in recorded.records if record["type"] == 8]
    assert (log["level"], log["domain"], log["text"], log["more"]) == (4, "zoo", "careful", 0)
    (name,) = [record for record in recorded.records if record["type"] == 11]
    assert name["name"] == "keeper"


def test_strings(run):
    """Strings of a mebibyte pass through a ring that is smaller."""
    text = [ord("a") + i % 26 for i in range(1 << 20)]
    long = f"{1 << 20}:{sum(text)}"
    first = [long, long, f"{1 << 20}:{sum(text) + 1}", f"40000:{sum(text[:40000]) + 1}"]
    # The process's threads wait for at most a second in total, so the reader has to get a CPU soon,
    # and must not populate memory.
    prefix = ["chrt", "--reset-on-fork", "--fifo", "1"] if os.geteuid() == 0 else []
    for _ in range(10):
        recorded = run("strings", "--records", "--lossless", env={"MALLOC_PERTURB_": "0"}, prefix=prefix)
        (peer,) = recorded.peers
        assert peer["cut"] > 0 or {mark["name"] for mark in recorded.marks if ":" in mark["name"]} <= set(first)
        if peer["lost"] == 0 or SANITIZED:
            break
    if SANITIZED:
        return
    assert peer["lost"] == peer["cut"] == 0
    assert [mark["name"] for mark in recorded.marks[:4]] == first
    check_names(recorded.marks[4:])
    parts = [record for record in recorded.records if record["type"] == 8]
    assert sum(int(part["text"].split(":")[0]) for part in parts) == 1 << 20
    assert len({part["part"] for part in parts}) == 1 and parts[0]["part"] != 0
    assert [part["more"] for part in parts] == [1] * (len(parts) - 1) + [0]


@pytest.mark.parametrize("options", [["--silent"], ["--refuse", 1], ["--refuse", 6]])
def test_refused(run, options):
    recorded = run("refused", *options)
    assert sum(recorded.said.values()) == 0


def test_nobody_listens(tmp_path):
    for value in ("unix:/nonexistent", "unix-abstract:prof-nobody", "", "rubbish,token:1", "unix:" + "x" * 5000):
        done = subprocess.run(
            [ZOO, "refused"], env={**os.environ, "PROF_CONTROL": value}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@without_sanitizer
def test_filtered_from_the_beginning(run):
    recorded = run("seccomp-first")
    assert recorded.peers == []


def test_few_rings(run):
    recorded = run("many", "--no-growth", "--rings", 4)
    (peer,) = recorded.peers
    assert peer["no_ring"] == recorded.lost[peer["peer"]] > 0


def test_fork_without_ring(run):
    """A thread's failed attempts do not count for the process that it forks."""
    recorded = run("fork-without", "--no-growth", "--rings", 1)
    parent, child = recorded.peers
    assert recorded.said[parent["peer"]] == 1 and parent["no_ring"] == recorded.lost[parent["peer"]] == 10000
    assert recorded.said[child["peer"]] == child["marks"] == 100


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_engine_gone(tmp_path, number):
    """The program runs to its end although nobody reads, answers, or recycles rings."""
    results = tmp_path / "results"
    engine = subprocess.Popen(
        [STAND_IN, "--output", tmp_path / "output", "--rings", "2", "--bytes", "4096", "--lossless", "--", ZOO, "threads"],
        env={**os.environ, "ZOO_RESULTS": str(results)}, stdin=subprocess.DEVNULL,
    )
    try:
        children = Path(f"/proc/{engine.pid}/task/{engine.pid}/children")
        until(lambda: children.read_text().strip(), 20)
        until(lambda: any("prof-arena" in line for line in Path(f"/proc/{children.read_text().strip()}/maps").open()), 20)
        engine.send_signal(number)
        until(lambda: results.exists() and results.read_text().endswith("\n"), 60)
        _, true, false = map(int, results.read_text().split())
        assert true + false == 10000
    finally:
        engine.kill()
        engine.wait(timeout=20)


def test_connect(run):
    """The program calls prof_collector_connect() itself. The address is in ZOO_CONTROL, because the
    library would connect by PROF_CONTROL of the initial environment."""
    source = 'import os, subprocess, sys; control = os.environ.pop("PROF_CONTROL");' \
        "sys.exit(subprocess.call([sys.argv[1], 'connect'], env={**os.environ, 'ZOO_CONTROL': control}))"
    recorded = run([sys.executable, "-c", source, ZOO])
    assert [peer["marks"] for peer in recorded.peers] == [10]


def test_realtime(run, require):
    require("chrt", root=True)
    recorded = run("fifo", "--deaf", "--lossless", "--bytes", 4096)
    (peer,) = recorded.peers
    assert peer["waits"] == 0 and peer["lost"] > 0


def test_python(run, tmp_path):
    if SANITIZED:
        pytest.skip("a sanitizer's runtime is in the way")
    script = tmp_path / "marks.py"
    script.write_text(
        "import ctypes, sys\n"
        "prof = ctypes.CDLL(sys.argv[1])\n"
        "prof.prof_mark_instant.restype = prof.prof_mark_end.restype = ctypes.c_bool\n"
        "prof.prof_mark_new_id.restype = ctypes.c_uint64\n"
        "assert ctypes.c_uint32.in_dll(prof, 'prof_collector_state').value == 1\n"
        "assert prof.prof_mark_instant(b'python', 'π'.encode(), None, ctypes.c_size_t(0))\n"
        "id = ctypes.c_uint64(prof.prof_mark_new_id())\n"
        "prof.prof_mark_begin(id, b'python', b'span', None, ctypes.c_size_t(0))\n"
        "prof.prof_mark_end(id, b'python', b'span', None, ctypes.c_size_t(0))\n"
    )
    recorded = run([sys.executable, script, LIBRARY], "--records")
    assert [(mark["group"], mark["name"], mark["kind"]) for mark in recorded.marks] == [
        ("python", "π", 0), ("python", "span", 1), ("python", "span", 2),
    ]


# ---- <prof/mark.h> ----

PROGRAM = """
#include <prof/mark.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
static int evaluated;
__attribute__((unused)) static const char *key(void) { evaluated++; return "k"; }
int other(void);
int main(int argc, char **argv)
{
    uint32_t counter = prof_define("front", "bytes", "bytes", 0);
    uint64_t id = prof_new_id();
    (void)counter; (void)id;
    {
        prof_scope("front", "scope");
        (void)prof_instant("front", "instant");
        (void)prof_instant_with("front", "with", PROF_TEXT("key", key()), PROF_S64("n", -1), PROF_U64("u", 1),
                                PROF_DOUBLE("d", 1.5), PROF_ADDRESS("a", argv));
    }
    (void)prof_begin(id, "front", "pair");
    (void)prof_end_with(id, "front", "pair", PROF_U64("n", 2));
    (void)prof_set(counter, 5); (void)prof_add(counter, 1);
    (void)prof_message(6, "front", "text");
    (void)prof_name_thread("front");
    {
        static const char code[64] = "";
        const void *pcs[] = { code + 1, (const void *)(uintptr_t)&other };
        errno = 77;
        (void)prof_code_load(code, 32, "code"); (void)prof_code_move(code, code + 32); (void)prof_code_unload(code + 32);
        (void)prof_instant_from(pcs, 2, PROF_STACK_RETURNS, "stack", "instant");
        (void)prof_begin_from(pcs, 2, PROF_STACK_EXACT, id, "stack", "begin");
        (void)prof_complete_from(pcs, 2, PROF_STACK_INTERRUPTED, prof_now(), "stack", "complete");
        (void)prof_message_from(pcs, 1, PROF_STACK_EXACT, 6, "stack", "text");
        if (errno != 77) return 1;
    }
    printf("%d %d %d\\n", prof_enabled(), evaluated, other());
    return 0;
}
"""
OTHER = "#include <prof/mark.h>\nint other(void);\nint other(void) { return prof_instant(\"front\", \"other\"); }\n"
CPP_OTHER = '#include <prof/mark.h>\nint other(void); int other(void) { prof_scope("front", "other"); return prof_enabled(); }\n'


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    def compile_program(*flags, compiler="gcc", suffix="c", other=OTHER):
        folder = tmp_path_factory.mktemp("front")
        (folder / f"main.{suffix}").write_text(PROGRAM)
        (folder / f"other.{suffix}").write_text(other)
        subprocess.run(
            [compiler, "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-O1", "-I", INCLUDE, "-o", folder / "program",
             folder / f"main.{suffix}", folder / f"other.{suffix}", *flags],
            check=True, timeout=120,
        )
        return folder / "program"

    return compile_program


FRONT_MARKS = {("instant", 0), ("with", 0), ("scope", 3), ("pair", 1), ("pair", 2)}


def start(run_, program, *options):
    """Runs a program with the checks of run(), and keeps its output."""
    script = f'"{program}" > "$ZOO_RESULTS.out"'
    recorded = run_(["sh", "-c", script], *options)
    return recorded


@without_sanitizer
@pytest.mark.parametrize("flags", [["-fPIE", "-pie"], ["-no-pie", "-fno-pie"], ["-std=c11", "-pedantic"]])
def test_front(run, build, tmp_path, flags):
    program = build(*flags)
    recorded = start(run, program)
    assert (tmp_path / "results.out").read_text() == "1 1 1\n"
    assert sum(peer["marks"] for peer in recorded.peers) == 6
    recorded = start(run, program, "--records")
    assert {(mark["name"], mark["kind"]) for mark in recorded.marks} == FRONT_MARKS | {("other", 0)}
    types = collections.Counter(record["type"] for record in recorded.records)
    assert (types[12], types[13], types[14], types[4]) == (3, 3, 1, 4) and types[3] >= 1


@without_sanitizer
@pytest.mark.parametrize("compiler,standard", [("g++", "c++11"), ("g++", "c++20"), ("clang++-14", "c++17")])
def test_front_cpp(run, build, tmp_path, require, compiler, standard):
    require(compiler)
    recorded = start(run, build(f"-std={standard}", compiler=compiler, suffix="cc", other=CPP_OTHER), "--records")
    assert (tmp_path / "results.out").read_text() == "1 1 1\n"
    assert {(mark["name"], mark["kind"]) for mark in recorded.marks} == FRONT_MARKS | {("other", 3)}


def test_front_without_collector(build):
    """A program without the collector links nothing, records nothing, and does not evaluate
    arguments."""
    program = build()
    needed = subprocess.run(["readelf", "-d", program], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    assert "profcollector" not in needed
    environment = {name: value for name, value in os.environ.items() if name not in ("PROF_CONTROL", "PROF_LIB_DIR", "LD_LIBRARY_PATH")}
    for more in ({}, {"PROF_CONTROL": "unix:/nonexistent"}):
        done = subprocess.run([program], env={**environment, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"0 0 0\n", b"")


# A collector of an older version, in the program itself: its table ends after `bytes` bytes, and
# thus lacks the later functions.
OLDER = """
#include <prof/mark.h>
#include <stdio.h>
static uint32_t state = 1;
static int n_calls;
static bool instant(const char *group, const char *name, const struct prof_arg *args, size_t n)
{
    n_calls++;
    return group && name && (args != NULL) == (n > 0);
}
static uint64_t new_id(void) { n_calls++; return 7; }
static uint64_t now(void) { n_calls++; return 8; }
static uint32_t define(const char *group, const char *name, const char *unit, uint32_t flags)
{
    n_calls++;
    return group && name && unit && !flags ? 9 : 0;
}
#define NONE ((void *)1)
const struct prof_collector_table prof_collector_table = {
    BYTES, &state, instant, new_id, NONE, NONE, NONE, now, define, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE,
};
int main(void)
{
    const void *pcs[] = { "" };
    int old = prof_instant("a", "b") + prof_instant_with("a", "b", PROF_S64("c", 1)) + (prof_new_id() == 7) + (prof_now() == 8)
              + (prof_define("a", "b", "c", 0) == 9);
    int later = prof_set(1, 2) + prof_instant_from(pcs, 1, PROF_STACK_EXACT, "a", "b") + prof_code_load(pcs, 8, "a") + prof_code_unload(pcs);
    printf("%d %d %d %d\\n", prof_enabled(), old, n_calls, later);
    return 0;
}
"""


@pytest.mark.parametrize("last,expected", [
    ("counter_define", b"1 5 5 0\n"), ("clock_ns", b"1 4 4 0\n"), ("mark_instant", b"1 2 2 0\n"), ("state", b"1 0 0 0\n"), ("bytes", b"0 0 0 0\n"),
])
def test_front_older_collector(tmp_path, last, expected):
    """Functions missing in a library's table are not called; existing ones are."""
    size = f"(offsetof(struct prof_collector_table, {last}) + 8)"
    (tmp_path / "main.c").write_text(OLDER)
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-O1", "-rdynamic", f"-DBYTES={size}", "-I", INCLUDE, "-o", tmp_path / "program",
                    tmp_path / "main.c"], check=True, timeout=120)
    assert subprocess.run([tmp_path / "program"], stdout=subprocess.PIPE, check=True, timeout=60).stdout == expected


def test_front_disabled(build):
    program = build("-DPROF_DISABLE")
    listed = subprocess.run(["nm", program], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    assert "prof_" not in listed
    assert subprocess.run([program], stdout=subprocess.PIPE, check=True).stdout == b"0 0 0\n"
