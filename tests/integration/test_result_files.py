# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Where output is printed or written: full devices, closed pipes, existing names, and signals."""
import os
import pty
import resource
import signal
import stat
import subprocess
import threading

import pytest
from captures import MAKERS, command, make


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A capture with two segments, which a stream cannot have."""
    path = make(tmp_path_factory.mktemp("result") / "whole.cap", "--all-tables", "--rows", 600, "--chunk-rows", 100)
    return make(path, "--append", "--first", 600, "--all-tables", "--rows", 100)


@pytest.fixture
def new(tmp_path):
    return tmp_path / "new.cap"


def samples(profcapture, path):
    profcapture("verify", path)
    return profcapture.json("info", path)["capture"]["samples"]


# ---- standard output


PRINTED = [["--help"], ["--version"], ["help", "report"], ["schema", "info"], ["report", "--help"], ["--complete"]]
PRINTED += [[*command(verb, "FILE"), *options] for verb, options in (
    ("info", []), ("info", ["--json"]), ("verify", []), ("verify", ["--json"]), ("report", []), ("report", ["--tree"]),
    ("report", ["--format", "csv"]), ("dump", []), ("dump", ["--json"]), ("dump", ["--format", "ndjson"]), ("symbolize", []),
    ("marks", []), ("marks", ["--json"]), ("counters", []), ("counters", ["--format", "csv"]),
)]
PRINTED += [command(verb, "FILE", "-") for verb in MAKERS]


@pytest.fixture(params=PRINTED, ids=" ".join)
def printed(request, whole):
    return [whole if word == "FILE" else word for word in request.param]


def test_full_device(profcapture, printed):
    with open("/dev/full", "wb") as full:
        done = profcapture(*printed, stdout=full, check=1)
    assert done.stderr.count("\n") == 1 and "No space left on device" in done.stderr
    assert "standard output" in done.stderr or "'-'" in done.stderr


def test_closed_pipe(profcapture, printed):
    """If the reader has closed the pipe, verbs that print text fail without a message, and verbs
    that make captures may report a broken pipe. If standard output was closed from the start, all
    print a message."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = profcapture(*printed, stdout=theirs, check=1)
    os.close(theirs)
    assert done.stderr == "" or printed[0] in MAKERS and "Broken pipe" in done.stderr
    done = profcapture(*printed, stdout=None, preexec_fn=lambda: os.close(1), check=1)
    assert done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["schema", "record"], ["doctor"], ["doctor", "--json"]], ids=" ".join)
def test_full_device_of_profctl(profctl, arguments):
    with open("/dev/full", "wb") as full:
        assert "No space left on device" in profctl(*arguments, stdout=full, check=1).stderr


# ---- a new capture


@pytest.fixture(params=MAKERS)
def maker(request):
    return request.param


