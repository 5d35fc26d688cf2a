/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture annotate - where in a function the time went, by source line and by instruction
 *
 * The function is chosen among those with samples: by its name, or by "image+0xOFFSET" of any place
 * in it, which distinguishes functions of the same name. Its code is the function of that name in
 * the image, and all places of the image where it is inlined.
 *
 * The instructions come from the file that ran, which is found by its build-id; if it is missing,
 * the sampled places are shown without instructions. A sample counts for the instruction at which
 * its innermost frame was interrupted; a return address counts only in the total of its line.
 * Generated code has only lines, counted as by a report by line.
 *
 * JSON and CSV have a line for each place in the source, with inlined functions under their own
 * names. Text has the lines of the function alone; what is inlined at a line is one row below it
 * for each function of the program, and for each class of a library.
 *
 * Invariants: (1) the self counts of the instructions, and those of the lines, sum up to the
 *                 function's  [test_annotate: sums, inlined; test_jit: annotate]
 *             (2) no code of a different file is shown  [test_annotate: other file]
 */
#include "config.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/disassembly.h"
#include "tools/profcapture/source-text.h"
#include "tools/profcapture/tally.h"
#include "tools/profcapture/verbs.h"
#include "tools/symbols/symbols-source.h"
#include "tools/symbols/symbols.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_CANDIDATES 20
#define MAX_SITES 3       /* named where it is inlined, in text */
#define MAX_CONTAINERS 8  /* functions that it is inlined into and whose instructions are read */
#define DEFAULT_LIMIT 200 /* longer lists show only what is near a sample */
#define CONTEXT 3         /* lines or instructions shown around one with samples */
#define MAX_GAP 12        /* source lines without code shown between two with code */
#define HOTTEST 3         /* instructions shown below the lines */
#define MAX_CODE_BYTES (4u << 20)
#define TIMEOUT_MS 20000
#define MIN_FINE_SAMPLES 1000 /* below, shares have no decimals */

/* First entity of the counts by place; the tally reserves the smaller ones. */
#define PLACE_FIRST 2u

/* The place of an offset, as seen from the shown function. All text is interned. */
struct annotate_place {
	const char *function, *file; /* the innermost function; NULL = unknown */
	uint32_t line;               /* 0 = unknown */
	bool is_inlined;             /* the innermost function is another one than the shown one */
	bool is_of_it;               /* it is in the shown function */
	const char *own_file;        /* where it is in the shown function */
	uint32_t own_line;
	const char *callee; /* what is inlined into the shown function there; NULL = nothing */
};

/* A line of the answer; the first four fields identify it. */
struct annotate_line {
	const char *function; /* in whose source it is; in text, what is inlined there */
	const char *file;     /* NULL = unknown */
	uint32_t line;        /* 0 = unknown */
	bool is_inlined;      /* belongs to another function than the shown one */
	struct amount self, total;
	/* of a row of what is inlined at a line */
	GHashTable *functions; /* set of names */
	struct annotate_place hottest;
	struct amount most;
};

struct annotate_instruction {
	uint64_t offset, address; /* in the file, and in ELF */
	char *text;               /* NULL = unknown */
	struct annotate_place place;
	struct amount self;
};

/* A frame of the function that was sampled. */
struct sampled_frame {
	uint64_t offset;
	bool returns;
	uint32_t container; /* index of the function whose code it is in */
	struct amount self, total;
};

/* The code of the function itself, or of one that it is inlined into. */
struct code_range {
	uint64_t start, end;
	struct amount self;
};

/* Calls of the function that are inlined in the same way. */
struct inline_site {
	GPtrArray *callers; /* names, innermost first */
	struct amount self;
};

struct annotate {
	struct reader reader;
	/* options */
	const char *image, *sysroot;
	GPtrArray *debug_folders, *source_folders;
	int by;
	bool wants_total;
	/* which function */
	struct debug_files *debug_files;
	struct tally tally;    /* by function */
	uint32_t function;     /* index in the tally */
	uint64_t start, end;   /* of its own code; equal if it is only inlined */
	GPtrArray *candidates; /* lines of text, if the function is ambiguous */
	/* its code */
	const char *why_no_code;  /* NULL: the code is known */
	struct symbols *symbols;  /* of the file; NULL if the lines come from the capture */
	GArray *frames;           /* struct sampled_frame */
	GHashTable *known_frames; /* offset and kind → index */
	GArray *ranges;           /* struct code_range, the own one first, then by samples */
	guint unread_ranges;
	bool has_inlined;        /* it may be inlined */
	const char *plain;       /* its name without parameters, if it has no overloads; or NULL */
	GPtrArray *sites;        /* struct inline_site, those with the most samples first */
	GHashTable *known_sites; /* text → struct inline_site */
	GArray *instructions; /* struct annotate_instruction, by offset; empty for generated code */
	GArray *lines;        /* struct annotate_line */
	GHashTable *known_lines; /* struct annotate_line → index */
	GHashTable *sources;     /* file → struct source_text or NULL */
	bool has_inlined_totals; /* the totals of what is inlined at a line are known */
	struct amount self;      /* of all instructions */
	struct amount own_self;  /* without what is inlined into it */
	struct amount total;
	struct json json;
};

enum annotate_by { ANNOTATE_BOTH, ANNOTATE_BY_LINE, ANNOTATE_BY_INSTRUCTION };
static const char *const annotate_by_names[] = { "both", "line", "instruction", NULL };

static const struct cli_option options[] = {
	{ "by", 0, CLI_CHOICE, offsetof(struct annotate, by), N_("WHAT"),
	  N_("Show source lines, instructions or both (default: both; lines in csv and ndjson)"),
	  annotate_by_names },
	{ "total", 0, CLI_FLAG, offsetof(struct annotate, wants_total), NULL,
	  N_("Add the time of the functions that a line called (text always does)") },
	{ "image", 0, CLI_STRING, offsetof(struct annotate, image), N_("PATH"),
	  N_("Use the function of this image, a path or a file name") },
	{ "source-dir", 0, CLI_LIST, offsetof(struct annotate, source_folders), N_("DIRECTORY"),
	  N_("Look for source files here, too; repeatable") },
	{ "sysroot", 0, CLI_STRING, offsetof(struct annotate, sysroot), N_("DIRECTORY"),
	  N_("Root folder of the recorded machine") },
	{ "debug-dir", 0, CLI_LIST, offsetof(struct annotate, debug_folders), N_("DIRECTORY"),
	  N_("Look for debug files here, too; repeatable") },
	{ NULL },
};

static const struct function *shown_function(const struct annotate *annotate)
{
	return functions_at(annotate->tally.functions, annotate->function);
}

/* Returns whether the program generated the code. Such code has no file. It may be at several
 * addresses and share them with other code. */
static bool is_generated(const struct annotate *annotate)
{
	return shown_function(annotate)->length > 0;
}

static struct annotate_line *line_at(const struct annotate *annotate, guint index)
{
	return &g_array_index(annotate->lines, struct annotate_line, index);
}

static struct annotate_instruction *instruction_at(const struct annotate *annotate, guint index)
{
	return &g_array_index(annotate->instructions, struct annotate_instruction, index);
}

static struct sampled_frame *frame_at(const struct annotate *annotate, guint index)
{
	return &g_array_index(annotate->frames, struct sampled_frame, index);
}

static const char *base_of(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path;
}

/* ---- which function -------------------------------------------------------------------------- */

/* Returns the end, as far as it is known: a symbol without a length extends to the next one. */
static uint64_t end_of(const struct annotate *annotate, const struct function *function)
{
	const struct symbol_rows *rows = annotate->tally.functions->symbols;
	const struct symbol_row *symbol = symbol_rows_find(rows, function->image, function->offset);
	uint64_t length = 1, beyond = MAX_CODE_BYTES;

	if (function->length)
		return function->offset + MIN_OF(function->length, beyond);
	if (!symbol || symbol->start != function->offset)
		return function->offset + 1;
	if (symbol->length)
		return function->offset + MIN_OF(symbol->length, beyond);
	while (beyond - length > 1) {
		uint64_t middle = length + (beyond - length) / 2;

		if (symbol_rows_find(rows, function->image, function->offset + middle) == symbol)
			length = middle;
		else
			beyond = middle;
	}
	return function->offset + beyond;
}

/* Returns whether `text` is "image+0xOFFSET" of a place in the function. */
static bool is_place_in(const struct annotate *annotate, const struct function *function,
			const char *text)
{
	const char *plus = strstr(text, "+0x");
	const char *path = names_image_at(annotate->reader.capture->names, function->image)->path;
	g_autofree char *image = plus ? g_strndup(text, (gsize)(plus - text)) : NULL;
	char *end;
	uint64_t offset;

	if (!plus || !path || strcmp(image, base_of(path)) != 0 || function->is_inlined)
		return false;
	offset = g_ascii_strtoull(plus + 3, &end, 16);
	return end != plus + 3 && !*end && offset >= function->offset &&
	       offset < end_of(annotate, function);
}

/* Returns whether the function has samples and is of the chosen image. */
static bool is_choosable(const struct annotate *annotate, uint32_t index)
{
	const char *path = functions_image(annotate->tally.functions, index);

	return tally_count_at(annotate->tally.counts, index).total.samples > 0 &&
	       (!annotate->image || (path && (strcmp(path, annotate->image) == 0 ||
					      strcmp(base_of(path), annotate->image) == 0)));
}

