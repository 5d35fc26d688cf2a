# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Functions, inlined calls and lines from DWARF agree with addr2line -i -f of binutils, or of LLVM
where binutils errs. PROF_TEST_FULL=1 tries 10 000 addresses."""
import collections
import os
import random
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from slices import part

FULL = os.environ.get("PROF_TEST_FULL") == "1"
DEBUG = Path("/usr/lib/debug/.build-id")
CPP = """
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>
struct item { std::string name; int value; };
static int weigh(const item &i) { return i.value * 3 + (int)i.name.size(); }
namespace inner {
struct S { int v; int twice() const { return v * 2; } };
__attribute__((noinline)) int sum(const std::vector<S> &v) { int s = 0; for (const S &x : v) s += x.twice(); return s; }
}
static void order(std::vector<item> &items)
{
	std::sort(items.begin(), items.end(), [](const item &a, const item &b) { return weigh(a) < weigh(b); });
}
int main(int argc, char **argv)
{
	std::vector<item> items; std::map<std::string, int> m; std::vector<inner::S> v;
	for (int i = 0; i < 1000 * argc; i++) {
		items.push_back({std::to_string(i), i ^ 5});
		m[items.back().name] += i;
		v.push_back({i});
	}
	order(items);
	std::function<int(int)> f = [&](int x) { return x + items[x].value; };
	return printf("%d %d %d", f(3), inner::sum(v), (int)m.size());
}
"""
C = """
static inline int mix(int a, int b) { return (a * 31 ^ b) + (b >> 3); }
static inline int twice(int a, int b) { return mix(a, b) + mix(b, a); }
__attribute__((noinline)) int loop(const int *v, int n) { int s = 0; for (int i = 0; i < n; i++) s = twice(s, v[i]); return s; }
__attribute__((noinline, cold)) int rare(int n) { return mix(n, n + 1); }
int main(int argc, char **argv) { int v[64]; for (int i = 0; i < 64; i++) v[i] = twice(i, argc);
	return argc > 5 ? rare(argc) : loop(v, 64) & 1; }
