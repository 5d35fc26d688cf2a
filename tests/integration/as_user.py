# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Runs a program as a user with fewer rights:

    as_user.py [--uid N] [--refuse cpu|all] [--limit NAME=N] COMMAND [ARG…]

    --refuse cpu    CPU-wide perf events are refused, as with kernel.perf_event_paranoid 1 and up
    --refuse all    all perf events are refused, as on Debian's and Ubuntu's kernels with 3 and 4

Root has to start it, because the filter is installed without no_new_privs, so that setuid programs
work as usual. Tests start it often, so it imports little.
"""
import ctypes
import errno
import os
import resource
import struct
import sys

CALLS = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319}
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
PID = 16 + 8  # offsetof(struct seccomp_data, args[1]), the lower half


def refuse(what, error=errno.EACCES):
    """Makes perf_event_open(attr, pid, …) fail: for pid -1 if what is "cpu", else always."""
    number = CALLS[os.uname().machine]
    program = [(LOAD, 0, 0, 0), (EQUAL, 0, 3, number)]
    program += [(LOAD, 0, 0, PID), (EQUAL, 0, 1, 0xFFFFFFFF)] if what == "cpu" else [(EQUAL, 0, 1, number)] * 2
    program += [(RETURN, 0, 0, REFUSE | error), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def main(words):
    uid, refused = 65534, None
    while words[0].startswith("--"):
        option, value, *words = words
        if option == "--uid":
            uid = int(value)
        elif option == "--refuse":
            refused = value
        elif option == "--limit":
            name, _, value = value.partition("=")
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (int(value), int(value)))
        else:
            raise ValueError(option)
    if refused:
        refuse(refused)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main(sys.argv[1:])
