/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl - records, controls sessions, and says what this machine allows
 */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/common/schema.h"
#include "tools/profctl/verbs.h"

#include <glib/gi18n.h>

static const struct cli_verb profctl_verbs[] = {
	{ "record", N_("record the system, processes or a command into a capture"),
	  profctl_record },
	{ "doctor", N_("say what will work here and what will not, with the fix for each"),
	  profctl_doctor },
	{ "schema", N_("print the JSON Schema of what a verb prints with --json"), schema_run },
	{ NULL },
};

int main(int argc, char **argv)
{
	return cli_main("profctl", profctl_verbs, argc, argv);
}
