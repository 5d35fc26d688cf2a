# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Programs that record blocks of their own code (prof_recorder_open): the content of the file, and
the effects on the program.

The program is tests/tools/record-self.c, which performs the given steps and prints the result of
each call.
"""
import bisect
import collections
import os
import select
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

import buses
from buses import DAEMON
from captures import rows
from recordings import children, processes, until

pytestmark = pytest.mark.usefixtures("nothing_is_left")
SELF = os.environ["RECORD_SELF"]
SANITIZED = b"__asan_init" in Path(SELF).read_bytes() or b"__tsan_init" in Path(SELF).read_bytes()
NO_PROFCTL, NOT_PERMITTED, NO_DAEMON, UNREADABLE, FAILED, NO_COLLECTOR, RECORDED = "1234567"
OPEN, NOT_OPEN, NO_BLOCK, TOO_MANY, PAUSED, ENDED = "8", "9", "10", "11", "12", "13"


def lines_of(output):
    return [tuple(line.partition(" ")[::2]) for line in output.splitlines()]


@pytest.fixture
def run():
    """Returns a function that runs record-self with these steps, by default with a private profd,
    and returns the lines that it prints, as (name, value)."""
    def start(*steps, prefix=(), check=0, bus="private", **options):
        command = [*map(str, prefix), SELF, f"bus={bus}", *map(str, steps)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, **options)
        assert (done.returncode, done.stderr) == (check, ""), done
        return lines_of(done.stdout)

    return start


@pytest.fixture
def waiting(spawn):
    """Returns a function that starts record-self, which stops at each "go": .lines() reads its
    lines up to that stop, .go() lets it continue."""
    def start(*steps, **options):
        process = spawn(SELF, "bus=private", *steps, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", **options)

        def read():
            lines = []
            while (line := process.stdout.readline()) not in ("", "ready\n"):
                lines.append(line.strip())
            return lines_of("\n".join(lines))

        def go():
            process.stdin.write("\n")
            process.stdin.flush()

        process.lines, process.go = read, go
        return process

    return start


def spans(profcapture, capture):
    """Returns (name, begin, end) of each block, from the rows of dump; the end is None if the block
    did not end."""
    found, open_ones = [], {}
    for mark in rows(profcapture, capture, "mark"):
        key = mark["id"], mark["name"]
        if mark["kind"] == "begin":
            open_ones[key] = mark["time_ns"]
        else:
            found.append((mark["name"], open_ones.pop(key), mark["time_ns"]))
    return found + [(name, begin, None) for (_, name), begin in open_ones.items()]


def samples(profcapture, capture):
    return [row["time_ns"] for row in rows(profcapture, capture, "sample")]


def state(profcapture, capture):
    return profcapture.json("info", capture)["capture"]["state"]


def functions(profcapture, capture, *options):
    return {row["name"]: row["total"] for row in profcapture.json("report", capture, *options)["data"]["rows"]}


# ---- the content of the file


def test_blocks(run, profcapture, capture):
    """The capture has samples of the blocks and no others, and readers have options for blocks."""
    lines = run("frequency=1999", "group=steps", f"open={capture}", "outside=30", "begin=first", "inside=60", "end=first", "outside=60",
                "begin=second", "inside=60", "begin=inner", "inside=10", "end=second", "inside=10", "end=inner", "outside=30", "close", "wait")
    assert [value for name, value in lines] == ["0"] * 8 + ["ECHILD"]
    assert state(profcapture, capture) == "finished"
    blocks = spans(profcapture, capture)
    assert [name for name, _, _ in blocks] == ["first", "second", "inner"]
    times = samples(profcapture, capture)
    assert len(times) > 5
    assert all(any(begin <= t <= end for _, begin, end in blocks) for t in times)
    found = functions(profcapture, capture)
    assert "outside" not in found and found["inside"] > 5
    marks = profcapture.json("marks", capture)["data"]["rows"]
    assert {(row["group"], row["name"], row["count"], row["unmatched_begin"]) for row in marks} == {
        ("steps", "first", 1, 0), ("steps", "second", 1, 0), ("steps", "inner", 1, 0),
    }
    for name, begin, end in blocks:
        n = sum(begin <= t <= end for t in times)
        assert n > 0
        for options in (["--from", f"@mark:{name}", "--to", f"@mark:{name}"], ["--per-mark", name]):
            assert profcapture.json("report", capture, *options)["data"]["self_total"] == n


def test_enabled_on_return(run, profcapture, capture):
    """Sampling has begun when begin returns; else blocks of a millisecond would have hardly any
    samples."""
    lines = dict(run(f"open={capture}", "blocks=200", "close"))
    assert lines["blocks"] == "0"
    blocks, times = spans(profcapture, capture), samples(profcapture, capture)
    assert len(blocks) == 200
    assert all(any(begin <= t <= end for _, begin, end in blocks) for t in times)
    # if the host takes the CPU, there are no samples meanwhile, and the blocks last longer
    assert int(lines["cpu"]) / 1e6 * 0.5 < len(times) < int(lines["cpu"]) / 1e6 * 1.5 + 20


def test_edges(run, profcapture, capture):
    """Work between blocks is not in the file, and nothing of a block is missing, not even its
    beginning."""
    lines = dict(run("frequency=2999", f"open={capture}", "blocks=600", "close"))
    assert lines["blocks"] == "0"
    blocks, times = spans(profcapture, capture), samples(profcapture, capture)
    assert "outside" not in functions(profcapture, capture)
    starts = [begin for _, begin, _ in blocks]
    since = [(t - starts[bisect.bisect(starts, t) - 1]) / 1e6 for t in times]
    tenths = collections.Counter(int(ms * 10) for ms in since)
    # begin() itself takes the first part of a block
    took = int(lines["took"]) / 1e5
    usual = statistics.median(sorted(tenths.values())[-8:])
    first = min(i for i in tenths if tenths[i] > usual / 4)
    assert usual > 20 and first <= 2 + 2 * took and all(tenths[i] > usual / 4 for i in range(first, first + 8)), (took, tenths)
    # samples that the kernel reports as missed are not in the file
    missed = sum(row["count"] for row in profcapture.json("info", capture)["data"]["loss"] if row["cause"] == "ticks-missed")
    assert len(times) + missed > 0.7 * int(lines["cpu"]) * 2999e-9, (len(times), missed)


def test_rare_blocks(run, profcapture, capture):
    """However rare the blocks are, nothing of a block is missing, and nothing from outside is
    included."""
    steps = [step for i, ms in enumerate((350, 1100, 2500, 50)) for step in ("outside=20", f"begin=b{i}", "inside=50", f"end=b{i}", f"sleep={ms}")]
    lines = run("frequency=1999", f"open={capture}", *steps, "begin=at once", "end=at once", "begin=last", "inside=50", "end=last", "outside=20", "close")
    assert {value for _, value in lines} == {"0"}
    found = functions(profcapture, capture)
    assert "outside" not in found and found["inside"] > 50
    for name in ("b0", "b3", "last"):
        assert functions(profcapture, capture, "--per-mark", name)["inside"] > 8


def test_endless_blocks(run, profcapture, capture):
    """Many blocks directly follow each other."""
    lines = dict(run(f"open={capture}", "begin=", "inside=1", "end=", "short=20000", "close"))
    assert (lines["short"], lines["close"]) == ("0", "0")
    assert len(spans(profcapture, capture)) == 20001
    assert state(profcapture, capture) == "finished"


def test_library_loaded_between(run, profcapture, capture, tmp_path):
    """Code mapped while sampling is off has names in later blocks."""
    source = tmp_path / "late.c"
    source.write_text("#include <time.h>\nvoid work(int ms);\nvolatile int late_sink;\nvoid work(int ms) {\n"
                      "struct timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a);\n"
                      "do { for (int i = 0; i < 100000; i++) late_sink += i; clock_gettime(CLOCK_MONOTONIC, &b); }\n"
                      "while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms); }\n")
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", tmp_path / "late.so", source], check=True)
    run(f"open={capture}", "begin=a", "inside=20", "end=a", f"load={tmp_path}/late.so", "begin=b", f"load={tmp_path}/late.so", "end=b",
        "close")
    assert functions(profcapture, capture, "--per-mark", "b")["work"] > 0
    assert "work" not in functions(profcapture, capture, "--per-mark", "a")


def test_append(run, profcapture, capture):
    """The same program or another one can append to a capture, but only if it requests that."""
    block = ["begin=run", "inside=30", "end=run", "close"]
    assert ("open", "0") in run("append=1", f"open={capture}", *block, f"open={capture}", *block)
    assert run(f"open={capture}")[0] == ("open", str(-17))
    run("append=1", f"open={capture}", *block)
    assert state(profcapture, capture) == "finished"
    assert profcapture.json("info", capture)["data"]["segments"] == 3
    assert profcapture.json("marks", capture)["data"]["rows"][0]["count"] == 3
    assert functions(profcapture, capture, "--per-mark", "run")["inside"] > 0


def test_threads(run, profcapture, capture):
    """Blocks of one name may overlap in several threads: each block counts, and sampling continues
    until the last block has ended."""
    assert dict(run(f"open={capture}", "threads=4", "close")) == {"open": "0", "threads": "0", "close": "0"}
    row, = profcapture.json("marks", capture)["data"]["rows"]
    assert (row["count"], row["unmatched_begin"], row["unmatched_end"]) == (80, 0, 0)
    blocks = spans(profcapture, capture)
    assert all(any(begin <= t <= end for _, begin, end in blocks) for t in samples(profcapture, capture))


# ---- effects on the program


@pytest.mark.parametrize("how", [[], ["ignore"], ["subreaper"], ["mask"]], ids=lambda how: how[0] if how else "plain")
def test_wait(run, capture, how):
    lines = dict(run(*how, f"open={capture}", "wait", "reap", "begin=", "end=", "wait", "close", "wait", "reap", "chld"))
    assert lines == {"open": "0", "wait": "ECHILD", "reap": "0", "begin": "0", "end": "0", "close": "0", "chld": "0"}


def test_inherited(waiting, capture):
    """profctl inherits no descriptor, signal setting, session or variable from the program."""
    reading, writing = os.pipe()
    environment = {**os.environ, "LD_AUDIT": "", "PROF_CONTROL": "unix:/nonexistent", "NOTIFY_SOCKET": "x"}
    program = waiting("mask", f"open={capture}", "go", "close", pass_fds=[writing], env=environment)
    assert program.lines() == [("open", "0")]
    pid, = processes("profctl")
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert int(status["SigBlk"], 16) == 0
    # profctl ignores these signals itself, and no others
    assert int(status["SigIgn"], 16) == sum(1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert os.getsid(pid) == pid
    links = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    assert os.readlink(f"/proc/self/fd/{writing}") not in links
    assert [os.readlink(f"/proc/{pid}/fd/{i}") for i in range(3)] == ["/dev/null"] * 3
    names = {entry.partition(b"=")[0] for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
    assert b"PATH" in names and not names & {b"LD_AUDIT", b"PROF_CONTROL", b"NOTIFY_SOCKET"}
    assert not children(program.pid)
    os.close(reading)
    os.close(writing)
    program.go()
    assert program.lines() == [("close", "0")] and program.wait(20) == 0


def test_fork(run, profcapture, capture):
    """A child has no recorder, however it was created, and the parent's recorder continues."""
    lines = run(f"open={capture}", "begin=", "fork=end=", "clone=begin=", "fork=close", "vfork", "fork=sockets", "inside=20", "end=", "close",
                "sockets")
    assert [value for name, value in lines if name != "message"] == ["0", "0", NOT_OPEN, NOT_OPEN, NOT_OPEN, NOT_OPEN, "0", "0", "0", "0"]
    assert [name for name, _, end in spans(profcapture, capture) if end] == ["block"]
    assert state(profcapture, capture) == "finished"


