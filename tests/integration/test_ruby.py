# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Ruby programs show their functions: each chain is one that the program can have
(ruby_oracle.rb), in threads, fibers and forked children, from the start or attached late, and frames
of the program and of C functions that call it are in order."""
import collections
import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from captures import rows
from interpreted_chains import Capture, check, check_refusal, rights, settled
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
        chain = [name and name.split("@")[0] for name in found.chain(sample)]
        for caller in ("Object#child_only", "Object#parent_only"):
            if caller not in chain:
                continue
            counts[caller, sample["pid"]] += 1
            if "Object#key" in chain:
                block = f"block in {caller}"
                assert [name for name in chain[:chain.index(block) + 1] if name] == ["Object#key", block]
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
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 2
deep(ARGV[0].to_i) while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
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
        if chain[:1] != ["Object#spin"]:
            continue
        verdicts[sample["interpreter"]] += 1
        expected = ["block in Object#deep", "Object#deep"] * depth
        assert chain[1] == "Object#deep" and chain[2:2 + len(expected)] == expected[:len(chain) - 2]
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
        waited = shown[f"Object#{name}"]["total_weight"] / 1e9
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
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 1
while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
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
    for name, file in ("Object#first", "/views/a.erb"), ("Object#second", "/views/b.erb"):
        assert shown[name]["total"] > 50 and shown[name]["file"] == file
        assert not shown[name]["line"]


NAMES = """
def spin
  i = 0
  i += 1 while i < 300
end
module Loud
  def shout = spin
end
module Shop
  class Till
    include Loud
    include Comparable
    attr_accessor :n
    def initialize(n) = @n = n
    def sell
      2.times { |x| [x].each { spin } }
    end
    def self.open = spin
    class << self
      def close = spin
    end
    def <=>(other)
      spin
      n <=> other.n
    end
    def risky
      raise "x"
    rescue
      spin
    end
    define_method(:made) { spin }
    eval "def evaled = spin"
  end
  class Sub < Till
    def sell
      super
      spin
    end
  end
end
[:First, :Second].each { |n| Object.const_set(n, Class.new { def shared = spin }) }
nameless = Class.new { def of_nameless = spin }
single = Object.new
def single.of_one = spin
till, sub = Shop::Till.new(1), Shop::Sub.new(2)
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 4
while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
  till.shout; till.sell; Shop::Till.open; Shop::Till.close; [till, sub].min; till.risky; till.made; till.evaled
  sub.sell; First.new.shared; Second.new.shared; nameless.new.of_nameless; single.of_one
