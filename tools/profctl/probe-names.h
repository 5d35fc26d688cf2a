/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include "arch/probe-file.h"

#include <glib.h>
#include <stdbool.h>

/* Returns the path, without symbolic links, of a program in PATH or a library in the loader's
 * folders; if the name has a slash, of that file. Returns NULL if no such file exists. */
char *probe_names_find_file(const char *name);
/* Opens a file, with its debug file if that is installed. Returns NULL and a reason if the file
 * cannot be opened, or has no code that can be probed here. */
struct probe_file *probe_names_open(const char *path, int *ret_fd, char **ret_reason);
/* Completes the names of probes among the events to names that profd accepts: "/PATH:FUNCTION" or
 * "/PATH:PROVIDER:NAME". A static probe without a file is searched for in the program and the
 * libraries of the command, or in what the processes map. Leaves other events as they are. */
bool probe_names_complete(GPtrArray *events, char *const *command, const GArray *pids,
			  GError **error);
