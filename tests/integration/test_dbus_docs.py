# SPDX-License-Identifier: BSD-2-Clause-Patent
"""docs/dbus.md and the installed XML both contain the whole interface, and the documented commands
work."""
import os
import re
import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest

import buses
from buses import pids

SOURCE = Path(os.environ["PROF_SOURCE_DIR"])
DOCS = (SOURCE / "docs/dbus.md").read_text(encoding="utf-8")
OURS = (buses.PROFILER, buses.SESSION)


@pytest.fixture(scope="module")
def interfaces():
    """Returns {interface: (its comment, [(a member's comment, its element)])} of our interfaces."""
    builder = xml.etree.ElementTree.TreeBuilder(insert_comments=True)
    root = xml.etree.ElementTree.parse(SOURCE / "data/dbus/org.profd.Profiler1.xml", xml.etree.ElementTree.XMLParser(target=builder))

    def members(parent):
        comment = ""
        for element in parent:
            if element.tag is xml.etree.ElementTree.Comment:
                comment = element.text.strip()
            else:
                yield comment, element
                comment = ""

    found = {element.get("name"): (comment, list(members(element))) for comment, element in members(root.getroot())}
    return {name: found[name] for name in OURS}


def test_all_is_annotated(interfaces):
    for name, (about, members) in interfaces.items():
        assert about.startswith(f"{name}:")
        for comment, element in members:
            assert comment.startswith(f"{element.get('name')}:") and len(comment) > len(element.get("name")) + 5, element.get("name")
            for arg in element.iter("arg"):
                assert f"@{arg.get('name')}:" in comment, (element.get("name"), arg.get("name"))


def signature(element):
    """Returns a member as docs/dbus.md writes it, such as "OpenImage (t id) -> (h image)"."""
    def arguments(*directions):
        return ", ".join(f"{arg.get('type')} {arg.get('name')}" for arg in element.iter("arg") if arg.get("direction") in directions)

    result = arguments("out")
    return f"{element.get('name')} ({arguments('in', None)})" + (f" -> ({result})" if result else "")


def described():
    """Returns {name: type} from the tables of docs/dbus.md that begin with names and types."""
    found = {}
    for names, types in re.findall(r"^\| ((?:`[\w-]+` ?)+)\| ([abdhinoqstuvxy{}() ]*) ?\|", DOCS, re.MULTILINE):
        names, types = re.findall(r"`([\w-]+)`", names), types.split()
        found.update(zip(names, types * len(names) if len(types) == 1 else types))
    return found


def test_all_is_described(interfaces):
    types = described()
    for _, members in interfaces.values():
        for _, element in members:
            if element.tag == "property":
                assert types.get(element.get("name"), "s") == element.get("type") and f"`{element.get('name')}`" in DOCS, element.get("name")
            else:
                assert f"`{signature(element)}`" in DOCS, signature(element)
    options = dict(re.findall(r'\{ "([\w-]+)", "(\w+)", (?:FIELD|parse_|keep_)', (SOURCE / "daemon/broker/options.c").read_text()))
    assert len(options) > 20
    assert {name: types.get(name) for name in options} == options
    errors = re.findall(r'"org\.profd\.Profiler1\.Error\.(\w+)"', (SOURCE / "daemon/broker/error.c").read_text())
    assert len(errors) == 8 and all(f"| `{error}` |" in DOCS for error in errors)
    actions = xml.etree.ElementTree.parse(SOURCE / "data/polkit/org.profd.policy").getroot().iter("action")
    assert [action.get("id") for action in actions if f"| `{action.get('id')}` |" not in DOCS] == []


def test_codes_of_warnings():
    """The table of warning codes in docs/dbus.md has exactly the codes of the sources."""
    call = r'(?:\bwarning\(|\bwarn\(|channel_warn\(|give_up\(|"Warning",\s*g_variant_new\(\s*"\(ss\)",)[^;"]*"([a-z-]+)"(?: : "([a-z-]+)")?'
    sources = (path.read_text(encoding="utf-8") for path in (SOURCE / "daemon").rglob("*.c"))
    sent = {code for text in sources for codes in re.findall(call, text) for code in codes if code}
    table = DOCS[DOCS.index("| code of `Warning` |") :].partition("\n\n")[0]
    assert len(sent) > 10 and sorted(re.findall(r"^\| `([a-z-]+)`", table, re.MULTILINE)) == sorted(sent)


def test_commands(bus, file, spawn, require):
    """The documented commands run one after the other, while a session is running."""
    require("gdbus", "busctl")
    bus.start("polkit.addRule(function(action, subject) { return polkit.Result.YES; });")
    client = bus.client()
    path = client.create(pids(spawn("sh", "-c", "while :; do :; done").pid), file)
    client.session(path, "Start")
    client.wait_samples(path)
    script, = re.findall(r"^```sh\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    assert script.count("gdbus") > 2 and script.count("busctl") == 4 and path in script
    done = subprocess.run(["sh", "-exc", script], env=bus.env, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    for said in ("'max-frequency'", f"objectpath '{path}'", ".CreateSession", 's "paused"'):
        assert said in done.stdout
    ok, reason, summary = client.wait("Finished", path)
    assert (ok, reason) == (True, "stopped") and summary["samples"] >= 20
    assert [key for key in summary if f"`{key}`" not in DOCS] == []
