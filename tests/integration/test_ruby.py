# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Ruby programs show their functions. Each chain is one that the program can have
(ruby_oracle.rb), also in threads, fibers and forked children, and whether the program is recorded
from its start or attached later. Frames of Ruby functions are in order with those of the C functions
that call them."""
import collections
from pathlib import Path

import pytest

from captures import rows
from interpreted_chains import Capture, check, rights
from interpreted_programs import (
    ANY, SOME, Programs, check_callbacks, check_deep, check_first_second, check_names, check_pid, check_refused, check_waits,
    record_chains,
)
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
  finish = cpu + 0.3
  while cpu < finish
    (0..30).sort_by do |x|
      key(x)
    end
  end
end
def parent_only
  finish = cpu + 0.3 # the start may have taken as long
  while cpu < finish
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
    return record_chains(tmp_path_factory, ruby, HERE / "ruby_oracle.rb")


@pytest.fixture(scope="module")
def programs(profctl, profcapture, ruby, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, text in ("names", NAMES), ("callbacks", CALLBACKS), ("deep", DEEP), ("template", TEMPLATE):
        (folder / f"{name}.rb").write_text(text)
    return Programs(profctl, profcapture, folder, "ruby", {
        "names": [ruby, folder / "names.rb"],
        "oracle": [ruby, HERE / "ruby_oracle.rb", "run", 1.5],
        "callbacks": [ruby, folder / "callbacks.rb"],
        "deep50": [ruby, folder / "deep.rb", 50],
        "deep100": [ruby, folder / "deep.rb", 100],
        "template": [ruby, folder / "template.rb"],
    })


def test_command(programs, chains):
    """A command with three threads and with fibers is recorded from its start."""
    check(programs.part("oracle"), chains, roots=ROOTS)


def test_first_second(programs):
    check_first_second(programs.part("names"))


def test_pid(profctl, profcapture, capture, ruby, chains, spawn):
    program = spawn(ruby, HERE / "ruby_oracle.rb", "run", 60)
    check_pid(profctl, profcapture, capture, "ruby", chains, program, roots=ROOTS)


def test_callbacks(programs):
    """sort_by is between its caller and the block that it calls, also in a forked child."""
    check_callbacks(programs.part("callbacks"), ["Object#child_only", "Object#parent_only"],
                    lambda caller: [("Object#key", ANY), (f"block in {caller}", SOME)])


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
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 0.3
deep(ARGV[0].to_i) while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
"""


@pytest.mark.parametrize("depth", [50, 100])
def test_deep(programs, depth):
    """Frames are found although the native stack is longer than its copy."""
    callers = ["Object#deep", *["block in Object#deep", "Object#deep"] * depth]
    check_deep(programs.part(f"deep{depth}"), "Object#spin", callers, "complete" if depth == 50 else "deeper")


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
    program = tmp_path / "waits.rb"
    program.write_text(WAITS)
    check_waits(profctl, profcapture, capture, "ruby", [ruby, program], "Object#{}")


TEMPLATE = """
def spin
  i = 0
  i += 1 while i < 100
end
eval("def first\\nspin\\nend", nil, "/views/a.erb", 0)
eval("\\n\\ndef second\\nspin\\nend", nil, "/views/b.erb", -3)
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 0.3
while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
  50.times { first }
  50.times { second }
end
"""


def test_templates(profcapture, programs):
    """Code that is made from a template may begin at line 0, or at a negative line."""
    shown = programs.rows(profcapture, "template")
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
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 0.8
while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
  till.shout; till.sell; Shop::Till.open; Shop::Till.close; [till, sub].min; till.risky; till.made; till.evaled
  sub.sell; First.new.shared; Second.new.shared; nameless.new.of_nameless; single.of_one
