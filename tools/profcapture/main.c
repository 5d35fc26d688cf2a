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
	{ "summary", N_("Say where time and memory went, and what to run next"), verb_summary,
	  N_("Ask") },
	{ "report", N_("Show where the time went"), verb_report },
	{ "annotate", N_("Show the hot lines and instructions of a function"), verb_annotate },
	{ "memory", N_("Show allocations, leaks and the heap over time"), verb_memory },
	{ "marks", N_("Show how often marks occurred and how long they took"), verb_marks },
	{ "counters", N_("Show counters over time"), verb_counters },
	{ "diff", N_("Compare two captures"), verb_diff },
	{ "info", N_("Show what a capture contains"), verb_info },
	{ "view", N_("Show a report in the browser"), verb_view, N_("Look") },
	{ "html", N_("Write a report as one page for a browser"), verb_html },
	{ "sql", N_("Query a capture in SQL"), verb_sql },
	{ "export", NULL, verb_export },
	{ "dump", NULL, verb_dump },
	{ "verify", NULL, verb_verify, N_("Repair") },
	{ "recover", NULL, verb_recover },
	{ "symbolize", NULL, verb_symbolize },
	{ "cut", NULL, verb_cut },
	{ "compact", NULL, verb_compact },
	{ "schema", NULL, schema_run, N_("Scripts") },
	{ "help" },
	{ NULL },
};

static const struct cli_topic topics[] = {
	{ "agent", help_agent },
	{ NULL },
};

static const struct cli_tool profcapture = {
	.name = "profcapture",
	.synopsis = " [FILE]",
	.description =
		N_("Read captures. Without FILE, report uses the newest one in this folder."),
	.footer =
		N_("Scripts and agents: 'profcapture help agent' shows what to run and to expect."),
	.verbs = profcapture_verbs,
	.topics = topics,
};

int main(int argc, char **argv)
{
	return cli_main(&profcapture, argc, argv);
}
