/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Errno text - strerror(), plus the process or cgroup limit that caused the error
 *
 *     fprintf(stderr, "cannot make a pipe: %s\n", ERRNO_TEXT(errno));
 */
#pragma once

#define ERRNO_TEXT_BYTES 512
/* The text is valid until the end of the block that contains the call. */
#define ERRNO_TEXT(error) errno_text((error), (char[ERRNO_TEXT_BYTES]){ "" })

/*
 * Fills `buffer` (of ERRNO_TEXT_BYTES) and returns it: "Too many open files (RLIMIT_NOFILE, `ulimit
 * -n`, is 64)". For EAGAIN, which must come from fork(), clone() or pthread_create(), it reads
 * files in /proc and /sys.
 */
const char *errno_text(int error, char *buffer);
