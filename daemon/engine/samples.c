/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Samples - from a chain of addresses to a row
 *
 * A chain comes leaf first, kernel before user, with PERF_CONTEXT_* where the one ends and the other begins. It becomes
 * a path in the stack table, root first: the outermost user frame, …, the innermost kernel frame. The first address of
 * each part is where the CPU was (exact), the others are return addresses.
 * A frame-pointer chain cannot know whether it reached the root, so its stop is `unknown`, or `depth` at the kernel's
 * limit. A return address where nothing executable is mapped was no return address, and what lies beyond is no better:
 * the chain ends before it, as `bad-frame`.
 * Invariants: (1) every sample has a stack with at least its own address  [test-engine-samples: unknown]
 *             (2) an address outside every mapping has an image as well   [test-engine-samples: unknown]
 *             (3) complete + truncated + guessed + none = samples with user memory [test-engine-samples: counts]
 * Runs on the drain thread only.
 */
#include "daemon/engine/samples.h"

#include "arch/base.h"

#include <string.h>

#define MAX_IPS 1024     /* kernel.perf_event_max_stack may be raised; more are cut at the root */
#define KERNEL_DEPTH 127 /* kernel.perf_event_max_stack as it comes */

struct samples_cgroup {
	uint64_t id;
	char *path;
	uint32_t epoch, string;
};

/* The two parts of a chain, leaf first, without marks. */
struct chain {
	const uint64_t *kernel, *user;
	size_t n_kernel, n_user;
};

static void free_cgroup(gpointer data)
{
	struct samples_cgroup *cgroup = data;

	g_free(cgroup->path);
	g_free(cgroup);
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
		.cgroups = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_cgroup),
		.chains = g_new0(struct samples_chain, SAMPLES_CACHE),
	};
}

void samples_done(struct samples *samples)
{
	if (samples->cgroups)
		g_hash_table_destroy(samples->cgroups);
	g_free(samples->chains);
	*samples = (struct samples){ 0 };
}

void samples_set_cgroup(struct samples *samples, uint64_t id, const char *path, size_t length)
{
	struct samples_cgroup *cgroup = g_new0(struct samples_cgroup, 1);

	cgroup->id = id;
	cgroup->path = g_strndup(path, length);
	g_hash_table_replace(samples->cgroups, &cgroup->id, cgroup);
}

static uint32_t cgroup_string(struct samples *samples, uint64_t id)
{
	struct samples_cgroup *cgroup = g_hash_table_lookup(samples->cgroups, &id);

	if (!cgroup)
		return 0;
	if (cgroup->epoch != samples->output->epoch) {
		cgroup->string = output_text(samples->output, cgroup->path);
		cgroup->epoch = samples->output->epoch;
	}
	return cgroup->string;
}

static bool is_context(uint64_t ip)
{
	return ip >= (uint64_t)PERF_CONTEXT_MAX;
}

/* Parts other than kernel and user (guests, hypervisors) are not ours. */
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
			chain.n_kernel = MIN_OF(i - start, (size_t)MAX_IPS);
		} else if (context == (uint64_t)PERF_CONTEXT_USER && !chain.user) {
			chain.user = sample->ips + start;
			chain.n_user = MIN_OF(i - start, (size_t)MAX_IPS);
		}
	}
	return chain;
}

static void add_mapping_row(struct samples *samples, struct process *process,
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
	maps_set_row(&process->maps, mapping, process->row.id);
}

static struct image *private_image(struct samples *samples, struct process *process,
				   struct image **image, const char *name)
{
	if (!*image)
		*image = images_new(samples->images, PROF_IMAGE_ANON, name, &process->row);
	return *image;
}

static uint32_t user_frame(struct samples *samples, struct process *process, uint64_t ip,
			   enum prof_frame_kind kind, uint64_t time_ns)
{
	/* A call at the very end of a mapping returns to behind it. */
	const struct mapping *mapping = maps_find(process->maps, ip - (kind == PROF_FRAME_RETURN));
	struct image *image;
	uint64_t offset = ip;
	bool added;

	if (!mapping) {
		image = private_image(samples, process, &process->unknown, "[unknown]");
		return output_frame(samples->output, &image->row, ip, kind, &added);
	}
	image = mapping->image;
	if (image)
		offset = ip - mapping->start + mapping->file_offset;
	else
		image = private_image(samples, process, &process->anon, "//anon");
	if (image->kind == PROF_IMAGE_FILE && !image->requested) {
		image->requested = true;
		samples->first_hit(image, mapping, process->pid, samples->data);
	}
	if (mapping->row_process != process->row.id)
		add_mapping_row(samples, process, mapping, image, time_ns);
	return output_frame(samples->output, &image->row, offset, kind, &added);
}

static uint32_t kernel_frame(struct samples *samples, uint64_t ip, enum prof_frame_kind kind)
{
	uint64_t offset;
	struct image *image = kernel_find(samples->kernel, ip, &offset);
	bool added;
	uint32_t frame = output_frame(samples->output, &image->row, offset, kind, &added);

	if (added)
		kernel_want(samples->kernel, ip, kind);
	return frame;
}

