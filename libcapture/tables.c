/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tables - the tables of version 1
 *
 * A column's id is its position in the array, as in the enums of prof-capture.h. Columns may be
 * added at the end of a table; no column may be renamed or renumbered, or change its type.
 *
 * Text and references: names that recur (paths, comms, groups) are references into `string`.
 * Columns that must be readable if a dictionary is lost, or that a writer must be able to write
 * without one (loss, metadata, log text), are text. References: 0 = none. Numbers that may be
 * unknown, and for which 0 is a valid value, are nullable.
 */
#include "arch/base.h"
#include "libcapture/prof-capture.h"

#include <assert.h>

#define COLUMN_ORDERED(c, n, t, o, ...)                                                 \
	{                                                                               \
		.id = (c), .name = (n), .type = PROF_TYPE_##t, .order = PROF_ORDER_##o, \
		__VA_ARGS__                                                             \
	}
#define COLUMN(c, n, t, ...) COLUMN_ORDERED(c, n, t, OFFSET, __VA_ARGS__)
#define REF(c, n, table) COLUMN(c, n, REF, .ref = PROF_TABLE_##table)
#define REFS(c, n, table) COLUMN(c, n, REF, .ref = PROF_TABLE_##table, .flags = PROF_COLUMN_LIST)
#define ENUM(c, n, names) COLUMN(c, n, ENUM, .values = (names))
#define ID(c) COLUMN_ORDERED(c, "id", UINT, DELTA)
#define TIME(c) COLUMN_ORDERED(c, "time", TIME, DELTA, .unit = PROF_UNIT_NS)

static const char *const image_kinds[] = { "file", "vdso", "kernel",      "module", "bpf",
					   "jit",  "anon", "interpreter", NULL };
static const char *const frame_kinds[] = { "exact", "return", NULL };
static const char *const source_kinds[] = { "software", "hardware", "tracepoint", "cache",
					    "raw",      "dynamic",  "probe",      NULL };
static const char *const sample_modes[] = { "user", "kernel", NULL };
static const char *const user_methods[] = { "none",        "fp",     "cfi", "stitched",
					    "fp-repaired", "jit-fp", NULL };
static const char *const user_stops[] = { "root",      "copy-end", "no-table",      "no-rule",
					  "bad-frame", "depth",    "kernel-thread", "unknown",
					  "no-memory", NULL };
static const char *const sample_interpreters[] = { "none",    "complete", "deeper", "torn",
						   "missing", "idle",     NULL };
static_assert(ARRAY_SIZE(sample_interpreters) == PROF_INTERPRETERS + 1, "sample.interpreter");
static const char *const task_events[] = {
	"exists", "fork", "exec", "exit", "comm", "status", NULL
};
static const char *const switch_states[] = { "wait", "preempted", "running", "runnable", NULL };
static const char *const alloc_kinds[] = {
	"malloc",   "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc",
	"memalign", "valloc", "pvalloc", "new",          "mmap",           "mremap",
	"brk",      NULL
};
static_assert(ARRAY_SIZE(alloc_kinds) == PROF_ALLOC_KINDS + 1, "alloc.kind");
static const char *const free_kinds[] = { "free",
					  "cfree",
					  "free_sized",
					  "free_aligned_sized",
					  "delete",
					  "realloc",
					  "reallocarray",
					  "munmap",
					  "brk",
					  "untold",
					  NULL };
static_assert(ARRAY_SIZE(free_kinds) == PROF_FREE_KINDS + 1, "free.kind");
static const char *const heap_events[] = {
	"begin",     "checkpoint", "paused",          "resumed",    "end",         "static",
	"setuid",    "other-arch", "unregistered",    "other-libc", "environment", "no-descriptors",
	"no-memory", "sanitizer",  "never-allocated", NULL
};
static_assert(ARRAY_SIZE(heap_events) == PROF_HEAP_EVENTS + 1, "heap.event");
static const char *const mark_kinds[] = { "instant", "begin", "end", "complete", NULL };
static const char *const argument_kinds[] = { "s64", "u64", "double", "string", "address", NULL };
static const char *const log_levels[] = { "emergency", "alert", "critical", "error", "warning",
					  "notice",    "info",  "debug",    NULL };
static const char *const counter_kinds[] = { "gauge", "sum", NULL };
static const char *const jit_events[] = { "load", "move", "unload", NULL };
static const char *const wait_states[] = { "unknown", "sleeping", "uninterruptible",
					   "stopped", "traced",   NULL };
