/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Events - applies each record of the rings
 *
 * Called for every record of every ring in time order. Records of the side band keep tasks,
 * mappings and kernel code up to date. Samples become rows with the state at their time. Records
 * that the kernel lost are counted, as are samples above the session's rate, and samples for which
 * a session has no time at its end.
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/events.h"

#include "arch/base.h"
#include "arch/probe-filter.h"
#include "base/clock.h"

#include <sys/sysmacros.h>

/* Returns the thread of a sample. A task that has nearly exited has no thread number any more; its
 * sample belongs to the thread that was last switched to on that CPU. */
static struct thread *thread_of(struct events *events, const struct cpu *cpu,
				const struct record *record)
{
	struct thread *thread;

	if (record->tid < 0 && cpu->switches.thread)
		return cpu->switches.thread;
	thread = tasks_thread(events->tasks, record->tid);
	if (thread || events->tasks->filtered)
		return thread;
	if (record->tid > 0)
		return tasks_found(events->tasks, record->pid, record->tid, record->time_ns);
	thread = tasks_found(events->tasks, record->tid, record->tid, record->time_ns);
	g_strlcpy(thread->comm, record->tid == 0 ? "swapper" : "[exiting]", sizeof(thread->comm));
	thread->process->kernel = true;
	return thread;
}

/* Returns the position of the source that the record's event belongs to, or -1. */
static int find_source(const struct events *events, const struct cpu *cpu,
		       const struct record *record)
{
	const struct task_event *event;

	if (!events->cpus->events)
		return cpu_find_source(cpu, record->event_id);
	event = cpus_find_event(events->cpus, record->event_id);
	return event ? (int)event->message.position - 1 : -1;
}

/* Counts a sample, and returns whether its second already had max_rate samples. */
static bool is_over_rate(struct events *events, uint64_t time_ns)
{
	uint64_t second = time_ns / 1000000000;

	if (events->max_rate == 0)
		return false;
	if (second > events->second) {
		events->second = second;
		events->n_in_second = 0;
	}
	if (events->n_in_second++ == events->max_rate)
		events->over_rate(events->data);
	return events->n_in_second > events->max_rate;
}

/* Returns whether the time for records is over. Reads the clock only for every 16th record. */
static bool is_too_late(struct events *events)
{
	if (events->until_ns && !events->too_late && events->n_handled++ % 16 == 0)
		events->too_late = clock_now() >= events->until_ns;
	return events->too_late;
}

/* Parses a record that a BPF program wrote: a sample, a code object, or the interpreter's frames of
 * a sleeping thread. */
static bool parse_output(struct events *events, const struct cpu *cpu,
			 const struct perf_event_header *header, struct record *ret_record)
{
	struct interp_chain *chain = &events->samples->interpreted->chain;

	if (record_event_id(header) == cpu->code_id)
		return record_parse_code(header, ret_record);
	if (!record_parse(header, events->parts | RECORD_FIELDS, ret_record) ||
	    !interp_record_sample(ret_record->sample.raw, ret_record->sample.raw_bytes, chain))
		return false;
	ret_record->event_id = chain->event;
	ret_record->sample.period = chain->period;
	ret_record->sample.is_interpreted = true;
	return true;
}

static bool is_output(const struct cpu *cpu, const struct perf_event_header *header)
{
	const uint64_t id =
		cpu->sample_id && header->type == PERF_RECORD_SAMPLE ? record_event_id(header) : 0;

	return id && (id == cpu->sample_id || id == cpu->code_id);
}

static void on_code(struct events *events, struct cpu *cpu, const struct record *record)
{
	struct thread *thread = thread_of(events, cpu, record);
	const uint8_t *bytes = record->sample.raw;
	size_t size = record->sample.raw_bytes;

	if (!thread || size < sizeof(uint32_t))
		return;
	if (load_le32(bytes) == INTERP_RECORD_SLEEP && events->waits)
		waits_interpret(events->waits, thread, bytes, size);
	else
		interpreted_add_code(events->samples->interpreted, thread->process, bytes, size);
}

/* Reads the arguments of a static probe. Converts an integer to a double if the argument is a
 * double at another place of the probe. */
static void read_arguments(const struct events *events, int position, const struct record *record,
			   struct probe_value values[PROBE_MAX_ARGUMENTS])
{
	const struct event_source *source = events->sources[position];
	const struct message_arguments *arguments = &events->arguments[position];
	const struct probe_state state = {
		.registers = record->sample.registers,
		.stack = record->sample.stack,
		.stack_bytes = record->sample.stack_bytes,
	};

