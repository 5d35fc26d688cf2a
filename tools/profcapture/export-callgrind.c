/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Export-callgrind - the format of callgrind_annotate and KCachegrind (valgrind's cl-format)
 *
 * Each thread name is a function that calls the roots of its stacks, so each function has a caller,
 * and the costs of the calls to a function sum up to its total. In a recursion, only the outermost
 * call of a function has a cost; the others cost 0, which shows the cycle without counting a sample
 * twice. Samples do not show how often a function was called, so the number of calls is replaced by
 * their number of samples.
 */
#include "config.h"

#include "base/order.h"
#include "tools/profcapture/export-tree.h"

#include <inttypes.h>
#include <string.h>

/* The cost of a frame, or of calls from it. */
struct callgrind_cost {
	uint32_t function, frame; /* the frame that represents the function; the frame itself */
	uint32_t callee;          /* a function, or NO_CALLEE: the frame's own cost */
	struct amount amount;
	uint64_t calls;
};
#define NO_CALLEE UINT32_MAX

struct callgrind {
	const struct export *export;
	struct out *out;
	struct export_tree tree;
	uint32_t *functions;       /* by frame: the frame that represents its function */
	GArray *costs;             /* struct callgrind_cost */
	struct number_map cost_of; /* frame and callee → index + 1 in costs */
	bool is_weighted;          /* each cost has a weight and a number of samples */
	GHashTable *names[3];      /* names of objects, files and functions: text → number */
};
enum { OBJECT, FILE_NAME, FUNCTION };

/* ---- costs ----------------------------------------------------------------------------------- */

static void find_functions(struct callgrind *callgrind)
{
	const struct profile *profile = &callgrind->export->profile;
	struct number_map first; /* function → its first frame + 1 */

	number_map_init(&first);
	callgrind->functions = g_new(uint32_t, callgrind->tree.frames->len);
	for (uint32_t i = 0; i < callgrind->tree.frames->len; i++) {
		const struct export_frame *frame = callgrind->tree.frames->pdata[i];
		uint32_t *known;

		callgrind->functions[i] = i;
		if (!frame->export)
			continue;
		known = number_map_at(&first, functions_whole(profile->functions, frame->function));
		if (*known == 0)
			*known = i + 1;
		callgrind->functions[i] = *known - 1;
	}
	number_map_done(&first);
}

static struct callgrind_cost *cost_of(struct callgrind *callgrind, uint32_t frame, uint32_t callee)
{
	const struct callgrind_cost cost = { .function = callgrind->functions[frame],
					     .frame = frame,
					     .callee = callee };
	uint32_t *known = number_map_at(&callgrind->cost_of, (uint64_t)frame << 32 | callee);

	if (*known == 0) {
		g_array_append_val(callgrind->costs, cost);
		*known = callgrind->costs->len;
	}
	return &g_array_index(callgrind->costs, struct callgrind_cost, *known - 1);
}

/* Visits the tree with an explicit stack, not by recursion, because call stacks may be deep. */
static void count_costs(struct callgrind *callgrind)
{
	const struct export_tree *tree = &callgrind->tree;
	g_autofree uint32_t *on_path = g_new0(uint32_t, tree->frames->len); /* by function */
	g_autofree uint32_t *next = g_memdup2(tree->children, tree->nodes->len * sizeof(uint32_t));
	uint32_t at = 0;

	for (;;) {
		const struct export_node *node = export_node_at(tree, at), *child;
		uint32_t below, callee;

		if (next[at] == tree->children[at + 1]) {
			if (at == 0)
				return;
			on_path[callgrind->functions[node->frame]]--;
			at = node->parent;
			continue;
		}
		below = tree->order[next[at]++];
		child = export_node_at(tree, below);
		callee = callgrind->functions[child->frame];
		if (child->self[EXPORT_NOW].weight > 0 || child->self[EXPORT_NOW].samples > 0)
			amount_add(&cost_of(callgrind, child->frame, NO_CALLEE)->amount,
				   child->self[EXPORT_NOW]);
		if (at != 0) {
			struct callgrind_cost *call = cost_of(callgrind, node->frame, callee);

			call->calls += MAX_OF(child->total[EXPORT_NOW].samples, UINT64_C(1));
			if (on_path[callee] == 0)
				amount_add(&call->amount, child->total[EXPORT_NOW]);
		}
		on_path[callee]++;
		at = below;
	}
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Writes "fn=(1) name" the first time, then only "fn=(1)". */
static void write_name(struct callgrind *callgrind, const char *key, int kind, const char *text)
{
	GHashTable *names = callgrind->names[kind];
	gpointer known = g_hash_table_lookup(names, text);

	if (known) {
		out_printf(callgrind->out, "%s=(%u)\n", key, GPOINTER_TO_UINT(known));
		return;
	}
	g_hash_table_insert(names, g_strdup(text), GUINT_TO_POINTER(g_hash_table_size(names) + 1));
	out_printf(callgrind->out, "%s=(%u) %s\n", key, g_hash_table_size(names), text);
}

/* Returns the escaped name, or the format's text for an unknown object or file. */
static char *text_of(const char *name)
{
	return name && *name ? text_escape_utf8(name, strlen(name)) : g_strdup("???");
}

/* Writes the object, file and name of a function; the keys of a called function begin with 'c'. */
static void write_function(struct callgrind *callgrind, uint32_t function, bool is_called)
{
	const struct export *export = callgrind->export;
	const struct export_frame *frame = callgrind->tree.frames->pdata[function];
	const struct functions *functions = export->profile.functions;
	const char *image = functions_image(functions, frame->function);
	const char *file = export->files[export_function(export, frame->function)];
	g_autofree char *object = text_of(frame->export ? image : "threads");
	g_autofree char *path = text_of(frame->export ? file : "threads");

	write_name(callgrind, is_called ? "cob" : "ob", OBJECT, object);
	write_name(callgrind, is_called ? "cfi" : "fl", FILE_NAME, path);
	write_name(callgrind, is_called ? "cfn" : "fn", FUNCTION, *frame->text ? frame->text : "-");
}

static void write_amount(const struct callgrind *callgrind, struct amount amount)
{
	if (callgrind->is_weighted)
		out_printf(callgrind->out, "%" PRIu64 " %" PRIu64 "\n", amount.weight,
			   amount.samples);
	else
		out_printf(callgrind->out, "%" PRIu64 "\n",
			   export_value_of(callgrind->export, amount));
}

static uint32_t line_of(const struct callgrind *callgrind, uint32_t frame)
{
	const struct export_frame *at = callgrind->tree.frames->pdata[frame];

	return at->export ? export_line(at->export, at->function) : 0;
}

static gint compare_costs(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct callgrind_cost *a = left, *b = right;

	return ORDER_BY(ORDER(a->function, b->function),
			ORDER(line_of(data, a->frame), line_of(data, b->frame)),
			ORDER(a->callee + 1, b->callee + 1), ORDER(a->frame, b->frame));
}

/* The name of an event has only letters, digits and underscores. */
static void write_events(struct callgrind *callgrind)
{
	static const char *const values[] = { "samples", "alloc_objects", "alloc_space",
					      "inuse_objects", "inuse_space" };
	const struct export *export = callgrind->export;
	const char *name = callgrind->is_weighted ? export_weight_name(export)
						  : values[export->value];
	g_autofree char *event = text_escape_utf8(name, strlen(name));
	g_autofree char *word = g_strconcat(g_ascii_isalpha(*event) ? "" : "_", event, NULL);

	g_strcanon(word, G_CSET_A_2_Z G_CSET_a_2_z G_CSET_DIGITS "_", '_');
	if (callgrind->is_weighted)
		out_printf(callgrind->out, "event: %s : %s (%s)\n", word, event,
			   profile_unit(&export->profile));
	out_printf(callgrind->out, "events: %s%s%s\nsummary: ", word,
		   callgrind->is_weighted ? " " : "",
		   callgrind->is_weighted ? export_sample_name(export) : "");
	write_amount(callgrind, export_node_at(&callgrind->tree, 0)->total[EXPORT_NOW]);
}

static void write_costs(struct callgrind *callgrind)
{
	uint32_t function = UINT32_MAX;

	g_array_sort_with_data(callgrind->costs, compare_costs, callgrind);
	for (guint i = 0; i < callgrind->costs->len && !out_failed(callgrind->out); i++) {
		const struct callgrind_cost *cost =
			&g_array_index(callgrind->costs, struct callgrind_cost, i);

		if (cost->function != function) {
			out_char(callgrind->out, '\n');
			write_function(callgrind, cost->function, false);
			function = cost->function;
		}
		if (cost->callee != NO_CALLEE) {
			const struct export_frame *callee =
				callgrind->tree.frames->pdata[cost->callee];
			const struct functions *functions = callgrind->export->profile.functions;

			write_function(callgrind, cost->callee, true);
			out_printf(callgrind->out, "calls=%" PRIu64 " %" PRIu32 "\n", cost->calls,
				   functions_at(functions,
						functions_whole(functions, callee->function))
					   ->line);
		}
		out_printf(callgrind->out, "%" PRIu32 " ", line_of(callgrind, cost->frame));
		write_amount(callgrind, cost->amount);
	}
}

bool export_callgrind(struct export *export, struct out *out, GError **error)
{
	g_autofree char *title = export_title(export);
	g_autofree char *command = text_escape_utf8(title, strlen(title));
	struct callgrind callgrind = {
		.export = export,
		.out = out,
		.costs = g_array_new(FALSE, FALSE, sizeof(struct callgrind_cost)),
		.is_weighted = export->value == EXPORT_SAMPLES && export->profile.event &&
			       export->profile.event->unit,
	};

	for (size_t i = 0; i < ARRAY_SIZE(callgrind.names); i++)
		callgrind.names[i] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	number_map_init(&callgrind.cost_of);
	export_tree_init(&callgrind.tree, export, false);
	find_functions(&callgrind);
	count_costs(&callgrind);
	out_printf(out,
		   "# callgrind format\nversion: 1\ncreator: profcapture " PROF_VERSION
		   "\ncmd: %s\ndesc: Calls: %s in them\npositions: line\n",
		   command, export_sample_name(export));
	write_events(&callgrind);
	write_costs(&callgrind);
	for (size_t i = 0; i < ARRAY_SIZE(callgrind.names); i++)
		g_hash_table_unref(callgrind.names[i]);
	number_map_done(&callgrind.cost_of);
	g_array_unref(callgrind.costs);
	g_free(callgrind.functions);
	export_tree_done(&callgrind.tree);
	return true;
}
