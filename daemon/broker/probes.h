/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/broker/options.h"

#include <gio/gio.h>

/* Finds the places of all probes among the events, and adds an event for each further place. Calls
 * `done` once, perhaps before this function returns; `error` is NULL if all were found. The options
 * must stay valid until that call. */
void probes_find(const struct access *access, struct options *options,
		 void (*done)(const GError *error, void *data), void *data);

/* Returns an array of struct message_field: one for each argument that the static probe
 * events[first] has at any of its places. A field is signed if the argument is signed at some
 * place, and has the argument's maximum width. */
GArray *probes_fields(const struct event *events, unsigned n_events, unsigned first);
