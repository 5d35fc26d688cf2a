/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>
#include <sys/types.h>

/* A client: a unique name on the bus, or the one behind a private connection. */
struct caller {
	struct callers *callers;
	char *name; /* ":1.42"; NULL on a private connection */
	uid_t uid;
	pid_t pid; /* as the bus said it when the client connected: for texts only; 0: unknown */
	bool gone;
	/* callers.c's */
	unsigned refs;
	guint watch;
	bool known;
	GSList *waiting;
};

/* Those who called and still matter: somebody holds a reference. */
struct callers;

/* `gone` is called once for a caller that left the bus while it was referenced. */
struct callers *callers_new(GDBusConnection *connection, bool bus,
			    void (*gone)(struct caller *caller, void *data), void *data);
/* Whoever still waits to be identified, or comes from now on, is an error in the main loop's
 * next turns. */
void callers_end(struct callers *callers);
/* After all references are dropped. */
void callers_free(struct callers *callers);

/*
 * Who the sender is: `done`, which may come before this returns, has a caller, valid during the
 * call unless it takes a reference, or NULL and the error.
 */
void callers_identify(struct callers *callers, const char *sender,
		      void (*done)(struct caller *caller, const GError *error, void *data),
		      void *data);
/* The same, where it is known already; else NULL. */
struct caller *callers_lookup(struct callers *callers, const char *sender);

struct caller *caller_ref(struct caller *caller);
void caller_unref(struct caller *caller);
