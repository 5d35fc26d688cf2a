/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Collector rows - turns records in a process's rings into rows of the tables mark, log, counter,
 * counter_value and jit; passes allocations to the alloc decoder
 *
 * The ring's reader has checked that a record is whole; the contents are what the process claims.
 * The producer numbers its strings and counters. A string gets an id in the capture in each epoch
 * that uses it; a counter keeps its id. Counters of one process with the same group, name, unit and
 * kind are one counter, whichever thread defines them.
 * The process itself reports thread numbers, so each is checked to be a thread of that process. For
 * a process in another PID namespace, only the pid is known in both namespaces. Each other thread
 * gets a separate row, with its tid in that namespace, until /proc shows which thread it is.
 * Invariants: (1) an id in a ring refers only to its producer's strings and counters
 *                 [test-engine-collectors-rows: ids]
 *             (2) a ring that names a thread of another process is quarantined
 *                 [test-engine-collectors-rows: tids]
 *             (3) the data kept for a process is bounded, and the excess is counted as lost
 *                 [test-engine-collectors-rows: endless]
 * Runs on the drain thread only.
 */
#include "daemon/engine/peers/collector-rows.h"

#include "arch/base.h"
#include "daemon/engine/peers/alloc-decoder.h"
#include "daemon/engine/peers/collector-stacks.h"

#include <inttypes.h>
#include <stdio.h>

#define MAX_OPEN_LOGS 4 /* logs of a producer that may lack parts */
#define SMALL_TEXT 64u
#define N_RECENT 16u /* texts of a producer that are found without a hash lookup */

/* A producer's string. It lives as long as the producer, because a new epoch may need it at any
 * time. */
struct text {
	GByteArray *bytes;
	uint32_t number;    /* its id in the ring */
	uint32_t epoch, id; /* last epoch that has the text, and its id there */
	bool more;          /* the next record with this id continues the text */
};

struct collector_counter {
	struct row row; /* first member */
	struct process *process;
	GBytes *group, *name, *unit;
	enum prof_counter_kind kind;
};

struct number_kind {
	struct collector_counter *counter;
	bool is_double;
};

/* A log with missing parts. Signal handlers may write other logs between the parts. */
struct open_log {
	GByteArray *bytes; /* NULL: free slot */
	uint32_t part, stack;
	uint64_t time_ns;
};

struct collector_producer {
	unsigned int refs;
	struct collector_process *process;
	uint32_t tid;
	struct thread *thread; /* NULL: it has no row yet */
	GHashTable *texts;     /* struct text by id */
	struct text *recent[N_RECENT];
	GHashTable *counters; /* struct number_kind by id */
	struct collector_stacks stacks;
	struct open_log logs[MAX_OPEN_LOGS];
	struct alloc_decoder decoder;
};

/* ---- Processes ------------------------------------------------------------------------------- */

static guint hash_counter(gconstpointer data)
{
	const struct collector_counter *counter = data;

	return g_bytes_hash(counter->group) * 31 + g_bytes_hash(counter->name) * 7 +
	       g_bytes_hash(counter->unit) + counter->kind;
}

static gboolean same_counter(gconstpointer a, gconstpointer b)
{
	const struct collector_counter *x = a, *y = b;

	return x->kind == y->kind && g_bytes_equal(x->group, y->group) &&
	       g_bytes_equal(x->name, y->name) && g_bytes_equal(x->unit, y->unit);
}

static void unref_counter(gpointer data)
{
	row_unref(data);
}

void collector_process_init(struct collector_process *process, struct collector_rows *rows,
			    int32_t pid, uint32_t inner_pid)
{
	*process = (struct collector_process){
		.rows = rows,
		.pid = pid,
		.inner_pid = inner_pid,
		.counters = g_hash_table_new_full(hash_counter, same_counter, NULL, unref_counter),
		.code = maps_new(),
	};
	loss_stream_init(&process->losses, rows->losses, pid);
}

