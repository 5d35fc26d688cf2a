/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/heap.h"
#include "daemon/engine/tasks.h"

struct heap_rows;

/* A process that has blocks, as its children need to know it. */
struct heap_parent {
	struct process *process;
	struct heap_rows *rows;
	const struct heap *heap;
	const uint64_t *last_number; /* of its blocks */
	struct heap_budget *budget;
	/* filled in by heap_forks_join() */
	struct heap inherited; /* blocks of who forked it that it has not given up */
	uint64_t n_inherited;  /* none of those has a number above that; 0: none is known */
	uint64_t fork_ns; /* of its first fork that its rows have not come to; UINT64_MAX: none */
	uint64_t log_to;  /* ends of blocks with numbers up to that are kept */
	GArray *log;      /* struct heap_end */
};

/* Processes that were forked and have told of no allocation yet, and those that have blocks. */
struct heap_forks {
	struct tasks *tasks;
	GArray *forks;                  /* struct heap_fork, by time */
	GHashTable *parents;            /* struct heap_parent by process */
	const struct heap_merge *merge; /* its last_ns: what all rows have come to */
};

/* Hears of forks from the tasks, which are borrowed. */
void heap_forks_init(struct heap_forks *forks, struct tasks *tasks, const struct heap_merge *merge);
void heap_forks_done(struct heap_forks *forks);

/* Its first record comes: it begins with what its parent had when it was forked. */
void heap_forks_join(struct heap_forks *forks, struct heap_parent *parent);
/* Children that have told of nothing yet begin with nothing. */
void heap_forks_leave(struct heap_forks *forks, struct heap_parent *parent);

void heap_forks_reach(struct heap_forks *forks, struct heap_parent *parent, uint64_t time_ns);
/* Before each record of it. */
static inline void heap_forks_run(struct heap_forks *forks, struct heap_parent *parent,
				  uint64_t time_ns)
{
	if (__builtin_expect(time_ns > parent->fork_ns, 0))
		heap_forks_reach(forks, parent, time_ns);
}

void heap_forks_log(struct heap_forks *forks, struct heap_parent *parent,
		    const struct heap_block *block);
/* A block of its, or one that it inherited, is not there any more. */
static inline void heap_forks_end(struct heap_forks *forks, struct heap_parent *parent,
				  const struct heap_block *block)
{
	if (__builtin_expect(heap_block_number(block) <= parent->log_to, 0))
		heap_forks_log(forks, parent, block);
}
