/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-text - the answer as text
 *
 * If records were lost, the first line says how many and which numbers are wrong because of it.
 */
#include "config.h"

#include "tools/profcapture/memory.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

static char *count_text(double count)
{
	return text_count(memory_integer(count));
}

static char *bytes_text(double bytes)
{
	return text_bytes(memory_integer(bytes));
}

static char *signed_text(double value, bool is_bytes)
{
	g_autofree char *text = is_bytes ? bytes_text(fabs(value)) : count_text(fabs(value));

	return g_strconcat(fabs(value) < 0.5 ? "" : value < 0 ? "-" : "+", text, NULL);
}

static void print_bytes(struct out *out, double bytes)
{
	g_autofree char *text = bytes_text(bytes);

	out_printf(out, "%11s ", text);
}

static void print_count(struct out *out, double count)
{
	g_autofree char *text = count_text(count);

	out_printf(out, "%12s ", text);
}

static void print_title(struct out *out, const char *title, int width)
{
	text_cell(out, title, (unsigned)width, TEXT_RIGHT);
	out_char(out, ' ');
}

static double seconds(int64_t ns)
{
	return (double)ns / 1e9;
}

/* ---- head ------------------------------------------------------------------------------------ */

static void print_loss(const struct memory *memory, struct out *out)
{
	g_autofree char *lost = text_count(memory->lost);

	if (!memory->is_incomplete)
		return;
	reader_style(&memory->reader, out, READER_WARNING);
	if (memory->lost == 0)
		out_text(out, _("A part of the capture cannot be read: "));
	else
		out_printf(out,
			   ngettext("%s record was lost: ", "%s records were lost: ", memory->lost),
			   lost);
	switch (memory->view) {
	case MEMORY_LEAKS:
		out_text(out, _("as many blocks may be shown as leaked that were freed, or be "
				"missing\n"));
		break;
	case MEMORY_PEAK:
	case MEMORY_AT:
	case MEMORY_DIFF:
		out_text(out, _("as many blocks may be shown that were freed, or be missing\n"));
		break;
	default:
		out_text(out, _("calls and bytes are too low by these; as many blocks may be shown "
				"as leaked that were freed, or be missing, and the peak may be "
				"wrong by them\n"));
	}
	reader_style(&memory->reader, out, READER_PLAIN);
}

static void print_sampling(const struct memory *memory, struct out *out)
{
	bool by_all;
	uint64_t least = memory_most_setting(memory->reader.capture, MEMORY_MIN_BYTES, &by_all);
	g_autofree char *bytes = bytes_text(memory->sampled_bytes);

	if (memory->sampled_bytes > 0)
		out_printf(
			out,
			memory->is_sampled_alike
				? _("Sampled, one allocation in about %s: numbers are estimates\n")
				: _("Sampled, by some of the recordings in it one allocation in about %s: numbers are estimates\n"),
			bytes);
	if (least)
		out_printf(out,
			   by_all ? _("Allocations below %" PRIu64 " bytes were not recorded\n")
				  : _("Allocations below %" PRIu64
				      " bytes were not recorded by some of the recordings in it\n"),
			   least);
}

static void print_command(const struct memory *memory, struct out *out)
{
	if (!g_hash_table_contains(memory->reader.capture->metadata, "command"))
		return;
	out_text(out, _("Command:    "));
	capture_print_command(memory->reader.capture, out);
	out_char(out, '\n');
}

static void print_calls(const struct memory_counts *counts, struct out *out)
{
	bool first = true;

	out_text(out, _("Calls:      "));
	for (unsigned i = 0; i < MEMORY_CALLS; i++) {
		g_autofree char *count = count_text(counts->calls[i]);

		if (!memory_call_names[i] || counts->calls[i] <= 0)
			continue;
		out_printf(out, "%s%s %s", first ? "" : ", ", count,
			   i == MEMORY_CALL_FREE_NULL ? _("free(NULL)") : memory_call_names[i]);
		first = false;
	}
	if (first)
		out_text(out, _("none"));
	if (counts->failed > 0) {
		g_autofree char *failed = count_text(counts->failed);

		out_printf(out, _("; %s failed"), failed);
	}
	if (counts->foreign > 0) {
		g_autofree char *foreign = count_text(counts->foreign);

		out_printf(out, _("; %s frees of what was allocated elsewhere"), foreign);
	}
	out_char(out, '\n');
}

