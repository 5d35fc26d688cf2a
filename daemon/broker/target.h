/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TARGETS_ANY_USER ((uid_t)-1)

/* A descriptor that stands for the process: as long as target_is_alive(), its number is nobody
 * else's, and what was read or opened by that number since then was this process's. -1 with
 * errno. */
int target_open(pid_t pid);
/* It has not ended. One that has, but was not waited for yet, counts as ended. */
bool target_is_alive(int pidfd);
/* Whether it is alive and wholly the user's: see owner_is(). `pid` is what target_open() got. */
bool target_is_owned(int pidfd, pid_t pid, uid_t uid);

/* What it is called in its own PID namespace; 0: the same as here. False: it is gone. */
bool target_inner_pid(pid_t pid, pid_t *ret_inner);

/* The processes that a session is to record, held so that their numbers cannot become those of
 * others. */
struct targets;

/* BROKER_ERROR_FAILED where one is not there, or is a thread. */
bool targets_new(const int32_t *pids, unsigned n, struct targets **ret_targets, GError **error);
void targets_free(struct targets *targets);

/*
 * All of them still run and are the user's own (target_is_owned()), or anybody's for
 * TARGETS_ANY_USER. BROKER_ERROR_FAILED where one has ended, BROKER_ERROR_NOT_AUTHORIZED where one
 * is not.
 */
bool targets_check(const struct targets *targets, uid_t uid, GError **error);

/* "firefox (1234), bash (1235), make (1236) +2", of harmless characters; g_free. */
char *targets_describe(const struct targets *targets);
/* What a process calls itself, harmless and never empty; g_free. */
char *target_name(pid_t pid);
