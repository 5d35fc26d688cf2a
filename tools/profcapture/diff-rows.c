/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Diff-rows - matches the functions of captures, and judges whether they changed
 *
 * Build-ids, offsets, library versions and processes differ between recordings. So a function is
 * identified by its name and its image's name without folder and version. Its inlined copies are a
 * separate row. Code without a symbol is identified by its offset if all captures of the other side
 * have the same build of the image; otherwise, all such code of an image is one row.
 *
 * Invariants: (1) in each capture, the self counts of all rows add up to those of all functions
 *                 [test_diff: sums]
 *             (2) a difference within the row's interval, which allows for the number of rows, is
 *                 not a change [test-diff: equals]
 */
#include "config.h"

#include "tools/profcapture/diff-run.h"

#include "base/each.h"
#include "base/order.h"

#include <glib/gi18n.h>
#include <math.h>
#include <string.h>

/* Smaller changes are noise: two complete runs of the same program can differ by this share of the
 * whole. */
#define LEAST_CHANGE 0.001

double diff_evidence_of(const struct diff *diff, const struct diff_count *count)
{
	/* The factor keeps rounding from making the result less than the number of equal
	 * samples. */
	return diff->measure == DIFF_SAMPLES && count->squares > 0
		       ? MIN_OF(count->events,
				count->count * count->count / count->squares * (1 + 1e-9))
		       : count->events;
}

/* ---- identities ------------------------------------------------------------------------------ */

char *diff_image_name(const char *path, bool is_jit)
{
	static const char deleted[] = " (deleted)";
	const char *name = functions_basename(path), *so;
	size_t length, version = 0;
	bool has_point = false;

	/* Generated code is in anonymous memory or in files named after the process's pid, so its
	 * image's name differs between runs. */
	if (is_jit)
		return g_strdup("[jit]");
	length = strlen(name);
	if (g_str_has_suffix(name, deleted))
		length -= sizeof(deleted) - 1;
	if (length == 0)
		return g_strdup("-");
	so = g_strstr_len(name, (gssize)length, ".so");
	if (!so || so == name || (so + 3 < name + length && so[3] != '.'))
		return g_strndup(name, length);
	length = (size_t)(so - name);
	/* Remove a version such as "-2.36" at the end; but "ld-linux-x86-64" has no version. */
	for (; version < length &&
	       (g_ascii_isdigit(so[-1 - (ssize_t)version]) || so[-1 - (ssize_t)version] == '.');
	     version++)
		has_point |= so[-1 - (ssize_t)version] == '.';
	if (has_point && version + 1 < length && so[-1 - (ssize_t)version] == '-')
		length -= version + 1;
	return g_strdup_printf("%.*s.so", (int)MIN_OF(length, (size_t)4096), name);
}

/* Returns whether every run of the other side has this build, so that offsets mean the same
 * code. */
static bool is_build_of_others(const struct diff *diff, unsigned side, const char *build_id)
{
	for (guint i = 0; i < diff->runs->len; i++)
		if (diff_run_at(diff, i)->side != side &&
		    !g_hash_table_contains(diff_run_at(diff, i)->builds, build_id))
			return false;
	return true;
}

/* Returns whether the name is an offset such as "bash+0x4e5c0", the name of a function without a
 * symbol (docs/internals.md, "Names"). */
static bool is_place(const char *name, const char *path)
{
	const char *image = functions_basename(path);

	return g_str_has_prefix(name, image) && g_str_has_prefix(name + strlen(image), "+0x");
}

char *diff_identify(const struct functions *functions, uint32_t index, bool has_build,
		    struct diff_identity *ret_id)
{
	const struct function *function = functions_at(functions, index);
	const struct names_image *image = names_image_at(functions->names, function->image);
	bool is_known = function->image > NAMES_LOST;
	bool is_jit = strcmp(function->kind, "jit") == 0 ||
		      (is_known && image->kind == PROF_IMAGE_JIT);
	bool has_name = !is_known || has_build ||
			(strcmp(function->kind, "unresolved") != 0 &&
			 !is_place(function->name, image->path));
	g_autofree char *image_name = diff_image_name(is_known ? image->path : "", is_jit);

