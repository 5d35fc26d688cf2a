/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-unwind - measures tables of real files and walks of real stacks, compared with libdwfl in
 * the same run
 *
 * Builds tables of the files below, then walks stacks that are sampled from the programs below.
 * Chains are compared frame by frame, and differences are counted by kind. bench-unwind-rows
 * compares every row of all files.
 */
#include "arch/walk.h"
#include "tests/oracle/elf-cfi.h"
#include "tests/oracle/live.h"
#include "tests/oracle/peer-walk.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define N_SAMPLES 1500
#define SECONDS 6
#define MAX_FILES 256
#define RUNS 7
#define ROUNDS 9
#define GROUP 32
#define DESKTOP_FILES 200
#define MAX_FRAMES 1024

static const char *const table_files[] = {
	"/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/usr/bin/python3.11",
	"/usr/bin/node",
	"/usr/lib/gcc/x86_64-linux-gnu/12/cc1",
};

static const char python_work[] =
	"import json, re\n"
	"def tree(n): return {'k%d' % i: (tree(n - 1) if n else i) for i in range(4)}\n"
	"def deep(n): return n and deep(n - 1) or len(json.dumps(tree(3)))\n"
	"while True:\n"
	"    json.loads(json.dumps(tree(4)))\n"
	"    sorted(('w%d' % (i * 7919 % 1000) for i in range(2000)), key=lambda w: w[::-1])\n"
	"    re.sub(r'w(\\d+)', lambda m: m.group(1), 'w12 ' * 400)\n"
	"    deep(40)\n";

static const char node_work[] =
	"function tree(n) { return n ? [tree(n - 1), tree(n - 1), 'x' + n] : { n: Math.random() }; }\n"
	"for (;;) { JSON.parse(JSON.stringify(tree(10)));\n"
	"  [...Array(3000).keys()].map(String).sort((a, b) => a < b ? -1 : 1).join().replace(/1/g, 'y'); }\n";

struct program {
	const char *name;
	const char *command[10];
};

/* SOURCE means a large C file, which make_source() writes. */
static const struct program programs[] = {
	{ "python3", { "/usr/bin/python3.11", "-c", python_work } },
	{ "cc1",
	  { "/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "-quiet", "-O2", "SOURCE", "-o",
	    "/dev/null" } },
	{ "clang", { "/usr/bin/clang-14", "-O2", "-c", "SOURCE", "-o", "/dev/null" } },
	{ "git",
	  { "/usr/bin/git", "-C", "/usr/include", "grep", "--no-index", "--threads=1", "-cE",
	    "(a|e)+.*(n|t)+.*[xyz]+.*(q|w)" } },
	{ "sqlite3",
	  { "/usr/bin/sqlite3", ":memory:",
	    "with recursive c(x) as (select 1 union all select x+1 from c) select count(*) from (select x*x as y from c order by y);" } },
	{ "perl",
	  { "/usr/bin/perl", "-e",
	    "while (1) { my %h = map { $_ => $_ ** 2 } 1 .. 2000; join ',', sort { $h{$a} <=> $h{$b} } keys %h; }" } },
	{ "node", { "/usr/bin/node", "-e", node_work } },
};

struct mapping {
	uint64_t start, end, offset;
	char path[256];
	struct elf_cfi *file; /* NULL: the file has no CFI */
	bool is_jit;
	struct unwind_table table;
	void *bytes;
};

struct space {
	struct mapping mappings[MAX_FILES];
	size_t n;
};

static double now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double cpu_ns(void)
{
	return now_ns(CLOCK_THREAD_CPUTIME_ID);
}

static const char *verdict(bool met)
{
	return met ? "met" : "MISSED";
}

/* ---- Tables ---- */

