/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collector - the functions of prof-collector.h, except those of JITs (jit.c) and the recorder
 *
 * Each function builds a message from its arguments and writes it. Counters belong to the process:
 * their values are summed in its memory, so that threads can share a counter. Each ring's owner
 * sends a counter's definition before the counter's first value in that ring.
 */
#include "libcollector/prof-collector.h"

#include "base/clock.h"
#include "libcollector/control.h"
#include "libcollector/hooks/message.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_LOG_LEVEL 7u
#define POOL_BYTES (1u << 15)

static_assert((int)PROF_ARG_ADDRESS == 4, "argument kinds are those of struct ring_argument");

static inline bool is_off(void)
{
	return __builtin_expect(!prof_collector_enabled(), 0);
}

static void measure(const char *string, struct text *ret_text)
{
	intern_measure(string ? string : "", ret_text);
	ret_text->is_name = false;
}

/* Like measure(), for a name. A name likely has the same address in later calls, so it is looked up
 * by address (intern.h, is_name). */
static void measure_name(const char *string, struct text *ret_text)
{
	measure(string, ret_text);
	ret_text->is_name = true;
}

int prof_collector_connect(const char *addresses)
{
	return register_connect(addresses ? addresses : "unix:" CONTROL_WELL_KNOWN);
}

bool prof_collector_no_syscalls(void)
{
	return register_no_syscall();
}

uint64_t prof_clock_ns(void)
{
	return clock_now();
}

/* ---- Marks ---- */

struct mark {
	uint32_t kind;
	uint32_t n_args;
	uint64_t id;
	uint64_t begin_ns; /* only for RING_MARK_COMPLETE */
	const char *group, *name;
	const struct prof_arg *args;
};

static inline __attribute__((always_inline)) void fill_argument(struct ring_argument *to,
								const struct prof_arg *arg,
								const uint32_t **ids)
{
	*to = (struct ring_argument){
		.name = *(*ids)++,
		.kind = (uint32_t)arg->kind,
		.value = arg->value.u64,
	};
	if (arg->kind == PROF_ARG_STRING)
		to->value = *(*ids)++;
}

/* Returns the time in ns, or 0 if the mark needs only the record's own time, which is in ticks. */
static inline uint64_t time_of(const void *payload, const struct mark *mark)
{
	const struct ring_record_header *header = (const struct ring_record_header *)payload - 1;

	if (__builtin_expect(header->flags & RING_FLAG_TICKS, 1))
		return mark->kind == RING_MARK_COMPLETE ? clock_now() : 0;
	return header->time_ns;
}

/* Order of the ids: group, name, then for each argument its name and, if its value is a string, the
 * value. */
static inline __attribute__((always_inline)) void put_mark(struct ring_mark *to, uint64_t now_ns,
							   const uint32_t *ids,
							   const struct mark *mark)
{
	struct ring_argument *arguments = (void *)(to + 1);

	to->kind = mark->kind;
	to->group = *ids++;
	to->name = *ids++;
	to->n_arguments = mark->n_args;
	to->id = mark->id;
	to->duration_ns = 0;
	if (mark->kind == RING_MARK_COMPLETE && now_ns > mark->begin_ns)
		to->duration_ns = now_ns - mark->begin_ns;
	for (uint32_t i = 0; i < mark->n_args; i++)
		fill_argument(&arguments[i], &mark->args[i], &ids);
}

static inline __attribute__((always_inline)) void fill_mark(void *payload, const uint32_t *ids,
							    const void *data)
{
	put_mark(payload, time_of(payload, data), ids, data);
}

static inline uint32_t count_args(size_t n_args)
{
	return (uint32_t)MIN_OF(n_args, (size_t)PROF_MAX_ARGS);
}

