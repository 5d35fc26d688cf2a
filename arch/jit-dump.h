/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Jitdump - what a program writes of code that it generates, with times: jit-PID.dump
 *
 * The format of Linux' tools/perf/Documentation/jitdump-specification.txt, versions 1 and 2, in
 * either byte order. Untrusted bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jit_dump_kind { JIT_DUMP_LOAD, JIT_DUMP_MOVE, JIT_DUMP_LINES, JIT_DUMP_UNWINDING };

/* What is left of a record of lines. */
struct jit_dump_lines {
	const struct jit_dump *dump;
	size_t at, end;
	uint64_t n; /* how many lines the record says that there are */
	/* 0; or each line has that many bytes and is of `file`, whatever it says itself */
	size_t stride;
	const char *file; /* of the line before */
};

/* From `address` on the code is of a line. */
struct jit_dump_line {
	uint64_t address;
	uint32_t line;    /* from 1 on; else unknown */
	const char *file; /* in the bytes, terminated; NULL = unknown */
};

struct jit_dump_entry {
	enum jit_dump_kind kind;
	uint64_t time_ns; /* of CLOCK_MONOTONIC */
	uint64_t address; /* LINES: of the code that a LOAD behind it is of; UNWINDING: 0 */
	uint64_t size;    /* LINES, UNWINDING: 0 */
	uint64_t from;    /* MOVE: where it was */
	const char *name; /* LOAD: in the bytes, terminated */
	struct jit_dump_lines lines; /* LINES; for as long as the dump is */
	const uint8_t *eh_frame;     /* UNWINDING: of the next LOAD; in the bytes */
	size_t eh_frame_bytes;
};

struct jit_dump {
	const uint8_t *bytes;
	size_t size, at;
	bool swapped;
	uint32_t pid; /* as the program sees itself */
};

/* N of a path …/jit-N.dump, which is the program's pid as it sees itself; 0: it is not called
 * like that. */
uint64_t jit_dump_pid_of_path(const char *path);
/* False: it is none, or its times are not of a clock that others have. */
bool jit_dump_open(struct jit_dump *dump, const void *bytes, size_t size);
/* Whether an entry says where code is. */
static inline bool jit_dump_is_code(enum jit_dump_kind kind)
{
	return kind == JIT_DUMP_LOAD || kind == JIT_DUMP_MOVE;
}
/* What an .eh_frame calls the place where it stands, of the code of a load. */
static inline uint64_t jit_dump_eh_frame_address(uint64_t code, uint64_t size)
{
	return code + (size + 7) / 8 * 8;
}
/* The next load, move, lines or unwinding; false at the end, or where what follows makes no
 * sense. */
bool jit_dump_next(struct jit_dump *dump, struct jit_dump_entry *ret_entry);
/* The next line, in whatever order; false at the end, where lines->n is 0 unless the record is
 * cut. */
bool jit_dump_next_line(struct jit_dump_lines *lines, struct jit_dump_line *ret_line);
