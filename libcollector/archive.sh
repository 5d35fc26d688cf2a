#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause-Patent
# archive.sh CC OBJCOPY AR INTERNAL-ARCHIVE ARCHIVE FOLDER: one object of all of it, in which hidden names are local.
set -eu
mkdir -p "$6"
"$1" -r -nostdlib -o "$6/profcollector.o" -Wl,--whole-archive "$4" -Wl,--no-whole-archive
"$2" --localize-hidden "$6/profcollector.o"
rm -f "$5"
"$3" rcs "$5" "$6/profcollector.o"
