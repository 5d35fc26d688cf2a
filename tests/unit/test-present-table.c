/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/present/sparkline.h"
#include "tools/present/table.h"

#include <locale.h>
#include <math.h>

#define ROWS 4
#define FIELDS 6

/* Cells by row and field. A table shows the fields that have a column. */
struct sheet {
	struct cell cells[ROWS][FIELDS];
	const char *prefixes[ROWS]; /* prefixes of field NAME */
	size_t rows;
};

enum field { FIRST, SECOND, SPARK, NAME, PLACE, OTHER };

static struct cell get_cell(const void *data, size_t row, unsigned field)
{
	const struct sheet *sheet = data;
	struct cell cell = sheet->cells[row][field];

	cell.owned = cell.kind == CELL_TEXT ? g_strdup(cell.text) : NULL;
	if (field == NAME && sheet->prefixes[row])
		cell.prefix = g_strdup(sheet->prefixes[row]);
	return cell;
}

static struct table table_of(const struct sheet *sheet)
{
	return (struct table){ .rows = sheet->rows, .get = get_cell, .data = sheet };
}

static void check_print(const struct table *table, unsigned columns, const char *want)
{
	struct table_style style = { .columns = columns };
	struct out out;

	out = out_buffer();
	style.out = &out;
	table_print(table, &style, table->rows);
	CHECK_STR(out.text->str, want);
	CHECK(!strstr(out.text->str, " \n"));
	out_done(&out);
}

/* A table as in a report: numbers, a sparkline, names and places. */
static const struct sheet report = {
	.rows = 3,
	.cells = {
		{ [FIRST] = { .kind = CELL_DOUBLE, .real = 41.8 },
		  [SECOND] = { .kind = CELL_UINT, .number = 1281 },
		  [SPARK] = { .kind = CELL_TEXT, .text = "  ++##" },
		  [NAME] = { .kind = CELL_TEXT, .text = "memcmp" },
		  [PLACE] = { .kind = CELL_TEXT, .text = "libc.so.6" } },
		{ [FIRST] = { .kind = CELL_DOUBLE, .real = 0.01 },
		  [SECOND] = { .kind = CELL_UINT, .number = 0 },
		  [SPARK] = { .kind = CELL_TEXT, .text = "##    " },
		  [NAME] = { .kind = CELL_TEXT, .text = "std::map<std::string, double>::find" },
		  [PLACE] = { .kind = CELL_TEXT, .text = "map.h:1" } },
		{ [FIRST] = { .kind = CELL_UNKNOWN },
		  [SPARK] = { .kind = CELL_TEXT, .text = "      " },
		  [NAME] = { .kind = CELL_TEXT, .text = "main" } },
	},
};

static struct table report_table(void)
{
	struct table table = table_of(&report);

	table_add_column(&table, FIRST, COLUMN_PERCENT, "self %");
	table_add_column(&table, SECOND, COLUMN_COUNT, "samples");
	table_add_column(&table, SPARK, COLUMN_SPARKLINE, "0-1 s");
	table_add_column(&table, NAME, COLUMN_NAME, "function");
	table_add_column(&table, PLACE, COLUMN_PLACE, "place");
	return table;
}

