/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perf - opens the kernel's events, for the engine to read
 *
 * Each CPU has a side-band event (mappings, names, forks, switches …) with its own ring, so that
 * samples cannot displace its records. The sampling events share a second ring; those that copy
 * the stacks of waits may have a third. All events are CPU-wide, and the engine keeps the
 * targets' records. With per-task events (perf-tasks.c), only dummy events are opened here, one
 * for each ring, which monitor this process, deliver nothing and own the rings. They live as
 * long as this process, whatever the targets do.
 * Making the sample rings takes longest, because their pages are cleared. So the side band is
 * opened first. As root, without per-task events, the side band's ring stays mapped, and the side
 * band is enabled at once, so that /proc can be read meanwhile.
 * Invariants: (1) no sampling event is enabled here
 *             (2) every ring is mapped here before its descriptor is passed on, so that its size
 *                 fits the mlock budget
 *             (3) profd never reads from a ring
 */
#include "config.h"

#include "arch/errno-text.h"
#include "daemon/broker/perf.h"

#include "arch/base.h"
#include "arch/regs.h"
#include "base/clock.h"
#include "base/each.h"
#include "daemon/broker/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

/* holds 0.2 s of 200 000 switches per second */
#define SIDE_BAND_BYTES (2u << 20)
#define SAMPLE_BYTES (1u << 20)
#define SAMPLE_MAX_BYTES (64u << 20)
#define RING_MIN_BYTES (32u << 10)
/* PERF_SAMPLE_STACK_USER is limited by the length of a record, which has 16 bits. */
#define STACK_MAX_BYTES 65528u
#define STACK_MIN_BYTES 1024u
#define STACK_GOOD_BYTES 32768u        /* nearly all stacks are smaller */
#define ARGUMENT_STACK_BYTES 2048      /* copied for arguments if stacks are not walked */
#define ARGUMENT_RING_BYTES (8u << 20) /* holds 0.2 s of 20 000 samples with arguments a second */
#define STACK_RINGS_A_SECOND 2         /* a ring of the largest stacks holds 1/2 s of samples */
#define STACK_WAIT_A_SECOND 4   /* copy more than STACK_GOOD_BYTES only if a ring holds 1/4 s */
#define STACK_HURRY_A_SECOND 16 /* copy fewer only if a ring would hold less than 1/16 s */
#define SAMPLES_TO_SIDE_BAND 4
#define INHERITED_COPIES_A_SECOND 1000u
#define COPIES_BYTES (8u << 20) /* holds 1/4 s of 500 copies a second */

