# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Limits of one session and of one client: a request over a limit is refused, and the message names
the limit; samples over a limit are counted as lost."""
import os
import socket
import subprocess
from array import array
from pathlib import Path

import pytest

from buses import from_bytes
from captures import rows
from recordings import children, stolen_ns, until
from stacks import build, read
from test_dbus_private import MANAGER, PROFILER, ROOT, SYSTEM, GLib, profd, refusal, variant  # noqa: F401 (fixtures)
from test_stacks import RECURSION
from test_tasks import home  # noqa: F401 (fixture)


def rss(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_properties(profd):
    limits = {name: profd.get(ROOT, name, PROFILER) for name in (
        "MaxSessions", "MaxSessionsPerUser", "ReservedSessions", "MaxEngineBytes", "MaxEngineBytesPerUser", "MaxThreadEventsPerUser", "MaxThreadEvents",
        "MaxOptionsBytes", "MaxCaptureBytes", "MaxDuration", "MaxSampleRate")}
    assert limits["MaxSessions"] == 64 and limits["MaxSessionsPerUser"] == 8
    assert limits["MaxEngineBytesPerUser"] >= limits["MaxEngineBytes"] > 256 << 20
    assert all(value > 0 for value in limits.values())


@pytest.mark.parametrize("key, value", [
    ("command", GLib.Variant.new_array(GLib.VariantType("ay"), [from_bytes("ay", b"x" * 100_000)])),
    ("unknown", from_bytes("ay", b"x" * 1_000_000)),
    ("pids", from_bytes("au", array("I", range(1, 50_000)).tobytes())),
])
def test_giant_options(profd, file, key, value):
    name, message = refusal(profd.create, {**SYSTEM, key: value}, file)
    assert name == "LimitExceeded" and "MaxOptionsBytes" in message


def test_giant_dictionary(profd, file):
    """GDBus reads the whole dictionary before profd can refuse it, but all of its memory is
    freed."""
    many = variant("(a{sv}h)", ({f"key-{n}": variant("u", n) for n in range(20_000)}, 0))
    seen = []
    for _ in range(4):
        name, message = refusal(profd.call, ROOT, PROFILER, "CreateSession", many, [file])
        assert name == "LimitExceeded" and "MaxOptionsBytes" in message
        seen.append(rss(profd.process.pid))
    assert seen[-1] - seen[0] < 8 << 20
    assert profd.call(ROOT, MANAGER, "GetManagedObjects") == ({},)


def test_many_sessions(profd, file):
    """No more sessions are created than allowed, and refused requests leak no memory or
    descriptors."""
    paths = [profd.create(SYSTEM, file) for _ in range(64)]
    before = rss(profd.process.pid), fds(profd.process.pid)
    for _ in range(250):
        name, message = refusal(profd.create, SYSTEM, file)
        assert name == "LimitExceeded" and "MaxSessions" in message
    assert rss(profd.process.pid) - before[0] < 1 << 20
    assert fds(profd.process.pid) <= before[1] + 1
    for path in paths:
        profd.session(path, "Close")
    for _ in range(250):
        profd.session(profd.create(SYSTEM, file), "Close")
    until(lambda: fds(profd.process.pid) <= before[1] - 64 + 2)  # another thread closes the files
    assert rss(profd.process.pid) - before[0] < 2 << 20


def test_sample_rate(require, profd, file, profcapture, capture, spawn):
    """Samples above the rate are counted and dropped, and the client gets one warning."""
    require(root=True)
    for _ in range(os.cpu_count()):
        spawn("sh", "-c", "while :; do :; done")
    options = {**SYSTEM, "events": variant("as", ["cpu-clock"]), "frequency": variant("u", 2000)}
    path = profd.create({**options, "max-rate": variant("t", 200)}, file)
    stolen = stolen_ns()
    profd.session(path, "Start")
    profd.wait("Warning", path, first="quota")
    profd.wait_samples(path, 201)
    profd.session(path, "Stop")
    ok, reason, summary = profd.wait("Finished", path)
    assert (ok, reason) == (True, "stopped")
    stolen = stolen_ns(stolen) / 1e9
    seconds = (summary["stop-time"] - summary["start-time"]) / 1e9
    assert 200 < summary["samples"] <= 200 * (seconds + 2)
    over = sum(row[2] for row in summary["loss"] if row[1] == "quota")
    ticks = over + summary["samples"] + summary["missed-ticks"]
    assert 0.8 * (os.cpu_count() * seconds - stolen) < ticks / 2000 < 1.1 * os.cpu_count() * seconds, (summary["loss"], stolen)
    assert [a[0] for _, _, name, a in profd.signals if name == "Warning"].count("quota") == 1
    rows = profcapture.json("info", capture)["data"]["loss"]
    assert sum(row["count"] for row in rows if row["cause"] == "quota") == over


def test_small_rings(require, profd, file, profcapture, capture, spawn, tmp_path):
    """With small rings, less of each stack is copied. Stacks longer than the copy are marked."""
    require("gcc", root=True)
    target = spawn("sh", "-c", 'while :; do "$0" 600; done', build(tmp_path, "small-rings", RECURSION))
    options = {"pids": variant("au", [target.pid]), "frequency": variant("u", 499), "call-graph": variant("s", "dwarf"),
               "ring-bytes": variant("t", os.cpu_count() << 18)}
    path = profd.create(options, file)
    profd.session(path, "Start")
    profd.wait_samples(path, 100)
    profd.session(path, "Stop")
    profd.wait("Finished", path)
    deep = [sample for sample in read(profcapture, capture) if sample.comm == "small-rings" and len(sample.names) > 100]
    assert deep and {sample.stop for sample in deep} == {"copy-end"}
    assert max(len(sample.names) for sample in deep) <= 4096 / 16 + 10


def test_wrong_rate(profd, file):
    assert refusal(profd.create, {**SYSTEM, "max-rate": variant("u", 1)}, file)[0] == "InvalidOption"


@pytest.fixture
def under_way():
    """Descriptors that were sent but not received: the kernel counts those of all processes of a
    user against each sender's limit."""
    pair, null = socket.socketpair(), os.open("/dev/null", os.O_RDONLY)
    for _ in range(10):
        socket.send_fds(pair[0], [b"x"], [null] * 40)
    yield
    os.close(null)
    for end in pair:
        end.close()


