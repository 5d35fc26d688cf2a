/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture - reads captures
 */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/common/schema.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>

static const struct cli_verb profcapture_verbs[] = {
	{ "info", N_("what is in a capture"), verb_info },
	{ "dump", N_("the rows of any table, in time order"), verb_dump },
	{ "report", N_("where the time went"), verb_report },
	{ "annotate", N_("where in a function the time went"), verb_annotate },
	{ "memory", N_("what was allocated, and what became of it"), verb_memory },
	{ "marks", N_("how often marks are, and how long they take"), verb_marks },
	{ "counters", N_("the values of counters"), verb_counters },
	{ "diff", N_("what one capture has more of than another"), verb_diff },
	{ "export", N_("samples for other programs"), verb_export },
	{ "verify", N_("check every chunk"), verb_verify },
	{ "recover", N_("a clean capture from a damaged one"), verb_recover },
	{ "cut", N_("a time slice that stands alone"), verb_cut },
	{ "compact", N_("the same data in full chunks"), verb_compact },
	{ "symbolize", N_("add names that this machine knows"), verb_symbolize },
	{ "schema", N_("print the JSON Schema of what a verb prints with --json"), schema_run },
	{ NULL },
};

int main(int argc, char **argv)
{
	return cli_main("profcapture", profcapture_verbs, argc, argv);
}