int perf_open_event(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	return (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static long read_setting(const char *path, long fallback)
{
	g_autofree char *text = NULL;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return fallback;
	return strtol(text, NULL, 10);
}

uint32_t perf_max_frequency(void)
{
	return (uint32_t)read_setting("/proc/sys/kernel/perf_event_max_sample_rate", 100000);
}

bool perf_online_cpus(GArray **ret_cpus, GError **error)
{
	g_autoptr(GArray) cpus = g_array_new(FALSE, FALSE, sizeof(unsigned));
	g_autofree char *text = NULL;
	char *at;

	if (!g_file_get_contents("/sys/devices/system/cpu/online", &text, NULL, error))
		return false;
	for (at = text; g_ascii_isdigit(*at); at += *at == ',') {
		unsigned long first = strtoul(at, &at, 10), last = first;

		if (*at == '-')
			last = strtoul(at + 1, &at, 10);
		for (; first <= last && cpus->len < ENGINE_MAX_CPUS; first++) {
			unsigned cpu = (unsigned)first;

			g_array_append_val(cpus, cpu);
		}
	}
	if (cpus->len == 0)
		return broker_fail(error, BROKER_ERROR_FAILED,
				   "the kernel lists no CPU online: \"%s\"", text);
	*ret_cpus = g_steal_pointer(&cpus);
	return true;
}

/* Reports why an event could not be opened, and what to do about it. */
bool perf_fail_open(const struct event *event, unsigned cpu, int failed, GError **error)
{
	const char *name = event ? event->name : "dummy";
	g_autofree char *what = event ? g_strdup_printf("event '%s'", name)
				      : g_strdup("the system");

	switch (failed) {
	case EACCES:
	case EPERM:
		return broker_fail(
			error, BROKER_ERROR_NOT_AUTHORIZED,
			"cannot record %s: kernel.perf_event_paranoid is %ld. Use sudo, CAP_PERFMON or "
			"the profd service, or: sudo sysctl kernel.perf_event_paranoid=0%s",
			what, read_setting("/proc/sys/kernel/perf_event_paranoid", 2),
			failed == EPERM
				? "; in a container, a seccomp profile has to allow perf_event_open"
				: "");
	case EMFILE:
	case ENFILE:
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "too many open files for an event on CPU %u; raise `ulimit -n`",
				   cpu);
	case EBUSY:
		return broker_fail(error, BROKER_ERROR_BUSY,
				   "event \"%s\" is in use by another profiler", name);
	case ENOENT:
	case EOPNOTSUPP:
	case ENXIO:
		return broker_fail(
			error, BROKER_ERROR_NOT_SUPPORTED,
			"event '%s' does not exist on this machine. Use -e cpu-clock, which exists "
			"everywhere.",
			name);
	case EINVAL:
	case E2BIG:
		return broker_fail(
			error, BROKER_ERROR_NOT_SUPPORTED,
			event ? "event \"%s\" cannot be sampled here: the kernel refuses its settings"
			      : "this kernel is too old for event \"%s\" with build-ids; 6.1 is needed",
			name);
	default:
		return broker_fail(error, BROKER_ERROR_FAILED, "opening event \"%s\" on CPU %u: %s",
				   name, cpu, ERRNO_TEXT(failed));
	}
}

struct perf_event_attr perf_side_band_attr(const struct perf_plan *plan)
{
	return (struct perf_event_attr){
		.size = sizeof(struct perf_event_attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = ENGINE_SIDE_BAND_TYPE,
		.read_format = PERF_FORMAT_ID | PERF_FORMAT_LOST,
		.disabled = 1,
		.mmap = 1,
		.mmap2 = 1,
		.build_id = plan->build_ids,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		/* only CPU-wide events report these */
		.cgroup = !plan->by_task,
		.ksymbol = !plan->by_task,
		.exclude_kernel = plan->by_task,
		.inherit = plan->by_task,
		.inherit_thread = plan->by_task && !plan->children,
		.context_switch = 1,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.watermark = 1,
		.wakeup_watermark = plan->side_band_pages * (uint32_t)sysconf(_SC_PAGESIZE) / 4,
	};
}

struct perf_event_attr perf_source_attr(const struct perf_plan *plan, const struct event *event)
{
	struct perf_event_attr attr = event->attr;

	attr.size = sizeof(attr);
	if (event->kind == PROF_SOURCE_PROBE)
		attr.uprobe_path = (uintptr_t)event->probe_path;
	attr.sample_type = plan->copy_bytes ? ENGINE_STACK_SAMPLE_TYPE : ENGINE_SAMPLE_TYPE;
	if (plan->fields)
		attr.sample_type |= PERF_SAMPLE_RAW;
	attr.sample_regs_user = plan->copy_bytes ? regs_get(REGS_NATIVE)->perf_mask : 0;
	attr.sample_stack_user = plan->copy_bytes;
	attr.read_format = PERF_FORMAT_ID | PERF_FORMAT_LOST;
	attr.disabled = 1;
	attr.sample_id_all = 1;
	attr.use_clockid = 1;
	attr.clockid = CLOCK_MONOTONIC;
	attr.inherit = plan->by_task;
	attr.inherit_thread = plan->by_task && !plan->children;
	attr.watermark = 1;
	/* The ring of copies may fill more, because a lost copy costs less than a lost sample: the
	 * wait gets another wait's stack. */
	attr.wakeup_watermark = event->off_cpu && plan->copy_pages
					? plan->copy_pages * (uint32_t)sysconf(_SC_PAGESIZE) / 2
					: plan->sample_pages * (uint32_t)sysconf(_SC_PAGESIZE) / 4;
	if (event->counts_ns)
		attr.exclude_idle = 1; /* the clock also runs in the idle task */
	if (!plan->kernel && !event->kernel_only)
		attr.exclude_kernel = attr.exclude_hv = 1;
	attr.exclude_callchain_kernel = !plan->kernel || plan->call_graph == ENGINE_CALL_GRAPH_NONE;
	attr.exclude_callchain_user = plan->call_graph == ENGINE_CALL_GRAPH_NONE;
	if (event->off_cpu) {
		attr.sample_type = ENGINE_COPY_TYPE(attr.sample_type);
		/* The engine adapts the period of a CPU's event. It cannot adapt events that
		 * children inherit; the kernel adapts those, though not as well. */
		attr.freq = plan->by_task;
		if (plan->by_task)
			attr.sample_freq = MIN_OF(INHERITED_COPIES_A_SECOND, perf_max_frequency());
		else
			attr.sample_period = 1;
	} else if (event->counts_ns && !event->every_one) {
		/* cpu-clock is an hrtimer, so its frequency is a fixed period. */
		attr.sample_period = 1000000000 / plan->frequency;
	} else if (!event->every_one) {
		attr.freq = 1;
		attr.sample_freq = plan->frequency;
	}
	return attr;
}

bool perf_set_filter(int fd, const struct event *event, GError **error)
{
	g_autoptr(GString) names = g_string_new(NULL);
	g_autoptr(GArray) fields = NULL;
	struct event_dirs dirs;
	int failed;

	if (!event->filter[0] || event->kind == PROF_SOURCE_PROBE ||
	    ioctl(fd, PERF_EVENT_IOC_SET_FILTER, event->filter) == 0)
		return true;
	failed = errno;
	event_dirs_open(&dirs);
	fields = event_fields(&dirs, event);
	event_dirs_done(&dirs);
	for (unsigned i = 0; fields && i < fields->len; i++)
		g_string_append_printf(names, "%s%s", i ? ", " : "",
				       g_array_index(fields, struct message_field, i).name);
	return broker_fail(
		error, BROKER_ERROR_INVALID_OPTION,
		"event \"%s\": the kernel refuses the filter \"%s\": %s; it compares fields "
		"as in pid==1 && comm~\"x*\", and this event has %s",
		event->name, event->filter, ERRNO_TEXT(failed), names->len ? names->str : "none");
}

static bool open_one(struct perf_event_attr *attr, const struct event *event, pid_t pid,
		     struct perf_cpu *cpu, GError **error)
{
	int fd = perf_open_event(attr, pid, (int)cpu->cpu);

	if (fd < 0)
		return perf_fail_open(event, cpu->cpu, errno, error);
	cpu->fds[cpu->n_fds] = fd;
	if (ioctl(fd, PERF_EVENT_IOC_ID, &cpu->ids[cpu->n_fds++]) < 0)
		return perf_fail_open(event, cpu->cpu, errno, error);
	return !event || perf_set_filter(fd, event, error);
}

enum perf_ring { RING_SIDE_BAND, RING_SAMPLES, RING_COPIES };

/* *ret_too_big: the ring exceeds the memory that may be locked; a smaller one may fit. */
static bool map_ring(struct perf_cpu *cpu, unsigned event, enum perf_ring which, uint32_t pages,
		     bool *ret_too_big, GError **error)
{
	size_t bytes = (1 + (size_t)pages) * (size_t)sysconf(_SC_PAGESIZE);
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cpu->fds[event], 0);

	if (map == MAP_FAILED) {
		*ret_too_big = errno == EPERM || errno == ENOMEM;
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "mapping a ring of %zu KiB for CPU %u: %s; raise `ulimit -l` or "
				   "kernel.perf_event_mlock_kb (now %ld)",
				   bytes >> 10, cpu->cpu, ERRNO_TEXT(errno),
				   read_setting("/proc/sys/kernel/perf_event_mlock_kb", 0));
	}
	cpu->maps[which] = map;
	cpu->map_bytes[which] = bytes;
	return true;
}

