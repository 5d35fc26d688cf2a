/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Regular file - opens a path that somebody else chose: a target, a capture or a debug link
 *
 * open() of a device, a FIFO or a file of /proc may act: it may take a terminal, wake a writer, or
 * never return. So the path is first looked at with O_PATH, which opens nothing, and opened only
 * where a regular file is, of a file system that stores files. The path is not followed a second
 * time, so nobody can change it in between. Needs /proc.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Returns an fd for reading, or -errno. `root`: the directory that absolute paths and links
 * start at; -1: the process's root. */
int regular_file_open(int root, const char *path);
/* Opens the file of an O_PATH handle, which stays the caller's. -EFBIG: the file has more than
 * max_bytes. */
int regular_file_reopen(int handle, uint64_t max_bytes);
/*
 * Whether the kernel makes the file's content when it is read, and acts when it is written (procfs,
 * sysfs and the like), or it cannot be told. May wait for the server of a FUSE file system.
 */
bool regular_file_is_made_up(int handle);
