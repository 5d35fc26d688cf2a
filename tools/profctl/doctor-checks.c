/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Doctor-checks - checks what a recording needs, in the order of the report
 */
#include "config.h"

#include "tools/profctl/doctor.h"

#include "tools/common/text.h"
#include "tools/profctl/preload.h"
#include "tools/profctl/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gi18n.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#define PARANOID "/proc/sys/kernel/perf_event_paranoid"
#define DEFAULT_FREQUENCY 999
#define MIB (UINT64_C(1) << 20)
#define POLKIT_SERVICE "org.freedesktop.PolicyKit1"

char *doctor_read(const struct doctor_host *host, const char *path)
{
	g_autofree char *full = g_strconcat(host->root, path, NULL);
	char *text = NULL;

	if (!g_file_get_contents(full, &text, NULL, NULL))
		return NULL;
	return g_strchomp(text);
}

static bool read_int(const struct doctor_host *host, const char *path, int64_t *ret_value)
{
	g_autofree char *text = doctor_read(host, path);
	gint64 value;

	if (!text || !g_ascii_string_to_signed(text, 10, G_MININT64, G_MAXINT64, &value, NULL))
		return false;
	*ret_value = value;
	return true;
}

/* ---- Our own programs ------------------------------------------------------------------------ */

/* Returns whether a program of profd can be run, else sets the finding. */
static bool check_program(const struct doctor_host *host, const char *name,
			  struct doctor_finding *finding)
{
	g_autofree char *path = g_build_filename(host->libexec_dir, name, NULL);
	g_autofree char *fix = NULL;

	if (access(path, X_OK) == 0)
		return true;
	fix = g_strdup_printf(
		_("install profd completely, or set PROF_LIBEXEC_DIR to the folder that has %s"),
		name);
	doctor_found(finding, DOCTOR_FAIL, fix, _("'%s' cannot be run: %s"), path,
		     g_strerror(errno));
	return false;
}

/* Checks the programs for private use: profctl starts its own profd, which starts an engine. The
 * system's profd is optional. */
static void check_daemon(const struct doctor_host *host, struct doctor_finding *finding)
{
	if (!check_program(host, "profd", finding) || !check_program(host, "profd-engine", finding))
		return;
	if (host->probes->bus_service(PROFD_NAME) > 0)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("profd and profd-engine are in '%s', and the system bus has profd"),
			     host->libexec_dir);
	else
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("profd and profd-engine are in '%s'; the system bus has no profd, so recordings have your own rights"),
			host->libexec_dir);
}

static void check_unwind_helper(const struct doctor_host *host, struct doctor_finding *finding)
{
	if (check_program(host, "profd-files", finding))
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("profd-files, which opens recorded programs to unwind their stacks, is in '%s'"),
			host->libexec_dir);
}

static void check_collector(const struct doctor_host *host, struct doctor_finding *finding)
{
	const struct preload_memory memory = { .wanted = true };
	g_autoptr(GError) error = NULL;
	struct preload preload;

	(void)host;
	if (preload_init(&preload, &memory, &error))
		doctor_found(finding, DOCTOR_OK, NULL, _("'%s' records allocations (--memory)"),
			     preload.library);
	else
		doctor_found(
			finding, DOCTOR_WARN,
			_("install profd completely, or set PROF_LIB_DIR to the folder that has libprofpreload-memory.so"),
			"%s", error->message);
	preload_done(&preload);
}

static void check_polkit(const struct doctor_host *host, struct doctor_finding *finding)
{
	if (host->probes->bus_service(PROFD_NAME) <= 0)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("not needed: the system bus has no profd to ask it"));
	else if (host->probes->bus_service(POLKIT_SERVICE) > 0)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("polkit decides what the system's profd records for whom"));
	else
		doctor_found(
			finding, DOCTOR_WARN,
			_("install polkit (polkitd), or use 'profctl record --bus private'"),
			_("the system bus has no polkit, so the system's profd records for nobody, not even for root"));
}

/* ---- Sampling -------------------------------------------------------------------------------- */

/* Tries to open an event, because capabilities, security modules and seccomp filters matter, too.
 * kernel.perf_event_paranoid only explains failures (Documentation/admin-guide/sysctl/kernel.rst):
 * from 0 up, no raw tracepoints; from 1 up, no CPU-wide events; from 2 up, no kernel samples; from
 * 3 up (Debian, Ubuntu), no events. */
