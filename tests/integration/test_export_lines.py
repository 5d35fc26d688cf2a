# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Exports of samples and of allocations have the lines and, without --no-inline, the inlined
calls."""
import collections
import json
import os
import re
import shutil
import subprocess

import pytest
from exports import check, firefox_paths, names, read_pprof
from recordings import INLINED_SPIN



@pytest.fixture(scope="module")
def spin(profctl, compile_c, require, tmp_path_factory):
    """A recording of a program whose inlined function contains inlined calls; the innermost
    function is in another file."""
    require("gcc", root=True)
    path = tmp_path_factory.mktemp("spin") / "spin.cap"
    source = INLINED_SPIN.replace("for (;;)", "for (int i = 0; i < 300; i++)")
    for line, text, file in (2, "static inline unsigned long mix", "mix.h"), (6, "static inline unsigned long twice", "spin.c"):
        source = source.replace(text, f'#line {line} "{file}"\n{text}')
    program = compile_c("spin", source, "-O2")
    profctl("record", "-F", 4000, "-o", path, "--", program)
    return path


def check_places(stacks, inlined):
    """Checks that most samples are at the right places in the source. stacks: ([(name, file, line,
    depth of inlining)], samples)."""
    total = sum(samples for _, samples in stacks)
    calls = collections.Counter()
    for path, samples in stacks:
        own = tuple((name, line, depth) for name, file, line, depth in path if file and file.endswith(("spin.c", "mix.h")))
        calls[own[-4:] if inlined else own[-2:]] += samples
    if inlined:
        wanted = (("main", 20, 0), ("spin", 14, 0), ("twice", 8, 1), ("mix", 4, 2))
        assert calls[wanted] > 0.5 * total
    else:
        assert calls[("main", 20, 0), ("spin", 14, 0)] > 0.5 * total
        assert not any(name in ("mix", "twice") for path in calls for name, _, _ in path)


@pytest.mark.parametrize("options", [("--no-inline",), ()], ids=" ".join)
def test_firefox_places(profcapture, spin, options):
    profile = json.loads(profcapture("export", spin, "--to", "firefox", *options).stdout)
    paths = firefox_paths(profile)
    stacks = [(paths[stack], 1) for thread in profile["threads"] for stack in thread["samples"]["stack"]]
    check(profcapture.json("report", spin, "--limit", 0, *options)["data"], [([frame[0] for frame in path], n) for path, n in stacks])
    check_places(stacks, not options)


@pytest.mark.parametrize("options", [("--no-inline",), ()], ids=" ".join)
def test_pprof_places(profcapture, spin, options):
    _, samples = read_pprof(profcapture("export", spin, "--to", "pprof", *options, text=False).stdout)
    stacks = [(frames, values[0]) for frames, values, _ in samples]
    check(profcapture.json("report", spin, "--limit", 0, *options)["data"], [([frame[0] for frame in path], n) for path, n in stacks])
    # read_pprof() returns a frame's function, then the functions inlined into it, outermost first, so
    # an inlined function's depth is the number of successive inlined functions up to it
    deep = []
    for path, n in stacks:
        depths, depth = [], 0
        for name, file, line, is_inlined in path:
            depth = depth + 1 if is_inlined else 0
            depths.append((name, file, line, depth))
        deep.append((depths, n))
    check_places(deep, not options)


@pytest.fixture(scope="module")
def unfiltered(profcapture, spin):
    _, samples = read_pprof(profcapture("export", spin, "--to", "pprof", "--inline", text=False).stdout)
    return [(frames, values[0]) for frames, values, _ in samples]


@pytest.mark.parametrize("options", [("--no-inline",), ()], ids=" ".join)
def test_speedscope_and_folded_inline(profcapture, spin, options):
    data = profcapture.json("report", spin, "--limit", 0, *options)["data"]
    profile = json.loads(profcapture("export", spin, "--to", "speedscope", *options).stdout)
    frames = profile["shared"]["frames"]
    stacks = [([frames[i]["name"] for i in stack], weight // (data["period_ns"] or 1))
              for thread in profile["profiles"] for stack, weight in zip(thread["samples"], thread["weights"])]
    check(data, stacks)
    hot = next(frame for frame in frames if frame["name"] == "spin")
    assert hot["file"].endswith("spin.c") and hot["line"] == 10
    lines = profcapture("export", spin, "--to", "folded", *options).stdout.splitlines()
    check(data, [(line.rsplit(" ", 1)[0].split(";")[1:], int(line.rsplit(" ", 1)[1])) for line in lines])
    assert any(line.rsplit(" ", 1)[0].endswith("main;spin;twice;mix") for line in lines) == (not options)


def filtered(path, option, pattern):
    """Returns the frames that pprof's filter keeps: [(name, whether inlined)], from the root inwards."""
    matches = [re.search(pattern, name) or re.search(pattern, file) for name, file, _, _ in path]
    if option == "--focus":
        keep = [any(matches)] * len(path)
    elif option == "--ignore":
        keep = [not any(matches)] * len(path)
    elif option == "--show-from":
        keep = [any(matches[:i + 1]) for i in range(len(path))]
    else:
        keep = [bool(match) == (option == "--show") for match in matches]
    left, is_begun = [], False
    for (name, _, _, is_inlined), kept in zip(path, keep):
        is_begun = is_begun and is_inlined  # whether an outer function of the same frame was kept
        if kept:
            left.append((name, is_begun))
            is_begun = True
    return left


