# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Allocations in a capture, compared exactly with the counts of other tools: glibc's libmemusage,
and valgrind.

PROF_TEST_FULL=1 uses larger inputs, and also heaptrack.
"""
import json
import os
import re
import subprocess

import pytest

import memory_oracle as oracle
from slices import part


FULL = os.environ.get("PROF_TEST_FULL") == "1"


def size(small, full):
    return full if FULL else small


SQL = f"""create table t(a integer primary key, b text, c real);
with recursive n(x) as (select 1 union all select x+1 from n limit {size(20000, 200000)}) insert into t select x, hex(x * 7919 % 10007), x*1.5 from n;
select count(*) from (select b from t order by b);
"""
PYTHON = f"""
import json
for i in range({size(1, 20)}):
    rows = [dict(id=i, name="name %d" % i, tags=["a%d" % (i % 7), "b"], value=i / 3) for i in range(2000)]
    assert json.loads(json.dumps(rows)) == rows
print(len(set(str(row) for row in rows)))
"""
PERL = f"for my $r (1 .. 4) {{ my %h; for my $i (1 .. {size(5000, 300000)}) {{ $h{{$i}} = [$i, \"x$i\"] }} $s += keys %h }} print $s"
CPLUSPLUS = size("", """
#include <algorithm>
#include <iostream>
#include <regex>
bool matches(const char *text) { return std::regex_match(text, std::regex("a+b*")); }
""") + """
#include <map>
#include <string>
#include <vector>
int main(int argc, char **argv)
{
	std::map<std::string, std::vector<int>> all;
	for (int i = 0; i < argc; i++)
		all[argv[i]].push_back(i);
	return (int)all.size();
}
"""
C = """
#include <stdio.h>
int main(void) { printf("hello\\n"); return 0; }
"""


def git_repository(folder):
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    lines = []
    for i in range(size(60, 200)):
        message, text = f"commit {i}\n", f"line {i}\n" * (i % 40 + 1)
        lines.append(f"commit refs/heads/main\ncommitter A <a@example.org> {1700000000 + i} +0000\n"
                     f"data {len(message)}\n{message}\nM 644 inline file{i % 10}\ndata {len(text)}\n{text}\n")
    subprocess.run(["git", "-C", folder, "fast-import", "--quiet"], input="".join(lines), encoding="utf-8", check=True)
    return folder


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """{name: (command, additions to its environment)}"""
    folder = tmp_path_factory.mktemp("programs")

    def file(name, text):
        (folder / name).write_text(text)
        return str(folder / name)

    rows = [{"id": i, "tags": [f"t{i % 13}", f"u{i % 7}"], "value": i * 1.5} for i in range(size(1500, 40000))]
    source, plusplus = file("hello.c", C), file("t.cc", CPLUSPLUS)
    subprocess.run(["g++", "-E", plusplus, "-o", folder / "t.ii"], check=True)
    cc1plus = subprocess.run(["g++", "-print-prog-name=cc1plus"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout.strip()
    return {
        "sqlite3": (["/usr/bin/sqlite3", ":memory:", f".read {file('q.sql', SQL)}"], {}),
        "python3": (["/usr/bin/python3", "-S", "-c", PYTHON], {"PYTHONMALLOC": "malloc"}),
        "jq": (["/usr/bin/jq", "-c", "[.[]|{k:.id,t:(.tags|join(\",\"))}]|length", file("d.json", json.dumps(rows))], {}),
        "perl": (["/usr/bin/perl", "-e", PERL], {}),
        "cc1plus": ([cc1plus, "-fpreprocessed", str(folder / "t.ii"), "-quiet", "-O1", "-o", "/dev/null"], {}),
        "gcc": (["/usr/bin/gcc", "-O1", "-o", str(folder / "hello"), source], {}),
        "git": (["/usr/bin/git", "-C", str(git_repository(folder / "repository")), "log", "--stat", "-p"], {}),
    }


def differing(a, b):
    return {key: (a.get(key, 0), b.get(key, 0)) for key in {*a, *b} if a.get(key, 0) != b.get(key, 0)}


def check_usages(expected, found):
    """Compares libmemusage's counts with the recorded ones, process by process."""
    expected, found = sorted(expected, key=oracle.Usage.key), sorted(found, key=oracle.Usage.key)
    assert len(found) == len(expected) > 0
    for a, b in zip(expected, found):
        assert differing(a.calls, b.calls) == {}
        assert differing(a.sizes, b.sizes) == {}
        assert a.peak == b.peak
        assert a.leaked in (b.leaked, None)


