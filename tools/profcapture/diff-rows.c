/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-rows - matches functions of the captures, and judges whether they changed
 *
 * Two builds of a program have different build-ids, offsets and versions of libraries, and two runs
 * different processes. So a function is identified by its name and by its image's name without
 * folder and version; its inlined copies are a row of their own. Code without a symbol is
 * identified by its offset if both captures have the same build of the image, and is otherwise one
 * row of the image.
 *
 * Invariants: (1) the self counts of all rows are those of all functions of both captures
 *                 [test_diff: sums]
 *             (2) no row within its interval, which holds over all rows, is a change
 *                 [test-diff: equals]
 */
#include "config.h"

#include "tools/profcapture/diff.h"

#include <math.h>
#include <string.h>

#define NO_NAME "<no name>"
#define INTERRUPTS "<interrupts>"
#define LEAST_CHANGE \
	0.001 /* share of the whole by which two complete runs of the same program can differ */

/* ---- identities ------------------------------------------------------------------------------ */

/* Returns the length of "-2.36" at the end of a name, or 0. */
static size_t version_at_end(const char *name, size_t length)
{
	bool has_point = false;
	size_t n = 0;

	while (n < length && (g_ascii_isdigit(name[length - 1 - n]) || name[length - 1 - n] == '.'))
		has_point |= name[length - 1 - n++] == '.';
	/* "ld-linux-x86-64" has no version */
	return has_point && n + 1 < length && name[length - 1 - n] == '-' ? n + 1 : 0;
}

