/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Spans - the marks of a capture, with begin marks and end marks paired
 *
 * Begin marks that have no end yet are in chains, the newest first. Marks with an id have one chain
 * for each process and id; marks without an id have one for each thread, group and name.
 *
 * Invariants: (1) each row is reported once; a begin mark and its end mark are one span
 *                 [test-spans: every row]
 *             (2) the work for each row is bounded, whatever ids and names a file has: an end mark
 *                 looks at no more than MOST_LOOKED_AT begin marks [test-spans: same id]
 *             (3) a mark whose thread or process is unknown is not paired  [test-spans: lost]
 *             (4) spans that are open at the end are reported in the order of their begin marks
 *                 [test-spans: order of open spans]
 */
#include "config.h"

#include "tools/common/keyed.h"
#include "tools/profcapture/spans.h"

#include "base/each.h"
#include "base/order.h"

/* An end mark is compared with at most this many begin marks, because one id may be open with many
 * names. */
#define MOST_LOOKED_AT 64

enum { TIME, THREAD, KIND, ID, GROUP, NAME, DURATION, N_COLUMNS };
static const uint16_t mark_columns[N_COLUMNS] = {
	PROF_MARK_TIME,  PROF_MARK_THREAD, PROF_MARK_KIND,     PROF_MARK_ID,
	PROF_MARK_GROUP, PROF_MARK_NAME,   PROF_MARK_DURATION,
};

struct begin {
	struct begin *below;
	uint64_t number; /* number of earlier begin marks */
	struct span mark;
};

struct chain_key {
	uint64_t id;
	const char *group, *name; /* identify the chain if id is 0 */
	uint32_t owner;           /* process, or thread if id is 0 */
};

struct chain {
	struct chain_key key;
	struct begin *top;
};

struct pairing {
	const struct capture *capture;
	void (*found)(const struct span *span, void *data);
	void *data;
	GHashTable *chains; /* set of struct chain */
	uint64_t n_begins;
	uint32_t segment;
};

/* ---- chains ---------------------------------------------------------------------------------- */

KEYED_BY(chain, struct chain_key, a->id, a->owner, (uintptr_t)a->group, (uintptr_t)a->name)

static void chain_free(gpointer pointer)
{
	struct chain *chain = pointer;

	g_slice_free_chain(struct begin, chain->top, below);
	g_slice_free(struct chain, chain);
}

/* Removes and returns the newest begin mark with this group and name (`name` NULL: any mark).
 * Returns NULL if none of the newest MOST_LOOKED_AT marks matches. */
static struct begin *chain_take(struct chain *chain, const char *group, const char *name)
{
	struct begin **at = &chain->top, *begin;

	for (unsigned n = 0; (begin = *at) && n < MOST_LOOKED_AT; n++, at = &begin->below) {
		if (name && (begin->mark.name != name || begin->mark.group != group))
			continue;
		*at = begin->below;
		return begin;
	}
	return NULL;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns false if the thread or process of the mark is unknown. */
static bool key_of(const struct pairing *pairing, uint64_t id, const struct span *mark,
		   struct chain_key *ret_key)
{
	const struct names *names = pairing->capture->names;

