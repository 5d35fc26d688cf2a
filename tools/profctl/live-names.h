/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"
#include "tools/profctl/live.h"

/* Names for the places that a live recording hits, while it runs. */
struct live_names;

/* Both are borrowed. */
struct live_names *live_names_new(struct live *live, struct client *client);
/* Waits until the thread has finished its file. */
void live_names_free(struct live_names *names);
/* Requests names for places without one. Call it now and then. */
void live_names_request(struct live_names *names);
