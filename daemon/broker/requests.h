/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/engine.h"
#include "daemon/broker/images.h"

/* The requests of an engine that may block its broker. */
struct requests;

struct requests_options {
	const struct access *access;
	bool gives_files;       /* the engine gets the files themselves */
	bool kernel;            /* files with kernel addresses may be read */
	bool memory_usage;      /* the engine may ask for the memory usage of processes */
	const int32_t *targets; /* borrowed by requests_new() */
	unsigned n_targets;     /* 0: everything that runs */
	/* A request failed, and the engine cannot continue without it. */
	void (*failed)(const GError *error, void *data);
	void (*warning)(const char *code, const char *text, void *data);
	void *data;
};

/* Borrows engine and images. Starts the process that does the work; returns NULL if it cannot. */
struct requests *requests_new(struct engine *engine, struct images *images,
			      const struct requests_options *options, GError **error);
/* Drops what is still being worked on, and ends the process that does it. */
void requests_free(struct requests *requests);

/* Begins to read the first snapshot before the engine requests it: from now on the side band
 * reports changes. If called again, drops what was read before. */
void requests_read_ahead(struct requests *requests);
/* Call if there is no such side band after all: the engine gets what is read when it requests it.
 *  */
void requests_drop_ahead(struct requests *requests);

/* The bodies of MESSAGE_SNAPSHOT_REQUEST and MESSAGE_IMAGE_REQUEST. Each is answered by a message,
 * in any order. */
void requests_receive_snapshot(struct requests *requests, const void *body);
/* The body of MESSAGE_USAGE_REQUEST. If it is not answered, only that measurement is
 * missing. */
void requests_receive_usage_request(struct requests *requests, const void *body, size_t bytes);
void requests_receive_image(struct requests *requests, const void *body, size_t bytes);
