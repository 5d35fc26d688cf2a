# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Unusual uses of the allocator, with libprofpreload-memory.so preloaded and a stand-in for the
engine: the program is not hurt, and each call is recorded, from any process, thread or handler, and
before any constructor."""
import collections
import ctypes.util
import itertools
import json
import math
import os
import signal
import subprocess

import pytest
from shares import SIGMAS
from slices import SOAK, part

STAND_IN = os.environ["STAND_IN"]
ZOO = os.environ["HEAP_ZOO"]
PRELOAD = os.environ["LIBPROFPRELOAD_MEMORY"]

ALLOC, FREE, REALLOC, CALLS = 9, 10, 15, 16
SIZES = (1009, 2003)  # the sizes of blocks that the zoo counts
CONTROL_WAIT_MS = 500  # CONTROL_WAIT_NS of the library, in ms
MMAP_KINDS = (10, 11, 12)
UNMAP_KINDS = (7, 8)


class Heap:
    """The blocks that are live after all records of a process. `unknown`, `twice`: addresses that
    were freed although not live, or allocated although live."""

    def __init__(self, records):
        events = []
        for record in records:
            if record["type"] == ALLOC:
                events.append((record["time"], 1, record["address"], record["size"], 0))
            elif record["type"] == FREE:
                events.append((record["time"], 0, record["address"], 0, 0))
            elif record["address"] or record["freed"]:
                events.append((record["time"], 0, record["prior"], 0, 1))
                if record["address"]:
                    events.append((record["time"] + record["duration"], 1, record["address"], record["size"], record["prior"]))
        self.live, self.unknown, self.twice = {}, [], []
        self.allocs = self.frees = self.reallocs = 0
        for _, tied in itertools.groupby(sorted(event for event in events if event[2]), key=lambda event: event[0]):
            self.apply(sorted(tied, key=lambda event: 1 if event[1] else 2 * (event[2] not in self.live)))

    def apply(self, tied):
        """Applies records of the same time: ends of existing blocks first, other ends last."""
        for _, is_there, address, size, prior in tied:
            if not is_there:
                was = self.live.pop(address, None)
                if was is None:
                    self.unknown.append(address)
                self.frees += was in SIZES and not prior
                continue
            if address in self.live:
                self.twice.append(address)
            self.live[address] = size
            self.reallocs += size in SIZES and bool(prior)
            self.allocs += size in SIZES and not prior


class Recorded:
    def __init__(self, output, results):
        lines = json.loads("[" + ",".join(output.read_text().splitlines()) + "]")
        self.peers = [line for line in lines if "peer" in line]
        self.records = [line for line in lines if line.get("type") in (ALLOC, FREE, REALLOC)]
        self.calls = [line for line in lines if line.get("type") == CALLS]
        self.logs = [line["text"] for line in lines if line.get("type") == 8]
        self.said, self.slowest_ms = collections.Counter(), collections.Counter()
        for line in results.read_text().splitlines() if results.exists() else ():
            pid, *counts, slowest_us = map(int, line.split())
            self.slowest_ms[pid] = max(self.slowest_ms[pid], slowest_us / 1000)
            for name, count in zip(("allocs", "frees", "reallocs"), counts):
                self.said[pid, name] += count
        self.said = +self.said

    def of(self, pid):
        return [record for record in self.records if record["pid"] == pid]

    def heaps(self):
        return {pid: Heap(self.of(pid)) for pid in {record["pid"] for record in self.records}}

    def counted(self):
        return +collections.Counter(
            {(pid, name): getattr(heap, name) for pid, heap in self.heaps().items() for name in ("allocs", "frees", "reallocs")}
        )

    def check_counts(self):
        """Checks that each call is recorded, or counted as lost."""
        said, counted = self.said, self.counted()
        assert len(said) > 0
        assert +(counted - said) == {}
        # if a block's begin is lost, its end is recorded as the end of an unknown block
        missing = sum(count for (pid, name), count in (said - counted).items() if name != "frees" and pid not in self.gave_up())
        assert missing <= self.sum("lost") + self.sum("no_ring") + self.sum("abandoned")

    def gave_up(self):
        """Returns the processes that waited too long for their ring, on a busy machine. The engine
        reports such a process; the stand-in does not."""
        return {pid for pid, ms in self.slowest_ms.items() if ms >= CONTROL_WAIT_MS and not self.of(pid)}

    def sum(self, name):
        return sum(peer[name] for peer in self.peers)


@pytest.fixture
def run(tmp_path):
    """run("fork") runs a mode of the zoo, or a command, with the stand-in's options."""

    def start(command, *options, status=0, memory="all", preload=(PRELOAD,), ring=1 << 20, policy=("--lossless",), env=None):
        output, results = tmp_path / "output", tmp_path / "results"
        results.unlink(missing_ok=True)
        command = [ZOO, *command.split()] if isinstance(command, str) else command
        environment = {"LD_PRELOAD": " ".join(map(str, preload)), "PROF_MEMORY": memory, "ZOO_RESULTS": str(results), **(env or {})}
        done = subprocess.run(
            [STAND_IN, "--output", output, "--records", *policy, "--rings", "32", "--bytes", str(ring), *map(str, options), "--",
             "env", *(f"{name}={value}" for name, value in environment.items()), *map(str, command)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", timeout=100,
        )
        assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
        recorded = Recorded(output, results)
        for peer in recorded.peers:
            counted = sum(peer[name] for name in ("records", "abandoned", "unpublished", "lost"))
            assert peer["attempted"] == counted, peer
            assert peer["fault"] == "none", peer
        return recorded

    return start


MODES = ["plain", "dlsym", "dlopen", "dlmopen", "fork", "fork-threads", "atfork", "raw-clone", "vfork", "spawn", "exec", "threads", "reuse",
         "destructors", "exit", "small-stacks"]


@pytest.mark.parametrize("mode", MODES)
def test_zoo(run, mode):
    recorded = run(mode)
    recorded.check_counts()
    assert {peer["wants"] for peer in recorded.peers if peer["peer"] not in recorded.gave_up()} == {1}
    made = [record for record in recorded.records if record["type"] == ALLOC]
    assert sum(record["stack"] == 0 for record in made) <= len(made) / 100


def test_namespace(run):
    """In another namespace of the loader, libc has a second heap. This heap is not recorded, and a
    log line says so."""
    assert run("dlmopen").logs == ["no allocation is recorded of a namespace of its own, with libc.so.6"]
    assert run("plain").logs == []


def test_deep_binding(run):
    """A module that binds to libc's own names makes calls that cannot be seen: this is reported
    once."""
    (log,) = run("dlopen").logs
    assert "RTLD_DEEPBIND" in log and log.endswith(" libm.so.6")


CALLER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
int main(void) { return !dlopen("found.so", RTLD_NOW | RTLD_DEEPBIND); }
"""


def test_run_path(run, compile_c):
    """A module is searched for in its caller's run path, although our function calls the real
    dlopen()."""
    module = compile_c("found.so", "int found;", "-shared", "-fPIC")
    run([compile_c("caller", CALLER, f"-Wl,-rpath,{module.parent},--enable-new-dtags")])


@pytest.mark.parametrize("mode,number", [("kill", signal.SIGKILL), ("abort", signal.SIGABRT)])
def test_killed(run, mode, number):
    """All calls before the kill are recorded."""
    recorded = run(mode, status=128 + number)
    assert recorded.counted() == recorded.said and len(recorded.said) == 3


FIRST = ["malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc", "free", "usable",
         "mmap", "sbrk"]


@pytest.mark.parametrize("name", FIRST)
def test_early(run, name):
    """The very first call, before libc is initialized, is recorded."""
    recorded = run(f"early {name}", memory="all,mmap")
    assert recorded.counted() == recorded.said and len(recorded.said) == 3


def test_kinds(run):
    recorded = run("kinds")
    known = [record for record in recorded.records if 100000 < record.get("size", 0) < 100100 or record.get("size", 0) > 1 << 60]
    allocs = [(record["kind"], record["size"], record["alignment"], record["address"] != 0) for record in known if record["type"] == ALLOC]
    huge = 1 << 63
    assert allocs == [
        (0, 100001, 0, True), (1, 100005, 0, True), (4, 100013, 12, True), (5, 100032, 6, True), (6, 100017, 8, True), (7, 100019, 12, True),
        (8, 100021, 12, True), (0, 100023, 0, True), (5, 100064, 5, True), (0, 100025, 0, True), (0, 100027, 0, True), (0, huge, 0, False),
        (1, 2**64 - 1, 0, False), (4, 100029, 5, False), (4, huge, 6, False),
    ]
    changes = [(record["kind"], record["size"], bool(record["prior"]), bool(record["address"]), record["freed"])
               for record in recorded.records if record["type"] == REALLOC and (record in known or record["size"] == 0)]
    assert changes == [
        (2, 100007, True, True, 0), (3, 100010, True, True, 0), (2, 100011, False, True, 0), (2, huge, True, False, 0),
        (3, 2**64 - 1, True, False, 0), (2, 0, True, False, 1),
    ]
    (pid,) = recorded.heaps()
    heap = Heap(recorded.of(pid))
    assert heap.unknown == heap.twice == []
    kinds = collections.Counter(record["kind"] for record in recorded.records if record["type"] == FREE)
    assert kinds[1] == kinds[2] == kinds[3] == 1
    assert not [size for size in heap.live.values() if 100000 < size < 100100]
    assert sum(record["type"] == ALLOC and record["size"] == 0 for record in recorded.records) == 1


def test_kinds_by_size(run):
    recorded = run("kinds", memory="min=100001")
    made = {record["kind"] for record in recorded.records if record["type"] == ALLOC and record["address"]}
    assert {0, 1, 4, 5, 6, 7, 8} <= made


def test_mappings(run):
    recorded = run("mappings", memory="mmap")
    page = 4096
    assert {record["type"] for record in recorded.records} == {ALLOC, FREE, REALLOC}
    made = [(record["kind"], record["size"] // page, record["address"] != 0) for record in recorded.records if record["type"] != FREE]
    assert made == [(10, 4, True), (10, 1, True), (11, 64, True), (10, 0, False), (12, 3, True)]
    ended = [(record["kind"], record["pages"]) for record in recorded.records if record["type"] == FREE]
    assert ended == [(7, 1), (7, 1), (7, 64), (8, 1), (8, 2)]
    recorded = run("mappings")
    assert not [record for record in recorded.records if record["kind"] in (MMAP_KINDS if record["type"] != FREE else UNMAP_KINDS)]


REFUSED = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
int main(void)
{
    size_t bytes = 1 << 20;
    char *at = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *other = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, 12345, 0) != MAP_FAILED ||
           mremap(at + 1, 4096, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, other) != MAP_FAILED;
}
"""


def test_refused_mappings(run, compile_c):
    """Calls that the kernel refuses leave existing blocks live."""
    recorded = run([compile_c("refused", REFUSED)], memory="mmap")
    assert [record for record in recorded.records if record["type"] == FREE] == []
    assert [record["address"] != 0 for record in recorded.records] == [True, True, False, False]


# Simulates another thread that finds a block as early as possible, to test that the block is recorded
# by then.
WATCHER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
void *slot;
int was_seen;
int posix_memalign(void **ret_address, size_t alignment, size_t bytes)
{
    int (*next)(void **, size_t, size_t) = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    int r = next(ret_address, alignment, bytes);
    was_seen = slot != NULL;
    return r;
}
"""
WATCHED = r"""
#include <stdlib.h>
extern void *slot;
extern int was_seen;
int main(void) { return posix_memalign(&slot, 64, 100003) != 0 || !slot || was_seen; }
"""


def test_seen_late(run, compile_c):
    """A thread that sees a block may free it, so the block must be recorded before any thread sees it."""
    library = compile_c("watcher", WATCHER, "-shared", "-fPIC")
    recorded = run([compile_c("watched", WATCHED, library, f"-Wl,-rpath,{library.parent}")])
    (made,) = [record for record in recorded.records if record.get("size") == 100003]
    assert made["kind"] == 4 and made["address"] != 0


def test_handler(run):
    """A handler's calls are counted as lost if it interrupts the few instructions during which no
    handler may write."""
    recorded = run("handler", memory="all,mmap")
    recorded.check_counts()
    assert sum(recorded.said.values()) > 600


def test_siglongjmp(run):
    """If a handler abandons a record by a jump, later records are not lost with it."""
    recorded = run("siglongjmp", memory="all,mmap")
    recorded.check_counts()
    assert sum(recorded.said.values()) > 600
    assert sum(record["type"] == REALLOC for record in recorded.records) >= 20


def test_filtered(run):
    """In a thread that starts under a seccomp filter, the library makes no system call for which
    the filter kills, and records have stacks."""
    recorded = run("filtered", "--no-growth")
    recorded.check_counts()
    assert recorded.sum("no_ring") > 0
    made = [record for record in recorded.records if record["type"] == ALLOC]
    assert sum(record["stack"] == 0 for record in made) <= len(made) / 100


def test_order(run):
    """With blocks that pass between threads, no address has two live blocks at a time, and every
    freed block was live."""
    for _ in range(5 if SOAK else 2):
        recorded = run("reuse", env={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"})
        (heap,) = [heap for heap in recorded.heaps().values() if heap.allocs]
        assert recorded.sum("lost") == 0
        assert heap.twice == heap.unknown == []
        assert not [size for size in heap.live.values() if size in SIZES]


def test_lost(run):
    """Lost calls are counted like recorded ones."""
    whole = run("plain", ring=1 << 22)
    cut = run("plain", "--deaf", ring=4096, policy=())
    assert whole.sum("lost") == 0 and cut.sum("lost") > 1000
    assert cut.sum("attempted") == whole.sum("attempted")


def test_dormant(run):
    """Nothing is recorded without a session, or without PROF_MEMORY."""
    assert run("fork", memory="").peers == []
    assert run("fork", env={"PROF_CONTROL": "unix:/nonexistent"}).peers == []
    assert run("fork", "--refuse", 1).records == []


# ---- Recording of only some blocks ----


def test_least(run):
    recorded = run("reuse", memory="min=1009")
    (heap,) = [heap for heap in recorded.heaps().values() if heap.allocs]
    assert recorded.counted() == recorded.said
    assert all(record["size"] >= 1009 for record in recorded.records if record["type"] == ALLOC)
    assert heap.unknown == heap.twice == []
    assert run("plain", memory="min=1000000").sum("allocs") < 5


def test_sampled(run):
    """The weight of a block is 1 divided by the probability that the block is recorded, and only
    recorded blocks have a recorded end."""
    mean, estimate, true = 4096, 0, 0
    for _ in range(2):
        recorded = run("plain", memory=f"sample={mean}")
        for heap in recorded.heaps().values():
            assert heap.unknown == heap.twice == []
        estimate += sum(1 / (1 - math.exp(-record["size"] / mean)) for record in recorded.records
                        if record["type"] == ALLOC and record["kind"] == 0 and record["size"] == SIZES[0])
        true += sum(count for (_, name), count in recorded.said.items() if name == "allocs")
    chance = 1 - math.exp(-SIZES[0] / mean)
    assert abs(estimate / true - 1) < SIGMAS * math.sqrt((1 - chance) / chance / true)


REALLOCS = r"""
#include <stdlib.h>
int main(void)
{
    void *block = malloc(1000);
    for (int i = 0; i < 40000; i++)
        block = realloc(block, 1000);
    free(block);
    return 0;
}
"""


def test_sampled_realloc(run, compile_c):
    """The bytes of a realloc() are counted once, whether the old block was recorded or not."""
    recorded = run([compile_c("reallocs", REALLOCS)], memory="sample=4096")
    chosen = sum(record["size"] == 1000 and record["address"] != 0 for record in recorded.records if record["type"] in (ALLOC, REALLOC))
    expected = 40000 * (1 - math.exp(-1000 / 4096))
    assert abs(chosen - expected) < 6 * math.sqrt(expected)


FULL = r"""
#include <stdlib.h>
#define N 1200000
static void *blocks[N];
int main(void)
{
    for (int i = 0; i < N; i++)
        blocks[i] = malloc(24);
    for (int i = 0; i < N; i++)
        blocks[i] = realloc(blocks[i], 40);
    return 0;
}
"""


def test_full_set(run, compile_c):
    """A block counts as lost if its end could not be recognized later; so does the result of a
    realloc() that ended a recorded block."""
    recorded = run([compile_c("full", FULL)], "--deaf", memory="min=24", ring=4096, policy=())
    assert recorded.sum("attempted") + recorded.sum("no_ring") > 2 * 1200000 + 10000


INEXACT = r"""
#include <fenv.h>
#include <stdlib.h>
int main(void)
{
    feclearexcept(FE_ALL_EXCEPT);
    for (int i = 0; i < 1000; i++)
        free(realloc(malloc(1000), 2000));
    return fetestexcept(FE_ALL_EXCEPT) != 0;
}
"""


def test_exceptions(run, compile_c):
    """The program's floating-point flags are unchanged, because a program may trap exceptions."""
    recorded = run([compile_c("inexact", INEXACT, "-fno-builtin", "-lm")], memory="sample=1000")
    assert recorded.sum("records") > 500


# A library that allocates when its function free_sized() is looked up by name, as our search for the
# allocator does.
RESOLVER_LIBRARY = r"""
#include <stdlib.h>
void *kept;
static void release(void *block, size_t size) { free(block); }
static void *resolve(void) { kept = malloc(10); return release; }
void free_sized(void *block, size_t size) __attribute__((ifunc("resolve")));
"""
RESOLVER = r"""
#include <stdlib.h>
extern void *kept;
int main(void) { free(malloc(1)); free(realloc(kept, 100000)); return 0; }
"""


@pytest.mark.parametrize("memory", ["all", "sample=1000000000"])
def test_pool(run, compile_c, memory):
    """A block allocated while the allocator is being looked up is never passed to that allocator's
    free() or realloc()."""
    library = compile_c("resolver-library", RESOLVER_LIBRARY, "-shared", "-fPIC")
    run([compile_c("resolver", RESOLVER, library, f"-Wl,-rpath,{library.parent}")], memory=memory)


# ---- Other allocators ----

LIBRARIES = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4", "mimalloc": "libmimalloc.so.2"}
SOME = ["plain", "fork", "threads", "reuse", "destructors", "dlopen", "early malloc", "early posix_memalign"]


@pytest.fixture(params=LIBRARIES)
def allocator(request):
    try:
        ctypes.CDLL(LIBRARIES[request.param], mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError:
        found = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
        if LIBRARIES[request.param] not in found:
            pytest.skip(f"{LIBRARIES[request.param]} is not installed")
    return LIBRARIES[request.param]


def check_operators(recorded, allocator):
    """Checks that the log says that calls of the allocator's operator new are not recorded."""
    (log,) = {log for log in recorded.logs if "RTLD_DEEPBIND" not in log}
    assert log.startswith("allocations by C++'s operator new are not recorded, because it is that of /") and allocator in log


@pytest.mark.parametrize("mode", part(SOME, 4))
def test_behind(run, allocator, mode):
    recorded = run(mode, preload=[PRELOAD, allocator], env={"ZOO_ERRNO_LOST": "1"} if "mimalloc" in allocator else None)
    recorded.check_counts()
    check_operators(recorded, allocator)


@pytest.mark.parametrize("mode", part(SOME, 4))
def test_before(run, allocator, mode):
    """If the other allocator is preloaded before us, only calls of functions that it lacks reach us,
    and we pass them on."""
    recorded = run(mode, preload=[allocator, PRELOAD], env={"ZOO_ERRNO_LOST": "1"} if "mimalloc" in allocator else None)
    assert len(recorded.said) >= 3
    assert recorded.sum("allocs") == 0
    (log,) = set(recorded.logs)
    assert log.startswith("no allocation is recorded, because the program's allocator is /") and allocator in log


LINKED = r"""
#include <stdlib.h>
#include <string.h>
void *reallocarray(void *, size_t, size_t);
int main(void)
{
    for (int i = 0; i < 1000; i++) {
        char *block = malloc(1009), *other = reallocarray(NULL, 1, 1009);
        memset(block, 1, 1009);
        block = reallocarray(block, 1, 2003);
        if (!block || block[1008] != 1) return 1;
        free(block);
        free(other);
    }
    return 0;
}
"""


def test_linked(run, allocator, tmp_path, compile_c):
    found = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    (path,) = {line.split()[-1] for line in found.splitlines() if line.split()[:1] == [allocator]}
    program = compile_c("linked", LINKED, "-fno-builtin", "-Wl,--no-as-needed", path)
    recorded = run([program])
    (heap,) = [heap for heap in recorded.heaps().values() if heap.allocs]
    assert (heap.allocs, heap.reallocs, heap.frees, heap.unknown) == (2000, 1000, 2000, [])
    check_operators(recorded, allocator)


STATIC_ALLOCATOR = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
static char heap[1 << 22]; static size_t used;
void *malloc(size_t n) { char *p = heap + used + 16; used += (n + 47) & ~(size_t)15; memcpy(p - 8, &n, 8); return used > sizeof(heap) ? NULL : p; }
void free(void *p) { if (p && ((char *)p < heap || (char *)p >= heap + sizeof(heap))) __builtin_trap(); }
void *calloc(size_t n, size_t m) { void *p = malloc(n * m); return p ? memset(p, 0, n * m) : NULL; }
void *realloc(void *p, size_t n) { void *q = malloc(n); size_t m = 0; if (p) { memcpy(&m, (char *)p - 8, 8); memcpy(q, p, m < n ? m : n); free(p); } return q; }
void *reallocarray(void *, size_t, size_t);
int dlclose(void *library) { return ((int (*)(void *))dlsym(RTLD_NEXT, "dlclose"))(library); }
int main(void)
{
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
    char *block = malloc(1009);
    if (!library || dlclose(library) != 0) return 1;
    block[1008] = 1;
    block = reallocarray(block, 1, 2003);
    if (!block || block[1008] != 1) return 1;
    free(block);
    return 0;
}
"""


@pytest.mark.parametrize("flags", [["-rdynamic", "-fPIE", "-pie"], ["-rdynamic", "-fno-pie", "-no-pie"]])
def test_own(run, compile_c, flags):
    """The program has its own allocator without reallocarray(): the library's reallocarray() must
    use the program's blocks, not libc's."""
    recorded = run([compile_c("own", STATIC_ALLOCATOR, "-fno-builtin", *flags)])
    assert recorded.sum("allocs") == 0
    (log,) = recorded.logs
    assert log.endswith("/own")


# ---- The locks of the loader ----

# Code that allocates while the loader's locks are held: when it is loaded, and when it is closed.
LATE_LIBRARY = r"""
#include <stdlib.h>
void hold(void *(*work)(void *));
__attribute__((noinline)) static void *deeper(int n)
{
    void *block = n > 0 ? deeper(n - 1) : malloc(1009);
    __asm__ volatile("" : "+r"(block));
    return block;
}
void *work(void *data)
{
    void *block = realloc(deeper(10), 2003);
    free(block);
    return block;
}
__attribute__((constructor)) static void load(void) { hold(work); }
__attribute__((destructor)) static void unload(void) { hold(work); }
"""

# Threads of the program wait, and allocate for the first time while the main thread holds all locks
# of the loader.
LOCK_HOLDER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#define ROUNDS 2
#define THREADS 2
static void *(*_Atomic task)(void *);
static atomic_int turn, n_done;
static int failed;
static void *wait_for_turn(void *data)
{
    int mine = (int)(long)data;
    while (atomic_load(&turn) != mine) usleep(200);
    for (int i = 0; i < 10; i++) task(NULL);
    atomic_fetch_add(&n_done, 1);
    return NULL;
}
static int keep(struct dl_phdr_info *info, size_t size, void *data)
{
    atomic_store(&n_done, 0);
    atomic_fetch_add(&turn, 1);
    for (int i = 0; i < 50000 && atomic_load(&n_done) < THREADS; i++) usleep(200);
    failed |= atomic_load(&n_done) < THREADS;
    return 1;
}
void hold(void *(*work)(void *))
{
    atomic_store(&task, work);
    dl_iterate_phdr(keep, NULL);
}
int main(int argc, char **argv)
{
    pthread_t threads[ROUNDS * THREADS];
    void *library;
    for (long i = 0; i < ROUNDS * THREADS; i++)
        if (pthread_create(&threads[i], NULL, wait_for_turn, (void *)(1 + i / THREADS))) return 1;
    library = dlopen(argv[1], RTLD_NOW);
    if (!library || failed) return 2;
    dlclose(library);
    if (failed) return 3;
    for (int i = 0; i < ROUNDS * THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
"""


@pytest.fixture(scope="module")
def lock_holder(compile_c):
    return compile_c("holder", LOCK_HOLDER, "-rdynamic", "-pthread")


@pytest.mark.parametrize("flags", [["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables"], ["-fomit-frame-pointer"]], ids=["fp", "cfi"])
@pytest.mark.parametrize("memory", ["all,mmap", "sample=1"])
def test_loader_locked(run, compile_c, lock_holder, flags, memory):
    """No hook takes a lock of the loader, neither to find a stack, nor for the first record of a
    thread."""
    library = compile_c("late", LATE_LIBRARY, "-O1", "-fno-optimize-sibling-calls", "-shared", "-fPIC", *flags)
    recorded = run([lock_holder, library], memory=memory)
    blocks = [record for record in recorded.records if record["type"] in (ALLOC, REALLOC) and record["size"] in SIZES]
    assert len(blocks) == 2 * 2 * 2 * 10 and all(record["stack"] for record in blocks)


# Allocates twice from each of 256 stacks, in code that has no file in /proc/self/maps, or in a
# process that cannot read /proc/self/maps.
NAMELESS = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#define PLACED __attribute__((noinline, section("placed")))
static void *volatile kept;
PLACED __attribute__((aligned(4096))) void descend(int bits, int depth)
{
    if (depth == 0) { kept = malloc(1009); free(kept); }
    else if (bits & 1) descend(bits >> 1, depth - 1);
    else { __asm__ volatile("nop"); descend(bits >> 1, depth - 1); }
    __asm__ volatile("");
}
static void *work(void *data)
{
    for (int i = 0; i < 512; i++) descend(i & 255, 8);
    return NULL;
}
static int in_chroot(const char *folder)
{
    int status = 1;
    if (fork() == 0) {
        if (chroot(folder) || chdir("/")) _exit(2);
        work(NULL);
        _exit(0);
    }
    wait(&status);
    return status != 0;
}
static int in_thread(void)
{
    struct rlimit limit = { 64, 64 };
    pthread_t thread;
    if (setrlimit(RLIMIT_NOFILE, &limit)) return 2;
    while (open("/dev/null", O_RDONLY) >= 0) ;
    if (pthread_create(&thread, NULL, work, NULL)) return 3;
    pthread_join(thread, NULL);
    return 0;
}
static int moved(void)
{
    void *copy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(copy, (void *)(uintptr_t)descend, 4096);
    if (mprotect(copy, 4096, PROT_READ | PROT_EXEC)) return 2;
    if (mremap(copy, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)descend) == MAP_FAILED) return 3;
    work(NULL);
    return 0;
}
int main(int argc, char **argv)
{
    if (strcmp(argv[1], "moved") == 0) return moved();
    kept = malloc(1);
    free(kept);
    return argc > 2 ? in_chroot(argv[2]) : in_thread();
}
"""


@pytest.fixture(scope="module")
def nameless(compile_c):
    return compile_c("nameless", NAMELESS, "-O1", "-fno-optimize-sibling-calls", "-fno-builtin", "-pthread")


@pytest.mark.parametrize("mode", ["chroot", "descriptors", "moved"])
def test_nameless(run, nameless, mode, tmp_path, require):
    """Stacks are complete although their code has no known file, and each stack is sent once."""
    empty = tmp_path / "empty"
    empty.mkdir()
    if mode == "chroot":
        require(root=True)
    recorded = run([nameless, mode, *([empty] if mode == "chroot" else [])])
    blocks = [record for record in recorded.records if record["type"] == ALLOC and record["size"] == 1009]
    assert len(blocks) == 512 and all(record["stack"] for record in blocks)
    assert len({record["stack"] for record in blocks}) == 256
    assert len([record for record in recorded.calls if record["tid"] == blocks[0]["tid"]]) < 256 + 20


NOT_RELOCATABLE = r"""
#include <stdlib.h>
int main(void)
{
    void *(*volatile allocate)(size_t) = malloc;
    void (*volatile release)(void *) = free;
    for (int i = 0; i < 1000; i++) release(allocate(1009));
    return 0;
}
"""


def test_not_relocatable(run, compile_c):
    """In a program that is not relocatable, the address of malloc is in the program itself."""
    recorded = run([compile_c("fixed", NOT_RELOCATABLE, "-fno-builtin", "-fno-pie", "-no-pie")])
    (heap,) = [heap for heap in recorded.heaps().values() if heap.allocs]
    assert (heap.allocs, heap.frees) == (1000, 1000)


ALIGNED_NEW = r"""
#include <new>
struct alignas(64) wide { char bytes[64 * 33]; };
int main()
{
    for (int i = 0; i < 100; i++) {
        delete new wide; delete[] new char[1009];
        delete new (std::nothrow) wide; delete[] new wide[2];
    }
    return 0;
}
"""


def test_new(run, tmp_path, require):
    require("g++")
    source, program = tmp_path / "new.cc", tmp_path / "new"
    source.write_text(ALIGNED_NEW)
    subprocess.run(["g++", "-O0", "-std=c++17", "-o", program, source], check=True, timeout=60)
    recorded = run([program])
    # the function that libstdc++ calls for aligned blocks depends on the release of libstdc++
    allocs = collections.Counter((record["size"], record["alignment"]) for record in recorded.records if record["type"] == ALLOC)
    assert (allocs[2112, 6], allocs[4224, 6], allocs[1009, 0]) == (200, 100, 100)
    (heap,) = [heap for heap in recorded.heaps().values() if heap.allocs]
    assert not [size for size in heap.live.values() if size in (1009, 2112, 4224)]


# ---- Real programs ----


def test_real(run, tmp_path, require):
    """Real programs print the same output, and their records are complete."""
    require("sqlite3")
    query = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) " \
        "insert into t select i, hex(i) from n; select count(*) from t order by b;"
    script = f"test \"$(sqlite3 :memory: '{query}')\" = 5000 && test \"$(PYTHONMALLOC=malloc /usr/bin/python3 -c 'print(sum(range(10)))')\" = 45"
    recorded = run(["sh", "-c", script], ring=1 << 24)
    assert len(recorded.peers) >= 3
    assert recorded.sum("lost") == 0