static void test_widths(void)
{
	const struct table table = report_table();

	check_print(&table, 100,
		    "self %  samples  0-1 s   function                             place\n"
		    "  41.8     1281    ++##  memcmp                               libc.so.6\n"
		    "  <0.1           ##      std::map<std::string, double>::find  map.h:1\n"
		    "     -                   main\n");
	/* A row whose name does not fit beside its place has no place. */
	check_print(&table, 66,
		    "self %  samples  0-1 s   function                        place\n"
		    "  41.8     1281    ++##  memcmp                          libc.so.6\n"
		    "  <0.1           ##      std::map<std::string, double>::find\n"
		    "     -                   main\n");
	/* The sparkline is left out, so that the name has room. */
	check_print(&table, 59,
		    "self %  samples  function                         place\n"
		    "  41.8     1281  memcmp                           libc.so.6\n"
		    "  <0.1           std::map<std::string, double>::find\n"
		    "     -           main\n");
	/* All places are left out, too. */
	check_print(&table, 51,
		    "self %  samples  function\n"
		    "  41.8     1281  memcmp\n"
		    "  <0.1           std::map<std::string, double>::fi…\n"
		    "     -           main\n");
	/* Numbers are never cut. */
	check_print(&table, 22,
		    "self %  samples  func…\n"
		    "  41.8     1281  memc…\n"
		    "  <0.1           std:…\n"
		    "     -           main\n");
	check_print(&table, 5,
		    "self %  samples  …\n"
		    "  41.8     1281  …\n"
		    "  <0.1           …\n"
		    "     -           …\n");
}

/* Rows fit into a terminal of any width, unless the numbers alone are wider. */
static void check_lines(const struct table *table, unsigned least)
{
	for (unsigned columns = least; columns < 110; columns++) {
		struct table_style style = { .columns = columns };
		g_auto(GStrv) lines = NULL;
		struct out out;

		out = out_buffer();
		style.out = &out;
		table_print(table, &style, table->rows);
		lines = g_strsplit(out.text->str, "\n", -1);
		for (unsigned i = 0; lines[i]; i++)
			if (!CHECK(text_width(lines[i]) <= columns))
				printf("# %u: %s\n", columns, lines[i]);
		out_done(&out);
	}
}

static void test_every_width(void)
{
	static const struct sheet wide = {
		.rows = 2,
		.prefixes = { "", "├─ " },
		.cells = {
			{ [FIRST] = { .kind = CELL_UINT, .number = 1 },
			  [NAME] = { .kind = CELL_TEXT, .text = "中文中文中文中文中文中文中文" },
			  [PLACE] = { .kind = CELL_TEXT, .text = "a.c:1" } },
			{ [FIRST] = { .kind = CELL_UINT, .number = 2 },
			  [NAME] = { .kind = CELL_TEXT, .text = "cafe\314\201 \033[31m" },
			  [PLACE] = { .kind = CELL_TEXT, .text = "中.c:1" } },
		},
	};
	const struct table flat = report_table();
	struct table tree = table_of(&wide), nameless = table_of(&report);

	tree.is_tree = true;
	table_add_column(&tree, FIRST, COLUMN_COUNT, "n");
	table_add_column(&tree, NAME, COLUMN_NAME, "name");
	table_add_column(&tree, PLACE, COLUMN_PLACE, NULL);
	table_add_column(&nameless, FIRST, COLUMN_PERCENT, "self %");
	table_add_column(&nameless, SPARK, COLUMN_SPARKLINE, "0-1 s");
	check_lines(&flat, 18);
	check_lines(&tree, 7);
	check_lines(&nameless, 8);
}

/* A long title of the name column does not shift the places, which have no title. */
static void test_long_title(void)
{
	struct table table = table_of(&report);

	table_add_column(&table, FIRST, COLUMN_PERCENT, "self %");
	table_add_column(&table, PLACE, COLUMN_NAME, "image (3 of 88; --limit 0)");
	table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	check_print(&table, 60,
		    "self %  image (3 of 88; --limit 0)\n"
		    "  41.8  libc.so.6  libc.so.6\n"
		    "  <0.1  map.h:1    map.h:1\n"
		    "     -\n");
	check_print(&table, 28,
		    "self %  image (3 of 88; --l…\n"
		    "  41.8  libc.so.6  libc.so.6\n"
		    "  <0.1  map.h:1    map.h:1\n"
		    "     -\n");
}

static char *fit_middle(const char *name, unsigned columns)
{
	return g_strdup(columns >= 16 && g_str_has_prefix(name, "std::map") ? "std::map<…>::find"
									    : name);
}

