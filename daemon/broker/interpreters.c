/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interpreters - makes BPF programs read interpreters' frames at samples and before sleeps
 *
 * Invariants: (1) the programs read only at offsets from profd's own tables
 *             (2) the program for samples is attached only to events of the session, and ends with
 *                 them; the program for sleeps runs for all threads, and reads only processes that
 *                 were added
 *             (3) programs that the kernel refuses for one family do not keep others from running
 *                 [test_ruby: refused]
 */
#include "daemon/broker/interpreters.h"

#include "daemon/broker/error.h"

#ifdef PROF_HAS_BPF

#include "arch/base.h"
#include "arch/errno-text.h"
#include "base/cpython-layouts.h"
#include "base/perl-layouts.h"
#include "base/php-layouts.h"
#include "base/ruby-layouts.h"
#include "base/v8-layouts.h"
#include "daemon/broker/interpreters.skel.h"
#include "daemon/broker/kernel-types.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <linux/capability.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALL_CPUS 4096
#define KERNEL_TYPES "/sys/kernel/btf/vmlinux"

struct interpreters {
	struct interpreters_bpf *program;
	/* perf event on sched:sched_switch, with the BPF program attached; -1: not attached */
	int sleeps;
	bool reads_sleeps; /* the programs for sleeps are loaded */
	unsigned loaded;   /* bits 1 << enum interp_family: families that `program` has */
	int types;         /* file of open_programs(); -1: none */
	/* the programs of further families; their maps are those of `program` */
	struct interpreters_bpf *families[INTERP_FAMILIES];
	/* why the kernel refuses a family's programs; NULL: it does not */
	char *refused[INTERP_FAMILIES];
};

static const char *const family_names[] = INTERP_FAMILY_NAMES;

/* Suppresses libbpf's messages: they have more details than its error codes, but a code is enough
 * for a user. */
static int print_nothing(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level;
	(void)format;
	(void)arguments;
	return 0;
}

/* Returns why this process may not load programs. */
static const char *missing_right(void)
{
	const uint32_t needed = CAP_TO_MASK(CAP_BPF) | CAP_TO_MASK(CAP_PERFMON);
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[2] = { 0 };

	_Static_assert(CAP_TO_INDEX(CAP_BPF) == 1 && CAP_TO_INDEX(CAP_PERFMON) == 1, "sets[1]");
	if (syscall(SYS_capget, &header, sets) == 0 &&
	    (sets[0].effective & CAP_TO_MASK(CAP_SYS_ADMIN) ||
	     (sets[1].effective & needed) == needed))
		return "the kernel is locked down, or CAP_BPF and CAP_PERFMON are those of a user "
		       "namespace";
	return geteuid() == 0 ? "root lacks CAP_BPF or CAP_PERFMON"
			      : "CAP_BPF and CAP_PERFMON are needed";
}

static bool fail_load(int failed, GError **error)
{
	if (failed == EPERM || failed == EACCES)
		return broker_fail(error, BROKER_ERROR_NOT_AUTHORIZED,
				   "loading the program that reads interpreters: %s; %s",
				   ERRNO_TEXT(failed), missing_right());
	if (failed == ESRCH || failed == ENOENT)
		return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
				   "this kernel has no type information for BPF programs "
				   "(" KERNEL_TYPES ", CONFIG_DEBUG_INFO_BTF)");
	return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
			   "loading the program that reads interpreters: %s; Linux 5.17 is needed",
			   ERRNO_TEXT(failed));
}

static const void *layout_of(enum interp_family family, uint32_t minor)
{
	switch (family) {
	case INTERP_PYTHON:
		return cpython_layout(minor);
	case INTERP_RUBY:
		return ruby_layout(minor);
	case INTERP_PHP:
		return php_layout(minor);
	case INTERP_PERL:
		return perl_layout(minor);
	case INTERP_V8:
		return v8_layout(minor);
	default:
		return NULL;
	}
}

struct walkers {
	struct bpf_map *layouts;
	struct bpf_program *sample, *sleep;
};

#define WALKERS(family)                                                         \
	{                                                                       \
		program->maps.family##_layouts, program->progs.family##_sample, \
			program->progs.family##_sleep                           \
	}
