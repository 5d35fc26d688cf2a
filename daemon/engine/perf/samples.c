/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Samples - turns samples and their chains of addresses into rows
 *
 * A chain comes leaf first, kernel before user, with PERF_CONTEXT_* between the parts. It becomes a
 * path in the stack table, root first: the outermost user frame, …, the innermost kernel frame. The
 * first address of each part is where the CPU was (exact). The others are return addresses, except
 * where a signal interrupted the code. If the sample has registers and a stack, unwind.h walks the
 * user part instead, several samples at a time.
 * A frame-pointer chain does not show whether it reached the root, so its stop is `unknown`, or
 * `depth` at the kernel's limit. A return address outside executable mappings is invalid, as are
 * all addresses after it: the chain ends before it, with stop `bad-frame`. An exiting task has
 * released its memory, so the kernel omits the user part. During exec a task has the memory of the
 * next program, without a stack yet.
 * Invariants: (1) every sample has a stack with at least its own address
 *                 [test-engine-samples: unknown]
 *             (2) an address outside all mappings also has an image  [test-engine-samples: unknown]
 *             (3) complete + truncated + guessed + none = samples with user memory, except those of
 *                 kernel threads  [test-engine-samples: counts]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/samples.h"

#include "arch/base.h"
#include "daemon/engine/perf/event-source.h"

#include <string.h>

#define KERNEL_DEPTH 127 /* default of kernel.perf_event_max_stack */

/* The two parts of a chain, leaf first, without PERF_CONTEXT_* entries. */
struct chain {
	const uint64_t *kernel, *user;
	size_t n_kernel, n_user;
};

static bool is_context(uint64_t ip)
{
	return ip >= (uint64_t)PERF_CONTEXT_MAX;
}

/* Ignores parts other than kernel and user (guests, hypervisors). */
static struct chain split_chain(const struct record_sample *sample)
{
	struct chain chain = { 0 };
	size_t i = 0, start;
	uint64_t context;

	while (i < sample->n_ips) {
		context = is_context(sample->ips[i]) ? sample->ips[i++] : 0;
		start = i;
		while (i < sample->n_ips && !is_context(sample->ips[i]))
			i++;
		if (context == (uint64_t)PERF_CONTEXT_KERNEL && !chain.kernel) {
			chain.kernel = sample->ips + start;
			chain.n_kernel = MIN_OF(i - start, (size_t)SAMPLES_MAX_IPS);
		} else if (context == (uint64_t)PERF_CONTEXT_USER && !chain.user) {
			chain.user = sample->ips + start;
			chain.n_user = MIN_OF(i - start, (size_t)SAMPLES_MAX_IPS);
		}
	}
	return chain;
}

uint64_t samples_user_pc(const struct record_sample *sample)
{
	struct chain chain = split_chain(sample);

	return chain.n_user ? chain.user[0] : 0;
}

static void add_mapping_row(struct samples *samples, struct process *process, struct maps **maps,
			    const struct mapping *mapping, const struct image *image,
			    uint64_t time_ns)
{
	output_need(samples->output, &process->row);
	output_add(samples->output, PROF_TABLE_MAPPING,
		   (const struct prof_value[]){
			   [PROF_MAPPING_TIME] = PROF_NUMBER(time_ns),
			   [PROF_MAPPING_PROCESS] = PROF_NUMBER(process->row.id),
			   [PROF_MAPPING_START] = PROF_NUMBER(mapping->start),
			   [PROF_MAPPING_LENGTH] = PROF_NUMBER(mapping->end - mapping->start),
			   [PROF_MAPPING_FILE_OFFSET] = PROF_NUMBER(mapping->file_offset),
			   [PROF_MAPPING_IMAGE] = PROF_NUMBER(image->row.id),
		   });
	output_need(samples->output, (struct row *)&image->row);
	maps_set_row(maps, mapping, process->row.id);
}

static void request_image(struct image *image, const struct mapping *mapping, int32_t pid,
			  void *data)
{
	struct samples *samples = data;

	image->requested = true;
	samples->first_hit(image, mapping, pid, samples->data);
}