static inline uint32_t mark_bytes(uint32_t n_args)
{
	return (uint32_t)(sizeof(struct ring_mark) + n_args * sizeof(struct ring_argument));
}
static_assert(sizeof(struct ring_record_header) + sizeof(struct ring_mark) +
			      PROF_MAX_ARGS * sizeof(struct ring_argument) <=
		      RING_MIN_BYTES / 4,
	      "message_try_write()");
static_assert(2 + 2 * PROF_MAX_ARGS == MESSAGE_MAX_TEXTS, "names, and values that are strings");

/* Returns false if an argument's kind is not valid. */
static bool measure_mark(const struct mark *mark, struct text *texts, size_t *ret_n)
{
	size_t n = 2;

	measure_name(mark->group, &texts[0]);
	measure_name(mark->name, &texts[1]);
	for (uint32_t i = 0; i < mark->n_args; i++) {
		const struct prof_arg *arg = &mark->args[i];

		if (arg->kind > PROF_ARG_ADDRESS)
			return false;
		measure_name(arg->name, &texts[n++]);
		if (arg->kind == PROF_ARG_STRING)
			measure(arg->value.string, &texts[n++]);
	}
	*ret_n = n;
	return true;
}

static inline struct mark make_mark(uint32_t kind, uint64_t id, const char *group, const char *name,
				    const struct prof_arg *args, size_t n_args)
{
	bool is_complete = kind == RING_MARK_COMPLETE;

	return (struct mark){
		.kind = kind,
		.n_args = count_args(n_args),
		.id = is_complete ? 0 : id,
		.begin_ns = is_complete ? id : 0,
		.group = group,
		.name = name,
		.args = args,
	};
}

static __attribute__((noinline)) bool write_new(uint32_t kind, uint64_t id, const char *group,
						const char *name, const struct prof_arg *args,
						size_t n_args)
{
	struct mark mark = make_mark(kind, id, group, name, args, n_args);
	struct text texts[MESSAGE_MAX_TEXTS];
	struct message message = {
		.type = RING_MARK,
		.payload_bytes = mark_bytes(mark.n_args),
		.texts = texts,
	};

	return measure_mark(&mark, texts, &message.n_texts) &&
	       message_write(&message, fill_mark, &mark);
}

/* Returns false if a text was not sent yet, or an argument's kind is not valid. */
static inline __attribute__((always_inline)) bool find_arguments(const struct producer *producer,
								 const struct mark *mark,
								 uint32_t *ids)
{
	for (uint32_t i = 0; i < mark->n_args; i++) {
		const struct prof_arg *arg = &mark->args[i];
		struct text text;

		if (arg->kind > PROF_ARG_ADDRESS || !message_find_name(producer, arg->name, ids++))
			return false;
		if (arg->kind != PROF_ARG_STRING)
			continue;
		measure(arg->value.string, &text);
		if (!intern_find(&producer->intern, &text))
			return false;
		*ids++ = text.id;
	}
	return true;
}

/* `ids`: room for the ids of all texts. */
static inline __attribute__((always_inline)) bool try_to_write_mark(const struct mark *mark,
								    uint32_t *ids)
{
	struct producer *producer = register_self.producer;
	uint32_t epoch;

	if (__builtin_expect(!producer, 0))
		return false;
	epoch = producer->intern.epoch;
	return message_find_name(producer, mark->group, &ids[0]) &&
	       message_find_name(producer, mark->name, &ids[1]) &&
	       find_arguments(producer, mark, ids + 2) &&
	       message_try_write(producer, epoch, RING_MARK, mark_bytes(mark->n_args), fill_mark,
				 ids, mark);
}

/* Separate functions, so that a call needs no stack frame when no session records. */
static __attribute__((noinline)) bool write_plain(uint32_t kind, uint64_t id, const char *group,
						  const char *name)
{
	struct mark mark = make_mark(kind, id, group, name, NULL, 0);
	uint32_t ids[2];

	return try_to_write_mark(&mark, ids) || write_new(kind, id, group, name, NULL, 0);
}

