/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * prof/mark.h - marks, counters and logs for programs that do not depend on libprofcollector
 *
 *     prof_scope("render", "frame");                        a span until the end of the block
 *     prof_instant("cache", "miss");
 *     prof_instant_with("cache", "miss", PROF_TEXT("key", key), PROF_S64("bytes", n));
 *
 * Needs the header prof-collector.h, and links nothing. The library is looked up once, before
 * main() or when a plugin with marks is loaded. A library that the program has loaded by then is
 * used; else, if PROF_CONTROL is set and the program is not set-user-ID, libprofcollector.so.0 is
 * loaded, from the folder PROF_LIB_DIR if that is set. profctl sets both variables. A weak symbol
 * would not work: it is NULL in programs that are not position-independent. Programs that load the
 * library later call prof_mark_find().
 *
 * Without the library, or while no session records the program, a call is a load or two and a
 * branch that is not taken, and its arguments are not evaluated. Functions that an older library
 * lacks return as if no session recorded. If PROF_DISABLE is defined, no macro calls or looks up
 * the library. Static programs link libprofcollector.a and define PROF_LINKED. C11 and C++11, gcc
 * and clang. prof-collector.h documents the functions.
 */
#pragma once

#ifndef PROF_DISABLE

#include <prof-collector.h>
#include <stddef.h>

#ifndef PROF_LINKED
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the library is new enough to have the function. */
#define PROF_HAS(table, function)                                            \
	((table)->bytes >= offsetof(struct prof_collector_table, function) + \
				   sizeof(((struct prof_collector_table *)0)->function))

/* Each program or plugin has one such pointer, however many of its files include this header. */
__attribute__((weak, visibility("hidden"))) const struct prof_collector_table *prof_mark_table;

#ifndef PROF_LINKED
/* Opens the library. Prefers one that the program has loaded, even if its symbols are not
 * global. */