/* How many of the outermost frames are those of the thread's last chain, whose stack ids then still hold. */
static size_t common_roots(const struct samples_chain *last, const struct chain *chain)
{
	size_t limit = MIN_OF((size_t)last->n, chain->n_user - 1), n = 0;

	while (n < limit && last->ips[n] == chain->user[chain->n_user - 1 - n])
		n++;
	return n;
}

/* The stack of the user part; 0 without one. The leaf differs in kind and is not shared. */
static uint32_t user_stack(struct samples *samples, const struct chain *chain,
			   struct thread *thread, uint64_t time_ns)
{
	struct samples_chain *last = &samples->chains[thread->row.id % SAMPLES_CACHE];
	struct process *process = thread->process;
	uint32_t stack = 0, frame;
	size_t i = 0;

	if (chain->n_user == 0)
		return 0;
	if (last->thread == thread->row.id && last->epoch == samples->output->epoch &&
	    last->maps_version == process->maps->version)
		i = common_roots(last, chain);
	if (i > 0)
		stack = last->stacks[i - 1];
	for (; i + 1 < chain->n_user; i++) {
		uint64_t ip = chain->user[chain->n_user - 1 - i];

		frame = user_frame(samples, process, ip, PROF_FRAME_RETURN, time_ns);
		stack = output_stack(samples->output, stack, frame);
		if (i < ARRAY_SIZE(last->ips)) {
			last->ips[i] = ip;
			last->stacks[i] = stack;
		}
	}
	last->n = MIN_OF(i, ARRAY_SIZE(last->ips));
	last->thread = thread->row.id;
	last->epoch = samples->output->epoch;
	frame = user_frame(samples, process, chain->user[0], PROF_FRAME_EXACT, time_ns);
	last->maps_version = process->maps->version;
	return output_stack(samples->output, stack, frame);
}

static uint32_t kernel_stack(struct samples *samples, const struct chain *chain, uint32_t parent)
{
	uint32_t stack = parent;
	size_t i;

	for (i = chain->n_kernel; i > 0; i--)
		stack = output_stack(samples->output, stack,
				     kernel_frame(samples, chain->kernel[i - 1],
						  i == 1 ? PROF_FRAME_EXACT : PROF_FRAME_RETURN));
	return stack;
}

/* How far the user stack can be trusted; cuts off what cannot. */
static enum prof_user_stop judge(struct chain *chain, const struct process *process)
{
	size_t depth = chain->n_user + chain->n_kernel, i;

	if (process->kernel && chain->n_user == 0)
		return PROF_STOP_KERNEL_THREAD;
	for (i = 1; process->maps_known && i < chain->n_user; i++) {
		if (maps_find(process->maps, chain->user[i] - 1))
			continue;
		chain->n_user = i;
		return PROF_STOP_BAD_FRAME;
	}
	if (chain->n_user > 0 && depth >= KERNEL_DEPTH)
		return PROF_STOP_DEPTH;
	return PROF_STOP_UNKNOWN;
}

void samples_add(struct samples *samples, const struct record *record, struct thread *thread,
		 struct row *source)
{
	const struct record_sample *sample = &record->sample;
	bool in_kernel = record->cpumode == PERF_RECORD_MISC_KERNEL;
	struct output *output = samples->output;
	struct chain chain = split_chain(sample);
	enum prof_user_stop stop;
	uint32_t stack;

	if (chain.n_kernel == 0 && chain.n_user == 0) {
		chain.kernel = chain.user = &sample->ip;
		chain.n_kernel = in_kernel;
		chain.n_user = !in_kernel;
	}
	stop = judge(&chain, thread->process);
	if (!samples->keep_kernel)
		chain.n_kernel = 0;
	if (stop != PROF_STOP_KERNEL_THREAD)
		*(chain.n_user ? &samples->guessed : &samples->none) += 1;
	stack = user_stack(samples, &chain, thread, record->time_ns);
	stack = kernel_stack(samples, &chain, stack);
	tasks_need(samples->tasks, thread);
	output_need(output, source);
	output_add(output, PROF_TABLE_SAMPLE,
		   (const struct prof_value[]){
			   [PROF_SAMPLE_TIME] = PROF_NUMBER(record->time_ns),
			   [PROF_SAMPLE_THREAD] = PROF_NUMBER(thread->row.id),
			   [PROF_SAMPLE_CPU] = PROF_NUMBER(record->cpu),
			   [PROF_SAMPLE_MODE] =
				   PROF_NUMBER(in_kernel ? PROF_MODE_KERNEL : PROF_MODE_USER),
			   [PROF_SAMPLE_STACK] = PROF_NUMBER(stack),
			   [PROF_SAMPLE_WEIGHT] = PROF_NUMBER(sample->period),
			   [PROF_SAMPLE_SOURCE] = PROF_NUMBER(source->id),
			   [PROF_SAMPLE_USER_METHOD] =
				   PROF_NUMBER(chain.n_user ? PROF_METHOD_FP : PROF_METHOD_NONE),
			   [PROF_SAMPLE_USER_STOP] = PROF_NUMBER(stop),
			   [PROF_SAMPLE_CGROUP] =
				   PROF_NUMBER(cgroup_string(samples, sample->cgroup)),
		   });
}