def test_fork_opens_its_own(run, profcapture, capture, tmp_path):
    """A child can open its own recorder, but not while its parent's is open, because the parent's
    recorder records the child, too."""
    step = f"fork=open={tmp_path}/child.cap"
    lines = run(f"open={capture}", step, "begin=", "end=", "close", step)
    assert [value for name, value in lines if name != "message"] == ["0", RECORDED, "0", "0", "0", "0"]
    until(lambda: not processes("profctl"))
    assert state(profcapture, tmp_path / "child.cap") == "finished"


# ---- ends


@pytest.mark.parametrize("how", ["killed", "exits", "exec", "fork", "clone"])
def test_program_that_ends(waiting, profcapture, capture, how):
    """The program ends without close. A child that continues does not prolong the recording."""
    last = {"exec": ["exec"], "fork": ["fork=go"], "clone": ["clone=go"]}.get(how, [])
    program = waiting(f"open={capture}", "begin=last", "inside=50", "go", *last)
    assert program.lines() == [("open", "0"), ("begin", "0")]
    program.go()
    if how in ("fork", "clone"):
        assert program.lines() == []
        program.kill()
    elif how == "killed":
        program.kill()
    program.wait(20)
    until(lambda: not processes("profctl"))
    assert state(profcapture, capture) == "finished"
    (name, _, end), = spans(profcapture, capture)
    assert (name, end) == ("last", None)
    assert functions(profcapture, capture, "--from", "@mark:last")["inside"] > 0