static struct output_place user_place(struct samples *samples, const struct sample *sample,
				      struct maps **maps, uint64_t tagged)
{
	enum prof_frame_kind kind = tagged & UNWIND_EXACT ? PROF_FRAME_EXACT : PROF_FRAME_RETURN;
	uint64_t ip = tagged & ~UNWIND_EXACT, offset = ip;
	struct process *process = sample->thread->process;
	/* The return address of a call at the very end of a mapping is just after the mapping. */
	const struct mapping *mapping = maps_find(*maps, ip - (kind == PROF_FRAME_RETURN));
	struct image *image;

	if (!mapping) {
		if (!process->unknown)
			process->unknown = images_new(samples->images, PROF_IMAGE_ANON, "[unknown]",
						      &process->row);
		return (struct output_place){ &process->unknown->row, ip, kind };
	}
	image = mapping->image;
	if (image)
		offset = ip - mapping->start + mapping->file_offset;
	else
		image = process_anon_image(process, samples->images);
	if (image->kind == PROF_IMAGE_FILE && image_may_request(image, process->pid))
		request_image(image, mapping, process->pid, samples);
	if (mapping->row_process != process->row.id)
		add_mapping_row(samples, process, maps, mapping, image, sample->time_ns);
	return (struct output_place){ &image->row, offset, kind };
}

/* Returns the place for missing frames of a stack. *image is created on first use. */
static struct output_place missing_place(struct samples *samples, struct image **image,
					 const char *name, size_t n)
{
	if (!*image)
		*image = images_new(samples->images, PROF_IMAGE_ANON, name, NULL);
	return (struct output_place){ &(*image)->row, n, PROF_FRAME_EXACT };
}

/* Adds the places of the user part, root first, without the n_common frames that are also in the
 * thread's last chain, and with the functions of an interpreted program. Returns their number. */
static size_t add_user_places(struct samples *samples, const struct sample *sample,
			      struct maps **maps, size_t n_common, bool is_interpreted)
{
	const struct unwind_stack *user = &sample->user;
	size_t i, n = 0;

	/* callers that are unknown because the stack is deeper than its copy */
	if (user->deeper)
		samples->places[n++] = missing_place(samples, &samples->deeper, "<deeper>", 0);
	if (is_interpreted)
		n = interpreted_add_places(samples->interpreted, SIZE_MAX, samples->places, n);
	for (i = n_common; i < user->n; i++) {
		/* frames that were left out because the stack is too deep */
		if (user->n_cut && user->n - i == user->cut_at)
			samples->places[n++] =
				missing_place(samples, &samples->cut, "[cut]", user->n_cut);
		if (!is_interpreted ||
		    !interpreted_replaces(samples->interpreted, sample, user->n - 1 - i))
			samples->places[n++] =
				user_place(samples, sample, maps, user->ips[user->n - 1 - i]);
		if (is_interpreted)
			n = interpreted_add_places(samples->interpreted, user->n - 1 - i,
						   samples->places, n);
	}
	return n;
}

/* Stores the user part as the thread's last chain. The first n_common frames are unchanged. */
static void remember(struct samples *samples, struct samples_chain *last,
		     const struct sample *sample, const struct maps *maps, size_t n_common)
{
	const struct unwind_stack *user = &sample->user;

	last->n = user->n_cut || user->deeper ? 0 : MIN_OF(user->n, ARRAY_SIZE(last->ips));
	last->thread = sample->thread->row.id;
	last->epoch = samples->output->epoch;
	last->maps_version = maps->version;
	for (size_t i = n_common; i < last->n; i++) {
		last->ips[i] = user->ips[user->n - 1 - i];
		last->stacks[i] = samples->stacks[i - n_common];
	}
}