static struct walkers walkers_of(const struct interpreters_bpf *program, enum interp_family family)
{
	const struct walkers walkers[INTERP_FAMILIES] = { [INTERP_PYTHON] = WALKERS(cpython),
							  [INTERP_RUBY] = WALKERS(ruby),
							  [INTERP_PHP] = WALKERS(php),
							  [INTERP_PERL] = WALKERS(perl),
							  [INTERP_V8] = WALKERS(v8) };

	return walkers[family];
}
#undef WALKERS

/* Stores a family's walkers and layouts in the programs' maps. Returns false, with errno, on
 * failure. */
static bool add_family(const struct interpreters_bpf *program, enum interp_family family)
{
	const struct walkers walkers = walkers_of(program, family);
	const int sample = bpf_program__fd(walkers.sample), sleep = bpf_program__fd(walkers.sleep);
	const uint32_t key = family;

	for (uint32_t minor = 0; minor < bpf_map__max_entries(walkers.layouts); minor++)
		if (layout_of(family, minor) &&
		    bpf_map_update_elem(bpf_map__fd(walkers.layouts), &minor,
					layout_of(family, minor), BPF_ANY) != 0)
			return false;
	return bpf_map_update_elem(bpf_map__fd(program->maps.sample_walkers), &key, &sample,
				   BPF_ANY) == 0 &&
	       (sleep < 0 || bpf_map_update_elem(bpf_map__fd(program->maps.sleep_walkers), &key,
						 &sleep, BPF_ANY) == 0);
}

static bool has_family(unsigned families, enum interp_family family)
{
	return families & 1u << family;
}

/* Makes the programs use the maps of `first`, which is loaded. Returns false, with errno, on
 * failure. */
static bool share_maps(struct interpreters_bpf *program, const struct interpreters_bpf *first)
{
	const struct bpf_map *known;
	struct bpf_map *map;

	bpf_object__for_each_map(map, program->obj)
	{
		known = bpf_object__find_map_by_name(first->obj, bpf_map__name(map));
		if (!known ||
		    (bpf_map__autocreate(known) && bpf_map__reuse_fd(map, bpf_map__fd(known)) != 0))
			return false;
	}
	return true;
}

/* Writes the programs' types to a file, with the kernel's offsets. Returns false on failure, for
 * example if an offset is not certain. */
static bool write_types(const struct interpreters_bpf *program, int to)
{
	g_autoptr(GMappedFile) mapped = g_mapped_file_new(KERNEL_TYPES, FALSE, NULL);
	g_autofree char *copy = NULL;
	uint32_t own_bytes = 0;
	const void *data = btf__raw_data(bpf_object__btf(program->obj), &own_bytes);
	g_autofree void *own = g_memdup2(data, own_bytes);
	size_t bytes = mapped ? g_mapped_file_get_length(mapped) : 0;

	/* Before Linux 6.16, the file could not be mapped. */
	if (!own || (!mapped && !g_file_get_contents(KERNEL_TYPES, &copy, &bytes, NULL)))
		return false;
	return kernel_types_apply(own, own_bytes,
				  mapped ? g_mapped_file_get_contents(mapped) : copy, bytes) &&
	       write(to, own, own_bytes) == (ssize_t)own_bytes;
}

/* Opens the programs, which find the kernel's offsets in the file *types if possible, because
 * libbpf needs longer to read the kernel's own file than to load the programs. Makes the file if
 * *types is -1. */
static struct interpreters_bpf *open_programs(int *types)
{
	CLEANUP_CLOSE int made = *types < 0 ? memfd_create("prof-types", MFD_CLOEXEC) : -1;
	g_autofree char *path = g_strdup_printf("/proc/self/fd/%d", made < 0 ? *types : made);
	const struct bpf_object_open_opts options = { .sz = sizeof(options),
						      .btf_custom_path = path };
	struct interpreters_bpf *program = interpreters_bpf__open_opts(&options);

	if (!program || *types >= 0)
		return program;
	if (write_types(program, made)) {
		*types = steal_fd(&made);
		return program;
	}
	interpreters_bpf__destroy(program);
	return interpreters_bpf__open();
}

