# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The capabilities that root's profd keeps (daemon/broker/sandbox.c): without any one of them
something fails, and together they suffice for everything. The systemd unit has fewer, which suffice
together with its limits."""
import ctypes
import os
import re
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from captures import rows
from recordings import until
from test_dbus_private import SYSTEM, GLib, running, variant  # noqa: F401 (fixture)

SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
NOBODY = 65534
NUMBERS = {"SYSLOG": 34, "PERFMON": 38, "BPF": 39, "CHECKPOINT_RESTORE": 40, "DAC_READ_SEARCH": 2, "KILL": 5, "SETGID": 6, "SETUID": 7,
           "SETPCAP": 8, "IPC_LOCK": 14, "SYS_PTRACE": 19, "SYS_NICE": 23}
PR_CAPBSET_DROP = 24
SPIN = "int main(void) { for (volatile int i = 0;; i++) ; }"


pytestmark = pytest.mark.changes_machine


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


@pytest.fixture(autouse=True)
def sysctls():
    """Users without capabilities may open no CPU-wide events, and kernel addresses are shown only with
    CAP_SYSLOG."""
    changed = {Path("/proc/sys/kernel", name): value for name, value in
               (("perf_event_paranoid", "2"), ("kptr_restrict", "1"))}
    before = {path: path.read_text() for path in changed}
    for path, value in changed.items():
        path.write_text(value)
    yield
    for path, value in before.items():
        path.write_text(value)


def without(*names, **limits):
    """Returns a function that drops these capabilities and sets these limits in a new process."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def drop():
        for name in names:
            assert prctl(PR_CAPBSET_DROP, NUMBERS[name], 0, 0, 0) == 0
        for limit, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (value, value))

    return drop


@pytest.fixture(scope="module")
def program(compile_c):
    """A program in a folder that only the user nobody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="profd-capabilities-"))
    shutil.copy(compile_c("spin", SPIN), folder / "spin")
    os.chown(folder / "spin", NOBODY, NOBODY)
    (folder / "spin").chmod(0o700)
    os.chown(folder, NOBODY, NOBODY)
    folder.chmod(0o700)
    yield folder / "spin"
    shutil.rmtree(folder)


@pytest.fixture
def somebody(spawn, program):
    return spawn(program, user=NOBODY, group=NOBODY, extra_groups=[])


class Recording:
    """Records the whole machine for half a second, and reads from the capture what worked."""

    def __init__(self, profd, file, capture, profcapture, target):
        self.profd, self.target = profd, target
        self.images, self.has_symbols, self.bounding, self.nice, self.ring_bytes = [], False, None, None, 0
        self.path = profd.create({**SYSTEM, "call-graph": variant("s", "fp")}, file)
        try:
            profd.session(self.path, "Start")
        except GLib.Error as error:
            self.refused = error.message
            return
        self.refused = None
        profd.sleep(0.5)
        self.look_at(*profd.engines())
        self.profd.session(self.path, "Stop")
        self.profd.wait("Finished", self.path)
        self.images = rows(profcapture, capture, "image")
        self.has_symbols = len(profcapture.json("dump", capture, "--table", "symbol", "--limit", 1)["data"]["rows"]) > 0

    def look_at(self, engine):
        status = Path(f"/proc/{engine}/status").read_text()
        self.bounding = int(re.search(r"CapBnd:\s+(\w+)", status)[1], 16)
        self.nice = os.getpriority(os.PRIO_PROCESS, engine)
        spans = [line.split()[0].split("-") for line in Path(f"/proc/{engine}/maps").read_text().splitlines()
                 if "perf_event" in line]
        self.ring_bytes = sum(int(end, 16) - int(start, 16) for start, end in spans)

    def image(self, path):
        return next((row["id"] for row in self.images if (row["path"] or "").startswith(str(path))), None)


def everybody(recording):
    return recording.refused is None


def wide_rings(recording):
    """Returns whether the rings are larger than what every user may lock."""
    free = int(Path("/proc/sys/kernel/perf_event_mlock_kb").read_text()) * 1024 * os.cpu_count()
    return recording.ring_bytes > 2 * free


def mappings(recording):
    """Returns whether mappings that another user's process made before the recording are known."""
    return recording.image(recording.target) is not None


def opened(recording):
    """Returns whether a file that only its owner may read can be opened."""
    image = recording.image(recording.target)
    try:
        recording.profd.call(recording.path, "org.profd.Profiler1.Session", "OpenImage", variant("(t)", (image or 0,)))
    except GLib.Error:
        return False
    fd, = recording.profd.files
    found = os.read(fd, 4)
    os.close(fd)
    return found == b"\x7fELF"


def kernel_names(recording):
    return recording.has_symbols


def empty_bounding_set(recording):
    return recording.bounding == 0


def goes_first(recording):
    return recording.nice == -10


# {capability: the feature that needs it}. The tests of KILL, CHECKPOINT_RESTORE and BPF make separate
# recordings.
FEATURES = {
    "PERFMON": everybody, "IPC_LOCK": wide_rings, "SYS_PTRACE": mappings, "DAC_READ_SEARCH": opened, "SYSLOG": kernel_names,
    "SETUID": everybody, "SETGID": everybody, "SETPCAP": empty_bounding_set, "SYS_NICE": goes_first,
}
LIMITS = {"MEMLOCK": 65536, "NICE": 0}