static enum function_name_match match(const struct annotate *annotate, uint32_t index,
				      const char *text)
{
	const struct function *function = functions_at(annotate->tally.functions, index);

	return is_place_in(annotate, function, text)
		       ? FUNCTION_NAME_WHOLE
		       : function_name_match(function->name, function->raw_name, text);
}

static gint compare_hits(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct annotate *annotate = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	struct tally_count x = tally_count_at(annotate->tally.counts, a);
	struct tally_count y = tally_count_at(annotate->tally.counts, b);
	int order = amount_compare(x.self, y.self);

	if (order == 0)
		order = amount_compare(x.total, y.total);
	return order ? order : a < b ? -1 : a > b;
}

/* Returns the functions named `text`: by the whole name, else without parameters, else by the last
 * component. Functions with code of their own hide those that are only inlined. */
static GArray *find_called(const struct annotate *annotate, const char *text)
{
	enum function_name_match best = FUNCTION_NAME_COMPONENT;
	GArray *found = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	bool has_own = false;

	for (uint32_t i = FUNCTION_LOST + 1; i < annotate->tally.functions->all->len; i++) {
		bool is_own = !functions_at(annotate->tally.functions, i)->is_inlined;
		enum function_name_match how = is_choosable(annotate, i) ? match(annotate, i, text)
									 : FUNCTION_NAME_DIFFERS;

		if (how < best || how == FUNCTION_NAME_DIFFERS ||
		    (how == best && has_own && !is_own))
			continue;
		if (how > best || (is_own && !has_own))
			g_array_set_size(found, 0);
		has_own = is_own;
		best = how;
		g_array_append_val(found, i);
	}
	g_array_sort_with_data(found, compare_hits, (gpointer)annotate);
	return found;
}

static void add_candidates(struct annotate *annotate, GArray *found)
{
	g_array_sort_with_data(found, compare_hits, annotate);
	for (guint i = 0; i < found->len && i < MAX_CANDIDATES; i++) {
		uint32_t index = g_array_index(found, uint32_t, i);
		const struct function *function = functions_at(annotate->tally.functions, index);
		const char *path = functions_image(annotate->tally.functions, index);
		uint64_t samples = tally_count_at(annotate->tally.counts, index).self.samples;
		g_autofree char *name = function_name_simplify(function->name, function->raw_name);
		g_autofree char *place =
			function->is_inlined || strcmp(function->kind, "unresolved") == 0
				? g_strdup("")
				: g_strdup_printf("%s+0x%" PRIx64 "  ", path ? base_of(path) : "-",
						  function->offset);

		g_ptr_array_add(annotate->candidates,
				g_strdup_printf("  %10" PRIu64 "  %s%s  [%s]", samples, place, name,
						path ? path : "-"));
	}
}

static bool refuse_none(struct annotate *annotate, const char *text, GError **error)
{
	g_autoptr(GArray) similar = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autoptr(GPtrArray) names = g_ptr_array_new();
	g_autofree char *part = g_utf8_casefold(text, -1);
	const char *meant;

	for (uint32_t i = FUNCTION_LOST + 1; i < annotate->tally.functions->all->len; i++) {
		const char *name = functions_at(annotate->tally.functions, i)->name;
		g_autofree char *folded = g_utf8_casefold(name, -1);

		if (!is_choosable(annotate, i))
			continue;
		g_ptr_array_add(names, (gpointer)name);
		if (*part && strstr(folded, part))
			g_array_append_val(similar, i);
	}
	g_ptr_array_add(names, NULL);
	meant = cli_suggest(text, (const char *const *)names->pdata);
	add_candidates(annotate, similar);
	if (annotate->tally.all.samples == 0)
		g_set_error(
			error, CLI_ERROR, CLI_USAGE,
			_("there are no samples in capture '%s', or none that pass the filters"),
			annotate->reader.capture->file);
	else if (similar->len > 0)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s'; did you mean one of these?"), text);
	else if (meant)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s'; did you mean '%s'?"), text, meant);
	else if (annotate->image)
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s' of an image '%s'; 'profcapture report' "
			      "lists what there is"),
			    text, annotate->image);
	else
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("no sample has function '%s'; 'profcapture report' lists those that "
			      "there are"),
			    text);
	return false;
}

static bool choose_function(struct annotate *annotate, const char *text, GError **error)
{
	g_autoptr(GArray) found = find_called(annotate, text);

	if (found->len == 0)
		return refuse_none(annotate, text, error);
	if (found->len > 1) {
		add_candidates(annotate, found);
		g_set_error(error, CLI_ERROR, CLI_USAGE,
			    _("%u functions are called '%s'; choose one by its place, or with "
			      "--image"),
			    found->len, text);
		return false;
	}
	annotate->function = g_array_index(found, uint32_t, 0);
	if (shown_function(annotate)->is_inlined)
		return true;
	annotate->start = shown_function(annotate)->offset;
	annotate->end = end_of(annotate, shown_function(annotate));
	return true;
}

/* ---- places ---------------------------------------------------------------------------------- */

static const char *intern(const struct annotate *annotate, const char *text)
{
	return text ? names_intern(annotate->reader.capture->names, text, strlen(text)) : NULL;
}

static bool is_own_code(const struct annotate *annotate, uint64_t offset)
{
	return offset >= annotate->start && offset < annotate->end;
}

/* A call that is inlined at a place. */
struct inline_call {
	const char *name, *raw_name;
	const char *file; /* of the call */
	uint32_t line;
};

static const struct symbol_line *line_in_file(const struct symbols *symbols, uint64_t offset)
{
	size_t low = 0, high = symbols->n_lines;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symbols->lines[middle].start <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0 || offset - symbols->lines[low - 1].start >= symbols->lines[low - 1].length)
		return NULL;
	return &symbols->lines[low - 1];
}

/* Returns the calls that are inlined at an offset, the innermost first, as the file has them or
 * else the capture; and the line there. */
static GArray *calls_at(const struct annotate *annotate, const struct symbols *symbols,
			uint64_t offset, const char **ret_file, uint32_t *ret_line)
{
	const struct symbol_rows *known = annotate->tally.functions->symbols;
	const struct symbol_line *in_file = symbols ? line_in_file(symbols, offset) : NULL;
	const struct line_row *in_capture =
		symbols ? NULL : symbol_rows_line(known, shown_function(annotate)->image, offset);
	GArray *calls = g_array_new(FALSE, FALSE, sizeof(struct inline_call));

	for (uint32_t i = in_file ? in_file->symbol : SYMBOLS_NONE;
	     i != SYMBOLS_NONE && symbols->rows[i].inline_depth > 0;
	     i = symbols->rows[i].inline_parent) {
		const struct symbol *row = &symbols->rows[i];
		const struct inline_call call = { row->name, row->raw_name, row->file, row->line };

		g_array_append_val(calls, call);
	}
	for (uint32_t i = in_capture ? in_capture->call : 0; i;
	     i = symbol_rows_call(known, i)->parent) {
		const struct line_call *row = symbol_rows_call(known, i);
		const struct inline_call call = { row->name, row->raw_name, row->file, row->line };

		g_array_append_val(calls, call);
	}
	*ret_file = in_file ? in_file->file : in_capture ? in_capture->file : NULL;
	*ret_line = in_file ? in_file->line : in_capture ? in_capture->line : 0;
	return calls;
}

static const struct inline_call *call_at(const GArray *calls, guint index)
{
	return &g_array_index(calls, struct inline_call, index);
}

/* Returns whether these are the names of the shown function. Debug information has the parameters
 * of a static function only in the symbol of its own code. */
static bool is_called_so(const struct annotate *annotate, const char *name, const char *raw_name)
{
	return strcmp(name, shown_function(annotate)->name) == 0 ||
	       strcmp(raw_name, shown_function(annotate)->raw_name) == 0 ||
	       (annotate->plain && strcmp(raw_name, annotate->plain) == 0);
}

/* Sums up the counts of the function's own code and of where it is inlined. */
static void join_inlined(struct annotate *annotate)
{
	const struct function *shown = shown_function(annotate);
	g_autofree char *plain = function_name_plain(shown->name);
	guint overloads = 0;

	for (uint32_t i = FUNCTION_LOST + 1; i < annotate->tally.functions->all->len; i++) {
		const struct function *at = functions_at(annotate->tally.functions, i);
		g_autofree char *other = at->image == shown->image && !at->is_inlined &&
							 g_str_has_prefix(at->name, plain)
						 ? function_name_plain(at->name)
						 : NULL;

		overloads += other && strcmp(other, plain) == 0;
	}
	annotate->plain = overloads == 1 ? intern(annotate, plain) : NULL;
	for (uint32_t i = FUNCTION_LOST + 1; i < annotate->tally.functions->all->len; i++) {
		const struct function *at = functions_at(annotate->tally.functions, i);
		struct tally_count count = tally_count_at(annotate->tally.counts, i);

		if (i != annotate->function &&
		    (!annotate->has_inlined || !at->is_inlined || at->image != shown->image ||
		     !is_called_so(annotate, at->name, at->raw_name)))
			continue;
		amount_add(&annotate->own_self, count.self);
		amount_add(&annotate->total, count.total);
	}
}

