# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Every verb that reads a capture, with input that is not a capture, truncated, or broken: from a
file and from a pipe.

The verb ends with the exit status in the man page and a message that names the file, prints nothing
that looks like success, leaves no half-written result, and takes bounded memory and time.
"""
import os
import random
import resource
import signal
import socket
import subprocess
import threading

import pytest
from captures import HEADER_BYTES, MAKERS, READERS, TABLE_FORMATS, command, make
from slices import SANITIZED, SOAK, part

VERBS = [*READERS, *MAKERS, "symbolize", "sql", *TABLE_FORMATS]
# A sanitizer maps terabytes, so memory cannot be limited.
BOUNDS = ["prlimit", "--cpu=30", *([] if SANITIZED else [f"--as={1 << 30}"])]

pytestmark = pytest.mark.parametrize("verb", VERBS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A capture with two segments, every table and an unknown one."""
    path = make(tmp_path_factory.mktemp("bad") / "whole.cap", "--all-tables", "--foreign-table", "--rows", 600, "--chunk-rows", 100)
    return make(path, "--append", "--first", 600, "--all-tables", "--foreign-table", "--rows", 100)


def share(verb, inputs, count):
    """A part of the inputs, different for each verb, so that the verbs together try all."""
    return part(inputs, count, VERBS.index(verb))


@pytest.fixture
def run(profcapture, tmp_path, require):
    """Runs a verb with limits for memory and CPU time. A verb that makes a file writes to new.cap."""
    require("prlimit")

    def call(verb, file, check, **options):
        new = tmp_path / "new.cap"
        new.unlink(missing_ok=True)
        done = profcapture(*command(verb, file, new), prefix=[*BOUNDS, *options.pop("prefix", [])], check=check, timeout=60, **options)
        if done.returncode != 0:
            assert not new.exists(), "half a capture is left"
        elif verb in MAKERS:
            assert profcapture("verify", new).stdout
        return done

    return call


def refused(done, file):
    assert done.stderr.startswith("profcapture: cannot ") or done.stderr.startswith("profcapture: nothing in ") or "not a regular file" in done.stderr
    assert f"'{file}'" in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


def no_captures(whole):
    data, noise = whole.read_bytes(), random.Random(1)
    return {
        "empty": b"",
        "a byte": data[:1],
        "header but one byte": data[: HEADER_BYTES - 1],
        "header": data[:HEADER_BYTES],
        "no whole chunk": data[:4096],
        "perf.data": b"PERFILE2" + bytes(4096),
        "text": b"no capture\n" * 999,
        "noise": noise.randbytes(1 << 18),
        "header and noise": data[:HEADER_BYTES] + noise.randbytes(1 << 18),
        "header and zeros": data[:HEADER_BYTES] + bytes(2 << 20),
        "header twice": data[:HEADER_BYTES] * 2,
        "damaged header": bytes(64) + data[64:HEADER_BYTES],
        "no header": bytes(HEADER_BYTES) + data[HEADER_BYTES:],
    }


def test_no_capture(run, whole, tmp_path, verb):
    path = tmp_path / "some.cap"
    for turn, (name, data) in enumerate(share(verb, no_captures(whole).items(), 4)):
        path.write_bytes(data)
        refused(run(verb, path, 3), path)
        assert path.read_bytes() == data, name
        if verb == "symbolize":
            continue
        if SOAK or turn % 2 == 0:
            with path.open("rb") as standard_input:
                refused(run(verb, "-", 3, stdin=standard_input), "-")
        if SOAK or turn % 2 == 1:
            with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as pipe:
                refused(run(verb, "-", 3, stdin=pipe.stdout), "-")
                pipe.stdout.close()


def test_what_to_do_is_said(run, tmp_path, verb):
    path = tmp_path / "perf.data"
    path.write_bytes(b"PERFILE2" + bytes(4096))
    assert "'perf report'" in run(verb, path, 3).stderr
    path.write_bytes(b"")
    assert "record again" in run(verb, path, 3).stderr


def test_no_file(run, tmp_path, verb):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        names = tmp_path, tmp_path / "missing", loop, tmp_path / "socket", tmp_path / "missing" / "x", ""
        for name in share(verb, names, 3):
            refused(run(verb, name, 1), name)
    for name in "/dev/zero", "/dev/null":
        refused(run(verb, name, 3), name)


def test_standard_input_that_is_no_file(run, tmp_path, verb):
    if verb == "symbolize":
        refused = run(verb, "-", 2)
        assert "standard input" in refused.stderr and not refused.stdout
        return
    for name, status in (tmp_path, 1), ("/dev/zero", 3), ("/dev/null", 3):
        fd = os.open(name, os.O_RDONLY)
        done = run(verb, "-", status, stdin=fd)
        os.close(fd)
        assert "'-'" in done.stderr and not done.stdout
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"noise" * 1000)
        ours.shutdown(socket.SHUT_WR)
        assert "not a profd capture" in run(verb, "-", 3, stdin=theirs).stderr
    done = run(verb, "-", 1, stdin=None, preexec_fn=lambda: os.close(0))
    assert "'-'" in done.stderr and not done.stdout


