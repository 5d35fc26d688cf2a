# SPDX-License-Identifier: BSD-2-Clause-Patent
"""`sql` and `export --to sqlite` have the numbers of the other verbs, a query reads only what it
needs, and no query or capture can use too much time or memory."""
import collections
import csv
import fcntl
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
import schema
from captures import make, rows, unprintable
from format_reader import Capture, Chunk, xxh3
from recordings import until
from slices import SANITIZED, part

HOSTILE = b"=1+1,\";'\\\n\r\t\x1b[31m\xe2\x80\xae\xff\xc2\x9b"
HOT = "SELECT function, image, self, total FROM hot_functions WHERE event IS (SELECT event FROM sample LIMIT 1)"
THREADS = "SELECT pid, tid, sum(weight) FROM samples WHERE event IS (SELECT event FROM sample LIMIT 1) GROUP BY 1, 2"
PROGRAM = r"""
#include "libcollector/prof-collector.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void heavy(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; }
__attribute__((noinline)) static void *keep(void) { return calloc(1, 3000); }
static void *work(void *data)
{
	for (int i = 0; i < 40; i++) {
		prof_mark_begin(0, "shop", "turn", NULL, 0);
		heavy(1000000);
		if (i % 2)
			free(keep());
		else
			sink += (unsigned long)keep();
		prof_mark_end(0, "shop", "turn", NULL, 0);
		usleep(1000);
	}
	return data;
}
int main(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
}
"""


def make_capture(path, *prefix):
    make(path, "--all-tables", "--foreign-table", "--epochs", 3, "--rows", 900, "--chunk-rows", 100, *prefix)
    return make(path, "--append", "--all-tables", "--foreign-table", "--first", 900, "--rows", 300, "--chunk-rows", 100, *prefix)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """A capture with two segments, several epochs and every table."""
    return make_capture(tmp_path_factory.mktemp("sql") / "x.cap")


@pytest.fixture(scope="module", params=["plain", "hostile"])
def either(request, capture, tmp_path_factory):
    """The capture, or one in which all names are harmful."""
    if request.param == "plain":
        return capture
    return make_capture(tmp_path_factory.mktemp("sql") / "x.cap", "--prefix", HOSTILE.decode(errors="surrogateescape"))