/* Returns the number of calls that are inlined into the shown function; UINT_MAX: the place is not
 * in it. */
static guint depth_in(const struct annotate *annotate, const GArray *calls, uint64_t offset)
{
	if (is_own_code(annotate, offset))
		return calls->len;
	for (guint i = 0; i < calls->len; i++)
		if (is_called_so(annotate, call_at(calls, i)->name, call_at(calls, i)->raw_name))
			return i;
	return UINT_MAX;
}

/* Returns the name for a row of what is inlined at a line: a function of the program, or the class
 * or function of a library without template arguments, as "std::vector". */
static const char *name_callee(const struct annotate *annotate, const struct inline_call *call)
{
	g_autofree char *name = function_name_for_people(call->name, call->raw_name);
	char *arguments = strchr(name, '<'), *first = strstr(name, "::"), *last;

	if (!code_origin_is_library(name))
		return intern(annotate, name);
	if (arguments && !g_str_has_suffix(name, "operator<")) {
		*arguments = '\0';
	} else {
		last = g_strrstr(name, "::");
		if (first && last > first)
			*last = '\0';
	}
	return intern(annotate, name);
}

static struct annotate_place place_at(const struct annotate *annotate, uint64_t offset)
{
	struct annotate_place place = { .function = shown_function(annotate)->name };
	g_autoptr(GArray)
		calls = calls_at(annotate, annotate->symbols, offset, &place.file, &place.line);
	guint depth = depth_in(annotate, calls, offset);

	/* The capture may have another name for it than the file. */
	if (depth == UINT_MAX && annotate->symbols) {
		g_array_unref(calls);
		calls = calls_at(annotate, NULL, offset, &place.file, &place.line);
		depth = depth_in(annotate, calls, offset);
	}
	place.is_of_it = depth != UINT_MAX;
	place.file = place.own_file = intern(annotate, place.file);
	place.own_line = place.line;
	if (depth > 0 && place.is_of_it) {
		const struct inline_call *outer = call_at(calls, depth - 1);

		place.is_inlined = true;
		place.function = intern(annotate, call_at(calls, 0)->name);
		place.own_file = intern(annotate, outer->file);
		place.own_line = outer->line;
		place.callee = name_callee(annotate, outer);
	}
	return place;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static guint line_hash(gconstpointer key)
{
	const struct annotate_line *line = key;

	return g_direct_hash(line->function) ^ g_direct_hash(line->file) * 31 ^
	       line->line * 0x9e3779b1u;
}

static gboolean line_equal(gconstpointer left, gconstpointer right)
{
	const struct annotate_line *a = left, *b = right;

	return a->function == b->function && a->file == b->file && a->line == b->line &&
	       a->is_inlined == b->is_inlined;
}

static uint32_t find_line(struct annotate *annotate, const struct annotate_line *line)
{
	gpointer known;

	if (g_hash_table_lookup_extended(annotate->known_lines, line, NULL, &known))
		return GPOINTER_TO_UINT(known);
	g_hash_table_insert(annotate->known_lines, g_memdup2(line, sizeof(*line)),
			    GUINT_TO_POINTER(annotate->lines->len));
	g_array_append_val(annotate->lines, *line);
	return annotate->lines->len - 1;
}

/* Returns the line of the shown function where a place is. */
static uint32_t own_line_of(struct annotate *annotate, const struct annotate_place *place)
{
	const struct annotate_line line = { .function = shown_function(annotate)->name,
					    .file = place->own_file,
					    .line = place->own_line };

	return find_line(annotate, &line);
}

/* Returns the line that counts a place. */
static struct annotate_line *line_of(struct annotate *annotate, const struct annotate_place *place)
{
	struct annotate_line line = { .function = place->function,
				      .file = place->file,
				      .line = place->line,
				      .is_inlined = place->is_inlined };

	if (annotate->reader.format == READER_TEXT) {
		line.function = place->callee ? place->callee : shown_function(annotate)->name;
		line.file = place->own_file;
		line.line = place->own_line;
		(void)own_line_of(annotate, place);
	}
	return line_at(annotate, find_line(annotate, &line));
}

static void count_self(struct annotate *annotate, const struct annotate_instruction *at)
{
	struct annotate_line *line = line_of(annotate, &at->place);

	amount_add(&line->self, at->self);
	if (!at->place.callee)
		return;
	if (!line->functions)
		line->functions = g_hash_table_new(NULL, NULL);
	g_hash_table_add(line->functions, (gpointer)at->place.function);
	if (line->most.samples == 0 || amount_compare(at->self, line->most) < 0) {
		line->most = at->self;
		line->hottest = at->place;
	}
}

/* ---- samples by frame ------------------------------------------------------------------------ */

/* Gets the offset and kind of a frame of the function; false for all other frames. */
static bool is_inside(const struct annotate *annotate, struct names_epoch *epoch, size_t row,
		      uint64_t *ret_offset, bool *ret_returns)
{
	uint64_t id = 0, offset = 0, kind = PROF_FRAME_EXACT;
	g_autoptr(GArray) calls = NULL;
	const char *file;
	uint32_t line;

	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, row, &id) ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_OFFSET, row, &offset) ||
	    names_image(epoch, id) != shown_function(annotate)->image)
		return false;
	(void)names_number(epoch, NAMES_FRAME, PROF_FRAME_KIND, row, &kind);
	*ret_returns = kind == PROF_FRAME_RETURN;
	*ret_offset = offset - (*ret_returns && offset > 0);
	if (is_own_code(annotate, *ret_offset))
		return true;
	if (!annotate->has_inlined)
		return false;
	calls = calls_at(annotate, NULL, *ret_offset, &file, &line);
	return depth_in(annotate, calls, *ret_offset) != UINT_MAX;
}

static uint32_t entity_of_frame(struct names_epoch *epoch, size_t row, void *data)
{
	struct annotate *annotate = data;
	struct sampled_frame frame = { 0 };
	gpointer key, known;

	if (!is_inside(annotate, epoch, row, &frame.offset, &frame.returns))
		return NAMES_NONE;
	key = GSIZE_TO_POINTER(frame.offset * 2 + frame.returns);
	if (g_hash_table_lookup_extended(annotate->known_frames, key, NULL, &known))
		return PLACE_FIRST + GPOINTER_TO_UINT(known);
	frame.container = functions_of_row(annotate->tally.functions, epoch, row);
	g_hash_table_insert(annotate->known_frames, key, GUINT_TO_POINTER(annotate->frames->len));
	g_array_append_val(annotate->frames, frame);
	return PLACE_FIRST + annotate->frames->len - 1;
}

static bool count_by(struct annotate *annotate,
		     uint32_t (*place)(struct names_epoch *epoch, size_t row, void *data),
		     struct tally *ret_tally, GError **error)
{
	*ret_tally = (struct tally){ .by = TALLY_IMAGE, .place_of = place, .place_data = annotate };
	return tally_run(ret_tally, &annotate->reader, error);
}

static bool count_frames(struct annotate *annotate, GError **error)
{
	struct tally tally;
	bool ok = count_by(annotate, entity_of_frame, &tally, error);

	for (guint i = 0; ok && i < annotate->frames->len; i++) {
		struct sampled_frame *frame = frame_at(annotate, i);
		struct tally_count count = tally_count_at(tally.counts, PLACE_FIRST + i);

		frame->total = count.total;
		frame->self = frame->returns ? (struct amount){ 0 } : count.self;
		amount_add(&annotate->self, frame->self);
	}
	tally_done(&tally);
	return ok;
}

static uint32_t entity_of_line(struct names_epoch *epoch, size_t row, void *data)
{
	struct annotate *annotate = data;
	struct annotate_place place;
	uint64_t offset;
	bool returns;

	if (!is_inside(annotate, epoch, row, &offset, &returns))
		return NAMES_NONE;
	place = place_at(annotate, offset);
	if (annotate->reader.format == READER_TEXT)
		return PLACE_FIRST + own_line_of(annotate, &place);
	return PLACE_FIRST + (uint32_t)(line_of(annotate, &place) - line_at(annotate, 0));
}

static uint32_t entity_of_function(struct names_epoch *epoch, size_t row, void *data)
{
	uint64_t offset;
	bool returns;

	return is_inside(data, epoch, row, &offset, &returns) ? PLACE_FIRST : NAMES_NONE;
}

static bool wants_line_totals(const struct annotate *annotate)
{
	return annotate->reader.format == READER_TEXT || annotate->wants_total;
}

/* Counts the totals of the function and its lines. A recursive function is more than once in a
 * stack, so that the totals of its frames cannot be added. */
