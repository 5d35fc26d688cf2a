/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-functions - the functions of interpreted programs, as the capture numbers them
 *
 * Invariants: (1) memory is at most max_bytes: a function that exceeds it is not added
 *                 [test-cpython: functions limit]
 *             (2) one function has one number in all processes  [test-cpython: functions]
 * Runs on the drain thread only.
 */
#include "daemon/engine/interp/interp-functions.h"

#include "arch/base.h"
#include "base/cpython-layouts.h"
#include "base/hash.h"
#include "base/python-module.h"
#include "daemon/engine/interp/cpython-lines.h"
#include "daemon/engine/interp/ruby-lines.h"

#include <string.h>

struct code_key {
	uint64_t code;
	uint32_t process, id;
	uint64_t seed; /* seed of the hash; equal in all keys */
};

struct known_function {
	struct interp_function function;
	uint64_t hash;
};

struct interp_functions {
	GHashTable *by_code;    /* struct code_key → struct known_function, borrowed */
	GHashTable *by_content; /* set of struct known_function */
	GPtrArray *by_number;   /* the functions, borrowed; number N is at N - 1 */
	uint64_t bytes, max_bytes;
	uint64_t seed;
	bool is_full;
};

static guint hash_code(gconstpointer data)
{
	const struct code_key *key = data;

	return hash_fold(hash_words(key->code ^ key->seed, (uint64_t)key->process << 32 | key->id));
}

static gboolean same_code(gconstpointer left, gconstpointer right)
{
	const struct code_key *a = left, *b = right;

	return a->code == b->code && a->process == b->process && a->id == b->id;
}

static guint hash_content(gconstpointer data)
{
	return hash_fold(((const struct known_function *)data)->hash);
}

static gboolean same_content(gconstpointer left, gconstpointer right)
{
	const struct interp_function *a = &((const struct known_function *)left)->function;
	const struct interp_function *b = &((const struct known_function *)right)->function;

	return a->first_line == b->first_line && a->family == b->family && a->minor == b->minor &&
	       a->lines_bytes == b->lines_bytes && strcmp(a->name, b->name) == 0 &&
	       strcmp(a->file, b->file) == 0 &&
	       (a->lines_bytes == 0 || memcmp(a->lines, b->lines, a->lines_bytes) == 0);
}

static void free_known(gpointer data)
{
	struct known_function *known = data;

	g_free(known->function.name);
	g_free(known->function.file);
	g_free(known->function.lines);
	g_free(known);
}

struct interp_functions *interp_functions_new(uint64_t max_bytes, uint64_t seed)
{
	struct interp_functions *functions = g_new0(struct interp_functions, 1);

	functions->by_code = g_hash_table_new_full(hash_code, same_code, g_free, NULL);
	functions->by_content = g_hash_table_new_full(hash_content, same_content, free_known, NULL);
	functions->by_number = g_ptr_array_new();
	functions->max_bytes = max_bytes;
	functions->seed = seed;
	return functions;
}

void interp_functions_free(struct interp_functions *functions)
{
	if (!functions)
		return;
	g_hash_table_destroy(functions->by_code);
	g_ptr_array_free(functions->by_number, TRUE);
	g_hash_table_destroy(functions->by_content);
	g_free(functions);
}

/* ---- Functions ------------------------------------------------------------------------------- */

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	uint64_t word;

	for (; size >= sizeof(word); at += sizeof(word), size -= sizeof(word))
		hash = hash_words(hash, load_le64(at));
	word = 0;
	if (size > 0)
		memcpy(&word, at, size);
	return hash_words(hash, word ^ (uint64_t)size << 56);
}

static char *make_php_name(const struct interp_code_text *code)
{
	static const char *const unnamed[] = { [INTERP_PHP_MAIN] = "{main}",
					       [INTERP_PHP_INCLUDE] = "include",
					       [INTERP_PHP_EVAL] = "eval" };
	const char *name = code->name, *slash = strrchr(code->file, '/');

	if (code->kind < ARRAY_SIZE(unnamed) && unnamed[code->kind])
		name = unnamed[code->kind];
	else if (!g_str_has_suffix(name, "{closure}") && !strstr(name, "@anonymous::"))
		return g_strdup(*name ? name : "?");
	return g_strdup_printf("%s (%s)", name, slash ? slash + 1 : code->file);
}

