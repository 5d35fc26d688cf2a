/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl doctor - reports what this user can record on this machine
 *
 * ok: no restriction; warn: recording works with restrictions, which the text names; fail:
 * recording does not work. Checks change nothing. Only parts that exist in this version are
 * checked.
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include "tools/common/cli.h"
#include "tools/common/json.h"
#include "tools/profctl/verbs.h"

#include <glib/gi18n.h>
#include <stdarg.h>

static const struct {
	const char *name;
	const char *color;
} doctor_statuses[] = {
	[DOCTOR_FAIL] = { "fail", "\033[31m" },
	[DOCTOR_WARN] = { "warn", "\033[33m" },
	[DOCTOR_OK] = { "ok", "\033[32m" },
	[DOCTOR_OFF] = { "off", "\033[2m" },
};

void doctor_finding_done(struct doctor_finding *finding)
{
	g_free(finding->summary);
	g_free(finding->fix);
	*finding = (struct doctor_finding){ 0 };
}

void doctor_found(struct doctor_finding *finding, enum doctor_status status, const char *fix,
		  const char *summary, ...)
{
	va_list arguments;

	finding->status = status;
	finding->fix = g_strdup(fix);
	va_start(arguments, summary);
	finding->summary = g_strdup_vprintf(summary, arguments);
	va_end(arguments);
}

bool doctor_run(const struct doctor_host *host, const char *id, struct doctor_finding *ret_finding)
{
	for (unsigned i = 0; i < DOCTOR_CHECKS; i++) {
		if (strcmp(doctor_checks[i].id, id) == 0) {
			*ret_finding = (struct doctor_finding){ 0 };
			doctor_checks[i].run(host, ret_finding);
			return true;
		}
	}
	return false;
}

static void doctor_print_json(struct json *json, const struct doctor_finding *findings)
{
	json_begin_envelope(json, "profctl.doctor/1");
	json_begin_array(json, "checks");
	for (unsigned i = 0; i < DOCTOR_CHECKS; i++) {
		json_begin_object(json, NULL);
		json_string(json, "id", doctor_checks[i].id);
		json_string(json, "status", doctor_statuses[findings[i].status].name);
		json_string(json, "summary", findings[i].summary);
		json_string(json, "fix", findings[i].fix);
		json_end(json);
	}
	json_end(json);
	json_end_envelope(json);
}

struct doctor_values {
	bool json, all;
	int color;
};

static const struct cli_option doctor_options[] = {
	{ "all", 0, CLI_FLAG, offsetof(struct doctor_values, all), NULL,
	  N_("Also show the checks that passed (text only)") },
	{ "json", 0, CLI_FLAG, offsetof(struct doctor_values, json), NULL,
	  N_("Print the checks as JSON") },
	{ "color", 0, CLI_CHOICE, offsetof(struct doctor_values, color), "WHEN",
	  N_("Use colors (default: auto, on a terminal unless NO_COLOR is set)"),
	  cli_color_choices },
	{ NULL },
};

#define STATUS_COLUMNS 6 /* width of a status, including the gap after it */

static void doctor_print_status(struct out *out, enum doctor_status status, bool color)
{
	out_text(out, color ? doctor_statuses[status].color : "");
	text_cell(out, doctor_statuses[status].name, STATUS_COLUMNS);
	out_text(out, color ? "\033[0m" : "");
}

static void doctor_print_finding(struct out *out, const char *id, unsigned id_columns,
				 const struct doctor_finding *finding, bool has_fix)
{
	unsigned indent = STATUS_COLUMNS + id_columns;
	g_autofree char *summary = text_escape(finding->summary);

	text_cell(out, id, id_columns);
	text_wrap(out, summary, indent, indent, cli_columns(STDOUT_FILENO));
	if (has_fix) {
		/* Do not wrap the fix, because it may be a command to copy. */
		out_printf(out, "%*s%s", (int)indent, "", _("fix: "));
		text_cell(out, finding->fix, 0);
		out_char(out, '\n');
	}
}

