/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Grown-array - arrays that are as long as their highest used index requires */
#pragma once

#include <glib.h>

/* Returns the address of element `index` of a GArray that clears new elements. Grows the array to
 * include it. Valid until the next call. */
#define GROWN_AT(array, type, index)                     \
	({                                               \
		GArray *all_ = (array);                  \
		guint at_ = (index);                     \
                                                         \
		if (all_->len <= at_)                    \
			g_array_set_size(all_, at_ + 1); \
		&g_array_index(all_, type, at_);         \
	})
