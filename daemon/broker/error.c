/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Error - the errors of the broker, and their names on D-Bus
 *
 * profd has one GError domain; GDBus turns its codes into the error names of the interface.
 */
#include "config.h"

#include "daemon/broker/error.h"

#include "arch/base.h"

#include <assert.h>

static const GDBusErrorEntry entries[] = {
	{ BROKER_ERROR_NOT_AUTHORIZED, "org.profd.Profiler1.Error.NotAuthorized" },
	{ BROKER_ERROR_BUSY, "org.profd.Profiler1.Error.Busy" },
	{ BROKER_ERROR_NOT_SUPPORTED, "org.profd.Profiler1.Error.NotSupported" },
	{ BROKER_ERROR_INVALID_OPTION, "org.profd.Profiler1.Error.InvalidOption" },
	{ BROKER_ERROR_INVALID_STATE, "org.profd.Profiler1.Error.InvalidState" },
	{ BROKER_ERROR_LIMIT_EXCEEDED, "org.profd.Profiler1.Error.LimitExceeded" },
	{ BROKER_ERROR_NO_SUCH_IMAGE, "org.profd.Profiler1.Error.NoSuchImage" },
	{ BROKER_ERROR_FAILED, "org.profd.Profiler1.Error.Failed" },
	{ BROKER_ERROR_INTERACTION, "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired" },
};
static_assert(ARRAY_SIZE(entries) == BROKER_ERRORS, "every code has its name");

GQuark broker_error_quark(void)
{
	static gsize quark;

	g_dbus_error_register_error_domain("broker-error-quark", &quark, entries,
					   ARRAY_SIZE(entries));
	return (GQuark)quark;
}

bool broker_fail(GError **error, enum broker_error code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (error)
		*error = g_error_new_valist(BROKER_ERROR, code, format, arguments);
	va_end(arguments);
	return false;
}
