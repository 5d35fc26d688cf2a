/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* A client: a unique name on the bus, or the peer of a private connection. */
struct bus_peer {
	struct bus_peers *callers;
	char *name; /* ":1.42"; NULL on a private connection */
	uid_t uid;
	pid_t pid; /* as the bus said it when the client connected; for messages only; 0: unknown */
	bool gone;
	/* private to bus-peers.c */
	unsigned refs;
	guint watch;
	bool known;
	GSList *waiting;
};

/* All callers that somebody holds a reference to. */
struct bus_peers;

/* `gone` is called once for a caller that left the bus while it was referenced. */
struct bus_peers *bus_peers_new(GDBusConnection *connection, bool bus,
				void (*gone)(struct bus_peer *caller, void *data), void *data);
/* Makes every pending and every later identification fail, in the main loop's next turns. */
void bus_peers_end(struct bus_peers *callers);
/* Call after all references are dropped. */
void bus_peers_free(struct bus_peers *callers);

/*
 * Identifies the sender. Calls `done`, possibly before this returns, with a caller, or with NULL
 * and the error. The caller is valid during the call unless `done` takes a reference.
 */
void bus_peers_identify(struct bus_peers *callers, const char *sender,
			void (*done)(struct bus_peer *caller, const GError *error, void *data),
			void *data);
/* Returns the sender's caller if it is already known, else NULL. */
struct bus_peer *bus_peers_lookup(struct bus_peers *callers, const char *sender);

struct bus_peer *bus_peer_ref(struct bus_peer *caller);
void bus_peer_unref(struct bus_peer *caller);
