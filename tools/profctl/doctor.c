/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profctl doctor - reports what a recording by this user on this machine can do
 *
 * ok: full function; warn: recording works with less, and the text says with what; fail: it does
 * not work. Checks change nothing. The table lists only parts that this version has.
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include "tools/common/cli.h"
#include "tools/common/json.h"
#include "tools/profctl/verbs.h"

#include <glib/gi18n.h>
#include <stdarg.h>

const struct doctor_check doctor_checks[] = {
	{ "daemon", doctor_daemon },
	{ "polkit", doctor_polkit },
	{ "perf-paranoid", doctor_perf_paranoid },
	{ "perf-mlock", doctor_perf_mlock },
	{ "perf-max-rate", doctor_perf_max_rate },
	{ "pmu", doctor_pmu },
	{ "kptr-restrict", doctor_kptr_restrict },
	{ "ptrace-scope", doctor_ptrace_scope },
	{ "tracefs", doctor_tracefs },
	{ "map-files", doctor_map_files },
	{ "procmap-query", doctor_procmap_query },
	{ "debuginfod", doctor_debuginfod },
	{ "jit-maps", doctor_jit_maps },
	{ "cgroup", doctor_cgroup },
	{ "container", doctor_container },
	{ "disk-space", doctor_disk_space },
	{ "clocksource", doctor_clocksource },
	{ NULL },
};

static const struct {
	const char *name;
	const char *color;
} doctor_statuses[] = {
	[DOCTOR_OK] = { "ok", "\033[32m" },
	[DOCTOR_WARN] = { "warn", "\033[33m" },
	[DOCTOR_FAIL] = { "fail", "\033[31m" },
};

char *doctor_read(const struct doctor_host *host, const char *path)
{
	g_autofree char *full = g_strconcat(host->root, path, NULL);
	char *text = NULL;

	if (!g_file_get_contents(full, &text, NULL, NULL))
		return NULL;
	return g_strchomp(text);
}

bool doctor_read_int(const struct doctor_host *host, const char *path, int64_t *ret_value)
{
	g_autofree char *text = doctor_read(host, path);
	gint64 value;

	if (!text || !g_ascii_string_to_signed(text, 10, G_MININT64, G_MAXINT64, &value, NULL))
		return false;
	*ret_value = value;
	return true;
}

void doctor_found(struct doctor_finding *finding, enum doctor_status status, const char *summary,
		  ...)
{
	va_list arguments;

	finding->status = status;
	g_free(finding->summary);
	va_start(arguments, summary);
	finding->summary = g_strdup_vprintf(summary, arguments);
	va_end(arguments);
}

void doctor_fix(struct doctor_finding *finding, const char *fix, ...)
{
	va_list arguments;

	g_free(finding->fix);
	va_start(arguments, fix);
	finding->fix = g_strdup_vprintf(fix, arguments);
	va_end(arguments);
}

void doctor_finding_done(struct doctor_finding *finding)
{
	g_free(finding->summary);
	g_free(finding->fix);
	*finding = (struct doctor_finding){ 0 };
}

bool doctor_run(const struct doctor_host *host, const char *id, struct doctor_finding *ret_finding)
{
	for (const struct doctor_check *check = doctor_checks; check->id; check++) {
		if (strcmp(check->id, id) == 0) {
			*ret_finding = (struct doctor_finding){ 0 };
			check->run(host, ret_finding);
			return true;
		}
	}
	return false;
}

static void doctor_print_json(struct json *json, const struct doctor_finding *findings)
{
	json_begin_object(json, NULL);
	json_string(json, "schema", "profctl.doctor/1");
	json_null(json, "capture");
	json_bool(json, "truncated", false);
	json_begin_object(json, "data");
	json_begin_array(json, "checks");
	for (unsigned i = 0; doctor_checks[i].id; i++) {
		json_begin_object(json, NULL);
		json_string(json, "id", doctor_checks[i].id);
		json_string(json, "status", doctor_statuses[findings[i].status].name);
		json_string(json, "summary", findings[i].summary);
		json_string(json, "fix", findings[i].fix);
		json_end(json);
	}
	json_end(json);
	json_end(json);
	json_end(json);
}

#define STATUS_COLUMNS 5
#define ID_COLUMNS 15

static void doctor_print_finding(struct out *out, const char *id,
				 const struct doctor_finding *finding, bool color)
{
	unsigned indent = STATUS_COLUMNS + ID_COLUMNS;
	unsigned columns = cli_columns(STDOUT_FILENO);
	g_autofree char *summary = text_escape(finding->summary);

	out_text(out, color ? doctor_statuses[finding->status].color : "");
	text_cell(out, doctor_statuses[finding->status].name, STATUS_COLUMNS, TEXT_LEFT);
	out_text(out, color ? "\033[0m" : "");
	text_cell(out, id, ID_COLUMNS, TEXT_LEFT);
	text_wrap(out, summary, indent, indent, columns);
	if (finding->fix) {
		/* Never wrapped, because it may be a command to paste. */
		out_printf(out, "%*s%s", (int)indent, "", _("fix: "));
		text_cell(out, finding->fix, 0, TEXT_LEFT);
		out_char(out, '\n');
	}
}

static void doctor_print_text(struct out *out, const struct doctor_finding *findings, bool color)
{
	unsigned counts[ARRAY_SIZE(doctor_statuses)] = { 0 };

	for (unsigned i = 0; doctor_checks[i].id; i++) {
		counts[findings[i].status]++;
		doctor_print_finding(out, doctor_checks[i].id, &findings[i], color);
	}
	out_printf(out, _("%u ok, %u to know about, %u that prevent recording\n"),
		   counts[DOCTOR_OK], counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
}

struct doctor_values {
	bool json;
	int color;
};

static const struct cli_option doctor_options[] = {
	{ "json", 0, CLI_FLAG, offsetof(struct doctor_values, json), NULL,
	  N_("Print the checks as JSON") },
	{ "color", 0, CLI_CHOICE, offsetof(struct doctor_values, color), "WHEN",
	  N_("Use colors (default: auto, on a terminal unless NO_COLOR is set)"),
	  cli_color_choices },
	{ NULL },
};

static const struct cli_spec doctor_spec = {
	.synopsis = "",
	.description = N_(
		"Check what works on this machine, what works in part and what does not, with a fix for each. Changes nothing. Exits 1 if something prevents recording."),
};

int profctl_doctor(int argc, char **argv)
{
	struct doctor_values values = { 0 };
	const struct cli_group groups[] = { { NULL, doctor_options, &values }, { NULL } };
	struct doctor_finding findings[ARRAY_SIZE(doctor_checks)] = { 0 };
	struct doctor_host host;
	const char *libexec_dir = secure_getenv("PROF_LIBEXEC_DIR");
	int status = cli_parse(&doctor_spec, groups, &argc, &argv);

	if (status != CLI_CONTINUE)
		return status;
	status = CLI_OK;
	doctor_host_init(&host, "", ".", libexec_dir ? libexec_dir : PROF_DEFAULT_LIBEXEC_DIR,
			 &doctor_live_probes);
	for (unsigned i = 0; doctor_checks[i].id; i++) {
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
		doctor_print_text(out_stdout(), findings,
				  cli_color_wanted(values.color, STDOUT_FILENO));
	}
	for (unsigned i = 0; doctor_checks[i].id; i++)
		doctor_finding_done(&findings[i]);
	return status;
}
