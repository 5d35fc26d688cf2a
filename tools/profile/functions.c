/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Functions - the names of frames, the same in every epoch
 *
 * Invariants: (1) a frame is looked up once per epoch, unless its name depends on the time
 *                 [by construction of frame_functions]
 *             (2) a return address is looked up at offset - 1     [test-report: return]
 *             (3) code that moved remains the same function        [test_jit: machine_code]
 *             (4) clones and split-off parts of a function count as that function
 *                 [test-report: clones]
 *             (5) a frame below generated code has the same lines and inlined calls as elsewhere
 *                 [test-report: below generated code]
 */
#include "config.h"

#include "tools/profile/functions.h"

#include "tools/profile/function-names.h"

#include "base/python-module.h"
#include "tools/common/keyed.h"
#include "tools/common/text.h"
#include "tools/symbols/clone-suffix.h"

#include <inttypes.h>
#include <string.h>

#define FUNCTION_TIMED UINT32_MAX
#define PYTHON_PREFIX "py::"

bool functions_have_names(const struct functions *functions)
{
	for (guint i = FUNCTION_LOST + 1; i < functions->all->len; i++)
		if (strcmp(functions_at(functions, i)->kind, "user") == 0)
			return true;
	return false;
}

const char *functions_basename(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	if (!path || !*path)
		return "-";
	return slash && slash[1] ? slash + 1 : path;
}

/* The key of a function: its name (or offset, if it has no name or is the place at an address),
 * kind and image, and its file, line and place if set. Generated code has only its name and process
 * (`whole`), so that it remains one function when it is moved or loaded again. Texts are
 * interned. */
KEYED_BY(key, struct function, (uintptr_t)a->name, (uintptr_t)a->kind, (uintptr_t)a->file,
	 (uint64_t)a->image << 32 | a->line, (uint64_t)a->whole << 32 | a->depth,
	 (uint64_t)a->is_line | (uint64_t)a->is_inlined << 1 | (uint64_t)a->is_address << 2,
	 a->name && !a->is_address ? 0 : a->offset)

static uint32_t add(struct functions *functions, const struct function *function)
{
	g_array_append_vals(functions->all, function, 1);
	return functions->all->len - 1;
}

/* Returns the function with this key. If no function has it, adds `function`. */
static uint32_t known_or_added(struct functions *functions, const struct function *key,
			       const struct function *function)
{
	gpointer known;
	uint32_t index;

	if (g_hash_table_lookup_extended(functions->known, key, NULL, &known))
		return GPOINTER_TO_UINT(known);
	index = add(functions, function);
	g_hash_table_insert(functions->known, g_memdup2(key, sizeof(*key)),
			    GUINT_TO_POINTER(index));
	return index;
}

/* Returns the language of an interpreter's image, whose path is, for example, "[python 3.11]". */
static const char *language_of(const char *path)
{
	static const char *const languages[] = { "python", "ruby",       "php",  "perl",
						 "lua",    "javascript", "java", NULL };

	for (size_t i = 0; path && languages[i]; i++) {
		const size_t length = strlen(languages[i]);

		if (path[0] == '[' && strncmp(path + 1, languages[i], length) == 0 &&
		    (path[1 + length] == ' ' || path[1 + length] == ']'))
			return languages[i];
	}
	return "interpreter";
}

static const char *kind_of(const struct names_image *image)
{
	switch (image->kind) {
	case PROF_IMAGE_KERNEL:
	case PROF_IMAGE_MODULE:
	case PROF_IMAGE_BPF:
		return "kernel";
	case PROF_IMAGE_JIT:
		return "jit";
	case PROF_IMAGE_INTERPRETER:
		return language_of(image->path);
	default:
		return "user";
	}
}

/* Returns whether an image is a program that does not belong to the system. */
static bool is_foreign(const struct names_image *image)
{
	static const char *const system[] = { "/usr/", "/bin/", "/sbin/", "/memfd:", NULL };
	const char *path = image->path, *name;

	if (image->kind == PROF_IMAGE_INTERPRETER)
		return true; /* an interpreted program */
	if (image->kind != PROF_IMAGE_FILE || !path || *path != '/' ||
	    skip_any_prefix(path, system))
		return false;
	name = functions_basename(path);
	/* profctl's child has samples in profctl until it executes the command. */
	return !strstr(name, ".so") && strcmp(name, "profctl") != 0;
}