def test_all_of_them_are_named():
    source = (SOURCE / "daemon/broker/sandbox.c").read_text(encoding="utf-8")
    kept = re.search(r"static const int kept\[\] = \{(.*?)\};", source, re.DOTALL)[1]
    assert set(re.findall(r"CAP_(\w+),", kept)) == set(NUMBERS) == {*FEATURES, "KILL", "CHECKPOINT_RESTORE", "BPF"}
    page = (SOURCE / "data/man/profd.8.scd").read_text(encoding="utf-8")
    listed, = re.findall(r"drops all capabilities except ([^.]*)\.", page)
    assert set(re.findall(r"CAP_(\w+)", listed)) == set(NUMBERS)


def test_enough(file, capture, profcapture, somebody):
    """With the list that profd keeps, everything works."""
    with running(without(**LIMITS)) as profd:
        recording = Recording(profd, file, capture, profcapture, somebody.args[0])
        assert [name for name, works in FEATURES.items() if not works(recording)] == []


def test_enough_for_the_unit(file, capture, profcapture, somebody):
    """The unit sets LimitMEMLOCK=infinity and LimitNICE=-10 in place of two capabilities."""
    settings = dict(re.findall(r"^(\w+)=(.*)$", (SOURCE / "data/systemd/profd.service.in").read_text(), re.MULTILINE))
    kept = {name.removeprefix("CAP_") for name in settings["CapabilityBoundingSet"].split()}
    assert settings["LimitMEMLOCK"] == "infinity" and settings["LimitNICE"] == "-10"
    assert set(NUMBERS) - kept == {"IPC_LOCK", "SYS_NICE"}
    with running(without("IPC_LOCK", "SYS_NICE")) as profd:
        recording = Recording(profd, file, capture, profcapture, somebody.args[0])
        assert [name for name, works in FEATURES.items() if name in kept and not works(recording)] == []


@pytest.mark.parametrize("name", FEATURES)
def test_needed(file, capture, profcapture, somebody, name):
    with running(without(name, **LIMITS)) as profd:
        assert not FEATURES[name](Recording(profd, file, capture, profcapture, somebody.args[0]))


@pytest.mark.parametrize("names", [[], ["CHECKPOINT_RESTORE"]])
def test_file_that_is_gone(file, capture, profcapture, spawn, program, names):
    """Only with CHECKPOINT_RESTORE can a removed file be opened, by /proc/PID/map_files."""
    copy = program.with_name("gone")
    shutil.copy(program, copy)
    copy.chmod(0o755)
    target = spawn(copy)
    until(lambda: Path(f"/proc/{target.pid}/exe").exists() and os.readlink(f"/proc/{target.pid}/exe") == str(copy))
    copy.unlink()
    with running(without(*names)) as profd:
        recording = Recording(profd, file, capture, profcapture, copy)
        assert mappings(recording)
        assert opened(recording) == (not names)


@pytest.mark.parametrize("names", [[], ["BPF"]])
def test_interpreter(file, capture, profcapture, spawn, tmp_path, names):
    """BPF is needed for the functions of Python programs."""
    if "WALK_INTERPRETED" not in os.environ:
        pytest.skip("built without libbpf, bpftool or clang")
    program = tmp_path / "spin.py"
    program.write_text("def turn():\n    while True:\n        pass\nturn()\n")
    target = spawn("/usr/bin/python3", program)
    with running(without(*names)) as profd:
        path = profd.create({"pids": variant("au", [target.pid])}, file)
        profd.session(path, "Start")
        profd.sleep(2)
        profd.session(path, "Stop")
        profd.wait("Finished", path)
    found = {row["name"] for row in rows(profcapture, capture, "symbol")}
    assert ("spin.turn" in found) == (not names)
    missing = [row["value"] for row in rows(profcapture, capture, "metadata") if row["key"] == "interpreters.missing"]
    assert bool(missing) == bool(names) and all("CAP_BPF" in text for text in missing)
    profcapture("symbolize", capture)  # otherwise the first hint would be about missing names
    assert bool(re.search(r"^Hint: .*CAP_BPF", profcapture("report", capture).stdout, re.MULTILINE)) == bool(names)


@pytest.mark.parametrize("names", [[], ["KILL"]])
def test_engine_that_hangs(file, names):
    """KILL is needed to end an engine that hangs, because the engine runs as another user."""
    with running(without(*names)) as profd:
        path = profd.create(SYSTEM, file)
        profd.session(path, "Start")
        engine, = profd.engines()
        os.kill(engine, signal.SIGSTOP)
        profd.session(path, "Stop")
        gone = False
        for _ in range(20 if names else 100):  # tenths of a second: with KILL it may take long on a busy machine
            profd.sleep(0.1)
            gone = not profd.engines()
            if gone:
                break
        if not gone:
            os.kill(engine, signal.SIGKILL)
        assert gone == (not names)