/* Returns the attributes of a dummy event for a ring. The event monitors this process, which needs
 * no privilege. */
static struct perf_event_attr ring_attr(uint32_t pages)
{
	return (struct perf_event_attr){
		.size = sizeof(struct perf_event_attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = ENGINE_SIDE_BAND_TYPE,
		.read_format = PERF_FORMAT_ID | PERF_FORMAT_LOST,
		.disabled = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.watermark = 1,
		.wakeup_watermark = pages * (uint32_t)sysconf(_SC_PAGESIZE) / 4,
	};
}

static bool cpu_open_rings(const struct perf_plan *plan, struct perf_cpu *cpu, bool *ret_too_big,
			   GError **error)
{
	const uint32_t pages[] = { plan->side_band_pages, plan->sample_pages, plan->copy_pages };

	for (unsigned i = 0; i < ARRAY_SIZE(pages) && pages[i] > 0; i++) {
		struct perf_event_attr attr = ring_attr(pages[i]);

		if (!open_one(&attr, NULL, 0, cpu, error) ||
		    !map_ring(cpu, i, (enum perf_ring)i, pages[i], ret_too_big, error))
			return false;
	}
	return true;
}

/* Opens the side-band event; with per-task events, opens everything that a CPU needs. */
static bool cpu_open_side_band(const struct perf_plan *plan, unsigned number, struct perf_cpu *cpu,
			       bool *ret_too_big, GError **error)
{
	struct perf_event_attr attr = perf_side_band_attr(plan);

	*cpu = (struct perf_cpu){ .cpu = number };
	if (plan->by_task)
		return cpu_open_rings(plan, cpu, ret_too_big, error);
	return open_one(&attr, NULL, -1, cpu, error) &&
	       map_ring(cpu, 0, RING_SIDE_BAND, plan->side_band_pages, ret_too_big, error);
}

static bool cpu_open_sources(const struct perf_plan *plan, struct perf_cpu *cpu, bool *ret_too_big,
			     GError **error)
{
	int rings[] = { -1,
			-1 }; /* fds of the events that own the rings of samples and of copies */

	for (unsigned i = 0; !plan->by_task && i < plan->n_events; i++) {
		struct perf_event_attr attr = perf_source_attr(plan, &plan->events[i]);
		bool copies = plan->events[i].off_cpu && plan->copy_pages;

		if (!open_one(&attr, &plan->events[i], -1, cpu, error))
			return false;
		if (rings[copies] < 0) {
			rings[copies] = cpu->fds[1 + i];
			if (!map_ring(cpu, 1 + i, copies ? RING_COPIES : RING_SAMPLES,
				      copies ? plan->copy_pages : plan->sample_pages, ret_too_big,
				      error))
				return false;
		} else if (ioctl(cpu->fds[1 + i], PERF_EVENT_IOC_SET_OUTPUT, rings[copies]) < 0) {
			return broker_fail(
				error, BROKER_ERROR_NOT_SUPPORTED,
				"events \"%s\" and \"%s\" cannot be recorded together: %s",
				plan->events[0].name, plan->events[i].name, ERRNO_TEXT(errno));
		}
	}
	return true;
}

static struct perf_event_attr wakeup_attr(uint64_t id)
{
	return (struct perf_event_attr){
		.size = sizeof(struct perf_event_attr),
		.type = PERF_TYPE_TRACEPOINT,
		.config = id,
		.sample_period = 1,
		.sample_type = ENGINE_WAKEUP_TYPE,
		.read_format = PERF_FORMAT_ID | PERF_FORMAT_LOST,
		.disabled = 1,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
	};
}

/* Opens an event that writes into the side band's ring. */
static bool cpu_open_side_event(struct perf_event_attr attr, const struct event *event,
				const char *what, struct perf_cpu *cpu, bool *ret_has,
				GError **error)
{
	if (!open_one(&attr, event, -1, cpu, error))
		return false;
	*ret_has = true;
	if (ioctl(cpu->fds[cpu->n_fds - 1], PERF_EVENT_IOC_SET_OUTPUT, cpu->fds[0]) == 0)
		return true;
	return broker_fail(error, BROKER_ERROR_FAILED, "recording %s on CPU %u: %s", what, cpu->cpu,
			   g_strerror(errno));
}

struct perf_event_attr perf_sleep_attr(const struct perf_plan *plan)
{
	struct perf_event_attr attr = wakeup_attr(plan->sleep_id);

