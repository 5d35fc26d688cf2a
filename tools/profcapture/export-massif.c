/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-massif - the live heap over time, and its stacks at some times and at the peak, in
 * massif's output format
 *
 * Snapshots are at equal intervals, and one more is at the peak, unless the first is the peak. A
 * detailed snapshot has a tree from the functions that called the allocator to their callers: each
 * node starts with its number of children, and children smaller than MIN_PERCENT of all bytes share
 * one line. The fields for malloc's overhead and thread stacks are 0, because a capture does not
 * have them. If allocations are sampled, each counts as the allocations that it represents, and
 * "desc" says so.
 *
 * The rows are read twice: the first pass finds the peak, the second writes. So rows are not kept,
 * and memory grows only with the numbers of stacks and of live blocks.
 */
#include "config.h"

#include "base/order.h"
#include "tools/profcapture/export-allocations.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SNAPSHOTS 100u    /* number of snapshots, without the one at the peak */
#define DETAILED_EACH 10u /* every tenth snapshot is detailed; so is the last */
#define MIN_PERCENT 0.1   /* below ms_print's default of 1, for its option --threshold */
#define MAX_DEPTH 64u     /* maximum number of levels of a tree */

struct massif {
	struct export *export;
	struct out *out;
	struct memory_tree tree;
	struct memory_heaps heaps;
	double bytes;    /* live bytes at the current event */
	uint64_t n_rows; /* allocations so far */
	uint64_t peak_rows;
	GArray *live; /* struct memory_sum by node of the tree */
	int64_t from_ns, to_ns;
	unsigned n_due;   /* number of snapshots at equal intervals written so far */
	unsigned written; /* number of all snapshots written so far */
	double all;       /* bytes of the snapshot that is being written */
};

/* ---- the tree of a snapshot ------------------------------------------------------------------ */

/* Live bytes of a stack, and its frame at the current level of the tree. */
struct live_branch {
	uint32_t node, entity;
	double bytes;
};

/* Branches whose frames are equal up to the current level. */
struct group {
	struct live_branch *first;
	size_t n;
	double bytes;
};

COMPARE_BY(compare_branches, struct live_branch, ORDER(a->entity, b->entity))

COMPARE_BY(compare_groups, struct group, ORDER(b->bytes, a->bytes),
	   ORDER(a->first->entity, b->first->entity))

/* Advances each branch to its next frame. Drops branches without a next frame, and groups the
 * others by frame. */
static GArray *list_callers(const struct massif *massif, struct live_branch *branches, size_t n)
{
	GArray *groups = g_array_new(FALSE, FALSE, sizeof(struct group));
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		const struct memory_node *at = memory_node_at(&massif->tree, branches[i].node);

		if (branches[i].node == 0)
			continue;
		branches[kept++] =
			(struct live_branch){ at->parent, at->function, branches[i].bytes };
	}
	qsort(branches, kept, sizeof(*branches), compare_branches);
	for (size_t i = 0; i < kept; i++) {
		struct group group = { .first = branches + i };

		if (i == 0 || branches[i].entity != branches[i - 1].entity)
			g_array_append_val(groups, group);
		group = g_array_index(groups, struct group, groups->len - 1);
		group.n++;
		group.bytes += branches[i].bytes;
		g_array_index(groups, struct group, groups->len - 1) = group;
	}
	g_array_sort(groups, compare_groups);
	return groups;
}

/* Escapes text. Replaces '#' too, which ms_print reads as the start of a comment. */
static void append_escaped(GString *line, const char *text)
{
	g_autofree char *escaped = text_escape_utf8(text, strlen(text));
	g_auto(GStrv) parts = g_strsplit(escaped, "#", -1);
	g_autofree char *joined = g_strjoinv("\\x23", parts);

	g_string_append(line, joined);
}

/* Appends " 0x401136: parse(int) (main.cpp:12)"; without a file, "(in /usr/bin/program)". */
static void append_frame(const struct massif *massif, GString *line, uint32_t entity)
{
	const struct function *function = functions_at(massif->tree.functions, entity);
	const char *image = functions_image(massif->tree.functions, entity);

	g_string_append_printf(line, " 0x%" PRIX64 ": ", function->offset);
	append_escaped(line, function->name);
	if (function->is_line && function->file) {
		g_string_append(line, " (");
		append_escaped(line, functions_basename(function->file));
		g_string_append_printf(line, ":%u)", function->line);
	} else if (image) {
		g_string_append(line, " (in ");
		append_escaped(line, image);
		g_string_append_c(line, ')');
	}
}

