# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Runs a program as a user with fewer rights:

    as_user.py [--uid N] [--refuse cpu|all] [--limit NAME=N] COMMAND [ARG…]

    --refuse cpu    perf events of everything on a CPU are refused, as with kernel.perf_event_paranoid 1 and up
    --refuse all    all perf events are refused, as on Debian's and Ubuntu's kernels with 3 and 4

Root has to start it: the filter is installed without no_new_privs, so that setuid programs work
as usual.
"""
import argparse
import ctypes
import errno
import os
import platform
import resource
import struct

CALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319}
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
PID = 16 + 8  # offsetof(struct seccomp_data, args[1]), the lower half


def refuse(what, error=errno.EACCES):
    """Makes perf_event_open(attr, pid, …) fail: for pid -1 if what is "cpu", else always."""
    number = CALLS[platform.machine()]
    program = [(LOAD, 0, 0, 0), (EQUAL, 0, 3, number)]
    program += [(LOAD, 0, 0, PID), (EQUAL, 0, 1, 0xFFFFFFFF)] if what == "cpu" else [(EQUAL, 0, 1, number)] * 2
    program += [(RETURN, 0, 0, REFUSE | error), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--uid", type=int, default=65534)
    parser.add_argument("--refuse", choices=["cpu", "all"])
    parser.add_argument("--limit", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    for limit in options.limit:
        name, _, value = limit.partition("=")
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(value), int(value)))
    if options.refuse:
        refuse(options.refuse)
    os.setgroups([])
    os.setresgid(options.uid, options.uid, options.uid)
    os.setresuid(options.uid, options.uid, options.uid)
    os.execvp(options.command[0], options.command)


if __name__ == "__main__":
    main()
