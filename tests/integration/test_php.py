# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of PHP programs show their functions: each chain is one that the program can have
(php_oracle.php), in fibers, generated code and forked children, from the start or attached late, and
frames of the program and of C functions that call it are in order."""
import collections
import json
import os
import subprocess
import time

import pytest

import schema
from captures import rows
from interpreted_chains import Capture, check, check_refusal, rights, settled
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
    while (cpu() < 1) {
        $data = range(30, 0);
        usort($data, function ($a, $b) {
            return key_of($a) - key_of($b);
        });
    }
}
function parent_only() {
    while (cpu() < 1) {
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
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    subprocess.run([php, HERE / "php_oracle.php", "record", path], check=True, timeout=120)
    return path

PHP = {"roots": ROOTS, "has_c": True, "most_torn": 0.005}  # the oracle changes between fibers often


def test_command(profctl, profcapture, capture, php, chains, tmp_path):
    """From the start, with fibers."""
    recorded(profctl, "-F", 2999, "-o", capture, "--", php, make_oracle(tmp_path), "run", 4)
    check(Capture(profcapture, capture, "php"), chains, **PHP)


def test_pid(profctl, profcapture, capture, php, chains, spawn, tmp_path):
    target = spawn(php, make_oracle(tmp_path), "run", 60)
    time.sleep(1)
    recorded(profctl, "-F", 2999, "-o", capture, "--pid", target.pid, "-d", 3)
    check(Capture(profcapture, capture, "php"), chains, **PHP)


def test_generated(profctl, profcapture, capture, php, chains, tmp_path):
    """Also if PHP generates code, which has no tables of its stacks."""
    options = ["-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=64M", "-d", "opcache.jit=tracing"]
    code = "echo extension_loaded('Zend OPcache') && opcache_get_status()['jit']['on'];"
    if subprocess.run([php, *options, "-r", code], stdout=subprocess.PIPE, timeout=60).stdout != b"1":
        pytest.skip("this PHP generates no code")
    recorded(profctl, "-F", 2999, "-o", capture, "--", php, *options, make_oracle(tmp_path), "run", 4)
    found = Capture.__new__(Capture)  # with metadata of what is not read
    found.kind, found.samples = "php", rows(profcapture, capture, "sample", "--resolve")
    check(found, chains, **PHP)
    hidden = [sample for sample in settled(found.samples)
              if sample["interpreter"] == "missing" and sample["user_stop"] == "no-table"
              and "make_fcontext" not in str(sample["frames"])]
    if hidden:
        missing = [row["value"] for row in rows(profcapture, capture, "metadata") if row["key"] == "interpreters.missing"]
        assert missing == ["code that PHP generates hides where some of its functions belong"]


def test_callbacks(profctl, profcapture, capture, php, tmp_path):
    """The function in C that sorts is between the one that calls it and the closure that it calls,
    also in a forked child."""
    program = tmp_path / "callbacks.php"
    program.write_text(CALLBACKS)
    recorded(profctl, "-F", 999, "-o", capture, "--", php, program)
    found = Capture(profcapture, capture, "php")
    counts = collections.Counter()
    for sample in settled(found.samples):
        chain = [name and name.split("@")[0] for name in found.chain(sample)]
        for caller in ("child_only", "parent_only"):
            if caller not in chain:
                continue
            counts[caller, sample["pid"]] += 1
            if "key_of" in chain:
                inside = chain[chain.index("key_of"):chain.index(caller)]
                named = [name for name in inside if name]
                assert named == ["key_of", "{closure} (callbacks.php)", "usort"]
                # zend_call_function() and execute_ex(), at least
                between = inside.index("usort") - inside.index("{closure} (callbacks.php)") - 1
                counts["right" if between >= 2 and inside[-1] == "usort" else "wrong"] += 1
    print(counts)
    callers = [key for key in counts if isinstance(key, tuple)]
    assert len(callers) == len({pid for _, pid in callers}) == 2
    assert min(counts[key] for key in callers) > 100
    assert counts["wrong"] <= 0.005 * counts["right"]


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
while (getrusage()['ru_utime.tv_sec'] < 2) deep((int) $argv[1]);
"""


