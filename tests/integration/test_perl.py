# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Recordings of Perl programs show their functions. Each chain is one that the program can have
(perl_oracle.pl), also in threads and forked children, and whether the program is recorded from its
start or attached later. Perl frames are in order with those of the C functions that call them."""
import collections
import os
import subprocess

import pytest

from interpreted_chains import Capture, check, check_refusal, rights, settled
from interpreted_programs import check_other_version
from perls import HERE, ORACLE, PERLS, ROOTS, without_first_lines
from recordings import recorded


@pytest.fixture(scope="module", params=PERLS)
def perl(request):
    return request.param


@pytest.fixture(scope="module")
def chains(perl, tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "chains.json"
    subprocess.run([perl, f"-I{HERE}", ORACLE, "record", path], check=True, timeout=120)
    return path


class PerlCapture(Capture):
    def __init__(self, profcapture, path):
        super().__init__(profcapture, path, "perl")

    def printed(self):
        return map(without_first_lines, super().printed())


def test_command(profctl, profcapture, capture, perl, chains):
    """A command is recorded from its start, with a second thread if this Perl has threads."""
    recorded(profctl, "-F", 5999, "-o", capture, "--", perl, f"-I{HERE}", ORACLE, "run", 1)
    found = PerlCapture(profcapture, capture)
    check(found, chains, roots=ROOTS)
    for sample in found.samples:
        if sample["interpreter"] == "complete":
            chain = [name for name in found.chain(sample) if name]  # None: a frame that is not Perl's
            assert not chain or chain[-1].split("@")[0] == f"<main> ({ORACLE.name})", chain


def test_before_the_script(profctl, profcapture, capture, perl):
    """Until Perl has opened the script, as while it reads many options, no sample is in the program."""
    folders = [f"-I/nonexistent/{i}" for i in range(4000)]
    recorded(profctl, "-F", 5999, "-o", capture, "--", perl, *folders, "-e", "1")
    found = PerlCapture(profcapture, capture)
    states = collections.Counter(sample["interpreter"] for sample in found.samples)
    print(states)
    assert states["idle"] > 10
    assert {name.split("@")[0] for sample in found.samples for name in found.chain(sample) if name} <= {"<main> (-e)"}


def test_pid(profctl, profcapture, capture, perl, chains, spawn):
    target = spawn(perl, f"-I{HERE}", ORACLE, "run", 60, 2)
    recorded(profctl, "-F", 5999, "-o", capture, "--pid", target.pid, "-d", 1)
    found = PerlCapture(profcapture, capture)
    check(found, chains, roots=ROOTS)
    threads = {sample["tid"] for sample in found.samples if sample["interpreter"] == "complete"}
    assert len(threads) == 2 and target.pid not in threads


PROGRAM = r"""
use strict;
use List::Util 'first';
sub spin {
    for my $i (1 .. 300) { }
}
sub deep {
    my ($n) = @_;
    $n == 0 ? spin() : deep($n - 1);
}
sub compared {
    spin();
    return $_[0] <=> $_[1];
}
sub child_only { my @sorted = sort { compared($a, $b) } reverse 1 .. 30 }
sub parent_only { my @sorted = sort { compared($a, $b) } reverse 1 .. 30 }
format STDOUT =
@*
in_format()
.
sub in_format {
    spin();
    return 'text';
}
package Shop::Till;
use overload '+' => sub { main::spin(); 1 };
sub new { main::spin(); return bless {}, shift }
sub AUTOLOAD { main::spin() }
sub DESTROY { main::spin() }
package main;
use utf8;
sub été { spin() }
my sub lexical { spin() }
END {
    my $end = times + 0.2;
    spin() while times < $end;
}
my $pid = fork();
open STDOUT, '>', '/dev/null';
while (times < 1) {
    $pid ? parent_only() : child_only();
    deep($ARGV[0]) for 1 .. 10;
    Shop::Till->new->sell;
    my $sum = Shop::Till->new + 1;
    été();
    lexical();
    (sub { spin() })->();
    write;
    first { spin(); $_ } 0, 1;
    eval 'spin()';
    "x" =~ /x(?{ spin() })/;
}
waitpid $pid, 0 if $pid;
"""


def test_names(profctl, profcapture, capture, perl, tmp_path):
    """A function has the name that Perl's caller() returns. Each name is whole in each view, and
    the source of a function is shown. Functions in C are between their callers and the functions
    that they call, also in a forked child."""
    program = tmp_path / "names.pl"
    program.write_text(PROGRAM)
    recorded(profctl, "-F", 1999, "-o", capture, "--", perl, program, 50)
    found = PerlCapture(profcapture, capture)
    counts = collections.Counter()
    for sample in settled(found.samples):
        chain = [name and name.split("@")[0] for name in found.chain(sample)]
        for caller in ("main::child_only", "main::parent_only"):
            if caller not in chain:
                continue
            counts[caller, sample["pid"]] += 1
            if "main::compared" in chain:
                inside = chain[chain.index("main::compared"):chain.index(caller)]
                assert [name for name in inside if name] == ["main::compared", "sort block (names.pl)"]
                # between the block and the caller are at least three of Perl_pp_sort(),
                # Perl_sortsv_flags(), the comparator and Perl_runops_standard()
                between = len(inside) - inside.index("sort block (names.pl)") - 1
                counts["right" if inside.index("sort block (names.pl)") == 1 and between >= 3 else "wrong"] += 1
        if "main::deep" in chain:
            assert chain.count("main::deep") <= 51
            counts["deep"] += chain.count("main::deep") == 51
    print(counts)
    callers = [key for key in counts if isinstance(key, tuple)]
    assert len(callers) == len({pid for _, pid in callers}) == 2
    assert min(counts[key] for key in callers) > 20 and counts["deep"] > 20
    assert counts["wrong"] <= 0.005 * counts["right"]
    everything = profcapture.json("report", capture, "--limit", 0)["data"]["rows"]
    shown = {row["name"]: row for row in everything if row["kind"] == "perl"}
    names = ["main::spin", "main::deep", "main::compared", "main::__ANON__ (names.pl)", "Shop::Till::new",
             "Shop::Till::AUTOLOAD", "Shop::Till::DESTROY", "Shop::Till::__ANON__ (names.pl)", "main::été", "lexical",
             "main::in_format", "format main::STDOUT", "main::END (names.pl)", "sort block (names.pl)", "eval (names.pl)",
             "regex block (names.pl)", "<main> (names.pl)"]
    assert set(names) <= set(shown), shown.keys()
    assert shown["main::spin"]["file"] == str(program) and shown["main::spin"]["line"] == 5
    report = profcapture("report", capture, "--limit", 0).stdout
    folded = profcapture("export", capture, "--to", "folded").stdout
    for name in names:
        assert f"  {name}  " in report, name
        assert f";{name};" in folded or f";{name} " in folded, name
    assert "for my $i (1 .. 300) { }" in profcapture("annotate", capture, "main::spin").stdout
    plain = profcapture.json("report", capture, "--limit", 0, "--interpreter-frames")["data"]["rows"]
    executed, = (row["total"] for row in plain if row["name"] == "Perl_runops_standard")
    assert executed > 10 * sum(row["total"] for row in everything if row["name"] == "Perl_runops_standard")


def test_deep(profctl, profcapture, capture, perl, tmp_path):
    """If a stack has more frames than are read, the outermost are missing ("deeper")."""
    program = tmp_path / "deep.pl"
    program.write_text(PROGRAM)
    recorded(profctl, "-F", 499, "-o", capture, "--", perl, program, 300)
    found = PerlCapture(profcapture, capture)
    verdicts = collections.Counter()
    for sample in settled(found.samples):
        chain = [name.split("@")[0] for name in found.chain(sample) if name]
        if chain[:1] == ["main::spin"] and len(chain) > 100:
            verdicts[sample["interpreter"]] += 1
            assert chain == ["main::spin"] + 127 * ["main::deep"]
    print(verdicts)
    assert verdicts["deeper"] == sum(verdicts.values()) > 20


def test_other_version(profctl, profcapture, capture, spawn, tmp_path):
    check_other_version(profctl, profcapture, capture, tmp_path / "perl5.34", spawn,
                        ("FAKE_PERL", b"version: \x24", b"version: \x22"),
                        "Perl 5.34 is not supported", ("perl-version", "functions of Perl 5.36"))


def test_refused(profctl, profcapture, capture, perl):
    """If the kernel refuses the BPF programs for Perl, a report says so."""
    recorded(profctl, "-F", 499, "-o", capture, "--", perl, "-e", "sub turn { for (1 .. 1000) { } } turn() while times < 1",
             env={"LD_PRELOAD": os.environ["REFUSE_BPF_MODULE"], "REFUSE_BPF": "perl"})
    shown = {row["name"] for row in profcapture.json("report", capture, "--limit", 0)["data"]["rows"]}
    assert "main::turn" not in shown
    check_refusal(profcapture, capture, "Perl")
