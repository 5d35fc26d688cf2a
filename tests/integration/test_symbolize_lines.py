# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A capture has the lines and inlined functions of its samples: from the file itself, from debug
files by build-id and by .gnu_debuglink, on the recording machine or below a sysroot; and no name
comes from another file."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from format_reader import Capture
from recordings import INLINED_SPIN, until

# Without an argument, the program ends after a few hundred milliseconds of CPU time, which at RATE
# gives enough samples on any machine.
SPIN = INLINED_SPIN.replace("int main(void)", "int main(int argc, char **argv)").replace("for (;;)", "for (int i = 0; argc > 1 || i < 300; i++)")
RATE = 4000


@pytest.fixture(scope="module")
def work(profctl, require, tmp_path_factory):
    """A folder with a program, its debug file, and recordings of the stripped program, without and
    with names."""
    require("gcc", "objcopy", "strip", root=True)
    folder = tmp_path_factory.mktemp("lines")
    (folder / "spin.c").write_text(SPIN)
    subprocess.run(["gcc", "-g", "-O2", "-Wl,--build-id=sha1", "spin.c", "-o", "spin"], cwd=folder, check=True)
    subprocess.run(["objcopy", "--only-keep-debug", "spin", "spin.debug"], cwd=folder, check=True)
    shutil.copy(folder / "spin", folder / "whole")
    subprocess.run(["strip", "spin"], cwd=folder, check=True)
    subprocess.run(["objcopy", "--add-gnu-debuglink=spin.debug", "spin"], cwd=folder, check=True)
    (folder / "spin.debug").rename(folder / "away.debug")
    profctl("record", "-F", RATE, "--no-symbols", "-o", folder / "bare.cap", "--", folder / "spin")
    (folder / "spin.debug").write_bytes((folder / "away.debug").read_bytes())
    profctl("record", "-F", RATE, "-o", folder / "named.cap", "--", folder / "spin")
    (folder / "spin.debug").unlink()
    return folder


@pytest.fixture
def bare(work, tmp_path):
    """A copy of the unsymbolized capture."""
    return shutil.copy(work / "bare.cap", tmp_path / "bare.cap")


def rows(profcapture, capture, *options):
    return profcapture.json("report", capture, "--limit", 0, *options)["data"]["rows"]


def check_lines(profcapture, capture, source="spin.c"):
    """Checks names and lines, but only in user mode, because a busy machine has many samples of
    interrupts."""
    user = "--mode", "user"
    by_line = {row["line"]: row for row in rows(profcapture, capture, *user, "--by", "line") if row["file"] and row["file"].endswith(source)}
    total = sum(row["self"] for row in rows(profcapture, capture, *user))
    # there is a row for each line and function; rows of inlined code name the inlined function
    assert by_line[4]["name"] == "mix"
    assert sum(row["self"] for row in by_line.values()) > 0.9 * total
    with_inlined = rows(profcapture, capture, *user, "--inline")
    inlined = {row["name"]: row for row in with_inlined}
    assert inlined["mix"]["self"] > 0.5 * total
    for name, line in (("mix", 2), ("twice", 6)):  # where they are declared
        assert inlined[name]["file"].endswith(source) and inlined[name]["line"] == line
    assert inlined["twice"]["total"] >= inlined["mix"]["self"]
    assert inlined["spin"]["total"] >= inlined["twice"]["total"]
    assert sum(row["self"] for row in with_inlined) == total
    tree = profcapture.json("report", capture, *user, "--inline", "--tree")["data"]["root"]
    path = []
    while tree["children"]:
        tree = max(tree["children"], key=lambda node: node["total"])
        path.append(tree["name"])
    at = path.index("main")
    assert path[at : at + 4] == ["main", "spin", "twice", "mix"], path
    assert rows(profcapture, capture, *user) == with_inlined
    plain = {row["name"]: row for row in rows(profcapture, capture, *user, "--no-inline")}
    assert "mix" not in plain and plain["spin"]["self"] > 0.9 * total
    assert plain["spin"]["file"].endswith(source) and plain["spin"]["line"] == 10


def test_record(profcapture, work):
    """At the end of a recording, symbols come from the debug file named in .gnu_debuglink."""
    check_lines(profcapture, work / "named.cap")


