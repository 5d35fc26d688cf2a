<?php declare(ticks=1);
// SPDX-License-Identifier: BSD-2-Clause-Patent
// A deterministic PHP program whose chains of calls are all known.
//
//     php_oracle.php record FILE    write each chain that can exist, by ticks
//     php_oracle.php run SECONDS    do the same work for this time
//
// A chain is innermost first: "NAME@FIRST_LINE:LINE|…", with functions in C at line 0. Its outermost
// function is once(). Each function has a statement before it calls another function, so that its
// own chain is recorded. Closures are found by their lines, so no two of them begin on one line.

function spin($n)
{
    $total = 0;
    for ($i = 0; $i < $n; $i++) {
        $total += $i & 7;
    }
    return $total;
}

function recursion($n)
{
    $m = $n - 1;
    return $n == 0 ? spin(30) : recursion($m) + 1;
}

function even($n)
{
    $m = $n - 1;
    return $n == 0 ? spin(3) : odd($m);
}

function odd($n)
{
    $m = $n - 1;
    return $n == 0 ? 0 : even($m);
}

function numbers($n)
{
    $i = 0;
    while ($i < $n) {
        spin(5);
        yield $i;
        $i++;
    }
    return $i;
}

function relayed($n)
{
    $m = $n;
    $got = yield from numbers($m);
    return spin(2) + $got;
}

function relayed_twice($n)
{
    $m = $n;
    yield from relayed($m);
    yield from numbers(3);
}

function generators()
{
    $total = 0;
    foreach (numbers(8) as $x) {
        $total += spin(3) + $x;
    }
    foreach (relayed(6) as $x) {
        $total += $x;
    }
    foreach (relayed_twice(6) as $x) {
        $total += $x;
    }
    $sent = relayed_twice(5);
    while ($sent->valid()) {
        $sent->next();
    }
    $total += array_sum(iterator_to_array(numbers(5), false));
    return $total;
}

class Key
{
    public $value;
    public static $made = 0;

    public function __construct($value)
    {
        $this->value = $value;
        $this->check();
    }

    public function check()
    {
        $n = 2;
        return spin($n);
    }

    public function __toString()
    {
        $text = "key";
        return $text . spin(2);
    }

    public function __call($name, $arguments)
    {
        $n = 3;
        return spin($n);
    }

    public function __get($name)
    {
        $n = 2;
        return spin($n);
    }

    public static function __callStatic($name, $arguments)
    {
        $n = 2;
        return spin($n);
    }

    public static function build($n)
    {
        $m = spin(2) * 0 + $n;
        return new self($m);
    }

    public static function compare($a, $b)
    {
        $n = 2;
        return spin($n) * 0 + $a->value - $b->value;
    }

    public function adder()
    {
        $n = 1;
        return function ($x) use ($n) {
            $m = $n + $x;
            return spin(4) + $m;
        };
    }

    public function __destruct()
    {
        self::$made++;
        spin(2);
    }
}

class Child extends Key
{
    public function __construct($value)
    {
        $more = $value + 1;
        parent::__construct($more);
        spin(2);
    }
}

class Bag implements IteratorAggregate, Countable, ArrayAccess
{
    public function getIterator(): Iterator
    {
        $n = 4;
        return new ArrayIterator(range(1, $n));
    }

    public function count(): int
    {
        $n = 2;
        return spin($n);
    }

    public function offsetExists($at): bool
    {
        $n = 2;
        return spin($n) >= 0;
    }

    public function offsetGet($at): mixed
    {
        $n = 3;
        return spin($n);
    }

    public function offsetSet($at, $value): void
    {
        $n = 2;
        spin($n);
    }

    public function offsetUnset($at): void
    {
        $n = 2;
        spin($n);
    }
}

function key_of($x)
{
    $m = $x * 7919;
    return helper($m);
}

function helper($x)
{
    $m = $x % 101;
    return $m + 0 * spin(2);
}

function callbacks()
{
    $data = range(0, 23);
    usort($data, function ($a, $b) {
        $n = 2;
        return key_of($a) - key_of($b) + 0 * spin($n);
    });
    $mapped = array_map(function ($x) {
        $m = $x + 1;
        return spin(4) + $m;
    }, $data);
    $kept = array_filter($mapped, 'key_of');
    array_walk($kept, function ($x) {
        $m = $x;
        spin(3);
    });
    $sum = array_reduce($kept, function ($a, $b) {
        $m = $a + $b;
        return spin(2) + $m;
    }, 0);
    $text = preg_replace_callback('/\w+/', function ($match) {
        $word = $match[0];
        return strtoupper($word) . spin(2);
    }, "the quick brown fox");
    $nested = array_map(function ($x) {
        $row = [$x, 1];
        $inner = function ($y) {
            $m = $y;
            return spin(3) + $m;
        };
        return array_map($inner, $row);
    }, [1, 2, 3]);
    $keys = array_map('Key::build', range(1, 5));
    usort($keys, ['Key', 'compare']);
    $add = $keys[0]->adder();
    $sum += $add(3) + call_user_func($add, 4) + call_user_func_array([$keys[0], 'check'], []);
    $keys[0]->other(1);
    $keys[0]->missing;
    Key::another(1);
    $text .= "$keys[0] $keys[1]";
    $arrow = fn($x) => spin(3) + $x;
    $sum += array_sum(array_map($arrow, [1, 2]));
    $first = strlen(...);
    $sum += $first($text);
    $check = $keys[1]->check(...);
    $sum += $check();
    $more = new Child(3);
    return $sum + count($nested);
}

