# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Tracepoints with their fields: counts and times, compared with programs that count their own
calls."""
import os
import shlex
import sys
from pathlib import Path

import pytest
import schema

from captures import check_cut, make, rows
from recordings import recorded, recorded_without_loss
from test_terminal import shown

pytestmark = pytest.mark.usefixtures("nothing_is_left")

# Writes 7 bytes 300 times, and 9 bytes 200 times, to descriptor 77, which nothing else uses; and
# sleeps for 5 ms 20 times.
PROGRAM = """
import os, time
os.dup2(os.open("/dev/null", os.O_WRONLY), 77)
for i in range(500):
    os.write(77, b"x" * (7 if i < 300 else 9))
for i in range(20):
    time.sleep(0.005)
os.execv("/bin/true", ["true", "/a name"])
"""
WRITE, WRITTEN = "syscalls:sys_enter_write", "syscalls:sys_exit_write"
SLEEP, SLEPT = "syscalls:sys_enter_clock_nanosleep", "syscalls:sys_exit_clock_nanosleep"
EXEC = "sched:sched_process_exec"
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"]


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    return tmp_path_factory.mktemp("events") / "counted.cap"


@pytest.fixture
def whole(profctl, counted):
    """The capture, recorded once for all tests."""
    command = ["-e", ",".join([WRITE, WRITTEN, SLEEP, SLEPT, EXEC]), "-o", counted, "--", sys.executable, "-S", "-c", PROGRAM]
    if not counted.exists():
        recorded_without_loss(profctl, *command)
    return counted


def events(profcapture, capture, *options):
    return profcapture.json("events", capture, "--limit", 0, *options)["data"]["rows"]


def test_counts(profcapture, whole):
    check_cut(profcapture, "events", whole)
    by_fd = {(row["event"], row["value"]): row for row in events(profcapture, whole, "--by", "fd")}
    assert set(event for event, _ in by_fd) == {WRITE}  # the other events have no such field
    assert by_fd[WRITE, 77]["count"] == by_fd[WRITE, 77]["intervals"] == 500
    sizes = {row["value"]: row for row in events(profcapture, whole, "--event", WRITE, "--by", "count")}
    assert (sizes[7]["count"], sizes[9]["count"]) == (300, 200)
    results = {row["value"]: row for row in events(profcapture, whole, "--event", WRITTEN, "--by", "ret")}
    assert results[7]["count"] == results[7]["intervals"] == 300
    assert all(row["value"] is None for row in events(profcapture, whole))


def test_times(profcapture, whole):
    row = next(row for row in events(profcapture, whole, "--event", SLEEP))
    assert row["count"] == row["intervals"] == 20
    assert 5e6 <= row["min_ns"] <= row["median_ns"] <= row["p95_ns"] <= row["max_ns"]
    assert row["total_ns"] >= 20 * 5e6 and row["mean_ns"] == (row["total_ns"] + 10) // 20
    assert (row["unmatched_begin"], row["unmatched_end"]) == (0, 0)
    text = profcapture("events", whole, "--event", SLEEP).stdout
    assert f"Most time: {SLEEP}" in text and "in 20 calls" in text
    # the counts of two parts of the time add up
    whole_count = sum(row["count"] for row in events(profcapture, whole))
    before, after = (sum(row["count"] for row in events(profcapture, whole, *part))
                     for part in (["--to", "0.0999999999"], ["--from", "0.1"]))
    assert before + after == whole_count


def test_texts(profcapture, whole):
    """Fields may be signed numbers, or texts whose offset is in the record."""
    assert {"value": "/bin/true", "count": 1}.items() <= \
        next(row for row in events(profcapture, whole, "--event", EXEC, "--by", "filename") if row["value"] == "/bin/true").items()
    sources = {row["name"]: row for row in rows(profcapture, whole, "source")}
    assert sources[EXEC]["fields"] == ["filename", "pid", "old_pid"]
    assert sources[EXEC]["field_kinds"] == ["string", "s64", "s64"]
    assert sources[EXEC]["field_types"] == ["char", "pid_t", "pid_t"]


def test_sql(profcapture, whole):
    query = f"SELECT fields->>'count' AS bytes, count(*) AS n FROM sample WHERE event = '{WRITE}' AND fields->>'fd' = 77 GROUP BY bytes"
    found = profcapture.json("sql", whole, query)["data"]["rows"]
    assert [(row["bytes"], row["n"]) for row in found] == [(7, 300), (9, 200)]
    assert profcapture.json("sql", whole, "SELECT count(fields) AS n FROM samples")["data"]["rows"][0]["n"] > 1000


def test_output(profcapture, whole):
    for options in [], ["--by", "fd"], ["--by", "filename"], ["--by", "buf"]:
        schema.check(profcapture, "events", profcapture.json("events", whole, *options))
    assert "sys_enter_write fd=77" in profcapture("events", whole, "--by", "fd").stdout
    refused = profcapture("events", whole, "--by", "nothing", check=2)
    assert "has a field 'nothing'. Recorded: __syscall_nr, fd, buf, count" in refused.stderr


def test_next(profcapture, whole):
    """On a terminal, the last line is the command that shows where the event with the most time
    came from."""
    last = shown(profcapture, "events", whole).splitlines()[-1]
    command = last.removeprefix("Next: profcapture ")
    assert command == shlex.join(["report", str(whole), "--event", SLEEP, "--tree"]) and command != last
    assert "20 samples of" in profcapture(*shlex.split(command)).stdout
    assert "Next: " not in profcapture("events", whole).stdout


def test_filter(profctl, profcapture, capture):
    recorded(profctl, "-e", f"{WRITE}/fd == 77 && count == 9/", "-o", capture, "--", sys.executable, "-S", "-c", PROGRAM)
    row, = events(profcapture, capture, "--by", "count")
    assert (row["event"], row["value"], row["count"]) == (f"{WRITE}/fd == 77 && count == 9/", 9, 200)


SYNC = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
for i in range(10):
    os.pwrite(fd, os.urandom(8192), i * 8192)
    os.fsync(fd)
os.unlink(sys.argv[1])
"""


