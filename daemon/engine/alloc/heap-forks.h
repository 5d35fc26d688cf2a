/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/engine/alloc/live-blocks.h"
#include "daemon/engine/model/tasks.h"

struct heap_rows;

/* A process with blocks, and the data about it that its children need. */
struct heap_parent {
	struct process *process;
	struct heap_rows *rows;
	const struct live_blocks *live;
	const uint64_t *last_number; /* number of its latest block */
	struct heap_budget *budget;
	/* The members below are filled in by heap_forks_join(). */
	struct live_blocks inherited; /* blocks of its parent that it has not freed */
	uint64_t n_inherited;         /* highest number of an inherited block; 0: none are known */
	/* time of the process's first fork that the rows have not reached; UINT64_MAX: none */
	uint64_t fork_ns;
	uint64_t log_to; /* ends of blocks with numbers up to this are logged */
	GArray *log;     /* struct heap_end */
	/* The process whose blocks are being copied; NULL: all are copied. */
	const struct heap_parent *source;
	size_t log_at; /* index in the source's log: the first block that ended after the fork */
	size_t n_copied;
};

/* Forked processes that have reported no allocation yet, and processes that have blocks. */
struct heap_forks {
	struct tasks *tasks;
	GArray *forks;           /* struct heap_fork, by time */
	GHashTable *parents;     /* struct heap_parent by process */
	const uint64_t *last_ns; /* time of the last row, of any process */
};

/* Receives forks from `tasks` until heap_forks_done(). The arguments are borrowed. */
void heap_forks_init(struct heap_forks *forks, struct tasks *tasks, const uint64_t *last_ns);
void heap_forks_done(struct heap_forks *forks);

/* Called before the first record of a process. */
void heap_forks_join(struct heap_forks *forks, struct heap_parent *parent);
/* Copies a piece of the blocks that the process's parent had at the fork. Returns whether all are
 * copied; until then, no record may be added. */
bool heap_forks_copy(struct heap_forks *forks, struct heap_parent *parent);
/* Called at the end of the process. Its children that have reported nothing so far inherit no
 * blocks. */
void heap_forks_leave(struct heap_forks *forks, struct heap_parent *parent);

void heap_forks_reach(struct heap_forks *forks, struct heap_parent *parent, uint64_t time_ns);
/* Called before each of the process's records. */
static inline void heap_forks_run(struct heap_forks *forks, struct heap_parent *parent,
				  uint64_t time_ns)
{
	if (__builtin_expect(time_ns > parent->fork_ns, 0))
		heap_forks_reach(forks, parent, time_ns);
}

void heap_forks_log(struct heap_forks *forks, struct heap_parent *parent,
		    const struct live_block *block);
/* Called when a block of the process, own or inherited, has ended. */
static inline void heap_forks_end(struct heap_forks *forks, struct heap_parent *parent,
				  const struct live_block *block)
{
	if (__builtin_expect(live_block_number(block) <= parent->log_to, 0))
		heap_forks_log(forks, parent, block);
}
