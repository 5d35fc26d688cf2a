# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl stat: counts of programs that cause a known number of events, repeated runs, comparisons,
and agreement with perf stat."""
import json
import os
import re
import shutil
import signal
import statistics
import subprocess

import pytest
import schema

# Touches N fresh pages, makes the system call clock_gettime M times, forks a child that touches as
# many pages, and exits with a status.
LOAD = """
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void touch(long pages)
{
	char *p = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(p, pages * 4096, MADV_NOHUGEPAGE);
	for (long i = 0; i < pages; i++)
		p[i * 4096] = 1;
}
int main(int argc, char **argv)
{
	long pages = atol(argv[1]), calls = atol(argv[2]);
	struct { long a, b; } time;
	touch(pages);
	for (long i = 0; i < calls; i++)
		syscall(SYS_clock_gettime, 1, &time);
	if (fork() == 0) {
		touch(pages);
		_exit(0);
	}
	wait(NULL);
	return atoi(argv[3]);
}
"""
PERF = shutil.which("perf")


@pytest.fixture(scope="module")
def load(compile_c):
    return compile_c("stat-load", LOAD)


def stat(profctl, *arguments, **options):
    output = json.loads(profctl("stat", "--json", *arguments, **options).stdout.splitlines()[-1])
    schema.check(profctl, "stat", output)
    return output["data"], {row["name"]: row for row in output["data"]["rows"]}


def test_faults(profctl, load):
    """Each touched page is a fault, including the child's, and there are few other faults."""
    _, few = stat(profctl, "-e", "page-faults", "--", load, 100, 0, 0)
    _, many = stat(profctl, "-e", "page-faults", "--", load, 5100, 0, 0)
    # the same program twice, so the difference is the touched pages plus random variation in the
    # loader
    assert abs(many["page-faults"]["mean"] - few["page-faults"]["mean"] - 2 * 5000) < 50
    assert few["page-faults"]["state"] == "counted" and few["page-faults"]["counted_pct"] == 100


def test_tracepoints(profctl, load, require):
    require(root=True)
    _, rows = stat(profctl, "-e", "syscalls:sys_enter_clock_gettime,page-faults", "--", load, 10, 5000, 0)
    assert rows["syscalls:sys_enter_clock_gettime"]["mean"] == 5000
    assert list(rows) == ["elapsed", "user", "system", "syscalls:sys_enter_clock_gettime", "page-faults"]


def test_filters(profctl, load, tmp_path, require):
    """The kernel counts only events that the filter matches, and reports what is wrong with a
    filter."""
    require(root=True)
    call = "syscalls:sys_enter_clock_gettime"
    saved = tmp_path / "saved.stat"
    _, rows = stat(profctl, "-e", f"{call}/which_clock==1/", "-e", f"{call}/which_clock==7/", "--save", saved, "--", load, 10, 3000, 0)
    assert [row["mean"] for row in rows.values() if row["name"].startswith(call)] == [3000, 0]
    _, rows = stat(profctl, "-e", f"{call}/which_clock==1/", "--compare", saved, "--", load, 10, 3000, 0)
    assert rows[f"{call}/which_clock==1/"]["before_mean"] == 3000
    ran = tmp_path / "ran"
    refused = profctl("stat", "-e", f"{call}/no_such==1/", "--", "touch", ran, check=2)
    assert "the kernel refuses the filter 'no_such==1'" in refused.stderr and not ran.exists()


def test_nothing_is_zero_that_was_not_counted(profctl, load):
    """A hardware event has a value, or the reason why it has none; an unknown value is never 0."""
    data, rows = stat(profctl, "--", load, 10, 0, 0)
    assert data["runs"] == 1 and data["exit"] == 0
    for name in "cycles", "instructions", "branches", "branch-misses":
        row = rows[name]
        assert (row["state"] == "counted") == (row["mean"] is not None) == bool(row["values"])
    text = profctl("stat", "--", load, 10, 0, 0).stderr
    assert bool(re.search(r"^ *-  cycles +not supported here$", text, re.MULTILINE)) == (rows["cycles"]["state"] == "not-supported")
    assert rows["task-clock"]["mean"] > 0 and rows["elapsed"]["mean"] > rows["task-clock"]["mean"] / os.cpu_count()


def test_repeat(profctl, load):
    data, rows = stat(profctl, "-r", 4, "-e", "page-faults", "--", load, 50, 0, 0)
    assert data["runs"] == 4
    for row in rows.values():
        values = row["values"]
        assert len(values) == 4 and row["mean"] == pytest.approx(statistics.mean(values))
        assert row["stddev"] == pytest.approx(statistics.stdev(values)) and [row["min"], row["max"]] == [min(values), max(values)]
    assert stat(profctl, "--", load, 1, 0, 0)[1]["elapsed"]["stddev"] is None


def test_status_and_output(profctl, load, tmp_path):
    """The command's output and exit status are passed on unchanged."""
    done = profctl("stat", "--", "sh", "-c", "echo out; echo err >&2; exit 3", check=3)
    assert done.stdout == "out\n" and done.stderr.startswith("err\n") and "elapsed" in done.stderr
    assert profctl("stat", "-r", 2, "--", "sh", "-c", "kill -TERM $$", check=128 + signal.SIGTERM)
    script = "n=$(($(cat n 2>/dev/null) + 1)); echo $n >n; test $n != 2"
    failing = "sh", "-c", f"cd {tmp_path}; {script}"
    assert re.search(r": 3 runs, the mean of them\. 1 failed, exit status 1\.$", profctl("stat", "-r", 3, "--", *failing, check=1).stderr, re.M)
    (tmp_path / "n").unlink()
    data, _ = stat(profctl, "-r", 2, "--", *failing, check=1)
    assert (data["runs"], data["failed"], data["exit"]) == (2, 1, 1) and stat(profctl, "--", "true")[0]["failed"] == 0
    assert "command not found" in profctl("stat", "--", "no-such-command", check=127).stderr
    assert "Permission denied" in profctl("stat", "--", str(tmp_path), check=126).stderr
    assert "did you mean \"page-faults\"" in profctl("stat", "-e", "page-fault", "--", "true", check=2).stderr
    assert profctl("stat", check=2) and profctl("stat", "-r", 0, "--", "true", check=2)