end
"""


def test_names(profcapture, programs):
    """A method has the name of its own class: not of a subclass, nor of another class whose method
    has the same source."""
    program = str(programs.folder / "names.rb")
    shown = {name: row for name, row in programs.rows(profcapture, "names").items()
             if row["file"] == program or str(row["file"]).startswith("(eval")}
    evaled, = (name for name in shown if name.startswith("Shop::Till#evaled (eval"))
    names = ["Object#spin", "Loud#shout", "Shop::Till#sell", "block in Shop::Till#sell",
             "block (2 levels) in Shop::Till#sell", "Shop::Till.open", "Shop::Till.close", "Shop::Till#<=>",
             "Shop::Till#risky", "rescue in Shop::Till#risky", "block in <class:Till> (names.rb)",
             evaled, "Shop::Sub#sell", "First#shared", "Second#shared", "of_nameless (names.rb)",
             "of_one (names.rb)", "<main> (names.rb)"]
    assert set(names) <= set(shown) and not [name for name in shown if "#" in name and name not in names
                                             and not name.endswith("initialize")], shown.keys()
    check_names(profcapture, programs, "names", names, ("Object#spin", "names.rb:2"), "i += 1 while i < 300")
    only = ["report", programs.path, "--pid", programs.pid("names"), "--limit", 0, "--tree"]
    tree = profcapture(*only).stdout
    plain = profcapture(*only, "--interpreter-frames").stdout
    # Stacks without known functions of Ruby show the interpreter's functions anyway. From Ruby 3.3
    # on, rb_vm_exec() has no name.
    executes = "rb_vm_exec" if "rb_vm_exec" in plain else "libruby"
    assert plain.count(executes) > tree.count(executes)
    assert "Object#spin" in tree and "Object#spin" in plain


TWO = """
require "fiddle"
python = Fiddle.dlopen(ARGV[0])
Fiddle::Function.new(python["Py_Initialize"], [], Fiddle::TYPE_VOID).call
run = Fiddle::Function.new(python["PyRun_SimpleString"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_INT)
run.call("import time\\nend = time.process_time() + 0.5\\nwhile time.process_time() < end: pass")
def turn
  i = 0
  i += 1 while i < 1000
end
finish = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) + 1
turn while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < finish
"""


def test_two_interpreters(profctl, profcapture, capture, ruby, tmp_path):
    """Python in a Ruby program does not hide the functions of Ruby, and metadata says that
    functions of Python are not read."""
    library = Path("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0")
    if not library.exists():
        pytest.skip(f"no {library}")
    program = tmp_path / "two.rb"
    program.write_text(TWO)
    recorded(profctl, "-F", 499, "-o", capture, "--", ruby, program, library)
    found = Capture.__new__(Capture)  # Capture() would skip the test if some functions are not read
    found.kind, found.samples = "ruby", rows(profcapture, capture, "sample", "--resolve")
    verdicts = collections.Counter(sample["interpreter"] for sample in found.samples)
    print(verdicts)
    turns = sum("Object#turn@7" in str(list(found.chain(sample))) for sample in found.samples)
    assert turns > 0.3 * len(found.samples)
    missing = [row["value"] for row in rows(profcapture, capture, "metadata") if row["key"] == "interpreters.missing"]
    assert missing == ["Python 3.11 is not read in a process that also has Ruby 3.1"]


def test_report(profcapture, programs):
    shown = programs.rows(profcapture, "callbacks")
    key = shown["Object#key"]
    assert (key["file"], key["kind"], key["line"]) == (str(programs.folder / "callbacks.rb"), "ruby", 5)
    assert key["self"] > 0.5 * shown["Object#parent_only"]["total"]


@pytest.mark.parametrize("refused", [("ruby", "Ruby"), ("cpython", "Python")], ids=["ruby", "cpython"])
def test_refused(profctl, profcapture, capture, ruby, refused):
    turn = f"""{ruby} -e 'def turn; i = 0; i += 1 while i < 1000; end
turn while Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) < 0.7'"""
    check_refused(profctl, profcapture, capture, turn, {"ruby": "Object#turn"}, refused)
