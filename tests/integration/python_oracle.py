# SPDX-License-Identifier: BSD-2-Clause-Patent
"""A deterministic Python program whose chains of calls are all known.

    python_oracle.py record FILE    write each chain that can exist, by sys.setprofile()
    python_oracle.py run SECONDS    do the same work for this time, in three threads

A chain is innermost first: "python_oracle.NAME@FIRST_LINE:LINE|…". Its outermost function is
once(). The program runs under Python 3.8 and later, so it uses nothing newer."""
import asyncio
import functools
import hashlib
import json
import re
import sys
import threading
import time
import zlib


def spin(n):
    total = 0
    for i in range(n):
        total += i & 7
    return total


def recursion(n):
    return spin(30) if n == 0 else recursion(n - 1) + 1


def even(n):
    return spin(3) if n == 0 else odd(n - 1)


def odd(n):
    return 0 if n == 0 else even(n - 1)


def numbers(n):
    for i in range(n):
        spin(5)
        yield i


def relayed(n):
    yield from numbers(n)


def generators():
    total = sum(spin(3) + x for x in relayed(20))
    list(map(lambda x: x + spin(2), relayed(10)))
    for a, b in zip(numbers(8), relayed(8)):
        total += a * b
    return total


def comprehensions():
    rows = [[spin(3) + i * j for j in range(8)] for i in range(8)]
    return {x for row in rows for x in [v for v in row if v & 1]}, {i: spin(2) for i in range(8)}


class Key:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return spin(2) >= 0 and self.value < other.value

    def __hash__(self):
        return spin(2) + hash(self.value)

    def __eq__(self, other):
        return self.value == other.value

    @property
    def shown(self):
        return spin(3)

    def __getattr__(self, name):
        return spin(2)

    def __call__(self, n):
        return spin(2) + n

    def __iter__(self):
        return Countdown(6)


class Child(Key):
    def __init__(self, value):
        super().__init__(value)
        self.check()

    def check(self):
        return spin(2)


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return spin(2)


def key_of(x):
    return helper(x)


def helper(x):
    return (x * 7919) % 101 + 0 * spin(2)


def compare(a, b):
    return spin(2) * 0 + (a > b) - (a < b)


def hook(value):
    spin(3)
    return value


def replacement(match):
    return match.group(0).upper() + str(spin(2))[:1]


DOCUMENT = json.dumps([{"a": {"b": i, "c": {"d": [i, i]}}} for i in range(10)])


def callbacks():
    data = [(i * 37) % 64 for i in range(48)]
    sorted(data, key=key_of)
    data.sort(key=functools.cmp_to_key(compare))
    sorted([Key(x) for x in data[:20]])
    {Child(x): x for x in data[:12]}
    json.loads(DOCUMENT, object_hook=hook)
    re.sub(r"\w+", replacement, "the quick brown fox jumps over the lazy dog")
    functools.reduce(lambda a, b: a + b + spin(2), data[:16])
    max(filter(key_of, data[:16]), key=key_of)
    key = Child(3)
    key.shown, key.other, key(4), [x for x in key], list(key)


def decorator(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@decorator
@decorator
def decorated(n):
    return spin(n)


def raising(n):
    if n == 0:
        raise ValueError(spin(2))
    try:
        raising(n - 1)
    finally:
        spin(2)


def exceptions():
    for n in (1, 5, 20):
        try:
            raising(n)
        except ValueError:
            spin(4)


def dynamic():
    for k in range(3):
        names = {"spin": spin}
        text = "def outer_%d(n):\n    return inner_%d(n)\ndef inner_%d(n):\n    return spin(n)\n" % (k, k, k)
        exec(compile(text, "<made %d>" % k, "exec"), names)
        for _ in range(10):
            names["outer_%d" % k](6)


DATA = bytes(range(256)) * 128


def without_lock():
    zlib.compress(DATA, 6)
    hashlib.sha256(DATA).digest()


async def leaf(n):
    await asyncio.sleep(0)
    return spin(n)


async def values(n):
    for _ in range(n):
        await asyncio.sleep(0)
        yield spin(4)


async def middle(n):
    total = await leaf(n)
    async for value in values(3):
        total += value
    return total + spin(4)


async def gathered():
    return sum(await asyncio.gather(*[middle(i + 3) for i in range(5)]))


def once(loop):
    recursion(60)
    even(40)
    generators()
    comprehensions()
    callbacks()
    decorated(9)
    exceptions()
    dynamic()
    without_lock()
    if loop:
        loop.run_until_complete(gathered())


def in_thread(stop):
    while not stop.is_set():
        once(None)


def module_of(path):
    """Returns the module's name as profd derives it from the file of a code object."""
    if path.startswith("<frozen "):
        return path[8:-1]
    if path.startswith("<"):
        return path
    below = re.search(r"^.*?/(?:site-packages|dist-packages|python3[.0-9]*t?(?!/(?:site|dist)-packages))/(.*)$", path)
    return re.sub(r"(/__init__)?\.py$", "", below.group(1) if below else path.split("/")[-1]).replace("/", ".")


def name_of(code):
    name = getattr(code, "co_qualname", code.co_name)
    return "%s.%s@%d" % (module_of(code.co_filename), name, code.co_firstlineno)


def record(path, loop):
    chains, generators = set(), set()

    def profile(frame, event, _):
        if event not in ("call", "c_call"):
            return
        if frame.f_code.co_flags & 0x2A0:
            generators.add(name_of(frame.f_code))
        parts, frame = [name_of(frame.f_code)], frame.f_back
        while frame:
            parts.append("%s:%d" % (name_of(frame.f_code), frame.f_lineno or 0))
            if frame.f_code is once.__code__:
                chains.add("|".join(parts))
                return
            frame = frame.f_back

    sys.setprofile(profile)
    for _ in range(3):
        once(loop)
        once(None)
    sys.setprofile(None)
    with open(path, "w") as file:
        json.dump({"chains": sorted(chains), "generators": sorted(generators)}, file)


def main():
    loop = asyncio.new_event_loop()
    if sys.argv[1] == "record":
        record(sys.argv[2], loop)
        return
    stop = threading.Event()
    threads = [threading.Thread(target=in_thread, args=(stop,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        once(loop)
    stop.set()
    for thread in threads:
        thread.join()


main()