static char *fit_end(const char *name, const char *other, unsigned columns)
{
	(void)other;
	(void)columns;
	return g_strdup(name + strlen(name) - 6);
}

static const struct table_fit fits = { .arguments = fit_middle,
				       .whole = fit_middle,
				       .apart = fit_end };

static void test_fit(void)
{
	struct table table = report_table();

	table.fit = &fits;
	check_print(&table, 58,
		    "self %  samples  function                        place\n"
		    "  41.8     1281  memcmp                          libc.so.6\n"
		    "  <0.1           std::map<…>::find               map.h:1\n"
		    "     -           main\n");
	/* A name that fit() cannot shorten is cut, and so is a result of fit() that is too long. */
	check_print(&table, 33,
		    "self %  samples  function\n"
		    "  41.8     1281  memcmp\n"
		    "  <0.1           std::map<…>::fi…\n"
		    "     -           main\n");
	check_print(&table, 30,
		    "self %  samples  function\n"
		    "  41.8     1281  memcmp\n"
		    "  <0.1           std::map<std…\n"
		    "     -           main\n");
}

/* Names that would become equal keep a part that differs. */
static void test_apart(void)
{
	static const struct sheet sheet = {
		.rows = 4,
		.cells = {
			{ [NAME] = { .kind = CELL_TEXT, .text = "std::map<std::string, int>::find1" } },
			{ [NAME] = { .kind = CELL_TEXT, .text = "std::map<std::string, int>::find2" } },
			{ [NAME] = { .kind = CELL_TEXT, .text = "std::map<std::string, int>::find2" } },
			{ [NAME] = { .kind = CELL_TEXT, .text = "main" } },
		},
	};
	struct table table = table_of(&sheet);

	table_add_column(&table, NAME, COLUMN_NAME, "function");
	check_print(&table, 20,
		    "function\n…string, int>::find1\n…string, int>::find2\n"
		    "…string, int>::find2\nmain\n");
	table.fit = &fits;
	check_print(&table, 20, "function\n:find1\n:find2\n:find2\nmain\n");
}

/* In a pipe, rows do not depend on each other, and all have the same number of columns. */
static void test_pipe(void)
{
	const struct table table = report_table();

	check_print(&table, 0,
		    "self %  samples  0-1 s  function  place\n"
		    "41.8  1281    ++##  memcmp  libc.so.6\n"
		    "<0.1  0  ##      std::map<std::string, double>::find  map.h:1\n"
		    "-  -          main\n");
}

/* On a terminal, numbers are padded even if names are shown whole. */
static void test_whole_names(void)
{
	const struct table table = report_table();
	struct out out;

	out = out_buffer();
	table_print(&table, &(struct table_style){ .out = &out, .is_padded = true }, 2);
	CHECK_STR(out.text->str,
		  "self %  samples  0-1 s   function  place\n"
		  "  41.8     1281    ++##  memcmp  libc.so.6\n"
		  "  <0.1           ##      std::map<std::string, double>::find  map.h:1\n");
	out_done(&out);
}

static void test_hostile(void)
{
	static const struct sheet sheet = {
		.rows = 4,
		.cells = {
			{ [FIRST] = { .kind = CELL_UINT, .number = 1 },
			  [NAME] = { .kind = CELL_TEXT, .text = "a\033[2J\nb\tc\377" },
			  [PLACE] = { .kind = CELL_TEXT, .text = "x\r.c" } },
			{ [FIRST] = { .kind = CELL_UINT, .number = 20 },
			  [NAME] = { .kind = CELL_TEXT, .text = "中文  " },
			  [PLACE] = { .kind = CELL_TEXT, .text = "y.c" } },
			{ [FIRST] = { .kind = CELL_UINT, .number = 3 },
			  [NAME] = { .kind = CELL_TEXT, .text = "e\314\201e\314\201" },
			  [PLACE] = { .kind = CELL_TEXT, .text = "" } },
			{ [FIRST] = { .kind = CELL_TEXT, .text = "\342\200\256" },
			  [NAME] = { .kind = CELL_TEXT, .text = NULL },
			  [PLACE] = { .kind = CELL_TEXT, .text = "z.c  " } },
		},
	};
	struct table table = table_of(&sheet);

	table_add_column(&table, FIRST, COLUMN_NUMBER, NULL);
	table_add_column(&table, NAME, COLUMN_NAME, "name");
	table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	check_print(&table, 80,
		    "          name\n"
		    "       1  a\\x1b[2J\\nb\\tc\357\277\275  x\\x0d.c\n"
		    "      20  中文             y.c\n"
		    "       3  e\314\201e\314\201\n"
		    "\\u{202e}  -                z.c\n");
}