	for (unsigned i = 0; i < PROBE_MAX_ARGUMENTS; i++) {
		const struct probe_argument *argument = &arguments->arguments[i];
		double number;

		values[i] = (struct probe_value){ .unread = PROBE_UNREAD_ABSENT };
		if (i < arguments->n)
			values[i] = probe_argument_read(regs_get(REGS_NATIVE), argument, &state);
		if (i >= source->n_fields || source->fields[i].kind != PROF_ARGUMENT_DOUBLE ||
		    argument->is_float || values[i].unread)
			continue;
		number = argument->is_signed ? (double)(int64_t)values[i].value
					     : (double)values[i].value;
		memcpy(&values[i].value, &number, sizeof(number));
	}
}

/* Returns whether a filter excludes a sample. If the result depends on an argument that could not
 * be read, the sample is kept, and its row shows that the argument is missing. */
static bool is_excluded(const struct events *events, int position, const struct probe_value *values)
{
	const struct message_arguments *arguments = &events->arguments[position];
	const struct event_source *source = events->sources[position];
	struct probe_number numbers[PROBE_MAX_ARGUMENTS];
	unsigned n = (unsigned)MIN_OF(source->n_fields, (size_t)PROBE_MAX_ARGUMENTS);

	if (!arguments->filter[0])
		return false;
	for (unsigned i = 0; i < n; i++)
		numbers[i] = (struct probe_number){
			.value = values[i].value,
			/* at this place of the probe; the type may differ at its other places */
			.is_signed = i < arguments->n ? arguments->arguments[i].is_signed
						      : source->fields[i].is_signed,
			.is_float = source->fields[i].kind == PROF_ARGUMENT_DOUBLE,
			.is_known = !values[i].unread,
		};
	return probe_filter_test(arguments->filter, numbers, n, NULL) == PROBE_FILTER_NO;
}

static void on_sample(struct events *events, struct cpu *cpu, const struct record *record)
{
	int position = find_source(events, cpu, record);
	struct thread *thread = thread_of(events, cpu, record);
	struct probe_value *values = NULL;
	struct process *process;
	struct event_source *source;

	switches_seen(&cpu->switches, events->tasks, record->tid, events->begin_ns);
	if (position < 0 || (uint32_t)position >= events->n_sources)
		return;
	source = events->sources[position];
	if (thread && record->sample.cgroup)
		thread->cgroup = record->sample.cgroup;
	if (source->message.off_cpu) {
		if (is_too_late(events) || !thread || !events->waits)
			return;
		if (source->message.off_cpu > 1)
			waits_copy_waker(events->waits, cpu->number, thread, record);
		else
			waits_copy(events->waits, thread, record);
		return;
	}
	if (position == 0)
		cpu->sampled_ns += record->sample.period;
	if (!thread)
		return;
	if (position == 0)
		cpu->sampled_here_ns += record->sample.period;
	if (source->message.kind == PROF_SOURCE_PROBE && source->n_fields > 0) {
		values = samples_values(events->samples);
		read_arguments(events, position, record, values);
		if (is_excluded(events, position, values))
			return;
	}
	if (is_too_late(events) || is_over_rate(events, record->time_ns)) {
		loss_add_cpu(events->losses, cpu->number, false,
			     events->too_late ? PROF_LOSS_UNWIND_BACKLOG : PROF_LOSS_QUOTA, 1,
			     record->time_ns, record->time_ns);
		return;
	}
	process = thread->process;
	if (!process->queried && !process->kernel && (!process->cmdline || !process->maps_known))
		events->query(process, events->data);
	if (events->samples->interpreted)
		interpreted_look(events->samples->interpreted, process);
	samples_add(events->samples, record, thread, &source->row, values);
	events->n_samples++;
}

