/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Heap forks - the blocks that a forked process inherits
 *
 * For each inherited block, only the address and the parent's block number are kept, so that its
 * end can be distinguished from the end of an unknown block. Most forked processes soon execute a
 * program and never report an allocation, so nothing is copied before the first allocation. Block
 * numbers only grow. So the parent's blocks at the fork are those that are live or have ended
 * since, and whose numbers do not exceed the latest number at the fork. Ends since a fork are
 * logged as long as a child may need them. The log is charged to the parent's budget, the copy to
 * the child's. If there is no room, the child inherits no blocks. Copying many blocks takes long,
 * so it is done in pieces.
 * Invariants: (1) a child gets the blocks that its parent had at the fork, whatever happened since
 *                 [test-engine-heap-live: forks]
 *             (2) logged ends are released when no child can need them any more
 *                 [test-engine-heap-live: forks]
 *             (3) a piece copies at most LIVE_PIECE blocks  [test-engine-heap-live: pieces]
 * Runs on the drain thread only. Mappings are not copied.
 */
#include "daemon/engine/alloc/heap-forks.h"

#include "arch/base.h"
#include "base/each.h"

#define MAX_FORKS 1024u
#define LOOK_EVERY 4096u /* number of logged ends between two checks for ended children */
#define NOT_REACHED UINT64_MAX
#define LATE_NS UINT64_C(100000000) /* a process's records may arrive this long after its end */

struct heap_fork {
	struct process *parent, *child; /* referenced */
	uint64_t time_ns;
	uint64_t number; /* parent's last block number at the fork; NOT_REACHED: not known yet */
	size_t log_at;   /* index in the parent's log: the first block that ended after the fork */
};

struct heap_end {
	uint64_t address, label;
};

static struct heap_fork *fork_at(const struct heap_forks *forks, guint i)
{
	return &g_array_index(forks->forks, struct heap_fork, i);
}

static struct heap_parent *parent_of(const struct heap_forks *forks, const struct heap_fork *fork)
{
	return g_hash_table_lookup(forks->parents, fork->parent);
}

/* ---- The log of ends ------------------------------------------------------------------------- */

/* Updates which ends the parent must log. */
static void update(const struct heap_forks *forks, struct heap_parent *parent)
{
	parent->fork_ns = UINT64_MAX;
	parent->log_to = 0;
	ARRAY_EACH(const struct heap_fork, fork, forks->forks) {
		if (fork->parent != parent->process)
			continue;
		if (fork->number == NOT_REACHED)
			parent->fork_ns = MIN_OF(parent->fork_ns, fork->time_ns);
		else
			parent->log_to = MAX_OF(parent->log_to, fork->number);
	}
	if (parent->log_to == 0) {
		heap_budget_release(parent->budget, parent->log->len * sizeof(struct heap_end));
		g_array_set_size(parent->log, 0);
	}
}

static void remove_fork(struct heap_forks *forks, guint i)
{
	struct heap_fork fork = *fork_at(forks, i);
	struct heap_parent *parent = parent_of(forks, &fork);

	g_array_remove_index(forks->forks, i);
	if (parent)
		update(forks, parent);
	row_unref(&fork.parent->row);
	row_unref(&fork.child->row);
}

static void remove_children(struct heap_forks *forks, const struct heap_parent *parent)
{
	for (guint i = forks->forks->len; i-- > 0;)
		if (fork_at(forks, i)->parent == parent->process)
			remove_fork(forks, i);
}

/* Returns the index of the child's fork in the list, or UINT_MAX. */
static guint find_child(const struct heap_forks *forks, const struct process *child)
{
	for (guint i = 0; i < forks->forks->len; i++)
		if (fork_at(forks, i)->child == child)
			return i;
	return UINT_MAX;
}

/* Makes the children of gone->child, which has reported nothing, children of gone->parent. */
static void pass_on(struct heap_forks *forks, const struct heap_fork *gone)
{
	for (guint i = 0; i < forks->forks->len; i++) {
		struct heap_fork *fork = fork_at(forks, i), passed = *gone;

		if (fork->parent != gone->child)
			continue;
		passed.child = fork->child;
		row_ref(&passed.parent->row);
		row_unref(&fork->parent->row);
		*fork = passed;
	}
}

static void drop_ended(struct heap_forks *forks)
{
	for (guint i = forks->forks->len; i-- > 0;) {
		const struct heap_fork fork = *fork_at(forks, i);

		if (!fork.child->gone || fork.child->end_ns + LATE_NS > *forks->last_ns)
			continue;
		pass_on(forks, &fork);
		remove_fork(forks, i);
	}
}

static void on_forked(struct process *parent, struct process *child, uint64_t time_ns, void *data)
{
	struct heap_forks *forks = data;
	const struct heap_fork fork = { parent, child, time_ns, NOT_REACHED, 0 };
	struct heap_parent *known = parent_of(forks, &fork);

	if (!parent->expects_heap && !parent->has_heap)
		return;
	drop_ended(forks);
	if (forks->forks->len == MAX_FORKS)
		remove_fork(forks, 0);
	row_ref(&parent->row);
	row_ref(&child->row);
	g_array_append_val(forks->forks, fork);
	if (known)
		update(forks, known);
}

