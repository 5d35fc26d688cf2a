/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Jitdump - jit-PID.dump, in which a program records its generated code, with times
 *
 * The format of Linux' tools/perf/Documentation/jitdump-specification.txt, versions 1 and 2, in
 * either byte order. Untrusted bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jit_dump_kind { JIT_DUMP_LOAD, JIT_DUMP_MOVE, JIT_DUMP_LINES, JIT_DUMP_UNWINDING };

/* The rest of a record of lines. */
struct jit_dump_lines {
	const struct jit_dump *dump;
	size_t at, end;
	uint64_t n; /* number of lines according to the record */
	/* 0; or the length of each line, which then belongs to `file` in any case */
	size_t stride;
	const char *file; /* of the line before */
};

/* The code from `address` on belongs to a line. */
struct jit_dump_line {
	uint64_t address;
	uint32_t line;    /* from 1 on; others are unknown */
	const char *file; /* in the bytes, terminated; NULL = unknown */
};

struct jit_dump_entry {
	enum jit_dump_kind kind;
	uint64_t time_ns;            /* of CLOCK_MONOTONIC */
	uint64_t address;            /* LINES: of the code, as in a later LOAD; UNWINDING: 0 */
	uint64_t size;               /* LINES, UNWINDING: 0 */
	uint64_t from;               /* MOVE: the old address */
	const char *name;            /* LOAD: in the bytes, terminated */
	struct jit_dump_lines lines; /* LINES; valid as long as the dump */
	const uint8_t *eh_frame;     /* UNWINDING: of the next LOAD; in the bytes */
	size_t eh_frame_bytes;
};

struct jit_dump {
	const uint8_t *bytes;
	size_t size, at;
	bool swapped;
	uint32_t pid; /* in the program's PID namespace */
};

/* Returns N of a path …/jit-N.dump, which is the program's pid in its PID namespace; 0 for other
 * names. */
uint64_t jit_dump_pid_of_path(const char *path);
/* Returns false if it is not a dump, or its times are of a clock that others cannot read. */
bool jit_dump_open(struct jit_dump *dump, const void *bytes, size_t size);
/* Returns whether an entry has the address of code. */
static inline bool jit_dump_is_code(enum jit_dump_kind kind)
{
	return kind == JIT_DUMP_LOAD || kind == JIT_DUMP_MOVE;
}
/* Returns the address that an .eh_frame uses for its own place, for the code of a load. */
static inline uint64_t jit_dump_eh_frame_address(uint64_t code, uint64_t size)
{
	return code + (size + 7) / 8 * 8;
}
/* Returns the next load, move, lines or unwinding; false at the end, or if the next record is not
 * valid. */
bool jit_dump_next(struct jit_dump *dump, struct jit_dump_entry *ret_entry);
/* Returns the next line, in any order; false at the end, where lines->n is 0 unless the record is
 * cut. */
bool jit_dump_next_line(struct jit_dump_lines *lines, struct jit_dump_line *ret_line);
