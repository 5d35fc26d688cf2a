# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Ten users record their own processes at the same time: each capture has exactly its user's
processes, and nothing of anybody else's."""
import json
import os

import pytest

from buses import pids, variant

USERS = range(1, 11)  # the bus accepts only uids that have a name
OWN = """polkit.addRule(function(action, subject) {
    return action.id == "org.profd.record-own" ? polkit.Result.YES : polkit.Result.NO;
});"""


def dump(profcapture, capture):
    """Returns every row of every table."""
    tables = [table["name"] for table in profcapture.json("info", capture)["data"]["tables"]]
    rows = []
    for table in tables:
        done = profcapture("dump", capture, "--table", table, "--limit", "0", "--format", "ndjson")
        rows += [json.loads(line) for line in done.stdout.splitlines()[1:]]
    return rows


@pytest.fixture
def rights():
    if os.geteuid() != 0:
        pytest.skip("needs root")


def test_ten_users_at_once(bus, rights, tmp_path, spawn, profcapture):
    bus.start(OWN)
    users = {}
    for uid in USERS:
        marker = f"/tmp/marker-{uid}-{os.getpid()}"
        # the process also starts short-lived children, whose arguments name their user
        target = spawn("sh", "-c", f'i=0; while :; do i=$((i+1)); [ $((i % 10000)) != 0 ] || /bin/echo {marker}; done',
                       user=uid, group=uid, extra_groups=[])
        capture = tmp_path / f"{uid}.cap"
        client = bus.client(uid)
        fd = os.open(capture, os.O_RDWR | os.O_CREAT, 0o600)
        path = client.create({**pids(target.pid), "events": variant("as", ["cpu-clock", "page-faults"])}, fd)
        os.close(fd)
        users[uid] = (client, path, target, marker, capture)
    for client, path, *_ in users.values():
        client.session(path, "Start")
    assert len(bus.engines()) == len(users)
    root = bus.client(0)
    assert len(root.objects()) == len(users)
    for uid, (client, path, *_) in users.items():
        assert list(client.objects()) == [path]
        client.wait_samples(path, 21)
    for client, path, *_ in users.values():
        client.session(path, "Stop")
    for client, path, target, *_ in users.values():
        assert client.wait("Finished", path)[0]
        target.kill()  # the readers need the CPUs
    for uid, (_, _, target, marker, capture) in users.items():
        rows = dump(profcapture, capture)
        text = json.dumps(rows)
        assert marker in text
        for other, (_, _, foreign, foreign_marker, _) in users.items():
            if other != uid:
                assert foreign_marker not in text
        processes = [row for row in rows if row["table"] == "process"]
        assert {row["uid"] for row in processes} == {uid}, processes
        samples = [row for row in rows if row["table"] == "sample"]
        assert len(samples) > 20 and {row["pid"] for row in samples} <= {row["pid"] for row in processes}
        assert not {row["pid"] for row in samples} & {user[2].pid for other, user in users.items() if other != uid}