static int open_event(const struct doctor_host *host, uint32_t type, uint64_t config, bool system,
		      bool kernel)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = type,
		.config = config,
		.sample_period = 1000000,
		.disabled = 1,
		.exclude_kernel = !kernel,
		.exclude_hv = !kernel,
	};

	return host->probes->perf_open(&attr, system ? -1 : 0, system ? 0 : -1);
}

/* Returns 0 if the event can be opened, otherwise -errno. */
static int perf_allowed(const struct doctor_host *host, bool system, bool kernel)
{
	CLEANUP_CLOSE int fd =
		open_event(host, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, system, kernel);

	return fd < 0 ? fd : 0;
}

static void check_perf_paranoid(const struct doctor_host *host, struct doctor_finding *finding)
{
	int64_t level;
	int own = perf_allowed(host, false, false);
	bool kernel = own == 0 && perf_allowed(host, false, true) == 0;
	bool system = own == 0 && perf_allowed(host, true, kernel) == 0;

	if (!read_int(host, PARANOID, &level)) {
		doctor_found(
			finding, DOCTOR_FAIL, _("run a kernel with CONFIG_PERF_EVENTS=y"),
			_("this kernel has no perf events, or /proc is not mounted (no kernel.perf_event_paranoid)"));
		return;
	}
	if (level > 2 && (own == -EACCES || own == -EPERM)) {
		doctor_found(
			finding, DOCTOR_FAIL, "sudo sysctl kernel.perf_event_paranoid=2",
			_("kernel.perf_event_paranoid is %d: you may record nothing, not even your own processes"),
			(int)level);
		return;
	}
	if (own < 0) {
		doctor_found(
			finding, DOCTOR_FAIL,
			_("in a container: start it with --cap-add=PERFMON and a seccomp profile that allows perf_event_open"),
			_("perf_event_open is refused (%s) although kernel.perf_event_paranoid is %d: "
			  "a seccomp filter or a security module"),
			g_strerror(-own), (int)level);
		return;
	}
	if (system && kernel) {
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("you may record the whole system, kernel included (kernel.perf_event_paranoid is %d)"),
			(int)level);
		return;
	}
	doctor_found(
		finding, DOCTOR_WARN,
		level > 0 ? "sudo sysctl kernel.perf_event_paranoid=0"
			  : "sudo profctl record --system",
		system ? _("kernel.perf_event_paranoid is %d: you may record the whole system, but not the kernel's part")
		: kernel
			? _("kernel.perf_event_paranoid is %d: you may record your own processes, kernel included, but not the whole system")
			: _("kernel.perf_event_paranoid is %d: you may record your own processes, but neither the whole system nor the kernel's part"),
		(int)level);
	finding->verdict =
		system ? _("You may record the system, but not the kernel's part.")
		: host->probes->bus_service(PROFD_NAME) > 0
			? _("You may record your own programs, and through the profd service what it permits.")
			: _("You may record your own programs, but not the system.");
}

/* Returns RLIMIT_MEMLOCK in bytes; UINT64_MAX: no limit; 0: unknown. */
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

/* Returns how many bytes this user's rings may use: a budget for each CPU, plus the limit of the
 * process (kernel/events/core.c: perf_mmap). UINT64_MAX: no limit; 0: unknown. */
static uint64_t perf_ring_budget(const struct doctor_host *host)
{
	uint64_t budget, limit = perf_memlock_limit(host);
	int64_t per_cpu, level;

	if (!read_int(host, "/proc/sys/kernel/perf_event_mlock_kb", &per_cpu) || per_cpu < 0)
		return 0;
	if ((host->capabilities & DOCTOR_IPC_LOCK) ||
	    (read_int(host, PARANOID, &level) && level < 0))
		return UINT64_MAX;
	if (!mul_u64((uint64_t)per_cpu, 1024 * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), &budget) ||
	    !add_u64(budget, limit, &budget))
		return UINT64_MAX;
	return budget;
}