static bool count_totals(struct annotate *annotate, GError **error)
{
	uint64_t sum = 0;
	struct tally tally;
	bool ok;

	for (guint i = 0; i < annotate->frames->len; i++)
		sum += frame_at(annotate, i)->total.samples;
	annotate->has_inlined_totals = sum == annotate->total.samples;
	if (!annotate->has_inlined_totals) {
		ok = count_by(annotate, entity_of_function, &tally, error);
		if (ok)
			annotate->total = tally_count_at(tally.counts, PLACE_FIRST).total;
		tally_done(&tally);
		if (!ok)
			return false;
	}
	for (guint i = 0; annotate->has_inlined_totals && wants_line_totals(annotate) &&
			  i < annotate->frames->len;
	     i++) {
		const struct sampled_frame *frame = frame_at(annotate, i);
		struct annotate_place place = place_at(annotate, frame->offset);

		amount_add(&line_of(annotate, &place)->total, frame->total);
		if (annotate->reader.format == READER_TEXT && place.callee)
			amount_add(&line_at(annotate, own_line_of(annotate, &place))->total,
				   frame->total);
	}
	if (annotate->has_inlined_totals || !wants_line_totals(annotate))
		return true;
	ok = count_by(annotate, entity_of_line, &tally, error);
	for (guint i = 0; ok && i < annotate->lines->len; i++)
		line_at(annotate, i)->total = tally_count_at(tally.counts, PLACE_FIRST + i).total;
	tally_done(&tally);
	return ok;
}

/* ---- where it is inlined --------------------------------------------------------------------- */

static gint compare_ranges(gconstpointer left, gconstpointer right)
{
	const struct code_range *a = left, *b = right;
	int order = amount_compare(a->self, b->self);

	return order ? order : a->start < b->start ? -1 : a->start > b->start;
}

static void note_site(struct annotate *annotate, const struct sampled_frame *frame)
{
	const char *file;
	uint32_t line;
	g_autoptr(GArray) calls = calls_at(annotate, NULL, frame->offset, &file, &line);
	guint depth = depth_in(annotate, calls, frame->offset);
	const struct inline_call *call = call_at(calls, depth);
	struct inline_site *site;
	GString *key = g_string_new(NULL);

	for (guint i = depth; i < calls->len; i++)
		g_string_append_printf(key, "%s:%" PRIu32 "\n",
				       call_at(calls, i)->file ? call_at(calls, i)->file : "",
				       call_at(calls, i)->line);
	g_string_append_printf(key, "%" PRIu32, frame->container);
	site = g_hash_table_lookup(annotate->known_sites, key->str);
	if (!site) {
		const struct function *container =
			functions_at(annotate->tally.functions, frame->container);

		site = g_new0(struct inline_site, 1);
		site->callers = g_ptr_array_new_with_free_func(g_free);
		for (guint i = depth + 1; i < calls->len; i++, call++)
			g_ptr_array_add(site->callers,
					function_name_for_people(call[1].name, call[1].raw_name));
		g_ptr_array_add(site->callers,
				function_name_for_people(container->name, container->raw_name));
		g_hash_table_insert(annotate->known_sites, g_strdup(key->str), site);
		g_ptr_array_add(annotate->sites, site);
	}
	amount_add(&site->self, frame->self);
	g_string_free(key, TRUE);
}

static gint compare_sites(gconstpointer left, gconstpointer right)
{
	const struct inline_site *a = *(const struct inline_site *const *)left;
	const struct inline_site *b = *(const struct inline_site *const *)right;

	return amount_compare(a->self, b->self);
}

/* Finds the code of the function: its own, and that of the functions that contain it. */
static void find_ranges(struct annotate *annotate)
{
	g_autoptr(GHashTable) known = g_hash_table_new(NULL, NULL);
	GArray *found = g_array_new(FALSE, FALSE, sizeof(struct code_range));

	for (guint i = 0; i < annotate->frames->len; i++) {
		const struct sampled_frame *frame = frame_at(annotate, i);
		const struct function *container =
			functions_at(annotate->tally.functions, frame->container);
		struct code_range range = { .start = container->offset };
		gpointer index;

		if (is_own_code(annotate, frame->offset))
			continue;
		note_site(annotate, frame);
		if (!g_hash_table_lookup_extended(known, GUINT_TO_POINTER(frame->container), NULL,
						  &index)) {
			range.end = end_of(annotate, container);
			index = GUINT_TO_POINTER(found->len);
			g_hash_table_insert(known, GUINT_TO_POINTER(frame->container), index);
			g_array_append_val(found, range);
		}
		amount_add(&g_array_index(found, struct code_range, GPOINTER_TO_UINT(index)).self,
			   frame->self);
	}
	g_array_sort(found, compare_ranges);
	g_ptr_array_sort(annotate->sites, compare_sites);
	if (found->len > MAX_CONTAINERS) {
		annotate->unread_ranges = found->len - MAX_CONTAINERS;
		g_array_set_size(found, MAX_CONTAINERS);
	}
	if (annotate->end > annotate->start) {
		const struct code_range own = { annotate->start, annotate->end, { 0 } };

		g_array_prepend_val(found, own);
	}
	annotate->ranges = found;
}

/* ---- the file that ran ----------------------------------------------------------------------- */

static const char *why_no_file(enum symbols_state state)
{
	switch (state) {
	case SYMBOLS_CHANGED:
		return _(
			"the file is not the one that ran: its build-id differs, or it was changed");
	case SYMBOLS_UNKNOWN_FORMAT:
		return _("the file is not a readable ELF file");
	default:
		return _(
			"the file is not here; --sysroot says where the files of the recorded machine are");
	}
}

/* Returns what the file has for these offsets; NULL if it is not the file that ran, with
 * why_no_code set. */
static struct symbols *ask_file(struct annotate *annotate, int fd, const GArray *offsets,
				bool names_only)
{
	const struct names_image *image =
		names_image_at(annotate->reader.capture->names, shown_function(annotate)->image);
	g_autoptr(GByteArray) build_id = g_byte_array_new();
	struct symbols_image identity = {
		.path = image->path,
		.dev = image->dev,
		.inode = image->inode,
		.size = image->size,
		.kind = (enum prof_image_kind)image->kind,
		.debug_files = annotate->debug_files,
		.names_only = names_only,
	};
	g_autoptr(GError) unreadable = NULL;
	struct symbols *symbols = NULL;

	for (const char *hex = image->build_id; hex && hex[0] && hex[1]; hex += 2) {
		uint8_t byte =
			(uint8_t)(g_ascii_xdigit_value(hex[0]) << 4 | g_ascii_xdigit_value(hex[1]));

		g_byte_array_append(build_id, &byte, 1);
	}
	identity.build_id = build_id->data;
	identity.build_id_size = build_id->len;
	if (!symbols_read(&identity, fd, (const uint64_t *)(void *)offsets->data, offsets->len,
			  &symbols, &unreadable)) {
		annotate->why_no_code = intern(annotate, unreadable->message);
		return NULL;
	}
	if (symbols->state == SYMBOLS_READ)
		return symbols;
	annotate->why_no_code = why_no_file(symbols->state);
	symbols_free(symbols);
	return NULL;
}

static void disassemble(struct annotate *annotate, int fd, const struct code_range *range)
{
	struct elf_image *elf = elf_image_open(fd);
	struct annotate_instruction instruction = { 0 };
	g_autoptr(GError) error = NULL;
	g_autoptr(GArray) found = NULL;
	uint64_t start, last;

	if (!elf || !elf_image_get_address(elf, range->start, &start) ||
	    !elf_image_get_address(elf, range->end - 1, &last)) {
		annotate->why_no_code = _("the file does not have the code");
	} else {
		found = disassembly_read(fd, start, last + 1, TIMEOUT_MS, &error);
		if (!found)
			annotate->why_no_code = intern(annotate, error->message);
		else if (found->len == 0)
			annotate->why_no_code = _("objdump finds no code there");
	}
	for (guint i = 0; found && i < found->len; i++) {
		struct disassembly_line *line = &g_array_index(found, struct disassembly_line, i);

		if (!elf_image_get_offset(elf, line->address, &instruction.offset)) {
			annotate->why_no_code = _("objdump finds no code there");
			break;
		}
		instruction.address = line->address;
		instruction.text = g_steal_pointer(&line->text);
		g_array_append_val(annotate->instructions, instruction);
	}
	elf_image_free(elf);
}

static void read_file(struct annotate *annotate)
{
	const struct function *function = shown_function(annotate);
	const struct names_image *image =
		names_image_at(annotate->reader.capture->names, function->image);
	g_autoptr(GArray) offsets = g_array_new(FALSE, FALSE, sizeof(uint64_t));
	CLEANUP_CLOSE int fd = -1;
	struct symbols *first;

	if (image->kind != PROF_IMAGE_FILE && image->kind != PROF_IMAGE_VDSO) {
		annotate->why_no_code =
			strcmp(function->kind, "kernel") == 0
				? _("the kernel's code is in no file that can be read")
				: _("code that a program made is in no file");
		return;
	}
	fd = image->kind == PROF_IMAGE_VDSO
		     ? symbols_vdso_open()
		     : debug_files_open_path(annotate->debug_files, image->path);
	for (guint i = 0; i < annotate->frames->len; i++)
		g_array_append_val(offsets, frame_at(annotate, i)->offset);
	first = ask_file(annotate, fd, offsets, true);
	if (!first)
		return;
	symbols_free(first);
	for (guint i = 0; i < annotate->ranges->len && !annotate->why_no_code; i++)
		disassemble(annotate, fd, &g_array_index(annotate->ranges, struct code_range, i));
	for (guint i = 0; i < annotate->instructions->len; i++)
		g_array_append_val(offsets, instruction_at(annotate, i)->offset);
	annotate->symbols = ask_file(annotate, fd, offsets, false);
	if (annotate->symbols && annotate->symbols->n_lines == 0) {
		symbols_free(annotate->symbols);
		annotate->symbols = NULL;
	}
}

