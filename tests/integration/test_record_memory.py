# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl record --memory: the library is loaded into the command and everything that it starts,
under any user; excluded processes are listed with the reasons."""
import json
import os
import platform
import re
import shutil
import struct
import subprocess
from collections import Counter, defaultdict

import pytest

import schema
from buses import NOBODY, rules
from captures import rows
from recordings import recorded, recorded_without_loss

OWN = rules(allow={"record-own": ["nobody"]})

FAMILY = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* Allocates n times, and its children, which are started in three ways, once more each. */
int main(int argc, char **argv)
{
	int n = atoi(argv[1]), depth = atoi(argv[2]);
	char number[16];

	for (int i = 0; i < n; i++) {
		char *block = malloc(1000 + i % 7);

		memset(block, 1, 1000);
		if (i % 10)
			free(block);
	}
	if (depth == 0)
		return 7;
	for (int how = 0; how < 2; how++) {
		pid_t child = how ? vfork() : fork();

		if (child == 0) {
			number[0] = '0' + depth - 1;
			number[1] = 0;
			execl(argv[0], argv[0], argv[1], number, NULL);
			_exit(99);
		}
		waitpid(child, NULL, 0);
	}
	if (fork() == 0) {
		for (int i = 0; i < n; i++)
			free(malloc(10));
		_exit(0);
	}
	wait(NULL);
	return 7;
}
"""

SLEEPER = r"""
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	usleep(atoi(argv[1]) * 1000);
	return argc > 2 ? atoi(argv[2]) : 0;
}
"""

LARGE = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
	memset(malloc(64 << 20), 1, 64 << 20);
	usleep(1000000);
	return 0;
}
"""

CONSTRUCTED = "int constructed; __attribute__((constructor)) static void construct(void) { constructed = 1; }"


@pytest.fixture(scope="module")
def sleeper(compile_c):
    return compile_c("sleeper", SLEEPER)


@pytest.fixture(scope="module")
def static(compile_c):
    return compile_c("static", SLEEPER, "-static")


@pytest.fixture
def everybody(tmp_path):
    """A folder where everybody may read and write, and whose parents everybody may enter."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(0o777)
    for parent in folder.parents:
        if parent.stat().st_uid == os.getuid() and str(parent) != "/":
            parent.chmod(parent.stat().st_mode | 0o111)
    return folder


@pytest.fixture
def as_nobody(profctl, everybody, require):
    require("setpriv", root=True)
    if subprocess.run([*profctl.command("--version")], user=NOBODY, group=NOBODY, stdout=subprocess.DEVNULL).returncode:
        pytest.skip("the build tree cannot be read by others")

    def record(*arguments, **options):
        return recorded_without_loss(profctl, *arguments, user=NOBODY, group=NOBODY, extra_groups=[], cwd=everybody, **options)

    return record


def by_process(profcapture, capture):
    """Returns {id: row} of the process instances."""
    return {row["id"]: row for row in rows(profcapture, capture, "process")}


def name_of(process):
    return os.path.basename(process["exe"] or "") or "-"


def excluded(profcapture, capture):
    """Returns (program, reason) of each excluded process."""
    processes = by_process(profcapture, capture)
    return sorted((name_of(processes[row["process"]]), row["event"]) for row in rows(profcapture, capture, "heap")
                  if row["event"] in reasons())


def reasons(**counts):
    """Returns the expected number of excluded processes for each reason; by default 0."""
    names = ("static", "setuid", "other-arch", "other-libc", "environment", "no-descriptors", "no-memory", "sanitizer",
             "never-allocated", "unregistered")
    return dict.fromkeys(names, 0) | {name.replace("_", "-"): n for name, n in counts.items()}


def allocations(profcapture, capture):
    """Returns the rows of alloc, by the process's id."""
    owner = {row["id"]: row["process"] for row in rows(profcapture, capture, "thread")}
    found = defaultdict(list)
    for row in rows(profcapture, capture, "alloc"):
        found[owner[row["thread"]]].append(row)
    return found