def check_consistent(process):
    """Checks that the engine's totals of a process equal the sums of its rows."""
    assert process["wrong"] == process["untold"] == process["foreign"] == 0
    assert (process["begins"], process["ends"]) == (1, 1)
    assert (process["heap_blocks"], process["heap_bytes"]) == (process["leaked_blocks"], process["leaked_bytes"])
    assert (process["live_rows"], process["live_bytes"]) == (process["leaked_blocks"], process["leaked_bytes"])
    assert process["heap_peak"] == process["peak"]


def check_reader(said, process):
    """Checks that profcapture's totals equal the sums of the rows."""
    calls = {**process["allocs"], **{kind: n for kind, n in process["frees"].items() if kind not in process["allocs"]}}
    for kind in ("realloc", "reallocarray"):
        calls[kind] += process["frees"][kind]
    calls["free"] -= process["free_null"]
    calls["free_null"] = process["free_null"]
    # "brk" and "realloc" occur both as allocations and as frees
    assert {kind: n for kind, n in said["calls"].items() if kind in calls} == {kind: calls[kind] for kind in said["calls"] if kind in calls}
    names = {"allocated_bytes": "bytes", "freed_bytes": "freed_bytes", "peak_bytes": "peak", "leaked_blocks": "leaked_blocks",
             "leaked_bytes": "leaked_bytes", "failed": "failed", "temporary": "temporary"}
    assert {name: said[name] for name in names} == {name: process[counted] for name, counted in names.items()}


@pytest.mark.parametrize("name", ["sqlite3", "python3", "jq", "perl", "cc1plus", "gcc", "git"])
def test_together(profctl, profcapture, capture, programs, require, name):
    """The capture has exactly the calls that libmemusage counts, with their sizes, for each
    process, and equal bytes at the peak and at the end."""
    command, extra = programs[name]
    require("memusage", command[0])
    expected, counts = oracle.whole(lambda: oracle.record_with_memusage(profctl, command, capture, extra), capture)
    # not the shell, which runs before libmemusage is loaded
    processes = [process for process in counts["processes"] if process["exe"] != os.path.realpath("/bin/sh")]
    assert counts["lost"] == 0
    assert len(processes) >= (5 if name == "gcc" else 1)
    check_usages(expected, map(oracle.recorded_usage, processes))
    said = {process["pid"]: process for process in profcapture.json("memory", "--limit", 1, capture)["data"]["processes"]
            if process["comm"] != "sh"}
    assert len(said) == len(processes)
    for process in processes:
        check_consistent(process)
        check_reader(said[process["pid"]], process)


@pytest.mark.parametrize("name", part(["sqlite3", "jq", "perl", "git"], 2))
def test_apart(profctl, capture, programs, require, name):
    """Like test_together(), but in separate runs, each with only one of the libraries. Compilers
    are left out, because they hash addresses, so their allocations differ from run to run."""
    command, extra = programs[name]
    require("memusage", command[0])
    environment = oracle.environment_of_recorded(profctl, capture, extra)
    expected = oracle.run_memusage(command, environment)
    _, counts = oracle.whole(lambda: oracle.record(profctl, command, capture, extra, stdout=subprocess.DEVNULL), capture)
    assert counts["lost"] == 0
    check_usages(expected, map(oracle.recorded_usage, counts["processes"]))


