/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/present/tree.h"
#include "tools/profile/cct-fold.h"

#include <locale.h>

/* Functions of the tests, named after their roles. */
enum { ROOT, MAIN, RUN_ALL, SORT, SWAP, COMPARE, MALLOC, ENTRY, SYSCALL, WRITE, LOCK, LOST, DOOR };

static const struct {
	const char *name;
	enum cct_kind kind;
} functions[] = {
	[ROOT] = { "root", CCT_UNKNOWN },         [MAIN] = { "main", CCT_OWN },
	[RUN_ALL] = { "run_all", CCT_OWN },       [SORT] = { "sort", CCT_LIBRARY },
	[SWAP] = { "swap", CCT_LIBRARY },         [COMPARE] = { "compare", CCT_OWN },
	[MALLOC] = { "malloc", CCT_LIBRARY },     [ENTRY] = { "entry", CCT_KERNEL },
	[SYSCALL] = { "sys_write", CCT_SYSCALL }, [WRITE] = { "vfs_write", CCT_KERNEL },
	[LOCK] = { "lock", CCT_KERNEL },          [LOST] = { "<deeper>", CCT_UNKNOWN },
	[DOOR] = { "entry_SYSCALL", CCT_ENTRY },
};

static enum cct_kind kind_of(uint32_t function, const void *data)
{
	(void)data;
	return functions[function].kind;
}

static const char *name_of(uint32_t function, const void *data)
{
	(void)data;
	return functions[function].name;
}

static const struct tree_options down = {
	.kind_of = kind_of, .name_of = name_of, .folds = true, .min_share = 0.01
};
static const struct tree_options up = { .kind_of = kind_of,
					.name_of = name_of,
					.folds = true,
					.min_share = 0.01,
					.is_inverted = true };

/* Adds a node. finish() sums up the totals. */
static uint32_t add(GArray *nodes, uint32_t parent, uint32_t function, double self)
{
	const struct cct_node node = {
		.parent = parent, .function = function, .self = self, .self_count = self
	};

	g_array_append_val(nodes, node);
	return nodes->len - 1;
}

static GArray *begin(void)
{
	GArray *nodes = g_array_new(FALSE, TRUE, sizeof(struct cct_node));

	add(nodes, 0, ROOT, 0);
	return nodes;
}

static struct cct_node *at(GArray *nodes, uint32_t i)
{
	return &g_array_index(nodes, struct cct_node, i);
}

static void finish(GArray *nodes)
{
	for (uint32_t i = nodes->len; i-- > 0;) {
		at(nodes, i)->total += at(nodes, i)->self;
		at(nodes, i)->total_count = at(nodes, i)->total;
		if (i > 0)
			at(nodes, at(nodes, i)->parent)->total += at(nodes, i)->total;
	}
}

/* Returns lines such as "├─ sort+1=60/10": function, number of folded frames, total, and self if it
 * is not 0. */
static char *draw(GArray *nodes, const struct tree_options *options)
{
	g_autoptr(GArray) folded =
		options->folds ? cct_fold(nodes, options->kind_of, NULL, options->is_inverted)
			       : NULL;
	GArray *shown = folded ? folded : nodes;
	bool hides;
	g_autoptr(GArray) lines = tree_find_lines(shown, options, &hides);
	GString *text = g_string_new(NULL);

	for (guint i = 0; i < lines->len; i++) {
		const struct tree_line *line = &g_array_index(lines, struct tree_line, i);
		const struct cct_node *node = at(shown, line->node);

		g_string_append_printf(text, "%s%s", i ? "\n" : "", line->prefix);
		if (line->node == 0) {
			g_string_append_printf(text, "%u hidden=%g", line->n_hidden, line->hidden);
			continue;
		}
		g_string_append(text, functions[node->function].name);
		if (line->caller)
			g_string_append_printf(text, "<%s",
					       functions[at(shown, line->caller)->function].name);
		if (line->folded)
			g_string_append_printf(text, "+%u", line->folded);
		g_string_append_printf(text, "=%g", node->total);
		if (node->self > 0)
			g_string_append_printf(text, "/%g", node->self);
	}
	if (hides)
		g_string_append(text, "\n...");
	return g_string_free(text, FALSE);
}

