# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Marks of libprofcollector compared with those of sysprof-capture-4 and lttng-ust: the same
program, built with each, in one run.

Each library uses its default buffers, and drops marks when the buffers are full, as it does by
default. So at full speed, a mark's cost includes that of dropped marks; at 200 000 a second no
library drops any, and the cost includes the program's sleeping. lttng-ust gets a separate sessiond.
Under root, that sessiond belongs to a plain user, because root's sessiond is that of the system.
"""

import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
import time

import bench
import bench_marks

N_DISABLED = "20000000"
MODES = {"flat": ("flat", "2000000"), "arguments": ("arguments", "2000000"), "rate": ("rate", "200000", "2")}
ROUNDS = 3
NOBODY = 65534
SYSPROF_MARK = 10  # SYSPROF_CAPTURE_FRAME_MARK


def load(library):
    return os.environ.get(f"MARK_LOAD_{library.upper()}")


def run_load(*command, **options):
    """Returns how many marks were tried, and the CPU time of a mark in ns."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=60, **options)
    _, tried, ns = done.stdout.split()
    return int(tried), float(ns)


class Profd:
    """Marks of profd, which go into the program's rings and are drained by the engine."""

    def __init__(self, folder, policy="drop"):
        self.path = os.path.join(folder, "profd.cap")
        self.policy = policy

    def measure(self, mode):
        """Returns ns per mark, the share that was recorded, and bytes of the file per recorded
        mark."""
        _, tried, ns, marks, _ = bench_marks.record(self.path, *mode, policy=self.policy)
        return ns, marks["rows"] / tried, os.path.getsize(self.path) / max(marks["rows"], 1)

    def end(self):
        pass


class Lossless(Profd):
    def __init__(self, folder):
        super().__init__(folder, "lossless")


class Sysprof:
    def __init__(self, folder):
        self.path = os.path.join(folder, "sysprof.syscap")

    def measure(self, mode):
        tried, ns = run_load(os.environ["SYSPROF_RECORD"], self.path, load("sysprof"), *mode)
        with open(self.path, "rb") as file:
            data = file.read()
        at, marks = 256, 0
        while at + 24 <= len(data):
            length, _, _, _, kind = struct.unpack_from("<HhiqB", data, at)
            if length == 0:
                break
            marks += kind == SYSPROF_MARK
            at += length
        return ns, marks / tried, len(data) / max(marks, 1)

    def end(self):
        pass


class Lttng:
    def __init__(self, folder):
        self.home = os.path.join(folder, "lttng")
        self.program = os.path.join(self.home, "load")
        self.n = 0
        os.mkdir(self.home)
        self.who = {}
        if os.geteuid() == 0:
            self.who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            os.chmod(folder, 0o755)
            os.chown(self.home, NOBODY, NOBODY)
        bench.run("cp", load("lttng"), self.program)
        self.env = {**os.environ, "LTTNG_HOME": self.home, "HOME": self.home}
        self.daemon = subprocess.Popen(["lttng-sessiond", "--no-kernel"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True, env=self.env, **self.who)

    def lttng(self, *command):
        return subprocess.run(["lttng", "--no-sessiond", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=True, timeout=30, env=self.env, **self.who).stdout

    def create(self, trace):
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.lttng("create", "bench", "--output", trace)
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def measure(self, mode):
        self.n += 1
        trace = os.path.join(self.home, f"trace-{self.n}")
        self.create(trace)
        self.lttng("enable-event", "--userspace", "prof_bench:*")
        self.lttng("start")
        tried, ns = run_load(self.program, *mode, env=self.env, **self.who)
        self.lttng("stop")
        lost = sum(int(n) for n in re.findall(r"Discarded events: (\d+)", self.lttng("list", "bench")))
        self.lttng("destroy", "bench")
        size = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(trace) for name in names)
        return ns, (tried - lost) / tried, size / max(tried - lost, 1)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.daemon.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.daemon.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.daemon.pid, signal.SIGKILL)
        self.daemon.wait()


def measure_all(library, recorder, folder):
    """Returns the results by mode, without those that cannot be measured."""
    found = {"disabled": min(run_load(load(library), "flat", N_DISABLED)[1] for _ in range(ROUNDS))}
    peer = recorder(folder)
    try:
        for mode, command in MODES.items():
            rounds = [peer.measure(command) for _ in range(ROUNDS)]
            found[mode] = min(ns for ns, _, _ in rounds)
            found[mode + " share"] = 100 * sorted(share for _, share, _ in rounds)[ROUNDS // 2]
            found[mode + " bytes"] = rounds[0][2]
    except (subprocess.SubprocessError, OSError) as error:
        print(f"{library} cannot be measured here: {error}")
    finally:
        peer.end()
    return found


ROWS = {"disabled": "nobody records, CPU ns a mark"}
for mode_name, mode_what in {"flat": "a mark, 2 M flat out", "arguments": "a mark with two numbers, 2 M flat out",
                             "rate": "the same, 200 k a second for 2 s"}.items():
    ROWS[mode_name] = mode_what + ", CPU ns"
    ROWS[mode_name + " share"] = "  recorded, %, median"
    ROWS[mode_name + " bytes"] = "  bytes of the file a mark that is recorded"


def print_table(title, ours, theirs):
    table = bench.Table(title)
    for key, what in ROWS.items():
        if key in ours:
            table.row(what, ours[key], theirs.get(key))


def main():
    with bench.scratch() as folder:
        ours = measure_all("profd", Profd, folder)
        print_table("Marks, lossless beside dropping", measure_all("profd", Lossless, folder), ours)
        for library, recorder, needs in ("sysprof", Sysprof, "SYSPROF_RECORD"), ("lttng", Lttng, "MARK_LOAD_LTTNG"):
            if needs not in os.environ:
                print(f"{library} cannot be measured here: built without it, see `./dev setup --peers`")
                continue
            print_table(f"Marks, dropping, beside {library}", ours, measure_all(library, recorder, folder))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
