/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Python frames - the Python functions that the calling thread executes
 *
 *     python_walk(&chain, stack, may_call);
 *     for (i = 0; i < chain.n; i++)
 *             … chain.frames[i] …;
 *
 * For hooks: nothing allocates, waits, takes a lock or faults. Only an interpreter that the process
 * has had since its start is read, because one that was loaded later may be unloaded at any time.
 */
#pragma once

#include "base/cpython-layouts.h"
#include "libcollector/ring/ring-layout.h"
#include "libcollector/unwind/safe-read.h"

/* Outer frames of a deeper stack are left out. */
#define PYTHON_MAX_FRAMES 1024u

/* The interpreter of this process. */
struct python_interpreter {
	const struct interp_cpython *layout; /* NULL: no supported interpreter was found */
	uint64_t runtime, code_type;         /* addresses of _PyRuntime and PyCode_Type */
	uint64_t eval, eval_end;             /* range of the C function that evaluates */
	void *(*get_thread)(void); /* since 3.12: returns the state that this thread is bound to */
};
extern struct python_interpreter python_interpreter __attribute__((visibility("hidden")));

struct python_frame {
	uint64_t code;     /* address of the code object */
	uint64_t identity; /* hash that distinguishes even successive code objects at one address */
	/* if ends_run: an address in the frame of the C function that executes the run; 0:
	 * unknown */
	uint64_t at;
	uint32_t position;   /* position of the instruction, as in struct interp_frame */
	uint32_t first_line; /* 0: made by the interpreter, and not to be shown */
	uint32_t native;     /* for the caller of python_walk() */
	/* the frame is the outermost of a run: of the frames that one call of the evaluating C
	 * function executes */
	bool ends_run;
};

#define PYTHON_RANGES 192u /* maximum number of ranges; a frame needs three */

struct python_memory {
	struct safe_read safe;
	bool is_direct; /* the thread holds the interpreter's lock, so its frames can be loaded */
	bool may_call;
	/* The ranges that the last walk without the lock read, in the order in which it read them.
	 * They are likely to be needed again, so one system call reads them all. */
	uint32_t n_ranges, n_used; /* n_used: used by this walk */
	uint32_t n_valid;          /* number of ranges that were read ahead */
	uint32_t n_read;           /* offset in `bytes` of the next range */
	struct iovec ranges[PYTHON_RANGES];
	uint8_t bytes[PYTHON_RANGES * 96];
};

struct python_chain {
	struct python_memory memory;
	uint32_t n; /* 0: the thread executes no Python function, or is_unreadable */
	bool is_cut;
	bool is_unreadable; /* the frames could not be read, or contradict themselves */
	uint64_t hash;      /* hash of all frames */
	struct python_frame frames[PYTHON_MAX_FRAMES]; /* innermost first */
};

/* The reason why the functions of the process's interpreter cannot be read, or NULL. */
extern const char *python_unread __attribute__((visibility("hidden")));

/* Looks for an interpreter. Takes the loader's lock, and may allocate. */
void python_find(void);

static inline bool python_is_known(void)
{
	return __builtin_expect(python_interpreter.layout != NULL, 0);
}

/* The thread's native stack. */
struct python_stack {
	uint64_t low, high; /* addresses of the frames that are known */
	bool evaluates;     /* the stack has a frame of the function that evaluates */
};

/* Reads the thread's Python frames. `stack`: NULL if a signal handler may be running on the thread.
 * may_call: system calls are allowed. */
void python_walk(struct python_chain *chain, const struct python_stack *stack, bool may_call);

/* The texts of a code object. */
struct python_code {
	struct ring_code head;
	uint64_t name, file, lines; /* addresses of the bytes */
};

/* Finds the texts that describe the code object of a frame. `room`: bytes for all texts; longer
 * ones are cut. */
void python_measure(struct python_chain *chain, const struct python_frame *frame, size_t room,
		    struct python_code *ret_code);
/* Writes the texts, head.n_bytes bytes. */
void python_copy(struct python_chain *chain, const struct python_code *code, uint8_t *to);
