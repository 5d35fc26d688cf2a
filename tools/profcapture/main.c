/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture - reads captures
 */
#include "config.h"

#include "tools/common/cli.h"
#include "tools/common/schema.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <malloc.h>

/* Each chunk is decoded into blocks of similar sizes. malloc() keeps freed blocks for the next
 * chunk, because the kernel would have to clear their pages again. */
#define KEPT_BYTES (64 << 20)
/* Larger blocks are mapped, so they grow without a copy and return to the kernel when freed. */
#define MAPPED_BYTES (4 << 20)

static const struct cli_verb profcapture_verbs[] = {
	{ "summary", N_("Say where time and memory went, and what to run next"), verb_summary,
	  N_("Ask") },
	{ "report", N_("Show where the time went"), verb_report },
	{ "annotate", N_("Show the hot lines and instructions of a function"), verb_annotate },
	{ "memory", N_("Show allocations, leaks and the heap over time"), verb_memory },
	{ "locks", N_("Show who waits for which lock, and who releases it"), verb_locks },
	{ "critical-path", N_("Show what a thread, or a mark, spent its time on"),
	  verb_critical_path },
	{ "marks", N_("Show how often marks occurred and how long they took"), verb_marks },
	{ "events", N_("Show counts and latencies of traced events"), verb_events },
	{ "counters", N_("Show counters over time"), verb_counters },
	{ "diff", N_("Compare two captures"), verb_diff },
	{ "info", N_("Show what a capture contains"), verb_info },
	{ "view", N_("Show a report in the browser"), verb_view, N_("Look") },
	{ "html", N_("Write a report as one page for a browser"), verb_html },
	{ "sql", N_("Query a capture in SQL"), verb_sql },
	{ "export", N_("Write data for another program"), verb_export },
	{ "dump", N_("Print the rows of a capture"), verb_dump },
	{ "verify", N_("Check a capture, and list its damage"), verb_verify, N_("Repair") },
	{ "recover", N_("Save what is readable of a damaged capture"), verb_recover },
	{ "symbolize", N_("Add function names and lines"), verb_symbolize, N_("Change") },
	{ "cut", N_("Write a time range as a capture"), verb_cut },
	{ "compact", N_("Write a smaller capture with the same data"), verb_compact },
	{ "schema", N_("Print the JSON Schema of a verb's --json output"), schema_run,
	  N_("Scripts") },
	{ "help", N_("Show this text, or the help of VERB") },
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
	.footer = N_(
		"'profcapture help agent' explains on one page how scripts and AI agents use these verbs."),
	.verbs = profcapture_verbs,
	.topics = topics,
};

int main(int argc, char **argv)
{
	(void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
	(void)mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
	return cli_main(&profcapture, argc, argv);
}
