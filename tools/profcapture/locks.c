/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture locks - who waits for which lock, and who releases it
 *
 * A lock is the address of a futex in a process: a mutex, a condition variable or a semaphore. A
 * wait is for a lock if the thread that ended it made a system call with the same first argument,
 * the futex's address. This needs no stack. A descriptor is not an address, so a wait in read()
 * that is ended by a write() to the same number is not for a lock. Other waits whose
 * stack or system call shows that they are for a futex are counted by how they ended. Each lock has
 * a row for each pair of a place that waited and a place that released it. A place is the innermost
 * frame of the program itself, else of its user code.
 * Invariants: (1) rows and the rest include every wait known to be for a futex
 *                 [test_locks: test_convoy]
 *             (2) times are those that threads measure themselves  [test_locks: test_convoy]
 */
#include "config.h"

#include "base/order.h"
#include "tools/common/keyed.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/stack-places.h"
#include "tools/profcapture/verbs.h"
#include "tools/profile/function-names.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

#define MAX_FRAMES 256     /* limit on kept functions; calls inlined into one frame may exceed it */
#define LEAST_ADDRESS 4096 /* smaller arguments are descriptors or numbers */

enum { TIME, THREAD, DURATION, STACK, ARGUMENT, SYSCALL, WAKER, WAKER_STACK, WAKER_ARGUMENT };

static const uint16_t wait_columns[] = {
	PROF_WAIT_TIME,  PROF_WAIT_THREAD,      PROF_WAIT_DURATION,
	PROF_WAIT_STACK, PROF_WAIT_ARGUMENT,    PROF_WAIT_SYSCALL,
	PROF_WAIT_WAKER, PROF_WAIT_WAKER_STACK, PROF_WAIT_WAKER_ARGUMENT,
};

struct lock_sum {
	uint64_t waits, ns, max_ns;
};

struct lock {
	uint64_t address;
	uint32_t process; /* index in names */
	struct lock_sum sum;
};

/* A place where threads wait for a lock, and one where a thread releases it. */
struct lock_pair {
	struct lock *lock;
	uint32_t waiter, releaser; /* functions that wait and release, with their lines */
	struct lock_sum sum;
	/* with --stacks: the stacks of the longest wait, of the waiter and of the releaser;
	 * uint32_t functions, innermost first */
	GArray *stacks[2];
};

/* How the futex waits that count for no lock ended. */
enum rest { REST_OTHER, REST_INTERRUPT, REST_OUTSIDE, REST_UNKNOWN, RESTS };
static const char *const rest_keys[RESTS] = { "other_call", "interrupt", "outside", "unknown" };

struct locks_verb {
	struct reader reader;
	bool wants_stacks, full_names, no_inline;
	struct stack_places places;
	GHashTable *locks; /* set of struct lock */
	GHashTable *pairs; /* set of struct lock_pair */
	GPtrArray *all;    /* struct lock_pair in output order */
	struct lock_sum sum, rest[RESTS];
};

/* ---- Gathering ------------------------------------------------------------------------------- */

KEYED_BY(lock, struct lock, a->address, a->process)
KEYED_BY(pair, struct lock_pair, (uintptr_t)a->lock, (uint64_t)a->waiter << 32 | a->releaser)

static void pair_free(gpointer pointer)
{
	struct lock_pair *pair = pointer;

	for (unsigned i = 0; i < ARRAY_SIZE(pair->stacks); i++)
		g_clear_pointer(&pair->stacks[i], g_array_unref);
	g_free(pair);
}

static void sum_add(struct lock_sum *sum, uint64_t ns)
{
	sum->waits++;
	sum->ns += ns;
	sum->max_ns = MAX_OF(sum->max_ns, ns);
}

static void keep_stack(struct locks_verb *verb, GArray **stack, uint32_t node)
{
	if (!*stack)
		*stack = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_array_set_size(*stack, 0);
	for (; node != STACKS_NO_ROW && (*stack)->len < MAX_FRAMES;
	     node = verb->places.stacks->parent[node]) {
		uint32_t places[FUNCTIONS_MAX_AT_ROW];

		for (size_t i = stack_places_of_frame(&verb->places, node, places); i > 0; i--)
			g_array_append_val(*stack, places[i - 1]);
	}
}

