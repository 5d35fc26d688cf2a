/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interpreted - the functions of interpreted programs, in stacks and as rows
 *
 * Invariants: (1) frames that contradict themselves, or have no position in the stack, are not
 *                 shown  [test-engine-samples: interpreted, refused]
 *             (2) an unsupported interpreter does not hide a supported one
 *                 [test-engine-samples: two_interpreters]
 *             (3) samples that lack a function for which there was no room are counted
 *                 [test-engine-samples: full]
 *             (4) a sample taken before a program's frames are read is reported as incomplete only
 *                 if its native stack may have an activation of the interpreter
 *                 [test-engine-samples: before]
 *             (5) code that V8 generated for a function is not shown beside the function
 *                 [test-engine-samples: generated]
 *             (6) a line that the interpreter does not keep up to date is not shown
 *                 [test-engine-samples: jit]
 *             (7) a stack that shows an activation without its functions is not complete
 *                 [test-engine-samples: interpreted]
 *             (8) frames that CPython has not finished are not shown
 *                 [test-engine-samples: trampoline]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/interpreted.h"

#include "arch/base.h"

#include <string.h>

/* The function of code objects whose description was lost. */
static char unknown_name[] = "?";
static const struct interp_function unknown_function = {
	.number = INTERPRETED_UNKNOWN,
	.name = unknown_name,
	.first_line = 1,
};

