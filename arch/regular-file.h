/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Regular file - opens a path that somebody else chose: a target, a capture or a debug link
 *
 * open() of a device, a FIFO or a file of /proc may act: it may take a terminal, wake a writer, or never return. So the path is
 * first looked at with O_PATH, which opens nothing, and opened only where a regular file is, of a file system that stores
 * files. The path is not followed a second time, so nobody can change it in between. Needs /proc.
 */
#pragma once

#include <stdint.h>

/* `root`: a directory that absolute paths and links start at, or -1: this process's. An fd for reading, or -errno. */
int regular_file_open(int root, const char *path);
/* The same of a handle (O_PATH), which stays the caller's. -EFBIG: it has more bytes. */
int regular_file_reopen(int handle, uint64_t max_bytes);