static void bench_table(const char *path)
{
	CLEANUP_ELF_CFI struct elf_cfi *file = elf_cfi_open(path);
	double best = 1e18, first = 0;
	struct unwind_table table = { .n_rows = 0 };
	size_t size = 0;

	if (!file) {
		printf("%-44s is not here\n", path);
		return;
	}
	for (size_t i = 0; i < RUNS; i++) {
		CLEANUP_FREE void *bytes = NULL;
		double start = cpu_ns();

		if (!elf_cfi_build(file, &table, &bytes, &size))
			return;
		start = cpu_ns() - start;
		first = i == 0 ? start : first;
		best = MIN_OF(best, start);
	}
	printf("%-44s %8u rows %5u rules  first %6.1f ms  best %6.1f ms  %5.1f ns/row  %5.2f B/row  %s\n",
	       path, table.n_rows, table.n_rules, first / 1e6, best / 1e6, best / table.n_rows,
	       (double)size / table.n_rows,
	       verdict(first < 60e6 && (double)size <= 6.0 * table.n_rows));
}

/* Compiles the tables of this machine's largest libraries: more than a busy desktop maps. */
static void bench_desktop(void)
{
	size_t bytes = 0, n = 0, files_bytes = 0;
	double start = cpu_ns();
	char path[512];
	FILE *list =
		popen("/sbin/ldconfig -p | sed -n 's/.* => //p' | xargs readlink -f | sort -u |"
		      " xargs du -b | sort -rn | cut -f2",
		      "r");

	while (list && n < DESKTOP_FILES && fgets(path, sizeof(path), list)) {
		CLEANUP_ELF_CFI struct elf_cfi *file = NULL;
		CLEANUP_FREE void *block = NULL;
		struct unwind_table table;
		size_t size;

		path[strcspn(path, "\n")] = '\0';
		file = elf_cfi_open(path);
		if (!file || !elf_cfi_build(file, &table, &block, &size))
			continue;
		bytes += size;
		files_bytes += file->sections[0].size;
		n++;
	}
	if (list)
		pclose(list);
	printf("the %zu largest libraries: tables %.1f MB (their .eh_frame %.1f MB), %.0f ms  %s\n",
	       n, (double)bytes / 1e6, (double)files_bytes / 1e6, (cpu_ns() - start) / 1e6,
	       verdict(n > 0 && bytes < 60000000));
}

/* ---- A process ---- */

static struct elf_cfi *open_mapped(pid_t pid, const char *path)
{
	char proc[300];

	if (strcmp(path, "[vdso]") == 0)
		return elf_cfi_open_vdso();
	snprintf(proc, sizeof(proc), "/proc/%d/root%s", pid, path);
	return elf_cfi_open(proc);
}

static void add_mapping(struct space *space, pid_t pid, const char *line)
{
	struct mapping *mapping = &space->mappings[space->n];
	char permissions[8] = "", path[256] = "";

	if (space->n == MAX_FILES ||
	    sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %255s", &mapping->start,
		   &mapping->end, permissions, &mapping->offset, path) < 4 ||
	    permissions[2] != 'x')
		return;
	memcpy(mapping->path, path, sizeof(path));
	mapping->is_jit = path[0] == '\0';
	mapping->file = path[0] ? open_mapped(pid, path) : NULL;
	if (strcmp(path, "[vdso]") == 0 && mapping->file)
		mapping->offset = 0;
	if (mapping->file) {
		size_t size;

		if (!elf_cfi_build(mapping->file, &mapping->table, &mapping->bytes, &size)) {
			elf_cfi_free(mapping->file);
			mapping->file = NULL;
		}
	}
	space->n++;
}

static bool read_space(struct space *space, pid_t pid)
{
	char name[64], line[512];
	FILE *maps;

	space->n = 0;
	snprintf(name, sizeof(name), "/proc/%d/maps", pid);
	maps = fopen(name, "re");
	while (maps && fgets(line, sizeof(line), maps))
		add_mapping(space, pid, line);
	if (maps)
		fclose(maps);
	return space->n > 0;
}

static void free_space(struct space *space)
{
	for (size_t i = 0; i < space->n; i++) {
		elf_cfi_free(space->mappings[i].file);
		free(space->mappings[i].bytes);
	}
	memset(space, 0, sizeof(*space));
}

