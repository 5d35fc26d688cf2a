# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A file whose last close blocks is sent to sockets that everybody may write to: this blocks
nobody. Tested with sockets that refuse all files (Linux 6.16 and later), and with sockets that do
not."""
import contextlib
import os
import signal
import socket
import struct
import sys

import pytest

from buses import NOBODY, PROFILER, PROPERTIES, ROOT, SYSTEM, effective_user, rules, variant

HELLO, REQUEST = 0x0a4f4c4c45486650, 0x000a45524f4d6650
ALL = rules(allow={"record-system": ["nobody"]})
LINGER_S = 60  # longer than any wait of a call here

# Runs a program as on a kernel without SO_PASSRIGHTS: setting that option fails with ENOPROTOOPT.
OLD_KERNEL = """
import ctypes, os, struct, sys
def op(code, k, jt=0, jf=0): return struct.pack("HBBI", code, jt, jf, k)
number = {"x86_64": 54, "aarch64": 208, "riscv64": 208, "ppc64le": 339}[os.uname().machine]
code = (op(0x20, 0) + op(0x15, number, 0, 3) + op(0x20, 32) + op(0x15, 83, 0, 1) + op(0x06, 0x00050000 | 92) + op(0x06, 0x7fff0000))
program = ctypes.create_string_buffer(code)
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program)))
if ctypes.CDLL(None, use_errno=True).prctl(22, 2, filter): raise OSError(ctypes.get_errno(), "prctl")
os.execv(sys.argv[1], sys.argv[1:])
"""


def kernel_can_refuse():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            return probe.getsockopt(socket.SOL_SOCKET, 83) == 1
        except OSError:
            return False


class Lingering:
    """A connection, one end of which is sent to profd. Closing that end blocks until the other end has
    read all data or is closed."""

    def __init__(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.sent = socket.create_connection(server.getsockname())
            self.other = server.accept()[0]
        self.sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
        self.sent.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.sent.send(bytes(1 << 16))
        self.sent.setblocking(True)


@pytest.fixture(params=["refuses", "sends"])
def kernel(request, bus, require):
    if request.param == "refuses" and not kernel_can_refuse():
        pytest.skip("this kernel has no SO_PASSRIGHTS")
    wrapper = [] if request.param == "refuses" else [sys.executable, "-c", OLD_KERNEL]
    bus.start(ALL, profd=False)
    bus.start_profd(wrapper=wrapper)
    return request.param


def connect(bus):
    plug = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with effective_user(NOBODY):
        plug.connect(str(bus.folder / "control"))
    return plug


def hello():
    return struct.pack("<QII16sIIQ16x", HELLO, 1, 64, b"", 0, 0, 0)


@contextlib.contextmanager
def stopped(bus):
    processes = [bus.profd.pid, *bus.engines()]
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture
def send(bus, kernel):
    """send(socket, packet, before) sends a packet with the last copy of a descriptor. profd reads
    `before` together with that packet."""
    with contextlib.ExitStack() as stack:
        def send_file(target, packet, before=None):
            file = Lingering()
            stack.callback(file.other.close)
            with stopped(bus):
                if before:
                    target.send(before)
                try:
                    socket.send_fds(target, [packet], [file.sent.fileno()])
                    assert kernel == "sends"
                except PermissionError:
                    assert kernel == "refuses"
                    file.other.close()
                file.sent.close()

        yield send_file


def status_of(plug):
    plug.settimeout(20)
    return struct.unpack_from("<I", plug.recv(64), 16)[0]


def test_hello(bus, send):
    """While profd closes the descriptor of a hello, it answers other clients."""
    send(connect(bus), hello(), before=b"no hello")  # hello() is not read, because profd closes the socket at "no hello"
    send(connect(bus), hello())  # last, because a signal would end the wait in close()
    assert bus.client().call(ROOT, PROPERTIES, "Get", variant("(ss)", (PROFILER, "Version")), timeout=5000)
    with connect(bus) as plug:
        plug.send(hello())
        assert status_of(plug) == 2  # no session


@pytest.fixture
def session(bus, kernel, file):
    client = bus.client()
    path = client.create(SYSTEM, file)
    client.session(path, "Start")
    client.wait_samples(path)
    return client, path


def assert_finishes(client, path):
    client.wait_samples(path, client.get(path, "Samples") + 20)
    client.session(path, "Stop", timeout=5000)
    client.wait("Finished", path, timeout=20)


def test_request(bus, session, send):
    """While the engine closes the descriptor of a request, it continues with the other rings."""
    with connect(bus) as plug:
        plug.send(hello())
        assert status_of(plug) == 0
        send(plug, struct.pack("<QIIQI36x", REQUEST, 1, 64, 0, 1))
        assert_finishes(*session)


def test_sysprof(kernel, session, send):
    """A process that sends a descriptor over the socket of sysprof's protocol gets no ring, and
    delays nobody."""
    client, path = session
    client.session(path, "OpenSysprof")
    with socket.socket(fileno=client.files[0]) as plug:
        send(plug, b"CreatRing\0")
        if kernel == "sends":
            plug.settimeout(20)
            assert plug.recv(1) == b""
        assert_finishes(client, path)