static const char *const stack_sources[] = {
	"none", "copied", "late", "shared-out", "raced", NULL
};
static const char *const wakers[] = { "unknown", "thread", "interrupt", "outside", NULL };
static_assert(ARRAY_SIZE(wakers) == PROF_WAKERS + 1, "wait.waker");
static const char *const loss_causes[] = {
	"perf-ring",      "perf-lost-samples", "throttled",
	"ticks-missed",   "side-band",         "cpu-offline",
	"late",           "ring-full",         "ring-reentrant",
	"ring-refused",   "ring-corrupt",      "unwind-backlog",
	"writer-backlog", "disk-full",         "io-error",
	"quota",          "file-damage",       NULL,
};
static_assert(ARRAY_SIZE(loss_causes) == PROF_LOSS_CAUSES + 1, "one name a cause");

static const struct prof_column_def string_columns[] = {
	ID(PROF_STRING_ID),
	COLUMN(PROF_STRING_TEXT, "text", TEXT),
};
static const struct prof_column_def image_columns[] = {
	ID(PROF_IMAGE_ID),
	REF(PROF_IMAGE_PATH, "path", STRING),
	COLUMN(PROF_IMAGE_BUILD_ID, "build_id", BINARY), /* empty = none */
	COLUMN(PROF_IMAGE_SIZE, "size", UINT, .unit = PROF_UNIT_BYTES),
	COLUMN(PROF_IMAGE_DEV, "dev", UINT),
	COLUMN(PROF_IMAGE_INODE, "inode", UINT),
	ENUM(PROF_IMAGE_KIND, "kind", image_kinds),
	COLUMN(PROF_IMAGE_CTIME, "ctime", INT, .unit = PROF_UNIT_NS), /* ns since 1970 */
	REF(PROF_IMAGE_PROCESS, "process", PROCESS),
};
static const struct prof_column_def frame_columns[] = {
	ID(PROF_FRAME_ID),
	REF(PROF_FRAME_IMAGE, "image", IMAGE),
	COLUMN(PROF_FRAME_OFFSET, "offset", UINT, .unit = PROF_UNIT_ADDRESS),
	ENUM(PROF_FRAME_KIND, "kind", frame_kinds),
};
static const struct prof_column_def stack_columns[] = {
	ID(PROF_STACK_ID),
	COLUMN_ORDERED(PROF_STACK_PARENT, "parent", REF, DISTANCE, .ref = PROF_TABLE_STACK),
	REF(PROF_STACK_FRAME, "frame", FRAME),
};
static const struct prof_column_def process_columns[] = {
	ID(PROF_PROCESS_ID),
	COLUMN(PROF_PROCESS_PID, "pid", UINT),
	COLUMN(PROF_PROCESS_PPID, "ppid", UINT),
	COLUMN(PROF_PROCESS_START_TIME, "start_time", TIME, .unit = PROF_UNIT_NS),
	COLUMN(PROF_PROCESS_EXEC_GENERATION, "exec_generation", UINT),
	REFS(PROF_PROCESS_CMDLINE, "cmdline", STRING), /* one item per argument */
	REF(PROF_PROCESS_EXE, "exe", STRING),
	REF(PROF_PROCESS_CGROUP, "cgroup", STRING),
	COLUMN(PROF_PROCESS_UID, "uid", UINT),
	COLUMN(PROF_PROCESS_NS_PIDS, "ns_pids", UINT,
	       .flags = PROF_COLUMN_LIST), /* outermost namespace first, without `pid` */
};
static const struct prof_column_def thread_columns[] = {
	ID(PROF_THREAD_ID),
	REF(PROF_THREAD_PROCESS, "process", PROCESS),
	COLUMN(PROF_THREAD_TID, "tid", UINT),
	COLUMN(PROF_THREAD_START_TIME, "start_time", TIME, .unit = PROF_UNIT_NS),
	REF(PROF_THREAD_COMM, "comm", STRING),
	COLUMN(PROF_THREAD_NS_TIDS, "ns_tids", UINT, .flags = PROF_COLUMN_LIST),
};
static const struct prof_column_def source_columns[] = {
	ID(PROF_SOURCE_ID), REF(PROF_SOURCE_NAME, "name", STRING),
	ENUM(PROF_SOURCE_KIND, "kind", source_kinds),
	REF(PROF_SOURCE_UNIT, "unit", STRING), /* unit of sample.weight: "ns", "cycles", … */
	COLUMN(PROF_SOURCE_PERIOD, "period", UINT),
	COLUMN(PROF_SOURCE_FREQUENCY, "frequency", UINT, .unit = PROF_UNIT_HZ),
	/* Each of these three lists has one item per field of the event. */
	REFS(PROF_SOURCE_FIELDS, "fields", STRING),
	COLUMN(PROF_SOURCE_FIELD_KINDS, "field_kinds", ENUM, .values = argument_kinds,
	       .flags = PROF_COLUMN_LIST),
	REFS(PROF_SOURCE_FIELD_TYPES, "field_types", STRING), /* as declared in C */
};
static const struct prof_column_def symbol_columns[] = {
	ID(PROF_SYMBOL_ID),
	REF(PROF_SYMBOL_IMAGE, "image", IMAGE),
	COLUMN(PROF_SYMBOL_START, "start", UINT, .unit = PROF_UNIT_ADDRESS),
	COLUMN(PROF_SYMBOL_LENGTH, "length", UINT, .unit = PROF_UNIT_BYTES),
	REF(PROF_SYMBOL_NAME, "name", STRING),
	REF(PROF_SYMBOL_RAW_NAME, "raw_name", STRING),
	REF(PROF_SYMBOL_FILE, "file", STRING),
	COLUMN(PROF_SYMBOL_LINE, "line", UINT), /* 0 = unknown, as in DWARF */
	COLUMN_ORDERED(PROF_SYMBOL_INLINE_PARENT, "inline_parent", REF, DISTANCE,
		       .ref = PROF_TABLE_SYMBOL),
	REF(PROF_SYMBOL_DECLARED_FILE, "declared_file", STRING),
	COLUMN(PROF_SYMBOL_DECLARED_LINE, "declared_line", UINT),
};
static const struct prof_column_def counter_columns[] = {
	ID(PROF_COUNTER_ID),
	REF(PROF_COUNTER_PROCESS, "process", PROCESS),
	REF(PROF_COUNTER_GROUP, "group", STRING),
	REF(PROF_COUNTER_NAME, "name", STRING),
	REF(PROF_COUNTER_UNIT, "unit", STRING),
	ENUM(PROF_COUNTER_KIND, "kind", counter_kinds),
};
static const struct prof_column_def line_columns[] = {
	ID(PROF_LINE_ID),
	REF(PROF_LINE_IMAGE, "image", IMAGE),
	COLUMN(PROF_LINE_START, "start", UINT, .unit = PROF_UNIT_ADDRESS),
	COLUMN(PROF_LINE_LENGTH, "length", UINT, .unit = PROF_UNIT_BYTES),
	REF(PROF_LINE_FILE, "file", STRING),
	COLUMN(PROF_LINE_LINE, "line", UINT),
	REF(PROF_LINE_SYMBOL, "symbol", SYMBOL),
};
static const struct prof_column_def sample_columns[] = {
	TIME(PROF_SAMPLE_TIME),
	REF(PROF_SAMPLE_THREAD, "thread", THREAD),
	COLUMN(PROF_SAMPLE_CPU, "cpu", UINT),
	ENUM(PROF_SAMPLE_MODE, "mode", sample_modes),
	REF(PROF_SAMPLE_STACK, "stack", STACK),
	COLUMN(PROF_SAMPLE_WEIGHT, "weight", UINT), /* in the source's unit */
	REF(PROF_SAMPLE_SOURCE, "source", SOURCE),
	ENUM(PROF_SAMPLE_USER_METHOD, "user_method", user_methods),
	ENUM(PROF_SAMPLE_USER_STOP, "user_stop", user_stops),
	REF(PROF_SAMPLE_CGROUP, "cgroup", STRING),
	/* Both lists are empty, or have one item per field of the source. */
	COLUMN(PROF_SAMPLE_VALUES, "values", UINT, .flags = PROF_COLUMN_LIST),
	REFS(PROF_SAMPLE_TEXTS, "texts", STRING),
	ENUM(PROF_SAMPLE_INTERPRETER, "interpreter", sample_interpreters),
};
static const struct prof_column_def task_columns[] = {
	TIME(PROF_TASK_TIME),
	REF(PROF_TASK_THREAD, "thread", THREAD),
	ENUM(PROF_TASK_EVENT, "event", task_events),
	REF(PROF_TASK_COMM, "comm", STRING),
	COLUMN(PROF_TASK_EXIT_STATUS, "exit_status", INT, .flags = PROF_COLUMN_NULLABLE),
	REF(PROF_TASK_PARENT, "parent", THREAD),
};
static const struct prof_column_def mapping_columns[] = {
	TIME(PROF_MAPPING_TIME),
	REF(PROF_MAPPING_PROCESS, "process", PROCESS),
	COLUMN(PROF_MAPPING_START, "start", UINT, .unit = PROF_UNIT_ADDRESS),
	COLUMN(PROF_MAPPING_LENGTH, "length", UINT, .unit = PROF_UNIT_BYTES),
	COLUMN(PROF_MAPPING_FILE_OFFSET, "file_offset", UINT, .unit = PROF_UNIT_ADDRESS),
	REF(PROF_MAPPING_IMAGE, "image", IMAGE),
};
static const struct prof_column_def switch_columns[] = {
	TIME(PROF_SWITCH_TIME),
	REF(PROF_SWITCH_THREAD, "thread", THREAD),
	COLUMN(PROF_SWITCH_CPU, "cpu", UINT),
	COLUMN_ORDERED(PROF_SWITCH_START, "start", TIME, DELTA, .unit = PROF_UNIT_NS),
	ENUM(PROF_SWITCH_STATE, "state", switch_states),
};
static const struct prof_column_def alloc_columns[] = {
	TIME(PROF_ALLOC_TIME),
	REF(PROF_ALLOC_THREAD, "thread", THREAD),
	ENUM(PROF_ALLOC_KIND, "kind", alloc_kinds),
	COLUMN_ORDERED(PROF_ALLOC_BLOCK, "block", UINT, DELTA),
	COLUMN(PROF_ALLOC_SIZE, "size", UINT, .unit = PROF_UNIT_BYTES),
	COLUMN(PROF_ALLOC_ALIGNMENT, "alignment", UINT, .unit = PROF_UNIT_BYTES),
	REF(PROF_ALLOC_STACK, "stack", STACK),
	COLUMN(PROF_ALLOC_PRIOR, "prior", UINT), /* 0 = none */
};
static const struct prof_column_def free_columns[] = {
	TIME(PROF_FREE_TIME),
	REF(PROF_FREE_THREAD, "thread", THREAD),
	COLUMN_ORDERED(PROF_FREE_BLOCK, "block", UINT, DELTA), /* 0 = unknown */
	COLUMN(PROF_FREE_ADDRESS, "address", UINT, .unit = PROF_UNIT_ADDRESS,
	       .flags = PROF_COLUMN_NULLABLE),
	ENUM(PROF_FREE_KIND, "kind", free_kinds),
	COLUMN(PROF_FREE_YOUNGER, "younger", UINT, .unit = PROF_UNIT_COUNT),
};
static const struct prof_column_def mark_columns[] = {
	TIME(PROF_MARK_TIME),
	REF(PROF_MARK_THREAD, "thread", THREAD),
	ENUM(PROF_MARK_KIND, "kind", mark_kinds),
	/* pairs a begin mark with its end mark; 0: paired by thread, group and name */
	COLUMN(PROF_MARK_ID, "id", UINT),
	REF(PROF_MARK_GROUP, "group", STRING),
	REF(PROF_MARK_NAME, "name", STRING),
	COLUMN(PROF_MARK_DURATION, "duration", UINT,
	       .unit = PROF_UNIT_NS), /* complete marks: duration, which ends at `time`; else 0 */
	/* Each of these four lists has one item per argument. */
	REFS(PROF_MARK_ARGUMENTS, "arguments", STRING),
	COLUMN(PROF_MARK_ARGUMENT_KINDS, "argument_kinds", ENUM, .values = argument_kinds,
	       .flags = PROF_COLUMN_LIST),
	COLUMN(PROF_MARK_ARGUMENT_VALUES, "argument_values", UINT, .flags = PROF_COLUMN_LIST),
	REFS(PROF_MARK_ARGUMENT_TEXTS, "argument_texts", STRING),
	REF(PROF_MARK_STACK, "stack", STACK),
};
static const struct prof_column_def log_columns[] = {
	TIME(PROF_LOG_TIME),
	REF(PROF_LOG_THREAD, "thread", THREAD),
	ENUM(PROF_LOG_LEVEL, "level", log_levels),
	REF(PROF_LOG_DOMAIN, "domain", STRING),
	COLUMN(PROF_LOG_TEXT, "text", TEXT),
	REF(PROF_LOG_STACK, "stack", STACK),
};
static const struct prof_column_def counter_value_columns[] = {
	TIME(PROF_COUNTER_VALUE_TIME),
	REF(PROF_COUNTER_VALUE_COUNTER, "counter", COUNTER),
	COLUMN(PROF_COUNTER_VALUE_VALUE, "value", FLOAT),
};
static const struct prof_column_def loss_columns[] = {
	TIME(PROF_LOSS_TIME),
	COLUMN_ORDERED(PROF_LOSS_TIME_END, "time_end", TIME, DELTA, .unit = PROF_UNIT_NS),
	COLUMN(PROF_LOSS_STREAM, "stream", TEXT),
	ENUM(PROF_LOSS_CAUSE, "cause", loss_causes),
	COLUMN(PROF_LOSS_COUNT, "count", UINT, .unit = PROF_UNIT_COUNT),
	COLUMN(PROF_LOSS_BYTES, "bytes", UINT, .unit = PROF_UNIT_BYTES),
};
static const struct prof_column_def metadata_columns[] = {
	TIME(PROF_METADATA_TIME),
	COLUMN(PROF_METADATA_KEY, "key", TEXT),
	COLUMN(PROF_METADATA_VALUE, "value", TEXT),
};
static const struct prof_column_def jit_columns[] = {
	TIME(PROF_JIT_TIME),
	REF(PROF_JIT_PROCESS, "process", PROCESS),
	ENUM(PROF_JIT_EVENT, "event", jit_events),
	COLUMN(PROF_JIT_ADDRESS, "address", UINT, .unit = PROF_UNIT_ADDRESS),
	COLUMN(PROF_JIT_SIZE, "size", UINT, .unit = PROF_UNIT_BYTES), /* only for load; else 0 */
	REF(PROF_JIT_NAME, "name", STRING),                           /* only for load */
	COLUMN(PROF_JIT_FROM, "from", UINT, .unit = PROF_UNIT_ADDRESS,
	       .flags = PROF_COLUMN_NULLABLE), /* only for move */
};
static const struct prof_column_def heap_columns[] = {
	TIME(PROF_HEAP_TIME),
	REF(PROF_HEAP_PROCESS, "process", PROCESS),
	ENUM(PROF_HEAP_EVENT, "event", heap_events),
	COLUMN(PROF_HEAP_LIVE_BYTES, "live_bytes", UINT, .unit = PROF_UNIT_BYTES),
	COLUMN(PROF_HEAP_LIVE_BLOCKS, "live_blocks", UINT, .unit = PROF_UNIT_COUNT),
	COLUMN(PROF_HEAP_PEAK_BYTES, "peak_bytes", UINT, .unit = PROF_UNIT_BYTES),
	COLUMN_ORDERED(PROF_HEAP_PEAK_TIME, "peak_time", TIME, DELTA, .unit = PROF_UNIT_NS),
	COLUMN(PROF_HEAP_INHERITED, "inherited", UINT),
};
static const struct prof_column_def live_columns[] = {
	TIME(PROF_LIVE_TIME),
	REF(PROF_LIVE_THREAD, "thread", THREAD),
	ENUM(PROF_LIVE_KIND, "kind", alloc_kinds),
	COLUMN_ORDERED(PROF_LIVE_BLOCK, "block", UINT, DELTA),
	COLUMN(PROF_LIVE_SIZE, "size", UINT, .unit = PROF_UNIT_BYTES),
	COLUMN(PROF_LIVE_ALIGNMENT, "alignment", UINT, .unit = PROF_UNIT_BYTES),
	REF(PROF_LIVE_STACK, "stack", STACK),
	COLUMN_ORDERED(PROF_LIVE_SINCE, "since", TIME, DELTA, .unit = PROF_UNIT_NS),
};
static const struct prof_column_def wait_columns[] = {
	TIME(PROF_WAIT_TIME),
	REF(PROF_WAIT_THREAD, "thread", THREAD),
	COLUMN(PROF_WAIT_CPU, "cpu", UINT),
	COLUMN(PROF_WAIT_DURATION, "duration", UINT, .unit = PROF_UNIT_NS),
	ENUM(PROF_WAIT_STATE, "state", wait_states),
	REF(PROF_WAIT_STACK, "stack", STACK),
	ENUM(PROF_WAIT_STACK_SOURCE, "stack_source", stack_sources),
	ENUM(PROF_WAIT_USER_METHOD, "user_method", user_methods),
	ENUM(PROF_WAIT_USER_STOP, "user_stop", user_stops),
	/* first argument of the system call, such as a futex's address or a descriptor */
	COLUMN(PROF_WAIT_ARGUMENT, "argument", UINT, .unit = PROF_UNIT_ADDRESS,
	       .flags = PROF_COLUMN_NULLABLE),
	REF(PROF_WAIT_SYSCALL, "syscall", STRING),
	REF(PROF_WAIT_OBJECT, "object", STRING),
	ENUM(PROF_WAIT_WAKER, "waker", wakers),
	REF(PROF_WAIT_WAKER_THREAD, "waker_thread", THREAD),
	REF(PROF_WAIT_WAKER_STACK, "waker_stack", STACK),
	ENUM(PROF_WAIT_WAKER_STACK_SOURCE, "waker_stack_source", stack_sources),
	/* first argument of the waker's system call */
	COLUMN(PROF_WAIT_WAKER_ARGUMENT, "waker_argument", UINT, .unit = PROF_UNIT_ADDRESS,
	       .flags = PROF_COLUMN_NULLABLE),
	ENUM(PROF_WAIT_INTERPRETER, "interpreter", sample_interpreters),
	REF(PROF_WAIT_CGROUP, "cgroup", STRING),
};

