# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings into unsuitable files: each is refused or fails with a reason, and profd continues."""
import contextlib
import ctypes
import fcntl
import os
import socket
from pathlib import Path

import pytest

import fuse
from recordings import until
from test_dbus_private import GLib, PROFILER, ROOT, SESSION, SYSTEM, profd, refusal, variant  # noqa: F401 (fixtures)

SEAL_GROW, SEAL_WRITE = 4, 8


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


def sealed(seals):
    fd = os.memfd_create("capture", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def works(profd, tmp_path, name="good.cap"):
    """Checks that the next session works."""
    fd = os.open(tmp_path / name, os.O_RDWR | os.O_CREAT, 0o600)
    path = profd.create(SYSTEM, fd)
    profd.session(path, "Start")
    profd.session(path, "Stop")
    assert profd.wait("Finished", path)[:2] == (True, "stopped")
    os.close(fd)


@pytest.mark.parametrize("seals", [SEAL_WRITE, SEAL_GROW])
def test_sealed_memfd(profd, tmp_path, busy, seals):
    fd = sealed(seals)
    path = profd.create(SYSTEM, fd)
    assert refusal(profd.session, path, "Start")[0] == "Failed" or profd.wait("Finished", path)[:2] == (False, "io-error")
    assert os.fstat(fd).st_size == 0
    os.close(fd)
    works(profd, tmp_path)


def test_same_file_twice(profd, file, tmp_path, busy, capture, profcapture):
    """The second engine fails because of the lock, and the first session's file is complete."""
    first = profd.create(SYSTEM, file)
    again = os.open(capture, os.O_RDWR)
    second = profd.create(SYSTEM, again)
    profd.session(first, "Start")
    assert refusal(profd.session, second, "Start")[0] == "Failed"
    profd.wait_samples(first)
    profd.session(first, "Stop")
    assert profd.wait("Finished", first)[:2] == (True, "stopped")
    os.close(again)
    assert profcapture.json("verify", capture)["data"]["state"] == "finished"
    works(profd, tmp_path)


def test_same_descriptor_twice(profd, file, tmp_path, busy, capture, profcapture):
    """The second engine would get the lock, too, because the lock belongs to the open file. But the
    second session is refused, because the file is not empty."""
    first = profd.create(SYSTEM, file)
    profd.session(first, "Start")
    until(lambda: os.fstat(file).st_size > 0)
    assert refusal(profd.create, SYSTEM, file)[0] == "InvalidOption"
    profd.session(first, "Stop")
    assert profd.wait("Finished", first)[:2] == (True, "stopped")
    assert profcapture.json("verify", capture)["data"]["state"] == "finished"


def test_same_descriptor_in_two_sessions(profd, file, tmp_path, busy, capture, profcapture):
    """The file is empty when both sessions are created, and the second engine would get the lock, too,
    because the lock belongs to the open file. But the second session cannot start."""
    first, second = (profd.create(SYSTEM, file) for _ in range(2))
    profd.session(first, "Start")
    assert refusal(profd.session, second, "Start")[0] == "Failed"
    profd.wait_samples(first)
    profd.session(first, "Stop")
    assert profd.wait("Finished", first)[:2] == (True, "stopped")
    assert profcapture.json("verify", capture)["data"]["state"] == "finished"
    works(profd, tmp_path)


def test_same_descriptor_appended_to_twice(profd, file, tmp_path, busy, capture, profcapture):
    """Two sessions append through the same descriptor: the second one cannot start, although the file
    already has a capture."""
    path = profd.create(SYSTEM, file)
    profd.session(path, "Start")
    profd.session(path, "Stop")
    profd.wait("Finished", path)
    append = {**SYSTEM, "append": variant("b", True)}
    first, second = (profd.create(append, file) for _ in range(2))
    profd.session(first, "Start")
    assert refusal(profd.session, second, "Start")[0] == "Failed"
    profd.wait_samples(first)
    profd.session(first, "Stop")
    assert profd.wait("Finished", first)[:2] == (True, "stopped")
    assert profcapture.json("verify", capture)["data"]["state"] == "finished"
    works(profd, tmp_path)


def test_append_flag(profd, tmp_path, capture, profcapture, busy):
    """A file with O_APPEND is written sequentially, like a pipe."""
    fd = os.open(capture, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    path = profd.create(SYSTEM, fd)
    profd.session(path, "Start")
    profd.wait_samples(path)
    profd.session(path, "Stop")
    assert profd.wait("Finished", path)[:2] == (True, "stopped")
    os.close(fd)
    assert profcapture.json("verify", capture)["data"]["state"] == "finished"


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC, os.O_NONBLOCK, os.O_NOATIME])
def test_flag_that_does_no_harm(profd, tmp_path, capture, profcapture, flag):
    fd = os.open(capture, os.O_RDWR | os.O_CREAT | flag, 0o600)
    works(profd, tmp_path, capture)
    os.close(fd)
    assert profcapture.json("verify", capture)["data"]["state"] == "finished"


