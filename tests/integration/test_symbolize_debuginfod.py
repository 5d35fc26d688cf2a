# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Debug files come from a server if the user requests it. They give the same names and lines as
local files; a missing file is requested once; a wrong file is ignored; profcapture waits no longer
than the limit for a server that does not answer, or never ends its answer."""
import ctypes
import http.server
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from recordings import until

SOURCE = """\
volatile unsigned long sink;
static inline unsigned long mix(unsigned long a)
{
	return a * 2654435761u ^ (a >> 7);
}
static inline unsigned long twice(unsigned long a)
{
	return mix(mix(a) + 1);
}
__attribute__((noinline)) static void spin(void)
{
	unsigned long a = sink;
	for (int i = 0; i < 100000; i++)
		a = twice(a);
	sink = a;
}
int main(void)
{
	for (int i = 0; i < 300; i++)
		spin();
}
"""
LIMIT = 40  # seconds: nothing here takes so long, while slow servers take a minute or never end
LIBRARY = "libdebuginfod.so.1"


@pytest.fixture(scope="module")
def work(profctl, profcapture, require, tmp_path_factory):
    """A folder with a recording of a stripped program, the program's debug file, and the symbolized
    recording."""
    require("gcc", "objcopy", "strip", root=True)
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        pytest.skip(f"{LIBRARY} is not installed")
    folder = tmp_path_factory.mktemp("debuginfod")
    (folder / "spin.c").write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-O2", "-Wl,--build-id=sha1", "spin.c", "-o", "spin"], cwd=folder, check=True)
    subprocess.run(["objcopy", "--only-keep-debug", "spin", "away.debug"], cwd=folder, check=True)
    subprocess.run(["strip", "spin"], cwd=folder, check=True)
    profctl("record", "--no-symbols", "-o", folder / "bare.cap", "--", folder / "spin")
    images = profcapture.json("info", folder / "bare.cap")["data"]["images"]
    build_id = next(image["build_id"] for image in images if image["path"].endswith("/spin"))
    (folder / ".build-id" / build_id[:2]).mkdir(parents=True)
    shutil.copy(folder / "away.debug", folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug")
    shutil.copy(folder / "bare.cap", folder / "named.cap")
    profcapture("symbolize", folder / "named.cap", "--debug-dir", folder)
    (folder / "build_id").write_text(build_id)
    return folder


@pytest.fixture
def build_id(work):
    return (work / "build_id").read_text()


@pytest.fixture
def debug_file(work):
    return (work / "away.debug").read_bytes()


@pytest.fixture
def bare(work, tmp_path):
    """A copy of the unsymbolized capture."""
    return Path(shutil.copy(work / "bare.cap", tmp_path / "bare.cap"))


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` by build-id, and 404 for others; or behaves as `how` says: silent, trickle,
    endless."""

    daemon_threads = True
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.how, self.ended = {}, [], "whole", threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        _, kind, build_id, what = self.path.split("/")
        assert (kind, what) == ("buildid", "debuginfo")
        server = self.server
        server.asked.append(build_id)
        body = server.files.get(build_id, b"")
        if server.how == "silent":
            server.ended.wait(60)
            return
        self.send_response(200 if body else 404)
        if server.how != "endless":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            if server.how == "whole":
                self.wfile.write(body)
            for i in range(300 if server.how == "trickle" else 0):
                self.wfile.write(body[i : i + 1])
                server.ended.wait(0.2)
            while server.how == "endless":
                self.wfile.write(body)
        except OSError:
            pass  # the client has closed the connection

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DEBUGINFOD_CACHE_PATH", "DEBUGINFOD_MAXTIME", "DEBUGINFOD_MAXSIZE", "DEBUGINFOD_TIMEOUT", "DEBUGINFOD_RETRY_LIMIT", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.ended.set()
    server.shutdown()
    thread.join()
    server.server_close()


def names(profcapture, capture):
    """Returns the outputs of report that have names and lines."""
    lines = profcapture.json("report", capture, "--by", "line", "--limit", 0)["data"]["rows"]
    inlined = profcapture.json("report", capture, "--inline", "--limit", 0)["data"]["rows"]
    return lines, inlined


def has_line(profcapture, capture):
    return any((row["file"] or "").endswith("spin.c") for row in names(profcapture, capture)[0])


def halves(tmp_path):
    """Returns the incomplete files in the library's cache."""
    return list((tmp_path / "cache").rglob("debuginfo.*"))


