/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * CPUs - the events and rings of each CPU
 *
 * A CPU has a side-band event with its own ring, events that sample, which share a second ring, and
 * events that copy stacks of waits, which may share a third. The broker opens them disabled; this
 * file enables, disables and reads them, which needs no privilege. CPU numbers are the kernel's and
 * may have holes. A CPU that goes offline takes its events with it: they are closed, and the broker
 * opens them again when the CPU is back. With per-task events, each CPU has many events, which
 * write into the rings of further events that exist only to have a ring. Per-task events remain
 * when the CPU goes offline.
 * Invariants: (1) each descriptor belongs to one struct cpu and is closed once
 *             (2) a list of CPUs never sets a byte beyond the caller's array
 *                 [test-engine-samples: list]
 *             (3) on each CPU, after the first PACE_FIRST of each, at most about 500 stacks of
 *                 sleeping threads and as many of wakers are copied a second
 *                 [test-engine-samples: pace]
 * Runs on the drain thread only.
 */
#include "daemon/engine/perf/cpus.h"

#include "arch/base.h"
#include "base/each.h"

#include <errno.h>
#include <glib.h>
#include <sys/ioctl.h>

#define COPY_INTERVAL_NS UINT64_C(2000000) /* mean time between copies of stacks */
#define PACE_NS UINT64_C(50000000)
#define PACE_COPIES 64 /* this many copies fill half of the ring; the engine wakes up then */
/* Unless sleeps or wakers are so frequent that the copies would fill the ring, copy the stacks of
 * all of the first PACE_FIRST sleeps (and wakers), so that most places get a copy. */
#define PACE_FIRST 1000
#define PACE_FIRST_PERIOD 11
#define SILENT_NS UINT64_C(300000000) /* busy time in which hundreds of samples are due */

static void free_event(void *data)
{
	struct task_event *event = data;

	if (event->fd >= 0)
		close(event->fd);
	g_free(event);
}

void cpus_init(struct cpus *cpus, int online_fd, bool by_task)
{
	*cpus = (struct cpus){ .online_fd = online_fd, .all = g_ptr_array_new() };
	if (by_task)
		cpus->events = g_hash_table_new_full(g_int64_hash, g_int64_equal, NULL, free_event);
}

void cpus_done(struct cpus *cpus)
{
	if (!cpus->all)
		return;
	POINTER_EACH(struct cpu, cpu, cpus->all) {
		cpu_close(cpu);
		switches_done(&cpu->switches);
		g_free(cpu);
	}
	g_ptr_array_free(cpus->all, TRUE);
	cpus->all = NULL;
	g_clear_pointer(&cpus->events, g_hash_table_destroy);
}

static struct cpu *find_or_add(struct cpus *cpus, uint32_t number)
{
	struct cpu *cpu = cpus->by_number[number];

	if (cpu)
		return cpu;
	cpu = g_new0(struct cpu, 1);
	cpu->number = number;
	cpu->copies = cpus->copies;
	cpu->wakeup_fd = cpu->sleep_fd = cpu->waking_fd = -1;
	switches_init(&cpu->switches, 0);
	cpus->by_number[number] = cpu;
	g_ptr_array_add(cpus->all, cpu);
	return cpu;
}

