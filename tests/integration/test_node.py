# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Node.js programs show their functions: each chain is one that the program can have
(node_oracle.mjs), each function has the name, the file and the line that V8 has, and frames of
JavaScript are in order with those of V8's C++ functions."""
import collections
import os
import shlex
import subprocess

import pytest

from interpreted_chains import Capture, check_refusal, rights, settled
from interpreted_programs import ANY, SOME, changed_fake, check_callbacks, check_other_version
from nodes import HERE, NODES, judge_inlined, make_oracle, without_inlining
from recordings import recorded


@pytest.fixture(scope="module", params=NODES)
def node(request):
    return request.param


def test_command(profctl, profcapture, capture, node, tmp_path):
    """A command with two threads, each of which has an isolate, is recorded from its start."""
    chains = tmp_path / "chains.json"
    subprocess.run([node, HERE / "node_oracle.mjs", "record", chains], check=True, timeout=60)
    recorded(profctl, "-F", 1999, "-o", capture, "--", node, make_oracle(tmp_path), "run", 3)
    found = Capture(profcapture, capture, "javascript")
    found.samples = settled(found.samples)
    possible, torn, missing, impossible = judge_inlined(chains, found.printed())
    print(possible, torn, missing)
    assert not impossible
    assert possible > 300
    assert torn <= 2 + 0.005 * len(found.samples)
    assert missing <= 5 + 0.03 * len(found.samples)
    threads, beside = collections.Counter(), 0
    for sample in found.samples:
        chain = [name and name.split(" ")[0] for name in found.chain(sample)]
        threads[sample["tid"]] += "once" in chain
        inside = sample["frames"][1:chain.index("once")] if "once" in chain else []
        beside += any(frame["name"].startswith("anon+") for frame in inside)
    assert sum(n > 50 for n in threads.values()) == 2, threads
    # Generated code is not shown in addition to the JavaScript function that it belongs to. Only the
    # code of regular expressions, which belongs to no function, is shown.
    assert beside <= 2 + 0.01 * len(found.samples)


NAMES = r"""'use strict';
const { createHash } = require('crypto'), vm = require('vm');
function spin(n) {
    let total = 0;
    for (let i = 0; i < 5000; i++)
        total = (total * 31 + i * n) % 1000003;
    return total;
}
class Till {
    #cash = 1;
    constructor() { spin(1); }
    sell() { return spin(this.#cash); }
    static open() { return spin(2); }
    get total() { return spin(3); }
    #secret() { return spin(4); }
    reveal() { return this.#secret() + 1; }
}
exports.shop = { close: function () { return spin(5); } };
exports.shop.inferred = {}; exports.shop.inferred.from = (() => function () { return spin(6); })();
const arrow = () => spin(7) + 1;
async function later() { await null; return spin(8); }
function* several() { yield spin(9); }
function größe() { return spin(10); } // 大
function callsAnonymous() { return (function () { return spin(11); })(); }
const evaluated = eval('\n(function evaluated() { return spin(12); })');
const made = new Function('spin', 'return spin(13)');
const script = vm.runInThisContext('(function scripted(spin) {\n return spin(14); })', { filename: '/srv/script.js', lineOffset: 40 });
const atomics = new Int32Array(new SharedArrayBuffer(4));
function nap() { Atomics.wait(atomics, 0, 0, 2); }
const text = 'x'.repeat(500000);
function hashes() { return createHash('sha256').update(text).digest('hex'); }
function revives(key, value) { return value + spin(16); }
async function main() {
    const { imported } = await import('./part.mjs');
    const end = process.cpuUsage().user + 7e5;
    while (process.cpuUsage().user < end) {
        const till = new Till();
        till.sell(); Till.open(); till.total; till.reveal();
        exports.shop.close(); exports.shop.inferred.from(); arrow(); await later();
        [...several()]; größe(); callsAnonymous(); evaluated(); made(spin); script(spin); imported(spin);
        [1, 2].forEach(spin); hashes(); nap(); JSON.parse("[1, 2]", revives);
    }
}
main();
"""