static void on_mmap(struct events *events, struct cpu *cpu, const struct record *record)
{
	const struct record_mmap *mmap = &record->mmap;
	struct process *process = tasks_process(events->tasks, record->pid);
	struct image_key key = {
		.path = mmap->name,
		.path_bytes = strlen(mmap->name),
		.is_shared = mmap->is_shared,
		.start = mmap->start,
	};
	struct mapping mapping = {
		.start = mmap->start,
		.end = mmap->start + mmap->length,
		.file_offset = mmap->file_offset,
		.time_ns = record->time_ns,
	};

	/* The kernel's flag for build-id or inode leaks from one event into another's records
	 * (kernel/events/core.c does not reset it), so use what was requested. */
	if (events->build_ids && mmap->build_id_bytes) {
		key.build_id = mmap->build_id;
		key.build_id_bytes = mmap->build_id_bytes;
	} else {
		key.dev = makedev(mmap->dev_major, mmap->dev_minor);
		key.inode = mmap->inode;
		key.inode_generation = mmap->inode_generation;
	}
	if (!process || !mmap->executable || process->maps_ns > record->time_ns ||
	    record->cpumode == PERF_RECORD_MISC_KERNEL)
		return;
	mapping.image = images_of_mapping(events->images, &key);
	if (mapping.image || !process->exe)
		maps_insert(&process->maps, &mapping);
	else
		maps_insert_anonymous(&process->maps, &mapping, process->exe);
	/* Write the row of this image now. No sample hits it, because programs map a dump only to
	 * announce its path. */
	if (mapping.image && mapping.image->is_jit_dump)
		output_need(events->tasks->output, &mapping.image->row);
	/* The first file that exec maps is the program. */
	if (!process->exe && mapping.image && mapping.image->kind == PROF_IMAGE_FILE) {
		process_set_exe(process, mapping.image->path, strlen(mapping.image->path));
		output_touch(events->tasks->output, &process->row);
		process->program = mapping.image;
		if (events->program)
			events->program(process, &mapping, events->data);
	}
}

static void on_comm(struct events *events, struct cpu *cpu, const struct record *record)
{
	if (!record->comm.exec)
		tasks_comm(events->tasks, record->tid, record->comm.name, record->time_ns);
	else if (tasks_exec(events->tasks, record->pid, record->comm.name, record->time_ns))
		switches_exec(&cpu->switches, events->tasks, cpu->number, record->tid,
			      record->time_ns);
}

static void on_fork(struct events *events, struct cpu *cpu, const struct record *record)
{
	struct thread *child;

	tasks_fork(events->tasks, &record->task, record->time_ns);
	child = tasks_thread(events->tasks, record->task.tid);
	if (child && child->start_ns == record->time_ns && !child->has_state)
		switches_note(events->tasks, child, PROF_SWITCH_RUNNABLE, record->time_ns);
}

static void on_task_exit(struct events *events, struct cpu *cpu, const struct record *record)
{
	tasks_exit(events->tasks, &record->task, record->time_ns);
	if (events->cpus->events)
		switches_exit(&cpu->switches, events->tasks, cpu->number, record->tid,
			      record->time_ns);
}

/* Returns the thread `tid`. Usually this is the thread that entered the CPU last, which needs no
 * look-up. */
static struct thread *thread_on(const struct events *events, const struct cpu *cpu, int32_t tid)
{
	struct thread *thread = cpu->switches.tid == tid ? cpu->switches.thread : NULL;

	return thread && !thread->exit_ns ? thread : tasks_thread(events->tasks, tid);
}

/* Begins or ends the wait of the thread that leaves or enters the CPU. */
static void note_wait(struct events *events, const struct cpu *cpu,
		      const struct switch_event *event)
{
	struct thread *thread = thread_on(events, cpu, event->tid);

	if (!thread)
		return;
	if (!event->out)
		waits_end(events->waits, thread, event->time_ns);
	else if (event->preempted)
		waits_drop(events->waits, thread);
	else
		waits_begin(events->waits, thread, event->cpu, event->time_ns);
}

static void on_sleep(struct events *events, struct cpu *cpu, const struct record *record)
{
	struct thread *thread = thread_on(events, cpu, record->tid);

	if (!events->waits || events->too_late)
		return;
	cpu->n_sleeps++;
	if (!thread)
		return;
	if (events->samples->interpreted)
		interpreted_look(events->samples->interpreted, thread->process);
	waits_sleep(events->waits, thread, record);
}

/* Counts lost records of one of the CPU's rings. */
static void lose(struct events *events, const struct cpu *cpu, bool side_band,
		 enum prof_loss_cause cause, uint64_t count, uint64_t from_ns, uint64_t to_ns)
{
	loss_add_cpu(events->losses, cpu->number, side_band, cause, count, from_ns, to_ns);
	if (side_band && events->waits)
		waits_lose_switches(events->waits, to_ns);
}