struct cpu *cpus_open(struct cpus *cpus, const struct message_cpu *message, int *fds, size_t n_fds,
		      GError **error)
{
	struct cpu *cpu;

	if (message->cpu >= ENGINE_MAX_CPUS || message->n_sources > ENGINE_MAX_SOURCES ||
	    message->has_wakeups > 1 || message->has_sleeps > 1 || message->has_wakings > 1 ||
	    n_fds != 1 + (size_t)message->n_sources + message->has_wakeups + message->has_sleeps +
			     message->has_wakings ||
	    (message->sample_pages != 0) != (message->n_sources != 0) ||
	    (message->copy_pages != 0 && message->n_sources < (cpus->events ? 2 : cpus->copies)) ||
	    (message->copy_pages != 0 && cpus->copies < 2)) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The message about CPU %u contradicts itself", message->cpu);
		return NULL;
	}
	cpu = find_or_add(cpus, message->cpu);
	cpu_close(cpu);
	cpu->open = true;
	cpu->side_band_fd = steal_fd(&fds[0]);
	cpu->n_sources = message->n_sources;
	for (uint32_t i = 0; i < message->n_sources; i++) {
		cpu->source_fds[i] = steal_fd(&fds[1 + i]);
		cpu->source_ids[i] = message->source_ids[i];
	}
	if (message->has_wakeups)
		cpu->wakeup_fd = steal_fd(&fds[1 + message->n_sources]);
	if (message->has_sleeps)
		cpu->sleep_fd = steal_fd(&fds[n_fds - 1 - message->has_wakings]);
	if (message->has_wakings)
		cpu->waking_fd = steal_fd(&fds[n_fds - 1]);
	cpu->sleep_id = message->sleep_id;
	cpu->waking_id = message->waking_id;
	cpu->sample_pages = message->sample_pages;
	cpu->copy_pages = message->copy_pages;
	cpu->by_task = cpus->events != NULL;
	if (!ring_init(&cpu->side_band, cpu->side_band_fd, message->side_band_pages, error)) {
		g_prefix_error(error, "CPU %u: ", message->cpu);
		cpu_close(cpu);
		return NULL;
	}
	memset(cpu->reported_lost, 0, sizeof(cpu->reported_lost));
	cpu->lost_code = cpu->noticed_lost = 0;
	cpu->counted_lost = 0;
	cpu->throttled_ns = 0;
	/* The new events have their initial periods. */
	memset(cpu->copy_periods, 0, sizeof(cpu->copy_periods));
	return cpu;
}

bool cpu_map_samples(struct cpu *cpu, GError **error)
{
	if (ring_init(&cpu->samples, cpu->source_fds[0], cpu->sample_pages, error) &&
	    (!cpu->copy_pages ||
	     ring_init(&cpu->copied, cpu_copies_fd(cpu), cpu->copy_pages, error)))
		return true;
	g_prefix_error(error, "CPU %u: ", cpu->number);
	return false;
}

int cpu_copies_fd(const struct cpu *cpu)
{
	return cpu->source_fds[!cpu->copy_pages ? 0 : cpu->by_task ? 1 : cpu->copies - 1];
}

enum event_kind { KIND_SIDE_BAND, KIND_SAMPLES, KIND_COPIES };

/* position: as in struct message_event */
static enum event_kind kind_of(const struct cpu *cpu, uint32_t position)
{
	if (position == 0 || position == ENGINE_POSITION_SLEEPS)
		return KIND_SIDE_BAND;
	return cpu->copies && position >= cpu->copies ? KIND_COPIES : KIND_SAMPLES;
}

bool cpus_add_event(struct cpus *cpus, const struct message_event *message, int fd, GError **error)
{
	struct cpu *cpu = message->cpu < ENGINE_MAX_CPUS ? cpus->by_number[message->cpu] : NULL;
	CLEANUP_CLOSE int owned = fd;
	struct task_event *event;
	enum event_kind kind;

	if (!cpus->events || !cpu || !cpu->open || message->position > ENGINE_POSITION_SLEEPS ||
	    (kind_of(cpu, message->position) != KIND_SIDE_BAND && !cpu->n_sources) ||
	    message->rank == 0 || g_hash_table_contains(cpus->events, &message->id)) {
		g_set_error(error, G_FILE_ERROR, G_FILE_ERROR_INVAL,
			    "The message about an event of thread %d contradicts itself",
			    message->tid);
		return false;
	}
	/* The broker cannot do this, because it may close the ring before the engine has the
	 * event. */
	kind = kind_of(cpu, message->position);
	if (ioctl(owned, PERF_EVENT_IOC_SET_OUTPUT,
		  kind == KIND_SIDE_BAND ? cpu->side_band_fd
		  : kind == KIND_COPIES  ? cpu_copies_fd(cpu)
					 : cpu->source_fds[0]) != 0) {
		g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
			    "Giving an event of thread %d the ring of CPU %u failed: %s",
			    message->tid, message->cpu, prof_strerror(-errno));
		return false;
	}
	event = g_new(struct task_event, 1);
	*event = (struct task_event){ .message = *message, .fd = steal_fd(&owned) };
	if (!cpu->events)
		cpu->events = g_ptr_array_new();
	g_ptr_array_add(cpu->events, event);
	g_hash_table_insert(cpus->events, &event->message.id, event);
	return true;
}

