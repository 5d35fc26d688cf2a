# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Functions of interpreted programs are shown like others: with their names, files and lines, and
without the interpreter's own functions. make-interpreted.c writes the capture."""
import os
import subprocess

import pytest
import schema

SOURCE = "".join(f"# line {i}\n" for i in range(1, 5)) + "def sell(self):\n    return bytes(n)\n"
SOURCE += "".join(f"# line {i}\n" for i in range(7, 11)) + "def price():\n    return n * 2\n"
SOURCE += "".join(f"# line {i}\n" for i in range(13, 20)) + "Shop().sell()\n"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("interpreted") / "m.py"
    path.write_text(SOURCE)
    os.utime(path, (1600000000, 1600000000))
    return path


@pytest.fixture(scope="module")
def capture(source):
    path = source.with_suffix(".cap")
    subprocess.run([os.environ["MAKE_INTERPRETED"], source, path], check=True)
    return path


def rows(profcapture, *args):
    answer = profcapture.json("report", *args)
    schema.check(profcapture, "report", answer)
    return {row["name"]: row for row in answer["data"]["rows"]}, answer["data"]


def test_functions(profcapture, capture, source):
    found, data = rows(profcapture, capture)
    assert {name: (row["self"], row["total"]) for name, row in found.items()} == {
        "memcpy": (70, 70), "m.price": (30, 30), "main": (5, 5), "m.<module>": (0, 100), "m.Shop.sell": (0, 70),
        "json.dumps": (0, 70),
    }
    sell = found["m.Shop.sell"]
    assert (sell["kind"], sell["file"], sell["line"], sell["image"]) == ("python", str(source), 5, "[python 3.11]")
    assert data["interpreter"] == {"complete": 100, "deeper": 0, "torn": 2, "missing": 0, "idle": 3}
    text = profcapture("report", capture).stdout
    assert "Most in m.Shop.sell 67 % (memcpy 67 %), m.price 29 %." in text
    assert "m.Shop.sell  m.py:5" in text and "Interpreted functions unreadable: 1.9 %." in text


def test_interpreter_frames(profcapture, capture):
    found, _ = rows(profcapture, capture, "--interpreter-frames")
    assert {name: (row["self"], row["total"]) for name, row in found.items()} == {
        "memcpy": (70, 70), "m.price": (30, 30), "main": (5, 105), "m.<module>": (0, 100), "m.Shop.sell": (0, 70),
        "_PyEval_EvalFrameDefault": (0, 100), "json.dumps": (0, 70),
    }


def test_lines(profcapture, capture):
    found = profcapture.json("report", capture, "--by", "line")["data"]["rows"]
    assert {(row["name"], row["line"], row["total"]) for row in found if row["kind"] == "python" and row["line"]} == {
        ("m.<module>", 20, 100), ("m.Shop.sell", 6, 70), ("m.price", 12, 30),
    }


def test_filters(profcapture, capture):
    found, data = rows(profcapture, capture, "--focus", r"m\.py", "--hide", "memcpy|dumps")
    assert {name: row["self"] for name, row in found.items()} == {"m.Shop.sell": 70, "m.price": 30, "m.<module>": 0}
    assert data["self_total"] == 100


def test_stacks(profcapture, capture):
    folded = profcapture("export", "--to", "folded", capture).stdout.splitlines()
    assert sorted(folded) == [
        "python3;m.<module>;m.Shop.sell;json.dumps;memcpy 70", "python3;m.<module>;m.price 30", "python3;main 5",
    ]
    whole = profcapture("export", "--to", "folded", "--interpreter-frames", capture).stdout
    assert "main;_PyEval_EvalFrameDefault;m.<module>;_PyEval_EvalFrameDefault;m.price 30\n" in whole
    tree = profcapture("report", capture, "--tree").stdout
    assert "m.<module>  m.py:1" in tree and "_PyEval" not in tree


def test_annotate(profcapture, capture):
    text = profcapture("annotate", capture, "m.price").stdout
    assert "m.price at m.py:11" in text and "12      return n * 2" in text
    assert "No instructions: the function is interpreted." in text
    assert "6      return bytes(n)" in profcapture("annotate", capture, "m.Shop.sell").stdout


@pytest.mark.parametrize("format", ["html", "pprof", "firefox", "speedscope", "svg", "callgrind", "chrome", "perf-script"])
def test_exports(profcapture, capture, tmp_path, format):
    made = tmp_path / "made"
    profcapture("export", "--to", format, capture, "-o", made)
    if format not in ("html", "pprof"):
        assert "m.Shop.sell" in made.read_text()
        assert "_PyEval" not in made.read_text()


def test_page_with_source(profcapture, capture, tmp_path):
    made = tmp_path / "made.html"
    profcapture("html", capture, "--with-source", "-o", made)
    assert made.stat().st_size > 10000


def test_rewritten(profcapture, capture, tmp_path):
    for verb in ("compact",), ("cut", "--to", "2s"):
        made = tmp_path / f"{verb[0]}.cap"
        profcapture(*verb, capture, "-o", made)
        assert rows(profcapture, made)[0] == rows(profcapture, capture)[0]
