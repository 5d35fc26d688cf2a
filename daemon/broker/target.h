/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TARGETS_ANY_USER ((uid_t)-1)

/* Opens a descriptor of the process. As long as target_is_alive(), the number is not reused, and
 * what was read or opened by that number since then was this process's. Returns -1 with errno. */
int target_open(pid_t pid);
/* Returns whether the process has not ended. A zombie has ended. */
bool target_is_alive(int pidfd);
/* Returns whether it is alive and wholly the user's: see process_access_all(). `pid` is what
 * target_open() got. */
bool target_is_owned(int pidfd, pid_t pid, uid_t uid);

/* Reports its number in its own PID namespace; 0: the same as here. Returns false if it is gone. */
bool target_inner_pid(pid_t pid, pid_t *ret_inner);

/* The processes that a session records, held by pidfd, so that a reused number is detected. */
struct targets;

/* Fails with BROKER_ERROR_FAILED if one does not exist, or is a thread. */
bool targets_new(const int32_t *pids, unsigned n, struct targets **ret_targets, GError **error);
void targets_free(struct targets *targets);

/*
 * Checks that all of them still run and are the user's own (target_is_owned()), or anybody's for
 * TARGETS_ANY_USER. Fails with BROKER_ERROR_FAILED if one has ended, BROKER_ERROR_NOT_AUTHORIZED if
 * one is not the user's.
 */
bool targets_check(const struct targets *targets, uid_t uid, GError **error);

/* Returns "firefox (1234), bash (1235), make (1236) +2", in harmless characters; g_free. */
char *targets_describe(const struct targets *targets);
/* Returns the name of a process, in harmless characters and never empty; g_free. */
char *target_name(pid_t pid);
