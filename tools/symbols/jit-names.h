/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT names - names and lines of generated code from the files that programs write
 *
 * As perf does, reads /tmp/perf-PID.map and jit-PID.dump of processes of this machine's current
 * boot. A live process's files are opened through its root, so that those of containers are found.
 * A file is used only if it is a regular file of the process's user or of root, was written after
 * the process began, and is no larger than 256 MiB.
 */
#pragma once

#include "tools/symbols/names.h"

/* A row of the table jit. */
struct jit_name {
	uint64_t time_ns; /* in the segment's clock */
	uint32_t event;   /* PROF_JIT_LOAD or PROF_JIT_MOVE */
	uint64_t address, size, from;
	const char *name; /* stored in the caller's `texts`; "" for a move */
};

/* The source line of an address. */
struct jit_line {
	uint64_t address; /* one of the requested addresses */
	uint32_t line;    /* from 1 on */
	const char *file; /* stored in the caller's `texts` */
};

/* The process, and where and when to search. */
struct jit_process {
	uint64_t pid, uid;
	uint64_t start_ns; /* start of the process in the segment's clock; 0: unknown */
	const char *dump;  /* path of the jitdump that it has mapped; NULL: none */
	const struct prof_segment *segment; /* segment whose addresses need names */
	uint64_t end_ns;                    /* end of the segment */
	/* set to an array of struct jit_line if the dump is used; NULL: not wanted */
	GArray **lines;
};

/*
 * Returns rows, sorted by time, that name these addresses: from the dump if it names any, else from
 * the map, whose names are valid for the whole segment. Returns NULL if the dump names none and
 * there is no map. `addresses`: sorted, without duplicates. Names are added to `texts`.
 */
GArray *jit_names_find(const struct jit_process *process, const uint64_t *addresses, size_t n,
		       GStringChunk *texts);

/* For tests and fuzzers: return the rows for a file's bytes. */
GArray *jit_names_of_map(const char *text, size_t bytes, const uint64_t *addresses, size_t n,
			 uint64_t time_ns, GStringChunk *texts);
GArray *jit_names_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts);
/* Returns lines, sorted by address, of the addresses that held only the code of one unmoved load
 * from from_ns to to_ns of the dump's clock: these lines are right at any time in between. */
GArray *jit_lines_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts);

/*
 * A line "START SIZE NAME" of a map. Both numbers are in hex, with or without 0x; the name is the
 * rest of the line (node, OpenJDK, .NET, LuaJIT, Python). There are no times: the last line for an
 * address is used.
 */
struct perf_map_entry {
	uint64_t start, size; /* size at least 1; start + size does not overflow */
	const char *name;     /* in the text, not terminated; may contain control characters */
	size_t name_bytes;    /* at least 1 */
};

/* Returns the next valid line from *at; false at the end. Skips invalid lines, and a last line
 * without a newline. */
bool perf_map_next(const char *text, size_t bytes, size_t *at, struct perf_map_entry *ret_entry);