static void check(GArray *nodes, const struct tree_options *options, const char *want)
{
	g_autofree char *drawn = NULL;

	finish(nodes);
	drawn = draw(nodes, options);
	CHECK_STR(drawn, want);
	g_array_unref(nodes);
}

/* Two paths through a library become one node. The program's own functions that the library calls
 * keep their nodes. */
static void test_libraries(void)
{
	GArray *nodes = begin();
	uint32_t main = add(nodes, 0, MAIN, 10);
	uint32_t sort = add(nodes, main, SORT, 1);
	uint32_t swap = add(nodes, sort, SWAP, 1);

	add(nodes, swap, COMPARE, 20);
	add(nodes, sort, COMPARE, 30);
	add(nodes, main, COMPARE, 5);
	check(nodes, &down,
	      "main=67/10\n"
	      "├─ sort+1=52/2\n"
	      "│  └─ compare=50/50\n"
	      "└─ compare=5/5");
}

/* A library function with much self weight keeps its node. */
static void test_hot_library(void)
{
	GArray *nodes = begin();
	uint32_t main = add(nodes, 0, MAIN, 50);
	uint32_t sort = add(nodes, main, SORT, 20);

	add(nodes, add(nodes, sort, SWAP, 1), MALLOC, 29);
	check(nodes, &down,
	      "main=100/50\n"
	      "└─ sort+1=50/21\n"
	      "   └─ malloc=29/29");
}

/* The kernel's frames become one line per system call, named by the function of the call. Other
 * frames of the kernel become one line, named by the outermost frame. */
static void test_kernel(void)
{
	GArray *nodes = begin();
	uint32_t main = add(nodes, 0, MAIN, 50);
	uint32_t entry = add(nodes, main, ENTRY, 10);
	uint32_t call = add(nodes, entry, SYSCALL, 2);

	add(nodes, call, WRITE, 20);
	add(nodes, add(nodes, entry, LOCK, 3), LOCK, 15);
	check(nodes, &down,
	      "main=100/50\n"
	      "├─ entry+1=28/28\n"
	      "└─ sys_write+1=22/22");
}

/* Entry frames, through which every system call passes, name a line only if no other frame is below
 * them. */
static void test_kernel_entry(void)
{
	GArray *nodes = begin();
	uint32_t main = add(nodes, 0, MAIN, 50);
	uint32_t door = add(nodes, add(nodes, main, DOOR, 2), DOOR, 1);

	add(nodes, add(nodes, door, LOCK, 0), WRITE, 17);
	add(nodes, add(nodes, door, SYSCALL, 0), LOCK, 30);
	check(nodes, &down,
	      "main=100/50\n"
	      "├─ sys_write+1=30/30\n"
	      "├─ lock+1=17/17\n"
	      "└─ entry_SYSCALL=3/3");
}

static char *shown_name(uint32_t function, const void *data)
{
	return g_strdup(name_of(function, data));
}

static char *place_of(uint32_t function, const void *data)
{
	(void)data;
	return g_strdup_printf("%s.c", functions[function].name);
}

static char *print(GArray *nodes, uint64_t rows)
{
	struct tree_options options = down;
	struct table table = { 0 };
	struct out out;
	struct table_style style = { .out = &out };
	g_autoptr(GArray) folded = cct_fold(nodes, kind_of, NULL, false);
	char *text;

	options.shown_name = shown_name;
	options.place_of = place_of;
	options.rows = rows;
	options.whole = 100;
	out = out_buffer();
	tree_print(folded, &options, &table, &style, false);
	text = g_strdup(out.text->str);
	out_done(&out);
	return text;
}

/* The heaviest branches are shown, and lines sum up the hidden ones. */
static void test_rows(void)
{
	GArray *nodes = begin();
	uint32_t main = add(nodes, 0, MAIN, 20), run = add(nodes, main, RUN_ALL, 10);
	g_autofree char *all = NULL, *three = NULL, *one = NULL;

	add(nodes, run, SYSCALL, 40);
	add(nodes, main, COMPARE, 18);
	add(nodes, main, LOST, 12);
	finish(nodes);
	all = print(nodes, 5);
	three = print(nodes, 4);
	one = print(nodes, 1);
	CHECK_STR(all, "function\n"
		       "main  main.c\n"
		       "├─ run_all  run_all.c\n"
		       "│  └─ kernel: sys_write\n"
		       "├─ compare  compare.c\n"
		       "└─ <deeper>  <deeper>.c\n");
	CHECK_STR(three, "function\n"
			 "main  main.c\n"
			 "├─ run_all  run_all.c\n"
			 "│  └─ kernel: sys_write\n"
			 "└─ 2 smaller branches, 30.0 %\n"
			 "Branches below 40.0 % are not shown (--limit 0).\n");
	CHECK_STR(one, "function\n"
		       "main  main.c\n"
		       "Branches below 100.0 % are not shown (--limit 0).\n");
	g_array_unref(nodes);
}

