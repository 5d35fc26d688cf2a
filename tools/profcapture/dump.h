/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Dump - writes the rows of a table, for the verbs `dump` and `export`
 */
#pragma once

#include "tools/profcapture/reader.h"

/* Writes the rows of a table that pass the reader's filters, in the reader's format, as
 * `dump --table` does. The reader's capture is open and its names are loaded. Returns false with an
 * error, or with the reader's status set after a message. */
bool dump_table(struct reader *reader, const char *table, struct out *out, GError **error);
