/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Requests - handles those of an engine's requests that may block
 *
 * Reading /proc, or opening a file that a target chose, may take long or forever. So a separate
 * process does this (files.c), and D-Bus and the other sessions continue. The engine may have been
 * taken over, so this file checks the form of its requests, and files.c's process checks whether
 * the session may have the data.
 * Invariants: (1) while MAX_TASKS requests for files and snapshots are open, the engine's further
 *                 messages wait in its socket; at most one request for usage and one for stacks
 *                 are open
 *             (2) an engine gets files only if it unwinds stacks or records allocations
 * The first snapshot may be read before the engine requests it, and is kept until then.
 */
#include "config.h"

#include "daemon/broker/requests.h"

#include "arch/base.h"
#include "daemon/broker/files.h"

#include <errno.h>
#include <limits.h>

#define MAX_TASKS 256
#define AHEAD 0x80000000u /* bit in the tag of a snapshot that is read ahead */

struct requests {
	struct engine *engine;
	struct images *images;
	struct requests_options options;
	struct files *files;
	/* A second process reads the usage of processes, because this may block, and other requests
	 * must not wait for it. */
	struct files_config config;
	struct files *usage; /* NULL: not requested yet */
	bool measuring;
	struct files *stacks; /* a third process, for stacks; NULL: not requested yet */
	bool reading_stacks;
	unsigned tasks;
	bool scanned; /* the engine has requested its first snapshot */
	/* The snapshot that is read ahead. If the rings had to be made again, several snapshots are
	 * read; only the last one is used. */
	bool ahead;            /* the snapshot was not sent to the engine yet */
	uint32_t ahead_tag;    /* tag of the last snapshot that is read ahead */
	int ahead_fd;          /* descriptor of that snapshot; -1: not read yet */
	uint32_t ahead_serial; /* serial of the engine's request; 0: not requested yet */
};

static void begin_task(struct requests *requests)
{
	if (++requests->tasks == MAX_TASKS)
		engine_set_reading(requests->engine, false);
}

static void end_task(struct requests *requests)
{
	if (requests->tasks-- == MAX_TASKS)
		engine_set_reading(requests->engine, true);
}

/* Takes ownership of fd. */
static void send_snapshot(struct requests *requests, pid_t pid, uint32_t serial, int fd)
{
	const struct message_snapshot body = { .serial = serial, .pid = pid };
	g_autoptr(GError) error = NULL;
	CLEANUP_CLOSE int memfd = fd;

	if (!engine_send(requests->engine, MESSAGE_SNAPSHOT, &body, sizeof(body), &memfd, 1,
			 &error))
		requests->options.failed(error, requests->options.data);
}

static void send_ahead(struct requests *requests, int fd)
{
	requests->ahead = false;
	send_snapshot(requests, 0, requests->ahead_serial, fd);
}

static void on_snapshot(const struct files_snapshot *snapshot, uint32_t tag, int fd,
			const GError *error, void *data)
{
	struct requests *requests = data;

	end_task(requests);
	if (error)
		requests->options.failed(error, requests->options.data);
	else if (!(tag & AHEAD))
		send_snapshot(requests, snapshot->pid, tag, fd);
	else if (!requests->ahead || tag != requests->ahead_tag)
		close(fd);
	else if (requests->ahead_serial)
		send_ahead(requests, fd);
	else
		requests->ahead_fd = fd;
}

static void on_image(const struct files_answer *answer, int fd, void *data)
{
	struct requests *requests = data;
	struct message_image image = answer->image;

	end_task(requests);
	image.error = answer->error;
	/* Until the engine receives a file, profd has two descriptors of it. So an engine that does
	 * not read gets no file. */
	if (!image.error && requests->options.gives_files && engine_is_behind(requests->engine)) {
		image.error = EAGAIN;
		close(fd);
	}
	if (!image.error)
		image.error = images_add(requests->images, answer, fd);
	engine_send(requests->engine, MESSAGE_IMAGE, &image, sizeof(image), &fd,
		    !image.error && requests->options.gives_files, NULL);
}

static void on_stuck(pid_t pid, uid_t uid, bool is_file, void *data)
{
	struct requests *requests = data;
	g_autofree char *text = NULL;

	text = g_strdup_printf(
		is_file ? "a file that process %d maps could not be opened within a second"
			: "process %d did not let itself be read within a second; its command line "
			  "and its mappings may be missing",
		pid);
	requests->options.warning(is_file ? "file-hangs" : "process-hangs", text,
				  requests->options.data);
}

void requests_receive_image(struct requests *requests, const void *body, size_t bytes)
{
	struct files_image image = { .copy_bytes = images_copy_bytes(requests->images) };
	g_autofree char *path = NULL;

	memcpy(&image.request, body, sizeof(image.request));
	if (image.request.path_bytes != bytes - sizeof(image.request) ||
	    image.request.path_bytes >= PATH_MAX || image.request.pid <= 0) {
		const struct message_image refused = { .image_id = image.request.image_id,
						       .error = EINVAL };

		engine_send(requests->engine, MESSAGE_IMAGE, &refused, sizeof(refused), NULL, 0,
			    NULL);
		return;
	}
	path = g_strndup((const char *)body + sizeof(image.request), image.request.path_bytes);
	begin_task(requests);
	files_open_image(requests->files, &image, path);
}

void requests_drop_ahead(struct requests *requests)
{
	requests->ahead = false;
	if (requests->ahead_fd >= 0)
		close(steal_fd(&requests->ahead_fd));
}