static void check_perf_mlock(const struct doctor_host *host, struct doctor_finding *finding)
{
	static const size_t sizes[] = { 512 * 1024, 128 * 1024, 32 * 1024 };
	uint64_t budget = perf_ring_budget(host);
	g_autofree char *budget_text = budget == UINT64_MAX ? g_strdup(_("no limit"))
							    : text_bytes(budget);
	CLEANUP_CLOSE int fd =
		open_event(host, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, false, false);
	unsigned i = 0;

	if (fd < 0) {
		doctor_found(
			finding, DOCTOR_WARN, NULL,
			_("rings could not be tried, because no event can be opened: see perf-paranoid"));
		return;
	}
	while (i < ARRAY_SIZE(sizes) && host->probes->perf_ring(fd, sizes[i]) < 0)
		i++;
	if (i == 0)
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("rings of 512 KiB a CPU can be mapped; all rings of this user together: %s"),
			budget_text);
	else if (i < ARRAY_SIZE(sizes))
		doctor_found(
			finding, DOCTOR_WARN, "sudo sysctl kernel.perf_event_mlock_kb=2048",
			_("only rings of %u KiB can be mapped: a busy machine will lose samples (budget %s)"),
			(unsigned)(sizes[i] / 1024), budget_text);
	else
		doctor_found(
			finding, DOCTOR_FAIL, "sudo sysctl kernel.perf_event_mlock_kb=2048",
			_("no ring can be mapped: another recording of yours may hold the budget (%s)"),
			budget_text);
}

static void check_perf_max_rate(const struct doctor_host *host, struct doctor_finding *finding)
{
	int64_t rate;

	if (!read_int(host, "/proc/sys/kernel/perf_event_max_sample_rate", &rate)) {
		doctor_found(
			finding, DOCTOR_FAIL, _("run a kernel with CONFIG_PERF_EVENTS=y"),
			_("this kernel has no perf events (no kernel.perf_event_max_sample_rate)"));
	} else if (rate < DEFAULT_FREQUENCY) {
		doctor_found(
			finding, DOCTOR_WARN,
			"sudo sysctl kernel.perf_event_max_sample_rate=100000",
			_("the kernel allows only %d samples a second and CPU; the default is %d. It lowers the limit itself when sampling takes too long"),
			(int)rate, DEFAULT_FREQUENCY);
	} else {
		doctor_found(finding, DOCTOR_OK, NULL, _("up to %d samples a second and CPU"),
			     (int)rate);
	}
}

static void check_pmu(const struct doctor_host *host, struct doctor_finding *finding)
{
	CLEANUP_CLOSE int fd =
		open_event(host, PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, false, false);

	if (fd >= 0)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("the CPU's cycle counter works: samples are precise"));
	else if (fd == -EACCES || fd == -EPERM)
		doctor_found(
			finding, DOCTOR_WARN, NULL,
			_("the CPU's cycle counter could not be tried, because no event can be opened: see perf-paranoid"));
	else /* No fix: only the host can give a virtual machine a cycle counter. */
		doctor_found(
			finding, DOCTOR_WARN, NULL,
			_("the CPU has no cycle counter here, as in most virtual machines: sampling uses the "
			  "timer (cpu-clock), which sees kernel code with interrupts off late"));
}

/* ---- What the kernel shows of itself and of processes ---------------------------------------- */

/* Returns whether /proc/kallsyms shows addresses. Ignores per-CPU variables, whose values are
 * offsets that start at 0. */
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
 * Checks kptr_restrict: 2 hides addresses from all users; 1 shows them with CAP_SYSLOG; 0 with
 * CAP_SYSLOG or kernel.perf_event_paranoid <= 1 (kernel/kallsyms.c: kallsyms_show_value).
 */