static char *blocks_text(double blocks)
{
	g_autofree char *count = count_text(blocks);
	uint64_t n = memory_integer(blocks);

	/* TRANSLATORS: follows "in" */
	return g_strdup_printf(ngettext("%s block", "%s blocks", (unsigned long)n), count);
}

static void print_amount(struct out *out, const char *title, double bytes, double blocks)
{
	g_autofree char *amount = bytes_text(bytes), *of = blocks_text(blocks);

	out_printf(out, _("%s %s in %s"), title, amount, of);
}

static void print_leaked(const struct memory *memory, struct out *out)
{
	const GArray *suppressions = memory->suppressions.all;
	double bytes = 0, blocks = 0;

	print_amount(out, _("Leaked:    "), memory->all.leaked_bytes, memory->all.leaked_blocks);
	for (guint i = 0; suppressions && i < suppressions->len; i++) {
		bytes += g_array_index(suppressions, struct suppression, i).bytes;
		blocks += g_array_index(suppressions, struct suppression, i).blocks;
	}
	if (suppressions) {
		g_autofree char *amount = bytes_text(bytes), *of = blocks_text(blocks);

		out_printf(out, _("; suppressed: %s in %s"), amount, of);
	}
	out_char(out, '\n');
}

static void print_running(const struct memory *memory, struct out *out)
{
	unsigned running = 0;

	for (uint32_t i = NAMES_LOST + 1; i < memory->processes->len; i++) {
		const struct memory_counts *process =
			&g_array_index(memory->processes, struct memory_counts, i);

		running += process->is_there && process->leaked_blocks > 0 &&
			   memory_heaps_end(&memory->heaps, i) == MEMORY_RUNNING;
	}
	if (running)
		out_printf(out,
			   ngettext("%u process still ran when the recording ended: what it "
				    "had then counts as leaked\n",
				    "%u processes still ran when the recording ended: what "
				    "they had then counts as leaked\n",
				    running),
			   running);
}

static void print_temporary(const struct memory *memory, struct out *out)
{
	const struct memory_counts *all = &memory->all;
	g_autofree char *count = count_text(all->temporary), *of = count_text(all->allocations);

	if (!memory_knows_temporary(memory)) {
		out_text(out, _("Temporary:  not known of a sampled recording; --within says what "
				"was freed within a time\n"));
		return;
	}
	out_printf(out, _("Temporary:  %s of %s blocks (%.1f %%)"), count, of,
		   all->allocations > 0 ? 100 * all->temporary / all->allocations : 0);
	if (memory->within_ns != UINT64_MAX) {
		g_autofree char *within = text_duration(memory->within_ns);

		out_printf(out, _(", freed within %s\n"), within);
	} else {
		out_printf(out,
			   ngettext(", freed by their thread at most %" PRIu64
				    " other allocation later\n",
				    ", freed by their thread at most %" PRIu64
				    " other allocations later\n",
				    (unsigned long)memory->threshold),
			   memory->threshold);
	}
}

static void print_peak(const struct memory *memory, struct out *out)
{
	g_autofree char *bytes = bytes_text(memory->all.peak_bytes);

	out_printf(out, _("Peak:       %s"), bytes);
	if (memory->all.has_peak_time)
		out_printf(out, _(", %.9f s after the start"), seconds(memory->all.peak_ns));
	if (memory->view == MEMORY_PEAK) {
		g_autofree char *blocks = blocks_text(memory->all.live_blocks);

		out_printf(out, _(", in %s"), blocks);
	}
	out_char(out, '\n');
}

static void print_reallocs(const struct memory *memory, struct out *out)
{
	g_autofree char *count = count_text(memory->all.reallocs);
	g_autofree char *grown = bytes_text(memory->all.grown_bytes);
	g_autofree char *copied = bytes_text(memory->all.copied_bytes);

	out_printf(out,
		   _("Reallocated: %s blocks, which grew by %s; where they moved, up to %s were "
		     "copied\n"),
		   count, grown, copied);
}

