/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-record - parses what the BPF program writes about interpreters
 *
 * The input is raw data of perf records. It is aligned to 4 bytes, and not trusted, because most of
 * it was read from the memory of a process.
 */
#pragma once

#include "daemon/interp-protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The frames of a thread, innermost first. */
struct interp_chain {
	uint64_t period;
	uint64_t event; /* id of the sampled event */
	enum interp_family family;
	unsigned minor;
	unsigned flags; /* enum interp_flags */
	unsigned n_undescribed;
	unsigned n_more_runs; /* PHP, Perl: number of runs that end after the end of `frames` */
	unsigned n;
	struct interp_frame frames[INTERP_MAX_FRAMES];
};

/* A code object. The texts are valid UTF-8, and may have control characters. */
struct interp_code_text {
	uint32_t pid;
	uint64_t code;
	uint32_t id;
	/* Python: 0 if the interpreter made the object. Ruby: templates may begin at 0 or below. */
	uint32_t first_line;
	enum interp_family family;
	unsigned minor;
	bool has_owner; /* the name has a class: "block in Class#method", "Class::method" */
	unsigned kind;  /* enum interp_php_kind, enum interp_perl_kind, enum interp_v8_kind */
	char name[3 * INTERP_MAX_NAME + 4], file[3 * INTERP_MAX_FILE + 4];
	const uint8_t *lines; /* points into the record */
	size_t lines_bytes;
};

/* Converts a text to UTF-8. `width`: bytes of a character (1: Latin-1, 2: UCS-2, 4: UCS-4), or
 * INTERP_UTF_8. If is_cut, appends "…". ret_text has room for 3 * size + 4 bytes. Returns false for
 * another width, unless the text is empty. */
bool interp_record_text(const uint8_t *from, size_t size, unsigned width, bool is_cut,
			char *ret_text);

/* Parse a record of a sample, or of a code object. Return false if the bytes are no such record. */
bool interp_record_sample(const uint8_t *bytes, size_t size, struct interp_chain *ret_chain);
bool interp_record_code(const uint8_t *bytes, size_t size, struct interp_code_text *ret_code);