bool cpus_add_outputs(struct cpus *cpus, const struct message_outputs *message, int *fds,
		      size_t n_fds)
{
	struct cpu *cpu = message->cpu < ENGINE_MAX_CPUS ? cpus->by_number[message->cpu] : NULL;

	if (!cpu || n_fds != ARRAY_SIZE(cpu->output_fds) || message->sample_id == 0)
		return false;
	/* The CPU may be offline again, or have its events already. */
	if (!cpu->open || cpu->sample_id)
		return true;
	for (size_t i = 0; i < n_fds; i++)
		cpu->output_fds[i] = steal_fd(&fds[i]);
	cpu->sample_id = message->sample_id;
	cpu->code_id = message->code_id;
	return true;
}

const struct task_event *cpus_find_event(const struct cpus *cpus, uint64_t event_id)
{
	return cpus->events ? g_hash_table_lookup(cpus->events, &event_id) : NULL;
}

void cpus_add_missing(struct cpus *cpus, uint32_t number, uint64_t now_ns)
{
	find_or_add(cpus, number)->gone_ns = now_ns;
}

/* Calls `act` for the CPU's events of this kind, except stopped ones, until it returns false. If
 * the CPU has per-task events, calls it only for them. Returns whether all calls returned true. */
static bool for_each_event(const struct cpu *cpu, enum event_kind kind,
			   bool (*act)(int fd, void *data), void *data)
{
	bool stopped = kind == KIND_COPIES && cpu->stopped;

	for (guint i = 0; cpu->events && i < cpu->events->len; i++) {
		const struct task_event *event = g_ptr_array_index(cpu->events, i);
		uint32_t position = event->message.position;

		stopped = cpu->stopped &&
			  (kind == KIND_COPIES || position == ENGINE_POSITION_SLEEPS);
		if (kind_of(cpu, position) == kind && !stopped && !act(event->fd, data))
			return false;
	}
	if (cpu->events)
		return true;
	for (guint i = 0; i < cpu->n_sources; i++)
		if (kind_of(cpu, 1 + i) == kind && !stopped && !act(cpu->source_fds[i], data))
			return false;
	return kind != KIND_SIDE_BAND ||
	       (act(cpu->side_band_fd, data) && (cpu->wakeup_fd < 0 || act(cpu->wakeup_fd, data)) &&
		(cpu->sleep_fd < 0 || cpu->stopped || act(cpu->sleep_fd, data)) &&
		(cpu->waking_fd < 0 || cpu->stopped || act(cpu->waking_fd, data)));
}

/* A failure means that the event went offline with its CPU; its records are still in the ring. */
static bool disable(int fd, void *data)
{
	(void)ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	return true;
}

void cpu_disable(struct cpu *cpu)
{
	if (!cpu->open)
		return;
	for_each_event(cpu, KIND_SAMPLES, disable, NULL);
	for_each_event(cpu, KIND_COPIES, disable, NULL);
	for_each_event(cpu, KIND_SIDE_BAND, disable, NULL);
}

/* Returns the position of the CPU's first source that copies stacks; n_sources if no source
 * does, or if events are per task. */
static uint32_t first_copies(const struct cpu *cpu)
{
	return !cpu->open || cpu->events || cpu->copies == 0 ? cpu->n_sources : cpu->copies - 1;
}

/* Returns the period that gives about 500 copies a second, if n events occurred in elapsed_ns.
 * `last`: the current period. */
static uint64_t choose_period(uint64_t n, uint64_t elapsed_ns, uint64_t last)
{
	/* A few threads often sleep in a fixed order, so with one period, the same thread could
	 * be copied every time. So the periods are primes (or 1), and two of them alternate. */
	static const uint16_t periods[] = { 1, 5, 7, 11, 17, 29, 53, 101, 211, 401, 809, 1601 };
	uint64_t wanted = n * COPY_INTERVAL_NS / MAX_OF(elapsed_ns, UINT64_C(1));
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(periods) && periods[i] < wanted)
		i++;
	if (periods[i] == last && i > 0 && i + 1 < ARRAY_SIZE(periods))
		i++;
	return periods[i];
}