static void print_cross(const struct memory *memory, struct out *out)
{
	double crossed = 0, all = 0;
	g_autofree char *count = NULL, *of = NULL;

	for (guint i = 0; i < memory->pairs->len && i < memory->entities->len; i++) {
		const struct memory_pair *pair =
			&g_array_index(memory->pairs, struct memory_pair, i);
		double blocks =
			g_array_index(memory->entities, struct memory_counts, i).allocations;

		all += blocks;
		if (pair->allocator != pair->freer)
			crossed += blocks;
	}
	count = count_text(crossed);
	of = count_text(all);
	out_printf(out, _("Freed by another thread: %s of %s blocks\n"), count, of);
}

static void print_at(const struct memory *memory, struct out *out)
{
	g_autofree char *bytes = bytes_text(memory->all.live_bytes);
	g_autofree char *blocks = blocks_text(memory->all.live_blocks);

	if (memory->view == MEMORY_DIFF)
		out_printf(out, _("From %.6f s to %.6f s; at its end %s in %s\n"),
			   seconds(memory->before_ns), seconds(memory->at_ns), bytes, blocks);
	else
		out_printf(out, _("At %.6f s: %s in %s\n"), seconds(memory->at_ns), bytes, blocks);
}

static void print_summary(const struct memory *memory, struct out *out)
{
	const struct memory_counts *all = &memory->all;
	g_autofree char *freed = bytes_text(all->freed_bytes), *live = bytes_text(all->live_bytes);

	print_command(memory, out);
	print_calls(all, out);
	print_amount(out, _("Allocated: "), all->allocated_bytes, all->allocations);
	out_printf(out, _("; %s freed, %s live at the end\n"), freed, live);
	print_peak(memory, out);
	print_leaked(memory, out);
	print_temporary(memory, out);
	if (memory->unknown)
		out_printf(out, _("Frees of blocks that did not live: %" PRIu64 "\n"),
			   memory->unknown);
}

/* Numbers of processes that could not be recorded are unknown, not 0. */
static bool is_none_recorded(const struct memory *memory)
{
	bool has_excluded = false;

	for (uint32_t i = 0; i < memory->processes->len; i++) {
		if (!g_array_index(memory->processes, struct memory_counts, i).is_there)
			continue;
		if (!memory_excluded(memory, i))
			return false;
		has_excluded = true;
	}
	return has_excluded;
}

static void print_warnings(const struct memory *memory, struct out *out)
{
	print_loss(memory, out);
	reader_print_losses(&memory->reader, out, READER_LOSSES);
	reader_print_lost_names(&memory->reader, out);
	memory_print_warnings(memory, out);
}

static void print_head(const struct memory *memory, struct out *out)
{
	print_sampling(memory, out);
	switch (memory->view) {
	case MEMORY_LEAKS:
		print_leaked(memory, out);
		break;
	case MEMORY_TEMPORARY:
		print_temporary(memory, out);
		break;
	case MEMORY_PEAK:
		print_peak(memory, out);
		break;
	case MEMORY_AT:
	case MEMORY_DIFF:
		print_at(memory, out);
		break;
	case MEMORY_REALLOCS:
		print_reallocs(memory, out);
		break;
	case MEMORY_CROSS_THREAD:
		print_cross(memory, out);
		break;
	default:
		print_summary(memory, out);
	}
	if (memory->has_all & MEMORY_HAS_LEAKED)
		print_running(memory, out);
}

/* ---- processes ------------------------------------------------------------------------------- */

static void print_process(const struct memory *memory, struct out *out, uint32_t process)
{
	const struct memory_counts *counts =
		&g_array_index(memory->processes, struct memory_counts, process);
	const char *excluded = memory_excluded(memory, process);
	const char *comm = memory_comm(memory, process);

	if (excluded) {
		out_printf(out, "%11s %12s %11s %11s ", "-", "-", "-", "-");
	} else {
		print_bytes(out, counts->allocated_bytes);
		print_count(out, counts->allocations);
		print_bytes(out, counts->peak_bytes);
		print_bytes(out, counts->leaked_bytes);
	}
	out_printf(out, " %7" PRIu64 " %-7s ",
		   names_process_at(memory->reader.capture->names, process)->pid,
		   memory_end_names[memory_heaps_end(&memory->heaps, process)]);
	text_cell(out, comm ? comm : "-", 0, TEXT_LEFT);
	if (excluded)
		out_printf(out, _("  (not recorded: %s)"), excluded);
	out_char(out, '\n');
}

