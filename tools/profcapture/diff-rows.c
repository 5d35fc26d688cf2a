/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-rows - what is the same in two captures, and whether it changed
 *
 * Two builds of a program have different build-ids, offsets and versions of libraries, and two runs different processes. So a function
 * is known by its image's name without folder and version, and by its own, and one that is inlined into others is another one than
 * itself. What no symbol holds is known by its offset where both captures have the same build of the image, and else is one row of the image.
 *
 * Invariants: (1) what ended in all rows is what ended in all functions of both captures   [test_diff: sums]
 *             (2) no row is a change that is in its interval, which holds over all rows    [test-diff: equals]
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include <math.h>
#include <string.h>

#define NO_NAME "<no name>"
#define INTERRUPTS "<interrupts>"
#define LEAST_CHANGE \
	0.001 /* of the whole, in which two runs of the same differ from beginning to end */

/* ---- identities ---------------------------------------------------------------------------------- */

/* Length of "-2.36" at the end of a name, or 0. */
static size_t version_at_end(const char *name, size_t length)
{
	bool has_point = false;
	size_t n = 0;

	while (n < length && (g_ascii_isdigit(name[length - 1 - n]) || name[length - 1 - n] == '.'))
		has_point |= name[length - 1 - n++] == '.';
	/* "ld-linux-x86-64" has none */
	return has_point && n + 1 < length && name[length - 1 - n] == '-' ? n + 1 : 0;
}

char *diff_image_name(const char *path, bool is_jit)
{
	static const char deleted[] = " (deleted)";
	const char *slash = path ? strrchr(path, '/') : NULL;
	const char *name = slash && slash[1] ? slash + 1 : path;
	const char *so;
	size_t length;

	/* Code that programs make is in memory and files called after their process. */
	if (is_jit)
		return g_strdup("[jit]");
	if (!name || !*name)
		return g_strdup("-");
	length = strlen(name);
	if (g_str_has_suffix(name, deleted))
		length -= sizeof(deleted) - 1;
	if (length == 0)
		return g_strdup("-");
	so = g_strstr_len(name, (gssize)length, ".so");
	if (!so || so == name || (so + 3 < name + length && so[3] != '.'))
		return g_strndup(name, length);
	length = (size_t)(so - name);
	length -= version_at_end(name, length);
	return g_strdup_printf("%.*s.so", (int)MIN_OF(length, (size_t)4096), name);
}

static guint identity_hash(gconstpointer key)
{
	const struct diff_identity *id = key;

	return g_str_hash(id->image) * 31 + g_str_hash(id->name) + id->is_inlined +
	       id->has_name * 7u;
}

static gboolean identity_equal(gconstpointer left, gconstpointer right)
{
	const struct diff_identity *a = left, *b = right;

	return a->is_inlined == b->is_inlined && a->has_name == b->has_name &&
	       strcmp(a->image, b->image) == 0 && strcmp(a->name, b->name) == 0;
}

static void identity_free(gpointer data)
{
	struct diff_identity *id = data;

	g_free(id->image);
	g_free(id->name);
	g_free(id);
}

static void list_builds(struct diff *diff, unsigned side)
{
	const struct names *names = diff_reader(diff, side)->capture->names;

	for (guint i = NAMES_LOST + 1; i < names->images->len; i++)
		if (names_image_at(names, i)->build_id)
			g_hash_table_add(diff->builds[side],
					 (gpointer)names_image_at(names, i)->build_id);
}

/* "bash+0x4e5c0": a function whose symbol is not there is called after its place (docs/architecture.md, "Names"). */
static bool is_place(const char *name, const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	const char *image = slash ? slash + 1 : path;
	size_t length = image ? strlen(image) : 0;

	return length > 0 && strncmp(name, image, length) == 0 &&
	       g_str_has_prefix(name + length, "+0x");
}