	attr.sample_type = ENGINE_SLEEP_TYPE;
	attr.sample_regs_user = regs_get(REGS_NATIVE)->perf_sleep_mask;
	attr.inherit = plan->by_task;
	attr.inherit_thread = plan->by_task && !plan->children;
	return attr;
}

static struct perf_event_attr waking_attr(uint64_t id)
{
	struct perf_event_attr attr = wakeup_attr(id);

	attr.sample_type = ENGINE_SLEEP_TYPE;
	attr.sample_regs_user = regs_waking_mask(regs_get(REGS_NATIVE));
	return attr;
}

/* Opens the events of wake-ups, sleeps and wakers, after the sources, so that the sources'
 * positions do not change. */
static bool cpu_open_waits(const struct perf_plan *plan, struct perf_cpu *cpu, GError **error)
{
	if (plan->by_task)
		return true;
	if (plan->wakeup_id && !cpu_open_side_event(wakeup_attr(plan->wakeup_id), NULL, "wake-ups",
						    cpu, &cpu->has_wakeups, error))
		return false;
	if (plan->sleep_id &&
	    !cpu_open_side_event(perf_sleep_attr(plan),
				 &plan->events[plan->n_events - 1 - (plan->waking_id != 0)],
				 "sleeps", cpu, &cpu->has_sleeps, error))
		return false;
	return !plan->waking_id || cpu_open_side_event(waking_attr(plan->waking_id), NULL, "wakers",
						       cpu, &cpu->has_wakings, error);
}

void perf_cpu_unmap(struct perf_cpu *cpu)
{
	for (unsigned i = 0; i < ARRAY_SIZE(cpu->maps); i++)
		if (cpu->maps[i])
			munmap(cpu->maps[i], cpu->map_bytes[i]);
	memset(cpu->maps, 0, sizeof(cpu->maps));
}

/* Unmaps the rings, unless they must stay mapped until the engine has mapped them. The first
 * mapping of a ring is charged to its user's mlock budget. Root's engine runs under another uid,
 * which has no budget, so root's mapping stays. Otherwise profd and the engine have the same user,
 * and Linux (6.18) charges a second mapping without ever refunding it, so there must be only one.
 * But sources that share a ring lose it when nothing maps it, so with several sources the mapping
 * stays, too. */
static void release_probe(const struct perf_plan *plan, struct perf_cpu *cpu)
{
	if (geteuid() != 0 && (plan->by_task || cpu->n_fds <= 2))
		perf_cpu_unmap(cpu);
}

bool perf_cpu_open(const struct perf_plan *plan, unsigned cpu, struct perf_cpu *ret_cpu,
		   GError **error)
{
	struct perf_cpu opened;
	bool too_big;

	if (!cpu_open_side_band(plan, cpu, &opened, &too_big, error) ||
	    !cpu_open_sources(plan, &opened, &too_big, error) ||
	    !cpu_open_waits(plan, &opened, error)) {
		perf_cpu_done(&opened);
		return false;
	}
	release_probe(plan, &opened);
	*ret_cpu = opened;
	return true;
}

void perf_cpu_close_fds(struct perf_cpu *cpu)
{
	for (unsigned i = 0; i < cpu->n_fds; i++)
		close(steal_fd(&cpu->fds[i]));
	cpu->n_fds = 0;
}

void perf_cpu_done(struct perf_cpu *cpu)
{
	perf_cpu_close_fds(cpu);
	perf_cpu_unmap(cpu);
}

/* Returns the largest number of pages that is a power of two and fits into `bytes`, within the
 * limits of a ring. */
static uint32_t ring_pages(uint64_t bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t pages = MAX_OF(RING_MIN_BYTES / page, UINT64_C(1));

	bytes = MIN_OF(bytes, SAMPLE_MAX_BYTES);
	while (pages * 2 * page <= bytes)
		pages *= 2;
	return (uint32_t)pages;
}

/* Returns the rate, in samples per second, for which a CPU's ring is sized. Events without a
 * frequency may be rarer, or far more frequent. */
static uint64_t sample_rate(const struct perf_plan *plan)
{
	/* Stacks of sleeping threads and of wakers have a separate ring. */
	unsigned n = MAX_OF(plan->n_events - (plan->sleep_id != 0) - (plan->waking_id != 0), 1u);

	return MAX_OF((uint64_t)plan->frequency, UINT64_C(1000)) * n;
}

static bool has_arguments(const struct perf_plan *plan)
{
	for (unsigned i = 0; i < plan->n_events; i++)
		if (plan->events[i].n_arguments > 0)
			return true;
	return false;
}

/* Chooses how many bytes of a stack to copy: the largest number with which the ring still holds
 * samples for long enough. */
static void choose_stack_bytes(struct perf_plan *plan)
{
	uint64_t ring = (uint64_t)plan->sample_pages * (uint64_t)sysconf(_SC_PAGESIZE), bytes;

	plan->stack_bytes = 0;
	plan->copy_bytes = has_arguments(plan) ? ARGUMENT_STACK_BYTES : 0;
	if (plan->call_graph != ENGINE_CALL_GRAPH_DWARF || plan->n_events == 0)
		return;
	bytes = ring * STACK_WAIT_A_SECOND / sample_rate(plan);
	if (bytes < STACK_GOOD_BYTES)
		bytes = MIN_OF(ring * STACK_HURRY_A_SECOND / sample_rate(plan),
			       (uint64_t)STACK_GOOD_BYTES);
	bytes = bytes / 1024 * 1024;
	plan->stack_bytes = (uint32_t)MIN_OF(MAX_OF(bytes, (uint64_t)STACK_MIN_BYTES),
					     (uint64_t)STACK_MAX_BYTES);
	plan->copy_bytes = plan->stack_bytes;
}

static bool has_copies(const struct perf_plan *plan)
{
	return plan->sleep_id && !plan->events[0].off_cpu;
}

/* Sets the sizes that depend on the size of the sample ring. */
static void choose_copies(struct perf_plan *plan)
{
	plan->copy_pages = has_copies(plan) ? MIN_OF(plan->sample_pages, ring_pages(COPIES_BYTES))
					    : 0;
	choose_stack_bytes(plan);
}

static void choose_sizes(struct perf_plan *plan, unsigned n_cpus)
{
	uint64_t share = PERF_RING_BUDGET / n_cpus / 2, wanted = SAMPLE_BYTES;
	/* A wake-up takes as much space as the two switches after it, a sleep as two wake-ups. */
	uint64_t wanted_side_band = plan->sleep_id    ? 4 * SIDE_BAND_BYTES
				    : plan->wakeup_id ? 2 * SIDE_BAND_BYTES
						      : SIDE_BAND_BYTES;

	if (plan->call_graph == ENGINE_CALL_GRAPH_DWARF)
		wanted = STACK_MAX_BYTES * sample_rate(plan) / STACK_RINGS_A_SECOND;
	else if (has_arguments(plan))
		wanted = ARGUMENT_RING_BYTES;
	wanted = plan->ring_bytes ? plan->ring_bytes / n_cpus
				  : MIN_OF(wanted, has_copies(plan) ? share / 2 : share);
	plan->side_band_pages = ring_pages(MIN_OF(wanted_side_band, share));
	plan->sample_pages = plan->n_events ? ring_pages(wanted) : 0;
	choose_copies(plan);
}

/* Halves the sample ring if it is much larger than the side band's ring, or if the side band's ring
 * is at the minimum; else halves the side band's ring. Returns false if both are at the minimum. */
static bool shrink(struct perf_plan *plan)
{
	uint32_t smallest = ring_pages(0);
	bool samples = plan->sample_pages > SAMPLES_TO_SIDE_BAND * plan->side_band_pages;

	if (plan->side_band_pages <= smallest && plan->sample_pages <= smallest)
		return false;
	if (plan->side_band_pages <= smallest || (samples && plan->sample_pages > smallest))
		plan->sample_pages /= 2;
	else
		plan->side_band_pages /= 2;
	choose_copies(plan);
	return true;
}

static void cpu_clear(void *cpu)
{
	perf_cpu_done(cpu);
}

static bool begin(struct perf_plan *plan, const GArray *cpus, GError **error)
{
	plan->begin_ns = 0;
	if (!plan->begun || plan->by_task || geteuid() != 0)
		return true;
	plan->begin_ns = clock_now();
	ARRAY_EACH(const struct perf_cpu, cpu, cpus)
		if (ioctl(cpu->fds[0], PERF_EVENT_IOC_ENABLE, 0) < 0)
			return broker_fail(error, BROKER_ERROR_FAILED,
					   "enabling the events of CPU %u: %s", cpu->cpu,
					   ERRNO_TEXT(errno));
	plan->begun(plan->data);
	return true;
}

static bool open_all(struct perf_plan *plan, const GArray *numbers, GArray **ret_cpus,
		     bool *ret_too_big, GError **error)
{
	g_autoptr(GArray)
		cpus = g_array_sized_new(FALSE, TRUE, sizeof(struct perf_cpu), numbers->len);

	g_array_set_clear_func(cpus, cpu_clear);
	for (unsigned i = 0; i < numbers->len; i++) {
		struct perf_cpu cpu;
		bool opened = cpu_open_side_band(plan, g_array_index(numbers, unsigned, i), &cpu,
						 ret_too_big, error);

		g_array_append_val(cpus, cpu);
		if (!opened)
			return false;
	}
	if (!begin(plan, cpus, error))
		return false;
	for (unsigned i = 0; i < cpus->len; i++)
		if (!cpu_open_sources(plan, &g_array_index(cpus, struct perf_cpu, i), ret_too_big,
				      error) ||
		    !cpu_open_waits(plan, &g_array_index(cpus, struct perf_cpu, i), error))
			return false;
	/* Unmap only now, so that all rings are mapped at the same time, as in the engine. */
	for (unsigned i = 0; i < cpus->len; i++)
		release_probe(plan, &g_array_index(cpus, struct perf_cpu, i));
	*ret_cpus = g_steal_pointer(&cpus);
	return true;
}

/* Tries to open the event, for a whole CPU or for the calling thread. Returns 0 or an errno. */
static int try_open(struct perf_event_attr *attr, bool system)
{
	g_autoptr(GArray) numbers = NULL;
	CLEANUP_CLOSE int fd = -1;

	if (!system)
		fd = perf_open_event(attr, 0, -1);
	else if (perf_online_cpus(&numbers, NULL))
		fd = perf_open_event(attr, -1, (int)g_array_index(numbers, unsigned, 0));
	return fd >= 0 ? 0 : errno;
}

/* Returns whether samples can contain the fields of the tracepoints, which a user may be denied
 * although the samples themselves are permitted. */
static bool has_fields(const struct perf_plan *plan)
{
	struct perf_plan with = *plan;
	bool has_any = false;

	with.fields = true;
	for (unsigned i = 0; i < plan->n_events; i++) {
		struct perf_event_attr attr = perf_source_attr(&with, &plan->events[i]);
		int failed = 0;

		if (plan->events[i].kind != PROF_SOURCE_TRACEPOINT || plan->events[i].off_cpu)
			continue;
		has_any = true;
		if (geteuid() != 0)
			failed = try_open(&attr, !plan->by_task);
		if (failed == EACCES || failed == EPERM)
			return false;
	}
	return has_any;
}

bool perf_open_all(struct perf_plan *plan, GArray **ret_cpus, GError **error)
{
	g_autoptr(GArray) numbers = NULL;
	bool wants_kernel = plan->kernel;

	if (!perf_online_cpus(&numbers, error))
		return false;
	if (plan->by_task && plan->kernel) {
		bool system;

		perf_rights(&system, &plan->kernel);
	}
	/* Fields may be addresses of the kernel, so a client that may not see the kernel gets no
	 * fields. Unless profd is root, has_fields() also asks the kernel for permission. */
	plan->fields = wants_kernel && has_fields(plan);
	for (choose_sizes(plan, numbers->len);;) {
		g_autoptr(GError) failure = NULL;
		g_autoptr(GArray) now = NULL;
		bool too_big = false;

		if (open_all(plan, numbers, ret_cpus, &too_big, &failure))
			return true;
		/* A CPU may have gone online or offline since the list was read. */
		if (perf_online_cpus(&now, NULL) &&
		    (now->len != numbers->len ||
		     memcmp(now->data, numbers->data, now->len * sizeof(unsigned)) != 0)) {
			g_clear_pointer(&numbers, g_array_unref);
			numbers = g_steal_pointer(&now);
		} else if (!too_big || !shrink(plan)) {
			g_propagate_error(error, g_steal_pointer(&failure));
			return false;
		}
	}
}

bool perf_event_works(const struct event *event)
{
	struct perf_plan plan = { .frequency = 1, .kernel = true };
	struct perf_event_attr attr = perf_source_attr(&plan, event);
	int failed = try_open(&attr, true);

	if (failed != EACCES && failed != EPERM)
		return failed == 0;
	plan.kernel = false;
	attr = perf_source_attr(&plan, event);
	return try_open(&attr, false) == 0;
}

bool perf_tracepoints_work(GError **error)
{
	struct perf_plan plan = { .frequency = 1, .kernel = true };
	struct perf_event_attr attr;
	struct event_dirs dirs;
	struct event event;
	bool is_there;
	int failed;

	event_dirs_open(&dirs);
	is_there = event_parse(&dirs, "sched:sched_switch", &event, error);
	event_dirs_done(&dirs);
	if (!is_there)
		return false;
	/* Do not exclude the kernel: an event that excludes it can be opened, but never occurs. */
	attr = perf_source_attr(&plan, &event);
	failed = try_open(&attr, true);
	if (failed)
		failed = try_open(&attr, false);
	return failed == 0 || perf_fail_open(&event, 0, failed, error);
}

uint64_t perf_wakeup_id(void)
{
	struct perf_event_attr attr;
	struct event_dirs dirs;
	struct event event;
	bool is_there;

	/* Events may share a ring only while it is mapped, and only root's rings always stay mapped
	 * (release_probe()). */
	if (geteuid() != 0)
		return 0;
	event_dirs_open(&dirs);
	is_there = event_parse(&dirs, "sched:sched_wakeup", &event, NULL) &&
		   event_has_field(&dirs, "sched", "sched_wakeup", "pid", ENGINE_WAKEUP_TID_OFFSET,
				   sizeof(uint32_t));
	event_dirs_done(&dirs);
	if (!is_there)
		return 0;
	attr = wakeup_attr(event.attr.config);
	return try_open(&attr, true) == 0 ? event.attr.config : 0;
}

/* Makes an event copy stacks at an adapted rate instead of at every occurrence. */
static void make_copying(struct event *event, const char *filter)
{
	event->off_cpu = true;
	event->every_one = false;
	event->attr.sample_period = 0;
	g_strlcpy(event->filter, filter, sizeof(event->filter));
}

/* Makes an event of a scheduler tracepoint. Returns false if there is no such tracepoint, if its
 * field is not where the engine reads it, if this process is not root, or if registers cannot be
 * copied here. */
static bool find_tracepoint(const char *name, const char *field, unsigned offset, unsigned bytes,
			    struct event *ret_event)
{
	g_autofree char *full = g_strconcat("sched:", name, NULL);
	struct event_dirs dirs;
	bool is_there;