static void add_to_pair(struct locks_verb *verb, uint32_t process, uint64_t address,
			const uint32_t *nodes, uint64_t ns)
{
	struct lock lock_key = { .address = address, .process = process };
	struct lock *lock = keyed_at(verb->locks, &lock_key, sizeof(lock_key));
	struct lock_pair key = { .waiter = stack_places_find(&verb->places, nodes[0]).place,
				 .releaser = stack_places_find(&verb->places, nodes[1]).place };
	struct lock_pair *pair;

	key.lock = lock;
	pair = keyed_at(verb->pairs, &key, sizeof(key));
	for (unsigned i = 0; verb->wants_stacks && i < 2; i++)
		if (pair->sum.waits == 0 || ns > pair->sum.max_ns)
			keep_stack(verb, &pair->stacks[i], nodes[i]);
	sum_add(&verb->sum, ns);
	sum_add(&lock->sum, ns);
	sum_add(&pair->sum, ns);
}

static enum rest rest_of(uint64_t waker)
{
	return waker == PROF_WAKER_THREAD      ? REST_OTHER
	       : waker == PROF_WAKER_INTERRUPT ? REST_INTERRUPT
	       : waker == PROF_WAKER_OUTSIDE   ? REST_OUTSIDE
					       : REST_UNKNOWN;
}

static bool add_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct locks_verb *verb = data;
	struct reader *reader = &verb->reader;
	const struct prof_array *c = batch->columns;
	uint64_t from, to;

	if (!stack_places_begin(&verb->places, epoch, error))
		return false;
	reader_clock_range(reader, batch->segment, &from, &to);
	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t end = array_number_or(&c[TIME], i, 0), argument, waker_argument;
		uint64_t begin = end - MIN_OF(array_number_or(&c[DURATION], i, 0), end);
		uint64_t waker = array_number_or(&c[WAKER], i, PROF_WAKER_UNKNOWN);
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0)), nodes[2];
		const char *call;
		struct stack_place found;
		bool is_futex, is_released;

		/* Only the part of a wait that is in the time range counts. */
		if (MAX_OF(begin, from) >= MIN_OF(end, to) ||
		    !reader_wants_thread_at(reader, thread,
					    capture_time(reader->capture, batch->segment, begin)))
			continue;
		nodes[0] = stack_places_node(&verb->places, array_number_or(&c[STACK], i, 0),
					     batch->segment, end);
		found = stack_places_find(&verb->places, nodes[0]);
		call = names_text(epoch, array_number_or(&c[SYSCALL], i, 0));
		is_futex = found.cause == WAIT_FUTEX || (call && strcmp(call, "futex") == 0);
		is_released = waker == PROF_WAKER_THREAD &&
			      array_number(&c[ARGUMENT], i, &argument) &&
			      array_number(&c[WAKER_ARGUMENT], i, &waker_argument) &&
			      argument == waker_argument && argument >= LEAST_ADDRESS &&
			      argument % 4 == 0;
		begin = MAX_OF(begin, from);
		end = MIN_OF(end, to);
		if (is_released && (is_futex || found.cause == WAIT_UNKNOWN)) {
			nodes[1] = stack_places_node(&verb->places,
						     array_number_or(&c[WAKER_STACK], i, 0),
						     batch->segment, end);
			add_to_pair(verb, names_thread_at(epoch->names, thread)->process, argument,
				    nodes, end - begin);
		} else if (is_futex) {
			sum_add(&verb->rest[rest_of(waker)], end - begin);
		}
	}
	return true;
}

COMPARE_BY(compare_locks, struct lock, ORDER(b->sum.ns, a->sum.ns), ORDER(a->process, b->process),
	   ORDER(a->address, b->address))

COMPARE_AT(compare_pairs, struct lock_pair,
	   a->lock == b->lock ? 0 : compare_locks(a->lock, b->lock), ORDER(b->sum.ns, a->sum.ns),
	   ORDER(a->waiter, b->waiter), ORDER(a->releaser, b->releaser))

/* ---- Output ---------------------------------------------------------------------------------- */

enum field {
	ADDRESS,
	PID,
	EXE,
	TOTAL,
	WAITS,
	MEAN,
	LONGEST,
	PAIR,
	PLACE,
	WAITER, /* name, file and line */
	RELEASER = WAITER + 3,
};

