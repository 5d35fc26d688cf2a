# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Code that tests of the report page share: a capture and its page, both browsers, and the
comparison of a table with the command that the page names."""
import os
import re
import shlex

import browsers
import pytest
from slices import part

PROGRAM = r"""
#include "libcollector/prof-collector.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile unsigned long sink;
__attribute__((noinline)) static void heavy(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; }
__attribute__((noinline)) static void light(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink ^= i; }
__attribute__((noinline)) static void deep(int left) { if (left) deep(left - 1); else heavy(300000); sink++; }
__attribute__((noinline)) static void *keep(void) { return calloc(1, 3000); }
static void *work(void *data)
{
	for (int i = 0; i < 60; i++) {
		void *volatile brief = malloc(8ul << i % 8);

		prof_mark_begin(0, "shop", "turn", NULL, 0);
		heavy(2000000);
		light(i < 30 ? 300000 : 1300000); /* takes longer in the second half */
		deep(30);
		if (i % 2)
			free(keep());
		else
			sink += (unsigned long)keep();
		free(brief);
		prof_mark_end(0, "shop", "turn", NULL, 0);
		if (i % 10 == 0)
			usleep(3000);
	}
	return data;
}
int main(void)
{
	pthread_t threads[4];
	uint32_t level = prof_counter_define("shop", "level", "", 0);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 20; i++) {
		prof_counter_set(level, i);
		usleep(10000);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
"""


@pytest.fixture(scope="module")
def capture(profctl, compile_c, tmp_path_factory):
    path = tmp_path_factory.mktemp("html") / "city.cap"
    program = compile_c("city", PROGRAM, "-g", "-pthread", f"-I{os.environ['PROF_SOURCE_DIR']}", os.environ["LIBPROFCOLLECTOR"])
    profctl("record", "-q", "-F", 1999, "--memory", "-o", path, "--", program)
    return path


@pytest.fixture(scope="module")
def page_of(profcapture, tmp_path_factory):
    """Writes the page of a capture, once for the same capture, options and size limit."""
    pages = {}

    def write(path, *options):
        key = path, path.stat().st_mtime_ns, os.environ.get("PROF_PAGE_BYTES"), *options
        if key not in pages:
            pages[key] = tmp_path_factory.mktemp("page") / (path.stem + ".html")
            profcapture("export", path, "--to", "html", "-o", pages[key], "-q", *options)
        return pages[key]

    return write


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    with browsers.firefox(tmp_path_factory.mktemp("firefox")) as drive_firefox:
        yield drive_firefox


BROWSERS = ["chromium", "firefox"]


@pytest.fixture(params=BROWSERS)
def drive(request):
    return request.getfixturevalue(request.param)


def in_a_browser(turn):
    """Runs a case in one of the browsers, or, in a soak, in both."""
    return pytest.mark.parametrize("drive", part(BROWSERS, 1, turn), indirect=True)


def not_freed(profcapture, *arguments):
    """Returns the size and the number of blocks that are not freed, in the output of memory."""
    text = profcapture("memory", *arguments).stdout
    return re.search(r"Not freed at exit: (\S+ \S+) in ([\d ]+) block", text.replace("\u00a0", " ")).groups()


def value(text):
    """Returns the number in "1.23 s" or "4.50 KiB", and how far the exact value may be from it."""
    number, unit = re.fullmatch(r"([\d\u202f.]+)(?:\u00a0(\S+))?", text).groups()
    factor = {None: 1, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
    digits = number.replace("\u202f", "")
    return float(digits) * factor, 0.5001 * 10.0 ** -len(digits.partition(".")[2]) * factor


ROWS = "[...(document.querySelector('#panel table')?.querySelectorAll('tbody tr:not([aria-hidden])') ?? [])].map((row) => [...row.cells].map((cell) => cell.querySelector('.name')?.title || cell.textContent))"


def check_functions(profcapture, command, rows, total, n=12):
    """Compares the table's first n rows, and its total, with the output of the command that the page
    names. Returns how many numbers were compared."""
    report = profcapture.json(*shlex.split(command)[1:], "--limit", 0)["data"]
    shown, off = value(total)
    assert abs(shown - report["self_total_weight"]) <= off
    wanted = {}
    for row in report["rows"]:
        wanted.setdefault(row["name"], []).append((row["self_weight"], row["total_weight"]))
    for cells in rows[:n]:
        own, off = value(cells[0]) if cells[0] != "–" else (0, 0)
        assert any(abs(own - weight) <= off for weight, _ in wanted[cells[-1]]), cells
        share = float(cells[3].split("\u00a0")[0].strip("<\u200a"))
        assert any(abs(share - 100 * whole / report["self_total_weight"]) <= 0.51 for _, whole in wanted[cells[-1]]), cells
    return 1 + 2 * len(rows[:n])


def near(text, number):
    amount, off = value(text) if text != "–" else (0, 0.5)
    return abs(amount - number) <= off


def in_panel(label):
    return ROWS.replace("#panel table", f'#panel table[aria-label="{label}"]')


LABELS = "JSON.parse(document.querySelector('#timeline').dataset.rows)"


def check_places(rows, places):
    """Compares the panel's places of waits with those of report --by state. Returns their number."""
    wanted, shown = {}, set()
    for row in places:
        key = row["function"] or "no function of the program", row["call"] or {"other": "something else"}.get(row["cause"], row["cause"])
        wanted[key] = wanted.get(key, 0) + row["time_ns"]
    for took, _, _, _, _, call, name in rows:
        if took:
            key = name, call.split(",")[0]
            amount, off = value(took)
            shown.add(key)
            wanted[key] -= amount
            assert wanted[key] >= -2 * off
    assert shown == set(wanted)
    return len(shown)


TREE = """(() => {
	const bad = [];
	for (const canvas of document.querySelectorAll('canvas')) if (!canvas.getAttribute('aria-label')) bad.push(canvas.id);
	for (const button of document.querySelectorAll('button, input, a')) if (!(button.textContent.trim() || button.getAttribute('aria-label') || button.placeholder)) bad.push(button.outerHTML);
	for (const grid of document.querySelectorAll('[role=grid], [role=treegrid]')) if (!grid.getAttribute('aria-label') || !grid.getAttribute('aria-rowcount')) bad.push(grid.outerHTML.slice(0, 80));
	for (const row of document.querySelectorAll('[role=treegrid] tbody [role=row]')) for (const key of ['level', 'setsize', 'posinset']) if (!row.getAttribute('aria-' + key)) bad.push(key);
	for (const stop of document.querySelectorAll('[tabindex="0"]')) if (!stop.role && stop.localName !== 'button') bad.push('a stop without a role: ' + stop.outerHTML.slice(0, 80));
	if (/(?<![_a-zA-Z])(undefined|NaN)(?!_)/.test(document.querySelector('#panel').textContent)) bad.push('undefined');
	return bad;
})()"""