@pytest.mark.parametrize("victim", ["profctl", "profd", "profd-engine"])
def test_killed_under_it(waiting, profcapture, capture, victim):
    """If profctl, profd or the engine is killed, begin soon reports this, and the program
    continues. If it was profctl, the file is finished and has the samples so far."""
    program = waiting(f"open={capture}", "begin=a", "inside=30", "end=a", "go", "begin=b", "end=b", "inside=1", "close", "wait", "chld")
    assert {value for _, value in program.lines()} == {"0"}
    pid, = processes(victim)
    engine, = processes("profd-engine")
    gone = os.pidfd_open(engine)  # an exiting process loses its memory, which /proc needs, before its descriptors
    os.kill(pid, signal.SIGKILL)
    assert select.select([gone], [], [], 10)[0]
    os.close(gone)
    began = time.monotonic()
    program.go()
    lines = dict(program.lines())
    assert time.monotonic() - began < 5
    assert (lines["begin"], lines["end"], lines["wait"], lines["chld"]) == (ENDED, NO_BLOCK, "ECHILD", "0")
    assert lines["close"] == FAILED and program.wait(20) == 0
    until(lambda: not processes("profctl"))
    if victim == "profctl":
        assert state(profcapture, capture) == "finished" and samples(profcapture, capture)


