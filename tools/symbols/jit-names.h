/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT names - names and lines of generated code from the files that programs write
 *
 * Reads /tmp/perf-PID.map and jit-PID.dump, as perf does, of processes of this boot of this
 * machine: through the process's own root while it lives, so that containers' files are found, else
 * by the path. A file counts if it is a regular file of the process's user or of root, was written
 * after the process began, and is no larger than 256 MiB.
 */
#pragma once

#include "tools/symbols/names.h"

/* A row of the table jit. */
struct jit_name {
	uint64_t time_ns; /* of the segment's clock */
	uint32_t event;   /* PROF_JIT_LOAD or PROF_JIT_MOVE */
	uint64_t address, size, from;
	const char *name; /* in the texts; "" for a move */
};

/* The source line of an address. */
struct jit_line {
	uint64_t address; /* one of the requested addresses */
	uint32_t line;    /* from 1 */
	const char *file; /* in the texts */
};

/* Where and when to look. */
struct jit_process {
	uint64_t pid, uid;
	uint64_t start_ns; /* of the process, by the segment's clock; 0 = unknown */
	const char *dump;  /* path of the jitdump that it has mapped; NULL = none */
	const struct prof_segment *segment; /* the segment whose places need names */
	uint64_t end_ns;                    /* the end of the segment */
	/* set to the struct jit_line of a dump, if there is one; NULL = not wanted */
	GArray **lines;
};

/*
 * Returns rows by time that name these addresses (sorted, each once), or none: from the dump if
 * there is one, else from the map, whose names are valid for the whole segment. Names go into
 * `texts`. Only reads files.
 */
GArray *jit_names_find(const struct jit_process *process, const uint64_t *addresses, size_t n,
		       GStringChunk *texts);

/* For tests and fuzzers: the rows from a file's bytes. */
GArray *jit_names_of_map(const char *text, size_t bytes, const uint64_t *addresses, size_t n,
			 uint64_t time_ns, GStringChunk *texts);
GArray *jit_names_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts);
/*
 * Returns rows by address for the addresses that held code of only one load between from_ns and
 * to_ns of the dump's clock, so that the line is right at any time between. Moved code gets no
 * rows.
 */
GArray *jit_lines_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts);

/*
 * A line "START SIZE NAME" of a map, both numbers in hex with or without 0x; the name is the rest
 * of the line (node, OpenJDK, .NET, LuaJIT, Python). There are no times: the last line for an
 * address counts.
 */
struct perf_map_entry {
	uint64_t start, size; /* size at least 1; start + size does not overflow */
	const char *name;     /* in the text, not terminated; may contain control characters */
	size_t name_bytes;    /* at least 1 */
};

/* Returns the next valid line from *at; false at the end. Invalid lines are skipped, and so is a
 * last line without a newline. */
bool perf_map_next(const char *text, size_t bytes, size_t *at, struct perf_map_entry *ret_entry);