/* ---- instructions ---------------------------------------------------------------------------- */

static gint compare_instructions(gconstpointer left, gconstpointer right)
{
	const struct annotate_instruction *a = left, *b = right;

	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Returns the instruction that holds an offset; adds one if none of its function is known. */
static struct annotate_instruction *instruction_of(struct annotate *annotate, uint64_t offset,
						   guint n_known)
{
	const struct annotate_instruction place = { .offset = offset, .address = offset };
	uint64_t start = offset;
	guint low = 0, high = n_known;

	for (guint i = 0; i < annotate->ranges->len; i++) {
		const struct code_range *range =
			&g_array_index(annotate->ranges, struct code_range, i);

		if (offset >= range->start && offset < range->end)
			start = range->start;
	}
	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (instruction_at(annotate, middle)->offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low > 0 && instruction_at(annotate, low - 1)->offset >= start)
		return instruction_at(annotate, low - 1);
	g_array_append_val(annotate->instructions, place);
	return instruction_at(annotate, annotate->instructions->len - 1);
}

/* Gives the instructions their samples and places, and drops those of other functions. */
static void place_instructions(struct annotate *annotate)
{
	GArray *all = annotate->instructions;
	guint n_known = all->len, kept = 0;

	g_array_sort(all, compare_instructions);
	for (guint i = 0; i < annotate->frames->len; i++) {
		const struct sampled_frame *frame = frame_at(annotate, i);

		if (frame->self.samples > 0)
			amount_add(&instruction_of(annotate, frame->offset, n_known)->self,
				   frame->self);
	}
	g_array_sort(all, compare_instructions);
	for (guint i = 0; i < all->len; i++) {
		struct annotate_instruction *at = instruction_at(annotate, i);

		at->place = place_at(annotate, at->offset);
		if (at->place.is_of_it || at->self.samples > 0) {
			count_self(annotate, at);
			*instruction_at(annotate, kept++) = *at;
			if (kept - 1 < i)
				at->text = NULL;
		} else {
			g_clear_pointer(&at->text, g_free);
		}
	}
	g_array_set_size(all, kept);
}

/* ---- generated code -------------------------------------------------------------------------- */

static bool read_generated(struct annotate *annotate, GError **error)
{
	const struct names *names = annotate->reader.capture->names;
	const struct function *shown = shown_function(annotate);
	uint32_t process = names_image_at(names, shown->image)->process;
	struct tally tally = { .by = TALLY_LINE };
	bool ok = tally_run(&tally, &annotate->reader, error);

	annotate->why_no_code = _("code that a program made is in no file");
	for (uint32_t i = FUNCTION_LOST + 1; ok && i < tally.functions->all->len; i++) {
		const struct function *at = functions_at(tally.functions, i);
		struct tally_count count = tally_count_at(tally.counts, i);
		const struct annotate_line line = { .function = at->name,
						    .file = at->file,
						    .line = at->line };
		struct annotate_line *known;

		/* Names are interned. Equal names in a process are one function, wherever its code
		 * is. */
		if (count.total.samples == 0 || !at->is_line || !at->length ||
		    at->name != shown->name || names_image_at(names, at->image)->process != process)
			continue;
		known = line_at(annotate, find_line(annotate, &line));
		amount_add(&known->self, count.self);
		amount_add(&known->total, count.total);
		amount_add(&annotate->self, count.self);
	}
	tally_done(&tally);
	return ok;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void clear_instruction(gpointer instruction)
{
	g_free(((struct annotate_instruction *)instruction)->text);
}

static void clear_line(gpointer line)
{
	g_clear_pointer(&((struct annotate_line *)line)->functions, g_hash_table_unref);
}

static void free_site(gpointer pointer)
{
	struct inline_site *site = pointer;

	g_ptr_array_unref(site->callers);
	g_free(site);
}

static void free_source(gpointer source)
{
	source_text_free(source);
}

/* Code that cannot be read is not an error. */
static bool read_code(struct annotate *annotate, GError **error)
{
	const struct function *function = shown_function(annotate);

	annotate->frames = g_array_new(FALSE, FALSE, sizeof(struct sampled_frame));
	annotate->known_frames = g_hash_table_new(NULL, NULL);
	annotate->sites = g_ptr_array_new_with_free_func(free_site);
	annotate->known_sites = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	annotate->instructions = g_array_new(FALSE, FALSE, sizeof(struct annotate_instruction));
	g_array_set_clear_func(annotate->instructions, clear_instruction);
	annotate->lines = g_array_new(FALSE, FALSE, sizeof(struct annotate_line));
	g_array_set_clear_func(annotate->lines, clear_line);
	annotate->known_lines = g_hash_table_new_full(line_hash, line_equal, g_free, NULL);
	annotate->sources = g_hash_table_new_full(NULL, NULL, NULL, free_source);
	if (is_generated(annotate)) {
		join_inlined(annotate);
		return read_generated(annotate, error);
	}
	annotate->has_inlined = true;
	/* A static function may have others of its name in the image. */
	for (uint32_t i = FUNCTION_LOST + 1; i < annotate->tally.functions->all->len; i++) {
		const struct function *at = functions_at(annotate->tally.functions, i);

		annotate->has_inlined &= i == annotate->function || at->is_inlined ||
					 at->image != function->image || at->name != function->name;
	}
	join_inlined(annotate);
	if (!count_frames(annotate, error))
		return false;
	find_ranges(annotate);
	read_file(annotate);
	place_instructions(annotate);
	return count_totals(annotate, error);
}

/* Returns NULL if the file cannot be read. */
static const struct source_text *source_of(struct annotate *annotate, const char *file)
{
	gpointer known;

	if (!file)
		return NULL;
	if (!g_hash_table_lookup_extended(annotate->sources, file, NULL, &known)) {
		known = source_text_find(annotate->debug_files, annotate->source_folders, file);
		g_hash_table_insert(annotate->sources, (gpointer)file, known);
	}
	return known;
}

/* ---- cells ----------------------------------------------------------------------------------- */

enum field {
	SELF_PCT,
	TOTAL_PCT,
	SELF,
	TOTAL,
	WEIGHT,
	TOTAL_WEIGHT,
	FUNCTION,
	INLINED,
	FILE_NAME,
	LINE,
	TEXT,
	OFFSET,
	ADDRESS,
	WHERE,
};

static const struct table_member line_members[] = {
	{ "function", FUNCTION },
	{ "inlined", INLINED },
	{ "file", FILE_NAME },
	{ "line", LINE },
	{ "text", TEXT },
	{ "self", SELF },
	{ "self_pct", SELF_PCT },
	{ "total", TOTAL },
	{ "total_pct", TOTAL_PCT },
	{ "self_weight", WEIGHT },
	{ "total_weight", TOTAL_WEIGHT },
	{ NULL },
};
static const struct table_member instruction_members[] = {
	{ "offset", OFFSET },
	{ "address", ADDRESS },
	{ "text", TEXT },
	{ "function", FUNCTION },
	{ "inlined", INLINED },
	{ "file", FILE_NAME },
	{ "line", LINE },
	{ "self", SELF },
	{ "self_pct", SELF_PCT },
	{ "self_weight", WEIGHT },
	{ NULL },
};

/* Returns a cell that lines and instructions have in common. */
static struct cell common_cell(const struct annotate *annotate, unsigned field,
			       const struct annotate_line *at, bool has_total)
{
	switch ((enum field)field) {
	case FUNCTION:
		return cell_text(at->function);
	case INLINED:
		return cell_bool(at->is_inlined);
	case FILE_NAME:
		return cell_text(at->file);
	case LINE:
		return at->line ? cell_uint(at->line) : cell_unknown();
	case SELF:
		return cell_uint(at->self.samples);
	case SELF_PCT:
		return cell_double(amount_percent(at->self, annotate->self));
	case WEIGHT:
		return cell_uint(at->self.weight);
	default:
		return !has_total       ? cell_unknown()
		       : field == TOTAL ? cell_uint(at->total.samples)
		       : field == TOTAL_PCT
			       ? cell_double(amount_percent(at->total, annotate->total))
			       : cell_uint(at->total.weight);
	}
}

/* The lines and instructions of an answer in the order in which they are written or printed. */
struct listing {
	struct annotate *annotate;
	GArray *rows; /* uint32_t: index of the line or instruction; or struct text_row */
	void (*get)(const void *data, size_t row, unsigned field, struct cell *ret_cell);
};

static void get_line_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct listing *listing = data;
	const struct annotate_line *line =
		line_at(listing->annotate, g_array_index(listing->rows, uint32_t, row));
	const struct source_text *source = source_of(listing->annotate, line->file);

	if (field != TEXT)
		*ret_cell =
			common_cell(listing->annotate, field, line, listing->annotate->wants_total);
	else if (source)
		*ret_cell = cell_own_text(source_text_line(source, line->line));
}

/* "call 2190 <std::string::append>": with short names, and without what repeats the shown
 * function. */
static char *shorten_instruction(const struct annotate *annotate, const char *text)
{
	const char *shown = shown_function(annotate)->name, *at = text, *end;
	GString *to = g_string_new(NULL);
	g_autofree char *operand = NULL, *name = NULL;
	bool is_plt;

	for (; *at && *at != '<'; at++)
		if (*at != ' ' || (to->len > 0 && to->str[to->len - 1] != ' '))
			g_string_append_c(to, *at);
	end = at + strlen(at);
	/* A comment says which data an address is, often as an offset from something else. */
	if (!*at || to->len == 0 || end[-1] != '>' || strchr(to->str, '#'))
		return g_strchomp(g_string_free(to, FALSE));
	operand = g_strndup(at + 1, (gsize)(end - at - 2));
	if (g_str_has_prefix(operand, shown) && g_str_has_prefix(operand + strlen(shown), "+0x"))
		return g_strchomp(g_string_free(to, FALSE));
	/* What has parameters is C++ or Rust, and was mangled. */
	is_plt = g_str_has_suffix(operand, "@plt");
	operand[strlen(operand) - (is_plt ? strlen("@plt") : 0)] = '\0';
	name = function_name_for_people(operand, strchr(operand, '(') ? "_Z" : operand);
	g_string_append_printf(to, "<%s%s>", name, is_plt ? "@plt" : "");
	return g_string_free(to, FALSE);
}

/* "shop.cpp:24  shop::poly" */
static char *describe_place(const struct annotate_place *place)
{
	const char *slash = place->file ? strrchr(place->file, '/') : NULL;
	const char *base = slash ? slash + 1 : place->file;

	if (!place->file)
		return NULL;
	return g_strdup_printf("%s:%" PRIu32 "%s%s", base, place->line, place->callee ? "  " : "",
			       place->callee ? place->callee : "");
}

static void get_instruction_cell(const void *data, size_t row, unsigned field,
				 struct cell *ret_cell)
{
	const struct listing *listing = data;
	const struct annotate *annotate = listing->annotate;
	uint32_t index = g_array_index(listing->rows, uint32_t, row);
	bool is_text = annotate->reader.format == READER_TEXT;
	const struct annotate_instruction *at;
	struct annotate_line line;
	char *text;

	if (index == UINT32_MAX) { /* a gap */
		if (field == ADDRESS)
			*ret_cell = cell_text("...");
		return;
	}
	at = instruction_at(annotate, index);
	switch ((enum field)field) {
	case TEXT:
		*ret_cell = !at->text ? cell_unknown()
			    : is_text ? cell_own_text(shorten_instruction(annotate, at->text))
				      : cell_text(at->text);
		break;
	case OFFSET:
		*ret_cell = (struct cell){ .kind = CELL_HEX, .number = at->offset };
		break;
	case ADDRESS:
		*ret_cell = is_text ? cell_own_text(g_strdup_printf("%" PRIx64, at->address))
				    : (struct cell){ .kind = CELL_HEX, .number = at->address };
		break;
	case WHERE:
		text = describe_place(&at->place);
		if (text)
			*ret_cell = cell_own_text(text);
		break;
	default:
		line = (struct annotate_line){ .function = at->place.function,
					       .file = at->place.file,
					       .line = at->place.line,
					       .is_inlined = at->place.is_inlined,
					       .self = at->self };
		*ret_cell = common_cell(annotate, field, &line, false);
	}
}

static gint compare_lines(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct annotate *annotate = data;
	const struct annotate_line *a = line_at(annotate, *(const uint32_t *)left);
	const struct annotate_line *b = line_at(annotate, *(const uint32_t *)right);
	int order;

	if (a->is_inlined != b->is_inlined)
		return a->is_inlined ? 1 : -1;
	order = strcmp(a->function, b->function);
	if (order == 0)
		order = g_strcmp0(a->file, b->file);
	if (order == 0)
		order = a->line < b->line ? -1 : a->line > b->line;
	return order;
}

/* ---- JSON and CSV ---------------------------------------------------------------------------- */

static void write_head(struct annotate *annotate)
{
	struct json *json = &annotate->json;

	json_string(json, "event", tally_event_name(&annotate->tally));
	json_string(json, "unit", tally_unit(&annotate->tally));
	json_uint(json, "samples", annotate->tally.all.samples);
	json_uint(json, "weight", annotate->tally.all.weight);
	json_begin_object(json, "function");
	functions_write(annotate->tally.functions, annotate->function, json);
	if (annotate->end > annotate->start)
		json_uint(json, "length", annotate->end - annotate->start);
	else
		json_null(json, "length");
	json_uint(json, "self", annotate->self.samples);
	json_uint(json, "total", annotate->total.samples);
	json_double(json, "self_pct", amount_percent(annotate->self, annotate->tally.all));
	json_double(json, "total_pct", amount_percent(annotate->total, annotate->tally.all));
	json_uint(json, "self_weight", annotate->self.weight);
	json_uint(json, "total_weight", annotate->total.weight);
	json_uint(json, "own_self", annotate->own_self.samples);
	json_uint(json, "own_self_weight", annotate->own_self.weight);
	json_begin_array(json, "inlined_into");
	for (guint k = 0; k < annotate->sites->len; k++) {
		const struct inline_site *site = annotate->sites->pdata[k];

		json_begin_object(json, NULL);
		json_begin_array(json, "callers");
		for (guint i = 0; i < site->callers->len; i++)
			json_string(json, NULL, site->callers->pdata[i]);
		json_end(json);
		json_uint(json, "self", site->self.samples);
		json_uint(json, "self_weight", site->self.weight);
		json_end(json);
	}
	json_end(json);
	json_end(json);
	json_string(json, "no_code", annotate->why_no_code);
}

static void write_answer(struct annotate *annotate)
{
	struct listing lines = { .annotate = annotate,
				 .rows = g_array_new(FALSE, FALSE, sizeof(uint32_t)) };
	struct listing instructions = { .annotate = annotate,
					.rows = g_array_new(FALSE, FALSE, sizeof(uint32_t)) };
	const struct reader *reader = &annotate->reader;
	bool is_json = reader->format == READER_JSON;
	bool has_lines = is_json || annotate->by != ANNOTATE_BY_INSTRUCTION;
	bool has_instructions = is_json || !has_lines;
	struct table table = { .key = "lines",
			       .rows = annotate->lines->len,
			       .get = get_line_cell,
			       .data = &lines,
			       .members = line_members };
	struct table code = { .key = "instructions",
			      .rows = annotate->instructions->len,
			      .get = get_instruction_cell,
			      .data = &instructions,
			      .members = instruction_members };

	for (uint32_t i = 0; i < annotate->lines->len; i++)
		g_array_append_val(lines.rows, i);
	for (uint32_t i = 0; i < annotate->instructions->len; i++)
		g_array_append_val(instructions.rows, i);
	g_array_sort_with_data(lines.rows, compare_lines, annotate);
	reader_begin(reader, &annotate->json, "annotate",
		     (has_lines && reader_shown(reader, table.rows) < table.rows) ||
			     (has_instructions && reader_shown(reader, code.rows) < code.rows));
	if (is_json)
		write_head(annotate);
	if (has_lines)
		reader_write_table(reader, &annotate->json, &table);
	if (has_instructions)
		reader_write_table(reader, &annotate->json, &code);
	reader_end(reader, &annotate->json);
	g_array_unref(lines.rows);
	g_array_unref(instructions.rows);
}

/* ---- the first lines of text ----------------------------------------------------------------- */

static bool is_coarse(const struct annotate *annotate)
{
	return annotate->tally.all.samples < MIN_FINE_SAMPLES;
}

static void say(const struct annotate *annotate, struct out *out, const char *sentence)
{
	g_autofree char *escaped = text_escape(sentence);

	text_wrap(out, escaped, 0, 2, annotate->reader.columns);
}

/* "shop::kernel<double> at shop.cpp:26" */
static char *describe_function(const struct annotate *annotate)
{
	const struct function *function = shown_function(annotate);
	g_autofree char *name = function_name_for_people(function->name, function->raw_name);
	const char *path = functions_image(annotate->tally.functions, annotate->function);
	const struct annotate_line *first = NULL;

	if (function->file && function->line)
		return g_strdup_printf(_("%s at %s:%" PRIu32), name, base_of(function->file),
				       function->line);
	/* Debug information of inlined calls says where they are called. */
	for (guint i = 0; i < annotate->lines->len; i++) {
		const struct annotate_line *line = line_at(annotate, i);

		if (line->file && line->line && !line->is_inlined &&
		    (!first || amount_compare(line->total, first->total) < 0))
			first = line;
	}
	for (guint i = 0; first && i < annotate->lines->len; i++) {
		const struct annotate_line *line = line_at(annotate, i);

		if (line->file == first->file && line->line && !line->is_inlined &&
		    line->line < first->line)
			first = line;
	}
	if (first)
		return g_strdup_printf(_("%s at %s:%" PRIu32), name, base_of(first->file),
				       first->line);
	return path ? g_strdup_printf(_("%s in %s"), name, base_of(path)) : g_steal_pointer(&name);
}

static void print_verdict(struct annotate *annotate, struct out *out)
{
	const struct tally *tally = &annotate->tally;
	g_autofree char *function = describe_function(annotate);
	g_autofree char *self =
		text_percent(amount_percent(annotate->own_self, tally->all), !is_coarse(annotate));
	g_autofree char *total =
		text_percent(amount_percent(annotate->total, tally->all), !is_coarse(annotate));
	g_autofree char *of = strcmp(tally_unit(tally), "ns") == 0
				      ? g_strdup(_("the CPU time"))
				      : g_strdup_printf(_("all %s"), tally_event_name(tally));
	g_autofree char *sentence =
		g_strdup_printf(_("%s has %s %% of %s itself, %s %% with what it calls."), function,
				self, of, total);

	reader_style(&annotate->reader, out, READER_BOLD);
	say(annotate, out, sentence);
	reader_style(&annotate->reader, out, READER_PLAIN);
}

/* "Inlined once: < shop::accumulate_pairs<double, int> < shop::price_order." */
static void print_sites(struct annotate *annotate, struct out *out)
{
	const GPtrArray *sites = annotate->sites;
	g_autoptr(GString) text = g_string_new(NULL);

	if (sites->len == 0)
		return;
	if (sites->len == 1)
		g_string_append(text, _("Inlined once:"));
	else
		g_string_append_printf(text, _("Inlined at %u places:"), sites->len);
	for (guint i = 0; i < sites->len && i < MAX_SITES; i++) {
		const struct inline_site *site = sites->pdata[i];
		g_autofree char *share = text_percent(amount_percent(site->self, annotate->self),
						      !is_coarse(annotate));

		g_string_append(text, i ? "," : "");
		for (guint k = 0; k < site->callers->len; k++)
			g_string_append_printf(text, " < %s", (char *)site->callers->pdata[k]);
		if (sites->len > 1 && site->self.samples > 0)
			g_string_append_printf(text, " (%s %%)", share);
	}
	if (sites->len > MAX_SITES)
		g_string_append_printf(text, _(", and %u more"), sites->len - MAX_SITES);
	g_string_append_c(text, '.');
	say(annotate, out, text->str);
	if (annotate->end > annotate->start)
		say(annotate, out, _("The numbers are of these and of its own code."));
	if (annotate->unread_ranges) {
		g_autofree char *unread = g_strdup_printf(
			_("Instructions without samples of %u of the functions are left out."),
			annotate->unread_ranges);

		say(annotate, out, unread);
	}
}

/* Says of the files of the shown lines that one cannot be read or has changed. */
static void print_sources(struct annotate *annotate, struct out *out)
{
	const struct capture *capture = annotate->reader.capture;
	g_autoptr(GHashTable) seen = g_hash_table_new(NULL, NULL);

	for (guint i = 0; i < annotate->lines->len; i++) {
		const struct annotate_line *line = line_at(annotate, i);
		const struct source_text *source = source_of(annotate, line->file);
		g_autofree char *sentence = NULL;

		if (!line->file || line->is_inlined ||
		    !g_hash_table_add(seen, (gpointer)line->file))
			continue;
		if (!source)
			sentence = g_strdup_printf(
				_("%s cannot be read; --source-dir says where it is."), line->file);
		else if (capture->n_segments &&
			 source->mtime_s > capture->segments[0].wall_ns / 1000000000)
			sentence = g_strdup_printf(_("%s has changed since the recording: its "
						     "lines may be others."),
						   source->path);
		if (sentence)
			say(annotate, out, sentence);
	}
}

static bool has_lines(const struct annotate *annotate)
{
	for (guint i = 0; i < annotate->lines->len; i++)
		if (line_at(annotate, i)->file)
			return true;
	return false;
}

static void print_head(struct annotate *annotate, struct out *out)
{
	const struct reader *reader = &annotate->reader;
	const struct tally *tally = &annotate->tally;
	g_autofree char *event = text_escape(tally_event_name(tally));

	print_verdict(annotate, out);
	print_sites(annotate, out);
	if (annotate->self.samples == 0)
		say(annotate, out, _("No sample hit its own code, only what it calls."));
	/* The event, if it is not obvious. */
	if (tally_is_weighted(tally) || reader->capture->sampled->all->len > 1) {
		out_printf(out, _("Samples of %s"), event);
		tally_print_sum(tally, out);
		tally_print_other_events(tally, out);
		out_text(out, ".\n");
	}
	if (annotate->why_no_code && annotate->by != ANNOTATE_BY_LINE) {
		g_autofree char *sentence =
			g_strdup_printf(_("Without instructions: %s."), annotate->why_no_code);

		say(annotate, out, sentence);
	}
	if (annotate->by != ANNOTATE_BY_INSTRUCTION && has_lines(annotate))
		print_sources(annotate, out);
	else if (annotate->by != ANNOTATE_BY_INSTRUCTION && is_generated(annotate))
		say(annotate, out,
		    _("Lines are unknown: no jitdump describes this code, or other code was at its "
		      "addresses, too."));
	else if (annotate->by != ANNOTATE_BY_INSTRUCTION &&
		 strcmp(shown_function(annotate)->kind, "user") == 0)
		say(annotate, out,
		    _("Without lines: no debug information of it was found; 'apt install' its "
		      "-dbgsym package, or see --debug-dir."));
	reader_print_losses(reader, out, READER_LOSSES);
	reader_print_missed_ticks(reader, out);
	if (reader_is_complete(reader))
		out_text(out, _("Lost: nothing.\n"));
}

/* ---- lines as text --------------------------------------------------------------------------- */

struct text_row {
	const struct annotate_line *line; /* NULL: a line without code, or a gap */
	const char *file;
	uint32_t number; /* 0: a gap, or the name of the file */
	bool is_title;
};

static bool is_hit(const struct annotate_line *line)
{
	return line->self.samples || line->total.samples;
}

static gint compare_text_lines(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct annotate *annotate = data;
	const struct annotate_line *a = line_at(annotate, *(const uint32_t *)left);
	const struct annotate_line *b = line_at(annotate, *(const uint32_t *)right);
	int order = g_strcmp0(a->file, b->file);

	if (order == 0)
		order = a->line < b->line ? -1 : a->line > b->line;
	if (order == 0 && a->is_inlined != b->is_inlined)
		return a->is_inlined ? 1 : -1;
	if (order == 0)
		order = amount_compare(a->self, b->self);
	return order ? order : strcmp(a->function, b->function);
}

/* Returns which of n things to show: all, or those near one with samples. */
static uint8_t *choose(const struct annotate *annotate, guint n, const GArray *hits)
{
	uint8_t *chosen = g_new0(uint8_t, n + 1);

	if (reader_shown(&annotate->reader, n) == n)
		memset(chosen, 1, n);
	for (guint i = 0; i < hits->len; i++) {
		guint hit = g_array_index(hits, guint, i), from = hit - MIN_OF(hit, (guint)CONTEXT);

		memset(chosen + from, 1, MIN_OF(n, hit + CONTEXT + 1) - from);
	}
	return chosen;
}

static void add_gap(GArray *rows, const struct source_text *source, const char *file,
		    uint32_t before, uint32_t line)
{
	const struct text_row gap = { .file = file };

	if (!source || !before || line <= before + 1)
		return;
	if (line > before + MAX_GAP)
		g_array_append_val(rows, gap);
	for (uint32_t i = before + 1; line <= before + MAX_GAP && i < line; i++) {
		const struct text_row row = { .file = file, .number = i };

		g_array_append_val(rows, row);
	}
}

/* Returns struct text_row. */
static GArray *list_text_rows(struct annotate *annotate)
{
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(struct text_row));
	g_autoptr(GArray) order = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autoptr(GArray) hits = g_array_new(FALSE, FALSE, sizeof(guint));
	g_autofree uint8_t *chosen = NULL;
	const char *file = NULL;
	uint32_t before = 0;
	bool is_one_file;

	for (uint32_t i = 0; i < annotate->lines->len; i++)
		g_array_append_val(order, i);
	g_array_sort_with_data(order, compare_text_lines, annotate);
	for (guint i = 0; i < order->len; i++)
		if (is_hit(line_at(annotate, g_array_index(order, uint32_t, i))))
			g_array_append_val(hits, i);
	chosen = choose(annotate, order->len, hits);
	is_one_file =
		order->len > 0 &&
		line_at(annotate, g_array_index(order, uint32_t, 0))->file ==
			line_at(annotate, g_array_index(order, uint32_t, order->len - 1))->file;
	for (guint i = 0; i < order->len; i++) {
		const struct annotate_line *line =
			line_at(annotate, g_array_index(order, uint32_t, i));
		const struct source_text *source = source_of(annotate, line->file);
		const struct text_row title = { .file = line->file, .is_title = true };
		const struct text_row row = { .line = line,
					      .file = line->file,
					      .number = line->line };

		if (!chosen[i] || ((line->is_inlined || !source) && !is_hit(line)))
			continue;
		if (!is_one_file && (file != line->file || i == 0))
			g_array_append_val(rows, title);
		if (file != line->file)
			before = 0;
		file = line->file;
		if (!line->is_inlined)
			add_gap(rows, source, file, before, line->line);
		before = line->line;
		g_array_append_val(rows, row);
	}
	return rows;
}