def frees(profcapture, capture):
    owner = {row["id"]: row["process"] for row in rows(profcapture, capture, "thread")}
    found = defaultdict(list)
    for row in rows(profcapture, capture, "free"):
        found[owner[row["thread"]]].append(row)
    return found


def left(allocs, freed):
    """Returns the live bytes and blocks at the end, computed from a process's rows."""
    live = {row["block"]: row["size"] for row in allocs if row["block"]}
    for row in allocs:
        if row["prior"] and row["block"]:
            live.pop(row["prior"], None)
    for row in freed:
        live.pop(row["block"], None)
    return sum(live.values()), len(live)


def check_ends(profcapture, capture):
    """Checks that the totals of each process at its end equal the sums of its rows."""
    allocs, freed = allocations(profcapture, capture), frees(profcapture, capture)
    ends = {row["process"]: (row["live_bytes"], row["live_blocks"])
            for row in rows(profcapture, capture, "heap") if row["event"] == "end"}
    assert ends.keys() == allocs.keys()
    for process, end in ends.items():
        assert end == left(allocs[process], freed[process]), process
    return allocs


def metadata(profcapture, capture):
    return {row["key"]: row["value"] for row in rows(profcapture, capture, "metadata")}


# ---- Programs


def test_family(profctl, profcapture, capture, compile_c):
    """Each started process has a row and all of its allocations, however it was started."""
    program = compile_c("family", FAMILY)
    data = recorded_without_loss(profctl, "--memory", "-F", 0, "-o", capture, "--", program, 500, 2, check=7)
    assert data["command"]["exit"] == 7 and data["samples"] == 0
    assert data["memory"] == {"excluded": reasons()}
    assert data["next"][0] == f"profcapture memory {capture}"
    allocs = check_ends(profcapture, capture)
    counts = Counter()
    for found in allocs.values():
        counts["large"] += sum(1000 <= row["size"] <= 1006 for row in found)
        counts["small"] += sum(row["size"] == 10 for row in found)
    # 1 + 2 + 4 processes execute the program; 3 of them also fork a child that executes nothing
    assert counts == {"large": 7 * 500, "small": 3 * 500}
    assert len(allocs) == 7 + 3


@pytest.mark.parametrize("policy", ["private", "nobody"])
def test_sqlite(profctl, profcapture, everybody, request, require, policy):
    require("sqlite3")
    record = request.getfixturevalue("as_nobody") if policy == "nobody" else lambda *a, **o: recorded_without_loss(profctl, *a, **o)
    script = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)" \
             " insert into t select i, printf('%d', i) from n; select count(*) from t group by b % 10;"
    capture = everybody / "a.cap"
    data = record("--memory", "-o", capture, "--", "sqlite3", ":memory:", script)
    assert data["transport"] == "private"
    allocs, = check_ends(profcapture, capture).values()
    # a low limit, because newer versions of sqlite3 have their own heap
    assert len(allocs) > 300 and sum(row["stack"] != 0 for row in allocs) > len(allocs) * 0.99


def test_python(profctl, profcapture, capture):
    code = "import json; x = [json.dumps({'a': i}) for i in range(5000)]; print(len(x))"
    done = profctl("record", "--memory", "-F", 0, "-o", capture, "--", "/usr/bin/python3", "-c", code, env={"PYTHONMALLOC": "malloc"})
    assert done.stdout == "5000\n"
    assert "Processes without" not in done.stderr
    allocs, = check_ends(profcapture, capture).values()
    assert len(allocs) > 20000
    found = re.search(r"^(\d+) allocations; ([\d.]+ [KM]iB) not freed at exit\.$", done.stderr, re.M)
    assert found and int(found[1]) == len(allocs), done.stderr
    ended, = (row for row in profcapture.json("dump", capture, "--table", "heap")["data"]["rows"] if row["event"] == "end")
    bytes_ = float(found[2].split()[0]) * (1 << 20 if "M" in found[2] else 1 << 10)
    assert abs(bytes_ - ended["live_bytes"]) <= bytes_ / 100
    sampled = profctl("record", "--memory=sample:64K", "--force", "-F", 0, "-o", capture, "--", "/usr/bin/python3", "-c", code,
                      env={"PYTHONMALLOC": "malloc"}).stderr
    assert re.search(r"^\d+ sampled allocations\.$", sampled, re.M) and "not freed" not in sampled


