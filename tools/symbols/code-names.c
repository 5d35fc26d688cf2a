/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * While the table is read, each process has a tree of its live names, which do not overlap.
 * Afterwards the names of each process are sorted by address, then time. A lookup walks down from
 * the last start at or before the address, until no earlier name reaches the address.
 * Invariants: (1) an address of a process has at most one name at a time
 *                 [test-code-names: overlaps, random]
 *             (2) the validity that a lookup returns is never too long  [test-code-names: random]
 *             (3) rows that move unnamed code or have no bytes are ignored
 *                 [test-code-names: nonsense]
 */
#include "config.h"

#include "tools/symbols/code-names.h"

#include "base/order.h"
#include "tools/common/sorted.h"

#define MAX_PARENTS 16

/* The names that begin at one address. */
struct place {
	uint64_t start;
	uint64_t reach; /* maximum end of the names of this and all previous places */
	guint first, n;
};

struct process_code {
	GArray *names;  /* struct code_name */
	GTree *live;    /* start → index in `names`; only while the table is read */
	GArray *places; /* struct place; filled after reading */
	GArray *times;  /* struct event */
	uint32_t segment;
};

struct event {
	uint32_t segment;
	uint64_t time_ns;
};

struct code_names {
	const struct names *names;
	GHashTable *processes; /* struct process_code by index of a process in `names` */
};

static struct code_name *name_at(const struct process_code *code, guint i)
{
	return &g_array_index(code->names, struct code_name, i);
}

/* ---- Live names ------------------------------------------------------------------------------ */

COMPARE_WITH(compare_addresses, uint64_t, ORDER(*a, *b))

static void end_name(struct process_code *code, const uint64_t *start, guint i, uint64_t time_ns)
{
	name_at(code, i)->to_ns = time_ns;
	g_tree_remove(code->live, start);
}

/* Ends the names that overlap [start, end). */
static void make_way(struct process_code *code, uint64_t start, uint64_t end, uint64_t time_ns)
{
	GTreeNode *node = g_tree_upper_bound(code->live, &start);

	node = node ? g_tree_node_previous(node) : g_tree_node_last(code->live);
	if (!node)
		node = g_tree_node_first(code->live);
	while (node) {
		guint i = GPOINTER_TO_UINT(g_tree_node_value(node));
		struct code_name *name = name_at(code, i);
		uint64_t at = name->start;

		if (at >= end)
			break;
		node = g_tree_node_next(node);
		if (name->end > start)
			end_name(code, &at, i, time_ns);
	}
}

static void load(struct process_code *code, const struct code_name *name)
{
	guint i = code->names->len;

	if (name->end <= name->start)
		return;
	make_way(code, name->start, name->end, name->from_ns);
	g_array_append_vals(code->names, name, 1);
	g_tree_insert(code->live, g_memdup2(&name->start, sizeof(name->start)),
		      GUINT_TO_POINTER(i));
}

/* Ends the name that starts at `start`, and returns it. Returns false if no name starts there. */
static bool take(struct process_code *code, uint64_t start, uint64_t time_ns,
		 struct code_name *ret_name)
{
	GTreeNode *node = g_tree_lookup_node(code->live, &start);
	guint i;

	if (!node)
		return false;
	i = GPOINTER_TO_UINT(g_tree_node_value(node));
	*ret_name = *name_at(code, i);
	end_name(code, &start, i, time_ns);
	return true;
}

