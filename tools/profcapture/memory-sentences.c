/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory-sentences - what a view of `memory` says in text besides its rows
 *
 * If records were lost, the first line states how many, and which numbers may be wrong because of
 * that.
 */
#include "config.h"

#include "base/each.h"
#include "tools/present/sparkline.h"
#include "tools/profcapture/capture-losses.h"
#include "tools/profcapture/memory.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- numbers --------------------------------------------------------------------------------- */

/* Keeps a text of a sentence until memory_done(). */
static const char *keep(const struct memory *memory, char *text)
{
	g_ptr_array_add(memory->texts, text);
	return text;
}

const char *memory_count_text(const struct memory *memory, double count)
{
	return keep(memory, text_count(memory_integer(count)));
}

const char *memory_bytes_text(const struct memory *memory, double bytes)
{
	return keep(memory, text_bytes(memory_integer(bytes)));
}

const char *memory_blocks_text(const struct memory *memory, double blocks)
{
	return keep(memory, g_strdup_printf(ngettext("%s block", "%s blocks",
						     (unsigned long)memory_integer(blocks)),
					    memory_count_text(memory, blocks)));
}

/* Returns text such as "1.13 MiB in 14,045 blocks". */
static const char *amount_text(const struct memory *memory, double bytes, double blocks)
{
	return keep(memory, g_strdup_printf(_("%s in %s"), memory_bytes_text(memory, bytes),
					    memory_blocks_text(memory, blocks)));
}

static const char *duration_text(const struct memory *memory, uint64_t ns)
{
	return keep(memory, text_duration(ns));
}

const char *memory_share_text(const struct memory *memory, double part, double whole)
{
	return keep(memory, text_percent(whole > 0 ? 100 * part / whole : 0, false));
}

/* ---- one view -------------------------------------------------------------------------------- */

struct memory_sum memory_runtime_sum(const struct memory *memory)
{
	struct memory_sum sum = { 0 };

	for (unsigned i = 0; i < RUNTIME_POOLS; i++)
		memory_sum_add(&sum, memory->suppressions.pools[i].bytes,
			       memory->suppressions.pools[i].blocks);
	return sum;
}

static void append_suppressed(const struct memory *memory, GString *text)
{
	const GArray *rules = memory->suppressions.all;
	const struct memory_sum runtime = memory_runtime_sum(memory);
	struct memory_sum matched = { 0 };

	for (guint i = 0; rules && i < rules->len; i++)
		memory_sum_add(&matched, g_array_index(rules, struct suppression, i).bytes,
			       g_array_index(rules, struct suppression, i).blocks);
	if (memory->hides_runtime && runtime.blocks > 0)
		g_string_append_printf(text,
				       ngettext(" %s runtime block (%s) suppressed.",
						" %s runtime blocks (%s) suppressed.",
						(unsigned long)memory_integer(runtime.blocks)),
				       memory_count_text(memory, runtime.blocks),
				       memory_bytes_text(memory, runtime.bytes));
	if (rules)
		g_string_append_printf(text,
				       ngettext(" %s block (%s) suppressed by --suppressions.",
						" %s blocks (%s) suppressed by --suppressions.",
						(unsigned long)memory_integer(matched.blocks)),
				       memory_count_text(memory, matched.blocks),
				       memory_bytes_text(memory, matched.bytes));
}

static void append_not_freed(const struct memory *memory, GString *text)
{
	const struct memory_counts *all = &memory->all;

	if (all->leaked_blocks > 0)
		g_string_append_printf(text, _("Not freed at exit: %s."),
				       amount_text(memory, all->leaked_bytes, all->leaked_blocks));
	else
		g_string_append(text, _("Not freed at exit: nothing."));
	append_suppressed(memory, text);
	g_string_append_c(text, '\n');
}

/* Appends a clause on how soon the blocks were freed. */
static void append_how_soon(const struct memory *memory, GString *text)
{
	if (memory->within_ns != UINT64_MAX)
		g_string_append_printf(text, _("freed within %s"),
				       duration_text(memory, memory->within_ns));
	else
		g_string_append_printf(text,
				       ngettext("freed at most %" PRIu64 " allocation later",
						"freed at most %" PRIu64 " allocations later",
						(unsigned long)memory->threshold),
				       memory->threshold);
}

