/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * libprofcapture - reading and writing profd capture files
 *
 * A capture is a sequence of chunks. A chunk holds rows of one table in columns; the schema of
 * every table is in the file. docs/format.md is the specification; this header is the only
 * interface.
 *
 * Writing: rows are collected in a block (one table, one thread at a time) and a writer turns a
 * block into one chunk. Blocks and writers are separate so that one thread can collect while
 * another encodes. Reading: after open, threads may share a reader; cursors and dictionaries are
 * per thread. A stream reads a capture that is being written.
 *
 * Every int function returns 0, a negative errno, a positive enum prof_status, or the result of a
 * callback that stopped it. No function prints, aborts or exits. Out-parameters (ret_*) are
 * unchanged on failure, except for prof_reader_check()'s *ret_damage.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROF_PUBLIC __attribute__((visibility("default")))
#define PROF_MUST_CHECK __attribute__((warn_unused_result))

/* Positive results: errors of the file, or the end of the rows. */
enum prof_status {
	PROF_END = 1,     /* no more rows */
	PROF_NOT_CAPTURE, /* not a capture: the magic is missing */
	PROF_TOO_SHORT,   /* shorter than the file header */
	PROF_BAD_HEADER,  /* both copies of the file header are damaged */
	PROF_UNSUPPORTED, /* an incompat feature that this library does not support */
	PROF_DAMAGED,     /* a chunk failed a check */
	PROF_LIMIT,       /* a limit of the format was exceeded: see docs/format.md */
	PROF_NO_TABLE,    /* the capture has no such table */
	PROF_OVER_BUDGET, /* a guard stopped the read: see prof_reader_set_guard() */
};

/* Returns a sentence without a full stop for a result of this library. Never NULL; static
 * storage. */
PROF_PUBLIC const char *prof_strerror(int result);

/* ---- Schema ---------------------------------------------------------------------------------- */

/* Limits of version 1, for writers and readers; PROF_MAX_BLOCK_BYTES only for writers. */
#define PROF_MAX_TABLES 256
#define PROF_MAX_COLUMNS 64
#define PROF_MAX_NAME 64               /* bytes of the name of a table, column or enum value */
#define PROF_MAX_ENUM 64               /* values of one enum */
#define PROF_MAX_ROWS (1u << 18)       /* rows of a chunk */
#define PROF_MAX_GROUP_ROWS (1u << 16) /* rows of a row group */
#define PROF_MAX_PAYLOAD \
	(64u << 20) /* stored bytes of a chunk, and decoded lists and bytes of a row group */
#define PROF_MAX_BLOCK_BYTES (16u << 20)     /* bytes and list items of a block's rows */
#define PROF_MAX_DICTIONARY_ROWS (1u << 22)  /* rows of a dictionary table in one epoch */
#define PROF_MAX_DICTIONARY_BYTES (1u << 28) /* bytes and list items of these rows */

enum prof_type {
	PROF_TYPE_UINT = 1,
	PROF_TYPE_INT = 2, /* two's complement in a uint64_t */
	PROF_TYPE_BOOL = 3,
	PROF_TYPE_ENUM = 4,   /* number of the value; the column has the list of names */
	PROF_TYPE_TIME = 5,   /* ns of CLOCK_MONOTONIC, in the boot of the segment */
	PROF_TYPE_REF = 6,    /* id of a row of dictionary table `ref`; 0 = none */
	PROF_TYPE_FLOAT = 7,  /* bits of an IEEE 754 double */
	PROF_TYPE_TEXT = 8,   /* bytes, intended as UTF-8, but not checked */
	PROF_TYPE_BINARY = 9, /* bytes, shown as hex */
};

enum prof_unit {
	PROF_UNIT_NONE = 0,
	PROF_UNIT_NS = 1,
	PROF_UNIT_BYTES = 2,
	PROF_UNIT_COUNT = 3,
	PROF_UNIT_ADDRESS = 4, /* shown as hex with 0x */
	PROF_UNIT_HZ = 5,
};

/* How numbers are arranged before compression: docs/format.md, "Orders". The schema's value is a
 * hint to the writer: each column of each chunk stores the order that was used. */
enum prof_order {
	PROF_ORDER_OFFSET = 0,   /* v - min */
	PROF_ORDER_DELTA = 1,    /* v - previous - min delta: rising numbers */
	PROF_ORDER_RUNNING = 2,  /* zigzag(running max - v): ids of mostly new rows */
	PROF_ORDER_DISTANCE = 3, /* id of this row - v; 0 for 0: a tree's parent */
};

#define PROF_COLUMN_NULLABLE 1u
#define PROF_COLUMN_LIST 2u /* a list of numbers in each row; not for TEXT and BINARY */

struct prof_column_def {
	const char *name;
	const char *const *values; /* ENUM: NULL-terminated names, index = number */
	uint16_t id;               /* stable within the table, ascending in the array */
	uint16_t ref;              /* REF: table id */
	uint8_t type;              /* enum prof_type */
	uint8_t unit;              /* enum prof_unit */
	uint8_t order;             /* enum prof_order */
	uint8_t flags;             /* PROF_COLUMN_* */
};

/* The first column is `id`, valid in one epoch; the last row with an id replaces earlier ones. */
#define PROF_TABLE_DICTIONARY 1u
#define PROF_TABLE_TIMED 2u /* the first column is `time`; chunks are in time order */

