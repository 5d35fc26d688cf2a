# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Hostile names are in every text of every table: no terminal obeys them, and no parser fails on
them."""
import contextlib
import csv
import gzip
import io
import json
import os
import re
import sqlite3
import subprocess

import pytest
import schema
from captures import MAKERS, command, make, unprintable
from exports import fields, perf_name, read_chrome, read_page, read_perf_script, read_pprof, read_svg
from slices import SANITIZED, part

# a formula, quotes of CSV and JSON, line ends, escapes, a terminal title, a bidi override, bytes
# that are not UTF-8, C1's CSI
HOSTILE = b"=1+1,\";'\\\n\r\t\x1b[31m\x1b]0;x\x07\xe2\x80\xae\xff\xc2\x9b"
WHAT_PARSERS_SEE = HOSTILE.decode("utf-8", errors="replace")
ESCAPED = "=1+1,\";'\\\\n\\x0d\\t\\x1b[31m\\x1b]0;x\\x07\\u{202e}\ufffd\\u{9b}"
TABLES = ["string", "process", "thread", "image", "symbol", "source", "counter", "sample", "task", "mapping", "mark", "log", "loss",
          "metadata", "sensor"]
LISTS = [["dump", "--resolve"], ["marks"], ["counters"], *(["dump", "--table", table] for table in TABLES),
         *(["report", "--by", by] for by in ("function", "image", "thread", "process", "cgroup"))]
VERBS = [["info"], ["info", "--verbose"], ["verify"], ["report", "--tree"], *LISTS]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return make(tmp_path_factory.mktemp("hostile") / "x.cap", "--all-tables", "--foreign-table", "--rows", 60, "--prefix", HOSTILE.decode(errors="surrogateescape"))


def test_text(profcapture, hostile, tmp_path):
    seen = 0
    for turn, verb in enumerate(VERBS):
        for color in part(("never", "always"), 1, turn):
            done = profcapture(*verb, hostile, "--color", color, "--limit", 0)
            text = done.stdout + done.stderr
            for style in ("\x1b[0m", "\x1b[1m", "\x1b[1;33m", "\x1b[1;31m") if color == "always" else ():
                text = text.replace(style, "")
            assert not unprintable(text), verb
            seen += ESCAPED in text
    assert seen > len(VERBS) / 2
    copy = tmp_path / "copy.cap"
    copy.write_bytes(hostile.read_bytes())
    assert not unprintable(profcapture("symbolize", copy).stdout)


def test_json(profcapture, hostile):
    for verb in VERBS:
        output = profcapture(*verb, hostile, "--json", "--limit", 0, text=False).stdout
        assert not unprintable(output.decode("utf-8").replace("\n", "")) and output.count(b"\n") <= 1
        report = json.loads(output.decode("utf-8"))
        schema.check(profcapture, verb[0], report)
        if verb[0] == "info" or verb[-1] in ("string", "loss", "image", "thread"):
            assert any(WHAT_PARSERS_SEE in text for text in texts(report))


def texts(node):
    """Yields every text in a JSON value."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, (list, dict)):
        for item in node.values() if isinstance(node, dict) else node:
            yield from texts(item)


def test_lists(profcapture, hostile):
    """In ndjson, each row is one line. In csv, all records have the same number of fields, and the
    texts are those of JSON."""
    for verb in part(LISTS, 8):
        whole = profcapture.json(*verb, hostile, "--limit", 0)["data"]["rows"]
        lines = profcapture(*verb, hostile, "--format", "ndjson", text=False).stdout.decode("utf-8").split("\n")
        assert [json.loads(line) for line in lines[1:-1]] == whole and lines[-1] == ""
        output = profcapture(*verb, hostile, "--format", "csv", text=False).stdout.decode("utf-8")
        table = list(csv.reader(io.StringIO(output, newline=""), strict=True))
        assert len(table) == len(whole) + 1 and len({len(row) for row in table}) == 1, verb
        for row, fields in zip(whole, table[1:]):
            for name, field in zip(table[0], fields):
                if isinstance(row.get(name), str):
                    is_formula = row[name][:1] in tuple("=+-@\t\r")
                    assert field == "'" * is_formula + row[name], (verb, name)