static void move(struct process_code *code, uint64_t from, uint64_t to, uint64_t time_ns)
{
	struct code_name name;
	uint64_t size;

	if (!take(code, from, time_ns, &name))
		return;
	size = name.end - name.start;
	name.start = to;
	name.end = to + size;
	name.from_ns = time_ns;
	name.to_ns = UINT64_MAX;
	load(code, &name);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void free_code(gpointer data)
{
	struct process_code *code = data;

	g_array_unref(code->names);
	g_array_unref(code->places);
	g_array_unref(code->times);
	g_clear_pointer(&code->live, g_tree_unref);
	g_free(code);
}

static struct process_code *code_of(struct code_names *codes, uint32_t process)
{
	struct process_code *code =
		g_hash_table_lookup(codes->processes, GUINT_TO_POINTER(process));

	if (code)
		return code;
	code = g_new0(struct process_code, 1);
	code->names = g_array_new(FALSE, FALSE, sizeof(struct code_name));
	code->places = g_array_new(FALSE, FALSE, sizeof(struct place));
	code->times = g_array_new(FALSE, FALSE, sizeof(struct event));
	code->live = g_tree_new_full(compare_addresses, NULL, g_free, NULL);
	g_hash_table_insert(codes->processes, GUINT_TO_POINTER(process), code);
	return code;
}

static const uint16_t columns[] = { PROF_JIT_TIME,    PROF_JIT_PROCESS, PROF_JIT_EVENT,
				    PROF_JIT_ADDRESS, PROF_JIT_SIZE,    PROF_JIT_NAME,
				    PROF_JIT_FROM };
enum { TIME, PROCESS, EVENT, ADDRESS, SIZE, NAME, FROM };

static void add_row(struct code_names *codes, struct names_epoch *epoch,
		    const struct prof_batch *batch, size_t row)
{
	const struct prof_array *c = batch->columns;
	uint64_t address = array_number_or(&c[ADDRESS], row, 0), from;
	struct event event = { batch->segment, array_number_or(&c[TIME], row, 0) };
	const char *name = names_text(epoch, array_number_or(&c[NAME], row, 0));
	uint32_t process = names_process(epoch, array_number_or(&c[PROCESS], row, 0));
	struct process_code *code;
	struct code_name new = {
		.start = address,
		.end = address + array_number_or(&c[SIZE], row, 0),
		.from_ns = event.time_ns,
		.to_ns = UINT64_MAX,
		.segment = batch->segment,
		.process = process,
		.name = name ? name : "",
	};

	if (process <= NAMES_LOST)
		return;
	code = code_of(codes, process);
	/* No name outlives its segment. */
	if (code->segment != batch->segment)
		g_tree_remove_all(code->live);
	code->segment = batch->segment;
	g_array_append_val(code->times, event);
	switch (array_number_or(&c[EVENT], row, UINT64_MAX)) {
	case PROF_JIT_LOAD:
		load(code, &new);
		break;
	case PROF_JIT_MOVE:
		if (array_number(&c[FROM], row, &from))
			move(code, from, address, event.time_ns);
		break;
	case PROF_JIT_UNLOAD:
		(void)take(code, address, event.time_ns, &new);
		break;
	default:
		break;
	}
}

COMPARE_BY(compare_names, struct code_name, ORDER(a->start, b->start),
	   ORDER(a->segment, b->segment), ORDER(a->from_ns, b->from_ns), ORDER(a->to_ns, b->to_ns))

static void settle(struct process_code *code)
{
	uint64_t reach = 0;

	g_tree_unref(g_steal_pointer(&code->live));
	g_array_sort(code->names, compare_names);
	for (guint i = 0; i < code->names->len; i++) {
		const struct code_name *name = name_at(code, i);
		struct place place = { .start = name->start, .first = i };

		if (i == 0 || name_at(code, i - 1)->start != name->start)
			g_array_append_val(code->places, place);
		reach = MAX_OF(reach, name->end);
		g_array_index(code->places, struct place, code->places->len - 1).n++;
		g_array_index(code->places, struct place, code->places->len - 1).reach = reach;
	}
}

void code_names_free(struct code_names *codes)
{
	if (!codes)
		return;
	g_hash_table_unref(codes->processes);
	g_free(codes);
}

static bool add_rows(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		     GError **error)
{
	for (size_t i = 0; i < batch->rows; i++)
		add_row(data, epoch, batch, i);
	return true;
}

struct code_names *code_names_load(struct names *names, GError **error)
{
	struct code_names *codes = g_new0(struct code_names, 1);
	GHashTableIter iter;
	gpointer code;

	codes->names = names;
	codes->processes = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, free_code);
	if (!names_each_batch(names, NAMES_COLUMNS_OF(PROF_TABLE_JIT, columns), add_rows, codes,
			      error)) {
		code_names_free(codes);
		return NULL;
	}
	g_hash_table_iter_init(&iter, codes->processes);
	while (g_hash_table_iter_next(&iter, NULL, &code))
		settle(code);
	return codes;
}

/* ---- Lookups --------------------------------------------------------------------------------- */

bool code_names_any(const struct code_names *codes)
{
	return g_hash_table_size(codes->processes) > 0;
}