def test_direct(profd, tmp_path):
    """O_DIRECT is refused: a capture is not written in whole blocks, and a pipe would discard the part of
    each write that does not fit its reader's buffer."""
    opened = list(os.pipe2(os.O_DIRECT))
    with contextlib.suppress(OSError):  # some filesystems do not support it
        opened.append(os.open(tmp_path / "direct.cap", os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600))
    for fd in opened[1:]:
        name, message = refusal(profd.create, SYSTEM, fd)
        assert name == "InvalidOption" and "O_DIRECT" in message
    for fd in opened:
        os.close(fd)
    works(profd, tmp_path)


def test_made_up(profd, tmp_path):
    """Files that act on what is written, such as files of /proc, are not written to."""
    before = Path("/proc/self/comm").read_bytes()
    for place in "/proc/self/comm", "/proc/self/oom_score_adj":
        fd = os.open(place, os.O_RDWR)
        path = profd.create(SYSTEM, fd)
        os.close(fd)
        name, message = refusal(profd.session, path, "Start")
        assert "stores nothing" in message, (name, message)
    assert Path("/proc/self/comm").read_bytes() == before
    works(profd, tmp_path)


def test_others(profd, tmp_path):
    """Directories, sockets, devices and files that are not open for writing are refused: see also
    test_dbus_private."""
    ours, theirs = socket.socketpair()
    opened = [os.open(path, flags) for path, flags in (
        ("/dev/full", os.O_WRONLY), ("/dev/null", os.O_RDWR), ("/dev/zero", os.O_RDWR), (tmp_path, os.O_RDONLY),
        (tmp_path, os.O_PATH), ("/proc/self/maps", os.O_RDONLY))]
    for fd in [*opened, ours.fileno()]:
        assert refusal(profd.create, SYSTEM, fd)[0] == "InvalidOption"
    for fd in opened:
        os.close(fd)
    eventfd = ctypes.CDLL(None).eventfd(0, 0)
    assert refusal(profd.create, SYSTEM, eventfd)[0] == "InvalidOption"
    os.close(eventfd)
    works(profd, tmp_path)


def test_reader_that_goes(profd, tmp_path, busy):
    """The reading end of a pipe is closed during the recording."""
    reading, writing = os.pipe()
    path = profd.create(SYSTEM, writing)
    os.close(writing)
    profd.session(path, "Start")
    profd.wait_samples(path)
    os.close(reading)
    assert profd.wait("Finished", path)[:2] == (False, "io-error")
    works(profd, tmp_path)


# ---- a file whose server answers only this test


@pytest.fixture
def dead(profd, tmp_path):
    """A file that is open for writing, and blocks profd forever, even in close()."""
    try:
        with fuse.mounted(tmp_path / "mount", b"", tmp_path / "stop") as server:
            fd = os.open(server.file, os.O_RDWR)
            server.hang(friend=os.getpid())
            yield fd
            os.close(fd)
    except OSError as error:
        pytest.skip(f"no FUSE can be mounted here: {error}")


def answers(profd):
    return profd.get(ROOT, "Version", interface=PROFILER)


def test_server_that_hangs_and_a_call_that_is_refused(profd, dead):
    assert refusal(profd.create, {}, dead)[0] == "InvalidOption"
    assert refusal(profd.create, {**SYSTEM, "lifetime": variant("h", 1)}, dead, dead)[0] == "InvalidOption"
    assert answers(profd)


def test_server_that_hangs_and_a_call_that_is_not_there(profd, dead):
    with pytest.raises(GLib.Error):
        profd.call(ROOT, PROFILER, "CreateNothing", variant("(a{sv}h)", ({}, 0)), [dead])
    assert answers(profd)


def test_server_that_hangs_and_a_session_that_is_closed(profd, dead):
    path = profd.create(SYSTEM, dead)
    profd.session(path, "Close")
    assert answers(profd)


def test_server_that_hangs_and_an_engine(profd, tmp_path, dead):
    """The engine waits for the file and cannot be killed; nobody waits for the engine."""
    path = profd.create(SYSTEM, dead)
    profd.bus.call(None, path, SESSION, "Start", None, None, 0, 20000, None, None)
    profd.sleep(0.5)
    profd.session(path, "Stop")
    assert profd.wait("Finished", path, timeout=40)[:2] == (False, "internal")
    works(profd, tmp_path)
