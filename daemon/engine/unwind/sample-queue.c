/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sample queue - samples that cannot be written yet
 *
 * When a stack first has an address in a file, building the file's table takes a few milliseconds.
 * The ring cannot wait that long, so the used bytes of the stack are copied. The stack is walked
 * again when the table is ready, or with frame pointers after a time limit. Rows are in time order,
 * so samples that arrive after a waiting one are processed, but wait to be written. A queued sample
 * keeps the mappings of its time.
 * Invariants: (1) samples leave in order of arrival  [test-engine-unwind: queue_order]
 *             (2) a sample leaves at the latest in the first run after SAMPLE_QUEUE_WAIT_NS
 *                 [test-engine-unwind: queue_late]
 *             (3) a sample waits only if the queue, with the sample's stack, has at most MAX_BYTES
 *                 [test-engine-unwind: queue_room]
 * Runs on the drain thread only.
 */
#include "daemon/engine/unwind/sample-queue.h"

#include "arch/base.h"
#include "base/clock.h"

#define MAX_BYTES (UINT64_C(64) << 20)

struct queued_sample {
	struct sample sample; /* its arrays are copies that the item owns */
	struct maps *maps;
	bool maps_known;
	bool is_waiting;
	uint64_t until_ns;
	struct unwind_input input; /* used while the sample waits; its stack and chain are copies */
	struct image *missing;
	uint64_t bytes;
};

static void free_item(gpointer data)
{
	struct queued_sample *item = data;

	row_unref(&item->sample.thread->row);
	maps_unref(item->maps);
	g_free((void *)item->sample.kernel);
	g_free((void *)item->sample.user.ips);
	g_free((void *)item->sample.user.sps);
	g_free((void *)item->sample.raw);
	g_free((void *)item->input.stack);
	g_free((void *)item->input.chain);
	g_free(item);
}

void sample_queue_init(struct sample_queue *queue, struct unwind *unwind,
		       void (*emit)(const struct sample *sample, struct maps **maps, void *data),
		       void *data)
{
	*queue = (struct sample_queue){ .unwind = unwind, .emit = emit, .data = data };
	g_queue_init(&queue->items);
}

void sample_queue_done(struct sample_queue *queue)
{
	g_queue_clear_full(&queue->items, free_item);
}

static struct queued_sample *push(struct sample_queue *queue, const struct sample *sample)
{
	struct queued_sample *item = g_new0(struct queued_sample, 1);
	const struct process *process = sample->thread->process;

	item->sample = *sample;
	row_ref(&sample->thread->row);
	item->maps = maps_ref(process->maps);
	item->maps_known = process->maps_known;
	item->sample.kernel = g_memdup2(sample->kernel, sample->n_kernel * sizeof(*sample->kernel));
	item->sample.raw = g_memdup2(sample->raw, sample->raw_bytes);
	item->bytes = sizeof(*item) + sample->n_kernel * sizeof(*sample->kernel) +
		      sample->raw_bytes;
	queue->bytes += item->bytes;
	g_queue_push_tail(&queue->items, item);
	return item;
}

static void keep_user(struct sample_queue *queue, struct queued_sample *item,
		      const struct unwind_stack *user)
{
	size_t bytes = user->n * sizeof(*user->ips);

	item->sample.user = *user;
	item->sample.user.ips = g_memdup2(user->ips, bytes);
	/* Only frames of interpreters need the stack pointers. */
	if (!item->sample.is_interpreted)
		item->sample.user.n_sps = 0;
	item->sample.user.sps = g_memdup2(user->sps, item->sample.user.n_sps * sizeof(*user->sps));
	bytes += item->sample.user.n_sps * sizeof(*user->sps);
	item->bytes += bytes;
	queue->bytes += bytes;
}

void sample_queue_add(struct sample_queue *queue, const struct sample *sample)
{
	keep_user(queue, push(queue, sample), &sample->user);
}

bool sample_queue_add_waiting(struct sample_queue *queue, const struct sample *sample,
			      const struct unwind_input *input, struct image *missing,
			      uint64_t now_ns)
{
	struct queued_sample *item;

	if (queue->bytes + input->stack_bytes > MAX_BYTES)
		return false;
	item = push(queue, sample);
	item->sample.user = (struct unwind_stack){ 0 };
	item->is_waiting = true;
	item->until_ns = now_ns + SAMPLE_QUEUE_WAIT_NS;
	item->input = *input;
	item->input.stack = g_memdup2(input->stack, input->stack_bytes);
	item->input.chain = g_memdup2(input->chain, input->n_chain * sizeof(*input->chain));
	item->missing = missing;
	item->bytes += input->stack_bytes;
	queue->bytes += input->stack_bytes;
	queue->n_waiting++;
	return true;
}

/* Returns whether another walk can make progress. */
static bool can_resume(const struct queued_sample *item)
{
	const struct image *missing = item->missing;

	if (!missing)
		return item->sample.thread->process->maps_known;
	return missing->unwind_state == IMAGE_UNWIND_READY ||
	       image_is_given_up(missing, item->input.pid) ||
	       (missing->unwind_state == IMAGE_UNWIND_UNREQUESTED &&
		image_may_request(missing, item->input.pid));
}

static void walk_again(struct sample_queue *queue, struct queued_sample *item, bool last_chance)
{
	const struct process *process = item->sample.thread->process;
	struct unwind_stack user;

	if (!item->maps_known && process->maps_known) {
		maps_unref(item->maps);
		item->maps = maps_ref(process->maps);
		item->maps_known = true;
	}
	if (!unwind_run(queue->unwind, &item->input, item->maps, item->maps_known, last_chance,
			&user, &item->missing))
		return;
	keep_user(queue, item, &user);
	item->is_waiting = false;
	queue->n_waiting--;
	g_free((void *)steal_ptr(&item->input.stack));
	item->bytes -= item->input.stack_bytes;
	queue->bytes -= item->input.stack_bytes;
}

/* Emits a sample, with the process's current mappings if they are still the sample's, because
 * emit() notes in them which mappings have a row. */
static void let_out(struct sample_queue *queue, struct queued_sample *item)
{
	struct process *process = item->sample.thread->process;

	queue->emit(&item->sample, item->maps == process->maps ? &process->maps : &item->maps,
		    queue->data);
	queue->bytes -= item->bytes;
	free_item(item);
}

void sample_queue_run(struct sample_queue *queue, uint64_t now_ns)
{
	struct queued_sample *item;
	unsigned int walks = 0;
	GList *link;

	for (link = queue->items.head; link && queue->n_waiting > 0; link = link->next) {
		item = link->data;
		if (!item->is_waiting || (now_ns < item->until_ns && !can_resume(item)))
			continue;
		if (queue->until_ns && walks++ % 16 == 0 && clock_now() >= queue->until_ns)
			break;
		walk_again(queue, item, now_ns >= item->until_ns);
	}
	while ((item = g_queue_peek_head(&queue->items)) != NULL && !item->is_waiting)
		let_out(queue, g_queue_pop_head(&queue->items));
}

void sample_queue_end(struct sample_queue *queue,
		      void (*lost)(const struct sample *sample, void *data), void *data)
{
	struct queued_sample *item;

	while ((item = g_queue_pop_head(&queue->items)) != NULL) {
		if (!item->is_waiting) {
			let_out(queue, item);
			continue;
		}
		lost(&item->sample, data);
		queue->bytes -= item->bytes;
		queue->n_waiting--;
		free_item(item);
	}
}