static const struct table_member members[] = {
	{ "address", ADDRESS },
	{ "pid", PID },
	{ "exe", EXE },
	{ "waits", WAITS },
	{ "total_ns", TOTAL },
	{ "mean_ns", MEAN },
	{ "max_ns", LONGEST },
	{ "waiter", WAITER },
	{ "waiter_file", WAITER + 1 },
	{ "waiter_line", WAITER + 2 },
	{ "releaser", RELEASER },
	{ "releaser_file", RELEASER + 1 },
	{ "releaser_line", RELEASER + 2 },
	{ NULL },
};

static char *describe(const struct locks_verb *verb, uint32_t place)
{
	return stack_places_describe(verb->places.functions, place, verb->full_names);
}

static struct cell place_cell(const struct locks_verb *verb, uint32_t place, unsigned field)
{
	static const enum function_field fields[] = { FN_NAME, FN_FILE, FN_LINE };

	if (place == FUNCTION_NO_STACK)
		return cell_unknown();
	return functions_cell(verb->places.functions, place, fields[field]);
}

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct locks_verb *verb = data;
	const struct lock_pair *pair = verb->all->pdata[row];
	const struct names *names = verb->reader.capture->names;
	const struct names_process *process = names_process_at(names, pair->lock->process);

	switch (field) {
	case ADDRESS:
		return (struct cell){ .kind = CELL_HEX, .number = pair->lock->address };
	case PID:
		return pair->lock->process > NAMES_LOST ? cell_uint(process->pid) : cell_unknown();
	case EXE:
		return cell_text(process->exe);
	case TOTAL:
		return cell_uint(pair->sum.ns);
	case WAITS:
		return cell_uint(pair->sum.waits);
	case MEAN:
		return cell_uint(pair->sum.ns / pair->sum.waits);
	case LONGEST:
		return cell_uint(pair->sum.max_ns);
	case PAIR:
		return cell_own_text(describe(verb, pair->waiter));
	case PLACE:
		return cell_own_text(describe(verb, pair->releaser));
	default:
		return field < RELEASER ? place_cell(verb, pair->waiter, field - WAITER)
					: place_cell(verb, pair->releaser, field - RELEASER);
	}
}

static void write_stacks(const void *data, size_t row, struct json *json)
{
	static const char *const keys[] = { "waiter_stack", "releaser_stack" };
	const struct locks_verb *verb = data;
	const struct lock_pair *pair = verb->all->pdata[row];

	for (unsigned i = 0; i < ARRAY_SIZE(keys); i++) {
		json_begin_array(json, keys[i]);
		for (guint at = 0; at < pair->stacks[i]->len; at++) {
			json_begin_object(json, NULL);
			functions_write(verb->places.functions,
					g_array_index(pair->stacks[i], uint32_t, at), json);
			json_end(json);
		}
		json_end(json);
	}
}

/* Returns the table; unless `has_places`, without the columns "waited in" and "released in". */
static struct table table_of(const struct locks_verb *verb, bool has_places)
{
	struct table table = { .rows = verb->all->len,
			       .get = get_cell,
			       .data = verb,
			       .members = members,
			       .write = verb->wants_stacks ? write_stacks : NULL };

	table_add_column(&table, TOTAL, COLUMN_DURATION, _("total"));
	table_add_column(&table, WAITS, COLUMN_COUNT, _("waits"));
	table_add_column(&table, MEAN, COLUMN_DURATION, _("mean"));
	table_add_column(&table, LONGEST, COLUMN_DURATION, _("longest"));
	table_add_column(&table, PID, COLUMN_NUMBER, _("pid"));
	table_add_column(&table, ADDRESS, COLUMN_WORD, _("lock"));
	if (has_places) {
		table_add_column(&table, PAIR, COLUMN_NAME, _("waited in"));
		table_add_column(&table, PLACE, COLUMN_PLACE, _("released in"));
	}
	return table;
}

/* Returns the lines of a table, which may be wider than the terminal. */
static char **lines_of(const struct reader *reader, const struct table *table)
{
	struct reader wide = *reader;
	CLEANUP_OUT struct out out = out_buffer();
	char **lines;

	wide.columns = reader->columns ? UINT16_MAX : 0;
	reader_print_table(&wide, &out, table);
	lines = g_strsplit(out.text->str, "\n", -1);
	return lines;
}

