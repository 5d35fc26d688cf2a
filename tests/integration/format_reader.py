#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Reads captures from docs/format.md alone: a second implementation to compare with libcapture,
slow and without any of its code.

    format_reader.py FILE          prints every row as a line of JSON

Section and condition numbers below are those of the document. zstd and XXH3 come from the
system's libraries. This reader trusts lengths as far as the document permits, and is not meant
for hostile files. Failures raise Damage.
"""
import ctypes
import json
import struct
import sys

FILE_MAGIC, CHUNK_MAGIC = b"\x89PROF\r\n\x1a", b"\x9fCHUNK\n\xf1"
DATA, CHECKPOINT, TRAILER = 1, 2, 3
FULL_INDEX = 1
SEGMENTS, SCHEMA, ENTRIES, GAPS = 1, 2, 3, 4
VALUES, NULLS, LENGTHS, BYTES = 0, 1, 2, 3
DICTIONARY, TIMED = 1, 2
NULLABLE, LIST = 1, 2
TYPES = {1: "uint", 2: "int", 3: "bool", 4: "enum", 5: "time", 6: "ref", 7: "float", 8: "text", 9: "binary"}
UNITS = {0: "", 1: "ns", 2: "bytes", 3: "count", 4: "address", 5: "Hz"}
ENTRY_FIELDS = "gap sequence kind flags table stream segment epoch rows t_min t_max stored raw link".split()
WORD = 2**64


class Damage(Exception):
    """A validity condition failed; the text begins with the condition's number."""


def demand(condition, number, what):
    if not condition:
        raise Damage(f"{number}: {what}")


def function(library, name, result, *arguments):
    found = getattr(ctypes.CDLL(library), name)
    found.restype, found.argtypes = result, arguments
    return found


XXH3 = function("libxxhash.so.0", "XXH3_64bits_withSeed", ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64)
ZSTD = function("libzstd.so.1", "ZSTD_decompress", ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)


def xxh3(seed, data):
    return XXH3(bytes(data), len(data), seed)


def unzstd(data, size):
    room = ctypes.create_string_buffer(max(size, 1))
    demand(ZSTD(room, size, bytes(data), len(data)) == size, "G6", "no frame of this size")
    return room.raw[:size]


def inflate(data, size):
    demand(len(data) <= size, "G6", "stored more than raw")
    return data if len(data) == size else unzstd(data, size)


# ---- sections 3 and 4 ---------------------------------------------------------------------------


def file_header(data):
    demand(len(data) >= 256, "F1", "too short")
    good = [r for r in (data[:128], data[128:256]) if r[:8] == FILE_MAGIC and struct.unpack_from("<Q", r, 120)[0] == xxh3(0, r[:120])]
    demand(good, "F2", "both copies are bad")
    version, size, compat, incompat, uuid, salt = struct.unpack_from("<IIQQ16sQ", good[0], 8)
    demand(version == 1 and size == 256 and not incompat, "F3", "unsupported")
    return {"copies": len(good), "compat": compat, "incompat": incompat, "uuid": uuid.hex(), "salt": salt}


class Chunk:
    FIELDS = "kind flags table stream sequence segment epoch rows groups t_min t_max stored raw checksum link reserved".split()

    def __init__(self, data, at, salt):
        demand(at % 8 == 0 and at + 96 <= len(data), "C1", "no room for a header")
        header = data[at : at + 96]
        demand(header[:8] == CHUNK_MAGIC, "C2", "no magic")
        demand(struct.unpack_from("<Q", header, 8)[0] == xxh3(salt, header[16:]), "C2", "header checksum")
        self.offset = at
        self.__dict__.update(zip(self.FIELDS, struct.unpack_from("<HHHHQIIIIQQIIQQQ", header, 16)))
        demand(self.stored <= 64 << 20, "C2", "payload too large")
        demand(at + 96 + self.stored <= len(data), "C4", "the file ends inside")
        self.payload = data[at + 96 : at + 96 + self.stored]
        self.end = at + 96 + (self.stored + 7) // 8 * 8
        self.whole = self.checksum == xxh3(salt, self.payload)


# ---- section 5 ----------------------------------------------------------------------------------