struct functions *functions_new(struct names *names, GError **error)
{
	static const struct function first[] = {
		{ .name = "<no stack>", .raw_name = "<no stack>", .kind = "unresolved" },
		{ .name = NAMES_LOST_TEXT,
		  .raw_name = NAMES_LOST_TEXT,
		  .kind = "unresolved",
		  .image = NAMES_LOST },
	};
	struct functions *functions = g_new0(struct functions, 1);

	functions->names = names;
	functions->all = g_array_new(FALSE, FALSE, sizeof(struct function));
	functions->known = g_hash_table_new_full(key_hash, key_equal, g_free, NULL);
	functions->languages = g_hash_table_new(g_str_hash, g_str_equal);
	functions->symbols = symbol_rows_load(names, error);
	if (functions->symbols)
		functions->codes = code_names_load(names, error);
	if (functions->codes)
		functions->memory = own_memory_load(names, error);
	if (!functions->memory) {
		functions_free(functions);
		return NULL;
	}
	/* Loaded epochs may have indexes of an earlier struct functions: drop these. */
	for (guint i = 0; i < names->epochs->len; i++)
		g_clear_pointer(&((struct names_epoch *)names->epochs->pdata[i])->frame_functions,
				g_free);
	/* `names` has the images of all symbols, because they were loaded above. */
	for (uint32_t i = 0; i < names->images->len; i++) {
		const struct names_image *image = names_image_at(names, i);

		if (image->kind == PROF_IMAGE_INTERPRETER) {
			functions->has_interpreter = true;
			g_hash_table_add(functions->languages, (gpointer)kind_of(image));
		}
		if (image->kind == PROF_IMAGE_KERNEL)
			functions->kernel = i;
		functions->is_foreign |= !names->of_system && is_foreign(image);
	}
	if (code_names_any_with(functions->codes, PYTHON_PREFIX))
		g_hash_table_add(functions->languages, (gpointer) "python");
	g_array_append_vals(functions->all, first, ARRAY_SIZE(first));
	return functions;
}

void functions_free(struct functions *functions)
{
	if (!functions)
		return;
	symbol_rows_free(functions->symbols);
	code_names_free(functions->codes);
	own_memory_free(functions->memory);
	g_array_unref(functions->all);
	g_hash_table_unref(functions->known);
	g_hash_table_unref(functions->languages);
	g_free(functions);
}

/*
 * Returns the index of a symbol's function. A clone belongs to the first function in its image with
 * the same name and, if known, the same line. Other functions with the same name remain separate.
 */
static uint32_t of_whole(struct functions *functions, const struct function *function)
{
	uint32_t n_before = functions->all->len;
	uint32_t index = known_or_added(functions, function, function);
	struct function *whole = &g_array_index(functions->all, struct function, index);

	if (index == n_before || clone_suffix_skip(function->raw_name) < strlen(function->raw_name))
		return index;
	if (clone_suffix_skip(whole->raw_name) == strlen(whole->raw_name))
		return add(functions, function);
	*whole = *function;
	return index;
}

static uint32_t of_symbol(struct functions *functions, uint32_t image, struct symbol_row *symbol)
{
	struct function function = {
		.name = symbol->name,
		.raw_name = symbol->raw_name,
		.kind = kind_of(names_image_at(functions->names, image)),
		.file = symbol->file,
		.line = symbol->line,
		.offset = symbol->start,
		.image = image,
	};

	if (symbol->user == 0)
		symbol->user = of_whole(functions, &function);
	return symbol->user;
}

static uint32_t of_place(struct functions *functions, uint32_t image, uint64_t offset)
{
	struct function key = { .kind = "unresolved", .image = image }, function;
	const char *path;
	g_autofree char *name = NULL;
	gpointer known;

	if (own_memory_is(names_image_at(functions->names, image)))
		offset = own_memory_start(functions->memory, image, offset);
	key.offset = offset;
	if (g_hash_table_lookup_extended(functions->known, &key, NULL, &known))
		return GPOINTER_TO_UINT(known);
	path = functions_basename(names_image_at(functions->names, image)->path);
	/* Names such as "<deeper>" have no offset. */
	name = *path == '<' && offset == 0 ? g_strdup(path)
					   : g_strdup_printf("%s+0x%" PRIx64, path, offset);
	function = key;
	function.name = function.raw_name = names_intern(functions->names, name, strlen(name));
	return known_or_added(functions, &key, &function);
}

