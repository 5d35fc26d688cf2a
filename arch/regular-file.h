/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Regular file - opens an untrusted path: of a target, a capture or a debug link
 *
 * open() of a device, a FIFO or a file of /proc may act: it may take a terminal, wake a writer, or
 * never return. So the path is first resolved with O_PATH, which opens nothing, and opened only if
 * it is a regular file of a file system that stores files. The path is resolved only once, so it
 * cannot be changed in between. Needs /proc.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Returns an fd for reading, or -errno. `root`: the directory that absolute paths and links
 * start at; -1: the process's root. */
int regular_file_open(int root, const char *path);
/* Opens the file of an O_PATH handle, which the caller keeps. Returns -EFBIG if the file has more
 * than max_bytes. */
int regular_file_reopen(int handle, uint64_t max_bytes);
/*
 * Returns whether the kernel generates the file's content on a read, and acts on a write (procfs,
 * sysfs and similar), or whether this is unknown. May wait for the server of a FUSE file system.
 */
bool regular_file_is_made_up(int handle);