end
"""


def test_names(profctl, profcapture, capture, ruby, tmp_path):
    """A method has the name of its own class: not of a subclass, nor of another class whose method
    has the same source. Each name is whole in each view, and its source is shown."""
    program = tmp_path / "names.rb"
    program.write_text(NAMES)
    recorded(profctl, "-F", 1999, "-o", capture, "--", ruby, program)
    Capture(profcapture, capture, "ruby")
    rows_of = profcapture.json("report", capture, "--limit", 0)["data"]["rows"]
    shown = {row["name"]: row for row in rows_of if row["file"] in (str(program), "(eval)")}
    names = ["Object#spin", "Loud#shout", "Shop::Till#sell", "block in Shop::Till#sell",
             "block (2 levels) in Shop::Till#sell", "Shop::Till.open", "Shop::Till.close", "Shop::Till#<=>",
             "Shop::Till#risky", "rescue in Shop::Till#risky", "block in <class:Till> (names.rb)",
             "Shop::Till#evaled (eval)", "Shop::Sub#sell", "First#shared", "Second#shared", "of_nameless (names.rb)",
             "of_one (names.rb)", "<main> (names.rb)"]
    assert set(names) <= set(shown) and not [name for name in shown if "#" in name and name not in names
                                             and not name.endswith("initialize")], shown.keys()
    report = profcapture("report", capture, "--limit", 0).stdout
    folded = profcapture("export", capture, "--to", "folded").stdout
    for name in names:
        assert f"  {name}  " in report, name
        assert f";{name};" in folded or f";{name} " in folded, name
    assert "Object#spin  names.rb:2" in report
    annotated = profcapture("annotate", capture, "Object#spin").stdout
    assert "i += 1 while i < 300" in annotated
    tree = profcapture("report", capture, "--limit", 0, "--tree").stdout
    plain = profcapture("report", capture, "--limit", 0, "--tree", "--interpreter-frames").stdout
    # Stacks whose functions of Ruby are not known show the interpreter's anyway.
    assert plain.count("rb_vm_exec") > tree.count("rb_vm_exec")
    assert "Object#spin" in tree and "Object#spin" in plain


TWO = """
require "fiddle"
python = Fiddle.dlopen(ARGV[0])
Fiddle::Function.new(python["Py_Initialize"], [], Fiddle::TYPE_VOID).call
run = Fiddle::Function.new(python["PyRun_SimpleString"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_INT)
run.call("import time\\nend = time.process_time() + 1\\nwhile time.process_time() < end: pass")
def turn
  i = 0
  i += 1 while i < 1000
end
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 2
turn while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
"""


def test_two_interpreters(profctl, profcapture, capture, ruby, tmp_path):
    """Python in a Ruby program does not hide the functions of Ruby, and it is said that those of
    Python are not read."""
    library = Path("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0")
    if not library.exists():
        pytest.skip(f"no {library}")
    program = tmp_path / "two.rb"
    program.write_text(TWO)
    recorded(profctl, "-F", 499, "-o", capture, "--", ruby, program, library)
    found = Capture.__new__(Capture)  # with metadata about the frames that are not read
    found.kind, found.samples = "ruby", rows(profcapture, capture, "sample", "--resolve")
    verdicts = collections.Counter(sample["interpreter"] for sample in found.samples)
    print(verdicts)
    turns = sum("Object#turn@7" in str(list(found.chain(sample))) for sample in found.samples)
    assert turns > 0.3 * len(found.samples)
    missing = [row["value"] for row in rows(profcapture, capture, "metadata") if row["key"] == "interpreters.missing"]
    assert missing == ["Python 3.11 is not read in a process that also has Ruby 3.1"]


def test_report(profctl, profcapture, capture, ruby, tmp_path):
    program = tmp_path / "callbacks.rb"
    program.write_text(CALLBACKS)
    recorded(profctl, "-o", capture, "--", ruby, program)
    Capture(profcapture, capture, "ruby")
    shown = {row["name"]: row for row in profcapture.json("report", capture)["data"]["rows"]}
    key = shown["Object#key"]
    assert (key["file"], key["kind"], key["line"]) == (str(program), "ruby", 5)
    assert key["self"] > 0.5 * sum(row["self"] for row in shown.values())


SHORT = """
def turn
  i = 0
  i += 1 while i < 1000
end
turn while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < 1
"""


def test_first_second(profctl, profcapture, capture, ruby, tmp_path):
    """Few samples are from before the interpreter was found, even on a busy machine."""
    program = tmp_path / "short.rb"
    program.write_text(SHORT)
    recorded(profctl, "-F", 999, "-o", capture, "--", ruby, program)
    found = Capture(profcapture, capture, "ruby")
    verdicts = collections.Counter(sample["interpreter"] for sample in found.samples)
    print(verdicts)
    assert verdicts["missing"] + verdicts["none"] < 0.1 * sum(verdicts.values())


BOTH = """
{ruby} -e 'def turn; i = 0; i += 1 while i < 1000; end
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 2
turn while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish'
/usr/bin/python3 -c 'import time
def turn():
    for i in range(1000): pass
finish = time.process_time() + 2
while time.process_time() < finish: turn()'
"""


@pytest.mark.parametrize("refused", ["ruby", "cpython"])
def test_refused(profctl, profcapture, capture, ruby, refused):
    """If the kernel refuses the programs of one family, the other's are loaded."""
    kinds = {"ruby": "Object#turn", "cpython": "<string>.turn"}
    recorded(profctl, "-F", 499, "-o", capture, "--", "sh", "-c", BOTH.format(ruby=ruby),
             env={"LD_PRELOAD": os.environ["REFUSE_BPF_MODULE"], "REFUSE_BPF": refused})
    shown = {row["name"] for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"]}
    assert shown & set(kinds.values()) == {name for kind, name in kinds.items() if kind != refused}
    check_refusal(profcapture, capture, "Ruby" if refused == "ruby" else "Python")
