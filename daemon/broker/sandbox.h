/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <gio/gio.h>
#include <stdbool.h>

/* Call before the first thread is made and the first byte of a client is read. */
bool sandbox_enter(GError **error);
/* Its two halves, for tests. */
bool sandbox_drop_capabilities(GError **error);
bool sandbox_filter(GError **error);
