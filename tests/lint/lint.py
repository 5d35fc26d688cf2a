# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Functions that the lints share: the list of files, and the entry point with the self-test.

A lint is a module with check(root, …) yielding "FILE:LINE: what is wrong", and SELF_TEST, a list
of (files, number of findings): files is {path: text}, written into an empty folder that check()
then receives as the root.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED_FOLDERS = {".git", "__pycache__", ".pytest_cache"}


def files(root, *suffixes):
    """Returns the repository's files, tracked or new, sorted. With suffixes, only those that have
    one of them."""
    found = list(tracked(root)) if (root / ".git").exists() else [
        path.relative_to(root)
        for path in root.rglob("*")
        if path.is_file() and not SKIPPED_FOLDERS & set(path.parts) and not path.relative_to(root).parts[0].startswith("build")
    ]
    return sorted(path for path in found if not suffixes or path.name.endswith(suffixes))


def tracked(root):
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={root}", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).is_file():
            yield Path(name)


def lines(root, path):
    return enumerate((root / path).read_text(encoding="utf-8", errors="replace").splitlines(), 1)


def run(check, self_test):
    """The main() of a lint: `LINT ROOT [ARGUMENT…]`, or `LINT --self-test`."""
    if sys.argv[1:2] != ["--self-test"]:
        findings = list(check(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
        print(*findings, sep="\n", end="\n" if findings else "")
        return 1 if findings else 0
    failed = False
    for number, (tree, expected) in enumerate(self_test, 1):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in tree.items():
                path = Path(folder).resolve() / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            found = list(check(Path(folder).resolve()))
        ok = len(found) == expected
        failed |= not ok
        print(f"{'ok' if ok else 'not ok'} {number} expects {expected} of {sorted(tree)}")
        if not ok:
            print(*(f"# found {finding}" for finding in found), sep="\n")
    print(f"1..{len(self_test)}")
    return 1 if failed else 0