static void doctor_print_verdict(struct out *out, const struct doctor_finding *findings,
				 const unsigned *counts)
{
	if (counts[DOCTOR_FAIL] > 0) {
		out_printf(out,
			   ngettext("Recording does not work here: %u problem.\n",
				    "Recording does not work here: %u problems.\n",
				    counts[DOCTOR_FAIL]),
			   counts[DOCTOR_FAIL]);
		return;
	}
	for (unsigned i = 0; i < DOCTOR_CHECKS; i++) {
		if (findings[i].verdict) {
			out_printf(out, _("%s Fix: %s\n"), findings[i].verdict, findings[i].fix);
			return;
		}
	}
	if (counts[DOCTOR_WARN] > 0)
		out_printf(out,
			   ngettext("Recording works here. %u thing to know:\n",
				    "Recording works here. %u things to know:\n",
				    counts[DOCTOR_WARN]),
			   counts[DOCTOR_WARN]);
	else
		out_text(out, _("Recording works here.\n"));
}

/* Prints the verdict, failures, warnings, the number of other checks, and unused optional parts;
 * with --all, every check. */
static void doctor_print_text(struct out *out, const struct doctor_finding *findings,
			      const struct doctor_values *values)
{
	bool color = cli_color_wanted(values->color, STDOUT_FILENO);
	unsigned counts[ARRAY_SIZE(doctor_statuses)] = { 0 }, id_columns = 0;

	for (unsigned i = 0; i < DOCTOR_CHECKS; i++) {
		counts[findings[i].off ? DOCTOR_OFF : findings[i].status]++;
		if (values->all || findings[i].status < DOCTOR_OK)
			id_columns = MAX_OF(id_columns, text_width(doctor_checks[i].id) + 2);
	}
	doctor_print_verdict(out, findings, counts);
	for (enum doctor_status status = 0; status < ARRAY_SIZE(doctor_statuses); status++) {
		if (status == DOCTOR_OK || (status == DOCTOR_FAIL && counts[status] > 0) ||
		    (status == DOCTOR_WARN && counts[status] > 0 && counts[DOCTOR_FAIL] == 0))
			out_char(out, '\n');
		if (status == DOCTOR_OK && counts[status] > 0 && !values->all) {
			doctor_print_status(out, status, color);
			out_printf(out,
				   ngettext("%u more check (--all)\n", "%u more checks (--all)\n",
					    counts[status]),
				   counts[status]);
			continue;
		}
		for (unsigned i = 0; i < DOCTOR_CHECKS; i++) {
			const struct doctor_finding *finding = &findings[i];

			if ((finding->off ? DOCTOR_OFF : finding->status) != status)
				continue;
			doctor_print_status(out, status, color);
			/* Do not repeat a fix that the verdict contains. */
			if (finding->off && !values->all)
				out_printf(out, "%s: %s\n", doctor_checks[i].id, finding->off);
			else
				doctor_print_finding(out, doctor_checks[i].id, id_columns, finding,
						     finding->fix && (!finding->verdict ||
								      counts[DOCTOR_FAIL] > 0));
		}
	}
}

static const struct cli_spec doctor_spec = {
	.synopsis = "",
	.description = N_(
		"Check what works on this machine, and say how to fix the rest. Changes nothing. Exits 1 if something prevents recording."),
};

int profctl_doctor(int argc, char **argv)
{
	struct doctor_values values = { 0 };
	const struct cli_group groups[] = { { NULL, doctor_options, &values }, { NULL } };
	struct doctor_finding findings[DOCTOR_CHECKS] = { 0 };
	struct doctor_host host;
	const char *libexec_dir = secure_getenv("PROF_LIBEXEC_DIR");
	int status = cli_parse(&doctor_spec, groups, &argc, &argv);

	if (status != CLI_CONTINUE)
		return status;
	status = CLI_OK;
	doctor_host_init(&host, "", ".", libexec_dir ? libexec_dir : PROF_DEFAULT_LIBEXEC_DIR,
			 &doctor_live_probes);
	for (unsigned i = 0; i < DOCTOR_CHECKS; i++) {
		doctor_checks[i].run(&host, &findings[i]);
		if (findings[i].status == DOCTOR_FAIL)
			status = CLI_FAILURE;
	}
	if (values.json) {
		struct json json;

		json_init(&json, out_stdout());
		doctor_print_json(&json, findings);
		json_done(&json);
	} else {
		doctor_print_text(out_stdout(), findings, &values);
	}
	for (unsigned i = 0; i < DOCTOR_CHECKS; i++)
		doctor_finding_done(&findings[i]);
	return status;
}