struct prof_table_def {
	const char *name;
	const struct prof_column_def *columns;
	uint16_t n_columns;
	uint16_t id;    /* stable; 1..65535 */
	uint16_t flags; /* PROF_TABLE_* */
};

/* Tables of version 1. Foreign tables use ids from PROF_TABLE_FIRST_FOREIGN on. */
enum prof_table {
	PROF_TABLE_STRING = 1,
	PROF_TABLE_IMAGE = 2,
	PROF_TABLE_FRAME = 3,
	PROF_TABLE_STACK = 4,
	PROF_TABLE_PROCESS = 5,
	PROF_TABLE_THREAD = 6,
	PROF_TABLE_SOURCE = 7,
	PROF_TABLE_SYMBOL = 8,
	PROF_TABLE_COUNTER = 9,
	PROF_TABLE_LINE = 10,
	PROF_TABLE_SAMPLE = 16,
	PROF_TABLE_TASK = 17,
	PROF_TABLE_MAPPING = 18,
	PROF_TABLE_SWITCH = 19,
	PROF_TABLE_ALLOC = 20,
	PROF_TABLE_FREE = 21,
	PROF_TABLE_MARK = 22,
	PROF_TABLE_LOG = 23,
	PROF_TABLE_COUNTER_VALUE = 24,
	PROF_TABLE_LOSS = 25,
	PROF_TABLE_METADATA = 26,
	PROF_TABLE_JIT = 27,
	PROF_TABLE_HEAP = 28,
	PROF_TABLE_LIVE = 29,
	PROF_TABLE_WAIT = 30,
	PROF_TABLE_LAST = PROF_TABLE_WAIT,
	PROF_TABLE_FIRST_FOREIGN = 1024,
};

/* Column positions of the tables above (position == id in version 1). `*_COLUMNS` is the count. */
enum { PROF_STRING_ID, PROF_STRING_TEXT, PROF_STRING_COLUMNS };
/* process: 0, or the process instance that an anon/jit image belongs to */
enum {
	PROF_IMAGE_ID,
	PROF_IMAGE_PATH,
	PROF_IMAGE_BUILD_ID,
	PROF_IMAGE_SIZE,
	PROF_IMAGE_DEV,
	PROF_IMAGE_INODE,
	PROF_IMAGE_KIND,
	PROF_IMAGE_CTIME,
	PROF_IMAGE_PROCESS,
	PROF_IMAGE_COLUMNS
};
enum { PROF_FRAME_ID, PROF_FRAME_IMAGE, PROF_FRAME_OFFSET, PROF_FRAME_KIND, PROF_FRAME_COLUMNS };
enum { PROF_STACK_ID, PROF_STACK_PARENT, PROF_STACK_FRAME, PROF_STACK_COLUMNS };
enum {
	PROF_PROCESS_ID,
	PROF_PROCESS_PID,
	PROF_PROCESS_PPID,
	PROF_PROCESS_START_TIME,
	PROF_PROCESS_EXEC_GENERATION,
	PROF_PROCESS_CMDLINE,
	PROF_PROCESS_EXE,
	PROF_PROCESS_CGROUP,
	PROF_PROCESS_UID,
	PROF_PROCESS_NS_PIDS,
	PROF_PROCESS_COLUMNS
};
enum {
	PROF_THREAD_ID,
	PROF_THREAD_PROCESS,
	PROF_THREAD_TID,
	PROF_THREAD_START_TIME,
	PROF_THREAD_COMM,
	PROF_THREAD_NS_TIDS,
	PROF_THREAD_COLUMNS
};
enum {
	PROF_SOURCE_ID,
	PROF_SOURCE_NAME,
	PROF_SOURCE_KIND,
	PROF_SOURCE_UNIT,
	PROF_SOURCE_PERIOD,
	PROF_SOURCE_FREQUENCY,
	PROF_SOURCE_FIELDS,
	PROF_SOURCE_FIELD_KINDS,
	PROF_SOURCE_FIELD_TYPES,
	PROF_SOURCE_COLUMNS
};
enum {
	PROF_SYMBOL_ID,
	PROF_SYMBOL_IMAGE,
	PROF_SYMBOL_START,
	PROF_SYMBOL_LENGTH,
	PROF_SYMBOL_NAME,
	PROF_SYMBOL_RAW_NAME,
	PROF_SYMBOL_FILE,
	PROF_SYMBOL_LINE,
	PROF_SYMBOL_INLINE_PARENT,
	PROF_SYMBOL_DECLARED_FILE,
	PROF_SYMBOL_DECLARED_LINE,
	PROF_SYMBOL_COLUMNS
};
enum {
	PROF_COUNTER_ID,
	PROF_COUNTER_PROCESS,
	PROF_COUNTER_GROUP,
	PROF_COUNTER_NAME,
	PROF_COUNTER_UNIT,
	PROF_COUNTER_KIND,
	PROF_COUNTER_COLUMNS
};
enum {
	PROF_LINE_ID,
	PROF_LINE_IMAGE,
	PROF_LINE_START,
	PROF_LINE_LENGTH,
	PROF_LINE_FILE,
	PROF_LINE_LINE,
	PROF_LINE_SYMBOL,
	PROF_LINE_COLUMNS
};
enum {
	PROF_SAMPLE_TIME,
	PROF_SAMPLE_THREAD,
	PROF_SAMPLE_CPU,
	PROF_SAMPLE_MODE,
	PROF_SAMPLE_STACK,
	PROF_SAMPLE_WEIGHT,
	PROF_SAMPLE_SOURCE,
	PROF_SAMPLE_USER_METHOD,
	PROF_SAMPLE_USER_STOP,
	PROF_SAMPLE_CGROUP,
	PROF_SAMPLE_VALUES,
	PROF_SAMPLE_TEXTS,
	PROF_SAMPLE_INTERPRETER,
	PROF_SAMPLE_COLUMNS
};
enum {
	PROF_TASK_TIME,
	PROF_TASK_THREAD,
	PROF_TASK_EVENT,
	PROF_TASK_COMM,
	PROF_TASK_EXIT_STATUS,
	PROF_TASK_PARENT,
	PROF_TASK_COLUMNS
};
enum {
	PROF_MAPPING_TIME,
	PROF_MAPPING_PROCESS,
	PROF_MAPPING_START,
	PROF_MAPPING_LENGTH,
	PROF_MAPPING_FILE_OFFSET,
	PROF_MAPPING_IMAGE,
	PROF_MAPPING_COLUMNS
};
/* one row for each time that a thread left a CPU, after it ran from `start` to `time`; also a row
 * without a length if a thread is on no CPU at the start or end of its recording */
