/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-selection - which part of the capture a page has
 *
 * The page names the options that it was made with, and adds them to the commands that it copies to
 * the clipboard. If data is missing, the page says whether it was left out or never recorded
 * [test_html: selection].
 */
#pragma once

#include "tools/profcapture/html-sides.h"

/* Writes the members `filters` (options of commands, as words for a shell) and `recorded`. */
bool html_selection_write(const struct html_sides *sides, struct json *json, GError **error);
