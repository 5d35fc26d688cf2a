/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TARGETS_ANY_USER ((uid_t)-1)

/* Opens a pidfd. Returns -1 and sets errno on failure. While target_is_alive() returns true, the
 * pid is not reused, and all that was read or opened by pid after target_open() belongs to that
 * process. */
int target_open(pid_t pid);
/* Returns whether the process is alive; a zombie is not. */
bool target_is_alive(int pidfd);
/* Returns whether the process is alive and entirely the user's, see process_access_all(). `pid` is
 * the one passed to target_open(). */
bool target_is_owned(int pidfd, pid_t pid, uid_t uid);

/* Gets the pid in the process's own PID namespace; 0: the process is in profd's namespace. Returns
 * false if the process has exited. */
bool target_inner_pid(pid_t pid, pid_t *ret_inner);

/* The processes that a session records, held by pidfds, so that a reused pid is detected. */
struct targets;

/* Fails with BROKER_ERROR_FAILED if a pid does not exist or is a thread. */
bool targets_new(const int32_t *pids, unsigned n, struct targets **ret_targets, GError **error);
void targets_free(struct targets *targets);

/* Checks that all processes still run and are the user's own (target_is_owned()), or any user's for
 * TARGETS_ANY_USER. Fails with BROKER_ERROR_FAILED if one has ended, with
 * BROKER_ERROR_NOT_AUTHORIZED if one is not the user's. */
bool targets_check(const struct targets *targets, uid_t uid, GError **error);

/* Returns "firefox (1234), bash (1235), make (1236) +2", with unsafe characters replaced; free with
 * g_free(). */
char *targets_describe(const struct targets *targets);
/* Returns the name of a process, never empty, with unsafe characters replaced; free with
 * g_free(). */
char *target_name(pid_t pid);