static void check_kptr_restrict(const struct doctor_host *host, struct doctor_finding *finding)
{
	bool readable;
	bool shown = kernel_shows_addresses(host, &readable);
	int64_t restricted = 0, paranoid = 0;

	(void)read_int(host, "/proc/sys/kernel/kptr_restrict", &restricted);
	(void)read_int(host, PARANOID, &paranoid);
	if (!readable)
		doctor_found(
			finding, DOCTOR_WARN,
			_("mount /proc, or run a kernel with CONFIG_KALLSYMS=y"),
			_("/proc/kallsyms cannot be read: kernel functions will have no names"));
	else if (shown)
		doctor_found(finding, DOCTOR_OK, NULL, _("kernel functions will have names"));
	else if (restricted > 0)
		doctor_found(
			finding, DOCTOR_WARN,
			host->capabilities & DOCTOR_SYSLOG ? "sudo sysctl kernel.kptr_restrict=1"
			: paranoid > 1
				? "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"
				: "sudo sysctl kernel.kptr_restrict=0",
			_("kernel.kptr_restrict is %d, which hides addresses from you: kernel functions will have no names"),
			(int)restricted);
	else
		doctor_found(
			finding, DOCTOR_WARN, "sudo sysctl kernel.perf_event_paranoid=1",
			_("kernel.perf_event_paranoid is above 1, which hides addresses from you: kernel functions will have no names"));
}

enum mount_field { MOUNT_PATH = 1, MOUNT_TYPE, MOUNT_OPTIONS, MOUNT_FIELDS };

/* Returns the field `wanted` of the first or last mount whose field `by` equals `value`; NULL: no
 * such mount. */
static char *find_mount(const struct doctor_host *host, enum mount_field by, const char *value,
			enum mount_field wanted, bool is_last)
{
	g_autofree char *mounts = doctor_read(host, "/proc/self/mounts");
	g_auto(GStrv) lines = mounts ? g_strsplit(mounts, "\n", -1) : NULL;
	char *field = NULL;

	for (char **line = lines; line && *line && (is_last || !field); line++) {
		g_auto(GStrv) fields = g_strsplit(*line, " ", MOUNT_FIELDS + 1);

		if (g_strv_length(fields) > MOUNT_FIELDS && strcmp(fields[by], value) == 0) {
			g_free(field);
			field = g_strdup(fields[wanted]);
		}
	}
	return field;
}

/* Checks hidepid, which hides processes. Yama restricts attaching, which only `record --memory
 * --pid` does. */
static void check_ptrace_scope(const struct doctor_host *host, struct doctor_finding *finding)
{
	/* if /proc is mounted several times, the last mount is visible */
	g_autofree char *options = find_mount(host, MOUNT_PATH, "/proc", MOUNT_OPTIONS, true);
	int64_t scope;

	if (!host->superuser && options && strstr(options, "hidepid=") &&
	    !strstr(options, "hidepid=0") && !strstr(options, "hidepid=off")) {
		doctor_found(
			finding, DOCTOR_WARN, "sudo mount -o remount,hidepid=0 /proc",
			_("/proc hides other users' processes from you (hidepid): you can record your own"));
	} else if (read_int(host, "/proc/sys/kernel/yama/ptrace_scope", &scope)) {
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("kernel.yama.ptrace_scope is %d; only recording the allocations of a running process (--memory --pid) depends on it"),
			(int)scope);
	} else {
		doctor_found(finding, DOCTOR_OK, NULL, _("the kernel has no Yama restrictions"));
	}
}

/*
 * Returns the id of a tracepoint that every kernel has. Stores in *ret_place the folder of tracefs
 * in which the id was read; NULL: no accessible folder, so the profiler mounts tracefs itself.
 * Returns -errno if the id cannot be found.
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
		else if (read_int(host, path + strlen(host->root), &id))
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

/* Checks tracefs, whose files only root and the group that the mount names can read. */
static void check_tracefs(const struct doctor_host *host, struct doctor_finding *finding)
{
	const char *place, *also = "";
	int64_t id = kernel_tracepoint(host, &place);
	CLEANUP_CLOSE int fd = -1;
	g_autofree char *fix = NULL;

	if (id >= 0)
		fd = open_event(host, PERF_TYPE_TRACEPOINT, (uint64_t)id, false, true);
	else if (!host->superuser && perf_allowed(host, false, true) < 0)
		also = " && sudo sysctl kernel.perf_event_paranoid=1";
	if (fd >= 0 && place) {
		doctor_found(finding, DOCTOR_OK, NULL, _("you may record tracepoints (%s)"), place);
	} else if (fd >= 0) {
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("you may record tracepoints: tracefs is not mounted, so profd mounts it for itself"));
	} else if (!host->superuser && host->probes->bus_service(PROFD_NAME) > 0) {
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("the profd service records tracepoints for those whom polkit permits to record others"));
	} else if (id == -ENOENT) {
		fix = g_strdup_printf("sudo mount -t tracefs %stracefs /sys/kernel/tracing%s",
				      host->superuser ? "" : "-o gid=$(id -g),mode=750 ", also);
		doctor_found(
			finding, DOCTOR_WARN, fix,
			_("tracefs is not mounted: you can record samples, but no tracepoints"));
	} else if (id < 0) {
		fix = g_strdup_printf("sudo mount -o remount,gid=$(id -g),mode=750 %s%s", place,
				      also);
		doctor_found(finding, DOCTOR_WARN, fix,
			     _("you cannot read %s: you can record samples, but no tracepoints"),
			     place);
	} else {
		/* All users can open the event with exclude_kernel, but then it never fires. */
		doctor_found(
			finding, DOCTOR_WARN, "sudo sysctl kernel.perf_event_paranoid=1",
			_("you can record samples, but no tracepoints (%s): kernel.perf_event_paranoid is above 1"),
			g_strerror(-fd));
	}
}

