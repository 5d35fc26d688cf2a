/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

/* Each code is org.profd.Profiler1.Error.NAME on D-Bus; docs/dbus.md says when it is returned. */
enum broker_error {
	BROKER_ERROR_NOT_AUTHORIZED,
	BROKER_ERROR_BUSY,
	BROKER_ERROR_NOT_SUPPORTED,
	BROKER_ERROR_INVALID_OPTION,
	BROKER_ERROR_INVALID_STATE,
	BROKER_ERROR_LIMIT_EXCEEDED,
	BROKER_ERROR_NO_SUCH_IMAGE,
	BROKER_ERROR_FAILED,
	BROKER_ERROR_INTERACTION, /* a prompt would help, but the caller did not allow one */
	BROKER_ERRORS
};

#define BROKER_ERROR broker_error_quark()
GQuark broker_error_quark(void);

/* Sets *error and returns false, for use in a return statement. */
bool broker_fail(GError **error, enum broker_error code, const char *format, ...)
	G_GNUC_PRINTF(3, 4);