/* Prints a place on a separate line: "    waited in    acquire (convoy.c:44)". */
static void print_place(const struct locks_verb *verb, struct out *out, const char *title,
			unsigned width, uint32_t place)
{
	g_autofree char *text = describe(verb, place), *escaped = text_escape(text);
	unsigned used = 4 + width + 2, columns = verb->reader.columns;
	unsigned room = columns > used ? columns - used : 1;
	g_autofree char *fitted = function_name_fit(escaped, room);
	g_autofree char *cut = text_cut(fitted, room);
	g_autofree char *padded = text_fit(title, width, TEXT_LEFT);

	out_printf(out, "    %s  %s\n", padded, cut);
}

/* Prints the rows. If they are wider than the terminal, the places follow each row's numbers. */
static void print_pairs(const struct locks_verb *verb, struct out *out)
{
	const char *waited = _("waited in"), *released = _("released in");
	const struct table whole = table_of(verb, true), numbers = table_of(verb, false);
	g_auto(GStrv) lines = lines_of(&verb->reader, &whole);
	size_t shown = reader_shown(&verb->reader, whole.rows);
	bool fits = true;

	for (char **line = lines; verb->reader.columns && *line; line++)
		fits = fits && text_width(*line) <= verb->reader.columns;
	if (!fits) {
		g_strfreev(lines);
		lines = lines_of(&verb->reader, &numbers);
	}
	for (size_t i = 0; lines[i] && *lines[i]; i++) {
		const struct lock_pair *pair;
		unsigned width = MAX_OF(text_width(waited), text_width(released));

		out_printf(out, "%s\n", lines[i]);
		if (fits || i == 0 || i > shown)
			continue;
		pair = verb->all->pdata[i - 1];
		print_place(verb, out, waited, width, pair->waiter);
		print_place(verb, out, released, width, pair->releaser);
	}
}

/* Prints text such as "Not counted, waits for futexes: 10 without a known end, 0.3 s." */
static void print_rest(const struct locks_verb *verb, struct out *out)
{
	const char *const texts[RESTS] = {
		_("ended by a thread in another call, such as its exit"),
		_("ended by an interrupt, such as a timeout"),
		_("ended by a thread that was not recorded"),
		_("without a known end"),
	};
	const char *before = _("Not counted, waits for futexes: ");
	CLEANUP_OUT struct out line = out_buffer();

	for (unsigned i = 0; i < RESTS; i++) {
		g_autofree char *waits = text_count(verb->rest[i].waits);
		g_autofree char *time = text_duration(verb->rest[i].ns);

		if (verb->rest[i].waits == 0)
			continue;
		out_printf(&line, "%s%s %s, %s", before, waits, texts[i], time);
		before = "; ";
	}
	if (strcmp(before, "; ") == 0) {
		out_char(&line, '.');
		text_wrap(out, line.text->str, 0, 2, verb->reader.columns);
	}
}

static void print_stacks(const struct locks_verb *verb, struct out *out)
{
	const char *const titles[] = { _("waited"), _("released") };
	size_t shown = reader_shown(&verb->reader, verb->all->len);

	for (size_t row = 0; row < shown; row++) {
		const struct lock_pair *pair = verb->all->pdata[row];

		for (unsigned i = 0; i < ARRAY_SIZE(titles); i++) {
			out_printf(out, "\n0x%" PRIx64 " %s\n", pair->lock->address, titles[i]);
			for (guint at = 0; at < pair->stacks[i]->len; at++) {
				uint32_t place = g_array_index(pair->stacks[i], uint32_t, at);
				g_autofree char *text = describe(verb, place);
				g_autofree char *escaped = text_escape(text);

				out_printf(out, "  %s\n", escaped);
			}
			if (pair->stacks[i]->len >= MAX_FRAMES)
				out_printf(out, "  %s\n", text_sign(TEXT_ELLIPSIS));
		}
	}
}

