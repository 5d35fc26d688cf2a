/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session, its start - from the first message to the first sample
 *
 * CONFIG opens the capture, each CPU message maps rings, and START enables the side band and
 * requests a snapshot of /proc. The broker may already have enabled the side band and read the
 * snapshot. Until the snapshot arrives, records stay in the rings. Then it is applied, and sampling
 * is enabled; side-band records that are older than the snapshot are recognized by their time.
 * Mapping a large ring takes a millisecond. If the broker has enabled the side band, it keeps its
 * own mappings until STARTED. In this case the sample rings, like everything that the first sample
 * does not need, are set up only after the events have been enabled.
 */
#include "daemon/engine/session/session.h"

#include "arch/base.h"
#include "arch/regular-file.h"
#include "base/each.h"

#include <errno.h>
#include <glib.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>

static bool fail_message(GError **error, const char *what)
{
	g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
		    "The broker sent a message that contradicts itself: %s", what);
	return false;
}

/* Reads the wall clock between two readings of the monotonic clock; half of their difference is the
 * error. The segment begins with the side band, which may have been enabled earlier. */
static struct prof_segment begin_segment(const uint8_t *boot_id, uint64_t begin_ns)
{
	struct prof_segment segment = { 0 };
	uint64_t before = clock_now(), wall = clock_read(CLOCK_REALTIME), after = clock_now();

	memcpy(segment.boot_id, boot_id, sizeof(segment.boot_id));
	segment.wall_error_ns = (after - before + 1) / 2;
	segment.start_monotonic_ns = before + segment.wall_error_ns;
	segment.wall_ns = (int64_t)wall;
	if (begin_ns && begin_ns < segment.start_monotonic_ns) {
		segment.wall_ns -= (int64_t)(segment.start_monotonic_ns - begin_ns);
		segment.start_monotonic_ns = begin_ns;
	}
	return segment;
}

static bool open_capture(struct session *session, GError **error)
{
	struct prof_writer_options options = {
		.mode = session->config.append ? PROF_WRITE_APPEND : PROF_WRITE_NEW,
		.segment = begin_segment(session->boot_id, session->config.begin_ns),
	};
	struct stat status;

	session->begin_ns = options.segment.start_monotonic_ns;
	session->is_read_live = fstat(session->capture_fd, &status) == 0 &&
				!S_ISREG(status.st_mode);
	if (!session->is_read_live && regular_file_is_made_up(session->capture_fd)) {
		g_set_error(
			error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			"The capture is in a file system that stores nothing, such as /proc or /sys");
		return false;
	}
	if (!writer_open(session->writer, session->capture_fd, &options, error))
		return false;
	output_init(&session->output, session->writer, writer_first_epoch(session->writer));
	return true;
}

bool session_configure(struct session *session, struct channel_message *message, GError **error)
{
	struct message_config *config = &session->config;

	if (message->length < sizeof(*config))
		return fail_message(error, "CONFIG");
	memcpy(config, message->body, sizeof(*config));
	if (config->n_sources > ENGINE_MAX_SOURCES || config->n_targets > ENGINE_MAX_TARGETS ||
	    config->metadata_bytes != message->length - sizeof(*config) ||
	    message->n_fds != 3 + (size_t)(config->has_kallsyms != 0))
		return fail_message(error, "CONFIG");
	session->metadata = g_bytes_new(message->body + sizeof(*config), config->metadata_bytes);
	session->capture_fd = steal_fd(&message->fds[0]);
	session->stat_fd = steal_fd(&message->fds[1]);
	session->online_fd = steal_fd(&message->fds[2]);
	if (config->has_kallsyms)
		session->kallsyms_fd = steal_fd(&message->fds[3]);
	session->sampling.paused = config->paused;
	if (!open_capture(session, error))
		return false;
	for (size_t i = 0; i < SESSION_SOURCES; i++)
		if (session_sources[i].open)
			session_sources[i].open(session);
	session->state = SESSION_CONFIGURED;
	return true;
}

static bool map_samples(struct session *session, struct cpu *cpu, GError **error)
{
	if (!cpu->n_sources)
		return true;
	if (!cpu_map_samples(cpu, error))
		return false;
	ring_merge_add_ring(&session->merge, &cpu->samples, cpu, false);
	if (!session_watch(session, cpu->source_fds[0], "a perf ring", error))
		return false;
	if (!cpu->copy_pages)
		return true;
	ring_merge_add_ring(&session->merge, &cpu->copied, cpu, false);
	return session_watch(session, cpu_copies_fd(cpu), "a perf ring", error);
}