void collector_process_charge(struct collector_process *process, int64_t bytes)
{
	process->text_bytes += (uint64_t)bytes;
	process->rows->text_bytes += (uint64_t)bytes;
}

/* Returns how many more bytes of text the process may keep. */
static uint64_t text_room(const struct collector_process *process)
{
	uint64_t own = MIN_OF(process->text_bytes, COLLECTOR_PROCESS_TEXT);
	uint64_t all = MIN_OF(process->rows->text_bytes, COLLECTOR_ALL_TEXT);

	return MIN_OF(COLLECTOR_PROCESS_TEXT - own, COLLECTOR_ALL_TEXT - all);
}

bool collector_process_reserve(struct collector_process *process, uint64_t bytes)
{
	if (text_room(process) < bytes)
		return false;
	collector_process_charge(process, (int64_t)bytes);
	return true;
}

/* Logs how many stacks lack functions, in the same way in which the process's library logs what
 * it does not record. */
static void warn_of_unread(struct collector_process *process, uint64_t time_ns)
{
	struct output *output = process->rows->output;
	const uint64_t last_ns = output->last_ns[PROF_TABLE_LOG];
	char text[160];

	snprintf(text, sizeof(text),
		 "stacks of %" PRIu64 " allocations do not show the functions of the program's "
		 "Python, as these could not be read",
		 process->n_unread);
	tasks_need(process->rows->tasks, process->leader);
	output_add(output, PROF_TABLE_LOG,
		   (const struct prof_value[]){
			   [PROF_LOG_TIME] = PROF_NUMBER(MAX_OF(time_ns, last_ns)),
			   [PROF_LOG_THREAD] = PROF_NUMBER(process->leader->row.id),
			   [PROF_LOG_LEVEL] = PROF_NUMBER(PROF_LOG_WARNING),
			   [PROF_LOG_DOMAIN] = PROF_NUMBER(output_text(output, "profd")),
			   [PROF_LOG_TEXT] = PROF_BYTES(text, strlen(text)),
			   [PROF_LOG_STACK] = PROF_NUMBER(0),
		   });
	process->n_unread = 0;
}

bool collector_process_end(struct collector_process *process, uint64_t time_ns)
{
	if (process->heap && !heap_rows_end(process->heap, time_ns))
		return false;
	if (process->n_unread > 0)
		warn_of_unread(process, time_ns);
	return true;
}

void collector_process_done(struct collector_process *process)
{
	heap_rows_free(process->heap);
	/* Uncharge the names of the counters. */
	collector_process_charge(process, -(int64_t)process->text_bytes);
	g_hash_table_destroy(process->counters);
	maps_unref(process->code);
	if (process->leader)
		row_unref(&process->leader->row);
	if (process->process) {
		if (process->process->gone)
			process_release_images(process->process);
		row_unref(&process->process->row);
	}
}

bool collector_process_bind(struct collector_process *process, uint64_t time_ns)
{
	struct thread *leader = tasks_leader_at(process->rows->tasks, process->pid, time_ns);

	if (!leader)
		return false;
	row_ref(&leader->row);
	row_ref(&leader->process->row);
	process->leader = leader;
	process->process = leader->process;
	return true;
}

/* ---- Producers ------------------------------------------------------------------------------- */

static void free_text(gpointer data)
{
	struct text *text = data;

	g_byte_array_unref(text->bytes);
	g_free(text);
}

static void free_number_kind(gpointer data)
{
	struct number_kind *kind = data;

	row_unref(&kind->counter->row);
	g_free(kind);
}

struct collector_producer *collector_producer_new(struct collector_process *process, uint32_t tid)
{
	struct collector_producer *producer = g_new0(struct collector_producer, 1);

	producer->refs = 1;
	producer->process = process;
	producer->tid = tid;
	producer->texts = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_text);
	producer->counters =
		g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_number_kind);
	collector_stacks_init(&producer->stacks, process);
	return producer;
}

