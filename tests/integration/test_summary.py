# SPDX-License-Identifier: BSD-2-Clause-Patent
"""`summary` has the first sentences of `report` and `memory`; what `help agent` teaches is true."""
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import schema
from captures import check_cut, make

PROGRAM = r"""
#include "libcollector/prof-collector.h"
#include <stdlib.h>
#include <unistd.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void heavy(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; }
int main(void)
{
	uint32_t level = prof_counter_define("shop", "level", "", 0);
	for (int i = 0; i < 40; i++) {
		prof_mark_begin(0, "shop", "turn", NULL, 0);
		heavy(3000000);
		usleep(1000); // without a wait, there is nothing to say about waits
		sink += (unsigned long)malloc(3000);
		prof_mark_end(0, "shop", "turn", NULL, 0);
		prof_counter_set(level, i);
	}
}
"""


@pytest.fixture(scope="module")
def recorded(profctl, compile_c, tmp_path_factory):
    path = tmp_path_factory.mktemp("summary") / "city.cap"
    program = compile_c("city", PROGRAM, "-g", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"])
    profctl("record", "-q", "-F", 1999, "--memory", *(["--wakers"] if os.geteuid() == 0 else []), "-o", path, "--", program)
    return path


# ---- summary


def test_summary(profcapture, recorded):
    text = profcapture("summary", recorded).stdout
    answer = profcapture.json("summary", recorded)
    schema.check(profcapture, "summary", answer)
    data, report = answer["data"], profcapture.json("report", recorded)["data"]
    assert "\n".join(data["verdict"]) in text and [f"Next: {step}" for step in data["next"]] == text.splitlines()[-len(data["next"]):]
    # summary has the same sentences
    head = profcapture("report", recorded).stdout.split("\n\n")[0].splitlines()
    assert data["verdict"][:len(head)] == head
    memory = profcapture("memory", recorded).stdout.splitlines()
    assert data["verdict"][len(head)] == memory[0] and any(line.startswith("Lost: nothing.") for line in head)
    # summary has the same numbers
    assert (data["total"], data["total_weight"]) == (report["total"], report["total_weight"])
    whole = profcapture.json("memory", recorded)["data"]
    assert (data["memory"], data["runtime"]) == (whole["summary"], whole["runtime"])
    assert data["functions"][0]["name"] == "heavy" and not data["incomplete"]
    assert {loss["cause"] for loss in data["loss"]} <= {"ticks-missed"}
    for step in data["next"][:-1]:  # the last one opens a browser
        profcapture(*shlex.split(step)[1:])


WAITER = r"""
#include <pthread.h>
#include <unistd.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void heavy(void) { for (unsigned long i = 0; i < 300000000ul; i++) sink += i; }
__attribute__((noinline)) static void doze(void) { usleep(40000); sink++; }
static void *run(void *data) { for (int i = 0; i < 5; i++) doze(); heavy(); return data; }
int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, run, NULL);
	pthread_join(thread, NULL);
}
"""


def test_summary_has_the_numbers_of_its_sentences(profctl, profcapture, compile_c, tmp_path):
    """For scripts, JSON has the numbers and functions of the sentences. They equal the results of
    the verbs that report them."""
    path = tmp_path / "waiter.cap"
    profctl("record", "-q", "-F", 999, "--off-cpu", "-o", path, "--", compile_c("waiter", WAITER, "-g", "-O1", "-pthread"))
    answer = profcapture.json("summary", path)
    schema.check(profcapture, "summary", answer)
    data, report = answer["data"], profcapture.json("report", path)["data"]
    assert "  " not in "".join(data["sentences"]) and " ".join(data["sentences"]) == re.sub(r" +", " ", " ".join(data["verdict"]))
    assert data["wall_ns"] == answer["capture"]["duration_ns"] and data["lost"] == data["loss"] and data["threads"] == 2
    if report["unit"] == "ns":
        assert data["cpu_ns"] == report["total_weight"]
    rows = {row["name"]: row for row in report["rows"]}
    assert [row["name"] for row in data["top"]] == [row["name"] for row in data["functions"]]
    heavy = data["top"][0]
    assert heavy["name"] == "heavy" and heavy["file"].endswith("waiter.c") and heavy["image"] == rows["heavy"]["image"]
    assert heavy["pct"] == data["functions"][0]["pct"] >= rows["heavy"]["self_pct"]
    threads = profcapture.json("report", path, "--by", "thread")["data"]["rows"]
    assert data["waited_ns"] == sum(row["wait_ns"] for row in threads) > 0.15e9
    assert data["ready_ns"] == sum(row["preempted_ns"] + (row["runnable_ns"] or 0) for row in threads)
    states = profcapture.json("report", path, "--by", "state")["data"]
    places = {(row["cause"], row["function"]): row["time_ns"] for row in states["places"] or []}
    if profcapture("report", path, "--metric", "off-cpu", check=None).returncode == 0:
        assert data["waiting"] and {(row["cause"], row["function"]): row["ns"] for row in data["waiting"]}.items() <= places.items()
        assert any(row["cause"] == "timer" and row["function"] == "doze" for row in data["waiting"])


def test_summary_without_waits_has_no_list_of_them(profcapture, tmp_path):
    made = make(tmp_path / "made.cap", "--only", "sample", "--rows", 300)
    data = profcapture.json("summary", made)["data"]
    assert data["waited_ns"] is None and data["ready_ns"] is None
    assert data["waiting"] is None and data["memory"] is None and data["runtime"] is None


def test_losses_are_said_once(profctl, profcapture, compile_c, recorded, tmp_path):
    """Losses in the sentences about CPU time are not repeated in those about allocations."""
    damaged = bytearray(recorded.read_bytes())
    rows = {table["name"]: table["rows"] for table in profcapture.json("info", recorded)["data"]["tables"]}
    assert rows["alloc"] > 0
    damaged[len(damaged) // 2] ^= 255
    (tmp_path / "bad.cap").write_bytes(damaged)
    for path in recorded, tmp_path / "bad.cap", make(tmp_path / "lossy.cap", "--all-tables", "--rows", 300):
        lines = [line for line in profcapture("summary", path).stdout.splitlines() if line.startswith("Lost")]
        assert len(lines) == len(set(lines)), lines


def test_summary_from_a_pipe(profcapture, recorded):
    with subprocess.Popen(["cat", recorded], stdout=subprocess.PIPE) as cat:
        answer = json.loads(profcapture("summary", "-", "--json", stdin=cat.stdout).stdout)
    assert answer["data"]["next"] == []
    assert answer["data"]["verdict"] == profcapture.json("summary", recorded)["data"]["verdict"]


def test_summary_of_less(profctl, profcapture, tmp_path):
    """Captures without allocations, without samples, with losses, and with damage have a
    summary."""
    made = make(tmp_path / "made.cap", "--rows", 300)
    answer = profcapture.json("summary", made)
    schema.check(profcapture, "summary", answer)
    lossy = make(tmp_path / "lossy.cap", "--all-tables", "--rows", 300)
    answer = profcapture.json("summary", lossy)
    schema.check(profcapture, "summary", answer)
    assert answer["data"]["loss"] and answer["data"]["incomplete"]
    empty = make(tmp_path / "empty.cap", "--rows", 0)
    assert "No samples" in profcapture("summary", empty).stdout
    damaged = bytearray(lossy.read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (tmp_path / "bad.cap").write_bytes(damaged)
    done = profcapture("summary", tmp_path / "bad.cap")
    assert done.stderr.count("is damaged") <= 1
    (tmp_path / "none.cap").write_bytes(b"none")
    profcapture("summary", tmp_path / "none.cap", check=3)


# ---- the rest of a list


@pytest.mark.parametrize("command", [
    "report", "report --by line", "report --by thread", "report --by image", "report --callees main", "annotate heavy", "memory",
    "memory --leaks", "memory --sizes", "memory --timeline", "counters", "dump --table sample", "info"], ids=str)
def test_cut_lists(profcapture, recorded, command):
    """A list that --limit cuts says that it is cut, how long it is, and how to get the rest."""
    verb, *options = command.split()
    operands = [verb, recorded, *options]
    whole = json.loads(profcapture(*operands, "--json", "--limit", 0).stdout)
    cut = json.loads(profcapture(*operands, "--json", "--limit", 1).stdout)
    assert not whole["truncated"]
    if command == "memory --timeline":
        assert cut["total_rows"] == 1  # for --timeline, --limit is the number of points
        return
    lists = sum(1 for key in ("callers", "callees") if whole["data"].get(key)) or 1  # the limit applies to each list
    assert cut["total_rows"] == (whole["total_rows"] or len(whole["data"]["rows"])) and cut["truncated"] == (cut["total_rows"] > lists)
    few, all_rows = profcapture(*operands, "--limit", 1).stdout, profcapture(*operands, "--limit", 0).stdout
    assert ("(--limit 0" in few) == (few != all_rows)
    assert "(--limit 0" not in all_rows


def test_cut_lists_of_many_rows(profcapture, recorded, tmp_path):
    made = make(tmp_path / "made.cap", "--all-tables", "--rows", 300)
    for command in (["marks", made], ["counters", made], ["critical-path", made], ["diff", made, recorded, "--all"],
                    ["sql", made, "SELECT time_ns, function FROM samples"]):
        check_cut(profcapture, *command)


# ---- times


SECONDS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def test_text_and_json_have_the_same_times(profcapture, recorded):
    """In text and JSON, times count from the start of the capture, even for a range, as they do in
    rows."""
    marks = [row["time_ns"] for row in profcapture.json("sql", recorded, "SELECT time_ns FROM marks WHERE name = 'turn' ORDER BY 1")["data"]["rows"]]
    start, end = marks[10], marks[30]
    options = ["--from", f"{start}ns..{end}ns"]
    heading = f"{start / 1e9:.2f}-{end / 1e9:.2f} s"
    peak = profcapture.json("memory", recorded)["data"]["summary"]["peak_ns"]
    number, unit = re.search(r"largest at ([\d.]+) (\w+),", profcapture("memory", recorded).stdout).groups()
    assert float(number) * SECONDS[unit] == pytest.approx(peak / 1e9, rel=0.01)
    series = profcapture.json("memory", recorded, "--timeline", *options)["data"]["series"]
    text = profcapture("memory", recorded, "--timeline", *options).stdout
    said = [float(number) * SECONDS[unit] * 1e9 for number, unit in re.findall(r"^([\d.]+) (\w+)  ", text, re.MULTILINE)]
    assert heading in text and said and series
    assert all(0.99 * start <= time <= 1.01 * end for time in [*said, *(point["time_ns"] for point in series)])
    timeline = profcapture.json("report", recorded, "--timeline", *options)["data"]["timeline"]
    assert timeline["from_ns"] == start and heading in profcapture("report", recorded, "--timeline", *options).stdout
    level = next(row for row in profcapture.json("counters", recorded, *options)["data"]["rows"] if row["name"] == "level")
    query = f"SELECT value FROM counters WHERE name = 'level' AND time_ns <= {end} ORDER BY time_ns DESC LIMIT 1"
    assert level["last"] == profcapture.json("sql", recorded, query)["data"]["rows"][0]["value"]
    text = profcapture("counters", recorded, *options).stdout
    assert heading in text and re.search(rf"^{level['first']:g}  {level['last']:g}  .*shop/level", text, re.MULTILINE)
    count = profcapture.json("marks", recorded, *options)["data"]["rows"][0]["count"]
    assert 0 < count < len(marks) and re.search(rf"^{count}  .*shop/turn", profcapture("marks", recorded, *options).stdout, re.MULTILINE)


# ---- help agent


def examples():
    text = (Path(os.environ["PROF_SOURCE_DIR"]) / "data/help/agent.txt").read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.startswith("    profcapture ")]


def test_agent(profcapture, recorded, tmp_path):
    """help agent is short, every verb and option in it exists, and every example answers."""
    text = profcapture("help", "agent").stdout
    assert len(text.split()) < 1500 and len(examples()) > 25
    names = {"FILE": recorded, "FUNCTION": "heavy", "MARK": "turn", "PAGE": tmp_path / "page.html", "NEW": tmp_path / "new"}
    for example in examples():
        words = [str(names.get(word, word)) for word in shlex.split(example)[1:]]
        done = profcapture(*words, check=None)
        # the program is too short for diff's verdict; wakers are recorded for root only
        also = 8 if words[0] == "diff" else 6 if words[0] in ("critical-path", "locks") and os.geteuid() != 0 else 0
        assert done.returncode in (0, also), f"{example}: {done.stderr}"
        if "--json" in words and done.returncode != 6:
            answer = json.loads(done.stdout)
            assert {"schema", "capture", "truncated", "total_rows", "data"} == set(answer)
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--"}
    verbs = [word for word in profcapture("--complete").stdout.split() if word[0] != "-" and word != "help"]
    known = "".join(profcapture(verb, "--help").stdout for verb in verbs)
    assert {option for option in options if option not in known} <= {"--memory", "--counters", "--wakers", "--help"}


READY = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
static volatile unsigned long sink;
static void *burn(void *data) { for (unsigned long i = 0; i < 400000000ul; i++) sink += i; return data; }
static void *drink(void *data) { return burn(data); }
int main(void)
{
	pthread_t threads[2];
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	pthread_create(&threads[0], NULL, burn, NULL);
	pthread_create(&threads[1], NULL, drink, NULL);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
}
"""


@pytest.fixture(scope="module")
def shared_cpu(profctl, compile_c, tmp_path_factory):
    """Two threads that share one CPU, and a main thread that waits for them."""
    path = tmp_path_factory.mktemp("ready") / "ready.cap"
    profctl("record", "-q", "-F", 499, "-o", path, "--", compile_c("ready", READY, "-g", "-O1", "-fno-optimize-sibling-calls", "-pthread"))
    return path


def test_time_without_a_cpu_is_said(profcapture, shared_cpu):
    rows = profcapture.json("report", shared_cpu, "--by", "thread")["data"]["rows"]
    ready = sum(row["preempted_ns"] + (row["runnable_ns"] or 0) for row in rows)
    assert ready > 0.4 * sum(row["run_ns"] for row in rows)
    said = re.search(r"; ([\d.]+) (m?s) ready, without a\s+CPU\.", profcapture("report", shared_cpu).stdout)
    assert float(said[1]) * {"s": 1e9, "ms": 1e6}[said[2]] == pytest.approx(ready, rel=0.01)
    busy = [row for row in rows if row["run_ns"] > 0.5 * max(row["run_ns"] for row in rows)]
    without = [100 * (row["preempted_ns"] + (row["runnable_ns"] or 0)) /
               (row["run_ns"] + row["wait_ns"] + row["preempted_ns"] + (row["runnable_ns"] or 0)) for row in busy]
    text = profcapture("report", shared_cpu, "--by", "thread").stdout
    said = re.search(r"^The busiest 2 ran [\d-]+ % of their lives, waited 0 % and were without a CPU (\d+)(?:-(\d+))? %\.$", text, re.MULTILINE)
    assert (int(said[1]), int(said[2] or said[1])) == (round(min(without)), round(max(without)))


def split_report(text):
    """Returns the first lines, and the lines of the table without the hint that follows if samples from
    the program's start have a truncated stack."""
    head, table = text.split("\n\n")
    return head, [line for line in table.splitlines() if "truncated stack" not in line]


def test_start_functions(profcapture, shared_cpu):
    """A program's threads are distinguished by the functions with which they began."""
    answer = profcapture.json("report", shared_cpu, "--by", "thread")
    schema.check(profcapture, "report", answer)
    threads = [row for row in answer["data"]["rows"] if row["comm"] == "ready" and row["start"]]
    assert sorted(row["start"] for row in threads if row["tid"] != row["pid"]) == ["burn", "drink"]
    (first,) = (row["start"] for row in threads if row["tid"] == row["pid"])
    assert first == "main" or first.startswith("_")  # its samples may all be from before or after main()
    table = split_report(profcapture("report", shared_cpu, "--by", "thread").stdout)[1]
    assert table[0].endswith("  start") and sorted(line.split()[-1] for line in table[1:]) == ["burn", "drink", "main"]


def test_a_thread_has_one_row(profcapture, shared_cpu):
    """The time before profctl executed the command belongs to the command's main thread."""
    head, table = split_report(profcapture("report", shared_cpu, "--by", "thread").stdout)
    assert head.startswith("3 threads used ") and len(table) == 1 + 3 and not any("profctl" in line for line in table)


def test_agent_statuses(profcapture, recorded, tmp_path):
    profcapture("report", recorded, "--pid", 1, check=6)
    profcapture("report", recorded, "--pid", 1, "--json")
    profcapture("report", recorded, "--no-such-option", check=2)
    (tmp_path / "x.cap").write_bytes(b"none")
    profcapture("report", tmp_path / "x.cap", check=3)
    profcapture("memory", make(tmp_path / "made.cap", "--rows", 300), check=6)
