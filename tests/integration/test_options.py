# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Wrong command lines: each is refused with status 2 and a message that quotes the wrong word and
gives the intended one or the valid ones."""
import functools
import itertools
import os
import subprocess

import pytest
from captures import make
from slices import part

NO_NUMBERS = ["-1", "+1", "", "nan", "inf", "1e3", "0x10", " 1", "1 ", "1.5", "99999999999999999999", "one", "\x1b[31m"]
NO_DURATIONS = ["-1", "", "nan", "inf", "1e3", "1.", ".5", "1,5", "5 s", "5x", "18446744073709551616ns", "999999999h", "\x1b[31m"]
LIMITED = ["info", "dump", "report", "memory", "marks", "counters", "verify"]
TIMED = ["dump", "report", "marks", "counters", "cut"]
NO_TIMES = ["", "-", "--1", "nan", "1e3", "1.", "soon", "99999999999999999999", "@mark:", "@mark", "\x1b[31m"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("options") / "whole.cap", "--all-tables", "--rows", 2000)


@functools.lru_cache(maxsize=None)
def words(program, *verb):
    return program(*verb, "--complete").stdout.split()


def verbs(program):
    return [verb for verb in words(program) if not verb.startswith("-") and verb != "help"]


def options(program, verb):
    """Returns all options of the verb, in a fixed order: --name, or --name= if it has a value."""
    return sorted({word for word in words(program, verb) if word.startswith("-") and (word.endswith("=") or "=" not in word)})


def optional(program, verb):
    """Returns the options whose value is optional: both --name and --name=VALUE are valid."""
    known = words(program, verb)
    return {word for word in known if word + "=" not in known and any(other.startswith(word + "=") for other in known)}


def choices(program, verb, option):
    return [word.removeprefix(option) for word in words(program, verb) if word.startswith(option) and word != option]


def usage(program, *arguments):
    """Returns the message about an invalid command line."""
    done = program(*arguments, check=2, timeout=20)
    assert done.stdout == "" and done.stderr.startswith(os.path.basename(program.path) + ": ")
    assert "\x1b" not in done.stderr and "Valid: " in done.stderr or "Try '" in done.stderr or done.stderr.count("\n") == 1
    return done.stderr


def text_of(word):
    """Returns a word as messages print it."""
    return word.replace("\x1b", "\\x1b").replace("\n", "\\n")


@pytest.fixture(params=["profctl", "profcapture"])
def program(request):
    return request.getfixturevalue(request.param)


def test_verbs(program):
    for verb in part(verbs(program), 6):
        at = 1 if verb[1] != verb[2] else len(verb) - 2
        swapped = verb[:at] + verb[at + 1] + verb[at] + verb[at + 2:]
        for typo in swapped, verb.upper(), verb + "x":
            assert f"Did you mean '{verb}'?" in usage(program, typo), typo
    for word in "nothing", "", "\x1b[31m\n":
        assert f"unknown verb '{text_of(word)}'\nTry '{os.path.basename(program.path)} --help'.\n" in usage(program, word)
    assert "no verb" in usage(program)
    assert "Did you mean '--version'?" in usage(program, "--versoin")
    assert "unknown option '-x'\nTry '" in usage(program, "-x")
    assert "Did you mean" in usage(program, "help", verbs(program)[0][:-1])


def test_every_option(program):
    """Each option is refused if it is mistyped, lacks its value, or has a value that it does not
    take."""
    for turn, verb in enumerate(verbs(program)):
        for option in part(options(program, verb), 4, turn):
            name = option.rstrip("=")
            if name.startswith("--"):
                assert f"Did you mean '{name}'?" in usage(program, verb, name[:-1] + "xx" if len(name) > 5 else name + "x")
            if option.endswith("=") and name != "-g":
                assert f"{name} needs a value: {name} " in usage(program, verb, name)
            elif name.startswith("--") and name not in ("--debuginfod", "--off-cpu"):  # for these, 1 is a valid time
                said = usage(program, verb, f"{name}=1", *(["a", "b"] if verb == "diff" else []))
                if name not in optional(program, verb):
                    assert f"{name} takes no value" in said
                else:
                    assert f"{name}: unknown value '1'" in said
        assert "Did you mean '--help'?" in usage(program, verb, "-help")
        assert f"unknown option '-?'\nTry '{os.path.basename(program.path)} {verb} --help'.\n" in usage(program, verb, "-?")
        assert f"Usage: {os.path.basename(program.path)} {verb}" in program(verb, "--help", "--nothing").stdout


def test_every_choice(program):
    turn = itertools.count()
    for verb in verbs(program):
        chosen = [option for option in options(program, verb) if option.endswith("=") and choices(program, verb, option)]
        for option in part(chosen, 3, next(turn)):
            valid = choices(program, verb, option)
            assert f"Did you mean '{valid[0]}'?" in usage(program, verb, option + valid[0] + "x")
            for word in part(["", "nothing", valid[0].upper() + "-", "\x1b[31m"], 1, next(turn)):
                said = usage(program, verb, option + word)
                assert "Valid: " + " ".join(valid) in said or "Did you mean '" in said and word not in ("", "\x1b[31m")


@pytest.mark.parametrize("verb", LIMITED)
def test_numbers(profcapture, whole, verb):
    turn = itertools.count(LIMITED.index(verb))
    for option in sorted({"--limit=", "--pid=", "--tid=", "--cpu="} & {*options(profcapture, verb)}):
        for value in part(NO_NUMBERS, 3, next(turn)):
            assert option.rstrip("=") in usage(profcapture, verb, whole, option + value)
        if option != "--limit=":
            for value in part(["1,", ",1", "1,,2", "4294967296"], 1, next(turn)):
                usage(profcapture, verb, whole, option + value)
        profcapture(verb, whole, option + "4294967295", check=0 if option == "--limit=" else 6)
    profcapture(verb, whole, "--limit", "18446744073709551615")


@pytest.mark.parametrize("verb", TIMED)
def test_times(profcapture, whole, tmp_path, verb):
    turn = itertools.count(TIMED.index(verb))
    new = ["-o", tmp_path / "new.cap"] if verb == "cut" else []
    for option in "--from", "--to":
        for value in part(NO_TIMES, 4, next(turn)):
            assert f"{option}: " in usage(profcapture, verb, whole, *new, option, value)
    for value in part(["..", "1..2..3", "1s...2s", "1..x", "x..1"], 2, next(turn)):
        assert "--from: " in usage(profcapture, verb, whole, *new, "--from", value)
    assert "--to: " in usage(profcapture, verb, whole, *new, "--to", "1..2")
    turned = ["--from=2s..1s"], ["--from=2", "--to=1"], ["--from=-1ms..-2ms"], ["--to=1ms", "--from=2ms"], ["--from=999h", "--to=-0"]
    for value in part(turned, 2, next(turn)):
        assert "is after --to" in usage(profcapture, verb, whole, *new, *value)
    for option in "--from", "--to":
        assert "has no mark 'nothing'" in usage(profcapture, verb, whole, *new, option, "@mark:nothing")
    assert not (tmp_path / "new.cap").exists()


def total(profcapture, whole, *arguments):
    return profcapture.json("report", whole, *arguments)["data"]["self_total"]


def test_times_at_the_edges(profcapture, whole):
    """With --json, times before the start or after the end, and ranges of one instant, are valid."""
    for value in ["--from=-999h"], ["--to=999h"], ["--from=-999h..999h"], ["--from=0"], ["--to=-0"], ["--from=..-0s"], ["--from=0.."]:
        assert total(profcapture, whole, *value) == 2000, value
    for value in ["--from=999h"], ["--to=-999h"], ["--from=998h..999h"]:
        assert total(profcapture, whole, *value) == 0
    assert total(profcapture, whole, "--from=0..0") == 1


def test_given_twice(profcapture, whole):
    """If an option is given twice, the last one counts, unless both can apply."""
    assert total(profcapture, whole, "--from=999h", "--from=0") == 2000
    assert total(profcapture, whole, "--to=0", "--to=999h") == 2000
    assert total(profcapture, whole, "--from=999h..9999h", "--from=0") == 2000
    assert len(profcapture.json("report", whole, "--limit=1", "--limit=3")["data"]["rows"]) == 3
    assert profcapture.json("report", whole, "--by=thread", "--by=process")["data"]["by"] == "process"
    tables = profcapture.json("dump", whole, "--table=sample", "--table=switch")["data"]["rows"]
    assert {row["table"] for row in tables} == {"sample", "switch"}
    pids = [row["pid"] for row in profcapture.json("report", whole, "--by=process")["data"]["rows"][:2]]
    one, two = (total(profcapture, whole, f"--pid={pid}") for pid in pids)
    both = one + two if pids[0] != pids[1] else one
    for arguments in ([f"--pid={pids[0]},{pids[1]}"], [f"--pid={pids[0]}", f"--pid={pids[1]}"], [f"--pid={pids[0]}", f"--pid={pids[1]},{pids[0]}"]):
        assert total(profcapture, whole, *arguments) == both


def test_operands(profcapture, whole):
    for verb in verbs(profcapture):
        more = ["-o", "/dev/null", *(["--from=0"] if verb == "cut" else [])] if verb in ("cut", "compact", "recover") else []
        missing = "no capture (*.cap)" if verb == "report" else "missing operand"
        assert missing in usage(profcapture, verb, *more)
        assert missing in usage(profcapture, verb, *more, "--")
        operands = [whole] if verb not in ("annotate", "diff", "sql") else [whole, "function"]
        assert f"unexpected operand '{whole}'" in usage(profcapture, verb, *more, *operands, whole)
    assert "'--limit'" in profcapture("report", "--", "--limit", check=1).stderr
    assert profcapture("report", "--limit=1", "--", whole).stdout == profcapture("report", whole, "--limit=1").stdout
    assert "unexpected operand '--json'" in usage(profcapture, "report", whole, "--", "--json")


def test_what_does_not_go_together(profcapture, whole):
    for arguments, said in (
        (["report", "--tree", "--callers", "x"], "--tree"),
        (["report", "--callers", "x", "--callees", "y"], "one function"),
        (["report", "--by", "thread", "--callers", "x"], "function"),
        (["verify", "--format", "csv"], "text or json"),
        (["verify", "--format", "ndjson"], "text or json"),
        (["info", "--format", "csv"], "ndjson"),
    ):
        assert said in usage(profcapture, *arguments, whole), arguments
    assert "Did you mean 'report'?" in usage(profcapture, "schema", "reprot")


# ---- profctl record, without a recording


def test_record_numbers(profctl, capture):
    turn = itertools.count()
    for option in "-F", "--frequency", "-p", "--pid":
        for value in part([*NO_NUMBERS, "4294967296"], 5, next(turn)):
            assert f"{option}: " in usage(profctl, "record", "-o", capture, option, value, "true")
    for option in "-d", "--duration", "-D", "--delay":
        for value in part(NO_DURATIONS, 5, next(turn)):
            assert f"{option}: " in usage(profctl, "record", "-o", capture, option, value, "true")
    for value in part(["0", "0s", "0.0", "0ns", "0.0000000001"], 2):
        said = usage(profctl, "record", "-o", capture, "-d", value, "true")
        assert "--duration" in said and "Ctrl-C" in said
    for option, name in (("-d", "--duration"), ("-D", "--delay")):
        for value in part(["50d", "1177h", "4294968", "200000d"], 2, next(turn)):
            said = usage(profctl, "record", "-o", capture, option, value, "true")
            assert f"{name}: at most 49 days" in said
    assert not capture.exists()


def test_record_memory(profctl, capture):
    for value in part(["", "al", "ALL", "sample", "every", "512KiB", "\x1b[31m"], 3):
        meant = {"al": "Did you mean 'all'?", "ALL": "Did you mean 'all'?", "sample": "Did you mean 'sample:'?"}
        said = usage(profctl, "record", "-o", capture, f"--memory={value}", "true")
        assert "--memory: unknown value '" in said and said.endswith(meant.get(value, "Valid: all sample:BYTES") + "\n")
    for value in part(["", "-1", "1e3", "4 K", "5x", "1,5", "99999999999T", "0x10", "\x1b[31m"], 4):
        assert "is not a size" in usage(profctl, "record", "-o", capture, f"--memory=sample:{value}", "true")
        assert "--memory-min: " in usage(profctl, "record", "-o", capture, "--memory", f"--memory-min={value}", "true")
    assert "--memory: 'sample:0'" in usage(profctl, "record", "-o", capture, "--memory=sample:0", "true")
    for option in ["--memory-min", "1K"], ["--memory-mmap"]:
        assert f"{option[0]} needs --memory" in usage(profctl, "record", "-o", capture, *option, "true")
    for what in [], ["--system"]:
        assert "--memory needs a COMMAND" in usage(profctl, "record", "-o", capture, "--memory", *what)
    assert "exclude" in usage(profctl, "record", "-o", capture, "--memory", "-p", 1, "true")
    assert not capture.exists()


def test_record_events(profctl, capture):
    for value in "", ",", "cpu-clock,", ",cpu-clock", "cpu-clock,,page-faults":
        assert f"'{value}'" in usage(profctl, "record", "-o", capture, "-e", value, "true")
    assert not capture.exists()


def test_record_what(profctl, capture):
    for arguments, said in (
        (["-p", 1, "true"], "exclude"),
        (["-p", 1, "--", "true"], "exclude"),
        (["-p", 1, "-a"], "exclude"),
        (["--"], "command"),
        (["-a", "--"], "command"),
        (["--append", "--force", "true"], "exclude"),
        (["--json", "-o", "-", "true"], "standard output"),
        (["--append", "-o", "-", "true"], "--output FILE"),
        (["--control", 0, "true"], "--pid"),
        (["--control", 0, "-p", 1, "-D", 1], "--delay"),
    ):
        assert said in usage(profctl, "record", "-o", capture, *arguments)
    assert "--output FILE" in usage(profctl, "record", "--append", "true")
    assert not capture.exists()


def test_record_output(profctl, tmp_path, require):
    (tmp_path / "file").write_text("precious")
    os.mkfifo(tmp_path / "pipe")
    for name in tmp_path, tmp_path / "missing" / "x", tmp_path / "file" / "x", "", tmp_path / "file":
        done = profctl("record", "-o", name, "true", check=1, timeout=20)
        assert f"'{name}'" in done.stderr and not done.stdout
    assert f"'{tmp_path}'" in profctl("record", "--force", "-o", tmp_path, "true", check=1).stderr
    # nobody reads the pipe
    for name in "/dev/null", tmp_path / "pipe":
        assert f"'{name}': it is not a regular file" in profctl("record", "--append", "-o", name, "true", check=2, timeout=20).stderr
    for name, status in (tmp_path / "missing", 1), (tmp_path, 1), (tmp_path / "file", 3):
        assert f"'{name}'" in profctl("record", "--append", "-o", name, "true", check=status).stderr
    (tmp_path / "longer").write_text("no capture\n" * 99)
    assert "not a profd capture" in profctl("record", "--append", "-o", tmp_path / "longer", "true", check=3).stderr
    assert (tmp_path / "file").read_text() == "precious" and (tmp_path / "longer").stat().st_size == 99 * 11
    require("setpriv", root=True)
    tmp_path.chmod(0o700)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    assert "Permission denied" in profctl("record", "-o", tmp_path / "x", "true", check=4, prefix=nobody).stderr


def test_closed_standard_streams(profcapture, whole):
    """With stdin, stdout and stderr closed, a verb neither hangs nor dies by a signal."""
    done = subprocess.run([profcapture.path, "report", whole], close_fds=True, timeout=60,
                          preexec_fn=lambda: [os.close(fd) for fd in (0, 1, 2)])
    assert done.returncode == 1


def test_help_names_every_option(program):
    """Help lists every option, also those that share a line, and every verb; no line is too
    long."""
    listed = program("--help").stdout
    for verb in verbs(program):
        assert verb in listed.replace(":", " ").split()
        shown = program(verb, "--help").stdout
        assert shown.startswith(f"Usage: {os.path.basename(program.path)} {verb} [OPTION...]")
        assert max(map(len, shown.splitlines())) <= 110, verb
        for option in options(program, verb):
            assert option == "--help" or f"{option.rstrip('=')}" in shown.replace(",", " ").replace("[", " ").split(), (verb, option)


def test_help_in_ascii(program, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    for verb in [[], *([verb] for verb in verbs(program)), *([["help", "agent"]] if "profcapture" in str(program.path) else [])]:
        assert program(*verb, *([] if verb[:1] == ["help"] else ["--help"])).stdout.isascii()


def test_captures_of_the_folder(profcapture, whole):
    """If a capture does not exist, its name may be mistyped, so the message lists the captures of
    the folder."""
    done = profcapture("report", "x.cap", check=1, cwd=whole.parent)
    assert done.stderr == f"profcapture: cannot open capture 'x.cap': No such file or directory\n  Captures here: {whole.name}\n"
    assert "Captures" not in profcapture("report", "x.cap", check=1, cwd="/").stderr
    for i in range(6):
        os.utime(make(whole.parent / f"{i}.cap", "--rows", 1), (i, i))
    assert profcapture("report", "x.cap", check=1, cwd=whole.parent).stderr.endswith(f"  Captures here: {whole.name}, 5.cap, 4.cap, 3.cap, 2.cap, ...\n")