@pytest.mark.parametrize("depth", [50, 300])
def test_deep(profctl, profcapture, capture, php, tmp_path, depth):
    """With more frames than are read, the outermost are missing, and this is said."""
    program = tmp_path / "deep.php"
    program.write_text(DEEP)
    recorded(profctl, "-F", 499, "-o", capture, "--", php, program, depth)
    found = Capture(profcapture, capture, "php")
    verdicts = collections.Counter()
    expected = []
    for n in range(depth + 1):
        expected += ["deep", "array_map"] if n % 10 == 8 and n < depth else ["deep"]
    for sample in settled(found.samples):
        chain = [name.split("@")[0] for name in found.chain(sample) if name]
        if chain[:1] != ["spin"]:
            continue
        verdicts[sample["interpreter"]] += 1
        assert chain[1:1 + len(expected)] == expected[:len(chain) - 1]
    print(verdicts)
    assert verdicts["complete" if depth == 50 else "deeper"] == sum(verdicts.values()) > 100


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
    """The functions in which a program waits, for as long as it measures itself. Two callers of one
    function, with one native stack, are told apart."""
    program = tmp_path / "waits.php"
    program.write_text(WAITS)
    done = profctl("record", "--off-cpu", "-o", capture, "--", php, program)
    Capture(profcapture, capture, "php")
    spent = json.loads(done.stdout.splitlines()[0])
    report = profcapture.json("report", capture, "--metric", "off-cpu", "--limit", 0)
    shown = {row["name"]: row for row in report["data"]["rows"]}
    # The program measures until it runs again, so on a busy machine it counts that it is ready, too.
    query = "SELECT sum(duration_ns) / 1e9 AS s FROM thread_states WHERE tid = pid AND state NOT IN ('running', 'waiting')"
    ready, = profcapture.json("sql", capture, query)["data"]["rows"]
    for name, seconds in spent.items():
        waited = shown[name]["total_weight"] / 1e9
        assert 0.9 * (seconds - ready["s"]) <= waited <= 1.01 * seconds, (name, waited, seconds, ready)
    counts = collections.Counter()
    for row in rows(profcapture, capture, "wait"):
        counts[row["interpreter"]] += row["duration"]
    print(counts)
    assert counts["complete"] > 0.8 * sum(counts.values())


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
while (getrusage()['ru_utime.tv_sec'] < 3) {
    $till->shout(); $till->inherited(); Till::open(); $till->sell(); $till->other(); $till->risky();
    $nameless->of_nameless();
    (fn() => spin())();
    for ($i = 0; $i < 20; $i++) include __DIR__ . "/part.php";
    eval("for (\$i = 0; \$i < 2000; \$i++);");
    md5(str_repeat("x", 20000));
}
"""


def test_names(profctl, profcapture, capture, php, tmp_path):
    """A function has the name that PHP's own backtraces have. Each name is whole in each view, and its
    source is shown."""
    program = tmp_path / "names.php"
    program.write_text(NAMES)
    recorded(profctl, "-F", 1999, "-o", capture, "--", php, program)
    Capture(profcapture, capture, "php")
    everything = profcapture.json("report", capture, "--limit", 0)["data"]["rows"]
    shown = {row["name"]: row for row in everything if row["kind"] == "php"}
    names = ["Shop\\spin", "Shop\\Till::shout", "Shop\\Base::inherited", "Shop\\Till::open", "Shop\\Till::sell",
             "Shop\\Till::{closure} (names.php)", "Shop\\Till::__call", "Shop\\Till::risky",
             "class@anonymous::of_nameless (names.php)", "Shop\\{closure} (names.php)", "{main} (names.php)",
             "include (part.php)", "eval (names.php(33) : eval()'d code)", "md5"]
    assert set(names) <= set(shown), shown.keys()
    assert not [name for name in shown if "Till" in name and name not in names]
    assert shown["Shop\\spin"]["file"] == str(program) and shown["Shop\\spin"]["line"] == 3
    assert not shown["md5"]["file"] and not shown["md5"]["line"]
    report = profcapture("report", capture, "--limit", 0).stdout
    folded = profcapture("export", capture, "--to", "folded").stdout
    for name in names:
        assert f"  {name}  " in report, name
        assert f";{name};" in folded or f";{name} " in folded, name
    assert "Shop\\spin  names.php:3" in report
    assert "for ($i = 0; $i < 300; $i++);" in profcapture("annotate", capture, "Shop\\spin").stdout
    plain = profcapture.json("report", capture, "--limit", 0, "--interpreter-frames")["data"]["rows"]
    executed, = (row["total"] for row in plain if row["name"] == "execute_ex")
    assert executed > 10 * sum(row["total"] for row in everything if row["name"] == "execute_ex")


def test_other_version(profctl, profcapture, capture, spawn, tmp_path):
    """The hint names the version that is not supported."""
    program = tmp_path / "php8.6"
    fake = open(os.environ["FAKE_PHP"], "rb").read()
    assert fake.count(b"API420220829,NTS") == 1
    program.write_bytes(fake.replace(b"API420220829,NTS", b"API420260924,NTS"))
    program.chmod(0o755)
    recorded(profctl, "-F", 499, "-d", 1, "-o", capture, "--pid", spawn(program, "deep").pid)
    missing = [row["value"] for row in rows(profcapture, capture, "metadata") if row["key"] == "interpreters.missing"]
    assert missing == ["PHP 8.6 is not supported"]
    profcapture("symbolize", capture)  # without names, the first hint would be about them
    hint, = (line for line in profcapture("report", capture).stdout.splitlines() if line.startswith("Hint: "))
    assert "PHP 8.6 is not supported" in hint and "functions of PHP 8.2 to 8.5" in hint
    report = profcapture.json("report", capture)
    schema.check(profcapture, "report", report)
    assert report["data"]["hint"]["advice"] == "php-version"


BOTH = """
{php} -r 'function turn() {{ for ($i = 0; $i < 1000; $i++); }}
while (getrusage()["ru_utime.tv_sec"] < 1) turn();'
/usr/bin/python3 -c 'import time
def turn():
    for i in range(1000): pass
finish = time.process_time() + 2
while time.process_time() < finish: turn()'
"""


def test_refused(profctl, profcapture, capture, php):
    """If the kernel refuses the programs for PHP, those for others are loaded."""
    recorded(profctl, "-F", 499, "-o", capture, "--", "sh", "-c", BOTH.format(php=php),
             env={"LD_PRELOAD": os.environ["REFUSE_BPF_MODULE"], "REFUSE_BPF": "php"})
    shown = {row["name"] for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"]}
    assert {name for name in shown if name.split(".")[-1] == "turn"} == {"<string>.turn"}
    check_refusal(profcapture, capture, "PHP")