char *diff_image_name(const char *path, bool is_jit)
{
	static const char deleted[] = " (deleted)";
	const char *slash = path ? strrchr(path, '/') : NULL;
	const char *name = slash && slash[1] ? slash + 1 : path;
	const char *so;
	size_t length;

	/* Generated code is in memory and in files named after their process. */
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

static void list_builds(struct diff *diff, struct diff_side *run)
{
	const struct names *names = diff_run_reader(diff, run)->capture->names;

	for (guint i = NAMES_LOST + 1; i < names->images->len; i++)
		if (names_image_at(names, i)->build_id)
			g_hash_table_add(run->builds, (gpointer)names_image_at(names, i)->build_id);
}

/* Returns whether every run of the other side has this build, so that a place in it is the same in
 * all of them. */
static bool is_build_of_others(const struct diff *diff, unsigned side, const char *build_id)
{
	const GPtrArray *others = diff->runs[!side];

	for (guint i = 0; i < others->len; i++)
		if (!g_hash_table_contains(diff_run(diff, !side, i)->builds, build_id))
			return false;
	return true;
}

/* Returns whether the name is a place such as "bash+0x4e5c0", which names a function without a
 * symbol (docs/internals.md, "Names"). */
static bool is_place(const char *name, const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	const char *image = slash ? slash + 1 : path;
	size_t length = image ? strlen(image) : 0;

	return length > 0 && strncmp(name, image, length) == 0 &&
	       g_str_has_prefix(name + length, "+0x");
}

static struct diff_identity *identity_new(const struct diff *diff, const struct diff_side *run,
					  const struct function *function)
{
	const struct names *names = diff_run_reader(diff, run)->capture->names;
	const struct names_image *image = names_image_at(names, function->image);
	bool is_known = function->image > NAMES_LOST;
	bool is_unresolved = strcmp(function->kind, "unresolved") == 0 ||
			     is_place(function->name, is_known ? image->path : NULL);
	bool is_same_build = is_known && image->build_id &&
			     is_build_of_others(diff, run->side, image->build_id);
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

static uint32_t identity_of(struct diff *diff, struct diff_side *run, uint32_t function)
{
	GArray *known = run->identities;
	struct diff_identity *id;
	gpointer same;
	uint32_t index;

	if (known->len <= function)
		g_array_set_size(known, function + 1);
	index = g_array_index(known, uint32_t, function);
	if (index)
		return index - 1;
	id = identity_new(diff, run, functions_at(run->functions, function));
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

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns the self counts of the row, by run. */
static double *per_run(const struct diff *diff, uint32_t row)
{
	return &((double *)(void *)diff->per_run->data)[(size_t)row * diff->n_runs];
}

static void add_row(struct diff *diff, const struct diff_row *row)
{
	g_array_append_vals(diff->rows, row, 1);
	g_array_set_size(diff->per_run, diff->rows->len * diff->n_runs);
}

/* Returns the index + 1. */
static uint32_t row_of(struct diff *diff, struct diff_side *run, uint32_t parent, uint32_t function)
{
	struct diff_row new = { .parent = parent,
				.function = { DIFF_NO_FUNCTION, DIFF_NO_FUNCTION } };
	uint32_t identity = identity_of(diff, run, function), *known;
	struct diff_row *row;

	known = number_map_at(&diff->by_path, (uint64_t)parent << 32 | identity);
	if (*known == 0) {
		new.identity = identity;
		add_row(diff, &new);
		*known = diff->rows->len;
	}
	row = &g_array_index(diff->rows, struct diff_row, *known - 1);
	if (row->function[run->side] == DIFF_NO_FUNCTION) {
		guint index = 0;

		(void)g_ptr_array_find(diff->runs[run->side], run, &index);
		row->function[run->side] = function;
		row->run[run->side] = index;
	}
	return *known;
}

static void add_count(struct diff_count *to, const struct diff_count *count)
{
	to->count += count->count;
	to->events += count->events;
	to->squares += count->squares;
}

static void add_run(struct diff *diff, struct diff_side *run)
{
	uint32_t n = run->counts->len;

	g_array_set_size(run->rows, n);
	for (uint32_t key = diff->paths; key < n; key++) {
		const struct diff_count *count =
			&g_array_index(run->counts, struct diff_count, key);
		uint32_t parent = 0, function = key, row;

		if (!diff->paths && count->events == 0 && count->count == 0)
			continue;
		if (diff->paths) {
			diff_side_node(diff, run, key, &parent, &function);
			parent = g_array_index(run->rows, uint32_t, parent);
		}
		row = row_of(diff, run, parent, function);
		g_array_index(run->rows, uint32_t, key) = row;
		add_count(&g_array_index(diff->rows, struct diff_row, row - 1).counts[run->side],
			  count);
		per_run(diff, row - 1)[run->position] += count->count;
	}
}

static void each_run(struct diff *diff, void (*act)(struct diff *diff, struct diff_side *run))
{
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			act(diff, diff_run(diff, side, i));
}

/* Adds a row without a verdict for interrupts, because their load depends on the machine. */
static void add_interrupts(struct diff *diff)
{
	struct diff_row row = { .function = { DIFF_NO_FUNCTION, DIFF_NO_FUNCTION } };
	struct diff_identity *id;

	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			row.counts[side].count += diff_run(diff, side, i)->interrupts;
	if (row.counts[DIFF_A].count + row.counts[DIFF_B].count == 0)
		return;
	id = g_new0(struct diff_identity, 1);
	id->image = g_strdup("[kernel]");
	id->name = g_strdup(INTERRUPTS);
	g_hash_table_insert(diff->by_identity, id, NULL);
	g_ptr_array_add(diff->identities, id);
	row.identity = diff->identities->len - 1;
	add_row(diff, &row);
	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint i = 0; i < diff->runs[side]->len; i++) {
			const struct diff_side *run = diff_run(diff, side, i);

			per_run(diff, diff->rows->len - 1)[run->position] = run->interrupts;
		}
	}
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool can_test(const struct diff *diff)
{
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		for (guint i = 0; i < diff->runs[side]->len; i++)
			if (diff_evidence(diff, &diff_run(diff, side, i)->all) < DIFF_LEAST_ALL)
				return false;
	return diff->measure != DIFF_PEAK;
}

static void give_slots(struct diff *diff)
{
	uint32_t slots = 0;

	for (guint i = 0; can_test(diff) && i < diff->rows->len; i++) {
		struct diff_row *row = &g_array_index(diff->rows, struct diff_row, i);

		/* The sum of both sides is independent of their difference, so it does not bias the
		 * selection. */
		if (diff_evidence(diff, &row->counts[DIFF_A]) +
			    diff_evidence(diff, &row->counts[DIFF_B]) >=
		    DIFF_LEAST_EVENTS)
			row->slot = ++slots;
	}
	diff->tests = slots;
	if (!diff_has_one_run(diff))
		return;
	g_array_set_size(diff->blocks, slots * 2 * NOISE_BLOCKS);
	if (slots > 0)
		memset(diff->blocks->data, 0, slots * 2 * NOISE_BLOCKS * sizeof(double));
}

static double ratio(const struct diff *diff, const struct diff_side *run, double count)
{
	double weight = 0;

	/* The weights of a run sum up to 1, except for rounding. */
	if (diff->norm == DIFF_BY_RUN)
		return count * diff->scale;
	for (unsigned i = 0; i < NOISE_BLOCKS; i++)
		weight += run->weights[i];
	return weight > 0 ? count / weight * diff->scale : 0;
}

/* Returns values by run, in the displayed unit. Free them. */
static double *ratios(const struct diff *diff, const double *counts)
{
	double *values = g_new(double, diff->n_runs);

	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint i = 0; i < diff->runs[side]->len; i++) {
			const struct diff_side *run = diff_run(diff, side, i);

			values[run->position] = ratio(diff, run, counts[run->position]);
		}
	}
	return values;
}