def residues(raw, n, width):
    return [int.from_bytes(raw[i : n * width : n], "little") if width else 0 for i in range(n)]


def numbers(n, order, width, stored, base, step):
    demand(width <= 8, "G6", "width")
    r = residues(inflate(stored, n * width), n, width)
    if order == 0:
        return [(base + x) % WORD for x in r]
    values = []
    if order == 1:
        for i, x in enumerate(r):
            values.append((base + x if i == 0 else values[-1] + step + x) % WORD)
    elif order == 2:
        top = base
        for x in r:
            values.append((top - (x >> 1 ^ -(x & 1))) % WORD)
            top = max(top, values[-1])
    elif order == 3:
        values = [(step + i - x) % WORD if x else 0 for i, x in enumerate(r)]
    else:
        return None
    return values


class Group:
    """One row group: its parts by (column, part), and where the next group starts."""

    def __init__(self, payload, at):
        demand(at + 32 <= len(payload), "G1", "no room for a group")
        self.rows, n_parts, stored, _, self.t_min, self.t_max = struct.unpack_from("<IIIIQQ", payload, at)
        demand(1 <= self.rows <= 1 << 16 and n_parts <= 256, "G1", "rows or parts")
        at += 32
        position = at + 24 * n_parts
        demand(position + stored <= len(payload), "G1", "parts behind the payload")
        self.end = position + stored
        self.parts = {}
        for i in range(n_parts):
            column, form, width, size, base, step = struct.unpack_from("<HBBIQQ", payload, at + 24 * i)
            part = (form & 15, width & 15, width >> 4, payload[position : position + size], base, step)
            demand((column, form >> 4) not in self.parts, "G4", "a part twice")
            self.parts[column, form >> 4] = part
            position += size
        demand(position == self.end, "G1", "stored is not the sum of its parts")

    def numbers(self, column, part, n):
        order, width, flags, stored, base, step = self.parts[column, part]
        return None if flags else numbers(n, order, width, stored, base, step)

    def column(self, definition):
        """Returns the values of a column, or None if the column is absent."""
        id_, type_, flags = definition["id"], definition["type"], definition["flags"]
        if type_ not in TYPES or flags & ~(NULLABLE | LIST):
            return None
        blob = TYPES[type_] in ("text", "binary")
        needed = [BYTES, LENGTHS] if blob else [VALUES, LENGTHS] if flags & LIST else [VALUES]
        if any((id_, part) not in self.parts for part in needed):
            return None
        if blob or flags & LIST:
            lengths = self.numbers(id_, LENGTHS, self.rows)
            demand(sum(lengths) * (1 if blob else 8) <= 64 << 20, "G7", "too many items")
            if blob:
                demand(self.parts[id_, BYTES][1] == 1, "G6", "width of bytes")
                items = inflate(self.parts[id_, BYTES][3], sum(lengths))
            else:
                items = self.numbers(id_, VALUES, sum(lengths))
            values, at = [], 0
            for length in lengths:
                values.append(items[at : at + length])
                at += length
        else:
            values = self.numbers(id_, VALUES, self.rows)
        if flags & NULLABLE and (id_, NULLS) in self.parts:
            nulls = self.numbers(id_, NULLS, self.rows)
            values = [None if null else value for null, value in zip(nulls, values)]
        return values


def groups(payload, n_groups, n_rows):
    at, rows, found = 0, 0, []
    while at < len(payload):
        found.append(Group(payload, at))
        at, rows = found[-1].end, rows + found[-1].rows
    demand(len(found) == n_groups and rows == n_rows, "G2", "not the groups and rows of the header")
    return found


# ---- sections 6 and 7 ---------------------------------------------------------------------------


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        size = struct.calcsize(form)
        demand(self.at + size <= len(self.data), "S3", "the schema ends too soon")
        self.at += size
        return struct.unpack_from(form, self.data, self.at - size)

    def name(self):
        (length,) = self.take("<B")
        (name,) = self.take(f"<{length}s")
        demand(1 <= length <= 64 and 0 not in name, "S1", "a name")
        return name.decode()


