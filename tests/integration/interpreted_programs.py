# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Code that tests of interpreters share: programs that are recorded once for all tests of an
interpreter, and checks of what a capture or walk-interpreted shows of them.

    @pytest.fixture(scope="module")
    def programs(profctl, profcapture, php, tmp_path_factory):
        return Programs(profctl, profcapture, tmp_path_factory.mktemp("programs"), "php", {"deep": [php, …]})

    def test_deep(programs):
        check_deep(programs.part("deep"), "spin", ["deep", …], "deeper")
"""
import collections
import json
import math
import os
import shlex
import subprocess

import schema
from captures import rows
from interpreted_chains import DEEPER, TORN, Capture, check, check_refusal, judge, settled, walk
from recordings import recorded, until, whole_cpu_seconds
from shares import tolerance
from slices import SOAK

FREQUENCY = 5999 if SOAK else 2999
ANY, SOME, NONE = range(1000), range(1, 1000), range(1)
# A Python program that check_refused() records after the program of the tested interpreter.
PYTHON_TURN = """/usr/bin/python3 -c 'import time
def turn():
    for i in range(1000): pass
finish = time.process_time() + 0.7
while time.process_time() < finish: turn()'
"""


def record_chains(tmp_path_factory, *command):
    """Runs an oracle, which writes the chains of functions that are possible in it. Returns the
    path of the file."""
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    subprocess.run([*command, "record", path], check=True, timeout=120)
    return path


def named(chain):
    return [name and name.split("@")[0] for name in chain]


class Programs(Capture):
    """A capture of programs that ran one after another. commands: {name: command}."""

    def __init__(self, profctl, profcapture, folder, kind, commands):
        self.folder, self.path = folder, folder / "programs.cap"
        lines = (f"sh -c 'echo $$ > \"$0\"; exec \"$@\"' {folder / name}.pid {shlex.join(map(str, command))}"
                 for name, command in commands.items())
        recorded(profctl, "-F", FREQUENCY, "-o", self.path, "--", "sh", "-ec", "\n".join(lines))
        super().__init__(profcapture, self.path, kind)
        self.parents = {row["pid"]: row["ppid"] for row in rows(profcapture, self.path, "process")}

    def pid(self, name):
        return int((self.folder / f"{name}.pid").read_text())

    def part(self, name):
        """The samples of a program and of its forked children."""
        pids = {self.pid(name)}
        while more := {pid for pid, parent in self.parents.items() if parent in pids} - pids:
            pids |= more
        part = Capture.__new__(Capture)
        part.kind, part.samples = self.kind, [sample for sample in self.samples if sample["pid"] in pids]
        return part

    def rows(self, profcapture, name, *options):
        """The rows of the report about a program."""
        report = profcapture.json("report", self.path, "--pid", self.pid(name), "--limit", 0, *options)
        return {row["name"]: row for row in report["data"]["rows"]}


def check_pid(profctl, profcapture, capture, kind, chains, program, **options):
    """Checks a recording that attaches to a running program."""
    until(lambda: whole_cpu_seconds(program.pid) > 0.3)
    recorded(profctl, "-F", FREQUENCY, "-o", capture, "--pid", program.pid, "-d", 1.5)
    program.kill()
    check(Capture(profcapture, capture, kind), chains, **options)


def check_callbacks(part, callers, expected):
    """Checks stacks with callbacks: in each of two processes, another one of `callers` calls a C
    function that calls back. `expected(caller)`: the functions that the caller called, innermost
    first, each with the range of the number of native frames after it."""
    counts = collections.Counter()
    for sample in settled(part.samples):
        chain = named(part.chain(sample))
        for caller in callers:
            if caller not in chain:
                continue
            counts[caller, sample["pid"]] += 1
            names, ranges = zip(*expected(caller))
            if names[0] not in chain:
                continue
            natives = []
            for name in chain[chain.index(names[0]):chain.index(caller)]:
                natives += [[name, 0]] if name else []
                natives[-1][1] += not name
            assert tuple(name for name, _ in natives) == names
            counts["right" if all(n in some for (_, n), some in zip(natives, ranges)) else "wrong"] += 1
    print(counts)
    found = [key for key in counts if isinstance(key, tuple)]
    assert len(found) == len({pid for _, pid in found}) == 2
    assert min(counts[key] for key in found) > 100
    assert counts["wrong"] <= 0.005 * counts["right"]


def check_first_second(part):
    """Checks that few samples are from before the interpreter was found, even on a busy machine: less
    than 0.1 s of CPU time. `part`: the program that is recorded first. bench_interp measures the first
    second."""
    verdicts = collections.Counter(sample["interpreter"] for sample in part.samples)
    print(verdicts)
    assert verdicts["missing"] + verdicts["none"] < 0.1 * FREQUENCY < verdicts["complete"]


def check_deep(part, leaf, callers, verdict):
    """Checks that samples in the leaf have these callers, and this verdict. If there are more frames than
    are read, the outermost ones are missing."""
    verdicts = collections.Counter()
    for sample in settled(part.samples):
        chain = [name for name in named(part.chain(sample)) if name]
        if chain[:1] == [leaf]:
            verdicts[sample["interpreter"]] += 1
            assert chain[1:1 + len(callers)] == callers[:len(chain) - 1]
    print(verdicts)
    assert verdicts[verdict] == sum(verdicts.values()) > 100


def check_waits(profctl, profcapture, capture, kind, command, function):
    """Checks that the report and the program itself agree on how long functions wait, even for two
    callers of one function whose native stacks are equal. `function`: format of the name that is
    shown for a function."""
    done = profctl("record", "--off-cpu", "-o", capture, "--", *command)
    Capture(profcapture, capture, kind)
    spent = json.loads(done.stdout.splitlines()[0])
    shown = {row["name"]: row for row in
             profcapture.json("report", capture, "--metric", "off-cpu", "--limit", 0)["data"]["rows"]}
    # The program measures until it runs again. On a busy machine, this includes time without a CPU.
    query = "SELECT sum(duration_ns) / 1e9 AS s FROM thread_states WHERE tid = pid AND state NOT IN ('running', 'waiting')"
    ready, = profcapture.json("sql", capture, query)["data"]["rows"]
    for name, seconds in spent.items():
        waited = shown[function.format(name)]["total_weight"] / 1e9
        assert 0.9 * (seconds - ready["s"]) <= waited <= 1.01 * seconds, (name, waited, seconds, ready)
    counts = collections.Counter()
    for row in rows(profcapture, capture, "wait"):
        counts[row["interpreter"]] += row["duration"]
    print(counts)
    # Ruby has an internal thread, which is idle.
    assert counts["complete"] > 0.8 * (sum(counts.values()) - counts["idle"])
    assert "Stacks of waits have" not in profcapture("report", capture, "--metric", "off-cpu").stdout


def check_names(profcapture, programs, part, names, top, annotated):
    """Checks that each view shows whole names, and that the source is shown. `top`: a name and the source
    location that the report shows for it."""
    only = [programs.path, "--pid", programs.pid(part)]
    report = profcapture("report", *only, "--limit", 0).stdout
    folded = profcapture("export", *only, "--to", "folded").stdout
    for name in names:
        assert f"  {name}  " in report, name
        assert f";{name};" in folded or f";{name} " in folded, name
    assert "  ".join(top) in report
    assert annotated in profcapture("annotate", *only, top[0]).stdout


def changed_fake(fake, program):
    """Writes a changed copy of a fake program to `program`. `fake`: the environment variable with the path
    of the fake program, bytes that occur in it once, and their replacement."""
    name, before, after = fake
    data = open(os.environ[name], "rb").read()
    assert data.count(before) == 1
    program.write_bytes(data.replace(before, after))
    program.chmod(0o755)
    return program


def check_other_version(profctl, profcapture, capture, program, spawn, fake, reason, advice):
    """Checks that the hint names the version that is not supported. `program`: a path for the changed
    copy."""
    check_unsupported(profctl, profcapture, capture, spawn(changed_fake(fake, program), "deep"), reason, advice)


def check_unsupported(profctl, profcapture, capture, target, reason, advice):
    """Checks that the hint says why the process's functions are not read, and what to do. `advice`: the
    name of the advice, and a part of its text."""
    recorded(profctl, "-F", 499, "-d", 1, "-o", capture, "--pid", target.pid)
    assert [row["value"] for row in rows(profcapture, capture, "metadata") if row["key"] == "interpreters.missing"] == [reason]
    profcapture("symbolize", capture)  # otherwise the first hint would be about missing names
    hint, = (line for line in profcapture("report", capture).stdout.splitlines() if line.startswith("Hint: "))
    assert reason in hint and advice[1] in hint
    report = profcapture.json("report", capture)
    schema.check(profcapture, "report", report)
    assert report["data"]["hint"]["advice"] == advice[0]


def check_refused(profctl, profcapture, capture, program, functions, refused):
    """Checks that if the kernel refuses the BPF programs for one family, those for others are loaded.
    `program`: a shell command. `functions`: {family: a function of `program`}. `refused`: the family
    and its language."""
    recorded(profctl, "-F", 999, "-o", capture, "--", "sh", "-c", program + "\n" + PYTHON_TURN,
             env={"LD_PRELOAD": os.environ["REFUSE_BPF_MODULE"], "REFUSE_BPF": refused[0]})
    shown = {row["name"] for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"]}
    functions = {"cpython": "<string>.turn", **functions}
    assert shown & set(functions.values()) == {name for family, name in functions.items() if family != refused[0]}
    check_refusal(profcapture, capture, refused[1])


def check_walk(command, recorded_chains, most_torn=0.002, most_missing=0.005, **options):
    """Checks that the BPF program reads only chains that the command's program can have."""
    lines = walk(command, 9999, 2)
    counts, impossible = judge(recorded_chains, lines, **options)
    print(counts, lines[-1], impossible)
    assert not impossible
    assert counts["judged"] > 1000
    for number, most in (counts["torn"], most_torn), (counts["missing"] + counts["without a name"], most_missing):
        assert number <= 2 + counts["all"] * (most + tolerance(counts["all"], most)), counts
    return counts


def check_shares(command, seventy, thirty, slack=0.0):
    """Checks that a program spends 70 % of its time in one function, and 30 % in the other. `slack`: the
    share that calling the functions may take."""
    lines = [line for line in walk(command, 5999, 1.5) if line[0] != "#"]
    in_seventy = sum(f"{seventy}@" in line for line in lines)
    both = in_seventy + sum(f"{thirty}@" in line for line in lines)
    assert both > 500 and both > 0.97 * len(lines)
    assert abs(in_seventy - 0.7 * both) < 3 * math.sqrt(0.7 * 0.3 * both) + slack * both


def check_hostile(command, flag=TORN):
    """Checks that each sample of a process with wrong frames has the flag. With DEEPER, the chains must
    end at the limit."""
    for seconds in 0.2, 2:  # on a busy machine, a process may have no sample in 0.2 s
        lines = [line for line in walk(command, 999, seconds, begin=0) if line[0] != "#"]
        if lines:
            break
    assert lines
    flags = {int(line.split("\t")[0], 16) for line in lines}
    assert all(found & flag for found in flags), flags
    if flag == DEEPER:
        assert all(line.count("|") == 128 for line in lines)
