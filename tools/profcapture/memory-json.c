/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-json - the answer as JSON, ndjson and CSV
 *
 * Values that a view does not compute are null. For example, --leaks alone does not read every row
 * of the capture.
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#include <math.h>

static void write_number(struct json *json, const char *key, bool known, double number)
{
	if (known)
		json_uint(json, key, memory_integer(number));
	else
		json_null(json, key);
}

static void write_calls(struct json *json, const struct memory_counts *counts)
{
	json_begin_object(json, "calls");
	for (unsigned i = 0; i < MEMORY_CALLS; i++)
		if (memory_call_names[i])
			json_uint(json, memory_call_names[i], memory_integer(counts->calls[i]));
	json_end(json);
}

/* Writes the members of MEM. */
static void write_counts(struct json *json, const struct memory_counts *counts, unsigned has,
			 uint64_t lost)
{
	bool calls = has & MEMORY_HAS_CALLS, live = has & MEMORY_HAS_LIVE,
	     leaked = has & MEMORY_HAS_LEAKED;

	if (calls)
		write_calls(json, counts);
	else
		json_null(json, "calls");
	write_number(json, "failed", calls, counts->failed);
	write_number(json, "foreign_frees", calls, counts->foreign);
	write_number(json, "allocations", calls, counts->allocations);
	write_number(json, "allocated_bytes", calls, counts->allocated_bytes);
	write_number(json, "freed_bytes", calls, counts->freed_bytes);
	write_number(json, "peak_bytes", has & MEMORY_HAS_PEAK, counts->peak_bytes);
	if ((has & MEMORY_HAS_PEAK) && counts->has_peak_time)
		json_int(json, "peak_ns", counts->peak_ns);
	else
		json_null(json, "peak_ns");
	write_number(json, "live_bytes", live, counts->live_bytes);
	write_number(json, "live_blocks", live, counts->live_blocks);
	write_number(json, "leaked_bytes", leaked, counts->leaked_bytes);
	write_number(json, "leaked_blocks", leaked, counts->leaked_blocks);
	write_number(json, "temporary", has & MEMORY_HAS_TEMPORARY, counts->temporary);
	if (has & MEMORY_HAS_LOST)
		json_uint(json, "lost", lost);
	else
		json_null(json, "lost");
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Stores a view's sums in the members of MEM. */
static void set_sum(const struct memory *memory, struct memory_counts *counts,
		    const struct memory_sum *sum)
{
	switch (memory->view) {
	case MEMORY_LEAKS:
		counts->leaked_bytes = sum->bytes;
		counts->leaked_blocks = sum->blocks;
		break;
	case MEMORY_PEAK:
		counts->peak_bytes = sum->bytes;
		counts->live_bytes = sum->bytes;
		counts->live_blocks = sum->blocks;
		break;
	case MEMORY_AT:
	case MEMORY_DIFF:
		counts->live_bytes = sum->bytes;
		counts->live_blocks = sum->blocks;
		break;
	case MEMORY_TEMPORARY:
		counts->temporary = sum->blocks;
		break;
	default:
		counts->allocated_bytes = sum->bytes;
		counts->allocations = sum->blocks;
	}
}

static void write_sums(const struct memory *memory, struct json *json,
		       const struct memory_line *line)
{
	json_int(json, "total_bytes", (int64_t)memory_integer(line->total.bytes));
	json_int(json, "total_blocks", (int64_t)memory_integer(line->total.blocks));
	if (memory->view == MEMORY_TEMPORARY || memory->view == MEMORY_REALLOCS)
		json_uint(json, "self_bytes", memory_integer(line->self.bytes));
	if (memory->view != MEMORY_DIFF)
		return;
	json_uint(json, "before_bytes", memory_integer(line->before.bytes));
	json_uint(json, "before_blocks", memory_integer(line->before.blocks));
	json_int(json, "delta_bytes", llround(line->self.bytes - line->before.bytes));
	json_int(json, "delta_blocks", llround(line->self.blocks - line->before.blocks));
}

static void write_reallocs(const struct memory *memory, struct json *json,
			   const struct memory_counts *counts)
{
	json_uint(json, "reallocs", memory_integer(counts->reallocs));
	write_number(json, "longest_chain", memory->sampled_bytes <= 0, counts->longest_chain);
	json_uint(json, "grown_bytes", memory_integer(counts->grown_bytes));
	json_uint(json, "copied_bytes", memory_integer(counts->copied_bytes));
}

static void write_id(struct json *json, const char *key, bool known, uint64_t id)
{
	if (known)
		json_uint(json, key, id);
	else
		json_null(json, key);
}

static void write_thread(const struct memory *memory, struct json *json, uint32_t index)
{
	const struct names *names = memory->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, index);

	write_id(json, "pid", thread->process > NAMES_LOST,
		 names_process_at(names, thread->process)->pid);
	write_id(json, "tid", index > NAMES_LOST, thread->tid);
	json_string(json, "comm", thread->comm);
}