static inline void *prof_mark_open(void)
{
	static const char name[] = "/libprofcollector.so.0";
	const char *folder = getenv("PROF_LIB_DIR");
	size_t n = folder ? strlen(folder) : 0;
	void *library = dlopen(name + 1, RTLD_NOW | RTLD_NOLOAD);
	char path[4096];

	if (!library && n > 0 && n <= sizeof(path) - sizeof(name)) {
		memcpy(path, folder, n);
		memcpy(path + n, name, sizeof(name));
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return library ? library : dlopen(name + 1, RTLD_NOW | RTLD_LOCAL);
}
#endif

/* Returns whether a collector was found. Not for signal handlers, because dlsym(3) and dlopen(3)
 * are not async-signal-safe. */
static inline bool prof_mark_find(void)
{
#ifdef PROF_LINKED
	const struct prof_collector_table *table = &prof_collector_table;
#else
	const struct prof_collector_table *table =
		(const struct prof_collector_table *)dlsym(RTLD_DEFAULT, "prof_collector_table");
	void *library = NULL;

	if (!table && getauxval(AT_SECURE) == 0 && getenv("PROF_CONTROL"))
		library = prof_mark_open();
	if (library)
		table = (const struct prof_collector_table *)dlsym(library, "prof_collector_table");
#endif
	if (table && PROF_HAS(table, state))
		__atomic_store_n(&prof_mark_table, table, __ATOMIC_RELEASE);
	return __atomic_load_n(&prof_mark_table, __ATOMIC_RELAXED) != NULL;
}

void prof_mark_start(void);
__attribute__((weak, visibility("hidden"), constructor(102))) void prof_mark_start(void)
{
	if (!prof_mark_table)
		prof_mark_find();
}

/* Returns the collector if a session records the program, else NULL. */
static inline const struct prof_collector_table *prof_mark_get(void)
{
	const struct prof_collector_table *table =
		__atomic_load_n(&prof_mark_table, __ATOMIC_ACQUIRE);

	return table && __atomic_load_n(table->state, __ATOMIC_RELAXED) ? table : NULL;
}

static inline bool prof_enabled(void)
{
	return prof_mark_get() != NULL;
}

static inline uint64_t prof_new_id(void)
{
	const struct prof_collector_table *table = prof_mark_get();

	return table && PROF_HAS(table, mark_new_id) ? table->mark_new_id() : 0;
}

/* Returns 0 if no session records the program. */
static inline uint64_t prof_now(void)
{
	const struct prof_collector_table *table = prof_mark_get();

	return table && PROF_HAS(table, clock_ns) ? table->clock_ns() : 0;
}

/* Make arguments for the macros whose names end in _with. */
static inline struct prof_arg PROF_S64(const char *name, int64_t value) {
	struct prof_arg arg;

	arg.name = name;
	arg.kind = PROF_ARG_S64;
	arg.value.s64 = value;
	return arg;
}

static inline struct prof_arg
PROF_U64(const char *name, uint64_t value) {
	struct prof_arg arg;

	arg.name = name;
	arg.kind = PROF_ARG_U64;
	arg.value.u64 = value;
	return arg;
}

static inline struct prof_arg
PROF_DOUBLE(const char *name, double value) {
	struct prof_arg arg;

	arg.name = name;
	arg.kind = PROF_ARG_DOUBLE;
	arg.value.number = value;
	return arg;
}

static inline struct prof_arg
PROF_TEXT(const char *name, const char *value) {
	struct prof_arg arg;

	arg.name = name;
	arg.kind = PROF_ARG_STRING;
	arg.value.string = value;
	return arg;
}

static inline struct prof_arg
PROF_ADDRESS(const char *name, const void *value) {
	struct prof_arg arg;

	arg.name = name;
	arg.kind = PROF_ARG_ADDRESS;
	arg.value.address = value;
	return arg;
}

#define PROF_CALL(otherwise, function, ...)                                           \
	__extension__({                                                               \
		const struct prof_collector_table *prof_call_table = prof_mark_get(); \
		__builtin_expect(prof_call_table != NULL, 0) &&                       \
				PROF_HAS(prof_call_table, function)                   \
			? prof_call_table->function(__VA_ARGS__)                      \
			: (otherwise);                                                \
	})
#define PROF_CALL_WITH(function, first, group, name, ...)                             \
	__extension__({                                                               \
		const struct prof_collector_table *prof_call_table = prof_mark_get(); \
		bool prof_call_done = false;                                          \
		if (__builtin_expect(prof_call_table != NULL, 0) &&                   \
		    PROF_HAS(prof_call_table, function)) {                            \
			const struct prof_arg prof_call_args[] = { __VA_ARGS__ };     \
			prof_call_done = prof_call_table->function(                   \
				first group, name, prof_call_args,                    \
				sizeof(prof_call_args) / sizeof(prof_call_args[0]));  \
		}                                                                     \
		prof_call_done;                                                       \
	})
#define PROF_FIRST(value) value,
#define PROF_NO_FIRST

#define prof_instant(group, name) PROF_CALL(false, mark_instant, group, name, NULL, 0)
#define prof_instant_with(group, name, ...) \
	PROF_CALL_WITH(mark_instant, PROF_NO_FIRST, group, name, __VA_ARGS__)
#define prof_begin(id, group, name) PROF_CALL(false, mark_begin, id, group, name, NULL, 0)
#define prof_begin_with(id, group, name, ...) \
	PROF_CALL_WITH(mark_begin, PROF_FIRST(id), group, name, __VA_ARGS__)
#define prof_end(id, group, name) PROF_CALL(false, mark_end, id, group, name, NULL, 0)
#define prof_end_with(id, group, name, ...) \
	PROF_CALL_WITH(mark_end, PROF_FIRST(id), group, name, __VA_ARGS__)
#define prof_complete(begin_ns, group, name) \
	PROF_CALL(false, mark_complete, begin_ns, group, name, NULL, 0)
#define prof_complete_with(begin_ns, group, name, ...) \
	PROF_CALL_WITH(mark_complete, PROF_FIRST(begin_ns), group, name, __VA_ARGS__)
#define prof_set(counter, value) PROF_CALL(false, counter_set, counter, value)
#define prof_add(counter, difference) PROF_CALL(false, counter_add, counter, difference)
#define prof_set_double(counter, value) PROF_CALL(false, counter_set_double, counter, value)
#define prof_add_double(counter, difference) \
	PROF_CALL(false, counter_add_double, counter, difference)
#define prof_message(level, domain, text) PROF_CALL(false, log, level, domain, text)
#define prof_name_thread(name) PROF_CALL(false, thread_set_name, name)
/* Calls a function with a stack, given as the members of struct prof_stack. */
#define PROF_CALL_FROM(function, frames, n_frames, frames_kind, ...)                               \
	__extension__({                                                                            \
		const struct prof_collector_table *prof_call_table = prof_mark_get();              \
		bool prof_call_done = false;                                                       \
		if (__builtin_expect(prof_call_table != NULL, 0) &&                                \
		    PROF_HAS(prof_call_table, function)) {                                         \
			struct prof_stack prof_call_stack;                                         \
			prof_call_stack.pcs = (frames);                                            \
			prof_call_stack.n = (n_frames);                                            \
			prof_call_stack.kind = (frames_kind);                                      \
			prof_call_done = prof_call_table->function(__VA_ARGS__, &prof_call_stack); \
		}                                                                                  \
		prof_call_done;                                                                    \
	})
#define prof_instant_from(pcs, n, kind, group, name) \
	PROF_CALL_FROM(mark_instant_with_stack, pcs, n, kind, group, name, NULL, 0)
#define prof_begin_from(pcs, n, kind, id, group, name) \
	PROF_CALL_FROM(mark_begin_with_stack, pcs, n, kind, id, group, name, NULL, 0)
#define prof_complete_from(pcs, n, kind, begin_ns, group, name) \
	PROF_CALL_FROM(mark_complete_with_stack, pcs, n, kind, begin_ns, group, name, NULL, 0)
#define prof_message_from(pcs, n, kind, level, domain, text) \
	PROF_CALL_FROM(log_with_stack, pcs, n, kind, level, domain, text)
#define prof_code_load(address, bytes, name) PROF_CALL(false, jit_load, address, bytes, name)
#define prof_code_move(from, address) PROF_CALL(false, jit_move, from, address)
#define prof_code_unload(address) PROF_CALL(false, jit_unload, address)

/* Returns 0 if no collector was found. Works even if no session records the program. */
static inline uint32_t
prof_define(const char *group, const char *name, const char *unit, uint32_t flags)
{
	const struct prof_collector_table *table =
		__atomic_load_n(&prof_mark_table, __ATOMIC_ACQUIRE);

	return table && PROF_HAS(table, counter_define)
		       ? table->counter_define(group, name, unit, flags)
		       : 0;
}

struct prof_scope_state {
	uint64_t begin_ns;
	const char *group, *name;
};

static inline void prof_scope_end(struct prof_scope_state *state)
{
	if (__builtin_expect(state->begin_ns != 0, 0))
		prof_complete(state->begin_ns, state->group, state->name);
}

#define PROF_JOIN_2(a, b) a##b
#define PROF_JOIN(a, b) PROF_JOIN_2(a, b)
/* The span also ends if the block is left by return, break or a C++ exception, but not by
 * longjmp(3). */
#define prof_scope(group, name)                                                             \
	__attribute__((cleanup(prof_scope_end), unused)) struct prof_scope_state PROF_JOIN( \
		prof_scope_, __LINE__) = { prof_now(), group, name }

#ifdef __cplusplus
}
#endif

