# SPDX-License-Identifier: BSD-2-Clause-Patent
# A deterministic Ruby program whose chains of calls are all known.
#
#     ruby_oracle.rb record FILE    write each chain that can exist, by TracePoint
#     ruby_oracle.rb run SECONDS    do the same work for this time, in three threads
#
# A chain is innermost first: "LABEL@FIRST_LINE:LINE|…", where the label of a method, and of a block
# in a method, includes the class. The outermost method of a chain is `once`, or, in another fiber,
# `fiber_once`. No two blocks of a method share a line.
require "json"
require "zlib"

def spin(n)
  total = 0
  i = 0
  while i < n
    total += i & 7
    i += 1
  end
  total
end

def recursion(n)
  n == 0 ? spin(30) : recursion(n - 1) + 1
end

def even(n)
  n == 0 ? spin(3) : odd(n - 1)
end

def odd(n)
  n == 0 ? 0 : even(n - 1)
end

def yielding(n)
  i = 0
  while i < n
    yield i
    i += 1
  end
  spin(3)
end

def blocks
  total = 0
  yielding(20) { |x| total += spin(3) + x }
  [1, 2, 3, 4, 5].each do |x|
    total += spin(x)
  end
  7.times do |x|
    total += spin(x)
  end
  mapped = (0..15).map do |x|
    spin(4) + x
  end
  mapped.inject do |a, b|
    a + b + spin(2)
  end
  { a: 1, b: 2 }.each_pair do |_, value|
    total += spin(value)
  end
  [[3, 1], [2, 4]].each do |row|
    row.map do |x|
      spin(3) + x
    end
  end
  total
end

class Key
  include Comparable
  attr_reader :value

  def initialize(value)
    @value = value
    check
  end

  def check
    spin(2)
  end

  def <=>(other)
    spin(2) * 0 + (value <=> other.value)
  end

  def hash
    spin(2) + value
  end

  def eql?(other)
    spin(2) >= 0 && value == other.value
  end

  def to_s
    spin(2).to_s
  end

  def method_missing(name, *args)
    spin(3)
  end

  def respond_to_missing?(name, all = false)
    spin(2) < 0
  end

  define_method(:made) do |n|
    spin(n)
  end

  def self.build(n)
    new(spin(2) * 0 + n)
  end
end

class Child < Key
  def initialize(value)
    super(value + 1)
    spin(2)
  end
end

def key_of(x)
  helper(x)
end

def helper(x)
  (x * 7919) % 101 + 0 * spin(2)
end

def callbacks
  data = (0...48).map { |i| (i * 37) % 64 }
  data.sort_by do |x|
    key_of(x)
  end
  data.sort do |a, b|
    spin(2) * 0 + (a <=> b)
  end
  keys = data.first(20).map do |x|
    Key.build(x)
  end
  keys.sort
  keys.max
  Child.new(3).made(6)
  keys.uniq.size
  "#{keys[0]} #{keys[1]}"
  keys[0].other(1)
  "the quick brown fox".gsub(/\w+/) do |word|
    word.upcase + spin(2).to_s
  end
  data.select(&method(:key_of))
  keys.map(&:check)
  keys[0].send(:check)
  keys[0].public_send(:made, 3)
  adder = lambda do |n|
    spin(n)
  end
  adder.call(5)
  data.first(8).each(&adder)
end

def raising(n)
  raise ArgumentError, "deep" if n == 0
  begin
    raising(n - 1)
  ensure
    spin(2)
  end
end

def exceptions
  [1, 5, 20].each do |n|
    begin
      raising(n)
    rescue ArgumentError
      spin(4)
    end
  end
  found = catch(:found) do
    9.times do |i|
      throw :found, i if spin(2) + i > 6
    end
  end
  found + leaving
end

def leaving
  [1, 2, 3].each do |x|
    return x if spin(3) * x > 3
  end
  0
end

def fiber_once(n)
  Fiber.yield(recursion(n))
  [1, 2].each do |x|
    Fiber.yield(spin(x))
  end
  even(6)
end

def fibers
  made = (0...3).map do |i|
    Fiber.new do
      fiber_once(i + 3)
    end
  end
  while made.any?(&:alive?)
    made.each do |fiber|
      fiber.resume if fiber.alive?
    end
  end
end

def dynamic
  3.times do
    eval("spin(4)")
  end
end

DATA_BYTES = (0..255).map(&:chr).join * 128

def without_lock
  Zlib.deflate(DATA_BYTES, 6)
end

def once
  recursion(60)
  even(40)
  blocks
  callbacks
  exceptions
  fibers
  dynamic
  without_lock
end

# Returns the class of each method of this file, by the method's first line: "Class#", or "Class.".
def owners
  found = {}
  [Object, Key, Child].each do |owner|
    (owner.instance_methods(false) + owner.private_instance_methods(false)).each do |name|
      path, line = owner.instance_method(name).source_location
      found[line] = "#{owner}#" if path == __FILE__
    end
    owner.singleton_methods(false).each do |name|
      path, line = owner.method(name).source_location
      found[line] = "#{owner}." if path == __FILE__
    end
  end
  found
end

# From 3.4 on, backtraces have no frames of rescue and ensure clauses: the frames of their callers have
# the lines of the clauses. Code of eval() has a label of its own.
IS_3_4 = RUBY_VERSION >= "3.4"

# Returns the instruction sequences of this file, as [label, first line, lines, class].
def iseqs_of(iseq, owners, owner = nil, outer = nil, found = [])
  lines = iseq.to_a[13].grep(Integer)
  type = iseq.to_a[9]
  owner = owners.fetch(iseq.first_lineno) if type == :method
  outer = iseq unless IS_3_4 && %i[rescue ensure].include?(type)
  found << [outer.label, outer.first_lineno, lines, owner] unless lines.empty?
  iseq.each_child { |child| iseqs_of(child, owners, owner, outer, found) }
  found
end

def with_owner(label, owner, file)
  owner ? label.sub(/[^ ]+\z/) { owner + $& } : "#{label} (#{file})"
end

def record(path)
  known = {}
  iseqs_of(RubyVM::InstructionSequence.compile_file(__FILE__), owners).each do |label, first, lines, owner|
    name = "#{with_owner(label, owner, File.basename(__FILE__))}@#{first}"
    lines.each do |line|
      raise "#{label} is ambiguous" if known.fetch([label, line], name) != name
      known[[label, line]] = name
    end
  end
  chains = {}
  events = %i[line call b_call c_call return b_return c_return]
  trace = TracePoint.new(*events) do
    chain = []
    caller_locations(1).each do |at|
      # From 3.4 on, the label includes the class.
      label = at.label.sub(/[^ ]+[#.](?=[^ ]+\z)/, "")
      # A frame of a C function has the line of its caller, but its own label.
      name = at.path == __FILE__ ? known[[label, at.lineno]] : at.path =~ /eval/ && "#{IS_3_4 ? "<compiled>" : with_owner(label, "Object#", nil)} #{at.path}@1"
      next unless name
      chain << "#{name}:#{at.lineno}"
      break if label == "once" || label == "fiber_once"
    end
    chains[chain.join("|")] = true if chain.last =~ /\AObject#(fiber_)?once@/
  end
  trace.enable { 2.times { once } }
  File.write(path, JSON.generate({ "chains" => chains.keys.sort, "generators" => [], "clauses" => !IS_3_4 }))
end

if ARGV[0] == "record"
  record(ARGV[1])
else
  finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ARGV[1].to_f
  threads = 3.times.map do
    Thread.new do
      once while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
    end
  end
  threads.each(&:join)
end
