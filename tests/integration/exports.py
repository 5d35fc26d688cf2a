# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Readers of the formats of `export`, which return each stack's frames from the root inwards, and a
comparison with report."""
import base64
import collections
import gzip
import itertools
import json
import re
import struct
import xml.etree.ElementTree


def names(rows, key):
    """Sums row[key] by name, because functions of different images may have the same name."""
    counts = collections.Counter()
    for row in rows:
        counts[row["name"]] += row[key]
    return +counts


def check(data, stacks):
    """Compares stacks, each (functions from the root inwards, samples), with report's data."""
    own, total = collections.Counter(), collections.Counter()
    for path, samples in stacks:
        own[path[-1]] += samples
        for name in set(path):
            total[name] += samples
    assert sum(own.values()) == data["self_total"]
    assert own == names(data["rows"], "self")
    # a sample with two functions of the same name counts once in `total`, but twice in report's
    # rows
    assert all(total[name] <= count for name, count in names(data["rows"], "total").items())
    assert sum(total.values()) >= 0.9 * sum(names(data["rows"], "total").values())


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Returns {number: [value, …]} of a protocol buffers message."""
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        else:
            assert key & 7 == 0
        found[key >> 3].append(value)
    assert at == len(data)
    return found


def packed(data):
    values, at = [], 0
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def read_pprof(data):
    """Returns the types of values, and for each sample (frames, values, labels). Frames go from the
    root inwards, each (name, file, line, is inlined)."""
    profile = fields(gzip.decompress(data))
    strings = [text.decode("utf-8") for text in profile[6]]
    assert strings[0] == "" and len(set(strings)) == len(strings)
    types = [(strings[t[1][0]], strings[t[2][0]]) for t in map(fields, profile[1])]
    functions = {f[1][0]: (strings[f[2][0]], strings[(f[4] or [0])[0]]) for f in map(fields, profile[5])}
    mappings = {m[1][0]: strings[m[5][0]] for m in map(fields, profile[3])}
    assert len(functions) == len(profile[5]) and len(mappings) == len(profile[3])
    locations = {}
    for location in map(fields, profile[4]):
        assert location[2] == [] or location[2][0] in mappings
        lines = [fields(line) for line in location[4]][::-1]
        assert location[1][0] not in locations
        locations[location[1][0]] = [(*functions[line[1][0]], (line[2] or [0])[0], n > 0) for n, line in enumerate(lines)]
    samples = []
    for sample in map(fields, profile[2]):
        values = packed(sample[2][0])
        assert len(values) == len(types)
        labels = {strings[label[1][0]]: label for label in map(fields, sample[3])}
        frames = [frame for number in packed(sample[1][0])[::-1] for frame in locations[number]]
        samples.append((frames, values, labels))
    return types, samples


def firefox_paths(profile):
    """Returns, for each row of the stack table, its frames from the root inwards, each (name, file, line,
    depth of inlining)."""
    shared = profile["shared"]
    for name, table in shared.items():
        if name != "stringArray":
            assert all(len(column) == table["length"] for key, column in table.items() if key != "length"), name
    texts, stacks, functions, sources = (shared[name] for name in ("stringArray", "stackTable", "funcTable", "sources"))
    frames = []
    for i, func in enumerate(shared["frameTable"]["func"]):
        source = functions["source"][func]
        file = None if source is None else texts[sources["filename"][source]]
        frames.append((texts[functions["name"][func]], file, shared["frameTable"]["line"][i], shared["frameTable"]["inlineDepth"][i]))
    paths = []
    for i in range(stacks["length"]):
        offset = stacks["prefixOffset"][i]
        assert 0 <= offset <= i
        paths.append((paths[i - offset] if offset else []) + [frames[stacks["frame"][i]]])
    return paths


def read_chrome(data):
    """Returns the events of a trace, and for each thread with samples (pid, tid, [(frames, time in
    microseconds), …]), with frames from the root inwards. From a time with the frames ["(idle)"] to
    the next time, the thread has no samples."""
    events, threads, nodes, at = json.loads(data)["traceEvents"], {}, {}, {}
    for event in events:
        assert {"name", "cat", "ph", "pid", "tid", "ts"} <= set(event) and event["ph"] in "MPXBiC"
        key = event["pid"], event.get("id")
        if event["name"] == "Profile":
            assert key not in threads
            at[key], nodes[key], threads[key] = event["args"]["data"]["startTime"], {}, (event["pid"], event["tid"], [])
        elif event["ph"] == "P":
            chunk = event["args"]["data"]
            for node in chunk["cpuProfile"].get("nodes", []):
                assert node["id"] not in nodes[key]
                above = nodes[key][node["parent"]] if "parent" in node else None
                nodes[key][node["id"]] = [] if above is None else above + [node["callFrame"]["functionName"]]
            for number, delta in zip(chunk["cpuProfile"]["samples"], chunk["timeDeltas"], strict=True):
                assert delta >= 0
                at[key] += delta
                threads[key][2].append((nodes[key][number], at[key]))
    return events, list(threads.values())


SAMPLE = re.compile(r"(\S.*?) +(\d+)/(\d+) +(?:\[(\d{3,})\] )?+ *(\d+\.\d{9}): +(\d+) (\S+): ?")
FRAME = re.compile(r"\t *([0-9a-f]+) (.+?)(?:\+0x([0-9a-f]+))? \((\S+)\)")


def read_perf_script(text):
    """Returns the samples of perf script's text: comm, pid, tid, cpu, time, period, event, and frames from the
    root inwards, as (name, address, offset in the function, image)."""
    samples = []
    assert text == "" or text.endswith("\n\n")
    for block in text.split("\n\n")[:-1]:
        head, *lines = block.split("\n")
        comm, pid, tid, cpu, time, period, event = SAMPLE.fullmatch(head).groups()
        frames = [FRAME.fullmatch(line).groups() for line in lines]
        frames = [(name, int(address, 16), shift and int(shift, 16), image) for address, name, shift, image in frames]
        samples.append((comm, int(pid), int(tid), cpu and int(cpu), float(time), int(period), event, frames[::-1]))
    return samples


def perf_name(frame):
    """Returns the name of a frame in report, which names a frame without a symbol by its image and
    address."""
    name, address, _, image = frame
    return f"{image.rpartition('/')[2].replace('[kernel.kallsyms]', '[kernel]')}+0x{address:x}" if name == "[unknown]" else name


SVG = "{http://www.w3.org/2000/svg}"


def read_svg(data):
    """Returns the root element, and the boxes of a flame graph in the order of the tree: (depth,
    name, value, value in the older capture, attributes, element)."""
    root = xml.etree.ElementTree.fromstring(data)
    boxes = []
    for group in root.find(f"{SVG}g[@id='boxes']"):
        rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title").text
        boxes.append((round((float(rect.get("y")) - 72) / 17), title.split("\n")[0], float(group.get("data-v", "nan")),
                      float(group.get("data-b", "0")), rect.attrib, group))
    return root, boxes


def svg_stacks(boxes):
    """Returns the stacks with self values: ([outermost, …], value). No branch of the graph may be
    hidden."""
    path, stacks = [], []
    for depth, name, value, *_ in boxes:
        del path[depth:]
        if path:
            path[-1][1] -= value
        path.append([name, value])
        stacks.append(([name for name, _ in path[1:]], path[-1]))
    return [(names, entry[1]) for names, entry in stacks if entry[1]]


def read_page(page):
    """Returns the data in a page of --to html: the header, and the columns of numbers."""
    text = page.read_text(encoding="utf-8")
    raw = gzip.decompress(base64.b64decode(re.search(r'id="data">([^<]*)<', text)[1]))
    (length,) = struct.unpack_from("<I", raw)
    header, at, columns = json.loads(raw[4:4 + length]), 4 + length, {}
    for column in header["columns"]:
        rows = column["rows"]
        if "value" in column:
            columns[column["name"]] = [column["value"] / column["scale"]] * rows
            continue
        packed = bytearray(8 * rows)
        for k in range(column["bytes"]):
            packed[k::8] = raw[at + k * rows:at + (k + 1) * rows]
        at += rows * column["bytes"]
        numbers = struct.unpack(f"<{rows}Q", packed)
        if column["delta"]:
            numbers = itertools.accumulate(numbers)
        columns[column["name"]] = [n / column["scale"] for n in numbers]
    assert at == len(raw)
    for table in "samples", "places":
        columns.setdefault(f"{table}.weight", [n * header["capture"]["sample_weight"] for n in columns.get(f"{table}.count", [])])
    return header, columns


def write_page(like, page, header, columns):
    """Writes a page like `like`, but with other data: `header`, whose list of columns is replaced, and
    `columns`, {name: [whole number, …]}."""
    listed = [{"name": name, "rows": len(numbers), "bytes": 4, "delta": False, "scale": 1} for name, numbers in columns.items()]
    text = json.dumps({**header, "columns": listed}).encode()
    planes = b"".join(struct.pack(f"<{len(numbers)}I", *numbers)[k::4] for numbers in columns.values() for k in range(4))
    data = base64.b64encode(gzip.compress(struct.pack("<I", len(text)) + text + planes, 1)).decode()
    page.write_text(re.sub(r'(id="data">)[^<]*', lambda found: found[1] + data, like.read_text(encoding="utf-8")), encoding="utf-8")
    return page