/* Python names the code that it generates for a function "py::NAME:FILE". Sets the name that the
 * function has when it is read from the interpreter. Does nothing if the capture has functions from
 * an interpreter, because a function would then appear twice under one name. */
static void set_python(struct functions *functions, struct function *function)
{
	const char *name = function->name + strlen(PYTHON_PREFIX), *file;
	char module[PYTHON_MODULE_BYTES];
	g_autofree char *shown = NULL;

	if (functions->has_interpreter || !g_str_has_prefix(function->name, PYTHON_PREFIX))
		return;
	file = strchr(name, ':');
	if (!file || file == name || file[1] == ':' || file[1] == '\0')
		return;
	shown = g_strdup_printf("%s.%.*s", python_module(file + 1, module), (int)(file - name),
				name);
	function->name = function->raw_name = names_intern(functions->names, shown, strlen(shown));
	function->file = names_intern(functions->names, file + 1, strlen(file + 1));
}

static uint32_t of_code(struct functions *functions, uint32_t image, struct code_name *name)
{
	const struct function key = { .name = name->name, .kind = "jit", .whole = name->process };
	struct function function = {
		.name = name->name,
		.raw_name = name->name,
		.kind = "jit",
		.offset = name->start,
		.length = name->end - name->start,
		.image = image,
	};

	if (name->user != 0)
		return name->user;
	set_python(functions, &function);
	name->user = known_or_added(functions, &key, &function);
	return name->user;
}

/* Stores a frame's image and offset, and the offset to look up. Returns false if the capture lost
 * them. */
static bool read_frame(struct names_epoch *epoch, size_t row, uint32_t *ret_image,
		       uint64_t *ret_offset, uint64_t *ret_looked_up)
{
	uint64_t id = 0, offset = 0, kind = PROF_FRAME_EXACT;

	if (!names_number(epoch, NAMES_FRAME, PROF_FRAME_IMAGE, row, &id) ||
	    !names_number(epoch, NAMES_FRAME, PROF_FRAME_OFFSET, row, &offset))
		return false;
	(void)names_number(epoch, NAMES_FRAME, PROF_FRAME_KIND, row, &kind);
	*ret_image = names_image(epoch, id);
	*ret_offset = offset;
	*ret_looked_up = offset - (kind == PROF_FRAME_RETURN && offset > 0);
	return *ret_image != NAMES_LOST;
}

static uint32_t look_up(struct functions *functions, struct names_epoch *epoch, size_t row)
{
	uint64_t offset, looked_up;
	struct symbol_row *symbol;
	uint32_t image;

	if (!read_frame(epoch, row, &image, &offset, &looked_up))
		return FUNCTION_LOST;
	if (own_memory_is(names_image_at(functions->names, image)) &&
	    code_names_any(functions->codes))
		return FUNCTION_TIMED;
	symbol = symbol_rows_find(functions->symbols, image, looked_up);
	return symbol ? of_symbol(functions, image, symbol) : of_place(functions, image, offset);
}

static uint32_t memo_of_row(struct functions *functions, struct names_epoch *epoch, size_t row)
{
	uint32_t *memo = epoch->frame_functions;

	if (!memo)
		epoch->frame_functions = memo =
			g_new0(uint32_t, prof_dictionary_rows(epoch->tables[NAMES_FRAME]) + 1);
	/* 0 means not looked up, because no frame is FUNCTION_NO_STACK. */
	if (memo[row] == 0)
		memo[row] = look_up(functions, epoch, row);
	return memo[row];
}

uint32_t functions_of_call(struct functions *functions, const char *name)
{
	const struct function call = {
		.name = name, .raw_name = name, .kind = "kernel", .image = functions->kernel
	};

	return known_or_added(functions, &call, &call);
}

