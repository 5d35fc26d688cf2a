# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The example and the tables of docs/format.md are right, and a reader written from this document
alone reads the right rows."""
import lzma
import os
import re

import format_reader
import pytest
from conftest import SOURCE, Program
from format_example import METADATA, START, Example

make_capture = Program(os.environ["MAKE_CAPTURE"])
print_rows = Program(os.environ["PRINT_ROWS"])
DOCUMENT = (SOURCE / "docs/format.md").read_text(encoding="utf-8")


def example_lines():
    return re.search(r"```text\n(# file header.*?)```", DOCUMENT, re.DOTALL)[1].splitlines()


def example_bytes():
    """Returns the capture in the document, decoded from lines of hex, "00 x N", or "= FROM N"."""
    data = bytearray()
    for line in example_lines():
        if line.startswith("#"):
            continue
        offset, shown = line.partition("|")[0].split(maxsplit=1)
        assert int(offset, 16) == len(data), line
        words = shown.split()
        if words[0] == "=":
            start = int(words[1], 16)
            data += data[start : start + int(words[2])]
        elif words[1:2] == ["x"]:
            data += bytes(int(words[2]))
        else:
            data += bytes.fromhex(shown)
    return bytes(data)


def test_example_is_what_is_printed():
    assert example_lines() == Example().build().lines


def test_example_decodes():
    for walk in (False, True):
        capture = format_reader.Capture(example_bytes(), walk)
        assert capture.finished and capture.header["copies"] == 2 and capture.header["incompat"] == 0
        assert [row for row, _ in capture.rows("string")] == [{"id": 1, "text": b"hello"}]
        assert [row for row, _ in capture.rows("metadata")] == [
            {"time": 1000000500, "key": b"host", "value": b"example"},
            {"time": 1000000750, "key": b"arch", "value": b"x86-64"},
        ]
        assert [(s["number"], s["first_epoch"], s["wall"]) for s in capture.segments] == [(1, 1, 1_700_000_000 * 10**9)]


def test_every_flip_in_the_example_is_noticed():
    """Each byte of the example after the file header has a checksum, except the padding."""
    data = example_bytes()
    padding = set()
    for chunk in format_reader.Capture(data).chunks:
        padding |= set(range(chunk.offset + 96 + chunk.stored, chunk.end))
    for at in range(256, len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x10
        try:
            capture = format_reader.Capture(bytes(flipped), walk=True)
            rows = sum(1 for table in ("string", "metadata") for _ in capture.rows(table))
        except format_reader.Damage:
            continue
        assert at in padding and rows == 3, at


class Descending(Example):
    """Rows that are not in the order of their times."""
    reason, used = "order", 2

    def metadata(self):
        super().metadata(first=START + 750, step=-250)


class WithoutRows(Example):
    reason, used = "payload", 0

    def metadata(self):
        self.chunk(1, "metadata", [], table=METADATA, epoch=1)


@pytest.mark.parametrize("kind", [Descending, WithoutRows])
def test_wrong_rows(kind, profcapture, tmp_path):
    """A chunk with wrong rows, which no writer makes, is reported as damage."""
    capture = tmp_path / "wrong.cap"
    capture.write_bytes(kind().build().data)
    assert [damage["reason"] for damage in profcapture.json("verify", capture, check=3)["data"]["damaged"]] == [kind.reason]
    assert len(profcapture.json("dump", capture, "--table", "metadata", check=None)["data"]["rows"]) == kind.used


# ---- captures of libcapture's writer --------------------------------------------------------------


def printed(value, blob):
    """Returns a cell in the format of print-rows."""
    if value is None:
        return "-"
    if blob:
        return "x" + value.hex()
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)


def lines_of(capture):
    for table in sorted(capture.tables.values(), key=lambda table: table["id"]):
        for row, chunk in capture.rows(table["name"]):
            cells = [
                printed(row[column["name"]], column["type"] in (8, 9)) if column["name"] in row else "~"
                for column in table["columns"]
            ]
            yield "\t".join([table["name"], str(chunk.epoch), *cells])


@pytest.mark.parametrize("steps", [
    [[]],
    [["--epochs", 3, "--group-rows", 17]],
    [["--crash"]],
    [["--crash"], ["--append", "--first", 100]],
    [[], ["--append", "--first", 100], ["--extend", "--first", 200]],
])
def test_two_readers_agree(capture, steps):
    for step in steps:
        make_capture("--rows", 100, "--chunk-rows", 40, "--all-tables", "--foreign-table", *step, capture)
    expected = print_rows(capture).stdout.splitlines()
    assert len(expected) > 12 * 100
    for walk in (False, True):
        assert list(lines_of(format_reader.Capture(capture.read_bytes(), walk))) == expected


def assert_both_read(capture, walk):
    """Checks that both readers read the same from a damaged file; returns the number of rows."""
    expected = print_rows(capture).stdout.splitlines()
    assert list(lines_of(format_reader.Capture(capture.read_bytes(), walk, cut=True))) == expected
    return len(expected)


def test_two_readers_agree_on_what_is_cut(capture):
    """The file is cut anywhere, and another writer continues it: this leaves a gap, which may end
    within a chunk."""
    make_capture("--rows", 40, "--chunk-rows", 16, "--all-tables", "--epochs", 2, capture)
    whole = capture.read_bytes()
    before = assert_both_read(capture, True)
    chunks = format_reader.Capture(whole, walk=True).chunks
    for chunk in chunks[:: len(chunks) // 4]:
        for at in (chunk.offset, chunk.offset + 50, chunk.offset + 96 + chunk.stored // 2, chunk.end - 1):
            capture.write_bytes(whole[:at])
            left = assert_both_read(capture, False)
            assert left < before
            make_capture("--rows", 20, "--first", 40, "--append", capture)
            appended = format_reader.Capture(capture.read_bytes(), walk=True)
            assert appended.finished and not appended.holes and len(appended.segments) == 2
            assert assert_both_read(capture, True) == assert_both_read(capture, False) > left


def test_two_readers_agree_on_what_is_flipped(capture):
    """A byte of a header or of a payload is wrong, in a file with an index and in one without."""
    for crash in [], ["--crash"]:
        make_capture("--rows", 40, "--chunk-rows", 16, "--all-tables", *crash, capture)
        whole = capture.read_bytes()
        before = assert_both_read(capture, False)
        chunks = format_reader.Capture(whole, walk=True).chunks
        for chunk in chunks[:: len(chunks) // 6]:
            for at in (chunk.offset + 3, chunk.offset + 40, chunk.offset + 96, chunk.offset + 95 + chunk.stored):
                flipped = bytearray(whole)
                flipped[at] ^= 0x04
                capture.write_bytes(flipped)
                assert assert_both_read(capture, False) < before


# ---- stored captures --------------------------------------------------------------------------

GOLDEN = sorted(path.name.removesuffix(".cap.xz") for path in (SOURCE / "tests/data").glob("*.cap.xz"))


def golden(name, what):
    return lzma.decompress((SOURCE / f"tests/data/{name}.{what}.xz").read_bytes())


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(capture, name):
    """Rows that an old version wrote are still read."""
    capture.write_bytes(golden(name, "cap"))
    expected = golden(name, "rows").decode().splitlines()
    assert len(expected) > 500
    assert print_rows(capture).stdout.splitlines() == expected
    for walk in (False, True):
        assert list(lines_of(format_reader.Capture(capture.read_bytes(), walk, cut=True))) == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_tables_of_older(profcapture, capture, name):
    """`profcapture sql` reads the tables of a file that is older than their latest columns."""
    capture.write_bytes(golden(name, "cap"))
    for table in ("sample", "wait", "switch", "alloc", "mark", "source", "log", "counter_value", "symbol"):
        profcapture("sql", capture, f"SELECT * FROM {table} LIMIT 1")


@pytest.mark.parametrize("name", ["recorded", "order"])
def test_older(profcapture, capture, name):
    """Files that lack columns added later are read, compacted and cut like others."""
    capture.write_bytes(golden(name, "cap"))
    memory = profcapture.json("memory", capture)["data"]["summary"]
    assert memory["allocations"] > 0
    assert profcapture.json("report", "--by", "thread", capture)["data"]["rows"]
    for verb in (["cut", "--to", "1h"], ["compact"]):
        made = capture.with_suffix(f".{verb[0]}")
        profcapture(*verb, capture, "-o", made)
        assert profcapture.json("memory", made)["data"]["summary"] == memory
        assert profcapture.json("verify", made)["data"]["state"] == "finished"


def test_golden_captures_have_everything(capture):
    """Together, the stored captures have each column of each table, each order and part, parts with
    and without compression, a gap, a file without an end, and two segments."""
    make_capture("--rows", 1, capture)
    missing = {
        (table["name"], column["name"])
        for table in format_reader.Capture(capture.read_bytes()).tables.values()
        for column in table["columns"]
    }
    forms = set()
    for name in GOLDEN:
        read = format_reader.Capture(golden(name, "cap"), walk=True, cut=True)
        for table in read.tables.values():
            for row, _ in read.rows(table["name"]):
                missing -= {(table["name"], column) for column, value in row.items() if value is not None}
        for chunk in filter(lambda chunk: chunk.whole, read.chunks):
            for group in format_reader.groups(chunk.payload, chunk.groups, chunk.rows):
                for (_, part), (order, width, _, stored, _, _) in group.parts.items():
                    forms |= {("part", part), ("order", order), ("width", width)}
                    raw = group.rows * width if part in (format_reader.NULLS, format_reader.LENGTHS) else None
                    forms |= {("is zstd", len(stored) < raw)} if raw else set()
        forms |= {("segments", len(read.segments)), ("finished", read.finished), ("gaps", len(read.gaps))}
    assert not missing
    assert {("part", i) for i in range(4)} | {("order", i) for i in range(4)} <= forms
    assert {("is zstd", True), ("is zstd", False), ("width", 0), ("width", 8)} <= forms
    assert {("segments", 2), ("finished", False), ("gaps", 1)} <= forms


def described(column, tables):
    """Returns a column as section 15 of docs/format.md describes it, without the column's name."""
    type_ = format_reader.TYPES[column["type"]]
    return " ".join(filter(None, [
        "" if type_ == "ref" else type_,
        format_reader.UNITS[column["unit"]],
        "[]" if column["flags"] & format_reader.LIST else "",
        f"→ {tables[column['ref']]['name']}" if type_ == "ref" else "",
        "?" if column["flags"] & format_reader.NULLABLE else "",
        f"order {column['order']}" if column["order"] else "",
    ]))


