#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause-Patent
# archive.sh OBJCOPY AR INTERNAL-ARCHIVE ARCHIVE FOLDER CC…: links INTERNAL-ARCHIVE into one object,
# makes its hidden names local, and makes ARCHIVE from it. FOLDER: gets the object. CC…: the
# compiler, which may be several words, such as `ccache gcc`.
set -eu
objcopy=$1 ar=$2 internal=$3 archive=$4 object=$5/profcollector.o
mkdir -p "$5"
shift 5
"$@" -r -nostdlib -o "$object" -Wl,--whole-archive "$internal" -Wl,--no-whole-archive
"$objcopy" --localize-hidden "$object"
rm -f "$archive"
"$ar" rcs "$archive" "$object"
