# SPDX-License-Identifier: BSD-2-Clause-Patent
"""If writing a capture fails, the error is reported, and the chunks that were complete before can
be read."""
import fcntl
import os
import subprocess
import threading
import time

import format_reader
import pytest
from conftest import Program

ROWS = 3000
OPTIONS = ["--rows", ROWS, "--chunk-rows", 300]
make_capture = Program(os.environ["MAKE_CAPTURE"])


def rows_of(data, **options):
    capture = format_reader.Capture(data, **options)
    return [row for row, _ in capture.rows("sample")], capture


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "whole.cap"
    make_capture(*OPTIONS, path)
    rows, capture = rows_of(path.read_bytes())
    assert capture.finished and len(rows) == ROWS
    return rows


@pytest.fixture
def inject(require):
    """Runs make-capture and lets a system call on its file fail: inject("pwrite64",
    "error=EIO:when=7", …, FILE)."""
    require("strace")
    if subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode != 0:
        pytest.skip("strace may not trace here")

    def run(call, fault, *args, check):
        filters = ["-P", args[-1], "-e", f"trace={call}", "-e", f"inject={call}:{fault}"]
        prefix = ["strace", "-qq", "-o", "/dev/null", *filters]
        # LeakSanitizer cannot work in a traced process
        return make_capture(*args, prefix=prefix, check=check, env={"ASAN_OPTIONS": "detect_leaks=0"})

    return run


def assert_prefix(data, expected):
    """Checks that the readable rows are the first ones, in complete chunks; returns their
    number."""
    if len(data) < 256 or not format_reader.Capture(data, cut=True).tables:
        return 0
    rows, capture = rows_of(data, cut=True)
    assert not capture.finished
    assert rows == expected[: len(rows)] and len(rows) % 300 == 0
    return len(rows)


@pytest.mark.parametrize("error, text", [("EIO", "Input/output error"), ("ENOSPC", "No space left on device"), ("EDQUOT", "quota")])
def test_write_fails(inject, capture, expected, error, text):
    seen = set()
    for when in (1, 2, 3, 9, 14, 17, 22, 23):
        done = inject("pwrite64", f"error={error}:when={when}", *OPTIONS, capture, check=1)
        assert text.lower() in done.stderr.lower() and str(capture) in done.stderr
        seen.add(assert_prefix(capture.read_bytes(), expected))
    assert len(seen) > 3  # from an empty file to a nearly complete one


def test_no_room_to_reserve(inject, capture, expected):
    for when in (1, 2):
        done = inject("fallocate", f"error=ENOSPC:when={when}+", *OPTIONS, "--all-tables", capture, check=1)
        assert "No space left on device" in done.stderr
        assert_prefix(capture.read_bytes(), expected)


def finished_rows(path):
    rows, capture = rows_of(path.read_bytes())
    assert capture.finished
    assert rows_of(path.read_bytes(), walk=True)[0] == rows
    return rows


@pytest.mark.parametrize("call, fault", [
    ("pwrite64", "error=EINTR:when=1+2"),  # every other call
    ("fallocate", "error=EINTR:when=1+2"),
    ("fallocate", "error=EOPNOTSUPP:when=1+"),  # a file system that cannot reserve space
    ("flock", "error=ENOLCK:when=1"),  # a file system that cannot lock
    ("ftruncate", "error=EINTR:when=1"),
])
def test_what_is_no_error(inject, capture, expected, call, fault):
    inject(call, fault, *OPTIONS, capture, check=0)
    assert finished_rows(capture) == expected


def test_locked(inject, capture):
    done = inject("flock", "error=EAGAIN:when=1", *OPTIONS, capture, check=1)
    assert "temporarily unavailable" in done.stderr
    assert capture.read_bytes() == b""


def test_append_cannot_read(inject, capture):
    make_capture(*OPTIONS, capture)
    before = capture.read_bytes()
    for when in (1, 2, 3):
        done = inject("pread64", f"error=EIO:when={when}", "--append", "--first", ROWS, *OPTIONS, capture, check=1)
        assert "Input/output error" in done.stderr
        assert capture.read_bytes() == before


def test_append_fails_and_goes_on(inject, capture, expected):
    """A failed append leaves the earlier rows; the next append continues after them."""
    make_capture(*OPTIONS, capture)
    before = capture.read_bytes()
    for when in (1, 3, 15):
        inject("pwrite64", f"error=EIO:when={when}", "--append", "--first", ROWS, *OPTIONS, capture, check=1)
        after = capture.read_bytes()
        assert after.startswith(before)
        assert rows_of(after, walk=True, cut=True)[0][:ROWS] == expected
        before = after
    make_capture("--append", "--first", ROWS, *OPTIONS, capture)
    after = capture.read_bytes()
    assert after.startswith(before)
    rows, reader = rows_of(after)
    assert reader.finished and rows[:ROWS] == expected and len(rows) >= 2 * ROWS


def test_dev_full():
    done = make_capture(*OPTIONS, "/dev/full", check=1)
    assert "/dev/full" in done.stderr and "No space left on device" in done.stderr


def test_pipe(expected):
    done = make_capture(*OPTIONS, "-", text=False)
    rows, capture = rows_of(done.stdout)
    assert capture.finished and rows == expected


def test_short_writes(expected):
    """A pipe accepts little at a time and never blocks."""
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(w, False)
    pieces = []

    def drain():
        with open(r, "rb", buffering=0) as pipe:
            while piece := pipe.read(1500):
                pieces.append(piece)
                time.sleep(0.001)

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        make_capture(*OPTIONS, "-", stdout=w)
    finally:
        os.close(w)
        thread.join(timeout=60)
    rows, capture = rows_of(b"".join(pieces))
    assert capture.finished and rows == expected and len(pieces) > 20


def test_pipe_closes():
    """If nobody reads the pipe any more, the writer ends, by SIGPIPE or with a message."""
    process = subprocess.Popen(make_capture.command("--rows", 3_000_000, "-"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(5000)
    process.stdout.close()
    assert process.wait(timeout=60) != 0
    process.stderr.close()
