/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Regular file - opens an untrusted path, which a target, a capture or a debug link names
 *
 * open() of a device, a FIFO or a file of /proc may have side effects: it may acquire a terminal,
 * wake a writer, or never return. So the path is first resolved with O_PATH, which opens nothing;
 * the file is opened only if it is a regular file that the kernel does not generate. The path is
 * resolved only once, so it cannot be changed in between. Needs /proc.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Returns an fd for reading, or -errno. `root`: directory at which absolute paths and links start;
 * -1: the process's root. */
int regular_file_open(int root, const char *path);
/* Opens the file of an O_PATH handle, which stays open. Returns an fd for reading, or -errno:
 * -EINVAL if the file is not regular or is made up, -EFBIG if it has more than max_bytes. */
int regular_file_reopen(int handle, uint64_t max_bytes);
/* Returns true if the kernel generates the file's contents and acts on writes (procfs, sysfs and
 * similar), or if that is unknown. May wait for a FUSE file system. */
bool regular_file_is_made_up(int handle);
