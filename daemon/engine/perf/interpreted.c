/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interpreted - the functions of interpreted programs, in stacks and as rows
 *
 * Invariants: (1) frames that contradict themselves, or have no position in the stack, are not
 *                 shown  [test-engine-samples: interpreted]
 *             (2) a place has its symbol and line in its epoch
 *                 [test-engine-samples: interpreted]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/interpreted.h"

#include "arch/base.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define MAX_FUNCTIONS_BYTES (UINT64_C(64) << 20)
#define FIRST_SYMBOL (UINT32_C(1) << 30) /* above those of the kernel */

/* Code objects that were not described, because a record was lost. */
static char unknown_name[] = "?", no_file[] = "";
static const struct interp_function unknown_function = {
	.name = unknown_name,
	.file = no_file,
	.first_line = 1,
};

void interpreted_init(struct interpreted *interpreted, struct output *output, struct images *images)
{
	uint64_t seed = 0;

	/* Without a random seed the tables still work, but are predictable. */
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = (uintptr_t)interpreted;
	*interpreted = (struct interpreted){
		.output = output,
		.images = images,
		.functions = interp_functions_new(MAX_FUNCTIONS_BYTES, seed),
		.programs = g_hash_table_new_full(NULL, NULL, NULL, (GDestroyNotify)row_unref),
		.symbols = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free, NULL),
		.last_symbol = FIRST_SYMBOL,
		.generation = 1,
	};
}

void interpreted_done(struct interpreted *interpreted)
{
	interp_functions_free(interpreted->functions);
	g_hash_table_destroy(interpreted->programs);
	g_hash_table_destroy(interpreted->symbols);
}

/* ---- Processes ------------------------------------------------------------------------------- */

static bool is_named_python(const struct image *image)
{
	const char *slash = image->path ? strrchr(image->path, '/') : NULL;

	return slash &&
	       (g_str_has_prefix(slash, "/python") || g_str_has_prefix(slash, "/libpython"));
}

void interpreted_look(struct interpreted *interpreted, struct process *process)
{
	const struct maps *maps = process->maps;
	const bool is_again = process->interpreter_generation != interpreted->generation;

	if (!is_again && process->interpreter_maps == maps->version)
		return;
	process->interpreter_generation = interpreted->generation;
	process->interpreter_maps = maps->version;
	for (uint32_t i = 0; i < maps->n; i++) {
		const struct mapping *mapping = &maps->mappings[i];
		struct image *image = mapping->image;
		uint64_t bias;

		if (image && !interpreted->is_expected && is_named_python(image)) {
			interpreted->is_expected = true;
			interpreted->expected(interpreted->data);
		}
		if (!image || !image->python)
			continue;
		bias = mapping->start - mapping->file_offset - image->python->code_bias;
		if (is_again || process->interpreter != image ||
		    process->interpreter_bias != bias) {
			process->interpreter = image;
			process->interpreter_bias = bias;
			interpreted->found(process, interpreted->data);
		}
		return;
	}
}

void interpreted_look_again(struct interpreted *interpreted)
{
	interpreted->generation++;
}

void interpreted_add_code(struct interpreted *interpreted, const struct process *process,
			  const uint8_t *bytes, size_t size)
{
	struct interp_code_text code;

	if (interp_record_code(bytes, size, &code))
		(void)interp_functions_add(interpreted->functions, process->row.id, &code);
}

/* Returns the image whose places are the functions of the process. */
static struct image *program_of(struct interpreted *interpreted, const struct process *process)
{
	const struct image *file = process->interpreter;
	struct image *program = g_hash_table_lookup(interpreted->programs, file);
	char path[32];

	if (program)
		return program;
	snprintf(path, sizeof(path), "[python 3.%u]", file->python->minor);
	program = images_new(interpreted->images, PROF_IMAGE_INTERPRETER, path, NULL);
	program->opened = file->opened;
	program->size = file->size;
	program->ctime_ns = file->ctime_ns;
	g_hash_table_insert(interpreted->programs, (gpointer)file, program);
	return program;
}