enum {
	PROF_SWITCH_TIME,
	PROF_SWITCH_THREAD,
	PROF_SWITCH_CPU,
	PROF_SWITCH_START,
	PROF_SWITCH_STATE,
	PROF_SWITCH_COLUMNS
};
enum {
	PROF_ALLOC_TIME,
	PROF_ALLOC_THREAD,
	PROF_ALLOC_KIND,
	PROF_ALLOC_BLOCK,
	PROF_ALLOC_SIZE,
	PROF_ALLOC_ALIGNMENT,
	PROF_ALLOC_STACK,
	PROF_ALLOC_PRIOR,
	PROF_ALLOC_COLUMNS
};
enum {
	PROF_FREE_TIME,
	PROF_FREE_THREAD,
	PROF_FREE_BLOCK,
	PROF_FREE_ADDRESS,
	PROF_FREE_KIND,
	PROF_FREE_YOUNGER,
	PROF_FREE_COLUMNS
};
enum {
	PROF_MARK_TIME,
	PROF_MARK_THREAD,
	PROF_MARK_KIND,
	PROF_MARK_ID,
	PROF_MARK_GROUP,
	PROF_MARK_NAME,
	PROF_MARK_DURATION,
	PROF_MARK_ARGUMENTS,
	PROF_MARK_ARGUMENT_KINDS,
	PROF_MARK_ARGUMENT_VALUES,
	PROF_MARK_ARGUMENT_TEXTS,
	PROF_MARK_STACK,
	PROF_MARK_COLUMNS
};
enum {
	PROF_LOG_TIME,
	PROF_LOG_THREAD,
	PROF_LOG_LEVEL,
	PROF_LOG_DOMAIN,
	PROF_LOG_TEXT,
	PROF_LOG_STACK,
	PROF_LOG_COLUMNS
};
enum {
	PROF_COUNTER_VALUE_TIME,
	PROF_COUNTER_VALUE_COUNTER,
	PROF_COUNTER_VALUE_VALUE,
	PROF_COUNTER_VALUE_COLUMNS
};
enum {
	PROF_LOSS_TIME,
	PROF_LOSS_TIME_END,
	PROF_LOSS_STREAM,
	PROF_LOSS_CAUSE,
	PROF_LOSS_COUNT,
	PROF_LOSS_BYTES,
	PROF_LOSS_COLUMNS
};
enum { PROF_METADATA_TIME, PROF_METADATA_KEY, PROF_METADATA_VALUE, PROF_METADATA_COLUMNS };
enum {
	PROF_JIT_TIME,
	PROF_JIT_PROCESS,
	PROF_JIT_EVENT,
	PROF_JIT_ADDRESS,
	PROF_JIT_SIZE,
	PROF_JIT_NAME,
	PROF_JIT_FROM,
	PROF_JIT_COLUMNS
};
/* allocations of a process at one time; `peak`: the peak since the process's previous row */
enum {
	PROF_HEAP_TIME,
	PROF_HEAP_PROCESS,
	PROF_HEAP_EVENT,
	PROF_HEAP_LIVE_BYTES,
	PROF_HEAP_LIVE_BLOCKS,
	PROF_HEAP_PEAK_BYTES,
	PROF_HEAP_PEAK_TIME,
	PROF_HEAP_INHERITED,
	PROF_HEAP_COLUMNS
};
/* blocks that were live at a heap row whose event is checkpoint, paused or end; both rows have the
 * same time */
enum {
	PROF_LIVE_TIME,
	PROF_LIVE_THREAD,
	PROF_LIVE_KIND,
	PROF_LIVE_BLOCK,
	PROF_LIVE_SIZE,
	PROF_LIVE_ALIGNMENT,
	PROF_LIVE_STACK,
	PROF_LIVE_SINCE,
	PROF_LIVE_COLUMNS
};
/* one row for each time that a thread slept: for `duration`, until `time` */
enum {
	PROF_WAIT_TIME,
	PROF_WAIT_THREAD,
	PROF_WAIT_CPU,
	PROF_WAIT_DURATION,
	PROF_WAIT_STATE,
	PROF_WAIT_STACK,
	PROF_WAIT_STACK_SOURCE,
	PROF_WAIT_USER_METHOD,
	PROF_WAIT_USER_STOP,
	PROF_WAIT_ARGUMENT,
	PROF_WAIT_SYSCALL,
	PROF_WAIT_OBJECT,
	PROF_WAIT_WAKER,
	PROF_WAIT_WAKER_THREAD,
	PROF_WAIT_WAKER_STACK,
	PROF_WAIT_WAKER_STACK_SOURCE,
	PROF_WAIT_WAKER_ARGUMENT,
	PROF_WAIT_INTERPRETER,
	PROF_WAIT_CGROUP,
	PROF_WAIT_COLUMNS
};

