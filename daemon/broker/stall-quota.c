/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Stall quota - charges users for profd's killed processes that they keep from exiting
 *
 * SIGKILL does not end a process that waits for FUSE in the kernel; it exits when the file's server
 * answers or dies. So nothing waits for it. Each hang costs a process that may stay, and delays a
 * session, so stuck processes and hangs are limited for each user. profd waits for no process of a
 * user who has the maximum number of stuck processes, or whose last permitted hang was less than
 * half a minute ago. Root's processes are independent of each other, so each has its own, smaller
 * allowance. Hangs because of processes that have exited are charged to one record, that of
 * STALL_QUOTA_NOBODY. All sessions share the records.
 * Main thread only.
 * Invariants: (1) no user is blocked forever  [test-stall-quota: pause]
 *             (2) no user blocks another user, and no process of root's blocks another one
 *                 [test-stall-quota: users, root]
 *             (3) at most MAX_ALL_STUCK of profd's processes are stuck, at most MAX_ROOT_STUCK of
 *                 them because of root  [test-stall-quota: full]
 */
#include "config.h"

#include "daemon/broker/stall-quota.h"

#include <stdio.h>
#include <sys/stat.h>

#define PAUSE_US (30 * G_USEC_PER_SEC)
#define MAX_ALL_STUCK 32
#define MAX_ROOT_STUCK (MAX_ALL_STUCK / 2)

static const struct allowance {
	unsigned stuck; /* maximum number of stuck processes at the same time */
	unsigned hangs; /* maximum number of hangs less than PAUSE_US apart */
} user_allowance = { 3, 4 }, process_allowance = { 2, 2 };

struct record {
	int64_t key;
	struct files_bare who;
	unsigned stuck; /* killed, but not exited yet */
	unsigned hangs;
	int64_t last_us;
};

int64_t (*stall_quota_clock)(void) = g_get_monotonic_time;

static GHashTable *records; /* struct record, by key */
static unsigned all_stuck, root_stuck;

uid_t stall_quota_owner(pid_t pid)
{
	struct stat status;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	return pid > 0 && stat(path, &status) == 0 ? status.st_uid : STALL_QUOTA_NOBODY;
}

/* ---- Records --------------------------------------------------------------------------------- */

static struct files_bare charged(uid_t uid, pid_t target)
{
	if (uid == 0 && target <= 0)
		uid = STALL_QUOTA_NOBODY;
	return (struct files_bare){ .uid = uid, .pid = uid == 0 ? target : 0 };
}

static int64_t key_of(struct files_bare who)
{
	return (int64_t)((uint64_t)who.uid << 32 | (uint32_t)who.pid);
}

static bool is_over(const struct record *record)
{
	return stall_quota_clock() - record->last_us > PAUSE_US;
}

static gboolean is_forgotten(gpointer key, gpointer value, gpointer data)
{
	const struct record *record = value;

	return record->stuck == 0 && is_over(record);
}

static struct record *find_record(uid_t uid, pid_t target)
{
	int64_t key = key_of(charged(uid, target));

	return records ? g_hash_table_lookup(records, &key) : NULL;
}

static struct record *get_record(uid_t uid, pid_t target)
{
	struct record *record;

	if (!records)
		records = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, g_free);
	g_hash_table_foreach_remove(records, is_forgotten, NULL);
	record = find_record(uid, target);
	if (!record) {
		record = g_new0(struct record, 1);
		record->who = charged(uid, target);
		record->key = key_of(record->who);
		record->last_us = stall_quota_clock();
		g_hash_table_insert(records, &record->key, record);
	}
	return record;
}

/* ---- Counting -------------------------------------------------------------------------------- */

static void count(const struct record *record, int by)
{
	all_stuck += (unsigned)by;
	if (record->who.uid == 0)
		root_stuck += (unsigned)by;
}

/* The record exists as long as it has a stuck process. */
static void on_gone(GPid pid, gint wait_status, gpointer data)
{
	struct record *record = data;

	record->stuck--;
	count(record, -1);
}

static void reap(struct record *record, pid_t pid)
{
	record->stuck++;
	count(record, 1);
	g_child_watch_add(pid, on_gone, record);
}

void stall_quota_reap(pid_t pid, uid_t uid, pid_t target)
{
	reap(get_record(uid, target), pid);
}

void stall_quota_add(pid_t pid, uid_t uid, pid_t target)
{
	struct record *record = get_record(uid, target);

	if (is_over(record))
		record->hangs = 0;
	record->hangs++;
	record->last_us = stall_quota_clock();
	reap(record, pid);
}

/* ---- Blocking -------------------------------------------------------------------------------- */

static bool is_blocked(const struct record *record)
{
	const struct allowance *most = record->who.uid == 0 ? &process_allowance : &user_allowance;

	return record->stuck >= most->stuck || (record->hangs >= most->hangs && !is_over(record));
}

bool stall_quota_is_blocked(uid_t uid, pid_t target)
{
	const struct record *record = find_record(uid, target);

	return (record && is_blocked(record)) || (uid == 0 && root_stuck >= MAX_ROOT_STUCK);
}

bool stall_quota_is_full(void)
{
	return all_stuck >= MAX_ALL_STUCK;
}

unsigned stall_quota_list_blocked(struct files_bare *ret_bare, unsigned max)
{
	GHashTableIter iterator;
	gpointer record;
	unsigned n = 0;

	if (n < max && root_stuck >= MAX_ROOT_STUCK)
		ret_bare[n++] = (struct files_bare){ 0 };
	if (!records)
		return n;
	g_hash_table_iter_init(&iterator, records);
	while (n < max && g_hash_table_iter_next(&iterator, NULL, &record))
		if (is_blocked(record))
			ret_bare[n++] = ((const struct record *)record)->who;
	return n;
}