def test_gcc(profctl, profcapture, tmp_path, capture):
    """gcc and its children are recorded, each with its parent."""
    (tmp_path / "a.c").write_text("#include <stdio.h>\nint main(void) { return printf(\"x\") != 1; }\n")
    data = recorded_without_loss(profctl, "--memory", "-F", 0, "-o", capture, "--", "gcc", "-O1", "-o", tmp_path / "a", tmp_path / "a.c")
    allocs, processes = check_ends(profcapture, capture), by_process(profcapture, capture)
    names = {name_of(processes[process]) for process in allocs}
    assert {"cc1", "collect2"} <= names and len(allocs) >= 5
    assert any(name.endswith("as") for name in names) and any("ld" in name for name in names)
    pids = {process["pid"] for process in processes.values()}
    assert all(processes[process]["ppid"] in pids or processes[process]["pid"] == data["command"]["pid"] for process in allocs)
    assert subprocess.run([tmp_path / "a"], stdout=subprocess.DEVNULL).returncode == 0


# ---- Settings


def test_environment(profctl, capture, tmp_path, compile_c):
    """LD_PRELOAD has our library first, then the user's; PROF_MEMORY has the settings in the
    library's form."""
    other = compile_c("other.so", CONSTRUCTED, "-shared", "-fPIC")
    show = ["sh", "-c", "echo $LD_PRELOAD $PROF_MEMORY"]
    root = "/$LIB" + 8 * "/.."  # glibc's loader replaces $LIB; for others the path leads nowhere
    ours = f"{root}{os.environ['PROF_LIB_DIR']}/libprofpreload-memory.so"
    for options, settings in (
        (["--memory"], "all"),
        (["--memory=all", "--memory-min", "0"], "all"),
        (["--memory=sample:512KiB"], "sample=524288"),
        (["--memory=sample:1.5K", "--memory-min", "64", "--memory-mmap"], "sample=1536,min=64,mmap"),
        (["--memory", "--memory-mmap", "--memory-min=1K"], "all,min=1024,mmap"),
    ):
        done = profctl("record", "-q", *options, "-F", 0, "--force", "-o", capture, "--", *show, env={"LD_PRELOAD": other})
        assert done.stdout == f"{ours}:{other} {settings}\n"
    assert profctl("record", "-q", "--memory", "--force", "-o", capture, "--", *show).stdout == f"{ours} all\n"
    done = profctl("record", "-q", "--force", "-F", 0, "-o", capture, "--", *show)
    assert done.stdout == "\n"
    # PROF_LIB_DIR is relative, and the command changes its current folder
    (tmp_path / "lib").symlink_to(os.environ["PROF_LIB_DIR"])
    done = profctl("record", "-q", "--memory", "--force", "-o", capture, "--", "sh", "-c", "cd /; ls -d /; echo $LD_PRELOAD",
                   cwd=tmp_path, env={"PROF_LIB_DIR": "lib"})
    assert done.stdout == f"/\n{root}{tmp_path}/lib/libprofpreload-memory.so\n" and not done.stderr


