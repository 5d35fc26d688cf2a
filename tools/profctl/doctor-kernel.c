/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor kernel - what the kernel shows this user about itself and about processes
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <stdio.h>

/* Returns whether /proc/kallsyms shows addresses. Only functions count: per-CPU variables are
 * offsets, which start at 0. */
static bool kernel_shows_addresses(const struct doctor_host *host, bool *ret_readable)
{
	g_autofree char *path = g_strconcat(host->root, "/proc/kallsyms", NULL);
	char line[256];
	bool shown = false;
	FILE *file = fopen(path, "re");

	*ret_readable = file != NULL;
	if (!file)
		return false;
	for (unsigned i = 0; i < 20000 && !shown && fgets(line, sizeof(line), file); i++) {
		const char *type = strchr(line, ' ');

		shown = type && (type[1] == 't' || type[1] == 'T') &&
			g_ascii_strtoull(line, NULL, 16) != 0;
	}
	fclose(file);
	return shown;
}

/*
 * kptr_restrict 2 hides from everybody; 1 needs CAP_SYSLOG; 0 needs CAP_SYSLOG or
 * kernel.perf_event_paranoid <= 1 (kernel/kallsyms.c: kallsyms_show_value).
 */
void doctor_kptr_restrict(const struct doctor_host *host, struct doctor_finding *finding)
{
	bool readable;
	bool shown = kernel_shows_addresses(host, &readable);
	int64_t restricted = 0;
	bool known = doctor_read_int(host, "/proc/sys/kernel/kptr_restrict", &restricted);

	if (!readable) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("/proc/kallsyms cannot be read: kernel functions will have no names"));
		doctor_fix(finding, _("mount /proc, or run a kernel with CONFIG_KALLSYMS=y"));
		return;
	}
	if (shown) {
		doctor_found(finding, DOCTOR_OK, _("kernel functions will have names"));
		return;
	}
	if (known && restricted > 0) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("kernel.kptr_restrict is %d, which hides addresses from you: kernel functions will have no names"),
			(int)restricted);
		doctor_fix(finding, "sudo sysctl kernel.kptr_restrict=%d",
			   host->capabilities & DOCTOR_SYSLOG ? 1 : 0);
	} else {
		doctor_found(
			finding, DOCTOR_WARN,
			_("kernel.perf_event_paranoid is above 1, which hides addresses from you: kernel functions will have no names"));
		doctor_fix(finding, "sudo sysctl kernel.perf_event_paranoid=1");
	}
}

/* Returns the options of the mount on /proc, or NULL: of several mounts the last is visible. */
static char *kernel_proc_options(const struct doctor_host *host)
{
	g_autofree char *mounts = doctor_read(host, "/proc/self/mounts");
	g_auto(GStrv) lines = mounts ? g_strsplit(mounts, "\n", -1) : NULL;
	char *options = NULL;

	for (unsigned i = 0; lines && lines[i]; i++) {
		g_auto(GStrv) fields = g_strsplit(lines[i], " ", 5);

		if (g_strv_length(fields) == 5 && strcmp(fields[1], "/proc") == 0) {
			g_free(options);
			options = g_strdup(fields[3]);
		}
	}
	return options;
}

/* Yama restricts attaching, but profd only reads; hidepid hides processes from readers. */
void doctor_ptrace_scope(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *options = kernel_proc_options(host);
	int64_t scope;

	if (!host->superuser && options && strstr(options, "hidepid=") &&
	    !strstr(options, "hidepid=0") && !strstr(options, "hidepid=off")) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("/proc hides other users' processes from you (hidepid): you can record your own"));
		doctor_fix(finding, "sudo mount -o remount,hidepid=0 /proc");
	} else if (doctor_read_int(host, "/proc/sys/kernel/yama/ptrace_scope", &scope)) {
		doctor_found(
			finding, DOCTOR_OK,
			_("kernel.yama.ptrace_scope is %d, which does not matter: the profiler attaches to nothing"),
			(int)scope);
	} else {
		doctor_found(finding, DOCTOR_OK, _("the kernel has no Yama restrictions"));
	}
}

/*
 * Returns the number of a tracepoint that every kernel has, and where it is listed: *ret_place is
 * NULL if no path leads there and the profiler mounts tracefs for itself. Returns -errno if it is
 * not listed anywhere.
 */
static int64_t kernel_tracepoint(const struct doctor_host *host, const char **ret_place)
{
	static const char *const places[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	int error = ENOENT;
	int64_t id;

	for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
		g_autofree char *path =
			g_strconcat(host->root, places[i], "/events/sched/sched_switch/id", NULL);

		*ret_place = places[i];
		if (access(path, R_OK) < 0)
			error = errno;
		else if (doctor_read_int(host, path + strlen(host->root), &id))
			return id;
		if (error == EACCES || error == EPERM)
			break;
	}
	id = host->probes->tracepoint("sched/sched_switch");
	if (id < 0)
		return -error;
	*ret_place = NULL;
	return id;
}

