/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * CPUs - the events and rings of each CPU
 *
 * A CPU has a side-band event with its own ring, and events that sample, which share a second one. The broker opened
 * them disabled; they are enabled, disabled and read here, which needs no privilege. CPU numbers are the kernel's and
 * may have holes. A CPU that goes offline takes its events with it: they are closed, and opened anew by the broker when
 * it is back.
 * Invariants: (1) an fd is in one struct cpu and closed once
 *             (2) a list of CPUs never sets a byte beyond the caller's array    [test-engine-samples: list]
 * Runs on the drain thread only.
 */
#include "daemon/engine/cpus.h"

#include "arch/base.h"

#include <errno.h>
#include <gio/gio.h>
#include <sys/ioctl.h>

#define SILENT_NS UINT64_C(300000000) /* of busy time, in which hundreds of samples are due */

void cpus_init(struct cpus *cpus, int online_fd)
{
	*cpus = (struct cpus){ .online_fd = online_fd, .all = g_ptr_array_new() };
}

void cpus_done(struct cpus *cpus)
{
	guint i;

	if (!cpus->all)
		return;
	for (i = 0; i < cpus->all->len; i++) {
		struct cpu *cpu = g_ptr_array_index(cpus->all, i);

		cpu_close(cpu);
		switches_done(&cpu->switches);
		g_free(cpu);
	}
	g_ptr_array_free(cpus->all, TRUE);
	cpus->all = NULL;
}

static struct cpu *find_or_add(struct cpus *cpus, uint32_t number)
{
	struct cpu *cpu = cpus->by_number[number];

	if (cpu)
		return cpu;
	cpu = g_new0(struct cpu, 1);
	cpu->number = number;
	switches_init(&cpu->switches, 0);
	cpus->by_number[number] = cpu;
	g_ptr_array_add(cpus->all, cpu);
	return cpu;
}

struct cpu *cpus_open(struct cpus *cpus, const struct message_cpu *message, int *fds, size_t n_fds,
		      GError **error)
{
	struct cpu *cpu;
	uint32_t i;

	if (message->cpu >= ENGINE_MAX_CPUS || message->n_sources > ENGINE_MAX_SOURCES ||
	    n_fds != 1 + (size_t)message->n_sources ||
	    (message->sample_pages != 0) != (message->n_sources != 0)) {
		g_set_error(error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
			    "The message about CPU %u contradicts itself", message->cpu);
		return NULL;
	}
	cpu = find_or_add(cpus, message->cpu);
	cpu_close(cpu);
	cpu->open = true;
	cpu->side_band_fd = steal_fd(&fds[0]);
	cpu->n_sources = message->n_sources;
	for (i = 0; i < message->n_sources; i++) {
		cpu->source_fds[i] = steal_fd(&fds[1 + i]);
		cpu->source_ids[i] = message->source_ids[i];
	}
	if (!ring_init(&cpu->side_band, cpu->side_band_fd, message->side_band_pages, error) ||
	    (cpu->n_sources &&
	     !ring_init(&cpu->samples, cpu->source_fds[0], message->sample_pages, error))) {
		g_prefix_error(error, "CPU %u: ", message->cpu);
		cpu_close(cpu);
		return NULL;
	}
	memset(cpu->told_lost, 0, sizeof(cpu->told_lost));
	cpu->counted_lost = 0;
	cpu->throttled_ns = 0;
	return cpu;
}

void cpu_disable(struct cpu *cpu)
{
	uint32_t i;

	if (!cpu->open)
		return;
	/* A failure means that the event is gone with its CPU; what it wrote is in the ring. */
	for (i = 0; i < cpu->n_sources; i++)
		(void)ioctl(cpu->source_fds[i], PERF_EVENT_IOC_DISABLE, 0);
	(void)ioctl(cpu->side_band_fd, PERF_EVENT_IOC_DISABLE, 0);
}

/* read_format ID | LOST: value, id, lost; kernels before 6.0 do not count. */
static uint64_t read_lost(int fd)
{
	uint64_t values[3];

	return read(fd, values, sizeof(values)) == sizeof(values) ? values[2] : 0;
}

void cpu_count_lost(struct cpu *cpu, uint64_t period_ns)
{
	uint64_t lost = cpu->n_sources ? read_lost(cpu->source_fds[0]) : 0;

	if (lost <= cpu->counted_lost)
		return;
	cpu->sampled_ns += (lost - cpu->counted_lost) * period_ns;
	cpu->sampled_here_ns += (lost - cpu->counted_lost) * period_ns;
	cpu->counted_lost = lost;
}

void cpu_add_lost(struct cpu *cpu, struct loss_table *losses, uint64_t now_ns)
{
	uint64_t lost[2] = { 0 };
	uint32_t i;

	if (!cpu->open)
		return;
	for (i = 0; i < cpu->n_sources; i++)
		lost[0] += read_lost(cpu->source_fds[i]);
	lost[1] = read_lost(cpu->side_band_fd);
	if (lost[0] > cpu->told_lost[0])
		loss_add_cpu(losses, cpu->number, false, PROF_LOSS_PERF_LOST_SAMPLES,
			     lost[0] - cpu->told_lost[0], cpu->last_ns[0], now_ns);
	if (lost[1] > cpu->told_lost[1])
		loss_add_cpu(losses, cpu->number, true, PROF_LOSS_SIDE_BAND,
			     lost[1] - cpu->told_lost[1], cpu->last_ns[1], now_ns);
	cpu->told_lost[0] = MAX_OF(lost[0], cpu->told_lost[0]);
	cpu->told_lost[1] = MAX_OF(lost[1], cpu->told_lost[1]);
}

void cpu_close(struct cpu *cpu)
{
	uint32_t i;

	if (!cpu->open)
		return;
	ring_done(&cpu->samples);
	ring_done(&cpu->side_band);
	for (i = 0; i < cpu->n_sources; i++)
		close(cpu->source_fds[i]);
	close(cpu->side_band_fd);
	cpu->n_sources = 0;
	cpu->open = false;
}

static bool enable(int fd, bool on, GError **error)
{
	if (ioctl(fd, on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0) == 0)
		return true;
	g_set_error(error, G_IO_ERROR, g_io_error_from_errno(errno),
		    "Switching a perf event %s failed: %s", on ? "on" : "off", g_strerror(errno));
	return false;
}

bool cpu_enable_side_band(struct cpu *cpu, GError **error)
{
	return !cpu->open || enable(cpu->side_band_fd, true, error);
}

bool cpu_enable_sampling(struct cpu *cpu, bool on, GError **error)
{
	uint32_t i;

	for (i = 0; i < cpu->n_sources; i++)
		if (!enable(cpu->source_fds[i], on, error))
			return false;
	return true;
}

bool cpu_is_silent(const struct cpu *cpu)
{
	return cpu->open && cpu->busy_now_ns >= cpu->busy_heard_ns + SILENT_NS;
}

int cpu_find_source(const struct cpu *cpu, uint64_t event_id)
{
	uint32_t i;

	for (i = 0; i < cpu->n_sources; i++)
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