def test_other_allocator(profctl, profcapture, capture, compile_c):
    """An allocator that the user preloads is loaded into the command and not into the engine; calls
    that the library cannot see because of this allocator are reported."""
    if "libjemalloc.so.2" not in subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout:
        pytest.skip("libjemalloc.so.2 is not installed")
    program = compile_c("family", FAMILY)
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", program, 500, 0, check=7, env={"LD_PRELOAD": "libjemalloc.so.2"})
    allocs, = check_ends(profcapture, capture).values()
    assert sum(1000 <= row["size"] <= 1006 for row in allocs) == 500
    output = profcapture.json("memory", "--leaks", capture)
    schema.check(profcapture, "memory", output)
    warning, = output["data"]["warnings"]
    assert "C++'s operator new" in warning["text"] and "/libjemalloc.so.2" in warning["text"] and warning["processes"] == 1
    assert f"In 1 process, {warning['text']}" == profcapture("memory", "--leaks", capture).stdout.splitlines()[0]


@pytest.mark.parametrize("sanitizer", ["thread", "address"])
def test_sanitized_program(profctl, profcapture, capture, compile_c, sanitizer):
    """A sanitized program allocates before its runtime is ready for the library: it runs as usual,
    and is listed as excluded."""
    program = compile_c("checked", "#include <stdlib.h>\nint main(void) { void *volatile p = malloc(10); free(p); return 7; }",
                        f"-fsanitize={sanitizer}")
    command = ["setarch", "-R", program]  # without randomization, because the kernel may randomize more than the runtime expects
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", *command, check=7)
    # LeakSanitizer's process is also listed, for another reason
    assert {(name, why) for name, why in excluded(profcapture, capture) if why != "never-allocated"} == {("checked", "sanitizer")}
    warning, = profcapture.json("memory", capture)["data"]["warnings"]
    assert "no allocation is recorded, because the program has a sanitizer's runtime: " in warning["text"]


