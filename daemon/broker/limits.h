/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "daemon/broker/access.h"
#include "daemon/protocol.h"

#include <gio/gio.h>
#include <stdbool.h>

#define LIMITS_SAMPLE_RATE UINT64_C(1000000)
#define LIMITS_OPTIONS_BYTES 65536
#define LIMITS_CAPTURE_BYTES (UINT64_C(64) << 30)
#define LIMITS_DURATION_NS (UINT64_C(24) * 3600 * 1000000000)

/* The open sessions and engines of one user, or of all users. */
struct limits_usage {
	unsigned sessions;
	unsigned engines;
};

/* Returns NULL if there is no such property. */
GVariant *limits_get_property(const char *name);

bool limits_check_new(const struct access *access, const struct limits_usage *all,
		      const struct limits_usage *user, GError **error);
/* Checks the per-task events that would be open: `all` for all users except root, `user` for this
 * user. */
bool limits_check_thread_events(const struct access *access, unsigned all, unsigned user,
				unsigned of_a_thread, GError **error);
bool limits_check_start(const struct access *access, const struct limits_usage *user,
			GError **error);
