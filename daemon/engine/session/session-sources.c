/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Session sources - everything that is recorded, in the order in which rows depend on each other
 *
 * To add a source, add a row to the table at the end of this file. The side band comes first,
 * because it identifies the process and mapping of later records. Its ring merge also reads the
 * samples, to merge both by time; samples that wait for unwind tables are written later.
 * Collectors are closed before the samples that wait for tables are finished, because a program may
 * wait for room in its ring until its collector is closed.
 * A client that stops a session usually waits at most a second, because each step at the end has a
 * deadline. Work that is left then is counted as lost, and the file is complete. Only allocation
 * records, and a slow reader or disk, get more time as long as they make progress.
 * Invariants: (1) samples are in the file or in its loss table, whichever step runs out of time
 *                 [test_stop]
 * Runs on the drain thread only.
 */
#include "daemon/engine/session/session.h"

#include "arch/base.h"
#include "base/each.h"

#include <glib.h>
#include <stdio.h>
#include <sys/epoll.h>

#define MS UINT64_C(1000000)
#define ROUND_MAX_NS (100 * MS) /* a longer round is interrupted, to read messages such as STOP */
#define EMIT_MAX_NS \
	(2 * MS) /* limit for writing rows, because producers may wait until rings are drained */
/* Deadlines, relative to end_ns: */
#define DRAIN_NS (300 * MS)  /* end of reading samples from the rings */
#define TABLES_NS (450 * MS) /* end of waiting for tables that samples need */
#define WALK_NS (600 * MS)   /* end of walking samples with the available tables */
/* Maximum time for turning allocation records into rows. Progress is reported to the broker;
 * without progress, the step ends earlier. */
#define ALLOCATIONS_NS (20000 * MS)
#define PIECE_NS (50 * MS)
#define STACKS_NS (100 * MS)     /* if stacks are copied: between two requests for other stacks */
#define LATE_VALUE_NS (100 * MS) /* time limit for an answer with values of processes */
#define MAX_STILL 10             /* consecutive pieces without progress end the step */

/* ---- The side band --------------------------------------------------------------------------- */

static bool query_again(struct process *process, void *data)
{
	return proc_queries_process(&((struct session *)data)->queries, process);
}

static void query(struct process *process, void *data)
{
	if (!process->queried && !process->kernel && (!process->cmdline || !process->maps_known))
		query_again(process, data);
}

static void request_rescan(void *data)
{
	((struct session *)data)->queries.rescan = true;
}

static void on_over_rate(void *data)
{
	struct session *session = data;
	char text[128];

	if (session->warned_rate)
		return;
	session->warned_rate = true;
	snprintf(text, sizeof(text),
		 "more than %" G_GUINT64_FORMAT " samples a second: the others are counted as lost",
		 session->events.max_rate);
	channel_warn(&session->channel, "quota", text);
}

static void receive_sources(struct session *session)
{
	struct events *events = &session->events;
	struct ticks *ticks = &session->sampling.ticks;

	events->n_sources = session->config.n_sources;
	for (uint32_t i = 0; i < events->n_sources; i++) {
		const struct message_source *source = &session->config.sources[i];

		if (source->same_as > 0 && source->same_as <= i) {
			events->sources[i] = events->sources[source->same_as - 1];
			row_ref(&events->sources[i]->row);
		} else {
			events->sources[i] = event_source_new(source, i + 1);
		}
		if (source->off_cpu == 1)
			session->cpus.copies = i + 1;
	}
	if (events->n_sources && session->config.sources[0].counts_ns)
		ticks->period_ns = session->config.sources[0].period;
	ticks->stat_fd = session->stat_fd;
	ticks->user_only = !session->config.kernel;
	ticks->by_task = session->config.by_task;
}

