# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Fixtures of every scenario: the programs of the build tree, and processes that do not outlive
their test.

    def test_report(profctl, profcapture, capture, spawn):
        loop = spawn("sh", "-c", "while :; do :; done")
        profctl("record", "--pid", loop.pid, "-d", 1, "-o", capture)
        assert profcapture.json("report", capture)["data"]["self_total"] > 0

Run one scenario by hand: ./dev test NAME, or `meson devenv -C build` and pytest.

Scenarios run in parallel, so a test must pass on a busy machine: it creates the load that it
needs, waits for an event instead of a time, and derives the bounds of a share from the number of
its samples (see shares.py). A test that cannot share the machine is marked with
`@pytest.mark.alone`, so that no other case runs beside it. A test that changes the machine is
marked with `@pytest.mark.changes_machine`.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import browsers
import pytest
from recordings import BUSY, compiled, processes, until

BUILD = Path(os.environ["PROF_BUILD_DIR"])
SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
MAY_CHANGE_MACHINE = os.environ.get("PROF_TEST_MACHINE") == "1"
MACHINE_IS_NOT_OURS = "changes this machine, and PROF_TEST_MACHINE=1 is not set"


M_PERTURB = -6  # of <malloc.h>


def pytest_configure(config):
    # MALLOC_PERTURB_, which meson sets, is for our programs. In pytest, glibc would fill the rest of a
    # free block each time that a list grows into that block: for minutes if the block is large.
    ctypes.CDLL(None).mallopt(M_PERTURB, 0)
    # pytest rewrites and compiles tests once for a build folder.
    sys.pycache_prefix, sys.dont_write_bytecode = str(BUILD / "test-bytecode"), False
    os.environ["PROF_TEST_RUN"] = str(os.getpid())
    # If the tests themselves are recorded, the programs that they start must not join that recording.
    for name in "PROF_CONTROL", "SYSPROF_CONTROL_FD":
        os.environ.pop(name, None)
    config.addinivalue_line("markers", "alone: the test needs the machine for itself; no other case runs beside it")
    config.addinivalue_line("markers", "changes_machine: alone, and skipped unless PROF_TEST_MACHINE=1 is set")
    # When a run starts, pytest closes its common folder to other users, but the tests of another run
    # need this folder to be open.
    if not config.option.basetemp:
        config.profd_folder = Path(tempfile.mkdtemp(prefix="profd-pytest-"))
        config.profd_folder.chmod(0o755)
        config.option.basetemp = config.profd_folder / "run"


def pytest_collection_modifyitems(items):
    """A case that will be skipped does not wait for the machine."""
    for item in items:
        if item.get_closest_marker("changes_machine"):
            item.add_marker(pytest.mark.alone if MAY_CHANGE_MACHINE else pytest.mark.skip(reason=MACHINE_IS_NOT_OURS))


def pytest_sessionfinish(session, exitstatus):
    if not session.config.option.collectonly and kill_what_is_left():
        session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
    elif exitstatus == 0 and hasattr(session.config, "profd_folder"):
        shutil.rmtree(session.config.profd_folder, ignore_errors=True)