bool functions_is_timed(struct functions *functions, struct names_epoch *epoch, size_t row)
{
	return memo_of_row(functions, epoch, row) == FUNCTION_TIMED;
}

/* Returns a place in the function `whole`. `offset`: offset of the frame. */
static uint32_t of_place_in(struct functions *functions, uint32_t whole, const char *file,
			    uint32_t line, uint32_t depth, uint64_t offset)
{
	struct function place = *functions_at(functions, whole);

	place.whole = whole;
	place.depth = depth;
	place.is_line = true;
	place.file = file;
	place.line = line;
	place.is_address = functions->detail == FUNCTIONS_ADDRESSES;
	if (place.is_address)
		place.offset = offset;
	return known_or_added(functions, &place, &place);
}

/* Returns the entity for a line of generated code, which has no inlined calls. */
static uint32_t of_code_line(struct functions *functions, uint32_t index, uint32_t image,
			     uint64_t offset, uint64_t address)
{
	const struct line_row *line = symbol_rows_line(functions->symbols, image, address);
	struct function function = *functions_at(functions, index);

	if (functions->detail == FUNCTIONS_ADDRESSES ||
	    (functions->detail == FUNCTIONS_PLACES && line))
		return of_place_in(functions, index, line ? line->file : NULL,
				   line ? line->line : 0, 0, offset);
	if (functions->detail == FUNCTIONS_PLACES)
		return index;
	function.is_line = true;
	function.file = line ? line->file : function.file;
	function.line = line ? line->line : 0;
	return known_or_added(functions, &function, &function);
}

/* Returns the entity of a frame in generated code, whose name depends on the time. */
static uint32_t code_at(struct functions *functions, struct names_epoch *epoch, size_t row,
			uint32_t segment, uint64_t time_ns, uint64_t *ret_until)
{
	uint64_t offset, address;
	struct code_name *name;
	uint32_t image, index;

	if (!read_frame(epoch, row, &image, &offset, &address))
		return FUNCTION_LOST;
	name = code_names_find(functions->codes, names_image_at(functions->names, image)->process,
			       address, segment, time_ns, ret_until);
	if (!name)
		return of_place(functions, image, offset);
	index = of_code(functions, image, name);
	return functions->detail == FUNCTIONS_WHOLE
		       ? index
		       : of_code_line(functions, index, image, offset, address);
}

uint32_t functions_of_row(struct functions *functions, struct names_epoch *epoch, size_t row)
{
	uint32_t function = memo_of_row(functions, epoch, row), image;
	uint64_t offset, looked_up;

	if (function != FUNCTION_TIMED)
		return function;
	return read_frame(epoch, row, &image, &offset, &looked_up)
		       ? of_place(functions, image, offset)
		       : FUNCTION_LOST;
}

/* Returns the line of a frame, given its function; NULL = unknown. */
static const struct line_row *line_of_row(struct functions *functions, struct names_epoch *epoch,
					  size_t row, uint32_t function)
{
	uint64_t offset, looked_up;
	uint32_t image;

	if (function <= FUNCTION_LOST || !read_frame(epoch, row, &image, &offset, &looked_up))
		return NULL;
	return symbol_rows_line(functions->symbols, image, looked_up);
}

static void set_call(struct function *function, const struct line_call *call)
{
	function->name = call->name;
	function->raw_name = call->raw_name;
	function->offset = call->start;
}

/* Returns whether an inlined call calls another function than `symbol`, which has the same name:
 * static functions of several files may have one name. */
static bool is_other(const struct symbol_row *symbol, const struct line_call *call)
{
	return symbol->line && call->declared_line && symbol->line != call->declared_line;
}

/* Returns the function of an inlined call. `key`: the function's members except file and line.
 * Functions of one name are distinguished by the line of the declaration, not by the file, because
 * one file may have several paths. */
static uint32_t of_call(struct functions *functions, struct function key,
			const struct line_call *call)
{
	struct function function;

	key.file = NULL;
	key.line = call->declared_line;
	function = key;
	function.file = call->declared_file;
	return known_or_added(functions, &key, &function);
}

