/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-hint - the largest problem of a report, and what to do about it
 *
 * Compares the numbers of lost records, of samples with a truncated stack, of samples without a
 * name, and of samples of interpreted programs whose functions were not read. It does not use
 * weights, because each sample is one attempt to record, unwind and name a stack. The most frequent
 * image or cause selects the advice. The hint is one line, because users do not read more.
 * [test-report-hint]
 */
#include "config.h"

#include "base/each.h"
#include "tools/profcapture/report-hint.h"

#include "tools/profcapture/capture-losses.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

struct advice {
	const char *name;
	const char *text;
};

static const struct advice advices[] = {
	{ "lower-frequency", N_("record with a lower --frequency, or fewer processes with --pid") },
	{ "raise-limit", N_("record with a lower --frequency, or raise the sysctl "
			    "kernel.perf_cpu_time_max_percent") },
	{ "lossless", N_("record with --policy lossless, with which programs wait a little") },
	{ "free-space", N_("record to a disk with more space, or for a shorter time") },
	{ "quota", N_("record for a shorter time, or have the limits of profd raised") },
	{ "verify", N_("'profcapture verify' lists the damage") },
	{ "info", N_("'profcapture info' says what was lost when") },
	{ "frame-pointers", N_("programs that have frame pointers give whole stacks with "
			       "--call-graph fp") },
	{ "symbolize",
	  N_("'profcapture symbolize FILE' adds the names that files of this machine have") },
	{ "debug-symbols",
	  N_("'profcapture symbolize --debuginfod FILE' fetches its debug symbols; or install them (on "
	     "Debian, 'dpkg -S' names the package, whose -dbgsym has them) and run 'profcapture "
	     "symbolize FILE'") },
	{ "build-symbols",
	  N_("it is stripped; build it with -g, or say with 'profcapture symbolize --debug-dir "
	     "DIRECTORY FILE' where its symbols are") },
	{ "node", N_("run node with --perf-basic-prof") },
	{ "java", N_("run java with -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit") },
	{ "perf-map",
	  N_("the program generates code; let it write the names to /tmp/perf-PID.map or a jitdump") },
	{ "read-interpreters",
	  N_("record as root or with the system service; or Python 3.12 and later with --python-perf") },
	{ "container", N_("start the container with --cap-add=BPF --cap-add=PERFMON") },
	{ "lockdown", N_("boot with lockdown=integrity, or record outside of the container") },
	{ "kernel-types", N_("run a kernel with CONFIG_DEBUG_INFO_BTF=y") },
	{ "newer-kernel", N_("run Linux 5.17 or later") },
	{ "build-profd", N_("build profd with clang, libbpf 1.0 and bpftool, for x86-64") },
	{ "python-perf",
	  N_("Python 3.12 and later names its functions by itself if recorded with --python-perf") },
	{ "ruby-version",
	  N_("profctl reads the functions of Ruby 3.1 to 3.4, as Debian and Ubuntu build it") },
	{ "php-version",
	  N_("profctl reads the functions of PHP 8.2 to 8.5, as Debian and Ubuntu build it, also with thread safety") },
	{ "perl-version",
	  N_("profctl reads the functions of Perl 5.36, 5.38 and 5.40, built with threads, as Debian and Ubuntu build it") },
	{ "node-version",
	  N_("profctl reads the functions of Node.js 18, 20, 22 and 24; run another version with --perf-basic-prof") },
	{ "interpreter-versions",
	  N_("'profctl doctor' lists the versions of interpreters that profctl reads") },
	{ "no-generated-code",
	  N_("run PHP with -d opcache.jit=off, which is slower, to have the functions of all samples") },
	{ "refused-program",
	  N_("the functions of other programs are not affected; report this fault and the version of the kernel") },
	{ "one-interpreter",
	  N_("only one interpreter of a process has its functions read; run each in a process of its own") },
	{ "fewer-functions", N_("record fewer processes with --pid, or for a shorter time") },
	{ "kernel-names", N_("'profctl doctor' says what hides the kernel's names") },
	{ "unfinished", N_("the capture is unfinished, so the kernel's last names are missing; "
			   "'profcapture symbolize FILE' adds those of programs") },
};

/* ---- losses ---------------------------------------------------------------------------------- */

