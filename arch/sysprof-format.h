/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sysprof-format - sysprof's frames, in the rings of its library and in its files
 *
 * A frame is a header, which has the frame's type, and a body. The frame's length is a multiple of
 * 8, and includes both.
 * Everything is in native byte order and packed: these structs have no holes, and the texts or
 * addresses of a frame follow them. A text of fixed width may lack its NUL. A file is a file header
 * and frames in any order. The numbers and layouts are those of sysprof's public
 * sysprof-capture-types.h, version 1.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SYSPROF_FRAME_TIMESTAMP = 1,
	SYSPROF_FRAME_SAMPLE = 2,
	SYSPROF_FRAME_MAP = 3,
	SYSPROF_FRAME_PROCESS = 4,
	SYSPROF_FRAME_FORK = 5,
	SYSPROF_FRAME_EXIT = 6,
	SYSPROF_FRAME_JITMAP = 7,
	SYSPROF_FRAME_COUNTERS = 8,
	SYSPROF_FRAME_VALUES = 9,
	SYSPROF_FRAME_MARK = 10,
	SYSPROF_FRAME_METADATA = 11,
	SYSPROF_FRAME_LOG = 12,
	SYSPROF_FRAME_FILE = 13,
	SYSPROF_FRAME_ALLOCATION = 14,
	SYSPROF_FRAME_LAST = 17,
	SYSPROF_FRAME_END = 0xff, /* a thread's last frame in its ring */
};

#define SYSPROF_FRAME_BYTES 24    /* size of the header; the smallest frames have no body */
#define SYSPROF_FRAME_MOST 65528u /* the longest frame */
#define SYSPROF_MAGIC 0xFDCA975Eu
/* An address with these bits represents a name, which a JITMAP frame defines. */
#define SYSPROF_NAMED UINT64_C(0xE000000000000000)

struct sysprof_file {
	uint32_t magic;
	uint8_t version, is_little_endian;
	uint8_t reserved[2];
	char wall_time[64]; /* ISO 8601 */
	int64_t start_ns, end_ns;
	uint8_t suffix[168];
};
static_assert(sizeof(struct sysprof_file) == 256, "file");

struct sysprof_frame {
	uint16_t bytes;
	int16_t cpu; /* -1: unknown */
	int32_t pid;
	int64_t time_ns; /* in CLOCK_MONOTONIC */
	uint8_t type;
	uint8_t reserved[7];
};
static_assert(sizeof(struct sysprof_frame) == SYSPROF_FRAME_BYTES, "frame");

struct sysprof_sample { /* followed by the addresses, innermost first */
	struct sysprof_frame header;
	uint16_t n;
	uint16_t reserved;
	int32_t tid;
};
static_assert(sizeof(struct sysprof_sample) == 32, "sample");

struct sysprof_map { /* followed by the file's name */
	struct sysprof_frame header;
	uint64_t start, end, offset, inode;
};
static_assert(sizeof(struct sysprof_map) == 56, "map");

struct sysprof_mark { /* followed by the message */
	struct sysprof_frame header;
	int64_t duration_ns;
	char group[24];
	char name[40];
};
static_assert(sizeof(struct sysprof_mark) == 96, "mark");

struct sysprof_metadata { /* followed by the value */
	struct sysprof_frame header;
	char id[40];
};
static_assert(sizeof(struct sysprof_metadata) == 64, "metadata");

struct sysprof_log { /* followed by the message */
	struct sysprof_frame header;
	uint16_t level; /* GLib's flags */
	uint8_t reserved[6];
	char domain[32];
};
static_assert(sizeof(struct sysprof_log) == 64, "log");

struct sysprof_allocation { /* followed by the addresses */
	struct sysprof_frame header;
	uint64_t address;
	int64_t size; /* 0: a free */
	int32_t tid;
	uint16_t n;
	uint16_t reserved;
};
static_assert(sizeof(struct sysprof_allocation) == 48, "allocation");

/* A part of a file, whose bytes follow. */
struct sysprof_part {
	struct sysprof_frame header;
	uint16_t is_last; /* 1: this is the last part */
	uint16_t n;
	char path[256];
};
#define SYSPROF_PART_BYTES 284 /* without the padding at its end */
static_assert(offsetof(struct sysprof_part, path) + 256 == SYSPROF_PART_BYTES, "part");

/* The embedded file SYSPROF_SYMBOLS has the names of addresses, ordered by pid and address. An
 * entry of zeros ends the entries; the texts follow. */
#define SYSPROF_SYMBOLS "__symbols__"
struct sysprof_symbol {
	uint64_t first, last;
	uint32_t pid;
	uint32_t name, tag; /* offset of each text in the file; 0: no text */
	uint32_t reserved;
};
static_assert(sizeof(struct sysprof_symbol) == 32, "symbol");

struct sysprof_counter {
	char category[32];
	char name[32];
	char description[52];
	uint32_t id_and_type; /* id: 24 bits, type: 8 bits */
	uint64_t value;       /* initial value; need not be a measurement */
};
static_assert(sizeof(struct sysprof_counter) == 128, "counter");
#define SYSPROF_COUNTER_DOUBLE (1u << 24) /* the type: values are doubles, not integers */

#define SYSPROF_GROUP 8
struct sysprof_values {
	uint32_t ids[SYSPROF_GROUP]; /* 0: none */
	uint64_t values[SYSPROF_GROUP];
};
static_assert(sizeof(struct sysprof_values) == 96, "values");

/* The header of n counters or values that follow. */
struct sysprof_list {
	struct sysprof_frame header;
	uint16_t n;
	uint8_t reserved[6];
};
static_assert(sizeof(struct sysprof_list) == 32, "list");
