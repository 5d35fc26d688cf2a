# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profctl on the system bus: record with either profd, status, stop, pause, resume, and doctor."""
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

import buses
import completion
import schema
from buses import DAEMON, NAME, NOBODY, PROFILER, ROOT, rules, variant
from captures import rows
from recordings import until, without_loss

ALL = rules(allow={name: ["nobody"] for name in ("record-own", "record-others", "record-system", "kernel-addresses")})
OWN = rules(allow={"record-own": ["nobody"]})


@pytest.fixture
def folder(bus):
    """A folder where everybody may write."""
    path = bus.folder / "captures"
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.fixture
def run(bus, folder, profctl, require):
    """Runs profctl as some user on the test's bus."""
    if subprocess.run([*profctl.command("--version")], user=NOBODY, group=NOBODY, stdout=subprocess.DEVNULL).returncode:
        pytest.skip("the build tree cannot be read by others")

    def call(*args, uid=NOBODY, **options):
        options.setdefault("cwd", folder)
        return profctl(*args, env={"DBUS_SYSTEM_BUS_ADDRESS": bus.address},
                       user=uid, group=uid, extra_groups=[], **options)

    return call


def summary(done):
    return json.loads(done.stdout.splitlines()[-1])["data"]


def until_running(client, sessions=1):
    until(lambda: [o[buses.SESSION]["State"] for o in client.objects().values()] == ["running"] * sessions)


def until_sampled(client):
    until_running(client)
    client.wait_samples(next(iter(client.objects())))