bool session_add_cpu(struct session *session, struct channel_message *message, GError **error)
{
	uint64_t now_ns = clock_now();
	struct message_cpu body;
	struct cpu *cpu;

	if (message->length != sizeof(body))
		return fail_message(error, "CPU");
	memcpy(&body, message->body, sizeof(body));
	if (body.cpu < ENGINE_MAX_CPUS && session->cpus.by_number[body.cpu])
		session_close_cpu(session, session->cpus.by_number[body.cpu], now_ns);
	cpu = cpus_open(&session->cpus, &body, message->fds, message->n_fds, error);
	if (!cpu)
		return false;
	ring_merge_add_ring(&session->merge, &cpu->side_band, cpu, true);
	if (!session_watch(session, cpu->side_band_fd, "a perf ring", error))
		return false;
	/* The broker keeps the sample rings mapped, so they can be mapped here later: see
	 * session_start_sampling(). */
	if (session->state == SESSION_CONFIGURED && session->config.begin_ns)
		return true;
	if (!map_samples(session, cpu, error))
		return false;
	if (session->state == SESSION_CONFIGURED)
		return true;
	now_ns = clock_now();
	/* Nothing was recorded on the CPU while it was offline. */
	if (cpu->gone_ns)
		loss_add_cpu(&session->losses, cpu->number, false, PROF_LOSS_CPU_OFFLINE, 1,
			     cpu->gone_ns, now_ns);
	cpu->gone_ns = 0;
	cpu->busy_ns = UINT64_MAX;
	switches_init(&cpu->switches, now_ns);
	if (session->stopped_sleeps)
		cpu_stop_sleeps(cpu);
	if (!cpu_enable_side_band(cpu, error))
		return false;
	return sampling_add_cpu(&session->sampling, cpu, error);
}

bool session_add_events(struct session *session, struct channel_message *message, GError **error)
{
	struct message_event event;

	if (message->length != message->n_fds * sizeof(event))
		return fail_message(error, "EVENTS");
	for (size_t i = 0; i < message->n_fds; i++) {
		memcpy(&event, message->body + i * sizeof(event), sizeof(event));
		if (!cpus_add_event(&session->cpus, &event, steal_fd(&message->fds[i]), error))
			return false;
		tasks_set_rank(&session->tasks, event.tid, event.rank);
	}
	return true;
}

bool session_add_counters(struct session *session, struct channel_message *message, GError **error)
{
	struct message_counter_file file;

	if (message->length != message->n_fds * sizeof(file))
		return fail_message(error, "COUNTERS");
	for (size_t i = 0; i < message->n_fds; i++) {
		memcpy(&file, message->body + i * sizeof(file), sizeof(file));
		if (!machine_counters_add(&session->machine, &file, steal_fd(&message->fds[i])))
			return fail_message(error, "COUNTERS");
	}
	return true;
}

bool session_add_fields(struct session *session, struct channel_message *message, GError **error)
{
	struct message_fields fields;

	if (message->length < sizeof(fields))
		return fail_message(error, "FIELDS");
	memcpy(&fields, message->body, sizeof(fields));
	if (fields.source >= session->events.n_sources || fields.n > ENGINE_MAX_FIELDS ||
	    message->length != sizeof(fields) + fields.n * sizeof(struct message_field))
		return fail_message(error, "FIELDS");
	event_source_set_fields(session->events.sources[fields.source],
				(const void *)(message->body + sizeof(fields)), fields.n);
	return true;
}

bool session_add_arguments(struct session *session, struct channel_message *message, GError **error)
{
	struct message_arguments arguments;

	if (message->length != sizeof(arguments))
		return fail_message(error, "ARGUMENTS");
	memcpy(&arguments, message->body, sizeof(arguments));
	if (arguments.source >= session->events.n_sources || arguments.n > PROBE_MAX_ARGUMENTS)
		return fail_message(error, "ARGUMENTS");
	arguments.filter[sizeof(arguments.filter) - 1] = '\0';
	session->events.arguments[arguments.source] = arguments;
	return true;
}

bool session_add_outputs(struct session *session, struct channel_message *message, GError **error)
{
	struct message_outputs body;

	if (message->length != sizeof(body))
		return fail_message(error, "OUTPUTS");
	memcpy(&body, message->body, sizeof(body));
	if (!cpus_add_outputs(&session->cpus, &body, message->fds, message->n_fds))
		return fail_message(error, "OUTPUTS");
	/* Repeat the requests for interpreters, because the broker can fulfill them only now. */
	if (body.is_last && session->interpreted)
		interpreted_look_again(session->interpreted);
	return true;
}