FILTERS = [(option, r"mix\.h") for option in ("--focus", "--ignore", "--hide", "--show", "--show-from")]
FILTERS += [("--focus", "^twice$"), ("--hide", "^spin$"), ("--hide", r"mix\.h|^spin$"), ("--show", "^(mix|main)$")]


@pytest.mark.parametrize("option, pattern", FILTERS, ids=map(" ".join, FILTERS))
def test_filters_of_inlined_frames(profcapture, spin, unfiltered, option, pattern):
    left = [(filtered(path, option, pattern), n) for path, n in unfiltered]
    for options in ["--no-inline"], []:
        stacks = [([name for name, is_inlined in path if not options or not is_inlined], n) for path, n in left if path]
        data = profcapture.json("report", spin, "--limit", 0, *options, option, pattern)["data"]
        check(data, stacks)
        _, samples = read_pprof(profcapture("export", spin, "--to", "pprof", *options, option, pattern, text=False).stdout)
        check(data, [([frame[0] for frame in frames], values[0]) for frames, values, _ in samples])
    by_line = profcapture.json("report", spin, "--limit", 0, "--by", "line", option, pattern)["data"]
    inner = collections.Counter()
    for path, n in left:
        inner.update({path[-1][0]: n} if path else {})
    assert names(by_line["rows"], "self") == inner
    for by in "image", "thread":
        assert profcapture.json("report", spin, "--by", by, option, pattern)["data"]["self_total"] == sum(inner.values())