void interpreted_init(struct interpreted *interpreted, struct interpreted_code *code)
{
	*interpreted = (struct interpreted){ .code = code, .generation = 1 };
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* Ranks an interpreter. A process may map several interpreters, but only the one with the highest
 * rank is read. Supported interpreters come first. Among equals, the interpreter that is already
 * read comes first, then the interpreter that is the process's program. */
static unsigned rank(const struct process *process, const struct image *image)
{
	return 4 * (image->runtime->found == INTERP_FOUND) + 2 * (image == process->interpreter) +
	       (image == process->program);
}

/* Returns the first mapping of the interpreter to be read; NULL: no interpreter is known. Of
 * interpreters with the same rank, chooses the one at the highest address, which was usually mapped
 * first. Of the mappings of a file, chooses the one with the lowest file offset, because V8 maps a
 * part of its file a second time. */
static const struct mapping *choose(struct interpreted *interpreted, const struct process *process)
{
	const struct maps *maps = process->maps;
	const struct mapping *chosen = NULL;

	for (uint32_t i = 0; i < maps->n; i++) {
		const struct mapping *mapping = &maps->mappings[i];
		const struct image *image = mapping->image;

		const char *slash = image && image->path ? strrchr(image->path, '/') : NULL;
		const enum interp_family named = slash ? interp_family_of_name(slash + 1)
						       : INTERP_NONE;

		if (named != INTERP_NONE && !(interpreted->expected_families & 1u << named)) {
			interpreted->expected_families |= 1u << named;
			interpreted->expected(named, interpreted->data);
		}
		if (image && image->runtime &&
		    (!chosen || (image == chosen->image
					 ? mapping->file_offset < chosen->file_offset
					 : rank(process, image) >= rank(process, chosen->image))))
			chosen = mapping;
	}
	return chosen;
}

void interpreted_look(struct interpreted *interpreted, struct process *process)
{
	const struct maps *maps = process->maps;
	const bool is_again = process->interpreter_generation != interpreted->generation;
	const struct mapping *mapping;
	uint64_t bias;

	if (!is_again && process->interpreter_maps == maps->version)
		return;
	process->interpreter_generation = interpreted->generation;
	process->interpreter_maps = maps->version;
	mapping = choose(interpreted, process);
	if (!mapping)
		return;
	bias = mapping->start - mapping->file_offset - mapping->image->runtime->code_bias;
	if (is_again || process->interpreter != mapping->image ||
	    process->interpreter_bias != bias) {
		process->interpreter = mapping->image;
		process->interpreter_bias = bias;
		interpreted->found(process, interpreted->data);
	}
	process->has_unread_interpreter = process->describes_code = false;
	for (uint32_t i = 0; i < maps->n; i++) {
		process->describes_code |= maps->mappings[i].image &&
					   maps->mappings[i].image->is_jit_dump;
		if (maps->mappings[i].image && maps->mappings[i].image->runtime &&
		    maps->mappings[i].image != process->interpreter) {
			process->has_unread_interpreter = true;
			interpreted->unread(process, maps->mappings[i].image->runtime,
					    interpreted->data);
		}
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
		(void)interp_functions_add(interpreted->code->functions, process->row.id, &code);
}

/* ---- Samples --------------------------------------------------------------------------------- */

/* Gets the functions of the chain. Returns TORN if a function is the interpreter's own code, which
 * only unfinished frames have; MISSING if there was no room for a function. */
static enum prof_sample_interpreter find_functions(struct interpreted *interpreted,
						   const struct process *process)
{
	const struct interp_chain *chain = &interpreted->chain;

	for (size_t i = 0; i < chain->n; i++) {
		const struct interp_function *function = interp_functions_find(
			interpreted->code->functions, process->row.id, &chain->frames[i]);

		if (function && strcmp(function->name, "<shim>.<interpreter trampoline>") == 0)
			return PROF_INTERPRETER_TORN;
		if (!function && interp_functions_are_full(interpreted->code->functions))
			return PROF_INTERPRETER_MISSING;
		interpreted->frames[i] = function ? function : &unknown_function;
	}
	return PROF_INTERPRETER_COMPLETE;
}

static struct interp_range moved(struct interp_range range, uint64_t bias)
{
	return (struct interp_range){ range.start + bias, range.size };
}

/* Finds the places of the interpreter's frames in the native stack. Returns false if a place is
 * unknown. Flags the chain as deeper if the native stack shows that callers are missing. */
static bool place_runs(struct interpreted *interpreted, const struct sample *sample)
{
	const struct unwind_stack *user = &sample->user;
	const struct process *process = sample->thread->process;
	const struct interp_runtime *file = process->interpreter->runtime;
	const uint64_t eval = file->eval + process->interpreter_bias;
	const size_t n = interp_merge_by_address(&interpreted->chain) ? user->n_sps : user->n;
	const struct interp_native native = {
		.frames = interpreted->native,
		.n = n,
		.has_root = user->stop == PROF_STOP_ROOT && n == user->n,
		.is_cut = user->stop == PROF_STOP_COPY_END || user->stop == PROF_STOP_DEPTH,
		.eval = eval,
		.eval_end = eval + file->eval_size,
		.again = moved(file->again, process->interpreter_bias),
		.main = moved(file->main, process->interpreter_bias),
		.callers = { moved(file->callers[0], process->interpreter_bias),
			     moved(file->callers[1], process->interpreter_bias) },
	};

	for (size_t i = 0; i < n; i++)
		interpreted->native[i] = (struct walk_frame){
			.pc = user->ips[i] & ~UNWIND_EXACT,
			.sp = i < user->n_sps ? user->sps[i] : 0,
			.flags = user->ips[i] & UNWIND_EXACT ? WALK_FRAME_EXACT : 0,
		};
	if (!interp_merge(&interpreted->chain, &native, interpreted->runs, &interpreted->n_runs))
		return false;
	if (interp_merge_lacks_callers(&interpreted->chain, &native, interpreted->runs,
				       interpreted->n_runs))
		interpreted->chain.flags |= INTERP_DEEPER;
	for (size_t i = 0; i < interpreted->n_runs; i++) {
		/* The run belongs after all frames whose stack pointer is known, so its place among
		 * the appended callers, whose stack pointers are unknown, is unknown, too. */
		if (interpreted->runs[i].native >= n && n < user->n)
			return false;
		if (interpreted->runs[i].native >= user->n)
			interpreted->runs[i].native = UINT32_MAX;
	}
	return true;
}

/* Returns whether the native stack shows that the thread executes no function of the program: all
 * frames are known, and none is in the function that executes the program's functions. From 3.14
 * on, builds of Python may have one such function for each instruction. */
static bool is_idle(const struct sample *sample)
{
	const struct unwind_stack *user = &sample->user;
	const struct process *process = sample->thread->process;
	const struct interp_runtime *file = process->interpreter->runtime;
	const uint64_t eval = file->eval + process->interpreter_bias;

	if (user->n == 0 || user->stop != PROF_STOP_ROOT || process->has_unread_interpreter)
		return false;
	/* Neither V8's own code nor the code that it generates has unwind tables. */
	if (file->family == INTERP_V8)
		return user->method == PROF_METHOD_CFI;
	if (file->eval_size == 0 ||
	    (file->family == INTERP_PYTHON && interp_minor(file->family, file->minor) >= 14))
		return false;
	for (size_t i = 0; i < user->n; i++) {
		const uint64_t pc = (user->ips[i] & ~UNWIND_EXACT) - !(user->ips[i] & UNWIND_EXACT);

		if (pc - eval < file->eval_size)
			return false;
	}
	return true;
}

/* Returns whether a native frame is in code that was generated. */
static bool is_generated(const struct sample *sample, size_t native)
{
	const uint64_t tagged = sample->user.ips[native];
	const struct mapping *mapping = maps_find(
		sample->thread->process->maps, (tagged & ~UNWIND_EXACT) - !(tagged & UNWIND_EXACT));

	return !mapping || !mapping->image || mapping->image->kind == PROF_IMAGE_ANON ||
	       mapping->image->kind == PROF_IMAGE_JIT;
}

/* Returns whether the thread runs code that Ruby has compiled (YJIT), which stores the position of
 * its frame only before it calls something. */
static bool is_in_compiled_code(const struct sample *sample, const struct interp_chain *chain)
{
	return chain->family == INTERP_RUBY && sample->user.n > 0 && is_generated(sample, 0);
}

/* Drops the runs in generated code of a process that describes this code, because the description
 * has lines and inlined functions. */
static void drop_described(struct interpreted *interpreted, const struct sample *sample)
{
	size_t n = 0;

	for (size_t i = 0; i < interpreted->n_runs; i++)
		if (interpreted->runs[i].native == UINT32_MAX ||
		    !is_generated(sample, interpreted->runs[i].native))
			interpreted->runs[n++] = interpreted->runs[i];
	interpreted->n_runs = n;
}

/* Returns whether the stack of a PHP program ends at code without tables, but not at the beginning
 * of a fiber. */
static bool is_hidden_by_code(const struct interp_chain *chain, const struct sample *sample)
{
	if (chain->family != INTERP_PHP || sample->user.stop != PROF_STOP_NO_TABLE)
		return false;
	for (size_t i = 0; i < chain->n; i++)
		if (chain->frames[i].flags & INTERP_FRAME_ENDS_STACK)
			return false;
	return true;
}

enum prof_user_method interpreted_method(const struct sample *sample,
					 enum prof_sample_interpreter interpreter)
{
	return sample->user.method == PROF_METHOD_FP && interpreter == PROF_INTERPRETER_COMPLETE &&
			       sample->thread->process->interpreter->runtime->family == INTERP_V8
		       ? PROF_METHOD_JIT_FP
		       : sample->user.method;
}

enum prof_sample_interpreter interpreted_merge(struct interpreted *interpreted,
					       const struct sample *sample)
{
	const struct process *process = sample->thread->process;
	struct interp_chain *chain = &interpreted->chain;
	enum prof_sample_interpreter functions;

	interpreted->n_runs = interpreted->n_shown = 0;
	if (!process->interpreter)
		return PROF_INTERPRETER_NONE;
	/* the process is in exec or exit */
	if (sample->user.stop == PROF_STOP_NO_MEMORY)
		return PROF_INTERPRETER_IDLE;
	/* The sample was taken before the interpreter was found. */
	if (!sample->is_interpreted)
		return is_idle(sample) ? PROF_INTERPRETER_IDLE : PROF_INTERPRETER_MISSING;
	/* The frames may be those of the interpreter that the process had before. */
	if (!interp_record_sample(sample->raw, sample->raw_bytes, chain) ||
	    chain->family != process->interpreter->runtime->family ||
	    chain->minor != process->interpreter->runtime->minor)
		return PROF_INTERPRETER_MISSING;
	if (chain->flags & (INTERP_FAULT | INTERP_TORN))
		return PROF_INTERPRETER_TORN;
	/* Functions of the unread interpreter may be on the stack. */
	if (chain->n == 0)
		return process->has_unread_interpreter ? PROF_INTERPRETER_MISSING
						       : PROF_INTERPRETER_IDLE;
	if (!interp_merge_is_sound(chain))
		return chain->flags & INTERP_DEEPER ? PROF_INTERPRETER_MISSING
						    : PROF_INTERPRETER_TORN;
	functions = find_functions(interpreted, process);
	if (functions != PROF_INTERPRETER_COMPLETE)
		return functions;
	if (!place_runs(interpreted, sample)) {
		interpreted->n_runs = 0;
		interpreted->is_hidden_by_code |= is_hidden_by_code(chain, sample);
		return PROF_INTERPRETER_MISSING;
	}
	if (chain->family == INTERP_V8 && process->describes_code)
		drop_described(interpreted, sample);
	if (is_in_compiled_code(sample, chain))
		chain->frames[0].position = UINT32_MAX;
	interpreted->program = interpreted_code_program(interpreted->code, process->interpreter,
							process->interpreter->runtime->family,
							process->interpreter->runtime->minor);
	return chain->flags & INTERP_DEEPER ? PROF_INTERPRETER_DEEPER : PROF_INTERPRETER_COMPLETE;
}

bool interpreted_replaces(const struct interpreted *interpreted, const struct sample *sample,
			  size_t native)
{
	return interpreted->chain.family == INTERP_V8 && interpreted->n_runs > 0 &&
	       interpreted->runs[interpreted->n_runs - 1].native == native &&
	       is_generated(sample, native);
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
			uint64_t offset;

			if (interp_function_is_hidden(function))
				continue;
			offset = function->number * INTERP_FUNCTION_LINES +
				 interp_function_line(function, &interpreted->chain.frames[i - 1]);
			interpreted->shown[interpreted->n_shown++] =
				(struct interpreted_place){ offset, n };
			places[n++] = (struct output_place){ &interpreted->program->row, offset,
							     PROF_FRAME_EXACT };
		}
	}
	return n;
}

void interpreted_write(struct interpreted *interpreted, const bool *is_new)
{
	for (size_t i = 0; i < interpreted->n_shown; i++)
		if (is_new[interpreted->shown[i].place])
			interpreted_code_write(interpreted->code, &interpreted->program->row,
					       interpreted->shown[i].offset);
}
