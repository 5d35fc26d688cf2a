/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * profcapture verify - checks that every byte of a capture is as written
 */
#include "config.h"

#include "tools/common/capture-error.h"
#include "tools/profcapture/reader.h"
#include "tools/profcapture/verbs.h"

#include <glib/gi18n.h>
#include <inttypes.h>

struct verify {
	struct reader reader;
	GArray *damages; /* struct prof_damage */
	uint64_t chunks, good_chunks, cut_chunks;
	uint64_t rows_lost; /* a lower bound if is_rows_known is false */
	bool is_rows_known;
	enum prof_state state;
	struct json json;
};

/* Data after the header of a joined capture does not belong to this one. */
static bool belongs_to_second(const struct verify *verify, const struct prof_damage *damage)
{
	uint64_t second_at = prof_reader_info(verify->reader.capture->reader)->second_at;

	return second_at && damage->offset >= second_at;
}

static int found(const struct prof_damage *damage, void *data)
{
	struct verify *verify = data;

	g_array_append_vals(verify->damages, damage, 1);
	if (damage->rows != UINT64_MAX)
		verify->rows_lost += damage->rows;
	else if (!belongs_to_second(verify, damage))
		verify->is_rows_known = false;
	if (damage->reason == PROF_DAMAGE_CUT)
		verify->cut_chunks++;
	else
		verify->state = PROF_STATE_DAMAGED;
	return 0;
}

static bool verify_run(struct verify *verify, const char *file, GError **error)
{
	const struct prof_reader *reader;
	int r;

	if (!reader_open(&verify->reader, file, error))
		return false;
	reader = verify->reader.capture->reader;
	verify->state = prof_reader_info(reader)->state;
	verify->is_rows_known = true;
	verify->damages = g_array_new(FALSE, FALSE, sizeof(struct prof_damage));
	r = prof_reader_verify(reader, found, verify, &verify->chunks, &verify->good_chunks);
	if (r < 0)
		return capture_error(error, r, _("cannot read capture '%s'"), file);
	if (verify->good_chunks + verify->cut_chunks < verify->chunks)
		verify->state = PROF_STATE_DAMAGED;
	verify->reader.capture->is_damaged = verify->state == PROF_STATE_DAMAGED;
	return true;
}

static guint shown(const struct verify *verify)
{
	uint64_t limit = verify->reader.limit;

	return limit && limit < verify->damages->len ? (guint)limit : verify->damages->len;
}

static void write_known(struct json *json, const char *key, uint64_t value)
{
	if (value == UINT64_MAX)
		json_null(json, key);
	else
		json_uint(json, key, value);
}

static const char *table_name(const struct verify *verify, const struct prof_damage *damage)
{
	const struct prof_table_def *table =
		prof_reader_table(verify->reader.capture->reader, damage->table);

	return table ? table->name : NULL;
}

static void write_damage(const struct verify *verify, struct json *json,
			 const struct prof_damage *damage)
{
	json_begin_object(json, NULL);
	json_uint(json, "offset", damage->offset);
	json_uint(json, "bytes", damage->bytes);
	json_string(json, "table", table_name(verify, damage));
	if (damage->table)
		json_uint(json, "stream", damage->stream);
	else
		json_null(json, "stream");
	write_known(json, "sequence", damage->sequence);
	write_known(json, "rows", damage->rows);
	json_string(json, "reason", prof_damage_reason_name(damage->reason));
	json_end(json);
}

static void write_verify(struct verify *verify)
{
	struct json *json = &verify->json;
	const struct prof_reader_info *info = prof_reader_info(verify->reader.capture->reader);

	reader_begin(&verify->reader, json, "verify", shown(verify) < verify->damages->len);
	json_string(json, "state", capture_state_name(verify->reader.capture));
	json_uint(json, "bytes", info->bytes);
	json_uint(json, "chunks", verify->chunks);
	json_uint(json, "good_chunks", verify->good_chunks);
	write_known(json, "cut_at", info->cut_at);
	json_begin_array(json, "damaged");
	for (guint i = 0; i < shown(verify); i++) {
		const struct prof_damage *damage =
			&g_array_index(verify->damages, struct prof_damage, i);

		write_damage(verify, json, damage);
	}
	json_end(json);
	json_uint(json, "rows_lost", verify->rows_lost);
	json_bool(json, "rows_lost_is_least", !verify->is_rows_known);
	reader_end(&verify->reader, json);
}

static void print_verify(const struct verify *verify, struct out *out)
{
	const struct prof_reader_info *info = prof_reader_info(verify->reader.capture->reader);

	text_cell(out, verify->reader.capture->file, 0, TEXT_LEFT);
	out_printf(out,
		   verify->is_rows_known
			   ? _(": %s, %" PRIu64 " of %" PRIu64 " chunks are good, %" PRIu64
			       " rows are lost\n")
			   : _(": %s, %" PRIu64 " of %" PRIu64 " chunks are good, at least %" PRIu64
			       " rows are lost\n"),
		   capture_state_name(verify->reader.capture), verify->good_chunks, verify->chunks,
		   verify->rows_lost);
	if (info->cut_at != UINT64_MAX)
		out_printf(out, _("The readable part ends at byte %" PRIu64 " of %" PRIu64 "\n"),
			   info->cut_at, info->bytes);
	for (guint i = 0; i < shown(verify); i++) {
		const struct prof_damage *damage =
			&g_array_index(verify->damages, struct prof_damage, i);
		const char *table = table_name(verify, damage);

		out_printf(out, _("byte %" PRIu64 ", %" PRIu64 " bytes: %s, table "),
			   damage->offset, damage->bytes, prof_damage_reason_name(damage->reason));
		text_cell(out, table ? table : "-", 0, TEXT_LEFT);
		if (belongs_to_second(verify, damage))
			out_text(out, _(", another capture"));
		else if (damage->rows == UINT64_MAX)
			out_text(out, _(", rows not known"));
		else
			out_printf(out, _(", %" PRIu64 " rows"), damage->rows);
		out_char(out, '\n');
	}
	reader_print_limit(&verify->reader, out, shown(verify), verify->damages->len);
	if (verify->state != PROF_STATE_FINISHED)
		out_text(out,
			 _("'profcapture recover' writes a finished capture of what is left\n"));
}

static void verify_done(struct verify *verify)
{
	json_done(&verify->json);
	if (verify->damages)
		g_array_unref(verify->damages);
	reader_done(&verify->reader);
}

int verb_verify(int argc, char **argv)
{
	static const struct cli_spec spec = {
		N_("FILE"),
		N_("Check every chunk of a capture and list the damage. Exits 0 only if the capture is finished and undamaged."),
		1, 1
	};
	CLEANUP(verify_done)
	struct verify verify = { .reader.limit = 0, .reader.judges_damage = true };
	const struct cli_group groups[] = { { NULL, reader_output_options, &verify.reader },
					    { NULL } };
	struct out *out = out_stdout();
	GError *error = NULL;
	int status = cli_parse(&spec, groups, &argc, &argv);

	json_init(&verify.json, out);
	if (status != CLI_CONTINUE)
		return status;
	if (verify.reader.format == READER_CSV || verify.reader.format == READER_NDJSON)
		return cli_usage_error(_("verify is printed as text or json"));
	if (!verify_run(&verify, argv[0], &error))
		return cli_fail(error);
	if (verify.reader.format == READER_JSON)
		write_verify(&verify);
	else
		print_verify(&verify, out);
	return verify.state == PROF_STATE_FINISHED ? CLI_OK : CLI_UNREADABLE;
}
