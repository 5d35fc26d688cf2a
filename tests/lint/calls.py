#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Some functions are dangerous if strangers control their arguments; only a few files may call
them."""
import re
import sys

import lint

# A process that reads sockets also receives descriptors. close() of a descriptor's last copy may
# block as long as a stranger wants.
RECEIVERS = {
    "daemon/broker/sysprof.c": "who sends is told beside the packet; it looks before it reads",
    "daemon/datagram.c": "from profd-files, which is ours",
    "daemon/engine/session/channel.c": "from profd, which is ours",
    "daemon/stranger.c": "looks before it reads",
    "libcollector/register/control-client.c": "in the target, from profd",
    "tools/symbols/debuginfod-child.c": "from our own parent",
    "tools/symbols/debuginfod.c": "from our own child",
    "tools/profctl/command.c": "from our own child",
}
FOREIGN_PATHS = (
    "tools/symbols/debug-", "tools/symbols/jit-", "tools/symbols/symbolize.c",
    "tools/profcapture/annotate", "tools/profcapture/source-text.c", "tools/profctl/live-names.c", "tools/profctl/record-capture.c",
)
RULES = [
    (
        re.compile(r"(?<![\w.>])(?:recv|recvfrom|recvmsg|recvmmsg|SYS_recvmsg)\b(?=\s*[(,])"),
        ("daemon/", "libcollector/", "tools/"),
        RECEIVERS,
        "use stranger_receive() of daemon/stranger.h, or say in tests/lint/calls.py whose packets these are",
    ),
    # A path of a target, a capture or a debug link may lead to a device, a FIFO or a file of /proc.
    (
        re.compile(r"(?<![\w.>])(?:open|openat|fopen|SYS_openat2?)\b(?=\s*[(,])(?!.*O_PATH)"),
        FOREIGN_PATHS,
        {},
        "use regular_file_open() of arch/regular-file.h",
    ),
]


def check(root):
    for path in lint.files(root, ".c", ".h"):
        for pattern, folders, allowed, advice in RULES:
            if not str(path).startswith(folders) or str(path) in allowed:
                continue
            for number, line in lint.lines(root, path):
                found = pattern.search(line)
                if found and not line.lstrip().startswith(("*", "/*")) and "SCMP_SYS" not in line:
                    yield f"{path}:{number}: {found[0]}: {advice}"


SELF_TEST = [
    ({"daemon/broker/a.c": "\tn = recv(fd, packet, 1, 0);\n"}, 1),
    ({"daemon/engine/a.c": "\tn = recvmsg(fd, &message, 0);\n\tr = reader_recv(fd);\n"}, 1),
    ({"daemon/stranger.c": "\tn = recvmsg(fd, &message, 0);\n", "tests/unit/a.c": "recv(fd, b, 1, 0);\n"}, 0),
    ({"tools/symbols/debug-files.c": "\tfd = open(path, O_RDONLY);\n\troot = open(path, O_PATH | O_CLOEXEC);\n"}, 1),
    ({"tools/profcapture/source-text.c": "\tfd = debug_files_open(path);\n"}, 0),
    ({"daemon/broker/a.c": " * recvmsg() closes them\n\tSCMP_SYS(recvmsg),\n"}, 0),
]

if __name__ == "__main__":
    sys.exit(lint.run(check, SELF_TEST))