static void write_pair(const struct memory *memory, struct json *json, uint32_t entity)
{
	const struct names *names = memory->reader.capture->names;
	const struct memory_pair *pair = &g_array_index(memory->pairs, struct memory_pair, entity);
	const struct names_thread *allocator = names_thread_at(names, pair->allocator);
	const struct names_thread *freer = names_thread_at(names, pair->freer);

	write_id(json, "pid", freer->process > NAMES_LOST,
		 names_process_at(names, freer->process)->pid);
	write_id(json, "alloc_tid", pair->allocator > NAMES_LOST, allocator->tid);
	json_string(json, "alloc_comm", allocator->comm);
	write_id(json, "free_tid", pair->freer > NAMES_LOST, freer->tid);
	json_string(json, "free_comm", freer->comm);
}

static void write_range(struct json *json, const char *from_key, const char *to_key, uint64_t from,
			uint64_t to)
{
	json_uint(json, from_key, from);
	/* Some JSON readers use signed integers, so larger numbers are not exact. */
	if (to < UINT64_MAX / 2)
		json_uint(json, to_key, to);
	else
		json_null(json, to_key);
}

static void write_entity(const struct memory *memory, struct json *json,
			 const struct memory_line *line)
{
	uint64_t from, to;

	switch (memory->view) {
	case MEMORY_SIZES:
		memory_size_range(line->entity, &from, &to);
		write_range(json, "size_from", "size_to", from, to);
		break;
	case MEMORY_LIFETIMES:
		memory_lifetime_range(MIN_OF(line->entity, MEMORY_NEVER_FREED - 1), &from, &to);
		if (line->entity == MEMORY_NEVER_FREED) {
			json_null(json, "lifetime_from_ns");
			json_null(json, "lifetime_to_ns");
		} else {
			write_range(json, "lifetime_from_ns", "lifetime_to_ns", from, to);
		}
		break;
	case MEMORY_THREADS:
		write_thread(memory, json, line->entity);
		break;
	case MEMORY_CROSS_THREAD:
		write_pair(memory, json, line->entity);
		break;
	default:
		functions_write(memory->tree.functions, line->entity, json);
	}
}

static void write_line(const struct memory *memory, struct json *json,
		       const struct memory_line *line)
{
	struct memory_counts counts = { 0 };

	if (line->counts)
		counts = *line->counts;
	if (memory->view == MEMORY_LEAKS || memory->view == MEMORY_PEAK ||
	    memory->view == MEMORY_AT || memory->view == MEMORY_DIFF)
		set_sum(memory, &counts, &line->self);
	if (memory->has_rows & MEMORY_HAS_PEAK) {
		counts.peak_ns = memory->all.peak_ns;
		counts.has_peak_time = memory->all.has_peak_time;
	}
	write_entity(memory, json, line);
	write_counts(json, &counts, memory->has_rows, 0);
	if (memory_by_function(memory))
		write_sums(memory, json, line);
	if (memory->view == MEMORY_REALLOCS)
		write_reallocs(memory, json, &counts);
}

#define MEM_COLUMNS                                                                          \
	"calls", "failed", "foreign_frees", "allocations", "allocated_bytes", "freed_bytes", \
		"peak_bytes", "peak_ns", "live_bytes", "live_blocks", "leaked_bytes",        \
		"leaked_blocks", "temporary", "lost"
#define FN_COLUMNS "name", "raw_name", "image", "build_id", "offset", "kind", "file", "line"