/* Checks whether deleted and replaced files can be opened, which is possible only through
 * map_files. All other files, including the program itself and files in containers, are found
 * without it. */
static void check_map_files(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *directory = g_strconcat(host->root, "/proc/self/map_files", NULL);
	int error = host->probes->map_file(directory);
	bool denied = error == -EPERM || error == -EACCES;

	if (error == 0)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("mapped files can be opened, deleted and replaced ones too"));
	else if (denied && host->superuser)
		doctor_found(
			finding, DOCTOR_WARN,
			_("start the container with --cap-add=CHECKPOINT_RESTORE"),
			_("root may not open mapped files here (%s): functions of libraries that were deleted or replaced will have no names"),
			g_strerror(-error));
	else if (denied && host->probes->bus_service(PROFD_NAME) > 0)
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("the profd service opens mapped files, deleted and replaced ones too"));
	else if (denied)
		doctor_found(
			finding, DOCTOR_WARN,
			_("restart programs after their libraries were replaced, or record them as root"),
			_("only root opens mapped files, you open them by path: functions of libraries that were deleted or replaced will have no names"));
	else
		doctor_found(
			finding, DOCTOR_WARN, "sudo mount -t proc proc /proc",
			_("mapped files are opened by path (%s): functions of deleted and replaced libraries will have no names"),
			g_strerror(-error));
}

static void check_procmap_query(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *path = g_strconcat(host->root, "/proc/self/maps", NULL);
	int error = host->probes->procmap_query(path);

	if (error == 0)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("the kernel answers queries for single mappings (PROCMAP_QUERY)"));
	else if (error == -ENOTTY)
		doctor_found(
			finding, DOCTOR_OK, NULL,
			_("the kernel is older than 6.11 and has no PROCMAP_QUERY: the text of /proc/PID/maps is read, which takes longer"));
	else
		doctor_found(
			finding, DOCTOR_WARN, NULL,
			_("PROCMAP_QUERY is refused (%s): the text of /proc/PID/maps is read, which takes longer"),
			g_strerror(-error));
}

static void check_cgroup(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *path = find_mount(host, MOUNT_TYPE, "cgroup2", MOUNT_PATH, false);
	g_autofree char *above = find_mount(host, MOUNT_PATH, "/sys/fs/cgroup", MOUNT_TYPE, true);

	if (path)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("samples name their cgroup (cgroup2 at %s)"), path);
	else
		doctor_found(
			finding, DOCTOR_WARN,
			above ? "sudo mkdir -p /sys/fs/cgroup/unified && sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
			      : "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup",
			_("no cgroup2 file system is mounted: samples will not name their cgroup"));
}

static void check_clocksource(const struct doctor_host *host, struct doctor_finding *finding)
{
	static const char *const slow[] = { "hpet", "acpi_pm",         "jiffies",
					    "pit",  "refined-jiffies", NULL };
	g_autofree char *name = doctor_read(
		host, "/sys/devices/system/clocksource/clocksource0/current_clocksource");

	if (!name)
		doctor_found(
			finding, DOCTOR_WARN, "sudo mount -t sysfs sysfs /sys",
			_("the clocksource cannot be read (no /sys): whether reading the clock is cheap is unknown"));
	else if (g_strv_contains(slow, name))
		doctor_found(
			finding, DOCTOR_WARN,
			_("where the hardware allows it, boot with tsc=reliable on the kernel's command line"),
			_("the clock is read from %s, a system call and microseconds each time: marks and allocations cost more"),
			name);
	else
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("the clock is read from %s, which is cheap"), name);
}

