# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The clients of docs/examples, with the system's profd and with a private one."""
import os
import signal
import subprocess
from pathlib import Path

import pytest

from buses import DAEMON, SESSION, rules
from recordings import until

SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
CLIENTS = {"python": ["/usr/bin/python3", SOURCE / "docs/examples/record.py"], "c": [os.environ["RECORD_EXAMPLE"]]}


@pytest.fixture(params=CLIENTS)
def client(request):
    return [*map(str, CLIENTS[request.param])]


def check(done, capture, profcapture):
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 0 and "(stopped)" in done.stdout
    assert profcapture.json("info", capture)["capture"]["state"] == "finished"


def run(client, *arguments, **options):
    return subprocess.run([*client, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", timeout=60, **options)


@pytest.mark.parametrize("private", [False, True], ids=["system", "private"])
def test_example(bus, client, private, spawn, profcapture):
    uid = 0 if private else DAEMON
    user = {"user": uid, "group": uid, "extra_groups": []}
    folder = bus.folder / "captures"
    folder.mkdir()
    folder.chmod(0o777)
    capture = folder / "test.cap"
    if not private:
        bus.start(rules(allow={"record-own": ["daemon"]}))
        if subprocess.run(["test", "-r", client[-1]], **user).returncode:
            pytest.skip("the build tree cannot be read by others")
    target = spawn("sh", "-c", "while :; do :; done", **user)
    how = ["--private", os.environ["PROFD"]] if private else []
    check(run(client, *how, target.pid, 1, capture, env=bus.env, cwd="/", **user), capture, profcapture)


def test_refusal(bus, client):
    """If polkit denies the recording, the client reports it."""
    bus.start(rules())
    folder = bus.folder / "captures"
    folder.mkdir()
    folder.chmod(0o777)
    done = run(client, os.getpid(), 1, folder / "test.cap", env=bus.env, user=DAEMON, group=DAEMON, extra_groups=[], cwd="/")
    assert done.returncode == 1 and "NotAuthorized" in done.stderr


def test_profd_that_goes(bus, client, spawn):
    """If profd is killed, the client's connection to the bus stays, so the client has to watch
    profd's name."""
    user = {"user": DAEMON, "group": DAEMON, "extra_groups": []}
    folder = bus.folder / "captures"
    folder.mkdir()
    folder.chmod(0o777)
    bus.start(rules(allow={"record-own": ["daemon"]}))
    target = spawn("sh", "-c", "while :; do :; done", **user)
    command = [*client, str(target.pid), "600", str(folder / "test.cap")]
    recorder = spawn(*command, env=bus.env, cwd="/", stderr=subprocess.PIPE, **user)
    watcher = bus.client()
    until(lambda: [session[SESSION]["State"] for session in watcher.objects().values()] == ["running"])
    bus.end(bus.profd, signal.SIGKILL)
    assert b"profd is gone" in recorder.stderr.read()
    assert recorder.wait(timeout=20) == 1


def test_blocks(profcapture, capture):
    """A program records its own blocks, twice into one file."""
    for times in (1, 2):
        done = run([os.environ["BLOCKS_EXAMPLE"]], capture)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        row, = profcapture.json("marks", capture)["data"]["rows"]
        assert (row["group"], row["name"], row["count"], row["unmatched_begin"]) == ("blocks", "slow frame", 4 * times, 0)
    rows = profcapture.json("report", capture, "--per-mark", "slow frame")["data"]["rows"]
    assert "main" in {row["name"] for row in rows}


def test_blocks_that_cannot_be_recorded(tmp_path):
    done = run([os.environ["BLOCKS_EXAMPLE"]], tmp_path / "not" / "there.cap")
    assert done.returncode == 0 and "not/there.cap" in done.stderr