DEEP = "#include <stdlib.h>\nvoid *make(void) { return malloc(1009); }"
BINDS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	void *library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
	void *(*make)(void) = library ? (void *(*)(void))dlsym(library, "make") : NULL;

	for (int i = 0; make && i < 100; i++)
		free(make());
	return !make;
}
"""


def test_deep_binding(profctl, profcapture, capture, compile_c):
    """Blocks that a module gets from libc directly are freed as usual, and counted as frees of
    unknown blocks."""
    command = [compile_c("binds", BINDS), compile_c("deep.so", DEEP, "-shared", "-fPIC")]
    recorded_without_loss(profctl, "--memory", "-F", 0, "-o", capture, "--", *command)
    summary = profcapture.json("memory", capture)["data"]["summary"]
    assert (summary["foreign_frees"], summary["lost"]) == (100, 0)
    assert not any(row["size"] == 1009 for row in rows(profcapture, capture, "alloc"))
    output = profcapture.json("memory", "--leaks", capture)
    schema.check(profcapture, "memory", output)
    warning, = output["data"]["warnings"]
    assert "RTLD_DEEPBIND" in warning["text"] and warning["text"].endswith(f" {command[1]}") and warning["processes"] == 1
    assert f"In 1 process, {warning['text']}" == profcapture("memory", "--leaks", capture).stdout.splitlines()[0]


def test_metadata(profctl, profcapture, capture):
    def of(*options):
        profctl("record", "-q", *options, "-F", 0, "--force", "-o", capture, "--", "true")
        return {key: value for key, value in metadata(profcapture, capture).items() if key.startswith("memory.")}

    assert of() == {}
    assert of("--memory") == {"memory.mode": "all"}
    assert of("--memory=sample:64K") == {"memory.mode": "sample", "memory.sample_bytes": "65536"}
    assert of("--memory", "--memory-min=1K", "--memory-mmap") == {"memory.mode": "all", "memory.min_bytes": "1024", "memory.mmap": "yes"}


ALLOCATES = r"""
#include <stdlib.h>
int main(void)
{
	for (int i = 0; i < 100000; i++)
		if (!malloc(200))
			return 1;
	return 0;
}
"""


@pytest.mark.parametrize("first, second", [("all", "sample:64K"), ("sample:64K", "all"), ("sample:16K", "sample:64K")])
def test_other_sampling_appended(profctl, profcapture, capture, compile_c, tmp_path, first, second):
    """Each block has the weight of its own recording, not of the file's last recording, also in a
    part cut from the file."""
    command = ["--", compile_c("allocates", ALLOCATES)]
    half = 100000 * 200
    for how in ["--memory=" + first], ["--memory=" + second, "--append"]:
        profctl("record", "-q", "-F", 0, "-o", capture, *how, *command)

    def leaked(of):
        return profcapture.json("memory", of, "--leaks")["data"]["summary"]["leaked_bytes"]

    # Of 20 MB in blocks of 200 bytes, one per 64 KiB is sampled on average. These are 305 blocks,
    # so the tolerance is five standard deviations.
    near = pytest.approx(half, rel=0.3)
    assert leaked(capture) == pytest.approx(2 * half, rel=0.3)
    folded = profcapture("export", "--to", "folded", "--value", "inuse-space", capture, "-o", "-").stdout
    assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) == pytest.approx(2 * half, rel=0.3)
    assert "Some of its recordings sampled" in profcapture("memory", capture).stdout
    begin = max(row["time_ns"] for row in rows(profcapture, capture, "heap") if row["event"] == "begin")
    for name, stretch in ("before", ["--to", f"{begin - 1}ns"]), ("after", ["--from", f"{begin}ns"]):
        profcapture("cut", capture, "-o", tmp_path / name, *stretch)
        assert leaked(tmp_path / name) == near, name


def test_missing_library(profctl, capture, tmp_path):
    """If the library is missing, or its path has a blank, the command is not started, and no file
    is left."""
    done = profctl("record", "--memory", "-o", capture, "--", "touch", tmp_path / "ran", check=1, env={"PROF_LIB_DIR": tmp_path})
    assert f"'{tmp_path}/libprofpreload-memory.so': No such file or directory; PROF_LIB_DIR" in done.stderr
    folder = tmp_path / "with a blank"
    folder.mkdir()
    shutil.copy(f"{os.environ['PROF_LIB_DIR']}/libprofpreload-memory.so", folder)
    done = profctl("record", "--memory", "-o", capture, "--", "touch", tmp_path / "ran", check=1, env={"PROF_LIB_DIR": folder})
    assert "blank or a colon" in done.stderr
    assert not capture.exists() and not (tmp_path / "ran").exists()


def test_no_command(profctl, capture):
    for what in [], ["--system"]:
        assert "--memory needs a COMMAND" in profctl("record", "--memory", "-o", capture, *what, check=2).stderr
    assert not capture.exists()


def test_command_that_is_not_there(profctl, capture):
    assert "command not found" in profctl("record", "--memory", "-o", capture, "no-such-command", check=127).stderr
    assert not capture.exists()


# ---- Excluded processes


def other_arch(path):
    """Writes a 32-bit program that ends with status 5."""
    code = bytes.fromhex("b801000000" "bb05000000" "cd80")
    header = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, 0x8048054, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 1, 0, 0x8048000, 0x8048000, 84 + len(code), 84 + len(code), 5, 0x1000)
    path.write_bytes(header + segment + code)
    path.chmod(0o755)
    return path


def test_static(profctl, profcapture, capture, static, sleeper):
    """A static program is listed as excluded, even if it is short-lived, is not the command, or
    still runs."""
    data = recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", static, 1, 3, check=3)
    assert data["memory"]["excluded"]["static"] == 1 and excluded(profcapture, capture) == [("static", "static")]
    done = profctl("record", "--memory", "-F", 0, "--force", "-o", capture, "--",
                   "sh", "-c", f"{static} 1; {static} 300; {sleeper} 1; {static} 5000 & {sleeper} 100")
    assert "Processes without allocations: 5 (3 static, 2 that never allocated)" in done.stderr
    assert excluded(profcapture, capture) == [*[("sleeper", "never-allocated")] * 2, *[("static", "static")] * 3]
    check_ends(profcapture, capture)


FEW = """
#include <fcntl.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	while (argc > 1 && open("/dev/null", O_RDONLY) >= 0)
		;
	return malloc(10) ? 0 : 1;
}
"""


def test_no_room(profctl, profcapture, capture, compile_c):
    """A program that may open no more files, or map no more memory, runs as usual, and is listed
    with the reason."""
    few = compile_c("few", FEW)
    for limit, arguments, reason in ("-n 4", "", "no-descriptors"), ("-n 99", "open", "no-descriptors"), ("-v 6000", "", "no-memory"):
        data = recorded(profctl, "--memory", "-F", 0, "--force", "-o", capture, "--", "sh", "-c",
                        f"ulimit {limit}; {few} {arguments} && exit 5", check=5)
        assert data["memory"]["excluded"] == reasons(**{reason: 1})
        assert excluded(profcapture, capture) == [("few", reason)]


def test_other_libc(profctl, profcapture, capture, compile_c, tmp_path):
    """Programs with a loader other than glibc's do not get the library, because that loader would
    end them: it does not find symbols that the library needs."""
    if not shutil.which("musl-gcc"):
        pytest.skip("there is no musl-gcc")
    few, musl = compile_c("few", FEW), tmp_path / "musl"
    subprocess.run(["musl-gcc", "-o", musl, few.parent / "few.c"], check=True)
    data = recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", musl)
    assert data["memory"]["excluded"] == reasons(other_libc=1) and excluded(profcapture, capture) == [("musl", "other-libc")]
    output = profcapture.json("memory", capture)
    schema.check(profcapture, "memory", output)
    assert [process["excluded"] for process in output["data"]["processes"]] == ["other-libc"]
    script = f"{musl} && env {musl} && env LD_PRELOAD=$LD_PRELOAD:libm.so.6 {few} && env -i {few} && env -u PROF_CONTROL {few} && exit 5"
    data = recorded(profctl, "--memory", "-F", 0, "--force", "-o", capture, "--", "sh", "-c", script, check=5)
    assert data["memory"]["excluded"] == reasons(other_libc=2, environment=2)
    assert excluded(profcapture, capture) == [*[("few", "environment")] * 2, *[("musl", "other-libc")] * 2]
    processes = profcapture.json("memory", capture)["data"]["processes"]
    assert sum(process["comm"] == "few" and not process["excluded"] for process in processes) == 1


def test_other_arch(profctl, profcapture, capture, tmp_path):
    if platform.machine() != "x86_64":
        pytest.skip("there is no program for another architecture here")
    program = other_arch(tmp_path / "other")
    try:
        assert subprocess.run([program]).returncode == 5
    except OSError:
        pytest.skip("the kernel does not run programs of 32 bits")
    data = recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", program, check=5)
    assert data["memory"]["excluded"]["other-arch"] == 1 and excluded(profcapture, capture) == [("other", "other-arch")]


def test_setuid(as_nobody, profcapture, everybody, sleeper):
    """A setuid-root program that a plain user runs does not load the library, and ends as usual."""
    program = everybody / "setuid"
    shutil.copy(sleeper, program)
    program.chmod(0o4755)
    capture = everybody / "a.cap"
    data = as_nobody("--memory", "-o", capture, "--", "sh", "-c", f"{program} 1 4; echo $?; {program} 200; ls /", timeout=60)
    assert data["memory"]["excluded"] == reasons(setuid=2)
    assert [event for _, event in excluded(profcapture, capture)] == ["setuid"] * 2
    check_ends(profcapture, capture)


def test_setuid_of_root(profctl, profcapture, capture, everybody, sleeper, require):
    """Also in root's recording, a program that has more rights than the command that starts it is
    listed as excluded."""
    require("setpriv", root=True)
    program = everybody / "setuid"
    shutil.copy(sleeper, program)
    program.chmod(0o4755)
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", "setpriv", "--reuid=65534", "--clear-groups", program, 1)
    assert [event for _, event in excluded(profcapture, capture)] == ["setuid"]


def test_unregistered(profctl, profcapture, capture, require):
    """A program that cannot reach profd, because it is in another network namespace, sends nothing
    that could be counted, so all of its allocations are reported as lost."""
    require("unshare", root=True)
    done = profctl("record", "--memory", "-F", 0, "-o", capture, "--", "unshare", "--net", "ls", "/")
    assert "Lost: all allocations of 1 process.\n" in done.stderr and "Lost: nothing" not in done.stderr
    assert [event for _, event in excluded(profcapture, capture)] == ["unregistered"]
    for view in [], ["--leaks"], ["--peak"]:
        text = profcapture("memory", *view, capture).stdout
        assert "Lost: all allocations of 1 process that did not register.\n" in text and "Lost: nothing" not in text


def test_summary(profctl, capture, static):
    """The summary's JSON matches the schema, with and without --memory."""
    for options in ["--memory"], []:
        done = profctl("record", *options, "-F", 0, "--json", "--force", "-o", capture, "--", static, 1)
        output = json.loads(done.stdout)
        schema.check(profctl, "record", output)
        assert (output["data"]["memory"] is None) == (not options)
        assert (f"profcapture memory {capture}" in output["data"]["next"]) == bool(options)


