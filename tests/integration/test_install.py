# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Installed programs find each other, and each installed header compiles alone."""
import os
import subprocess
import xml.etree.ElementTree

import pytest

BUILD = os.environ["PROF_BUILD_DIR"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    subprocess.run(
        ["meson", "install", "-C", BUILD, "--quiet"],
        env={**os.environ, "DESTDIR": str(folder)},
        check=True,
        timeout=200,
    )
    return folder


def one(root, pattern):
    found = sorted(root.rglob(pattern))
    assert found, f"{pattern} is not installed"
    return found[0]


def test_programs(root):
    assert one(root, "bin/profctl").stat().st_mode & 0o111
    assert one(root, "bin/profcapture").stat().st_mode & 0o111
    assert one(root, "libexec/profd/profd").stat().st_mode & 0o111
    assert one(root, "libexec/profd/profd-engine").stat().st_mode & 0o111
    assert one(root, "libexec/profd/profd-files").stat().st_mode & 0o111


def test_installed_program_runs(root):
    library = one(root, "libprofcapture.so.0").parent
    done = subprocess.run(
        [one(root, "bin/profcapture"), "--version"],
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("profcapture ")


@pytest.mark.parametrize("header", ["prof-capture.h", "prof-collector.h", "prof/mark.h"])
@pytest.mark.parametrize("compiler", [["gcc", "-std=c11", "-x", "c"], ["g++", "-x", "c++"]], ids=["c", "c++"])
def test_header_stands_alone(root, compiler, header, require):
    require(compiler[0])
    header = one(root, f"include/{header}")
    subprocess.run(
        [*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I", root.glob("**/include").__next__(), "-"],
        input=f'#include "{header}"\n',
        encoding="utf-8",
        check=True,
        timeout=60,
    )


def test_translations(root):
    assert one(root, "share/locale/de/LC_MESSAGES/profd.mo").stat().st_size > 0


@pytest.mark.parametrize("library", ["profcapture", "profcollector"])
def test_pkg_config(root, library):
    text = one(root, f"pkgconfig/lib{library}.pc").read_text()
    assert f"-l{library}" in text


def test_collector(root):
    assert one(root, "libprofcollector.so.0").exists()
    assert one(root, "libprofcollector.a").exists()
    assert one(root, "libprofpreload-memory.so").exists()


def test_service(root, require):
    """The files of the D-Bus service and of the systemd unit name the installed program."""
    program = "/" + str(one(root, "libexec/profd/profd").relative_to(root))
    for pattern, line in (
        ("share/dbus-1/system-services/org.profd.Profiler1.service", f"Exec={program} --system"),
        ("lib/systemd/system/profd.service", f"ExecStart={program} --system"),
        ("share/dbus-1/system-services/org.profd.Profiler1.service", "SystemdService=profd.service"),
        ("lib/systemd/system/profd.service", "BusName=org.profd.Profiler1"),
    ):
        assert line in one(root, pattern).read_text().splitlines()
    assert one(root, "share/dbus-1/system.d/org.profd.Profiler1.conf")
    assert one(root, "share/dbus-1/interfaces/org.profd.Profiler1.xml")


def test_polkit_policy(root):
    """There are five actions. Without a password, only own processes may be recorded, and only in
    an active local session."""
    policy = xml.etree.ElementTree.parse(one(root, "share/polkit-1/actions/org.profd.policy"))
    defaults = {
        action.get("id"): [action.find("defaults").find(f"allow_{who}").text for who in ("any", "inactive", "active")]
        for action in policy.iter("action")
    }
    password = ["auth_admin", "auth_admin", "auth_admin_keep"]
    assert defaults == {
        "org.profd.record-own": ["auth_admin", "auth_admin", "yes"],
        "org.profd.record-others": password,
        "org.profd.record-system": password,
        "org.profd.kernel-addresses": password,
        "org.profd.manage-others": password,
    }