"""
# name: source, compiler options
BUILT = {
    "c": (C, ["-gdwarf-5", "-gz"]),
    "c-4": (C, ["-gdwarf-4"]),
    "c-split": (C, ["-gdwarf-5", "-gsplit-dwarf"]),
    "c-types": (C, ["-gdwarf-4", "-fdebug-types-section", "-gz"]),
    "cpp": (CPP, ["-gdwarf-5"]),
    "cpp-4": (CPP, ["-gdwarf-4"]),
    "cpp-split": (CPP, ["-gdwarf-5", "-gsplit-dwarf"]),
    "cpp-split-4": (CPP, ["-gdwarf-4", "-gsplit-dwarf"]),
    "cpp-lto": (CPP, ["-gdwarf-5", "-flto"]),
}
# Classes of results, and the maximum number of each in 100 addresses. "llvm": LLVM agrees with us,
# and binutils errs: it does not read split DWARF 5, uses wrong file numbers in DWARF 5, and gives
# an inlined C++ function that has no linkage name the name of the function around it. "alias": the
# outermost function has several names, and each tool takes a different one, or DWARF has only the
# plain name and the symbol table the mangled one. "symbol": DWARF has no function at the address
# (assembly, start files), and both tools take the name from the symbol table, which our program
# does not read.
MOST = {"equal": 100, "llvm": 100, "alias": 60, "symbol": 45}
TOTALS = collections.Counter()


def code(path):
    shown = subprocess.run(["readelf", "-SW", path], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    for line in shown.splitlines():
        field = line.replace("[ ", "[").split()
        if len(field) > 6 and field[1] == ".text":
            return int(field[3], 16), int(field[5], 16)
    raise AssertionError(path)


def pick(path, count):
    start, size = code(path)
    numbers = random.Random(size)
    return sorted({start + numbers.randrange(size) for _ in range(count)})


def ours(path, addresses, *folders):
    asked = "".join(f"{a:x}\n" for a in addresses)
    answer = subprocess.run(
        [os.environ["DEBUG_PLACES"], path, *folders], input=asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=True
    )
    blocks = answer.stdout.strip("\n").split("\n\n")
    return [[tuple(line.split("\t")) for line in block.split("\n\t")[1:]] for block in blocks], answer.stderr.split()


def theirs(tool, path, addresses):
    asked = "".join(f"{a:#x}\n" for a in addresses)
    answer = subprocess.run([tool, "-i", "-f", "-a", "-e", path], input=asked, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    places, lines = [], iter(answer.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            places.append([])
        else:
            places[-1].append((line, next(lines)))
    return places


def place(text):
    file, _, line = text.partition(" ")[0].rpartition(":")
    line = 0 if line == "?" else int(line)
    return (file, line) if line else ("", 0)


def same_file(ours, theirs):
    """Returns whether two paths are equal. If ours is relative, as the compiler's folder may be,
    the absolute beginning of the other path is a guess, so only the ends are compared."""
    left, right = os.path.normpath(ours), os.path.normpath(theirs)
    return left == right or (not ours.startswith("/") and (theirs.endswith("/" + ours.removeprefix("./")) or right.endswith("/" + left)))


def same_lines(own, other):
    return len(own) == len(other) and all(
        place(a[1])[1] == place(b[1])[1] and same_file(place(a[1])[0], place(b[1])[0]) for a, b in zip(own, other)
    )


def same_names(own, other):
    """Returns whether the names are equal, except that ours include the namespaces and classes
    around a function without a linkage name."""
    return len(own) == len(other) and all(a == b or a.endswith("::" + b) for (a, _), (b, _) in zip(own, other))


def symbols_of(path):
    """Returns {name: address} of the symbol table, to recognize functions with several names."""
    shown = subprocess.run(["nm", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", check=False).stdout
    return {line.split()[2]: line.split()[0] for line in shown.splitlines() if len(line.split()) == 3}


def is_alias(symbols, own, other):
    if not same_names(own[:-1], other[:-1]):
        return False
    a, b = own[-1][0], other[-1][0]
    plain = a.rpartition("::")[2].partition("<")[0]
    mangled = b.startswith("_Z") and f"{len(plain)}{plain}" in b
    return mangled or b.partition(".")[0] == a or (a in symbols and symbols.get(a) == symbols.get(b))


def compare(own, binutils, llvm, symbols):
    """Returns the class of an address (see MOST); None: the answers differ for no known reason."""
    for name, other in (("equal", binutils), ("llvm", llvm)):
        if same_lines(own, other) and same_names(own, other):
            return name
    if own == [("??", "??:0")] or (len(own) == 1 and own[0][0] == "??" and (same_lines(own, binutils) or same_lines(own, llvm))):
        return "symbol"
    for lines in (binutils, llvm):
        if same_lines(own, lines) and (is_alias(symbols, own, binutils) or is_alias(symbols, own, llvm)):
            return "alias"
    return None


def check(path, debug, count, *folders):
    """Compares our answers for random addresses with those of binutils and LLVM. Returns how many
    have a line, and how many are in inlined code."""
    addresses = pick(path, count)
    places, times = ours(path, addresses, *folders)
    binutils = theirs("addr2line", debug, addresses)
    llvm = theirs("llvm-addr2line-14", debug, addresses)
    symbols = symbols_of(debug)
    assert len(places) == len(binutils) == len(llvm) == len(addresses)
    classes, wrong = collections.Counter(), []
    for address, *three in zip(addresses, places, binutils, llvm):
        found = compare(*three, symbols)
        classes[found] += 1
        if found is None:
            wrong.append((hex(address), *three))
    print(path, dict(classes), *times)
    assert not wrong, (len(wrong), wrong[:3])
    for name, most in MOST.items():
        assert classes[name] <= most * len(addresses) / 100, classes
    lines, inlined = sum(place(own[0][1])[1] > 0 for own in places), sum(len(own) > 1 for own in places)
    TOTALS.update(classes, addresses=len(addresses), lines=lines, inlined=inlined)
    return lines, inlined


def build(folder, name):
    if (folder / name).exists():
        return folder / name
    source, options = BUILT[name]
    language = "c" if name.startswith("c-") or name == "c" else "cc"
    (folder / f"{name}.{language}").write_text(source)
    subprocess.run(["gcc" if language == "c" else "g++", "-O2", *options, f"{name}.{language}", "-o", name], cwd=folder, check=True)
    return folder / name


@pytest.fixture(scope="module")
def built(require, tmp_path_factory):
    require("gcc", "g++", "addr2line", "llvm-addr2line-14", "readelf", "nm")
    return tmp_path_factory.mktemp("debug-places")


def debug_file(path):
    shown = subprocess.run(["readelf", "-n", path], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    build_id = shown.partition("Build ID: ")[2].split()[0]
    return DEBUG / build_id[:2] / f"{build_id[2:]}.debug"


def test_installed(built):
    """Programs built by Debian have their DWARF in separate files, packed by dwz."""
    lines = inlined = checked = 0
    for path in (os.path.realpath("/lib/x86_64-linux-gnu/libc.so.6"), os.path.realpath("/usr/bin/python3")):
        debug = debug_file(path) if os.path.exists(path) else None
        if not debug or not debug.exists():
            pytest.skip(f"no debug file of {path} is installed: ./dev setup installs it")
        count = 5000 if FULL else 300
        with_line, with_inlined = check(path, debug, count)
        lines, inlined, checked = lines + with_line, inlined + with_inlined, checked + count
    assert lines >= 0.8 * checked and inlined >= 0.1 * checked


# compiling C++ takes longer than everything else, so only two of its variants are tried
@pytest.mark.parametrize("name", [name for name in BUILT if name.startswith("c-") or name == "c"] + part([name for name in BUILT if name.startswith("cpp")], 2))
def test_built(built, name):
    lines, inlined = check(build(built, name), built / name, 1000 if FULL else 100)
    assert lines > 20 and inlined > 20


@pytest.mark.parametrize("options", [[], ["-m", "common.debug"]], ids=["alone", "shared"])
def test_dwz(built, require, options):
    """dwz moves parts of units into partial units, which may be in another file."""
    require("dwz")
    names = [f"dwz{len(options)}-{i}" for i in range(2)]
    for name in names:
        shutil.copy(build(built, "cpp-4"), built / name)
        subprocess.run(["objcopy", "--update-section", f".note.gnu.build-id={note(built, name)}", name], cwd=built, check=True)
    subprocess.run(["dwz", *options, *names], cwd=built, check=True)
    if options:
        assert b".gnu_debugaltlink" in (built / names[0]).read_bytes()
    # compare with addr2line's output for the program before dwz
    lines, inlined = check(built / names[0], build(built, "cpp-4"), 100)
    assert lines > 20 and inlined > 20


def test_unused_sections_are_not_unpacked(built):
    """The sections with locations of variables, often a quarter of all DWARF, are not unpacked. If
    such a section claims more bytes than may be read, lines are still found."""
    whole = build(built, "c")
    shown = subprocess.run(["readelf", "-SW", whole], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    offset = int(re.search(r" \.debug_loclists +\w+ +\w+ (\w+) ", shown)[1], 16)
    huge = shutil.copy(whole, built / "huge")
    with huge.open("r+b") as file:
        file.seek(offset + 8)  # ch_size of an Elf64_Chdr
        file.write(struct.pack("<Q", 1 << 40))
    addresses = pick(whole, 100)
    places, _ = ours(whole, addresses)
    assert ours(huge, addresses)[0] == places
    assert sum(place(found[0][1])[1] > 0 for found in places) > 20


def note(folder, name):
    """Writes a note section with a build-id, for objcopy, and returns its file."""
    path = folder / f"{name}.note"
    path.write_bytes(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0" + name.ljust(20).encode())
    return path


def test_quota():
    """Over all tests, enough addresses were compared, have a line, and are in inlined code."""
    print(dict(TOTALS))
    addresses = TOTALS["addresses"]
    if not shutil.which("llvm-addr2line-14"):
        pytest.skip("no llvm-addr2line-14: the other tests skipped")
    assert addresses >= (10000 if FULL else 1200)
    assert TOTALS["lines"] >= 0.8 * addresses and TOTALS["inlined"] >= 0.2 * addresses
