/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-page - the HTML page of a report: a frame with the style and the script, and packed data
 *
 * The data is the text of a JSON object and columns of numbers; data/report/data.js describes the
 * layout. The same data makes the same page: the page adds no time, random number or path. Numbers
 * are unsigned; the largest one of a column sets its width in bytes.
 */
#pragma once

#include "tools/common/json.h"

struct report_page {
	GByteArray *columns; /* byte planes of all columns */
	struct out list;     /* JSON: list of the columns */
	struct json json;
};

void report_page_init(struct report_page *page);
void report_page_done(struct report_page *page);

/* A column: an unsigned integer member of each row. `name`: "table.column". `delta`: store
 * differences to the row above; needs numbers that never decrease. `scale`: the page divides the
 * numbers by this (0: by 1). */
struct report_column {
	const char *name;
	size_t offset, size; /* offset and size of the member; 1, 4 or 8 bytes */
	bool delta;
	unsigned scale;
};
#define REPORT_MEMBER(type, member) offsetof(type, member), sizeof(((type *)NULL)->member)
/* Adds the columns of an array of structs. */
void report_page_add(struct report_page *page, const GArray *rows,
		     const struct report_column *columns, size_t n);

/* Writes the page. `members`: JSON members of the header, without braces. Returns false if zlib
 * fails. */
bool report_page_write(const struct report_page *page, const GString *members, struct out *out);