static uint32_t line_entity(struct functions *functions, struct names_epoch *epoch, size_t row)
{
	uint32_t index = functions_of_row(functions, epoch, row);
	const struct line_row *line = line_of_row(functions, epoch, row, index);
	struct function function = *functions_at(functions, index);

	if (index <= FUNCTION_LOST || strcmp(function.kind, "unresolved") == 0)
		return index;
	function.is_line = true;
	function.file = line ? line->file : NULL;
	function.line = line ? line->line : 0;
	if (line && line->call)
		set_call(&function, symbol_rows_call(functions->symbols, line->call));
	return known_or_added(functions, &function, &function);
}

static uint32_t place_entity(struct functions *functions, struct names_epoch *epoch, size_t row)
{
	uint32_t index = functions_of_row(functions, epoch, row);
	const struct line_row *line = line_of_row(functions, epoch, row, index);
	const struct line_call *call = NULL;
	uint64_t offset = 0, looked_up;
	uint32_t image;

	if (!line && (functions->detail != FUNCTIONS_ADDRESSES || index <= FUNCTION_LOST ||
		      strcmp(functions_at(functions, index)->kind, "unresolved") == 0))
		return index;
	(void)read_frame(epoch, row, &image, &offset, &looked_up);
	if (!line)
		return of_place_in(functions, index, NULL, 0, 0, offset);
	for (uint32_t n = line->call; n; n = call->parent)
		call = symbol_rows_call(functions->symbols, n);
	return of_place_in(functions, index, call ? call->file : line->file,
			   call ? call->line : line->line, 0, offset);
}

uint32_t functions_line_of_place(struct functions *functions, uint32_t place)
{
	struct function function = *functions_at(functions, place);

	if (place <= FUNCTION_LOST || strcmp(function.kind, "unresolved") == 0)
		return place;
	if (!function.is_line) {
		function.file = NULL;
		function.line = 0;
	}
	function.is_line = true;
	function.is_inlined = false;
	function.whole = function.depth = 0;
	return known_or_added(functions, &function, &function);
}

uint32_t functions_entity_of_row(struct functions *functions, struct names_epoch *epoch, size_t row)
{
	switch (functions->detail) {
	case FUNCTIONS_LINES:
		return line_entity(functions, epoch, row);
	case FUNCTIONS_PLACES:
	case FUNCTIONS_ADDRESSES:
		return place_entity(functions, epoch, row);
	default:
		return functions_of_row(functions, epoch, row);
	}
}

size_t functions_inlined_at_row(struct functions *functions, struct names_epoch *epoch, size_t row,
				uint32_t *ret_functions)
{
	uint32_t index = functions_of_row(functions, epoch, row), depth = 0;
	const struct line_row *line = line_of_row(functions, epoch, row, index);
	struct function function = *functions_at(functions, index);
	struct line_call at = { 0 }; /* parent: an inlined call; file, line: the place in it */
	uint64_t offset = 0, looked_up;
	uint32_t image;

	if (line && line->call)
		depth = symbol_rows_call(functions->symbols, line->call)->depth;
	if (depth) {
		at = (struct line_call){ .parent = line->call,
					 .file = line->file,
					 .line = line->line };
		(void)read_frame(epoch, row, &image, &offset, &looked_up);
	}
	function.is_inlined = true;
	for (uint32_t i = depth; i > 0; i--) {
		const struct line_call *call = symbol_rows_call(functions->symbols, at.parent);
		struct symbol_row *symbol = NULL;

		set_call(&function, call);
		function.code_file = at.file;
		/* Count an inlined call for the function itself if the image has that function. */
		if (functions->joins_inlined)
			symbol = symbol_rows_named(functions->symbols, function.image,
						   function.name);
		index = symbol && !is_other(symbol, call)
				? of_symbol(functions, function.image, symbol)
				: of_call(functions, function, call);
		if (functions->detail >= FUNCTIONS_PLACES)
			index = of_place_in(functions, index, at.file, at.line, i, offset);
		ret_functions[i - 1] = index;
		at = *call;
	}
	return depth;
}

