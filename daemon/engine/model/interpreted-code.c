/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interpreted-code - the functions of interpreted programs, as rows of the tables image, symbol and
 * line
 *
 * Invariants: (1) each epoch has the symbols and lines of its places
 *                 [test-engine-samples: interpreted; test-engine-heap-stacks: code]
 * Runs on the drain thread only.
 */
#include "daemon/engine/model/interpreted-code.h"

#include <sys/random.h>

#define MAX_FUNCTIONS_BYTES (UINT64_C(64) << 20)
#define FIRST_SYMBOL (UINT32_C(1) << 30) /* above the ids of the kernel's symbols */

void interpreted_code_init(struct interpreted_code *code, struct output *output,
			   struct images *images)
{
	uint64_t seed = 0;

	/* Without a random seed the tables still work, but are predictable. */
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (uintptr_t)code;
	*code = (struct interpreted_code){
		.output = output,
		.images = images,
		.functions = interp_functions_new(MAX_FUNCTIONS_BYTES, seed),
		.programs = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)row_unref),
		.symbols = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL),
		.last_symbol = FIRST_SYMBOL,
	};
}

void interpreted_code_done(struct interpreted_code *code)
{
	if (!code->functions)
		return;
	interp_functions_free(code->functions);
	g_hash_table_destroy(code->programs);
	g_hash_table_destroy(code->symbols);
	*code = (struct interpreted_code){ 0 };
}

static void identify(struct image *program, const struct image *file)
{
	program->opened = file->opened;
	program->size = file->size;
	program->ctime_ns = file->ctime_ns;
}

struct image *interpreted_code_program(struct interpreted_code *code, const struct image *file,
				       enum interp_family family, unsigned minor)
{
	static const char *const kinds[] = INTERP_FAMILY_KINDS;
	/* Without a file, the key is a small number, which is never the address of an image. */
	gconstpointer key = file ? (gconstpointer)file
				 : GUINT_TO_POINTER(family * 256 + minor % 256 + 1);
	struct image *program = g_hash_table_lookup(code->programs, key);
	g_autofree char *path = NULL;

	if (program)
		return program;
	path = g_strdup_printf("[%s %u.%u%s]", kinds[family], interp_major(family, minor % 256),
			       interp_minor(family, minor % 256),
			       interp_suffix(family, minor % 256));
	program = images_new(code->images, PROF_IMAGE_INTERPRETER, path, NULL);
	if (file)
		identify(program, file);
	g_hash_table_insert(code->programs, (gpointer)key, program);
	return program;
}

void interpreted_code_opened(struct interpreted_code *code, const struct image *file)
{
	struct image *program = g_hash_table_lookup(code->programs, file);

	if (!program)
		return;
	identify(program, file);
	output_touch(code->output, &program->row);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void write_symbol(struct interpreted_code *code, const struct row *program, uint64_t number,
			 const struct interp_function *function)
{
	struct output *output = code->output;
	const uint32_t name = output_text(output, function->name);

	output_add(output, PROF_TABLE_SYMBOL,
		   (const struct prof_value[]){
			   [PROF_SYMBOL_ID] = PROF_NUMBER(++code->last_symbol),
			   [PROF_SYMBOL_IMAGE] = PROF_NUMBER(program->id),
			   [PROF_SYMBOL_START] = PROF_NUMBER(number * INTERP_FUNCTION_LINES),
			   [PROF_SYMBOL_LENGTH] = PROF_NUMBER(INTERP_FUNCTION_LINES),
			   [PROF_SYMBOL_NAME] = PROF_NUMBER(name),
			   [PROF_SYMBOL_RAW_NAME] = PROF_NUMBER(name),
			   [PROF_SYMBOL_FILE] = PROF_NUMBER(output_text(output, function->file)),
			   [PROF_SYMBOL_LINE] = PROF_NUMBER(function->first_line),
			   [PROF_SYMBOL_INLINE_PARENT] = PROF_NUMBER(0),
			   [PROF_SYMBOL_DECLARED_FILE] = PROF_NUMBER(0),
			   [PROF_SYMBOL_DECLARED_LINE] = PROF_NUMBER(0),
		   });
}

/* Returns the id of the function's symbol, which is written on first use in an epoch. */
static uint32_t symbol_of(struct interpreted_code *code, const struct row *program, uint64_t number,
			  const struct interp_function *function)
{
	const uint64_t key = (uint64_t)program->id << 32 | number;
	gpointer id;

	if (code->epoch != code->output->epoch) {
		g_hash_table_remove_all(code->symbols);
		code->epoch = code->output->epoch;
	}
	id = g_hash_table_lookup(code->symbols, &key);
	if (id)
		return GPOINTER_TO_UINT(id);
	write_symbol(code, program, number, function);
	g_hash_table_insert(code->symbols, g_memdup2(&key, sizeof(key)),
			    GUINT_TO_POINTER(code->last_symbol));
	return code->last_symbol;
}

void interpreted_code_write(struct interpreted_code *code, const struct row *program,
			    uint64_t offset)
{
	static char unknown_name[] = "?", no_file[] = "";
	const struct interp_function unknown = { .name = unknown_name, .file = no_file };
	const uint64_t number = offset / INTERP_FUNCTION_LINES,
		       line = offset % INTERP_FUNCTION_LINES;
	const struct interp_function *function = interp_functions_at(code->functions, number);
	struct output *output = code->output;
	uint32_t symbol;

	if (!function)
		function = &unknown;
	symbol = symbol_of(code, program, number, function);
	if (line == 0)
		return;
	output_add(output, PROF_TABLE_LINE,
		   (const struct prof_value[]){
			   [PROF_LINE_ID] = PROF_NUMBER(++code->last_line),
			   [PROF_LINE_IMAGE] = PROF_NUMBER(program->id),
			   [PROF_LINE_START] = PROF_NUMBER(offset),
			   [PROF_LINE_LENGTH] = PROF_NUMBER(1),
			   [PROF_LINE_FILE] = PROF_NUMBER(output_text(output, function->file)),
			   [PROF_LINE_LINE] = PROF_NUMBER(line),
			   [PROF_LINE_SYMBOL] = PROF_NUMBER(symbol),
		   });
}
