/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture cut, compact, recover - write one capture from another
 *
 * An existing file is replaced only with --force. The input is never replaced.
 */
#include "config.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/result-file.h"
#include "tools/profcapture/rewrite.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum kind { CUT, COMPACT, RECOVER };

struct remake {
	enum kind kind;
	struct reader reader;
	const char *output;
	bool force;
	GArray *damages; /* struct prof_damage */
};

static const struct cli_option options[] = {
	{ "output", 'o', CLI_STRING, offsetof(struct remake, output), N_("NEW"),
	  N_("Write the capture NEW (-: standard output)") },
	{ "force", 0, CLI_FLAG, offsetof(struct remake, force), NULL,
	  N_("Overwrite an existing file") },
	{ NULL },
};

/* ---- the verbs ------------------------------------------------------------------------------- */

/* Collects damage. Only `recover` reports the rows that an incomplete capture lost at its end. */
static int add_damage(const struct prof_damage *damage, void *data)
{
	struct remake *remake = data;

	if (remake->kind == RECOVER || damage->reason != PROF_DAMAGE_CUT)
		g_array_append_vals(remake->damages, damage, 1);
	return 0;
}

static bool find_damages(struct remake *remake, GError **error)
{
	struct capture *capture = remake->reader.capture;
	uint64_t chunks, good;
	int r;

	if (remake->kind != RECOVER) {
		if (!capture_check(capture, 0, error))
			return false;
		if (capture_state(capture) != PROF_STATE_DAMAGED)
			return true;
	}
	remake->damages = g_array_new(FALSE, FALSE, sizeof(struct prof_damage));
	r = prof_reader_verify(capture->reader, add_damage, remake, &chunks, &good);
	return r >= 0 || capture_error(error, r, _("cannot read capture '%s'"), capture->file);
}

static bool write_result(struct remake *remake, GError **error)
{
	const struct rewrite_options rewrite = {
		.file = remake->output,
		.timed = remake->reader.timed,
		.from_ns = remake->reader.from_ns,
		.to_ns = remake->reader.to_ns,
		.merge_epochs = remake->kind == COMPACT,
		.file_damages = remake->damages,
	};
	struct rewrite_result result;
	CLEANUP(result_file_done) struct result_file file = { 0 };

	if (!result_file_open(remake->output, remake->force, &file, error) ||
	    !rewrite_capture(remake->reader.capture, file.fd, &rewrite, &result, error) ||
	    !result_file_commit(&file, error))
		return false;
	if (result.lost)
		cli_warning(_("%" PRIu64 " names were lost before; they stay %s"), result.lost,
			    NAMES_LOST_TEXT);
	return true;
}

static void remake_done(struct remake *remake)
{
	g_clear_pointer(&remake->damages, g_array_unref);
	reader_done(&remake->reader);
}

static int remake_verb(enum kind kind, const char *description, int argc, char **argv)
{
	const struct cli_spec spec = { N_("FILE -o NEW"), description, 1, 1 };
	CLEANUP(remake_done)
	struct remake remake = { .kind = kind, .reader.judges_damage = kind == RECOVER };
	const struct cli_group plain[] = { { NULL, options, &remake }, { NULL } };
	const struct cli_group timed[] = { { NULL, options, &remake },
					   { N_("Select"), reader_time_options, &remake.reader },
					   { NULL } };
	GError *error = NULL;
	int status = cli_parse(&spec, kind == CUT ? timed : plain, &argc, &argv);

	if (status != CLI_CONTINUE)
		return status;
	if (!remake.output)
		return cli_usage_error(_("name the new capture: -o NEW"));
	if (kind == CUT && remake.reader.range.from.kind == UNITS_TIME_UNSET &&
	    remake.reader.range.to.kind == UNITS_TIME_UNSET)
		return cli_usage_error(_("cut needs --from, --to or both"));
	if (!result_file_refuse_input(remake.output, argv[0], &error) ||
	    !reader_open(&remake.reader, argv[0], &error) || !find_damages(&remake, &error))
		return cli_fail(error);
	capture_warn(remake.reader.capture);
	return write_result(&remake, &error) ? CLI_OK : cli_fail(error);
}

int verb_cut(int argc, char **argv)
{
	return remake_verb(CUT, N_("Write a time range of a capture as a capture of its own."),
			   argc, argv);
}

int verb_compact(int argc, char **argv)
{
	return remake_verb(COMPACT, N_("Write a smaller capture with the same data."), argc, argv);
}

int verb_recover(int argc, char **argv)
{
	return remake_verb(
		RECOVER,
		N_("Write a finished capture of everything that is readable in a damaged or unfinished one. The loss table counts what is missing."),
		argc, argv);
}
