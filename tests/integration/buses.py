# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A private system bus: a real dbus-daemon, a real polkitd with our actions and a test's rules, and
profd --system.

    def test_denied(bus, file):
        bus.start(rules="polkit.addRule(function(action, subject) { return polkit.Result.NO; });")
        client = bus.client(uid=65534)
        assert refusal(client.create, SYSTEM, file)[0] == "NotAuthorized"

polkitd reads its rules from fixed paths, so it runs in a mount namespace that has other folders
at these paths.
"""
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import gi
import pytest

from recordings import until

gi.require_version("Gio", "2.0")
from gi.repository import Gio, GLib  # noqa: E402

NAME = "org.profd.Profiler1"
ROOT = "/org/profd/Profiler1"
PROFILER = "org.profd.Profiler1"
SESSION = "org.profd.Profiler1.Session"
MANAGER = "org.freedesktop.DBus.ObjectManager"
PROPERTIES = "org.freedesktop.DBus.Properties"
BUS = "org.freedesktop.DBus"
POLKIT = "org.freedesktop.PolicyKit1"
ERROR = "org.profd.Profiler1.Error."
NOBODY = 65534
DAEMON = 1  # a user that is neither root nor nobody
POLKITD = "/usr/lib/polkit-1/polkitd"

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
  "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={path}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
  </policy>
  <policy user="root">
    <allow own="org.profd.Test"/>
  </policy>
  <include>/usr/share/dbus-1/system.d/org.freedesktop.PolicyKit1.conf</include>
  <include>{source}/data/dbus/org.profd.Profiler1.conf</include>
  <limit name="max_completed_connections">2048</limit>
  <limit name="max_connections_per_user">1024</limit>
</busconfig>
"""

# For each action: the users who may do it, and those who need an administrator's password.
RULES = """
polkit.addRule(function(action, subject) {
    var allowed = %s, challenged = %s;
    if (action.id.indexOf("org.profd.") != 0)
        return polkit.Result.NOT_HANDLED;
    if ((allowed[action.id.substring(10)] || []).indexOf(subject.user) >= 0)
        return polkit.Result.YES;
    if ((challenged[action.id.substring(10)] || []).indexOf(subject.user) >= 0)
        return polkit.Result.AUTH_ADMIN;
    return polkit.Result.NO;
});
"""


def variant(kind, value):
    return GLib.Variant(kind, value)


def from_bytes(kind, data):
    """Returns a variant with many elements. variant() would make a variant for each element, which
    takes seconds."""
    return GLib.Variant.new_from_bytes(GLib.VariantType(kind), GLib.Bytes(data), True)


SYSTEM = {"system": variant("b", True)}


def pids(*numbers):
    return {"pids": variant("au", numbers)}


def rules(allow=None, ask=None):
    """Returns polkit rules. allow: the users who may do each action, such as {"record-own": ["nobody"]};
    ask: the users who need an administrator's password for it."""
    return RULES % (repr(allow or {}), repr(ask or {}))


def refusal(call, *arguments):
    """Returns the name and the message of the error that the call must return."""
    with pytest.raises(GLib.Error) as raised:
        call(*arguments)
    error = raised.value
    name = Gio.DBusError.get_remote_error(error) or ""
    return name.removeprefix(ERROR), error.message.partition(": ")[2]


