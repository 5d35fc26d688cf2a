/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/engine.h"
#include "daemon/broker/images.h"

/* What an engine asks of its broker that may block. */
struct requests;

struct requests_options {
	const struct access *access;
	bool gives_files;       /* the engine gets the files themselves */
	bool kernel;            /* what tells kernel addresses may be read */
	bool footprints;        /* the engine may ask how much memory processes take */
	const int32_t *targets; /* borrowed by requests_new() */
	unsigned n_targets;     /* 0: all that runs */
	/* Something that the engine cannot go on without did not work. */
	void (*failed)(const GError *error, void *data);
	void (*warning)(const char *code, const char *text, void *data);
	void *data;
};

/* Borrows engine and images. Starts the process that does the work; NULL: it cannot be. */
struct requests *requests_new(struct engine *engine, struct images *images,
			      const struct requests_options *options, GError **error);
/* What is still being worked on is dropped, and so is who works on it. */
void requests_free(struct requests *requests);

/* Begins to read the first snapshot, before the engine asks: from now on the side band tells
 * what changes. Again: what was read before is dropped. */
void requests_read_ahead(struct requests *requests);
/* There is no such side band after all: the engine gets what is read when it asks. */
void requests_drop_ahead(struct requests *requests);

/* Bodies of MESSAGE_SNAPSHOT_REQUEST and MESSAGE_IMAGE_REQUEST; each is answered by a message,
 * in any order. */
void requests_take_snapshot(struct requests *requests, const void *body);
/* Of MESSAGE_FOOTPRINT_REQUEST; one that is not answered leaves something out, and no more. */
void requests_take_footprints(struct requests *requests, const void *body, size_t bytes);
void requests_take_image(struct requests *requests, const void *body, size_t bytes);
