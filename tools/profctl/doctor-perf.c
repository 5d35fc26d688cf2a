/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor perf - may this user sample, how much, and with what
 *
 * The sysctl only explains; the test is whether perf_event_open() succeeds, because capabilities,
 * security modules and seccomp filters decide too. Levels of kernel.perf_event_paranoid
 * (Documentation/admin-guide/sysctl/kernel.rst): from 2 up no kernel, from 1 up no CPU-wide events,
 * from 0 up no raw tracepoints; Debian's and Ubuntu's 3 and 4: nothing.
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include "tools/common/text.h"

#include <errno.h>
#include <glib/gi18n.h>

#define PARANOID "/proc/sys/kernel/perf_event_paranoid"
#define DEFAULT_FREQUENCY 999

static int perf_try(const struct doctor_host *host, bool system, bool kernel)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 1000000,
		.disabled = 1,
		.exclude_kernel = !kernel,
		.exclude_hv = !kernel,
	};

	return host->probes->perf_open(&attr, system ? -1 : 0, system ? 0 : -1);
}

static int perf_allowed(const struct doctor_host *host, bool system, bool kernel)
{
	CLEANUP_CLOSE int fd = perf_try(host, system, kernel);

	return fd < 0 ? fd : 0;
}

static void perf_refused(struct doctor_finding *finding, int error, int64_t level)
{
	if (level > 2 && (error == -EACCES || error == -EPERM)) {
		doctor_found(
			finding, DOCTOR_FAIL,
			_("kernel.perf_event_paranoid is %d: you may record nothing, not even your own processes"),
			(int)level);
		doctor_fix(finding, "sudo sysctl kernel.perf_event_paranoid=2");
		return;
	}
	doctor_found(finding, DOCTOR_FAIL,
		     _("perf_event_open is refused (%s) although kernel.perf_event_paranoid is %d: "
		       "a seccomp filter or a security module"),
		     g_strerror(-error), (int)level);
	doctor_fix(
		finding,
		_("in a container: start it with --cap-add=PERFMON and a seccomp profile that allows perf_event_open"));
}

void doctor_perf_paranoid(const struct doctor_host *host, struct doctor_finding *finding)
{
	int64_t level;
	int own = perf_allowed(host, false, false);
	bool kernel = own == 0 && perf_allowed(host, false, true) == 0;
	bool system = own == 0 && perf_allowed(host, true, kernel) == 0;

	if (!doctor_read_int(host, PARANOID, &level)) {
		doctor_found(
			finding, DOCTOR_FAIL,
			_("this kernel has no perf events, or /proc is not mounted (no kernel.perf_event_paranoid)"));
		doctor_fix(finding, _("run a kernel with CONFIG_PERF_EVENTS=y"));
		return;
	}
	if (own < 0) {
		perf_refused(finding, own, level);
		return;
	}
	if (system && kernel) {
		doctor_found(
			finding, DOCTOR_OK,
			_("you may record the whole system, kernel included (kernel.perf_event_paranoid is %d)"),
			(int)level);
		return;
	}
	doctor_found(
		finding, DOCTOR_WARN,
		system ? _("kernel.perf_event_paranoid is %d: you may record the whole system, but not the kernel's part")
		: kernel
			? _("kernel.perf_event_paranoid is %d: you may record your own processes, kernel included, but not the whole system")
			: _("kernel.perf_event_paranoid is %d: you may record your own processes, but neither the whole system nor the kernel's part"),
		(int)level);
	if (level > 0)
		doctor_fix(finding, "sudo sysctl kernel.perf_event_paranoid=0");
	else
		doctor_fix(finding, "sudo profctl record --system");
}

/* Returns RLIMIT_MEMLOCK in bytes; UINT64_MAX for no limit. */
static uint64_t perf_memlock_limit(const struct doctor_host *host)
{
	static const char name[] = "Max locked memory";
	g_autofree char *limits = doctor_read(host, "/proc/self/limits");
	const char *line = limits ? strstr(limits, name) : NULL;
	const char *value = line ? line + strlen(name) : NULL;

	while (value && *value == ' ')
		value++;
	if (!value)
		return 0;
	return g_str_has_prefix(value, "unlimited") ? UINT64_MAX
						    : g_ascii_strtoull(value, NULL, 10);
}