def schema(section):
    size, _ = struct.unpack_from("<II", section)
    demand(size <= 1 << 20, "K3", "schema too large")
    data = Bytes(inflate(section[8:], size))
    tables = {}
    for _ in range(data.take("<H")[0]):
        id_, flags, n = data.take("<HHH")
        table = {"id": id_, "flags": flags, "name": data.name(), "columns": []}
        for _ in range(n):
            column = dict(zip(("id", "ref", "type", "unit", "order", "flags"), data.take("<HHBBBB")))
            column["name"] = data.name()
            if column["type"] == 4:
                column["values"] = [data.name() for _ in range(data.take("<B")[0])]
            table["columns"].append(column)
        tables[id_] = table
    demand(data.at == len(data.data), "S3", "something behind the schema")
    return tables


def checkpoint(chunk):
    demand(chunk.whole, "K1", "payload checksum")
    sections, at = {}, 0
    while at < len(chunk.payload):
        tag, size = struct.unpack_from("<II", chunk.payload, at)
        demand(at + 8 + size <= len(chunk.payload), "K1", "a section behind the payload")
        sections[tag] = chunk.payload[at + 8 : at + 8 + size]
        at += 8 + (size + 7) // 8 * 8
    demand({SEGMENTS, SCHEMA, ENTRIES} <= set(sections), "K2", "a section is missing")
    segments = [
        dict(zip(("boot_id", "start", "wall", "wall_error", "number", "first_epoch"), record))
        for record in struct.iter_unpack("<16sQqQII", sections[SEGMENTS])
    ]
    gaps = list(struct.iter_unpack("<QQ", sections.get(GAPS, b"")))
    return segments, schema(sections[SCHEMA]), entries(chunk, sections[ENTRIES]), gaps


def entries(chunk, section):
    """Returns the entries of the chunks that a checkpoint lists, with the chunks' offsets."""
    n_rows, n_groups = struct.unpack_from("<II", section)
    found, position = [], 256
    for group in groups(section[8:], n_groups, n_rows):
        columns = [group.numbers(i, VALUES, group.rows) for i in range(len(ENTRY_FIELDS))]
        for row in zip(*columns):
            entry = dict(zip(ENTRY_FIELDS, row))
            first_at_link = not found and chunk.link and not chunk.flags & FULL_INDEX
            entry["offset"] = chunk.link if first_at_link else position + entry["gap"]
            position = entry["offset"] + 96 + (entry["stored"] + 7) // 8 * 8
            demand(position <= chunk.offset, "K5", "an entry behind its checkpoint")
            found.append(entry)
    return found


# ---- section 9 ----------------------------------------------------------------------------------