/* Values of enum columns; the names are in the schema. */
enum prof_image_kind {
	PROF_IMAGE_FILE,
	PROF_IMAGE_VDSO,
	PROF_IMAGE_KERNEL,
	PROF_IMAGE_MODULE,
	PROF_IMAGE_BPF,
	PROF_IMAGE_JIT,
	PROF_IMAGE_ANON,
	PROF_IMAGE_INTERPRETER
};
enum prof_frame_kind { PROF_FRAME_EXACT, PROF_FRAME_RETURN };
enum prof_source_kind {
	PROF_SOURCE_SOFTWARE,
	PROF_SOURCE_HARDWARE,
	PROF_SOURCE_TRACEPOINT,
	PROF_SOURCE_CACHE,
	PROF_SOURCE_RAW,
	PROF_SOURCE_DYNAMIC,
	PROF_SOURCE_PROBE /* a program's function or static probe */
};
enum prof_sample_mode { PROF_MODE_USER, PROF_MODE_KERNEL };
/* How much of the interpreted program's stack a sample's stack includes. */
enum prof_sample_interpreter {
	PROF_INTERPRETER_NONE,
	PROF_INTERPRETER_COMPLETE,
	PROF_INTERPRETER_DEEPER,
	PROF_INTERPRETER_TORN,
	PROF_INTERPRETER_MISSING,
	PROF_INTERPRETER_IDLE,
	PROF_INTERPRETERS
};
enum prof_user_method {
	PROF_METHOD_NONE,
	PROF_METHOD_FP,
	PROF_METHOD_CFI,
	PROF_METHOD_STITCHED,
	PROF_METHOD_FP_REPAIRED,
	PROF_METHOD_JIT_FP
};
enum prof_user_stop {
	PROF_STOP_ROOT,
	PROF_STOP_COPY_END,
	PROF_STOP_NO_TABLE,
	PROF_STOP_NO_RULE,
	PROF_STOP_BAD_FRAME,
	PROF_STOP_DEPTH,
	PROF_STOP_KERNEL_THREAD,
	PROF_STOP_UNKNOWN,
	PROF_STOP_NO_MEMORY
};
enum prof_task_event {
	PROF_TASK_EXISTS,
	PROF_TASK_FORK,
	PROF_TASK_EXEC,
	PROF_TASK_EXIT,
	PROF_TASK_COMM_CHANGE,
	/* written after the exit event of a process; exit_status is as from wait() */
	PROF_TASK_STATUS
};
/* state of the thread from the row's time on. RUNNING: the thread's recording ended while it ran.
 * RUNNABLE: the thread waits for a CPU, and has not run since it was forked, woken, or found */
enum prof_switch_state {
	PROF_SWITCH_WAIT,
	PROF_SWITCH_PREEMPTED,
	PROF_SWITCH_RUNNING,
	PROF_SWITCH_RUNNABLE
};
/* value of switch.cpu in a row without a length, which gives the state of a thread that is on no
 * CPU */
#define PROF_SWITCH_NO_CPU UINT32_MAX
enum prof_wait_state {
	PROF_WAIT_UNKNOWN,
	PROF_WAIT_SLEEPING,
	PROF_WAIT_UNINTERRUPTIBLE,
	PROF_WAIT_STOPPED,
	PROF_WAIT_TRACED
};
/* How a wait's stack was obtained. COPIED: copied at the switch. LATE: read while the thread slept.
 * SHARED: taken from another wait of the process with the same program counter and the same stack
 * pointer, or at least the same offset of the stack pointer in its page.
 * RACED: no stack, because the thread ran before its stack was read. */
enum prof_stack_source {
	PROF_STACK_NONE,
	PROF_STACK_COPIED,
	PROF_STACK_LATE,
	PROF_STACK_SHARED,
	PROF_STACK_RACED,
	PROF_STACK_SOURCES
};
/* The cause of a wakeup. INTERRUPT: an interrupt of a device, a timer or another CPU, whatever
 * thread it interrupted. OUTSIDE: a thread that the session does not record. */
