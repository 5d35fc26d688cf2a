/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/export.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/keyed.h"
#include "tools/common/sorted.h"
#include "tools/profcapture/export-allocations.h"

#include <math.h>
#include <string.h>

COMPARE_BY(compare_stacks, struct export_stack, ORDER(a->thread, b->thread),
	   a->name == b->name ? 0 : strcmp(a->name, b->name), ORDER(a->node, b->node))

static GArray *allocation_stacks(const struct export *export)
{
	const GArray *sums = export->allocations->sums;
	GArray *stacks = g_array_new(FALSE, FALSE, sizeof(struct export_stack));

	ARRAY_EACH(const struct allocation_sum, sum, sums) {
		const double values[] = {
			[EXPORT_ALLOC_OBJECTS] = sum->objects,
			[EXPORT_ALLOC_SPACE] = sum->bytes,
			[EXPORT_INUSE_OBJECTS] = sum->live_objects,
			[EXPORT_INUSE_SPACE] = sum->live_bytes,
		};
		long long value = llround(values[export->value]);
		struct export_stack stack = { .thread = sum->thread,
					      .node = sum->node,
					      .amount.weight = (uint64_t)value,
					      .name = export_thread_name(export, sum->thread) };

		if (value > 0)
			g_array_append_val(stacks, stack);
	}
	g_array_sort(stacks, compare_stacks);
	return stacks;
}

