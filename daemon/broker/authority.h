/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/bus-peers.h"

#include <gio/gio.h>
#include <stdbool.h>

/* The actions that profd queries polkit about. data/polkit has their defaults; docs/dbus.md says
 * when each one is needed. */
enum authority_action {
	AUTHORITY_RECORD_OWN,
	AUTHORITY_RECORD_OTHERS,
	AUTHORITY_RECORD_SYSTEM,
	AUTHORITY_KERNEL_ADDRESSES,
	AUTHORITY_MANAGE_OTHERS,
	AUTHORITY_ACTIONS
};

enum authority_answer {
	AUTHORITY_DENIED,
	AUTHORITY_CHALLENGE, /* a password would suffice, but the caller did not ask for a prompt */
	AUTHORITY_GRANTED,
};

#define AUTHORITY_MAX_ACTIONS 3

/* A query to polkit about several actions at once. */
struct authority_question {
	struct bus_peer *caller;
	enum authority_action actions[AUTHORITY_MAX_ACTIONS];
	unsigned n_actions;
	bool first_decides; /* if the first action is not granted, the others are irrelevant */
	bool interactive;   /* a password prompt is allowed */
	/* what would be recorded, shown in the prompt; NULL if the action says enough */
	const char *target;
};

/* The answers, in the order of the actions. */
struct authority_reply {
	enum authority_answer answers[AUTHORITY_MAX_ACTIONS];
	GError *errors[AUTHORITY_MAX_ACTIONS]; /* why an action is not GRANTED */
};

/* profd's connection to polkit. */
struct authority;

/* Calls `ready` once, with an authority or with an error. Serve no client before that. */
void authority_new(void (*ready)(struct authority *authority, const GError *error, void *data),
		   void *data);
/* Answers all open questions, and every later one, with DENIED. polkit's remaining replies arrive
 * in the next iterations of the main loop. */
void authority_end(struct authority *authority);
void authority_free(
	struct authority
		*authority); /* after authority_end() and further main-loop iterations; NULL is
		              * allowed */

/* Returns whether the caller's user may ask another question, or, if `interactive`, open another
 * prompt. Call this before doing any work for a question. */
bool authority_has_room(const struct authority *authority, const struct bus_peer *caller,
			bool interactive, GError **error);
/* Calls `answer` once, when every action is answered, perhaps before this function returns. The
 * reply is valid only during the call. */
void authority_query(struct authority *authority, const struct authority_question *question,
		     void (*answer)(const struct authority_reply *reply, void *data), void *data);
/* Called when the caller has left. Removes its prompts, and answers its questions with DENIED. */
void authority_forget(struct authority *authority, const struct bus_peer *caller);
