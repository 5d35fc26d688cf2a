/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT names - names of generated code from the files that programs write
 *
 * Reads /tmp/perf-PID.map and jit-PID.dump, as perf does, of processes of this boot of this
 * machine: through the process's own root while it lives, so that containers' files are found, else
 * by the path. A file counts if it is a regular file of the process's user or of root, was written
 * after the process began, and is no larger than 256 MiB.
 */
#pragma once

#include "tools/common/names.h"

/* A row of the table jit. */
struct jit_name {
	uint64_t time_ns; /* of the segment's clock */
	uint32_t event;   /* PROF_JIT_LOAD or PROF_JIT_MOVE */
	uint64_t address, size, from;
	const char *name; /* in the texts; "" for a move */
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