struct collector_producer *collector_producer_ref(struct collector_producer *producer)
{
	producer->refs++;
	return producer;
}

static void close_log(struct collector_producer *producer, struct open_log *log)
{
	if (!log->bytes)
		return;
	collector_process_charge(producer->process,
				 -(int64_t)(COLLECTOR_HEAP_BYTES + log->bytes->len));
	g_clear_pointer(&log->bytes, g_byte_array_unref);
}

void collector_producer_unref(struct collector_producer *producer)
{
	GHashTableIter iter;
	gpointer value;

	if (!producer || --producer->refs > 0)
		return;
	g_hash_table_iter_init(&iter, producer->texts);
	while (g_hash_table_iter_next(&iter, NULL, &value))
		collector_process_charge(producer->process,
					 -(int64_t)(COLLECTOR_HEAP_BYTES +
						    ((struct text *)value)->bytes->len));
	collector_process_charge(producer->process, -(int64_t)COLLECTOR_HEAP_BYTES *
							    g_hash_table_size(producer->counters));
	g_hash_table_destroy(producer->texts);
	g_hash_table_destroy(producer->counters);
	collector_stacks_done(&producer->stacks);
	alloc_decoder_done(&producer->decoder);
	for (size_t i = 0; i < MAX_OPEN_LOGS; i++)
		close_log(producer, &producer->logs[i]);
	if (producer->thread)
		row_unref(&producer->thread->row);
	g_free(producer);
}

uint32_t collector_producer_tid(const struct collector_producer *producer)
{
	return producer->tid;
}

/* Finds a thread by its tid in the process's own PID namespace. */
static struct thread *find_inner_thread(struct collector_process *process, uint32_t tid,
					uint64_t time_ns)
{
	struct thread *thread;

	if (tid == process->inner_pid)
		return (struct thread *)row_ref(&process->leader->row);
	thread = tasks_inner_thread(process->rows->tasks, process->process, tid, time_ns);
	if (thread->tid == 0) {
		g_strlcpy(thread->comm, process->leader->comm, sizeof(thread->comm));
		process->has_unknown = true;
	}
	return thread;
}

/* Returns a reference; NULL if `tid` is not a thread of the process. */
static struct thread *find_thread(struct collector_process *process, uint32_t tid, uint64_t time_ns)
{
	struct thread *thread;

	if (process->inner_pid)
		return find_inner_thread(process, tid, time_ns);
	if (tid == (uint32_t)process->pid)
		return (struct thread *)row_ref(&process->leader->row);
	thread = tasks_thread(process->rows->tasks, (int32_t)tid);
	if (!thread || thread->process != process->process)
		return NULL;
	return (struct thread *)row_ref(&thread->row);
}

/* ---- Strings --------------------------------------------------------------------------------- */

static void lose(const struct collector_producer *producer, enum prof_loss_cause cause,
		 uint64_t time_ns)
{
	loss_stream_add(&producer->process->losses, cause, 1, time_ns, time_ns);
}

static struct text *new_text(struct collector_producer *producer, uint32_t id, uint64_t time_ns)
{
	struct text *text;

	if (g_hash_table_size(producer->texts) >= COLLECTOR_MAX_IDS ||
	    !collector_process_reserve(producer->process, COLLECTOR_HEAP_BYTES)) {
		lose(producer, PROF_LOSS_RING_REFUSED, time_ns);
		return NULL;
	}
	text = g_new0(struct text, 1);
	text->bytes = g_byte_array_new();
	text->number = id;
	g_hash_table_insert(producer->texts, GUINT_TO_POINTER(id), text);
	return text;
}

/* Appends to a kept text, as far as there is room. */
static void append(struct collector_producer *producer, GByteArray *text, const void *bytes,
		   uint32_t n_bytes, uint64_t time_ns)
{
	uint64_t room =
		MIN_OF(text_room(producer->process), (uint64_t)COLLECTOR_MAX_TEXT - text->len);
	uint32_t n = (uint32_t)MIN_OF((uint64_t)n_bytes, room);

	if (n < n_bytes)
		lose(producer, PROF_LOSS_RING_REFUSED, time_ns);
	g_byte_array_append(text, bytes, n);
	collector_process_charge(producer->process, n);
}

