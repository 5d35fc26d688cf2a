/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-counters - the points of counters for the page
 *
 * A counter has a point for each value; a sum has its growth per second instead. If there are too
 * many, the least and the greatest of each part of the time are kept.
 */
#pragma once

#include "tools/profcapture/html-rows.h"

/* Adds the member "counters" to the JSON. */
bool html_counters_write(struct html_rows *rows, GError **error);