/* A frame with a single callee is joined with the callee, unless the callee is in a library. */
static void test_chain(void)
{
	GArray *nodes = begin();
	uint32_t start = add(nodes, 0, SORT, 0), main = add(nodes, start, MAIN, 0);
	uint32_t run = add(nodes, main, RUN_ALL, 0);

	add(nodes, run, MALLOC, 100);
	check(nodes, &down,
	      "run_all+2=100\n"
	      "└─ malloc=100/100");
}

static void test_hidden(void)
{
	GArray *nodes = begin(), *pruned = begin(), *joined = begin();
	uint32_t main = add(nodes, 0, MAIN, 50.4);

	add(nodes, main, COMPARE, 48);
	for (unsigned i = 0; i < 4; i++)
		add(nodes, main, i % 2 ? RUN_ALL : LOST, 0.4);
	check(nodes, &down,
	      "main=100/50.4\n"
	      "├─ compare=48/48\n"
	      "└─ 2 hidden=1.6\n...");
	/* a branch from the middle of a chain of joined nodes */
	main = add(joined, 0, MAIN, 0);
	add(joined, main, RUN_ALL, 99.8);
	add(joined, main, LOST, 0.2);
	check(joined, &down, "run_all+1=99.8/99.8\n...");
	/* Branches that have no nodes also count as hidden. */
	main = add(pruned, 0, MAIN, 50);
	add(pruned, main, COMPARE, 25);
	at(pruned, main)->total = 25;
	check(pruned, &down,
	      "main=100/50\n"
	      "├─ compare=25/25\n"
	      "└─ 0 hidden=25");
}

/* In a tree of callers, only the nearest callers in the program's own code are shown. */
static void test_inverted(void)
{
	GArray *nodes = begin();
	uint32_t malloc = add(nodes, 0, MALLOC, 0), sort = add(nodes, malloc, SORT, 0);
	uint32_t write = add(nodes, 0, WRITE, 0);

	add(nodes, add(nodes, sort, COMPARE, 0), MAIN, 60);
	add(nodes, add(nodes, write, ENTRY, 0), MAIN, 25);
	add(nodes, write, RUN_ALL, 15);
	check(nodes, &up,
	      "malloc<compare+1=60\n"
	      "vfs_write=40\n"
	      "├─ main+1=25/25\n"
	      "└─ run_all=15/15");
}

/* A tree without folding shows lost frames and each frame of a recursion; lines that are too deep
 * to indent begin with their depth. */
static void test_deep(void)
{
	struct tree_options options = down;
	GArray *nodes = begin();
	uint32_t deepest = 0;
	g_autofree char *drawn = NULL;

	for (unsigned i = 0; i < 40; i++)
		deepest = add(nodes, deepest, i == 0 ? LOST : RUN_ALL, 1);
	finish(nodes);
	options.columns = 12;
	options.folds = false;
	drawn = draw(nodes, &options);
	CHECK(g_str_has_prefix(drawn, "<deeper>=40/1\n└─ run_all=39/1\n"));
	CHECK(strstr(drawn, "\n39: run_all=1/1"));
	g_array_unref(nodes);
}

static void test_empty(void)
{
	check(begin(), &down, "");
	check(begin(), &up, "");
}

int main(void)
{
	setlocale(LC_ALL, "C.UTF-8");
	RUN(test_libraries);
	RUN(test_hot_library);
	RUN(test_kernel);
	RUN(test_kernel_entry);
	RUN(test_rows);
	RUN(test_chain);
	RUN(test_hidden);
	RUN(test_inverted);
	RUN(test_deep);
	RUN(test_empty);
	return test_end();
}