def test_descriptors_under_way(require, under_way, profd, file, capture, profcapture):
    """Recording works while descriptors are in flight, such as those of sessions that start at the
    same time, or of other programs."""
    require(root=True)
    path = profd.create(SYSTEM, file)
    profd.session(path, "Start")
    profd.session(path, "Stop")
    assert profd.wait("Finished", path)[:2] == (True, "stopped")
    # on a busy machine it may take too long to read a process
    assert {arguments[0] for _, _, name, arguments in profd.signals if name == "Warning"} <= {"process-hangs"}
    assert len(profcapture.json("info", capture)["data"]["processes"]) > 1


# ---- the limits of a process

LIMITED = ["setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps", "-all", "prlimit"]


@pytest.mark.parametrize("limit, name", [*((f"--nofile={n}", "RLIMIT_NOFILE") for n in (7, 16, 40, 64, 70)),
                                         *((f"--fsize={n}", "RLIMIT_FSIZE") for n in (512, 2048)),
                                         ("--nproc=1", "RLIMIT_NPROC")])
def test_low_limits(profctl, home, limit, name):
    """If a limit makes a recording fail, the message names the limit."""
    done = profctl("record", "-o", home / "test.cap", "--", "true", prefix=[*LIMITED, limit], check=None)
    assert done.returncode != 0 and name in done.stderr, done.stderr


@pytest.mark.parametrize("most", range(1, 15))
def test_few_processes(pids_cgroup, profctl, tmp_path, most):
    """Whichever process cannot be started, the message names the limit and the cgroup, and nothing
    is left."""
    (pids_cgroup / "pids.max").write_text(str(most))
    enter = ["sh", "-c", f'echo $$ >{pids_cgroup}/cgroup.procs; exec "$@"', "sh"]
    done = profctl("record", "--bus", "private", "-o", tmp_path / "test.cap", "--", "true", prefix=enter, check=None, timeout=20)
    if done.returncode == 0:
        assert (tmp_path / "test.cap").exists() and most > 8
        return
    assert f"{most}, in {pids_cgroup}/pids.max" in done.stderr and "GLib" not in done.stderr, done.stderr
    assert done.returncode in (1, 5), done.stderr
    assert not list(tmp_path.iterdir())


def test_profd_that_hangs(tmp_path, spawn):
    """If profd does not respond, its client can still be terminated, and profd then ends, too."""
    hangs = tmp_path / "profd"
    hangs.write_text("#!/bin/sh\nexec sleep 1000\n")
    hangs.chmod(0o755)
    profctl = spawn(os.environ["PROFCTL"], "record", "--bus", "private", "-o", tmp_path / "test.cap",
                    env={**os.environ, "PROF_LIBEXEC_DIR": str(tmp_path)}, stderr=subprocess.PIPE)
    until(lambda: "sleep" in children(profctl.pid))
    profd = children(profctl.pid)["sleep"]
    profctl.terminate()
    _, stderr = profctl.communicate(timeout=20)
    assert profctl.returncode == 130 and b"interrupted" in stderr, stderr
    assert not Path(f"/proc/{profd}").exists()
    assert list(tmp_path.iterdir()) == [hangs]


SHIFTED = ["unshare", "--time", "--fork", "--monotonic", "100000", "--boottime", "100000"]


@pytest.fixture
def shifted(require):
    require("unshare", root=True)
    if subprocess.run([*SHIFTED, "true"], stderr=subprocess.DEVNULL, timeout=60, check=False).returncode:
        pytest.skip("there are no time namespaces")


def test_profd_in_a_time_namespace(shifted, profctl, tmp_path):
    """profd's clock differs from that of the events: profd reports that, and leaves no file."""
    done = profctl("record", "-o", tmp_path / "test.cap", "--", "true", prefix=SHIFTED, check=None)
    assert done.returncode != 0 and "time namespace" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_target_in_a_time_namespace(shifted, profctl, profcapture, capture):
    """A target's records are at the right times of the recording, whatever the target's own clock
    says."""
    code = "n = sum(range(10**7)); blocks = [bytes(1000) for _ in range(1000)]"
    profctl("record", "--memory", "-F", "997", "-o", capture, "--no-symbols", "--", *SHIFTED, "/usr/bin/python3", "-c", code)
    for table in "sample", "alloc":
        times = [row["time_ns"] for row in rows(profcapture, capture, table)]
        assert len(times) > 10 and max(times) - min(times) < 100 * 10**9, table


def test_symbols_that_do_not_fit(profctl, profcapture, tmp_path):
    """If there is no room for a capture's names, the capture is unchanged."""
    capture = tmp_path / "test.cap"
    profctl("record", "--no-symbols", "-o", capture, "--", "python3", "-c", "sum(range(10**7))")
    before = capture.read_bytes()
    for room in 1, 200, 2000:
        done = profcapture("symbolize", capture, prefix=["prlimit", f"--fsize={len(before) + room}"], check=1)
        assert "File too large" in done.stderr
        assert capture.read_bytes() == before
    profcapture("symbolize", capture)
    profcapture("verify", capture)
