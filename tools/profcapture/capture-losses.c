/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Invariant: losses are reported before anything else  [test_readers: loss first]
 */
#include "config.h"

#include "tools/profcapture/capture-losses.h"

#include "base/each.h"
#include "base/order.h"
#include "tools/common/text.h"

#include <glib/gi18n.h>
#include <inttypes.h>
#include <string.h>

static void add_loss(struct capture *capture, const struct capture_loss *loss)
{
	char *key = g_strdup_printf("%s\n%d%s", loss->cause, loss->count > 0,
				    loss->stream ? loss->stream : "");
	gpointer index;
	struct capture_loss *sum;

	if (!g_hash_table_lookup_extended(capture->loss_indexes, key, NULL, &index)) {
		g_hash_table_insert(capture->loss_indexes, key,
				    GUINT_TO_POINTER(capture->losses->len));
		g_array_append_val(capture->losses, *loss);
		return;
	}
	g_free(key);
	sum = &g_array_index(capture->losses, struct capture_loss, GPOINTER_TO_UINT(index));
	sum->count += loss->count;
	sum->bytes += loss->bytes;
	sum->from_ns = MIN_OF(sum->from_ns, loss->from_ns);
	sum->to_ns = MAX_OF(sum->to_ns, loss->to_ns);
}

static const char *cause_name(const struct capture *capture, uint64_t cause)
{
	const struct prof_table_def *table = prof_reader_table(capture->reader, PROF_TABLE_LOSS);
	const char *const *values = NULL;

	for (unsigned i = 0; table && i < table->n_columns; i++)
		if (table->columns[i].id == PROF_LOSS_CAUSE)
			values = table->columns[i].values;
	for (uint64_t i = 0; values && values[i]; i++)
		if (i == cause)
			return values[i];
	return "unknown";
}

void capture_losses_add(struct capture *capture, const struct prof_batch *batch)
{
	const struct prof_array *c = batch->columns;

	for (size_t i = 0; i < batch->rows; i++) {
		uint64_t cause = array_number_or(&c[PROF_LOSS_CAUSE], i, PROF_LOSS_CAUSES);
		uint64_t time = array_number_or(&c[PROF_LOSS_TIME], i, 0);
		struct capture_loss loss = {
			.stream = names_text_at(capture->names, &c[PROF_LOSS_STREAM], i),
			.cause = cause_name(capture, cause),
			.count = array_number_or(&c[PROF_LOSS_COUNT], i, 0),
			.bytes = array_number_or(&c[PROF_LOSS_BYTES], i, 0),
			.from_ns = capture_time(capture, batch->segment, time),
			.to_ns = capture_time(capture, batch->segment,
					      array_number_or(&c[PROF_LOSS_TIME_END], i, time)),
		};

		add_loss(capture, &loss);
		if (cause == PROF_LOSS_TICKS_MISSED) {
			capture->missed_ticks += loss.count;
			continue;
		}
		capture->lost += capture_loss_least(&loss);
		capture->lost_incomplete |= loss.count == 0;
	}
}

void capture_write_losses(const struct capture *capture, struct json *json, const char *key)
{
	json_begin_array(json, key);
	ARRAY_EACH(const struct capture_loss, loss, capture->losses) {
		json_begin_object(json, NULL);
		json_string(json, "stream", loss->stream);
		json_string(json, "cause", loss->cause);
		json_uint_if(json, "count", loss->count > 0, loss->count);
		json_uint(json, "bytes", loss->bytes);
		json_int(json, "from_ns", loss->from_ns);
		json_int(json, "to_ns", loss->to_ns);
		json_end(json);
	}
	json_end(json);
}

static bool is_missed_tick(const struct capture_loss *loss)
{
	return strcmp(loss->cause, "ticks-missed") == 0;
}

/* Returns a text on why records were lost; `cause` itself if a later version added it. */
static const char *describe_cause(const char *cause)
{
	static const struct {
		const char *cause, *words;
	} causes[] = {
		{ "perf-ring", N_("a perf ring was full") },
		{ "perf-lost-samples", N_("the kernel could not store samples") },
		{ "throttled", N_("the kernel throttled sampling") },
		{ "side-band", N_("the kernel lost records of programs and threads") },
		{ "cpu-offline", N_("a CPU went offline") },
		{ "late", N_("records came too late") },
		{ "ring-full", N_("a program's ring was full") },
		{ "ring-reentrant", N_("a program's signal handler interrupted a record") },
		{ "ring-refused", N_("profd refused records of a program") },
		{ "ring-corrupt", N_("records of a program were invalid") },
		{ "unwind-backlog", N_("unwinding was too slow") },
		{ "writer-backlog", N_("writing was too slow") },
		{ "disk-full", N_("the disk was full") },
		{ "io-error", N_("the file could not be written") },
		{ "quota", N_("the file had its largest size") },
		{ "file-damage", N_("the file was damaged") },
	};

	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		if (strcmp(cause, causes[i].cause) == 0)
			return _(causes[i].words);
	return cause;
}