bool code_names_any_with(const struct code_names *codes, const char *prefix)
{
	GHashTableIter iter;
	gpointer code;

	g_hash_table_iter_init(&iter, codes->processes);
	while (g_hash_table_iter_next(&iter, NULL, &code))
		for (guint i = 0; i < ((struct process_code *)code)->names->len; i++)
			if (g_str_has_prefix(name_at(code, i)->name, prefix))
				return true;
	return false;
}

bool code_names_has(const struct code_names *codes, uint32_t process)
{
	return g_hash_table_contains(codes->processes, GUINT_TO_POINTER(process));
}

/* Returns the name that a place has at time_ns, or NULL. */
static struct code_name *find_in_place(const struct process_code *code, const struct place *place,
				       uint32_t segment, uint64_t time_ns)
{
	guint low = place->first, high = place->first + place->n;

	while (low < high) {
		guint middle = low + (high - low) / 2;
		const struct code_name *name = name_at(code, middle);

		if (name->segment < segment ||
		    (name->segment == segment && name->from_ns <= time_ns))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == place->first)
		return NULL;
	low--;
	return name_at(code, low)->segment == segment && time_ns < name_at(code, low)->to_ns
		       ? name_at(code, low)
		       : NULL;
}

static struct code_name *find_own(const struct process_code *code, uint64_t address,
				  uint32_t segment, uint64_t time_ns)
{
	for (guint low = sorted_array_upto(code->places, sizeof(struct place), address); low > 0;
	     low--) {
		const struct place *place = &g_array_index(code->places, struct place, low - 1);
		struct code_name *name;

		if (place->reach <= address)
			break;
		name = find_in_place(code, place, segment, time_ns);
		if (name && address < name->end)
			return name;
	}
	return NULL;
}

/* Returns the time of the next event that concerns the process's code. */
static uint64_t next_event(const struct process_code *code, uint32_t segment, uint64_t time_ns)
{
	guint low = 0, high = code->times->len;
	const struct event *event;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		event = &g_array_index(code->times, struct event, middle);
		if (event->segment < segment ||
		    (event->segment == segment && event->time_ns <= time_ns))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == code->times->len)
		return UINT64_MAX;
	event = &g_array_index(code->times, struct event, low);
	return event->segment == segment ? event->time_ns : UINT64_MAX;
}

/* Returns the parent of a forked process, if the parent has names of code; else NAMES_NONE. */
static uint32_t parent_of(const struct code_names *codes, uint32_t process)
{
	const struct names_process *child = names_process_at(codes->names, process), *best = NULL;
	uint32_t found = NAMES_NONE;
	GHashTableIter iter;
	gpointer key;

	if (child->exec_generation != 0)
		return NAMES_NONE;
	g_hash_table_iter_init(&iter, codes->processes);
	while (g_hash_table_iter_next(&iter, &key, NULL)) {
		uint32_t index = GPOINTER_TO_UINT(key);
		const struct names_process *at = names_process_at(codes->names, index);

		if (index == process || at->pid != child->ppid ||
		    at->start_time > child->start_time ||
		    (best && (at->start_time < best->start_time ||
			      (at->start_time == best->start_time &&
			       at->exec_generation < best->exec_generation))))
			continue;
		best = at;
		found = index;
	}
	return found;
}

struct code_name *code_names_find(const struct code_names *codes, uint32_t process,
				  uint64_t address, uint32_t segment, uint64_t time_ns,
				  uint64_t *ret_until)
{
	*ret_until = UINT64_MAX;
	for (unsigned i = 0; i < MAX_PARENTS && process > NAMES_LOST; i++) {
		const struct process_code *code =
			g_hash_table_lookup(codes->processes, GUINT_TO_POINTER(process));
		struct code_name *name = code ? find_own(code, address, segment, time_ns) : NULL;
		uint64_t start_ns = names_process_at(codes->names, process)->start_time;

		/* An ancestor's names are inherited at the fork, and then do not end. */
		if (name && i == 0)
			*ret_until = name->to_ns;
		else if (code && i == 0)
			*ret_until = next_event(code, segment, time_ns);
		if (name)
			return name;
		time_ns = MIN_OF(time_ns, start_ns);
		process = parent_of(codes, process);
	}
	return NULL;
}