static void open_side_band(struct session *session)
{
	uint64_t now_ns = clock_now(); /* read first: the boot offset must not be negative */

	images_init(&session->images);
	kernel_init(&session->kernel, &session->images);
	tasks_init(&session->tasks, &session->output);
	if (!session->config.system)
		tasks_filter(&session->tasks, session->config.targets, session->config.n_targets,
			     session->config.children);
	cpus_init(&session->cpus, session->online_fd, session->config.by_task);
	session->events = (struct events){
		.cpus = &session->cpus,
		.tasks = &session->tasks,
		.images = &session->images,
		.kernel = &session->kernel,
		.samples = &session->samples,
		.losses = &session->losses,
		.parts = (session->config.has_stacks ? RECORD_STACKS : 0) |
			 (session->config.has_fields ? RECORD_FIELDS : 0),
		.build_ids = session->config.build_ids,
		.max_rate = session->config.max_rate,
		.query = query,
		.rescan = request_rescan,
		.over_rate = on_over_rate,
		.data = session,
	};
	session->queries.output = &session->output;
	session->queries.usage = &session->memory_usage;
	session->queries.scan = (struct scan){
		.tasks = &session->tasks,
		.images = &session->images,
		.kernel = &session->kernel,
		.boot_offset_ns = clock_read(CLOCK_BOOTTIME) - now_ns,
		.is_command = session->config.is_command,
	};
	ring_merge_init(&session->merge, &(struct ring_merge_handlers){ .record = events_record,
									.corrupt = events_corrupt,
									.finalize = events_finalize,
									.data = &session->events });
	session->sampling.cpus = &session->cpus;
	session->sampling.merge = &session->merge;
	session->sampling.losses = &session->losses;
	receive_sources(session);
}

/* Notes lost switches before the answers up to limit_ns are applied, because a stack in an answer
 * may belong to a later wait if the thread has run unseen since. */
static void note_lost_switches(struct session *session, uint64_t limit_ns)
{
	if (!session->events.waits || proc_queries_answered_ns(&session->queries) > limit_ns)
		return;
	POINTER_EACH(struct cpu, cpu, session->cpus.all)
		if (cpu_has_lost(cpu))
			waits_lose_switches(&session->waits, clock_now());
}

/* Returns false if the time for a round is over. */
static bool drain_until(struct session *session, uint64_t limit_ns, uint64_t now_ns)
{
	session->behind = !ring_merge_run_until(&session->merge, limit_ns, now_ns + ROUND_MAX_NS);
	if (session->behind)
		return false;
	note_lost_switches(session, limit_ns);
	if (!session_apply_answers(session, limit_ns, &session->failure))
		session_fail(session);
	return true;
}

static uint64_t drain_perf(struct session *session, uint64_t limit_ns, uint64_t now_ns)
{
	uint64_t answered_ns = proc_queries_answered_ns(&session->queries);

	/* Apply an answer as soon as possible, because if it has the stack of a wait, the rows of
	 * all later waits are held until then. */
	if ((answered_ns < limit_ns && !drain_until(session, answered_ns, now_ns)) ||
	    !drain_until(session, limit_ns, now_ns)) {
		ticks_drop(&session->sampling.ticks);
		sampling_compare_ticks(&session->sampling, UINT64_MAX);
		return session->merge.last_ns;
	}
	sampling_compare_ticks(&session->sampling, limit_ns);
	return limit_ns;
}

static bool is_perf_quiet(const struct session *session, uint64_t now_ns)
{
	return !session->behind && (session->sampling.is_repeated || !session->config.by_task);
}