def test_engine_that_is_stopped(waiting, capture):
    """A stopped engine cannot answer, and begin waits for it only a short time."""
    program = waiting(f"open={capture}", "go", "begin=a", "go", "begin=b", "inside=20", "end=b", "close")
    program.lines()
    pid, = processes("profd-engine")
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    program.go()
    assert program.lines() == [("begin", str(-110))]
    assert 0.9 < time.monotonic() - began < 4
    os.kill(pid, signal.SIGCONT)
    program.go()
    assert program.lines() == [("begin", "0"), ("end", "0"), ("close", "0")]


# ---- refusals


def test_refused(run, capture, tmp_path):
    assert run("begin=", "end=", "close")[:2] == [("begin", NOT_OPEN), ("end", NOT_OPEN)]
    lines = run(f"open={capture}", f"open={tmp_path}/other.cap", "end=", "begin=a", "end=b", "end=a", "end=a", "close", "close")
    assert [value for name, value in lines if name != "message"] == ["0", OPEN, NO_BLOCK, "0", NO_BLOCK, "0", NO_BLOCK, "0", NOT_OPEN]
    assert not (tmp_path / "other.cap").exists()
    lines = run(f"open={tmp_path}/many.cap", *["begin="] * 65, "close")
    assert [value for _, value in lines] == ["0"] * 65 + [TOO_MANY, "0"]


@pytest.mark.parametrize("steps,status,said", [
    (["profctl=/nonexistent", "open={}"], NO_PROFCTL, ""),
    (["profctl=/bin/false", "open={}"], FAILED, ""),
    (["open={}/not/there"], FAILED, "not/there"),
    (["open=-"], "-22", ""),
    (["append=2", "open={}"], "-22", ""),
    (["bus=system", "open={}"], NO_DAEMON, "no system bus"),
    (["bus=nowhere", "open={}"], FAILED, ""),
    (["frequency=4000000000", "open={}"], FAILED, "perf_event_max_sample_rate"),
    (["append=1", "open=/dev/null"], FAILED, "not a regular file"),
])
def test_open_says_why(run, capture, steps, status, said):
    lines = run(*[step.format(capture) for step in steps])
    assert lines[0] == ("open", status) and said in lines[1][1]
    until(lambda: not processes("profctl"))
    assert not capture.exists()


def test_no_capture(run, capture):
    capture.write_text("x" * 10000)
    assert run("append=1", f"open={capture}")[0] == ("open", UNREADABLE)


def test_recorded_by_somebody_else(profctl, profcapture, tmp_path):
    done = profctl("record", "-o", tmp_path / "outer.cap", "--no-symbols", "--", SELF, "bus=private", f"open={tmp_path}/inner.cap", "begin=")
    assert lines_of(done.stdout) == [("open", RECORDED), ("message", ""), ("begin", NOT_OPEN)]


# ---- rights