void cpu_pace_copies(struct cpu *cpu, uint64_t now_ns)
{
	const uint64_t n[] = { cpu->n_sleeps, cpu->n_wakings };
	uint64_t elapsed_ns = now_ns - cpu->paced_ns;
	uint32_t first = first_copies(cpu);
	bool is_due = elapsed_ns >= PACE_NS;

	for (uint32_t i = 0; i < ARRAY_SIZE(n); i++)
		is_due |= n[i] - cpu->paced[i] >=
			  PACE_COPIES * MAX_OF(cpu->copy_periods[i], UINT64_C(1));
	/* Too few copies in too short a time do not show the rate of sleeps. */
	if (first >= cpu->n_sources || cpu->stopped || !is_due)
		return;
	cpu->paced_ns = now_ns;
	for (uint32_t i = 0; i < ARRAY_SIZE(n) && first + i < cpu->n_sources; i++) {
		uint64_t period =
			choose_period(n[i] - cpu->paced[i], elapsed_ns, cpu->copy_periods[i]);

		if (n[i] < PACE_FIRST && period <= PACE_FIRST_PERIOD)
			period = 1;
		cpu->paced[i] = n[i];
		if (period == cpu->copy_periods[i])
			continue;
		cpu->copy_periods[i] = period;
		(void)ioctl(cpu->source_fds[first + i], PERF_EVENT_IOC_PERIOD, &period);
	}
}

void cpu_stop_sleeps(struct cpu *cpu)
{
	for (guint i = 0; cpu->events && i < cpu->events->len; i++) {
		const struct task_event *event = g_ptr_array_index(cpu->events, i);

		if (event->message.position == cpu->copies ||
		    event->message.position == ENGINE_POSITION_SLEEPS)
			disable(event->fd, NULL);
	}
	for (uint32_t i = first_copies(cpu); i < cpu->n_sources; i++)
		disable(cpu->source_fds[i], NULL);
	if (!cpu->events && cpu->sleep_fd >= 0)
		disable(cpu->sleep_fd, NULL);
	if (!cpu->events && cpu->waking_fd >= 0)
		disable(cpu->waking_fd, NULL);
	cpu->stopped = true;
}

/* Returns the number of the event's lost records: the third value if its read format is ID | LOST.
 * Returns 0 on kernels before 6.0. */
static uint64_t read_lost(int fd)
{
	uint64_t values[3];

	return read(fd, values, sizeof(values)) == sizeof(values) ? values[2] : 0;
}

uint64_t cpu_lost_samples(struct cpu *cpu, const struct ring *ring, uint64_t lost)
{
	uint64_t code = cpu->open && cpu->sample_id ? read_lost(cpu->output_fds[1]) : 0;

	/* Without a source of samples, the first ring contains copies only. */
	if (ring == &cpu->copied || cpu->copies == 1)
		return 0;
	code = MIN_OF(code - MIN_OF(cpu->lost_code, code), lost);
	cpu->lost_code += code;
	return lost - code;
}

static bool add_lost(int fd, void *sum)
{
	*(uint64_t *)sum += read_lost(fd);
	return true;
}

bool cpu_has_lost(struct cpu *cpu)
{
	uint64_t lost = 0, noticed = cpu->noticed_lost;

	if (!cpu->open || cpu->events)
		return false;
	for_each_event(cpu, KIND_SIDE_BAND, add_lost, &lost);
	cpu->noticed_lost = lost;
	return lost > noticed;
}

void cpu_count_lost(struct cpu *cpu, uint64_t period_ns)
{
	/* There are too many per-task events to read: use the LOST records. */
	uint64_t lost = cpu->events      ? cpu->reported_lost[0]
			: cpu->n_sources ? read_lost(cpu->source_fds[0])
					 : 0;

	if (cpu->sample_id && !cpu->events)
		lost += read_lost(cpu->output_fds[0]);
	if (lost <= cpu->counted_lost)
		return;
	cpu->sampled_ns += (lost - cpu->counted_lost) * period_ns;
	cpu->sampled_here_ns += (lost - cpu->counted_lost) * period_ns;
	cpu->counted_lost = lost;
}

