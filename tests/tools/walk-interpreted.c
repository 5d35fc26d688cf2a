/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * walk-interpreted - samples a process of an interpreter and prints its functions, one line for
 * each sample
 *
 *     walk-interpreted PID HZ SECONDS
 *
 * A line has the sample's flags (enum interp_flags, in hexadecimal), a tab, and its frames,
 * innermost first: "NAME@FIRST_LINE:LINE|". Samples of other processes are left out. The last line,
 * which begins with "#", has the counts. Exit status 77: interpreters cannot be read here.
 */
#include "arch/base.h"
#include "base/cpython-layouts.h"
#include "daemon/broker/interpreters.h"
#include "daemon/engine/interp/interp-functions.h"
#include "daemon/engine/interp/interp-runtime.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define RING_BYTES (4u << 20)
#define MAX_CPUS 64
#define SAMPLE_TYPE                                                                     \
	(PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | \
	 PERF_SAMPLE_CPU)

struct ring {
	int event;
	struct interpreter_outputs outputs;
	struct perf_event_mmap_page *page;
	uint64_t head;  /* end of the samples that may be printed */
	uint64_t codes; /* end of the descriptions of code that were read */
};

/* The beginning of a record of either output; `raw` follows. */
struct raw_record {
	struct perf_event_header header;
	uint64_t event_id, ip;
	uint32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, pad;
	uint32_t raw_bytes;
	uint8_t raw[];
};

static uint64_t n_lost, n_printed;

/* Finds the interpreter in the files that the process maps. */
static bool find_interpreter(int pid, struct interp_process *ret_process)
{
	char path[64], line[4096], name[4096], last[4096] = "";
	FILE *maps;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "re");
	while (maps && !found && fgets(line, sizeof(line), maps)) {
		uint64_t start, end, offset;
		struct interp_runtime runtime;
		uint64_t addresses[INTERP_ADDRESSES];
		CLEANUP_CLOSE int fd = -1;
		Elf64_Half type;

		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %4095[^\n]",
			   &start, &end, &offset, name) != 4 ||
		    name[0] != '/' || offset != 0 || strcmp(name, last) == 0)
			continue;
		strcpy(last, name);
		fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || interp_runtime_find(fd, &runtime) != INTERP_FOUND ||
		    pread(fd, &type, sizeof(type), offsetof(Elf64_Ehdr, e_type)) != sizeof(type))
			continue;
		if (type == ET_EXEC)
			start = 0;
		*ret_process =
			(struct interp_process){ .family = runtime.family, .minor = runtime.minor };
		interp_runtime_locate(&runtime, start, addresses);
		for (size_t i = 0; i < INTERP_ADDRESSES; i++)
			ret_process->addresses[i] = addresses[i];
		found = true;
	}
	if (maps)
		fclose(maps);
	return found;
}

/* Prints a name. Replaces the characters that separate the fields of the output, and all control
 * characters, with '?'. */
static void print_name(const char *name)
{
	for (; *name; name++)
		putchar(*name == '|' || (unsigned char)*name < ' ' ? '?' : *name);
}

static void print_chain(const struct interp_functions *functions, const struct interp_chain *chain)
{
	printf("%x\t", chain->flags);
	for (unsigned i = 0; i < chain->n; i++) {
		const struct interp_frame *frame = &chain->frames[i];
		const struct interp_function *function = interp_functions_find(functions, 1, frame);

		print_name(function ? function->name : "?");
		printf("@%u:%u|", function ? function->first_line : 0,
		       function ? interp_function_line(function, frame) : 0);
	}
	putchar('\n');
	n_printed++;
}

static void take_code(struct interp_functions *functions, const struct raw_record *record)
{
	struct interp_code_text code;

	if (interp_record_code(record->raw, record->raw_bytes, &code))
		(void)interp_functions_add(functions, 1, &code);
}

static void take_sample(struct interp_functions *functions, const struct raw_record *record)
{
	struct interp_chain chain;

	if (interp_record_sample(record->raw, record->raw_bytes, &chain))
		print_chain(functions, &chain);
}

/* Passes records with raw data to `take`. */
static void read_ring(struct interp_functions *functions, const struct ring *ring, uint64_t tail,
		      uint64_t head,
		      void (*take)(struct interp_functions *functions,
				   const struct raw_record *record))
{
	static uint64_t copy[8192];
	const uint8_t *bytes = (const uint8_t *)ring->page + sysconf(_SC_PAGESIZE);

	while (tail < head) {
		const struct perf_event_header *header = (const void *)(bytes + tail % RING_BYTES);
		const size_t size = header->size, at = tail % RING_BYTES;
		const size_t first = MIN_OF(size, (size_t)RING_BYTES - at);
		const struct raw_record *record = (const void *)copy;

		memcpy(copy, bytes + at, first);
		memcpy((uint8_t *)copy + first, bytes, size - first);
		tail += size;
		if (take == take_sample && record->header.type == PERF_RECORD_LOST)
			n_lost += copy[2];
		if (record->header.type == PERF_RECORD_SAMPLE &&
		    size >= offsetof(struct raw_record, raw) &&
		    record->raw_bytes <= size - offsetof(struct raw_record, raw))
			take(functions, record);
	}
}

