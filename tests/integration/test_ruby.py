# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Ruby programs show their functions: each chain is one that the program can have
(ruby_oracle.rb), in threads, fibers and forked children, from the start or attached late, and frames
of the program and of C functions that call it are in order."""
import collections
import json
import os
import subprocess
import time

import pytest

from captures import rows
from interpreted_chains import Capture, check, settled
from recordings import recorded
from rubies import HERE, ROOTS, RUBIES

CALLBACKS = """
def cpu
  Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
end
def key(x)
  i = 0
  while i < 100
    i += 1
  end
  x
end
def child_only
  while cpu < 1
    (0..30).sort_by do |x|
      key(x)
    end
  end
end
def parent_only
  while cpu < 1
    (0..30).sort_by do |x|
      key(x)
    end
  end
end
child = fork do
  child_only
end
parent_only
Process.wait(child)
"""


@pytest.fixture(autouse=True)
def rights(require):
    require(root=True)
    if "WALK_INTERPRETED" not in os.environ:
        pytest.skip("built without libbpf, bpftool or clang")


@pytest.fixture(scope="module", params=RUBIES)
def ruby(request):
    return request.param


@pytest.fixture(scope="module")
def chains(ruby, tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    subprocess.run([ruby, HERE / "ruby_oracle.rb", "record", path], check=True, timeout=120)
    return path


def test_command(profctl, profcapture, capture, ruby, chains):
    """Three threads, and fibers, from the start."""
    recorded(profctl, "-F", 2999, "-o", capture, "--", ruby, HERE / "ruby_oracle.rb", "run", 4)
    check(Capture(profcapture, capture, "ruby"), chains, roots=ROOTS)


def test_pid(profctl, profcapture, capture, ruby, chains, spawn):
    target = spawn(ruby, HERE / "ruby_oracle.rb", "run", 60)
    time.sleep(1)
    recorded(profctl, "-F", 2999, "-o", capture, "--pid", target.pid, "-d", 3)
    check(Capture(profcapture, capture, "ruby"), chains, roots=ROOTS)


def test_callbacks(profctl, profcapture, capture, ruby, tmp_path):
    """The function that sorts is between the one that calls it and the block that it calls, also in
    a forked child."""
    program = tmp_path / "callbacks.rb"
    program.write_text(CALLBACKS)
    recorded(profctl, "-F", 999, "-o", capture, "--", ruby, program)
    found = Capture(profcapture, capture, "ruby")
    counts = collections.Counter()
    for sample in settled(found.samples):
        chain = [name and name.split(" (")[0] for name in found.chain(sample)]
        for caller in ("child_only", "parent_only"):
            if caller not in chain:
                continue
            counts[caller, sample["pid"]] += 1
            if "key" in chain:
                block = f"block in {caller}"
                assert [name for name in chain[:chain.index(block) + 1] if name] == ["key", block]
                inside = chain[chain.index(block) + 1:chain.index(caller)]
                counts["right" if inside and not any(inside) else "wrong"] += 1
    print(counts)
    callers = [key for key in counts if isinstance(key, tuple)]
    assert len(callers) == len({pid for _, pid in callers}) == 2
    assert min(counts[key] for key in callers) > 100
    assert counts["wrong"] <= 0.005 * counts["right"]


DEEP = """
def spin
  i = 0
  while i < 3000
    i += 1
  end
end
def deep(n)
  n == 0 ? spin : [1].each { |x| deep(n - 1) }
end
finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 2
deep(ARGV[0].to_i) while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
"""


@pytest.mark.parametrize("depth", [50, 100])
def test_deep(profctl, profcapture, capture, ruby, tmp_path, depth):
    """The native stack is longer than what is copied of it. With more frames than are read, the
    outermost are missing, and this is said."""
    program = tmp_path / "deep.rb"
    program.write_text(DEEP)
    recorded(profctl, "-F", 499, "-o", capture, "--", ruby, program, depth)
    found = Capture(profcapture, capture, "ruby")
    verdicts = collections.Counter()
    for sample in settled(found.samples):
        chain = [name.split("@")[0] for name in found.chain(sample) if name]
        if chain[:1] != ["spin (deep.rb)"]:
            continue
        verdicts[sample["interpreter"]] += 1
        expected = ["block in deep (deep.rb)", "deep (deep.rb)"] * depth
        assert chain[1] == "deep (deep.rb)" and chain[2:2 + len(expected)] == expected[:len(chain) - 2]
    print(verdicts)
    assert verdicts["complete" if depth == 50 else "deeper"] == sum(verdicts.values()) > 100


WAITS = """
require "json"
$spent = Hash.new(0)
def nap(seconds) = sleep(seconds)
def often = nap(0.002)
def seldom = nap(0.03)
def reads = $source.sysread(1)
def writes
  60.times do
    sleep(0.01)
    $sink.syswrite("x")
  end