def test_existing_file(profcapture, whole, new, maker):
    new.write_text("precious")
    done = profcapture(*command(maker, whole, new), check=1)
    assert f"'{new}' exists" in done.stderr and "--force" in done.stderr
    assert new.read_text() == "precious"
    new.chmod(0o640)
    profcapture(*command(maker, whole, new), "--force")
    assert samples(profcapture, new) == 700
    assert [path.name for path in new.parent.iterdir()] == [new.name]


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_fails_and_keeps_what_was_there(profcapture, whole, new, maker, force):
    if force:
        new.write_text("precious")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    done = profcapture(*command(maker, whole, new), *force, check=1, preexec_fn=limit)
    assert f"'{new}'" in done.stderr and "File too large" in done.stderr
    assert [(path.name, path.read_text()) for path in new.parent.iterdir()] == ([(new.name, "precious")] if force else [])


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_interrupted(profcapture, whole, new, require, maker, force):
    """SIGINT or SIGTERM arrives in the middle of a write."""
    require("strace")
    if subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True).returncode != 0:
        pytest.skip("strace may not trace here")
    if force:
        new.write_text("precious")
    for name in "INT", "TERM":
        done = profcapture(*command(maker, whole, new), *force, check=None, env={"ASAN_OPTIONS": "detect_leaks=0"}, prefix=[
            "strace", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", f"inject=pwrite64:signal={name}:when=3"])
        assert done.returncode in (-signal.Signals[f"SIG{name}"], 128 + signal.Signals[f"SIG{name}"])
        assert [(path.name, path.read_text()) for path in new.parent.iterdir()] == ([(new.name, "precious")] if force else [])


def test_own_input(profcapture, whole, tmp_path, maker):
    """A verb never writes to its own input, whether the input is given by its name, by another
    name, or as standard input or output."""
    data = whole.read_bytes()
    own, link, hard = tmp_path / "own.cap", tmp_path / "link.cap", tmp_path / "hard.cap"
    own.write_bytes(data)
    link.symlink_to(own)
    hard.hardlink_to(own)
    for file, name in (own, own), (link, own), (own, link), (own, hard):
        assert f"'{name}'" in profcapture(*command(maker, file, name), "--force", check=2).stderr
    with own.open("rb") as stdin:
        profcapture(*command(maker, "-", own), "--force", stdin=stdin, check=2)
    for flags in os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR:
        fd = os.open(own, flags)
        profcapture(*command(maker, own, "-"), stdout=fd, check=2)
        os.close(fd)
    assert own.read_bytes() == data


@pytest.mark.parametrize("options", [["html", "OWN"], ["html", "OTHER", "--compare", "OWN"], ["export", "OWN", "--to", "folded"], ["export", "OWN", "--to", "sqlite"],
                                     ["export", "OTHER", "--to", "svg", "--compare", "OWN"]])
def test_own_input_of_an_export(profcapture, whole, tmp_path, options):
    own, link = tmp_path / "own.cap", tmp_path / "link.cap"
    own.write_bytes(whole.read_bytes())
    link.symlink_to(own)
    for name in own, link:
        files = {"OWN": own, "OTHER": whole}
        assert f"'{name}' is the capture that is read" in profcapture(*(files.get(option, option) for option in options), "-o", name, "--force", check=2).stderr
    assert own.read_bytes() == whole.read_bytes()


def test_names_that_cannot_be_written(profcapture, whole, new, tmp_path, maker):
    (tmp_path / "folder").mkdir()
    for name in tmp_path / "folder", tmp_path / "missing" / "x", whole / "x", "":
        for force in [], ["--force"]:
            done = profcapture(*command(maker, whole, name), *force, check=1)
            assert f"'{name}'" in done.stderr and done.stdout == ""
    assert (tmp_path / "folder").is_dir()
    assert "-o NEW" in profcapture(*[word for word in command(maker, whole, "NEW") if word not in ("-o", "NEW")], check=2).stderr
    assert "-o needs a value" in profcapture(maker, whole, "-o", check=2).stderr
    profcapture(*command(maker, whole, tmp_path / "first"), "-o", new)
    assert new.exists() and not (tmp_path / "first").exists()


def test_folder_of_others(profcapture, whole, tmp_path, require, maker):
    require("setpriv", root=True)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with whole.open("rb") as stdin:
        done = profcapture(*command(maker, "-", "/proc/version.cap"), stdin=stdin, check=None, prefix=nobody)
    assert done.returncode in (1, 4) and "'/proc/version.cap'" in done.stderr
    (tmp_path / "mine").mkdir(mode=0o700)
    with whole.open("rb") as stdin:
        done = profcapture(*command(maker, "-", tmp_path / "mine" / "x"), stdin=stdin, check=4, prefix=nobody)
    assert f"'{tmp_path / 'mine' / 'x'}'" in done.stderr


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_devices_and_pipes(profcapture, whole, tmp_path, maker, force, require):
    """Devices and pipes are written to, not replaced by a file."""
    pipe, full = tmp_path / "pipe", tmp_path / "full"
    os.mkfifo(pipe)
    copy = []
    reader = threading.Thread(target=lambda: copy.append(pipe.read_bytes()))
    reader.start()
    profcapture(*command(maker, whole, pipe), *force)
    reader.join(timeout=60)
    (tmp_path / "copy.cap").write_bytes(copy[0])
    assert samples(profcapture, tmp_path / "copy.cap") == 700
    assert pipe.is_fifo()
    require(root=True)
    try:
        os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        full.open("wb").close()
    except OSError:
        pytest.skip("no devices can be made here")
    assert "No space left" in profcapture(*command(maker, whole, full), *force, check=1).stderr
    assert full.is_char_device()


def test_streams(profcapture, whole, tmp_path, maker):
    """Output can go to a pipe, or to a file that the shell opened only for writing or appending."""
    new = tmp_path / "new.cap"
    for flags in os.O_WRONLY, os.O_WRONLY | os.O_APPEND:
        new.unlink(missing_ok=True)
        fd = os.open(new, flags | os.O_CREAT)
        profcapture(*command(maker, whole, "-"), stdout=fd)
        os.close(fd)
        assert samples(profcapture, new) == 700
    new.write_bytes(profcapture(*command(maker, whole, "-"), text=False).stdout)
    assert samples(profcapture, new) == 700


def test_terminal(profcapture, whole, maker):
    ours, theirs = pty.openpty()
    done = profcapture(*command(maker, whole, "-"), stdout=theirs, check=2)
    assert "terminal" in done.stderr
    done = profcapture(*command(maker, whole, os.ttyname(theirs)), "--force", check=2)
    assert "terminal" in done.stderr
    os.close(theirs)
    os.close(ours)


def test_where_streams_wait(profcapture, whole, tmp_path, maker):
    done = profcapture(*command(maker, whole, "-"), env={"TMPDIR": tmp_path / "missing"}, check=1)
    assert f"'{tmp_path / 'missing'}'" in done.stderr and "TMPDIR" in done.stderr and done.stdout == ""
    profcapture(*command(maker, whole, "/dev/null"), env={"TMPDIR": tmp_path / "missing"})
