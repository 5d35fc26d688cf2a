/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#pragma once

/* The text of `help agent`: data/help/agent.txt. */
extern const char help_agent[];

/* The verbs of profcapture. Each returns an exit status. */
int verb_info(int argc, char **argv);
int verb_dump(int argc, char **argv);
int verb_annotate(int argc, char **argv);
int verb_summary(int argc, char **argv);
int verb_report(int argc, char **argv);
int verb_memory(int argc, char **argv);
int verb_locks(int argc, char **argv);
int verb_critical_path(int argc, char **argv);
int verb_marks(int argc, char **argv);
int verb_events(int argc, char **argv);
int verb_counters(int argc, char **argv);
int verb_diff(int argc, char **argv);
int verb_export(int argc, char **argv);
int verb_html(int argc, char **argv);
int verb_view(int argc, char **argv);
int verb_sql(int argc, char **argv);
int verb_verify(int argc, char **argv);
int verb_recover(int argc, char **argv);
int verb_cut(int argc, char **argv);
int verb_compact(int argc, char **argv);
int verb_symbolize(int argc, char **argv);