/* "+19 std::vector  vector.tcc:119" */
static char *describe_inlined(const struct annotate_line *line)
{
	const char *file = line->most.samples ? base_of(line->hottest.file) : NULL;

	return file ? g_strdup_printf("+%u %s  %s:%" PRIu32, g_hash_table_size(line->functions),
				      line->function, file, line->hottest.line)
		    : g_strdup_printf("+%u %s",
				      line->functions ? g_hash_table_size(line->functions) : 1,
				      line->function);
}

static void get_text_cell(const void *data, size_t row, unsigned field, struct cell *ret_cell)
{
	const struct listing *listing = data;
	const struct text_row *at = &g_array_index(listing->rows, struct text_row, row);
	const struct annotate_line *line = at->line;
	const struct source_text *source = source_of(listing->annotate, at->file);
	bool is_callee = line && line->is_inlined, is_source = !is_callee && !at->is_title;
	char *text = NULL;

	switch ((enum field)field) {
	case LINE:
		if (at->number && is_source)
			*ret_cell = cell_uint(at->number);
		else if (is_source)
			*ret_cell = cell_text(line ? NULL : "...");
		break;
	case TEXT:
		if (is_callee)
			text = describe_inlined(line);
		else if (at->is_title)
			text = g_strdup_printf("%s:", at->file ? base_of(at->file) : "-");
		else if (source && at->number)
			text = source_text_line(source, at->number);
		if (text)
			*ret_cell = cell_own_text(text);
		break;
	default:
		if (line)
			*ret_cell =
				common_cell(listing->annotate, field, line,
					    !is_callee || listing->annotate->has_inlined_totals);
	}
}