/* Reads all descriptions of code before the samples, because a thread may change its CPU after its
 * code was described. */
static void drain(struct interp_functions *functions, struct ring *rings, long n)
{
	for (long i = 0; i < n; i++)
		rings[i].head = __atomic_load_n(&rings[i].page->data_head, __ATOMIC_ACQUIRE);
	for (long i = 0; i < n; i++) {
		const uint64_t head = __atomic_load_n(&rings[i].page->data_head, __ATOMIC_ACQUIRE);

		read_ring(functions, &rings[i], rings[i].codes, head, take_code);
		rings[i].codes = head;
	}
	for (long i = 0; i < n; i++) {
		read_ring(functions, &rings[i], rings[i].page->data_tail, rings[i].head,
			  take_sample);
		__atomic_store_n(&rings[i].page->data_tail, rings[i].head, __ATOMIC_RELEASE);
	}
}

static const struct event sampled = { .kind = PROF_SOURCE_SOFTWARE };

static bool open_ring(struct interpreters *interpreters, unsigned cpu, unsigned hz,
		      struct ring *ring, GError **error)
{
	struct perf_event_attr attr = { .size = sizeof(attr),
					.type = PERF_TYPE_SOFTWARE,
					.config = PERF_COUNT_SW_CPU_CLOCK,
					.sample_period = 1000000000 / hz,
					.sample_type = SAMPLE_TYPE,
					.use_clockid = 1,
					.clockid = CLOCK_MONOTONIC,
					.exclude_idle = 1,
					.disabled = 1 };

	ring->event =
		(int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
	ring->page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE) + RING_BYTES, PROT_READ | PROT_WRITE,
			  MAP_SHARED, ring->event, 0);
	if (ring->event < 0 || ring->page == MAP_FAILED) {
		g_set_error(error, G_FILE_ERROR, 0, "cannot open the event: %s", strerror(errno));
		return false;
	}
	return interpreters_open_outputs(interpreters, &attr, ring->event, cpu, &ring->outputs,
					 error) &&
	       interpreters_attach(interpreters, &sampled, ring->event, error);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Prints only the samples that the BPF programs write for this process. The kernel also writes
 * samples of other processes, but without frames. */
int main(int argc, char **argv)
{
	static struct ring rings[MAX_CPUS];
	struct interp_functions *functions = interp_functions_new(256u << 20, 1);
	const long n_cpus = MIN_OF(sysconf(_SC_NPROCESSORS_ONLN), (long)MAX_CPUS);
	struct interpreters *interpreters;
	struct interp_process process;
	struct interp_counts counts;
	g_autoptr(GError) error = NULL;
	uint64_t end_ns;
	int pid;

	if (argc != 4) {
		fputs("Usage: walk-interpreted PID HZ SECONDS\n", stderr);
		return 2;
	}
	pid = atoi(argv[1]);
	interpreters = interpreters_new(~0u, false, &error);
	if (!interpreters) {
		fprintf(stderr, "%s\n", error->message);
		return 77;
	}
	if (!find_interpreter(pid, &process)) {
		fprintf(stderr, "process %d has no interpreter that is supported\n", pid);
		return 1;
	}
	process.start_stack = interpreters_start_stack(pid);
	if (!interpreters_set_process(interpreters, pid, &process, &error)) {
		fprintf(stderr, "%s\n", error->message);
		return 1;
	}
	for (long i = 0; i < n_cpus; i++)
		if (!open_ring(interpreters, (unsigned)i, (unsigned)atoi(argv[2]), &rings[i],
			       &error)) {
			fprintf(stderr, "%s\n", error->message);
			return 1;
		}
	for (long i = 0; i < n_cpus; i++)
		ioctl(rings[i].event, PERF_EVENT_IOC_ENABLE, 0);
	end_ns = now_ns() + (uint64_t)(atof(argv[3]) * 1e9);
	while (now_ns() < end_ns && kill(pid, 0) == 0) {
		usleep(20000);
		drain(functions, rings, n_cpus);
	}
	for (long i = 0; i < n_cpus; i++)
		ioctl(rings[i].event, PERF_EVENT_IOC_DISABLE, 0);
	drain(functions, rings, n_cpus);
	counts = interpreters_count(interpreters);
	printf("# printed %" PRIu64 " walked %" PRIu64 " of %" PRIu64 " lost %" PRIu64 " %" PRIu64
	       " codes %" PRIu64 " lost %" PRIu64 " ns %" PRIu64 "\n",
	       n_printed, (uint64_t)counts.walked, (uint64_t)counts.samples, (uint64_t)counts.lost,
	       n_lost, (uint64_t)counts.codes, (uint64_t)counts.codes_lost,
	       (uint64_t)(counts.walked ? counts.walk_ns / counts.walked : 0));
	interpreters_free(interpreters);
	interp_functions_free(functions);
	return 0;
}