static __attribute__((noinline)) bool write_with(uint32_t kind, uint64_t id, const char *group,
						 const char *name, const struct prof_arg *args,
						 size_t n_args)
{
	struct mark mark = make_mark(kind, id, group, name, args, n_args);
	uint32_t ids[MESSAGE_MAX_TEXTS];

	return try_to_write_mark(&mark, ids) || write_new(kind, id, group, name, args, n_args);
}

static inline __attribute__((always_inline)) bool write_any(uint32_t kind, uint64_t id,
							    const char *group, const char *name,
							    const struct prof_arg *args,
							    size_t n_args)
{
	if (is_off() || message_is_lost(mark_bytes(count_args(n_args))))
		return false;
	return n_args == 0 ? write_plain(kind, id, group, name)
			   : write_with(kind, id, group, name, args, n_args);
}

bool prof_mark_instant(const char *group, const char *name, const struct prof_arg *args,
		       size_t n_args)
{
	return write_any(RING_MARK_INSTANT, 0, group, name, args, n_args);
}

static __attribute__((noinline)) uint64_t new_id(void)
{
	struct producer *producer = producer_get();

	return producer ? __atomic_add_fetch(&producer->next_id, 1, __ATOMIC_RELAXED) : 0;
}

uint64_t prof_mark_new_id(void)
{
	return is_off() ? 0 : new_id();
}

bool prof_mark_begin(uint64_t id, const char *group, const char *name, const struct prof_arg *args,
		     size_t n_args)
{
	return write_any(RING_MARK_BEGIN, id, group, name, args, n_args);
}

bool prof_mark_end(uint64_t id, const char *group, const char *name, const struct prof_arg *args,
		   size_t n_args)
{
	return write_any(RING_MARK_END, id, group, name, args, n_args);
}

bool prof_mark_complete(uint64_t begin_ns, const char *group, const char *name,
			const struct prof_arg *args, size_t n_args)
{
	return write_any(RING_MARK_COMPLETE, begin_ns, group, name, args, n_args);
}

/* ---- Marks with a stack ---- */

struct mark_at {
	struct mark mark;
	struct stack stack;
};

static void fill_mark_at(void *payload, const uint32_t *ids, const void *data)
{
	const struct mark_at *from = data;
	struct ring_at *at = payload;

	*at = (struct ring_at){ .stack = from->stack.id };
	put_mark((struct ring_mark *)(at + 1), time_of(payload, &from->mark), ids, &from->mark);
}

static bool write_at(uint32_t kind, uint64_t id, const char *group, const char *name,
		     const struct prof_arg *args, size_t n_args, const struct prof_stack *stack)
{
	struct mark_at at = { .mark = make_mark(kind, id, group, name, args, n_args),
			      .stack.from = stack };
	struct text texts[MESSAGE_MAX_TEXTS];
	struct message message = {
		.type = RING_MARK_AT,
		.payload_bytes = sizeof(struct ring_at) + mark_bytes(at.mark.n_args),
		.texts = texts,
		.stack = &at.stack,
	};
	const struct producer *producer;

	if (is_off() || message_is_lost(message.payload_bytes))
		return false;
	/* An engine that does not support the type would quarantine the ring. */
	producer = producer_get();
	if (!stack || !producer || producer->n_types <= RING_LOG_AT)
		return write_with(kind, id, group, name, args, n_args);
	return measure_mark(&at.mark, texts, &message.n_texts) &&
	       message_write(&message, fill_mark_at, &at);
}

bool prof_mark_instant_with_stack(const char *group, const char *name, const struct prof_arg *args,
				  size_t n_args, const struct prof_stack *stack)
{
	return write_at(RING_MARK_INSTANT, 0, group, name, args, n_args, stack);
}

bool prof_mark_begin_with_stack(uint64_t id, const char *group, const char *name,
				const struct prof_arg *args, size_t n_args,
				const struct prof_stack *stack)
{
	return write_at(RING_MARK_BEGIN, id, group, name, args, n_args, stack);
}

