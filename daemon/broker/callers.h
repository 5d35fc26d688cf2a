/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* A client: a unique name on the bus, or the peer of a private connection. */
struct caller {
	struct callers *callers;
	char *name; /* ":1.42"; NULL on a private connection */
	uid_t uid;
	pid_t pid; /* as the bus said it when the client connected; for messages only; 0: unknown */
	bool gone;
	/* private to callers.c */
	unsigned refs;
	guint watch;
	bool known;
	GSList *waiting;
};

/* All callers that somebody holds a reference to. */
struct callers;

/* `gone` is called once for a caller that left the bus while it was referenced. */
struct callers *callers_new(GDBusConnection *connection, bool bus,
			    void (*gone)(struct caller *caller, void *data), void *data);
/* Makes every pending and every later identification fail, in the main loop's next turns. */
void callers_end(struct callers *callers);
/* Call after all references are dropped. */
void callers_free(struct callers *callers);

/*
 * Identifies the sender. Calls `done`, possibly before this returns, with a caller, or with NULL
 * and the error. The caller is valid during the call unless `done` takes a reference.
 */
void callers_identify(struct callers *callers, const char *sender,
		      void (*done)(struct caller *caller, const GError *error, void *data),
		      void *data);
/* Returns the sender's caller if it is already known, else NULL. */
struct caller *callers_lookup(struct callers *callers, const char *sender);

struct caller *caller_ref(struct caller *caller);
void caller_unref(struct caller *caller);
