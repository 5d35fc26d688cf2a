# SPDX-License-Identifier: BSD-2-Clause-Patent
"""What a program does while the real profd records it, is stopped, or is killed: it goes on unhurt, and each mark that it was
told of is in the capture; what is not, is counted."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from captures import rows

pytestmark = pytest.mark.usefixtures("nothing_is_left")
BUILD = Path(os.environ["PROF_BUILD_DIR"])
CONFIG = (BUILD / "config.h").read_text()
INCLUDE = Path(os.environ["PROF_SOURCE_DIR"]) / "libcollector"
LIBRARY = Path(os.environ["LIBPROFCOLLECTOR"])
SANITIZED = "#define PROF_SANITIZED 1" in CONFIG
without_sanitizer = pytest.mark.skipif(SANITIZED, reason="a sanitizer's runtime is in the way")

# ---- where the library is found

FRONT = '#include <prof/mark.h>\nint main(void) { return prof_instant("front", "here") ? 0 : 3; }\n'


@pytest.fixture(scope="module")
def front(compile_c):
    """Has nothing of ours but the header."""
    return compile_c("front", FRONT, "-I", INCLUDE)


def names(profcapture, capture):
    return [mark["name"] for mark in rows(profcapture, capture, "mark")]


@without_sanitizer
def test_library_of_a_build_tree(profctl, profcapture, capture, front):
    """It is nowhere that the loader looks."""
    profctl("record", "-o", capture, "--no-symbols", "--", front, env={"LD_LIBRARY_PATH": None})
    assert names(profcapture, capture) == ["here"]


@without_sanitizer
def test_library_of_an_installation(profctl, profcapture, capture, front, require):
    """In a folder of its own, as below /opt; profctl knows it."""
    require("unshare", root=True)
    folder = Path(re.search('PROF_DEFAULT_LIB_DIR "(.*)"', CONFIG)[1])
    if not str(folder).startswith(("/usr/local/", "/opt/")):
        pytest.skip("what is installed would hide the system's own libraries")
    script = f"mount -t tmpfs none /{folder.parts[1]}/{folder.parts[2]} && mkdir -p {folder} && " \
        f"ln -s {LIBRARY.resolve()} {folder}/libprofcollector.so.0 && exec \"$@\""
    profctl("record", "-o", capture, "--no-symbols", "--", front, prefix=["unshare", "-m", "sh", "-c", script, "sh"],
            env={"LD_LIBRARY_PATH": None, "PROF_LIB_DIR": None})
    assert names(profcapture, capture) == ["here"]


@without_sanitizer
def test_library_that_is_not_there(profctl, profcapture, capture, front, tmp_path):
    for folder in (tmp_path, "x" * 5000, ""):
        profctl("record", "--force", "-o", capture, "--no-symbols", "--", front, check=3,
                env={"LD_LIBRARY_PATH": None, "PROF_LIB_DIR": folder})
        assert names(profcapture, capture) == []
