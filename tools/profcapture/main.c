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
	{ "info", N_("Show what a capture contains"), verb_info },
	{ "dump", N_("Print the rows of a table in time order"), verb_dump },
	{ "report", N_("Show where the time went"), verb_report },
	{ "annotate", N_("Show the hot lines and instructions of a function"), verb_annotate },
	{ "memory", N_("Show allocations, leaks and the heap's peak"), verb_memory },
	{ "marks", N_("Show how often and how long marks were"), verb_marks },
	{ "counters", N_("Show counters"), verb_counters },
	{ "diff", N_("Compare two captures"), verb_diff },
	{ "export", N_("Write samples for other programs"), verb_export },
	{ "verify", N_("Check a capture for damage"), verb_verify },
	{ "recover", N_("Write what is readable of a damaged capture"), verb_recover },
	{ "cut", N_("Write a time range as a capture of its own"), verb_cut },
	{ "compact", N_("Write a smaller capture with the same data"), verb_compact },
	{ "symbolize", N_("Add function names and source lines"), verb_symbolize },
	{ "schema", N_("Print the JSON Schema of a verb's --json output"), schema_run },
	{ NULL },
};

int main(int argc, char **argv)
{
	return cli_main("profcapture", profcapture_verbs, argc, argv);
}
