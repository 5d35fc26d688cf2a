/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Answers - receives /proc snapshots, opened files and peers from the broker
 *
 * A snapshot of /proc is newer than the records drained so far. If it were applied at once, records
 * in between would look outdated, and an exec among them would be lost. So a snapshot waits until
 * the rings are drained past the time at which it arrived.
 * Invariants: (1) a record older than an answer is handled before it
 *                 [test_targets: test_exec_chain]
 *             (2) an answer that was not requested ends the session
 *                 [test-engine-session: protocol]
 * Runs on the drain thread only.
 */
#include "daemon/engine/session/session.h"

#include "arch/base.h"

#include <errno.h>
#include <glib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAX_ANSWERS 1024 /* each one holds a descriptor */

/* A snapshot from the broker that waits until the rings are drained past its arrival. */
struct answer {
	struct message_snapshot body;
	int fd;
	uint64_t received_ns;
};

static bool apply_snapshot(struct session *session, const struct message_snapshot *answer, int fd,
			   GError **error)
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
		if (session->events.waits && answer->serial == session->stacks_serial) {
			session->stacks_serial = 0;
			waits_receive(&session->waits, bytes, status.st_size);
		}
	} else if (whole)
		memory_usage_receive(&session->memory_usage, answer->serial, bytes, status.st_size);
	else
		whole = scan_apply(&session->scan, bytes, status.st_size, answer->pid,
				   session->state == SESSION_RUNNING);
	munmap(bytes, status.st_size);
	if (!whole)
		session_warn(session, "snapshot",
			     "The snapshot of /proc ended in the middle; some processes may lack "
			     "names");
	return true;
}

static void free_answer(void *data)
{
	struct answer *answer = data;

	close(answer->fd);
	g_free(answer);
}

bool session_apply_answers(struct session *session, uint64_t drained_ns, GError **error)
{
	struct answer *answer;
	bool ok = true;

	while (ok && (answer = g_queue_peek_head(&session->answers)) != NULL &&
	       answer->received_ns <= drained_ns) {
		output_tick(&session->output, clock_now());
		ok = apply_snapshot(session, &answer->body, answer->fd, error);
		if (ok && answer->body.pid == 0 && answer->body.serial == session->scan_serial) {
			session->scan_serial = 0;
			ok = session->state != SESSION_SCANNING ||
			     session_start_sampling(session, error);
		}
		free_answer(g_queue_pop_head(&session->answers));
	}
	return ok;
}

bool session_receive_answer(struct session *session, struct channel_message *message,
			    GError **error)
{
	struct answer *answer;

	if (message->length != sizeof(answer->body) || message->n_fds != 1 ||
	    g_queue_get_length(&session->answers) >= MAX_ANSWERS) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The broker sent a snapshot that was not asked for");
		return false;
	}
	answer = g_new(struct answer, 1);
	memcpy(&answer->body, message->body, sizeof(answer->body));
	answer->fd = steal_fd(&message->fds[0]);
	answer->received_ns = clock_now();
	g_queue_push_tail(&session->answers, answer);
	/* The first snapshot, the initial state, is applied at once: nothing is drained before. */
	return session->state != SESSION_SCANNING ||
	       session_apply_answers(session, UINT64_MAX, error);
}

void session_drop_answers(struct session *session)
{
	g_queue_clear_full(&session->answers, free_answer);
}

/* Receives the identity of a hit file, and a descriptor if its frames are to be walked. */
bool session_receive_image(struct session *session, struct channel_message *message, GError **error)
{
	struct message_image answer;
	struct image *image;

	if (message->length != sizeof(answer))
		return true;
	memcpy(&answer, message->body, sizeof(answer));
	image = images_by_id(&session->images, answer.image_id);
	if (!image)
		return true;
	/* The broker opens only a few files at a time. The next hit requests this one again. */
	if (answer.error == EAGAIN) {
		image->requested = false;
		return true;
	}
	if (answer.error == 0) {
		image_opened(image, &answer);
		output_touch(&session->output, &image->row);
	}
	if (answer.error == 0 && message->n_fds == 1 &&
	    (session->samples.unwind || session->config.memory)) {
		unwind_tables_add(session->tables, image, steal_fd(&message->fds[0]));
		return true;
	}
	image->unwind_state = IMAGE_UNWIND_NONE;
	image->program = IMAGE_PROGRAM_NONE;
	return true;
}

/* A peer is served only after the first snapshot has been applied. */
bool session_add_peer(struct session *session, struct channel_message *message, GError **error)
{
	struct message_peer peer = { 0 };
	size_t least;

	if (message->length == sizeof(peer))
		memcpy(&peer, message->body, sizeof(peer));
	least = peer.protocol == PEER_REFUSED ? 0 : 1;
	if (message->length != sizeof(peer) || message->n_fds < least ||
	    message->n_fds > 2 * least) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The broker sent a collector that cannot be");
		return false;
	}
	collectors_add_peer(&session->collectors, &peer,
			    message->n_fds > 0 ? steal_fd(&message->fds[0]) : -1,
			    message->n_fds == 2 ? steal_fd(&message->fds[1]) : -1, clock_now());
	return true;
}