double capture_lost_percent(const struct capture *capture, uint64_t lost)
{
	double all = (double)capture->lost + (double)capture_events(capture);

	return all > 0 ? 100 * (double)lost / all : 0;
}

char *capture_lost_text(const struct capture *capture)
{
	g_autofree char *count = text_count(capture->lost);
	g_autofree char *share = text_percent(capture_lost_percent(capture, capture->lost), true);

	return g_strdup_printf(capture->lost_incomplete
				       ? ngettext("at least %s record (%s %% of all)",
						  "at least %s records (%s %% of all)",
						  capture->lost)
				       : ngettext("%s record (%s %% of all)",
						  "%s records (%s %% of all)", capture->lost),
			       count, share);
}

char *capture_describe_span(int64_t from_ns, int64_t to_ns)
{
	g_autofree char *from = text_bound(from_ns, false);
	g_autofree char *to = text_bound(to_ns, true);

	return g_strdup_printf(_("from %s s to %s s"), from, to);
}

/* Prints "  6 records (1.4 %): a perf ring was full (cpu1, perf-ring), from 0.463 s to 0.464 s". */
static void print_loss(const struct capture *capture, const struct capture_loss *loss,
		       struct out *out)
{
	g_autofree char *stream = text_escape(loss->stream && *loss->stream ? loss->stream : "-");
	g_autofree char *cause = text_escape(loss->cause);
	g_autofree char *words = text_escape(describe_cause(loss->cause));
	g_autofree char *count = text_count(loss->count);
	g_autofree char *bytes = text_bytes(loss->bytes);
	g_autofree char *share = text_percent(capture_lost_percent(capture, loss->count), true);
	g_autofree char *span = capture_describe_span(loss->from_ns, loss->to_ns);

	out_text(out, "  ");
	if (loss->count)
		out_printf(out, ngettext("%s record (%s %%", "%s records (%s %%", loss->count),
			   count, share);
	else
		out_text(out, _("an unknown number of records"));
	if (loss->bytes)
		out_printf(out, "%s%s", loss->count ? ", " : " (", bytes);
	if (loss->count || loss->bytes)
		out_char(out, ')');
	out_printf(out, ": %s (%s, %s), %s\n", words, stream, cause, span);
}

/* Sorts by count, greatest first, then by start. */
COMPARE_AT(compare_losses, struct capture_loss, ORDER(b->count, a->count),
	   ORDER(a->from_ns, b->from_ns))

void capture_print_losses(const struct capture *capture, struct out *out, uint64_t most)
{
	g_autoptr(GPtrArray) losses = g_ptr_array_new();
	uint64_t left_out = 0;
	g_autofree char *lost = NULL;
	bool is_unknown = false;
	guint shown;

	for (guint i = 0; i < capture->losses->len; i++) {
		struct capture_loss *loss = &g_array_index(capture->losses, struct capture_loss, i);

		if (!is_missed_tick(loss))
			g_ptr_array_add(losses, loss);
	}
	if (losses->len == 0)
		return;
	g_ptr_array_sort(losses, compare_losses);
	shown = most && most < losses->len ? (guint)most : losses->len;
	lost = capture_lost_text(capture);
	out_printf(out, _("Lost: %s:\n"), lost);
	for (guint i = 0; i < shown; i++)
		print_loss(capture, losses->pdata[i], out);
	for (guint i = shown; i < losses->len; i++) {
		is_unknown |= ((const struct capture_loss *)losses->pdata[i])->count == 0;
		left_out += capture_loss_least(losses->pdata[i]);
	}
	if (shown < losses->len) {
		g_autofree char *count = text_count(left_out);

		out_printf(out,
			   is_unknown ? _("  at least %s for %u other reasons ('profcapture info "
					  "--limit 0' lists them)\n")
				      : _("  %s for %u other reasons ('profcapture info --limit "
					  "0' lists them)\n"),
			   count, losses->len - shown);
	}
}

void capture_print_missed_ticks(const struct capture *capture, struct out *out, double least_pct)
{
	double expected = (double)capture->missed_ticks + (double)capture_samples(capture);
	int64_t from = INT64_MAX, to = INT64_MIN;

	ARRAY_EACH(const struct capture_loss, loss, capture->losses) {
		if (!is_missed_tick(loss))
			continue;
		from = MIN_OF(from, loss->from_ns);
		to = MAX_OF(to, loss->to_ns);
	}
	if (capture->missed_ticks && 100 * (double)capture->missed_ticks > least_pct * expected) {
		g_autofree char *count = text_count(capture->missed_ticks);
		g_autofree char *span = capture_describe_span(from, to);

		out_printf(out, _("Missed: %s timer ticks that the kernel never reported, %s.\n"),
			   count, span);
	}
}