/* Loads the programs of some families. The first call also loads the shared programs; later calls
 * use the maps of the first call's programs. Returns NULL, with errno, on failure. */
static struct interpreters_bpf *load(struct interpreters *interpreters, unsigned families)
{
	const struct interpreters_bpf *first = interpreters->program;
	const bool sleeps = interpreters->reads_sleeps;
	struct interpreters_bpf *program = open_programs(&interpreters->types);
	bool ok;
	int failed;

	if (!program)
		return NULL;
	/* Load only what is needed: verifying the programs takes most of the time until the first
	 * sample can be read. */
	bpf_program__set_autoload(program->progs.interp_sample, !first);
	bpf_program__set_autoload(program->progs.interp_sleep, !first && sleeps);
	for (unsigned i = INTERP_NONE + 1; i < INTERP_FAMILIES; i++) {
		bpf_program__set_autoload(walkers_of(program, i).sample, has_family(families, i));
		bpf_program__set_autoload(walkers_of(program, i).sleep,
					  sleeps && has_family(families, i));
	}
	bpf_map__set_autocreate(program->maps.v8_lines, has_family(families, INTERP_V8));
	ok = bpf_map__set_max_entries(program->maps.sample_outputs, ALL_CPUS) == 0 &&
	     bpf_map__set_max_entries(program->maps.code_outputs, ALL_CPUS) == 0 &&
	     (!first || share_maps(program, first)) && interpreters_bpf__load(program) == 0;
	for (unsigned i = INTERP_NONE + 1; ok && i < INTERP_FAMILIES; i++)
		ok = !has_family(families, i) || add_family(program, i);
	if (ok)
		return program;
	failed = errno;
	interpreters_bpf__destroy(program);
	errno = failed;
	return NULL;
}

unsigned interpreters_lacking(const struct interpreters *interpreters)
{
	unsigned lacking = ~interpreters->loaded;

	for (unsigned i = INTERP_NONE + 1; i < INTERP_FAMILIES; i++)
		if (interpreters->families[i] || interpreters->refused[i])
			lacking &= ~(1u << i);
	return lacking;
}

const char *interpreters_refusal(const struct interpreters *interpreters, enum interp_family family)
{
	return __atomic_load_n(&interpreters->refused[family], __ATOMIC_ACQUIRE);
}

void interpreters_add(struct interpreters *interpreters, unsigned families)
{
	for (unsigned i = INTERP_NONE + 1; i < INTERP_FAMILIES; i++) {
		char *refused = NULL;

		if (!has_family(families, i))
			continue;
		interpreters->families[i] = load(interpreters, 1u << i);
		if (!interpreters->families[i])
			refused =
				g_strdup_printf("the kernel refuses the program that reads %s: %s",
						family_names[i], ERRNO_TEXT(errno));
		/* pairs with interpreters_refusal() */
		__atomic_store_n(&interpreters->refused[i], refused, __ATOMIC_RELEASE);
	}
}

struct interpreters *interpreters_new(unsigned families, bool sleeps, GError **error)
{
	struct interpreters *interpreters = g_new0(struct interpreters, 1);
	int failed;

	interpreters->sleeps = interpreters->types = -1;
	interpreters->reads_sleeps = sleeps;
	interpreters->loaded = families;
	libbpf_set_print(print_nothing);
	interpreters->program = load(interpreters, families);
	failed = errno;
	/* If the kernel refuses the programs of one family, others may still be loaded. */
	if (!interpreters->program && families) {
		interpreters->loaded = 0;
		interpreters->program = load(interpreters, 0);
		if (interpreters->program)
			interpreters_add(interpreters, families);
	}
	if (interpreters->program)
		return interpreters;
	fail_load(failed, error);
	interpreters_free(interpreters);
	return NULL;
}

void interpreters_detach_sleeps(struct interpreters *interpreters)
{
	if (interpreters->sleeps >= 0)
		close(steal_fd(&interpreters->sleeps));
}

