# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The counts of glibc's own libmemusage for a program, and those of a recording of the same
program: see test_memory_oracle.py.

libmemusage and the recording see the same program: no randomization of addresses or hashes, the
same arguments, and the same environment, except that LD_PRELOAD has another value of the same
length. record_with_memusage() even makes both libraries count in the same processes. Our own
library adds no allocations to those of a program.
"""
import json
import os
import re
import subprocess

from recordings import without_loss

MEMUSAGE = "libmemusage.so"
FIXED = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}
PREFIX = ["setarch", "-R"]
LARGE = 65536


class Usage:
    """One process: its calls, a histogram of their sizes in steps of 16 bytes, and the bytes at the
    peak and at the end. The memalign family is not included, because libmemusage does not count
    it."""

    def __init__(self, calls, sizes, peak, leaked):
        self.calls, self.sizes, self.peak, self.leaked = calls, sizes, peak, leaked

    def key(self):
        return sorted(self.calls.items())

    def __repr__(self):
        return f"{self.calls} peak {self.peak} leaked {self.leaked}"


def usages(text):
    """Returns a Usage for each process, from what libmemusage prints when the process exits."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    found = []
    for part in text.split("Memory usage summary:")[1:]:
        heap, peak = map(int, re.match(r"\s*heap total: (\d+), heap peak: (\d+)", part).groups())
        calls = {}
        for name in ("malloc", "realloc", "calloc", "free"):
            calls[name], size = map(int, re.search(rf"^\s*{name}\|\s+(\d+)\s+(\d+)", part, re.M).groups())
            if name == "free":
                heap -= size
        sizes = {int(start): int(n) for start, n in re.findall(r"^\s*(\d+)-\d+\s+(\d+)\s", part, re.M)}
        sizes.update({LARGE: int(n) for n in re.findall(r"^\s*large\s+(\d+)\s", part, re.M)})
        # libmemusage does not count the bytes that a shrinking realloc() frees
        is_known = int(re.search(r"dec:(\d+)", part).group(1)) == 0
        found.append(Usage(calls, sizes, peak, heap if is_known else None))
    return found


def recorded_usage(process):
    """Returns the Usage of a process in the output of heap-counts."""
    allocs, frees = process["allocs"], process["frees"]
    calls = {
        "malloc": allocs["malloc"],
        "calloc": allocs["calloc"],
        # reallocarray() calls realloc(); realloc() to size 0 ends a block without a new one
        "realloc": allocs["realloc"] + allocs["reallocarray"] + frees["realloc"] + frees["reallocarray"],
        "free": frees["free"] - process["free_aligned"],
    }
    sizes = {int(start): n for start, n in process["sizes"].items()}
    return Usage(calls, sizes, process["peak"], process["leaked_bytes"])


def environment_of_recorded(profctl, capture, extra):
    """Returns the environment of a recorded command."""
    done = profctl("record", "--memory", "-F", "0", "-q", "--force", "-o", capture, "--", "env", "-0", env={**FIXED, **extra}, prefix=PREFIX)
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)


def run_memusage(command, environment, **options):
    preload = environment["LD_PRELOAD"]
    environment = {**environment, "LD_PRELOAD": MEMUSAGE.ljust(len(preload), ":")}
    done = subprocess.run([*PREFIX, *command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, encoding="utf-8", errors="replace", timeout=120, check=True, **options)
    return usages(done.stderr)


def record(profctl, command, capture, extra, *, options=(), **more):
    profctl("record", "--memory", "-F", "0", "-q", "--force", "--no-symbols", *options, "-o", capture, "--", *command,
            env={**FIXED, **extra}, prefix=PREFIX, **more)


TOGETHER = f'export LD_PRELOAD="$LD_PRELOAD:{MEMUSAGE}"; exec "$@"'


def record_with_memusage(profctl, command, capture, extra):
    """Records while libmemusage counts in the same processes, so that even counts that depend on
    addresses are equal. Returns libmemusage's usages."""
    done = profctl("record", "--memory", "-F", "0", "-q", "--force", "--no-symbols", "-o", capture, "--", "/bin/sh", "-c", TOGETHER, "sh",
                   *command, env={**FIXED, **extra}, prefix=PREFIX, stdout=subprocess.DEVNULL)
    return usages(done.stderr)


def heap_counts(capture):
    return json.loads(subprocess.run([os.environ["HEAP_COUNTS"], capture], stdout=subprocess.PIPE, check=True, timeout=120).stdout)


def whole(record, capture):
    """Repeats record() until nothing is lost, five times at most. Returns record()'s result, and the
    recording's counts."""
    return without_loss(lambda: (record(), heap_counts(capture)), lambda result: result[1]["lost"])