/* The broker has the events open too, so closing a descriptor does not remove it from epoll. */
static void unwatch(struct session *session, int fd)
{
	(void)epoll_ctl(session->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void session_close_cpu(struct session *session, struct cpu *cpu, uint64_t now_ns)
{
	if (!cpu->open)
		return;
	cpu_disable(cpu);
	cpu_add_lost(cpu, &session->losses, now_ns);
	if (cpu->throttled_ns)
		loss_add_cpu(&session->losses, cpu->number, false, PROF_LOSS_THROTTLED, 1,
			     cpu->throttled_ns, now_ns);
	if (session->state > SESSION_CONFIGURED)
		switches_end(&cpu->switches, &session->tasks, cpu->number, now_ns);
	ring_merge_remove_owner(&session->merge, cpu);
	unwatch(session, cpu->side_band_fd);
	if (cpu->n_sources)
		unwatch(session, cpu->source_fds[0]);
	if (cpu->copy_pages)
		unwatch(session, cpu_copies_fd(cpu));
	cpu_close(cpu);
}

static void lose_cpu(struct session *session, struct cpu *cpu, uint64_t now_ns)
{
	ring_merge_run(&session->merge, now_ns - RING_MERGE_SLACK_NS);
	cpu->gone_ns = cpu->last_ns[1] ? cpu->last_ns[1] : now_ns;
	session_close_cpu(session, cpu, now_ns);
}

static void request_cpu(struct session *session, uint32_t number)
{
	struct message_cpu_request request = { .cpu = number };

	channel_send(&session->channel, MESSAGE_CPU_REQUEST, &request, sizeof(request), NULL, 0);
}

/* Closes the events of CPUs that went offline, and requests events for CPUs that came online.
 * Per-task events stay open when a CPU goes offline. A CPU that comes online later has no per-task
 * events. */
static void check_online(struct session *session, uint64_t now_ns)
{
	uint8_t online[ENGINE_MAX_CPUS];
	char text[128];

	if (!cpus_read_online(&session->cpus, online))
		return;
	sampling_add_missed(&session->sampling, now_ns);
	for (uint32_t i = 0; i < ENGINE_MAX_CPUS; i++) {
		struct cpu *cpu = session->cpus.by_number[i];

		if (!session->config.by_task && cpu && cpu->open && !online[i]) {
			lose_cpu(session, cpu, now_ns);
		} else if (!session->config.by_task && online[i] && (!cpu || !cpu->open)) {
			request_cpu(session, i);
		} else if (session->config.by_task && online[i] && !cpu) {
			snprintf(text, sizeof(text),
				 "CPU %u came online after the start; it is not recorded", i);
			channel_warn(&session->channel, "cpu-online", text);
			cpus_add_missing(&session->cpus, i, now_ns);
		}
	}
}

void session_check_cpus(struct session *session, uint64_t now_ns)
{
	check_online(session, now_ns);
	sampling_add_missed(&session->sampling, now_ns);
	for (guint i = 0; !session->config.by_task && i < session->cpus.all->len; i++) {
		struct cpu *cpu = g_ptr_array_index(session->cpus.all, i);

		if (!cpu_is_silent(cpu))
			continue;
		lose_cpu(session, cpu, now_ns);
		request_cpu(session, cpu->number);
	}
}

static void close_cpus(struct session *session)
{
	bool all_known = true;
	uint64_t now_ns;

	for (guint i = 0; i < session->cpus.all->len; i++)
		cpu_disable(g_ptr_array_index(session->cpus.all, i));
	session->stop_ns = now_ns = clock_now();
	if (session->state != SESSION_RUNNING)
		return;
	sampling_read_ticks(&session->sampling);
	session->events.until_ns = session->end_ns + DRAIN_NS;
	ring_merge_run(&session->merge, UINT64_MAX);
	note_lost_switches(session, UINT64_MAX);
	if (!session_apply_answers(session, UINT64_MAX,
				   session->failure ? NULL : &session->failure))
		session->reason = ENGINE_REASON_INTERNAL;
	for (guint i = 0; i < session->cpus.all->len; i++)
		cpu_add_lost(g_ptr_array_index(session->cpus.all, i), &session->losses, now_ns);
	sampling_add_missed(&session->sampling, now_ns);
	POINTER_EACH(struct cpu, cpu, session->cpus.all) {
		if (cpu->gone_ns)
			loss_add_cpu(&session->losses, cpu->number, false, PROF_LOSS_CPU_OFFLINE, 1,
				     cpu->gone_ns, now_ns);
		all_known = all_known && cpu->switches.tid != -1;
		session_close_cpu(session, cpu, now_ns);
	}
	if (session->events.waits)
		waits_end_all(&session->waits, now_ns);
	switches_note_all(&session->tasks, all_known, now_ns);
}

/* ---- Samples --------------------------------------------------------------------------------- */

static void request_image(struct image *image, const struct mapping *mapping, int32_t pid,
			  void *data)
{
	struct session *session = data;
	struct message_image_request request = {
		.image_id = image->row.id,
		.start = mapping->start,
		.end = mapping->end,
		.inode = image->mapped.inode,
		.inode_generation = image->mapped.inode_generation,
		.pid = pid,
		.path_bytes = strlen(image->path),
	};

	image->requested_pid = pid;
	channel_send(&session->channel, MESSAGE_IMAGE_REQUEST, &request, sizeof(request),
		     image->path, request.path_bytes);
}

/* Receives the identity of a requested file, and a descriptor if the file is to be read. */
bool session_receive_image(struct session *session, struct channel_message *message, GError **error)
{
	struct message_image answer;
	struct image *image;

	if (message->length != sizeof(answer))
		return true;
	memcpy(&answer, message->body, sizeof(answer));
	image = images_by_id(&session->images, answer.image_id);
	if (!image)
		return true;
	/* The broker opens only a few files at a time. The next hit requests the file again. */
	if (answer.error == EAGAIN) {
		image->requested = false;
		return true;
	}
	/* The next hit by another process requests the file again, unless opening the file timed
	 * out, because each request would wait for the same time. */
	if (answer.error && answer.error != ETIMEDOUT) {
		image_request_failed(image, answer.error == ESRCH ? IMAGE_ENDED : IMAGE_REFUSED);
		return true;
	}
	if (answer.error == 0) {
		image_opened(image, &answer);
		output_touch(&session->output, &image->row);
		interpreted_code_opened(&session->interpreted_code, image);
	}
	if (answer.error == 0 && message->n_fds == 1 &&
	    (session->samples.unwind || session->config.memory)) {
		unwind_tables_add(session->tables, image, steal_fd(&message->fds[0]));
		return true;
	}
	image->unwind_state = IMAGE_UNWIND_NONE;
	image->program = IMAGE_PROGRAM_NONE;
	return true;
}

/* Returns the name and version of an interpreter, such as "Ruby 3.1". */
static char *name_interpreter(const struct interp_runtime *runtime)
{
	static const char *const names[] = INTERP_FAMILY_NAMES;
	const enum interp_family family = runtime->family;

	return runtime->minor ? g_strdup_printf("%s %u.%u%s", names[family],
						interp_major(family, runtime->minor),
						interp_minor(family, runtime->minor),
						interp_suffix(family, runtime->minor))
			      : g_strdup_printf("this version of %s", names[family]);
}

static void note_unread(struct session *session, const struct interp_runtime *runtime)
{
	g_autofree char *name = name_interpreter(runtime), *text = NULL;

	text = g_strdup_printf("%s%s is not supported",
			       runtime->found == INTERP_OTHER_BUILD ? "this build of " : "", name);
	session_add_unread(session, text);
}

static void on_unread(const struct process *process, const struct interp_runtime *runtime,
		      void *data)
{
	struct session *session = data;
	g_autofree char *name = name_interpreter(runtime), *text = NULL;
	g_autofree char *read = name_interpreter(process->interpreter->runtime);

	if (runtime->found != INTERP_FOUND) {
		note_unread(session, runtime);
		return;
	}
	text = g_strdup_printf("%s is not read in a process that also has %s", name, read);
	session_add_unread(session, text);
}

static void note_full(struct session *session)
{
	if (interp_functions_are_full(session->interpreted_code.functions))
		session_add_unread(session,
				   "there is no room for more functions of interpreted programs");
}

static void note_code(struct session *session)
{
	if (session->interpreted && session->interpreted->is_hidden_by_code)
		session_add_unread(
			session,
			"code that PHP generates hides where some of its functions belong");
}

static void send_interpreted(struct session *session, struct message_interpreted body)
{
	body.sleeps = !session->stopped_sleeps;
	channel_send(&session->channel, MESSAGE_INTERPRETED, &body, sizeof(body), NULL, 0);
}

static void on_interpreter_expected(enum interp_family family, void *data)
{
	send_interpreted(data, (struct message_interpreted){ .expected = family });
}

static void on_interpreter(const struct process *process, void *data)
{
	struct session *session = data;
	const struct interp_runtime *runtime = process->interpreter->runtime;
	struct message_interpreted body = {
		.pid = process->pid,
		.family = runtime->family,
		.minor = runtime->minor,
	};

	interp_runtime_locate(runtime, process->interpreter_bias, body.addresses);
	if (runtime->found == INTERP_FOUND)
		send_interpreted(session, body);
	else
		note_unread(session, runtime);
}

static void open_samples(struct session *session)
{
	unsigned int parts = 0;

	interpreted_code_init(&session->interpreted_code, &session->output, &session->images);
	samples_init(&session->samples, &session->output, &session->tasks, &session->images,
		     &session->kernel);
	session->samples.keep_kernel = session->config.kernel;
	if (session->config.stack_bytes) {
		parts = UNWIND_TABLES_TABLE;
		samples_unwind(&session->samples, session->tables, session->config.stack_bytes);
		/* The sizes of frames are needed only if registers are unknown, as those of
		 * sleeping threads may be. */
		if (session->config.off_cpu)
			parts |= UNWIND_TABLES_FRAMES;
	}
	if (session->config.stack_bytes && session->config.interpreters) {
		parts |= UNWIND_TABLES_INTERPRETER;
		session->interpreted = g_new(struct interpreted, 1);
		interpreted_init(session->interpreted, &session->interpreted_code);
		session->interpreted->expected = on_interpreter_expected;
		session->interpreted->found = on_interpreter;
		session->interpreted->unread = on_unread;
		session->interpreted->data = session;
		session->samples.interpreted = session->interpreted;
	}
	unwind_tables_limit(session->tables, parts);
	session->samples.first_hit = request_image;
	session->samples.data = session;
}

static bool begin_sampling(struct session *session, GError **error)
{
	return sampling_begin(&session->sampling, error);
}

void session_receive_tables(struct session *session)
{
	if (unwind_tables_receive(session->tables) && session->interpreted)
		interpreted_look_again(session->interpreted);
}

/* Retries samples whose tables have arrived. */
static uint64_t drain_samples(struct session *session, uint64_t limit_ns, uint64_t now_ns)
{
	session_receive_tables(session);
	note_full(session);
	note_code(session);
	sample_queue_run(&session->samples.queue, now_ns);
	return limit_ns;
}

static bool are_samples_quiet(const struct session *session, uint64_t now_ns)
{
	return sample_queue_delay_ns(&session->samples.queue) == 0;
}

static void add_sample_stats(const struct session *session, struct message_finished *finished)
{
	finished->samples = session->events.n_samples;
	finished->unwind_complete = session->samples.complete;
	finished->unwind_truncated = session->samples.truncated;
	finished->unwind_guessed = session->samples.guessed;
	finished->unwind_none = session->samples.none;
	finished->unwind_no_memory = session->samples.no_memory;
}

static void lose_sample(const struct sample *sample, void *data)
{
	struct session *session = data;

	if (sample->wait) {
		waits_lose(&session->waits, sample->wait);
		return;
	}
	session->events.n_samples--;
	loss_add_cpu(&session->losses, sample->cpu, false, PROF_LOSS_UNWIND_BACKLOG, 1,
		     sample->time_ns, sample->time_ns);
}

/* Waits a limited time for tables that samples need, then walks the rest without them. */
static void finish_samples(struct session *session)
{
	bool answered = true;

	session->samples.queue.until_ns = session->end_ns + WALK_NS;
	sample_queue_run(&session->samples.queue, clock_now());
	while (sample_queue_delay_ns(&session->samples.queue) > 0 &&
	       clock_now() < session->end_ns + WALK_NS) {
		answered = answered && session_receive_answers(session) &&
			   clock_now() < session->end_ns + TABLES_NS;
		unwind_tables_receive(session->tables);
		sample_queue_run(&session->samples.queue, answered ? clock_now() : UINT64_MAX);
	}
	sample_queue_end(&session->samples.queue, lose_sample, session);
}

/* ---- Waits ----------------------------------------------------------------------------------- */

static void open_waits(struct session *session)
{
	if (!session->config.off_cpu)
		return;
	waits_init(&session->waits, &session->samples);
	session->events.waits = session->queries.waits = &session->waits;
}

/* Adapts how many stacks of waits are copied. After the first second, stops copying stacks for good
 * if threads wait too often. */
static void pace_waits(struct session *session, uint64_t now_ns)
{
	uint64_t elapsed_ns = now_ns - session->start_ns, sleeps = 0;
	uint32_t max_rate = session->config.off_cpu_max_rate;
	char text[200];
	double rate;

	POINTER_EACH(struct cpu, cpu, session->cpus.all) {
		cpu_pace_copies(cpu, now_ns);
		sleeps += cpu->n_sleeps;
	}
	if (session->checked_sleeps || max_rate == 0 || elapsed_ns < 1000 * MS)
		return;
	session->checked_sleeps = true;
	rate = (double)sleeps * 1e9 / (double)elapsed_ns;
	if (rate <= max_rate)
		return;
	session->stopped_sleeps = true;
	for (guint i = 0; i < session->cpus.all->len; i++)
		cpu_stop_sleeps(g_ptr_array_index(session->cpus.all, i));
	if (session->interpreted && session->interpreted->expected_families)
		send_interpreted(session, (struct message_interpreted){ 0 });
	snprintf(text, sizeof(text),
		 "threads wait %.0f times a second, and copying each stack would slow them down: "
		 "after the first second, waits have times but no stacks (--off-cpu records them)",
		 rate);
	channel_warn(&session->channel, "off-cpu", text);
}

static uint64_t drain_waits(struct session *session, uint64_t limit_ns, uint64_t now_ns)
{
	if (!session->events.waits)
		return limit_ns;
	pace_waits(session, now_ns);
	waits_write(&session->waits, now_ns);
	/* If stacks are copied, few need to be read, so they are requested less often. */
	if (!session->behind && !session->sampling.paused &&
	    (!session->cpus.copies || now_ns - session->queries.stacks_ns >= STACKS_NS))
		proc_queries_stacks(&session->queries, now_ns,
				    session->config.off_cpu_threshold_ns);
	return limit_ns;
}

static void close_waits(struct session *session)
{
	if (session->events.waits)
		waits_write(&session->waits, UINT64_MAX);
}

static void add_wait_stats(const struct session *session, struct message_finished *finished)
{
	if (!session->events.waits)
		return;
	finished->off_cpu = session->stopped_sleeps ? ENGINE_OFF_CPU_STOPPED : ENGINE_OFF_CPU_OWN;
	for (uint32_t i = 0; i < session->events.n_sources; i++)
		if (session->events.sources[i]->message.off_cpu && !session->stopped_sleeps)
			finished->off_cpu = ENGINE_OFF_CPU_FULL;
	static_assert(sizeof(finished->slept_ns) == sizeof(session->waits.slept_ns),
		      "the same sources");
	memcpy(finished->slept_ns, session->waits.slept_ns, sizeof(finished->slept_ns));
}

/* ---- Collectors ------------------------------------------------------------------------------ */

static void warn(const char *code, const char *text, void *data)
{
	channel_warn(&((struct session *)data)->channel, code, text);
}

static void open_collectors(struct session *session)
{
	collectors_init(&session->collectors,
			&(struct collectors_options){
				.output = &session->output,
				.tasks = &session->tasks,
				.losses = &session->losses,
				.images = &session->images,
				.code = session->config.interpreters ? &session->interpreted_code
								     : NULL,
				.request_image = request_image,
				.doorbells = session->doorbells,
				.ticks = session->tick_clock,
				.epoll_fd = session->epoll_fd,
				.session = session->config.session,
				.policy = session->config.policy,
				.query = query,
				.query_again = query_again,
				.warn = warn,
				.data = session,
			});
	if (session->sampling.paused)
		all_heaps_pause(&session->collectors.rows->heaps, true, 0);
}

/* A peer is served only after the first snapshot has been applied. */
bool session_add_peer(struct session *session, struct channel_message *message, GError **error)
{
	struct message_peer peer = { 0 };
	size_t least;

	if (message->length == sizeof(peer))
		memcpy(&peer, message->body, sizeof(peer));
	least = peer.protocol == PEER_REFUSED ? 0 : 1;
	if (message->length != sizeof(peer) || message->n_fds < least ||
	    message->n_fds > 2 * least) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The broker sent a collector that cannot be");
		return false;
	}
	if (session->collectors.is_finishing)
		return true;
	collectors_add_peer(&session->collectors, &peer,
			    message->n_fds > 0 ? steal_fd(&message->fds[0]) : -1,
			    message->n_fds == 2 ? steal_fd(&message->fds[1]) : -1, clock_now());
	return true;
}

static void load_collectors(struct session *session, uint64_t now_ns)
{
	collectors_drain(&session->collectors, now_ns);
}

static uint64_t drain_collectors(struct session *session, uint64_t limit_ns, uint64_t now_ns)
{
	struct collectors *collectors = &session->collectors;

	collectors_serve(collectors, limit_ns, now_ns);
	collectors_emit(collectors, limit_ns, clock_now() + EMIT_MAX_NS);
	return MIN_OF(limit_ns,
		      collectors->unfinished ? collectors->emitted_ns : collectors->bound_ns);
}

static bool are_collectors_quiet(const struct session *session, uint64_t now_ns)
{
	return collectors_are_quiet(&session->collectors, now_ns);
}

static void finish_allocations(struct session *session)
{
	uint64_t left, before = UINT64_MAX, now_ns = clock_now();
	unsigned int still = 0;

	while (now_ns < session->end_ns + ALLOCATIONS_NS && still < MAX_STILL) {
		left = collectors_finish_some(&session->collectors, now_ns + PIECE_NS);
		if (left == 0)
			break;
		still = left < before ? 0 : still + 1;
		if (still > 0)
			g_usleep(PIECE_NS / 1000 / MAX_STILL);
		before = left;
		now_ns = clock_now();
		output_tick(&session->output, now_ns);
		session_notify_progress(session);
	}
}

static void close_collectors(struct session *session)
{
	/* Targets may have exited before the broker has read their requests. */
	while (collectors_miss_requests(&session->collectors) &&
	       clock_now() < session->end_ns + DRAIN_NS && session_receive_answers(session))
		continue;
	finish_allocations(session);
	collectors_finish(&session->collectors,
			  MAX_OF(session->end_ns + TABLES_NS, clock_now() + PIECE_NS));
}

/* ---- Memory ---------------------------------------------------------------------------------- */

static void on_program(struct process *process, const struct mapping *mapping, void *data)
{
	heap_excluded_program(&((struct session *)data)->excluded, process, mapping);
}

/* The processes with expected allocations are known after the first /proc snapshot. */
static bool enable_excluded(struct session *session, GError **error)
{
	const struct message_config *config = &session->config;
	bool all = config->memory_pid == 0;

	if (!config->memory)
		return true;
	heap_excluded_begin(&session->excluded, &session->tasks,
			    all ? config->targets : &config->memory_pid,
			    all ? config->n_targets : 1);
	session->excluded.request_image = request_image;
	session->excluded.data = session;
	session->events.program = on_program;
	return true;
}

static uint64_t drain_excluded(struct session *session, uint64_t limit_ns, uint64_t now_ns)
{
	heap_excluded_run(&session->excluded, now_ns, limit_ns);
	return limit_ns;
}

static bool is_excluded_quiet(const struct session *session, uint64_t now_ns)
{
	return !heap_excluded_waits(&session->excluded);
}

static void add_excluded_stats(const struct session *session, struct message_finished *finished)
{
	memcpy(finished->excluded, session->excluded.counts, sizeof(finished->excluded));
}

static void close_excluded(struct session *session)
{
	/* The last records may have requested program files. */
	while (heap_excluded_waits(&session->excluded) &&
	       clock_now() < session->end_ns + TABLES_NS && session_receive_answers(session))
		unwind_tables_receive(session->tables);
	heap_excluded_finish(&session->excluded, session->stop_ns);
}

static bool enable_usage(struct session *session, GError **error)
{
	if (session->config.memory || session->config.process_counters)
		memory_usage_init(&session->memory_usage, &session->tasks,
				  &session->collectors.rows->last_counter,
				  &(struct memory_usage_options){
					  .memory = session->config.memory,
					  .counters = session->config.process_counters,
					  .is_command = session->config.is_command,
				  },
				  session->start_ns);
	return true;
}

static void open_machine(struct session *session)
{
	machine_counters_init(&session->machine, &session->output,
			      &session->collectors.rows->last_counter);
}

/* Writes the values of processes and of the machine in the order of their times, because a row that
 * is older than the last row would get the last row's time, and rates would be wrong. */
static void write_values(struct session *session, uint64_t limit_ns)
{
	struct memory_usage *usage = &session->memory_usage;
	struct machine_counters *machine = &session->machine;
	uint64_t usage_ns, machine_ns;

	while (usage_ns = memory_usage_next_ns(usage),
	       machine_ns = machine_counters_next_ns(machine),
	       MIN_OF(usage_ns, machine_ns) <= MIN_OF(limit_ns, UINT64_MAX - 1))
		if (usage_ns <= machine_ns)
			memory_usage_write(usage, MIN_OF(machine_ns, limit_ns));
		else
			machine_counters_write(machine, MIN_OF(usage_ns, limit_ns));
}

/* When a value changes, its last unchanged reading is written first. So each reading is held until
 * the next reading, unless collectors have already written later values. */
static uint64_t drain_values(struct session *session, uint64_t limit_ns, uint64_t now_ns)
{
	const struct memory_usage *usage = &session->memory_usage;
	const struct machine_counters *machine = &session->machine;
	uint64_t wait_ns = 0;

	if (usage->tasks && machine->files->len)
		wait_ns = MAX_OF(usage->interval_ns, machine->interval_ns) + LATE_VALUE_NS;
	write_values(session,
		     MIN_OF(limit_ns, MAX_OF(limit_ns - MIN_OF(wait_ns, limit_ns),
					     session->output.last_ns[PROF_TABLE_COUNTER_VALUE])));
	return limit_ns;
}

/* Reads the machine's counters once more, so that sums include everything up to the end. */
static void close_values(struct session *session)
{
	if (session->state == SESSION_RUNNING && !session->sampling.paused &&
	    machine_counters_due_ns(&session->machine) != UINT64_MAX)
		machine_counters_read(&session->machine, clock_now());
	write_values(session, UINT64_MAX);
}

/* ---- The table ------------------------------------------------------------------------------- */

const struct source session_sources[SESSION_SOURCES] = {
	{
		.name = "side band",
		.open = open_side_band,
		.drain = drain_perf,
		.is_quiet = is_perf_quiet,
		.close = close_cpus,
	},
	{
		.name = "collectors",
		.open = open_collectors,
		.load = load_collectors,
		.drain = drain_collectors,
		.is_quiet = are_collectors_quiet,
		.close = close_collectors,
	},
	{
		.name = "samples",
		.open = open_samples,
		.enable = begin_sampling,
		.drain = drain_samples,
		.is_quiet = are_samples_quiet,
		.stats = add_sample_stats,
		.close = finish_samples,
	},
	{
		.name = "waits",
		.open = open_waits,
		.drain = drain_waits,
		.stats = add_wait_stats,
		.close = close_waits,
	},
	{
		.name = "processes without allocations",
		.enable = enable_excluded,
		.drain = drain_excluded,
		.is_quiet = is_excluded_quiet,
		.stats = add_excluded_stats,
		.close = close_excluded,
	},
	{
		.name = "counters of processes and of the machine",
		.open = open_machine,
		.enable = enable_usage,
		.drain = drain_values,
		.close = close_values,
	},
};