function interfaces()
{
    $bag = new Bag();
    $total = count($bag);
    foreach ($bag as $x) {
        $total += spin($x);
    }
    $total += $bag[1] + isset($bag[2]);
    $bag[3] = 1;
    unset($bag[3]);
    return $total;
}

function raising($n)
{
    $m = $n - 1;
    if ($n == 0) {
        throw new LogicException("deep");
    }
    try {
        raising($m);
    } finally {
        spin(2);
    }
}

function exceptions()
{
    $total = 0;
    foreach ([1, 5, 20] as $n) {
        try {
            raising($n);
        } catch (LogicException $e) {
            $total += spin(4);
        }
    }
    try {
        array_map(function ($x) {
            $m = $x;
            raising($m);
        }, [1, 2]);
    } catch (LogicException $e) {
        $total += spin(3);
    }
    return $total;
}

function fiber_once($n)
{
    $m = $n;
    Fiber::suspend(recursion($m));
    foreach ([1, 2] as $x) {
        Fiber::suspend(spin($x));
    }
    $mapped = array_map(function ($x) {
        $m = $x;
        Fiber::suspend(spin(2));
        return spin($m);
    }, [1, 2]);
    return even(6);
}

function fibers()
{
    $made = [];
    foreach ([3, 4, 5] as $n) {
        $made[] = new Fiber('fiber_once');
        $made[count($made) - 1]->start($n);
    }
    do {
        $alive = 0;
        foreach ($made as $fiber) {
            if (!$fiber->isTerminated()) {
                $fiber->resume();
                $alive++;
            }
        }
    } while ($alive);
    $outer = new Fiber(function () {
        $inner = new Fiber(function () {
            $n = 5;
            Fiber::suspend(spin($n));
            spin(3);
        });
        $inner->start();
        Fiber::suspend(spin(2));
        $inner->resume();
    });
    $outer->start();
    $outer->resume();
}

function dynamic()
{
    $total = 0;
    for ($i = 0; $i < 3; $i++) {
        $total += eval('declare(ticks=1); $m = 4; return spin($m);');
    }
    return $total + include __DIR__ . '/php_oracle_included.php';
}

function in_c()
{
    $text = str_repeat("abc", 2000);
    return strlen(md5($text)) + strlen(gzcompress($text)) + spin(2);
}

function once()
{
    $total = recursion(40);
    $total += even(20);
    $total += generators();
    $total += callbacks();
    $total += interfaces();
    $total += exceptions();
    fibers();
    $total += dynamic();
    $total += in_c();
    return $total;
}

// Returns the first line of each function of the program, by name.
function first_lines()
{
    $found = [];
    foreach (get_defined_functions()['user'] as $name) {
        $found[$name] = (new ReflectionFunction($name))->getStartLine();
    }
    foreach (['Key', 'Child', 'Bag'] as $class) {
        foreach ((new ReflectionClass($class))->getMethods() as $method) {
            $found["{$method->class}::{$method->name}"] = $method->getStartLine();
        }
    }
    return $found;
}

// Returns the first and last lines of closures, outer ones first.
function closures()
{
    $found = $open = [];
    foreach (file(__FILE__) as $i => $text) {
        if (preg_match('/^( *).*\bfunction \(/', $text, $match)) {
            $open[] = [strlen($match[1]), $i + 1];
        } elseif ($open && preg_match('/^( *)\}/', $text, $match) && strlen($match[1]) == end($open)[0]) {
            $found[] = [array_pop($open)[1], $i + 1];
        } elseif (str_contains($text, 'fn(')) {
            $found[] = [$i + 1, $i + 1];
        }
    }
    sort($found);
    return $found;
}

function record($path)
{
    $chains = $generators = [];
    $lines = first_lines();
    foreach (get_defined_functions()['user'] as $name) {
        if ((new ReflectionFunction($name))->isGenerator()) {
            $generators[] = "$name@$lines[$name]";
        }
    }
    $closures = closures();
    $file = basename(__FILE__);
    register_tick_function($ticked = function () use (&$chains, $lines, $closures, $file) {
        $chain = [];
        $at = debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS);
        foreach ($at as $i => $frame) {
            if ($i == 0) {
                continue;
            }
            $is_closure = str_starts_with($frame['function'], '{closure');
            $name = (isset($frame['class']) ? $frame['class'] . '::' : '') . ($is_closure ? '{closure}' : $frame['function']);
            $line = $at[$i - 1]['line'] ?? 0;
            $first = $lines[$name] ?? 0;
            if ($is_closure) {
                foreach ($closures as [$from, $to]) {
                    $first = $from <= $line && $line <= $to ? $from : $first;
                }
                $name .= " ($file)";
            } elseif ($frame['function'] == 'eval') {
                $name = 'eval (' . basename($at[$i - 1]['file']) . ')';
                $first = 1;
            } elseif ($frame['function'] == 'include') {
                $name = 'include (php_oracle_included.php)';
                $first = 1;
            } elseif (!$first) {
                $line = 0;
            }
            $chain[] = "$name@$first:$line";
            if ($name == 'once') {
                $chains[implode('|', $chain)] = true;
            }
        }
    });
    once();
    once();
    unregister_tick_function($ticked);
    file_put_contents($path, json_encode(['chains' => array_keys($chains), 'generators' => $generators]));
}

if ($argv[1] == 'record') {
    record($argv[2]);
} else {
    $finish = microtime(true) + (float) $argv[2];
    while (microtime(true) < $finish) {
        once();
    }
}