void requests_read_ahead(struct requests *requests)
{
	requests_drop_ahead(requests);
	requests->ahead = true;
	requests->ahead_tag = AHEAD | (requests->ahead_tag + 1);
	begin_task(requests);
	files_read_processes(requests->files, 0, FILES_READ_FIRST, requests->ahead_tag);
}

void requests_receive_snapshot(struct requests *requests, const void *body)
{
	const struct message_snapshot_request *request = body;
	bool first = request->pid == 0 && !requests->scanned;

	if (request->serial & AHEAD) /* a correct engine's serials are smaller */
		return;
	requests->scanned = requests->scanned || first;
	/* Answer the engine's first request with the snapshot that is read ahead. */
	if (first && requests->ahead) {
		requests->ahead_serial = request->serial;
		if (requests->ahead_fd >= 0)
			send_ahead(requests, steal_fd(&requests->ahead_fd));
		return;
	}
	begin_task(requests);
	files_read_processes(requests->files, MAX_OF(request->pid, 0),
			     (first ? FILES_READ_FIRST : 0) |
				     (request->maps_known ? FILES_READ_NO_MAPS : 0),
			     request->serial);
}

/* ---- Usage ----------------------------------------------------------------------------------- */

static void on_usage(const struct files_snapshot *snapshot, uint32_t tag, int fd,
		     const GError *error, void *data)
{
	struct requests *requests = data;

	requests->measuring = false;
	if (fd >= 0)
		send_snapshot(requests, MESSAGE_SNAPSHOT_USAGE, tag, fd);
}

static void on_no_image(const struct files_answer *answer, int fd, void *data)
{
	/* never called: no files are requested */
}

static void on_usage_stuck(pid_t pid, uid_t uid, bool is_file, void *data)
{
	struct requests *requests = data;
	g_autofree char *text = g_strdup_printf(
		"the usage of process %d could not be read within a second; its pss is left out "
		"from now on",
		pid);

	requests->options.warning("process-hangs", text, requests->options.data);
}

static void on_stacks(const struct files_snapshot *snapshot, uint32_t tag, int fd,
		      const GError *error, void *data)
{
	struct requests *requests = data;

	requests->reading_stacks = false;
	if (fd >= 0)
		send_snapshot(requests, MESSAGE_SNAPSHOT_STACKS, tag, fd);
}

/* Does nothing, because a thread whose stack cannot be read has no stack in the answer. */
static void on_stack_stuck(pid_t pid, uid_t uid, bool is_file, void *data)
{
}

static const struct files_listener usage_listener = {
	.snapshot = on_usage,
	.image = on_no_image,
	.stuck = on_usage_stuck,
};
static const struct files_listener stacks_listener = {
	.snapshot = on_stacks,
	.image = on_no_image,
	.stuck = on_stack_stuck,
};

static bool start(struct requests *requests, const struct files_listener *listener,
		  struct files **files)
{
	if (!*files)
		*files = files_new(&requests->config, listener, requests, NULL);
	return *files != NULL;
}

/* Returns whether the pids are valid and sorted by absolute value. */
static bool are_pids(const int32_t *pids, uint32_t n)
{
	int64_t last = 0;

	for (uint32_t i = 0; i < n; i++) {
		int64_t pid = pids[i] < 0 ? -(int64_t)pids[i] : pids[i];

		if (pid <= last || pid > INT32_MAX)
			return false;
		last = pid;
	}
	return true;
}

void requests_receive_usage_request(struct requests *requests, const void *body, size_t bytes)
{
	const struct message_usage_request *request = body;

	bool stacks = request->stacks != 0;

	if ((stacks ? !requests->options.stacks || requests->reading_stacks
		    : !requests->options.usage || requests->measuring) ||
	    request->n == 0 || request->n > ENGINE_MAX_USAGE_PIDS ||
	    bytes != sizeof(*request) + request->n * sizeof(request->pids[0]) ||
	    !are_pids(request->pids, request->n) ||
	    !start(requests, stacks ? &stacks_listener : &usage_listener,
		   stacks ? &requests->stacks : &requests->usage))
		return;
	*(stacks ? &requests->reading_stacks : &requests->measuring) = true;
	files_read_usage(stacks ? requests->stacks : requests->usage,
			 stacks ? FILES_USAGE_STACKS : requests->options.usage, request->pids,
			 request->n, request->serial);
}

struct requests *requests_new(struct engine *engine, struct images *images,
			      const struct requests_options *options, GError **error)
{
	static const struct files_listener listener = {
		.snapshot = on_snapshot,
		.image = on_image,
		.stuck = on_stuck,
	};
	const struct files_config config = {
		.uid = options->access->uid,
		.own_only = options->access->own_only,
		.any_image = options->access->any_image,
		.kernel = options->kernel,
		.n_targets = MIN_OF(options->n_targets, (unsigned)ENGINE_MAX_TARGETS),
	};
	struct requests *requests = g_new0(struct requests, 1);

	requests->config = config;
	if (config.n_targets)
		memcpy(requests->config.targets, options->targets,
		       config.n_targets * sizeof(config.targets[0]));
	requests->ahead_fd = -1;
	requests->engine = engine;
	requests->images = images;
	requests->options = *options;
	requests->files = files_new(&requests->config, &listener, requests, error);
	if (requests->files)
		return requests;
	g_free(requests);
	return NULL;
}

void requests_free(struct requests *requests)
{
	requests_drop_ahead(requests);
	files_free(requests->files);
	files_free(requests->usage);
	files_free(requests->stacks);
	g_free(requests);
}
