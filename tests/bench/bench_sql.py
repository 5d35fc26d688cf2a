# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Measures profcapture sql with a time range on a capture of 1 GiB, and on one with a hundredth of
its rows, compared with SQLite on the exported database."""
import os
import sqlite3
import sys
import time

import bench

SECOND = "time_ns BETWEEN 20000000000 AND 21000000000"
QUERIES = {
    "samples by thread": f"SELECT pid, tid, sum(weight) FROM samples WHERE {SECOND} GROUP BY pid, tid",
    "samples by function": f"SELECT function, sum(weight) FROM samples WHERE {SECOND} GROUP BY function ORDER BY 2 DESC LIMIT 10",
}
# the numbers of samples in a capture of 1 GiB, and of epochs in a recording of an hour
ROWS, EPOCHS = 185_000_000, 120


def make(folder, name, rows, epochs):
    path = os.path.join(folder, name)
    bench.run(bench.program("MAKE_CAPTURE", "make-capture"), "--rows", str(rows), "--epochs", str(epochs), "--chunk-rows", "65536", path)
    return path


def milliseconds_of_sqlite(database, query, runs=5):
    took = []
    for _ in range(runs):
        begin = time.monotonic()
        connection = sqlite3.connect(database)
        connection.execute(query).fetchall()
        took.append((time.monotonic() - begin) * 1000)
    return sorted(took)[runs // 2]


def main():
    profcapture = bench.program("PROFCAPTURE", "profcapture")
    table = bench.Table("SQL")
    with bench.scratch() as folder:
        large = make(folder, "large.cap", ROWS, EPOCHS)
        size = os.path.getsize(large) / (1 << 30)
        for name, query in QUERIES.items():
            took = bench.median_seconds([profcapture, "sql", large, query]) * 1000
            table.row(f"a second of {size:.2f} GiB, {name}, ms", took, None, goal="under 100", met=took < 100, digits=0)
        os.unlink(large)
        small, database = make(folder, "small.cap", ROWS // 100, EPOCHS // 10), os.path.join(folder, "small.db")
        begin = time.monotonic()
        bench.run(profcapture, "export", small, "--to", "sqlite", "-o", database, "-q")
        took = (time.monotonic() - begin) * 1e6 / (ROWS // 100)
        table.row("export of 1 M samples as a database, s", took, None, goal="under 2", met=took < 2, digits=2)
        table.row("size of the database, of the capture", os.path.getsize(database) / os.path.getsize(small), None, digits=1)
        for name, query in QUERIES.items():
            ours = bench.median_seconds([profcapture, "sql", small, query]) * 1000
            table.row(f"a second of {ROWS // 100} samples, {name}, ms; sqlite3", ours, milliseconds_of_sqlite(database, query), digits=1)
    return table.missed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