enum prof_waker {
	PROF_WAKER_UNKNOWN,
	PROF_WAKER_THREAD,
	PROF_WAKER_INTERRUPT,
	PROF_WAKER_OUTSIDE,
	PROF_WAKERS
};
enum prof_alloc_kind {
	PROF_ALLOC_MALLOC,
	PROF_ALLOC_CALLOC,
	PROF_ALLOC_REALLOC,
	PROF_ALLOC_REALLOCARRAY,
	PROF_ALLOC_POSIX_MEMALIGN,
	PROF_ALLOC_ALIGNED_ALLOC,
	PROF_ALLOC_MEMALIGN,
	PROF_ALLOC_VALLOC,
	PROF_ALLOC_PVALLOC,
	PROF_ALLOC_NEW, /* C++'s operator new, if its library has a separate allocator */
	PROF_ALLOC_MMAP,
	PROF_ALLOC_MREMAP,
	PROF_ALLOC_BRK,
	PROF_ALLOC_KINDS
};
enum prof_free_kind {
	PROF_FREE_FREE,
	PROF_FREE_CFREE,
	PROF_FREE_FREE_SIZED,
	PROF_FREE_FREE_ALIGNED_SIZED,
	PROF_FREE_DELETE,
	PROF_FREE_REALLOC, /* realloc() to size 0 */
	PROF_FREE_REALLOCARRAY,
	PROF_FREE_MUNMAP,
	PROF_FREE_BRK,
	PROF_FREE_UNTOLD,
	PROF_FREE_KINDS
};
/* each reason why a process has no allocations is a separate event */
enum prof_heap_event {
	PROF_HEAP_BEGIN,
	PROF_HEAP_CHECKPOINT,
	PROF_HEAP_PAUSED,
	PROF_HEAP_RESUMED,
	PROF_HEAP_END,
	PROF_HEAP_STATIC,
	PROF_HEAP_SETUID,
	PROF_HEAP_OTHER_ARCH,
	PROF_HEAP_UNREGISTERED,
	PROF_HEAP_OTHER_LIBC,
	PROF_HEAP_ENVIRONMENT,
	PROF_HEAP_NO_DESCRIPTORS,
	PROF_HEAP_NO_MEMORY,
	PROF_HEAP_SANITIZER,
	PROF_HEAP_NEVER_ALLOCATED,
	PROF_HEAP_EVENTS
};
/* the levels of syslog(3) */
enum prof_log_level {
	PROF_LOG_EMERGENCY,
	PROF_LOG_ALERT,
	PROF_LOG_CRITICAL,
	PROF_LOG_ERROR,
	PROF_LOG_WARNING,
	PROF_LOG_NOTICE,
	PROF_LOG_INFO,
	PROF_LOG_DEBUG
};
enum prof_mark_kind { PROF_MARK_INSTANT, PROF_MARK_BEGIN, PROF_MARK_END, PROF_MARK_COMPLETE };
/* the type of a number in argument_values; for a string that number is 0, and argument_texts has
 * the string */
enum prof_argument_kind {
	PROF_ARGUMENT_S64,
	PROF_ARGUMENT_U64,
	PROF_ARGUMENT_DOUBLE,
	PROF_ARGUMENT_STRING,
	PROF_ARGUMENT_ADDRESS
};
enum prof_jit_event { PROF_JIT_LOAD, PROF_JIT_MOVE, PROF_JIT_UNLOAD };
enum prof_counter_kind { PROF_COUNTER_GAUGE, PROF_COUNTER_SUM };
enum prof_loss_cause {
	PROF_LOSS_PERF_RING,         /* PERF_RECORD_LOST */
	PROF_LOSS_PERF_LOST_SAMPLES, /* PERF_RECORD_LOST_SAMPLES, PERF_FORMAT_LOST */
	PROF_LOSS_THROTTLED,
	PROF_LOSS_TICKS_MISSED, /* timer ticks that the kernel never reported */
	PROF_LOSS_SIDE_BAND,
	PROF_LOSS_CPU_OFFLINE,
	PROF_LOSS_LATE,
	PROF_LOSS_RING_FULL,
	PROF_LOSS_RING_REENTRANT,
	PROF_LOSS_RING_REFUSED,
	PROF_LOSS_RING_CORRUPT,
	PROF_LOSS_UNWIND_BACKLOG,
	PROF_LOSS_WRITER_BACKLOG,
	PROF_LOSS_DISK_FULL,
	PROF_LOSS_IO_ERROR,
	PROF_LOSS_QUOTA,
	PROF_LOSS_FILE_DAMAGE,
	PROF_LOSS_CAUSES
};

/* Returns the definition of a table of version 1, or NULL. Static storage. */
PROF_PUBLIC const struct prof_table_def *prof_table_v1(unsigned int id);

/* ---- Blocks: rows being collected ------------------------------------------------------------ */

/*
 * A value of a row. TEXT, BINARY: `data` points to `number` bytes. LIST: `data` points to `number`
 * items of uint64_t. Other types: `number`; data is NULL. A null: PROF_NULL (only in nullable
 * columns).
 */
struct prof_value {
	uint64_t number;
	const void *data;
};
PROF_PUBLIC extern const char prof_null_marker;
#define PROF_NUMBER(n) ((struct prof_value){ .number = (uint64_t)(n) })
#define PROF_BYTES(d, n) ((struct prof_value){ .number = (n), .data = (d) })
#define PROF_NULL ((struct prof_value){ .data = &prof_null_marker })

struct prof_block;

/* Makes a block for rows of `def`, which must outlive the block. Not thread safe; free with
 * prof_block_free(). */
PROF_PUBLIC PROF_MUST_CHECK int prof_block_new(const struct prof_table_def *def,
					       struct prof_block **ret_block);
PROF_PUBLIC void prof_block_free(struct prof_block *block);
/* Copies one row of def->n_columns values. Returns -EINVAL for a null in a non-nullable column, or
 * PROF_LIMIT above PROF_MAX_ROWS, PROF_MAX_BLOCK_BYTES of items, or 48 MiB in total. */
PROF_PUBLIC PROF_MUST_CHECK int prof_block_add(struct prof_block *block,
					       const struct prof_value *values);
/* Faster prof_block_add() for tables without lists and bytes: one number for each column. `nulls`:
 * bit i is set if column i is null. Also returns -EINVAL for other tables. */
PROF_PUBLIC PROF_MUST_CHECK int prof_block_add_numbers(struct prof_block *block,
						       const uint64_t *numbers, uint64_t nulls);
