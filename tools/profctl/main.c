/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl - records, controls sessions, and checks the machine
 */
#include "config.h"

#include "arch/errno-text.h"
#include "tools/common/cli.h"
#include "tools/common/schema.h"
#include "tools/profctl/verbs.h"

#include <errno.h>
#include <glib/gi18n.h>
#include <unistd.h>

static const struct cli_verb profctl_verbs[] = {
	{ "record", N_("Record a command, a process or the system into a file"), profctl_record },
	{ "stat", N_("Count events while a command runs"), profctl_stat },
	{ "top", N_("Show a live profile of what is running"), profctl_top },
	{ "doctor", N_("Check what works on this machine; say how to fix the rest"),
	  profctl_doctor },
	{ "list", N_("List what can be recorded here"), profctl_list },
	{ "status", N_("List sessions of the profd service"), profctl_status },
	{ "pause", N_("Stop sampling in a session; resume continues it"), profctl_control },
	{ "resume", N_("Continue a paused session"), profctl_control },
	{ "stop", N_("End a session and finish its file"), profctl_control },
	{ "schema", N_("Print the JSON Schema of a verb's --json output"), schema_run },
	{ "help", N_("Show this text, or the help of VERB") },
	{ NULL },
};

static const struct cli_tool profctl = {
	.name = "profctl",
	.synopsis = "",
	.description = N_("Record and control profiles."),
	.footer = N_("Start with: profctl record -- ./program     Details: profctl VERB --help"),
	.verbs = profctl_verbs,
};

/* Reports the limit on threads, because GLib would dump core without naming it. */
static void on_no_thread(const char *domain, GLogLevelFlags level, const char *message,
			 gpointer data)
{
	if (!g_str_has_prefix(message, "creating thread")) {
		g_log_default_handler(domain, level, message, data);
		return;
	}
	cli_error(_("cannot start a thread: %s"), ERRNO_TEXT(EAGAIN));
	_exit(CLI_FAILURE);
}

int main(int argc, char **argv)
{
	g_log_set_handler("GLib", G_LOG_LEVEL_ERROR | G_LOG_FLAG_FATAL | G_LOG_FLAG_RECURSION,
			  on_no_thread, NULL);
	return cli_main(&profctl, argc, argv);
}