#define TABLE(i, n, f)                                                        \
	{                                                                     \
		.id = PROF_TABLE_##i, .name = #n, .columns = n##_columns,     \
		.n_columns = ARRAY_SIZE(n##_columns), .flags = PROF_TABLE_##f \
	}
#define CHECK_COLUMNS(i, n) static_assert(ARRAY_SIZE(n##_columns) == PROF_##i##_COLUMNS, #n)

static const struct prof_table_def tables[] = {
	TABLE(STRING, string, DICTIONARY),
	TABLE(IMAGE, image, DICTIONARY),
	TABLE(FRAME, frame, DICTIONARY),
	TABLE(STACK, stack, DICTIONARY),
	TABLE(PROCESS, process, DICTIONARY),
	TABLE(THREAD, thread, DICTIONARY),
	TABLE(SOURCE, source, DICTIONARY),
	TABLE(SYMBOL, symbol, DICTIONARY),
	TABLE(COUNTER, counter, DICTIONARY),
	TABLE(LINE, line, DICTIONARY),
	TABLE(SAMPLE, sample, TIMED),
	TABLE(TASK, task, TIMED),
	TABLE(MAPPING, mapping, TIMED),
	TABLE(SWITCH, switch, TIMED),
	TABLE(ALLOC, alloc, TIMED),
	TABLE(FREE, free, TIMED),
	TABLE(MARK, mark, TIMED),
	TABLE(LOG, log, TIMED),
	TABLE(COUNTER_VALUE, counter_value, TIMED),
	TABLE(LOSS, loss, TIMED),
	TABLE(METADATA, metadata, TIMED),
	TABLE(JIT, jit, TIMED),
	TABLE(HEAP, heap, TIMED),
	TABLE(LIVE, live, TIMED),
	TABLE(WAIT, wait, TIMED),
};
CHECK_COLUMNS(STRING, string);
CHECK_COLUMNS(IMAGE, image);
CHECK_COLUMNS(FRAME, frame);
CHECK_COLUMNS(STACK, stack);
CHECK_COLUMNS(PROCESS, process);
CHECK_COLUMNS(THREAD, thread);
CHECK_COLUMNS(SOURCE, source);
CHECK_COLUMNS(SYMBOL, symbol);
CHECK_COLUMNS(COUNTER, counter);
CHECK_COLUMNS(LINE, line);
CHECK_COLUMNS(SAMPLE, sample);
CHECK_COLUMNS(TASK, task);
CHECK_COLUMNS(MAPPING, mapping);
CHECK_COLUMNS(SWITCH, switch);
CHECK_COLUMNS(ALLOC, alloc);
CHECK_COLUMNS(FREE, free);
CHECK_COLUMNS(MARK, mark);
CHECK_COLUMNS(LOG, log);
CHECK_COLUMNS(COUNTER_VALUE, counter_value);
CHECK_COLUMNS(LOSS, loss);
CHECK_COLUMNS(METADATA, metadata);
CHECK_COLUMNS(JIT, jit);
CHECK_COLUMNS(HEAP, heap);
CHECK_COLUMNS(LIVE, live);
CHECK_COLUMNS(WAIT, wait);

PROF_PUBLIC const struct prof_table_def *prof_table_v1(unsigned int id)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (tables[i].id == id)
			return &tables[i];
	return NULL;
}