bool prof_mark_complete_with_stack(uint64_t begin_ns, const char *group, const char *name,
				   const struct prof_arg *args, size_t n_args,
				   const struct prof_stack *stack)
{
	return write_at(RING_MARK_COMPLETE, begin_ns, group, name, args, n_args, stack);
}

/* ---- Counters ---- */

struct counter {
	uint32_t is_defined; /* set after the other fields */
	uint32_t flags;
	const char *group, *name, *unit;
	uint64_t value; /* or a double's bits */
};

static struct counter counters[REGISTER_MAX_COUNTERS];
static uint32_t n_counters = 1; /* number of claimed entries; entry 0 is unused */
static char pool[POOL_BYTES];
static uint32_t pool_used;

static char *get_memory(uint64_t bytes)
{
	void *at;

	if (bytes <= POOL_BYTES / 8) {
		uint32_t end = __atomic_add_fetch(&pool_used, (uint32_t)bytes, __ATOMIC_RELAXED);

		if (end <= POOL_BYTES)
			return pool + end - bytes;
		__atomic_sub_fetch(&pool_used, (uint32_t)bytes, __ATOMIC_RELAXED);
	}
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

static const char *copy(char **at, const struct text *text)
{
	char *to = *at;

	memcpy(to, text->bytes, text->n_bytes);
	to[text->n_bytes] = 0;
	*at += text->n_bytes + 1;
	return to;
}

static bool is_text(const char *string, const struct text *text)
{
	struct text other;

	intern_measure(string, &other);
	return other.hash == text->hash && other.n_bytes == text->n_bytes;
}

static uint32_t new_counter(const struct text texts[3], uint32_t flags)
{
	uint32_t i;
	char *at;

	if (RING_LOAD(&n_counters) >= REGISTER_MAX_COUNTERS)
		return 0;
	at = get_memory((uint64_t)texts[0].n_bytes + texts[1].n_bytes + texts[2].n_bytes + 3);
	if (!at)
		return 0;
	i = __atomic_fetch_add(&n_counters, 1, __ATOMIC_RELAXED);
	if (i >= REGISTER_MAX_COUNTERS)
		return 0;
	counters[i].flags = flags;
	counters[i].group = copy(&at, &texts[0]);
	counters[i].name = copy(&at, &texts[1]);
	counters[i].unit = copy(&at, &texts[2]);
	__atomic_store_n(&counters[i].is_defined, 1, __ATOMIC_RELEASE);
	return i;
}

uint32_t prof_counter_define(const char *group, const char *name, const char *unit, uint32_t flags)
{
	struct text texts[3];
	int error = errno;
	uint32_t found = 0, n;

	if (flags & ~(PROF_COUNT_DOUBLE | PROF_COUNT_SUM))
		return 0;
	measure(group, &texts[0]);
	measure(name, &texts[1]);
	measure(unit, &texts[2]);
	n = MIN_OF(RING_LOAD(&n_counters), REGISTER_MAX_COUNTERS);
	for (uint32_t i = 1; i < n && found == 0; i++)
		if (__atomic_load_n(&counters[i].is_defined, __ATOMIC_ACQUIRE) &&
		    counters[i].flags == flags && is_text(counters[i].group, &texts[0]) &&
		    is_text(counters[i].name, &texts[1]) && is_text(counters[i].unit, &texts[2]))
			found = i;
	if (found == 0)
		found = new_counter(texts, flags);
	errno = error;
	return found;
}

static void fill_counter(void *payload, const uint32_t *ids, const void *data)
{
	const uint32_t *id = data;

	*(struct ring_counter *)payload = (struct ring_counter){
		.id = *id,
		.kind = counters[*id].flags,
		.group = ids[0],
		.name = ids[1],
		.unit = ids[2],
	};
}

static bool define_counter(struct producer *producer, uint32_t id)
{
	struct text texts[3];
	struct message message = {
		.type = RING_COUNTER,
		.payload_bytes = sizeof(struct ring_counter),
		.n_texts = 3,
		.texts = texts,
	};

	measure(counters[id].group, &texts[0]);
	measure(counters[id].name, &texts[1]);
	measure(counters[id].unit, &texts[2]);
	if (!message_write(&message, fill_counter, &id))
		return false;
	producer = register_self.producer;
	if (producer)
		producer->counters[id] = producer->intern.epoch;
	return true;
}

static inline void fill_value(void *payload, const uint32_t *ids, const void *data)
{
	*(struct ring_counter_value *)payload = *(const struct ring_counter_value *)data;
}

/* Each ring's owner sends a counter's definition before the first value; a value without a
 * definition would be lost. */
static bool write_value(uint32_t id, uint64_t value)
{
	struct ring_counter_value data = { .id = id, .value = value };
	struct message message = {
		.type = RING_COUNTER_VALUE,
		.payload_bytes = sizeof(data),
	};
	struct producer *producer = message_enter();

	if (!producer)
		return false;
	if (producer->counters[id] != producer->intern.epoch && !define_counter(producer, id))
		return false;
	producer = register_self.producer;
	return (producer && message_try_write(producer, producer->intern.epoch, RING_COUNTER_VALUE,
					      sizeof(data), fill_value, NULL, &data)) ||
	       message_write(&message, fill_value, &data);
}

static inline struct counter *get_counter(uint32_t id, bool is_double)
{
	if (id >= REGISTER_MAX_COUNTERS ||
	    !__atomic_load_n(&counters[id].is_defined, __ATOMIC_ACQUIRE) ||
	    !(counters[id].flags & PROF_COUNT_DOUBLE) == is_double)
		return NULL;
	return &counters[id];
}

bool prof_counter_set(uint32_t id, int64_t value)
{
	struct counter *counter;

	if (is_off())
		return false;
	counter = get_counter(id, false);
	if (!counter)
		return false;
	RING_STORE(&counter->value, (uint64_t)value);
	return write_value(id, (uint64_t)value);
}

bool prof_counter_add(uint32_t id, int64_t difference)
{
	struct counter *counter;

	if (is_off())
		return false;
	counter = get_counter(id, false);
	return counter && write_value(id, __atomic_add_fetch(&counter->value, (uint64_t)difference,
							     __ATOMIC_RELAXED));
}

static uint64_t double_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

bool prof_counter_set_double(uint32_t id, double value)
{
	struct counter *counter;

	if (is_off())
		return false;
	counter = get_counter(id, true);
	if (!counter)
		return false;
	RING_STORE(&counter->value, double_bits(value));
	return write_value(id, double_bits(value));
}

bool prof_counter_add_double(uint32_t id, double difference)
{
	struct counter *counter;
	uint64_t before, sum;

	if (is_off())
		return false;
	counter = get_counter(id, true);
	if (!counter)
		return false;
	before = RING_LOAD(&counter->value);
	do {
		double value;

		memcpy(&value, &before, sizeof(value));
		sum = double_bits(value + difference);
	} while (!__atomic_compare_exchange_n(&counter->value, &before, sum, true, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return write_value(id, sum);
}

/* ---- Logs and names ---- */

struct log_part {
	uint32_t level, part;
	const char *bytes;
	uint32_t n_bytes;
	bool is_last;
	/* stack of the first part; in later parts, and without a stack, stack.from is NULL */
	struct stack stack;
};

static void fill_log(void *payload, const uint32_t *ids, const void *data)
{
	const struct log_part *part = data;
	struct ring_at *at = payload;
	struct ring_log *log;

	if (part->stack.from)
		*at++ = (struct ring_at){ .stack = part->stack.id };
	log = (struct ring_log *)at;
	*log = (struct ring_log){
		.level = part->level,
		.domain = ids[0],
		.part = part->part,
		.n_bytes = part->n_bytes,
	};
	memcpy(log + 1, part->bytes, part->n_bytes);
	if (!part->is_last)
		ring_set_flags(payload, RING_FLAG_MORE);
}

/* Splits the text if needed. Stops when a part is lost. */
static bool write_log(struct producer *producer, uint32_t level, struct text *domain,
		      const struct text *text, const struct prof_stack *stack)
{
	uint32_t most = (uint32_t)MIN_OF(producer->current->size / 16,
					 (uint64_t)producer->current->most_bytes) -
			(uint32_t)(sizeof(struct ring_at) + sizeof(struct ring_log));
	uint32_t at = 0;
	struct log_part part = { .level = level, .stack.from = stack };
	struct message message = { .n_texts = 1, .texts = domain };

	if (text->n_bytes > most)
		part.part = intern_new_id(&producer->intern);
	do {
		part.bytes = text->bytes + at;
		part.n_bytes = MIN_OF(most, text->n_bytes - at);
		part.is_last = at + part.n_bytes == text->n_bytes;
		message.type = part.stack.from ? RING_LOG_AT : RING_LOG;
		message.payload_bytes = sizeof(struct ring_log) + part.n_bytes +
					(part.stack.from ? sizeof(struct ring_at) : 0);
		message.stack = part.stack.from ? &part.stack : NULL;
		if (!message_write(&message, fill_log, &part))
			return false;
		part.stack.from = NULL;
		at += part.n_bytes;
	} while (at < text->n_bytes);
	return true;
}

bool prof_log_with_stack(uint32_t level, const char *domain, const char *text,
			 const struct prof_stack *stack)
{
	struct text texts[2];
	struct producer *producer;

	if (is_off() || level > MAX_LOG_LEVEL)
		return false;
	measure(domain, &texts[0]);
	measure(text, &texts[1]);
	producer = message_enter();
	if (producer && !message_has_room(producer, texts[1].n_bytes))
		producer = producer_get();
	return producer && write_log(producer, level, &texts[0], &texts[1],
				     producer->n_types > RING_LOG_AT ? stack : NULL);
}

bool prof_log(uint32_t level, const char *domain, const char *text)
{
	return prof_log_with_stack(level, domain, text, NULL);
}

static void fill_name(void *payload, const uint32_t *ids, const void *data)
{
	*(struct ring_thread_name *)payload = (struct ring_thread_name){ .name = ids[0] };
}

bool prof_thread_set_name(const char *name)
{
	struct text text;
	struct message message = {
		.type = RING_THREAD_NAME,
		.payload_bytes = sizeof(struct ring_thread_name),
		.n_texts = 1,
		.texts = &text,
	};
	struct producer *producer = is_off() ? NULL : message_enter();

	/* An engine that does not support the type would quarantine the ring. */
	if (!producer || producer->n_types <= RING_THREAD_NAME)
		return false;
	measure(name, &text);
	return message_write(&message, fill_name, NULL);
}

const struct prof_collector_table prof_collector_table = {
	.bytes = sizeof(prof_collector_table),
	.state = &prof_collector_state,
	.mark_instant = prof_mark_instant,
	.mark_new_id = prof_mark_new_id,
	.mark_begin = prof_mark_begin,
	.mark_end = prof_mark_end,
	.mark_complete = prof_mark_complete,
	.clock_ns = prof_clock_ns,
	.counter_define = prof_counter_define,
	.counter_set = prof_counter_set,
	.counter_add = prof_counter_add,
	.counter_set_double = prof_counter_set_double,
	.counter_add_double = prof_counter_add_double,
	.log = prof_log,
	.thread_set_name = prof_thread_set_name,
	.mark_instant_with_stack = prof_mark_instant_with_stack,
	.mark_begin_with_stack = prof_mark_begin_with_stack,
	.mark_complete_with_stack = prof_mark_complete_with_stack,
	.log_with_stack = prof_log_with_stack,
	.jit_load = prof_jit_load,
	.jit_move = prof_jit_move,
	.jit_unload = prof_jit_unload,
};
