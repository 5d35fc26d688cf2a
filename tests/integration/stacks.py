# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Code that the tests of stacks share: programs without frame pointers, and their recorded chains.

A chain is the names of the frames of a sample's user part, leaf first, joined by ";". An expected
chain is a regular expression. Most programs spend nearly all of their time in spin(); only samples
there are checked.
"""
import re
import shlex
import subprocess
from collections import Counter

import pytest

from recordings import compiled, recorded

# main() and its callers. Only the debug files of libc name the function that calls main().
MAIN = r"main(;libc\.so\.6\+\w+|;__libc_start_call_main)?;__libc_start_main\w*;_start"
CLONE = r"(__clone3|clone3|__GI___clone3|clone|__clone|libc\.so\.6\+\w+)"
THREAD = r"(start_thread|libc\.so\.6\+\w+);" + CLONE
# The code to which a signal handler returns.
SIGRETURN = r"(__restore_rt|libc\.so\.6\+\w+)"

HEAD = r"""
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __cplusplus
#define ALONE __attribute__((noinline)) /* a function that stays one */
#else
#define ALONE __attribute__((noipa))
#endif
#define BEHIND __asm__ volatile("" ::: "memory") /* behind a call: not a tail call */

static long cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Where the samples are. */
ALONE void spin(int ms)
{
	volatile long turns = 0;
	long end = cpu_ms() + ms;

	do
		for (int i = 0; i < 100000; i++)
			turns = turns + 1;
	while (cpu_ms() < end);
	BEHIND;
}
#line 1 "test"
"""


def build(folder, name, source, *flags, head=HEAD):
    """Compiles C, C++ (name.cc) or assembly (name.s) without frame pointers into folder/name."""
    stem, _, suffix = name.partition(".")
    suffix = suffix or "c"
    text = (head if suffix in ("c", "cc") else "") + source
    compiler = "g++" if suffix == "cc" else "gcc"
    return compiled(folder / f"{stem}.{suffix}", text, compiler, "-O2", "-fomit-frame-pointer", "-w", *flags)


class Together:
    """Commands that share a recording and run one after the other, because starting a recording
    takes longer than most of them run.

    The samples of a command are found by the name of its processes, which is the name of its
    program.
    """

    def __init__(self, *options):
        self.options, self.makers, self.built = options, {}, {}
        self.capture = self.samples = None

    def add(self, name, make):
        """make(folder) returns the command."""
        assert len(name) < 16 and name not in self.makers, name
        self.makers[name] = make

    def add_program(self, name, source, *flags, suffix="c", arguments=(), prefix=()):
        """Adds a program made by build(). Programs with the same source and flags are built once;
        further names are symbolic links to that file."""

        def make(folder):
            built = self.built.setdefault((source, flags), folder / name)
            if built == folder / name:
                build(folder, f"{name}.{suffix}", source, *flags)
            else:
                (folder / name).symlink_to(built)
            return [*prefix, folder / name, *arguments]

        self.add(name, make)

    def of(self, name, profctl, profcapture, folders):
        """The samples of a command; the first call records all commands. folders: tmp_path_factory."""
        if self.samples is None:
            self.samples = []  # a failed recording is not repeated
            folder = folders.mktemp("together")
            script = ["set -e"]
            for each, make in self.makers.items():
                (folder / each).mkdir()
                script.append(shlex.join(map(str, make(folder / each))))
            self.capture = folder / "test.cap"
            recorded(profctl, *self.options, "-o", self.capture, "--", "sh", "-c", "\n".join(script), timeout=400)
            self.samples = read(profcapture, self.capture)
        return [sample for sample in self.samples if sample.comm == name]


class Sample:
    def __init__(self, row):
        self.comm, self.pid = row["comm"], row["pid"]
        self.method, self.stop = row["user_method"], row["user_stop"]
        self.time_ns = row["time_ns"]
        user = [frame for frame in row["frames"] if frame["kind"] != "kernel" and not frame["inline"]]
        self.names = [frame["name"].partition("(")[0] for frame in user]
        self.images = [(frame["image"] or "").removesuffix(" (deleted)").rpartition("/")[2] for frame in user]
        self.chain = ";".join(self.names)

    def __str__(self):
        return f"{self.method} {self.stop} {self.chain}"


def read(profcapture, capture):
    rows = profcapture.json("dump", capture, "--table", "sample", "--resolve", "--limit", 0)["data"]["rows"]
    return [Sample(row) for row in rows]


def at(samples, place="spin"):
    """The samples whose leaf is the function `place`."""
    return [sample for sample in samples if sample.names[:1] == [place]]


def started(samples):
    """Drops the first samples of each process, for which the tables of its files were not ready in
    time."""
    ready, kept = set(), []
    for sample in samples:
        if sample.stop != "no-table":
            ready.add(sample.pid)
        if sample.pid in ready:
            kept.append(sample)
    return kept


def settled(samples):
    """Drops samples whose stacks end at a page that was not in memory, or in an image whose table no
    earlier sample of the process has used, because the tables of a large program may be late on a busy
    machine."""
    used, kept = set(), []
    for sample in samples:
        if (sample.method, sample.stop) == ("cfi", "root"):
            used.update((sample.pid, image) for image in sample.images)
        is_early = sample.stop == "no-table" and (sample.pid, *sample.images[-1:]) not in used
        if sample.stop != "copy-end" and not is_early:
            kept.append(sample)
    return kept


def expect(samples, chain, method="cfi", stop="root", least=30, share=0.99):
    """Checks that `share` of the samples have this whole chain, method and end."""
    if stop != "no-table":
        samples = started(samples)
    assert len(samples) >= least, f"only {len(samples)} samples"
    pattern = re.compile(chain)
    others = [sample for sample in samples if (sample.method, sample.stop) != (method, stop)
              or not pattern.fullmatch(sample.chain)]
    if len(samples) - len(others) < share * len(samples):
        counted = Counter(map(shorten, others)).most_common(5)
        shown = "\n".join(f"{n:6} {text}" for text, n in counted)
        pytest.fail(f"{len(others)} of {len(samples)} are not {method} {stop} {chain} but\n{shown}")


def shorten(sample):
    text = re.sub(r"(?<=;)([^;]+);(?:\1;){3,}", lambda m: f"{m[1]}×{m[0].count(';')};", str(sample))
    return text if len(text) < 1000 else f"{text[:500]} … {text[-400:]}"