	if (geteuid() != 0 || REGS_NATIVE == REGS_NONE)
		return false;
	event_dirs_open(&dirs);
	is_there = event_parse(&dirs, full, ret_event, NULL) &&
		   event_has_field(&dirs, "sched", name, field, offset, bytes);
	event_dirs_done(&dirs);
	return is_there;
}

uint64_t perf_sleep_id(struct event *ret_event)
{
	struct perf_plan plan = { 0 };
	struct perf_event_attr attr;

	if (!find_tracepoint("sched_switch", "prev_state", ENGINE_SLEEP_STATE_OFFSET,
			     sizeof(uint64_t), ret_event))
		return 0;
	make_copying(ret_event, PERF_SLEEP_FILTER);
	plan.sleep_id = ret_event->attr.config;
	attr = perf_sleep_attr(&plan);
	return try_open(&attr, true) == 0 ? plan.sleep_id : 0;
}

uint64_t perf_waking_id(struct event *ret_event)
{
	struct perf_event_attr attr;

	if (!find_tracepoint("sched_waking", "pid", ENGINE_WAKEUP_TID_OFFSET, sizeof(uint32_t),
			     ret_event))
		return 0;
	make_copying(ret_event, PERF_WAKING_FILTER);
	ret_event->wakes = true;
	attr = waking_attr(ret_event->attr.config);
	return try_open(&attr, true) == 0 ? ret_event->attr.config : 0;
}

void perf_rights(bool *ret_system, bool *ret_kernel)
{
	struct perf_event_attr attr = ring_attr(1);

	*ret_system = try_open(&attr, true) == 0;
	attr.exclude_kernel = attr.exclude_hv = 0;
	*ret_kernel = try_open(&attr, false) == 0;
}

bool perf_default_event(struct event *ret_event, GError **error)
{
	if (!event_parse(NULL, "cycles", ret_event, error))
		return false;
	return perf_event_works(ret_event) || event_parse(NULL, "cpu-clock", ret_event, error);
}