static struct diff_identity *identity_new(const struct diff *diff, unsigned side,
					  const struct function *function)
{
	const struct names *names = diff_reader(diff, side)->capture->names;
	const struct names_image *image = names_image_at(names, function->image);
	bool is_known = function->image > NAMES_LOST;
	bool is_unresolved = strcmp(function->kind, "unresolved") == 0 ||
			     is_place(function->name, is_known ? image->path : NULL);
	bool is_same_build = is_known && image->build_id &&
			     g_hash_table_contains(diff->builds[!side], image->build_id);
	bool is_jit = strcmp(function->kind, "jit") == 0 ||
		      (is_known && image->kind == PROF_IMAGE_JIT);
	struct diff_identity *id = g_new(struct diff_identity, 1);

	*id = (struct diff_identity){
		.image = diff_image_name(is_known ? image->path : "", is_jit),
		.is_inlined = function->is_inlined,
		.has_name = !is_unresolved || !is_known || is_same_build,
	};
	id->name = g_strdup(id->has_name ? function->name : NO_NAME);
	return id;
}

static uint32_t identity_of(struct diff *diff, unsigned side, uint32_t function)
{
	GArray *known = diff->sides[side].identities;
	struct diff_identity *id;
	gpointer same;
	uint32_t index;

	if (known->len <= function)
		g_array_set_size(known, function + 1);
	index = g_array_index(known, uint32_t, function);
	if (index)
		return index - 1;
	id = identity_new(diff, side, functions_at(diff->sides[side].functions, function));
	same = g_hash_table_lookup(diff->by_identity, id);
	if (same) {
		identity_free(id);
	} else {
		g_ptr_array_add(diff->identities, id);
		same = GUINT_TO_POINTER(diff->identities->len);
		g_hash_table_insert(diff->by_identity, id, same);
	}
	g_array_index(known, uint32_t, function) = GPOINTER_TO_UINT(same);
	return GPOINTER_TO_UINT(same) - 1;
}

/* ---- rows ---------------------------------------------------------------------------------------- */

/* Index + 1. */
static uint32_t row_of(struct diff *diff, unsigned side, uint32_t parent, uint32_t function)
{
	struct diff_row new = { .parent = parent,
				.function = { DIFF_NO_FUNCTION, DIFF_NO_FUNCTION } };
	uint32_t identity = identity_of(diff, side, function), *known;
	struct diff_row *row;

	known = number_map_at(&diff->by_path, (uint64_t)parent << 32 | identity);
	if (*known == 0) {
		new.identity = identity;
		g_array_append_val(diff->rows, new);
		*known = diff->rows->len;
	}
	row = &g_array_index(diff->rows, struct diff_row, *known - 1);
	if (row->function[side] == DIFF_NO_FUNCTION)
		row->function[side] = function;
	return *known;
}

static void add_side(struct diff *diff, unsigned index)
{
	struct diff_side *side = &diff->sides[index];
	uint32_t n = side->counts->len;

	g_array_set_size(side->rows, n);
	for (uint32_t key = diff->paths; key < n; key++) {
		const struct diff_count *count =
			&g_array_index(side->counts, struct diff_count, key);
		uint32_t parent = 0, function = key, row;
		struct diff_row *to;

		if (!diff->paths && count->events == 0 && count->count == 0)
			continue;
		if (diff->paths) {
			diff_side_node(diff, side, key, &parent, &function);
			parent = g_array_index(side->rows, uint32_t, parent);
		}
		row = row_of(diff, index, parent, function);
		g_array_index(side->rows, uint32_t, key) = row;
		to = &g_array_index(diff->rows, struct diff_row, row - 1);
		to->counts[index].count += count->count;
		to->counts[index].events += count->events;
		to->counts[index].squares += count->squares;
	}
}

