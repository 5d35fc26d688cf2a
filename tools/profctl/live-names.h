/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"
#include "tools/profctl/live.h"

/* Names for what a live recording hits, while it goes on. */
struct live_names;

/* Both are borrowed. */
struct live_names *live_names_new(struct live *live, struct client *client);
/* Waits for a file that is being read. */
void live_names_free(struct live_names *names);
/* Asks for what has no name yet; now and then. */
void live_names_ask(struct live_names *names);