def test_compare(profctl, load, tmp_path):
    """More pages are "more"; the same program is "same"; a single run gives no verdict."""
    saved = tmp_path / "before.stat"
    arguments = ["-r", 5, "-e", "page-faults"]
    profctl("stat", *arguments, "--save", saved, "--", load, 1000, 0, 0)
    _, same = stat(profctl, *arguments, "--compare", saved, "--", load, 1000, 0, 0)
    assert same["page-faults"]["verdict"] == "same" or abs(same["page-faults"]["change"]) < 5
    _, more = stat(profctl, *arguments, "--compare", saved, "--save", saved, "--", load, 2000, 0, 0)
    row = more["page-faults"]
    assert row["verdict"] == "more" and abs(row["change"] - 2000) < 50 and row["noise"] < 500
    assert row["mean"] - row["before_mean"] == pytest.approx(row["change"])
    # --save replaced the file that it had written before
    _, less = stat(profctl, *arguments, "--compare", saved, "--", load, 1000, 0, 0)
    assert less["page-faults"]["verdict"] == "less"
    text = profctl("stat", *arguments, "--compare", saved, "--", load, 1000, 0, 0).stderr
    assert re.search(r"± % +change % +noise % +verdict +event", text) and re.search(r" -\d+(\.\d+)? +\d+(\.\d+)? +less +page-faults", text)
    single = tmp_path / "single.stat"
    profctl("stat", "-e", "page-faults", "--save", single, "--", load, 10, 0, 0)
    _, unclear = stat(profctl, "-e", "page-faults", "--compare", single, "--", load, 10, 0, 0)
    assert unclear["page-faults"]["verdict"] == "unclear" and unclear["page-faults"]["noise"] is None
    # an event that the saved run lacks has no verdict
    _, rows = stat(profctl, "-e", "context-switches", "--compare", saved, "--", load, 10, 0, 0)
    assert rows["context-switches"]["verdict"] is None and rows["context-switches"]["before_mean"] is None


def test_bad_files(profctl, load, tmp_path):
    """stat reads and overwrites only files that stat wrote."""
    ran = tmp_path / "ran"
    for name, text in ("text", "hello\n"), ("other", "[profctl stat]\nversion=7\n"), ("empty", ""):
        path = tmp_path / name
        path.write_text(text)
        for option in "--compare", "--save":
            assert "'profctl stat --save'" in profctl("stat", option, path, "--", "touch", ran, check=3).stderr
        assert path.read_text() == text and not ran.exists()
    assert "cannot write" in profctl("stat", "--save", tmp_path / "none" / "x", "--", "touch", ran, check=1).stderr and not ran.exists()
    assert "No such file" in profctl("stat", "--compare", tmp_path / "none", "--", "touch", ran, check=1).stderr
    hostile = tmp_path / "hostile"
    hostile.write_text("[profctl stat]\nversion=1\n[page-faults]\nvalues=nan;inf;-1;x;\n[elapsed]\nvalues=1e999;\n[user]\nvalues=;;;\n")
    _, rows = stat(profctl, "-e", "page-faults", "--compare", hostile, "--", load, 10, 0, 0)
    assert all(row["verdict"] is None for row in rows.values())


@pytest.mark.skipif(not PERF, reason="perf is not installed")
def test_like_perf(profctl, load):
    """perf stat has the same counts."""
    command = [load, "3000", "1000", "0"]
    done = subprocess.run([PERF, "stat", "-x,", "-e", "page-faults,minor-faults,major-faults", *command], capture_output=True, text=True, timeout=60)
    if done.returncode:
        pytest.skip(f"perf stat does not work here: {done.stderr.strip()[:200]}")
    perf = {line.split(",")[2].split(":")[0]: float(line.split(",")[0]) for line in done.stderr.splitlines() if line.count(",") > 3}
    _, rows = stat(profctl, "-e", "page-faults,minor-faults,major-faults", "--", *command)
    assert perf["page-faults"] > 6000
    for name in "page-faults", "minor-faults":
        assert abs(rows[name]["mean"] - perf[name]) < 50


def test_as_nobody(profctl, require):
    """A plain user gets the counts that the kernel permits, and for all others the reason."""
    require(root=True)
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    _, rows = stat(profctl, "-e", "page-faults,context-switches,cycles", "--", "true", prefix=as_user)
    assert rows["elapsed"]["mean"] > 0
    for row in rows.values():
        assert (row["mean"] is None) == (row["state"] != "counted")
    # events refused for missing rights are not reported as events that do not exist
    if rows["page-faults"]["user_only"]:
        assert rows["context-switches"]["state"] == "not-permitted" and rows["page-faults"]["mean"] > 20
        assert "page-faults (user mode)" in profctl("stat", "-e", "page-faults", "--", "true", prefix=as_user).stderr
    refused = profctl("stat", "-e", "sched:sched_switch", "--", "true", prefix=as_user, check=None)
    assert refused.returncode == 2 and "/sys/kernel/tracing" in refused.stderr or "not permitted" in refused.stderr
