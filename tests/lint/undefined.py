#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Code that a hook can reach calls only libc functions that neither allocate nor lock. The
arguments are archives."""
import subprocess
import sys

import lint

# mmap, munmap and madvise manage memory of our own, such as arenas and call trees. pthread_* and
# __register_atfork are called when the library is loaded. A thread's first record calls
# pthread_setspecific(), which allocates if the program has more than 32 keys; no lock of ours is
# held then. dlsym and dladdr are called by heap-next.c and python-frames.c at the first call of a
# hook, before there is another thread. clock_gettime is in the vdso, or a system call. __*_chk and
# __*_fail are called only if our code has a bug.
ALLOWED = set("""
    memchr memcmp memcpy memmove memset syscall getauxval getpid __errno_location _dl_find_object _r_debug
    mmap mmap64 munmap madvise clock_gettime
    clone dlsym dladdr dladdr1
    pthread_key_create pthread_getspecific pthread_setspecific pthread_atfork __register_atfork __dso_handle environ __environ __libc_single_threaded
    __assert_fail __stack_chk_fail __memcpy_chk __memmove_chk __memset_chk
    _GLOBAL_OFFSET_TABLE_ .TOC.
""".split())
INSTRUMENTATION = ("__asan_", "__tsan_", "__ubsan_", "__sanitizer_", "__llvm_", "__gcov_", "__start_", "__stop_")


def symbols(archive, option):
    listed = subprocess.run(
        ["nm", option, "--format=posix", archive], stdout=subprocess.PIPE, encoding="utf-8", check=True
    ).stdout
    return {line.split()[0] for line in listed.splitlines() if len(line.split()) > 1}


def check(root, *archives):
    """Checks the archives. Without any (in the self-test), compiles a.c."""
    if not archives:
        archives = [root / "a.o"]
        subprocess.run(["cc", "-c", "-O1", "-o", archives[0], root / "a.c"], check=True)
    own = set().union(*(symbols(archive, "--defined-only") for archive in archives))
    for archive in archives:
        for name in sorted(symbols(archive, "--undefined-only") - own - ALLOWED):
            if not name.startswith(INSTRUMENTATION):
                yield f"{archive}: a hook could call {name}"


SOURCE = "void *malloc(unsigned long);\nvoid *f(void);\nint g(void);\n"
SELF_TEST = [
    ({"a.c": SOURCE + "int g(void) { return 1; }\nint h(void) { return g(); }\n"}, 0),
    ({"a.c": SOURCE + "void *f(void) { return malloc(3); }\n"}, 1),
    ({"a.c": SOURCE + "int pthread_mutex_lock(void *);\nvoid *f(void) { pthread_mutex_lock(malloc(3)); return 0; }\n"}, 2),
    ({"a.c": SOURCE + "long syscall(long, ...);\nint h(void) { return syscall(1); }\n"}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