uint32_t samples_add_stack(struct samples *samples, const struct sample *sample, struct maps **maps,
			   bool is_interpreted)
{
	struct samples_chain *last = &samples->chains[sample->thread->row.id % SAMPLES_CACHE];
	const struct unwind_stack *user = &sample->user;
	size_t n_common = 0, n_user, n;
	uint32_t parent;

	/* The outermost frames that are also in the thread's last chain keep their stack ids. */
	if (last->thread == sample->thread->row.id && last->epoch == samples->output->epoch &&
	    last->maps_version == (*maps)->version && user->n_cut == 0 && !user->deeper &&
	    !is_interpreted)
		while (n_common < MIN_OF((size_t)last->n, user->n) &&
		       last->ips[n_common] == user->ips[user->n - 1 - n_common])
			n_common++;
	parent = n_common ? last->stacks[n_common - 1] : 0;
	n = n_user = add_user_places(samples, sample, maps, n_common, is_interpreted);
	for (size_t i = sample->n_kernel; i > 0; i--, n++) {
		struct output_place *place = &samples->places[n];

		place->image =
			&kernel_find(samples->kernel, sample->kernel[i - 1], &place->offset)->row;
		place->kind = i == 1 ? PROF_FRAME_EXACT : PROF_FRAME_RETURN;
	}
	output_frames(samples->output, samples->places, n, samples->frames, samples->added);
	if (is_interpreted)
		interpreted_write(samples->interpreted, samples->added);
	/* Request the names of new kernel frames. */
	for (size_t i = n_user; i < n; i++)
		if (samples->added[i])
			kernel_request(samples->kernel, sample->kernel[n - 1 - i],
				       samples->places[i].kind);
	output_stacks(samples->output, parent, samples->frames, n, samples->stacks);
	if (!is_interpreted)
		remember(samples, last, sample, *maps, n_common);
	return n ? samples->stacks[n - 1] : parent;
}

/* Returns whether the kernel may have cut the chain. */
static bool is_full(const struct chain *chain)
{
	return chain->n_user > 0 && chain->n_user + chain->n_kernel >= KERNEL_DEPTH;
}

/* Removes the implausible part of a frame-pointer chain. Returns why the chain ends. */
static enum prof_user_stop judge(struct chain *chain, const struct thread *thread)
{
	const struct process *process = thread->process;
	size_t i;

	/* Kernel threads that belong to a process (io_uring, vhost) use its memory, but have no
	 * user stack. */
	if (chain->n_user == 0 && (process->kernel || g_str_has_prefix(thread->comm, "iou-") ||
				   g_str_has_prefix(thread->comm, "vhost-")))
		return PROF_STOP_KERNEL_THREAD;
	if (!chain->user)
		return PROF_STOP_NO_MEMORY;
	for (i = 1; process->maps_known && i < chain->n_user; i++) {
		if (maps_find(process->maps, chain->user[i] - 1))
			continue;
		chain->n_user = i;
		return PROF_STOP_BAD_FRAME;
	}
	return is_full(chain) ? PROF_STOP_DEPTH : PROF_STOP_UNKNOWN;
}

/* Uses the kernel's chain as the user part. */
static void receive_chain(struct samples *samples, struct chain *chain, struct sample *sample)
{
	enum prof_user_stop stop = judge(chain, sample->thread);

	for (size_t i = 0; i < chain->n_user; i++)
		samples->ips[i] = (chain->user[i] & ~UNWIND_EXACT) | (i == 0 ? UNWIND_EXACT : 0);
	sample->user = (struct unwind_stack){
		.ips = samples->ips,
		.n = chain->n_user,
		.cut_at = chain->n_user,
		.deeper = stop == PROF_STOP_DEPTH,
		.method = chain->n_user ? PROF_METHOD_FP : PROF_METHOD_NONE,
		.stop = stop,
	};
}

/* Counts a stack by its quality. Frames of generated code are found by frame pointers. A stack with
 * such frames does not count as guessed if the interpreter's records gave the same functions. */
static void count(struct samples *samples, const struct unwind_stack *user,
		  enum prof_user_method method, enum prof_sample_interpreter interpreter)
{
	bool is_confirmed = method == PROF_METHOD_JIT_FP &&
			    interpreter == PROF_INTERPRETER_COMPLETE;

	if (user->stop == PROF_STOP_KERNEL_THREAD)
		return;
	if (user->stop == PROF_STOP_NO_MEMORY)
		samples->no_memory++;
	else if (user->n == 0)
		samples->none++;
	else if (method != PROF_METHOD_CFI && !is_confirmed)
		samples->guessed++;
	else if (user->stop == PROF_STOP_ROOT)
		samples->complete++;
	else if (user->stop == PROF_STOP_COPY_END || user->stop == PROF_STOP_DEPTH)
		samples->truncated++;
	else
		samples->guessed++;
}