@contextlib.contextmanager
def effective_user(uid):
    """Gives this thread another uid while the block runs. The kernel reports that uid for new
    connections. Calls the kernel directly, because glibc's functions change all threads."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    setresuid = {"x86_64": 117, "aarch64": 147, "riscv64": 147, "ppc64le": 164}[os.uname().machine]
    if syscall(setresuid, uid, uid, 0):
        raise OSError(ctypes.get_errno(), "setresuid")
    try:
        yield
    finally:
        syscall(setresuid, 0, 0, 0)


class Client:
    """A connection to the bus that stores the signals it receives."""

    def __init__(self, address, uid=0):
        self.uid = uid
        self.context = GLib.MainContext.new()
        with effective_user(uid) if uid != os.geteuid() else contextlib.nullcontext():
            plug = socket.socket(socket.AF_UNIX)
            plug.connect(address.removeprefix("unix:path="))
            stream = Gio.Socket.new_from_fd(plug.detach()).connection_factory_create_connection()
            self.context.push_thread_default()
            flags = Gio.DBusConnectionFlags
            self.bus = Gio.DBusConnection.new_sync(
                stream, None, flags.AUTHENTICATION_CLIENT | flags.MESSAGE_BUS_CONNECTION, None, None
            )
            self.context.pop_thread_default()
        self.bus.set_exit_on_close(False)
        self.name = self.bus.get_unique_name()
        self.files, self.signals = [], []
        with self.current():
            self.bus.signal_subscribe(NAME, None, None, None, None, 0, self.on_signal)

    @contextlib.contextmanager
    def current(self):
        self.context.push_thread_default()
        try:
            yield
        finally:
            self.context.pop_thread_default()

    def on_signal(self, bus, sender, path, interface, name, arguments):
        self.signals.append((time.monotonic(), path, name, arguments.unpack()))

    def call(self, path, interface, method, arguments=None, fds=(), timeout=30000, interactive=False, name=NAME):
        files = Gio.UnixFDList.new()
        for fd in fds:
            files.append(fd)
        flags = Gio.DBusCallFlags.ALLOW_INTERACTIVE_AUTHORIZATION if interactive else 0
        reply, files = self.bus.call_with_unix_fd_list_sync(
            name, path, interface, method, arguments, None, flags, timeout, files, None
        )
        self.files = files.steal_fds() if files else []
        return reply.unpack()

    def begin(self, path, interface, method, arguments=None, fds=(), interactive=False):
        """Starts a call, and returns an object that later has .done, and .reply or .error."""
        files = Gio.UnixFDList.new()
        for fd in fds:
            files.append(fd)

        class Pending:
            done, reply, error = False, None, None

        pending = Pending()

        def answered(bus, result):
            try:
                pending.reply = bus.call_with_unix_fd_list_finish(result)[0].unpack()
            except GLib.Error as error:
                pending.error = (Gio.DBusError.get_remote_error(error) or "").removeprefix(ERROR), error.message
            pending.done = True

        flags = Gio.DBusCallFlags.ALLOW_INTERACTIVE_AUTHORIZATION if interactive else 0
        with self.current():
            self.bus.call_with_unix_fd_list(
                NAME, path, interface, method, arguments, None, flags, GLib.MAXINT32, files, None, answered
            )
        return pending

    def create(self, options, fd, *more, **how):
        return self.call(ROOT, PROFILER, "CreateSession", variant("(a{sv}h)", (options, 0)), [fd, *more], **how)[0]

    def begin_create(self, options, fd, **how):
        return self.begin(ROOT, PROFILER, "CreateSession", variant("(a{sv}h)", (options, 0)), [fd], **how)

    def session(self, path, method, arguments=None, **how):
        return self.call(path, SESSION, method, arguments, **how)

    def get(self, path, name, interface=SESSION):
        return self.call(path, PROPERTIES, "Get", variant("(ss)", (interface, name)))[0]

    def objects(self):
        return self.call(ROOT, MANAGER, "GetManagedObjects")[0]

    def spin(self, condition, timeout=20):
        end = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < end, f"not in {timeout} s; signals: {[s[2] for s in self.signals]}"
            if not self.context.iteration(False):
                time.sleep(0.01)

    def wait(self, name, path=None, timeout=20, first=None):
        """Waits for the first signal with this name, path and first argument, and returns its
        arguments. The signal may have arrived already."""
        def found():
            return next((s[3] for s in self.signals if s[2] == name and path in (None, s[1]) and first in (None, s[3][0])), None)

        self.spin(lambda: found() is not None, timeout)
        return found()

    def wait_samples(self, path, count=20):
        """Waits until the session has this many samples."""
        self.spin(lambda: self.get(path, "Samples") >= count, 60)

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.context.iteration(False):
                time.sleep(0.01)

    def close(self):
        if not self.bus.is_closed():
            self.bus.close_sync()


class TestBus:
    """dbus-daemon runs as long as this object exists, and so does polkitd, unless a case needs other
    rules. profd, clients and a folder belong to one case. Everything is stopped in the reverse order
    of its start."""

    __test__ = False

    def __init__(self):
        # every user must reach the socket, which pytest's own folders do not allow
        self.services = Path(tempfile.mkdtemp(prefix="profd-bus-"))
        self.services.chmod(0o755)
        for name in ("rules", "none", "actions"):
            (self.services / name).mkdir(mode=0o755)
            (self.services / name).chmod(0o755)
        self.address = f"unix:path={self.services}/bus"
        self.env = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": self.address}
        self.daemon = self.polkit = self.rules = self.profd = self.folder = None
        self.clients = []

    def start(self, rules="", polkit=True, profd=True):
        """Starts profd, and the other parts unless they run. Restarts polkitd if its rules differ."""
        if self.daemon is None:
            self.start_daemon()
        if not polkit:
            self.stop_polkit()
        elif self.polkit is None or self.rules != rules:
            self.stop_polkit()
            self.start_polkit(rules)
        if profd:
            self.start_profd()
        return self

    # ---- dbus-daemon

    def start_daemon(self):
        config = self.services / "bus.conf"
        config.write_text(CONFIG.format(path=self.services / "bus", source=os.environ["PROF_SOURCE_DIR"]))
        with contextlib.suppress(FileNotFoundError):
            (self.services / "bus").unlink()
        self.daemon = subprocess.Popen(["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile"], env=self.env)
        until(self.listens)

    def listens(self):
        with socket.socket(socket.AF_UNIX) as plug:
            return plug.connect_ex(str(self.services / "bus")) == 0

    def stop_daemon(self):
        self.end(self.daemon)
        self.daemon = None

    # ---- polkitd

    def start_polkit(self, rules):
        for folder in ("/etc/polkit-1/rules.d", "/usr/share/polkit-1/rules.d", "/usr/share/polkit-1/actions"):
            if not os.path.isdir(folder):
                pytest.skip(f"polkit is not installed: no {folder}")
        (self.services / "rules/10-test.rules").write_text(rules)
        actions = self.services / "actions/org.profd.policy"
        shutil.copy(Path(os.environ["PROF_SOURCE_DIR"], "data/polkit/org.profd.policy"), actions)
        for path in (actions, self.services / "rules/10-test.rules"):
            path.chmod(0o644)
        script = (
            'mount --bind "$1/rules" /etc/polkit-1/rules.d && mount --bind "$1/none" /usr/share/polkit-1/rules.d && '
            f'mount --bind "$1/actions" /usr/share/polkit-1/actions && exec {POLKITD} --no-debug'
        )
        self.polkit = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", self.services], env=self.env,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.rules = rules
        self.wait_for(POLKIT, self.polkit)

    def stop_polkit(self):
        self.end(self.polkit)
        self.polkit = None

    # ---- profd

    def start_profd(self, *arguments, wait=True, wrapper=(), **environment):
        self.profd = subprocess.Popen(
            [*wrapper, os.environ["PROFD"], "--system", f"--control={self.folder}/control", *arguments], env={**self.env, **environment},
            stdin=subprocess.DEVNULL, start_new_session=True,  # like a service: a priority counts only within a session (autogroups, sched(7))
        )
        if wait:
            self.wait_for(NAME, self.profd)
        return self.profd

    def engines(self):
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                text = stat.read_text()
                fields = text.rpartition(")")[2].split()
                if int(fields[1]) == self.profd.pid and fields[0] != "Z" and "(profd-engine)" in text:
                    found.append(int(stat.parent.name))
        return found

    # ---- clients

    def client(self, uid=0):
        client = Client(self.address, uid)
        self.clients.append(client)
        return client

    def has(self, name):
        client = Client(self.address)
        try:
            return client.call("/org/freedesktop/DBus", BUS, "NameHasOwner", variant("(s)", (name,)), name=BUS)[0]
        finally:
            client.close()

    def wait_for(self, name, process):
        def there():
            assert process.poll() is None, f"{process.args[0]} ended with {process.returncode}"
            return self.has(name)

        until(there, 20)

    def end(self, process, number=signal.SIGTERM):
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        try:
            return process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    @contextlib.contextmanager
    def case(self):
        self.folder = Path(tempfile.mkdtemp(prefix="case-", dir=self.services))
        self.folder.chmod(0o755)
        yield self
        for process in filter(None, (self.daemon, self.polkit)):
            process.send_signal(signal.SIGCONT)
        for client in self.clients:
            with contextlib.suppress(GLib.Error):
                client.close()
        self.clients.clear()
        profd, self.profd = self.profd, None
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder)
            assert self.end(profd) in (None, 0, 1, -signal.SIGKILL), "profd crashed"

    def close(self):
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, self.services)
            for process in (self.daemon, self.polkit):
                stack.callback(self.end, process)


def can_run():
    """Returns the reason why no bus can run here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("dbus-daemon", "unshare", POLKITD):
        if not shutil.which(program):
            return f"{program} is not installed"
    if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, timeout=60).returncode:
        return "no mount namespace can be made here, as in a chroot whose root is no mount point"
    return None