static void describe_allocated(const struct memory *memory, GString *text)
{
	const struct memory_counts *all = &memory->all;
	const char *amount = amount_text(memory, all->allocated_bytes, all->allocations);
	g_autofree char *command = capture_command(memory->reader.capture, 0);

	if (*command)
		g_string_append_printf(text, _("%s allocated %s"), command, amount);
	else
		g_string_append_printf(text, _("Allocated: %s"), amount);
	if (memory_knows_temporary(memory) && all->temporary > 0) {
		g_string_append_printf(text, _("; %s %% of the blocks were "),
				       memory_share_text(memory, all->temporary, all->allocations));
		if (memory->within_ns == UINT64_MAX && memory->threshold <= 1)
			g_string_append(text, _("freed almost at once"));
		else
			append_how_soon(memory, text);
	}
	g_string_append(text, ".\n");
	if (all->has_peak_time)
		g_string_append_printf(text, _("The heap was largest at %s, with %s.\n"),
				       duration_text(memory,
						     (uint64_t)MAX_OF(all->peak_ns, INT64_C(0))),
				       memory_bytes_text(memory, all->peak_bytes));
	append_not_freed(memory, text);
	if (all->failed > 0)
		g_string_append_printf(text,
				       ngettext("%s call failed.\n", "%s calls failed.\n",
						(unsigned long)memory_integer(all->failed)),
				       memory_count_text(memory, all->failed));
	if (all->foreign > 0)
		g_string_append_printf(
			text,
			ngettext("%s free was of a block whose allocation was not recorded.\n",
				 "%s frees were of blocks whose allocation was not recorded.\n",
				 (unsigned long)memory_integer(all->foreign)),
			memory_count_text(memory, all->foreign));
	if (memory->unknown)
		g_string_append_printf(text, _("Frees of blocks that did not live: %" PRIu64 ".\n"),
				       memory->unknown);
}

static void describe_leaks(const struct memory *memory, GString *text)
{
	const struct memory_counts *all = &memory->all;
	guint n = memory->stacks->len;

	if (all->leaked_blocks <= 0) {
		append_not_freed(memory, text);
		return;
	}
	g_string_append_printf(text, _("Not freed at exit: %s"),
			       amount_text(memory, all->leaked_bytes, all->leaked_blocks));
	if (n > 0)
		g_string_append_printf(text, ngettext(", %u place", ", %u places", n), n);
	g_string_append(text, _(" (still reachable or not: unknown)."));
	if (memory->is_tree || memory->suppressions.all)
		append_suppressed(memory, text);
	g_string_append_c(text, '\n');
}

static void describe_temporary(const struct memory *memory, GString *text)
{
	const struct memory_counts *all = &memory->all;
	const char *blocks = memory_blocks_text(memory, all->allocations);

	if (!memory_knows_temporary(memory)) {
		g_string_append(
			text, _("Which blocks were freed almost at once is not known of a "
				"sampled recording; --within shows those freed within a time.\n"));
		return;
	}
	if (all->temporary <= 0) {
		g_string_append_printf(text, _("None of %s was "), blocks);
		append_how_soon(memory, text);
		g_string_append(text, ".\n");
		return;
	}
	g_string_append_printf(text, _("%s %% of %s were "),
			       memory_share_text(memory, all->temporary, all->allocations), blocks);
	append_how_soon(memory, text);
	g_string_append(text, _(". They cost time, not memory.\n"));
}

static void describe_peak(const struct memory *memory, GString *text)
{
	const struct memory_counts *all = &memory->all;

	if (all->has_peak_time)
		g_string_append_printf(text, _("The heap was largest at %s, with %s.\n"),
				       duration_text(memory,
						     (uint64_t)MAX_OF(all->peak_ns, INT64_C(0))),
				       amount_text(memory, all->peak_bytes, all->live_blocks));
	else
		g_string_append(text, _("The heap was always empty.\n"));
}

static void describe_at(const struct memory *memory, GString *text)
{
	g_string_append_printf(
		text, _("At %s s the heap had %s.\n"), keep(memory, text_seconds(memory->at_ns)),
		amount_text(memory, memory->all.live_bytes, memory->all.live_blocks));
}

