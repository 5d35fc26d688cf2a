/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Summary - turns the engine's last message into D-Bus's summary
 *
 * A number outside its enum becomes "internal" as a reason, and "unknown" as the cause of a loss.
 * Text is converted to UTF-8, because D-Bus accepts nothing else.
 */
#include "config.h"

#include "daemon/broker/summary.h"

#include "arch/base.h"
#include "libcapture/prof-capture.h"

const char *summary_reason(uint32_t reason)
{
	static const char *const names[] = {
		[ENGINE_REASON_STOPPED] = "stopped",
		[ENGINE_REASON_CLIENT_GONE] = "client-gone",
		[ENGINE_REASON_TARGET_EXITED] = "target-exited",
		[ENGINE_REASON_DURATION] = "duration",
		[ENGINE_REASON_SIZE] = "size",
		[ENGINE_REASON_DISK_FULL] = "disk-full",
		[ENGINE_REASON_IO_ERROR] = "io-error",
		[ENGINE_REASON_INTERNAL] = "internal",
	};

	return reason < ARRAY_SIZE(names) ? names[reason] : "internal";
}

static const char *cause_name(uint32_t cause)
{
	static const char *const names[PROF_LOSS_CAUSES] = {
		[PROF_LOSS_PERF_RING] = "perf-ring",
		[PROF_LOSS_PERF_LOST_SAMPLES] = "perf-lost-samples",
		[PROF_LOSS_THROTTLED] = "throttled",
		[PROF_LOSS_TICKS_MISSED] = "ticks-missed",
		[PROF_LOSS_SIDE_BAND] = "side-band",
		[PROF_LOSS_CPU_OFFLINE] = "cpu-offline",
		[PROF_LOSS_LATE] = "late",
		[PROF_LOSS_RING_FULL] = "ring-full",
		[PROF_LOSS_RING_REENTRANT] = "ring-reentrant",
		[PROF_LOSS_RING_REFUSED] = "ring-refused",
		[PROF_LOSS_RING_CORRUPT] = "ring-corrupt",
		[PROF_LOSS_UNWIND_BACKLOG] = "unwind-backlog",
		[PROF_LOSS_WRITER_BACKLOG] = "writer-backlog",
		[PROF_LOSS_DISK_FULL] = "disk-full",
		[PROF_LOSS_IO_ERROR] = "io-error",
		[PROF_LOSS_QUOTA] = "quota",
		[PROF_LOSS_FILE_DAMAGE] = "file-damage",
	};

	return cause < ARRAY_SIZE(names) ? names[cause] : "unknown";
}

static GVariant *losses(const struct message_finished *finished)
{
	GVariantBuilder builder;

	g_variant_builder_init(&builder, G_VARIANT_TYPE("a(sstttt)"));
	for (uint32_t i = 0; i < finished->n_loss; i++) {
		const struct message_loss *loss = &finished->loss[i];
		g_autofree char *stream = g_strndup(loss->stream, sizeof(loss->stream));
		g_autofree char *valid = g_utf8_make_valid(stream, -1);

		g_variant_builder_add(&builder, "(sstttt)", valid, cause_name(loss->cause),
				      (guint64)loss->count, (guint64)loss->bytes,
				      (guint64)loss->from_ns, (guint64)loss->to_ns);
	}
	return g_variant_builder_end(&builder);
}

GVariant *summary_new(const struct message_finished *finished)
{
	const struct {
		const char *key;
		uint64_t value;
	} numbers[] = {
		{ "samples", finished->samples },
		{ "events", finished->events },
		{ "lost", finished->lost },
		{ "missed-ticks", finished->missed_ticks },
		{ "bytes", finished->bytes },
		{ "start-time", finished->start_ns },
		{ "stop-time", finished->stop_ns },
		{ "unwind-complete", finished->unwind_complete },
		{ "unwind-truncated", finished->unwind_truncated },
		{ "unwind-guessed", finished->unwind_guessed },
		{ "unwind-none", finished->unwind_none },
		{ "unwind-no-memory", finished->unwind_no_memory },
		{ "off-cpu-none", finished->slept_ns[PROF_STACK_NONE] },
		{ "off-cpu-copied", finished->slept_ns[PROF_STACK_COPIED] },
		{ "off-cpu-late", finished->slept_ns[PROF_STACK_LATE] },
		{ "off-cpu-shared-out", finished->slept_ns[PROF_STACK_SHARED] },
		{ "off-cpu-raced", finished->slept_ns[PROF_STACK_RACED] },
	};
	static const char *const excluded[ENGINE_EXCLUDED_KINDS] = {
		[ENGINE_EXCLUDED_STATIC] = "excluded-static",
		[ENGINE_EXCLUDED_SETUID] = "excluded-setuid",
		[ENGINE_EXCLUDED_OTHER_ARCH] = "excluded-other-arch",
		[ENGINE_EXCLUDED_UNREGISTERED] = "excluded-unregistered",
		[ENGINE_EXCLUDED_OTHER_LIBC] = "excluded-other-libc",
		[ENGINE_EXCLUDED_ENVIRONMENT] = "excluded-environment",
		[ENGINE_EXCLUDED_NO_DESCRIPTORS] = "excluded-no-descriptors",
		[ENGINE_EXCLUDED_NO_MEMORY] = "excluded-no-memory",
		[ENGINE_EXCLUDED_SANITIZER] = "excluded-sanitizer",
		[ENGINE_EXCLUDED_NEVER_ALLOCATED] = "excluded-never-allocated",
	};
	static const char *const off_cpu[ENGINE_OFF_CPU_KINDS] = { "none", "own", "full",
								   "stopped" };
	GVariantDict dict;

	g_variant_dict_init(&dict, NULL);
	g_variant_dict_insert(&dict, "off-cpu", "s",
			      off_cpu[finished->off_cpu % ENGINE_OFF_CPU_KINDS]);
	for (size_t i = 0; i < ARRAY_SIZE(excluded); i++)
		g_variant_dict_insert(&dict, excluded[i], "t", (guint64)finished->excluded[i]);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
		g_variant_dict_insert(&dict, numbers[i].key, "t", (guint64)numbers[i].value);
	g_variant_dict_insert(&dict, "error", "i", finished->error);
	g_variant_dict_insert_value(&dict, "loss", losses(finished));
	return g_variant_dict_end(&dict);
}

void summary_add_counters(GVariantDict *dict, const struct message_progress *counters)
{
	g_variant_dict_insert(dict, "samples", "t", (guint64)counters->samples);
	g_variant_dict_insert(dict, "events", "t", (guint64)counters->events);
	g_variant_dict_insert(dict, "lost", "t", (guint64)counters->lost);
	g_variant_dict_insert(dict, "bytes", "t", (guint64)counters->bytes);
}

GVariant *summary_unknown(const struct message_progress *counters, uint64_t start_ns,
			  uint64_t stop_ns)
{
	GVariantDict dict;

	g_variant_dict_init(&dict, NULL);
	summary_add_counters(&dict, counters);
	g_variant_dict_insert(&dict, "start-time", "t", (guint64)start_ns);
	g_variant_dict_insert(&dict, "stop-time", "t", (guint64)stop_ns);
	return g_variant_dict_end(&dict);
}