def kill_what_is_left():
    """Kills and returns the processes that outlived their tests, because they take CPU time from other
    scenarios."""
    deadline = time.monotonic() + 10
    while (left := processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            os.kill(pid, signal.SIGKILL)
            print(f"\nprocess {pid} outlived the tests and was killed: {command}")
    return left


@contextlib.contextmanager
def lock(name, how):
    """A file lock that all runs of this user share; the kernel releases it when the process ends."""
    path = f"{tempfile.gettempdir()}/profd-tests-{os.geteuid()}-{name}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


def needs_machine_alone(item):
    return item is not None and item.get_closest_marker("alone") is not None


held_machine = contextlib.ExitStack()
holds_machine = False


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Cases share the machine, or have it alone. A case that waits for the machine holds the gate,
    so that no later case starts before it. Successive cases that need the machine alone keep it,
    because each wait leaves CPUs idle until the longest case of the other runs ends."""
    global holds_machine
    alone = needs_machine_alone(item)
    if not holds_machine:
        with lock("gate", fcntl.LOCK_EX):
            held_machine.enter_context(lock("machine", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
    yield
    holds_machine = alone and needs_machine_alone(nextitem)
    if not holds_machine:
        held_machine.close()


def parsed(text):
    """Parses the output of `dump --resolve`. Rows with equal frames share one list, because parsing
    the frames of each row takes most of the time of many tests."""
    parts, numbers, at = [], {}, 0
    while (begin := text.find('"frames":[{', at)) >= 0:
        begin += len('"frames":')
        end = text.index('}],"', begin) + 2  # wrong if a name has this text; then parsing fails
        parts += text[at:begin], str(numbers.setdefault(text[begin:end], len(numbers)))
        at = end
    document, lists = json.loads("".join(parts) + text[at:]), [json.loads(frames) for frames in numbers]
    for row in document["data"]["rows"]:
        if isinstance(row.get("frames"), int):
            row["frames"] = lists[row["frames"]]
    return document


class Program:
    """Runs one of our programs. check=N expects exit status N (default 0), check=None accepts
    any."""

    def __init__(self, path):
        self.path = path

    def command(self, *args):
        return [self.path, *map(str, args)]

    def __call__(self, *args, check=0, timeout=120, env=None, prefix=(), text=True, **options):
        """env: changes to the environment (None removes a variable). prefix: a command that runs
        the program, such as ["setpriv", …]."""
        environment = dict(os.environ)
        for name, value in (env or {}).items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = str(value)
        options.setdefault("stdin", subprocess.DEVNULL)
        if "input" in options:
            del options["stdin"]
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        if text:
            options.update(encoding="utf-8", errors="surrogateescape")
        done = subprocess.run([*prefix, *self.command(*args)], env=environment, timeout=timeout, **options)
        if check is not None and done.returncode != check:
            pytest.fail(
                f"{' '.join(map(str, done.args))}: exit status {done.returncode}, not {check}\n"
                f"stdout: {done.stdout}\nstderr: {done.stderr}"
            )
        return done

    def json(self, *args, **options):
        """The output of --json: all of stdout, or its last line if a recorded command wrote before
        it."""
        output = self(*args, "--json", **options).stdout
        if "--resolve" in args:
            with contextlib.suppress(ValueError):
                return parsed(output)
        try:
            return json.loads(output)
        except ValueError:
            return json.loads(output.strip().splitlines()[-1])


@pytest.fixture(scope="session")
def profctl():
    return Program(os.environ["PROFCTL"])


@pytest.fixture(scope="session")
def profcapture():
    return Program(os.environ["PROFCAPTURE"])


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browsers.chromium(tmp_path_factory.mktemp("chromium")) as drive:
        yield drive


@pytest.fixture
def capture(tmp_path):
    """The path of a capture that does not exist yet."""
    return tmp_path / "test.cap"


@pytest.fixture
def file(capture):
    """A descriptor of the capture, which is new and empty."""
    fd = os.open(capture, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    yield fd
    os.close(fd)


@pytest.fixture
def spawn():
    """Starts a process group. When the test ends, the group is killed, and its first process is
    reaped."""
    started = []

    def start(*command, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.DEVNULL)
        if not options.get("start_new_session"):  # the leader of a session also leads a process group
            options.setdefault("process_group", 0)
        process = subprocess.Popen(list(map(str, command)), **options)
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory):
    """Compiles C source text into a program: compile_c("spin", "int main(void){…}", "-O1")."""

    def build(name, source, *flags, **options):
        return compiled(tmp_path_factory.mktemp(name) / f"{name}.c", source, "gcc", "-g", *flags, **options)

    return build


@pytest.fixture(scope="session")
def require():
    """Skips the test, with the reason, if a program or a right is missing: require("perf"),
    require(root=True)."""

    def check(*programs, root=False, machine=False, mounts=False):
        for program in programs:
            if not shutil.which(program):
                pytest.skip(f"{program} is not installed")
        # Ubuntu's perf only runs on the kernel that it was built for
        if "perf" in programs and subprocess.run(["perf", "version"], capture_output=True, check=False).returncode:
            pytest.skip("perf does not run on this kernel")
        if root and os.geteuid() != 0:
            pytest.skip("needs root")
        if mounts and subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("no mount namespace can be made here, as in a chroot whose root is no mount point")
        if machine and not MAY_CHANGE_MACHINE:
            pytest.skip(MACHINE_IS_NOT_OURS)

    return check


@pytest.fixture
def busy(spawn, compile_c):
    return spawn(compile_c("busy", BUSY))


def make_cgroup(controller, *names):
    """Makes and returns a cgroup that has one of the files `names`, which belong to the controller.
    Returns None if none can be made."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, root, kind, options, *_ = line.split()
        if kind != "cgroup2" and (kind != "cgroup" or controller not in options.split(",")) or not os.access(root, os.W_OK):
            continue
        folder = Path(root, f"prof-test-{os.getpid()}")
        folder.mkdir()
        if any((folder / name).exists() for name in names):
            return folder
        folder.rmdir()
    return None


@pytest.fixture
def memory_cgroup():
    """A cgroup with a memory limit of 24 MiB, the file of this limit, and the file of the memory usage."""
    folder = make_cgroup("memory", "memory.max", "memory.limit_in_bytes")
    if not folder:
        pytest.skip("no cgroup limits memory")
    names = ("memory.max", "memory.current") if (folder / "memory.max").exists() else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(str(24 << 20))
    yield folder, *(folder / name for name in names)
    until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


@pytest.fixture
def pids_cgroup():
    """A cgroup that can limit the number of processes and threads."""
    folder = make_cgroup("pids", "pids.max")
    if not folder:
        pytest.skip("no cgroup limits processes")
    yield folder
    until(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


@pytest.fixture
def recorder():
    """Starts `profctl record` in a session of its own. If it still runs when the test ends, it is
    killed."""
    started = []

    def start(*arguments, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = subprocess.Popen(
            [os.environ["PROFCTL"], "record", *map(str, arguments)], encoding="utf-8", stdin=subprocess.DEVNULL,
            start_new_session=True, **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def services():
    """A system bus and a polkitd that a module's cases share: see buses.py."""
    import buses

    reason = buses.can_run()
    if reason:
        pytest.skip(reason)
    made = buses.TestBus()
    yield made
    made.close()


@pytest.fixture
def bus(services):
    with services.case():
        yield services


@pytest.fixture
def nothing_is_left():
    """Checks that no process of profd is left after a test that records, however the test ends."""
    yield
    until(lambda: not processes("profd") | processes("profd-engine") | processes("profd-files"), 10)
