/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/engine.h"
#include "daemon/broker/images.h"

/* Handles the engine's requests that may block, in up to three processes. */
struct requests;

struct requests_options {
	const struct access *access;
	bool gives_files;       /* the engine also receives the open files */
	bool kernel;            /* files with kernel addresses may be read */
	unsigned usage;         /* FILES_USAGE_*: the engine may request this of processes */
	bool stacks;            /* the engine may request stacks of threads */
	const int32_t *targets; /* borrowed by requests_new() */
	unsigned n_targets;     /* 0: the whole system */
	/* Called if a request that the engine needs has failed. */
	void (*failed)(const GError *error, void *data);
	void (*warning)(const char *code, const char *text, void *data);
	void *data;
};

/* Borrows engine and images. Starts the first of the processes; returns NULL on failure. */
struct requests *requests_new(struct engine *engine, struct images *images,
			      const struct requests_options *options, GError **error);
/* Drops open requests, and ends the processes that handle them. */
void requests_free(struct requests *requests);

/* Begins to read the first snapshot before the engine requests it. Call it when the side band
 * begins to report changes. A further call drops what was read before. */
void requests_read_ahead(struct requests *requests);
/* Call this if the side band has not begun after all. The snapshot is then read again when the
 * engine requests it. */
void requests_drop_ahead(struct requests *requests);

/* Handles the body of MESSAGE_SNAPSHOT_REQUEST. A message answers it, perhaps after other
 * answers. */
void requests_receive_snapshot(struct requests *requests, const void *body);
/* Handles the body of MESSAGE_USAGE_REQUEST. If no message answers it, only that measurement is
 * missing. */
void requests_receive_usage_request(struct requests *requests, const void *body, size_t bytes);
/* Handles the body of MESSAGE_IMAGE_REQUEST. A message answers it, perhaps after other answers. */
void requests_receive_image(struct requests *requests, const void *body, size_t bytes);