/* `file`: as returned by make_file() */
static char *make_perl_name(const struct interp_code_text *code, const char *file)
{
	static const char *const unnamed[] = { [INTERP_PERL_EVAL] = "eval",
					       [INTERP_PERL_SORT] = "sort block",
					       [INTERP_PERL_REGEX] = "regex block",
					       [INTERP_PERL_MAIN] = "<main>" };
	static const char *const common[] = { "__ANON__", "BEGIN", "UNITCHECK",
					      "CHECK",    "INIT",  "END" };
	const char *name = *code->name ? code->name : "?", *slash = strrchr(file, '/');
	const char *base = g_strrstr(name, "::");
	bool has_file = false;

	if (code->kind == INTERP_PERL_REQUIRE)
		return g_strconcat("require ", name, NULL);
	if (code->kind < ARRAY_SIZE(unnamed) && unnamed[code->kind]) {
		name = unnamed[code->kind];
		has_file = true;
	}
	base = base ? base + 2 : name;
	for (size_t i = 0; i < ARRAY_SIZE(common) && !has_file; i++)
		has_file = strcmp(base, common[i]) == 0;
	if (!has_file)
		return g_strconcat(code->kind == INTERP_PERL_FORMAT ? "format " : "", name, NULL);
	/* The file of a string that Perl compiled has a name such as "(eval)". */
	return g_strdup_printf(file[0] == '(' ? "%s %s" : "%s (%s)", name,
			       slash ? slash + 1 : file);
}

/* Returns the file of a function. For a string that Perl compiled, such as "(eval 12)", drops the
 * number, because it differs for each compilation. For a JavaScript module, whose file is a URL,
 * drops "file://". */
static char *make_file(const struct interp_code_text *code)
{
	const char *digits = strstr(code->file, "eval ");

	if (code->family == INTERP_V8 && g_str_has_prefix(code->file, "file://"))
		return g_strdup(code->file + strlen("file://"));
	return code->family == INTERP_PERL && digits && code->file[0] == '(' &&
			       g_str_has_suffix(code->file, ")")
		       ? g_strdup_printf("%.*s)", (int)(digits + 4 - code->file), code->file)
		       : g_strdup(code->file);
}

/* `file`: as returned by make_file(). Node.js's own files, such as "node:fs", keep their whole
 * name. */
static char *make_v8_name(const struct interp_code_text *code, const char *file)
{
	const bool is_native = code->kind == INTERP_V8_NATIVE;
	const char *slash = strrchr(file, '/');
	const char *name = *code->name                      ? code->name
			   : code->kind == INTERP_V8_MODULE ? "<module>"
							    : "<anonymous>";

	if (is_native)
		file = "native";
	else if (slash && !g_str_has_prefix(file, "node:"))
		file = slash + 1;
	if (*file == '\0')
		file = "eval";
	/* A file may have several anonymous functions. */
	return *code->name || code->kind == INTERP_V8_MODULE || is_native || code->first_line == 0
		       ? g_strdup_printf("%s (%s)", name, file)
		       : g_strdup_printf("%s (%s:%u)", name, file, code->first_line);
}

static char *make_name(const struct interp_code_text *code, const char *file)
{
	const char *name = *code->name ? code->name : "?", *slash;
	char module[PYTHON_MODULE_BYTES];

	if (code->family == INTERP_PYTHON)
		return g_strconcat(python_module(code->file, module), ".", name, NULL);
	if (code->family == INTERP_PHP)
		return make_php_name(code);
	if (code->family == INTERP_PERL)
		return make_perl_name(code, file);
	if (code->family == INTERP_V8)
		return make_v8_name(code, file);
	if (code->file[0] == '(')
		return g_strconcat(name, " ", code->file, NULL);
	if (code->has_owner && code->file[0] != '<')
		return g_strdup(name);
	/* A file that is part of Ruby has a name such as "<internal:/usr/lib/ruby/set.rb>". */
	slash = strrchr(code->file, '/');
	return slash ? g_strdup_printf("%s (%.*s)", name, (int)strcspn(slash + 1, ">"), slash + 1)
		     : g_strconcat(name, " (", code->file, ")", NULL);
}