static void locks_print(const void *data, struct out *out)
{
	const struct locks_verb *verb = data;
	guint n = g_hash_table_size(verb->locks);

	reader_print_losses(&verb->reader, out, READER_LOSSES);
	reader_print_lost_names(&verb->reader, out);
	if (verb->reader.is_incomplete)
		out_text(out, _("Waits may be missing: numbers are lower bounds\n"));
	if (n == 0) {
		out_text(out, _("No thread waited until another one released a lock.\n"));
	} else {
		const struct lock_pair *first = verb->all->pdata[0];
		CLEANUP_OUT struct out line = out_buffer();
		g_autofree char *all = text_duration(verb->sum.ns);
		g_autofree char *most = text_duration(first->lock->sum.ns);
		g_autofree char *waits = text_count(verb->sum.waits);

		out_printf(&line,
			   ngettext("Threads waited %s for %u lock, in %s waits",
				    "Threads waited %s for %u locks, in %s waits", n),
			   all, n, waits);
		out_printf(&line, _("; longest for 0x%" PRIx64 ", %s."), first->lock->address,
			   most);
		text_wrap(out, line.text->str, 0, 2, verb->reader.columns);
	}
	print_rest(verb, out);
	if (n == 0)
		return;
	out_char(out, '\n');
	print_pairs(verb, out);
	if (verb->wants_stacks)
		print_stacks(verb, out);
}

static void locks_write(const void *data, struct json *json)
{
	const struct locks_verb *verb = data;
	const struct reader *reader = &verb->reader;
	const struct table table = table_of(verb, true);

	reader_begin(reader, json, "locks", reader_shown(reader, table.rows) < table.rows,
		     table.rows);
	if (reader->format == READER_JSON) {
		json_bool(json, "incomplete", reader->is_incomplete);
		json_begin_object(json, "rest");
		for (unsigned i = 0; i < RESTS; i++) {
			json_begin_object(json, rest_keys[i]);
			json_uint(json, "waits", verb->rest[i].waits);
			json_uint(json, "total_ns", verb->rest[i].ns);
			json_end(json);
		}
		json_end(json);
	}
	reader_write_table(reader, json, &table);
	reader_end(reader, json);
}

/* ---- The verb -------------------------------------------------------------------------------- */

static const struct cli_option name_options[] = {
	{ "no-inline", 0, CLI_FLAG, offsetof(struct locks_verb, no_inline), NULL,
	  N_("Attribute inlined functions to their callers") },
	{ "full-names", 0, CLI_FLAG, offsetof(struct locks_verb, full_names), NULL,
	  N_("Do not shorten names") },
	{ NULL },
};
static const struct cli_option what_options[] = {
	{ "stacks", 0, CLI_FLAG, offsetof(struct locks_verb, wants_stacks), NULL,
	  N_("Also show the stacks of the longest wait of each row") },
	{ NULL },
};

static bool locks_query(void *data, char **operands, GError **error)
{
	struct locks_verb *verb = data;
	struct reader *reader = &verb->reader;

	if (!reader_open_wakers(reader, operands[0], error))
		return false;
	if (!stack_places_init(&verb->places, reader->capture->names, error))
		return false;
	verb->places.functions->inlined = !verb->no_inline;
	if (verb->full_names)
		reader->columns = 0;
	verb->locks = g_hash_table_new_full(lock_hash, lock_equal, g_free, NULL);
	verb->pairs = g_hash_table_new_full(pair_hash, pair_equal, pair_free, NULL);
	if (!names_each_batch(reader->capture->names,
			      NAMES_COLUMNS_OF(PROF_TABLE_WAIT, wait_columns), add_batch, verb,
			      error))
		return false;
	verb->all = keyed_sorted(verb->pairs, compare_pairs);
	reader->is_incomplete = reader_misses_rows(reader, "wait");
	return true;
}

static void locks_done(struct locks_verb *verb)
{
	g_clear_pointer(&verb->all, g_ptr_array_unref);
	g_clear_pointer(&verb->pairs, g_hash_table_unref);
	g_clear_pointer(&verb->locks, g_hash_table_unref);
	stack_places_done(&verb->places);
	reader_done(&verb->reader);
}

int verb_locks(int argc, char **argv)
{
	static const struct reader_verb verb = {
		.spec = { N_("FILE"),
			  N_("Show who waited for which lock and for how long, and who released it."),
			  1, 1 },
		.query = locks_query,
		.print = locks_print,
		.write = locks_write,
	};
	CLEANUP(locks_done)
	struct locks_verb locks = { .reader = READER_TEXT_ROWS(READER_USUAL_ROWS) };
	const struct cli_group groups[] = { { N_("Names"), name_options, &locks },
					    READER_SELECT(N_("Select"), &locks.reader),
					    { N_("Output"), what_options, &locks },
					    { NULL, reader_output_options, &locks.reader },
					    { NULL } };

	return reader_run(&verb, groups, &locks, argc, argv);
}
