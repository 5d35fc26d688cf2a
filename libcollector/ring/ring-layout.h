/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Ring layout - the memory that a process shares with profd-engine
 *
 * docs/ring.md is the specification: which side writes which word, in which order, and how a reader
 * interprets it. Integers are little-endian; the layout is the same on every architecture. Reserved
 * fields are written as 0 and ignored.
 */
#pragma once

#include "arch/base.h"

#include <assert.h>

#define RING_MAGIC UINT64_C(0x0a414e4552416650) /* "PfARENA\n" */
#define RING_VERSION 1u
#define RING_CLOCK_MONOTONIC 1u
#define RING_COMPAT_TICKS UINT64_C(1) /* times may be ticks, which the consumer maps to its clock */
#define RING_LINE 128u /* two lines of most caches: some CPUs also fetch the adjacent line */
#define RING_PAGE 4096u
#define RING_MIN_BYTES 4096u
#define RING_MAX_BYTES (UINT64_C(1) << 30)
#define RING_MAX_RINGS 65536u
#define RING_MAX_RECORD 65536u /* the limit of a small ring is a quarter of its data */

/* ---- The arena ---- */

struct ring_arena_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes;
	uint64_t compat;
	uint64_t incompat;
	uint64_t arena_bytes;
	uint32_t n_rings;
	uint32_t directory_offset;
	uint32_t clock;
	uint32_t n_types; /* the consumer supports the record types below this number */
	uint8_t reserved_0[72];

	/* Written by producers. */
	uint32_t doorbell; /* futex */
	uint32_t joined;   /* 1: the process has mapped the arena */
	uint64_t lost_no_ring;
	uint8_t reserved_2[112];

	/* Written by the consumer. */
	uint32_t armed; /* odd: the consumer is asleep */
	uint32_t ended; /* 1: the consumer reads no more, and producers must not write */
	uint8_t reserved_3[120];
};
static_assert(sizeof(struct ring_arena_header) == 3 * RING_LINE, "arena header");
static_assert(offsetof(struct ring_arena_header, arena_bytes) == 32, "arena bytes");
static_assert(offsetof(struct ring_arena_header, doorbell) == RING_LINE, "producers' line");
static_assert(offsetof(struct ring_arena_header, armed) == 2 * RING_LINE, "consumer's line");
static_assert(offsetof(struct ring_arena_header, ended) == 2 * RING_LINE + 4, "ended");

/* An entry of the directory, which is sorted by data_bytes. */
struct ring_place {
	uint64_t header_offset;
	uint64_t data_offset;
	uint64_t data_bytes; /* a power of two */
	uint64_t reserved;
};
static_assert(sizeof(struct ring_place) == 32, "directory");

/* ---- A ring ---- */

/* The low half of ring_header.state. The high half is the generation, which each claim
 * increments. */
enum ring_state { RING_FREE, RING_OWNED, RING_CLOSED, RING_N_STATES };

enum ring_policy { RING_DROP, RING_LOSSLESS };

/* Why a record is not in the ring. */
enum ring_lost {
	RING_LOST_FULL,
	RING_LOST_TIMEOUT, /* no room after a wait */
	RING_LOST_BIG,     /* the record is too large for rings of this size */
	/* handlers nest too deeply, or a signal came while a record was begun or ended; not part
	 * of `attempted` */
	RING_LOST_NESTED,
	RING_N_LOST
};

struct ring_header {
	/* Written by the producer. If the ring is closed or the process has ended, the consumer
	 * writes `state`. */
	uint64_t state;
	uint32_t tid;
	uint8_t reserved_0[116];

	/* Written by the producer. */
	uint64_t head;
	uint32_t busy;
	uint32_t waiting;
	uint64_t attempted;
	uint64_t lost[RING_N_LOST];
	uint64_t waits;
	uint64_t waited_ns;
	uint8_t reserved_1[56];

	/* Written by the consumer. */
	uint64_t tail;
	uint32_t room; /* futex */
	uint32_t policy;
	uint8_t reserved_2[112];

	uint8_t reserved_3[128];
};
static_assert(sizeof(struct ring_header) == 4 * RING_LINE, "ring header");
static_assert(offsetof(struct ring_header, head) == RING_LINE, "producer's line");
static_assert(offsetof(struct ring_header, attempted) == RING_LINE + 16, "attempted");
static_assert(offsetof(struct ring_header, waits) == RING_LINE + 56, "waits");
static_assert(offsetof(struct ring_header, tail) == 2 * RING_LINE, "consumer's line");

/* ---- Records ---- */