void heap_forks_init(struct heap_forks *forks, struct tasks *tasks, const uint64_t *last_ns)
{
	*forks = (struct heap_forks){
		.tasks = tasks,
		.forks = g_array_new(FALSE, FALSE, sizeof(struct heap_fork)),
		.parents = g_hash_table_new(g_direct_hash, g_direct_equal),
		.last_ns = last_ns,
	};
	tasks->forked = on_forked;
	tasks->forked_data = forks;
}

void heap_forks_done(struct heap_forks *forks)
{
	forks->tasks->forked = NULL;
	while (forks->forks->len > 0)
		remove_fork(forks, forks->forks->len - 1);
	g_array_free(forks->forks, TRUE);
	g_hash_table_destroy(forks->parents);
}

void heap_forks_reach(struct heap_forks *forks, struct heap_parent *parent, uint64_t time_ns)
{
	ARRAY_EACH(struct heap_fork, fork, forks->forks) {
		if (fork->parent != parent->process || fork->number != NOT_REACHED ||
		    fork->time_ns >= time_ns)
			continue;
		fork->number = *parent->last_number;
		fork->log_at = parent->log->len;
	}
	update(forks, parent);
}

void heap_forks_log(struct heap_forks *forks, struct heap_parent *parent,
		    const struct live_block *block)
{
	const struct heap_end end = { block->address, block->label };

	if (heap_budget_reserve(parent->budget, sizeof(end)))
		g_array_append_val(parent->log, end);
	else
		remove_children(forks, parent);
	if (parent->log->len % LOOK_EVERY == 0)
		drop_ended(forks);
}

/* ---- A child --------------------------------------------------------------------------------- */

void heap_forks_join(struct heap_forks *forks, struct heap_parent *parent)
{
	guint i = find_child(forks, parent->process);
	const struct heap_fork *fork = NULL;
	const struct heap_parent *source = NULL; /* the nearest ancestor with blocks */

	for (guint k = i; k != UINT_MAX && !source; k = find_child(forks, fork->parent)) {
		fork = fork_at(forks, k);
		source = parent_of(forks, fork);
	}
	parent->log = g_array_new(FALSE, FALSE, sizeof(struct heap_end));
	live_blocks_init(&parent->inherited, source ? source->live->seed : 0, parent->budget);
	if (source) {
		bool is_reached = fork->number != NOT_REACHED;

		parent->source = source;
		parent->n_inherited = is_reached ? fork->number : *source->last_number;
		parent->log_at = is_reached ? fork->log_at : source->log->len;
	} else if (i != UINT_MAX) {
		remove_fork(forks, i);
	}
	g_hash_table_insert(forks->parents, parent->process, parent);
	update(forks, parent);
}

/* Returns the i-th block of the source: first its own and inherited blocks, then the blocks that
 * have ended since the fork. A label of 0 means that there is no block. */
static struct live_block source_block(const struct heap_parent *parent, size_t i)
{
	const struct heap_parent *source = parent->source;
	const struct live_blocks *parts[] = { source->live, &source->inherited };
	const struct heap_end *end;

	for (size_t k = 0; k < ARRAY_SIZE(parts); k++) {
		if (i < parts[k]->n_blocks)
			return *live_blocks_at(parts[k], (uint32_t)i + 1);
		i -= parts[k]->n_blocks;
	}
	end = &g_array_index(source->log, struct heap_end, parent->log_at + i);
	return (struct live_block){ .address = end->address, .label = end->label };
}

bool heap_forks_copy(struct heap_forks *forks, struct heap_parent *parent)
{
	const struct heap_parent *source = parent->source;
	struct live_blocks *to = &parent->inherited;
	size_t n, end;
	bool has_room;

	if (!source)
		return true;
	n = source->live->n_blocks + (size_t)source->inherited.n_blocks + source->log->len -
	    parent->log_at;
	end = MIN_OF(n, parent->n_copied + LIVE_PIECE);
	has_room = live_blocks_reserve(to, source->live->n + source->inherited.n);
	for (; has_room && parent->n_copied < end; parent->n_copied++) {
		const struct live_block block = source_block(parent, parent->n_copied);
		struct live_block before;

		if (block.label != 0 && live_block_number(&block) <= parent->n_inherited)
			has_room = live_blocks_put(to, &block, &before);
	}
	if (has_room && end < n)
		return false;
	if (!has_room) {
		live_blocks_done(to);
		live_blocks_init(to, 0, parent->budget);
	}
	parent->source = NULL;
	remove_fork(forks, find_child(forks, parent->process));
	return true;
}

void heap_forks_leave(struct heap_forks *forks, struct heap_parent *parent)
{
	remove_children(forks, parent);
	g_hash_table_remove(forks->parents, parent->process);
	g_array_free(parent->log, TRUE);
	live_blocks_done(&parent->inherited);
}
