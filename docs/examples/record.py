#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Records a process for some seconds: a client of org.profd.Profiler1 in Python, with PyGObject.

    record.py PID SECONDS FILE              by the system's profd
    record.py --private PROFD PID SECONDS FILE     by a private profd: the program PROFD

The session belongs to the connection: if this program dies, profd finishes the file.
"""
import os
import socket
import subprocess
import sys

from gi.repository import Gio, GLib

NAME = "org.profd.Profiler1"
ROOT = "/org/profd/Profiler1"
PROFILER = "org.profd.Profiler1"
SESSION = "org.profd.Profiler1.Session"


def system_bus():
    """Returns the connection, and the name that profd has on it."""
    return Gio.bus_get_sync(Gio.BusType.SYSTEM), NAME


def private(program):
    """Starts a private profd. Its connection has no bus, so there is no name."""
    ours, theirs = socket.socketpair()
    subprocess.Popen([program, f"--private={theirs.fileno()}"], pass_fds=[theirs.fileno()])
    theirs.close()
    stream = Gio.Socket.new_from_fd(ours.detach()).connection_factory_create_connection()
    flags = Gio.DBusConnectionFlags.AUTHENTICATION_CLIENT
    return Gio.DBusConnection.new_sync(stream, None, flags, None, None), None


def call(connection, name, path, interface, method, arguments=None, *files):
    fds = Gio.UnixFDList.new()
    for file in files:
        fds.append(file)
    # no timeout: the user may have to type a password
    flags = Gio.DBusCallFlags.ALLOW_INTERACTIVE_AUTHORIZATION
    reply, _ = connection.call_with_unix_fd_list_sync(
        name, path, interface, method, arguments, None, flags, GLib.MAXINT32, fds, None
    )
    return reply.unpack()


def record(connection, name, pid, seconds, file):
    loop = GLib.MainLoop()
    result = []

    def on_signal(connection, sender, path, interface, signal, arguments):
        if signal == "Warning":
            print(f"record.py: {arguments.unpack()[1]}", file=sys.stderr)
        elif signal == "Finished":
            result.extend(arguments.unpack())
            loop.quit()

    def on_gone(connection, *_):
        loop.quit()

    def stop():
        call(connection, name, session, SESSION, "Stop")
        return GLib.SOURCE_REMOVE

    connection.connect("closed", on_gone)
    connection.signal_subscribe(name, SESSION, None, None, None, Gio.DBusSignalFlags.NONE, on_signal)
    capture = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    options = {"pids": GLib.Variant("au", [pid]), "frequency": GLib.Variant("u", 999)}
    # the descriptor is the message's first one, so its handle is 0
    session, = call(
        connection, name, ROOT, PROFILER, "CreateSession", GLib.Variant("(a{sv}h)", (options, 0)), capture
    )
    if name:  # the call has started profd; the name vanishes when profd exits
        Gio.bus_watch_name_on_connection(connection, name, Gio.BusNameWatcherFlags.NONE, None, on_gone)
    call(connection, name, session, SESSION, "Start")
    GLib.timeout_add(int(seconds * 1000), stop)
    loop.run()
    if not result:
        sys.exit("record.py: profd is gone")
    ok, reason, summary = result
    print(f"{summary['samples']} samples, {summary['lost']} lost ({reason})")
    return 0 if ok else 1


def main():
    arguments = sys.argv[1:]
    program = None
    if arguments[:1] == ["--private"]:
        program, arguments = arguments[1], arguments[2:]
    if len(arguments) != 3:
        sys.exit(__doc__)
    pid, seconds, file = arguments
    try:
        connection, name = private(program) if program else system_bus()
        sys.exit(record(connection, name, int(pid), float(seconds), file))
    except GLib.Error as error:
        # the message has an error name such as org.profd.Profiler1.Error.NotAuthorized
        sys.exit(f"record.py: {error.message}")


main()
