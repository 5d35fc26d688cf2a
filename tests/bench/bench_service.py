# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profd on a system bus: its cost when nobody records, and how long a client waits for its first
sample.

Wake-ups are the voluntary context switches of all of profd's threads in ten seconds; memory is
resident memory. The time is from CreateSession to the first sample in the capture, by the
sample's own time, for twenty sessions after three warm-up sessions. It includes the time of
polkitd, dbus-daemon and the kernel.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import bench

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))
import buses  # noqa: E402

EVERYTHING = "polkit.addRule(function(action, subject) { return polkit.Result.YES; });"
GOALS = {"wake-ups": 0, "rss_kib": 8 * 1024, "ms": 30}


def wake_ups(pid):
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                total += int(line.split()[1])
    return total


def resident(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def idle(bus, label):
    time.sleep(1)
    before = wake_ups(bus.profd.pid)
    time.sleep(10)
    print(f"{label}: {wake_ups(bus.profd.pid) - before} wake-ups in 10 s (goal {GOALS['wake-ups']}), "
          f"{resident(bus.profd.pid) / 1024:.1f} MiB resident (goal {GOALS['rss_kib'] / 1024:.0f})")


def first_sample(bus, client, options, capture):
    """Returns the milliseconds until CreateSession has returned, until Start has returned, and
    until the first sample."""
    fd = os.open(capture, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    begin = time.monotonic_ns()
    path = client.create(options, fd)
    created = time.monotonic_ns()
    client.session(path, "Start")
    started = time.monotonic_ns()
    os.close(fd)
    client.sleep(0.3)
    client.session(path, "Stop")
    client.wait("Finished", path)
    client.session(path, "Close")
    dump = subprocess.run(
        [bench.program("PROFCAPTURE", "profcapture"), "dump", capture, "-t", "sample", "--limit", "1", "--format", "ndjson"],
        stdout=subprocess.PIPE, encoding="utf-8", check=True,
    ).stdout.splitlines()
    zero = json.loads(dump[0])["capture"]["start_monotonic_ns"]
    sample = zero + json.loads(dump[1])["time_ns"]
    return [(when - begin) / 1e6 for when in (created, started, sample)]


def main():
    reason = buses.can_run()
    if reason:
        print(f"bench_service: {reason}")
        return
    bus = buses.TestBus()
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        with bus.case():
            bus.start(EVERYTHING)
            idle(bus, "fresh")
            client = bus.client()
            for label, options in (
                ("pids", buses.pids(busy.pid)),
                ("system", buses.SYSTEM),
            ):
                runs = [first_sample(bus, client, options, str(bus.folder / "bench.cap")) for _ in range(23)][3:]
                created, started, sample = (statistics.median(run[i] for run in runs) for i in range(3))
                print(f"{label}: CreateSession answers after {created:.1f} ms, Start after {started:.1f}; first sample after "
                      f"{sample:.1f} ms (goal {GOALS['ms']}; worst {max(run[2] for run in runs):.1f})")
            client.close()
            idle(bus, "after 46 sessions")
    finally:
        busy.kill()
        busy.wait()
        bus.close()


main()
