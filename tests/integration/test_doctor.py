# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl doctor on the test machine, as root and as nobody."""
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

IDS = [
    "daemon", "polkit", "perf-paranoid", "perf-mlock", "perf-max-rate", "pmu", "kptr-restrict", "ptrace-scope", "tracefs",
    "map-files", "procmap-query", "unwind-helper", "collector", "debuginfo", "debuginfod", "interpreters", "jit-maps", "cgroup", "container", "disk-space", "clocksource",
]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "-all"]


def checks(report):
    assert report["schema"] == "profctl.doctor/1"
    assert report["capture"] is None
    return {check["id"]: check for check in report["data"]["checks"]}


def run(profctl, **options):
    done = profctl("doctor", "--json", check=None, **options)
    found = checks(json.loads(done.stdout))
    failed = any(check["status"] == "fail" for check in found.values())
    assert done.returncode == (1 if failed else 0)
    return found


def paranoid():
    with open("/proc/sys/kernel/perf_event_paranoid") as f:
        return int(f.read())


def test_every_check_reports(profctl):
    found = run(profctl)
    assert list(found) == IDS
    for check in found.values():
        assert check["status"] in ("ok", "warn", "fail")
        assert check["summary"] and "\n" not in check["summary"]
        assert check["fix"] is None or check["fix"]
        if check["status"] == "ok":
            assert check["fix"] is None, check


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become nobody")
def test_nobody_has_less(profctl):
    found = run(profctl, prefix=NOBODY, cwd="/")
    assert list(found) == IDS
    if paranoid() == 2:
        assert found["perf-paranoid"]["status"] == "warn"
        assert found["perf-paranoid"]["fix"] == "sudo sysctl kernel.perf_event_paranoid=0"
        assert "own processes" in found["perf-paranoid"]["summary"]
    if paranoid() <= 2:
        assert found["perf-mlock"]["status"] == "ok"
    assert found["map-files"]["status"] == "warn" and "restart" in found["map-files"]["fix"]
    assert found["disk-space"]["status"] == "warn"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_may_all(profctl):
    found = run(profctl)
    assert found["perf-paranoid"]["status"] == "ok"
    assert found["map-files"]["status"] == "ok"


@pytest.fixture
def elsewhere(profctl, require):
    """Runs a shell command, doctor, a second command, and doctor again, in new namespaces, so that
    this machine does not change. Returns the checks of both runs of doctor."""
    require("unshare", root=True)

    def run_both(flags, before="true", after="true", user=()):
        if subprocess.run(["unshare", *flags, "true"], stderr=subprocess.DEVNULL, timeout=60).returncode != 0:
            pytest.skip(f"unshare {' '.join(flags)} is not possible here, as in a chroot")
        doctor = " ".join([*user, profctl.path, "doctor --json"])
        script = f"{before}; {doctor}; {after}; {doctor}"
        done = subprocess.run(
            ["unshare", *flags, "sh", "-c", script], stdout=subprocess.PIPE, encoding="utf-8", timeout=60, cwd="/"
        )
        return [checks(json.loads(line)) for line in done.stdout.splitlines()]

    return run_both


UNMOUNT = "umount -l /sys/kernel/tracing /sys/kernel/debug 2>/dev/null"


ROOTS = "mount -t tracefs -o gid=0,mode=700 tracefs /sys/kernel/tracing"


@pytest.fixture
def tracefs(elsewhere):
    """All mounts of tracefs on a machine share their options, so the options are restored."""
    yield
    elsewhere(["-m"], f"{UNMOUNT}; {ROOTS}")


