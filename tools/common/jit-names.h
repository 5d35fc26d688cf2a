/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT names - what programs say in files of the code that they generate
 *
 * /tmp/perf-PID.map and jit-PID.dump, as perf knows them, of processes of this boot of this
 * machine: through the process's own root while it lives, so that containers' are found, else by
 * the path. A file counts where it is a regular one of the process's user or of root, was written
 * since the process began, and is no larger than 256 MiB.
 */
#pragma once

#include "tools/common/names.h"

/* A row of the table jit. */
struct jit_name {
	uint64_t time_ns; /* of the segment's clock */
	uint32_t event;   /* PROF_JIT_LOAD or PROF_JIT_MOVE */
	uint64_t address, size, from;
	const char *name; /* of the texts; "" for a move */
};

/* Where and when to look. */
struct jit_process {
	uint64_t pid, uid;
	uint64_t start_ns; /* of the process, by the segment's clock; 0 = unknown */
	const char *dump;  /* path of the jitdump that it has mapped; NULL = none */
	const struct prof_segment *segment; /* the one whose places are to be named */
	uint64_t end_ns;                    /* of it */
	/* becomes the struct jit_line of a dump, where there is one; NULL = not wanted */
	GArray **lines;
};

/*
 * Rows by time that name these addresses (sorted, each once), or none: of the dump where there is
 * one, else of the map, whose names hold for the whole segment. Names go into `texts`. Reads files
 * only.
 */
GArray *jit_names_find(const struct jit_process *process, const uint64_t *addresses, size_t n,
		       GStringChunk *texts);

/* For tests and fuzzers: what is in a file's bytes. */
GArray *jit_names_of_map(const char *text, size_t bytes, const uint64_t *addresses, size_t n,
			 uint64_t time_ns, GStringChunk *texts);
GArray *jit_names_of_dump(const void *bytes, size_t size, const uint64_t *addresses, size_t n,
			  uint64_t from_ns, uint64_t to_ns, GStringChunk *texts);