def test_csv_on_a_terminal(profcapture, hostile):
    """On a terminal csv is escaped, because a person reads it, not a parser."""
    for table in "thread", "image":
        ours, terminal = os.openpty()
        with open(ours, "rb", buffering=0) as output:
            command = profcapture.command("dump", hostile, "--table", table, "--format", "csv", "--limit", 5)
            subprocess.run(command, stdout=terminal, env={**os.environ, "PAGER": "cat"}, check=True, timeout=60)
            os.close(terminal)
            text = ""
            with contextlib.suppress(OSError):  # EIO at the end
                while more := output.read(65536):
                    text += more.decode()
        assert not unprintable(text.replace("\r", "")) and "1+1" in text


@pytest.mark.parametrize("maker", MAKERS)
def test_survive_being_copied(profcapture, hostile, tmp_path, maker):
    new = tmp_path / "\x1b[31m\u202e\n.cap"
    done = profcapture(*command(maker, hostile, new))
    assert not unprintable(done.stderr)
    before, after = (set(texts(profcapture.json("report", path, "--by", "thread")["data"])) for path in (hostile, new))
    assert before == after and any(WHAT_PARSERS_SEE in text for text in after)
    for arguments in command(maker, hostile, new), command(maker, tmp_path / "\x1b[31m\n", new), command(maker, hostile, tmp_path / "no\x1b[31m" / "\n"):
        assert not unprintable(profcapture(*arguments, check=1).stderr)


def test_in_messages(profctl, profcapture, hostile):
    """Messages are escaped too, including names from the command line."""
    word = HOSTILE.decode(errors="surrogateescape")
    for arguments in ([word], ["help", word], [f"-{word}"], ["report", f"--x{word[1:]}"], ["report", f"-{word}", hostile], ["report", "--by", word, hostile],
                      ["report", "--limit", word, hostile], ["report", "--pid", word, hostile], ["report", "--from", word, hostile], ["schema", word],
                      ["report", "--from", f"@mark:{word}", hostile], ["dump", "--table", word, hostile], ["info", hostile, word], [f"--{word}"], [f"-{word}"]):
        done = profcapture(*arguments, check=2)
        assert not unprintable(done.stderr) and "1+1" in done.stderr and not done.stdout, arguments
    assert not unprintable(profcapture("report", "--callers", word, hostile, check=2).stderr)
    assert not unprintable(profcapture("info", word, check=1).stderr)
    for arguments in [word], ["record", "-F", word, "x"], ["record", "-d", word, "x"], ["record", "-e", f",{word}", "x"], ["record", "-g", "--", word], ["record", f"-{word}"]:
        done = profctl(*arguments, check=None)
        assert done.returncode in (2, 127) and not unprintable(done.stderr) and not done.stdout


NAMES = [b"\n\r\t\x1b[31m\x1b]0;x\x07\"quoted\";'\\", b"</script><b>&;,=1+1", b"\xff\xfe\xc2\xe2\x80\xae", b"a" + b"y\n" * 8000 + b"z",
         # a C++ template with almost 16 KiB of arguments, the maximum that is demangled
         b"_Z4wideI60" + b"A" * 60 + b"S0_" * 263 + b"Evv"]
THREAD = b"\"x\";\n\t\x1b[1m\xe2\x80\xae\xff"
ESCAPED_THREAD = "\"x\";\\n\\t\\x1b[1m\\u{202e}\ufffd"


