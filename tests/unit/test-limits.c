/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"

#include "daemon/broker/error.h"
#include "daemon/broker/limits.h"

static const struct access somebody = { .uid = 1000, .limited = true };
static const struct access root = { .uid = 0 };

static bool may_have(const struct access *access, unsigned all, unsigned own, const char *limit)
{
	const struct limits_usage of_all = { .sessions = all }, of_user = { .sessions = own };
	g_autoptr(GError) error = NULL;

	if (limits_check_new(access, &of_all, &of_user, &error))
		return true;
	CHECK(g_error_matches(error, BROKER_ERROR, BROKER_ERROR_LIMIT_EXCEEDED));
	CHECK(strstr(error->message, limit) != NULL);
	return false;
}

static void test_sessions(void)
{
	CHECK(may_have(&somebody, 55, 7, ""));
	CHECK(!may_have(&somebody, 56, 7, "ReservedSessions"));
	CHECK(!may_have(&somebody, 8, 8, "MaxSessionsPerUser"));
	CHECK(!may_have(&somebody, 64, 0, "MaxSessions;"));
	CHECK(may_have(&root, 63, 63, ""));
	CHECK(!may_have(&root, 64, 0, "MaxSessions;"));
}

static void test_engines(void)
{
	struct limits_usage usage = { .sessions = 8, .engines = 3 };
	g_autoptr(GError) error = NULL;

	CHECK(limits_check_start(&somebody, &usage, &error));
	usage.engines = 4;
	CHECK(limits_check_start(&root, &usage, &error));
	REQUIRE(!limits_check_start(&somebody, &usage, &error));
	CHECK(g_error_matches(error, BROKER_ERROR, BROKER_ERROR_LIMIT_EXCEEDED));
	CHECK(strstr(error->message, "MaxEngineBytesPerUser") != NULL);
}

static bool may_open(const struct access *access, unsigned all, unsigned own, const char *limit)
{
	g_autoptr(GError) error = NULL;

	if (limits_check_thread_events(access, all, own, 4, &error))
		return true;
	CHECK(g_error_matches(error, BROKER_ERROR, BROKER_ERROR_LIMIT_EXCEEDED));
	CHECK(strstr(error->message, limit) != NULL);
	return false;
}

/* A user may have a third of the events that all users together may have. Root has no limit. */
static void test_thread_events(void)
{
	g_autoptr(GVariant) of_user = limits_get_property("MaxThreadEventsPerUser");
	g_autoptr(GVariant) of_all = limits_get_property("MaxThreadEvents");
	unsigned user, all;

	REQUIRE(of_user && of_all);
	user = g_variant_get_uint32(of_user);
	all = g_variant_get_uint32(of_all);
	CHECK_INT(all, 3 * user);
	CHECK(may_open(&somebody, all, user, ""));
	CHECK(!may_open(&somebody, user + 1, user + 1, "MaxThreadEventsPerUser"));
	CHECK(!may_open(&somebody, all + 1, user, "MaxThreadEvents allows"));
	CHECK(may_open(&root, all + 1, user + 1, ""));
}

static void test_properties(void)
{
	g_autoptr(GVariant) sessions = limits_get_property("MaxSessions");
	g_autoptr(GVariant) bytes = limits_get_property("MaxEngineBytes");

	REQUIRE(sessions && bytes);
	CHECK_INT(g_variant_get_uint32(sessions), 64);
	CHECK_INT(g_variant_get_uint64(bytes), ENGINE_MEMORY_BYTES);
	CHECK(!limits_get_property("Version"));
}

int main(void)
{
	RUN(test_sessions);
	RUN(test_engines);
	RUN(test_thread_events);
	RUN(test_properties);
	return test_end();
}
