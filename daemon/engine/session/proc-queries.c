/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Queries of /proc - requests snapshots from the broker, and applies them
 *
 * A snapshot of /proc is newer than the records drained so far. If it were applied at once, records
 * in between would look outdated, and an exec among them would be lost. So a snapshot waits until
 * the rings are drained past the time at which it arrived.
 * Invariants: (1) a record older than an answer is handled before the answer
 *                 [test_targets: test_exec_chain]
 *             (2) an invalid answer, or one before the first request, ends the session
 *                 [test-engine-session: protocol]
 * Runs on the drain thread only.
 */
#include "daemon/engine/session/proc-queries.h"

#include "arch/base.h"
#include "base/clock.h"

#include <errno.h>
#include <glib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAX_ANSWERS 1024 /* each answer holds a descriptor */
#define RESCAN_NS UINT64_C(2000000000)
/* Time limit for an answer with stacks. Waits are not written before their stacks are known. The
 * broker waits 1 s for a process that does not answer (daemon/broker/files.c), and then reads the
 * others. */
#define STACKS_PATIENCE_NS UINT64_C(3000000000)
#define MAX_QUERIES 64u /* maximum number of requests for single processes between two checks */
#define QUERIES_A_CHECK \
	6u /* requests that each check allows: 24 a second cost the broker below 0.5 % of a core */

/* A snapshot from the broker that waits until the rings are drained past its arrival. */
struct answer {
	struct message_snapshot body;
	int fd;
	uint64_t received_ns;
};

void proc_queries_init(struct proc_queries *queries, struct channel *channel)
{
	*queries = (struct proc_queries){ .channel = channel, .allowed = MAX_QUERIES };
}

static void free_answer(void *data)
{
	struct answer *answer = data;

	close(answer->fd);
	g_free(answer);
}

void proc_queries_done(struct proc_queries *queries)
{
	g_queue_clear_full(&queries->answers, free_answer);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static uint32_t send_request(struct proc_queries *queries, int32_t pid, bool maps_known)
{
	struct message_snapshot_request request = {
		.serial = ++queries->serial,
		.pid = pid,
		.maps_known = maps_known,
	};

	channel_send(queries->channel, MESSAGE_SNAPSHOT_REQUEST, &request, sizeof(request), NULL,
		     0);
	return request.serial;
}

void proc_queries_scan(struct proc_queries *queries)
{
	queries->rescan = false;
	queries->scan_serial = send_request(queries, 0, false);
	queries->scanned_ns = clock_now();
}

bool proc_queries_process(struct proc_queries *queries, struct process *process)
{
	if (queries->allowed == 0)
		return false;
	queries->allowed--;
	process->queried = true;
	send_request(queries, process->pid, process->maps_known);
	return true;
}

void proc_queries_allow(struct proc_queries *queries)
{
	queries->allowed = MIN_OF(queries->allowed + QUERIES_A_CHECK, MAX_QUERIES);
}

void proc_queries_usage(struct proc_queries *queries, uint64_t now_ns)
{
	struct message_usage_request request = { .serial = ++queries->serial };
	int32_t pids[ENGINE_MAX_USAGE_PIDS];

	request.n = memory_usage_request(queries->usage, request.serial, now_ns, pids);
	if (request.n > 0)
		channel_send(queries->channel, MESSAGE_USAGE_REQUEST, &request, sizeof(request),
			     pids, request.n * sizeof(pids[0]));
}

void proc_queries_stacks(struct proc_queries *queries, uint64_t now_ns, uint64_t threshold_ns)
{
	struct message_usage_request request = { .stacks = 1 };
	int32_t tids[WAITS_MAX_REQUESTED];

	if (queries->stacks_serial && now_ns - queries->stacks_ns >= STACKS_PATIENCE_NS) {
		waits_give_up(queries->waits);
		queries->stacks_serial = 0;
	}
	if (queries->stacks_serial)
		return;
	request.n = waits_request(queries->waits, now_ns, threshold_ns, tids);
	if (request.n == 0)
		return;
	request.serial = queries->stacks_serial = ++queries->serial;
	queries->stacks_ns = now_ns;
	channel_send(queries->channel, MESSAGE_USAGE_REQUEST, &request, sizeof(request), tids,
		     request.n * sizeof(tids[0]));
}

uint64_t proc_queries_due_ns(const struct proc_queries *queries)
{
	return queries->rescan && queries->scan_serial == 0 ? queries->scanned_ns + RESCAN_NS
							    : UINT64_MAX;
}

bool proc_queries_are_quiet(const struct proc_queries *queries)
{
	return !queries->rescan && queries->scan_serial == 0 &&
	       g_queue_is_empty((GQueue *)&queries->answers);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static bool apply_snapshot(struct proc_queries *queries, const struct message_snapshot *answer,
			   int fd, GError **error)
{
	struct stat status;
	void *bytes;
	bool whole;

	if (fstat(fd, &status) != 0 || status.st_size < 0) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The snapshot of /proc cannot be read");
		return false;
	}
	if (status.st_size == 0)
		return true;
	bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
			    "Mapping the snapshot of /proc failed: %s", prof_strerror(-errno));
		return false;
	}
	whole = answer->pid == MESSAGE_SNAPSHOT_USAGE || answer->pid == MESSAGE_SNAPSHOT_STACKS;
	if (answer->pid == MESSAGE_SNAPSHOT_STACKS) {
		if (queries->waits && answer->serial == queries->stacks_serial) {
			queries->stacks_serial = 0;
			waits_receive(queries->waits, bytes, status.st_size);
		}
	} else if (whole)
		memory_usage_receive(queries->usage, answer->serial, bytes, status.st_size);
	else
		whole = scan_apply(&queries->scan, bytes, status.st_size, answer->pid,
				   queries->is_scanned);
	munmap(bytes, status.st_size);
	if (!whole)
		channel_warn(queries->channel, "snapshot",
			     "The snapshot of /proc ended in the middle; some processes may lack "
			     "names");
	return true;
}

uint64_t proc_queries_answered_ns(const struct proc_queries *queries)
{
	const struct answer *answer = g_queue_peek_head((GQueue *)&queries->answers);

	return answer ? answer->received_ns : UINT64_MAX;
}

bool proc_queries_apply(struct proc_queries *queries, uint64_t drained_ns, GError **error)
{
	struct answer *answer;
	bool ok = true;

	while (ok && (answer = g_queue_peek_head(&queries->answers)) != NULL &&
	       answer->received_ns <= drained_ns) {
		output_tick(queries->output, clock_now());
		ok = apply_snapshot(queries, &answer->body, answer->fd, error);
		if (answer->body.pid == 0 && answer->body.serial == queries->scan_serial) {
			queries->scan_serial = 0;
			queries->is_scanned = true;
		}
		free_answer(g_queue_pop_head(&queries->answers));
	}
	return ok;
}

bool proc_queries_receive(struct proc_queries *queries, struct channel_message *message,
			  GError **error)
{
	struct answer *answer;

	if (message->length != sizeof(answer->body) || message->n_fds != 1 ||
	    g_queue_get_length(&queries->answers) >= MAX_ANSWERS) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The broker sent a snapshot that was not asked for");
		return false;
	}
	answer = g_new(struct answer, 1);
	memcpy(&answer->body, message->body, sizeof(answer->body));
	answer->fd = steal_fd(&message->fds[0]);
	answer->received_ns = clock_now();
	g_queue_push_tail(&queries->answers, answer);
	return true;
}