@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed: ./dev setup --peers")
def test_go_tool_pprof_lines(profcapture, spin, tmp_path):
    profcapture("export", spin, "--to", "pprof", "--inline", "-o", tmp_path / "x.pb.gz")
    environment = {**os.environ, "HOME": str(tmp_path), "PPROF_TMPDIR": str(tmp_path)}

    def run(*options):
        command = ["go", "tool", "pprof", "-symbolize=none", "-sample_index=samples", *options, "x.pb.gz"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == ""
        return done.stdout

    assert re.search(r"mix \S*mix\.h:4 \(inline\)", run("-top", "-lines"))
    # without inlined functions, mix's samples belong to the function around it
    assert not re.search(r" mix$", run("-top", "-noinlines"), re.MULTILINE)
    raw = run("-raw")
    assert re.search(r"mix \S*mix\.h:4.*\n\s+twice \S*spin\.c:8.*\n\s+spin \S*spin\.c:14", raw)
    with_id = profcapture.json("report", spin, "--by", "image", "--limit", 0)["data"]["rows"]
    builds = {row["build_id"] for row in with_id if row.get("build_id")}
    assert builds and any(build in raw for build in builds)
    for option in "focus", "ignore", "hide", "show", "show_from":
        text = run("-top", "-nodecount=100000", "-nodefraction=0", rf"-{option}=mix\.h")
        rows = profcapture.json("report", spin, "--limit", 0, "--inline", f"--{option.replace('_', '-')}", r"mix\.h")["data"]["rows"]
        flat = collections.Counter()
        for samples, name in re.findall(r"^\s+(\d+)(?:\s+[\d.]+%?){4}\s+(.*?)(?: \(inline\))?$", text, re.MULTILINE):
            flat[name] += int(samples)
        assert +flat == names(rows, "self"), option


ALLOCATE = """\
#include <stdlib.h>
void *volatile kept;
static inline void *take(size_t size)
{
	return malloc(size); /* line 5 */
}
static inline void *twice(size_t size)
{
	free(take(size));
	return take(size + 1); /* line 10 */
}
__attribute__((noinline)) static void grow(void)
{
	kept = twice(1000); /* line 14 */
	__asm__ volatile("" ::: "memory");
}
int main(void)
{
	for (int i = 0; i < 50; i++)
		grow(); /* line 20 */
	return 0;
}
"""
KEPT = 50 * 1001


@pytest.fixture(scope="module")
def kept(profctl, compile_c, tmp_path_factory):
    """A recording of allocations in calls inlined into an inlined function."""
    path = tmp_path_factory.mktemp("kept") / "kept.cap"
    profctl("record", "--memory", "-F", 0, "-o", path, "--", compile_c("kept", ALLOCATE, "-O2"))
    return path


def check_kept(stacks, inlined):
    """Checks that live blocks are at the lines of the calls. stacks: ([(name, file, line, whether
    inlined)], live bytes)."""
    found = collections.Counter()
    for path, size in stacks:
        found[tuple((name, line, bool(deep)) for name, file, line, deep in path if file and file.endswith("kept.c"))] += size
    calls = (("twice", 10, True), ("take", 5, True)) if inlined else ()
    assert found[("main", 20, False), ("grow", 14, False), *calls] == KEPT, found


@pytest.mark.parametrize("options", [("--no-inline",), ()], ids=" ".join)
def test_pprof_places_of_allocations(profcapture, kept, options):
    types, samples = read_pprof(profcapture("export", kept, "--to", "pprof", *options, text=False).stdout)
    assert types[-1] == ("inuse_space", "bytes")
    check_kept([(frames, values[-1]) for frames, values, _ in samples], not options)


@pytest.mark.parametrize("options", [("--no-inline",), ()], ids=" ".join)
def test_firefox_places_of_allocations(profcapture, kept, options):
    profile = json.loads(profcapture("export", kept, "--to", "firefox", *options).stdout)
    paths, stacks = firefox_paths(profile), []
    for table in (thread["nativeAllocations"] for thread in profile["threads"] if "nativeAllocations" in thread):
        lives = {}
        for address, weight, stack in zip(table["memoryAddress"], table["weight"], table["stack"]):
            if weight > 0:
                lives[address] = paths[stack], weight
            else:
                del lives[address]
        stacks += lives.values()
    check_kept(stacks, not options)


@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed: ./dev setup --peers")
def test_go_tool_pprof_lines_of_allocations(profcapture, kept, tmp_path):
    profcapture("export", kept, "--to", "pprof", "--inline", "-o", tmp_path / "x.pb.gz")
    environment = {**os.environ, "HOME": str(tmp_path), "PPROF_TMPDIR": str(tmp_path)}
    command = ["go", "tool", "pprof", "-symbolize=none", "-sample_index=inuse_space", "-unit=B", "-top", "-cum", "-lines", "x.pb.gz"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    # the bytes at each line, including what the line calls
    for place in r"take \S*kept\.c:5 \(inline\)", r"twice \S*kept\.c:10 \(inline\)", r"grow \S*kept\.c:14", r"main \S*kept\.c:20":
        assert re.search(rf"^.* {KEPT}B +\S+ +{place}$", done.stdout, re.MULTILINE), done.stdout
