# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Messages are in the user's language, but output for programs is not."""
import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["PROF_SOURCE_DIR"])


@pytest.fixture(scope="session")
def german(tmp_path_factory):
    """A German locale, generated here because glibc 2.39 and later use the C locale for C.UTF-8,
    which is never translated."""
    folder = tmp_path_factory.mktemp("locale")
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", folder / "de_DE.UTF-8"], check=True)
    return {"LOCPATH": folder, "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"}


@pytest.mark.parametrize("name", ["profctl", "profcapture"])
def test_usage_is_translated(name, request, german):
    program = request.getfixturevalue(name)
    assert "Usage:" in program("--help").stdout
    assert "Aufruf:" in program("--help", env=german).stdout


def test_help_is_translated_down_to_the_values(profctl, german):
    for language, value, what in ({}, "--output FILE", "Overwrite"), (german, "--output DATEI", "überschreiben"):
        shown = profctl("record", "--help", env=language).stdout
        assert value in shown and what in shown
    assert "--output DATEI" in profctl("record", "--output", env=german, check=2).stderr


def test_c_locale_is_english(profctl):
    assert "Usage:" in profctl("--help", env={"LC_ALL": "C", "LANGUAGE": "de"}).stdout


def test_every_source_with_messages_is_listed():
    listed = set((SOURCE / "po/POTFILES").read_text().split())
    using = set()
    for folder in ("daemon", "tools"):
        for path in (SOURCE / folder).rglob("*.c"):
            if re.search(r"(?<![A-Za-z_])(_|N_|ngettext|C_|Q_)\(\s*\"", path.read_text()):
                using.add(str(path.relative_to(SOURCE)))
    assert using - listed == set(), "add these to po/POTFILES"
    assert [name for name in listed if not (SOURCE / name).exists()] == []


def messages(*command):
    """Returns the msgids of the catalog that a command prints."""
    done = subprocess.run(
        command, cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=True, timeout=60
    )
    entries = re.findall(r'^msgid ((?:".*"\n)+)', done.stdout, re.MULTILINE)
    return {"".join(re.findall(r'"(.*)"\n', entry)) for entry in entries}


@pytest.mark.parametrize("language", (SOURCE / "po/LINGUAS").read_text().split())
def test_catalogue_is_sound_and_translates_what_exists(language):
    catalogue = f"po/{language}.po"
    subprocess.run(["msgfmt", "--check", "-o", os.devnull, catalogue], cwd=SOURCE, check=True, timeout=60)
    in_sources = messages(
        "xgettext", "--files-from=po/POTFILES", "--from-code=UTF-8", "-k_", "-kN_", "-kngettext:1,2", "-kC_:1c,2", "-o", "-"
    )
    translated = messages("msgcat", catalogue)
    assert translated - in_sources == set(), f"{catalogue} translates messages that no source has"