def test_options_of_names(profcapture, work, tmp_path):
    """Every verb with functions has inlined functions by default, and takes the same options."""
    folded = profcapture("export", work / "named.cap", "--to", "folded").stdout
    assert ";spin;twice;mix " in folded
    assert profcapture("export", work / "named.cap", "--to", "folded", "--inline").stdout == folded
    assert ";mix " not in profcapture("export", work / "named.cap", "--to", "folded", "--no-inline").stdout
    assert profcapture("annotate", work / "named.cap", "mix", "--full-names").stdout.startswith("mix at spin.c:2 has ")
    profcapture("html", work / "named.cap", "--no-inline", "-o", tmp_path / "page.html")


def test_dump(profcapture, work):
    """Each inlined call is a separate frame with its place in the source, innermost first."""
    rows = profcapture.json("dump", work / "named.cap", "--table", "sample", "--resolve", "--limit", 0)["data"]["rows"]
    chains = {tuple((f["name"], f["inline"], f["at_line"]) for f in row["frames"]) for row in rows}
    at = ("mix", True, 4), ("twice", True, 8), ("spin", False, 14), ("main", False, 20)
    assert any(at == chain[i : i + 4] for chain in chains for i in range(len(chain)))
    # a frame also has the line where its function is declared
    frames = [frame for row in rows for frame in row["frames"] if frame["name"] == "spin"]
    assert {frame["line"] for frame in frames} == {10} and {Path(frame["at_file"]).name for frame in frames} == {"spin.c"}
    text = profcapture("dump", work / "named.cap", "--table", "sample", "--resolve", "--limit", 0).stdout
    assert re.search(r"^\tmix  \[spin\]  \S*spin\.c:4  \(inline\)\n\ttwice  \[spin\]  \S*spin\.c:8  \(inline\)\n"
                     r"\tspin  \[spin\]  \S*spin\.c:14$", text, re.MULTILINE), text[:2000]


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
    """symbolize runs first without the debug file, then with it."""
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
    """Another program at the same path is reported, and a debug file with a wrong checksum is
    ignored."""
    folder = tmp_path / str(work).lstrip("/")
    folder.mkdir(parents=True)
    (tmp_path / "other.c").write_text(SPIN.replace("spin", "other"))
    subprocess.run(["gcc", "-g", "-O2", "-Wl,--build-id=sha1", tmp_path / "other.c", "-o", folder / "spin"], check=True)
    said = profcapture("symbolize", bare, "--sysroot", tmp_path).stdout
    assert "changed since the recording" in said
    shutil.copy(work / "spin", folder / "spin")
    (folder / "spin.debug").write_bytes((work / "away.debug").read_bytes() + b"x")
    profcapture("symbolize", bare, "--sysroot", tmp_path)
    assert not {"other", "spin", "mix"} & {row["name"] for row in rows(profcapture, bare, "--inline")}


# Ways to run a copy of the program from the folder "$0". If the file is removed or replaced, this
# happens after the program's start.
RUNS = '"$0/whole" & until [ /proc/$!/exe -ef "$0/whole" ]; do :; done; '
PLACES = {
    "plain": 'exec "$0/whole"',
    "unlinked": RUNS + 'rm "$0/whole"; wait',
    "replaced": RUNS + 'mv "$0/other" "$0/whole"; wait',
    "chroot": 'exec chroot "$0" /whole',
    "namespaces": 'exec unshare --user --map-root-user --mount sh -c \'mount -t tmpfs none "$0/hidden" && cp "$0/whole" "$0/hidden" && exec "$0/hidden/whole"\' "$0"',
}