LOOP = ["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]


def test_command(bus, run, profctl, profcapture, folder):
    bus.start(OWN)
    done = run("record", "--json", "-o", "own.cap", "--", *LOOP)
    data = summary(done)
    assert data["transport"] == "system" and data["command"]["exit"] == 0
    assert data["samples"] > 10 and data["symbols"]
    schema.check(profctl, "record", json.loads(done.stdout.splitlines()[-1]))
    assert os.stat(folder / "own.cap").st_uid == NOBODY
    rows = profcapture.json("report", folder / "own.cap")["data"]["rows"]
    assert any(row["image"].endswith(("/dash", "/sh")) for row in rows)
    assert all(row["kind"] != "kernel" for row in rows)
    assert bus.client().objects() == {}


PYTHON = """
import os, threading, time
def burn(end):
    while time.thread_time() < end:
        sum(i & 7 for i in range(1000))
def in_child(): burn(time.thread_time() + 0.4)
def in_thread(): burn(time.thread_time() + 0.4)
def in_main(): burn(time.thread_time() + 0.4)
pid = os.fork()
if pid == 0:
    in_child()
    os._exit(0)
thread = threading.Thread(target=in_thread)
thread.start()
in_main()
for _ in range(20): time.sleep(0.01)
thread.join()
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("how", ["command", "make", "pid"])
def test_python_of_a_user(bus, run, profcapture, folder, spawn, how):
    """A capture has the functions of a user's own Python program in all threads and in forked
    processes. Each thread has its own events. This also holds if a program without an interpreter
    starts the Python program, or if the Python program runs already."""
    if "WALK_INTERPRETED" not in os.environ:
        pytest.skip("built without libbpf, bpftool or clang")
    bus.start(OWN)
    (folder / "shop.py").write_text(PYTHON.replace("0.4", "0.05") if how == "pid" else PYTHON)
    command = ["/usr/bin/python3", folder / "shop.py"]
    if how == "make":
        command = ["sh", "-c", '"$@"; "$@"', "sh", *command]
    if how == "pid":
        endless = "import sys\ncode = compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')\nwhile True: exec(code)"
        target = spawn("/usr/bin/python3", "-c", endless, folder / "shop.py", user=NOBODY, group=NOBODY, extra_groups=[])
        command = ["-p", str(target.pid), "-d", "4"]
    command = command if how == "pid" else ["--", *command]
    data = without_loss(lambda: summary(run("record", "--json", "-F", 499, "-o", "a.cap", "--force", *command)), lambda data: data["lost"])
    assert data["transport"] == "system" and data["lost"] == 0, data["loss"]
    metadata = {row["key"]: row["value"] for row in rows(profcapture, folder / "a.cap", "metadata")}
    if "BPF" in metadata.get("interpreters.missing", ""):
        pytest.skip(metadata["interpreters.missing"])
    assert "interpreters.missing" not in metadata
    report = {row["name"]: row for row in profcapture.json("report", folder / "a.cap", "--limit", 0)["data"]["rows"]}
    samples = rows(profcapture, folder / "a.cap", "sample")
    python = [row for row in samples if row["interpreter"] not in ("none", "idle")]
    whole = sum(row["interpreter"] == "complete" for row in python)
    assert whole > 60 and whole > 0.9 * len(python)
    waits = [row for row in rows(profcapture, folder / "a.cap", "wait") if row["duration"] > 5e6]
    assert sum(row["interpreter"] == "complete" for row in waits) >= 10
    for name in "shop.in_child", "shop.in_thread", "shop.in_main":
        assert report[name]["total"] > 5, name


def test_command_starts_when_sampling_does(bus, run, profcapture, folder):
    """The program's beginning is in the capture: its exec is recorded."""
    bus.start(OWN)
    data = summary(run("record", "--json", "-o", "a.cap", "--", "true"))
    tasks = profcapture.json("dump", folder / "a.cap", "--table", "task")["data"]["rows"]
    assert "exec" in {row["event"] for row in tasks if row["pid"] == data["command"]["pid"]}


def check_names(bus, run, profcapture, folder, program, times=1):
    """Checks the name of a program's function. On a busy machine, a short program may end before profd
    has run at all, so it is recorded up to `times` times."""
    bus.start(OWN)
    names = []
    while len(names) < times and "here" not in names:
        copy = buses.shutil.copy(program, folder / "spin")
        os.chown(copy, NOBODY, NOBODY)
        assert summary(run("record", "--json", "--force", "-o", "a.cap", "--", copy))["symbols"]
        names.append(profcapture.json("report", folder / "a.cap")["data"]["rows"][0]["name"])
    assert names[-1] == "here"


def test_names_come_through_the_bus(bus, run, profcapture, folder, compile_c):
    """OpenImage supplies the names of a program that deletes its own file when it starts."""
    program = compile_c("spin", """#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void here(void) { for (volatile long i = 0; i < 100000000; i++) ; }
int main(int argc, char **argv) { unlink(argv[0]); here(); }""")
    check_names(bus, run, profcapture, folder, program)


def test_names_of_a_short_program(bus, run, profcapture, folder, compile_c):
    """A program has names even if it runs for only 30 ms, although rings are usually drained only every
    100 ms."""
    program = compile_c("spin", """#include <time.h>
#include <unistd.h>
__attribute__((noinline)) void here(void) { for (volatile long i = 0; i < 1000000; i++) ; }
int main(int argc, char **argv)
{
	unlink(argv[0]);
	while (clock() < CLOCKS_PER_SEC * 3 / 100)
		here();
}""")
    check_names(bus, run, profcapture, folder, program, times=5)


def test_system(bus, run, folder, profcapture):
    bus.start(ALL)
    data = summary(run("record", "--json", "--system", "-d", "0.3", "-o", "a.cap", "--bus", "system"))
    assert data["transport"] == "system" and data["samples"] > 0
    assert profcapture.json("info", folder / "a.cap")["capture"]["state"] == "finished"


@pytest.mark.parametrize("how, why", [
    ("no bus", "there is no system bus"),
    ("no profd", "the system bus has no profd"),
    ("denied", "polkit does not allow"),
    ("password", "needs a password"),
    ("no polkit", "polkit cannot be asked"),
    ("version", "is version 7.0.0"),
])
def test_fall_back(bus, run, how, why):
    """For users with fewer rights, a line gives the reason why record does not use the service; -q
    suppresses the line. With --bus system, the reason is an error."""
    if how == "no bus":
        bus.stop_polkit()
        bus.stop_daemon()
    elif how == "version":
        bus.start(polkit=False, profd=False)
        other_version(bus)
    else:
        bus.start(rules(ask={"record-system": ["nobody"]} if how == "password" else {}), polkit=how != "no polkit",
                  profd=how != "no profd")
    uid = 0 if how in ("no bus", "no profd", "no polkit", "version") else NOBODY
    record = ["record", "--system", "-d", "0.1", "--no-symbols", "--json", "--force", "-o", "a.cap"]
    done = run(*record, uid=uid, check=None)
    lines = [line for line in done.stderr.splitlines() if "a profd of its own" in line]
    if uid == 0:
        assert lines == [] and done.returncode == 0 and summary(done)["transport"] == "private"
    else:
        assert len(lines) == 1 and why in lines[0], done.stderr
        assert "of its own" not in run(*record, "-q", uid=uid, check=None).stderr
    failed = run(*record, "--bus", "system", uid=uid, check=None)
    assert why in failed.stderr
    # a plain sentence, without the library's message
    assert how != "no bus" or failed.stderr == "profctl: there is no system bus where DBUS_SYSTEM_BUS_ADDRESS says\n"
    assert failed.returncode == (4 if how in ("denied", "password", "no polkit") else 5)
    if uid == 0:
        assert summary(run(*record, "--bus", "private", uid=uid))["transport"] == "private"


def other_version(bus):
    """Starts a service on the bus that claims to be profd 7."""
    client = bus.client(0)
    node = buses.Gio.DBusNodeInfo.new_for_xml(
        f'<node><interface name="{PROFILER}"><property name="Version" type="s" access="read"/></interface></node>'
    )
    import threading

    loop = buses.GLib.MainLoop.new(client.context, False)

    def serve():
        with client.current():
            client.bus.register_object(ROOT, node.interfaces[0], None, lambda *_: variant("s", "7.0.0"), None)
            client.call("/org/freedesktop/DBus", buses.BUS, "RequestName", variant("(su)", (NAME, 4)), name=buses.BUS)
            loop.run()

    threading.Thread(target=serve, daemon=True).start()
    until(lambda: bus.has(NAME))


def start(bus, folder, *arguments, uid=NOBODY):
    return subprocess.Popen(
        [os.environ["PROFCTL"], "record", *map(str, arguments)], env=bus.env, cwd=folder, user=uid, group=uid, extra_groups=[],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True,
    )


def test_status_and_control(bus, run, profctl, folder, spawn):
    bus.start(rules(allow={"record-own": ["nobody"], "record-system": ["daemon"], "manage-others": []}))
    assert run("status").stdout.startswith("No session")
    assert "no session" in run("stop", check=1).stderr
    target = spawn("sh", "-c", "while :; do :; done", user=NOBODY, group=NOBODY, extra_groups=[])
    recorders = [start(bus, folder, "--pid", target.pid, "-o", f"{i}.cap", "--json") for i in range(2)]
    root = bus.client(0)
    until_running(root, 2)

    report = json.loads(run("status", "--json").stdout)
    schema.check(profctl, "status", report)
    sessions = report["data"]["sessions"]
    assert [s["uid"] for s in sessions] == [NOBODY] * 2 and sessions[0]["options"]["pids"] == [target.pid]
    assert sessions[0]["elapsed_ns"] > 0
    text = run("status").stdout
    assert text.startswith("2 sessions, 2 recording.\n\n")
    titles, *rows = (line.split() for line in text.splitlines()[2:])
    assert titles == ["id", "state", "user", "for", "samples", "lost", "target"]
    assert [row[:3] + row[-2:] for row in rows] == [[str(s["id"]), "recording", "nobody", "pid", str(target.pid)] for s in sessions]
    assert run("status", uid=DAEMON).stdout.startswith("No session")

    done = run("stop", check=2)
    assert "2 sessions" in done.stderr and all(f"  {s['id']}  " in done.stderr for s in sessions)
    first, second = (s["id"] for s in sessions)
    run("stop", first, uid=DAEMON, check=4)
    run("stop", 4711, check=1)
    run("stop", "x", check=2)
    run("pause", first)
    assert json.loads(run("status", "--json").stdout)["data"]["sessions"][0]["state"] == "paused"
    assert run("status").stdout.startswith("2 sessions, 1 recording.\n")
    run("pause", first, check=1)
    run("resume", first)
    run("stop", first)
    until(lambda: sum(r.poll() is not None for r in recorders) == 1)
    run("stop", uid=0)
    for recorder in recorders:
        assert recorder.wait(timeout=20) == 0
        assert json.loads(recorder.stdout.read().splitlines()[-1])["data"]["reason"] == "stopped"
    assert second


def test_status_without_a_service(bus, run):
    """Without the service there are no shared sessions, and recording works without it."""
    bus.start(rules(), profd=False)
    for more in [], ["--json"]:
        done = run("status", *more, check=5)
        assert done.stdout == "" and "The profd service is not running, so there are no shared sessions." in done.stderr
    bus.stop_polkit()
    bus.stop_daemon()
    assert "'profctl record' works without it." in run("status", check=5).stderr


def test_completion_of_numbers(bus, run, profctl, folder, spawn):
    """Completion offers only the user's own sessions that the verb applies to, and starts no profd
    for that."""
    bus.start(rules(allow={"record-own": ["nobody"]}), profd=False)

    def offered(*words, uid=NOBODY):
        return completion.offered(profctl, *words, cwd=folder, env=bus.env, user=uid, group=uid, extra_groups=[])

    run("--version")
    assert offered("stop", "") == []
    bus.start_profd()
    target = spawn("sh", "-c", "while :; do :; done", user=NOBODY, group=NOBODY, extra_groups=[])
    recorders = [start(bus, folder, "--pid", target.pid, "-o", f"{i}.cap", "-q") for i in range(2)]
    root = bus.client(0)
    until_running(root, 2)
    run("pause", 2)
    assert offered("stop", "") == ["1", "2"] and offered("stop", "2") == ["2"]
    assert offered("pause", "") == ["1"] and offered("resume", "") == ["2"]
    assert offered("stop", "1", "") == [] and offered("status", "-") == ["--json", "--help"]
    assert offered("stop", "", uid=DAEMON) == []
    for number in "1", "2":
        run("stop", number)
    assert [recorder.wait(timeout=20) for recorder in recorders] == [0, 0]
    assert offered("stop", "") == []


def test_interrupt(bus, run, folder, profcapture):
    bus.start(ALL)
    recorder = start(bus, folder, "--system", "-o", "a.cap")
    root = bus.client(0)
    until_sampled(root)
    recorder.send_signal(signal.SIGINT)
    assert recorder.wait(timeout=20) == 130
    assert profcapture.json("info", folder / "a.cap")["capture"]["state"] == "finished"


def catches(process, number):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << number - 1


def test_interrupt_while_polkit_is_asked(bus, run, folder):
    """polkit's answer may take as long as a user needs to find a password; Ctrl-C ends the wait."""
    bus.start(ALL)
    bus.client(0).objects()
    os.kill(bus.polkit.pid, signal.SIGSTOP)
    recorder = start(bus, folder, "--system", "-o", "a.cap")
    until(lambda: catches(recorder, signal.SIGINT))
    recorder.send_signal(signal.SIGINT)
    assert recorder.wait(timeout=20) == 130
    assert not (folder / "a.cap").exists()


def test_killed_profctl(bus, run, folder, profcapture):
    bus.start(ALL)
    recorder = start(bus, folder, "--system", "-o", "a.cap")
    root = bus.client(0)
    until_sampled(root)
    recorder.kill()
    recorder.wait()
    until(lambda: bus.engines() == [])
    assert profcapture.json("info", folder / "a.cap")["capture"]["state"] == "finished"


def test_killed_profd(bus, run, folder, profcapture):
    """If profd is killed, profctl reports that, and the engine still finishes the file."""
    bus.start(ALL)
    recorder = start(bus, folder, "--system", "-o", "a.cap")
    root = bus.client(0)
    until_sampled(root)
    engines = bus.engines()
    bus.profd.kill()
    bus.profd.wait()
    assert recorder.wait(timeout=20) == 1
    assert "profd ended unexpectedly" in recorder.stderr.read()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in engines))
    assert profcapture.json("info", folder / "a.cap")["capture"]["state"] == "finished"