/* ---- Samples --------------------------------------------------------------------------------- */

/* Gets the functions of the chain. Returns false if the interpreter's own code is among them, which
 * only frames have that are not finished. */
static bool find_functions(struct interpreted *interpreted, const struct process *process)
{
	const struct interp_chain *chain = &interpreted->chain;

	for (size_t i = 0; i < chain->n; i++) {
		const struct interp_function *function = interp_functions_find(
			interpreted->functions, process->row.id, &chain->frames[i]);

		if (function && function->first_line == 0 &&
		    strstr(function->name, "<interpreter trampoline>"))
			return false;
		interpreted->frames[i] = function ? function : &unknown_function;
	}
	return true;
}

static bool place_runs(struct interpreted *interpreted, const struct sample *sample)
{
	const struct unwind_stack *user = &sample->user;
	const struct process *process = sample->thread->process;
	const struct cpython_file *file = process->interpreter->python;
	const uint64_t eval = file->eval + process->interpreter_bias;
	/* Positions up to 3.10 need no stack pointers. */
	const size_t n = interpreted->chain.minor <= 10 ? user->n : user->n_sps;
	const struct interp_native native = {
		.frames = interpreted->native,
		.n = n,
		.has_root = user->stop == PROF_STOP_ROOT && n == user->n,
		.eval = eval,
		.eval_end = eval + file->eval_size,
	};

	for (size_t i = 0; i < n; i++)
		interpreted->native[i] = (struct walk_frame){
			.pc = user->ips[i] & ~UNWIND_EXACT,
			.sp = i < user->n_sps ? user->sps[i] : 0,
			.flags = user->ips[i] & UNWIND_EXACT ? WALK_FRAME_EXACT : 0,
		};
	if (!interp_merge(&interpreted->chain, &native, interpreted->runs, &interpreted->n_runs))
		return false;
	for (size_t i = 0; i < interpreted->n_runs; i++) {
		/* Callers that were appended without their stack pointer may be in between. */
		if (interpreted->runs[i].native >= n && n < user->n)
			return false;
		if (interpreted->runs[i].native >= user->n)
			interpreted->runs[i].native = UINT32_MAX;
	}
	return true;
}

enum prof_sample_interpreter interpreted_merge(struct interpreted *interpreted,
					       const struct sample *sample)
{
	const struct process *process = sample->thread->process;
	struct interp_chain *chain = &interpreted->chain;

	interpreted->n_runs = interpreted->n_shown = 0;
	if (!process->interpreter)
		return PROF_INTERPRETER_NONE;
	/* during exec and exit */
	if (sample->user.stop == PROF_STOP_NO_MEMORY)
		return PROF_INTERPRETER_IDLE;
	if (!sample->is_interpreted || !interp_record_sample(sample->raw, sample->raw_bytes, chain))
		return PROF_INTERPRETER_MISSING;
	if (chain->flags & (INTERP_FAULT | INTERP_TORN))
		return PROF_INTERPRETER_TORN;
	if (chain->n == 0)
		return PROF_INTERPRETER_IDLE;
	if (!find_functions(interpreted, process))
		return PROF_INTERPRETER_TORN;
	if (!place_runs(interpreted, sample)) {
		interpreted->n_runs = 0;
		return PROF_INTERPRETER_MISSING;
	}
	interpreted->program = program_of(interpreted, process);
	return chain->flags & INTERP_DEEPER ? PROF_INTERPRETER_DEEPER : PROF_INTERPRETER_COMPLETE;
}

size_t interpreted_add_places(struct interpreted *interpreted, size_t native,
			      struct output_place *places, size_t n)
{
	const uint32_t sought = native == SIZE_MAX ? UINT32_MAX : (uint32_t)native;

