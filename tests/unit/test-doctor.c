/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of doctor on simulated machines: trees of /proc and /sys in a temporary directory, and
 * chosen answers of the kernel.
 */
#include "tests/unit/test.h"
#include "tools/profctl/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <utime.h>

static struct {
	char *root;
	/* The kernel's answers: 0 (`tracepoint`: an id) or -errno. */
	int own, own_kernel, system, cycles, tracepoint, procmap_query, map_file, write;
	int bus_profd, bus_polkit, library;
	size_t largest_ring;
	uint64_t free_bytes;
} machine;

static int fake_perf_open(const struct perf_event_attr *attr, pid_t pid, int cpu)
{
	int error = attr->type == PERF_TYPE_HARDWARE ? machine.cycles
		    : pid == -1                      ? machine.system
		    : attr->exclude_kernel           ? machine.own
						     : machine.own_kernel;

	if (attr->type == PERF_TYPE_TRACEPOINT)
		CHECK_INT(attr->config, 316);

	return error < 0 ? error : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int fake_perf_ring(int fd, size_t bytes)
{
	return bytes > machine.largest_ring ? -EPERM : 0;
}

static int64_t fake_tracepoint(const char *name)
{
	return machine.tracepoint;
}

static int fake_procmap_query(const char *path)
{
	return machine.procmap_query;
}

static int fake_map_file(const char *directory)
{
	return machine.map_file;
}

static int fake_free_bytes(const char *directory, uint64_t *ret_bytes)
{
	*ret_bytes = machine.free_bytes;
	return machine.write;
}

static int fake_bus_service(const char *name)
{
	return strcmp(name, "org.profd.Profiler1") == 0 ? machine.bus_profd : machine.bus_polkit;
}

static int fake_library(const char *name)
{
	CHECK_STR(name, "libdebuginfod.so.1");
	return machine.library;
}

static const struct doctor_probes fake_probes = {
	.perf_open = fake_perf_open,
	.perf_ring = fake_perf_ring,
	.tracepoint = fake_tracepoint,
	.procmap_query = fake_procmap_query,
	.map_file = fake_map_file,
	.free_bytes = fake_free_bytes,
	.bus_service = fake_bus_service,
	.library = fake_library,
};

static void put(const char *path, const char *text)
{
	g_autofree char *full = g_strconcat(machine.root, path, NULL);
	g_autofree char *folder = g_path_get_dirname(full);

	g_mkdir_with_parents(folder, 0755);
	CHECK(g_file_set_contents(full, text, -1, NULL));
}

/* Sets a file's modification time. */
static void put_time(const char *path, time_t seconds)
{
	struct utimbuf times = { seconds, seconds };
	g_autofree char *full = g_strconcat(machine.root, path, NULL);

	CHECK(g_utime(full, &times) == 0);
}

static void drop(const char *path)
{
	g_autofree char *full = g_strconcat(machine.root, path, NULL);

	g_unlink(full);
}

static void put_link(const char *path, const char *target)
{
	g_autofree char *full = g_strconcat(machine.root, path, NULL);
	g_autofree char *folder = g_path_get_dirname(full);

	g_mkdir_with_parents(folder, 0755);
	g_unlink(full);
	CHECK_INT(symlink(target, full), 0);
}

static void remove_tree(const char *path)
{
	GDir *dir = g_dir_open(path, 0, NULL);
	const char *name;

	while (dir && (name = g_dir_read_name(dir))) {
		g_autofree char *child = g_build_filename(path, name, NULL);

		if (!g_file_test(child, G_FILE_TEST_IS_SYMLINK) &&
		    g_file_test(child, G_FILE_TEST_IS_DIR))
			remove_tree(child);
		g_unlink(child);
	}
	if (dir)
		g_dir_close(dir);
	g_rmdir(path);
}

#define PLAIN_USER "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n"
#define ROOT_USER "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"

/* A normal user on a virtual machine where everything is allowed. */
static void machine_init(void)
{
	machine.root = g_dir_make_tmp("doctor-XXXXXX", NULL);
	machine.own = machine.own_kernel = machine.system = 0;
	machine.cycles = -ENOENT;
	machine.tracepoint = 316;
	machine.procmap_query = machine.map_file = machine.write = 0;
	machine.bus_profd = machine.bus_polkit = machine.library = 0;
	machine.largest_ring = 1 << 20;
	machine.free_bytes = UINT64_C(10) << 30;
	put("/proc/self/status", PLAIN_USER);
	put("/proc/self/limits",
	    "Limit                     Soft Limit           Hard Limit           Units     \n"
	    "Max locked memory         65536                65536                bytes     \n");
	put("/proc/self/mounts", "proc /proc proc rw,nosuid 0 0\n"
				 "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
	put_link("/proc/self/ns/user", "user:[4026531837]");
	put_link("/proc/self/ns/pid", "pid:[4026531836]");
	put("/proc/sys/kernel/perf_event_paranoid", "-1\n");
	put("/proc/sys/kernel/perf_event_mlock_kb", "516\n");
	put("/proc/sys/kernel/perf_event_max_sample_rate", "100000\n");
	put("/proc/sys/kernel/kptr_restrict", "0\n");
	put("/proc/kallsyms", "0000000000000000 A fixed_percpu_data\n"
			      "ffffffff81000000 T _stext\n");
	put("/sys/kernel/tracing/events/sched/sched_switch/id", "316\n");
	put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
	put("/libexec/profd", "#!/bin/sh\n");
	put("/libexec/profd-engine", "#!/bin/sh\n");
	put("/libexec/profd-files", "#!/bin/sh\n");
}

static void machine_done(void)
{
	remove_tree(machine.root);
	g_free(machine.root);
}

/* Checks a finding, whose texts must contain `says` and `fix`. fix NULL: there must be no fix. */
static void expect(const char *id, enum doctor_status status, const char *says, const char *fix)
{
	g_autofree char *libexec = g_strconcat(machine.root, "/libexec", NULL);
	struct doctor_host host;
	struct doctor_finding finding;

	doctor_host_init(&host, machine.root, "/", libexec, &fake_probes);
	if (!CHECK(doctor_run(&host, id, &finding)))
		return;
	if (!CHECK_INT(finding.status, status) || !CHECK(strstr(finding.summary, says)) ||
	    !CHECK(fix ? finding.fix && strstr(finding.fix, fix) : !finding.fix))
		printf("# %s: %s; fix: %s\n", id, finding.summary,
		       finding.fix ? finding.fix : "none");
	doctor_finding_done(&finding);
}

static void test_paranoid(void)
{
	static const char path[] = "/proc/sys/kernel/perf_event_paranoid";

	expect("perf-paranoid", DOCTOR_OK, "whole system", NULL);
	put(path, "0\n");
	machine.own_kernel = -EACCES; /* for example by kernel lockdown */
	expect("perf-paranoid", DOCTOR_WARN, "not the kernel's part", "sudo profctl");
	put(path, "1\n");
	machine.own_kernel = 0;
	machine.system = -EACCES;
	expect("perf-paranoid", DOCTOR_WARN, "not the whole system", "perf_event_paranoid=0");
	put(path, "2\n");
	machine.own_kernel = -EACCES;
	expect("perf-paranoid", DOCTOR_WARN, "neither", "perf_event_paranoid=0");
	machine.own = -EPERM;
	expect("perf-paranoid", DOCTOR_FAIL, "seccomp", "--cap-add=PERFMON");
	machine.own = -ENOSYS;
	expect("perf-paranoid", DOCTOR_FAIL, "seccomp", "--cap-add=PERFMON");
	put(path, "4\n");
	machine.own = -EACCES;
	expect("perf-paranoid", DOCTOR_FAIL, "is 4", "sudo sysctl kernel.perf_event_paranoid=2");
	put(path, "3\n");
	machine.own = machine.own_kernel = machine.system = 0; /* CAP_PERFMON */
	expect("perf-paranoid", DOCTOR_OK, "is 3", NULL);
	drop(path);
	expect("perf-paranoid", DOCTOR_FAIL, "no perf events", "CONFIG_PERF_EVENTS");
	put(path, "rubbish");
	expect("perf-paranoid", DOCTOR_FAIL, "no perf events", "CONFIG_PERF_EVENTS");
}

static void test_mlock(void)
{
	expect("perf-mlock", DOCTOR_OK, "no limit", NULL);
	put("/proc/sys/kernel/perf_event_paranoid", "2\n");
	put("/proc/sys/kernel/perf_event_mlock_kb", "0\n");
	expect("perf-mlock", DOCTOR_OK, "64.0 KiB", NULL);
	machine.largest_ring = 128 * 1024;
	expect("perf-mlock", DOCTOR_WARN, "128 KiB", "perf_event_mlock_kb");
	machine.largest_ring = 0;
	expect("perf-mlock", DOCTOR_FAIL, "no ring", "perf_event_mlock_kb");
	machine.largest_ring = 1 << 20;
	put("/proc/self/status", ROOT_USER);
	expect("perf-mlock", DOCTOR_OK, "no limit", NULL);
	/* the user namespace of a container, whose root is not the host's */
	put_link("/proc/self/ns/user", "user:[4026532000]");
	expect("perf-mlock", DOCTOR_OK, "64.0 KiB", NULL);
	machine.own = -EACCES;
	expect("perf-mlock", DOCTOR_WARN, "see perf-paranoid", NULL);
}

static void test_rate_and_pmu(void)
{
	expect("perf-max-rate", DOCTOR_OK, "100000", NULL);
	put("/proc/sys/kernel/perf_event_max_sample_rate", "500\n");
	expect("perf-max-rate", DOCTOR_WARN, "500", "max_sample_rate=100000");
	drop("/proc/sys/kernel/perf_event_max_sample_rate");
	expect("perf-max-rate", DOCTOR_FAIL, "no perf events", "CONFIG_PERF_EVENTS");
	expect("pmu", DOCTOR_WARN, "cpu-clock", NULL);
	machine.cycles = -EACCES;
	expect("pmu", DOCTOR_WARN, "see perf-paranoid", NULL);
	machine.cycles = 0;
	expect("pmu", DOCTOR_OK, "precise", NULL);
}

static void test_kptr(void)
{
	expect("kptr-restrict", DOCTOR_OK, "names", NULL);
	put("/proc/kallsyms", "0000000000000000 T _stext\n0000000000000000 t f\n");
	put("/proc/sys/kernel/perf_event_paranoid", "2\n");
	expect("kptr-restrict", DOCTOR_WARN, "paranoid", "perf_event_paranoid=1");
	put("/proc/sys/kernel/kptr_restrict", "1\n");
	expect("kptr-restrict", DOCTOR_WARN, "is 1",
	       "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1");
	put("/proc/sys/kernel/perf_event_paranoid", "1\n");
	expect("kptr-restrict", DOCTOR_WARN, "is 1", "kptr_restrict=0");
	put("/proc/sys/kernel/kptr_restrict", "2\n");
	expect("kptr-restrict", DOCTOR_WARN, "is 2", "kptr_restrict=0");
	put("/proc/self/status", ROOT_USER);
	expect("kptr-restrict", DOCTOR_WARN, "is 2", "kptr_restrict=1");
	put("/proc/kallsyms", "");
	expect("kptr-restrict", DOCTOR_WARN, "is 2", "kptr_restrict=1");
	drop("/proc/kallsyms");
	expect("kptr-restrict", DOCTOR_WARN, "cannot be read", "CONFIG_KALLSYMS");
}

static void test_processes(void)
{
	expect("ptrace-scope", DOCTOR_OK, "no Yama", NULL);
	put("/proc/sys/kernel/yama/ptrace_scope", "3\n");
	expect("ptrace-scope", DOCTOR_OK, "is 3", NULL);
	put("/proc/self/mounts", "proc /proc proc rw,hidepid=invisible 0 0\n");
	expect("ptrace-scope", DOCTOR_WARN, "hidepid", "hidepid=0");
	put("/proc/self/status", ROOT_USER);
	expect("ptrace-scope", DOCTOR_OK, "is 3", NULL);
	expect("map-files", DOCTOR_OK, "deleted", NULL);
	machine.map_file = -EPERM;
	expect("map-files", DOCTOR_WARN, "may not open", "--cap-add=CHECKPOINT_RESTORE");
	put("/proc/self/status", PLAIN_USER);
	expect("map-files", DOCTOR_WARN, "libraries that were deleted or replaced", "restart");
	machine.bus_profd = 1;
	expect("map-files", DOCTOR_OK, "service", NULL);
	machine.bus_profd = 0;
	machine.map_file = -ENOENT;
	expect("map-files", DOCTOR_WARN, "by path", "mount");
	expect("procmap-query", DOCTOR_OK, "PROCMAP_QUERY", NULL);
	machine.procmap_query = -ENOTTY;
	expect("procmap-query", DOCTOR_OK, "older than 6.11", NULL);
	machine.procmap_query = -EACCES;
	expect("procmap-query", DOCTOR_WARN, "refused", NULL);
}

static void test_file_systems(void)
{
	expect("tracefs", DOCTOR_OK, "/sys/kernel/tracing", NULL);
	machine.own_kernel = -EACCES;
	expect("tracefs", DOCTOR_WARN, "above 1", "perf_event_paranoid=1");
	machine.bus_profd = 1;
	expect("tracefs", DOCTOR_OK, "service", NULL);
	machine.bus_profd = 0;
	machine.own_kernel = 0;
	drop("/sys/kernel/tracing/events/sched/sched_switch/id");
	expect("tracefs", DOCTOR_OK, "for itself", NULL);
	machine.tracepoint = -EPERM;
	expect("tracefs", DOCTOR_WARN, "not mounted", "mount -t tracefs -o gid=$(id -g),mode=750");
	machine.own_kernel = -EACCES;
	expect("tracefs", DOCTOR_WARN, "not mounted",
	       " && sudo sysctl kernel.perf_event_paranoid=1");
	put("/proc/self/status", ROOT_USER);
	expect("tracefs", DOCTOR_WARN, "not mounted",
	       "sudo mount -t tracefs tracefs /sys/kernel/tracing");
	put("/proc/self/status", PLAIN_USER);
	machine.own_kernel = 0;
	put("/sys/kernel/debug/tracing/events/sched/sched_switch/id", "316\n");
	expect("tracefs", DOCTOR_OK, "/sys/kernel/debug/tracing", NULL);
	expect("cgroup", DOCTOR_OK, "/sys/fs/cgroup", NULL);
	put("/proc/self/mounts", "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n");
	expect("cgroup", DOCTOR_WARN, "no cgroup2", "mount -t cgroup2");
	expect("cgroup", DOCTOR_WARN, "no cgroup2", "cgroup2 cgroup2 /sys/fs/cgroup");
	put("/proc/self/mounts", "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n");
	expect("cgroup", DOCTOR_WARN, "no cgroup2", "mkdir -p /sys/fs/cgroup/unified");
	drop("/proc/self/mounts");
	expect("clocksource", DOCTOR_OK, "tsc", NULL);
	put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
	expect("clocksource", DOCTOR_WARN, "hpet", "tsc=reliable");
	drop("/sys/devices/system/clocksource/clocksource0/current_clocksource");
	expect("clocksource", DOCTOR_WARN, "no /sys", "mount -t sysfs");
}

static void test_surroundings(void)
{
	g_autofree char *engine = g_strconcat(machine.root, "/libexec/profd-engine", NULL);
	g_autofree char *profd = g_strconcat(machine.root, "/libexec/profd", NULL);
	g_autofree char *files = g_strconcat(machine.root, "/libexec/profd-files", NULL);
	g_autofree char *libexec = g_strconcat(machine.root, "/libexec", NULL);

	expect("daemon", DOCTOR_FAIL, "profd", "PROF_LIBEXEC_DIR"); /* not executable */
	expect("unwind-helper", DOCTOR_FAIL, "profd-files", "PROF_LIBEXEC_DIR");
	g_chmod(engine, 0755);
	g_chmod(profd, 0755);
	g_chmod(files, 0755);
	expect("daemon", DOCTOR_OK, "no profd", NULL);
	expect("polkit", DOCTOR_OK, "not needed", NULL);
	machine.bus_profd = 1;
	expect("daemon", DOCTOR_OK, "and the system bus has profd", NULL);
	expect("polkit", DOCTOR_WARN, "not even for root", "--bus private");
	machine.bus_polkit = 1;
	expect("polkit", DOCTOR_OK, "decides", NULL);
	drop("/libexec/profd-engine");
	expect("daemon", DOCTOR_FAIL, "profd-engine", "PROF_LIBEXEC_DIR");
	expect("unwind-helper", DOCTOR_OK, "profd-files", NULL);
	g_setenv("PROF_LIB_DIR", libexec, TRUE);
	expect("collector", DOCTOR_WARN, "libprofpreload-memory.so", "PROF_LIB_DIR");
	put("/libexec/libprofpreload-memory.so", "");
	expect("collector", DOCTOR_OK, "--memory", NULL);

	expect("container", DOCTOR_OK, "not in", NULL);
	put("/.dockerenv", "");
	expect("container", DOCTOR_OK, "docker", NULL);
	put_link("/proc/self/ns/pid", "pid:[4026532999]");
	expect("container", DOCTOR_WARN, "processes outside", "--pid=host");
	put_link("/proc/self/ns/user", "user:[4026532999]");
	put("/run/systemd/container", "lxc\n");
	expect("container", DOCTOR_WARN, "(lxc): capabilities", "on the host");

	expect("disk-space", DOCTOR_OK, "10.0 GiB", NULL);
	machine.free_bytes = 100 << 20;
	expect("disk-space", DOCTOR_WARN, "100 MiB", "-o");
	machine.free_bytes = 1 << 20;
	expect("disk-space", DOCTOR_FAIL, "1.00 MiB", "-o");
	machine.write = -EACCES;
	expect("disk-space", DOCTOR_WARN, "cannot be written", "-o");
}

static void test_debug_files(void)
{
	expect("debuginfo", DOCTOR_OK, "not installed", NULL);
	put("/usr/lib/debug/.build-id/00/11.debug", "");
	expect("debuginfo", DOCTOR_OK, "/usr/lib/debug", NULL);
}

static void test_debuginfod(void)
{
	g_unsetenv("DEBUGINFOD_URLS");
	expect("debuginfod", DOCTOR_OK, "not used", NULL);
	g_setenv("DEBUGINFOD_URLS", " ", TRUE);
	machine.library = -ENOENT;
	expect("debuginfod", DOCTOR_OK, "not used", NULL);
	g_setenv("DEBUGINFOD_URLS", "http://localhost:8002", TRUE);
	expect("debuginfod", DOCTOR_WARN, "cannot be loaded", "libdebuginfod1");
	machine.library = 0;
	expect("debuginfod", DOCTOR_OK, "http://localhost:8002", NULL);
	g_unsetenv("DEBUGINFOD_URLS");
}

static void put_process(const char *pid, const char *exe, unsigned uid, const char *own_pid)
{
	g_autofree char *link = g_strdup_printf("/proc/%s/exe", pid);
	g_autofree char *path = g_strdup_printf("/proc/%s/status", pid);
	g_autofree char *maps = g_strdup_printf("/proc/%s/maps", pid);
	g_autofree char *status =
		g_strdup_printf("Name:\tx\nNSpid:\t%s%s%s\nUid:\t%u\t%u\t%u\t%u\n", pid,
				own_pid ? "\t" : "", own_pid ? own_pid : "", uid, uid, uid, uid);

	put_link(link, exe);
	put(path, status);
	put(maps, "");
}

/* A feature that the build lacks is reported first. */
static void test_interpreters(void)
{
	struct doctor_host host;

	doctor_host_init(&host, machine.root, "/", "/", &fake_probes);
	if (!host.interpreters) {
		expect("interpreters", DOCTOR_WARN, "does not read", "libbpf");
		return;
	}
	expect("interpreters", DOCTOR_WARN, "/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF");
	put("/sys/kernel/btf/vmlinux", "");
	expect("interpreters", DOCTOR_WARN, "only root", "sudo");
	machine.bus_profd = 1;
	expect("interpreters", DOCTOR_OK,
	       "Ruby 3.1 to 3.4, PHP 8.2 to 8.5, Perl 5.36 to 5.40 and Node.js 18, 20, 22 and 24",
	       NULL);
	machine.bus_profd = 0;
	put("/proc/self/status",
	    "Name:\tx\nUid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n"); /* Docker's root */
	expect("interpreters", DOCTOR_WARN, "not allowed", "--cap-add=BPF --cap-add=PERFMON");
	put("/proc/self/status", ROOT_USER);
	expect("interpreters", DOCTOR_OK,
	       "Ruby 3.1 to 3.4, PHP 8.2 to 8.5, Perl 5.36 to 5.40 and Node.js 18, 20, 22 and 24",
	       NULL);
	put_process("16", "/usr/bin/python3.13", 0, NULL);
	expect("jit-maps", DOCTOR_OK, "no node", NULL);
	put_process("17", "/usr/bin/ruby3.1", 0, NULL);
	put("/proc/17/maps", "7f00-7f01 r-xp 00000000 00:00 1 /usr/lib/libruby-3.1.so.3.1.2\n");
	put_process("18", "/usr/bin/ruby", 0, NULL);
	expect("interpreters", DOCTOR_OK,
	       "Ruby 3.1 to 3.4, PHP 8.2 to 8.5, Perl 5.36 to 5.40 and Node.js 18, 20, 22 and 24",
	       NULL);
	put("/proc/18/maps", "7f00-7f01 r-xp 00000000 00:00 1 /usr/lib/libruby.so.3.5.1\n");
	expect("interpreters", DOCTOR_WARN, "Ruby 3.5 is not supported", "Ruby 3.1 to 3.4");
	expect("interpreters", DOCTOR_WARN, "process 18 ", "Ruby 3.1");
	put("/proc/18/maps", "7f00-7f01 r-xp 00000000 00:00 1 /usr/lib/libruby-3.1.so.3.1.2\n");
	put_process("19", "/usr/bin/php8.2", 0, NULL);
	put_process("20", "/usr/bin/php", 0, NULL);
	expect("interpreters", DOCTOR_OK,
	       "Ruby 3.1 to 3.4, PHP 8.2 to 8.5, Perl 5.36 to 5.40 and Node.js 18, 20, 22 and 24",
	       NULL);
	put_process("21", "/usr/sbin/php-fpm8.6", 0, NULL);
	expect("interpreters", DOCTOR_WARN, "PHP 8.6 is not supported", "PHP 8.2 to 8.5");
	expect("interpreters", DOCTOR_WARN, "process 21 ", "PHP 8.2");
	put_process("21", "/usr/sbin/php-fpm8.2", 0, NULL);
	put_process("22", "/usr/bin/perl", 0, NULL);
	put_process("23", "/usr/bin/perl5.40.1", 0, NULL);
	expect("interpreters", DOCTOR_OK, "Perl 5.36 to 5.40", NULL);
	put_process("24", "/opt/bin/perl5.34.0", 0, NULL);
	expect("interpreters", DOCTOR_WARN, "Perl 5.34 is not supported", "Perl 5.36, 5.38");
	put_process("24", "/usr/bin/perl", 0, NULL);
	put_process("25", "/opt/bin/python2.7", 0, NULL);
	expect("interpreters", DOCTOR_WARN, "Python 2.7 is not supported", "Python 3.8 to 3.14");
	put_process("25", "/opt/bin/python3.7", 0, NULL);
	expect("interpreters", DOCTOR_WARN, "Python 3.7 is not supported", "Python 3.8 to 3.14");
	put_process("25", "/opt/bin/python3.14", 0, NULL);
	put_process("26", "/usr/bin/node", 0, NULL);
	put_process("27", "/root/.nvm/versions/node/v22.11.0/bin/node", 0, NULL);
	expect("interpreters", DOCTOR_OK, "Python 3.8 to 3.14", NULL);
	put_process("27", "/root/.nvm/versions/node/v16.20.2/bin/node", 0, NULL);
	expect("interpreters", DOCTOR_WARN, "Node.js 16 is not supported", "--perf-basic-prof");
	put_process("27", "/opt/node-v21.1.0/bin/node", 0, NULL);
	expect("interpreters", DOCTOR_WARN, "Node.js 21 is not supported", "--perf-basic-prof");
	for (int pid = 25; pid <= 27; pid++) {
		g_autofree char *text = g_strdup_printf("%d", pid);

		put_process(text, "/usr/bin/other", 0, NULL);
	}
	expect("jit-maps", DOCTOR_OK, "no node", NULL);
	put("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
	expect("interpreters", DOCTOR_WARN, "locked down", "lockdown=integrity");
	expect("jit-maps", DOCTOR_WARN, "1 of 1", "-X perf");
}

static void test_jit_maps(void)
{
	expect("jit-maps", DOCTOR_OK, "no node", NULL);
	put_process("10", "/usr/bin/python3.11", 1000, NULL);
	put_process("11", "/usr/bin/notnode", 1000, NULL);
	put_process("12", "/usr/bin/node", 1001, NULL); /* another user's process */
	expect("jit-maps", DOCTOR_OK, "no node", NULL);
	put_process("14", "/usr/bin/node (deleted)", 1000, "2");
	expect("jit-maps", DOCTOR_WARN, "1 of 1", "--perf-basic-prof");
	expect("jit-maps", DOCTOR_WARN, "node (14);", "node with");
	put("/proc/14/root/tmp/perf-14.map", ""); /* in the process's container, its pid is 2 */
	expect("jit-maps", DOCTOR_WARN, "node (14)", "--perf-basic-prof");
	put("/proc/14/root/tmp/perf-2.map", "");
	expect("jit-maps", DOCTOR_OK, "generate code name it (1", NULL);
	put_process("15", "/usr/lib/jvm/java-17/bin/java", 1000, NULL);
	expect("jit-maps", DOCTOR_WARN, "java (15)", "jcmd 15 Compiler.perfmap");
	put("/proc/15/maps", "7f00-7f01 r-xp 00000000 00:00 1 /var/tmp/jit-15.dump\n");
	expect("jit-maps", DOCTOR_OK, "generate code name it (2", NULL);
	put_process("16", "/usr/bin/python3.13", 1000, NULL);
	expect("jit-maps", DOCTOR_WARN, "1 of 3", "-X perf");
	put("/proc/self/status", ROOT_USER);
	expect("jit-maps", DOCTOR_WARN, "2 of 4", "--perf-basic-prof; ");
}

/* The map is from an earlier process with the same pid. */
static void test_jit_map_of_an_earlier_process(void)
{
	static const char path[] = "/proc/20/root/tmp/perf-20.map";
	const time_t start = 1700000000 + 7;
	g_autofree char *stat =
		g_strdup_printf("20 (no) de) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 %ld 4096\n",
				7 * sysconf(_SC_CLK_TCK));

	put_process("20", "/usr/bin/node", 1000, NULL);
	put("/proc/20/stat", stat);
	put(path, "");
	put_time(path, start - 3);
	expect("jit-maps", DOCTOR_OK, "generate code name it (1", NULL); /* no /proc/stat yet */
	put("/proc/stat", "cpu 1 2 3\nbtime 1700000000\nprocesses 9\n");
	expect("jit-maps", DOCTOR_WARN, "node (20, whose map is older than it);",
	       "--perf-basic-prof");
	put_process("21", "/usr/bin/nodejs", 1000, NULL);
	expect("jit-maps", DOCTOR_WARN, "nodejs (21)", "--perf-basic-prof");
	expect("jit-maps", DOCTOR_WARN, "2 of 2", "--perf-basic-prof");
	put("/proc/21/maps", "7f00-7f01 r-xp 00000000 00:00 1 /var/tmp/jit-21.dump\n");
	put_time(path, start - 2);
	expect("jit-maps", DOCTOR_OK, "generate code name it (2", NULL);
	put_time(path, start + 1000);
	expect("jit-maps", DOCTOR_OK, "generate code name it (2", NULL);
	put_time(path, start - 1000);
	put("/proc/20/maps", "7f00-7f01 r-xp 00000000 00:00 1 /tmp/jit-20.dump\n");
	expect("jit-maps", DOCTOR_OK, "generate code name it (2", NULL);
}

/* In a container without /proc and /sys, every check has a result, and none crashes. */
static void test_empty_tree(void)
{
	remove_tree(machine.root);
	for (const struct doctor_check *check = doctor_checks;
	     check < doctor_checks + DOCTOR_CHECKS; check++) {
		struct doctor_host host;
		struct doctor_finding finding;

		doctor_host_init(&host, machine.root, "/", "/nonexistent", &fake_probes);
		CHECK(doctor_run(&host, check->id, &finding));
		CHECK(finding.summary != NULL);
		doctor_finding_done(&finding);
	}
}

#define RUN_ON_MACHINE(function) \
	do {                     \
		machine_init();  \
		RUN(function);   \
		machine_done();  \
	} while (0)

int main(void)
{
	RUN_ON_MACHINE(test_paranoid);
	RUN_ON_MACHINE(test_mlock);
	RUN_ON_MACHINE(test_rate_and_pmu);
	RUN_ON_MACHINE(test_kptr);
	RUN_ON_MACHINE(test_processes);
	RUN_ON_MACHINE(test_file_systems);
	RUN_ON_MACHINE(test_surroundings);
	RUN_ON_MACHINE(test_debug_files);
	RUN_ON_MACHINE(test_debuginfod);
	RUN_ON_MACHINE(test_interpreters);
	RUN_ON_MACHINE(test_jit_maps);
	RUN_ON_MACHINE(test_jit_map_of_an_earlier_process);
	RUN_ON_MACHINE(test_empty_tree);
	return test_end();
}
