/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "daemon/broker/watch.h"

guint watch_add(int fd, GIOCondition condition, GUnixFDSourceFunc function, void *data)
{
	g_autoptr(GSource) source = g_unix_fd_source_new(fd, condition);

	g_source_set_can_recurse(source, TRUE);
	g_source_set_callback(source, G_SOURCE_FUNC(function), data, NULL);
	return g_source_attach(source, NULL);
}
