#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Makes golden captures: tests/data/make.sh BUILD-FOLDER TO-FOLDER. Existing ones are never replaced:
# see README.md.
set -eu
build=$(realpath "$1")
to=$(realpath "$2")
make() { "$build/tests/tools/make-capture" --chunk-rows 12 --group-rows 5 "$@"; }

# Every table, a table unknown in version 1, two epochs, another segment, and one more epoch of it.
make --rows 14 --epochs 2 --all-tables --foreign-table "$to/tables.cap"
make --rows 2 --first 14 --all-tables --append "$to/tables.cap"
make --rows 2 --first 16 --all-tables --extend "$to/tables.cap"

# A file without a trailer that ends within a chunk; then the same file, continued by another writer
# after a gap.
make --rows 14 --all-tables --crash "$to/cut.cap"
truncate -s -1000 "$to/cut.cap"
cp "$to/cut.cap" "$to/appended.cap"
make --rows 2 --first 14 --append "$to/appended.cap"

# Columns that were added later.
make --rows 14 --all-tables "$to/order.cap"
make --rows 14 --all-tables "$to/fields.cap"
make --rows 14 --all-tables "$to/interpreter.cap"
make --rows 14 --all-tables "$to/wakers.cap"
make --rows 14 --all-tables "$to/sleeps.cap"
make --rows 14 --all-tables "$to/declared.cap"
make --rows 14 --all-tables "$to/groups.cap"

# A real program, with samples and allocations. The build folder is mounted at /opt/profd, so that
# the capture has no paths of this machine.
mkdir -p /opt/profd
export to build
unshare -m sh -eu -c '
mount --bind "$build" /opt/profd
PROF_LIBEXEC_DIR=/opt/profd/daemon PROF_LIB_DIR=/opt/profd/libcollector /opt/profd/tools/profctl/profctl record --bus private \
    -q --force -F 4999 --memory=all -o "$to/recorded.cap" -- /usr/bin/sqlite3 :memory: "
    create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 100) insert into t select i, hex(i) from n;
    select count(*) from t where b like \"%3%\""'
rmdir /opt/profd

for capture in "$to"/*.cap; do
	"$build/tests/tools/print-rows" "$capture" | xz -9 >"${capture%.cap}.rows.xz"
done
xz -9e "$to"/*.cap