static const char *advice_for_loss(const char *cause)
{
	static const char *const by_cause[][2] = {
		{ "perf-ring", "lower-frequency" },
		{ "perf-lost-samples", "lower-frequency" },
		{ "throttled", "raise-limit" },
		{ "unwind-backlog", "lower-frequency" },
		{ "writer-backlog", "lower-frequency" },
		{ "side-band", "lower-frequency" },
		{ "ring-full", "lossless" },
		{ "disk-full", "free-space" },
		{ "quota", "quota" },
		{ "file-damage", "verify" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(by_cause); i++)
		if (strcmp(cause, by_cause[i][0]) == 0)
			return by_cause[i][1];
	return "info";
}

static struct report_hint of_losses(const struct profile *profile)
{
	const struct capture *capture = profile->reader->capture;
	struct report_hint hint = { .problem = "lost", .count = capture->lost };
	uint64_t most = 0;

	hint.percent = capture_lost_percent(capture, capture->lost);
	ARRAY_EACH(const struct capture_loss, loss, capture->losses) {
		if (strcmp(loss->cause, "ticks-missed") == 0 || capture_loss_least(loss) <= most)
			continue;
		most = capture_loss_least(loss);
		hint.subject = loss->cause;
		hint.advice = advice_for_loss(loss->cause);
	}
	return hint;
}

/* ---- missing names --------------------------------------------------------------------------- */

static const char *advice_for_image(const struct profile *profile, uint32_t index)
{
	static const char *const usual_places[] = { "/usr/", "/lib/",  "/lib64/",
						    "/bin/", "/sbin/", NULL };
	const struct functions *functions = profile->functions;
	const struct names_image *image = names_image_at(functions->names, index);
	const char *name;

	switch (image->kind) {
	case PROF_IMAGE_KERNEL:
	case PROF_IMAGE_MODULE:
	case PROF_IMAGE_BPF:
		return capture_state(profile->reader->capture) == PROF_STATE_UNFINISHED
			       ? "unfinished"
			       : "kernel-names";
	case PROF_IMAGE_ANON:
	case PROF_IMAGE_JIT:
		name = functions_basename(names_process_at(functions->names, image->process)->exe);
		if (strcmp(name, "node") == 0 || strcmp(name, "nodejs") == 0)
			return "node";
		return strcmp(name, "java") == 0 ? "java" : "perf-map";
	default:
		break;
	}
	if (!functions_have_names(functions))
		return "symbolize";
	return image->path && skip_any_prefix(image->path, usual_places) &&
			       !g_str_has_prefix(image->path, "/usr/local/")
		       ? "debug-symbols"
		       : "build-symbols";
}

/* Returns the hint about the image with the most samples in unnamed functions. */
static struct report_hint of_names(const struct profile *profile)
{
	struct report_hint hint = { .problem = "unresolved", .count = profile->unresolved };
	g_autofree uint64_t *samples = g_new0(uint64_t, profile->functions->names->images->len);
	uint32_t most = NAMES_LOST;

	for (uint32_t i = FUNCTION_LOST + 1; profile->unresolved && i < profile->counts->len; i++) {
		const struct function *function = functions_at(profile->functions, i);

		if (strcmp(function->kind, "unresolved") != 0 || function->image <= NAMES_LOST)
			continue;
		samples[function->image] += profile_count_at(profile->counts, i).self.samples;
		if (most == NAMES_LOST || samples[function->image] > samples[most])
			most = function->image;
	}
	if (most == NAMES_LOST)
		return (struct report_hint){ 0 };
	hint.advice = advice_for_image(profile, most);
	hint.subject = names_image_at(profile->functions->names, most)->path;
	return hint;
}

/* Returns the name of the advice for one reason why interpreted programs were not read. */
static const char *advice_for_unread(const char *cause)
{
	static const char *const by_cause[][2] = {
		{ "root lacks CAP_BPF", "container" },
		{ "kernel is locked down", "lockdown" },
		{ "no type information", "kernel-types" },
		{ "Linux 5.17 is needed", "newer-kernel" },
		{ "profd was built without", "build-profd" },
		{ "is not supported", "python-perf" },
		{ "code that PHP generates", "no-generated-code" },
		{ "the kernel refuses", "refused-program" },
		{ "is not read in a process", "one-interpreter" },
		{ "there is no room", "fewer-functions" },
	};
	const char *advice = "read-interpreters";

	for (size_t i = 0; i < ARRAY_SIZE(by_cause); i++)
		if (strstr(cause, by_cause[i][0]))
			advice = by_cause[i][1];
	if (strcmp(advice, "python-perf") != 0)
		return advice;
	return strstr(cause, "Ruby")   ? "ruby-version"
	       : strstr(cause, "PHP")  ? "php-version"
	       : strstr(cause, "Perl") ? "perl-version"
	       : strstr(cause, "V8")   ? "node-version"
				       : advice;
}

/* Returns the hint about interpreted programs, if the recording says why they were not read. A few
 * samples may lack functions for other reasons: they were taken before the interpreter was found,
 * for example. */
static struct report_hint of_interpreters(const struct profile *profile)
{
	const struct capture *capture = profile->reader->capture;
	const char *text = capture_metadata(capture, "interpreters.missing"), *advice = NULL;
	g_autofree char *joined = NULL;
	g_auto(GStrv) causes = NULL;

	if (!text)
		return (struct report_hint){ 0 };
	causes = g_strsplit(text, "\n", -1);
	for (char **cause = causes; *cause; cause++) {
		const char *each = advice_for_unread(*cause);

		/* The capture does not say which of several reasons a sample has. */
		advice = !advice || strcmp(advice, each) == 0 ? each : "interpreter-versions";
	}
	joined = g_strjoinv("; ", causes);
	return (struct report_hint){ "interpreted", advice,
				     names_intern(capture->names, joined, strlen(joined)),
				     profile->interpreter[PROF_INTERPRETER_MISSING], 0 };
}

/* ---- finding and output ---------------------------------------------------------------------- */

struct report_hint report_hint_find(const struct profile *profile)
{
	struct report_hint hint = { 0 };
	struct report_hint found[4] = {
		of_losses(profile),
		{ "truncated", "frame-pointers", NULL, profile->unwind[UNWIND_TRUNCATED], 0 },
		of_interpreters(profile),
	};

	/* Missing names matter only if rows are functions or lines. */
	if (profile->by == PROFILE_FUNCTION || profile->by == PROFILE_LINE)
		found[3] = of_names(profile);
	/* The advice on the version of Node.js also explains why its functions have no names. */
	if (g_strcmp0(found[2].advice, "node-version") == 0 &&
	    g_strcmp0(found[3].advice, "node") == 0)
		found[3].advice = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
		if (i > 0 && profile->all.samples)
			found[i].percent = 100.0 * (double)found[i].count /
					   (double)profile->all.samples;
		found[i].file = profile->reader->capture->file;
		if (found[i].percent >= REPORT_HINT_MIN_PCT && found[i].percent > hint.percent &&
		    found[i].advice)
			hint = found[i];
	}
	return hint;
}