size_t functions_at_row(struct functions *functions, struct names_epoch *epoch, size_t row,
			uint32_t segment, uint64_t time_ns, uint32_t *ret_entities,
			uint64_t *ret_until)
{
	uint64_t until = UINT64_MAX;
	size_t n = 0;

	if (functions_is_timed(functions, epoch, row)) {
		ret_entities[n++] = code_at(functions, epoch, row, segment, time_ns, &until);
	} else {
		ret_entities[n++] = functions_entity_of_row(functions, epoch, row);
		if (functions->inlined)
			n += functions_inlined_at_row(functions, epoch, row, ret_entities + n);
	}
	if (ret_until)
		*ret_until = until;
	return n;
}

const char *functions_image(const struct functions *functions, uint32_t index)
{
	uint32_t image = functions_at(functions, index)->image;

	return image <= NAMES_LOST ? NULL : names_image_at(functions->names, image)->path;
}

const char *functions_path(const struct functions *functions, uint32_t index)
{
	const struct function *function = functions_at(functions, index);

	return function->file        ? function->file
	       : function->code_file ? function->code_file
				     : functions_image(functions, index);
}

const char *functions_short_path(const char *path, bool has_folder)
{
	const char *base = functions_basename(path), *name = base;

	while (has_folder && name > path && (name == base || name[-1] != '/'))
		name--;
	return name;
}

bool functions_have_one_basename(const char *path, const char *other)
{
	return path && other && strcmp(path, other) != 0 &&
	       strcmp(functions_basename(path), functions_basename(other)) == 0;
}

char *functions_place(const struct functions *functions, uint32_t index, bool has_folder)
{
	const struct function *function = functions_at(functions, index);
	const char *path = functions_path(functions, index), *base = functions_basename(path);

	/* "<deeper>" has no image, but a file of Python may be named "<string>". A function
	 * without a symbol has its place in its name: "libc.so.6+0x26000". */
	if (!path || (*path == '<' && !function->file) ||
	    strcmp(function->kind, "unresolved") == 0 ||
	    (g_str_has_prefix(function->name, base) && function->name[strlen(base)] == '+'))
		return NULL;
	path = functions_short_path(path, has_folder);
	return function->file && function->line
		       ? g_strdup_printf("%s:%" PRIu32, path, function->line)
		       : g_strdup(path);
}

void functions_print_image(const struct functions *functions, uint32_t index, struct out *out)
{
	const char *path = functions_image(functions, index);
	g_autofree char *name = path ? text_escape(functions_basename(path)) : NULL;

	/* Images other than files have brackets in their names: "[kernel]", "[vdso]". "<deeper>" is
	 * not an image. */
	if (name && *name != '<')
		out_printf(out, *name == '[' ? "  %s" : "  [%s]", name);
}

void functions_print_line(const struct functions *functions, uint32_t index, struct out *out)
{
	const struct function *function = functions_at(functions, index);

	if (!function->is_line || !function->line)
		return;
	out_text(out, "  ");
	text_cell(out, function->file ? function->file : "-", 0);
	out_printf(out, ":%" PRIu32, function->line);
}

/* ---- output ---------------------------------------------------------------------------------- */

struct cell functions_cell(const struct functions *functions, uint32_t index,
			   enum function_field field)
{
	const struct function *function = functions_at(functions, index);
	bool is_known = function->image > NAMES_LOST;

	switch (field) {
	case FN_NAME:
		return cell_text(function->name);
	case FN_RAW_NAME:
		return cell_text(function->raw_name);
	case FN_IMAGE:
		return cell_text(functions_image(functions, index));
	case FN_BUILD_ID:
		return cell_text(
			is_known ? names_image_at(functions->names, function->image)->build_id
				 : NULL);
	case FN_OFFSET:
		return is_known ? (struct cell){ .kind = CELL_HEX, .number = function->offset }
				: cell_unknown();
	case FN_KIND:
		return cell_text(function->kind);
	case FN_FILE:
		return cell_text(function->file);
	case FN_LINE:
		return function->line ? cell_uint(function->line) : cell_unknown();
	case FN_FIELDS:
		break;
	}
	return cell_unknown();
}

void functions_write(const struct functions *functions, uint32_t index, struct json *json)
{
	static const struct table_member members[] = { FN_MEMBERS };

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		struct cell cell = functions_cell(functions, index, members[i].field);

		cell_write(json, members[i].key, &cell);
	}
}
