# SPDX-License-Identifier: BSD-2-Clause-Patent
"""What --redact removes from each format of `export`, and from the report page."""
import base64
import gzip
import os
import re
import shutil

import pytest
from captures import make
from exports import read_page
from pages import PROGRAM

def contents(path):
    """Returns the bytes of an export, decoded and inflated, because base64 may have names by chance."""
    data = path.read_bytes()
    packed = re.search(rb'id="data">([^<]*)<', data)
    if packed:
        return data[:packed.start(1)] + data[packed.end(1):] + gzip.decompress(base64.b64decode(packed[1]))
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


SECRETS = r"USER=jane HOST=moon jane@moon moon \\moon\s C:\Users\jane\x jane, MOON.local [fe80::1] mary at sunny /srv/jane/"


@pytest.fixture(scope="module")
def private(profctl, compile_c, tmp_path_factory):
    """A folder with captures full of secrets: a recorded one and two generated ones. Each text in
    each table of a generated capture has names of users and hosts: SECRETS in the first capture,
    other names in the second."""
    home = tmp_path_factory.mktemp("house of jane")
    program = home / "city"
    shutil.copy(compile_c("city", PROGRAM, "-g", "-pthread", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"]), program)
    profctl("record", "-q", "-F", 999, "--memory", "-o", home / "city.cap", "--", program, "--password=hunter2")
    make(home / "made-by-jane.cap", "--all-tables", "--rows", 1200, "--prefix", SECRETS)
    make(home / "later.cap", "--all-tables", "--rows", 1200, "--prefix", "mary@sunny Jane Moon")
    return home


@pytest.mark.parametrize("to", ["folded", "firefox", "pprof", "speedscope", "svg", "callgrind", "chrome", "perf-script", "heaptrack", "massif", "syscap", "html"])
def test_redact(profcapture, private, tmp_path, to):
    """--redact removes arguments, users, the host, log lines and folders from every text of every
    format; names remain."""
    recorded, made, path = private / "city.cap", private / "made-by-jane.cap", tmp_path / "out"
    secrets = (b"jane", b"hunter2", b"password", os.fsencode(private.parent))
    profcapture("export", recorded, "--to", to, "-o", path, "--redact", "-q")
    found = contents(path)
    assert (b"keep" if to in ("heaptrack", "massif") else b"heavy") in found and b"city" in found
    assert not [secret for secret in secrets if secret in found]
    if to == "html":
        profcapture("export", recorded, "--to", to, "--compare", recorded, "-o", tmp_path / "two", "--redact", "-q")
        assert not [secret for secret in secrets if secret in contents(tmp_path / "two")]
        facts = dict(read_page(path)[0]["capture"]["facts"])
        assert facts["Command"] == "city" and not {"Host", "Options"} & set(facts)
    one = ("--pid", 1276) if to == "heaptrack" else ()  # this format has one process
    profcapture("export", made, "--to", to, *one, "-o", path, "--redact", "-q", "--force")
    assert not re.search(rb"jane|moon|fe80", contents(path), re.IGNORECASE)
    if to in ("folded", "speedscope", "svg", "html"):
        # names that one capture reveals are redacted in the texts of the other
        profcapture("export", made, "--to", to, "--compare", private / "later.cap", "-o", path, "--redact", "-q", "--force")
        assert not re.search(rb"jane|moon|sunny", contents(path), re.IGNORECASE)
    profcapture("export", made, "--to", to, *one, "-o", path, "-q", "--force")
    assert b"moon" in contents(path) or to in ("heaptrack", "massif")  # these formats have only allocations, here without stacks


def test_redact_operand(profcapture, private, chromium, tmp_path, monkeypatch):
    """The folders in the capture's path, as typed, are left out, too."""
    monkeypatch.chdir(private.parent)
    capture, page = f"{private.name}/city.cap", tmp_path / "page.html"
    for options in [], ["--compare", capture]:
        profcapture("html", capture, *options, "--redact", "-o", page, "-q", "--force")
        found = contents(page)
        assert os.fsencode(private.name) not in found and b"city.cap" in found
        assert len(read_page(page)[0]["verdict"]) > 1


def test_redact_names(profcapture, private, chromium, tmp_path, monkeypatch):
    """The names that are redacted in texts are redacted in the names of files, in the options with
    which the page was made, and in everything that the page shows."""
    monkeypatch.chdir(tmp_path)
    made = private / "made-by-jane.cap"
    for options in ["--focus", "jane|moon|."], ["--compare", made], []:
        profcapture("html", made, *options, "--redact", "-q", "--force")
        assert [path.name for path in tmp_path.glob("*.html")] == ["made-by-USER.html"]
        assert not re.search(rb"jane|moon", contents(tmp_path / "made-by-USER.html"), re.IGNORECASE)
    everything = "document.title + document.body.innerText + [...document.querySelectorAll('[title], [aria-label]')].map((e) => e.title + e.ariaLabel).join()"
    steps = [step for key in range(1, 8) for step in ({"key": str(key)}, {"eval": everything})]
    shown = chromium(tmp_path / "made-by-USER.html", {"open": ""}, *steps)
    assert len(set(shown)) == 7 and not [text for text in shown if re.search("jane|moon", text, re.IGNORECASE)]