end
def timed(name)
  start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  send(name)
  $spent[name] += Process.clock_gettime(Process::CLOCK_MONOTONIC) - start
end
$source, $sink = IO.pipe
sleep(0.5)
thread = Thread.new { writes }
60.times { timed(:reads) }
100.times do
  timed(:often)
  timed(:often)
  timed(:seldom)
end
thread.join
puts JSON.generate($spent)
"""


def test_waits(profctl, profcapture, capture, ruby, tmp_path):
    """The functions in which a program waits, for as long as it measures itself. Two callers of one
    function, with one native stack, are told apart."""
    program = tmp_path / "waits.rb"
    program.write_text(WAITS)
    done = profctl("record", "--off-cpu", "-o", capture, "--", ruby, program)
    Capture(profcapture, capture, "ruby")
    spent = json.loads(done.stdout.splitlines()[0])
    shown = {row["name"]: row for row in profcapture.json("report", capture, "--metric", "off-cpu", "--limit", 0)["data"]["rows"]}
    # The program measures until it runs again, so on a busy machine it counts that it is ready, too.
    ready, = profcapture.json("sql", capture, "SELECT sum(duration_ns) / 1e9 AS s FROM thread_states WHERE tid = pid AND state NOT IN ('running', 'waiting')")["data"]["rows"]
    for name, seconds in spent.items():
        waited = shown[f"{name} (waits.rb)"]["total_weight"] / 1e9
        assert 0.9 * (seconds - ready["s"]) <= waited <= 1.01 * seconds, (name, waited, seconds, ready)
    counts = collections.Counter()
    for row in rows(profcapture, capture, "wait"):
        counts[row["interpreter"]] += row["duration"]
    print(counts)
    # Ruby has a thread of its own, which is idle.
    assert counts["complete"] > 0.8 * (sum(counts.values()) - counts["idle"])
    assert "Stacks of waits have" not in profcapture("report", capture, "--metric", "off-cpu").stdout


TEMPLATE = """
def spin
  i = 0
  i += 1 while i < 100
end
eval("def first\\nspin\\nend", nil, "/views/a.erb", 0)
eval("\\n\\ndef second\\nspin\\nend", nil, "/views/b.erb", -3)
finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 1
while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
  50.times { first }
  50.times { second }
end
"""


def test_templates(profctl, profcapture, capture, ruby, tmp_path):
    """Code that is made from a template may begin at line 0, or before."""
    program = tmp_path / "template.rb"
    program.write_text(TEMPLATE)
    recorded(profctl, "-F", 999, "-o", capture, "--", ruby, program)
    Capture(profcapture, capture, "ruby")
    shown = {row["name"]: row for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"]}
    for name, file in ("first (a.erb)", "/views/a.erb"), ("second (b.erb)", "/views/b.erb"):
        assert shown[name]["total"] > 50 and shown[name]["file"] == file
        assert not shown[name]["line"]


def test_report(profctl, profcapture, capture, ruby, tmp_path):
    program = tmp_path / "callbacks.rb"
    program.write_text(CALLBACKS)
    recorded(profctl, "-o", capture, "--", ruby, program)
    Capture(profcapture, capture, "ruby")
    shown = {row["name"]: row for row in profcapture.json("report", capture)["data"]["rows"]}
    key = shown["key (callbacks.rb)"]
    assert (key["file"], key["kind"], key["line"]) == (str(program), "ruby", 5)
    assert key["self"] > 0.5 * sum(row["self"] for row in shown.values())