void interpreters_free(struct interpreters *interpreters)
{
	if (!interpreters)
		return;
	interpreters_detach_sleeps(interpreters);
	if (interpreters->types >= 0)
		close(interpreters->types);
	interpreters_bpf__destroy(interpreters->program);
	for (size_t i = 0; i < INTERP_FAMILIES; i++) {
		interpreters_bpf__destroy(interpreters->families[i]);
		g_free(interpreters->refused[i]);
	}
	g_free(interpreters);
}

static int open_output(struct perf_event_attr *attr, int ring, unsigned cpu, int map,
		       uint64_t *ret_id)
{
	CLEANUP_CLOSE int fd = -1;

	attr->type = PERF_TYPE_SOFTWARE;
	attr->config = PERF_COUNT_SW_BPF_OUTPUT;
	attr->config1 = attr->config2 = 0;
	attr->precise_ip = 0;
	attr->inherit = attr->inherit_thread = 0;
	attr->sample_type |= PERF_SAMPLE_RAW;
	attr->freq = 0;
	attr->sample_period = 1;
	attr->disabled = 0;
	attr->exclude_idle = 0;
	fd = (int)syscall(SYS_perf_event_open, attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0 || ioctl(fd, PERF_EVENT_IOC_ID, ret_id) < 0 ||
	    ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring) < 0 ||
	    bpf_map_update_elem(map, &cpu, &fd, BPF_ANY) != 0)
		return -1;
	return steal_fd(&fd);
}

bool interpreters_open_outputs(struct interpreters *interpreters,
			       const struct perf_event_attr *source, int ring, unsigned cpu,
			       struct interpreter_outputs *ret_outputs, GError **error)
{
	struct perf_event_attr sample = *source, code = *source;

	code.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
			   PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
	code.sample_regs_user = 0;
	code.sample_stack_user = 0;
	ret_outputs->code = -1;
	ret_outputs->sample = open_output(&sample, ring, cpu,
					  bpf_map__fd(interpreters->program->maps.sample_outputs),
					  &ret_outputs->sample_id);
	if (ret_outputs->sample >= 0)
		ret_outputs->code = open_output(
			&code, ring, cpu, bpf_map__fd(interpreters->program->maps.code_outputs),
			&ret_outputs->code_id);
	if (ret_outputs->code >= 0)
		return true;
	broker_fail(error, BROKER_ERROR_FAILED,
		    "opening an event for frames of interpreters on CPU %u: %s", cpu,
		    ERRNO_TEXT(errno));
	if (ret_outputs->sample >= 0)
		close(ret_outputs->sample);
	return false;
}

bool interpreters_attach(const struct interpreters *interpreters, const struct event *event, int fd,
			 GError **error)
{
	const int program = bpf_program__fd(interpreters->program->progs.interp_sample);

	return event->kind == PROF_SOURCE_TRACEPOINT || event->kind == PROF_SOURCE_PROBE ||
	       ioctl(fd, PERF_EVENT_IOC_SET_BPF, program) == 0 ||
	       broker_fail(error, BROKER_ERROR_FAILED, "reading interpreters at an event: %s",
			   ERRNO_TEXT(errno));
}