static void add_metadata(struct session *session, uint64_t time_ns, const char *key,
			 size_t key_bytes, const char *value, size_t value_bytes)
{
	output_add(&session->output, PROF_TABLE_METADATA,
		   (const struct prof_value[]){
			   [PROF_METADATA_TIME] = PROF_NUMBER(time_ns),
			   [PROF_METADATA_KEY] = PROF_BYTES(key, key_bytes),
			   [PROF_METADATA_VALUE] = PROF_BYTES(value, value_bytes),
		   });
}

void session_add_unread(struct session *session, const char *text)
{
	enum { MAX_TEXTS = 16 };
	static const char key[] = "interpreters.missing";
	g_autofree char *all = NULL;

	if (session->unread->len > MAX_TEXTS ||
	    g_strv_contains((const char *const *)session->unread->pdata, text))
		return;
	g_ptr_array_insert(session->unread, (int)session->unread->len - 1, g_strdup(text));
	all = g_strjoinv("\n", (char **)session->unread->pdata);
	add_metadata(session, session->output.now_ns, key, strlen(key), all, strlen(all));
}

bool session_receive_no_outputs(struct session *session, struct channel_message *message,
				GError **error)
{
	g_autofree char *text = g_strndup((const char *)message->body, message->length);

	session_add_unread(session, text);
	return true;
}

/* Writes the keys and values that the broker sent. Returns false if a length is wrong. */
static bool write_metadata(struct session *session, GError **error)
{
	struct message_metadata pair;
	const char *at, *key;
	gsize left;
	char number[16];
	uint64_t bytes;

	at = g_bytes_get_data(session->metadata, &left);
	while (left > 0) {
		if (left < sizeof(pair))
			return fail_message(error, "metadata");
		memcpy(&pair, at, sizeof(pair));
		left -= sizeof(pair);
		key = at + sizeof(pair);
		bytes = (uint64_t)pair.key_bytes + pair.value_bytes;
		if (bytes > left)
			return fail_message(error, "metadata");
		add_metadata(session, session->begin_ns, key, pair.key_bytes, key + pair.key_bytes,
			     pair.value_bytes);
		at = key + bytes;
		left -= bytes;
	}
	add_metadata(session, session->begin_ns, "clock", strlen("clock"), "monotonic",
		     strlen("monotonic"));
	snprintf(number, sizeof(number), "%u", session->cpus.all->len);
	add_metadata(session, session->begin_ns, "cpus", strlen("cpus"), number, strlen(number));
	if (session->cpus.all->len > 0 &&
	    ((const struct cpu *)g_ptr_array_index(session->cpus.all, 0))->wakeup_fd >= 0)
		add_metadata(session, session->begin_ns, "wakeups", strlen("wakeups"),
			     "sched:sched_wakeup", strlen("sched:sched_wakeup"));
	return true;
}

bool session_start(struct session *session, struct channel_message *message, GError **error)
{
	uint8_t online[ENGINE_MAX_CPUS];

	output_tick(&session->output, session->begin_ns);
	if (!write_metadata(session, error))
		return false;
	/* Write all sources of samples, in order, before the first sample, because readers use the
	 * first source by default, and also show sources without samples. */
	for (uint32_t i = 0; i < session->events.n_sources; i++)
		if (!session->events.sources[i]->message.off_cpu)
			output_need(&session->output, &session->events.sources[i]->row);
	cpus_read_online(&session->cpus, online);
	session->events.begin_ns = session->config.begin_ns ? session->config.begin_ns
							    : clock_now();
	session->queries.scan.begin_ns = session->events.begin_ns;
	for (guint i = 0; i < session->cpus.all->len; i++)
		if (!cpu_enable_side_band(g_ptr_array_index(session->cpus.all, i), error))
			return false;
	session->state = SESSION_SCANNING;
	proc_queries_scan(&session->queries);
	return true;
}

bool session_start_sampling(struct session *session, GError **error)
{
	session->start_ns = clock_now();
	for (size_t i = 0; i < SESSION_SOURCES; i++)
		if (session_sources[i].enable && !session_sources[i].enable(session, error))
			return false;
	POINTER_EACH(struct cpu, cpu, session->cpus.all)
		if (cpu->open && !cpu->samples.control && !map_samples(session, cpu, error))
			return false;
	if (session->kallsyms_fd >= 0)
		kernel_read_text(&session->kernel, session->kallsyms_fd);
	for (enum session_job job = JOB_CLOSE; job < SESSION_JOBS; job++)
		session->ran_ns[job] = session->start_ns;
	session->state = SESSION_RUNNING;
	channel_send(&session->channel, MESSAGE_STARTED, NULL, 0, NULL, 0);
	return true;
}