def test_block_requests(profctl, profcapture, capture):
    """Each fsync() of new data issues requests that write this data to the file's device."""
    folder = next((path for path in map(Path, ("/var/tmp", "/root", "/")) if os.major(path.stat().st_dev)), None)
    device = folder and f"{os.major(folder.stat().st_dev)}:{os.minor(folder.stat().st_dev)}"
    if not device or not Path("/sys/dev/block", device).exists():
        pytest.skip("no file system here is on a block device")
    recorded(profctl, "-a", "--no-off-cpu", "-e", "block:block_rq_issue", "-o", capture, "--", sys.executable, "-S", "-c", SYNC,
             folder / f"profd-sync-{os.getpid()}")
    query = "SELECT fields->>'bytes' AS bytes, fields->>'rwbs' AS rwbs FROM sample WHERE event = 'block:block_rq_issue'"
    found = profcapture.json("sql", capture, query, "--limit", 0)["data"]["rows"]
    written = [row["bytes"] for row in found if "W" in row["rwbs"]]
    assert len(written) >= 10 and sum(written) >= 10 * 8192
    by = events(profcapture, capture, "--by", "rwbs")
    assert sum(row["count"] for row in by) == len(found)


def test_filter_of_a_text(profctl, profcapture, capture):
    """A filter may compare a text with slashes and commas; another event may follow."""
    done = recorded(profctl, "-e", f'{EXEC}/filename=="/bin/true,"/,{EXEC}/filename=="/bin/true"/,{WRITE}', "-o", capture, "--",
                    sys.executable, "-S", "-c", PROGRAM)
    assert done["samples"] >= 501
    assert {row["name"] for row in rows(profcapture, capture, "source")} == \
        {f'{EXEC}/filename=="/bin/true,"/', f'{EXEC}/filename=="/bin/true"/', WRITE}
    row, = (row for row in events(profcapture, capture, "--by", "filename") if row["event"] == f'{EXEC}/filename=="/bin/true"/')
    assert (row["value"], row["count"]) == ("/bin/true", 1)


@pytest.mark.parametrize("event, message", [
    (os.fsdecode(WRITE.encode() + b'/buf == "\xff"/'), "is not UTF-8"),
    (f"{WRITE}/nothing == 1/", "the kernel refuses the filter \"nothing == 1\": Invalid argument; it compares fields as in "
     "pid==1 && comm~\"x*\", and this event has __syscall_nr, fd, buf, count"),
    (f"{WRITE}/fd ==/", "the kernel refuses the filter"),
    (f"{WRITE}/fd == 1", "a filter is between two"),
    ("cycles:u/fd == 1/", "only tracepoints take a filter"),
])
def test_bad_filter(profctl, capture, event, message):
    refused = profctl("record", "-e", event, "-o", capture, "--", "true", check=None)
    assert refused.returncode != 0 and message in refused.stderr
    assert not capture.exists()


def test_without_kernel(profctl, profcapture, capture):
    """Without the kernel, fields are not recorded, because they may be kernel addresses, and
    filters are refused, because they reveal values."""
    recorded(profctl, "--no-kernel", "-e", "kmem:kmalloc", "-o", capture, "--", "true")
    assert events(profcapture, capture)
    source, = (row for row in rows(profcapture, capture, "source") if row["name"] == "kmem:kmalloc")
    assert not source["fields"]
    refused = profctl("record", "--no-kernel", "-e", "kmem:kmalloc/ptr > 0/", "-o", capture.with_name("b"), "--", "true",
                      check=None)
    assert refused.returncode != 0 and "a filter compares fields, which may be addresses" in refused.stderr


def test_no_fields(profcapture, tmp_path):
    """The output is valid even if rows have fields that do not fit their events, as generated rows do."""
    path = make(tmp_path / "made.cap", "--all-tables", "--rows", 2000, "--epochs", 3)
    schema.check(profcapture, "events", profcapture.json("events", path))
    assert profcapture("events", path, "--by", "none", check=2).stderr


def test_list(profctl, profcapture, capture):
    listed = profctl("list").stdout.splitlines()
    assert {"cpu-clock", "page-faults", "sched:sched_switch", WRITE} <= set(listed) and len(listed) == len(set(listed))
    data = profctl.json("list", "sched:*", "event")
    schema.check(profctl, "list", data)
    kinds = {event["name"]: event["kind"] for event in data["data"]["events"]}
    assert kinds["sched:sched_switch"] == "tracepoint" and kinds["cpu-clock"] == "event" and WRITE not in kinds
    assert data["data"]["unreadable"] == []
    recorded(profctl, "-e", ",".join(sorted(name for name in kinds if name.startswith("sched:sched_process"))), "-o", capture,
             "--", "true")
    assert "no event matches" in profctl("list", "sched:no*", check=1).stderr


def test_list_without_rights(profctl):
    """If a user may not read tracefs, the list says so."""
    done = profctl("list", "sched:*", prefix=NOBODY, check=1)
    assert "cannot list events of kind 'tracepoint': cannot read tracefs" in done.stderr
