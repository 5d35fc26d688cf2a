# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The engine runs out of memory: the session ends and reports that, its file is readable, and profd
continues."""
import json
import os
import subprocess
from pathlib import Path

import pytest

from captures import rows
from recordings import wait_for_samples
from test_dbus_private import PROFILER, ROOT, SYSTEM, GLib, profd, running, variant  # noqa: F401 (fixtures)

SAMPLING = {**SYSTEM, "frequency": variant("u", 5000), "call-graph": variant("s", "dwarf")}
# each process, and each name, needs memory in the engine
MANY = """
import os
for n in range(10**9):
    child = os.fork()
    if not child:
        for name in range(100):
            open("/proc/self/comm", "w").write(f"{n}-{name}")
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)


@pytest.fixture
def load(spawn):
    for _ in range(2):
        spawn("/usr/bin/python3", "-c", MANY)


def warnings(profd):
    return [arguments for _, _, name, arguments in profd.signals if name == "Warning"]


def limit(engine, size):
    """Limits an engine's memory as the engine's own user, who needs no capability for that."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{engine}/status").read_text().splitlines())
    uid, gid = (int(fields[name].split()[0]) for name in ("Uid", "Gid"))
    subprocess.run(["prlimit", f"--pid={engine}", f"--data={size}"], check=True, timeout=60, user=uid, group=gid,
                   extra_groups=[])


def is_whole_up_to_its_end(profcapture, capture):
    """Returns whether the capture can be read up to its end, or is empty."""
    output = profcapture("verify", capture, "--json", check=None).stdout
    return not output or all(row["reason"] == "cut" for row in json.loads(output)["data"]["damaged"])


def works(profd, tmp_path):
    fd = os.open(tmp_path / "next.cap", os.O_RDWR | os.O_CREAT, 0o600)
    path = profd.create(SYSTEM, fd)
    os.close(fd)
    profd.session(path, "Start")
    profd.session(path, "Stop")
    assert profd.wait("Finished", path)[:2] == (True, "stopped")


def test_limit_is_met(profd, file, capture, profcapture, tmp_path, load):
    """A limit below the memory that the engine has is set during a recording, so the engine gets no more."""
    path = profd.create(SAMPLING, file)
    profd.session(path, "Start")
    profd.wait_samples(path, 1001)
    wait_for_samples(capture, 0)
    engine, = profd.engines()
    assert f"{profd.get(ROOT, 'MaxEngineBytes', PROFILER)} " in Path(f"/proc/{engine}/limits").read_text()
    limit(engine, 1 << 20)
    assert profd.wait("Finished", path, 60)[:2] == (False, "internal")
    assert any(code == "engine-died" and "memory" in text for code, text in warnings(profd)), warnings(profd)
    assert is_whole_up_to_its_end(profcapture, capture)
    assert len(rows(profcapture, capture, "sample")) > 0
    works(profd, tmp_path)


def test_cgroup_is_full(require, profd, file, capture, profcapture, tmp_path, load, request):
    """The kernel kills the engine without a message."""
    require(machine=True)
    folder, size, _ = request.getfixturevalue("memory_cgroup")
    path = profd.create(SAMPLING, file)
    profd.session(path, "Start")
    profd.wait_samples(path, 1001)
    wait_for_samples(capture, 0)
    engine, = profd.engines()
    size.write_text(str(1 << 20))
    (folder / "cgroup.procs").write_text(str(engine))
    assert profd.wait("Finished", path, 60)[:2] == (False, "internal")
    assert any(code == "engine-died" and "signal 9" in text for code, text in warnings(profd)), warnings(profd)
    assert is_whole_up_to_its_end(profcapture, capture)
    assert len(rows(profcapture, capture, "sample")) > 0
    works(profd, tmp_path)


@pytest.mark.parametrize("megabytes", [1, 10, 20, 25])
def test_too_little_from_the_start(file, capture, profcapture, tmp_path, load, megabytes):
    """The engine ends wherever it first lacks memory; nobody waits for it, and a file that exists
    is readable."""
    folder = tmp_path / "libexec"
    folder.mkdir()
    real = Path(os.environ["PROFD_ENGINE"])
    (folder / "profd-engine").write_text(f'#!/bin/sh\nulimit -d {megabytes << 10}\nexec {real} "$@"\n')
    (folder / "profd-engine").chmod(0o755)
    (folder / "profd-files").symlink_to(real.parent / "profd-files")
    with running(PROF_LIBEXEC_DIR=str(folder)) as profd:
        path = profd.create(SAMPLING, file)
        try:
            profd.session(path, "Start")
        except GLib.Error as error:
            assert "engine" in error.message
        else:
            profd.sleep(1)
            if profd.get(path, "State") == "running":
                profd.session(path, "Stop")
        ok, reason, _ = profd.wait("Finished", path)
        assert (ok, reason) == (True, "stopped") or [code for code, _ in warnings(profd)].count("engine-died") == 1
        assert is_whole_up_to_its_end(profcapture, capture)
