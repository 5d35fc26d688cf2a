/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>

/* Returns a session's options (a{sv} of b, u, t, s, au and as) as a JSON object, sorted by key.
 * Omits values of other types. */
char *options_to_json(GVariant *options);