static const struct mapping *find_mapping(const struct space *space, uint64_t pc)
{
	size_t low = 0, high = space->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (space->mappings[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low < space->n && pc >= space->mappings[low].start ? &space->mappings[low] : NULL;
}

static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	const struct mapping *mapping = find_mapping(data, pc);
	uint64_t offset;

	if (!mapping)
		return;
	ret_code->kind = mapping->is_jit ? WALK_CODE_JIT : WALK_CODE_FP;
	if (!mapping->file)
		return;
	offset = pc - mapping->start + mapping->offset;
	for (size_t i = 0; i < mapping->file->n_segments; i++) {
		const struct elf_cfi_segment *segment = &mapping->file->segments[i];

		if (offset < segment->offset ||
		    offset - segment->offset >= segment->end - segment->start)
			continue;
		ret_code->kind = WALK_CODE_TABLE;
		ret_code->table = &mapping->table;
		ret_code->address = offset - segment->offset + segment->start;
	}
}

/* ---- Walks ---- */

struct tally {
	size_t stops[WALK_N_STOPS];
	size_t n, same, jit, differs, shorter, longer;
	uint64_t frames;
};

static struct walk_frame frames[MAX_FRAMES];
static uint64_t peer_pcs[MAX_FRAMES];
static struct walk_cache cache;

static struct walk_job job_of(struct space *space, const struct live_sample *sample,
			      struct walk_frame *room)
{
	return (struct walk_job){
		.walk = {
			.arch = REGS_X86_64,
			.stack = sample->stack,
			.stack_start = sample->registers[7],
			.stack_size = sample->stack_size,
			.resolve = resolve,
			.data = space,
			.cache = &cache,
			.generation = 1,
			.frames = room,
			.n_frames = MAX_FRAMES,
			.n_roots = 128,
		},
		.registers = {
			.pc = sample->registers[16],
			.sp = sample->registers[7],
			.fp = sample->registers[6],
		},
	};
}

static void walk_sample(struct space *space, const struct live_sample *sample, bool cached,
			uint32_t generation, struct walk_result *ret_result)
{
	struct walk_job job = job_of(space, sample, frames);

	job.walk.cache = cached ? &cache : NULL;
	job.walk.generation = generation;
	walk_run(&job.walk, &job.registers, ret_result);
}

/* Compares up to the first frame that is in generated code or was found by a frame pointer, because
 * libdwfl needs CFI. */
static void compare(const struct space *space, const struct walk_result *result, size_t n_peer,
		    struct tally *tally, bool verbose)
{
	size_t i = 0;

	while (i < result->n && i < n_peer && frames[i].pc == peer_pcs[i] &&
	       !(frames[i].flags & (WALK_FRAME_JIT | WALK_FRAME_FP)))
		i++;
	if (i < result->n && (frames[i].flags & (WALK_FRAME_JIT | WALK_FRAME_FP)))
		tally->jit++;
	else if (i == result->n && i == n_peer)
		tally->same++;
	else if (i == result->n && result->stop != WALK_ROOT)
		tally->shorter++;
	else if (i == result->n && n_peer == i + 1)
		tally->same++; /* libdwfl has one frame beyond the root */
	else if (i == n_peer && result->stop == WALK_ROOT)
		tally->longer++; /* bench_differential reports why */
	else
		tally->differs++;
	if (verbose && !(i == result->n && result->stop == WALK_ROOT)) {
		const struct mapping *mapping =
			find_mapping(space, frames[MIN_OF(i, result->n - 1)].pc);

		printf("  at frame %zu of %zu, libdwfl's %zu: 0x%" PRIx64 " %s stop %d\n", i,
		       result->n, n_peer, frames[MIN_OF(i, result->n - 1)].pc,
		       mapping ? mapping->path : "nowhere", result->stop);
	}
}

struct walkers {
	struct space *space;
	struct peer_walk *peer;
};

static size_t walk_cached(const struct walkers *walkers, const struct live_sample *sample)
{
	struct walk_result result;

	walk_sample(walkers->space, sample, true, 1, &result);
	return result.n;
}

static size_t walk_uncached(const struct walkers *walkers, const struct live_sample *sample)
{
	struct walk_result result;

	walk_sample(walkers->space, sample, false, 1, &result);
	return result.n;
}

static size_t walk_peer(const struct walkers *walkers, const struct live_sample *sample)
{
	return peer_walk_run(walkers->peer, sample, peer_pcs, ARRAY_SIZE(peer_pcs));
}

/*
 * Measures a frame's cost if the stack is in the CPU's caches, as it is when the kernel has just
 * written it: walks a few stacks once, then repeatedly. Does not read the clock for each walk,
 * because that takes as long as ten frames.
 */
static double time_near(const struct walkers *walkers, const struct live *live,
			size_t (*walk)(const struct walkers *walkers,
				       const struct live_sample *sample))
{
	uint64_t n_frames = 0;
	double total = 0;

	for (size_t from = 0; from < live->n; from += GROUP) {
		size_t end = MIN_OF(from + GROUP, live->n);
		double start;

		for (size_t i = from; i < end; i++)
			n_frames += walk(walkers, &live->samples[i]);
		start = cpu_ns();
		for (size_t run = 0; run < RUNS; run++)
			for (size_t i = from; i < end; i++)
				walk(walkers, &live->samples[i]);
		total += (cpu_ns() - start) / RUNS;
	}
	return total / (double)n_frames;
}

/* Measures one pass over all stacks, in batches as in the engine. The CPU's caches cannot hold all
 * stacks, so frames also wait for memory. libdwfl's pass reads the same bytes. */
static double time_pass(struct space *space, const struct live *live)
{
	static struct walk_frame rooms[WALK_TOGETHER][MAX_FRAMES];
	struct walk_job jobs[WALK_TOGETHER];
	double start = cpu_ns();
	uint64_t n_frames = 0;

	for (size_t from = 0; from < live->n; from += WALK_TOGETHER) {
		size_t n = MIN_OF(live->n - from, (size_t)WALK_TOGETHER);

		for (size_t i = 0; i < n; i++)
			jobs[i] = job_of(space, &live->samples[from + i], rooms[i]);
		walk_run_together(jobs, n);
		for (size_t i = 0; i < n; i++)
			n_frames += jobs[i].result.n;
	}
	return (cpu_ns() - start) / (double)n_frames;
}

static double time_peer_pass(struct peer_walk *peer, const struct live *live)
{
	double start = cpu_ns();
	uint64_t n_frames = 0;

	for (size_t i = 0; i < live->n; i++)
		n_frames += peer_walk_run(peer, &live->samples[i], peer_pcs, ARRAY_SIZE(peer_pcs));
	return (cpu_ns() - start) / (double)n_frames;
}

/* Returns the time of the slowest first walk of a new process whose files' tables are cached. */
static double time_first(struct space *space, const struct live *live)
{
	struct walk_result result;
	double worst = 0;

	for (size_t i = 0; i < MIN_OF(live->n, (size_t)100); i++) {
		double start = cpu_ns();

		walk_sample(space, &live->samples[i], true, (uint32_t)i + 2, &result);
		worst = MAX_OF(worst, cpu_ns() - start);
	}
	return worst;
}

static int compare_numbers(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *numbers, size_t n)
{
	qsort(numbers, n, sizeof(*numbers), compare_numbers);
	return numbers[n / 2];
}

/*
 * Measures the second of two passes over all stacks, alternating with libdwfl. Each walker has its
 * caches of the files; its first pass reloads what the other walker displaced from the CPU's
 * caches. Reports medians, because other programs run, too.
 */
static void bench_second_pass(const struct walkers *walkers, const struct live *live)
{
	double ours[ROUNDS], theirs[ROUNDS], ratios[ROUNDS], ratio;
	uint64_t bytes = 0;

	for (size_t i = 0; i < live->n; i++)
		bytes += live->samples[i].stack_size;
	for (size_t i = 0; i < ROUNDS; i++) {
		time_peer_pass(walkers->peer, live);
		theirs[i] = time_peer_pass(walkers->peer, live);
		time_pass(walkers->space, live);
		ours[i] = time_pass(walkers->space, live);
		ratios[i] = theirs[i] / ours[i];
	}
	ratio = median(ratios, ROUNDS);
	printf("         second pass over all of them, %.1f MB: %.1f ns/frame  libdwfl's second %.1f  ratio %.1f  %s\n",
	       (double)bytes / 1e6, median(ours, ROUNDS), median(theirs, ROUNDS), ratio,
	       verdict(ratio >= 20));
}

static void bench_walks(const char *name, struct space *space, const struct live *live,
			struct peer_walk *peer)
{
	const struct walkers walkers = { space, peer };
	struct tally tally = { .n = live->n };
	bool verbose = getenv("BENCH_VERBOSE") != NULL;
	double near, miss, peer_near, first, depth;

	for (size_t i = 0; i < live->n; i++) {
		struct walk_result result;
		size_t n_peer = walk_peer(&walkers, &live->samples[i]);

		walk_sample(space, &live->samples[i], true, 1, &result);
		tally.stops[result.stop]++;
		tally.frames += result.n;
		compare(space, &result, n_peer, &tally, verbose);
	}
	depth = (double)tally.frames / (double)live->n;
	first = time_first(space, live);
	near = time_near(&walkers, live, walk_cached);
	miss = time_near(&walkers, live, walk_uncached);
	peer_near = time_near(&walkers, live, walk_peer);
	printf("%-8s %5zu samples %5.1f frames  hot %5.1f ns/frame %5.2f us/sample  each a miss %5.1f  "
	       "libdwfl %6.1f ns/frame  ratio %5.1f  %s\n",
	       name, live->n, depth, near, near * depth / 1e3, miss, peer_near, peer_near / near,
	       verdict(near <= 30 && miss <= 80));
	bench_second_pass(&walkers, live);
	printf("         the slowest of 100 first walks of a new process: %.1f us  %s\n",
	       first / 1e3, verdict(first < 5e6));
	printf("         same %.2f %%  by frame pointers from somewhere %.2f %%  shorter %.2f %%  longer, to the root %.2f %%  different %.2f %%"
	       "   root %zu copy-end %zu no-table %zu no-rule %zu bad-frame %zu depth %zu\n",
	       100.0 * (double)tally.same / (double)tally.n,
	       100.0 * (double)tally.jit / (double)tally.n,
	       100.0 * (double)tally.shorter / (double)tally.n,
	       100.0 * (double)tally.longer / (double)tally.n,
	       100.0 * (double)tally.differs / (double)tally.n, tally.stops[WALK_ROOT],
	       tally.stops[WALK_COPY_END], tally.stops[WALK_NO_TABLE], tally.stops[WALK_NO_RULE],
	       tally.stops[WALK_BAD_FRAME], tally.stops[WALK_DEPTH]);
}

static void bench_program(const struct program *program, char *source)
{
	static struct space space;
	char *command[ARRAY_SIZE(program->command)] = { NULL };
	struct peer_walk peer = { .dwfl = NULL };
	struct live *live;

	for (size_t i = 0; i + 1 < ARRAY_SIZE(command) && program->command[i]; i++)
		command[i] = strcmp(program->command[i], "SOURCE") == 0
				     ? source
				     : (char *)program->command[i];
	live = access(command[0], X_OK) == 0 ? live_record(command, N_SAMPLES, SECONDS) : NULL;
	if (!live) {
		printf("%-8s could not be sampled\n", program->name);
		return;
	}
	memset(&cache, 0, sizeof(cache));
	if (read_space(&space, live->pid) && peer_walk_init(&peer, live->pid))
		bench_walks(program->name, &space, live, &peer);
	peer_walk_done(&peer);
	free_space(&space);
	live_free(live);
}

/* Writes a C file that a compiler needs many seconds for. */
static bool make_source(char *path)
{
	int fd = mkstemps(path, 2);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (!file)
		return false;
	fputs("int printf(const char *, ...);\n", file);
	for (int i = 0; i < 6000; i++)
		fprintf(file,
			"int f%d(int *a, int n) { int s = %d; for (int i = 0; i < n; i++) {"
			" a[i] = a[i] * %d + s; s ^= a[i] >> (%d %% 7);"
			" if (s %% 3 == 0) printf(\"%%d\\n\", s); switch (s & 7) { case 1: s += a[0]; break;"
			" case 2: s *= 3; break; case 5: return s; default: s--; } } return s; }\n",
			i, i, i, i);
	return fclose(file) == 0;
}

int main(void)
{
	char source[] = "/var/tmp/prof-bench-XXXXXX.c";

	for (size_t i = 0; i < ARRAY_SIZE(table_files); i++)
		bench_table(table_files[i]);
	bench_desktop();
	if (!make_source(source))
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		bench_program(&programs[i], source);
	unlink(source);
	return 0;
}
