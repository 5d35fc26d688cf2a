/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/callers.h"

#include <gio/gio.h>
#include <stdbool.h>

/* What polkit is asked for; data/polkit has their defaults and docs/dbus.md says when which one
 * is needed. */
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
	AUTHORITY_CHALLENGE, /* a password would do, and the caller did not ask for a prompt */
	AUTHORITY_GRANTED,
};

#define AUTHORITY_MAX_ACTIONS 3

/* polkit is asked for all of the actions at once. */
struct authority_question {
	struct caller *caller;
	enum authority_action actions[AUTHORITY_MAX_ACTIONS];
	unsigned n_actions;
	bool first_decides; /* without the first action the others are not worth waiting for */
	bool interactive;   /* somebody may be asked for a password */
	/* for the prompt: what would be recorded; NULL where the action says it all */
	const char *target;
};

/* As many as there were actions, in their order. */
struct authority_reply {
	enum authority_answer answers[AUTHORITY_MAX_ACTIONS];
	GError *errors[AUTHORITY_MAX_ACTIONS]; /* why it is not GRANTED */
};

/* polkit, as far as profd asks it. */
struct authority;

/* `ready` comes once, with an authority or with an error. Nothing may be served before. */
void authority_new(void (*ready)(struct authority *authority, const GError *error, void *data),
		   void *data);
/* Answers what is asked, and whatever is asked from now on, with DENIED. What polkit still says
 * is dropped by the main loop's next turns. */
void authority_end(struct authority *authority);
void authority_free(
	struct authority *authority); /* after authority_end() and those turns; takes NULL */

/* Whether the caller's user may ask one more question now, or have one more prompt; to be looked
 * at before work that is for a question. */
bool authority_has_room(const struct authority *authority, const struct caller *caller,
			bool interactive, GError **error);
/* `answer` comes once, when all is answered, in some cases before this returns; the reply is
 * valid during the call. */
void authority_ask(struct authority *authority, const struct authority_question *question,
		   void (*answer)(const struct authority_reply *reply, void *data), void *data);
/* The caller is gone: its prompts are taken away, its questions answered with DENIED. */
void authority_forget(struct authority *authority, const struct caller *caller);
