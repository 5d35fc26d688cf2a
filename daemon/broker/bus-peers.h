/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* A client: a unique name on the bus, or the other end of a private connection. */
struct bus_peer {
	struct bus_peers *callers;
	char *name; /* ":1.42"; NULL on a private connection */
	uid_t uid;
	pid_t pid; /* pid when the client connected; 0: unknown; only shown in prompts */
	bool gone;
	/* The members below are private to bus-peers.c. */
	unsigned refs;
	guint watch;
	bool known;
	GSList *waiting;
};

/* All callers that are referenced. */
struct bus_peers;

/* `gone` is called once for an identified caller that leaves the bus while it is referenced. */
struct bus_peers *bus_peers_new(GDBusConnection *connection, bool bus,
				void (*gone)(struct bus_peer *caller, void *data), void *data);
/* Makes pending identifications, and later ones of unknown callers, fail in the next iterations of
 * the main loop. */
void bus_peers_end(struct bus_peers *callers);
/* Must be called after all references are dropped. */
void bus_peers_free(struct bus_peers *callers);

/* Identifies the sender. Calls `done`, perhaps before this function returns, with a caller, or with
 * NULL and the error. The caller is valid only during the call unless `done` takes a reference. */
void bus_peers_identify(struct bus_peers *callers, const char *sender,
			void (*done)(struct bus_peer *caller, const GError *error, void *data),
			void *data);

struct bus_peer *bus_peer_ref(struct bus_peer *caller);
void bus_peer_unref(struct bus_peer *caller);