static struct known_function *make_function(const struct interp_functions *functions,
					    const struct interp_code_text *code)
{
	struct known_function *known = g_new0(struct known_function, 1);
	struct interp_function *function = &known->function;

	function->file = make_file(code);
	function->name = make_name(code, function->file);
	function->first_line = code->first_line <= INT32_MAX ? code->first_line : 0;
	function->family = code->family;
	function->minor = code->minor;
	/* Allocate one byte more, so that the pointer is never NULL: the end of the bytes is
	 * computed from it. */
	function->lines = g_malloc(code->lines_bytes + 1);
	memcpy(function->lines, code->lines, code->lines_bytes);
	function->lines_bytes = (uint32_t)code->lines_bytes;
	known->hash = hash_bytes(functions->seed ^ function->first_line, function->name,
				 strlen(function->name));
	known->hash = hash_bytes(known->hash, function->file, strlen(function->file));
	known->hash = hash_bytes(known->hash, function->lines, function->lines_bytes);
	return known;
}

/* `more`: bytes that are needed besides those of the function. */
static struct known_function *intern(struct interp_functions *functions,
				     const struct interp_code_text *code, uint64_t more)
{
	struct known_function *made = make_function(functions, code);
	struct known_function *known = g_hash_table_lookup(functions->by_content, made);
	const uint64_t bytes = known ? 0
				     : sizeof(*made) + strlen(made->function.name) +
					       strlen(made->function.file) +
					       made->function.lines_bytes;

	if (more + bytes > functions->max_bytes - functions->bytes) {
		functions->is_full = true;
		free_known(made);
		return NULL;
	}
	if (known) {
		free_known(made);
		return known;
	}
	g_ptr_array_add(functions->by_number, made);
	made->function.number = functions->by_number->len;
	g_hash_table_add(functions->by_content, made);
	functions->bytes += bytes;
	return made;
}

bool interp_functions_are_full(const struct interp_functions *functions)
{
	return functions->is_full;
}

const struct interp_function *interp_functions_intern(struct interp_functions *functions,
						      const struct interp_code_text *code)
{
	const struct known_function *known = intern(functions, code, 0);

	return known ? &known->function : NULL;
}

const struct interp_function *interp_functions_at(const struct interp_functions *functions,
						  uint64_t number)
{
	const struct known_function *known =
		number > 0 && number <= functions->by_number->len
			? g_ptr_array_index(functions->by_number, number - 1)
			: NULL;

	return known ? &known->function : NULL;
}

bool interp_functions_add(struct interp_functions *functions, uint32_t process,
			  const struct interp_code_text *code)
{
	const struct code_key key = { code->code, process, code->id, functions->seed };
	struct known_function *known = intern(functions, code, sizeof(key));

	if (!known)
		return false;
	if (g_hash_table_insert(functions->by_code, g_memdup2(&key, sizeof(key)), known))
		functions->bytes += sizeof(key);
	return true;
}

const struct interp_function *interp_functions_find(const struct interp_functions *functions,
						    uint32_t process,
						    const struct interp_frame *frame)
{
	const struct code_key key = { frame->code, process, frame->id, functions->seed };
	const struct known_function *known = g_hash_table_lookup(functions->by_code, &key);

	return known ? &known->function : NULL;
}

bool interp_function_is_hidden(const struct interp_function *function)
{
	return function->family == INTERP_PYTHON && function->first_line == 0;
}

static uint32_t python_line(const struct interp_function *function,
			    const struct interp_frame *frame)
{
	const struct interp_cpython *layout = cpython_layout(function->minor);
	const struct cpython_lines lines = { .minor = function->minor,
					     .first_line = function->first_line,
					     .bytes = function->lines,
					     .size = function->lines_bytes };
	int64_t position = (int32_t)frame->position;

	if (!layout)
		return 0;
	if (layout->code_start != INTERP_ABSENT)
		position -= layout->code_start;
	return cpython_lines_find(&lines, position);
}

uint32_t interp_function_line(const struct interp_function *function,
			      const struct interp_frame *frame)
{
	const uint32_t line =
		function->family >= INTERP_PHP ? frame->position
		: function->family == INTERP_RUBY
			? ruby_lines_find(function->lines, function->lines_bytes, frame->position)
			: python_line(function, frame);

	return line < INTERP_FUNCTION_LINES ? line : 0;
}
