/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Other roots - the / of recorded processes, if it is not ours
 *
 * Containers and chroots have debug files of their own, which can be reached while one of their
 * processes lives.
 */
#pragma once

#include "tools/common/debug-files.h"
#include "tools/common/names.h"

/*
 * Adds to `files` the roots of the capture's processes that are alive and accessible, each root
 * once, MAX_ROOTS at most. The processes must be of this boot of this machine. Call it before
 * threads use the files.
 */
void other_roots_add(const struct names *names, struct debug_files *files);