if FULL:  # only in full runs, because CI must not skip tests

    @pytest.mark.parametrize("name", ["sqlite3", "jq"])
    def test_heaptrack(profctl, capture, programs, require, tmp_path, name):
        """heaptrack counts as many allocations as profd, in programs of one thread and one process
        that neither align blocks nor copy their environment, which heaptrack enlarges. heaptrack's
        library itself allocates one more block, of 72704 bytes."""
        command, extra = programs[name]
        require("heaptrack", command[0])
        subprocess.run(["heaptrack", "-o", tmp_path / "theirs", *command], env={**os.environ, **oracle.FIXED, **extra}, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, check=True)
        said = subprocess.run(["heaptrack_print", "-f", tmp_path / "theirs.zst", "-l", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              encoding="utf-8", timeout=300, check=True).stdout
        oracle.record(profctl, command, capture, extra, stdout=subprocess.DEVNULL)
        (process,) = oracle.heap_counts(capture)["processes"]
        assert sum(process["allocs"].values()) + 1 == int(re.search(r"calls to allocation functions: (\d+)", said).group(1))


# A program that allocates and frees faster than the times of rows can distinguish, and counts the
# blocks that it frees after at most 0, 1 or 2 other allocations.
TEMPORARY = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define N 3
#define SLOTS 6
static unsigned long temporary[N];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *volatile sink;
__attribute__((noinline)) void *churn(void *argument)
{
	unsigned long order = 0, orders[SLOTS] = { 0 }, counts[N] = { 0 }, random = (unsigned long)argument * 2654435761u + 1;
	void *slots[SLOTS] = { 0 };

	for (int i = 0; i < 40000; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		unsigned at = (random >> 33) % SLOTS;
		if (!slots[at]) {
			sink = slots[at] = malloc(16 + (random >> 50) % 64);
			orders[at] = ++order;
		} else if ((random >> 45) % 4 == 0) {
			sink = slots[at] = realloc(slots[at], 16 + (random >> 50) % 64);
			orders[at] = ++order;
		} else {
			for (int n = 0; n < N; n++)
				counts[n] += order - orders[at] <= (unsigned long)n;
			free(slots[at]);
			slots[at] = NULL;
		}
	}
	pthread_mutex_lock(&lock);
	for (int n = 0; n < N; n++)
		temporary[n] += counts[n];
	pthread_mutex_unlock(&lock);
	return NULL;
}
int main(int argc, char **argv)
{
	pthread_t threads[2];

	for (long i = 0; i < atoi(argv[1]); i++)
		pthread_create(&threads[i], NULL, churn, (void *)i);
	for (long i = 0; i < atoi(argv[1]); i++)
		pthread_join(threads[i], NULL);
	if (argv[1][0] == '0')
		churn(NULL);
	printf("%lu %lu %lu\\n", temporary[0], temporary[1], temporary[2]);
	return 0;
}
"""


@pytest.mark.parametrize("threads", [0, 2])
def test_temporary(profctl, profcapture, capture, compile_c, threads):
    """As many blocks are temporary as the program counted, although blocks begin and end within the
    resolution of the times."""
    program = compile_c("temporary", TEMPORARY, "-O2", "-pthread")

    def record():
        return profctl("record", "--memory", "-F", "0", "-q", "--force", "-o", capture, "--", program, threads).stdout

    stdout, _ = oracle.whole(record, capture)
    for threshold, expected in enumerate(map(int, stdout.split())):
        data = profcapture.json("memory", "--temporary", "--threshold", threshold, "--limit", 0, capture)["data"]
        assert sum(row["temporary"] for row in data["rows"] if row["name"] == "churn") == expected > 1000


LEAKS = """
#include <stdlib.h>
int main(void)
{
	void *block;
	for (int i = 0; i < 100; i++) {
		char *at = malloc((size_t)i * 10 + 1);
		if (i % 3 == 0)
			at = realloc(at, (size_t)i * 20 + 1);
		if (i % 2)
			free(at);
	}
	if (posix_memalign(&block, 64, 1000))
		return 1;
	block = aligned_alloc(32, 64);
	free(block);
	block = reallocarray(calloc(10, 10), 30, 7);
	return block == NULL;
}
"""


@pytest.mark.parametrize("name", ["leaks", "sqlite3", "find", "ls"])
def test_valgrind(profctl, capture, compile_c, require, tmp_path, name):
    """valgrind finds the same unfreed blocks and bytes, in programs that keep no copy of their
    environment, which valgrind enlarges."""
    require("valgrind", name if name != "leaks" else "gcc")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").touch()
    command = {
        "leaks": [compile_c("leaks", LEAKS, "-O0") if name == "leaks" else None],
        "sqlite3": ["/usr/bin/sqlite3", ":memory:", "create table t(a); insert into t values(1),(2); select * from t;"],
        "find": ["/usr/bin/find", folder],
        "ls": ["/usr/bin/ls", "-l", folder],
    }[name]
    done = subprocess.run(["valgrind", "--tool=memcheck", "--leak-check=no", "--run-libc-freeres=no", *command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8", timeout=120, check=True)
    size, blocks = re.search(r"in use at exit: ([\d,]+) bytes in ([\d,]+) blocks", done.stderr).groups()
    _, counts = oracle.whole(lambda: oracle.record(profctl, command, capture, {}, stdout=subprocess.DEVNULL), capture)
    assert counts["lost"] == 0
    (process,) = counts["processes"]
    check_consistent(process)
    assert (process["leaked_blocks"], process["leaked_bytes"]) == (int(blocks.replace(",", "")), int(size.replace(",", "")))