def test_where_a_pipe_waits(run, whole, tmp_path, verb):
    """There is no folder, or no room, for the copy that a verb makes of input from a pipe."""
    if verb == "symbolize":  # does not read pipes
        return
    limit = lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
    for options in {"env": {"TMPDIR": tmp_path / "missing"}}, {"preexec_fn": limit}:
        with subprocess.Popen(["cat", whole], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as pipe:
            done = run(verb, "-", 1, stdin=pipe.stdout, **options)
            pipe.stdout.close()
        assert "'-'" in done.stderr and "TMPDIR" in done.stderr and not done.stdout


def test_named_pipe(run, whole, tmp_path, verb):
    """A named pipe is read like a file. symbolize fails at once, because it cannot add names to a
    pipe."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    if verb == "symbolize":
        refused(run(verb, path, 3), path)
        return
    for data, status in (b"", 3), (b"noise" * 9999, 3), (whole.read_bytes(), 0):
        # the reader may fail before it has read everything
        writer = threading.Thread(target=lambda: subprocess.run(["dd", f"of={path}", "status=none"], input=data, stderr=subprocess.DEVNULL))
        writer.start()
        done = run(verb, path, status)
        writer.join(timeout=60)
        assert not writer.is_alive()
        if status:
            refused(done, path)


def test_not_readable(run, whole, tmp_path, require, verb):
    require("setpriv", root=True)
    secret = tmp_path / "secret.cap"
    secret.write_bytes(whole.read_bytes())
    secret.chmod(0o600)
    folder = tmp_path
    while folder != folder.parent and not folder.stat().st_mode & 1:
        folder.chmod(folder.stat().st_mode | 0o111)
        folder = folder.parent
    done = run(verb, secret, 4, prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    refused(done, secret)
    assert "Permission denied" in done.stderr


def test_prefixes(run, profcapture, whole, tmp_path, verb):
    """From some length on, a truncated file has something to read, and the verb says that the file
    is incomplete."""
    path, data = tmp_path / "cut.cap", whole.read_bytes()
    statuses = []
    first, *lengths = range(HEADER_BYTES + 8, len(data) - 1, len(data) // 12)
    for length in [first, *sorted(share(verb, lengths, 3)), len(data) - 1]:
        path.write_bytes(data[:length])
        done = run(verb, path, None)
        if done.returncode == 3 and not done.stdout:
            refused(done, path)
        elif verb == "verify":
            assert done.returncode == 3 and "unfinished" in done.stdout
        else:
            assert verb == "recover" or "is unfinished" in done.stderr
        statuses.append(done.returncode if verb != "verify" else 3 if not done.stdout else 0)
    # status 6 (no rows for the verb) occurs while the prefix does not have the verb's rows yet
    order = [status for status in (3, 6, 0) if status in statuses]
    assert statuses == sorted(statuses, key=order.index) and order in ([3, 0], [3, 6, 0])
    assert 6 not in order or verb in ("memory", "marks", "counters", "events")


def test_hole_in_the_middle(run, whole, tmp_path, verb):
    path, data = tmp_path / "hole.cap", bytearray(whole.read_bytes())
    hole = slice(len(data) // 3, len(data) // 2)
    data[hole] = bytes(hole.stop - hole.start)
    path.write_bytes(data)
    done = run(verb, path, 3 if verb == "verify" else 0)
    if verb == "verify":
        assert f"{path} is damaged: " in done.stdout and "\nAffected: " in done.stdout
    elif verb in ("info", "dump", "compact", "cut"):  # these verbs read all that is left
        assert "is damaged" in done.stderr


def test_damage_anywhere(run, whole, tmp_path, verb):
    """If any bytes are overwritten, a verb reads the rest, or says that it cannot."""
    path = tmp_path / "damaged.cap"
    for seed in share(verb, range(16), 4):
        noise = random.Random(seed)
        data = bytearray(whole.read_bytes())
        for _ in range(noise.choice([1, 3, 40])):
            at = noise.choice([noise.randrange(len(data)), noise.randrange(2000), len(data) - 1 - noise.randrange(2000)])
            piece = noise.randbytes(noise.choice([1, 8, 100]))
            data[at : at + len(piece)] = piece
        path.write_bytes(data)
        done = run(verb, path, None)
        assert done.returncode in (0, 3), done.stderr
        if done.returncode == 3 and verb != "verify":
            refused(done, path)