static const char *const *columns_of(const struct memory *memory)
{
	static const char *const functions[] = { FN_COLUMNS, MEM_COLUMNS, "total_bytes",
						 "total_blocks", NULL };
	static const char *const temporary[] = { FN_COLUMNS,     MEM_COLUMNS,  "total_bytes",
						 "total_blocks", "self_bytes", NULL };
	static const char *const diff[] = { FN_COLUMNS,     MEM_COLUMNS,    "total_bytes",
					    "total_blocks", "before_bytes", "before_blocks",
					    "delta_bytes",  "delta_blocks", NULL };
	static const char *const reallocs[] = {
		FN_COLUMNS, MEM_COLUMNS,     "total_bytes", "total_blocks", "self_bytes",
		"reallocs", "longest_chain", "grown_bytes", "copied_bytes", NULL
	};
	static const char *const sizes[] = { "size_from", "size_to", MEM_COLUMNS, NULL };
	static const char *const lifetimes[] = { "lifetime_from_ns", "lifetime_to_ns", MEM_COLUMNS,
						 NULL };
	static const char *const threads[] = { "pid", "tid", "comm", MEM_COLUMNS, NULL };
	static const char *const pairs[] = { "pid",       "alloc_tid", "alloc_comm", "free_tid",
					     "free_comm", MEM_COLUMNS, NULL };
	static const char *const *const all[MEMORY_VIEWS] = {
		[MEMORY_TEMPORARY] = temporary, [MEMORY_DIFF] = diff,
		[MEMORY_SIZES] = sizes,         [MEMORY_LIFETIMES] = lifetimes,
		[MEMORY_THREADS] = threads,     [MEMORY_CROSS_THREAD] = pairs,
		[MEMORY_REALLOCS] = reallocs,
	};

	return all[memory->view] ? all[memory->view] : functions;
}

static void write_lines(struct memory *memory)
{
	struct json *json = &memory->json;

	rows_open(json, reader_json_format(&memory->reader), columns_of(memory));
	for (guint i = 0; i < memory_shown(memory); i++) {
		rows_begin(json);
		write_line(memory, json, &g_array_index(memory->lines, struct memory_line, i));
		rows_end(json);
	}
	rows_close(json);
}

/* ---- the tree -------------------------------------------------------------------------------- */

