# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Lines and inlined functions of what was hit stand in the capture: from the file itself, from debug files by build-id and by
.gnu_debuglink, on the machine that recorded or below a sysroot; and no name comes from a file that is another one."""
import shutil
import subprocess

import pytest

SECONDS = 1
SOURCE = """\
volatile unsigned long sink;
static inline unsigned long mix(unsigned long a)
{
	return a * 2654435761u ^ (a >> 7); /* line 4 */
}
static inline unsigned long twice(unsigned long a)
{
	return mix(mix(a) + 1); /* line 8 */
}
__attribute__((noinline)) static void spin(void)
{
	unsigned long a = sink;
	for (int i = 0; i < 100000; i++)
		a = twice(a); /* line 14 */
	sink = a;
}
int main(void)
{
	for (;;)
		spin();
}
"""


@pytest.fixture(scope="module")
def work(profctl, require, tmp_path_factory):
    """A program, its debug file, and a recording of the stripped program without names."""
    require("gcc", "objcopy", "strip", root=True)
    folder = tmp_path_factory.mktemp("lines")
    (folder / "spin.c").write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-O2", "-Wl,--build-id=sha1", "spin.c", "-o", "spin"], cwd=folder, check=True)
    subprocess.run(["objcopy", "--only-keep-debug", "spin", "spin.debug"], cwd=folder, check=True)
    shutil.copy(folder / "spin", folder / "whole")
    subprocess.run(["strip", "spin"], cwd=folder, check=True)
    subprocess.run(["objcopy", "--add-gnu-debuglink=spin.debug", "spin"], cwd=folder, check=True)
    program = subprocess.Popen([folder / "spin"])
    (folder / "spin.debug").rename(folder / "away.debug")
    try:
        profctl("record", "--pid", program.pid, "-d", SECONDS, "--no-symbols", "-o", folder / "bare.cap")
        (folder / "spin.debug").write_bytes((folder / "away.debug").read_bytes())
        profctl("record", "--pid", program.pid, "-d", SECONDS, "-o", folder / "named.cap")
        (folder / "spin.debug").unlink()
    finally:
        program.kill()
        program.wait()
    return folder


@pytest.fixture
def bare(work, tmp_path):
    """A copy of it, to be symbolized."""
    return shutil.copy(work / "bare.cap", tmp_path / "bare.cap")


def rows(profcapture, capture, *options):
    return profcapture.json("report", capture, "--limit", 0, *options)["data"]["rows"]


def check_lines(profcapture, capture, source="spin.c"):
    by_line = {row["line"]: row for row in rows(profcapture, capture, "--by", "line") if row["file"] and row["file"].endswith(source)}
    total = sum(row["self"] for row in rows(profcapture, capture))
    # A row a line and function: what is inlined is the function that it was written in.
    assert by_line[4]["name"] == "mix"
    assert sum(row["self"] for row in by_line.values()) > 0.9 * total
    inlined = {row["name"]: row for row in rows(profcapture, capture, "--inline")}
    assert inlined["mix"]["self"] > 0.5 * total
    assert inlined["twice"]["total"] >= inlined["mix"]["self"]
    assert inlined["spin"]["total"] >= inlined["twice"]["total"]
    assert sum(row["self"] for row in inlined.values()) == total
    tree = profcapture.json("report", capture, "--inline", "--tree")["data"]["root"]
    path = []
    while tree["children"]:
        tree = max(tree["children"], key=lambda node: node["total"])
        path.append(tree["name"])
    at = path.index("main")  # interrupts may follow
    assert path[at : at + 4] == ["main", "spin", "twice", "mix"], path
    plain = {row["name"]: row for row in rows(profcapture, capture)}
    assert "mix" not in plain and plain["spin"]["self"] > 0.9 * total
    assert plain["spin"]["file"].endswith(source) and plain["spin"]["line"] == 10


def test_record(profcapture, work):
    """At the end of a recording, by the name in .gnu_debuglink."""
    check_lines(profcapture, work / "named.cap")


def test_build_id(profcapture, work, bare, tmp_path):
    names = {row["name"] for row in rows(profcapture, bare)}
    assert "spin" not in names
    build_id = next(image["build_id"] for image in profcapture.json("info", bare)["data"]["images"] if image["path"].endswith("/spin"))
    (tmp_path / ".build-id" / build_id[:2]).mkdir(parents=True)
    shutil.copy(work / "away.debug", tmp_path / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug")
    profcapture("symbolize", bare, "--debug-dir", tmp_path)
    check_lines(profcapture, bare)
    size = bare.stat().st_size
    profcapture("symbolize", bare, "--debug-dir", tmp_path)
    assert bare.stat().st_size == size
    profcapture("compact", bare, "-o", tmp_path / "compact.cap")
    check_lines(profcapture, tmp_path / "compact.cap")


def test_later(profcapture, work, bare, tmp_path):
    """First without the debug file, then with it."""
    profcapture("symbolize", bare)
    assert not any(row["name"] == "spin" for row in rows(profcapture, bare))
    folder = tmp_path / str(work).lstrip("/")
    folder.mkdir(parents=True)
    shutil.copy(work / "away.debug", folder / "spin.debug")
    profcapture("symbolize", bare, "--debug-dir", tmp_path)
    check_lines(profcapture, bare)


def test_sysroot(profcapture, work, bare, tmp_path):
    folder = tmp_path / str(work).lstrip("/")
    (folder / ".debug").mkdir(parents=True)
    shutil.copy(work / "spin", folder / "spin")
    shutil.copy(work / "away.debug", folder / ".debug" / "spin.debug")
    profcapture("symbolize", bare, "--sysroot", tmp_path)
    check_lines(profcapture, bare)


def test_other_file(profcapture, work, bare, tmp_path):
    """Another program in its place is said to be one, and a debug file whose checksum is wrong gives nothing."""
    folder = tmp_path / str(work).lstrip("/")
    folder.mkdir(parents=True)
    (tmp_path / "other.c").write_text(SOURCE.replace("spin", "other"))
    subprocess.run(["gcc", "-g", "-O2", "-Wl,--build-id=sha1", tmp_path / "other.c", "-o", folder / "spin"], check=True)
    said = profcapture("symbolize", bare, "--sysroot", tmp_path).stdout
    assert "changed since the recording" in said
    shutil.copy(work / "spin", folder / "spin")
    (folder / "spin.debug").write_bytes((work / "away.debug").read_bytes() + b"x")
    profcapture("symbolize", bare, "--sysroot", tmp_path)
    assert not {"other", "spin", "mix"} & {row["name"] for row in rows(profcapture, bare, "--inline")}