	if (id)
		*ret_key = (struct chain_key){
			.id = id, .owner = names_thread_at(names, mark->thread)->process
		};
	else
		*ret_key = (struct chain_key){ .owner = mark->thread,
					       .group = mark->group,
					       .name = mark->name };
	return ret_key->owner > NAMES_LOST;
}

static void hand_out(const struct pairing *pairing, struct span mark, enum span_kind kind)
{
	mark.kind = kind;
	pairing->found(&mark, pairing->data);
}

static void add_begin(struct pairing *pairing, uint64_t id, const struct span *mark)
{
	struct chain_key key;
	struct chain *chain;
	struct begin *begin;

	if (!key_of(pairing, id, mark, &key)) {
		hand_out(pairing, *mark, SPAN_NO_END);
		return;
	}
	chain = g_hash_table_lookup(pairing->chains, &key);
	if (!chain) {
		chain = g_slice_new(struct chain);
		*chain = (struct chain){ .key = key };
		g_hash_table_add(pairing->chains, chain);
	}
	begin = g_slice_new(struct begin);
	*begin = (struct begin){ chain->top, pairing->n_begins++, *mark };
	chain->top = begin;
}

static void add_end(struct pairing *pairing, uint64_t id, const struct span *mark)
{
	struct chain_key key;
	struct chain *chain = NULL;
	struct begin *begin = NULL;
	struct span span;

	if (key_of(pairing, id, mark, &key))
		chain = g_hash_table_lookup(pairing->chains, &key);
	if (chain)
		begin = chain_take(chain, mark->group, mark->name);
	if (!begin) {
		hand_out(pairing, *mark, SPAN_NO_BEGIN);
		return;
	}
	span = begin->mark;
	/* An end before the start is damage. */
	span.end_ns = MAX_OF(mark->end_ns, span.start_ns);
	g_slice_free(struct begin, begin);
	/* Keep empty chains of names, because names recur; ids do not. */
	if (id && !chain->top)
		g_hash_table_remove(pairing->chains, chain);
	hand_out(pairing, span, SPAN_WHOLE);
}

static void add_row(struct pairing *pairing, struct names_epoch *epoch,
		    const struct prof_batch *batch, size_t row)
{
	const struct prof_array *c = batch->columns;
	uint64_t id = array_number_or(&c[ID], row, 0);
	struct span mark = {
		.thread = names_thread(epoch, array_number_or(&c[THREAD], row, 0)),
		.group = names_text(epoch, array_number_or(&c[GROUP], row, 0)),
		.name = names_text(epoch, array_number_or(&c[NAME], row, 0)),
		.start_ns = capture_time(pairing->capture, batch->segment,
					 array_number_or(&c[TIME], row, 0)),
	};

	mark.end_ns = mark.start_ns;
	switch (array_number_or(&c[KIND], row, PROF_MARK_INSTANT)) {
	case PROF_MARK_BEGIN:
		add_begin(pairing, id, &mark);
		break;
	case PROF_MARK_END:
		add_end(pairing, id, &mark);
		break;
	case PROF_MARK_COMPLETE:
		if (__builtin_sub_overflow(mark.end_ns, array_number_or(&c[DURATION], row, 0),
					   &mark.start_ns))
			mark.start_ns = INT64_MIN;
		hand_out(pairing, mark, SPAN_WHOLE);
		break;
	default:
		hand_out(pairing, mark, SPAN_INSTANT);
	}
}

COMPARE_AT(compare_begins, struct begin, ORDER(a->number, b->number))

/* Reports the spans that are open at the end of a segment, in the order in which they began. Their
 * ends may be lost in the gap before the next segment. */
static void end_segment(struct pairing *pairing)
{
	g_autoptr(GPtrArray) open = g_ptr_array_new();
	GHashTableIter iter;
	gpointer pointer;

	g_hash_table_iter_init(&iter, pairing->chains);
	while (g_hash_table_iter_next(&iter, &pointer, NULL)) {
		const struct chain *chain = pointer;

		for (struct begin *begin = chain->top; begin; begin = begin->below)
			g_ptr_array_add(open, begin);
	}
	g_ptr_array_sort(open, compare_begins);
	POINTER_EACH(const struct begin, begin, open)
		hand_out(pairing, begin->mark, SPAN_NO_END);
	g_hash_table_remove_all(pairing->chains);
}

static bool add_batch(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		      GError **error)
{
	struct pairing *pairing = data;

	if (batch->segment != pairing->segment)
		end_segment(pairing);
	pairing->segment = batch->segment;
	for (size_t i = 0; i < batch->rows; i++)
		add_row(pairing, epoch, batch, i);
	return true;
}

bool spans_read(const struct capture *capture, void (*found)(const struct span *span, void *data),
		void *data, GError **error)
{
	struct pairing pairing = { .capture = capture, .found = found, .data = data };
	bool ok;

	pairing.chains = g_hash_table_new_full(chain_hash, chain_equal, chain_free, NULL);
	ok = names_each_batch(capture->names, NAMES_COLUMNS_OF(PROF_TABLE_MARK, mark_columns),
			      add_batch, &pairing, error);
	if (ok)
		end_segment(&pairing);
	g_hash_table_unref(pairing.chains);
	return ok;
}