static int kernel_open_tracepoint(const struct doctor_host *host, int64_t id)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_TRACEPOINT,
		.config = (uint64_t)id,
		.sample_period = 1,
		.disabled = 1,
	};
	CLEANUP_CLOSE int fd = host->probes->perf_open(&attr, 0, -1);

	return fd < 0 ? fd : 0;
}

void doctor_tracefs(const struct doctor_host *host, struct doctor_finding *finding)
{
	const char *place;
	int64_t id = kernel_tracepoint(host, &place);
	int error = id < 0 ? 0 : kernel_open_tracepoint(host, id);

	if (id == -ENOENT) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("tracefs is not mounted: you cannot record tracepoints, but samples"));
		doctor_fix(finding, "sudo mount -t tracefs tracefs /sys/kernel/tracing");
	} else if (id < 0) {
		doctor_found(finding, DOCTOR_WARN,
			     _("you cannot read %s: you cannot record tracepoints, but samples"),
			     place);
		doctor_fix(finding, "sudo mount -o remount,mode=755 %s", place);
	} else if (error < 0) {
		/* With exclude_kernel everybody can open the event, but it never fires. */
		doctor_found(
			finding, DOCTOR_WARN,
			_("you cannot record tracepoints (%s), but samples: kernel.perf_event_paranoid is above 1"),
			g_strerror(-error));
		doctor_fix(finding, "sudo sysctl kernel.perf_event_paranoid=1");
	} else if (place) {
		doctor_found(finding, DOCTOR_OK, _("you may record tracepoints (%s)"), place);
	} else {
		doctor_found(
			finding, DOCTOR_OK,
			_("you may record tracepoints: tracefs is not mounted, so profd mounts it for itself"));
	}
}

void doctor_map_files(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *directory = g_strconcat(host->root, "/proc/self/map_files", NULL);
	int error = host->probes->map_file(directory);

	if (error == 0) {
		doctor_found(finding, DOCTOR_OK,
			     _("mapped files can be opened, deleted and replaced ones too"));
		return;
	}
	doctor_found(
		finding, DOCTOR_WARN,
		_("mapped files are opened by path (%s): functions of deleted, replaced and container files will have no names"),
		g_strerror(-error));
	if (error == -EPERM || error == -EACCES)
		doctor_fix(finding, "sudo profctl record --system");
	else
		doctor_fix(finding, "sudo mount -t proc proc /proc");
}

void doctor_procmap_query(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *path = g_strconcat(host->root, "/proc/self/maps", NULL);
	int error = host->probes->procmap_query(path);

	if (error == 0)
		doctor_found(finding, DOCTOR_OK,
			     _("the kernel answers queries for single mappings (PROCMAP_QUERY)"));
	else if (error == -ENOTTY)
		doctor_found(
			finding, DOCTOR_OK,
			_("the kernel is older than 6.11 and has no PROCMAP_QUERY: the text of /proc/PID/maps is read, which takes longer"));
	else
		doctor_found(
			finding, DOCTOR_WARN,
			_("PROCMAP_QUERY is refused (%s): the text of /proc/PID/maps is read, which takes longer"),
			g_strerror(-error));
}

void doctor_cgroup(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *mounts = doctor_read(host, "/proc/self/mounts");
	g_auto(GStrv) lines = mounts ? g_strsplit(mounts, "\n", -1) : NULL;

	for (unsigned i = 0; lines && lines[i]; i++) {
		g_auto(GStrv) fields = g_strsplit(lines[i], " ", 4);

		if (g_strv_length(fields) == 4 && strcmp(fields[2], "cgroup2") == 0) {
			doctor_found(finding, DOCTOR_OK,
				     _("samples name their cgroup (cgroup2 at %s)"), fields[1]);
			return;
		}
	}
	doctor_found(finding, DOCTOR_WARN,
		     _("no cgroup2 file system is mounted: samples will not name their cgroup"));
	doctor_fix(
		finding,
		"sudo mkdir -p /sys/fs/cgroup/unified && sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified");
}

void doctor_clocksource(const struct doctor_host *host, struct doctor_finding *finding)
{
	static const char *const slow[] = { "hpet", "acpi_pm", "jiffies", "pit",
					    "refined-jiffies" };
	g_autofree char *name = doctor_read(
		host, "/sys/devices/system/clocksource/clocksource0/current_clocksource");

	if (!name) {
		doctor_found(
			finding, DOCTOR_WARN,
			_("the clocksource cannot be read (no /sys): whether reading the clock is cheap is unknown"));
		doctor_fix(finding, "sudo mount -t sysfs sysfs /sys");
		return;
	}
	for (unsigned i = 0; i < ARRAY_SIZE(slow); i++) {
		if (strcmp(name, slow[i]) == 0) {
			doctor_found(
				finding, DOCTOR_WARN,
				_("the clock is read from %s, a system call and microseconds each time: marks and allocations cost more"),
				name);
			doctor_fix(
				finding,
				_("where the hardware allows it, boot with tsc=reliable on the kernel's command line"));
			return;
		}
	}
	doctor_found(finding, DOCTOR_OK, _("the clock is read from %s, which is cheap"), name);
}
