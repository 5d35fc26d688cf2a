# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Function probes and static probes (USDT), compared with programs that count and measure their own
calls; and probes that are refused."""
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import schema

from captures import rows
from recordings import recorded, until

pytestmark = pytest.mark.usefixtures("nothing_is_left")

ROOT = Path(os.environ["PROF_SOURCE_DIR"])
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"]
x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86_64")


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)
    if not Path("/sys/bus/event_source/devices/uprobe").exists():
        pytest.skip("this kernel has no uprobes")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("probes") / "probed"
    subprocess.run(["gcc", "-O2", "-g", "-I", ROOT, ROOT / "tests/tools/probed.c", "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def argued(tmp_path_factory):
    path = tmp_path_factory.mktemp("arguments") / "argued"
    subprocess.run(["gcc", "-O2", "-I", ROOT, ROOT / "tests/tools/argued.c", "-o", path], check=True)
    return path


def events(profcapture, capture, *options):
    found = profcapture.json("events", capture, "--limit", 0, *options)
    schema.check(profcapture, "events", found)
    return {row["event"].rsplit("/", 1)[-1].partition(":")[2]: row for row in found["data"]["rows"]}


def measured(stdout):
    """Returns the numbers that the program counted and measured: {name: (count, ns)}."""
    lines = [line.split() for line in stdout.splitlines() if line.count(" ") == 2]
    return {name: (int(count), int(ns)) for name, count, ns in lines if count.isdigit()}


def record(profctl, program, capture, *names):
    done = profctl("record", "-q", "--no-off-cpu", "-e", ",".join(names), "-o", capture, "--", program)
    return measured(done.stdout)


def test_functions(profctl, profcapture, program, capture):
    """Counts are exact, and times are at most those that the program measured."""
    own = record(profctl, program, capture, *(f"probed:{name}{kind}" for name in
                 ("probed_add", "probed_nap", "probed_deep") for kind in ("", "%return")))
    found = events(profcapture, capture)
    for name in "probed_add", "probed_nap", "probed_deep":
        row, back = found[name], found[name + "%return"]
        assert row["count"] == row["intervals"] == back["count"] == own[name][0], name
        assert (row["unmatched_begin"], row["unmatched_end"]) == (0, 0)
    nap, own_ns = found["probed_nap"], own["probed_nap"][1]
    assert 20 * 2e6 <= nap["total_ns"] <= own_ns and 2e6 <= nap["min_ns"] <= nap["median_ns"]
    # nested calls: each of the four outer ones takes 1 ms longer than the one it calls
    deep = found["probed_deep"]
    assert deep["min_ns"] + 4e6 <= deep["max_ns"] <= own["probed_deep"][1] and deep["min_ns"] >= 1e6
    sources = {row["name"]: row for row in rows(profcapture, capture, "source")}
    assert sources[f"{program}:probed_nap"]["kind"] == "probe" and sources[f"{program}:probed_nap"]["unit"] == "events"


def test_stacks(profctl, profcapture, program, capture):
    """Samples of a probe have stacks. The recording may have to be repeated, because on a busy
    machine a short program may end before its unwind tables are read."""
    for attempt in range(4):
        record(profctl, program, capture.with_name(f"{attempt}.cap"), "probed:probed_deep")
        report = profcapture.json("report", capture.with_name(f"{attempt}.cap"), "--event", f"{program}:probed_deep",
                                  "--limit", 0)["data"]
        by_name = {row["name"]: row for row in report["rows"]}
        if "main" in by_name and by_name["main"]["total"] == 5:
            break
    assert by_name["probed_deep"]["self"] == by_name["probed_deep"]["total"] == by_name["main"]["total"] == 5


FORKING = """\
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) void hit(void) { __asm__ volatile(""); }
static void *run(void *data) { hit(); return data; }
int main(void)
{
	int status;
	pthread_t thread;
	pid_t pid;

	hit();
	if (pthread_create(&thread, NULL, run, NULL))
		return 2;
	pthread_join(thread, NULL);
	pid = fork();
	if (pid == 0) {
		hit();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 3;
	nanosleep(&(struct timespec){ .tv_nsec = 300000000 }, NULL);
	return 0;
}
"""


def test_children(profctl, profcapture, capture, tmp_path):
    """Calls in the threads and child processes of a probed program count."""
    (tmp_path / "forking.c").write_text(FORKING)
    subprocess.run(["gcc", "-O1", "-pthread", tmp_path / "forking.c", "-o", tmp_path / "forking"], check=True)
    profctl("record", "-q", "--no-off-cpu", "-e", f"{tmp_path}/forking:hit", "-o", capture, "--", tmp_path / "forking")
    assert events(profcapture, capture)["hit"]["count"] == 3


@pytest.fixture
def callers(spawn):
    """Two processes that call getpgid() all the time."""
    code = "import ctypes, time; c = ctypes.CDLL(None); c.getpgid(0); print(flush=True)\nwhile True: c.getpgid(0); time.sleep(0.001)"
    processes = [spawn(sys.executable, "-S", "-c", code, stdout=subprocess.PIPE) for _ in range(2)]
    assert all(process.stdout.read(1) for process in processes)
    yield processes
    assert all(process.poll() is None for process in processes)


@pytest.mark.usefixtures("callers")
def test_library(profctl, profcapture, capture):
    """A library is found by its name, and probed only in the command's processes. 321 calls within
    a millisecond may fill a ring; calls that do not fit are counted as lost."""
    code = "import ctypes; c = ctypes.CDLL(None)\nfor i in range(321): c.getpgid(i)"
    lost = recorded(profctl, "--no-off-cpu", "-e", "libc.so.6:getpgid", "-o", capture, "--", sys.executable, "-S", "-c", code)["lost"]
    count = events(profcapture, capture)["getpgid"]["count"]
    # while the ring is full, calls by the other processes count as lost, too
    assert 100 < count <= 321 <= count + lost


def test_pid(profctl, profcapture, capture, callers):
    """With --pid, a library is probed only in that process."""
    profctl("record", "-q", "--no-off-cpu", "-e", "libc.so.6:getpgid", "-o", capture, "-p", callers[0].pid, "-d", 1)
    found = profcapture.json("sql", capture, "SELECT pid, count(*) AS n FROM samples GROUP BY pid")["data"]["rows"]
    assert [row["pid"] for row in found] == [callers[0].pid] and found[0]["n"] > 10


def test_static_probes(profctl, profcapture, program, capture):
    """Two places of one probe are one event. A probe with a semaphore is executed only while it is
    recorded."""
    own = record(profctl, program, capture, "demo:work", f"{program}:demo:guarded")
    found = events(profcapture, capture)
    assert found["demo:work"]["count"] == own["work"][0] == 300
    assert found["demo:guarded"]["count"] == own["guarded"][0] == 200
    assert measured(subprocess.run([program], capture_output=True, text=True, check=True).stdout)["guarded"][0] == 0


def passed(stdout):
    """Returns the arguments that the program passed: {name: [[argument, …], …]}. None: an
    argument that no sample has."""
    calls = {}
    for line in stdout.splitlines():
        name, *values = line.split()
        calls.setdefault(name, []).append([None if value == "?" else float(value) if "." in value or "e" in value else int(value)
                                           for value in values])
    return calls


def arguments(profcapture, capture):
    """Returns the recorded arguments: {name: [({argument: value}, [reason, …]), …]}."""
    query = "SELECT source, fields, texts FROM sample ORDER BY time_ns"
    names = {row["id"]: row["name"] for row in rows(profcapture, capture, "source")}
    found = {}
    for row in profcapture.json("sql", capture, query, "--limit", 0)["data"]["rows"]:
        found.setdefault(names[row["source"]].rpartition(":")[2], []).append(row)
    return found


@pytest.mark.parametrize("call_graph", ["dwarf", "fp"])
def test_arguments(profctl, profcapture, argued, capture, call_graph):
    """Arguments have the values that the program passed. Each missing value has a reason."""
    names = ["registers", "likes", "stack", "constants", "unread", "below"]
    done = profctl("record", "-q", "--no-off-cpu", "--call-graph", call_graph, "-e", ",".join(f"{argued}:demo:{name}" for name in names),
                   "-o", capture, "--", argued)
    found, own = arguments(profcapture, capture), passed(done.stdout)
    assert sorted(own) == sorted(names)
    for name in names:
        fields = [json.loads(row["fields"]) for row in found[name]]
        assert [list(row.values()) for row in fields] == own[name], name
        assert {tuple(row) for row in fields} == {tuple(f"arg{i + 1}" for i in range(len(own[name][0])))}
    for row in rows(profcapture, capture, "sample"):
        assert [bool(text and text.startswith("not read: ")) for text in row["texts"]] == [value is None for value in row["values"]]
    # arguments that were never or not always read, and a floating-point one
    by = {name: profcapture.json("events", capture, "--by", field, "--event", f"{argued}:demo:{name}") for name, field in
          {"unread": "arg1", "constants": "arg4", "stack": "arg6"}.items()}
    for found in by.values():
        schema.check(profcapture, "events", found)
    assert [(row["value"], row["count"]) for row in by["unread"]["data"]["rows"]] == [(None, 40)]
    assert {(row["value"], row["count"]) for row in by["constants"]["data"]["rows"]} == {(None, 20), (-1234567890123, 20)}
    assert {row["value"] for row in by["stack"]["data"]["rows"]} == {call[5] for call in own["stack"]}
    text = profcapture("events", capture, "--by", "arg1", "--event", f"{argued}:demo:unread").stdout
    assert "arg1=? (not read: it is in memory outside the copied stack)" in text
    sources = {row["name"].rpartition(":")[2]: row for row in rows(profcapture, capture, "source")}
    assert sources["registers"]["field_types"] == ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
    assert sources["stack"]["field_kinds"] == ["s64", "u64", "s64", "u64", "double", "double", "s64"]
    assert sources["constants"]["field_types"] == ["s64", "u32", "u8", "s64"]


BURST = """#include "tests/tools/static-probe.h"
int main(void)
{
	for (int i = 0; i < 2000; i++)
		STATIC_PROBE("nop", "hit", "0", "-4@%0", "r"(i));
}
"""


def test_burst_of_arguments(profctl, capture, tmp_path):
    """The ring has room for a burst of samples with the part of the stack that has arguments."""
    (tmp_path / "burst.c").write_text(BURST)
    subprocess.run(["gcc", "-O1", "-I", ROOT, tmp_path / "burst.c", "-o", tmp_path / "burst"], check=True)
    found = recorded(profctl, "--no-off-cpu", "--call-graph", "fp", "-e", f"{tmp_path}/burst:demo:hit", "-o", capture, "--", tmp_path / "burst")
    assert (found["samples"], found["lost"]) == (2000, 0)


def test_with_tracepoint(profctl, profcapture, argued, capture):
    """If both are recorded, samples of a tracepoint have its raw fields, and samples of a static
    probe have the probe's arguments."""
    done = profctl("record", "-q", "-e", f"sched:sched_process_exec,{argued}:demo:registers,cpu-clock", "-o", capture, "--", argued)
    found = arguments(profcapture, capture)
    assert [list(json.loads(row["fields"]).values()) for row in found["registers"]] == passed(done.stdout)["registers"]
    assert [json.loads(row["fields"])["filename"] for row in found["sched_process_exec"]] == [str(argued)]


def test_filters(profctl, profcapture, argued, capture):
    """A filter keeps an event if the condition is true, or depends on an unknown argument."""
    filters = {"registers": "arg5>0 && arg6<=2147483648", "likes": "arg8>9223372036854775807 || !(arg3 < -0x10)",
               "constants": "arg2<21 && arg4<0", "stack": "arg6<0", "unread": "arg3==4", "below": "arg1==1"}
    names = [f"{argued}:demo:{name}/{text}/" for name, text in filters.items()]
    done = profctl("record", "-q", "--no-off-cpu", *(option for name in names for option in ("-e", name)), "-o", capture, "--", argued)
    own, found = passed(done.stdout), arguments(profcapture, capture)
    wanted = {
        "registers": lambda a: a[4] > 0 and a[5] <= 2**31,
        "likes": lambda a: a[7] >= 2**63 or not a[2] < -16,
        "constants": lambda a: a[1] < 21,
        "stack": lambda a: a[5] < 0,
        "below": lambda a: True,
    }
    values = {}
    for name, calls in found.items():
        for row in calls:
            values.setdefault(name.split("/")[0], []).append(list(json.loads(row["fields"]).values()))
    assert values == {name: [call for call in own[name] if keep(call)] for name, keep in wanted.items()}


def test_refused_filters(profctl, profcapture, argued, program, capture):
    assert 'at "arg9==1"' in refused(profctl, capture, f"{argued}:demo:registers/arg1>1 && arg9==1/", argued)
    assert 'at "pid==1"' in refused(profctl, capture, f"{argued}:demo:registers/pid==1/", argued)
    assert "this probe has none" in refused(profctl, capture, f"{program}:main/arg1==1/", program)
    assert "between two" in refused(profctl, capture, f"{argued}:demo:registers//", argued)
    # a name without its file
    profctl("record", "-q", "--no-off-cpu", "-e", "demo:below/arg2==4/,demo:stack/arg1==1000/", "-o", capture, "--", argued)
    assert {name: len(calls) for name, calls in arguments(profcapture, capture).items()} == {"below/arg2==4/": 40}


def test_python(profctl, profcapture, capture):
    """The static probes of the distribution's Python, if it has some, have arguments and times."""
    python = shutil.which("python3", path="/usr/bin")
    if not python or b"gc__start" not in Path(python).read_bytes():
        pytest.skip("this python3 has no static probes")
    code = ("import gc, time; gc.disable()\nfor i in range(51):\n a = [[] for _ in range(i)]; [b.append(b) for b in a]; del a; b = None\n"
            " print(i % 3, gc.collect(i % 3))\ntime.sleep(0.3)")
    done = profctl("record", "-q", "--no-off-cpu", "-e", "python:gc__start,python:gc__done", "-o", capture, "--", python, "-S", "-c", code)
    found = events(profcapture, capture)
    row = found["python:gc__start"]
    assert row["count"] >= 51 and row["count"] == row["intervals"] == found["python:gc__done"]["count"]
    called = [[int(number) for number in line.split()] for line in done.stdout.splitlines()]
    # Python collects before and after the program, too.
    for at, name in enumerate(["gc__start", "gc__done"]):
        values = [json.loads(row["fields"])["arg1"] for row in arguments(profcapture, capture)[name]]
        assert any(values[i:i + 51] == [call[at] for call in called] for i in range(len(values))), name
    by = profcapture.json("events", capture, "--by", "arg1", "--event", f"{Path(python).resolve()}:python:gc__start")["data"]["rows"]
    assert {row["value"] for row in by} == {0, 1, 2} and sum(row["count"] for row in by) == row["count"]
    # The probes of a start and of its end are paired by their names without the filters.
    done = profctl("record", "-q", "--no-off-cpu", "-e", "python:gc__start/arg1>=0/,python:gc__done/arg1>=0/", "-o",
                   capture.with_name("filtered.cap"), "--", python, "-S", "-c", code)
    rows_of = profcapture.json("events", capture.with_name("filtered.cap"))["data"]["rows"]
    assert [row["intervals"] for row in rows_of if "gc__start" in row["event"]] == [row["count"]]


def test_exceptions(profctl, profcapture, capture, tmp_path):
    """The static probes of the distribution's C++ library report the thrown object and its type."""
    source = tmp_path / "throws.cc"
    source.write_text("#include <cstdio>\n#include <typeinfo>\n#include <unistd.h>\nint main() {\n"
                      "for (int i = 0; i < 30; i++) try { if (i % 2) throw i; throw long(i); }\n"
                      "catch (const int &e) { printf(\"%zu %zu\\n\", (size_t)&e, (size_t)&typeid(int)); }\n"
                      "catch (const long &e) { printf(\"%zu %zu\\n\", (size_t)&e, (size_t)&typeid(long)); }\n"
                      "usleep(300000); }\n")
    subprocess.run(["g++", "-O1", source, "-o", tmp_path / "throws"], check=True)
    library = subprocess.run(["gcc", "-print-file-name=libstdc++.so.6"], capture_output=True, text=True, check=True).stdout.strip()
    if b"libstdcxx" not in Path(library).read_bytes():
        pytest.skip("this C++ library has no static probes")
    done = profctl("record", "-q", "--no-off-cpu", "-e", "libstdcxx:throw,libstdcxx:catch", "-o", capture, "--", tmp_path / "throws")
    thrown = [{f"arg{i + 1}": int(number) for i, number in enumerate(line.split())} for line in done.stdout.splitlines()]
    found = arguments(profcapture, capture)
    assert len(thrown) == 30
    assert [json.loads(row["fields"]) for row in found["throw"]] == thrown
    # The type of the catch may be in memory that no sample has.
    assert len(found["catch"]) == 30
    for row, expected in zip(found["catch"], thrown):
        values = json.loads(row["fields"])
        assert values == expected or (values == dict(expected, arg2=None) and "outside the copied stack" in json.loads(row["texts"])[1])


def test_system(profctl, profcapture, program, capture, recorder):
    """A system-wide probe records each process that executes the function."""
    recording = recorder("--system", "--bus", "private", "-e", f"{program}:probed_add", "-o", capture)
    until(lambda: capture.exists() and capture.stat().st_size > 0)
    for _ in range(3):
        time.sleep(0.5)
        subprocess.run([program], stdout=subprocess.DEVNULL, check=True)
    recording.send_signal(signal.SIGINT)
    recording.communicate(timeout=60)
    assert events(profcapture, capture)["probed_add"]["count"] == 600


def refused(profctl, capture, event, program, status=2):
    done = profctl("record", "-q", "-e", event, "-o", capture, "--", program, check=status)
    assert "Traceback" not in done.stderr
    return done.stderr


def test_unknown_names(profctl, program, capture):
    assert "near names: probed_nap" in refused(profctl, capture, "probed:probed_nup", program)
    assert "near names: demo:guarded" in refused(profctl, capture, "probed:demo:gaurded", program)
    assert "there is no file" in refused(profctl, capture, "./nothing:f", program)


@x86_64
def test_refused_instruction(profctl, program, capture):
    assert "the kernel refuses a probe there" in refused(profctl, capture, "probed:probed_locked", program, 1)


def test_refused_functions(profctl, program, capture, tmp_path):
    assert "chooses one of several" in refused(profctl, capture, "probed:probed_chosen", program)
    source = tmp_path / "two.c"
    source.write_text("static __attribute__((noinline)) int twin(int a) { return a + %d; }\nint f%d(int a) { return twin(a); }\n" % (1, 1))
    other = tmp_path / "three.c"
    other.write_text("static __attribute__((noinline)) int twin(int a) { return a * %d; }\nint f%d(int a) { return twin(a); }\nint main(void) { return 0; }\n" % (3, 2))
    twins = tmp_path / "twins"
    subprocess.run(["gcc", "-O1", source, other, "-o", twins], check=True)
    assert "several functions of this name" in refused(profctl, capture, f"{twins}:twin", twins)


@x86_64
def test_refused_red_zone(profctl, profcapture, program, capture):
    """Since Linux 6.18, a probe at a 5-byte nop becomes a call, which overwrites the red zone below
    the stack pointer."""
    major, minor = (int(part) for part in platform.release().split(".")[:2])
    if (major, minor) < (6, 18):
        record(profctl, program, capture, "demo:long_nop")
        assert events(profcapture, capture)["demo:long_nop"]["count"] == 200
    else:
        assert "red zone" in refused(profctl, capture, "demo:long_nop", program)


def test_refused_returns(profctl, program, capture, tmp_path):
    """A function's return cannot be probed if that would end the program, or prevent the cleanup of
    a thread."""
    assert "keeps its caller's address" in refused(profctl, capture, "libc.so.6:_setjmp%return", program)
    source = tmp_path / "throws.cc"
    source.write_text("#include <stdexcept>\n__attribute__((noinline)) int thrower(int a) { if (a) throw std::runtime_error(\"x\"); return a; }\n"
                      "int main(int n, char **) { try { return thrower(n); } catch (std::exception &) { return 0; } }\n")
    throws = tmp_path / "throws"
    subprocess.run(["g++", "-O1", source, "-o", throws], check=True)
    assert "exception" in refused(profctl, capture, f"{throws}:thrower%return", throws)
    # C that cleans up when a thread is canceled
    source = tmp_path / "cancelled.c"
    source.write_text("#include <pthread.h>\n#include <stdio.h>\nstatic void undo(void *p) { puts(p); }\n"
                      "__attribute__((noinline)) void leave(int n) { if (n) pthread_exit(NULL); __asm__ volatile(\"\"); }\n"
                      "int main(int n, char **a) { pthread_cleanup_push(undo, a[0]); leave(n - 1); pthread_cleanup_pop(0); return 0; }\n")
    cancelled = tmp_path / "cancelled"
    subprocess.run(["gcc", "-O1", "-pthread", "-fexceptions", source, "-o", cancelled], check=True)
    assert "the cleanup of a thread" in refused(profctl, capture, f"{cancelled}:leave%return", cancelled)
    subprocess.run(["gcc", "-O1", "-pthread", source, "-o", cancelled], check=True)
    profctl("record", "-q", "--no-off-cpu", "--force", "-e", f"{cancelled}:leave%return", "-o", capture, "--", cancelled)
    # the function's entry can be probed, by its demangled name
    done = profctl("record", "-q", "--no-off-cpu", "--force", "-e", f"{throws}:thrower", "-o", capture, "--", throws)
    assert done.returncode == 0


def test_refused_files(profctl, program, capture, tmp_path):
    def copy(name, mode=0o755):
        path = tmp_path / name
        shutil.copy(program, path)
        path.chmod(mode)
        return path

    assert "everybody may change the file" in refused(profctl, capture, f"{copy('open', 0o777)}:main", program)
    narrow = copy("narrow")
    narrow.write_bytes(narrow.read_bytes()[:4] + b"\1" + narrow.read_bytes()[5:])
    assert "32-bit" in refused(profctl, capture, f"{narrow}:main", program)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert "ELF" in refused(profctl, capture, f"{script}:main", program)
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in refused(profctl, capture, f"{tmp_path}/fifo:main", program)
    cut = copy("cut")
    cut.write_bytes(cut.read_bytes()[:100])
    assert "cut off" in refused(profctl, capture, f"{cut}:main", program)


def test_not_permitted(profctl, program, tmp_path):
    """A plain user gets the reason, and profctl fails."""
    tmp_path.chmod(0o777)
    for path in tmp_path, *list(program.parents)[:3]:
        path.chmod(0o755 if path != tmp_path else 0o777)
    done = profctl("record", "--bus", "private", "-e", f"{program}:main", "-o", tmp_path / "none.cap", "--", program,
                   prefix=NOBODY, check=4)
    assert "run `profctl record` as root" in done.stderr


def test_list(profctl, program):
    """Each static probe is listed once, with its arguments. Functions are listed only with a
    pattern."""
    data = profctl.json("list", program)
    schema.check(profctl, "list", data)
    found = {row["name"].removeprefix(f"{program}:"): row for row in data["data"]["events"]}
    assert {name for name in found if name != "demo:long_nop"} == {"demo:work", "demo:guarded"}
    assert {row["kind"] for row in found.values()} == {"usdt"} and "@" in found["demo:guarded"]["arguments"]
    lines = profctl("list", f"{program}:probed_n*").stdout.splitlines()
    assert lines == [f"{program}:probed_nap"]
    assert "libc.so.6:getpgid" in profctl("list", "libc.so.6:getpg*").stdout.splitlines()
    assert "ELF" in profctl("list", "/etc/passwd", check=1).stderr