#else /* PROF_DISABLE */

#include <stdbool.h>
#include <stdint.h>

#define prof_mark_find() false
#define prof_enabled() false
#define prof_instant(group, name) false
#define prof_instant_with(group, name, ...) false
#define prof_new_id() UINT64_C(0)
#define prof_begin(id, group, name) ((void)(id), false)
#define prof_begin_with(id, group, name, ...) ((void)(id), false)
#define prof_end(id, group, name) ((void)(id), false)
#define prof_end_with(id, group, name, ...) ((void)(id), false)
#define prof_now() UINT64_C(0)
#define prof_complete(begin_ns, group, name) ((void)(begin_ns), false)
#define prof_complete_with(begin_ns, group, name, ...) ((void)(begin_ns), false)
#define prof_set(counter, value) ((void)(counter), false)
#define prof_add(counter, difference) ((void)(counter), false)
#define prof_set_double(counter, value) ((void)(counter), false)
#define prof_add_double(counter, difference) ((void)(counter), false)
#define prof_message(level, domain, text) false
#define prof_name_thread(name) false
#define prof_instant_from(pcs, n, kind, group, name) ((void)(pcs), false)
#define prof_begin_from(pcs, n, kind, id, group, name) ((void)(pcs), (void)(id), false)
#define prof_complete_from(pcs, n, kind, begin_ns, group, name) \
	((void)(pcs), (void)(begin_ns), false)
#define prof_message_from(pcs, n, kind, level, domain, text) ((void)(pcs), false)
#define prof_code_load(address, bytes, name) ((void)(address), (void)(bytes), false)
#define prof_code_move(from, address) ((void)(from), (void)(address), false)
#define prof_code_unload(address) ((void)(address), false)
#define prof_define(group, name, unit, flags) UINT32_C(0)
#define prof_scope(group, name) ((void)0)

#endif
