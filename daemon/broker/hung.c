/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Hung - processes of ours that were killed while they waited for something of a user's, and whose fault that was
 *
 * SIGKILL does not end a process that waits for FUSE in the kernel; it goes when the file's server answers or dies. So
 * nobody waits for it. Each time costs the other requests of its session a second, and perhaps a process that stays; so a user
 * has some of them, and then nothing of that user's is tried until those are gone and half a minute has passed.
 * Of the whole of profd: sessions share the machine. Main thread only.
 */
#include "config.h"

#include "daemon/broker/hung.h"

#include "arch/base.h"

#include <stdio.h>
#include <sys/stat.h>

#define MAX_STUCK 3 /* of a user, at once */
#define MAX_HANGS 4 /* of a user, without a pause of */
#define PAUSE_US (30 * G_USEC_PER_SEC)
#define MAX_ALL_STUCK 32

struct record {
	unsigned stuck; /* killed, and not gone */
	unsigned hangs;
	int64_t last_us;
};

static GHashTable *records; /* uid → struct record */
static unsigned all_stuck;

uid_t hung_owner(pid_t pid)
{
	struct stat status;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return pid > 0 && stat(path, &status) == 0 ? status.st_uid : HUNG_NOBODY;
}

static struct record *get_record(uid_t uid)
{
	struct record *record;

	if (!records)
		records = g_hash_table_new_full(NULL, NULL, NULL, g_free);
	record = g_hash_table_lookup(records, GUINT_TO_POINTER(uid));
	if (!record) {
		record = g_new0(struct record, 1);
		g_hash_table_insert(records, GUINT_TO_POINTER(uid), record);
	}
	return record;
}

static bool is_over(const struct record *record)
{
	return g_get_monotonic_time() - record->last_us > PAUSE_US;
}

static void forget(uid_t uid)
{
	const struct record *record = get_record(uid);

	if (record->stuck == 0 && (record->hangs == 0 || is_over(record)))
		g_hash_table_remove(records, GUINT_TO_POINTER(uid));
}

static void on_gone(GPid pid, gint wait_status, gpointer data)
{
	uid_t uid = GPOINTER_TO_UINT(data);

	get_record(uid)->stuck--;
	all_stuck--;
	forget(uid);
}

void hung_reap(pid_t pid, uid_t uid)
{
	get_record(uid)->stuck++;
	all_stuck++;
	g_child_watch_add(pid, on_gone, GUINT_TO_POINTER(uid));
}

void hung_add(pid_t pid, uid_t uid)
{
	struct record *record = get_record(uid);

	if (is_over(record))
		record->hangs = 0;
	record->hangs++;
	record->last_us = g_get_monotonic_time();
	hung_reap(pid, uid);
}

static bool is_blocked(const struct record *record)
{
	return record->stuck >= MAX_STUCK || (record->hangs >= MAX_HANGS && !is_over(record));
}

bool hung_is_blocked(uid_t uid)
{
	const struct record *record = records ? g_hash_table_lookup(records, GUINT_TO_POINTER(uid))
					      : NULL;

	return record && is_blocked(record);
}

bool hung_is_full(void)
{
	return all_stuck >= MAX_ALL_STUCK;
}

unsigned hung_list_blocked(uint32_t *ret_uids, unsigned max)
{
	GHashTableIter iterator;
	gpointer uid, record;
	unsigned n = 0;

	if (!records)
		return 0;
	g_hash_table_iter_init(&iterator, records);
	while (n < max && g_hash_table_iter_next(&iterator, &uid, &record))
		if (is_blocked(record))
			ret_uids[n++] = GPOINTER_TO_UINT(uid);
	return n;
}