void report_hint_write(const struct report_hint *hint, struct json *json, const char *key)
{
	if (!hint->problem) {
		json_null(json, key);
		return;
	}
	json_begin_object(json, key);
	json_string(json, "problem", hint->problem);
	json_string(json, "advice", hint->advice);
	json_string(json, "subject", hint->subject);
	json_uint(json, "count", hint->count);
	json_double(json, "pct", hint->percent);
	json_end(json);
}

void report_hint_print(const struct report_hint *hint, struct out *out)
{
	g_autofree char *subject = text_escape(hint->subject ? hint->subject : "-");
	g_autofree char *word = hint->file ? text_shell_file(hint->file) : NULL;
	g_autofree char *file = word ? text_escape(word) : NULL, *text = NULL;
	const struct advice *advice = advices;
	g_auto(GStrv) parts = NULL;

	if (!hint->problem)
		return;
	if (strcmp(hint->problem, "lost") == 0)
		out_printf(out, _("Hint: %.1f %% were lost, most as %s: "), hint->percent, subject);
	else if (strcmp(hint->problem, "truncated") == 0)
		out_printf(out, _("Hint: %.1f %% of the samples have a truncated stack: "),
			   hint->percent);
	else if (strcmp(hint->problem, "interpreted") == 0)
		out_printf(out,
			   _("Hint: %.1f %% of the samples lack the program's functions (%s): "),
			   hint->percent, subject);
	else if (g_str_has_prefix(subject, "//anon") || strcmp(subject, "[anon]") == 0)
		out_printf(out,
			   _("Hint: %.1f %% of the samples have no name, most in code that the "
			     "program made while it ran: "),
			   hint->percent);
	else
		out_printf(out, _("Hint: %.1f %% of the samples have no name, most in '%s': "),
			   hint->percent, subject);
	while (strcmp(advice->name, hint->advice) != 0)
		advice++;
	parts = g_strsplit(_(advice->text), "FILE", -1);
	text = g_strjoinv(file, parts);
	out_printf(out, "%s\n", text);
}
