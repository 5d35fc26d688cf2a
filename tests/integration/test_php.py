# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of PHP programs show their functions. Each chain is one that the program can have
(php_oracle.php), also in fibers, generated code and forked children, and whether the program is
recorded from its start or attached later. Frames of PHP functions are in order with those of the C
functions that call them."""
import subprocess

import pytest

from captures import rows
from interpreted_chains import Capture, check, rights, settled
from interpreted_programs import (
    ANY, NONE, Programs, check_callbacks, check_deep, check_first_second, check_names, check_other_version, check_pid,
    check_refused, check_waits, record_chains,
)
from phps import HERE, PHPS, ROOTS, make_oracle
from recordings import recorded

CALLBACKS = """<?php
function cpu() {
    $used = getrusage();
    return $used['ru_utime.tv_sec'] + $used['ru_utime.tv_usec'] / 1e6;
}
function key_of($x) {
    for ($i = 0; $i < 100; $i++);
    return $x;
}
function child_only() {
    while (cpu() < 0.3) {
        $data = range(30, 0);
        usort($data, function ($a, $b) {
            return key_of($a) - key_of($b);
        });
    }
}
function parent_only() {
    while (cpu() < 0.3) {
        $data = range(30, 0);
        usort($data, function ($a, $b) {
            return key_of($a) - key_of($b);
        });
    }
}
if (pcntl_fork() == 0) {
    child_only();
    exit;
}
parent_only();
pcntl_wait($status);
"""


@pytest.fixture(scope="module", params=PHPS)
def php(request):
    return request.param


@pytest.fixture(scope="module")
def chains(php, tmp_path_factory):
    return record_chains(tmp_path_factory, php, HERE / "php_oracle.php")


@pytest.fixture(scope="module")
def programs(profctl, profcapture, php, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    for name, text in ("names", NAMES), ("callbacks", CALLBACKS), ("deep", DEEP):
        (folder / f"{name}.php").write_text(text)
    return Programs(profctl, profcapture, folder, "php", {
        "names": [php, folder / "names.php"],
        "oracle": [php, make_oracle(folder), "run", 1.5],
        "callbacks": [php, folder / "callbacks.php"],
        "deep50": [php, folder / "deep.php", 50],
        "deep300": [php, folder / "deep.php", 300],
    })


PHP = {"roots": ROOTS, "has_c": True}


def test_command(programs, chains):
    """A command with fibers is recorded from its start."""
    check(programs.part("oracle"), chains, **PHP)


def test_first_second(programs):
    check_first_second(programs.part("names"))


def test_pid(profctl, profcapture, capture, php, chains, spawn, tmp_path):
    check_pid(profctl, profcapture, capture, "php", chains, spawn(php, make_oracle(tmp_path), "run", 60), **PHP)


def test_generated(profctl, profcapture, capture, php, chains, tmp_path):
    """Functions are shown even if PHP generates code, which has no unwind tables."""
    options = ["-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=64M", "-d", "opcache.jit=tracing"]
    code = "echo extension_loaded('Zend OPcache') && opcache_get_status()['jit']['on'];"
    if subprocess.run([php, *options, "-r", code], stdout=subprocess.PIPE, timeout=60).stdout != b"1":
        pytest.skip("this PHP generates no code")
    recorded(profctl, "-F", 2999, "-o", capture, "--", php, *options, make_oracle(tmp_path), "run", 3)
    found = Capture.__new__(Capture)  # Capture() would skip the test if some functions are not read
    found.kind, found.samples = "php", rows(profcapture, capture, "sample", "--resolve")
    check(found, chains, **PHP)
    hidden = [sample for sample in settled(found.samples)
              if sample["interpreter"] == "missing" and sample["user_stop"] == "no-table"
              and "make_fcontext" not in str(sample["frames"])]
    if hidden:
        missing = [row["value"] for row in rows(profcapture, capture, "metadata") if row["key"] == "interpreters.missing"]
        assert missing == ["code that PHP generates hides where some of its functions belong"]


def test_callbacks(programs):
    """usort(), which is in C, is between the function that calls it and the closure that it calls,
    also in a forked child."""
    # at least two native frames, zend_call_function() and execute_ex(), are between usort() and the
    # closure
    check_callbacks(programs.part("callbacks"), ["child_only", "parent_only"],
                    lambda _: [("key_of", ANY), ("{closure} (callbacks.php)", range(2, 1000)), ("usort", NONE)])


DEEP = """<?php
function spin() {
    for ($i = 0; $i < 3000; $i++);
}
function deep($n) {
    if ($n % 10 == 9)
        array_map('deep', [$n - 1]);
    else
        $n == 0 ? spin() : deep($n - 1);
}
while (getrusage()['ru_utime.tv_usec'] + 1e6 * getrusage()['ru_utime.tv_sec'] < 4e5) deep((int) $argv[1]);
"""


@pytest.mark.parametrize("depth", [50, 300])
def test_deep(programs, depth):
    expected = []
    for n in range(depth + 1):
        expected += ["deep", "array_map"] if n % 10 == 8 and n < depth else ["deep"]
    check_deep(programs.part(f"deep{depth}"), "spin", expected, "complete" if depth == 50 else "deeper")


WAITS = """<?php
$spent = ['often' => 0, 'seldom' => 0];
function nap($seconds) { usleep((int) ($seconds * 1e6)); }
function often() { nap(0.002); }
function seldom() { nap(0.03); }
function timed($name) {
    global $spent;
    $start = hrtime(true);
    $name();
    $spent[$name] += (hrtime(true) - $start) / 1e9;
}
usleep(500000);
for ($i = 0; $i < 100; $i++) {
    timed('often');
    timed('often');
    timed('seldom');
}
echo json_encode($spent), "\\n";
"""


def test_waits(profctl, profcapture, capture, php, tmp_path):
    program = tmp_path / "waits.php"
    program.write_text(WAITS)
    check_waits(profctl, profcapture, capture, "php", [php, program], "{}")


NAMES = r"""<?php
namespace Shop;
function spin() {
    for ($i = 0; $i < 300; $i++);
}
trait Loud {
    public function shout() { spin(); }
}
abstract class Base {
    public function inherited() { spin(); }
}
class Till extends Base {
    use Loud;
    public static function open() { spin(); }
    public function sell() { (function () { spin(); })(); }
    public function __call($name, $arguments) { spin(); }
    public function risky() {
        try {
            throw new \Exception("x");
        } catch (\Exception) {
            spin();
        }
    }
}
$nameless = new class { function of_nameless() { spin(); } };
$till = new Till;
file_put_contents(__DIR__ . "/part.php", "<?php Shop\spin();");
while (getrusage()['ru_utime.tv_usec'] + 1e6 * getrusage()['ru_utime.tv_sec'] < 15e5) {
    $till->shout(); $till->inherited(); Till::open(); $till->sell(); $till->other(); $till->risky();
    $nameless->of_nameless();
    (fn() => spin())();
    for ($i = 0; $i < 20; $i++) include __DIR__ . "/part.php";
    eval("for (\$i = 0; \$i < 2000; \$i++);");
    md5(str_repeat("x", 20000));
}
"""


def test_names(profcapture, programs):
    """A function has the name that PHP's own backtraces have."""
    everything = programs.rows(profcapture, "names")
    shown = {name: row for name, row in everything.items() if row["kind"] == "php"}
    names = ["Shop\\spin", "Shop\\Till::shout", "Shop\\Base::inherited", "Shop\\Till::open", "Shop\\Till::sell",
             "Shop\\Till::{closure} (names.php)", "Shop\\Till::__call", "Shop\\Till::risky",
             "class@anonymous::of_nameless (names.php)", "{main} (names.php)", "include (part.php)",
             "eval (names.php(33) : eval()'d code)", "md5"]
    # From PHP 8.4 on, this closure has no namespace.
    arrow, = {"Shop\\{closure} (names.php)", "{closure} (names.php)"} & set(shown)
    names.append(arrow)
    assert set(names) <= set(shown), shown.keys()
    assert not [name for name in shown if "Till" in name and name not in names]
    assert shown["Shop\\spin"]["file"] == str(programs.folder / "names.php") and shown["Shop\\spin"]["line"] == 3
    assert not shown["md5"]["file"] and not shown["md5"]["line"]
    check_names(profcapture, programs, "names", names, ("Shop\\spin", "names.php:3"), "for ($i = 0; $i < 300; $i++);")
    plain = programs.rows(profcapture, "names", "--interpreter-frames")["execute_ex"]["total"]
    assert plain > 10 * everything.get("execute_ex", {"total": 0})["total"]


def test_other_version(profctl, profcapture, capture, spawn, tmp_path):
    check_other_version(profctl, profcapture, capture, tmp_path / "php8.6", spawn,
                        ("FAKE_PHP", b"API420220829,NTS", b"API420260924,NTS"),
                        "PHP 8.6 is not supported", ("php-version", "functions of PHP 8.2 to 8.5"))


def test_refused(profctl, profcapture, capture, php):
    turn = f"""{php} -r 'function turn() {{ for ($i = 0; $i < 1000; $i++); }}
while (getrusage()["ru_utime.tv_usec"] < 7e5) turn();'"""
    check_refused(profctl, profcapture, capture, turn, {"php": "turn"}, ("php", "PHP"))