PROF_PUBLIC size_t prof_block_rows(const struct prof_block *block);
PROF_PUBLIC size_t prof_block_bytes(const struct prof_block *block); /* memory of the rows */
PROF_PUBLIC const struct prof_table_def *prof_block_table(const struct prof_block *block);
/* Sets the epoch of the block's rows; 0, the default, is the writer's first epoch. */
PROF_PUBLIC void prof_block_set_epoch(struct prof_block *block, uint32_t epoch);
PROF_PUBLIC void prof_block_reset(struct prof_block *block); /* drops the rows, keeps the memory */

/* ---- Writer ---------------------------------------------------------------------------------- */

struct prof_segment {
	uint8_t boot_id[16];         /* /proc/sys/kernel/random/boot_id; zeros = unknown */
	uint64_t start_monotonic_ns; /* CLOCK_MONOTONIC at the segment's start */
	int64_t wall_ns;             /* CLOCK_REALTIME at the same time, ns since 1970 */
	uint64_t wall_error_ns;      /* half of the time that reading both clocks took */
	uint32_t number;             /* set by the writer: 1, 2, … */
	uint32_t first_epoch;        /* set by the writer */
};

enum prof_writer_mode {
	PROF_WRITE_NEW, /* an empty regular file, or a pipe */
	/* a capture that is open with O_RDWR, finished or not: rows are added in a new segment */
	PROF_WRITE_APPEND,
	/* like APPEND, but without a new segment: same boot and clock, only a new epoch */
	PROF_WRITE_EXTEND,
};

struct prof_writer_options {
	enum prof_writer_mode mode;
	/* ignored by PROF_WRITE_EXTEND, unless the file has no segment */
	struct prof_segment segment;
	unsigned int group_rows; /* rows of a row group; 0 = 16 Ki */
	int level;               /* zstd level; 0 = 1 */
};

struct prof_writer;

/*
 * Locks a regular file for writing (flock); returns -EWOULDBLOCK if another writer has the lock. fd
 * is borrowed until prof_writer_free(). Never seeks back and never truncates existing data.
 * PROF_WRITE_NEW returns -EEXIST if the file is not empty. The other modes start a capture in an
 * empty file, and return prof_reader_open()'s error if the file is not a capture. Not thread safe.
 */
PROF_PUBLIC PROF_MUST_CHECK int prof_writer_new(int fd, const struct prof_writer_options *options,
						struct prof_writer **ret_writer);
/*
 * Declares a foreign table, or columns that were added to one; the tables of version 1 are built
 * in. Copies the definition. Returns -EINVAL if it violates a rule of the format, or -EEXIST if the
 * capture has another table with this id.
 */
PROF_PUBLIC PROF_MUST_CHECK int prof_writer_add_table(struct prof_writer *writer,
						      const struct prof_table_def *def);
/* Returns the lowest epoch number that the caller may use. All epochs already in the file are
 * lower. */
PROF_PUBLIC uint32_t prof_writer_first_epoch(const struct prof_writer *writer);
/*
 * Encodes, compresses and writes the block as one chunk; the block keeps its rows. Write a
 * dictionary row before the first row that refers to it. After -ENOSPC, -EIO… this chunk is not in
 * the capture; earlier data stays readable, and (if the file system could reserve room) there is
 * room for a loss block and for prof_writer_finish().
 */
PROF_PUBLIC PROF_MUST_CHECK int prof_writer_write(struct prof_writer *writer,
						  const struct prof_block *block);
/* Writes a checkpoint now, in addition to the automatic ones every 64 chunks or 16 MiB. */
PROF_PUBLIC PROF_MUST_CHECK int prof_writer_checkpoint(struct prof_writer *writer);
/* Writes index and trailer, which makes the capture `finished`. No writes may follow. */
PROF_PUBLIC PROF_MUST_CHECK int prof_writer_finish(struct prof_writer *writer);
/* Returns the length of the capture so far. May be called while another thread writes. */
PROF_PUBLIC uint64_t prof_writer_bytes(const struct prof_writer *writer);
/* Frees the writer without finishing: the file stays as a crash would leave it. */
PROF_PUBLIC void prof_writer_free(struct prof_writer *writer);

/* ---- Reader ---------------------------------------------------------------------------------- */

enum prof_state {
	PROF_STATE_FINISHED,   /* index and trailer exist and agree */
	PROF_STATE_UNFINISHED, /* cut, crashed, or still being written */
	PROF_STATE_DAMAGED,    /* bytes inside are wrong */
};

/* Why a range of a file could not be used. prof_damage_reason_name() returns the name that `verify`
 * shows as "reason". */
enum prof_damage_reason {
	PROF_DAMAGE_HEADER, /* header of the file or of a chunk */
	PROF_DAMAGE_PAYLOAD,
	PROF_DAMAGE_CHECKSUM,
	PROF_DAMAGE_DECODE,
	PROF_DAMAGE_ORDER, /* sequence numbers or times descend, or times differ from the header */
	PROF_DAMAGE_DICTIONARY,
	PROF_DAMAGE_INDEX,
	PROF_DAMAGE_CUT,
};

struct prof_damage {
	uint64_t offset;
	uint64_t bytes;
	uint64_t sequence; /* UINT64_MAX: unknown */
	uint64_t rows;     /* lost rows */
	uint32_t table;    /* 0 = unknown */
	uint32_t stream;
	enum prof_damage_reason reason;
};
PROF_PUBLIC const char *prof_damage_reason_name(enum prof_damage_reason reason);

