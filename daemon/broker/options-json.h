/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>

/* A session's options (a{sv} of b, u, t, s, au and as) as a JSON object, sorted by key. Other
 * types are left out. */
char *options_to_json(GVariant *options);
