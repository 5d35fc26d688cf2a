/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-sources - source lines and instructions of the hottest functions, for the page
 *
 * The page gets each sample in these functions with its instruction, so that it can count lines and
 * instructions again for each range, as it does functions  [test_html: with_source]
 */
#pragma once

#include "tools/profcapture/html-rows.h"

/* Adds the table `places` of the samples in these functions to the page, and the member `sources`
 * to the JSON. */
bool html_sources_write(struct html_rows *rows, struct code_files *files, GError **error);