static bool is_hot(const void *data, size_t row)
{
	const struct listing *listing = data;
	struct cell cell = { .kind = CELL_NONE };

	listing->get(data, row, SELF_PCT, &cell);
	return cell.kind == CELL_DOUBLE && cell.real >= 10;
}

static void add_weight_column(const struct annotate *annotate, struct table *table)
{
	if (tally_is_weighted(&annotate->tally))
		table_add_column(table, WEIGHT, COLUMN_COUNT,
				 strcmp(tally_unit(&annotate->tally), "ns") == 0
					 ? "ns"
					 : tally_event_name(&annotate->tally));
}

static void print_rows(const struct annotate *annotate, struct out *out, struct table *table)
{
	const struct table_style style = { .out = out,
					   .is_colored = annotate->reader.colored,
					   .columns = annotate->reader.columns };

	table->is_coarse = is_coarse(annotate);
	out_char(out, '\n');
	table_print(table, &style, table->rows);
}

static void print_lines(struct annotate *annotate, struct out *out)
{
	struct listing listing = { annotate, list_text_rows(annotate), get_text_cell };
	struct table table = {
		.rows = listing.rows->len, .get = get_text_cell, .data = &listing, .is_bold = is_hot
	};

	table_add_column(&table, SELF_PCT, COLUMN_PERCENT, _("self %"));
	table_add_column(&table, TOTAL_PCT, COLUMN_PERCENT, _("total %"));
	table_add_column(&table, SELF, COLUMN_COUNT, _("samples"));
	add_weight_column(annotate, &table);
	table_add_column(&table, LINE, COLUMN_NUMBER, _("line"));
	table_add_column(&table, TEXT, COLUMN_NAME, _("source"));
	print_rows(annotate, out, &table);
	g_array_unref(listing.rows);
}

