#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The tables of docs/ring.md agree with the structures that a process shares with profd-engine, in
the offsets and sizes of fields and the size of each record."""
import re
import sys

import lint

LAYOUT = "libcollector/ring/ring-layout.h"
CONTROL = "libcollector/control.h"
# The tables with offsets, in the order of the page.
TABLES = [
    (LAYOUT, "ring_arena_header"),
    (LAYOUT, "ring_header"),
    (LAYOUT, "ring_record_header"),
    (CONTROL, "control_hello"),
    (CONTROL, "control_request"),
    (CONTROL, "control_answer"),
]


def bytes_of(type_):
    """Returns the size of a type such as u16 or "72 bytes"; None for any other text."""
    found = re.fullmatch(r"u(8|16|32|64)|(\d+) bytes", type_)
    return found and (int(found[1]) // 8 if found[1] else int(found[2]))


def declared(text, name):
    """Returns [(offset, size)] of the structure's fields without the reserved ones, and its size.
    An array of bytes is one field; any other array has a field for each item."""
    body = re.search(rf"struct {name} \{{\n(.*?)\n\}};", text, re.DOTALL)[1]
    lengths = {match[1]: int(match[2]) for match in re.finditer(r"#define (\w+) (\d+)u?$", text, re.MULTILINE)}
    for names in re.findall(r"enum \w+ \{(.*?)\};", text, re.DOTALL):
        values = re.findall(r"\b[A-Z]\w+", re.sub(r"/\*.*?\*/", "", names, flags=re.DOTALL))
        lengths.update({value: number for number, value in enumerate(values)})
    fields, offset, largest = [], 0, 1
    for bits, names in re.findall(r"uint(8|16|32|64)_t ([^;]+);", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)):
        for field in names.split(", "):
            field, _, length = field.rstrip("]").partition("[")
            count, size = int(lengths.get(length, length or 1)), int(bits) // 8
            offset += -offset % size
            largest = max(largest, size)
            if not field.startswith("reserved"):
                fields += [(offset, count)] if size == 1 else [(offset + i * size, size) for i in range(count)]
            offset += count * size
    return fields, offset + -offset % largest


def offset_tables(lines):
    """Returns [(line, [(offset, size, field)])] of the tables whose rows begin with an offset and a
    type."""
    tables, before = [], 0
    for number, line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) >= 3 and cells[0].isdigit() and bytes_of(cells[1]):
            if not tables or number != before + 1:
                tables.append((number, []))
            tables[-1][1].append((int(cells[0]), bytes_of(cells[1]), cells[2]))
            before = number
    return tables


def record_sizes(lines):
    """Yields (line, type, size) of each record; size: bytes of its payload before the parts of
    variable length."""
    for number, line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].isdigit() and re.match(r"u(8|16|32|64) ", cells[2]):
            text = cells[2]
            while "(" in text:
                text = re.sub(r"\([^()]*\)", "", text)
            text = re.split(r", n (?:bytes|frames|arguments)|, then ", text)[0]
            yield number, int(cells[0]), sum(map(bytes_of, re.findall(r"\bu(?:8|16|32|64)\b|\d+ bytes(?= reserved)", text)))


def check(root):
    if not (root / "docs/ring.md").exists():
        return
    lines = list(lint.lines(root, "docs/ring.md"))
    headers = {name: (root / name).read_text(encoding="utf-8") for name in (LAYOUT, CONTROL)}
    tables = offset_tables(lines)
    if len(tables) != len(TABLES):
        yield f"docs/ring.md:1: {len(tables)} tables with offsets, not {len(TABLES)}"
    for (number, rows), (header, name) in zip(tables, TABLES):
        wanted, _ = declared(headers[header], name)
        found = [(offset, size) for offset, size, field in rows if field != "reserved"]
        for offset, size in sorted({*wanted} ^ {*found}):
            place = "only in the page" if (offset, size) in found else f"only in {header}"
            yield f"docs/ring.md:{number}: struct {name}: the field at {offset} of {size} bytes is {place}"
    names = re.search(r"enum ring_type \{(.*?)\};", headers[LAYOUT], re.DOTALL)[1]
    names = re.findall(r"\bRING_(\w+)", re.sub(r"/\*.*?\*/", "", names, flags=re.DOTALL))
    for number, type_, size in record_sizes(lines):
        name = re.sub(r"ring_\w+_at$", "ring_at", f"ring_{names[type_].lower()}")
        _, wanted = declared(headers[LAYOUT], name)
        if size != wanted:
            yield f"docs/ring.md:{number}: record {type_} has {wanted} bytes in struct {name}, and {size} here"


def tree(page, string="uint32_t id;\n\tuint32_t n_bytes;", extra="| 2 | string | u32 id, u32 n, n bytes |"):
    """A tree whose structures have few fields, and whose page has the given lines first."""
    layout = "enum ring_type {\n\tRING_NONE, /* RING_NEVER */\n\tRING_PAD,\n\tRING_STRING,\n};\n"
    layout += "".join(f"struct {name} {{\n\tuint64_t a;\n}};\n" for header, name in TABLES[1:] if header == LAYOUT)
    layout += "struct ring_arena_header {\n\tuint32_t a;\n\tuint8_t reserved[4];\n\tuint16_t b[2];\n};\n"
    layout += f"struct ring_string {{\n\t{string}\n}};\n"
    control = "".join(f"struct {name} {{\n\tuint64_t a;\n}};\n" for header, name in TABLES if header == CONTROL)
    rest = "".join("\n| 0 | u64 | a |\n" for _ in TABLES[1:])
    return {"docs/ring.md": f"{page}\n{rest}\n{extra}\n", LAYOUT: layout, CONTROL: control}


GOOD = "| 0 | u32 | a |\n| 4 | 4 bytes | reserved |\n| 8 | u16 | b |\n| 10 | u16 | c |"
SELF_TEST = [
    (tree(GOOD), 0),
    (tree(GOOD.replace("u32", "u64")), 2),
    (tree(GOOD.replace("| 10 ", "| 12 ")), 2),
    (tree(GOOD, string="uint64_t id;\n\tuint8_t n;"), 1),
    (tree(GOOD, string="uint64_t id;\n\tuint8_t n;", extra="| 2 | string | u64 id (text), u8 n, 7 bytes reserved, n bytes |"), 0),
    (tree("nothing"), 5),
    ({"a.md": ""}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