def test_found(profcapture, work, bare, build_id, debug_file, server):
    server.files[build_id] = debug_file
    profcapture("symbolize", bare)
    assert not server.asked and not has_line(profcapture, bare)
    for _ in range(2):
        shutil.copy(work / "bare.cap", bare)
        said = profcapture("symbolize", bare, "--debuginfod").stdout
        assert "debuginfod: 1 debug files found (" in said and " KiB)" in said, said
        assert names(profcapture, bare) == names(profcapture, work / "named.cap")
        assert server.asked.count(build_id) == 1  # the second run finds it in the cache
    assert has_line(profcapture, bare)


def test_local_first(profcapture, work, bare, build_id, debug_file, server):
    server.files[build_id] = debug_file
    profcapture("symbolize", bare, "--debuginfod", "--debug-dir", work)
    assert build_id not in server.asked and has_line(profcapture, bare)


def test_missing(profcapture, bare, build_id, server):
    for _ in range(2):
        done = profcapture("symbolize", bare, "--debuginfod")
        assert "debuginfod: 0 debug files found (0 B), " in done.stdout and done.stderr == "", done
        assert server.asked.count(build_id) == 1 and not has_line(profcapture, bare)


@pytest.mark.parametrize("what", ["other", "garbage", "part"])
def test_other_file(profcapture, bare, build_id, debug_file, server, what):
    """A wrong file is ignored: one with another build-id, one that is not ELF, and the first half
    of the right one, which has the build-id."""
    assert debug_file.count(bytes.fromhex(build_id)) == 1
    server.files[build_id] = {
        "other": debug_file.replace(bytes.fromhex(build_id), bytes(20)),
        "garbage": b"<html>" * 1000,
        "part": debug_file[: len(debug_file) // 2],
    }[what]
    said = profcapture("symbolize", bare, "--debuginfod").stderr
    assert server.asked.count(build_id) == 1 and not has_line(profcapture, bare)
    assert ("a file other than the requested one" in said) == (what != "part"), said


@pytest.mark.parametrize("how", ["silent", "trickle"])
def test_slow(profcapture, bare, build_id, debug_file, server, tmp_path, how):
    server.files[build_id] = debug_file
    server.how = how
    start = time.monotonic()
    said = profcapture("symbolize", bare, "--debuginfod=400ms").stderr
    assert time.monotonic() - start < LIMIT and server.asked
    assert "debug files were not fetched: the time was up" in said and not has_line(profcapture, bare)
    assert halves(tmp_path) == []


def test_huge(profcapture, bare, build_id, debug_file, server, tmp_path, monkeypatch):
    """The server sends an endless file of unknown size."""
    server.files[build_id] = debug_file
    server.how = "endless"
    monkeypatch.setenv("DEBUGINFOD_MAXSIZE", str(1 << 20))
    done = profcapture("symbolize", bare, "--debuginfod")
    assert "requests failed" in done.stderr and not has_line(profcapture, bare), done
    assert server.asked.count(build_id) == 1
    assert halves(tmp_path) == []


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@pytest.fixture
def waiting(profcapture, bare, server, spawn):
    """Starts `symbolize`, which waits for a silent server."""
    server.how = "silent"
    program = spawn(*profcapture.command("symbolize", bare, "--debuginfod"), stderr=subprocess.PIPE, start_new_session=True)
    until(lambda: server.asked, LIMIT)
    return program


def test_interrupt(profcapture, bare, waiting, tmp_path):
    """Ctrl-C at a terminal reaches both processes."""
    child = children(waiting.pid)
    os.killpg(waiting.pid, signal.SIGINT)
    said = waiting.communicate(timeout=LIMIT)[1].decode()
    assert waiting.returncode == 0 and "debug files were not fetched: interrupted" in said, said
    assert len(child) == 1 and not Path("/proc", child[0]).exists()
    assert halves(tmp_path) == []
    profcapture("verify", bare)


def test_killed(waiting):
    (child,) = children(waiting.pid)
    waiting.send_signal(signal.SIGKILL)
    waiting.communicate(timeout=LIMIT)
    until(lambda: not Path("/proc", child).exists(), LIMIT)


def test_no_server(profcapture, bare, monkeypatch):
    monkeypatch.setenv("DEBUGINFOD_URLS", " ")
    assert "DEBUGINFOD_URLS" in profcapture("symbolize", bare, "--debuginfod", check=2).stderr
    assert "--debuginfod: " in profcapture("symbolize", bare, "--debuginfod=soon", check=2).stderr


def test_no_library(profcapture, bare, server, require):
    """/dev/null is mounted over the library."""
    require("unshare", root=True, mounts=True)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        library = next(line.split()[-1] for line in maps if "libdebuginfod" in line)
    hide = ["unshare", "-m", "sh", "-c", f'mount --bind /dev/null {library} && exec "$@"', "sh"]
    said = profcapture("symbolize", bare, "--debuginfod", check=1, prefix=hide).stderr
    assert LIBRARY in said and "install it" in said, said
    assert not server.asked