@pytest.fixture(scope="module")
def recorded(profctl, compile_c, tmp_path_factory):
    if SANITIZED:
        pytest.skip("the program is built without the sanitizer that the collector needs")
    path = tmp_path_factory.mktemp("sql") / "city.cap"
    program = compile_c("city", PROGRAM, "-g", "-pthread", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"])
    profctl("record", "-q", "-F", 1999, "--memory", "-o", path, "--", program)
    return path


@pytest.fixture
def sql(profcapture):
    """Runs a query, and returns its rows as tuples."""
    return lambda path, query, *options: [tuple(row.values()) for row in profcapture.json("sql", path, query, *options)["data"]["rows"]]


@pytest.fixture
def database(profcapture, tmp_path):
    """Exports a capture, and opens the database with Python's SQLite."""
    def export(path):
        profcapture("export", path, "--to", "sqlite", "-o", tmp_path / "x.db", "--force")
        return sqlite3.connect(f"file:{tmp_path / 'x.db'}?mode=ro", uri=True)

    return export


# ---- the numbers of other verbs


def test_functions_and_threads(profcapture, either, sql, database):
    data = profcapture.json("report", either, "--limit", 0)["data"]
    functions = collections.Counter((row["name"], row["image"], row["self_weight"], row["total_weight"]) for row in data["rows"])
    threads = collections.Counter()
    for row in profcapture.json("report", either, "--by", "thread", "--limit", 0)["data"]["rows"]:
        threads[row["pid"], row["tid"]] += row["self_weight"]
    connection = database(either)
    for run in (lambda query: sql(either, query), lambda query: connection.execute(query).fetchall()):
        assert collections.Counter(run(HOT)) == functions
        weights = [row[2:] for row in run(HOT)]
        assert weights == sorted(weights, reverse=True)
        assert {(pid, tid): weight for pid, tid, weight in run(THREADS)} == +threads
        assert [row[0] for row in run(HOT + " ORDER BY self DESC, total DESC LIMIT 10")][0] == data["rows"][0]["name"]
        assert run("SELECT count(*), sum(weight) FROM samples WHERE event IS (SELECT event FROM sample LIMIT 1)") == [
            (data["total"], data["total_weight"])]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_every_table(profcapture, either, sql, database):
    """Each column of dump has the same values in SQL."""
    connection = database(either)
    tables = {name for name, in sql(either, "SELECT name FROM sqlite_temp_schema WHERE type = 'table'")}
    assert tables == {name for name, in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    own = tables - {"calls", "functions", "marks", "blocks", "thread_states"}
    assert own >= {"sample", "string", "sensor", "jit", "live"}
    for table in part(sorted(own), len(own)):
        dumped = rows(profcapture, either, table)
        ours = profcapture.json("sql", either, f"SELECT * FROM {table}")["data"]["rows"]
        names = [name for name in ours[0] if name != "call"]
        columns = ", ".join(f'"{name}"' for name in names)
        assert [tuple(row[name] for name in names) for row in ours] == connection.execute(f"SELECT {columns} FROM {table}").fetchall()
        assert len(ours) == len(dumped) > 0
        for dump, row in zip(dumped, ours):
            for name, value in dump.items():
                if name not in row:
                    assert name == "table" or value is None, name
                elif row[name] is None:
                    assert value in (None, []) or value <= 0, (table, name)
                elif isinstance(value, list):
                    assert json.loads(row[name]) == value
                elif isinstance(value, str) and value.startswith("0x"):
                    number = int(value, 16)
                    assert row[name] == (number if number < 2**63 else f"0x{number:016x}")
                else:
                    assert row[name] == value or (isinstance(value, int) and value >= 2**63 and row[name] == f"0x{value:016x}"), (table, name)


def test_allocations_marks_and_states(profcapture, recorded, sql, database):
    connection = database(recorded)
    memory = profcapture.json("memory", recorded)["data"]["summary"]
    turns = next(row for row in profcapture.json("marks", recorded)["data"]["rows"] if row["name"] == "turn")
    threads = {row["tid"]: row for row in profcapture.json("report", recorded, "--by", "thread")["data"]["rows"]}
    for run in (lambda query: sql(recorded, query), lambda query: connection.execute(query).fetchall()):
        assert run("SELECT count(*), sum(bytes) FROM allocations") == [(memory["allocations"], memory["allocated_bytes"])]
        assert run("SELECT count(*), sum(bytes) FROM allocations WHERE freed_ns IS NULL") == [
            (memory["leaked_blocks"], memory["leaked_bytes"])]
        assert run("SELECT count(*) FROM allocations WHERE function = 'keep' AND stack LIKE '%;work;keep'") == [(120,)]
        assert run("SELECT count(*) FROM allocations WHERE lifetime_ns < 0 OR lifetime_ns <> freed_ns - time_ns") == [(0,)]
        assert run("SELECT count(*), sum(duration_ns), min(duration_ns), max(duration_ns) FROM marks WHERE name = 'turn'") == [
            (turns["count"], turns["total_ns"], turns["min_ns"], turns["max_ns"])]
        times = collections.defaultdict(dict)
        for tid, state, ns in run("SELECT tid, state, sum(duration_ns) FROM thread_states GROUP BY 1, 2"):
            times[tid][state] = ns
        for tid, row in threads.items():
            if row["comm"] == "city" and row["run_ns"]:
                states = (times[tid].get(state, 0) for state in ("running", "waiting", "preempted", "runnable"))
                assert tuple(states) >= (row["run_ns"], row["wait_ns"], row["preempted_ns"], row["runnable_ns"] or 0)
        assert run("SELECT count(DISTINCT state) FROM waits WHERE state = 'running'") == [(0,)]
        assert run("SELECT count(*) > 0 FROM samples WHERE function = 'heavy' AND file LIKE '%city.c' AND line > 0") == [(1,)]


SLEEPER = r"""
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned sink;
__attribute__((noinline)) static void doze(void) { usleep(30000); sink++; }
__attribute__((noinline)) static void block(void) { pthread_mutex_lock(&lock); sink++; pthread_mutex_unlock(&lock); }
__attribute__((noinline)) static void release(void) { pthread_mutex_unlock(&lock); sink++; }
static void *run(void *data) { for (int i = 0; i < 4; i++) { doze(); block(); } return data; }
int main(void)
{
	pthread_t thread;
	pthread_mutex_lock(&lock);
	pthread_create(&thread, NULL, run, NULL);
	usleep(90000);
	release();
	pthread_join(thread, NULL);
}
"""


def test_waits_have_names(profctl, profcapture, compile_c, sql, database, tmp_path):
    """The view `waits` says what threads waited for, where, and who woke them, as report and locks
    do."""
    if os.geteuid() != 0:
        pytest.skip("wakers are recorded for root only")
    path, program = tmp_path / "sleeper.cap", compile_c("sleeper", SLEEPER, "-g", "-O1", "-pthread")
    for _ in range(5):  # on a busy machine, not all wakers are recorded with stacks
        profctl("record", "-q", "--force", "-F", 199, "--off-cpu", "--wakers", "-o", path, "--", program)
        if sql(path, "SELECT count(*) FROM waits WHERE stack LIKE '%;run;block;%' AND waker_stack IS NOT NULL") == [(1,)]:
            break
    states = profcapture.json("report", path, "--by", "state")["data"]
    causes = {row["cause"]: (row["time_ns"], row["waits"]) for row in states["causes"]}
    connection = database(path)
    for run in (lambda query: sql(path, query), lambda query: connection.execute(query).fetchall()):
        assert {cause: (ns, n) for cause, ns, n in run("SELECT cause, sum(duration_ns), count(*) FROM waits GROUP BY 1")} == causes
        assert run("SELECT cause, count(*) FROM wait GROUP BY 1 ORDER BY 1") == run("SELECT cause, count(*) FROM waits GROUP BY 1 ORDER BY 1")
        assert run("SELECT count(*) FROM waits WHERE stack LIKE '%;run;doze;%' AND cause = 'timer' AND end_ns - time_ns > 25000000") == [(4,)]
        assert run("SELECT count(*) FROM waits AS w JOIN thread_states AS s ON s.tid = w.tid AND s.time_ns = w.time_ns AND s.end_ns = w.end_ns "
                   "WHERE w.stack LIKE '%;run;doze;%' AND s.state = 'waiting'") == [(4,)]
        (waker,) = run("SELECT waker_pid = pid, waker_tid = pid, waker_comm, waker_stack LIKE '%main;release;%', waker_function IS NOT NULL "
                       "FROM waits WHERE stack LIKE '%;run;block;%' AND cause = 'futex'")
        assert waker == (1, 1, "sleeper", 1, 1)
        # a query computes only the columns that it uses
        plan = " ".join(str(row[-1]) for row in run("EXPLAIN QUERY PLAN SELECT sum(duration_ns) FROM waits WHERE time_ns < 5000"))
        assert "SUBQUERY" not in plan and "CO-ROUTINE" not in plan
        # a call that is only in a waker's stack is in the table of calls, too
        assert run("SELECT count(*) FROM wait WHERE waker_call NOT IN (SELECT id FROM calls)") == [(0,)]


# ---- what a query reads


def test_ranges(capture, sql):
    """Constraints that the tables evaluate themselves select the same rows as SQLite does."""
    every = sql(capture, "SELECT time_ns, pid, tid, segment, epoch FROM sample")
    times = sorted(row[0] for row in every)
    middle, late = times[len(times) // 3], times[-len(times) // 4]
    for condition, keeps in (
        (f"time_ns BETWEEN {middle} AND {late}", lambda row: middle <= row[0] <= late),
        (f"time_ns > {middle} AND time_ns < {late}", lambda row: middle < row[0] < late),
        (f"time_ns > {middle}.5 AND time_ns <= {late}.5", lambda row: middle < row[0] <= late),
        (f"time_ns = {late}", lambda row: row[0] == late),
        (f"time_ns <= '{middle}'", lambda row: row[0] <= middle),
        ("time_ns < -1e300", lambda row: False),
        ("time_ns >= NULL", lambda row: False),
        (f"pid = {every[0][1]} AND time_ns >= {middle}", lambda row: row[1] == every[0][1] and row[0] >= middle),
        (f"tid = {every[7][2]}", lambda row: row[2] == every[7][2]),
        ("epoch = 2", lambda row: row[4] == 2),
        ("epoch = -1", lambda row: False),
        (f"segment = 2 AND time_ns > {middle}", lambda row: row[3] == 2 and row[0] > middle),
        (f"time_ns < {middle} OR time_ns > {late}", lambda row: row[0] < middle or row[0] > late),
    ):
        assert sql(capture, f"SELECT time_ns, pid, tid, segment, epoch FROM sample WHERE {condition}") == [
            row for row in every if keeps(row)], condition


def test_epochs(capture, sql):
    """A join by id finds the row of the same epoch."""
    query = "FROM sample AS s {} stack AS t ON t.epoch = s.epoch AND t.id = s.stack"
    assert sql(capture, f"SELECT count(*), sum(t.frame), count(DISTINCT t.epoch) {query.format('JOIN')}") == sql(
        capture, f"SELECT count(*), sum(t.frame), count(DISTINCT t.epoch) {query.format('JOIN').replace('t.epoch =', '+t.epoch =')}")
    assert sql(capture, "SELECT count(*) FROM calls AS c LEFT JOIN calls AS up ON up.id = c.caller WHERE up.depth IS NOT c.depth - 1 AND c.depth") == [(0,)]


def test_damage_elsewhere(profcapture, tmp_path):
    """A query reports damage once, and only damage of data that it reads."""
    whole = make(tmp_path / "whole.cap", "--rows", 2000, "--chunk-rows", 100)
    chunks, at = Capture(whole.read_bytes()), 256
    found = []
    while at < len(chunks.data):
        found.append(Chunk(chunks.data, at, chunks.salt))
        at = found[-1].end
    last = [chunk for chunk in found if chunk.table == 16][-1]
    data = bytearray(whole.read_bytes())
    data[last.offset + 96 + last.stored // 2] ^= 1
    flipped = tmp_path / "flipped.cap"
    flipped.write_bytes(data)
    early = profcapture("sql", flipped, "SELECT count(*) FROM sample WHERE time_ns < 1000000")
    assert early.stderr == ""
    done = profcapture("sql", flipped, "SELECT count(*) FROM sample AS a, (SELECT max(time_ns) FROM sample)")
    assert done.stderr.count("is damaged: 1 unreadable chunk with 100 rows (sample) was left out") == 1
    assert done.stdout.splitlines()[1] == "1900"
    assert profcapture.json("sql", flipped, "SELECT 1")["capture"]["state"] == "damaged"


def test_reads_only_the_columns_it_needs(profcapture, tmp_path):
    """A column that cannot be decoded, although its checksum is right, damages only queries that
    need it."""
    whole = make(tmp_path / "whole.cap", "--rows", 2000, "--chunk-rows", 100)
    capture, data = Capture(whole.read_bytes()), bytearray(whole.read_bytes())
    broken = next(column["id"] for column in capture.table("sample")["columns"] if column["name"] == "cgroup")
    at = 256
    while at < len(data):
        chunk = Chunk(bytes(data), at, capture.salt)
        if chunk.table == 16:
            parts, = struct.unpack_from("<I", data, at + 96 + 4)
            for part in range(at + 96 + 32, at + 96 + 32 + 24 * parts, 24):
                if struct.unpack_from("<H", data, part)[0] == broken:
                    data[part + 3] = 9  # no number has nine bytes
            struct.pack_into("<Q", data, at + 72, xxh3(capture.salt, bytes(data[at + 96:at + 96 + chunk.stored])))
            struct.pack_into("<Q", data, at + 8, xxh3(capture.salt, bytes(data[at + 16:at + 96])))
        at = chunk.end
    path = tmp_path / "broken.cap"
    path.write_bytes(data)
    for query in ("SELECT count(*) FROM sample", "SELECT sum(weight) FROM samples WHERE time_ns < 50000000 AND tid > 0",
                  "SELECT function, self FROM hot_functions", "SELECT comm, stack, mode FROM samples"):
        done = profcapture("sql", path, query)
        assert (done.stdout, done.stderr) == (profcapture("sql", whole, query).stdout, ""), query
    done = profcapture("sql", path, "SELECT count(cgroup) FROM sample", check=None)
    assert "2000 rows (sample)" in done.stderr, done


def test_functions_that_are_tables(profcapture, capture, sql):
    """Queries may use functions that return tables."""
    every = collections.Counter(value for row in rows(profcapture, capture, "sensor") for value in row["readings"] or [])
    assert collections.Counter(value for value, in sql(capture, "SELECT j.value FROM sensor AS s, json_each(s.readings) AS j")) == every
    for name in ("json_tree('[1]')", "pragma_table_xinfo('sample')", "pragma_table_list", "pragma_function_list", "pragma_collation_list",
                 "pragma_compile_options"):
        assert sql(capture, f"SELECT count(*) > 0 FROM {name}") == [(1,)], name


# ---- output


def test_formats(profcapture, either):
    query = "SELECT *, 1.5, x'00ff' AS bytes, NULL AS unknown, char(0, 9, 10) AS odd FROM samples LIMIT 7"
    whole = profcapture.json("sql", either, query)
    schema.check(profcapture, "sql", whole)
    whole = whole["data"]["rows"]
    assert len(whole) == 7 and whole[0]["bytes"] == "00ff" and whole[0]["unknown"] is None and whole[0]["odd"] == "\0\t\n"
    lines = profcapture("sql", either, query, "--format", "ndjson").stdout.split("\n")
    assert [json.loads(line) for line in lines[1:-1]] == whole
    table = list(csv.reader(io.StringIO(profcapture("sql", either, query, "--format", "csv", text=False).stdout.decode(), newline=""), strict=True))
    assert table[0] == list(whole[0]) and len(table) == 8
    text = profcapture("sql", either, query).stdout
    assert not unprintable(text.replace("\t", "")) and text.count("\n") == 8
    assert all(line.count("\t") == len(whole[0]) - 1 for line in text.splitlines())
    assert list(profcapture.json("sql", either, "SELECT 1 AS a, 2 AS a, 3 AS A")["data"]["rows"][0]) == ["a", "a_2", "A"]
    limited = profcapture.json("sql", either, "SELECT time_ns FROM sample", "--limit", 5)
    assert limited["truncated"] and len(limited["data"]["rows"]) == 5
    assert not profcapture.json("sql", either, "SELECT time_ns FROM sample LIMIT 5", "--limit", 5)["truncated"]


def test_table_of_a_terminal(profcapture, capture):
    shown = subprocess.run(["script", "-qec", f"stty cols 100; NO_COLOR=1 {profcapture.path} sql {capture} 'SELECT tid, function FROM samples LIMIT 3'", "/dev/null"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert len(shown) == 4 and shown[0].split() == ["tid", "function"]
    assert all(len(line) <= 100 for line in shown)


def test_without_a_query(profcapture, recorded, either, sql):
    """sql without a query prints examples that work and find something."""
    text = profcapture("sql", recorded).stdout
    examples = [line.strip().strip('"') for line in text.splitlines() if line.startswith("    \"SELECT")]
    assert len(examples) == 3 and all(sql(recorded, example) for example in examples)
    assert "samples(time_ns, event, " in text and "  mark(time_ns, " in text
    columns = {(row["table"], row["column"]) for row in profcapture.json("sql", either)["data"]["rows"]}
    assert {("sample", "time_ns"), ("sensor", "balance"), ("waits", "state"), ("calls", "caller")} <= columns
    assert not unprintable(profcapture("sql", either).stdout.replace("\n", ""))


# ---- hostile queries


def test_mistakes(profcapture, capture):
    done = profcapture("sql", capture, "SELECT 1\nFORM sample", check=2)
    assert done.stderr.splitlines()[1:] == ["  FORM sample", "       ^"], done.stderr
    assert "no such column: nosuch\n  SELECT nosuch FROM sample\n         ^\n" in profcapture("sql", capture, "SELECT nosuch FROM sample", check=2).stderr
    assert "Did you mean 'samples'?" in profcapture("sql", capture, "SELECT * FROM smaples", check=2).stderr
    listed = profcapture("sql", capture, "SELECT * FROM qqqqqq", check=2).stderr
    assert "unknown table 'qqqqqq'" in listed and "hot_functions" in listed and "sensor" in listed
    profcapture("sql", capture, 'SELECT "text" FROM sample', check=2)
    for query in ("", ";", "SELECT 1; SELECT 2"):
        profcapture("sql", capture, query, check=2)
    assert profcapture("sql", capture, "SELECT 1; -- the end").stdout == "1\n1\n"


@pytest.mark.parametrize("query", [
    "ATTACH '{}/new.db' AS other", "VACUUM INTO '{}/new.db'", "CREATE TABLE new(a)", "CREATE TEMP TABLE new(a)", "DELETE FROM sample",
    "UPDATE sample SET tid = 0", "INSERT INTO sample DEFAULT VALUES", "DROP TABLE sample", "DROP VIEW samples", "BEGIN", "REINDEX", "ANALYZE",
    "SELECT load_extension('{}/x.so')", "PRAGMA journal_mode = WAL", "PRAGMA temp_store_directory = '{}'", "PRAGMA hard_heap_limit = 0",
    "PRAGMA writable_schema = ON", "CREATE VIRTUAL TABLE new USING capture_rows(99)", "EXPLAIN DELETE FROM sample", "DETACH main",
    "SELECT writefile('{}/new', 'x')", "SELECT readfile('/etc/passwd')", "SELECT * FROM fsdir('/')",
])
def test_reads_only(profcapture, capture, tmp_path, query):
    done = profcapture("sql", capture, query.format(tmp_path), check=2)
    assert done.stdout == "" and os.listdir(tmp_path) == []


# These queries end only by their timeout, and their memory does not grow with time.
ENDLESS = [
    "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT count(*) FROM a",
    "SELECT count(*) FROM sample a, sample b, sample c, mark d, log e",
    "SELECT a.stack, b.stack FROM samples a, samples b, samples c ORDER BY 1, 2",
    "WITH RECURSIVE a(x) AS (SELECT randomblob(1000000) UNION ALL SELECT randomblob(1000000) FROM a) SELECT count(*) FROM a, a b",
]
LARGE = [
    "SELECT group_concat(a.stack) FROM samples a, samples b, samples c",
    "SELECT instr(zeroblob(60000000), CAST(zeroblob(20000000) || 'x' AS BLOB))",
    "SELECT hex(hex(hex(hex(zeroblob(16000000)))))",
    "SELECT hex(zeroblob(1000000000))",
    "SELECT printf('%.*c', 500000000, 'x')",
    "SELECT format('%1000000000d', 1)",
    "SELECT length(printf('%60000000d%60000000d', 1, 2))",
    "SELECT length(replace(hex(zeroblob(30000000)), '0', 'xxxxxxxx'))",
    "SELECT group_concat(printf('%.*c', 60000000, 'x')) FROM sample",
]


@pytest.mark.parametrize("query, timeout", [*((query, "300ms") for query in ENDLESS), *((query, "2s") for query in LARGE)])
def test_hostile_queries(profcapture, capture, query, timeout):
    """A hostile query ends with a message, in time and with little memory."""
    begin = time.monotonic()
    done = subprocess.run([os.environ["PEAK_MEMORY"], profcapture.path, "sql", capture, query, "--timeout", timeout],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
    assert time.monotonic() - begin < (10 if query in ENDLESS else 60)
    if query in LARGE:  # a query that consists of one long step also ends in time
        begin = time.monotonic()
        profcapture("sql", capture, query, "--timeout", "200ms", check=None)
        assert time.monotonic() - begin < 10
    took = json.loads(done.stdout.splitlines()[-1])
    assert took["status"] in (1, 2) and done.stderr.startswith("profcapture: "), (query, done.stderr, took)
    assert took["bytes"] < (256 << 20) + 100 * capture.stat().st_size


FIVE = "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT x AS n{} FROM a WHERE x <= 5 OR x {}"
STEPS = FIVE.format("", "< 0")
ONE_STEP = FIVE.format(", CASE WHEN x > 5 THEN instr(zeroblob(6000000), CAST(zeroblob(2000000) || x AS BLOB)) END AS slow", "> 5")


@pytest.mark.parametrize("query, format, number, more", [
    (STEPS, "text", signal.SIGINT, []), (STEPS, "json", signal.SIGTERM, ["--limit", "9"]), (STEPS, "csv", None, []), (ONE_STEP, "text", signal.SIGTERM, ["--limit", "9"]),
    (ONE_STEP, "json", signal.SIGHUP, []), (ONE_STEP, "ndjson", None, []), (ONE_STEP, "csv", None, ["--limit", "9"])])
def test_partial_results(profcapture, capture, query, format, number, more):
    """A query that ends early shows the rows that it found, and says that they are a part."""
    child = subprocess.Popen([profcapture.path, "sql", capture, query, "--format", format, *more, *([] if number else ["--timeout", "300ms"])],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # the rows are found long before the query has used 200 ms of a CPU
    while number and child.poll() is None and int(Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[11]) < 20:
        time.sleep(0.01)
    if number:
        child.send_signal(number)
    shown, said = child.communicate(timeout=100)
    reason = "was interrupted" if number else "took longer than 300 ms; --timeout allows more"
    assert said == f"profcapture: the query {reason} (partial result: 5 rows)\n" and child.returncode == (130 if number else 1)
    if format == "json":
        data = json.loads(shown)["data"]
        assert data["partial"] is True and [row["n"] for row in data["rows"]] == [1, 2, 3, 4, 5]
    else:
        assert re.findall(r"^(?:\{\"n\":| *)(\d)", shown, re.MULTILINE) == list("12345"), shown


def test_the_second_signal_ends_it(profcapture, capture):
    """A reader that stalls cannot keep the program running: after the first signal the program
    waits for the reader; the second signal ends the program."""
    with subprocess.Popen([profcapture.path, "sql", capture, "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM a) SELECT x FROM a"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        until(lambda: struct.unpack("i", fcntl.ioctl(child.stdout, termios.FIONREAD, bytes(4)))[0] > 60000, 60)  # the pipe is full
        child.send_signal(signal.SIGINT)
        until(lambda: int(re.search(r"^SigCgt:\t(.*)$", Path(f"/proc/{child.pid}/status").read_text(), re.MULTILINE)[1], 16) & 1 << signal.SIGINT - 1 == 0, 60)
        assert child.poll() is None
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == -signal.SIGTERM


def test_a_timeout_of_zero_is_none(sql, capture):
    assert sql(capture, "SELECT count(*) > 0 FROM sample a, sample b", "--timeout", "0") == [(1,)]


def test_printf(sql, capture):
    """The limit of printf()'s output does not change the meaning of SQLite's formats."""
    for call in ("printf('%5.2f|%-8s|%08d|%,d|%q|%Q|%w|%c|%%|%x', 3.14159, 'ab', 42, 1234567, 'it''s', NULL, 'a\"b', 'xyz', 255)", "printf('')", "printf('%s', '')",
                 "printf(NULL)", "printf()", "format('%*s|%.*f', 12, 'wide', 3, 2.0)", "length(printf('%1000000s', 'x'))"):
        assert sql(capture, f"SELECT {call}, typeof({call})") == sqlite3.connect(":memory:").execute(f"SELECT {call}, typeof({call})").fetchall()


# ---- hostile captures


def test_empty(profcapture, tmp_path, sql, database):
    empty = make(tmp_path / "empty.cap", "--rows", 0, "--epochs", 1)
    assert sql(empty, "SELECT count(*) FROM samples") == [(0,)] and database(empty).execute("SELECT count(*) FROM hot_functions").fetchall() == [(0,)]
    for table in ("marks", "allocations", "waits", "counters", "hot_functions", "heap", "sample"):
        assert sql(empty, f"SELECT * FROM {table}") == []
    assert "Examples" in profcapture("sql", empty).stdout
    assert profcapture("sql", empty, "SELECT * FROM mark").stdout.startswith("time_ns\tpid")
    (tmp_path / "no.cap").write_bytes(b"")
    profcapture("sql", tmp_path / "no.cap", "SELECT 1", check=3)


def test_unknown_is_null(profcapture, capture, sql):
    """An unknown value is NULL, never 0."""
    assert sql(capture, "SELECT count(*) FROM sample WHERE weight = 0 OR stack = 0 OR thread = 0") == [(0,)]
    assert sql(capture, "SELECT count(*) FROM loss WHERE count = 0") == [(0,)]
    assert sql(capture, "SELECT count(*) FROM symbol WHERE line = 0 OR inline_parent = 0") == [(0,)]


# ---- the database


def test_destinations(profcapture, capture, tmp_path):
    for options in (["-o", "-"], [], ["-o", tmp_path / "x.db.gz"], ["-o", "/dev/null"]):
        assert "cannot be written to a pipe" in profcapture("export", capture, "--to", "sqlite", *options, check=2).stderr
    assert os.listdir(tmp_path) == []
    path = tmp_path / "x.db"
    assert f"sqlite3 {path}" in profcapture("export", capture, "--to", "sqlite", "-o", path).stderr
    profcapture("export", capture, "--to", "sqlite", "-o", path, check=1)
    before = path.read_bytes()
    profcapture("export", capture, "--to", "sqlite", "-o", path, "--force")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.db"]
    if shutil.which("sqlite3"):
        shown = subprocess.run(["sqlite3", path, "SELECT count(*) FROM samples"], capture_output=True, text=True, check=True).stdout
        assert shown == "1200\n"
    profcapture("export", capture, "--to", "sqlite", "--from", "1s", "-o", tmp_path / "y", check=2)
    profcapture("export", capture, "--to", "sqlite", "--table", "sample", "-o", tmp_path / "y", check=2)


def test_interrupted(profcapture, tmp_path):
    path = make(tmp_path / "large.cap", "--all-tables", "--rows", 30000)
    child = subprocess.Popen([profcapture.path, "export", path, "--to", "sqlite", "-o", tmp_path / "x.db"], stderr=subprocess.PIPE)
    while not ((tmp_path / "x.db").exists() and (tmp_path / "x.db").stat().st_size) and child.poll() is None:
        time.sleep(0.005)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == -signal.SIGTERM and os.listdir(tmp_path) == ["large.cap"]


def test_full_disk(profcapture, capture, tmp_path):
    """The test limits the file's size instead of filling a disk."""
    done = subprocess.run(["sh", "-c", 'trap "" XFSZ; ulimit -f 64; exec "$0" "$@"', profcapture.path, "export", capture, "--to", "sqlite",
                           "-o", tmp_path / "x.db"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "cannot write" in done.stderr and os.listdir(tmp_path) == []


def test_rows_of_a_table(profcapture, capture):
    tables = [table["name"] for table in profcapture.json("info", capture)["data"]["tables"]]
    for table in part(tables, len(tables)):
        whole = rows(profcapture, capture, table)
        lines = profcapture("export", capture, "--to", "ndjson", "--table", table).stdout.splitlines()
        assert [json.loads(line) for line in lines[1:]] == whole, table
        text = profcapture("export", capture, "--to", "csv", "--table", table).stdout
        records = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        assert [record["time_ns"] for record in records] == ["" if row["time_ns"] is None else str(row["time_ns"]) for row in whole], table
    for to in ("csv", "ndjson"):
        for options in ([], ["--from", "1ms..2ms"], ["--tid", "3"]):
            assert (profcapture("export", capture, "--to", to, "--table", "mark", *options).stdout
                    == profcapture("dump", capture, "--format", to, "--table", "mark", *options).stdout)
    assert "needs --table" in profcapture("export", capture, "--to", "csv", check=2).stderr
    assert "Did you mean 'mark'" in profcapture("export", capture, "--to", "csv", "--table", "mrak", check=2).stderr
    profcapture("export", capture, "--to", "folded", "--table", "mark", check=2)