def test_places(profctl, profcapture, require, tmp_path):
    """Functions, inlined calls and lines are the same wherever the program's file is, or was."""
    require("gcc", "unshare", root=True)
    if subprocess.run(["unshare", "-U", "-r", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no user namespace can be made here")
    (tmp_path / "whole.c").write_text(SPIN)
    command = ["gcc", "-g", "-O2", "-static", "-Wl,--build-id=sha1", "whole.c", "-o", "whole"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = {}
    for place, script in PLACES.items():
        folder = tmp_path / place
        (folder / "hidden").mkdir(parents=True)
        shutil.copy(tmp_path / "whole", folder / "whole")
        shutil.copy("/bin/true", folder / "other")
        profctl("record", "-F", RATE, "-o", folder / "cap", "--", "sh", "-c", script, folder)
        lines = rows(profcapture, folder / "cap", "--comm", "whole", "--by", "line")
        total = sum(row["self"] for row in lines)
        lines = {(row["name"], row["line"]): row["self"] for row in lines if (row["file"] or "").endswith("whole.c")}
        hot = {line for line, count in lines.items() if count > 0.2 * total}
        inlined = {row["name"] for row in rows(profcapture, folder / "cap", "--comm", "whole", "--inline")}
        said[place] = inlined & {"mix", "twice", "spin", "main"}, hot, set(lines)
    names, hot, lines = said["plain"]
    assert names == {"mix", "twice", "spin", "main"} and ("mix", 4) in hot
    for place, (their_names, their_hot, their_lines) in said.items():
        assert their_names == names and their_hot <= lines and hot <= their_lines, (place, said)


# Debug files that only the process's own mount namespace has; "$0" is the folder of the program.
HIDDEN = {
    "build-id": "mount -t tmpfs none /usr/lib/debug && mkdir -p /usr/lib/debug/.build-id/{0} && cp away.debug /usr/lib/debug/.build-id/{0}/{1}.debug",
    "link": "cp away.debug hidden/spin.debug",
}


@pytest.mark.parametrize("where", HIDDEN)
def test_debug_file_of_a_namespace(profctl, profcapture, capture, require, spawn, work, tmp_path, where):
    """A container has its own debug files, which are found while it runs."""
    require("unshare", root=True, mounts=True)
    for name in "spin", "away.debug":
        shutil.copy(work / name, tmp_path / name)
    (tmp_path / "hidden").mkdir()
    notes = subprocess.run(["readelf", "-n", "spin"], cwd=tmp_path, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    build_id = notes.split("Build ID: ")[1].split()[0]
    script = f"cd {tmp_path} && mount -t tmpfs none hidden && cp spin hidden && {HIDDEN[where].format(build_id[:2], build_id[2:])} && exec hidden/spin forever"
    program = spawn("unshare", "-m", "sh", "-c", script)
    until(lambda: Path(f"/proc/{program.pid}/comm").read_text() == "spin\n", 10)
    profctl("record", "--pid", program.pid, "-F", RATE, "-d", 0.5, "-o", capture)
    check_lines(profcapture, capture)


# gcc inlines some of fib's calls into fib itself, and some into main
FIB = """
volatile int sink;
int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(void) { for (int i = 0; i < 60; i++) sink = fib(30); return 0; }
"""


def innermost(capture, program):
    """Returns how many samples hit each function of the program, inlined ones included, according
    to addr2line; and whether any function is inlined into itself."""
    known = {}
    for name in "string", "image", "frame", "stack":
        for row, chunk in capture.rows(name):
            known[name, chunk.epoch, row["id"]] = row
    addresses = []
    for row, chunk in capture.rows("sample"):
        stack = known["stack", chunk.epoch, row["stack"]]
        frame = known["frame", chunk.epoch, stack["frame"]]
        image = known["image", chunk.epoch, frame["image"]]
        if known["string", chunk.epoch, image["path"]]["text"].decode() == str(program):
            addresses.append(frame["offset"])
    command = ["addr2line", "-a", "-f", "-i", "-e", program, *map(hex, addresses)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout.splitlines()
    chains = []
    for line in lines:
        if line.startswith("0x"):
            chains.append([])
        else:
            chains[-1].append(line)
    chains = [chain[::2] for chain in chains]
    hits = {name: sum(chain[0] == name for chain in chains) for name in {chain[0] for chain in chains}}
    return hits, any(len(set(chain)) < len(chain) for chain in chains)


LAMBDAS = """\
volatile long sink;
template <typename F> static inline long each(F f) { long s = 0; for (int i = 0; i < 1000000; i++) s += f(i, &s); return s; }
static inline long run()
{
	struct Local {
		static inline __attribute__((always_inline)) long mix(long a) { return (a * 2654435761u ^ a >> 7) * 2654435761u ^ sink; }
	};
	return each([](int a, const long *b) { return *b + Local::mix(a); });
}
int main()
{
	for (int i = 0; i < 200; i++) {
		sink = run();
		sink = each([](int a, long *) { return (a * 2654435761u ^ a >> 7) * 2654435761u ^ sink; });
	}
}
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_lambdas(profctl, profcapture, require, tmp_path, compiler):
    """A function of a lambda or of a local class without a linkage name is named after the function
    around it, and has its own line."""
    require(compiler)
    (tmp_path / "lambdas.cpp").write_text(LAMBDAS)
    subprocess.run([compiler, "-g", "-O2", "lambdas.cpp", "-o", "lambdas"], cwd=tmp_path, check=True)
    profctl("record", "-F", RATE, "-o", tmp_path / "cap", "--", tmp_path / "lambdas")
    found = {row["name"]: row["line"] for row in rows(profcapture, tmp_path / "cap") if (row["file"] or "").endswith("lambdas.cpp")}
    if compiler == "g++":
        assert found["run::{lambda(int, long int const*)}::operator()"] == 8
        assert found["main::{lambda(int, long int*)}::operator()"] == 14
        assert found["run::Local::mix"] == 6
    assert {8, 14, 6} <= set(found.values()), found


def test_a_function_inlined_into_itself_is_one(profctl, profcapture, require, tmp_path):
    require("gcc", "addr2line")
    (tmp_path / "fib.c").write_text(FIB)
    subprocess.run(["gcc", "-g", "-O2", "fib.c", "-o", "fib"], cwd=tmp_path, check=True)
    profctl("record", "-F", RATE, "-o", tmp_path / "fib.cap", "--", tmp_path / "fib")
    hits, is_inlined_into_itself = innermost(Capture((tmp_path / "fib.cap").read_bytes()), tmp_path / "fib")
    assert is_inlined_into_itself and hits["fib"] > 100
    for options in [], ["--tree"], ["--callers", "fib"]:
        data = profcapture.json("report", tmp_path / "fib.cap", "--inline", "--limit", 0, *options)["data"]
        if "rows" in data:
            fib, = [row for row in data["rows"] if row["name"] == "fib"]
            assert fib["self"] == hits["fib"] and fib["total"] <= data["total"]
            assert fib["file"].endswith("fib.c") and fib["line"] == 3
    text = profcapture("report", tmp_path / "fib.cap", "--inline").stdout
    assert len(re.findall(r"\d  fib  fib\.c:3$", text, re.MULTILINE)) == 1


# gcc moves the unlikely branch to hot.cold, before main.
SCATTERED = """
volatile unsigned sink;
__attribute__((noinline, cold)) void rare(unsigned n) { sink = n; }
__attribute__((noinline)) void hot(unsigned n)
{
	for (unsigned i = 0; i < 10000; i++) {
		sink += n ^ i;
		if (__builtin_expect(sink == 123456789, 0)) {
			rare(n);
			sink /= n + 3;
		}
	}
}
int main(void)
{
	for (unsigned i = 0; i < 10000; i++)
		hot(i);
	return 0;
}
"""


def test_scattered_without_frames(profctl, profcapture, require, tmp_path):
    """If only DWARF describes a function of several pieces, the function's symbol covers only the
    main piece."""
    require("gcc", "objcopy", "nm")
    (tmp_path / "cold.c").write_text(SCATTERED)
    subprocess.run(["gcc", "-g", "-O2", "-fno-asynchronous-unwind-tables", "cold.c", "-o", "cold"], cwd=tmp_path, check=True)
    table = subprocess.run(["nm", "-S", "cold"], cwd=tmp_path, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    places = {line.split()[-1]: [int(number, 16) for number in line.split()[:2]] for line in table.splitlines() if len(line.split()) == 4}
    assert "hot.cold" in places
    subprocess.run(["objcopy", "--strip-all", "--keep-section=.debug*", "cold"], cwd=tmp_path, check=True)
    profctl("record", "-F", RATE, "-o", tmp_path / "cold.cap", "--", tmp_path / "cold")
    found = profcapture.json("dump", tmp_path / "cold.cap", "--table", "symbol", "--limit", 0)["data"]["rows"]
    hot = [row for row in found if row["name"] == "hot"]
    start, length = places["hot"]
    assert hot and all(start <= int(row["start"], 16) and int(row["start"], 16) + row["length"] <= start + length for row in hot), hot