void memory_write_node(struct memory *memory, struct json *json, uint32_t function, bool is_root,
		       const struct memory_sum *self, const struct memory_sum *total,
		       const struct memory_sum *before)
{
	struct memory_counts counts = { 0 };
	bool by_calls = memory->view == MEMORY_SUMMARY || memory->view == MEMORY_TEMPORARY ||
			memory->view == MEMORY_REALLOCS || memory->view == MEMORY_CROSS_THREAD;
	unsigned has = by_calls ? 0
				: memory->has_rows &
					  ~(unsigned)(MEMORY_HAS_CALLS | MEMORY_HAS_TEMPORARY);

	if (is_root) {
		json_string(json, "name", "<root>");
		json_string(json, "raw_name", "<root>");
		json_null(json, "image");
		json_null(json, "build_id");
		json_null(json, "offset");
		json_string(json, "kind", "unresolved");
		json_null(json, "file");
		json_null(json, "line");
	} else {
		functions_write(memory->tree.functions, function, json);
	}
	set_sum(memory, &counts, total);
	counts.peak_ns = memory->all.peak_ns;
	counts.has_peak_time = memory->all.has_peak_time;
	write_counts(json, &counts, has, 0);
	json_uint(json, "self_bytes", memory_integer(self->bytes));
	json_uint(json, "self_blocks", memory_integer(self->blocks));
	json_uint(json, "total_bytes", memory_integer(total->bytes));
	json_uint(json, "total_blocks", memory_integer(total->blocks));
	if (memory->view == MEMORY_DIFF) {
		json_uint(json, "before_bytes", memory_integer(before->bytes));
		json_uint(json, "before_blocks", memory_integer(before->blocks));
		json_int(json, "delta_bytes", llround(total->bytes - before->bytes));
		json_int(json, "delta_blocks", llround(total->blocks - before->blocks));
	}
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Returns NULL if the heap is not excluded. Reasons added by later versions count as unknown. */
static const char *excluded_name(uint32_t event)
{
	static const char *const names[PROF_HEAP_EVENTS] = {
		[PROF_HEAP_STATIC] = "static",
		[PROF_HEAP_SETUID] = "setuid",
		[PROF_HEAP_OTHER_ARCH] = "other-arch",
		[PROF_HEAP_UNREGISTERED] = "unregistered",
		[PROF_HEAP_OTHER_LIBC] = "other-libc",
		[PROF_HEAP_ENVIRONMENT] = "environment",
		[PROF_HEAP_NO_DESCRIPTORS] = "no-descriptors",
		[PROF_HEAP_NO_MEMORY] = "no-memory",
		[PROF_HEAP_SANITIZER] = "sanitizer",
		[PROF_HEAP_NEVER_ALLOCATED] = "never-allocated",
	};

	return event < PROF_HEAP_EVENTS ? names[event] : names[PROF_HEAP_UNREGISTERED];
}

/* Runs once for all processes, because even a small file may list very many. */
void memory_describe(struct memory *memory)
{
	const struct names *names = memory->reader.capture->names;
	struct memory_about *all;

	g_array_set_size(memory->about, names->processes->len);
	all = (struct memory_about *)(void *)memory->about->data;
	for (uint32_t i = 0; i < memory->heaps.heaps->len; i++) {
		const struct memory_heap *heap = memory_heap_at(&memory->heaps, i);
		struct memory_about *about = &all[heap->process];

		about->has_heap |= heap->last != 0;
		about->excluded = about->has_heap ? NULL : excluded_name(heap->excluded);
	}
	for (guint i = NAMES_LOST + 1; i < names->threads->len; i++) {
		const struct names_thread *thread = names_thread_at(names, i);
		struct memory_about *about = &all[thread->process];

		if (!about->comm || thread->tid == names_process_at(names, thread->process)->pid)
			about->comm = thread->comm;
	}
	all[NAMES_LOST].comm = NAMES_LOST_TEXT;
}

static struct memory_about about_of(const struct memory *memory, uint32_t process)
{
	return process < memory->about->len
		       ? g_array_index(memory->about, struct memory_about, process)
		       : (struct memory_about){ 0 };
}

const char *memory_excluded(const struct memory *memory, uint32_t process)
{
	return about_of(memory, process).excluded;
}

const char *memory_comm(const struct memory *memory, uint32_t process)
{
	return about_of(memory, process).comm;
}

uint64_t memory_lost_of(const struct memory *memory, uint32_t process)
{
	static const char *const tables[] = { "alloc", "free", "heap", "live", NULL };
	const struct reader reader = memory_loss_reader(memory);
	g_autofree char *stream =
		g_strdup_printf("collector/%" G_GUINT64_FORMAT,
				names_process_at(memory->reader.capture->names, process)->pid);

	return reader_lost_rows(&reader, tables, stream);
}

static void write_process(struct memory *memory, uint32_t process)
{
	const struct names *names = memory->reader.capture->names;
	const struct names_process *of = names_process_at(names, process);
	struct json *json = &memory->json;
	bool known = process > NAMES_LOST;

	json_begin_object(json, NULL);
	write_id(json, "pid", known, of->pid);
	write_id(json, "ppid", known && of->ppid, of->ppid);
	json_string(json, "comm", memory_comm(memory, process));
	json_string(json, "end", memory_end_names[memory_heaps_end(&memory->heaps, process)]);
	json_string(json, "excluded", memory_excluded(memory, process));
	write_counts(json, &g_array_index(memory->processes, struct memory_counts, process),
		     memory->has_processes, memory_lost_of(memory, process));
	json_end(json);
}

static void write_processes(struct memory *memory)
{
	json_begin_array(&memory->json, "processes");
	for (uint32_t i = 0; i < memory->processes->len; i++)
		if (g_array_index(memory->processes, struct memory_counts, i).is_there)
			write_process(memory, i);
	json_end(&memory->json);
}

static void write_suppressed(struct memory *memory)
{
	struct json *json = &memory->json;
	const GArray *all = memory->suppressions.all;

	json_begin_array(json, "suppressed");
	for (guint i = 0; all && i < all->len; i++) {
		const struct suppression *suppression = &g_array_index(all, struct suppression, i);

		json_begin_object(json, NULL);
		json_string(json, "pattern", suppression->pattern);
		json_uint(json, "bytes", memory_integer(suppression->bytes));
		json_uint(json, "blocks", memory_integer(suppression->blocks));
		json_end(json);
	}
	json_end(json);
}

static void write_head(struct memory *memory)
{
	struct json *json = &memory->json;

	json_string(json, "view", memory_view_names[memory->view]);
	json_bool(json, "incomplete", memory->is_incomplete);
	write_number(json, "sampled_bytes", memory->sampled_bytes > 0, memory->sampled_bytes);
	if (memory->view == MEMORY_AT || memory->view == MEMORY_DIFF)
		json_int(json, "at_ns", memory->at_ns);
	if (memory->view == MEMORY_DIFF)
		json_int(json, "before_ns", memory->before_ns);
	json_begin_object(json, "summary");
	write_counts(json, &memory->all, memory->has_all, memory->lost);
	json_end(json);
	write_processes(memory);
	memory_write_warnings(memory, json);
	if (memory->suppressions.all)
		write_suppressed(memory);
}

void memory_write(struct memory *memory)
{
	bool truncated = memory->is_tree ? memory_tree_is_cut(memory)
					 : memory_shown(memory) < memory->lines->len;

	reader_begin(&memory->reader, &memory->json, "memory", truncated);
	if (memory->reader.format == READER_JSON)
		write_head(memory);
	if (memory->is_tree)
		memory_write_tree(memory, &memory->json);
	else
		write_lines(memory);
	reader_end(&memory->reader, &memory->json);
}