@pytest.fixture
def as_nobody(tmp_path, require):
    require(root=True)
    command = list(map(str, [sys.executable, Path(__file__).with_name("as_user.py")]))
    if subprocess.run([*command, SELF, "chld"], capture_output=True, check=False).returncode:
        pytest.skip("nobody cannot run the programs of this build tree")
    tmp_path.chmod(0o777)
    for folder in [*tmp_path.parents][:2]:
        folder.chmod(0o755)
    return command


def test_plain_user(run, as_nobody, profcapture, capture):
    lines = run(f"open={capture}", "begin=a", "inside=60", "end=a", "outside=60", "blocks=5", "threads=3", "close", "wait",
                prefix=[*as_nobody, "--refuse", "cpu"])
    assert {value for _, value in lines if value != "ECHILD" and int(value) < 1000} == {"0"}
    blocks, times = spans(profcapture, capture), samples(profcapture, capture)
    assert len(blocks) == 66 and len(times) > 0
    assert all(any(begin <= t <= end for _, begin, end in blocks) for t in times)
    assert "outside" not in functions(profcapture, capture)


def test_not_permitted(run, as_nobody, capture):
    (_, status), (_, said) = run(f"open={capture}", prefix=[*as_nobody, "--refuse", "all"])
    assert status == NOT_PERMITTED and "perf_event_paranoid" in said


def test_by_the_service(bus, run, as_nobody, profcapture):
    """The system's profd records for a user who may record own processes; a pause of the session by
    another client remains in force."""
    bus.start(buses.rules(allow={"record-own": ["daemon"]}))
    folder = bus.folder / "captures"
    folder.mkdir()
    folder.chmod(0o777)
    user = {"user": DAEMON, "group": DAEMON, "extra_groups": []}
    process = subprocess.Popen([SELF, "bus=system", f"open={folder}/test.cap", "begin=a", "inside=60", "end=a", "go", "begin=b", "go", "begin=c",
                                "inside=60", "end=c", "close"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
                               env={**os.environ, **bus.env}, cwd="/", **user)
    try:
        lines = [process.stdout.readline() for _ in range(4)]
        assert lines == ["open 0\n", "begin 0\n", "end 0\n", "ready\n"]
        client = bus.client(DAEMON)
        path, = client.objects()
        client.session(path, "Pause")
        process.stdin.write("\n")
        process.stdin.flush()
        assert [process.stdout.readline() for _ in range(2)] == [f"begin {PAUSED}\n", "ready\n"]
        client.session(path, "Resume")
        rest, _ = process.communicate("\n", timeout=60)
        assert rest == "begin 0\nend 0\nclose 0\n"
    finally:
        process.kill()
        process.wait(20)
    assert state(profcapture, folder / "test.cap") == "finished"
    assert functions(profcapture, folder / "test.cap", "--per-mark", "c")["inside"] > 0


# ---- other languages


def test_python(profcapture, capture):
    if SANITIZED:
        pytest.skip("a sanitizer's runtime is in the way")
    script = (
        "import ctypes, os, sys\n"
        "prof = ctypes.CDLL(sys.argv[1])\n"
        "prof.prof_recorder_error.restype = ctypes.c_char_p\n"
        "class Options(ctypes.Structure):\n"
        "    _fields_ = [('frequency', ctypes.c_uint32), ('append', ctypes.c_uint32)] + [\n"
        "        (name, ctypes.c_char_p) for name in ('call_graph', 'events', 'group', 'profctl', 'bus')] + [('reserved', ctypes.c_uint64 * 4)]\n"
        "def check(status):\n"
        "    assert status == 0, prof.prof_recorder_error(status)\n"
        "def fib(n):\n"
        "    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "check(prof.prof_recorder_open(os.fsencode(sys.argv[2]), ctypes.byref(Options(frequency=1999, group=b'python', bus=b'private'))))\n"
        "for _ in range(3):\n"
        "    check(prof.prof_recorder_begin('π'.encode()))\n"
        "    fib(19)\n"
        "    check(prof.prof_recorder_end('π'.encode()))\n"
        "check(prof.prof_recorder_close())\n"
        "assert prof.prof_recorder_error(9) == b'no recorder is open in this process'\n"
    )
    done = subprocess.run(["/usr/bin/python3", "-c", script, os.environ["LIBPROFCOLLECTOR"], capture], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    row, = profcapture.json("marks", capture)["data"]["rows"]
    assert (row["group"], row["name"], row["count"]) == ("python", "π", 3)
    assert profcapture.json("report", capture, "--per-mark", "π")["data"]["self_total"] > 0