/* ---- The container and the disk -------------------------------------------------------------- */

/* Returns the container's type, such as "docker" or "a pid namespace"; NULL outside of a
 * container. */
static char *system_container(const struct doctor_host *host)
{
	static const struct {
		const char *path, *name;
	} marks[] = { { "/.dockerenv", "docker" }, { "/run/.containerenv", "podman" } };
	char *name = doctor_read(host, "/run/systemd/container");

	for (unsigned i = 0; !name && i < ARRAY_SIZE(marks); i++) {
		g_autofree char *path = g_strconcat(host->root, marks[i].path, NULL);

		if (access(path, F_OK) == 0)
			name = g_strdup(marks[i].name);
	}
	if (!name && (host->pid_namespace || host->user_namespace))
		name = g_strdup(host->pid_namespace ? _("a pid namespace") : _("a user namespace"));
	return name;
}

static void check_container(const struct doctor_host *host, struct doctor_finding *finding)
{
	g_autofree char *name = system_container(host);

	if (!name)
		doctor_found(finding, DOCTOR_OK, NULL, _("not in a container"));
	else if (!host->pid_namespace && !host->user_namespace)
		doctor_found(finding, DOCTOR_OK, NULL,
			     _("in a container (%s) that shares the host's processes"), name);
	else
		doctor_found(
			finding, DOCTOR_WARN,
			_("record on the host, or start the container with --pid=host --cap-add=PERFMON"),
			host->user_namespace
				? _("in a container (%s): capabilities count for nothing outside of it, so you record as a plain user, and only processes in it")
				: _("in a container (%s): processes outside of it have no names here"),
			name);
}

static void check_disk_space(const struct doctor_host *host, struct doctor_finding *finding)
{
	static const char elsewhere[] = "profctl record -o /var/tmp/profile.cap -- COMMAND";
	uint64_t bytes = 0;
	int error = host->probes->free_bytes(host->directory, &bytes);
	g_autofree char *free_text = text_bytes(bytes);

	if (error < 0) {
		doctor_found(finding, DOCTOR_WARN, elsewhere,
			     _("the current folder cannot be written: %s"), g_strerror(-error));
	} else if (bytes < 16 * MIB) {
		doctor_found(finding, DOCTOR_FAIL, elsewhere,
			     _("only %s are free in the current folder: a capture will not fit"),
			     free_text);
	} else if (bytes < 256 * MIB) {
		doctor_found(
			finding, DOCTOR_WARN, elsewhere,
			_("only %s are free in the current folder: enough for some minutes of samples"),
			free_text);
	} else {
		doctor_found(finding, DOCTOR_OK, NULL, _("%s are free in the current folder"),
			     free_text);
	}
}

const struct doctor_check doctor_checks[DOCTOR_CHECKS] = {
	{ "daemon", check_daemon },
	{ "polkit", check_polkit },
	{ "perf-paranoid", check_perf_paranoid },
	{ "perf-mlock", check_perf_mlock },
	{ "perf-max-rate", check_perf_max_rate },
	{ "pmu", check_pmu },
	{ "kptr-restrict", check_kptr_restrict },
	{ "ptrace-scope", check_ptrace_scope },
	{ "tracefs", check_tracefs },
	{ "map-files", check_map_files },
	{ "procmap-query", check_procmap_query },
	{ "unwind-helper", check_unwind_helper },
	{ "collector", check_collector },
	{ "debuginfo", doctor_check_debuginfo },
	{ "debuginfod", doctor_check_debuginfod },
	{ "interpreters", doctor_check_interpreters },
	{ "jit-maps", doctor_check_jit_maps },
	{ "cgroup", check_cgroup },
	{ "container", check_container },
	{ "disk-space", check_disk_space },
	{ "clocksource", check_clocksource },
};