static void describe_diff(const struct memory *memory, GString *text)
{
	const char *from = keep(memory, text_seconds(memory->before_ns));
	const char *to = keep(memory, text_seconds(memory->at_ns));
	const char *live = memory_bytes_text(memory, memory->all.live_bytes);
	struct memory_sum before = { 0 };
	double bytes, count;

	for (uint32_t i = 0; i < memory->before->len; i++)
		memory_sum_add(&before, memory_sum_at(memory->before, i).bytes,
			       memory_sum_at(memory->before, i).blocks);
	bytes = memory->all.live_bytes - before.bytes;
	count = memory->all.live_blocks - before.blocks;
	if (fabs(bytes) < 0.5 && fabs(count) < 0.5)
		g_string_append_printf(text, _("%s s to %s s: the heap stayed at %s.\n"), from, to,
				       live);
	else
		g_string_append_printf(
			text,
			bytes >= 0 ? _("%s s to %s s: the heap grew by %s (%s%s), to %s.\n")
				   : _("%s s to %s s: the heap shrank by %s (%s%s), to %s.\n"),
			from, to, memory_bytes_text(memory, fabs(bytes)), count < 0 ? "-" : "+",
			memory_blocks_text(memory, fabs(count)), live);
}

/* Names the class with the most blocks. */
static void describe_classes(const struct memory *memory, GString *text)
{
	const struct memory_line *most = NULL;
	enum memory_key by = memory_query_of(memory)->key;
	double all = 0;

	ARRAY_EACH(const struct memory_line, line, memory->lines) {
		all += line->counts->allocations;
		if (!most || line->counts->allocations > most->counts->allocations)
			most = line;
	}
	if (!most || most->counts->allocations <= 0)
		return;
	g_string_append_printf(text,
			       by == MEMORY_BY_SIZE ? _("Most blocks have %s bytes: %s %%.\n")
			       : by == MEMORY_BY_LIFETIME
				       ? _("Most freed blocks lived %s: %s %%.\n")
				       : _("Most blocks are of %s: %s %%.\n"),
			       keep(memory, memory_row_text(memory, most->entity)),
			       memory_share_text(memory, most->counts->allocations, all));
	append_not_freed(memory, text);
}

static void describe_pairs(const struct memory *memory, GString *text)
{
	double crossed = 0, all = 0;

	ARRAY_EACH(const struct memory_line, line, memory->lines) {
		const struct memory_pair *pair = memory_pair_at(memory, line->entity);

		all += line->counts->allocations;
		if (pair->allocator != pair->freer)
			crossed += line->counts->allocations;
	}
	g_string_append_printf(text, _("Freed by another thread: %s of %s (%s %%).\n"),
			       memory_count_text(memory, crossed), memory_blocks_text(memory, all),
			       memory_share_text(memory, crossed, all));
}

static void describe_reallocs(const struct memory *memory, GString *text)
{
	if (memory->all.reallocs > 0)
		g_string_append_printf(
			text,
			_("Reallocated: %s, which grew by %s; where they moved, up to "
			  "%s were copied.\n"),
			memory_blocks_text(memory, memory->all.reallocs),
			memory_bytes_text(memory, memory->all.grown_bytes),
			memory_bytes_text(memory, memory->all.copied_bytes));
	else
		g_string_append(text, _("No block was reallocated.\n"));
}

static void describe_timeline(const struct memory *memory, GString *text)
{
	const struct memory_point *points = (const void *)memory->points->data;
	guint n = memory->points->len;
	double values[SPARKLINE_COLUMNS] = { 0 };
	g_autofree char *range = NULL, *bars = NULL;

	if (n == 0)
		return;
	/* A column shows the maximum of its points. */
	for (guint i = 0; i < n; i++) {
		double *value = &values[(uint64_t)i * SPARKLINE_COLUMNS / n];

		*value = MAX_OF(*value, points[i].bytes);
	}
	range = sparkline_range(MAX_OF(memory->reader.from_ns, INT64_C(0)), points[n - 1].time_ns);
	bars = sparkline(values, SPARKLINE_COLUMNS, memory->all.peak_bytes);
	g_string_append_printf(text, _("Live heap, %s, at most %s:  %s\n"), range,
			       memory_bytes_text(memory, memory->all.peak_bytes), bars);
}

/* ---- any view -------------------------------------------------------------------------------- */

static void append_running(const struct memory *memory, GString *text)
{
	unsigned running = 0;

	for (uint32_t i = NAMES_LOST + 1; i < memory->processes->len; i++) {
		const struct memory_counts *process = memory_counts_at(memory->processes, i);

		running += process->is_there && process->leaked_blocks > 0 &&
			   memory_heaps_end(&memory->heaps, i) == MEMORY_RUNNING;
	}
	if (running && (memory->has_all & MEMORY_HAS_LEAKED))
		g_string_append_printf(
			text,
			ngettext(
				"%u process still ran when the recording ended: its live blocks "
				"count as not freed.\n",
				"%u processes still ran when the recording ended: their live blocks "
				"count as not freed.\n",
				running),
			running);
}