	while (interpreted->n_runs > 0 &&
	       interpreted->runs[interpreted->n_runs - 1].native == sought) {
		const struct interp_run *run = &interpreted->runs[--interpreted->n_runs];

		for (size_t i = run->end; i > run->first; i--) {
			const struct interp_function *function = interpreted->frames[i - 1];
			uint32_t line;

			if (function->first_line == 0)
				continue;
			line = interp_function_line(function, &interpreted->chain.frames[i - 1]);
			interpreted->shown[interpreted->n_shown++] =
				(struct interpreted_place){ function, line, n };
			places[n++] = (struct output_place){
				&interpreted->program->row,
				function->number * INTERP_FUNCTION_LINES + line,
				PROF_FRAME_EXACT,
			};
		}
	}
	return n;
}

static void write_symbol(struct interpreted *interpreted, const struct interp_function *function)
{
	struct output *output = interpreted->output;
	const uint32_t name = output_text(output, function->name);

	output_add(output, PROF_TABLE_SYMBOL,
		   (const struct prof_value[]){
			   [PROF_SYMBOL_ID] = PROF_NUMBER(++interpreted->last_symbol),
			   [PROF_SYMBOL_IMAGE] = PROF_NUMBER(interpreted->program->row.id),
			   [PROF_SYMBOL_START] =
				   PROF_NUMBER(function->number * INTERP_FUNCTION_LINES),
			   [PROF_SYMBOL_LENGTH] = PROF_NUMBER(INTERP_FUNCTION_LINES),
			   [PROF_SYMBOL_NAME] = PROF_NUMBER(name),
			   [PROF_SYMBOL_RAW_NAME] = PROF_NUMBER(name),
			   [PROF_SYMBOL_FILE] = PROF_NUMBER(output_text(output, function->file)),
			   [PROF_SYMBOL_LINE] = PROF_NUMBER(function->first_line),
			   [PROF_SYMBOL_INLINE_PARENT] = PROF_NUMBER(0),
		   });
}

/* Returns the id of the function's symbol, which is written on first use. */
static uint32_t symbol_of(struct interpreted *interpreted, const struct interp_function *function)
{
	const uint64_t key = (uint64_t)interpreted->program->row.id << 32 | function->number;
	gpointer id;

	if (interpreted->epoch != interpreted->output->epoch) {
		g_hash_table_remove_all(interpreted->symbols);
		interpreted->epoch = interpreted->output->epoch;
	}
	id = g_hash_table_lookup(interpreted->symbols, &key);
	if (id)
		return GPOINTER_TO_UINT(id);
	write_symbol(interpreted, function);
	g_hash_table_insert(interpreted->symbols, g_memdup2(&key, sizeof(key)),
			    GUINT_TO_POINTER(interpreted->last_symbol));
	return interpreted->last_symbol;
}

void interpreted_write(struct interpreted *interpreted, const bool *is_new)
{
	struct output *output = interpreted->output;

	for (size_t i = 0; i < interpreted->n_shown; i++) {
		const struct interpreted_place *place = &interpreted->shown[i];
		const uint64_t start = place->function->number * INTERP_FUNCTION_LINES;
		uint32_t symbol;

		if (!is_new[place->place])
			continue;
		symbol = symbol_of(interpreted, place->function);
		if (place->line == 0)
			continue;
		output_add(output, PROF_TABLE_LINE,
			   (const struct prof_value[]){
				   [PROF_LINE_ID] = PROF_NUMBER(++interpreted->last_line),
				   [PROF_LINE_IMAGE] = PROF_NUMBER(interpreted->program->row.id),
				   [PROF_LINE_START] = PROF_NUMBER(start + place->line),
				   [PROF_LINE_LENGTH] = PROF_NUMBER(1),
				   [PROF_LINE_FILE] =
					   PROF_NUMBER(output_text(output, place->function->file)),
				   [PROF_LINE_LINE] = PROF_NUMBER(place->line),
				   [PROF_LINE_SYMBOL] = PROF_NUMBER(symbol),
			   });
	}
}
