# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A FUSE filesystem with one file. Its server, which does not use libfuse, stops answering on
request. If opened with O_APPEND, the file bypasses the page cache.

    with fuse.mounted(folder, bytes, stop) as server:      # folder/file
        server.hang()       # from now on every access blocks, and SIGKILL does not help
        server.let_go()     # the connection ends, and with it every blocked access

As a program, which is how mounted() runs it:  python3 fuse.py DEVICE FILE STOP
"""
import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 36, 42)
ENOENT, ENOSYS = 2, 38
FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE = 1, 2
SILENT = (FORGET, INTERRUPT, BATCH_FORGET)


class Server:
    def __init__(self, folder, stop, process):
        self.file, self.stop, self.process = folder / "file", stop, process

    def hang(self, friend=None):
        """Makes all accesses wait, except those by threads of the process with the pid `friend`."""
        text = self.stop.with_suffix(".new")
        text.write_text(str(friend or ""))
        text.rename(self.stop)

    def let_go(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def mount(folder, fd, options):
    text = f"fd={fd},rootmode=40000,user_id=0,group_id=0{options}".encode()
    if LIBC.mount(b"prof-test", os.fsencode(folder), b"fuse", 0, text) != 0:
        raise OSError(ctypes.get_errno(), "mount of FUSE")


@contextlib.contextmanager
def mounted(folder, content, stop):
    """Raises OSError if FUSE cannot be mounted. `stop`: a path that does not exist yet."""
    folder.mkdir()
    source = folder.with_suffix(".bytes")
    source.write_bytes(content)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        mount(folder, device, ",allow_other")
    except OSError:
        os.close(device)
        raise
    process = subprocess.Popen([sys.executable, __file__, str(device), str(source), str(stop)], pass_fds=[device],
                               stdin=subprocess.DEVNULL, start_new_session=True)
    # only the server has the device open, so the server's death ends the connection
    os.close(device)
    server = Server(folder, stop, process)
    try:
        yield server
    finally:
        server.let_go()
        LIBC.umount2(os.fsencode(folder), MNT_DETACH)


def attributes(node, size):
    mode = 0o40755 if node == 1 else 0o100755
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body, content):
    """Returns the error and the bytes of an answer."""
    size = len(content) if node == 2 else 0
    if opcode == INIT:
        return 0, struct.pack("<4I2H2I2H8I", 7, 31, 65536, 0, 16, 12, 65536, 1, 16, 0, *[0] * 8)[:64]
    if opcode == LOOKUP:
        if body.rstrip(b"\0") != b"file":
            return ENOENT, b""
        return 0, struct.pack("<4Q2I", 2, 0, 3600, 0, 0, 0) + attributes(2, len(content))
    if opcode == GETATTR:
        return 0, struct.pack("<QII", 0, 0, 0) + attributes(node, size)
    if opcode in (OPEN, OPENDIR):
        flags, = struct.unpack_from("<I", body)
        return 0, struct.pack("<QII", 1, FOPEN_DIRECT_IO if flags & os.O_APPEND else FOPEN_KEEP_CACHE, 0)
    if opcode == READ:
        _, offset, length = struct.unpack_from("<QQI", body)
        return 0, content[offset:offset + length]
    if opcode == STATFS:
        return 0, struct.pack("<5Q4I6I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0, *[0] * 6)
    if opcode in (RELEASE, FLUSH):
        return 0, b""
    return ENOSYS, b""


def friend_of(stop):
    with open(stop, encoding="utf-8") as file:
        return file.read()


def serve(fd, content, stop):
    while True:
        try:
            request = os.read(fd, 1 << 17)
        except OSError as error:
            if error.errno == 2:  # ENOENT: the request was interrupted
                continue
            return
        _, opcode, unique, node, _, _, tid, _ = struct.unpack_from("<IIQQIIII", request)
        while os.path.exists(stop) and not friend_of(stop):
            time.sleep(0.1)
        if opcode in SILENT or (os.path.exists(stop) and not os.path.exists(f"/proc/{friend_of(stop)}/task/{tid}")):
            continue
        error, data = answer(opcode, node, request[40:], content)
        with contextlib.suppress(OSError):
            os.write(fd, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)


if __name__ == "__main__":
    # The server ends even if the test does not end it, because a process that waits for the server may
    # block tools that list the processes of this machine.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.alarm(100)
    with open(sys.argv[2], "rb") as file:
        serve(int(sys.argv[1]), file.read(), sys.argv[3])