struct number {
	struct cell cell;
	enum column_format format;
	const char *want;
};

static void check_number(const struct number *number, bool is_signed, bool is_coarse)
{
	struct sheet sheet = { .rows = 1, .cells = { { number->cell } } };
	struct table table = table_of(&sheet);
	g_autofree char *want = g_strdup_printf("\n%s\n", number->want);

	table.is_coarse = is_coarse;
	table_add_column(&table, FIRST, number->format, NULL);
	table.columns[0].is_signed = is_signed;
	check_print(&table, 80, want);
}

#define UINT_CELL(n)                             \
	{                                        \
		.kind = CELL_UINT, .number = (n) \
	}
#define INT_CELL(n)                                       \
	{                                                 \
		.kind = CELL_INT, .number = (uint64_t)(n) \
	}
#define REAL_CELL(x)                             \
	{                                        \
		.kind = CELL_DOUBLE, .real = (x) \
	}
#define LEAST_CELL(x)                                              \
	{                                                          \
		.kind = CELL_DOUBLE, .real = (x), .is_least = true \
	}

static void test_numbers(void)
{
	static const struct number plain[] = {
		{ UINT_CELL(0), COLUMN_COUNT, "" },
		{ UINT_CELL(UINT64_MAX), COLUMN_COUNT, "18446744073709551615" },
		{ UINT_CELL((1ull << 53) + 1), COLUMN_COUNT, "9007199254740993" },
		{ INT_CELL(-(1ll << 53) - 1), COLUMN_COUNT, "-9007199254740993" },
		{ INT_CELL(INT64_MIN), COLUMN_NUMBER, "-9223372036854775808" },
		{ UINT_CELL(0), COLUMN_NUMBER, "0" },
		{ { .kind = CELL_HEX, .number = 0x1f }, COLUMN_NUMBER, "0x1f" },
		{ UINT_CELL(0), COLUMN_SIZE, "" },
		{ UINT_CELL(2254438), COLUMN_SIZE, "2.15 MiB" },
		{ UINT_CELL(UINT64_MAX), COLUMN_SIZE, "16.0 EiB" },
		{ INT_CELL(-2048), COLUMN_SIZE, "-2.00 KiB" },
		{ REAL_CELL(1e300), COLUMN_SIZE, "1e+300" },
		{ UINT_CELL(0), COLUMN_DURATION, "0 ns" },
		{ UINT_CELL(618400), COLUMN_DURATION, "618 us" },
		{ UINT_CELL(UINT64_MAX), COLUMN_DURATION, "307445734 min 33 s" },
		{ REAL_CELL(-1e300), COLUMN_DURATION, "-1e+300" },
		{ UINT_CELL(760000000), COLUMN_SECONDS, "0.76" },
		{ UINT_CELL(0), COLUMN_SECONDS, "0.00" },
		{ REAL_CELL(0), COLUMN_PERCENT, "" },
		{ REAL_CELL(12.66), COLUMN_PERCENT, "12.7" },
		{ REAL_CELL(0.05), COLUMN_PERCENT, "0.1" },
		{ REAL_CELL(0.049), COLUMN_PERCENT, "<0.1" },
		{ REAL_CELL(99.96), COLUMN_PERCENT, ">99.9" },
		{ LEAST_CELL(99.96), COLUMN_PERCENT, "≥99.9" },
		{ REAL_CELL(NAN), COLUMN_PERCENT, "-" },
		{ REAL_CELL(INFINITY), COLUMN_REAL, "-" },
		{ REAL_CELL(0), COLUMN_REAL, "0" },
		{ REAL_CELL(0.00123), COLUMN_REAL, "0.00123" },
		{ REAL_CELL(0.5), COLUMN_REAL, "0.50" },
		{ REAL_CELL(3.14159), COLUMN_REAL, "3.14" },
		{ REAL_CELL(9.996), COLUMN_REAL, "10.0" },
		{ REAL_CELL(-421.43), COLUMN_REAL, "-421" },
		{ REAL_CELL(9715710), COLUMN_REAL, "9715710" },
		{ REAL_CELL(1e300), COLUMN_REAL, "1e+300" },
		{ LEAST_CELL(5), COLUMN_COUNT, "≥5" },
		{ LEAST_CELL(0), COLUMN_COUNT, "≥0" },
		{ LEAST_CELL(0.01), COLUMN_PERCENT, "≥0.0" },
		{ { .kind = CELL_UNKNOWN }, COLUMN_COUNT, "-" },
		{ { .kind = CELL_NONE }, COLUMN_COUNT, "" },
		{ { .kind = CELL_TEXT, .text = NULL }, COLUMN_WORD, "-" },
		{ { .kind = CELL_UINT, .number = 1024, .format = COLUMN_SIZE },
		  COLUMN_REAL,
		  "1.00 KiB" },
	};
	static const struct number changes[] = {
		{ REAL_CELL(11.24), COLUMN_PERCENT, "+11.2" },
		{ REAL_CELL(-11.26), COLUMN_PERCENT, "-11.3" },
		{ REAL_CELL(0.01), COLUMN_PERCENT, "+<0.1" },
		{ REAL_CELL(0), COLUMN_PERCENT, "" },
		{ INT_CELL(775168), COLUMN_SIZE, "+757 KiB" },
		{ INT_CELL(-1), COLUMN_COUNT, "-1" },
		{ LEAST_CELL(0.01), COLUMN_PERCENT, "≥+0.0" },
	};
	static const struct number coarse[] = {
		{ REAL_CELL(12.66), COLUMN_PERCENT, "13" },
		{ REAL_CELL(0.4), COLUMN_PERCENT, "<1" },
		{ LEAST_CELL(0.4), COLUMN_PERCENT, "≥0" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		check_number(&plain[i], false, false);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
		check_number(&changes[i], true, false);
	for (size_t i = 0; i < ARRAY_SIZE(coarse); i++)
		check_number(&coarse[i], false, true);
}

static void test_tree(void)
{
	static const struct sheet sheet = {
		.rows = 3,
		.prefixes = { "", "├─ ", "│  └─ " },
		.cells = {
			{ [FIRST] = UINT_CELL(9),
			  [NAME] = { .kind = CELL_TEXT, .text = "main" },
			  [PLACE] = { .kind = CELL_TEXT, .text = "a.c:1" } },
			{ [FIRST] = UINT_CELL(5),
			  [NAME] = { .kind = CELL_TEXT, .text = "shop::Statistics::add_all_orders" },
			  [PLACE] = { .kind = CELL_TEXT, .text = "b.c:22" } },
			{ [FIRST] = UINT_CELL(5),
			  [NAME] = { .kind = CELL_TEXT, .text = "memcmp" },
			  [PLACE] = { .kind = CELL_TEXT, .text = "libc.so.6" } },
		},
	};
	struct table table = table_of(&sheet);

	table.is_tree = true;
	table_add_column(&table, FIRST, COLUMN_COUNT, "all");
	table_add_column(&table, NAME, COLUMN_NAME, "function");
	table_add_column(&table, PLACE, COLUMN_PLACE, NULL);
	/* The lines that draw the tree are connected in a pipe, too. */
	check_print(&table, 0,
		    "all  function\n"
		    "  9  main  a.c:1\n"
		    "  5  ├─ shop::Statistics::add_all_orders  b.c:22\n"
		    "  5  │  └─ memcmp  libc.so.6\n");
	table.columns[0].title = "n";
	check_print(&table, 60,
		    "n  function\n"
		    "9  main  a.c:1\n"
		    "5  ├─ shop::Statistics::add_all_orders  b.c:22\n"
		    "5  │  └─ memcmp  libc.so.6\n");
	/* Only the row that is too wide loses its place, and then the end of its name. */
	check_print(&table, 40,
		    "n  function\n"
		    "9  main  a.c:1\n"
		    "5  ├─ shop::Statistics::add_all_orders\n"
		    "5  │  └─ memcmp  libc.so.6\n");
	check_print(&table, 27,
		    "n  function\n"
		    "9  main  a.c:1\n"
		    "5  ├─ shop::Statistics::ad…\n"
		    "5  │  └─ memcmp  libc.so.6\n");
}

static void test_ascii(void)
{
	const struct table table = report_table();
	static const struct number least = { LEAST_CELL(5), COLUMN_COUNT, ">=5" };
	static const struct number name = { { .kind = CELL_TEXT, .text = "é▁" },
					    COLUMN_WORD,
					    "\\u{e9}\\u{2581}" };

	setlocale(LC_ALL, "C");
	check_print(&table, 51,
		    "self %  samples  function\n"
		    "  41.8     1281  memcmp\n"
		    "  <0.1           std::map<std::string, double>::...\n"
		    "     -           main\n");
	check_number(&least, false, false);
	check_number(&name, false, false);
	setlocale(LC_ALL, "C.UTF-8");
}

static void test_nothing(void)
{
	struct table table = report_table();

	table.rows = 0;
	check_print(&table, 80, "");
}

static bool is_first(const void *data, size_t row)
{
	(void)data;
	return row == 0;
}

static void test_bold(void)
{
	struct table table = table_of(&report);
	struct table_style style = { .is_colored = true };
	struct out out;

	table_add_column(&table, NAME, COLUMN_NAME, "function");
	table.is_bold = is_first;
	out = out_buffer();
	style.out = &out;
	table_print(&table, &style, 3);
	CHECK_STR(out.text->str, "\033[1mfunction\033[0m\n\033[1mmemcmp\033[0m\n"
				 "std::map<std::string, double>::find\nmain\n");
	out_done(&out);
}

static void check_sparkline(const double *values, size_t n, double max, const char *want)
{
	g_autofree char *line = sparkline(values, n, max);

	CHECK_STR(line, want);
}

static void check_range(int64_t from_ns, int64_t to_ns, const char *want)
{
	g_autofree char *range = sparkline_range(from_ns, to_ns);

	CHECK_STR(range, want);
}

static void test_sparkline(void)
{
	static const double values[] = {
		0, 1e-9, 1, 1.01, 4, 7.9, 8, 9, -1, NAN, INFINITY, 1e-320
	};
	static const double zeros[] = { 0, 0 };

	check_sparkline(values, ARRAY_SIZE(values), 8, " ▁▁▂▄███   ▁");
	check_sparkline(values, ARRAY_SIZE(values), 1e300, " ▁▁▁▁▁▁▁   ▁");
	check_sparkline(values, ARRAY_SIZE(values), 0, "            ");
	check_range(0, 4010000000, "0-4.01 s");
	check_range(500000000, 1234500000000, "0.50-1235 s");
	check_sparkline(zeros, 2, 1, "  ");
	check_sparkline(values, 0, 8, "");
	setlocale(LC_ALL, "C");
	check_sparkline(values, ARRAY_SIZE(values), 8, " ..:=@@@   .");
	setlocale(LC_ALL, "C.UTF-8");
}

/* ---- JSON, ndjson and CSV -------------------------------------------------------------------- */

static void write_list(const void *data, size_t row, struct json *json)
{
	(void)data;
	json_begin_array(json, "list");
	json_uint(json, NULL, row);
	json_end(json);
}

static void check_write(const struct table *table, enum json_format format, const char *want)
{
	struct json json;
	struct out out;

	out = out_buffer();
	json_init(&json, &out);
	if (format == JSON_FORMAT_JSON)
		json_begin_object(&json, NULL);
	table_write(table, &json, format, table->rows);
	if (format == JSON_FORMAT_JSON)
		json_end(&json);
	CHECK_STR(out.text->str, want);
	json_done(&json);
	out_done(&out);
}

static void test_write(void)
{
	static const struct table_member members[] = {
		{ "a", FIRST }, { "b", SECOND }, { "c", SPARK }, { "d", NAME }, { NULL },
	};
	static const struct sheet sheet = {
		.rows = 3,
		.prefixes = { "├─ " },
		.cells = {
			{ [FIRST] = UINT_CELL(UINT64_MAX), [SECOND] = INT_CELL(-5),
			  [SPARK] = REAL_CELL(0.5),
			  [NAME] = { .kind = CELL_TEXT, .text = "x, \"y\"\n\033\377" } },
			{ [FIRST] = { .kind = CELL_NONE }, [SECOND] = { .kind = CELL_UNKNOWN },
			  [SPARK] = { .kind = CELL_BOOL, .number = 1 },
			  [NAME] = { .kind = CELL_TEXT, .text = NULL } },
			{ [FIRST] = { .kind = CELL_HEX, .number = 0x1f }, [SECOND] = UINT_CELL(0),
			  [SPARK] = REAL_CELL(NAN),
			  [NAME] = { .kind = CELL_BOOL, .number = 0 } },
		},
	};
	struct table table = table_of(&sheet);

	table.members = members;
	check_write(&table, JSON_FORMAT_CSV,
		    "a,b,c,d\r\n"
		    "18446744073709551615,-5,0.5,\"x, \"\"y\"\"\n\033\357\277\275\"\r\n"
		    ",,true,\r\n"
		    "0x1f,0,,false\r\n");
	table.write = write_list;
	check_write(&table, JSON_FORMAT_NDJSON,
		    "{\"a\":18446744073709551615,\"b\":-5,\"c\":0.5,"
		    "\"d\":\"x, \\\"y\\\"\\n\\u001b\357\277\275\",\"list\":[0]}\n"
		    "{\"a\":null,\"b\":null,\"c\":true,\"d\":null,\"list\":[1]}\n"
		    "{\"a\":\"0x1f\",\"b\":0,\"c\":null,\"d\":false,\"list\":[2]}\n");
	check_write(&table, JSON_FORMAT_JSON,
		    "{\"rows\":[{\"a\":18446744073709551615,\"b\":-5,\"c\":0.5,"
		    "\"d\":\"x, \\\"y\\\"\\n\\u001b\357\277\275\",\"list\":[0]},"
		    "{\"a\":null,\"b\":null,\"c\":true,\"d\":null,\"list\":[1]},"
		    "{\"a\":\"0x1f\",\"b\":0,\"c\":null,\"d\":false,\"list\":[2]}]}\n");
	table.rows = 0;
	check_write(&table, JSON_FORMAT_CSV, "a,b,c,d\r\n");
}

int main(void)
{
	setlocale(LC_ALL, "C.UTF-8");
	RUN(test_widths);
	RUN(test_every_width);
	RUN(test_long_title);
	RUN(test_fit);
	RUN(test_apart);
	RUN(test_pipe);
	RUN(test_whole_names);
	RUN(test_hostile);
	RUN(test_numbers);
	RUN(test_tree);
	RUN(test_ascii);
	RUN(test_nothing);
	RUN(test_bold);
	RUN(test_sparkline);
	RUN(test_write);
	return test_end();
}