static enum ring_fault add_string(struct collector_producer *producer,
				  const struct ring_record *record)
{
	const struct ring_string *string = record->payload;
	struct text *text = g_hash_table_lookup(producer->texts, GUINT_TO_POINTER(string->id));

	/* The writer abandoned this record, so it has no contents. */
	if (string->id == 0)
		return RING_FAULT_NONE;
	if (!text) {
		text = new_text(producer, string->id, record->time_ns);
	} else if (!text->more) {
		/* The producer reuses the id for another string. A byte array keeps its memory when
		 * it shrinks, so replace a long one. */
		collector_process_charge(producer->process, -(int64_t)text->bytes->len);
		if (text->bytes->len > SMALL_TEXT) {
			g_byte_array_unref(text->bytes);
			text->bytes = g_byte_array_new();
		}
		g_byte_array_set_size(text->bytes, 0);
	}
	if (!text)
		return RING_FAULT_NONE;
	text->epoch = 0;
	text->more = record->flags & RING_FLAG_MORE;
	append(producer, text->bytes, string + 1, string->n_bytes, record->time_ns);
	return RING_FAULT_NONE;
}

static uint32_t lost_string(struct collector_rows *rows)
{
	if (rows->lost_epoch != rows->output->epoch || rows->lost_string == 0)
		rows->lost_string = output_text(rows->output, "<lost>");
	rows->lost_epoch = rows->output->epoch;
	return rows->lost_string;
}

/* Converts a producer's string id to the capture's id of that string; 0 remains 0. */
static uint32_t string_id(struct collector_producer *producer, uint32_t id, uint64_t time_ns)
{
	struct collector_rows *rows = producer->process->rows;
	/* A text lives as long as its producer, so the pointer stays valid. */
	struct text **recent = &producer->recent[id % N_RECENT], *text;

	if (id == 0)
		return 0;
	if (!*recent || (*recent)->number != id)
		*recent = g_hash_table_lookup(producer->texts, GUINT_TO_POINTER(id));
	text = *recent;
	if (!text) {
		lose(producer, PROF_LOSS_RING_CORRUPT, time_ns);
		return lost_string(rows);
	}
	if (text->epoch != rows->output->epoch) {
		text->id = output_string(rows->output, text->bytes->data, text->bytes->len);
		text->epoch = rows->output->epoch;
	}
	return text->id;
}

/* ---- Marks ----------------------------------------------------------------------------------- */