# ---- Memory usage


def memory_usage(profcapture, capture):
    """Returns {(program, counter name): [(ns, bytes)]} for rss and pss."""
    processes = by_process(profcapture, capture)
    counters = {row["id"]: (name_of(processes[row["process"]]), row["name"]) for row in rows(profcapture, capture, "counter")
                if row["group"] == "memory" and row["unit"] == "bytes"}
    found = defaultdict(list)
    for row in rows(profcapture, capture, "counter_value"):
        if row["counter"] in counters:
            found[counters[row["counter"]]].append((row["time_ns"], row["value"]))
    return found


def test_memory_usage(profctl, profcapture, capture, compile_c, static):
    """The memory usage of each process of the tree is recorded ten times a second, even if the
    process does not have the library."""
    large = compile_c("large", LARGE)
    # the static program waits long enough for a late reading: if one takes 40 ms on a busy machine,
    # the next one begins after two seconds
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", "sh", "-c", f"{static} 2500 & {large}; wait")
    found = memory_usage(profcapture, capture)
    assert {program for program, _ in found} >= {"static", "large"} and len(found) == 6
    # reading pss may take 2 % of the time: if page-table walks are slow, it is read once or twice
    # in this program's second
    for name, least in ("rss", 3), ("pss", 1):
        times, values = zip(*found["large", name])
        assert 64 << 20 <= max(values) < 72 << 20
        assert len(values) >= least
        # a reading may be late, but the next one is not
        assert times[-1] - times[0] > 80e6 * (len(times) - 1)
    assert max(value for _, value in found["static", "rss"]) < 8 << 20
    # the timeline adds up the processes that have a heap, each until it ends; the static one has
    # no heap, so it is not counted
    series = profcapture.json("memory", capture, "--timeline", "--limit", 100)["data"]["series"]
    most = max(point["rss_bytes"] or 0 for point in series)
    assert 64 << 20 <= most < 80 << 20 and series[-1]["rss_bytes"] < 8 << 20
    # memory usage is not recorded without --memory
    profctl("record", "-q", "-F", 0, "--force", "-o", capture, "--", static, 300)
    assert not memory_usage(profcapture, capture)