void cpu_add_lost(struct cpu *cpu, struct loss_table *losses, uint64_t now_ns)
{
	uint64_t lost[2] = { 0 };

	if (!cpu->open)
		return;
	for_each_event(cpu, KIND_SAMPLES, add_lost, &lost[0]);
	for_each_event(cpu, KIND_SIDE_BAND, add_lost, &lost[1]);
	if (cpu->sample_id)
		lost[0] += read_lost(cpu->output_fds[0]);
	if (lost[0] > cpu->reported_lost[0])
		loss_add_cpu(losses, cpu->number, false, PROF_LOSS_PERF_LOST_SAMPLES,
			     lost[0] - cpu->reported_lost[0], cpu->last_ns[0], now_ns);
	if (lost[1] > cpu->reported_lost[1])
		loss_add_cpu(losses, cpu->number, true, PROF_LOSS_SIDE_BAND,
			     lost[1] - cpu->reported_lost[1], cpu->last_ns[1], now_ns);
	cpu->reported_lost[0] = MAX_OF(lost[0], cpu->reported_lost[0]);
	cpu->reported_lost[1] = MAX_OF(lost[1], cpu->reported_lost[1]);
}

void cpu_close(struct cpu *cpu)
{
	if (!cpu->open)
		return;
	ring_done(&cpu->samples);
	ring_done(&cpu->copied);
	ring_done(&cpu->side_band);
	for (uint32_t i = 0; i < cpu->n_sources; i++)
		close(cpu->source_fds[i]);
	close(cpu->side_band_fd);
	if (cpu->wakeup_fd >= 0)
		close(steal_fd(&cpu->wakeup_fd));
	if (cpu->sleep_fd >= 0)
		close(steal_fd(&cpu->sleep_fd));
	if (cpu->waking_fd >= 0)
		close(steal_fd(&cpu->waking_fd));
	for (uint32_t i = 0; cpu->events && i < cpu->events->len; i++)
		close(steal_fd(&((struct task_event *)g_ptr_array_index(cpu->events, i))->fd));
	g_clear_pointer(&cpu->events, g_ptr_array_unref);
	for (size_t i = 0; cpu->sample_id && i < ARRAY_SIZE(cpu->output_fds); i++)
		close(cpu->output_fds[i]);
	cpu->sample_id = cpu->code_id = 0;
	cpu->n_sources = cpu->copy_pages = 0;
	cpu->open = false;
}

static bool enable(int fd, void *data)
{
	return ioctl(fd, *(const bool *)data ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0) ==
	       0;
}

static bool enable_all(const struct cpu *cpu, enum event_kind kind, bool on, GError **error)
{
	if (for_each_event(cpu, kind, enable, &on))
		return true;
	g_set_error(error, G_FILE_ERROR, g_file_error_from_errno(errno),
		    "Switching a perf event %s failed: %s", on ? "on" : "off",
		    prof_strerror(-errno));
	return false;
}

bool cpu_enable_side_band(struct cpu *cpu, GError **error)
{
	return !cpu->open || enable_all(cpu, KIND_SIDE_BAND, true, error);
}

bool cpu_enable_sampling(struct cpu *cpu, bool on, GError **error)
{
	return enable_all(cpu, KIND_SAMPLES, on, error) && enable_all(cpu, KIND_COPIES, on, error);
}

bool cpu_is_silent(const struct cpu *cpu)
{
	return cpu->open && cpu->busy_now_ns >= cpu->busy_heard_ns + SILENT_NS;
}

int cpu_find_source(const struct cpu *cpu, uint64_t event_id)
{
	for (uint32_t i = 0; i < cpu->n_sources; i++)
		if (cpu->source_ids[i] == event_id)
			return i;
	return -1;
}

void cpus_parse_list(const char *text, uint8_t *online, size_t n)
{
	unsigned long first, last;
	char *end;

	while (*text >= '0' && *text <= '9') {
		first = last = strtoul(text, &end, 10);
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < n; first++)
			online[first] = 1;
		if (*end != ',')
			return;
		text = end + 1;
	}
}

bool cpus_read_online(struct cpus *cpus, uint8_t *ret_online)
{
	char text[sizeof(cpus->online)];
	ssize_t length = pread(cpus->online_fd, text, sizeof(text) - 1, 0);

	if (length <= 0)
		return false;
	text[length] = 0;
	if (strcmp(text, cpus->online) == 0)
		return false;
	memcpy(cpus->online, text, length + 1);
	memset(ret_online, 0, ENGINE_MAX_CPUS);
	cpus_parse_list(text, ret_online, ENGINE_MAX_CPUS);
	return true;
}
