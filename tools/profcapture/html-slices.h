/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Html-slices - the slices of threads for the page: when each ran, was ready, or waited
 *
 * A slice is a state of a thread. If there are too many, they are merged into bins of the thread's
 * time, each with the time of every state; bins grow, so that memory is bounded however long the
 * recording is.
 */
#pragma once

#include "tools/profcapture/html-rows.h"

/* Adds the columns of the table `slices`. Sets rows->times. */
bool html_slices_write(struct html_rows *rows, GError **error);
