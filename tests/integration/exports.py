# SPDX-License-Identifier: BSD-2-Clause-Patent
"""What `export` writes, read: frames of each stack from the root in; and whether that is what report says."""
import collections
import gzip


def names(rows, key):
    """By name: functions of different images may have the same."""
    counts = collections.Counter()
    for row in rows:
        counts[row["name"]] += row[key]
    return +counts


def check(data, stacks):
    """stacks: (functions from the root in, samples), against what report says."""
    own, total = collections.Counter(), collections.Counter()
    for path, samples in stacks:
        own[path[-1]] += samples
        for name in set(path):
            total[name] += samples
    assert sum(own.values()) == data["self_total"]
    assert own == names(data["rows"], "self")
    # where two functions have one name, a sample that has both counts once here and twice there
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
    """{number: [value, …]} of a protocol buffers message."""
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
    """Types of values, and of each sample its frames from the root in, as (name, file, line, is it inlined), values and labels."""
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
    """By stack: frames from the root in, as (name, file, line, into how many it is inlined)."""
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
