/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interpreted - the functions of interpreted programs, in stacks and as rows
 *
 * Finds the interpreter among the mappings of each process that is sampled or sleeps, and reports
 * it, so that its frames are read (daemon/interp-protocol.h). The frames become places in an image
 * of kind interpreter. Names and lines of new places are written once an epoch.
 */
#pragma once

#include "daemon/engine/interp/interp-merge.h"
#include "daemon/engine/interp/interp-runtime.h"
#include "daemon/engine/model/interpreted-code.h"
#include "daemon/engine/model/tasks.h"
#include "daemon/engine/unwind/sample-queue.h"

struct interpreted {
	struct interpreted_code *code;
	uint32_t generation; /* changes when all processes must be checked again */
	/* Called once for each family, when a process maps a file that has the name of such an
	 * interpreter, before the file is read. */
	void (*expected)(enum interp_family family, void *data);
	unsigned expected_families; /* bits 1 << enum interp_family */
	/* Called when an interpreter is found in a process, and again in each generation. */
	void (*found)(const struct process *process, void *data);
	/* Called whenever a process also has another interpreter, which is not read. */
	void (*unread)(const struct process *process, const struct interp_runtime *runtime,
		       void *data);
	void *data;
	/* A sample's functions could not be placed, because its stack ends at code that PHP
	 * generated. */
	bool is_hidden_by_code;
	/* The current sample. */
	struct interp_chain chain;
	struct interp_run runs[INTERP_MAX_FRAMES];
	size_t n_runs;
	struct image *program;
	const struct interp_function *frames[INTERP_MAX_FRAMES]; /* in the order of `chain` */
	struct interpreted_place {
		uint64_t offset;
		size_t place; /* index in the sample's places */
	} shown[INTERP_MAX_FRAMES];
	size_t n_shown;
	struct walk_frame native[UNWIND_MAX_FRAMES];
};

/* The struct is large: allocate it on the heap. */
void interpreted_init(struct interpreted *interpreted, struct interpreted_code *code);

/* Looks for an interpreter in a process if its mappings or the generation have changed. */
void interpreted_look(struct interpreted *interpreted, struct process *process);
/* Makes interpreted_look() check all processes again, because an interpreter's file has been read,
 * or because `found` can do more now. */
void interpreted_look_again(struct interpreted *interpreted);
/* Receives a code object that a process executes. */
void interpreted_add_code(struct interpreted *interpreted, const struct process *process,
			  const uint8_t *bytes, size_t size);

/* Finds out where the frames of a sample belong. The functions below apply to this sample. */
enum prof_sample_interpreter interpreted_merge(struct interpreted *interpreted,
					       const struct sample *sample);
/* Returns how the sample's user stack was found, if interpreted_merge() returned `interpreter`.
 * V8's built-in functions count as generated code, too, because they have no unwind tables. */
enum prof_user_method interpreted_method(const struct sample *sample,
					 enum prof_sample_interpreter interpreter);
/* Returns whether a native frame is code that V8 generated for a function which
 * interpreted_add_places() is about to append for this frame. */
bool interpreted_replaces(const struct interpreted *interpreted, const struct sample *sample,
			  size_t native);
/* Appends the places of the runs that belong after this native frame (SIZE_MAX: before all), root
 * first. Call it for each frame, from the root on. Returns the new number of places. */
size_t interpreted_add_places(struct interpreted *interpreted, size_t native,
			      struct output_place *places, size_t n);
/* Writes the names and lines of places whose frames are new. */
void interpreted_write(struct interpreted *interpreted, const bool *is_new);
