# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The words that completion in bash offers."""
import pytest

from completion import offered


@pytest.fixture
def complete(profctl, tmp_path):
    (tmp_path / "some.cap").write_text("")
    return lambda *words: offered(profctl, *words, cwd=tmp_path)


def test_verbs(complete):
    assert complete("doc") == ["doctor"]
    assert "schema" in complete("")
    assert "--version" in complete("--v")
    assert complete("help", "doc") == ["doctor"]
    assert complete("schema", "doc") == ["doctor"]


def test_options(complete):
    assert complete("doctor", "--j") == ["--json"]
    assert sorted(complete("doctor", "-")) == ["--all", "--color", "--help", "--json"]
    assert complete("doctor", "--nothing") == []


def test_choices(complete):
    assert complete("doctor", "--color", "al") == ["always"]
    assert complete("doctor", "--color", "=") == ["auto", "always", "never"]
    assert complete("doctor", "--color", "=", "n") == ["never"]


def test_optional_values(complete):
    assert complete("record", "--memory") == ["--memory", "--memory-min", "--memory-mmap"]
    assert complete("record", "--memory", "=") == ["all", "sample:"]
    assert complete("record", "--memory", "=", "sample", ":", "4K", "--fre") == ["--frequency"]
    assert complete("record", "--memory", "--fre") == ["--frequency"]


def test_files(complete):
    assert complete("doctor", "some") == ["some.cap"]


@pytest.mark.parametrize("verb", ["stop", "pause", "resume"])
def test_no_files_where_there_are_sessions(complete, monkeypatch, verb):
    """Without a bus, no session exists. test_bus_control checks that the numbers of sessions are
    offered."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent")
    assert complete(verb, "") == []
    assert complete(verb, "-") == ["--help"]


def test_events(complete):
    """bash splits a word at colons, and replaces only the last part."""
    assert complete("record", "-e", "page-fa") == ["page-faults"]
    assert complete("record", "--event", "=", "page-faults,minor-f") == ["page-faults,minor-faults"]
    assert "getpgid" in complete("record", "-e", "libc.so.6", ":", "getpg")
    assert complete("record", "-e", "page-faults", "--fre") == ["--frequency"]
    assert complete("record", "--event", "page-faults", "tru")[0] == "true"


def test_tracepoints(complete, require):
    """Tracepoints are offered to users who may read tracefs, also for `profctl list`."""
    require(root=True)
    assert complete("record", "-e", "sched", ":", "sched_swi") == ["sched_switch"]
    assert complete("record", "-e", "page-faults,sched", ":", "sched_swi") == ["sched_switch"]
    assert "sched_process_exec" in complete("list", "sched", ":", "sched_process_e")
    assert complete("list", "page-fa") == ["page-faults"]
    assert complete("list", "--js") == ["--json"]