struct prof_chunk {
	uint64_t offset; /* offset of the chunk's header */
	uint64_t sequence;
	uint64_t t_min, t_max; /* 0, 0 if the table is not timed */
	uint64_t first_id;     /* dictionary tables: lowest id */
	uint32_t stored_bytes; /* bytes of the payload */
	/* size of the rows before encoding: 8 bytes per number, plus the bytes of byte columns */
	uint32_t raw_bytes;
	uint32_t rows;
	uint32_t segment, epoch;
	uint16_t table, stream;
};

struct prof_reader_info {
	uint8_t uuid[16];
	uint64_t compat, incompat; /* feature words of the file header */
	uint64_t bytes;            /* length of the file */
	uint64_t cut_at;           /* end of the readable part; UINT64_MAX if finished */
	enum prof_state state; /* as known after open: payloads are checked when they are read */
	uint64_t chunks;       /* number of data chunks */
	uint32_t epochs;       /* number of epochs that have chunks */
	bool indexed; /* opened by index and checkpoints; otherwise by walking all headers */
	/* file offset of another capture that was joined to this one; 0: none */
	uint64_t second_at;
};

struct prof_reader;

/*
 * Opens a capture for reading. Duplicates the fd of a regular file. Copies any other file, such as
 * a pipe, to an unlinked temporary file in $TMPDIR (default: /tmp); returns -ENOSPC if the copy
 * would be larger than the space that it leaves free there. Every prefix of a capture that has the
 * whole file header can be opened.
 */
PROF_PUBLIC PROF_MUST_CHECK int prof_reader_open(int fd, struct prof_reader **ret_reader);
/* Free the reader's cursors and chunk lists first. Accepts NULL. */
PROF_PUBLIC void prof_reader_free(struct prof_reader *reader);
/*
 * Calls guard(table, data) before each batch that a cursor returns or a dictionary reads, on the
 * reading thread. A result other than 0 stops the read, which returns that result. A guard that
 * limits memory returns PROF_OVER_BUDGET. Set the guard before any cursor or dictionary is created;
 * NULL: none.
 */
PROF_PUBLIC void prof_reader_set_guard(struct prof_reader *reader,
				       int (*guard)(unsigned int table, void *data), void *data);
PROF_PUBLIC const struct prof_reader_info *prof_reader_info(const struct prof_reader *reader);
/* The arrays belong to the reader. Tables are sorted by id, segments and damage by position in the
 * file. */
PROF_PUBLIC const struct prof_table_def *const *prof_reader_tables(const struct prof_reader *reader,
								   size_t *ret_n);
PROF_PUBLIC const struct prof_segment *prof_reader_segments(const struct prof_reader *reader,
							    size_t *ret_n);
PROF_PUBLIC const struct prof_damage *prof_reader_damage(const struct prof_reader *reader,
							 size_t *ret_n);
/*
 * The losses that the cursors, dictionaries, scans and checks of a reader have found so far. Query
 * them after reading, because each read may add losses. Each chunk is counted once. Ranges in which
 * opening found no chunk may have held rows of any table, so `stretches` includes them for every
 * table.
 */
struct prof_lost {
	uint64_t chunks; /* number of the table's chunks with lost rows */
	uint64_t rows;   /* number of rows lost in these chunks */
	/* number of damaged chunks without lost rows, such as indexes, or chunks with wrong
	 * padding or unordered times */
	uint64_t flawed;
	uint64_t stretches;
};
/* `table` 0: all tables. May be called from any thread. */
PROF_PUBLIC void prof_reader_lost(const struct prof_reader *reader, unsigned int table,
				  struct prof_lost *ret_lost);
/* Returns NULL if the capture has no such table. */
PROF_PUBLIC const struct prof_table_def *prof_reader_table(const struct prof_reader *reader,
							   unsigned int id);
PROF_PUBLIC const struct prof_table_def *prof_reader_table_by_name(const struct prof_reader *reader,
								   const char *name);
/* Reads and decodes one chunk fully, and checks every condition that needs only that chunk. Returns
 * 0, PROF_DAMAGED with *ret_damage set, or -errno. */
PROF_PUBLIC PROF_MUST_CHECK int prof_reader_check(const struct prof_reader *reader,
						  const struct prof_chunk *chunk,
						  struct prof_damage *ret_damage);
/* Checks all bytes of the data chunks that wanted() accepts (NULL: all), without decoding them, and
 * all chunks of other kinds. prof_reader_lost() reports the damage. Returns 0 or -errno. */
PROF_PUBLIC PROF_MUST_CHECK int prof_reader_scan(const struct prof_reader *reader,
						 bool (*wanted)(const struct prof_chunk *chunk,
								void *data),
						 void *data);
/* Walks all headers of the file, and checks every chunk. Uses the index only to name the chunks
 * that are missing. Calls found() for each damage in file order. A result of found() other than 0
 * stops the walk, and is returned. */
PROF_PUBLIC PROF_MUST_CHECK int prof_reader_verify(const struct prof_reader *reader,
						   int (*found)(const struct prof_damage *damage,
								void *data),
						   void *data, uint64_t *ret_chunks,
						   uint64_t *ret_good_chunks);

/* ---- Chunks: the headers of data chunks, in file order --------------------------------------- */

/* A reader keeps chunks packed, because there may be many; struct prof_chunks unpacks a few at a
 * time. */
struct prof_chunks;

/* table: one table; 0: all. One thread at a time. */
PROF_PUBLIC PROF_MUST_CHECK int prof_chunks_new(const struct prof_reader *reader,
						unsigned int table,
						struct prof_chunks **ret_chunks);
