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
	{ "top", N_("show live what runs now"), profctl_top },
	{ "status", N_("list the sessions of the system's profd"), profctl_status },
	{ "stop", N_("end a session of the system's profd"), profctl_control },
	{ "pause", N_("let a session take no samples for a while"), profctl_control },
	{ "resume", N_("let a paused session take samples again"), profctl_control },
	{ "doctor", N_("say what will work here and what will not, with the fix for each"),
	  profctl_doctor },
	{ "schema", N_("print the JSON Schema of what a verb prints with --json"), schema_run },
	{ NULL },
};

int main(int argc, char **argv)
{
	return cli_main("profctl", profctl_verbs, argc, argv);
}
