# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Code that tests of recordings share: programs to record, waiting, the list of our processes, and
reading the result."""
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

RUN = f"PROF_TEST_RUN={os.getpid()}\0".encode()

# Spends its time in a function inlined into an inlined function; tests know its line numbers.
INLINED_SPIN = """\
volatile unsigned long sink;
static inline unsigned long mix(unsigned long a)
{
	return (((a * 2654435761u ^ a >> 7) * 2654435761u ^ a >> 5) * 2654435761u ^ a >> 3) * 2654435761u ^ a >> 1; /* line 4 */
}
static inline unsigned long twice(unsigned long a)
{
	return mix(mix(a) + 1); /* line 8 */
}
__attribute__((noinline)) static void spin(void)
{
	unsigned long a = sink;
	for (int i = 0; i < 100000; i++)
		a = twice(a); /* line 14 */
	sink = a;
}
int main(void)
{
	for (;;)
		spin(); /* line 20 */
}
"""

# Uses about a fifth of a CPU: enough for samples, and it leaves the rest to other tests.
BUSY = """\
#include <time.h>
int main(void)
{
	for (;;) {
		for (volatile int i = 0; i < 1000000; i++)
			;
		nanosleep(&(struct timespec){ .tv_nsec = 8000000 }, NULL);
	}
}
"""


def compiled(source, text, *command, anew=False):
    """Writes a source file, compiles it into a program of the same name without a suffix, and returns
    the program's path. Unless `anew`, a command without paths runs only once for each build folder;
    later calls copy the program. Its debug information names the source in the build folder."""
    program = source.with_suffix("")
    source.write_text(text)
    if anew or any("/" in str(word) for word in command):
        subprocess.run([*command[:1], "-o", program, source, *command[1:]], check=True, timeout=120)
        return program
    compiler = os.stat(shutil.which(command[0]))
    key = hashlib.sha256(repr((source.name, text, command, compiler.st_mtime_ns)).encode()).hexdigest()
    kept = Path(os.environ["PROF_BUILD_DIR"], "test-programs", key[:32], source.name)
    if not kept.with_suffix("").exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = kept.with_name(f"{os.getpid()}.new")
        new.write_text(text)
        new.rename(kept)  # in one step, because another run may read the file
        subprocess.run([*command[:1], "-o", new, kept, *command[1:]], check=True, timeout=120)
        new.rename(kept.with_suffix(""))
    return shutil.copy(kept.with_suffix(""), program)


def stolen_ns(since=0):
    """Returns the time that the host took from all CPUs since the call that returned `since`; without
    `since`, that time plus a constant. The kernel counts this time as steal or not at all. Because
    the kernel counts in ticks, the difference may be negative; then 0 is returned."""
    fields = Path("/proc/stat").read_text().split()[1:8]
    counted = sum(map(int, fields)) * 10**9 // os.sysconf("SC_CLK_TCK")
    return max(0, os.cpu_count() * time.monotonic_ns() - counted - since)


def until(condition, timeout=20):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def cpu_seconds(pid):
    """Returns the CPU time of a process's first thread so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def whole_cpu_seconds(pid):
    """Returns the CPU time of all threads of a process and of its reaped children, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def let_run(pid, seconds=0.1):
    """Waits until the process's first thread has had this much more CPU time, so that the number of
    its samples does not depend on how busy the machine is."""
    end = cpu_seconds(pid) + seconds
    until(lambda: cpu_seconds(pid) >= end, 60)


def wait_for_samples(capture, seconds=0.5, more_than=0):
    """Waits until the capture has more than `more_than` samples, and then for `seconds`. The
    recorder writes rows every second."""
    seen = 0

    def has_samples():
        nonlocal seen
        size = capture.stat().st_size if capture.exists() else 0
        if size == seen:
            return False
        seen = size
        done = subprocess.run([os.environ["PROFCAPTURE"], "info", "--json", capture], stdout=subprocess.PIPE, check=False)
        return done.returncode == 0 and json.loads(done.stdout)["capture"]["samples"] > more_than

    until(has_samples)
    time.sleep(seconds)


def without_loss(record, lost):
    """Repeats record() until lost(result) is 0, five times at most. On a busy machine the engine may
    get no CPU for longer than programs wait for it; then it loses records and reports how many."""
    for _ in range(5):
        result = record()
        if lost(result) == 0:
            break
    return result


def end_when_recorded(target, record, *options):
    """Returns the output of `profctl record`, started by record(), for a target that waits for the end
    of its standard input. The target ends when sampling has begun, so its end is an event of the
    recording."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            recording = record("--control", theirs.fileno(), "-p", target.pid, *options, pass_fds=[theirs.fileno()])
        assert ours.recv(4096), "the recording ended before it began"
        target.stdin.close()
        return recording.communicate(timeout=60)[0]


def processes(name=None):
    """Returns the pids of this test run, without those of parallel runs: the processes with this name,
    or, without a name, all except this process."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if name in (None, (folder / "comm").read_text(errors="replace").strip()) and RUN in (folder / "environ").read_bytes():
                found.add(int(folder.name))
        except OSError:
            pass
    return found - {os.getpid()}


def children(pid):
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found[text.partition("(")[2].rpartition(")")[0]] = int(stat.parent.name)
    return found


def recorded(profctl, *arguments, **options):
    """Records, and returns the data of the summary. --json comes first, because options after a
    command belong to the command."""
    done = profctl("record", "--json", *arguments, **options)
    return json.loads(done.stdout.splitlines()[-1])["data"]


def recorded_without_loss(profctl, *arguments, **options):
    """Like recorded(), but repeats a recording that has lost records."""
    data = without_loss(lambda: recorded(profctl, "--force", *arguments, **options), lambda data: data["lost"])
    assert data["lost"] == 0, data["loss"]
    return data


def info(profcapture, capture):
    return profcapture.json("info", capture)["capture"]