/* What interrupts did in between is the machine's, which may have more or less to do: a row without a verdict. */
static void add_interrupts(struct diff *diff)
{
	struct diff_row row = { .function = { DIFF_NO_FUNCTION, DIFF_NO_FUNCTION } };
	struct diff_identity *id;

	for (unsigned side = 0; side < DIFF_SIDES; side++)
		row.counts[side].count = diff->sides[side].interrupts;
	if (row.counts[DIFF_A].count + row.counts[DIFF_B].count == 0)
		return;
	id = g_new0(struct diff_identity, 1);
	id->image = g_strdup("[kernel]");
	id->name = g_strdup(INTERRUPTS);
	g_hash_table_insert(diff->by_identity, id, NULL);
	g_ptr_array_add(diff->identities, id);
	row.identity = diff->identities->len - 1;
	g_array_append_val(diff->rows, row);
}

/* ---- comparing ----------------------------------------------------------------------------------- */

static bool can_test(const struct diff *diff)
{
	return diff->measure != DIFF_PEAK &&
	       diff_evidence(diff, &diff->sides[DIFF_A].all) >= DIFF_LEAST_ALL &&
	       diff_evidence(diff, &diff->sides[DIFF_B].all) >= DIFF_LEAST_ALL;
}

static void give_slots(struct diff *diff)
{
	uint32_t slots = 0;

	for (guint i = 0; can_test(diff) && i < diff->rows->len; i++) {
		struct diff_row *row = &g_array_index(diff->rows, struct diff_row, i);

		/* How many both have together says nothing of how they differ. */
		if (diff_evidence(diff, &row->counts[DIFF_A]) +
			    diff_evidence(diff, &row->counts[DIFF_B]) >=
		    DIFF_LEAST_EVENTS)
			row->slot = ++slots;
	}
	diff->tests = slots;
	g_array_set_size(diff->blocks, slots * 2 * NOISE_BLOCKS);
	if (slots > 0)
		memset(diff->blocks->data, 0, slots * 2 * NOISE_BLOCKS * sizeof(double));
}

static double ratio(const struct diff *diff, unsigned side, double count)
{
	double weight = 0;

	for (unsigned i = 0; i < NOISE_BLOCKS; i++)
		weight += diff->sides[side].weights[i];
	return weight > 0 ? count / weight * diff->scale[side] : 0;
}

static bool is_sampled(const struct diff *diff)
{
	return diff->measure == DIFF_SAMPLES || diff->sides[DIFF_A].memory.sampled_bytes > 0 ||
	       diff->sides[DIFF_B].memory.sampled_bytes > 0;
}

/* Counts and weights as they are shown, so that both captures have the same unit. */
static struct noise_change compare_blocks(const struct diff *diff, const struct diff_row *row,
					  const double *of[DIFF_SIDES])
{
	double scaled[DIFF_SIDES][NOISE_BLOCKS];
	struct noise_blocks blocks[DIFF_SIDES];

	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (unsigned i = 0; i < NOISE_BLOCKS; i++)
			scaled[side][i] = of[side][i] * diff->scale[side];
		blocks[side] = (struct noise_blocks){ scaled[side], diff->sides[side].weights,
						      diff_evidence(diff, &row->counts[side]) };
	}
	return noise_compare(&blocks[DIFF_A], &blocks[DIFF_B]);
}

/* All that there is in the one that has more. */
static double whole(const struct diff *diff)
{
	return MAX_OF(ratio(diff, DIFF_A, diff->sides[DIFF_A].all.count),
		      ratio(diff, DIFF_B, diff->sides[DIFF_B].all.count));
}

static void compare(const struct diff *diff, struct diff_row *row, const double *of[DIFF_SIDES])
{
	struct noise_change change;

	/* All of a run's allocations: when they are is the same each time, and no noise. As many calls as there are may differ by chance. */
	if (diff->norm == DIFF_BY_RUN && !is_sampled(diff))
		change = noise_calls(row->counts[DIFF_A].squares, row->counts[DIFF_B].squares);
	else
		change = compare_blocks(diff, row, of);
	row->noise = noise_interval(&change, diff->tests);
	if (is_sampled(diff))
		row->noise = MAX_OF(row->noise, LEAST_CHANGE * whole(diff));
	row->has_noise = true;
	row->is_significant = !diff->is_damaged && fabs(row->b - row->a) > row->noise;
}

