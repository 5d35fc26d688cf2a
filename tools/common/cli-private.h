/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What cli.c and cli-help.c share. */
#pragma once

#include "tools/common/cli.h"

/* The verb that runs, or NULL. */
const char *cli_verb_name(void);

void cli_print_verbs(const struct cli_verb *verbs);
void cli_print_help(const struct cli_spec *spec, const struct cli_group *groups);

/* For shells: one name a line; "--opt" (or "-o") takes no value, or only one behind "=",
 * "--opt=" does, "--opt=X" is one of its choices. What does not begin with "-" is an operand:
 * cli_spec's `complete`. */
void cli_print_verb_names(const struct cli_verb *verbs);
void cli_print_completions(const struct cli_group *groups);
