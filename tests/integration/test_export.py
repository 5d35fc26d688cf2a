# SPDX-License-Identifier: BSD-2-Clause-Patent
"""What `export` writes says what `report` says: read here, and by the programs that the formats are for."""
import collections
import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest
from captures import make, unprintable

FORMATS = ["folded", "firefox", "pprof", "speedscope"]
FLAMEGRAPH = Path("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
HOSTILE = b"=1+1,\";'\\\n\r\t\x1b[31m\xe2\x80\xae\xff\xc2\x9b"


@pytest.fixture(scope="module", params=["plain", "hostile"])
def capture(request, tmp_path_factory):
    """Several epochs, threads and every table; in the second one all names are those that somebody chose to do harm."""
    path = tmp_path_factory.mktemp("export") / "x.cap"
    prefix = ["--prefix", HOSTILE.decode(errors="surrogateescape")] if request.param == "hostile" else []
    return make(path, "--all-tables", "--epochs", 3, "--rows", 2000, *prefix)


@pytest.fixture(scope="module")
def report(profcapture, capture):
    return lambda *options: profcapture.json("report", capture, "--limit", 0, *options)["data"]


@pytest.fixture
def export(profcapture, capture, tmp_path):
    def run(to, *options):
        path = tmp_path / f"x.{to}"
        profcapture("export", capture, "--to", to, "-o", path, "--force", *options)
        return path.read_bytes()

    return run


def names(rows, key):
    """By name: functions of different images may have the same."""
    counts = collections.Counter()
    for row in rows:
        counts[row["name"]] += row[key]
    return +counts


def check(report, stacks, options=()):
    """stacks: (functions from the root in, samples)."""
    data = report(*options)
    own, total = collections.Counter(), collections.Counter()
    for path, samples in stacks:
        own[path[-1]] += samples
        for name in set(path):
            total[name] += samples
    assert sum(own.values()) == data["self_total"]
    assert own == names(data["rows"], "self")
    # where two functions have one name, a sample that has both counts once here and twice there
    assert all(total[name] <= count for name, count in names(data["rows"], "total").items())
    assert sum(total.values()) >= 0.9 * sum(names(data["rows"], "total").values())


FILTERS = [(), ("--mode", "kernel"), ("--ignore", "module-1")]


# ---- folded stacks


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_folded(report, export, options):
    text = export("folded", *options).decode("utf-8")
    assert not unprintable(text) and "\t" not in text
    lines = [line.rsplit(" ", 1) for line in text.splitlines()]
    assert all(re.fullmatch(r"\d+", count) for _, count in lines)
    assert [stack for stack, _ in lines] == sorted({stack for stack, _ in lines}, key=str.encode)
    # escaped, and without the ';' that parts frames
    data = report(*options)
    assert sum(int(count) for _, count in lines) == data["self_total"]
    threads = report("--by", "thread", *options)["rows"]
    assert len({stack.split(";")[0] for stack, _ in lines}) == len({row["comm"] for row in threads if row["self"]})
    leaves = collections.Counter()
    for stack, count in lines:
        leaves[stack.rsplit(";", 1)[-1]] += int(count)
    assert sorted(leaves.values()) == sorted(names(data["rows"], "self").values())


# ---- pprof


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """{number: [value, …]} of a protocol buffers message."""
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        else:
            assert key & 7 == 0
        found[key >> 3].append(value)
    assert at == len(data)
    return found


def packed(data):
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_pprof(report, export, options):
    profile = fields(gzip.decompress(export("pprof", *options)))
    strings = [text.decode("utf-8") for text in profile[6]]
    assert strings[0] == "" and len(set(strings)) == len(strings)
    types = [(strings[t[1][0]], strings[t[2][0]]) for t in map(fields, profile[1])]
    assert types[0] == ("samples", "count")
    functions = {f[1][0]: strings[f[2][0]] for f in map(fields, profile[5])}
    mappings = {m[1][0]: strings[m[5][0]] for m in map(fields, profile[3])}
    locations = {}
    for location in map(fields, profile[4]):
        assert location[2] == [] or location[2][0] in mappings
        locations[location[1][0]] = functions[fields(location[4][0])[1][0]]
    stacks, by_thread = [], collections.Counter()
    for sample in map(fields, profile[2]):
        values = packed(sample[2][0])
        assert len(values) == len(types)
        labels = {strings[label[1][0]]: label for label in map(fields, sample[3])}
        assert set(labels) == {"thread", "pid", "tid"}
        by_thread[(labels["pid"][3] or [0])[0], (labels["tid"][3] or [0])[0]] += values[0]
        stacks.append(([locations[number] for number in packed(sample[1][0])][::-1], values[0]))
    check(report, stacks, options)
    threads = report("--by", "thread", *options)["rows"]
    assert by_thread == {(row["pid"] or 0, row["tid"] or 0): row["self"] for row in threads if row["self"]}


# ---- speedscope


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_speedscope(report, export, options):
    profile = json.loads(export("speedscope", *options))
    frames = [frame["name"] for frame in profile["shared"]["frames"]]
    period = report(*options)["period_ns"] or 1
    stacks, sums = [], []
    for thread in profile["profiles"]:
        assert thread["unit"] in ("nanoseconds", "none") and thread["endValue"] == sum(thread["weights"])
        assert len(thread["samples"]) == len(thread["weights"])
        stacks += [([frames[i] for i in stack], weight // period) for stack, weight in zip(thread["samples"], thread["weights"])]
        sums.append(thread["endValue"] // period)
    check(report, stacks, options)
    threads = report("--by", "thread", *options)["rows"]
    assert sorted(sums) == sorted(row["self"] for row in threads if row["self"])


def test_many_samples_are_merged(profcapture, tmp_path):
    path = make(tmp_path / "many.cap", "--rows", 60000)
    threads = profcapture.json("report", path, "--by", "thread", "--limit", 0)["data"]["rows"]
    profile = json.loads(profcapture("export", path, "--to", "speedscope").stdout)
    assert sum(len(thread["samples"]) for thread in profile["profiles"]) < 60000
    period = profcapture.json("report", path)["data"]["period_ns"] or 1
    assert sum(thread["endValue"] for thread in profile["profiles"]) == 60000 * period
    assert len(profile["profiles"]) == sum(row["self"] > 0 for row in threads)


# ---- the Firefox Profiler's


@pytest.mark.parametrize("options", FILTERS, ids=" ".join)
def test_firefox(profcapture, capture, report, export, options):
    profile = json.loads(export("firefox", *options))
    shared = profile["shared"]
    for name, table in shared.items():
        if name != "stringArray":
            assert all(len(column) == table["length"] for key, column in table.items() if key != "length"), name
    texts, stack_table = shared["stringArray"], shared["stackTable"]
    functions = [texts[shared["funcTable"]["name"][func]] for func in shared["frameTable"]["func"]]
    paths = []
    for i in range(stack_table["length"]):
        offset = stack_table["prefixOffset"][i]
        assert 0 <= offset <= i
        paths.append((paths[i - offset] if offset else []) + [functions[stack_table["frame"][i]]])
    stacks, counts, marks = [], {}, 0
    for thread in profile["threads"]:
        samples = thread["samples"]
        assert samples["length"] == len(samples["stack"]) == len(samples["timeDeltas"])
        assert all(delta >= 0 for delta in samples["timeDeltas"])
        stacks += [(paths[stack], 1) for stack in samples["stack"]]
        if samples["length"]:
            counts[thread["pid"], thread["tid"]] = counts.get((thread["pid"], thread["tid"]), 0) + samples["length"]
        markers = thread["markers"]
        assert all(len(column) == markers["length"] for key, column in markers.items() if key != "length")
        marks += markers["length"]
    check(report, stacks, options)
    threads = report("--by", "thread", *options)["rows"]
    assert counts == {(str(row["pid"] or 0), row["tid"] or 0): row["self"] for row in threads if row["self"]}
    # an end without a begin is no mark to `marks`, but is one here
    table = profcapture.json("marks", capture, "--limit", 0)["data"]["rows"]
    assert marks == sum(row["count"] + row["unmatched_begin"] + row["unmatched_end"] for row in table) > 0
    assert profile["meta"]["symbolicated"] is True


# ---- the programs that the formats are for


@pytest.mark.skipif(not shutil.which("go"), reason="go is not installed: ./dev setup --peers")
def test_go_tool_pprof(report, export, tmp_path):
    (tmp_path / "x.pb.gz").write_bytes(export("pprof"))
    command = ["go", "tool", "pprof", "-symbolize=none", "-sample_index=samples", "-nodecount=100000", "-nodefraction=0", "-top"]
    environment = {**os.environ, "HOME": str(tmp_path), "PPROF_TMPDIR": str(tmp_path)}
    done = subprocess.run([*command, "x.pb.gz"], cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=True)
    assert done.stderr == b""
    text = done.stdout.decode("utf-8")
    data = report()
    assert f" of {data['total']} total" in text
    flat = [int(match) for match in re.findall(r"^\s+(\d+)\s+[\d.]+%\s+[\d.]+%\s+\d+\s+[\d.]+%", text, re.MULTILINE)]
    assert sum(flat) == data["self_total"] and max(flat) == max(names(data["rows"], "self").values())


@pytest.mark.skipif(not FLAMEGRAPH.exists(), reason="flamegraph.pl is not installed: ./dev setup --peers")
def test_flamegraph(report, export, tmp_path):
    (tmp_path / "x.folded").write_bytes(export("folded"))
    done = subprocess.run(["perl", FLAMEGRAPH, tmp_path / "x.folded"], capture_output=True, timeout=60, check=True)
    assert done.stderr == b"" and f"all ({report()['total']:,} samples, 100%)".encode() in done.stdout


NODE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "profd-tests/node_modules"
needs_node = pytest.mark.skipif(not (NODE / "speedscope").exists() or not shutil.which("node"), reason="npm's packages are not installed: ./dev setup --peers")


@pytest.fixture
def sockets():
    """A folder whose name is short enough for that of a socket in it."""
    with tempfile.TemporaryDirectory(prefix="profd-") as folder:
        yield folder


@needs_node
def test_profiler_cli(report, export, tmp_path, sockets):
    path = tmp_path / "x.json"
    path.write_bytes(export("firefox"))
    environment = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(sockets)}

    def run(*arguments):
        command = [NODE / ".bin/profiler-cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, timeout=60)

    try:
        # its daemon may take longer to start than this waits for it
        run("load", path, "--session", "x")
        for _ in range(40):
            done = run("profile", "info", "--all", "--session", "x", "--json")
            if done.returncode == 0:
                break
            time.sleep(0.5)
        info = json.loads(done.stdout)
        handles = [thread["threadHandle"] for process in info["processes"] for thread in process["threads"]]
        rows = report("--by", "thread")["rows"]
        assert info["threadCount"] == len(json.loads(path.read_bytes())["threads"]) >= sum(row["self"] > 0 for row in rows)
        counts = {row["self"] for row in rows}
        for handle in handles[:5]:
            answer = json.loads(run("thread", "functions", "--thread", handle, "--session", "x", "--json").stdout)
            assert sum(function["selfSamples"] for function in answer["functions"]) in counts
    finally:
        run("stop", "--all")


@needs_node
def test_speedscope_schema(export):
    rules = json.loads((NODE / "speedscope/dist/release/file-format-schema.json").read_text())
    jsonschema.validate(json.loads(export("speedscope")), rules)


# ---- the command


def test_compressed(profcapture, capture, tmp_path):
    plain = profcapture("export", capture, "--to", "folded", text=False).stdout
    profcapture("export", capture, "--to", "folded", "-o", tmp_path / "x.gz")
    assert gzip.decompress((tmp_path / "x.gz").read_bytes()) == plain
    assert gzip.decompress(profcapture("export", capture, "--to", "pprof", text=False).stdout)


def test_an_empty_range(profcapture, capture):
    for to in FORMATS:
        profcapture("export", capture, "--to", to, "--pid", 4000000, text=False)


def test_a_file_that_exists(profcapture, capture, tmp_path):
    path = tmp_path / "x"
    path.write_text("mine")
    done = profcapture("export", capture, "--to", "folded", "-o", path, check=1)
    assert "--force" in done.stderr and path.read_text() == "mine"


@pytest.mark.parametrize("to", FORMATS)
def test_a_full_disk(profcapture, capture, to):
    done = profcapture("export", capture, "--to", to, "-o", "/dev/full", check=1)
    assert "No space left" in done.stderr and "/dev/full" in done.stderr


@pytest.mark.parametrize("arguments, said", [([], "--to folded"), (["--to", "pprov"], "did you mean 'pprof'"), (["--to", "pprof", "--focus", "["], "--focus")])
def test_usage_errors(profcapture, capture, arguments, said):
    done = profcapture("export", capture, *arguments, check=2)
    assert said in done.stderr and done.stdout == ""
