/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Wait - one sleep of a thread and the waking that ends it, kept until their row is written */
#pragma once

#include "daemon/engine/model/tasks.h"
#include "daemon/engine/perf/samples.h"

#define WAIT_MAX_REGISTERS 16

/* The last stack at a place where threads of a process or of its forks slept, or woke another
 * thread. A place is the program counter, the stack pointer and, if read, the interpreter's
 * frames. */
struct wait_stratum {
	uint64_t pc, sp;
	uint32_t chain_hash;           /* hash of the interpreter's frames; 0: any frames */
	uint32_t native_hash;          /* interpreted processes: hash of the native frames */
	uint32_t origin, epoch, stack; /* ids; epoch 0: empty */
	uint32_t call; /* string id of the call in which the stack was read; 0: it was copied */
	uint8_t method, stop, interpreter;
	bool is_waker;
};

/* The code in which a thread slept, or woke another one. */
struct wait_code {
	unsigned int refs;
	bool is_waker;         /* part of a struct waker; otherwise of a struct wait */
	struct thread *thread; /* referenced; NULL: no thread, or one that is not recorded */
	bool has_registers;
	bool is_pending; /* its stack is being read or walked */
	enum prof_stack_source source;
	uint64_t pc, sp, argument;
	/* frames of its interpreter, and their hash; NULL, 0: unknown */
	uint8_t *chain;
	uint32_t chain_bytes, chain_hash;
	struct maps *maps;    /* mappings of the stack; NULL: it has no stack */
	struct sample sample; /* its arrays are copies, or point to `chain` */
	/* `own`: its own stack, which other waits or wakers at its place may use; `shared`: the
	 * stack of another wait or waker at its place, which it uses */
	struct wait_stratum own, shared;
};

struct waker {
	struct wait_code code; /* first member */
	enum prof_waker kind;  /* PROF_WAKER_UNKNOWN: only its copied stack is known so far */
	uint64_t time_ns;
};

struct wait {
	struct wait_code code; /* first member */
	uint64_t begin_ns;     /* 0: the thread has not left its CPU yet */
	uint64_t end_ns;
	uint32_t cpu;
	uint64_t cgroup; /* id; 0: unknown */
	enum prof_wait_state state;
	bool is_reported;  /* RECORD_SLEEP has reported the sleep */
	bool is_requested; /* its stack was requested once */
	/* when an answer came without its stack; 0: never */
	uint64_t missed_ns;
	uint64_t registers[WAIT_MAX_REGISTERS]; /* registers of regs->perf_sleep_mask */
	bool has_argument;                      /* the argument is known without registers */
	char *syscall, *object;                 /* NULL: unknown */
	struct waker *waker;                    /* referenced; NULL: unknown */
	GList link;                             /* in waits->begun or waits->ended */
};

/* Returns a wait with one reference. */
struct wait *wait_new(struct thread *thread);
void wait_unref(void *wait);
/* Returns a waker with one reference. `thread`: NULL if it is not recorded. */
struct waker *waker_new(struct thread *thread, uint64_t time_ns);
/* Replaces a referenced waker. Takes over the reference of the new one. */
void waker_set(struct waker **place, struct waker *waker);
/* Releases a wait or a waker by its code. */
void wait_code_unref(struct wait_code *code);