static enum ring_fault add_mark(struct collector_producer *producer,
				const struct ring_record *record)
{
	const struct ring_at *at = record->type == RING_MARK_AT ? record->payload : NULL;
	const struct ring_mark *mark = at ? (const void *)(at + 1) : record->payload;
	struct collector_rows *rows = producer->process->rows;
	const struct ring_argument *arguments = (const void *)(mark + 1);
	uint32_t n = MIN_OF(mark->n_arguments, COLLECTOR_MAX_ARGUMENTS);

	if (mark->kind >= RING_MARK_N_KINDS)
		return RING_FAULT_PAYLOAD;
	for (uint32_t i = 0; i < n; i++) {
		bool is_text = arguments[i].kind == PROF_ARGUMENT_STRING;

		if (arguments[i].kind > PROF_ARGUMENT_ADDRESS)
			return RING_FAULT_PAYLOAD;
		rows->names[i] = string_id(producer, arguments[i].name, record->time_ns);
		rows->kinds[i] = arguments[i].kind;
		rows->values[i] = is_text ? 0 : arguments[i].value;
		rows->texts[i] =
			is_text ? string_id(producer, (uint32_t)arguments[i].value, record->time_ns)
				: 0;
	}
	output_add(rows->output, PROF_TABLE_MARK,
		   (const struct prof_value[]){
			   [PROF_MARK_TIME] = PROF_NUMBER(record->time_ns),
			   [PROF_MARK_THREAD] = PROF_NUMBER(producer->thread->row.id),
			   [PROF_MARK_KIND] = PROF_NUMBER(mark->kind),
			   [PROF_MARK_ID] = PROF_NUMBER(mark->id),
			   [PROF_MARK_GROUP] =
				   PROF_NUMBER(string_id(producer, mark->group, record->time_ns)),
			   [PROF_MARK_NAME] =
				   PROF_NUMBER(string_id(producer, mark->name, record->time_ns)),
			   [PROF_MARK_DURATION] = PROF_NUMBER(
				   mark->kind == RING_MARK_COMPLETE ? mark->duration_ns : 0),
			   [PROF_MARK_ARGUMENTS] = PROF_BYTES(rows->names, n),
			   [PROF_MARK_ARGUMENT_KINDS] = PROF_BYTES(rows->kinds, n),
			   [PROF_MARK_ARGUMENT_VALUES] = PROF_BYTES(rows->values, n),
			   [PROF_MARK_ARGUMENT_TEXTS] = PROF_BYTES(rows->texts, n),
			   [PROF_MARK_STACK] = PROF_NUMBER(collector_stacks_id(
				   &producer->stacks, at ? at->stack : 0, record->time_ns)),
		   });
	return RING_FAULT_NONE;
}

/* ---- Logs ------------------------------------------------------------------------------------ */

/* Returns the open log that this record belongs to. If there is none and more parts follow, opens
 * one; if all slots are in use, first drops the oldest open log. Returns NULL if the record is a
 * whole log, or the last part of a dropped log. */
static struct open_log *find_log(struct collector_producer *producer, const struct ring_log *log,
				 bool more, uint64_t time_ns)
{
	struct open_log *oldest = &producer->logs[0];

	if (log->part == 0)
		return NULL;
	for (size_t i = 0; i < MAX_OPEN_LOGS; i++) {
		struct open_log *open = &producer->logs[i];

		if (open->bytes && open->part == log->part)
			return open;
		if (!open->bytes || (oldest->bytes && open->time_ns < oldest->time_ns))
			oldest = open;
	}
	if (!more)
		return NULL;
	if (oldest->bytes)
		lose(producer, PROF_LOSS_RING_REENTRANT, oldest->time_ns);
	close_log(producer, oldest);
	collector_process_charge(producer->process, COLLECTOR_HEAP_BYTES);
	*oldest = (struct open_log){
		.bytes = g_byte_array_new(),
		.part = log->part,
		.time_ns = time_ns,
	};
	return oldest;
}

static void write_log(struct collector_producer *producer, const struct ring_log *log,
		      uint64_t time_ns, uint32_t stack, const void *bytes, uint32_t n)
{
	output_add(
		producer->process->rows->output, PROF_TABLE_LOG,
		(const struct prof_value[]){
			[PROF_LOG_TIME] = PROF_NUMBER(time_ns),
			[PROF_LOG_THREAD] = PROF_NUMBER(producer->thread->row.id),
			[PROF_LOG_LEVEL] = PROF_NUMBER(log->level),
			[PROF_LOG_DOMAIN] = PROF_NUMBER(string_id(producer, log->domain, time_ns)),
			[PROF_LOG_TEXT] = PROF_BYTES(bytes, n),
			[PROF_LOG_STACK] =
				PROF_NUMBER(collector_stacks_id(&producer->stacks, stack, time_ns)),
		});
}

