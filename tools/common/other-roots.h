/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Other roots - what recorded processes see as / where that is not what we see
 *
 * Containers and chroots have debug files of their own, which can be reached while a process of
 * theirs lives.
 */
#pragma once

#include "tools/common/debug-files.h"
#include "tools/common/names.h"

/*
 * Has debug files looked for also below the roots of the processes of the capture that live now and
 * that we may look at, each root once, MAX_ROOTS at most. The processes are those of this boot of
 * this machine. Before the files are used on threads.
 */
void other_roots_add(const struct names *names, struct debug_files *files);