enum ring_type {
	RING_NONE, /* a hole in the data; never valid */
	RING_PAD,
	RING_STRING,
	RING_IMAGE,
	RING_STACK,
	RING_MARK,
	RING_COUNTER,
	RING_COUNTER_VALUE,
	RING_LOG,
	RING_ALLOC,
	RING_FREE_BLOCK,
	RING_THREAD_NAME,
	RING_JIT,
	RING_MARK_AT, /* payload: struct ring_at, then the payload of a RING_MARK */
	RING_LOG_AT,  /* payload: struct ring_at, then the payload of a RING_LOG */
	RING_REALLOC,
	RING_CALLS,
	RING_CODE,
	RING_N_TYPES
};

/* Returns false for types that only define what other records refer to. A lost record of such a
 * type is not counted: the attempt that counts is the record that refers to it. */
static inline bool ring_type_is_event(uint32_t type)
{
	return type != RING_STRING && type != RING_IMAGE && type != RING_STACK &&
	       type != RING_COUNTER && type != RING_CALLS && type != RING_CODE;
}

#define RING_FLAG_ABANDONED 0x0001u /* on a pad: the record was begun, but never ended */
#define RING_FLAG_MORE 0x0001u      /* on a string or log: a later record continues it */
#define RING_FLAG_TICKS 0x8000u     /* the header's time and a realloc's duration are in ticks */

struct ring_record_header {
	uint32_t bytes; /* including this header; a multiple of 8 */
	uint16_t type;
	uint16_t flags;
	uint64_t time_ns; /* or ticks; absent in a pad, which may be 8 bytes */
};
static_assert(sizeof(struct ring_record_header) == 16, "record header");

struct ring_string {
	uint32_t id;
	uint32_t n_bytes; /* number of bytes that follow */
};
static_assert(sizeof(struct ring_string) == 8, "string");

struct ring_image {
	uint32_t id;
	uint32_t n_build_id_bytes; /* number of bytes that follow */
	uint64_t start;
	uint64_t end;
	uint64_t file_offset;
	uint64_t dev;
	uint64_t inode;
	uint32_t path; /* string */
	uint32_t reserved;
};
static_assert(sizeof(struct ring_image) == 56, "image");

#define RING_FRAME_RETURN 0x01u  /* a return address; if not set, the exact address */
#define RING_FRAME_NO_FILE 0x02u /* the address is in no file; do not look for a file */
#define RING_FRAME_CUT 0x04u     /* only in RING_CALLS: callers of this frame are missing */
/* only in RING_CALLS: a function that an interpreter executes. `image` is the id of a RING_CODE,
 * and `offset` the position in it; image 0: the interpreter's functions could not be read */
#define RING_FRAME_CODE 0x08u

struct ring_frame {
	uint64_t offset;
	uint32_t image; /* 0: none; `offset` is then an address */
	uint32_t kind;  /* RING_FRAME_* */
};
static_assert(sizeof(struct ring_frame) == 16, "frame");

struct ring_stack {
	uint32_t id;
	uint32_t n_frames; /* number of frames that follow, innermost first */
};
static_assert(sizeof(struct ring_stack) == 8, "stack");

enum ring_mark_kind {
	RING_MARK_INSTANT,
	RING_MARK_BEGIN,
	RING_MARK_END,
	RING_MARK_COMPLETE,
	RING_MARK_N_KINDS
};

struct ring_mark {
	uint32_t kind;
	uint32_t group;       /* string */
	uint32_t name;        /* string */
	uint32_t n_arguments; /* number of arguments that follow */
	uint64_t id;
	uint64_t duration_ns;
};
static_assert(sizeof(struct ring_mark) == 32, "mark");

struct ring_argument {
	uint32_t name; /* string */
	uint32_t kind; /* 0: s64, 1: u64, 2: double, 3: string, 4: address */
	uint64_t value;
};
static_assert(sizeof(struct ring_argument) == 16, "argument");

/* ring_counter.kind. If DOUBLE is not set, values are s64; if SUM is not set, they are current
 * values. */
#define RING_COUNTER_DOUBLE 0x01u
#define RING_COUNTER_SUM 0x02u /* values are the sum so far, which never shrinks */

struct ring_counter {
	uint32_t id;
	uint32_t kind;              /* RING_COUNTER_* */
	uint32_t group, name, unit; /* strings */
	uint32_t reserved;
};
static_assert(sizeof(struct ring_counter) == 24, "counter");

struct ring_counter_value {
	uint32_t id;
	uint32_t reserved;
	uint64_t value;
};
static_assert(sizeof(struct ring_counter_value) == 16, "counter value");

struct ring_log {
	uint32_t level;  /* as in syslog(3) */
	uint32_t domain; /* string */
	/* same number in all parts of a text, because a handler may log between them; 0: not
	 * split */
	uint32_t part;
	uint32_t n_bytes; /* number of bytes that follow */
};
static_assert(sizeof(struct ring_log) == 16, "log");