/* ---- instructions as text -------------------------------------------------------------------- */

static gint compare_heat(gconstpointer left, gconstpointer right, gpointer data)
{
	const struct annotate *annotate = data;
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	int order = amount_compare(instruction_at(annotate, a)->self,
				   instruction_at(annotate, b)->self);

	return order ? order : a < b ? -1 : a > b;
}

/* Returns indexes of instructions; UINT32_MAX is a gap. */
static GArray *list_instructions(const struct annotate *annotate, bool hottest)
{
	guint n = annotate->instructions->len;
	GArray *rows = g_array_new(FALSE, FALSE, sizeof(uint32_t));
	g_autoptr(GArray) hits = g_array_new(FALSE, FALSE, sizeof(guint));
	g_autofree uint8_t *chosen = NULL;
	const uint32_t gap = UINT32_MAX;

	for (guint i = 0; i < n; i++)
		if (instruction_at(annotate, i)->self.samples > 0)
			g_array_append_val(hits, i);
	if (hottest) {
		g_array_append_vals(rows, hits->data, hits->len);
		g_array_sort_with_data(rows, compare_heat, (gpointer)annotate);
		g_array_set_size(rows, MIN_OF(rows->len, (guint)HOTTEST));
		return rows;
	}
	chosen = choose(annotate, n, hits);
	for (uint32_t i = 0; i < n; i++) {
		if (chosen[i])
			g_array_append_val(rows, i);
		else if (i == 0 || chosen[i - 1])
			g_array_append_val(rows, gap);
	}
	return rows;
}

static void print_instructions(struct annotate *annotate, struct out *out, bool hottest)
{
	struct listing listing = { annotate, list_instructions(annotate, hottest),
				   get_instruction_cell };
	g_autofree char *all = text_count(annotate->instructions->len);
	g_autofree char *title =
		listing.rows->len < annotate->instructions->len && hottest
			? g_strdup_printf(_("instruction (%u of %s; --by instruction: all)"),
					  listing.rows->len, all)
			: g_strdup(_("instruction"));
	struct table table = { .rows = listing.rows->len,
			       .get = get_instruction_cell,
			       .data = &listing,
			       .is_bold = is_hot };

	table_add_column(&table, SELF_PCT, COLUMN_PERCENT, _("self %"));
	table_add_column(&table, SELF, COLUMN_COUNT, _("samples"));
	add_weight_column(annotate, &table);
	table_add_column(&table, ADDRESS, COLUMN_NUMBER, _("address"));
	table_add_column(&table, TEXT, COLUMN_NAME, title);
	table_add_column(&table, WHERE, COLUMN_PLACE, NULL);
	print_rows(annotate, out, &table);
	g_array_unref(listing.rows);
}

static void print_answer(struct annotate *annotate, struct out *out)
{
	bool lines = annotate->by != ANNOTATE_BY_INSTRUCTION && has_lines(annotate);

	print_head(annotate, out);
	if (lines)
		print_lines(annotate, out);
	if (annotate->by != ANNOTATE_BY_LINE && annotate->instructions->len)
		print_instructions(annotate, out, lines);
}

/* ---- the verb -------------------------------------------------------------------------------- */

static bool annotate_run(struct annotate *annotate, const char *file, const char *function,
			 GError **error)
{
	const char *const *folders = NULL;

	if (annotate->debug_folders) {
		g_ptr_array_add(annotate->debug_folders, NULL);
		folders = (const char *const *)annotate->debug_folders->pdata;
	}
	annotate->tally.inlined = annotate->tally.joins_inlined = true;
	annotate->candidates = g_ptr_array_new_with_free_func(g_free);
	annotate->debug_files = debug_files_new(annotate->sysroot, folders);
	if (!annotate->debug_files)
		return capture_error(error, -errno, _("cannot open the folder '%s'"),
				     annotate->sysroot);
	return reader_open(&annotate->reader, file, error) &&
	       tally_run(&annotate->tally, &annotate->reader, error) &&
	       choose_function(annotate, function, error) && read_code(annotate, error);
}

static void annotate_done(struct annotate *annotate)
{
	GArray *const arrays[] = { annotate->frames, annotate->ranges, annotate->instructions,
				   annotate->lines };
	GHashTable *const tables[] = { annotate->known_frames, annotate->known_sites,
				       annotate->known_lines, annotate->sources };
	GPtrArray *const lists[] = { annotate->sites, annotate->candidates, annotate->debug_folders,
				     annotate->source_folders };

	for (size_t i = 0; i < ARRAY_SIZE(arrays); i++)
		if (arrays[i])
			g_array_unref(arrays[i]);
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
		if (tables[i])
			g_hash_table_unref(tables[i]);
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		if (lists[i])
			g_ptr_array_unref(lists[i]);
	symbols_free(annotate->symbols);
	json_done(&annotate->json);
	tally_done(&annotate->tally);
	reader_done(&annotate->reader);
	debug_files_free(annotate->debug_files);
}

int verb_annotate(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE FUNCTION"),
		N_("Show the hot source lines and instructions of a function. FUNCTION is its name, or an address in it: image+0xOFFSET."),
		2, 2
	};
	CLEANUP(annotate_done)
	struct annotate annotate = { .reader.limit = READER_LIMIT_UNSET,
				     .reader.text_limit = DEFAULT_LIMIT };
	const struct cli_group groups[] = { { NULL, options, &annotate },
					    { N_("Select"), reader_time_options, &annotate.reader },
					    { NULL, reader_process_options, &annotate.reader },
					    { NULL, reader_thread_options, &annotate.reader },
					    { NULL, reader_cpu_options, &annotate.reader },
					    { NULL, reader_event_options, &annotate.reader },
					    { N_("Output"), reader_output_options,
					      &annotate.reader },
					    { NULL, reader_pager_options, &annotate.reader },
					    { NULL } };
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&annotate.json, out_stdout());
	if (status != CLI_CONTINUE)
		return status;
	if (!annotate_run(&annotate, argv[0], argv[1], &error)) {
		status = cli_fail(error);
		/* Names are untrusted. */
		for (guint i = 0; annotate.candidates && i < annotate.candidates->len; i++) {
			g_autofree char *line = text_escape(annotate.candidates->pdata[i]);

			fprintf(stderr, "%s\n", line);
		}
		return status;
	}
	capture_warn(annotate.reader.capture);
	reader_page(&annotate.reader);
	if (annotate.reader.format == READER_TEXT)
		print_answer(&annotate, out_stdout());
	else
		write_answer(&annotate);
	return CLI_OK;
}