static void judge(const struct diff *diff, struct diff_row *row)
{
	row->a = ratio(diff, DIFF_A, row->counts[DIFF_A].count);
	row->b = ratio(diff, DIFF_B, row->counts[DIFF_B].count);
	if (row->slot) {
		const double *of[] = { diff_blocks(diff, row->slot, DIFF_A),
				       diff_blocks(diff, row->slot, DIFF_B) };

		compare(diff, row, of);
	} else if (diff->measure == DIFF_PEAK && !is_sampled(diff)) {
		/* It is what it was, and no estimate. */
		row->has_noise = true;
		row->is_significant = !diff->is_damaged && row->a != row->b;
	}
}

static void judge_all(struct diff *diff)
{
	const double *of[] = { diff->sides[DIFF_A].blocks, diff->sides[DIFF_B].blocks };
	struct diff_row *all = &diff->all;
	/* All of all is what it is. */
	bool is_tested = can_test(diff) && diff->norm != DIFF_BY_SAMPLES;

	for (unsigned side = 0; side < DIFF_SIDES; side++)
		all->counts[side] = diff->sides[side].all;
	diff->tests += is_tested;
	judge(diff, all);
	if (is_tested)
		compare(diff, all, of);
}

static gint compare_rows(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct diff *diff = data;
	uint32_t i = *(const uint32_t *)left, j = *(const uint32_t *)right;
	const struct diff_row *a = diff_row_at(diff, i), *b = diff_row_at(diff, j);
	double by_a = fabs(a->b - a->a), by_b = fabs(b->b - b->a);
	int order;

	if (a->is_significant != b->is_significant)
		return a->is_significant ? -1 : 1;
	if (by_a != by_b)
		return by_a > by_b ? -1 : 1;
	if (a->a != b->a)
		return a->a > b->a ? -1 : 1;
	order = strcmp(diff_identity_at(diff, a)->name, diff_identity_at(diff, b)->name);
	if (order == 0)
		order = strcmp(diff_identity_at(diff, a)->image, diff_identity_at(diff, b)->image);
	return order ? order : i < j ? -1 : i > j;
}

void diff_rows_compare(struct diff *diff)
{
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		list_builds(diff, side);
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		add_side(diff, side);
	add_interrupts(diff);
	give_slots(diff);
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		diff_side_fill(diff, side);
	judge_all(diff);
	for (uint32_t i = 0; i < diff->rows->len; i++) {
		struct diff_row *row = &g_array_index(diff->rows, struct diff_row, i);

		if (row->counts[DIFF_A].count <= 0 && row->counts[DIFF_B].count <= 0)
			continue;
		judge(diff, row);
		diff->significant += row->is_significant;
		g_array_append_val(diff->order, i);
	}
	g_array_sort_with_data(diff->order, compare_rows, diff);
}

bool diff_percent(const struct diff_row *row, double *ret_percent)
{
	if (!(row->a > 0))
		return false;
	*ret_percent = 100 * (row->b - row->a) / row->a;
	return true;
}

void diff_rows_init(struct diff *diff)
{
	diff->identities = g_ptr_array_new();
	diff->by_identity =
		g_hash_table_new_full(identity_hash, identity_equal, identity_free, NULL);
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		diff->builds[side] = g_hash_table_new(g_str_hash, g_str_equal);
	number_map_init(&diff->by_path);
	diff->rows = g_array_new(FALSE, TRUE, sizeof(struct diff_row));
	diff->order = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	diff->blocks = g_array_new(FALSE, TRUE, sizeof(double));
}

void diff_rows_done(struct diff *diff)
{
	if (!diff->rows)
		return;
	g_ptr_array_unref(diff->identities);
	g_hash_table_unref(diff->by_identity);
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		g_hash_table_unref(diff->builds[side]);
	number_map_done(&diff->by_path);
	g_array_unref(diff->rows);
	g_array_unref(diff->order);
	g_array_unref(diff->blocks);
}