enum ring_alloc_kind {
	RING_ALLOC_MALLOC,
	RING_ALLOC_CALLOC,
	RING_ALLOC_REALLOC,
	RING_ALLOC_REALLOCARRAY,
	RING_ALLOC_POSIX_MEMALIGN,
	RING_ALLOC_ALIGNED_ALLOC,
	RING_ALLOC_MEMALIGN,
	RING_ALLOC_VALLOC,
	RING_ALLOC_PVALLOC,
	RING_ALLOC_NEW,
	RING_ALLOC_MMAP,
	RING_ALLOC_MREMAP,
	RING_ALLOC_BRK,
	RING_ALLOC_N_KINDS
};

#define RING_ALLOC_STACK \
	0x01u /* `stack` is the id of a RING_STACK, not a node of RING_CALLS; used in handlers */

struct ring_alloc {
	uint64_t address; /* 0: the allocation failed */
	uint64_t size;    /* requested size */
	uint32_t stack;   /* 0: none */
	uint8_t kind;     /* enum ring_alloc_kind */
	uint8_t alignment_log2;
	uint8_t flags; /* RING_ALLOC_STACK */
	uint8_t reserved;
};
static_assert(sizeof(struct ring_alloc) == 24, "alloc");

/* A call of realloc() or a related function. The record's time is the start of the call; the block
 * at `prior` counts as released at that time. */
struct ring_realloc {
	uint64_t prior;   /* 0: NULL was passed */
	uint64_t address; /* 0: failed, and `prior` stays valid; or size was 0, and is_freed is 1 */
	uint64_t size;    /* requested size */
	uint64_t duration_ns; /* time until the new block existed */
	uint32_t stack;
	uint8_t kind;
	uint8_t is_freed; /* 1: `prior` is freed */
	uint8_t flags;
	uint8_t reserved;
};
static_assert(sizeof(struct ring_realloc) == 40, "realloc");

enum ring_free_kind {
	RING_FREE_FREE,
	RING_FREE_CFREE,
	RING_FREE_SIZED,
	RING_FREE_ALIGNED_SIZED,
	RING_FREE_DELETE,
	RING_FREE_REALLOC,
	RING_FREE_REALLOCARRAY,
	RING_FREE_MUNMAP,
	RING_FREE_BRK,
	RING_FREE_N_KINDS
};

struct ring_free_block {
	uint64_t address; /* 0: free(NULL) */
	uint32_t kind;    /* enum ring_free_kind */
	uint32_t pages;   /* number of pages of 4096 bytes, for munmap and brk; else 0 */
};
static_assert(sizeof(struct ring_free_block) == 16, "free");

/* Nodes of the call tree: `parent` calls `first`, and each node calls the next one. A node
 * represents a whole stack. An id that is defined again names a new node; the children of the old
 * node keep their parent. */
struct ring_calls {
	uint32_t first;  /* not 0 */
	uint32_t parent; /* 0: `first` is a root */
	/* number of frames that follow, outermost first; they define the nodes first, first + 1,
	 * … */
	uint32_t n_frames;
	uint32_t reserved;
};
static_assert(sizeof(struct ring_calls) == 16, "calls");
#define RING_MAX_CALLS (1u << 18) /* ids are less than this */

/* ring_code.flags */
#define RING_CODE_NAME_CUT 0x01u
#define RING_CODE_FILE_CUT 0x02u

/* A function that CPython executes. Its texts follow: the name and the file, as in a str object,
 * and the table of lines. */
struct ring_code {
	uint32_t id;          /* ids of RING_CODE and of RING_CALLS are from the same sequence */
	uint32_t n_bytes;     /* number of bytes that follow: the name, the file, then the lines */
	uint64_t interpreter; /* an address in the code of the interpreter */
	uint32_t first_line;
	uint16_t minor; /* MINOR of version 3.MINOR; 32 is added for a free-threaded build */
	uint16_t name_bytes, file_bytes;
	uint8_t name_width, file_width; /* bytes of a character: 1, 2, 4 */
	uint8_t flags;                  /* RING_CODE_* */
	uint8_t reserved[11];
};
static_assert(sizeof(struct ring_code) == 40, "code");

struct ring_thread_name {
	uint32_t name; /* string */
	uint32_t reserved;
};
static_assert(sizeof(struct ring_thread_name) == 8, "thread name");

enum ring_jit_kind { RING_JIT_LOAD, RING_JIT_MOVE, RING_JIT_UNLOAD, RING_JIT_N_KINDS };

struct ring_jit {
	uint32_t kind;
	uint32_t name;    /* string; only for a load */
	uint64_t address; /* move: the new address */
	uint64_t size;    /* only for a load */
	uint64_t from;    /* move: the old address */
};
static_assert(sizeof(struct ring_jit) == 32, "jit");

struct ring_at {
	uint32_t stack;
	uint32_t reserved;
};
static_assert(sizeof(struct ring_at) == 8, "at");
