#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause-Patent
# archive.sh CC INTERNAL-ARCHIVE ARCHIVE FOLDER: one object of all of it, in which hidden names are local.
set -eu
mkdir -p "$4"
"$1" -r -nostdlib -o "$4/profcollector.o" -Wl,--whole-archive "$2" -Wl,--no-whole-archive
objcopy --localize-hidden "$4/profcollector.o"
rm -f "$3"
ar rcs "$3" "$4/profcollector.o"