static void on_switch(struct events *events, struct cpu *cpu, const struct record *record)
{
	const struct switch_event event = {
		.time_ns = record->time_ns,
		.cpu = record->cpu,
		.tid = record->tid,
		.other_tid = record->switched.other_tid,
		.out = record->switched.out,
		.preempted = record->switched.preempted,
	};

	if (is_too_late(events)) {
		lose(events, cpu, true, PROF_LOSS_SIDE_BAND, 1, record->time_ns, record->time_ns);
		return;
	}
	if (cpu->switches.start_ns == 0)
		cpu->switches.start_ns = MIN_OF(events->begin_ns, record->time_ns);
	if (events->waits && record->tid > 0)
		note_wait(events, cpu, &event);
	switches_apply(&cpu->switches, events->tasks, &event);
}

static void on_wakeup(struct events *events, struct cpu *cpu, const struct record *record)
{
	struct thread *thread = tasks_thread(events->tasks, record->woken_tid);

	/* Ignore wake-ups of a thread that is still on its CPU, because it keeps running. */
	if (thread && !thread->exit_ns && thread->has_state && thread->state == PROF_SWITCH_WAIT &&
	    !events->too_late) {
		if (events->waits)
			waits_end(events->waits, thread, record->time_ns);
		switches_note(events->tasks, thread, PROF_SWITCH_RUNNABLE, record->time_ns);
	}
}

static void on_waking(struct events *events, struct cpu *cpu, const struct record *record)
{
	struct thread *woken = tasks_thread(events->tasks, record->waking.tid);

	cpu->n_wakings += !record->waking.in_interrupt;
	if (events->waits && !events->too_late)
		waits_wake(events->waits, cpu->number, woken,
			   record->waking.in_interrupt ? NULL : thread_of(events, cpu, record),
			   record);
}

static void on_lost_samples(struct events *events, struct cpu *cpu, const struct record *record)
{
	loss_add_cpu(events->losses, cpu->number, false, PROF_LOSS_PERF_LOST_SAMPLES, record->lost,
		     cpu->last_ns[0], record->time_ns);
}

/* Returns whether the record's event copies stacks. A lost copy is not a lost sample. */
static bool is_copy(const struct events *events, const struct cpu *cpu, const struct record *record)
{
	return cpu->copies && find_source(events, cpu, record) + 1 >= (int)cpu->copies;
}

static void on_throttle(struct events *events, struct cpu *cpu, const struct record *record)
{
	if (cpu->throttled_ns == 0 && !is_copy(events, cpu, record))
		cpu->throttled_ns = record->time_ns;
}

/* Counts the samples lost by throttling. Their number is known if the period is a time; otherwise
 * counts one. */
static void on_unthrottle(struct events *events, struct cpu *cpu, const struct record *record)
{
	int position = find_source(events, cpu, record);
	const struct message_source *source;
	uint64_t count = 1, paused_ns;

	if (cpu->throttled_ns == 0 || position < 0 || (uint32_t)position >= events->n_sources ||
	    is_copy(events, cpu, record))
		return;
	source = &events->sources[position]->message;
	paused_ns = record->time_ns - MIN_OF(cpu->throttled_ns, record->time_ns);
	if (source->counts_ns && source->period) {
		count = MAX_OF(paused_ns / source->period, UINT64_C(1));
		/* Do not count these ticks as missed as well. */
		cpu->sampled_ns += paused_ns;
		cpu->sampled_here_ns += paused_ns;
	}
	loss_add_cpu(events->losses, cpu->number, false, PROF_LOSS_THROTTLED, count,
		     cpu->throttled_ns, record->time_ns);
	cpu->throttled_ns = 0;
}

static void on_ksymbol(struct events *events, struct cpu *cpu, const struct record *record)
{
	const struct record_ksymbol *symbol = &record->ksymbol;

	if (symbol->unregister)
		kernel_remove_region(events->kernel, symbol->address);
	else
		kernel_add_region(events->kernel, PROF_IMAGE_BPF, symbol->name,
				  strlen(symbol->name), symbol->address, symbol->length);
}

static void on_cgroup(struct events *events, struct cpu *cpu, const struct record *record)
{
	tasks_set_cgroup(events->tasks, record->cgroup.id, record->cgroup.path,
			 strlen(record->cgroup.path));
}