static void append_sampling(const struct memory *memory, GString *text)
{
	bool by_all;
	uint64_t least = memory_most_setting(memory->reader.capture, MEMORY_MIN_BYTES, &by_all);

	if (memory->sampled_bytes > 0)
		g_string_append_printf(
			text,
			memory->is_sampled_alike
				? _("Sampled, one allocation in about %s: numbers are estimates.\n")
				: _("Some of its recordings sampled one allocation in about %s: numbers are estimates.\n"),
			memory_bytes_text(memory, memory->sampled_bytes));
	if (least)
		g_string_append_printf(
			text,
			by_all ? _("Allocations below %" PRIu64 " bytes were not recorded.\n")
			       : _("Allocations below %" PRIu64
				   " bytes were not recorded by some of the recordings in it.\n"),
			least);
}

void memory_append_sentences(const struct memory *memory, GString *text)
{
	static void (*const describe[MEMORY_VIEWS])(const struct memory *memory, GString *text) = {
		[MEMORY_SUMMARY] = describe_allocated,
		[MEMORY_LEAKS] = describe_leaks,
		[MEMORY_TEMPORARY] = describe_temporary,
		[MEMORY_PEAK] = describe_peak,
		[MEMORY_AT] = describe_at,
		[MEMORY_DIFF] = describe_diff,
		[MEMORY_SIZES] = describe_classes,
		[MEMORY_LIFETIMES] = describe_classes,
		[MEMORY_THREADS] = describe_classes,
		[MEMORY_CROSS_THREAD] = describe_pairs,
		[MEMORY_REALLOCS] = describe_reallocs,
		[MEMORY_TIMELINE] = describe_timeline,
	};

	describe[memory->view](memory, text);
	append_running(memory, text);
	append_sampling(memory, text);
}

static void print_loss(const struct memory *memory, struct out *out)
{
	g_autofree char *share =
		text_percent(capture_lost_percent(memory->reader.capture, memory->lost), true);

	if (!memory->is_incomplete)
		return;
	reader_style(&memory->reader, out, READER_WARNING);
	if (memory->lost == 0)
		out_text(out, _("A part of the capture cannot be read: "));
	else
		out_printf(out,
			   ngettext("%s record was lost (%s %% of all): ",
				    "%s records were lost (%s %% of all): ", memory->lost),
			   memory_count_text(memory, (double)memory->lost), share);
	if (memory_reads_all(memory))
		out_text(
			out,
			_("calls, bytes and the peak may be wrong, and blocks may be missing or wrongly shown as not freed\n"));
	else if (memory_query_of(memory)->filter == MEMORY_NOT_FREED)
		out_text(out, _("blocks may be missing, or wrongly shown as not freed\n"));
	else
		out_text(out, _("blocks may be missing, or shown although they were freed\n"));
	reader_style(&memory->reader, out, READER_PLAIN);
}

void memory_print_warnings(const struct memory *memory, struct out *out)
{
	print_loss(memory, out);
	if (!memory->losses_are_printed)
		reader_print_losses(&memory->reader, out, READER_LOSSES);
	reader_print_lost_names(&memory->reader, out);
	if (memory->warnings->len == 0)
		return;
	reader_style(&memory->reader, out, READER_WARNING);
	ARRAY_EACH(const struct memory_warning, warning, memory->warnings) {
		out_printf(out,
			   ngettext("In %u process, ", "In %u processes, ", warning->processes),
			   warning->processes);
		text_cell(out, warning->text, 0);
		out_char(out, '\n');
	}
	reader_style(&memory->reader, out, READER_PLAIN);
}

/* Prints "Suppressed: 6 blocks, 76.2 KiB: libstdc++ pool, stdio buffers (--no-suppressions)." */
void memory_print_runtime(const struct memory *memory, struct out *out)
{
	const struct memory_sum all = memory_runtime_sum(memory);
	g_autoptr(GString) names = g_string_new(NULL);

	for (unsigned i = 0; i < RUNTIME_POOLS; i++)
		if (memory->suppressions.pools[i].blocks > 0)
			g_string_append_printf(names, "%s%s", names->len ? ", " : "",
					       _(runtime_pool_name(i)));
	if (all.blocks > 0)
		out_printf(out, _("\nSuppressed: %s, %s: %s (--no-suppressions).\n"),
			   memory_blocks_text(memory, all.blocks),
			   memory_bytes_text(memory, all.bytes), names->str);
}