static uint64_t whole_bytes(double bytes)
{
	return bytes > 0 ? (uint64_t)llround(MIN_OF(bytes, 0x1p62)) : 0;
}

static void write_node(const struct massif *massif, const char *text, struct live_branch *branches,
		       size_t n, double bytes, unsigned depth)
{
	g_autoptr(GArray) callers = list_callers(massif, branches, n);
	g_autoptr(GString) line = g_string_new(NULL);
	double small_bytes = bytes;
	guint n_large = 0, n_small;

	if (depth == MAX_DEPTH)
		g_array_set_size(callers, 0);
	while (n_large < callers->len) {
		double share = g_array_index(callers, struct group, n_large).bytes;

		if (share * 100 < massif->all * MIN_PERCENT)
			break;
		n_large++;
	}
	n_small = callers->len - n_large;
	out_printf(massif->out, "%*sn%u: %" PRIu64 "%s\n", (int)depth, "", n_large + (n_small > 0),
		   whole_bytes(bytes), text);
	small_bytes = 0;
	for (guint i = n_large; i < callers->len; i++)
		small_bytes += g_array_index(callers, struct group, i).bytes;
	for (guint i = 0; i < n_large; i++) {
		struct group group = g_array_index(callers, struct group, i);

		g_string_truncate(line, 0);
		append_frame(massif, line, group.first->entity);
		write_node(massif, line->str, group.first, group.n, MIN_OF(group.bytes, bytes),
			   depth + 1);
	}
	if (n_small == 1)
		out_printf(massif->out,
			   "%*sn0: %" PRIu64 " in 1 place, below massif's threshold (%.2f%%)\n",
			   (int)depth + 1, "", whole_bytes(MIN_OF(small_bytes, bytes)),
			   MIN_PERCENT);
	else if (n_small > 1)
		out_printf(massif->out,
			   "%*sn0: %" PRIu64
			   " in %u places, all below massif's threshold (%.2f%%)\n",
			   (int)depth + 1, "", whole_bytes(MIN_OF(small_bytes, bytes)), n_small,
			   MIN_PERCENT);
}

