# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The systemd unit has a low exposure level, and allows the system calls that profd's own filters
allow."""
import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
MAX_EXPOSURE = 2.5


@pytest.fixture
def unit(tmp_path, require):
    require("systemd-analyze")
    text = (SOURCE / "data/systemd/profd.service.in").read_text(encoding="utf-8")
    path = tmp_path / "profd.service"
    path.write_text(text.replace("@libexecdir@/profd", "/bin/true"), encoding="utf-8")
    return path


def exposure(unit):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
                          capture_output=True, encoding="utf-8", timeout=60)
    return float(re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)[1])


def test_exposure(unit):
    assert exposure(unit) <= MAX_EXPOSURE
    # without these settings, the measured exposure is too high
    unit.write_text(re.sub(r"^(CapabilityBoundingSet|SystemCallFilter)=.*\n", "", unit.read_text(), flags=re.MULTILINE))
    assert exposure(unit) > MAX_EXPOSURE


def test_what_a_profiler_needs_is_there(unit):
    settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"[A-Z]\w+=", line))
    for name in ("ProtectKernelTunables", "ProtectKernelLogs", "PrivateUsers", "ProcSubset", "RootDirectory"):
        assert name not in settings
    for capability in ("PERFMON", "SYS_PTRACE", "CHECKPOINT_RESTORE", "DAC_READ_SEARCH", "SYSLOG", "SETUID", "SETGID"):
        assert f"CAP_{capability}" in settings["CapabilityBoundingSet"].split()
    assert settings["LimitMEMLOCK"] == "infinity"


def syscall_sets():
    sets, name = {}, None
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, encoding="utf-8",
                          timeout=60, env={**os.environ, "SYSTEMD_COLORS": "0"}).stdout
    # systemd 255 prints sequences that end colors even if it prints no colors
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        if line.startswith("@"):
            name = line.strip()
            sets[name] = []
        elif name and line.startswith("    ") and not line.strip().startswith("#"):
            sets[name].append(line.strip())
    return sets


def expand(sets, words):
    found = set()
    for word in words:
        found |= expand(sets, sets[word]) if word.startswith("@") else {word}
    return found


def test_calls_of_our_filters_are_allowed(unit):
    """If the unit forbade one of these calls, profd would fail, but only as a service."""
    sets = syscall_sets()
    allowed = expand(sets, ["@default"])
    for words in re.findall(r"^SystemCallFilter=(.*)$", unit.read_text(), re.MULTILINE):
        if words.startswith("~"):
            allowed -= expand(sets, words[1:].split())
        else:
            allowed |= expand(sets, words.split())
    common = set(re.findall(r"SCMP_SYS\((\w+)\)", (SOURCE / "daemon/filter.c").read_text(encoding="utf-8")))
    assert len(common) > 20
    for name in ("broker", "engine/session", "files"):
        source = (SOURCE / f"daemon/{name}/sandbox.c").read_text(encoding="utf-8").split("deadly_calls")[0]
        calls = set(re.findall(r"SCMP_SYS\((\w+)\)", source))
        assert len(calls) > 10
        calls |= common
        assert calls <= allowed, (name, calls - allowed)