@pytest.mark.alone  # the mode of tracefs decides what others can read
def test_tracefs_is_not_mounted(elsewhere, tracefs):
    """Root's profctl needs no mount of tracefs. For other users, doctor suggests a mount or remount
    with which their group can read it."""
    first, _ = elsewhere(["-m"], UNMOUNT)
    assert first["tracefs"]["status"] == "ok"
    mount = "mount -t tracefs -o gid=$(id -g),mode=750 tracefs /sys/kernel/tracing"
    remount = "mount -o remount,gid=$(id -g),mode=750 /sys/kernel/tracing"
    also = " && sudo sysctl kernel.perf_event_paranoid=1" if paranoid() > 1 else ""
    for before, fix in ((UNMOUNT, mount), (f"{UNMOUNT}; {ROOTS}", remount)):
        first, second = elsewhere(["-m"], before, fix.replace("$(id -g)", "65534"), user=NOBODY)
        assert (first["tracefs"]["status"], first["tracefs"]["fix"]) == ("warn", f"sudo {fix}{also}")
        assert second["tracefs"]["status"] == ("warn" if also else "ok")
        assert second["tracefs"]["fix"] == (also.removeprefix(" && ") or None)


@pytest.mark.alone
@pytest.mark.parametrize("user", [[], NOBODY])
def test_tracepoints(elsewhere, tracefs, profctl, tmp_path, user):
    """doctor predicts whether a tracepoint can be recorded."""
    tmp_path.chmod(0o777)
    command = [*user, profctl.path, "record", "--force", "-e", "sched:sched_switch", "-o", tmp_path / "x.cap", "--", "sleep", "0.2"]
    record = f"{shlex.join(map(str, command))} >{tmp_path}/said 2>&1 && touch {tmp_path}/ok"
    found, _ = elsewhere(["-m"], f"{UNMOUNT}; mount -t tracefs -o gid=65534,mode=750 tracefs /sys/kernel/tracing", record, user=user)
    assert (found["tracefs"]["status"] == "ok") == (tmp_path / "ok").exists(), (tmp_path / "said").read_text()


def test_hidden_processes(elsewhere):
    fix = "mount -o remount,hidepid=0 /proc"
    first, second = elsewhere(["-m", "-p", "-f"], "mount -t proc -o hidepid=2 proc /proc", fix, user=NOBODY)
    assert first["ptrace-scope"]["status"] == "warn"
    assert first["ptrace-scope"]["fix"] == "sudo " + fix
    assert second["ptrace-scope"]["status"] == "ok"


def test_pid_namespace(elsewhere):
    found, _ = elsewhere(["-p", "-f", "--mount-proc"])
    assert found["container"]["status"] == "warn"
    assert found["perf-paranoid"]["status"] == "ok"


def test_root_of_a_user_namespace_is_nobody(elsewhere):
    found, _ = elsewhere(["-U", "-r"])
    assert found["container"]["status"] == "warn"
    assert "plain user" in found["container"]["summary"]
    if paranoid() >= 1:
        assert found["perf-paranoid"]["status"] == "warn"


@pytest.fixture
def sysctl(require):
    """Sets a sysctl until the end of the test."""
    require(root=True, machine=True)
    changed = {}

    def change(name, value):
        path = Path("/proc/sys") / name.replace(".", "/")
        changed.setdefault(path, path.read_text())
        path.write_text(str(value))

    yield change
    for path, value in changed.items():
        path.write_text(value)


@pytest.mark.parametrize(
    "check, name, bad, user",
    [
        ("perf-paranoid", "kernel.perf_event_paranoid", 2, NOBODY),
        ("perf-mlock", "kernel.perf_event_mlock_kb", 0, ["prlimit", "--memlock=0", *NOBODY]),
        ("perf-max-rate", "kernel.perf_event_max_sample_rate", 500, []),
        ("kptr-restrict", "kernel.kptr_restrict", 2, []),
    ],
)
@pytest.mark.changes_machine
def test_pasted_fix_works(profctl, sysctl, check, name, bad, user):
    sysctl(name, bad)
    found = run(profctl, prefix=user, cwd="/")[check]
    assert found["status"] in ("warn", "fail")
    fixed, value = found["fix"].removeprefix("sudo sysctl ").split("=")
    assert fixed == name
    sysctl(name, value)
    assert run(profctl, prefix=user, cwd="/")[check]["status"] == "ok"