gint export_compare(gconstpointer left, gconstpointer right)
{
	const struct export_key *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

GArray *export_samples(const struct profile *profile)
{
	const GArray *each = profile->each;
	GArray *stacks = g_array_sized_new(FALSE, FALSE, sizeof(struct export_stack), each->len);

	ARRAY_EACH(const struct profile_sample, sample, each) {
		struct export_stack stack = { .time_ns = sample->time_ns,
					      .thread = sample->thread,
					      .node = sample->node,
					      .amount = { 1, sample->weight } };

		g_array_append_val(stacks, stack);
	}
	g_array_sort(stacks, export_compare);
	return stacks;
}

KEYED_BY(stack, struct export_stack, a->thread, a->node, (uintptr_t)a->name)

/* Returns one stack for each thread, name and node. Looks up each sample's stack, which is faster
 * than sorting all samples. */
static GArray *sample_stacks(const struct export *export)
{
	g_autoptr(GHashTable) known = g_hash_table_new_full(stack_hash, stack_equal, g_free, NULL);

	ARRAY_EACH(const struct profile_sample, sample, export->profile.each) {
		const char *name = reader_comm_at(&export->reader, sample->thread, sample->time_ns);
		const struct export_stack stack = {
			.thread = sample->thread,
			.node = sample->node,
			.name = name ? name : export_thread_name(export, sample->thread)
		};

		struct export_stack *at = keyed_at(known, &stack, sizeof(stack));

		amount_add(&at->amount, (struct amount){ 1, sample->weight });
	}
	return keyed_copies(known, sizeof(struct export_stack), compare_stacks);
}

GArray *export_stacks(const struct export *export)
{
	return export->value == EXPORT_SAMPLES ? sample_stacks(export) : allocation_stacks(export);
}

const void *export_of_thread(const GArray *all, uint32_t thread, size_t *ret_n)
{
	size_t size = all ? g_array_get_element_size((GArray *)all) : 0;
	size_t first = all ? sorted_below(all->data, all->len, size, thread) : 0;

	*ret_n = all ? sorted_upto(all->data, all->len, size, thread) - first : 0;
	return *ret_n > 0 ? all->data + first * size : NULL;
}

static gint compare_threads(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct names *names = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	const struct names_thread *one = names_thread_at(names, a),
				  *two = names_thread_at(names, b);

	return ORDER_BY(ORDER(names_process_at(names, one->process)->pid,
			      names_process_at(names, two->process)->pid),
			ORDER(one->process, two->process), ORDER(one->tid, two->tid), ORDER(a, b));
}

GArray *export_threads(const struct export *export, const GArray *items)
{
	const struct names *names = export->reader.capture->names;
	const size_t size = g_array_get_element_size((GArray *)items);
	GArray *threads = g_array_new(FALSE, FALSE, sizeof(uint32_t));

	for (guint i = 0; i < items->len; i++) {
		uint64_t key;
		uint32_t thread;

		memcpy(&key, items->data + i * size, sizeof(key));
		thread = (uint32_t)key;
		if (i == 0 || thread != g_array_index(threads, uint32_t, threads->len - 1))
			g_array_append_val(threads, thread);
	}
	g_array_sort_with_data(threads, compare_threads, (gpointer)names);
	return threads;
}

void export_path(const struct export *export, uint32_t node, GArray *path)
{
	const struct profile_node *nodes = (void *)export->profile.tree.nodes->data;
	guint depth = 0;

	for (uint32_t at = node; at != 0; at = nodes[at].parent)
		depth++;
	g_array_set_size(path, depth);
	for (uint32_t at = node; at != 0; at = nodes[at].parent)
		g_array_index(path, uint32_t, --depth) = nodes[at].entity;
}

void export_find_files(struct export *export)
{
	const struct functions *functions = export->profile.functions;
	guint n = functions->all->len;

	export->files = g_new0(const char *, n);
	for (guint i = 0; i < n; i++)
		if (!functions_at(functions, i)->whole)
			export->files[i] = functions_at(functions, i)->file;
	for (guint i = 0; i < n; i++) {
		const struct function *place = functions_at(functions, i);

		if (place->whole && !export->files[place->whole])
			export->files[place->whole] = place->file;
	}
}

uint32_t export_line(const struct export *export, uint32_t frame)
{
	const struct function *place = functions_at(export->profile.functions, frame);
	const char *file = export->files[export_function(export, frame)];

	return place->is_line && file && g_strcmp0(place->file, file) == 0 ? place->line : 0;
}

bool export_has_waits(const struct export *export)
{
	const uint64_t *ns = export->waits.stack_ns;
	uint64_t known = 0;

	for (size_t i = 0; i < PROF_STACK_SOURCES; i++)
		known += i == PROF_STACK_RACED || i == PROF_STACK_NONE ? 0 : ns[i];
	return known > 0;
}

bool export_is_time(const struct export *export)
{
	return export->profile.event && sampled_event_is_clock(export->profile.event);
}

const char *export_weight_name(const struct export *export)
{
	return export_counts_waits(export) ? reader_metrics[export->reader.metric]
					   : profile_event_name(&export->profile);
}

const char *export_sample_name(const struct export *export)
{
	return export->reader.metric == READER_OFF_CPU ? "waits" : "samples";
}

uint64_t export_value_of(const struct export *export, struct amount amount)
{
	return export->value != EXPORT_SAMPLES || profile_is_weighted(&export->profile)
		       ? amount.weight
		       : amount.samples;
}

const char *export_thread_name(const struct export *export, uint32_t thread)
{
	const struct names *names = export->reader.capture->names;
	const struct names_thread *at = names_thread_at(names, thread);
	const char *exe = names_process_at(names, at->process)->exe;

	if (at->comm)
		return at->comm;
	return exe ? exe : thread == NAMES_LOST ? NAMES_LOST_TEXT : "-";
}

char *export_title(const struct export *export)
{
	g_autofree char *command = capture_command(export->reader.capture, 0);

	return g_strdup(*command ? g_strchomp(command) : "profd");
}

void export_strings_init(struct export_strings *strings)
{
	strings->all = g_ptr_array_new_with_free_func(g_free);
	strings->index = g_hash_table_new(g_str_hash, g_str_equal);
}

void export_strings_done(struct export_strings *strings)
{
	g_hash_table_unref(strings->index);
	g_ptr_array_unref(strings->all);
}

uint32_t export_string(struct export_strings *strings, const char *text)
{
	gpointer index;

	if (!g_hash_table_lookup_extended(strings->index, text ? text : "", NULL, &index)) {
		char *copy = g_strdup(text ? text : "");

		index = GUINT_TO_POINTER(strings->all->len);
		g_ptr_array_add(strings->all, copy);
		g_hash_table_insert(strings->index, copy, index);
	}
	return GPOINTER_TO_UINT(index);
}