static void write_tree(struct massif *massif)
{
	g_autofree struct live_branch *branches = g_new(struct live_branch, massif->live->len + 1);
	size_t n = 0;

	for (uint32_t i = 1; i < massif->live->len; i++) {
		double bytes = memory_sum_at(massif->live, i).bytes;

		/* rounding may leave sums of sampled blocks near 0 instead of at 0 */
		if (bytes > 0.5)
			branches[n++] =
				(struct live_branch){ .node = memory_tree_caller(&massif->tree, i),
						      .bytes = bytes };
	}
	write_node(massif, " (heap allocation functions) malloc/new/new[], --alloc-fns, etc.",
		   branches, n, massif->all, 0);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

enum detail { PLAIN, DETAILED, PEAK };

static void write_snapshot(struct massif *massif, int64_t time_ns, enum detail detail)
{
	static const char *const details[] = { "empty", "detailed", "peak" };

	massif->all = MAX_OF(massif->bytes, 0.0);
	out_printf(massif->out,
		   "#-----------\nsnapshot=%u\n#-----------\ntime=%" PRId64 "\nmem_heap_B=%" PRIu64
		   "\nmem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=%s\n",
		   massif->written++, time_ns / 1000000, whole_bytes(massif->all), details[detail]);
	if (detail != PLAIN)
		write_tree(massif);
}

/* Writes the snapshots that are due at or before a time. */
static void write_until(struct massif *massif, int64_t time_ns)
{
	double length = (double)(massif->to_ns - massif->from_ns);

	while (massif->n_due < SNAPSHOTS) {
		unsigned i = massif->n_due;
		int64_t due_ns = massif->from_ns + (int64_t)(length * i / (double)(SNAPSHOTS - 1));
		bool is_last = i == SNAPSHOTS - 1;

		if ((is_last ? massif->to_ns : due_ns) > time_ns)
			break;
		/* peak_rows is 0 if the state at the start of the range is the peak */
		write_snapshot(massif, is_last ? massif->to_ns : due_ns,
			       i == 0 && massif->peak_rows == 0          ? PEAK
			       : is_last || (i + 1) % DETAILED_EACH == 0 ? DETAILED
									 : PLAIN);
		massif->n_due++;
	}
}

static void change(struct massif *massif, const struct memory_live *live, double sign)
{
	massif->bytes += sign * live->bytes;
	memory_sum_add(memory_sum_of(massif->live, live->block.node), sign * live->bytes,
		       sign * live->blocks);
}

static void loaded(const struct memory_live *live, void *data)
{
	change(data, live, 1);
}

static void allocated(const struct memory_event *event, const struct memory_live *live, void *data)
{
	struct massif *massif = data;

	write_until(massif, MAX_OF(event->time_ns, INT64_C(1)) - 1);
	change(massif, live, 1);
	if (event->is_counted && ++massif->n_rows == massif->peak_rows)
		write_snapshot(massif, event->time_ns, PEAK);
}

static void released(const struct memory_event *event, const struct memory_live *live,
		     enum memory_release how, void *data)
{
	write_until(data, MAX_OF(event->time_ns, INT64_C(1)) - 1);
	change(data, live, -1);
}

/* Returns when a process's allocations ended; INT64_MAX: not before the capture's end. */
static int64_t end_of(const struct massif *massif, const struct memory_heap *heap)
{
	const struct memory_mark *mark;

	if (!heap->end || !heap->has_ended)
		return INT64_MAX;
	mark = memory_mark_at(&massif->heaps, heap->end - 1);
	return capture_time(massif->export->reader.capture, mark->segment, mark->time);
}

static void ended(const struct memory_live *live, void *data)
{
	struct massif *massif = data;

	write_until(massif, MIN_OF(end_of(massif, memory_heap_at(&massif->heaps, live->heap)),
				   massif->to_ns));
	change(massif, live, -1);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The range ends with the last process, so the last snapshot has the blocks that were not freed. */
static void find_range(struct massif *massif)
{
	const struct reader *reader = &massif->export->reader;
	int64_t end_ns = 0;

	for (uint32_t i = 0; i < massif->heaps.heaps->len; i++)
		if (memory_heaps_wants(&massif->heaps, i))
			end_ns = MAX_OF(end_ns, end_of(massif, memory_heap_at(&massif->heaps, i)));
	if (end_ns == 0)
		end_ns = INT64_MAX;
	massif->from_ns = MAX_OF(reader->from_ns, INT64_C(0));
	massif->to_ns = MIN_OF(MIN_OF(reader->to_ns, reader->capture->duration_ns), end_ns);
	massif->to_ns = MAX_OF(massif->to_ns, massif->from_ns);
}

static void write_header(const struct massif *massif)
{
	const struct capture *capture = massif->export->reader.capture;
	g_autofree char *title = export_title(massif->export);
	g_autoptr(GString) command = g_string_new(NULL);
	bool is_alike;
	uint64_t sampled = memory_most_setting(capture, MEMORY_SAMPLE_BYTES, &is_alike);
	guint processes = 0;

	append_escaped(command, title);
	for (uint32_t i = 0; i < massif->heaps.heaps->len; i++)
		processes += memory_heaps_wants(&massif->heaps, i) &&
			     memory_heap_at(&massif->heaps, i)->first > 0;
	out_printf(massif->out, "desc: profcapture " PROF_VERSION " --threshold=%.1f --depth=%u",
		   MIN_PERCENT, MAX_DEPTH);
	if (sampled)
		out_printf(massif->out,
			   "; estimated: allocations were sampled each %" PRIu64 " bytes", sampled);
	if (processes > 1)
		out_printf(massif->out, "; %u processes together", processes);
	if (capture->lost)
		out_printf(massif->out, "; %" PRIu64 " records were lost", capture->lost);
	out_printf(massif->out, "\ncmd: %s\ntime_unit: ms\n", command->str);
}

static bool write_massif(struct massif *massif, GError **error)
{
	static const struct memory_ops ops = {
		.loaded = loaded, .allocated = allocated, .released = released, .ended = ended
	};
	struct memory_replay replay = { .ops = &ops, .data = massif, .wants_nodes = true };

	if (!allocations_open(massif->export, &massif->tree, &massif->heaps, error) ||
	    !allocations_find_peak(massif->export, &massif->heaps, false, &massif->peak_rows,
				   error))
		return false;
	find_range(massif);
	write_header(massif);
	if (!allocations_replay(massif->export, &massif->heaps, &replay, error))
		return false;
	write_until(massif, massif->to_ns);
	return true;
}

bool export_massif(struct export *export, struct out *out, GError **error)
{
	struct massif massif = { .export = export,
				 .out = out,
				 .live = g_array_new(FALSE, TRUE, sizeof(struct memory_sum)) };
	bool ok = write_massif(&massif, error);

	memory_heaps_done(&massif.heaps);
	memory_tree_done(&massif.tree);
	g_array_unref(massif.live);
	return ok;
}
