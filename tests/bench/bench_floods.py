# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Measures how long root waits for profd while other users flood it.

Root reads a property over the system bus every millisecond for five seconds; profd's main thread
answers the call, and polkit is not involved. At the same time one kind of flood runs: users who
connect to the control socket and send hellos at full speed; users who send it descriptors whose
last close blocks; a user whose four connections call GetCapabilities continuously; and one whose
connections call CreateSession without a capture. "cpu hogs" are five processes that only compute.
They show the cost of the scheduler alone, if the floods occupy all CPUs, and are the peer in the
table.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import bench

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))
import buses  # noqa: E402
from buses import PROFILER, PROPERTIES, ROOT, variant  # noqa: E402

EVERYTHING = "polkit.addRule(function(action, subject) { return polkit.Result.YES; });"
GOAL_MS = 5
SECONDS = 5
USERS = (65534, 1, 2, 3, 4)

HELLO = """
import socket, struct, sys
hello = struct.pack("<QII16sIIQ16x", 0x0a4f4c4c45486650, 1, 64, b"", 0, 0, 0)
while True:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as plug:
        try:
            plug.connect(sys.argv[1])
            plug.send(hello)
        except OSError:
            pass
"""

DESCRIPTORS = """
import contextlib, socket, struct, sys
hello = struct.pack("<QII16sIIQ16x", 0x0a4f4c4c45486650, 1, 64, b"", 0, 0, 0)
kept = []
while True:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sent = socket.create_connection(server.getsockname())
        kept.append(server.accept()[0])
    sent.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 2))
    sent.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sent.send(bytes(1 << 16))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as plug, contextlib.suppress(OSError):
        plug.connect(sys.argv[1])
        socket.send_fds(plug, [hello], [sent.fileno()])
    sent.close()
    if len(kept) > 50:
        kept.pop(0).close()
"""

CALLS = """
import os, sys
sys.path.insert(0, sys.argv[2])
from gi.repository import Gio, GLib
flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT | Gio.DBusConnectionFlags.MESSAGE_BUS_CONNECTION
connections = [Gio.DBusConnection.new_for_address_sync(os.environ["DBUS_SYSTEM_BUS_ADDRESS"], flags, None, None) for _ in range(4)]
def call(connection):
    connection.call("org.profd.Profiler1", "/org/profd/Profiler1", "org.profd.Profiler1", sys.argv[3],
                    GLib.Variant.parse(None, sys.argv[4], None, None) if len(sys.argv) > 4 else None,
                    None, Gio.DBusCallFlags.NONE, 20000, None, lambda connection, result: call(connection))
for connection in connections:
    for _ in range(8):
        call(connection)
GLib.MainLoop().run()
"""

HOG = "while True: pass"


def waits(client):
    """Returns the duration of each call in milliseconds, sorted."""
    found, end = [], time.monotonic() + SECONDS
    while time.monotonic() < end:
        begin = time.monotonic_ns()
        client.call(ROOT, PROPERTIES, "Get", variant("(ss)", (PROFILER, "Version")), timeout=60000)
        found.append((time.monotonic_ns() - begin) / 1e6)
        time.sleep(0.001)
    return sorted(found)


def flood(bus, program, users, *arguments):
    return [subprocess.Popen(["/usr/bin/python3", "-c", program, str(bus.folder / "control"), str(Path(__file__).parent), *arguments],
                             env=bus.env, user=user, group=user, extra_groups=[], stderr=subprocess.DEVNULL) for user in users]


def run(bus, table):
    bus.start(EVERYTHING)
    client = bus.client()
    waits(client)
    hogs = None
    for name, program, users, arguments in (
        ("nobody else", None, (), ()),
        ("cpu hogs, 5 processes", HOG, USERS, ()),
        ("hello, 5 users", HELLO, USERS, ()),
        ("descriptors, 5 users", DESCRIPTORS, USERS, ()),
        ("GetCapabilities, 1 user", CALLS, USERS[:1], ("GetCapabilities",)),
        ("CreateSession without a capture, 1 user", CALLS, USERS[:1], ("CreateSession", "({'system': <true>}, handle 0)")),
    ):
        others = flood(bus, program, users, *arguments) if program else []
        time.sleep(1)
        found = waits(client)
        assert all(other.poll() is None for other in others), f"{name}: a flooding process ended"
        for other in others:
            other.send_signal(signal.SIGKILL)
            other.wait()
        worst, most = found[-1], found[len(found) * 99 // 100]
        table.row(f"{name}: worst of {len(found)} calls", worst, hogs and hogs[0], goal=f"{GOAL_MS} ms", met=worst <= GOAL_MS, unit=" ms")
        table.row(f"{name}: 99 %", most, hogs and hogs[1], unit=" ms")
        if program == HOG:
            hogs = worst, most


def main():
    reason = buses.can_run()
    if reason:
        print(f"bench_floods: {reason}")
        return
    bus = buses.TestBus()
    table = bench.Table("root's calls during floods, worst of each and 99 %")
    try:
        with bus.case():
            run(bus, table)
    finally:
        bus.close()


main()