static void emit(const struct sample *sample, struct maps **maps, void *data)
{
	struct samples *samples = data;
	struct output *output = samples->output;
	uint64_t values[ENGINE_MAX_FIELDS], texts[ENGINE_MAX_FIELDS];
	enum prof_sample_interpreter interpreter = PROF_INTERPRETER_NONE;
	enum prof_user_method method;
	uint32_t kind;
	size_t n_values;
	uint32_t stack;

	if (sample->wait) {
		samples->keep_wait(sample, maps, samples->wait_data);
		return;
	}
	/* Samples of tracepoints and probes have no interpreter frames. */
	kind = ((const struct event_source *)sample->source)->message.kind;
	if (samples->interpreted && kind != PROF_SOURCE_TRACEPOINT && kind != PROF_SOURCE_PROBE)
		interpreter = interpreted_merge(samples->interpreted, sample);
	method = interpreted_method(sample, interpreter);
	count(samples, &sample->user, method, interpreter);
	stack = samples_add_stack(samples, sample, maps,
				  interpreter == PROF_INTERPRETER_COMPLETE ||
					  interpreter == PROF_INTERPRETER_DEEPER);
	tasks_need(samples->tasks, sample->thread);
	output_need(output, sample->source);
	n_values = event_source_values((const struct event_source *)sample->source, output,
				       sample->raw, sample->is_interpreted ? 0 : sample->raw_bytes,
				       values, texts);
	output_add(output, PROF_TABLE_SAMPLE,
		   (const struct prof_value[]){
			   [PROF_SAMPLE_TIME] = PROF_NUMBER(sample->time_ns),
			   [PROF_SAMPLE_THREAD] = PROF_NUMBER(sample->thread->row.id),
			   [PROF_SAMPLE_CPU] = PROF_NUMBER(sample->cpu),
			   [PROF_SAMPLE_MODE] = PROF_NUMBER(sample->in_kernel ? PROF_MODE_KERNEL
									      : PROF_MODE_USER),
			   [PROF_SAMPLE_STACK] = PROF_NUMBER(stack),
			   [PROF_SAMPLE_WEIGHT] = PROF_NUMBER(sample->period),
			   [PROF_SAMPLE_SOURCE] = PROF_NUMBER(sample->source->id),
			   [PROF_SAMPLE_USER_METHOD] = PROF_NUMBER(method),
			   [PROF_SAMPLE_USER_STOP] = PROF_NUMBER(sample->user.stop),
			   [PROF_SAMPLE_CGROUP] =
				   PROF_NUMBER(tasks_cgroup(samples->tasks, sample->cgroup)),
			   [PROF_SAMPLE_VALUES] = PROF_BYTES(values, n_values),
			   [PROF_SAMPLE_TEXTS] = PROF_BYTES(texts, n_values),
			   [PROF_SAMPLE_INTERPRETER] = PROF_NUMBER(interpreter),
		   });
}

static void let_out(struct samples *samples, const struct sample *sample)
{
	if (sample_queue_is_empty(&samples->queue))
		emit(sample, &sample->thread->process->maps, samples);
	else
		sample_queue_add(&samples->queue, sample);
}

/* Adds a sample to the batch that is walked together. */
static void add_pending(struct samples *samples, const struct record_sample *record,
			const struct chain *chain, const struct sample *sample)
{
	const struct process *process = sample->thread->process;
	struct unwind_job *job = &samples->jobs[samples->n_pending];

	row_ref(&sample->thread->row);
	samples->pending_maps[samples->n_pending] = maps_ref(process->maps);
	samples->pending[samples->n_pending++] = *sample;
	*job = (struct unwind_job){
		.input = {
			.stack = record->stack,
			.stack_bytes = record->stack_bytes,
			.full_bytes = samples->stack_bytes,
			.chain = chain->user,
			.n_chain = chain->n_user,
			.chain_is_cut = is_full(chain),
			.thread = sample->thread->row.id,
			.pid = process->pid,
			.in_kernel = sample->in_kernel,
			.only_pc_sp = record->only_pc_sp,
		},
		.maps = process->maps,
		.maps_known = process->maps_known,
	};
	unwind_read_registers(record->registers, &job->input);
	if (samples->n_pending == WALK_TOGETHER)
		samples_finalize(samples);
}