def test_with_system(profctl, profcapture, capture, sleeper, static, busy, require):
    """With --system everything is sampled, but only the command's tree is expected to deliver
    allocations."""
    require(root=True)
    data = recorded(profctl, "--memory", "--system", "-o", capture, "--", "sh", "-c", f"ls / >/dev/null; {static} 300; {sleeper} 300")
    assert data["samples"] > 0 and data["memory"]["excluded"] == reasons(static=1, never_allocated=1)
    assert excluded(profcapture, capture) == [("sleeper", "never-allocated"), ("static", "static")]
    allocs, processes = check_ends(profcapture, capture), by_process(profcapture, capture)
    assert "ls" in {name_of(processes[process]) for process in allocs}
    assert "static" in {program for program, _ in memory_usage(profcapture, capture)}
    assert busy.pid not in {processes[row["process"]]["pid"] for row in rows(profcapture, capture, "counter")}


def test_service(bus, profctl, profcapture, everybody, compile_c, static):
    """The system's profd records allocations for a user who may record own processes."""
    if subprocess.run([*profctl.command("--version")], user=NOBODY, group=NOBODY, stdout=subprocess.DEVNULL).returncode:
        pytest.skip("the build tree cannot be read by others")
    bus.start(OWN)
    program = compile_c("family", FAMILY)
    for path in program, *program.parents, static, *static.parents:
        if path.stat().st_uid == os.getuid() and str(path) != "/":
            path.chmod(path.stat().st_mode | 0o555 if path.is_file() else path.stat().st_mode | 0o111)
    capture = everybody / "a.cap"
    data = recorded_without_loss(profctl, "--memory", "--bus", "system", "-o", capture, "--", "sh", "-c", f"{program} 500 1; {static} 500",
                                 env={"DBUS_SYSTEM_BUS_ADDRESS": bus.address}, user=NOBODY, group=NOBODY, extra_groups=[], cwd=everybody)
    assert data["transport"] == "system"
    assert data["memory"]["excluded"] == reasons(static=1)
    allocs = check_ends(profcapture, capture)
    assert sum(1000 <= row["size"] <= 1006 for found in allocs.values() for row in found) == 3 * 500
    assert ("static", "pss") in memory_usage(profcapture, capture)
    assert metadata(profcapture, capture)["memory.mode"] == "all"


