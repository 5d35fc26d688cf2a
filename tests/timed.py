#!/usr/bin/python3 -S
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Runs one test for `meson test --wrapper` and appends its wall and CPU time, in seconds, to a file
of JSON lines.

    timed.py FILE COMMAND…

The CPU time is that of the command and of every process that it waited for. A process that the
test leaves to init, such as a daemon that forked twice, is not counted.
"""
import json
import os
import resource
import signal
import subprocess
import sys
import time


def main(times, *command):
    start = time.monotonic()
    with subprocess.Popen(command) as test:
        for number in signal.SIGTERM, signal.SIGINT:
            signal.signal(number, lambda received, frame: test.send_signal(received))
        status = test.wait()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = {"command": command, "wall_s": round(time.monotonic() - start, 3), "cpu_s": round(usage.ru_utime + usage.ru_stime, 3)}
    with open(times, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
