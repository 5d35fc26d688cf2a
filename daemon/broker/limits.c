/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Limits - how much a user and a session may use of a profd that serves many users
 *
 * Each limit is a property of the root object, and an error names the property that was exceeded.
 * Root has no limit except the number of all sessions. A client that started its own profd has no
 * limits, because it takes nothing from others. Eight sessions and a quarter of the descriptors are
 * reserved for root. A session that exceeds a limit is refused immediately, or ends with a reason
 * and a Warning, or its capture counts the excess as lost. The counts come from service.c.
 */
#include "config.h"

#include "daemon/broker/limits.h"

#include "arch/base.h"
#include "daemon/broker/error.h"
#include "daemon/broker/stall-quota.h"

#include <sys/resource.h>

#define MAX_SESSIONS 64u
#define RESERVED_SESSIONS 8u
#define MAX_SESSIONS_PER_USER 8u
#define MAX_RECORDINGS_PER_USER 4u

static const struct {
	const char *name, *type;
	uint64_t value;
} properties[] = {
	{ "MaxSessions", "u", MAX_SESSIONS },
	{ "MaxSessionsPerUser", "u", MAX_SESSIONS_PER_USER },
	{ "ReservedSessions", "u", RESERVED_SESSIONS },
	{ "MaxEngineBytes", "t", ENGINE_MEMORY_BYTES },
	{ "MaxEngineBytesPerUser", "t", MAX_RECORDINGS_PER_USER *ENGINE_MEMORY_BYTES },
	{ "MaxOptionsBytes", "t", LIMITS_OPTIONS_BYTES },
	{ "MaxCaptureBytes", "t", LIMITS_CAPTURE_BYTES },
	{ "MaxDuration", "t", LIMITS_DURATION_NS },
	{ "MaxSampleRate", "t", LIMITS_SAMPLE_RATE },
};

/* Returns n quarters of profd's descriptors. */
static unsigned quarters(unsigned n)
{
	struct rlimit limit = { 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	return (unsigned)MIN_OF((uint64_t)limit.rlim_cur / 4 * n, (uint64_t)UINT32_MAX);
}

GVariant *limits_get_property(const char *name)
{
	if (strcmp(name, "MaxThreadEventsPerUser") == 0)
		return g_variant_new_uint32(quarters(1));
	if (strcmp(name, "MaxThreadEvents") == 0)
		return g_variant_new_uint32(quarters(3));
	for (size_t i = 0; i < ARRAY_SIZE(properties); i++) {
		if (strcmp(properties[i].name, name) != 0)
			continue;
		return properties[i].type[0] == 'u'
			       ? g_variant_new_uint32((guint32)properties[i].value)
			       : g_variant_new_uint64(properties[i].value);
	}
	return NULL;
}

bool limits_check_new(const struct access *access, const struct limits_usage *all,
		      const struct limits_usage *user, GError **error)
{
	if (all->sessions >= MAX_SESSIONS)
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "%u sessions are open, which is MaxSessions; Close one",
				   all->sessions);
	if (access->limited && all->sessions >= MAX_SESSIONS - RESERVED_SESSIONS)
		return broker_fail(
			error, BROKER_ERROR_LIMIT_EXCEEDED,
			"%u sessions are open, and the rest of MaxSessions is kept for root "
			"(ReservedSessions); Close one",
			all->sessions);
	if (access->limited && user->sessions >= MAX_SESSIONS_PER_USER)
		return broker_fail(
			error, BROKER_ERROR_LIMIT_EXCEEDED,
			"user %u has %u sessions, which is MaxSessionsPerUser; Close one",
			(unsigned)access->uid, user->sessions);
	return true;
}

bool limits_check_thread_events(const struct access *access, unsigned all, unsigned user,
				unsigned of_a_thread, GError **error)
{
	bool is_user = user > quarters(1);

	if (!access->limited || (!is_user && all <= quarters(3)))
		return true;
	return broker_fail(
		error, BROKER_ERROR_LIMIT_EXCEEDED,
		"recording these processes of user %u by thread needs more than %s allows (%u events at a "
		"time%s): %u for each thread; record fewer processes or fewer events",
		(unsigned)access->uid, is_user ? "MaxThreadEventsPerUser" : "MaxThreadEvents",
		quarters(is_user ? 1 : 3), is_user ? "" : ", of all users", of_a_thread);
}

bool limits_check_start(const struct access *access, const struct limits_usage *user,
			GError **error)
{
	if (access->limited && user->engines >= MAX_RECORDINGS_PER_USER)
		return broker_fail(
			error, BROKER_ERROR_LIMIT_EXCEEDED,
			"the %u recordings of user %u may take all of MaxEngineBytesPerUser; "
			"Stop one",
			user->engines, (unsigned)access->uid);
	if (access->limited && stall_quota_is_blocked(access->uid, 0))
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "processes of profd wait for files of user %u whose server does "
				   "not answer",
				   (unsigned)access->uid);
	return true;
}
