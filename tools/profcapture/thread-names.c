/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Thread-names - the name of a thread at a time
 *
 * The module stores only the names of renamed threads. Other threads have the name in the
 * dictionary. So the table `task` is read twice: to find the renamed threads, and to get their
 * names. Threads are looked up by identity, not by index, because names_forget() reuses indexes.
 * Invariants: (1) the first known name of a thread also applies before the time of that name
 *                 [test-report: thread_names]
 *             (2) a thread that was not renamed has the name in the dictionary
 *                 [test-report: thread_names]
 */
#include "config.h"

#include "tools/common/keyed.h"
#include "tools/profcapture/thread-names.h"

#include <string.h>

enum { TIME, THREAD, EVENT, COMM, N_COLUMNS };
static const uint16_t columns[N_COLUMNS] = { PROF_TASK_TIME, PROF_TASK_THREAD, PROF_TASK_EVENT,
					     PROF_TASK_COMM };

struct identity {
	uint64_t pid, exec_generation, process_start, tid, start;
};

struct named {
	int64_t since_ns; /* since the capture's start */
	const char *name; /* interned */
	bool inherited;   /* the name came from the thread that created this one */
};

struct thread_names {
	struct capture *capture;
	/* struct identity → GArray of struct named, by time; renamed threads only */
	GHashTable *threads;
	bool are_known; /* the renamed threads are known: the first read is done */
};

KEYED_BY(identity, struct identity, a->pid, a->exec_generation, a->process_start, a->tid, a->start)

static struct identity identity_of(const struct names *names, uint32_t index)
{
	const struct names_thread *thread = names_thread_at(names, index);
	const struct names_process *process = names_process_at(names, thread->process);

	return (struct identity){ process->pid, process->exec_generation, process->start_time,
				  thread->tid, thread->start_time };
}

static bool add_rows(struct names_epoch *epoch, const struct prof_batch *batch, void *data,
		     GError **error)
{
	const struct prof_array *c = batch->columns;
	struct thread_names *names = data;

	for (size_t i = 0; i < batch->rows; i++) {
		uint32_t thread = names_thread(epoch, array_number_or(&c[THREAD], i, 0));
		uint64_t comm = array_number_or(&c[COMM], i, 0);
		uint64_t event = array_number_or(&c[EVENT], i, PROF_TASK_EXISTS);
		const char *name = comm ? names_text(epoch, comm) : NULL;
		struct identity identity = identity_of(names->capture->names, thread);
		const struct named named = { capture_time(names->capture, batch->segment,
							  array_number_or(&c[TIME], i, 0)),
					     name, event == PROF_TASK_FORK };
		GArray *all;

		if (thread <= NAMES_LOST || !name)
			continue;
		all = g_hash_table_lookup(names->threads, &identity);
		if (!names->are_known && event == PROF_TASK_COMM_CHANGE && !all)
			g_hash_table_insert(names->threads, g_memdup2(&identity, sizeof(identity)),
					    g_array_new(FALSE, FALSE, sizeof(struct named)));
		if (names->are_known && all &&
		    (all->len == 0 || g_array_index(all, struct named, all->len - 1).name != name))
			g_array_append_val(all, named);
	}
	return true;
}

static bool read_rows(struct thread_names *names, GError **error)
{
	return names_each_batch(names->capture->names, NAMES_COLUMNS_OF(PROF_TABLE_TASK, columns),
				add_rows, names, error);
}

struct thread_names *thread_names_read(struct capture *capture, GError **error)
{
	struct thread_names *names = g_new0(struct thread_names, 1);
	uint64_t lost = capture->names->lost;
	bool ok;

	names->capture = capture;
	names->threads = g_hash_table_new_full(identity_hash, identity_equal, g_free,
					       (GDestroyNotify)g_array_unref);
	ok = read_rows(names, error);
	names->are_known = true;
	if (ok && g_hash_table_size(names->threads) > 0)
		ok = read_rows(names, error);
	/* Do not count the names that were lost here: rows without a name are skipped. */
	capture->names->lost = lost;
	if (ok)
		return names;
	thread_names_free(names);
	return NULL;
}

void thread_names_free(struct thread_names *names)
{
	if (!names)
		return;
	g_hash_table_unref(names->threads);
	g_free(names);
}

static const GArray *names_of(const struct thread_names *names, uint32_t thread)
{
	struct identity identity = identity_of(names->capture->names, thread);

	return thread > NAMES_LOST ? g_hash_table_lookup(names->threads, &identity) : NULL;
}

/* Returns how many of the names start at or before `time_ns`. */
static guint count_until(const GArray *all, int64_t time_ns)
{
	guint low = 0, high = all ? all->len : 0;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (g_array_index(all, struct named, middle).since_ns <= time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

const char *thread_names_at(const struct thread_names *names, uint32_t thread, int64_t time_ns)
{
	const GArray *all = names_of(names, thread);
	guint n = count_until(all, time_ns);

	if (!all || all->len == 0)
		return names_thread_at(names->capture->names, thread)->comm;
	return g_array_index(all, struct named, n ? n - 1 : 0).name;
}

int64_t thread_names_until(const struct thread_names *names, uint32_t thread, int64_t time_ns)
{
	const GArray *all = names_of(names, thread);
	guint n = count_until(all, time_ns);

	return all && n < all->len ? g_array_index(all, struct named, n).since_ns : INT64_MAX;
}

unsigned thread_names_count(const struct thread_names *names, uint32_t thread)
{
	const GArray *all = names_of(names, thread);
	g_autoptr(GHashTable) set = NULL;

	if (!all)
		return names_thread_at(names->capture->names, thread)->comm != NULL;
	if (all->len == 1)
		return 1;
	set = g_hash_table_new(NULL, NULL);
	for (guint i = 0; i < all->len; i++)
		if (!g_array_index(all, struct named, i).inherited)
			g_hash_table_add(set, (gpointer)g_array_index(all, struct named, i).name);
	return g_hash_table_size(set);
}

bool thread_names_has(const struct thread_names *names, uint32_t thread, const char *name)
{
	const GArray *all = names_of(names, thread);

	for (guint i = 0; all && i < all->len; i++)
		if (strcmp(g_array_index(all, struct named, i).name, name) == 0)
			return true;
	return !all && g_strcmp0(names_thread_at(names->capture->names, thread)->comm, name) == 0;
}
