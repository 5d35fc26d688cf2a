/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "tools/profctl/client.h"
#include "tools/profctl/live.h"

/* Finds names for the code that a running recording hits. */
struct live_names;

/* Borrows its arguments. */
struct live_names *live_names_new(struct live *live, struct client *client);
/* Waits until the thread that reads files has finished the current one. */
void live_names_free(struct live_names *names);
/* Requests names for places without one. Must be called regularly. */
void live_names_request(struct live_names *names);