PROF_PUBLIC void prof_chunks_free(struct prof_chunks *chunks);
/* Returns 0, PROF_END, or -ENOMEM. */
PROF_PUBLIC PROF_MUST_CHECK int prof_chunks_next(struct prof_chunks *chunks,
						 struct prof_chunk *ret_chunk);

/* ---- Cursor: rows of one table in file order ------------------------------------------------- */

/* A column of a batch. All pointers are NULL if the chunk lacks the column or its encoding is
 * unknown. */
struct prof_array {
	/* scalars: one number per row. LIST: all items, see offsets. TEXT, BINARY: NULL */
	const uint64_t *numbers;
	const uint8_t *bytes;    /* TEXT, BINARY: all bytes, see offsets */
	const uint64_t *offsets; /* LIST, TEXT, BINARY: rows + 1 positions in numbers or bytes */
	const uint8_t *nulls;    /* 1 = null; NULL: no row is null */
};

/* At most PROF_MAX_GROUP_ROWS rows of one epoch; valid until the next call on the cursor or stream
 * that returned the batch. */
struct prof_batch {
	const struct prof_array *columns; /* in the requested order */
	size_t rows;
	uint64_t sequence; /* sequence of the chunk */
	uint32_t segment, epoch;
	/* position in the chunk of the batch's first row; set only by cursors */
	uint32_t first_row;
};

struct prof_cursor_options {
	unsigned int table;
	const uint16_t *columns; /* column ids; NULL = all, in schema order */
	size_t n_columns;
	uint32_t segment; /* 0 = all */
	uint32_t epoch;   /* 0 = all */
	/* skips row groups outside [t_from, t_to], but not single rows; 0, 0 = all */
	uint64_t t_from, t_to;
};

struct prof_cursor;

PROF_PUBLIC PROF_MUST_CHECK int prof_cursor_new(const struct prof_reader *reader,
						const struct prof_cursor_options *options,
						struct prof_cursor **ret_cursor);
PROF_PUBLIC void prof_cursor_free(struct prof_cursor *cursor);
/* Returns 0 and a batch, PROF_END, -errno, or the guard's result. Skips, and counts, damaged
 * chunks. */
PROF_PUBLIC PROF_MUST_CHECK int prof_cursor_next(struct prof_cursor *cursor,
						 struct prof_batch *ret_batch);
PROF_PUBLIC void prof_cursor_lost(const struct prof_cursor *cursor, uint64_t *ret_chunks,
				  uint64_t *ret_rows);
/*
 * Returns the number of positions so far at which rows may be missing: damaged chunks of the table,
 * and ranges of the file in which no chunk was found. If prof_cursor_next() increases it, rows may
 * be missing between the previous batch and the new one.
 */
PROF_PUBLIC uint64_t prof_cursor_breaks(const struct prof_cursor *cursor);

/* ---- Stream: a capture that is still being written ------------------------------------------- */

struct prof_stream;

/* Reads a capture as it is written, e.g. into a pipe. fd is borrowed until prof_stream_free(); if
 * it is O_NONBLOCK, no call waits. `tables`: bit n: table n; 0 = all. One thread at a time. */
PROF_PUBLIC PROF_MUST_CHECK int prof_stream_new(int fd, uint64_t tables,
						struct prof_stream **ret_stream);
PROF_PUBLIC void prof_stream_free(struct prof_stream *stream);
/*
 * Returns rows in the order written, with all columns; columns of version-1 tables keep the
 * positions above. The batch is valid until the next call. Returns 0; -EAGAIN if no rows are
 * available yet; PROF_END if the writer closed the stream, whether or not it finished the capture;
 * or the error that ended the stream: PROF_NOT_CAPTURE, PROF_TOO_SHORT, PROF_BAD_HEADER,
 * PROF_UNSUPPORTED, PROF_DAMAGED, -errno.
 */
PROF_PUBLIC PROF_MUST_CHECK int prof_stream_next(struct prof_stream *stream,
						 unsigned int *ret_table,
						 struct prof_batch *ret_batch);
/* Returns the number of chunks that were skipped because they failed a check. */
PROF_PUBLIC uint64_t prof_stream_lost(const struct prof_stream *stream);

/* ---- Dictionary: the rows of one dictionary table in one epoch, by id ------------------------ */

struct prof_dictionary;

/* Loads columns (ids; NULL = all) into memory. Ids whose rows were in missing or damaged chunks are
 * not found: see prof_reader_lost(). */
PROF_PUBLIC PROF_MUST_CHECK int prof_dictionary_load(const struct prof_reader *reader,
						     unsigned int table, uint32_t epoch,
						     const uint16_t *columns, size_t n_columns,
						     struct prof_dictionary **ret_dictionary);
PROF_PUBLIC void prof_dictionary_free(struct prof_dictionary *dictionary);
/* Returns the row of an id; if several rows have the id, the last one. Returns -1 if no row has it:
 * show `<lost>` then, except for id 0, which means "none". */
PROF_PUBLIC ssize_t prof_dictionary_find(const struct prof_dictionary *dictionary, uint64_t id);
PROF_PUBLIC size_t prof_dictionary_rows(const struct prof_dictionary *dictionary);
/* Returns the i-th requested column, over all rows. */
PROF_PUBLIC const struct prof_array *prof_dictionary_column(
	const struct prof_dictionary *dictionary, size_t i);

#ifdef __cplusplus
}
#endif
