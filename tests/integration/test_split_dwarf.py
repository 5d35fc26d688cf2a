# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Split DWARF, in .dwo files or in packages, gives the same results as unsplit DWARF of the same
program."""
import shutil
import subprocess

import pytest

from slices import part
from test_debug_places import ours, pick, place, same_file

MAIN = """
template <typename T> static inline T mix(T a, T b) { return (a * 31 ^ b) + (b >> 3); }
template <typename T> static inline T twice(T a, T b) { return mix(a, b) + mix(b, a); }
struct list { int n, v[64]; int sum() const { int s = 0; for (int i = 0; i < n; i++) s = twice(s, v[i]); return s; } };
__attribute__((noinline)) int loop(const list &l) { return l.sum() + twice(l.n, 3); }
__attribute__((noinline, cold)) long rare(long n) { return twice(n, n + 1); }
int other(int n);
int main(int argc, char **argv)
{
	list l = {};
	for (l.n = 0; l.n < 64; l.n++)
		l.v[l.n] = mix(l.n, argc);
	return argc > 5 ? rare(argc) : loop(l) + other(argc);
}
"""
# A compilation unit with one range; the start of that range is the base of other ranges.
OTHER = """
static inline int mix(int a, int b)
{
	return (a * 37 ^ b) + (b >> 3);
}
__attribute__((noinline)) int other(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++)
		s = mix(s, i) + mix(i, s);
	return s;
}
"""
COMPILERS = {"gcc": "g++", "clang": "clang++"}


@pytest.fixture(scope="module", params=part(["gcc-4", "gcc-5", "clang-4", "clang-5"], 2))
def work(request, require, tmp_path_factory):
    """Builds a program with and without split DWARF. Returns the folder, some addresses, and their
    places in the program without split DWARF."""
    compiler, version = request.param.split("-")
    require(COMPILERS[compiler], "llvm-dwp-14", "readelf")
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "main.cc").write_text(MAIN)
    (folder / "other.cc").write_text(OTHER)
    for name, options in (("whole", []), ("split", ["-gsplit-dwarf"])):
        for stem in ("main", "other"):
            command = [COMPILERS[compiler], "-O2", f"-gdwarf-{version}", *options, "-c", f"{stem}.cc", "-o", f"{stem}.o"]
            subprocess.run(command, cwd=folder, check=True)
        subprocess.run([COMPILERS[compiler], "main.o", "other.o", "-o", name], cwd=folder, check=True)
    text = [subprocess.run(["objcopy", "-O", "binary", "-j", ".text", folder / n, "/dev/stdout"], stdout=subprocess.PIPE, check=True) for n in ("whole", "split")]
    assert text[0].stdout == text[1].stdout
    addresses = pick(folder / "whole", 400)
    places, _ = ours(folder / "whole", addresses)
    assert sum(len(chain) > 1 for chain in places) > 80
    return folder, addresses, places


def says(program, addresses, *options):
    return ours(program, addresses, *options)[0]


def same(own, whole):
    assert len(own) == len(whole)
    for left, right in zip(own, whole):
        assert [name for name, _ in left] == [name for name, _ in right]
        for (_, a), (_, b) in zip(left, right):
            (file, line), (other, number) = place(a), place(b)
            assert line == number and (same_file(file, other) or same_file(other, file)), (left, right)


@pytest.fixture
def alone(work, tmp_path):
    """The split program in a folder whose .dwo files are in the folder "away" below it."""
    folder, addresses, places = work
    shutil.copy(folder / "split", tmp_path / "split")
    (tmp_path / "away").mkdir()
    for name in ("main.dwo", "other.dwo"):
        (folder / name).rename(tmp_path / "away" / name)
    yield tmp_path, addresses, places
    for name in ("main.dwo", "other.dwo"):
        shutil.move(tmp_path / "away" / name, folder / name)


def inlined(places):
    return sum(len(chain) > 1 for chain in places)


def test_files(work):
    """The .dwo files are found by their names in the program, which are relative to the compiler's
    folder."""
    folder, addresses, places = work
    same(says(folder / "split", addresses), places)


def test_beside(alone):
    folder, addresses, places = alone
    assert inlined(says(folder / "split", addresses)) == 0
    for half in ("main.dwo", "other.dwo"):
        shutil.copy(folder / "away" / half, folder / half)
    same(says(folder / "split", addresses), places)


def test_debug_folder(alone):
    folder, addresses, places = alone
    same(says(folder / "split", addresses, folder / "away"), places)


def packages(folder, program):
    """Makes packages with the tools of LLVM and of binutils, which supports only DWARF 4."""
    halves = [folder / "away" / "main.dwo", folder / "away" / "other.dwo"]
    subprocess.run(["llvm-dwp-14", *halves, "-o", folder / "llvm.dwp"], check=True)
    version = subprocess.run(["readelf", "--debug-dump=info", program], stdout=subprocess.PIPE, check=True).stdout
    if b"Version:       4" in version and shutil.which("dwp"):
        subprocess.run(["dwp", *halves, "-o", folder / "gnu.dwp"], check=True)
        return ["llvm.dwp", "gnu.dwp"]
    return ["llvm.dwp"]


def test_package(alone):
    folder, addresses, places = alone
    for package in packages(folder, folder / "split"):
        (folder / package).rename(folder / "split.dwp")
        same(says(folder / "split", addresses), places)
    below = folder / "debug" / str(folder).lstrip("/")
    below.mkdir(parents=True)
    (folder / "split.dwp").rename(below / "split.dwp")
    assert inlined(says(folder / "split", addresses)) == 0
    same(says(folder / "split", addresses, folder / "debug"), places)


def test_package_of_debug_file(alone):
    """The package is beside the debug file into which the program's DWARF was moved."""
    folder, addresses, places = alone
    subprocess.run(["objcopy", "--only-keep-debug", "split", "split.debug"], cwd=folder, check=True)
    subprocess.run(["strip", "split"], cwd=folder, check=True)
    subprocess.run(["objcopy", "--add-gnu-debuglink=split.debug", "split"], cwd=folder, check=True)
    packages(folder, folder / "split.debug")
    (folder / "llvm.dwp").rename(folder / "split.debug.dwp")
    same(says(folder / "split", addresses), places)


def test_other(alone):
    """A .dwo file of another unit, or one that is cut, is not used; names of the symbol table
    remain."""
    folder, addresses, places = alone
    shutil.copy(folder / "away" / "main.dwo", folder / "other.dwo")
    half = (folder / "away" / "main.dwo").read_bytes()
    (folder / "main.dwo").write_bytes(half[: len(half) // 2])
    (folder / "split.dwp").write_bytes(b"\x7fELF" + b"\xff" * 400)
    assert inlined(says(folder / "split", addresses)) == 0


def test_sysroot(alone):
    """With --sysroot, files that the program names outside of the sysroot are not opened, and a
    pipe instead of a .dwo file does not block."""
    folder, addresses, places = alone
    root = folder / "root"
    for half in ("main.dwo", "other.dwo"):
        shutil.copy(folder / "away" / half, folder / half)
    root.mkdir()
    shutil.copy(folder / "split", root / "split")
    assert inlined(ours("--sysroot", addresses, root, "/split")[0]) == 0
    for half in ("main.dwo", "other.dwo"):
        shutil.copy(folder / half, root / half)
    same(ours("--sysroot", addresses, root, "/split")[0], places)
    (root / "main.dwo").unlink()
    subprocess.run(["mkfifo", root / "main.dwo"], check=True)
    assert inlined(ours("--sysroot", addresses, root, "/split")[0]) > 0
