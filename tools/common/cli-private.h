/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by cli.c and cli-help.c. */
#pragma once

#include "tools/common/cli.h"

/* The running verb, or NULL. */
const char *cli_verb_name(void);

void cli_print_verbs(const struct cli_verb *verbs);
void cli_print_help(const struct cli_spec *spec, const struct cli_group *groups);

/* For shells: one name per line. "--opt" (or "-o") takes no value, or only one after "="; "--opt="
 * takes one; "--opt=X" is one of its choices. Anything that does not begin with "-" is an operand:
 * see cli_spec's `complete`. */
void cli_print_verb_names(const struct cli_verb *verbs);
void cli_print_completions(const struct cli_group *groups);