static enum ring_fault add_log(struct collector_producer *producer,
			       const struct ring_record *record)
{
	const struct ring_at *at = record->type == RING_LOG_AT ? record->payload : NULL;
	const struct ring_log *log = at ? (const void *)(at + 1) : record->payload;
	uint32_t stack = at ? at->stack : 0;
	bool more = record->flags & RING_FLAG_MORE;
	struct open_log *open;

	if (log->level > PROF_LOG_DEBUG)
		return RING_FAULT_PAYLOAD;
	open = find_log(producer, log, more, record->time_ns);
	if (!open) {
		write_log(producer, log, record->time_ns, stack, log + 1, log->n_bytes);
		return RING_FAULT_NONE;
	}
	open->stack = stack ? stack : open->stack;
	append(producer, open->bytes, log + 1, log->n_bytes, record->time_ns);
	if (!more) {
		write_log(producer, log, open->time_ns, open->stack, open->bytes->data,
			  open->bytes->len);
		close_log(producer, open);
	}
	return RING_FAULT_NONE;
}

/* ---- Names ----------------------------------------------------------------------------------- */

static enum ring_fault add_name(struct collector_producer *producer,
				const struct ring_record *record)
{
	const struct ring_thread_name *named = record->payload;
	const struct text *text =
		g_hash_table_lookup(producer->texts, GUINT_TO_POINTER(named->name));
	struct tasks *tasks = producer->process->rows->tasks;
	char *comm = producer->thread->comm;

	if (!text)
		return RING_FAULT_NONE;
	snprintf(comm, sizeof(producer->thread->comm), "%.*s", (int)text->bytes->len,
		 (const char *)text->bytes->data);
	tasks_add_row(tasks, producer->thread, PROF_TASK_COMM_CHANGE, NULL, record->time_ns);
	output_touch(tasks->output, &producer->thread->row);
	return RING_FAULT_NONE;
}

/* ---- Counters -------------------------------------------------------------------------------- */

static uint32_t output_bytes(struct output *output, GBytes *bytes)
{
	gsize n;
	const void *data = g_bytes_get_data(bytes, &n);

	return output_string(output, data, n);
}

static void write_counter(struct row *row, struct output *output)
{
	const struct collector_counter *counter = (struct collector_counter *)row;

	output_need(output, &counter->process->row);
	output_add(output, PROF_TABLE_COUNTER,
		   (const struct prof_value[]){
			   [PROF_COUNTER_ID] = PROF_NUMBER(row->id),
			   [PROF_COUNTER_PROCESS] = PROF_NUMBER(counter->process->row.id),
			   [PROF_COUNTER_GROUP] = PROF_NUMBER(output_bytes(output, counter->group)),
			   [PROF_COUNTER_NAME] = PROF_NUMBER(output_bytes(output, counter->name)),
			   [PROF_COUNTER_UNIT] = PROF_NUMBER(output_bytes(output, counter->unit)),
			   [PROF_COUNTER_KIND] = PROF_NUMBER(counter->kind),
		   });
}

static void free_counter(struct row *row)
{
	struct collector_counter *counter = (struct collector_counter *)row;

	g_bytes_unref(counter->group);
	g_bytes_unref(counter->name);
	g_bytes_unref(counter->unit);
	row_unref(&counter->process->row);
	g_free(counter);
}

static GBytes *copy_text(const struct collector_producer *producer, uint32_t id, uint64_t time_ns)
{
	const struct text *text = g_hash_table_lookup(producer->texts, GUINT_TO_POINTER(id));

	if (id && !text) {
		lose(producer, PROF_LOSS_RING_CORRUPT, time_ns);
		return g_bytes_new_static("<lost>", strlen("<lost>"));
	}
	return id ? g_bytes_new(text->bytes->data, text->bytes->len) : g_bytes_new(NULL, 0);
}

/* Returns the process's counter with this definition, or a new one; borrowed. NULL: no room for
 * another. */