def test_options_of_the_session(bus, file):
    """A D-Bus client's contradictory options are refused."""
    from buses import pids, refusal, variant

    bus.start(OWN)
    client = bus.client()
    memory, own = {"memory": variant("b", True)}, pids(os.getpid())
    for options in (
        {**own, "memory-min": variant("t", 5)},
        {**own, "memory-sample": variant("t", 5)},
        {**own, "memory-mmap": variant("b", True)},
        {**own, "memory": variant("b", False), "memory-min": variant("t", 5)},
        {**own, **memory, "memory-pid": variant("u", os.getpid())},
        {"system": variant("b", True), **memory},
        *({**own, **memory, key: variant("s", "1")} for key in ("memory", "memory-pid", "memory-sample", "memory-min", "memory-mmap")),
    ):
        name, text = refusal(client.create, options, file)
        assert name == "InvalidOption" and "memory" in text
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in 0, 1 << 31, gone.pid:
        options = {"system": variant("b", True), **memory, "memory-pid": variant("u", pid)}
        assert refusal(client.create, options, file) == ("Failed", f"there is no process {pid}")


def test_export_of_none(profctl, profcapture, capture):
    """A program without allocations has an empty result, which is no error."""
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", "/bin/true")
    assert profcapture("export", capture, "--to", "folded", "--value", "alloc-space").stdout == ""
    profile = json.loads(profcapture("export", capture, "--to", "speedscope", "--value", "alloc-space").stdout)
    assert not any(thread["weights"] for thread in profile["profiles"])


FILTERED = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog filter = { 1, &pass };

	if (argc == 1) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
		execl(argv[0], argv[0], "allocate", NULL);
		return 1;
	}
	for (volatile int i = 0; i < 40000; i++)
		free(malloc(77));
	return 0;
}
"""


def test_filtered_burst(profctl, profcapture, capture, compile_c):
    """With a seccomp filter, as in a container, no process rings a doorbell or waits, so the rings
    need room for all records until the next drain."""
    recorded(profctl, "--memory", "-F", 0, "-o", capture, "--", compile_c("filtered", FILTERED))
    data = profcapture.json("memory", capture)["data"]
    assert data["summary"]["lost"] == 0 and data["summary"]["calls"]["malloc"] >= 40000
