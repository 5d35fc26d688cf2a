# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Captures of made-up rows, and how each verb of profcapture is called that reads one."""
import os
import subprocess

MAKE_CAPTURE = os.environ["MAKE_CAPTURE"]
HEADER_BYTES = 256
READERS = ["info", "dump", "report", "memory", "marks", "counters", "verify"]
MAKERS = ["recover", "compact", "cut"]


def make(path, *options):
    subprocess.run([MAKE_CAPTURE, *map(str, options), path], check=True, timeout=120)
    return path


def command(verb, file, new=None):
    """The arguments of a verb: what it makes goes to new."""
    options = {"cut": ["--from", "0"]}.get(verb, [])
    return [verb, file, *options, *(["-o", new] if verb in MAKERS else [])]


def unprintable(text):
    """Characters that a terminal would act on; lines and columns may be."""
    return [c for c in text if (ord(c) < 32 and c not in "\n\t") or 0x7f <= ord(c) < 0xa0 or ord(c) in (0x202e, 0x2066, 0xfeff)]


def rows(profcapture, capture, table, *options):
    return profcapture.json("dump", capture, "--table", table, "--limit", 0, *options)["data"]["rows"]