/* Returns how much memory this user's rings may take: a budget per CPU plus the process's own limit
 * (kernel/events/core.c: perf_mmap). */
static uint64_t perf_ring_budget(const struct doctor_host *host)
{
	uint64_t budget, limit = perf_memlock_limit(host);
	int64_t per_cpu, level;

	if (!doctor_read_int(host, "/proc/sys/kernel/perf_event_mlock_kb", &per_cpu) || per_cpu < 0)
		return 0;
	if ((host->capabilities & DOCTOR_IPC_LOCK) ||
	    (doctor_read_int(host, PARANOID, &level) && level < 0))
		return UINT64_MAX;
	if (!mul_u64((uint64_t)per_cpu, 1024 * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), &budget) ||
	    !add_u64(budget, limit, &budget))
		return UINT64_MAX;
	return budget;
}

void doctor_perf_mlock(const struct doctor_host *host, struct doctor_finding *finding)
{
	static const size_t sizes[] = { 512 * 1024, 128 * 1024, 32 * 1024 };
	uint64_t budget = perf_ring_budget(host);
	g_autofree char *budget_text = budget == UINT64_MAX ? g_strdup(_("no limit"))
							    : text_bytes(budget);
	CLEANUP_CLOSE int fd = perf_try(host, false, false);
	unsigned i = 0;

	if (fd < 0) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("rings could not be tried, since no event opens: see perf-paranoid"));
		return;
	}
	while (i < ARRAY_SIZE(sizes) && host->probes->perf_ring(fd, sizes[i]) < 0)
		i++;
	if (i == 0) {
		doctor_found(
			finding, DOCTOR_OK,
			_("rings of 512 KiB a CPU can be mapped; all rings of this user together: %s"),
			budget_text);
		return;
	}
	if (i < ARRAY_SIZE(sizes))
		doctor_found(
			finding, DOCTOR_WARN,
			_("only rings of %u KiB can be mapped: a busy machine will lose samples (budget %s)"),
			(unsigned)(sizes[i] / 1024), budget_text);
	else
		doctor_found(
			finding, DOCTOR_FAIL,
			_("no ring can be mapped: another recording of yours may hold the budget (%s)"),
			budget_text);
	doctor_fix(finding, "sudo sysctl kernel.perf_event_mlock_kb=2048");
}

void doctor_perf_max_rate(const struct doctor_host *host, struct doctor_finding *finding)
{
	int64_t rate;

	if (!doctor_read_int(host, "/proc/sys/kernel/perf_event_max_sample_rate", &rate)) {
		doctor_found(
			finding, DOCTOR_FAIL,
			_("this kernel has no perf events (no kernel.perf_event_max_sample_rate)"));
		doctor_fix(finding, _("run a kernel with CONFIG_PERF_EVENTS=y"));
	} else if (rate < DEFAULT_FREQUENCY) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("the kernel allows only %d samples a second and CPU; the default is %d. It lowers the limit itself when sampling takes too long"),
			(int)rate, DEFAULT_FREQUENCY);
		doctor_fix(finding, "sudo sysctl kernel.perf_event_max_sample_rate=100000");
	} else {
		doctor_found(finding, DOCTOR_OK, _("up to %d samples a second and CPU"), (int)rate);
	}
}

void doctor_pmu(const struct doctor_host *host, struct doctor_finding *finding)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_HARDWARE,
		.config = PERF_COUNT_HW_CPU_CYCLES,
		.sample_period = 1000000,
		.disabled = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	int error;
	CLEANUP_CLOSE int fd = host->probes->perf_open(&attr, 0, -1);

	if (fd >= 0) {
		doctor_found(finding, DOCTOR_OK,
			     _("the CPU's cycle counter works: samples are precise"));
		return;
	}
	error = -fd;
	if (error == EACCES || error == EPERM) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("the CPU's cycle counter could not be tried, since no event opens: see perf-paranoid"));
		return;
	}
	/* No fix: only the host can give a virtual machine a counter. */
	doctor_found(
		finding, DOCTOR_WARN,
		_("the CPU has no cycle counter here, as in most virtual machines: sampling uses the "
		  "timer (cpu-clock), which sees kernel code with interrupts off late"));
}
