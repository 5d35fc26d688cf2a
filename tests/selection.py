#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Selects tests of a build folder and prints their names.

    selection.py BUILD [--programs] [NAME…]
    selection.py BUILD --affected-by FILE…

NAME is a test or a suite, such as a folder of the source tree. Without a NAME, all tests are
selected. --programs prints the files that have to be built for the selected tests instead.

--affected-by selects the tests that a change of the files affects, and prints the reason to stderr.
A C file affects the unit tests that are built from it, and the scenarios (in tests/integration)
that use a program built from it, according to ninja's rules and the compiler's dependencies; a
Python file affects the scenario that it contains, and those that import it; any other file affects
the tests whose source names the file, or its folder in quotes. The lints read every file, so they
are always affected.
"""
import argparse
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def ninja_inputs(build):
    """Returns {output: its inputs} from build.ninja; the inputs of an object include the headers
    that the compiler read."""
    inputs = {}
    text = (build / "build.ninja").read_text(encoding="utf-8").replace("$\n", "")
    for outputs, rest in re.findall(r"^build (.*?): \S+ ?(.*)$", text, re.MULTILINE):
        names = [name for name in rest.split(" ") if name and not name.startswith("|")]
        for output in outputs.replace("|", " ").split():
            inputs.setdefault(output, []).extend(names)
    deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    for block in deps.split("\n\n"):
        lines = block.splitlines()
        if lines and ": #deps" in lines[0]:
            inputs.setdefault(lines[0].partition(": #deps")[0], []).extend(line.strip() for line in lines[1:])
    return inputs


@functools.cache
def source_of(build, name):
    """Returns a set with the file of the source tree that ninja calls `name`, or an empty set if
    the name is that of an output of the build."""
    path = os.path.normpath(os.path.join(build, name))
    is_source = path.startswith(f"{ROOT}/") and not path.startswith(f"{build}/")
    return {path.removeprefix(f"{ROOT}/")} if is_source else set()


def sources(build, target, inputs, known):
    """Returns the files of the source tree that the target is built from."""
    if target not in known:
        known[target] = set()
        for name in inputs.get(target, []):
            known[target] |= source_of(build, name) | (sources(build, name, inputs, known) if name in inputs else set())
    return known[target]


@functools.cache
def python_sources(script):
    """Returns the script, conftest.py, and the files beside them that they import, recursively."""
    found, todo = set(), [script]
    if (script.parent / "conftest.py").exists():
        todo.append(script.parent / "conftest.py")
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for name in re.findall(r"^\s*(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if (path.parent / f"{name}.py").exists():
                todo.append(path.parent / f"{name}.py")
    return {str(path.relative_to(ROOT)) for path in found}


def scripts_of(test):
    found = set()
    for word in test["cmd"]:
        path = Path(word)
        if path.suffix == ".py" and path.is_relative_to(ROOT):
            found |= python_sources(path)
    return found


def used_outputs(build, test, targets):
    """Returns the outputs that the test uses. In Meson, a scenario depends on every program, but uses
    only programs whose variable or fixture the scenario names. An output without a variable is used
    if the scenario names the output's folder or the whole build."""
    outputs = [output for target in test["depends"] for output in targets.get(target, [])]
    scripts = frozenset(name for name in scripts_of(test) if not name.endswith("/conftest.py"))
    if not scripts or "lint" in suites(test):
        return outputs
    words = set().union(*map(words_of, scripts))
    variables = {str(Path(value).relative_to(build)): name for name, value in test["env"].items() if value.startswith(f"{build}/")}
    own = frozenset(name for name in scripts if Path(name).name.startswith("test_"))
    scenario, own_words = text_of(own), set().union(*map(words_of, own))
    recording = re.search(r"def \w+\([^)]*\b(profctl|recorder|bus|profd)\b", scenario)
    found = []
    for output in outputs:
        name = "PROFD" if output.startswith("daemon/") else variables.get(output)
        if name:
            used = name in words or name.lower() in own_words or recording and re.fullmatch("PROFD|PROFCTL|LIB.*", name)
        else:
            folder = next(parent for parent in Path(output).parents if (ROOT / parent).is_dir())
            used = "PROF_BUILD_DIR" in own_words or re.search(rf'"{re.escape(str(folder))}["/]', scenario)
        if used:
            found.append(output)
    return found


def affected(build, tests, targets, files):
    inputs, known = ninja_inputs(build), {}
    parts = []
    for test in tests:
        built = scripts_of(test)
        for output in used_outputs(build, test, targets):
            built |= sources(build, output, inputs, known)
        parts.append(built)
    read = set(files) - set().union(*parts)
    for test, built in zip(tests, parts):
        text = text_of(frozenset(scripts_of(test) | {name for name in built if re.fullmatch(r"tests/unit/.*\.[ch]", name)}))
        why = [name for name in files if "lint" in suites(test) or name in built or name in read
               and (Path(name).name in text or "/" in name and f'"{Path(name).parent}"' in text)]
        if why:
            print(f"{test['name']}: {', '.join(why[:3])}{' …' if len(why) > 3 else ''}", file=sys.stderr)
            yield test


@functools.cache
def text_of(names):
    return "".join((ROOT / name).read_text(encoding="utf-8") for name in sorted(names) if (ROOT / name).exists())


@functools.cache
def words_of(name):
    return set(re.findall(r"\w+", text_of(frozenset([name]))))


def suites(test):
    return {suite.partition(":")[2] for suite in test["suite"]}


def introspect(build, what):
    """The data that meson wrote when it configured the build; meson rewrites it when the build's
    definition changes."""
    return json.loads((build / f"meson-info/intro-{what}.json").read_text(encoding="utf-8"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("--affected-by", nargs="+", metavar="FILE")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_intermixed_args()
    build = options.build.resolve()
    tests = introspect(build, "tests")
    targets = {
        target["id"]: [str(Path(name).relative_to(build)) for name in target["filename"]]
        for target in introspect(build, "targets")
    }
    wanted = {name.rstrip("/") for name in options.names}
    unknown = wanted - {name for test in tests for name in {test["name"]} | suites(test)}
    if unknown:
        print(f"no test or folder is called {', '.join(sorted(unknown))}; see: meson test -C {options.build} --list", file=sys.stderr)
        return 2
    chosen = [test for test in tests if not wanted or wanted & ({test["name"]} | suites(test))]
    if options.affected_by:
        chosen = list(affected(build, chosen, targets, options.affected_by))
    found = {test["name"] for test in chosen}
    if options.programs:
        found = {output for test in chosen for output in used_outputs(build, test, targets)}
    print(*sorted(found), sep="\n", end="\n" if found else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
