#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Prints the worked example of docs/format.md: a small capture, encoded from that text alone, field
by field.

Lines are "OFFSET  BYTES  | description". BYTES is hex, or "00 x N", or "= FROM N": N bytes
copied from FROM. The output is pasted into the document; test_format.py compares the two.
"""
import struct

from format_reader import xxh3

SALT = 0x1122334455667788
STRING, METADATA = 1, 26
UINT, TIME, TEXT = 1, 5, 8
VALUES, LENGTHS, BYTES = 0, 2, 3
START = 1_000_000_000

# id, flags, name, columns: (id, ref, type, unit, order, flags, name)
TABLES = [
    (STRING, 1, "string", [(0, 0, UINT, 0, 1, 0, "id"), (1, 0, TEXT, 0, 0, 0, "text")]),
    (METADATA, 2, "metadata", [(0, 0, TIME, 1, 1, 0, "time"), (1, 0, TEXT, 0, 0, 0, "key"), (2, 0, TEXT, 0, 0, 0, "value")]),
]
ENTRY_COLUMNS = "gap sequence kind flags table stream segment epoch rows t_min t_max stored raw link".split()


class Example:
    def __init__(self):
        self.data = bytearray()
        self.lines = []
        self.entries = []
        self.sequence = 0
        self.last_checkpoint = 0

    # ---- the text ------------------------------------------------------------------------------

    def put(self, data, what, shown=None):
        """Appends bytes, and lines that show and describe them."""
        for at in range(0, len(data), 24) if shown is None else [0]:
            text = data[at : at + 24].hex(" ") if shown is None else shown
            self.lines.append(f"{len(self.data) + at:04x}  {text:<71}  | {what if at == 0 else ''}".rstrip(" |"))
        self.data += data

    def zeros(self, n, what):
        self.put(bytes(n), what, f"00 x {n}")

    def again(self, start, n, what):
        self.put(bytes(self.data[start : start + n]), what, f"= {start:04x} {n}")

    def note(self, text):
        self.lines.append(f"# {text}")

    # ---- the file ------------------------------------------------------------------------------

    def file_header(self):
        self.note("file header: one record, twice")
        self.put(b"\x89PROF\r\n\x1a", "magic")
        self.put(struct.pack("<II", 1, 256), "version 1, header bytes 256")
        self.put(struct.pack("<QQ", 0, 0), "compat 0, incompat 0")
        self.put(bytes(range(0xA0, 0xB0)), "uuid")
        self.put(struct.pack("<Q", SALT), "salt")
        self.zeros(64, "reserved")
        self.put(struct.pack("<Q", xxh3(0, self.data[:120])), "XXH3(0, bytes 00 to 77)")
        self.again(0, 128, "the second copy")

    def chunk(self, kind, name, payload, flags=0, table=0, epoch=0, rows=0, groups=0, t_min=0, t_max=0, raw=0, link=0):
        """payload: a list of (bytes, what, shown), the arguments of put()."""
        start = len(self.data)
        body = b"".join(part[0] for part in payload)
        stored = len(body)
        fields = [
            ("<HHHH", (kind, flags, table, 0), f"kind {kind}, flags {flags}, table {table}, stream 0"),
            ("<Q", (self.sequence,), f"sequence {self.sequence}"),
            ("<II", (1, epoch), f"segment 1, epoch {epoch}"),
            ("<II", (rows, groups), f"rows {rows}, groups {groups}"),
            ("<QQ", (t_min, t_max), f"t_min {t_min}, t_max {t_max}"),
            ("<II", (stored, raw), f"stored {stored}, raw {raw}"),
            ("<Q", (xxh3(SALT, body),), "XXH3(salt, payload)"),
            ("<Q", (link,), f"link: lowest id {link}" if kind == 1 and link else f"link: {link:04x}" if link else "link: none"),
            ("<Q", (0,), "reserved"),
        ]
        header = b"".join(struct.pack(form, *values) for form, values, _ in fields)
        self.note(f"{name}: chunk header")
        self.put(b"\x9fCHUNK\n\xf1", "magic")
        self.put(struct.pack("<Q", xxh3(SALT, header)), "XXH3(salt, the 80 bytes that follow)")
        for form, values, what in fields:
            self.put(struct.pack(form, *values), what)
        if payload:
            self.note(f"{name}: payload")
        for part in payload:
            self.put(*part)
        if len(self.data) % 8:
            self.put(bytes(-len(self.data) % 8), "padding")
        self.entries.append((0, self.sequence, kind, flags, table, 0, 1, epoch, rows, t_min, t_max, stored, raw, link))
        self.sequence += 1
        return start

    # ---- data ----------------------------------------------------------------------------------

    def group(self, rows, t_min, t_max, parts):
        """parts: (column, part, order, width, base, step, bytes, what)"""
        stored = sum(len(part[6]) for part in parts)
        out = [(struct.pack("<IIII", rows, len(parts), stored, 0), f"group: rows {rows}, parts {len(parts)}, stored {stored}")]
        out.append((struct.pack("<QQ", t_min, t_max), f"t_min {t_min}, t_max {t_max}"))
        for column, part, order, width, base, step, data, what in parts:
            out.append((struct.pack("<HBBIQQ", column, order | part << 4, width, len(data), base, step % 2**64), what))
        out += [(part[6], f"{part[7].split(',')[0]}: stored bytes") for part in parts if part[6]]
        return out

    def data_chunk(self, name, table, rows, parts, t_min=0, t_max=0, raw=0, link=0):
        payload = self.group(rows, t_min, t_max, parts)
        self.chunk(1, name, payload, table=table, epoch=1, rows=rows, groups=1, t_min=t_min, t_max=t_max, raw=raw, link=link)

    # ---- checkpoints ---------------------------------------------------------------------------

    def entry_group(self, entries):
        """Encodes the column "sequence", whose values ascend, with order 1, and all others with order 0."""
        parts = []
        for column, values in enumerate(zip(*entries)):
            low, high = min(values), max(values)
            name = ENTRY_COLUMNS[column]
            if name == "sequence" and len(values) > 1:
                parts.append((column, VALUES, 1, 0, values[0], 1, b"", f"{name}, order 1: from {values[0]} up by 1"))
                continue
            width = (max(v - low for v in values).bit_length() + 7) // 8
            data = b"".join(bytes((v - low) >> 8 * k & 255 for v in values) for k in range(width))
            shown = ", ".join(f"{v:x}" if name == "link" else str(v) for v in values) if low != high else str(low)
            parts.append((column, VALUES, 0, width, low, 0, data, f"{name}, width {width}: {shown}"))
        return self.group(len(entries), 0, 0, parts)

    @staticmethod
    def section(tag, parts):
        size = sum(len(part[0]) for part in parts)
        names = {1: "segments", 2: "schema", 3: "entries"}
        padding = [(bytes(-size % 8), "padding")] if size % 8 else []
        return [(struct.pack("<II", tag, size), f"section {tag}, {names[tag]}: {size} bytes"), *parts, *padding]

    def segments(self):
        return self.section(1, [
            (bytes(16), "boot id: unknown"),
            (struct.pack("<QqQ", START, 1_700_000_000 * 10**9, 50), "start, wall time, its error: 50 ns"),
            (struct.pack("<II", 1, 1), "number 1, first epoch 1"),
        ])

    def schema(self):
        parts = [(struct.pack("<H", len(TABLES)), f"{len(TABLES)} tables")]
        for table, flags, name, columns in TABLES:
            kind = {1: "dictionary", 2: "timed"}[flags]
            parts.append((struct.pack("<HHHB", table, flags, len(columns), len(name)) + name.encode(),
                          f"table {table}, {kind}, {len(columns)} columns, \"{name}\""))
            for column, ref, type_, unit, order, cflags, cname in columns:
                parts.append((struct.pack("<HHBBBBB", column, ref, type_, unit, order, cflags, len(cname)) + cname.encode(),
                              f"column {column}, type {type_}, unit {unit}, order {order}, \"{cname}\""))
        size = sum(len(part[0]) for part in parts)
        return self.section(2, [(struct.pack("<II", size, 0), f"raw bytes {size}"), *parts])

    def checkpoint(self, name, full=False, described_at=None):
        """described_at: offset of the same segments and schema in an earlier checkpoint."""
        described = self.segments() + self.schema()
        entries = self.entries if full else self.entries[-1:] if self.last_checkpoint else []
        first = (0,) + entries[0][1:] if entries else ()
        groups = self.entry_group([first, *entries[1:]]) if entries else []
        head = [(struct.pack("<II", len(entries), 1 if groups else 0), f"entries {len(entries)}, groups {1 if groups else 0}")]
        if described_at:
            data = b"".join(part[0] for part in described)
            described = [(data, "segments and schema, as before", f"= {described_at:04x} {len(data)}")]
        payload = described + self.section(3, head + groups)
        link = self.last_checkpoint
        self.last_checkpoint = self.chunk(2, name, payload, flags=1 if full else 0, link=link)
        return self.last_checkpoint + 96

    def build(self):
        self.file_header()
        described = self.checkpoint("checkpoint")
        self.checkpoint("checkpoint again", described_at=described)
        self.data_chunk("string", STRING, 1, [
            (0, VALUES, 0, 0, 1, 0, b"", "id, width 0: 1"),
            (1, LENGTHS, 0, 0, 5, 0, b"", "text lengths, width 0: 5"),
            (1, BYTES, 0, 1, 0, 0, b"hello", "text"),
        ], raw=13, link=1)
        self.metadata()
        self.checkpoint("full index", full=True, described_at=described)
        self.chunk(3, "trailer", [], link=self.last_checkpoint)
        return self

    def metadata(self, first=START + 500, step=250):
        self.data_chunk("metadata", METADATA, 2, [
            (0, VALUES, 1, 0, first, step, b"", "time, order 1: 1000000500, 250 more"),
            (1, LENGTHS, 0, 0, 4, 0, b"", "key lengths, width 0: 4, 4"),
            (1, BYTES, 0, 1, 0, 0, b"hostarch", "key"),
            (2, LENGTHS, 0, 1, 6, 0, b"\x01\x00", "value lengths, width 1: 6 + 1, 6 + 0"),
            (2, BYTES, 0, 1, 0, 0, b"examplex86-64", "value"),
        ], t_min=START + 500, t_max=START + 750, raw=37)


if __name__ == "__main__":
    print("\n".join(Example().build().lines))