bool interpreters_attach_sleeps(struct interpreters *interpreters, uint64_t tracepoint,
				GError **error)
{
	struct perf_event_attr attr = { .size = sizeof(attr),
					.type = PERF_TYPE_TRACEPOINT,
					.config = tracepoint };

	/* The kernel runs a tracepoint's programs on all CPUs, whichever CPU the event is for. */
	interpreters->sleeps =
		(int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	return (interpreters->sleeps >= 0 &&
		ioctl(interpreters->sleeps, PERF_EVENT_IOC_SET_BPF,
		      bpf_program__fd(interpreters->program->progs.interp_sleep)) == 0) ||
	       broker_fail(error, BROKER_ERROR_FAILED, "reading interpreters at sleeps: %s",
			   ERRNO_TEXT(errno));
}

/* Reads field 28 of /proc/PID/stat: startstack. */
uint64_t interpreters_start_stack(int32_t pid)
{
	g_autofree char *path = g_strdup_printf("/proc/%d/stat", pid);
	g_autofree char *text = NULL;
	const char *at;

	if (!g_file_get_contents(path, &text, NULL, NULL))
		return 0;
	at = strrchr(text, ')');
	for (int i = 2; at && i < 28; i++)
		at = strchr(at + 1, ' ');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

bool interpreters_has_process(const struct interpreters *interpreters, int32_t pid,
			      const struct interp_process *process)
{
	const uint32_t key = (uint32_t)pid;
	struct interp_process known;

	return bpf_map_lookup_elem(bpf_map__fd(interpreters->program->maps.processes), &key,
				   &known) == 0 &&
	       memcmp(&known, process, sizeof(known)) == 0;
}

bool interpreters_set_process(struct interpreters *interpreters, int32_t pid,
			      const struct interp_process *process, GError **error)
{
	const int map = bpf_map__fd(interpreters->program->maps.processes);
	const uint32_t key = (uint32_t)pid;

	if (!layout_of(process->family, process->minor))
		return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
				   "minor version %u of interpreter %u is not supported",
				   process->minor, process->family);
	if (interpreters_refusal(interpreters, process->family))
		return broker_fail(error, BROKER_ERROR_NOT_SUPPORTED, "%s",
				   interpreters_refusal(interpreters, process->family));
	if (process->start_stack == 0)
		return broker_fail(error, BROKER_ERROR_FAILED,
				   "process %d has ended, or may not be looked at", pid);
	if (bpf_map_update_elem(map, &key, process, BPF_ANY) != 0)
		return broker_fail(error, BROKER_ERROR_LIMIT_EXCEEDED,
				   "adding an interpreted process: %s", ERRNO_TEXT(errno));
	return true;
}

struct interp_counts interpreters_count(const struct interpreters *interpreters)
{
	const int n = libbpf_num_possible_cpus();
	g_autofree struct interp_counts *each = n > 0 ? g_new0(struct interp_counts, n) : NULL;
	struct interp_counts sum = { 0 };
	const uint32_t key = 0;

	if (!each ||
	    bpf_map_lookup_elem(bpf_map__fd(interpreters->program->maps.counts), &key, each) != 0)
		return sum;
	for (int i = 0; i < n; i++) {
		sum.samples += each[i].samples;
		sum.walked += each[i].walked;
		sum.lost += each[i].lost;
		sum.codes += each[i].codes;
		sum.codes_lost += each[i].codes_lost;
		sum.walk_ns += each[i].walk_ns;
	}
	return sum;
}

#else /* nothing is read */

struct interpreters *interpreters_new(unsigned families, bool sleeps, GError **error)
{
	broker_fail(error, BROKER_ERROR_NOT_SUPPORTED,
		    "profd was built without libbpf, bpftool or clang");
	return NULL;
}

void interpreters_add(struct interpreters *interpreters, unsigned families)
{
}

unsigned interpreters_lacking(const struct interpreters *interpreters)
{
	return 0;
}

const char *interpreters_refusal(const struct interpreters *interpreters, enum interp_family family)
{
	return NULL;
}

void interpreters_free(struct interpreters *interpreters)
{
	(void)interpreters;
}

bool interpreters_open_outputs(struct interpreters *interpreters,
			       const struct perf_event_attr *source, int ring, unsigned cpu,
			       struct interpreter_outputs *ret_outputs, GError **error)
{
	return interpreters_new(0, false, error);
}

bool interpreters_attach(const struct interpreters *interpreters, const struct event *event, int fd,
			 GError **error)
{
	return interpreters_new(0, false, error);
}

bool interpreters_attach_sleeps(struct interpreters *interpreters, uint64_t tracepoint,
				GError **error)
{
	return interpreters_new(0, false, error);
}

void interpreters_detach_sleeps(struct interpreters *interpreters)
{
}

uint64_t interpreters_start_stack(int32_t pid)
{
	return 0;
}

bool interpreters_has_process(const struct interpreters *interpreters, int32_t pid,
			      const struct interp_process *process)
{
	return false;
}

bool interpreters_set_process(struct interpreters *interpreters, int32_t pid,
			      const struct interp_process *process, GError **error)
{
	return interpreters_new(0, false, error);
}

struct interp_counts interpreters_count(const struct interpreters *interpreters)
{
	return (struct interp_counts){ 0 };
}

#endif