static bool is_sampled(const struct diff *diff)
{
	return diff->measure == DIFF_SAMPLES ||
	       diff_run(diff, DIFF_A, 0)->memory.sampled_bytes > 0 ||
	       diff_run(diff, DIFF_B, 0)->memory.sampled_bytes > 0;
}

/* Compares counts and weights in the displayed unit. */
static struct noise_change compare_blocks(const struct diff *diff, const struct diff_row *row,
					  const double *of[DIFF_SIDES])
{
	double scaled[DIFF_SIDES][NOISE_BLOCKS];
	struct noise_blocks blocks[DIFF_SIDES];

	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (unsigned i = 0; i < NOISE_BLOCKS; i++)
			scaled[side][i] = of[side][i] * diff->scale;
		blocks[side] = (struct noise_blocks){ scaled[side],
						      diff_run(diff, side, 0)->weights,
						      diff_evidence(diff, &row->counts[side]) };
	}
	return noise_compare(&blocks[DIFF_A], &blocks[DIFF_B]);
}

/* Returns the whole of the largest run. */
static double whole(const struct diff *diff)
{
	double most = 0;

	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint i = 0; i < diff->runs[side]->len; i++) {
			const struct diff_side *run = diff_run(diff, side, i);

			most = MAX_OF(most, ratio(diff, run, run->all.count));
		}
	}
	return most;
}

/* `of`: the blocks of each side, if each side has one run; `values`: those of all runs. */
static void compare(const struct diff *diff, struct diff_row *row, const double *of[DIFF_SIDES],
		    const double *values, unsigned tests)
{
	struct noise_change change;

	if (!diff_has_one_run(diff))
		change = noise_runs(values, diff->runs[DIFF_A]->len,
				    values + diff->runs[DIFF_A]->len, diff->runs[DIFF_B]->len);
	/*
	 * Totals of a run: when it allocates, or had a CPU, is not noise of its total. Only the
	 * number of calls or samples varies by chance.
	 */
	else if (diff->norm == DIFF_BY_RUN &&
		 (!is_sampled(diff) || (diff->measure == DIFF_SAMPLES && row == &diff->all)))
		change = noise_calls(row->counts[DIFF_A].squares, row->counts[DIFF_B].squares);
	else
		change = compare_blocks(diff, row, of);
	row->noise = noise_interval(&change, tests);
	if (is_sampled(diff))
		row->noise = MAX_OF(row->noise, LEAST_CHANGE * whole(diff));
	row->has_noise = true;
	row->is_significant = !diff->is_damaged && fabs(row->b - row->a) > row->noise;
}