def test_symbols_of_a_program(profctl, profcapture, compile_c, tmp_path):
    """The names of a program's functions and threads may be any bytes. A function's name is escaped
    once, so it is the same in every format. A thread's name is escaped only in formats of plain
    text, and in formats that a terminal shows."""
    marks = [bytes([0x41 + i]) * len(name) for i, name in enumerate(NAMES)]
    program = compile_c("hostile", "#include <pthread.h>\n#include <stdlib.h>\n#include <sys/prctl.h>\nstatic volatile unsigned long sink;\nvoid *volatile kept;\n" + "".join(
        f"__attribute__((noinline)) void {mark.decode()}(void) {{ kept = malloc(90000); for (long i = 0; i < 60000000; i++) sink += i; }}\n" for mark in marks)
        + 'static void *work(void *data) { static const unsigned char name[] = { ' + ", ".join(map(str, THREAD)) + ", 0 }; prctl(PR_SET_NAME, name); "
        + "".join(f"{mark.decode()}(); " for mark in marks) + "return data; }\nint main(void) { pthread_t thread; pthread_create(&thread, NULL, work, NULL); pthread_join(thread, NULL); }\n", "-pthread")
    image = program.read_bytes()
    for mark, name in zip(marks, NAMES):
        assert mark in image
        image = image.replace(mark, name)
    program.write_bytes(image)
    path, new = tmp_path / "x.cap", tmp_path / "new"
    profctl("record", "-q", "-F", 999, *([] if SANITIZED else ["--memory"]), "-o", path, "--", program)
    data = profcapture.json("report", path, "--limit", 0)["data"]
    rows = [row for row in data["rows"] if row["image"] == str(program) and row["name"] != "main" and row["self"] > 10]
    first = {row["name"][:12] for row in rows}
    assert len(rows) == 5 and first == {"\\n\\x0d\\t\\x1b", "</script><b>", "\ufffd\ufffd\ufffd\\u{202e}"[:12], "ay\\ny\\ny\\ny\\", "void wide<AA"}, first
    assert max(len(row["name"]) for row in rows if row["name"][-3:] == ">()") > 16370
    assert data["hint"] is None or data["hint"]["problem"] != "unresolved"
    assert not unprintable(profcapture("report", path, "--limit", 0).stdout)
    known, thread = {row["name"] for row in rows}, THREAD.decode(errors="replace")
    assert thread in {row["comm"] for row in profcapture.json("report", path, "--by", "thread")["data"]["rows"]}

    def export(to, *options):
        profcapture("export", path, "--to", to, "-o", new, "--force", "-q", *options)
        return new.read_bytes()

    types, samples = read_pprof(export("pprof"))
    strings = [text.decode() for text in fields(gzip.decompress(new.read_bytes()))[6]]
    assert known <= {frame[0] for frames, _, _ in samples for frame in frames} and ESCAPED_THREAD in strings and not any(map(unprintable, strings))
    profile = json.loads(export("speedscope"))
    assert known <= {frame["name"] for frame in profile["shared"]["frames"]} and any(each["name"].startswith(f"{thread} (") for each in profile["profiles"])
    profile = json.loads(export("firefox"))
    assert known <= set(profile["shared"]["stringArray"]) and thread in {each["name"] for each in profile["threads"]}
    events, threads = read_chrome(export("chrome"))
    assert known <= {frame for *_, samples in threads for frames, _ in samples for frame in frames}
    assert thread in {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert known | {ESCAPED_THREAD} <= {box[1] for box in read_svg(export("svg"))[1]}
    samples = read_perf_script(export("perf-script").decode())
    assert known <= {perf_name(frame) for *_, frames in samples for frame in frames} and ESCAPED_THREAD in {sample[0] for sample in samples}
    lines = [line.rpartition(" ")[0].split(";") for line in export("folded").decode().splitlines()]
    assert {name.replace(";", ":") for name in known | {ESCAPED_THREAD}} <= {name for line in lines for name in line}
    text = export("callgrind").decode()
    assert not unprintable(text) and known | {ESCAPED_THREAD} <= set(re.findall(r"^c?fn=\(\d+\) (.*)$", text, re.MULTILINE))
    page = export("html").decode()
    header, _ = read_page(new)
    assert page.count("<script") == page.count("</script>") and not unprintable(page)
    shown = {re.sub(r"^void (wide<.*>)\(\)$", r"\1", name) for name in known}  # without the return type and the parameters
    assert shown <= {function["name"] for function in header["functions"]} and thread in {each["name"] for each in header["threads"]}
    export("sqlite")
    with contextlib.closing(sqlite3.connect(new)) as database:
        assert known <= {name for name, in database.execute("SELECT function FROM hot_functions")}
        assert (thread,) in database.execute("SELECT DISTINCT comm FROM samples").fetchall()
    assert all(name.encode() in export("syscap") for name in known | {ESCAPED_THREAD})
    for to in () if SANITIZED else ("heaptrack", "massif"):
        text = export(to).decode()
        assert not unprintable(text) and all(name.replace("#", "") in text.replace("#", "") for name in known), to