@pytest.mark.parametrize("profd, polkit, daemon, said", [
    (True, True, "and the system bus has profd", "polkit decides"),
    (True, False, "and the system bus has profd", "not even for root"),
    (False, True, "the system bus has no profd", "not needed"),
])
def test_doctor(bus, run, profd, polkit, daemon, said):
    bus.start(ALL, profd=profd, polkit=polkit)
    checks = {c["id"]: c for c in json.loads(run("doctor", "--json", check=None).stdout)["data"]["checks"]}
    assert daemon in checks["daemon"]["summary"] and said in checks["polkit"]["summary"]
    assert checks["polkit"]["status"] == ("ok" if polkit else "warn")


def test_session_that_somebody_closes(bus, profctl, folder, spawn):
    """A closed session sends no Finished, and record must not wait for one."""
    bus.start(ALL)
    recorder = spawn(*profctl.command("record", "--system", "-d", "600", "-o", folder / "a.cap"),
                     env={**os.environ, **bus.env}, stderr=subprocess.PIPE, encoding="utf-8")
    client = bus.client()
    until(lambda: [s[buses.SESSION]["State"] for s in client.objects().values()] == ["running"])
    client.session(next(iter(client.objects())), "Close")
    assert "somebody closed the session" in recorder.stderr.read()
    assert recorder.wait(timeout=20) == 1


def test_session_that_somebody_stops(bus, profctl, folder, spawn):
    """If the session is stopped, the command continues, and record's caller learns that the command is
    no longer recorded."""
    bus.start(ALL)
    recorder = spawn(*profctl.command("record", "-o", folder / "a.cap", "--", "cat"), env={**os.environ, **bus.env},
                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
    client = bus.client()
    until_running(client)
    client.session(next(iter(client.objects())), "Stop")
    assert "somebody else stopped the session" in recorder.stderr.readline()
    assert recorder.poll() is None
    recorder.stdin.close()
    assert recorder.wait(timeout=20) == 0
    assert "somebody" not in recorder.stderr.read()
