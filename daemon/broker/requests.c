/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Requests - what an engine asks of its broker that may block
 *
 * Reading /proc and opening a file that a target named take time, so they run on other threads, and D-Bus and the other
 * sessions go on. The answer is sent from the main thread.
 * Invariants: (1) a task whose session is over touches nothing but its own inputs: it was cancelled before, on the same
 *                 thread that looks
 *             (2) at most MAX_TASKS are worked on; the engine's further messages wait in its socket
 */
#include "config.h"

#include "daemon/broker/requests.h"

#include "arch/base.h"
#include "daemon/broker/proc.h"

#include <errno.h>
#include <limits.h>

#define MAX_TASKS 256

struct requests {
	struct engine *engine;
	struct images *images;
	bool unwinds;
	void (*failed)(const GError *error, void *data);
	void *data;
	GCancellable *cancellable;
	unsigned tasks;
};

/* A request that blocks: its inputs, then its result. */
struct request {
	struct requests *owner; /* looked at only where the task was not cancelled */
	struct message_image_request image;
	struct message_snapshot_request snapshot;
	char *path;
	int fd;
	struct message_image answer;
	GError *error;
};

static void request_free(gpointer data)
{
	struct request *request = data;

	if (request->fd >= 0)
		close(request->fd);
	g_clear_error(&request->error);
	g_free(request->path);
	g_free(request);
}

/* Runs `work` on another thread, then `done` here unless the session ended meanwhile. */
static void run(struct requests *requests, struct request *request, GTaskThreadFunc work,
		GAsyncReadyCallback done)
{
	g_autoptr(GTask) task = g_task_new(NULL, requests->cancellable, done, NULL);

	request->owner = requests;
	request->fd = -1;
	g_task_set_task_data(task, request, request_free);
	if (++requests->tasks == MAX_TASKS)
		engine_set_reading(requests->engine, false);
	g_task_run_in_thread(task, work);
}

/* The request of a finished task; NULL where its session is no more. */
static struct request *finish_request(GAsyncResult *result)
{
	struct request *request = g_task_get_task_data(G_TASK(result));

	if (g_cancellable_is_cancelled(g_task_get_cancellable(G_TASK(result))))
		return NULL;
	if (request->owner->tasks-- == MAX_TASKS)
		engine_set_reading(request->owner->engine, true);
	return request;
}

static void work_snapshot(GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
	struct request *request = data;

	if (!proc_snapshot(request->snapshot.pid, &request->fd, &request->error))
		request->fd = -1;
	g_task_return_boolean(task, TRUE);
}

static void on_snapshot(GObject *source, GAsyncResult *result, gpointer data)
{
	struct request *request = finish_request(result);
	struct message_snapshot body;
	g_autoptr(GError) error = NULL;

	if (!request)
		return;
	body = (struct message_snapshot){ .serial = request->snapshot.serial,
					  .pid = request->snapshot.pid };
	if (request->error || !engine_send(request->owner->engine, MESSAGE_SNAPSHOT, &body,
					   sizeof(body), &request->fd, 1, &error))
		request->owner->failed(request->error ? request->error : error,
				       request->owner->data);
}

static void work_image(GTask *task, gpointer source, gpointer data, GCancellable *cancellable)
{
	struct request *request = data;

	request->answer.image_id = request->image.image_id;
	request->answer.error = image_open(&request->image, request->path, &request->fd);
	if (!request->answer.error && !image_stat(request->fd, &request->answer))
		request->answer.error = errno;
	g_task_return_boolean(task, TRUE);
}

static void on_image(GObject *source, GAsyncResult *result, gpointer data)
{
	struct request *request = finish_request(result);
	struct message_image *answer;
	int fd = -1;

	if (!request)
		return;
	answer = &request->answer;
	/* A file that is sent is open twice until the engine takes it, so one that does not read gets none. */
	if (!answer->error && request->owner->unwinds && engine_is_behind(request->owner->engine))
		answer->error = EAGAIN;
	if (!answer->error) {
		fd = request->fd;
		answer->error = images_add(request->owner->images, answer->image_id,
					   steal_fd(&request->fd));
	}
	engine_send(request->owner->engine, MESSAGE_IMAGE, answer, sizeof(*answer), &fd,
		    !answer->error && request->owner->unwinds, NULL);
}

void requests_take_image(struct requests *requests, const void *body, size_t bytes)
{
	const struct message_image_request *image = body;
	struct request *request;

	if (image->path_bytes != bytes - sizeof(*image) || image->path_bytes >= PATH_MAX ||
	    image->pid <= 0) {
		struct message_image refused = { .image_id = image->image_id, .error = EINVAL };

		engine_send(requests->engine, MESSAGE_IMAGE, &refused, sizeof(refused), NULL, 0,
			    NULL);
		return;
	}
	request = g_new0(struct request, 1);
	request->image = *image;
	request->path = g_strndup((const char *)(image + 1), image->path_bytes);
	run(requests, request, work_image, on_image);
}

void requests_take_snapshot(struct requests *requests, const void *body)
{
	struct request *request = g_new0(struct request, 1);

	request->snapshot = *(const struct message_snapshot_request *)body;
	run(requests, request, work_snapshot, on_snapshot);
}

struct requests *requests_new(struct engine *engine, struct images *images, bool unwinds,
			      void (*failed)(const GError *error, void *data), void *data)
{
	struct requests *requests = g_new0(struct requests, 1);

	requests->engine = engine;
	requests->images = images;
	requests->unwinds = unwinds;
	requests->failed = failed;
	requests->data = data;
	requests->cancellable = g_cancellable_new();
	return requests;
}

void requests_free(struct requests *requests)
{
	g_cancellable_cancel(requests->cancellable);
	g_object_unref(requests->cancellable);
	g_free(requests);
}