/* Writes a walked sample; or queues it if its walk lacks a table or mappings, and there is room. */
static void finalize(struct samples *samples, struct sample *sample, struct unwind_job *job)
{
	const struct process *process = sample->thread->process;

	if (!job->done) {
		unwind_request_all(samples->unwind, &job->input, process->maps);
		if (sample_queue_add_waiting(&samples->queue, sample, &job->input, job->missing,
					     samples->output->now_ns))
			return;
		/* This reuses the buffer of the first job's stack, which is not needed any more. */
		unwind_run(samples->unwind, &job->input, process->maps, process->maps_known, true,
			   &job->stack, &job->missing);
	}
	sample->user = job->stack;
	let_out(samples, sample);
}

void samples_finalize(struct samples *samples)
{
	size_t n = samples->n_pending, i;

	if (n == 0)
		return;
	unwind_run_together(samples->unwind, samples->jobs, n);
	for (i = 0; i < n; i++)
		maps_unref(samples->pending_maps[i]);
	for (i = 0; i < n; i++) {
		finalize(samples, &samples->pending[i], &samples->jobs[i]);
		row_unref(&samples->pending[i].thread->row);
	}
	samples->n_pending = 0;
}

/* Completes a sample with the record's time, CPU and stack, and adds it. */
static void add(struct samples *samples, const struct record *record, struct sample sample)
{
	struct chain chain = split_chain(&record->sample);
	const struct thread *thread = sample.thread;

	sample.time_ns = record->time_ns;
	sample.cpu = record->cpu;
	sample.in_kernel = record->cpumode == PERF_RECORD_MISC_KERNEL;
	if (chain.n_kernel == 0 && chain.n_user == 0) {
		chain.kernel = chain.user = &record->sample.ip;
		chain.n_kernel = sample.in_kernel;
		chain.n_user = !sample.in_kernel;
	}
	if (samples->keep_kernel) {
		sample.kernel = chain.kernel;
		sample.n_kernel = chain.n_kernel;
	}
	if (record->sample.registers && samples->unwind && !thread->process->kernel) {
		add_pending(samples, &record->sample, &chain, &sample);
		return;
	}
	samples_finalize(samples);
	receive_chain(samples, &chain, &sample);
	let_out(samples, &sample);
}

struct probe_value *samples_values(struct samples *samples)
{
	return samples->values[samples->n_pending].values;
}

void samples_add(struct samples *samples, const struct record *record, struct thread *thread,
		 struct row *source, const struct probe_value *values)
{
	add(samples, record,
	    (struct sample){
		    .period = record->sample.period,
		    .cgroup = record->sample.cgroup,
		    .thread = thread,
		    .source = source,
		    .raw = values ? (const uint8_t *)values : record->sample.raw,
		    .raw_bytes = values ? sizeof(struct samples_values) : record->sample.raw_bytes,
		    .is_interpreted = record->sample.is_interpreted,
	    });
}

void samples_add_wait(struct samples *samples, const struct record *record, struct thread *thread,
		      struct wait_code *wait, const uint8_t *frames, uint32_t frames_bytes)
{
	add(samples, record,
	    (struct sample){
		    .thread = thread,
		    .raw = frames,
		    .raw_bytes = frames_bytes,
		    .wait = wait,
		    .is_interpreted = frames != NULL,
	    });
}

void samples_init(struct samples *samples, struct output *output, struct tasks *tasks,
		  struct images *images, struct kernel *kernel)
{
	*samples = (struct samples){
		.output = output,
		.tasks = tasks,
		.images = images,
		.kernel = kernel,
		.keep_kernel = true,
		.chains = g_new0(struct samples_chain, SAMPLES_CACHE),
	};
	sample_queue_init(&samples->queue, NULL, emit, samples);
}

void samples_unwind(struct samples *samples, struct unwind_tables *tables, uint32_t stack_bytes)
{
	samples->unwind = g_new(struct unwind, 1);
	unwind_init(samples->unwind, tables);
	samples->unwind->request_image = request_image;
	samples->unwind->data = samples;
	samples->queue.unwind = samples->unwind;
	samples->stack_bytes = stack_bytes;
}

void samples_done(struct samples *samples)
{
	sample_queue_done(&samples->queue);
	if (samples->unwind)
		unwind_done(samples->unwind);
	g_free(samples->unwind);
	if (samples->cut)
		row_unref(&samples->cut->row);
	if (samples->deeper)
		row_unref(&samples->deeper->row);
	g_free(samples->chains);
	*samples = (struct samples){ 0 };
}