static gint compare_processes(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct memory *memory = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	double by_a = g_array_index(memory->processes, struct memory_counts, a).allocated_bytes;
	double by_b = g_array_index(memory->processes, struct memory_counts, b).allocated_bytes;

	if (by_a != by_b)
		return by_a > by_b ? -1 : 1;
	return a < b ? -1 : 1;
}

static void print_processes(const struct memory *memory, struct out *out)
{
	g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	const char *const titles[] = { _("bytes"), _("blocks"), _("peak"), _("leaked") };
	uint64_t limit = memory->reader.limit;

	for (uint32_t i = 0; i < memory->processes->len; i++)
		if (g_array_index(memory->processes, struct memory_counts, i).is_there)
			g_array_append_val(all, i);
	g_array_sort_with_data(all, compare_processes, (gpointer)memory);
	out_char(out, '\n');
	reader_style(&memory->reader, out, READER_BOLD);
	for (size_t i = 0; i < ARRAY_SIZE(titles); i++)
		print_title(out, titles[i], i == 1 ? 12 : 11);
	out_printf(out, " %7s %-7s %s\n", _("pid"), _("end"), _("process"));
	reader_style(&memory->reader, out, READER_PLAIN);
	for (guint i = 0; i < all->len && (!limit || i < limit); i++)
		print_process(memory, out, g_array_index(all, uint32_t, i));
	reader_print_limit(&memory->reader, out,
			   limit ? MIN_OF(limit, (uint64_t)all->len) : all->len, all->len);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void print_chain(const struct memory *memory, struct out *out, uint32_t chain)
{
	if (memory->sampled_bytes > 0)
		out_printf(out, "%8s ", "-");
	else
		out_printf(out, "%8" PRIu32 " ", chain);
}

static void print_function_line(const struct memory *memory, struct out *out,
				const struct memory_line *line)
{
	if (memory->view == MEMORY_DIFF) {
		g_autofree char *bytes = signed_text(line->self.bytes - line->before.bytes, true);
		g_autofree char *blocks =
			signed_text(line->self.blocks - line->before.blocks, false);

		out_printf(out, "%11s %12s ", bytes, blocks);
		print_bytes(out, line->self.bytes);
	} else {
		print_bytes(out, line->self.bytes);
		print_count(out, line->self.blocks);
		print_bytes(out, line->total.bytes);
	}
	if (memory->view == MEMORY_SUMMARY) {
		print_bytes(out, line->counts ? line->counts->peak_bytes : 0);
		print_bytes(out, line->counts ? line->counts->leaked_bytes : 0);
	}
	if (memory->view == MEMORY_REALLOCS) {
		print_bytes(out, line->counts ? line->counts->grown_bytes : 0);
		print_chain(memory, out, line->counts ? line->counts->longest_chain : 0);
	}
	out_char(out, ' ');
	functions_print(memory->tree.functions, line->entity, memory->full_names, out);
	out_char(out, '\n');
}

static void print_function_titles(const struct memory *memory, struct out *out)
{
	bool is_diff = memory->view == MEMORY_DIFF;

	print_title(out, is_diff ? _("more") : _("bytes"), 11);
	print_title(out, _("blocks"), 12);
	print_title(out, is_diff ? _("in the end") : _("with calls"), 11);
	if (memory->view == MEMORY_SUMMARY) {
		print_title(out, _("at peak"), 11);
		print_title(out, _("leaked"), 11);
	}
	if (memory->view == MEMORY_REALLOCS) {
		print_title(out, _("grown"), 11);
		print_title(out, _("in a row"), 8);
	}
	out_printf(out, " %s\n", _("function"));
}

static void print_size_range(struct out *out, uint32_t class)
{
	g_autofree char *text = NULL;
	uint64_t from, to;

	memory_size_range(class, &from, &to);
	text = from == to ? g_strdup_printf("%" PRIu64, from)
			  : g_strdup_printf("%" PRIu64 " - %" PRIu64, from, to);
	out_text(out, text);
}

static void print_lifetime_range(struct out *out, uint32_t class)
{
	g_autofree char *until = NULL, *since = NULL;
	uint64_t from, to;

	if (class == MEMORY_NEVER_FREED) {
		out_text(out, _("never freed"));
		return;
	}
	memory_lifetime_range(class, &from, &to);
	since = text_duration(from);
	until = text_duration(to == UINT64_MAX ? to : to + 1);
	out_printf(out, _("%s to %s"), since, until);
}

static void print_thread(const struct memory *memory, struct out *out, uint32_t index)
{
	const struct names *names = memory->reader.capture->names;
	const struct names_thread *thread = names_thread_at(names, index);

	out_printf(out, "%" PRIu64 "/%" PRIu64 " ", names_process_at(names, thread->process)->pid,
		   thread->tid);
	text_cell(out, thread->comm ? thread->comm : "-", 0, TEXT_LEFT);
}

static void print_pair(const struct memory *memory, struct out *out, uint32_t entity)
{
	const struct memory_pair *pair = &g_array_index(memory->pairs, struct memory_pair, entity);

	print_thread(memory, out, pair->allocator);
	out_text(out, pair->allocator == pair->freer ? _(", by itself") : _(", by "));
	if (pair->allocator != pair->freer)
		print_thread(memory, out, pair->freer);
}

static void print_entity(const struct memory *memory, struct out *out, uint32_t entity)
{
	switch (memory->view) {
	case MEMORY_SIZES:
		print_size_range(out, entity);
		break;
	case MEMORY_LIFETIMES:
		print_lifetime_range(out, entity);
		break;
	case MEMORY_THREADS:
		print_thread(memory, out, entity);
		break;
	default:
		print_pair(memory, out, entity);
	}
}

static void print_entity_line(const struct memory *memory, struct out *out,
			      const struct memory_line *line)
{
	const struct memory_counts *counts = line->counts;
	bool never = memory->view == MEMORY_LIFETIMES && line->entity == MEMORY_NEVER_FREED;

	print_bytes(out, never ? counts->leaked_bytes : counts->allocated_bytes);
	print_count(out, never ? counts->leaked_blocks : counts->allocations);
	print_bytes(out, counts->freed_bytes);
	if (memory_knows_temporary(memory))
		print_count(out, counts->temporary);
	else
		out_printf(out, "%12s ", "-");
	if (memory->view == MEMORY_THREADS || memory->view == MEMORY_SIZES) {
		print_bytes(out, counts->peak_bytes);
		print_bytes(out, counts->leaked_bytes);
	}
	out_char(out, ' ');
	print_entity(memory, out, line->entity);
	out_char(out, '\n');
}

static void print_entity_titles(const struct memory *memory, struct out *out)
{
	static const char *const what[MEMORY_VIEWS] = {
		[MEMORY_SIZES] = N_("bytes of a block"),
		[MEMORY_LIFETIMES] = N_("lived"),
		[MEMORY_THREADS] = N_("thread"),
		[MEMORY_CROSS_THREAD] = N_("allocated by, freed by"),
	};

	print_title(out, _("bytes"), 11);
	print_title(out, _("blocks"), 12);
	print_title(out, _("freed"), 11);
	print_title(out, _("temporary"), 12);
	if (memory->view == MEMORY_THREADS || memory->view == MEMORY_SIZES) {
		print_title(out, _("at peak"), 11);
		print_title(out, _("leaked"), 11);
	}
	out_printf(out, " %s\n", _(what[memory->view]));
}

static void print_lines(const struct memory *memory, struct out *out)
{
	bool by_function = memory_by_function(memory);

	reader_style(&memory->reader, out, READER_BOLD);
	if (by_function)
		print_function_titles(memory, out);
	else
		print_entity_titles(memory, out);
	reader_style(&memory->reader, out, READER_PLAIN);
	for (guint i = 0; i < memory_shown(memory); i++) {
		const struct memory_line *line =
			&g_array_index(memory->lines, struct memory_line, i);

		if (by_function)
			print_function_line(memory, out, line);
		else
			print_entity_line(memory, out, line);
	}
	reader_print_limit(&memory->reader, out, memory_shown(memory), memory->lines->len);
}

void memory_print(struct memory *memory, struct out *out)
{
	print_warnings(memory, out);
	if (is_none_recorded(memory)) {
		out_text(out, _("No allocations were recorded of any of these processes:\n"));
		print_processes(memory, out);
		return;
	}
	print_head(memory, out);
	if (memory->view == MEMORY_SUMMARY)
		print_processes(memory, out);
	out_char(out, '\n');
	if (memory->is_tree)
		memory_print_tree(memory, out);
	else
		print_lines(memory, out);
}
