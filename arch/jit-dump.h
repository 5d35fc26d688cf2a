/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Jitdump - jit-PID.dump, in which a program records its generated code, with times
 *
 * The format is that of Linux' tools/perf/Documentation/jitdump-specification.txt, versions 1 and
 * 2, in either byte order. The bytes are untrusted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jit_dump_kind { JIT_DUMP_LOAD, JIT_DUMP_MOVE, JIT_DUMP_LINES, JIT_DUMP_UNWINDING };

/* The rest of a record of lines, from the next line on. */
struct jit_dump_lines {
	const struct jit_dump *dump;
	size_t at, end;
	uint64_t n; /* number of remaining lines, as the record claims */
	/* size of each line's entry, if all entries have the same size and `file`; else 0 */
	size_t stride;
	const char *file; /* file of the previous line */
};

/* The code from `address` on belongs to this line. */
struct jit_dump_line {
	uint64_t address;
	uint32_t line;    /* from 1 on; other values mean unknown */
	const char *file; /* NUL-terminated, in the dump's bytes; NULL = unknown */
};

struct jit_dump_entry {
	enum jit_dump_kind kind;
	uint64_t time_ns;            /* in CLOCK_MONOTONIC */
	uint64_t address;            /* address of the code; LINES: of a later LOAD; UNWINDING: 0 */
	uint64_t size;               /* LINES, UNWINDING: 0 */
	uint64_t from;               /* MOVE: the old address */
	const char *name;            /* LOAD: NUL-terminated, in the dump's bytes */
	struct jit_dump_lines lines; /* LINES; valid as long as the dump */
	const uint8_t *eh_frame;     /* UNWINDING: for the next LOAD; in the dump's bytes */
	size_t eh_frame_bytes;
};

struct jit_dump {
	const uint8_t *bytes;
	size_t size, at;
	bool swapped;
	uint32_t pid; /* in the program's PID namespace */
};

/* Returns N of a path …/jit-N.dump, the pid in the program's PID namespace; 0 for other names. */
uint64_t jit_dump_pid_of_path(const char *path);
/* Returns false if the bytes are not a dump of version 1 or 2, or if its times are CPU ticks. */
bool jit_dump_open(struct jit_dump *dump, const void *bytes, size_t size);
/* Returns whether entries of this kind put code at their address. */
static inline bool jit_dump_is_code(enum jit_dump_kind kind)
{
	return kind == JIT_DUMP_LOAD || kind == JIT_DUMP_MOVE;
}
/* Returns the address at which the .eh_frame of a load's code expects to be mapped. */
static inline uint64_t jit_dump_eh_frame_address(uint64_t code, uint64_t size)
{
	return code + (size + 7) / 8 * 8;
}
/* Returns the next valid load, move, lines or unwinding. Returns false at the end, or if the length
 * of a record is invalid. */
bool jit_dump_next(struct jit_dump *dump, struct jit_dump_entry *ret_entry);
/* Returns the next line; lines are in any order. Returns false at the end; the record is cut if
 * lines->n is not 0 at that time. */
bool jit_dump_next_line(struct jit_dump_lines *lines, struct jit_dump_line *ret_line);