static void (*const handlers[])(struct events *, struct cpu *, const struct record *) = {
	[RECORD_SAMPLE] = on_sample,
	[RECORD_MMAP] = on_mmap,
	[RECORD_COMM] = on_comm,
	[RECORD_FORK] = on_fork,
	[RECORD_EXIT] = on_task_exit,
	[RECORD_SWITCH] = on_switch,
	[RECORD_LOST_SAMPLES] = on_lost_samples,
	[RECORD_THROTTLE] = on_throttle,
	[RECORD_UNTHROTTLE] = on_unthrottle,
	[RECORD_KSYMBOL] = on_ksymbol,
	[RECORD_CGROUP] = on_cgroup,
	[RECORD_WAKEUP] = on_wakeup,
	[RECORD_SLEEP] = on_sleep,
	[RECORD_WAKING] = on_waking,
	[RECORD_CODE] = on_code,
};

/* A thread may have two sets of per-task events; records of the incomplete set are duplicates. */
static bool is_duplicate(const struct events *events, const struct record *record)
{
	const struct task_event *event =
		events->cpus->events ? cpus_find_event(events->cpus, record->event_id) : NULL;
	struct thread *thread = event && record->tid > 0 ? tasks_thread(events->tasks, record->tid)
							 : NULL;

	return thread && !thread_accepts(thread, event->message.rank);
}

/* Parses a sample in the ring of the side band: a wake-up, a sleep or a waker. */
static bool parse_side_sample(const struct events *events, const struct cpu *cpu,
			      const struct perf_event_header *header, struct record *ret_record)
{
	uint64_t id = record_event_id(header);
	const struct task_event *event = cpus_find_event(events->cpus, id);

	if (event ? event->message.position == ENGINE_POSITION_SLEEPS
		  : cpu->sleep_id != 0 && id == cpu->sleep_id)
		return record_parse_sleep(header, ret_record);
	if (cpu->waking_id != 0 && id == cpu->waking_id)
		return record_parse_waking(header, ret_record);
	return record_parse_wakeup(header, ret_record);
}

void events_record(const struct ring_merge_input *input, bool late, void *data)
{
	struct events *events = data;
	struct cpu *cpu = input->owner;
	struct record record;
	bool side_band = input->side_band;
	bool is_side_sample = side_band && input->record->type == PERF_RECORD_SAMPLE;

	if (is_side_sample ? !parse_side_sample(events, cpu, input->record, &record)
	    : is_output(cpu, input->record)
		    ? !parse_output(events, cpu, input->record, &record)
		    : !record_parse(input->record, events->parts, &record)) {
		lose(events, cpu, side_band, PROF_LOSS_RING_CORRUPT, 1, input->time_ns,
		     input->time_ns);
		return;
	}
	if (late)
		loss_add_cpu(events->losses, cpu->number, side_band, PROF_LOSS_LATE, 1,
			     record.time_ns, record.time_ns);
	/* Pending samples are unwound in batches with the state at their time. Finalize them before
	 * any record that may change this state. Records of the kinds below do not change it. */
	if (record.kind != RECORD_SAMPLE && record.kind != RECORD_SWITCH &&
	    record.kind != RECORD_WAKEUP && record.kind != RECORD_SLEEP &&
	    record.kind != RECORD_WAKING && record.kind != RECORD_CODE)
		samples_finalize(events->samples);
	if (record.kind == RECORD_LOST) {
		uint64_t lost = side_band ? record.lost
					  : cpu_lost_samples(cpu, input->ring, record.lost);

		cpu->reported_lost[side_band] += lost;
		if (lost > 0)
			lose(events, cpu, side_band,
			     side_band ? PROF_LOSS_SIDE_BAND : PROF_LOSS_PERF_RING, lost,
			     cpu->last_ns[side_band], record.time_ns);
		if (side_band)
			events->rescan(events->data);
	} else if (record.kind < ARRAY_SIZE(handlers) && handlers[record.kind] &&
		   !is_duplicate(events, &record)) {
		handlers[record.kind](events, cpu, &record);
	}
	if (input->ring != &cpu->copied)
		cpu->last_ns[side_band] = record.time_ns;
}

void events_finalize(void *data)
{
	samples_finalize(((struct events *)data)->samples);
}

void events_corrupt(const struct ring_merge_input *input, void *data)
{
	struct events *events = data;
	struct cpu *cpu = input->owner;
	uint64_t from_ns = cpu->last_ns[input->side_band];

	lose(events, cpu, input->side_band, PROF_LOSS_RING_CORRUPT, 1, from_ns,
	     MAX_OF(from_ns, events->tasks->output->now_ns));
	if (input->side_band)
		events->rescan(events->data);
}