static double mean(const double *values, guint n)
{
	double sum = 0;

	for (guint i = 0; i < n; i++)
		sum += values[i];
	return sum / n;
}

static void set_values(const struct diff *diff, struct diff_row *row, const double *values)
{
	row->a = mean(values, diff->runs[DIFF_A]->len);
	row->b = mean(values + diff->runs[DIFF_A]->len, diff->runs[DIFF_B]->len);
}

static void judge(const struct diff *diff, struct diff_row *row, const double *counts)
{
	g_autofree double *values = ratios(diff, counts);

	set_values(diff, row, values);
	if (row->slot) {
		const double *of[DIFF_SIDES] = { NULL };

		for (unsigned side = 0; diff_has_one_run(diff) && side < DIFF_SIDES; side++)
			of[side] = diff_blocks(diff, row->slot, side);
		compare(diff, row, of, values, diff->tests);
	} else if (diff->measure == DIFF_PEAK && !is_sampled(diff)) {
		/* The peak is measured exactly, not estimated. */
		row->has_noise = true;
		row->is_significant = !diff->is_damaged && row->a != row->b;
	}
}

/*
 * Tests the whole once, separately from the rows: if it were one of all tests, the few degrees of
 * freedom of a few runs would hide any change of it.
 */
static void judge_all(struct diff *diff)
{
	const double *of[] = { diff_run(diff, DIFF_A, 0)->blocks,
			       diff_run(diff, DIFF_B, 0)->blocks };
	g_autofree double *counts = g_new(double, diff->n_runs), *values = NULL;
	struct diff_row *all = &diff->all;
	/* Shares always sum up to the whole. */
	bool is_tested = can_test(diff) && diff->norm != DIFF_BY_SAMPLES;

	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (guint i = 0; i < diff->runs[side]->len; i++) {
			const struct diff_side *run = diff_run(diff, side, i);

			counts[run->position] = run->all.count;
			add_count(&all->counts[side], &run->all);
		}
	}
	diff->tests += is_tested;
	judge(diff, all, counts);
	values = ratios(diff, counts);
	if (is_tested)
		compare(diff, all, of, values, 1);
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
	each_run(diff, list_builds);
	each_run(diff, add_run);
	add_interrupts(diff);
	give_slots(diff);
	if (diff_has_one_run(diff))
		each_run(diff, diff_side_fill);
	judge_all(diff);
	for (uint32_t i = 0; i < diff->rows->len; i++) {
		struct diff_row *row = &g_array_index(diff->rows, struct diff_row, i);

		if (row->counts[DIFF_A].count <= 0 && row->counts[DIFF_B].count <= 0)
			continue;
		judge(diff, row, per_run(diff, i));
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
	number_map_init(&diff->by_path);
	diff->rows = g_array_new(FALSE, TRUE, sizeof(struct diff_row));
	diff->order = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	diff->blocks = g_array_new(FALSE, TRUE, sizeof(double));
	diff->per_run = g_array_new(FALSE, TRUE, sizeof(double));
}

void diff_rows_done(struct diff *diff)
{
	if (!diff->rows)
		return;
	g_ptr_array_unref(diff->identities);
	g_hash_table_unref(diff->by_identity);
	number_map_done(&diff->by_path);
	g_array_unref(diff->rows);
	g_array_unref(diff->order);
	g_array_unref(diff->blocks);
	g_array_unref(diff->per_run);
}