def test_tables_of_the_document(capture):
    make_capture("--rows", 1, capture)
    tables = format_reader.Capture(capture.read_bytes()).tables
    section = DOCUMENT[DOCUMENT.index("## 15.") : DOCUMENT.index("## 16.")]
    found = {int(id_): (name, columns) for id_, name, columns in re.findall(r"^\| (\d+) \| (\w+) \| (.*) \|$", section, re.MULTILINE)}
    assert sorted(found) == sorted(tables)
    for id_, (name, columns) in found.items():
        table = tables[id_]
        first = "`id` uint order 1" if table["flags"] == format_reader.DICTIONARY else "`time` time ns order 1"
        columns = [re.sub(r"\([^)]*\)", "", column).strip() for column in re.split(r", (?=`)", f"{first}, {columns}")]
        expected = [f"`{column['name']}` {described(column, tables)}" for column in table["columns"]]
        assert (name, columns) == (table["name"], expected)
        assert [column["id"] for column in table["columns"]] == list(range(len(expected)))


def test_enums_of_the_document(capture):
    make_capture("--rows", 1, capture)
    tables = format_reader.Capture(capture.read_bytes()).tables
    listed = dict(re.findall(r"^\| (\w+\.\w+) \| (.*) \|$", DOCUMENT, re.MULTILINE))
    stored = {
        f"{table['name']}.{column['name']}": " ".join(column["values"])
        for table in tables.values()
        for column in table["columns"]
        if "values" in column
    }
    assert listed == stored
