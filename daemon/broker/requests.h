/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/engine.h"
#include "daemon/broker/images.h"

/* What an engine asks of its broker that may block. */
struct requests;

/* Borrows both. The engine gets the files themselves where it `unwinds`. `failed`: something that the engine cannot go on
 * without did not work. */
struct requests *requests_new(struct engine *engine, struct images *images, bool unwinds,
			      void (*failed)(const GError *error, void *data), void *data);
/* What is still being worked on is finished and dropped. */
void requests_free(struct requests *requests);

/* Bodies of MESSAGE_SNAPSHOT_REQUEST and MESSAGE_IMAGE_REQUEST; each is answered by a message, in any order. */
void requests_take_snapshot(struct requests *requests, const void *body);
void requests_take_image(struct requests *requests, const void *body, size_t bytes);