class Capture:
    """The header, segments, tables by id and data chunks of a capture, found by the index or, with
    walk=True or without an index, by going from one chunk's header to the next.

    cut=True skips missing parts instead of raising Damage: holes (offset, end), whose rows are
    unknown, and lost chunks, which are damaged. A hole that a gap of the file explains is not
    listed. self.end is the end of the last chunk.
    """

    def __init__(self, data, walk=False, cut=False):
        self.header = file_header(data)
        self.data, self.cut = data, cut
        self.salt = self.header["salt"]
        self.segments, self.tables, self.chunks, self.gaps, self.holes, self.lost = [], {}, [], set(), [], []
        self.end = len(data)
        self.finished = self.by_index()
        if walk or not self.finished:
            self.by_walk()

    def by_index(self):
        try:
            trailer = Chunk(self.data, len(self.data) - 96, self.salt)
            demand(trailer.kind == TRAILER and trailer.stored == 0, "T1", "no trailer")
            chain = [Chunk(self.data, trailer.link, self.salt)]
            demand(chain[0].kind == CHECKPOINT and chain[0].end == trailer.offset, "T2", "no index")
            while chain[-1].link and not chain[-1].flags & FULL_INDEX:
                demand(chain[-1].link < chain[-1].offset, "K6", "a link that does not lead back")
                chain.append(Chunk(self.data, chain[-1].link, self.salt))
            read = [checkpoint(index) for index in reversed(chain)]
        except Damage:
            return False
        for sections in read:
            self.take_entries(*sections)
        return True

    def take_entries(self, segments, tables, found, gaps):
        self.take(segments, tables, gaps)
        for entry in found:
            try:
                chunk = Chunk(self.data, entry["offset"], self.salt)
                differ = [f for f in ENTRY_FIELDS[1:] if f not in ("flags", "raw") and getattr(chunk, f) != entry[f]]
                demand(not differ, "C6", f"header and entry differ in {differ}")
            except Damage:
                if not self.cut:
                    raise
                self.lost.append(entry["offset"])
                continue
            if chunk.kind == DATA:
                self.chunks.append(chunk)

    def take(self, segments, tables, gaps):
        known = [segment["number"] for segment in self.segments]
        self.segments += [segment for segment in segments if segment["number"] not in known]
        for id_, table in tables.items():
            if len(table["columns"]) > len(self.tables.get(id_, {"columns": []})["columns"]):
                self.tables[id_] = table
        self.gaps |= set(gaps)

    def chunk_at(self, at, above):
        """Returns the chunk at an offset; None if one of the conditions C1 to C4 fails, or if its
        sequence number is not above `above`."""
        try:
            chunk = Chunk(self.data, at, self.salt)
        except Damage:
            return None
        return chunk if above < chunk.sequence <= at // 8 else None

    def next_chunk(self, at, before):
        """Returns the next chunk, found as in section 9, step 5."""
        above = before.sequence if before else -1
        chunk = self.chunk_at(at, above)
        is_doubtful = before and not before.whole
        if chunk and (chunk.sequence == above + 1 or not is_doubtful):
            return chunk
        start = before.offset + 96 if is_doubtful else at
        return next(filter(None, (self.chunk_at(p, above) for p in range(start, len(self.data) - 95, 8))), None)

    def by_walk(self):
        self.segments, self.tables, self.chunks, self.gaps, self.lost = [], {}, [], set(), []
        walked, holes, at = [], [], 256
        while at < len(self.data):
            chunk = self.next_chunk(at, walked[-1] if walked else None)
            if not chunk:
                break
            if chunk.offset != at or chunk.sequence != (walked[-1].sequence if walked else -1) + 1:
                holes.append((min(at, chunk.offset), chunk.offset))
            if chunk.kind == CHECKPOINT and (chunk.whole or not self.cut):
                self.take(*(checkpoint(chunk)[i] for i in (0, 1, 3)))
            walked.append(chunk)
            at = chunk.end
        self.end = min(at, len(self.data))
        demand(self.cut or at >= len(self.data), "C2", "no chunk")
        ends = {offset + size: offset for offset, size in self.gaps}
        for chunk, behind in zip(walked, [*walked[1:], None]):
            is_gap = behind and behind.offset in ends and ends[behind.offset] <= chunk.offset  # C10
            if chunk.kind == DATA and not is_gap:
                self.chunks.append(chunk)
        self.holes = [hole for hole in holes if ends.get(hole[1], len(self.data)) > hole[0]]
        demand(self.cut or not self.holes, "C3", "a hole")

    def table(self, name):
        return next(table for table in self.tables.values() if table["name"] == name)

    def rows(self, name):
        """Yields (row, chunk) for each row of a table, in file order. A row is a dict by column name,
        without absent columns."""
        table = self.table(name)
        for chunk in self.chunks:
            if chunk.table != table["id"]:
                continue
            if not chunk.whole and self.cut:
                self.lost.append(chunk.offset)
                continue
            demand(chunk.whole, "C5", "payload checksum")
            for group in groups(chunk.payload, chunk.groups, chunk.rows):
                columns = {column["name"]: group.column(column) for column in table["columns"]}
                present = {key: values for key, values in columns.items() if values is not None}
                for row in zip(*present.values()):
                    yield dict(zip(present, row)), chunk


def printable(value):
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def main(path):
    with open(path, "rb") as file:
        capture = Capture(file.read())
    for table in capture.tables.values():
        for row, chunk in capture.rows(table["name"]):
            print(json.dumps({"table": table["name"], "epoch": chunk.epoch, **{k: printable(v) for k, v in row.items()}}))


if __name__ == "__main__":
    main(sys.argv[1])