static struct collector_counter *find_counter(struct collector_producer *producer,
					      const struct ring_counter *defined, uint64_t time_ns)
{
	struct collector_process *process = producer->process;
	struct collector_counter *counter = g_new0(struct collector_counter, 1), *known;

	row_init(&counter->row, 0, write_counter, free_counter);
	counter->process = process->process;
	row_ref(&process->process->row);
	counter->group = copy_text(producer, defined->group, time_ns);
	counter->name = copy_text(producer, defined->name, time_ns);
	counter->unit = copy_text(producer, defined->unit, time_ns);
	counter->kind = defined->kind & RING_COUNTER_SUM ? PROF_COUNTER_SUM : PROF_COUNTER_GAUGE;
	known = g_hash_table_lookup(process->counters, counter);
	if (known || g_hash_table_size(process->counters) >= COLLECTOR_MAX_COUNTERS ||
	    !collector_process_reserve(process, COLLECTOR_HEAP_BYTES +
							g_bytes_get_size(counter->group) +
							g_bytes_get_size(counter->name) +
							g_bytes_get_size(counter->unit))) {
		row_unref(&counter->row);
		return known;
	}
	counter->row.id = ++process->rows->last_counter;
	g_hash_table_add(process->counters, counter);
	return counter;
}

static enum ring_fault add_counter(struct collector_producer *producer,
				   const struct ring_record *record)
{
	const struct ring_counter *defined = record->payload;
	struct collector_counter *counter = NULL;
	struct number_kind *kind;
	bool is_new;

	if (defined->kind & ~(RING_COUNTER_DOUBLE | RING_COUNTER_SUM))
		return RING_FAULT_PAYLOAD;
	is_new = !g_hash_table_contains(producer->counters, GUINT_TO_POINTER(defined->id));
	if (g_hash_table_size(producer->counters) < COLLECTOR_MAX_COUNTERS)
		counter = find_counter(producer, defined, record->time_ns);
	if (!counter ||
	    (is_new && !collector_process_reserve(producer->process, COLLECTOR_HEAP_BYTES))) {
		lose(producer, PROF_LOSS_RING_REFUSED, record->time_ns);
		return RING_FAULT_NONE;
	}
	kind = g_new0(struct number_kind, 1);
	row_ref(&counter->row);
	kind->counter = counter;
	kind->is_double = defined->kind & RING_COUNTER_DOUBLE;
	g_hash_table_replace(producer->counters, GUINT_TO_POINTER(defined->id), kind);
	return RING_FAULT_NONE;
}

static enum ring_fault add_value(struct collector_producer *producer,
				 const struct ring_record *record)
{
	const struct ring_counter_value *set = record->payload;
	const struct number_kind *kind =
		g_hash_table_lookup(producer->counters, GUINT_TO_POINTER(set->id));
	struct output *output = producer->process->rows->output;
	double value = (double)(int64_t)set->value;
	uint64_t bits;

	if (!kind) {
		lose(producer, PROF_LOSS_RING_CORRUPT, record->time_ns);
		return RING_FAULT_NONE;
	}
	memcpy(&bits, kind->is_double ? (const void *)&set->value : &value, sizeof(bits));
	output_need(output, &kind->counter->row);
	output_add(output, PROF_TABLE_COUNTER_VALUE,
		   (const struct prof_value[]){
			   [PROF_COUNTER_VALUE_TIME] = PROF_NUMBER(record->time_ns),
			   [PROF_COUNTER_VALUE_COUNTER] = PROF_NUMBER(kind->counter->row.id),
			   [PROF_COUNTER_VALUE_VALUE] = PROF_NUMBER(bits),
		   });
	return RING_FAULT_NONE;
}

/* ---- Code ------------------------------------------------------------------------------------ */

static enum ring_fault add_image(struct collector_producer *producer,
				 const struct ring_record *record)
{
	const struct ring_image *image = record->payload;
	const struct text *path =
		g_hash_table_lookup(producer->texts, GUINT_TO_POINTER(image->path));

	return collector_stacks_add_image(&producer->stacks, image,
					  path ? (const char *)path->bytes->data : NULL,
					  path ? path->bytes->len : 0, record->time_ns);
}

static enum ring_fault add_stack(struct collector_producer *producer,
				 const struct ring_record *record)
{
	return collector_stacks_add(&producer->stacks, record->payload, record->time_ns);
}