def test_missing_engine_fails(profctl, tmp_path):
    found = run(profctl, env={"PROF_LIBEXEC_DIR": tmp_path})
    assert found["daemon"]["status"] == "fail"
    assert str(tmp_path) in found["daemon"]["summary"]


def test_text_says_the_same(profctl):
    """With --all, the text has a row for each check of the JSON; debuginfod is "off" if no server
    is set."""
    text = profctl("doctor", "--all", check=None, env={"DEBUGINFOD_URLS": ""}).stdout
    found = run(profctl, env={"DEBUGINFOD_URLS": ""})
    for name, check in found.items():
        status = "off" if name == "debuginfod" else check["status"]
        assert f"{status:4}  {name:13}  {check['summary']}\n" in text
    assert "\033" not in text
    assert "\033[32m" in profctl("doctor", "--color=always", check=None).stdout
    assert "\033" not in profctl("doctor", check=None, env={"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}).stdout


def test_text_begins_with_the_verdict(profctl, tmp_path):
    """Only warnings and failures have rows, failures first; the other checks are counted."""
    for env in {}, {"PROF_LIBEXEC_DIR": tmp_path}:
        found = run(profctl, env=env)
        problems = [name for status in ("fail", "warn") for name in found if found[name]["status"] == status]
        failed = sum(check["status"] == "fail" for check in found.values())
        lines = profctl("doctor", check=None, env=env).stdout.splitlines()
        if failed:
            assert lines[0] == f"Recording does not work here: {failed} problem{'s' * (failed > 1)}."
        elif found["perf-paranoid"]["status"] == "warn":
            assert lines[0].startswith("You may record ") and lines[0].endswith(f" Fix: {found['perf-paranoid']['fix']}")
        elif problems:
            assert lines[0] == f"Recording works here. {len(problems)} thing{'s' * (len(problems) > 1)} to know:"
        else:
            assert lines[0] == "Recording works here."
        assert [line.split()[1] for line in lines if line.startswith(("fail ", "warn "))] == problems
        off = "off   debuginfod: set DEBUGINFOD_URLS to fetch missing debug files" in lines
        assert f"ok    {len(found) - len(problems) - off} more checks (--all)" in lines
        for check in found.values():
            assert not check["fix"] or sum(line.endswith(check["fix"]) for line in lines) >= 1


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become nobody")
def test_verdict_of_a_plain_user(profctl):
    if paranoid() != 2:
        pytest.skip("kernel.perf_event_paranoid is not the kernel's default")
    lines = profctl("doctor", check=None, prefix=NOBODY, cwd="/").stdout.splitlines()
    assert lines[0] == "You may record your own programs, but not the system. Fix: sudo sysctl kernel.perf_event_paranoid=0"
    assert not any(line.endswith("fix: sudo sysctl kernel.perf_event_paranoid=0") for line in lines), "the verdict has it"


def test_hostile_folder_name(profctl, tmp_path):
    folder = str(tmp_path) + "/\033[2J\n"
    done = profctl("doctor", check=1, env={"PROF_LIBEXEC_DIR": folder})
    assert "\033" not in done.stdout
    assert "\\x1b[2J\\n" in done.stdout


def test_usage(profctl):
    assert "'doctor'" in profctl("docter", check=2).stderr
    done = profctl("doctor", "--jsno", check=2)
    assert done.stdout == ""
    assert "Did you mean '--json'" in done.stderr
    profctl("doctor", "extra", check=2)
    profctl(check=2)
    assert "--json" in profctl("doctor", "--help").stdout
    assert profctl("help", "doctor").stdout == profctl("doctor", "--help").stdout


def test_output_that_does_not_arrive(profctl):
    with open("/dev/full", "w") as full:
        done = profctl("doctor", check=1, stdout=full)
    assert "No space left on device" in done.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = profctl("doctor", check=1, stdout=writer)
    os.close(writer)
    assert done.stderr == "", "what head has not read is not missed"