def test_names(profctl, profcapture, capture, node, tmp_path):
    """A function has the name that V8 has, its file and its line, also in files with characters of
    two bytes, in modules, in scripts and in evaluated texts. The code is compiled, but not
    optimized. Waits have functions, too."""
    program = tmp_path / "names.js"
    program.write_text(NAMES)
    (tmp_path / "part.mjs").write_text("\n\nexport function imported(spin) { return spin(15); }\n")
    recorded(profctl, "-F", 1999, "--off-cpu", "-o", capture, "--", node, *without_inlining(node), program)
    found = Capture(profcapture, capture, "javascript")
    # JSON.parse() calls a function of the program from C++
    chains = [[name and name.split(" ")[0] for name in found.chain(sample)] for sample in found.samples]
    between = [chain[chain.index("revives") + 1:chain.index("main")] for chain in chains if "revives" in chain]
    assert between and all(None in frames[:frames.index("parse")] for frames in between), between
    data = profcapture.json("report", capture, "--limit", 0)["data"]
    late = sum(sample["user_stop"] == "no-table" for sample in found.samples)  # on a busy machine, tables are late
    assert data["unwind"]["guessed"] <= 2 + 0.02 * len(found.samples) + late, data["unwind"]  # stacks that V8's own frames confirm do not count as guessed
    everything = data["rows"]
    shown = {row["name"]: row for row in everything if row["kind"] == "javascript"}
    at = lambda text: next(i + 1 for i, line in enumerate(NAMES.split("\n")) if text in line)
    for name, line in {
        "spin": at("function spin"), "Till": at("constructor()"), "sell": at(" sell()"), "open": at("static open"),
        "get total": at("get total"), "#secret": at("#secret() { return"), "reveal": at(" reveal()"),
        "close": at("close: "), "arrow": at("arrow ="), "later": at("function later"), "several": at("several() {"),
        "größe": at("größe() {"), "hashes": at("hashes() {"), "main": at("function main"),
    }.items():
        row = shown[f"{name} (names.js)"]
        assert (row["file"], row["line"]) == (str(program), line), row
    anonymous = at("callsAnonymous() {")
    assert shown[f"<anonymous> (names.js:{anonymous})"]["line"] == anonymous
    assert shown["imported (part.mjs)"]["file"] == str(tmp_path / "part.mjs") and shown["imported (part.mjs)"]["line"] == 3
    assert shown["scripted (script.js)"]["line"] == 41
    assert shown["evaluated (eval)"]["line"] == 2 and not shown["evaluated (eval)"]["file"]
    report = profcapture("report", capture, "--limit", 0).stdout
    folded = profcapture("export", capture, "--to", "folded").stdout
    for name in "sell (names.js)", "größe (names.js)", f"<anonymous> (names.js:{anonymous})", "forEach (native)":
        assert f"  {name}  " in report, name
        assert f";{name};" in folded or f";{name} " in folded, name
    waits = profcapture.json("report", capture, "--metric", "off-cpu", "--limit", 0)["data"]["rows"]
    nap, = (row for row in waits if row["name"] == "nap (names.js)")
    assert nap["total_weight"] > 5e6
    plain = profcapture.json("report", capture, "--limit", 0, "--interpreter-frames")["data"]["rows"]
    native = sum(row["total"] for row in plain if row["name"] == "node::Start" or row["image"] == "node")
    assert native >= sum(row["total"] for row in everything if row["image"] == "node")


CALLBACKS = """
function revives(key, value) { let i = 0; while (i < 200) i++; return value; }
function parses() { JSON.parse("[1, 2, 3, 4, 5, 6, 7, 8]", revives); }
function first() { parses(); }
function second() { parses(); }
const caller = process.argv[2] == 'first' ? first : second;
while (process.cpuUsage().user < 6e5) caller();
"""


def test_callbacks(profctl, profcapture, capture, node, tmp_path):
    """The C++ functions of JSON.parse() are between the function that they call back and the
    function that calls JSON.parse()."""
    program = tmp_path / "callbacks.js"
    program.write_text(CALLBACKS)
    command = shlex.join([node, *without_inlining(node), str(program)])
    recorded(profctl, "-F", 2999, "-o", capture, "--", "sh", "-c", f"{command} first; {command} second")
    check_callbacks(Capture(profcapture, capture, "javascript"), ["first (callbacks.js)", "second (callbacks.js)"],
                    lambda _: [("revives (callbacks.js)", SOME), ("parse (native)", ANY), ("parses (callbacks.js)", ANY)])


def test_other_version(profctl, profcapture, capture, spawn, tmp_path):
    check_other_version(profctl, profcapture, capture, tmp_path / "node", spawn,
                        ("FAKE_NODE", b"\x0b\0\0\0major_", b"\x0c\0\0\0major_"),
                        "V8 12.3 is not supported", ("node-version", "functions of Node.js 18, 20, 22 and 24"))


def test_other_versions(profctl, profcapture, capture, spawn, tmp_path):
    """If two programs have versions that are not supported, the hint names both."""
    fakes = ("FAKE_NODE", b"\x0b\0\0\0major_", b"\x0c\0\0\0major_"), ("FAKE_PERL", b"version: \x24", b"version: \x22")
    programs = [spawn(changed_fake(fake, tmp_path / fake[0]), "deep") for fake in fakes]
    recorded(profctl, "-F", 499, "-d", 1, "-o", capture, *(f"--pid={program.pid}" for program in programs))
    profcapture("symbolize", capture)  # without names, the hint would be about names
    hint = profcapture.json("report", capture)["data"]["hint"]
    assert sorted(hint["subject"].split("; ")) == ["Perl 5.34 is not supported", "V8 12.3 is not supported"]
    assert hint["advice"] == "interpreter-versions" and "'profctl doctor' lists" in profcapture("report", capture).stdout


def test_refused(profctl, profcapture, capture, node, tmp_path):
    """If the kernel refuses the BPF programs for V8, a report says so."""
    program = tmp_path / "spin.js"
    program.write_text("const end = Date.now() + 1500; while (Date.now() < end);")
    recorded(profctl, "-F", 499, "-o", capture, "--", node, program,
             env={"LD_PRELOAD": os.environ["REFUSE_BPF_MODULE"], "REFUSE_BPF": "v8"})
    check_refusal(profcapture, capture, "V8")