static enum ring_fault add_jit(struct collector_producer *producer,
			       const struct ring_record *record)
{
	const struct ring_jit *jit = record->payload;
	bool is_load = jit->kind == RING_JIT_LOAD, is_move = jit->kind == RING_JIT_MOVE;
	uint32_t name = is_load ? jit->name : 0;

	if (jit->kind >= RING_JIT_N_KINDS)
		return RING_FAULT_PAYLOAD;
	output_add(producer->process->rows->output, PROF_TABLE_JIT,
		   (const struct prof_value[]){
			   [PROF_JIT_TIME] = PROF_NUMBER(record->time_ns),
			   [PROF_JIT_PROCESS] = PROF_NUMBER(producer->thread->process->row.id),
			   [PROF_JIT_EVENT] = PROF_NUMBER(jit->kind),
			   [PROF_JIT_ADDRESS] = PROF_NUMBER(jit->address),
			   [PROF_JIT_SIZE] = PROF_NUMBER(is_load ? jit->size : 0),
			   [PROF_JIT_NAME] =
				   PROF_NUMBER(string_id(producer, name, record->time_ns)),
			   [PROF_JIT_FROM] = is_move ? PROF_NUMBER(jit->from) : PROF_NULL,
		   });
	return RING_FAULT_NONE;
}

/* ---- Allocations ----------------------------------------------------------------------------- */

static enum ring_fault add_allocation(struct collector_producer *producer,
				      const struct ring_record *record)
{
	return alloc_decoder_add(&producer->decoder, record);
}

/* Called before add_allocation(). Returns false if a long step must finish first. */
static bool run_heap(struct collector_producer *producer, uint64_t time_ns)
{
	struct collector_process *process = producer->process;

	if (!producer->decoder.rows) {
		if (!process->heap)
			process->heap = heap_rows_new(&process->rows->heaps, process->process,
						      &process->losses);
		alloc_decoder_init(&producer->decoder, process->heap, producer->thread,
				   &producer->stacks);
	}
	return heap_rows_run(process->heap, time_ns);
}

/* ---- Records --------------------------------------------------------------------------------- */

static enum ring_fault (*const adders[RING_N_TYPES])(struct collector_producer *,
						     const struct ring_record *) = {
	[RING_STRING] = add_string,
	[RING_MARK] = add_mark,
	[RING_COUNTER] = add_counter,
	[RING_COUNTER_VALUE] = add_value,
	[RING_LOG] = add_log,
	[RING_ALLOC] = add_allocation,
	[RING_FREE_BLOCK] = add_allocation,
	[RING_THREAD_NAME] = add_name,
	[RING_IMAGE] = add_image,
	[RING_STACK] = add_stack,
	[RING_JIT] = add_jit,
	[RING_MARK_AT] = add_mark,
	[RING_LOG_AT] = add_log,
	[RING_REALLOC] = add_allocation,
	[RING_CALLS] = add_allocation,
	[RING_CODE] = add_allocation,
};

bool collector_producer_add(struct collector_producer *producer, const struct ring_record *record,
			    enum ring_fault *ret_fault)
{
	struct collector_process *process = producer->process;

	if (!all_heaps_run(&process->rows->heaps, record->time_ns))
		return false;
	if (!producer->thread)
		producer->thread = find_thread(process, producer->tid, record->time_ns);
	*ret_fault = producer->thread ? RING_FAULT_NONE : RING_FAULT_TID;
	if (!producer->thread || !adders[record->type])
		return true;
	if (adders[record->type] == add_allocation && !run_heap(producer, record->time_ns))
		return false;
	/* For RING_ALLOC and RING_FREE_BLOCK, heap-rows.c calls tasks_need() for each thread that
	 * its rows name. */
	if (record->type != RING_ALLOC && record->type != RING_FREE_BLOCK)
		tasks_need(process->rows->tasks, producer->thread);
	*ret_fault = adders[record->type](producer, record);
	return true;
}