	*ret_id = (struct diff_identity){
		.image = names_intern(functions->names, image_name, strlen(image_name)),
		.name = has_name ? function->name : DIFF_NO_NAME,
		.is_inlined = function->is_inlined,
		.has_name = has_name,
	};
	return g_strdup_printf("%d%d%zu %s%s", function->is_inlined, has_name, strlen(image_name),
			       image_name, ret_id->name);
}

static const struct diff_identity *identity_of(struct diff *diff, const struct diff_run *run,
					       uint32_t index)
{
	const struct function *function = functions_at(run->functions, index);
	const char *build_id =
		names_image_at(run->reader->capture->names, function->image)->build_id;
	struct diff_identity new, *id;
	g_autofree char *key =
		diff_identify(run->functions, index,
			      build_id && is_build_of_others(diff, run->side, build_id), &new);

	id = g_hash_table_lookup(diff->identities, key);
	if (id)
		return id;
	new.number = g_hash_table_size(diff->identities);
	id = g_memdup2(&new, sizeof(new));
	g_hash_table_insert(diff->identities, g_steal_pointer(&key), id);
	return id;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns the row's self counts: one for each run. */
static double *per_run(const struct diff *diff, uint32_t row)
{
	return &((double *)(void *)diff->per_run->data)[(size_t)row * diff->runs->len];
}

/* Returns index + 1 of the new row. */
static uint32_t add_row(struct diff *diff, const struct diff_row *row)
{
	g_array_append_vals(diff->rows, row, 1);
	g_array_set_size(diff->per_run, diff->rows->len * diff->runs->len);
	return diff->rows->len;
}

/* Returns index + 1 of the row. Adds the row if needed. `identities`: cache of the identities of
 * the run's functions, by function. */
static uint32_t row_of(struct diff *diff, const struct diff_run *run,
		       const struct diff_identity **identities, uint32_t parent, uint32_t function)
{
	const struct diff_identity *id =
		identities[function] ? identities[function]
				     : (identities[function] = identity_of(diff, run, function));
	uint32_t *known = number_map_at(&diff->by_path, (uint64_t)parent << 32 | id->number);
	struct diff_row new = { .parent = parent, .id = id }, *row;

	if (*known == 0)
		*known = add_row(diff, &new);
	row = &g_array_index(diff->rows, struct diff_row, *known - 1);
	if (!row->functions || row->side != run->side) {
		row->functions = run->functions;
		row->function = function;
		row->place = 0;
		row->side = run->side;
	}
	return *known;
}

static void add_run(struct diff *diff, guint index)
{
	struct diff_run *run = diff_run_at(diff, index);
	g_autofree const struct diff_identity **identities =
		g_new0(const struct diff_identity *, run->functions->all->len);
	bool is_memory = diff->measure != DIFF_SAMPLES;

	g_array_set_size(run->rows, run->counts->len);
	for (uint32_t key = diff->paths; key < run->counts->len; key++) {
		const struct diff_count *count =
			&g_array_index(run->counts, struct diff_count, key);
		uint32_t parent = 0, function = key, place = 0, row;
		struct diff_row *at;

		if (!diff->paths && count->events == 0 && count->count == 0)
			continue;
		if (diff->paths) {
			parent = is_memory ? memory_node_at(&run->memory.tree, key)->parent
					   : diff_run_node(run, key)->parent;
			parent = g_array_index(run->rows, uint32_t, parent);
			function = is_memory ? memory_node_at(&run->memory.tree, key)->function
					     : diff_run_node(run, key)->entity;
		} else if (is_memory) {
			const struct memory_site *site = memory_site_at(&run->memory.tree, key);

			function = site->callee ? site->callee : site->own;
			place = site->place;
			if (site->callee && site->own)
				parent = row_of(diff, run, identities, 0, site->own);
		}
		row = row_of(diff, run, identities, parent, function);
		g_array_index(run->rows, uint32_t, key) = row;
		at = &g_array_index(diff->rows, struct diff_row, row - 1);
		if (at->functions == run->functions)
			at->place = at->counts[run->side].count == 0 || at->place == place ? place
											   : 0;
		diff_count_add(&at->counts[run->side], count);
		per_run(diff, row - 1)[index] += count->count;
	}
}

/* Adds a row for interrupts, without a verdict, because their number depends on the machine. */
static void add_interrupts(struct diff *diff)
{
	static const struct diff_identity interrupts = { .image = DIFF_KERNEL,
							 .name = DIFF_INTERRUPTS };
	struct diff_row row = { .id = &interrupts, .is_unjudged = true };
	uint32_t index;

	for (guint i = 0; i < diff->runs->len; i++)
		row.counts[diff_run_at(diff, i)->side].count += diff_run_at(diff, i)->interrupts;
	if (row.counts[DIFF_A].count + row.counts[DIFF_B].count == 0)
		return;
	index = add_row(diff, &row) - 1;
	for (guint i = 0; i < diff->runs->len; i++)
		per_run(diff, index)[i] = diff_run_at(diff, i)->interrupts;
}

static void clear_row(gpointer row)
{
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		g_free(((struct diff_row *)row)->blocks[side]);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool can_test(const struct diff *diff)
{
	for (guint i = 0; i < diff->runs->len; i++)
		if (diff_evidence_of(diff, &diff_run_at(diff, i)->all) < DIFF_LEAST_ALL)
			return false;
	return diff->measure != DIFF_PEAK;
}

/* Chooses the rows to test. With one run per side, allocates their sums by block of time. */
static void choose_tested(struct diff *diff)
{
	bool can = can_test(diff);

	ARRAY_EACH(struct diff_row, row, diff->rows) {
		/* Use the sum of both sides, which is independent of their difference, so that the
		 * selection is not biased. */
		row->is_tested = can &&
				 diff_evidence_of(diff, &row->counts[DIFF_A]) +
						 diff_evidence_of(diff, &row->counts[DIFF_B]) >=
					 DIFF_LEAST_EVENTS;
		diff->tests += row->is_tested;
		if (row->is_tested && diff_has_one_run(diff))
			for (unsigned side = 0; side < DIFF_SIDES; side++)
				row->blocks[side] = g_new0(double, NOISE_BLOCKS);
	}
}

/* Returns the blocks of the row of a key (diff_run_key()); NULL if the row has none. */
static double *blocks_of_key(const struct diff_run *run, uint32_t key)
{
	uint32_t row = g_array_index(run->rows, uint32_t, key);

	return row ? diff_row_at(run->diff, row - 1)->blocks[run->side] : NULL;
}

/* Adds up the self counts of a run by block. */
static void fill_blocks(struct diff *diff, const struct diff_run *run)
{
	for (guint i = 0; diff->measure == DIFF_SAMPLES && i < run->profile.each->len; i++) {
		const struct profile_sample *sample =
			&g_array_index(run->profile.each, struct profile_sample, i);
		double *blocks = blocks_of_key(run, diff_run_key(run, sample->node));

		if (blocks)
			blocks[diff_run_block(run, sample->time_ns)] += (double)sample->weight;
	}
	for (guint i = 0; diff->measure != DIFF_SAMPLES && i < run->counts->len; i++) {
		double *blocks = blocks_of_key(run, i);

		for (unsigned k = 0; blocks && k < NOISE_BLOCKS; k++)
			blocks[k] += g_array_index(run->buckets, double, i *NOISE_BLOCKS + k);
	}
}

static bool is_sampled(const struct diff *diff)
{
	return diff->measure == DIFF_SAMPLES ||
	       diff_first(diff, DIFF_A)->memory.sampled_bytes > 0 ||
	       diff_first(diff, DIFF_B)->memory.sampled_bytes > 0;
}

/* Compares both sides' blocks in the displayed unit. */
static struct noise_change compare_blocks(const struct diff *diff, const struct diff_row *row)
{
	double scaled[DIFF_SIDES][NOISE_BLOCKS];
	struct noise_blocks blocks[DIFF_SIDES];

	for (unsigned side = 0; side < DIFF_SIDES; side++) {
		for (unsigned i = 0; i < NOISE_BLOCKS; i++)
			scaled[side][i] = row->blocks[side][i] * diff->scale;
		blocks[side] = (struct noise_blocks){ scaled[side], diff_first(diff, side)->weights,
						      diff_evidence_of(diff, &row->counts[side]) };
	}
	return noise_compare(&blocks[DIFF_A], &blocks[DIFF_B]);
}

/* Returns a run's count in the displayed unit. */
static double ratio(const struct diff *diff, const struct diff_run *run, double count)
{
	/* With DIFF_BY_RUN, the weights add up to 1, except for rounding: do not divide by them. */
	if (diff->norm == DIFF_BY_RUN)
		return count * diff->scale;
	return run->weight > 0 ? count / run->weight * diff->scale : 0;
}

/*
 * Sets the values of a row from its counts by run. `tests`: the number of tests that its interval
 * allows for; 0: this row is not tested.
 */
static void judge(struct diff *diff, struct diff_row *row, const double *counts, unsigned tests)
{
	g_autofree double *values = g_new(double, diff->runs->len);
	guint n_a = diff->n_runs[DIFF_A], n_b = diff->n_runs[DIFF_B];
	struct noise_change change;

	for (guint i = 0; i < diff->runs->len; i++) {
		values[i] = ratio(diff, diff_run_at(diff, i), counts[i]);
		*(i < n_a ? &row->a : &row->b) += values[i];
		if (row == &diff->all)
			diff->most = MAX_OF(diff->most, values[i]);
	}
	row->a /= n_a;
	row->b /= n_b;
	if (tests == 0) {
		/* The peak is exact, so any difference counts, unless allocations were sampled. */
		row->has_noise = diff->measure == DIFF_PEAK && !is_sampled(diff);
		row->is_significant = row->has_noise && !diff->is_damaged && row->a != row->b;
		return;
	}
	if (!diff_has_one_run(diff))
		change = noise_runs(values, n_a, values + n_a, n_b);
	/*
	 * For totals of a run, it does not matter when the allocations or samples occurred. Only
	 * their number varies by chance.
	 */
	else if (diff->norm == DIFF_BY_RUN &&
		 (!is_sampled(diff) || (diff->measure == DIFF_SAMPLES && row == &diff->all)))
		change = noise_calls(row->counts[DIFF_A].squares, row->counts[DIFF_B].squares);
	else
		change = compare_blocks(diff, row);
	row->noise = noise_interval(&change, tests);
	if (is_sampled(diff))
		row->noise = MAX_OF(row->noise, LEAST_CHANGE * diff->most);
	row->has_noise = true;
	row->is_significant = !diff->is_damaged && fabs(row->b - row->a) > row->noise;
}

/*
 * Tests the total separately from the rows. If the total were one of many tests, a few runs would
 * have too few degrees of freedom to show that it changed.
 */
static void judge_all(struct diff *diff)
{
	g_autofree double *counts = g_new(double, diff->runs->len);
	bool is_tested = can_test(diff) && diff->norm != DIFF_BY_SAMPLES;

	for (guint i = 0; i < diff->runs->len; i++) {
		const struct diff_run *run = diff_run_at(diff, i);

		counts[i] = run->all.count;
		diff_count_add(&diff->all.counts[run->side], &run->all);
	}
	for (unsigned side = 0; side < DIFF_SIDES; side++)
		diff->all.blocks[side] = diff_first(diff, side)->blocks;
	/* Shares always add up to 100 %, so the total cannot change. */
	diff->all.is_unjudged = diff->norm == DIFF_BY_SAMPLES;
	diff->tests += is_tested;
	judge(diff, &diff->all, counts, is_tested);
}

COMPARE_AT(compare_rows, struct diff_row, ORDER(b->is_significant, a->is_significant),
	   ORDER(fabs(b->b - b->a), fabs(a->b - a->a)), ORDER(b->a, a->a),
	   strcmp(a->id->name, b->id->name), strcmp(a->id->image, b->id->image), ORDER(a, b))

static void compare_runs(struct diff *diff)
{
	for (guint i = 0; i < diff->runs->len; i++)
		add_run(diff, i);
	add_interrupts(diff);
	choose_tested(diff);
	for (guint i = 0; diff_has_one_run(diff) && can_test(diff) && i < diff->runs->len; i++)
		fill_blocks(diff, diff_run_at(diff, i));
	judge_all(diff);
	for (uint32_t i = 0; i < diff->rows->len; i++) {
		struct diff_row *row = &g_array_index(diff->rows, struct diff_row, i);

		if (row->counts[DIFF_A].count <= 0 && row->counts[DIFF_B].count <= 0)
			continue;
		judge(diff, row, per_run(diff, i), row->is_tested ? diff->tests : 0);
		diff->significant += row->is_significant;
		g_ptr_array_add(diff->order, row);
	}
	g_ptr_array_sort(diff->order, compare_rows);
}

/* ---- processes ------------------------------------------------------------------------------- */

COMPARE_AT(compare_processes, struct diff_row, ORDER(fabs(b->b - b->a), fabs(a->b - a->a)),
	   g_strcmp0(a->comm, b->comm))

static void add_processes(struct diff *diff, const struct diff_run *run)
{
	for (uint32_t i = 0; i < run->memory.processes->len; i++) {
		const struct memory_counts *counts =
			&g_array_index(run->memory.processes, struct memory_counts, i);
		double count = diff->measure == DIFF_BYTES   ? counts->allocated_bytes
			       : diff->measure == DIFF_CALLS ? counts->allocations
							     : counts->peak_bytes;
		const char *comm = memory_comm(&run->memory, i);
		struct diff_row *row = NULL;

		if (!counts->is_there)
			continue;
		for (guint k = 0; k < diff->processes->len && !row; k++) {
			row = diff->processes->pdata[k];
			row = g_strcmp0(row->comm, comm) == 0 ? row : NULL;
		}
		if (!row) {
			row = g_new0(struct diff_row, 1);
			row->comm = comm;
			g_ptr_array_add(diff->processes, row);
		}
		*(run->side == DIFF_A ? &row->a : &row->b) += ratio(diff, run, count) /
							      diff->n_runs[run->side];
	}
}

/* ---- the query ------------------------------------------------------------------------------- */

/* Chooses the unit. CPU time or a number of events is known only if all captures record what a
 * sample represents, in the same unit; otherwise, the unit is "samples". */
static void choose_unit(struct diff *diff)
{
	static const char *const suffixes[] = { "", "_per_s", "", "_per_mark" };
	const char *unit = diff->measure == DIFF_CALLS ? "calls" : "bytes";
	bool is_time;

	if (diff->measure == DIFF_SAMPLES) {
		unit = profile_unit(&diff_run_at(diff, 0)->profile);
		for (guint i = 1; i < diff->runs->len; i++)
			if (strcmp(profile_unit(&diff_run_at(diff, i)->profile), unit) != 0)
				unit = "samples";
	}
	is_time = strcmp(unit, "ns") == 0;
	diff->total_unit = unit;
	diff->scale = 1;
	if (diff->norm == DIFF_BY_SAMPLES) {
		diff->unit = g_strdup("percent");
		diff->scale = 100;
	} else if (diff->norm == DIFF_BY_TIME && is_time) {
		diff->unit = g_strdup("percent_cpu");
		diff->scale = 1 / 1e7; /* ns per second to percent */
	} else {
		diff->unit = g_strconcat(unit, suffixes[diff->norm], NULL);
	}
}

static bool read_all(struct diff *diff, const GPtrArray *files, guint n_a, GError **error)
{
	bool has_whole_runs = true;

	for (guint i = 0; i < files->len; i++) {
		if (!diff_run_read(diff, i < n_a ? DIFF_A : DIFF_B, files->pdata[i], error))
			return false;
		has_whole_runs &=
			capture_metadata(diff_run_at(diff, i)->reader->capture, "command") != NULL;
	}
	diff_add_notes(diff);
	/* Totals can be compared only between whole runs of a command, of the same event. */
	if (diff->chooses_norm)
		diff->norm = has_whole_runs && diff->has_events ? DIFF_BY_RUN : DIFF_BY_SAMPLES;
	if (!diff->has_events && diff->norm != DIFF_BY_SAMPLES) {
		return cli_set_error(
			error, CLI_USAGE,
			_("%s; only their shares can be compared: --normalize samples"),
			((const struct diff_note *)diff->notes->pdata[0])->text);
	}
	for (guint i = 0; i < diff->runs->len; i++)
		if (!diff_run_weigh(diff_run_at(diff, i), error))
			return false;
	return true;
}

bool diff_compare(struct diff *diff, const GPtrArray *files, guint n_a, GError **error)
{
	diff->runs = g_ptr_array_new_with_free_func(diff_run_free);
	diff->notes = g_ptr_array_new_with_free_func(diff_note_free);
	diff->identities = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
	number_map_init(&diff->by_path);
	diff->rows = g_array_new(FALSE, TRUE, sizeof(struct diff_row));
	g_array_set_clear_func(diff->rows, clear_row);
	diff->order = g_ptr_array_new();
	diff->per_run = g_array_new(FALSE, TRUE, sizeof(double));
	if (!read_all(diff, files, n_a, error))
		return false;
	choose_unit(diff);
	compare_runs(diff);
	if (diff->measure == DIFF_SAMPLES)
		return true;
	diff->processes = g_ptr_array_new_with_free_func(g_free);
	for (guint i = 0; i < diff->runs->len; i++)
		add_processes(diff, diff_run_at(diff, i));
	g_ptr_array_sort(diff->processes, compare_processes);
	return true;
}

void diff_done(struct diff *diff)
{
	reader_done(&diff->options);
	if (!diff->runs)
		return;
	g_ptr_array_unref(diff->notes);
	g_clear_pointer(&diff->processes, g_ptr_array_unref);
	g_hash_table_unref(diff->identities);
	number_map_done(&diff->by_path);
	g_array_unref(diff->rows);
	g_ptr_array_unref(diff->order);
	g_array_unref(diff->per_run);
	g_ptr_array_unref(diff->runs);
	g_free(diff->unit);
}

enum diff_verdict diff_verdict_of(const struct diff *diff, const struct diff_row *row)
{
	bool is_more = row->b > row->a;

	if (diff->prevents_verdict || row->is_unjudged)
		return DIFF_NO_VERDICT;
	if (!row->is_significant)
		return row->has_noise ? DIFF_SAME : DIFF_UNCLEAR;
	if (row->a == 0 || row->b == 0)
		return is_more ? DIFF_NEW : DIFF_GONE;
	if (diff->measure != DIFF_SAMPLES)
		return is_more ? DIFF_MORE : DIFF_LESS;
	return is_more ? DIFF_SLOWER : DIFF_FASTER;
}

double diff_percent(const struct diff_row *row)
{
	return row->a > 0 ? 100 * (row->b - row->a) / row->a : INFINITY;
}

uint64_t diff_samples_needed(const struct diff *diff, const struct diff_row *row)
{
	double change = fabs(row->b - row->a), times;
	double samples =
		MIN_OF(diff_first(diff, DIFF_A)->all.events, diff_first(diff, DIFF_B)->all.events);

	if (diff->measure != DIFF_SAMPLES || !diff_has_one_run(diff) || row->is_unjudged ||
	    row->is_significant || change <= LEAST_CHANGE * diff->most)
		return 0;
	/* Noise is inversely proportional to the square root of the number of samples. */
	times = row->has_noise ? row->noise * row->noise / (change * change)
			       : DIFF_LEAST_EVENTS / (diff_evidence_of(diff, &row->counts[DIFF_A]) +
						      diff_evidence_of(diff, &row->counts[DIFF_B]));
	return MAX_OF((uint64_t)ceil(samples * times), (uint64_t)DIFF_LEAST_ALL);
}
