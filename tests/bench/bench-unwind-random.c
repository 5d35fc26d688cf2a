/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * bench-unwind-random - walks random stacks with tables of real files; prints the longest duration
 *
 *     bench-unwind-random [WALKS] [SEED]      default: a million
 *
 * A stack has 64 KiB of words. A share of them, which differs from stack to stack, are return
 * addresses; in a file, a rule's probability is proportional to the code that it covers. Every 64th
 * stack has only return addresses of frames of 8 bytes, which makes the walk long. Each walk starts
 * with an empty cache. A walk that took longer than LIMIT_NS is repeated before it counts, because
 * the thread or the virtual machine may have been preempted.
 */
#include "arch/walk.h"
#include "tests/oracle/elf-cfi.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define N_WORDS 8192
#define STACK UINT64_C(0x7ffc00000000)
#define IMAGES UINT64_C(0x7f0000000000)
#define IMAGE_SPAN (UINT64_C(1) << 32)
#define JIT UINT64_C(0x30000000)
#define LONG_EVERY 64
#define LIMIT_NS 100000
#define TRIES 5

static const char *const files[] = {
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib64/ld-linux-x86-64.so.2",
	"/usr/bin/python3.11",
	"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
	"/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1",
};

struct image {
	uint64_t low, high; /* bounds of the image's code */
	struct unwind_table table;
	void *bytes;
};

struct totals {
	uint64_t n, n_frames, slowest_ns, slowest_first_ns, most_frames, n_slow, n_missed;
	uint64_t stops[WALK_N_STOPS];
	uint32_t *took_ns;
};

static struct image images[ARRAY_SIZE(files)];
static size_t n_images;
static uint64_t words[N_WORDS];
static struct walk_frame frames[1024];
static struct walk_cache cache;

static uint64_t random_word(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint64_t random_code(uint64_t *state)
{
	uint64_t random = random_word(state);
	size_t i = random % n_images;

	return IMAGES + i * IMAGE_SPAN + images[i].low +
	       (random >> 16) % (images[i].high - images[i].low);
}

/* Returns a return address whose rule always continues the walk, 8 bytes up the stack. */
static uint64_t random_step(uint64_t *state)
{
	for (;;) {
		uint64_t pc = random_code(state);
		const struct image *image = &images[(pc - IMAGES) / IMAGE_SPAN];
		const struct cfi_rule *rule = table_get(&image->table, pc % IMAGE_SPAN);

		if (rule->cfa == CFI_CFA_SP && rule->cfa_offset == 8)
			return pc + 1;
	}
}

/* Returns a stack word: with a probability of n_code / 256, a return address. */
static uint64_t random_value(uint64_t *state, unsigned int n_code)
{
	uint64_t random = random_word(state);

	if ((random & 0xff) < n_code)
		return random_code(state);
	switch (random >> 8 & 7) {
	case 0:
		return random_word(state);
	case 1:
		return JIT + (random >> 16) % 65536;
	case 2:
		return 0;
	default:
		return STACK + ((random >> 16) % sizeof(words) & ~UINT64_C(7));
	}
}

static void resolve(void *data, uint64_t pc, struct walk_code *ret_code)
{
	uint64_t i = (pc - IMAGES) / IMAGE_SPAN, address = pc % IMAGE_SPAN;

	if (pc >= IMAGES && i < n_images && address >= images[i].low && address < images[i].high)
		*ret_code = (struct walk_code){ WALK_CODE_TABLE, &images[i].table, address };
	else if (pc >= JIT && pc < JIT + 65536)
		ret_code->kind = WALK_CODE_JIT;
}

static void open_images(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		CLEANUP_ELF_CFI struct elf_cfi *file = elf_cfi_open(files[i]);
		struct image *image = &images[n_images];
		size_t size;

		if (!file || !elf_cfi_build(file, &image->table, &image->bytes, &size))
			continue;
		image->low = file->low;
		image->high = file->high;
		n_images++;
	}
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t time_walk(const struct walk_registers *registers, struct walk_result *ret_result)
{
	static uint32_t generation;
	const struct walk walk = {
		.arch = REGS_X86_64,
		.stack = (const uint8_t *)words,
		.stack_start = STACK,
		.stack_size = sizeof(words),
		.resolve = resolve,
		.cache = &cache,
		.generation = ++generation,
		.frames = frames,
		.n_frames = ARRAY_SIZE(frames),
		.n_roots = 128,
	};
	uint64_t start = now_ns();

	walk_run(&walk, registers, ret_result);
	return now_ns() - start;
}

static void run(struct totals *totals, uint64_t *random)
{
	unsigned int n_code = random_word(random) % 257;
	struct walk_registers registers = { .pc = random_step(random), .sp = STACK };
	struct walk_result result;
	uint64_t took, first;

	if (totals->n % LONG_EVERY == 0)
		for (size_t i = 0; i < N_WORDS; i++)
			words[i] = random_step(random);
	else
		for (size_t i = 0; i < N_WORDS; i++)
			words[i] = random_value(random, n_code);
	registers.fp = random_value(random, n_code);
	first = took = time_walk(&registers, &result);
	for (size_t i = 0; i < TRIES && took >= LIMIT_NS; i++) {
		uint64_t again = time_walk(&registers, &result);

		took = MIN_OF(took, again);
	}
	totals->took_ns[totals->n++] = (uint32_t)MIN_OF(first, (uint64_t)UINT32_MAX);
	totals->n_frames += result.n + result.n_cut;
	totals->most_frames = MAX_OF(totals->most_frames, result.n + result.n_cut);
	totals->slowest_first_ns = MAX_OF(totals->slowest_first_ns, first);
	totals->slowest_ns = MAX_OF(totals->slowest_ns, took);
	totals->n_slow += first >= LIMIT_NS;
	totals->n_missed += took >= LIMIT_NS;
	totals->stops[result.stop]++;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void print(const struct totals *totals)
{
	qsort(totals->took_ns, totals->n, sizeof(*totals->took_ns), compare);
	printf("%" PRIu64 " random stacks over %zu tables: %.1f frames, at most %" PRIu64
	       "; median %u ns, 99.9 %% under %u ns, longest %.1f us (at first %.1f)\n",
	       totals->n, n_images, (double)totals->n_frames / (double)totals->n,
	       totals->most_frames, totals->took_ns[totals->n / 2],
	       totals->took_ns[totals->n - 1 - totals->n / 1000], (double)totals->slowest_ns / 1e3,
	       (double)totals->slowest_first_ns / 1e3);
	printf("%" PRIu64 " took 100 us or longer at first, %" PRIu64 " of them always  %s\n",
	       totals->n_slow, totals->n_missed, totals->n_missed == 0 ? "met" : "MISSED");
	printf("root %" PRIu64 " copy-end %" PRIu64 " no-table %" PRIu64 " no-rule %" PRIu64
	       " bad-frame %" PRIu64 " depth %" PRIu64 "\n",
	       totals->stops[WALK_ROOT], totals->stops[WALK_COPY_END], totals->stops[WALK_NO_TABLE],
	       totals->stops[WALK_NO_RULE], totals->stops[WALK_BAD_FRAME],
	       totals->stops[WALK_DEPTH]);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
	uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : 0x1234567;
	struct totals totals = { .took_ns = calloc(n + 1, sizeof(uint32_t)) };

	open_images();
	if (n == 0 || random == 0 || n_images == 0 || !totals.took_ns)
		return 1;
	while (totals.n < n)
		run(&totals, &random);
	print(&totals);
	free(totals.took_ns);
	for (size_t i = 0; i < n_images; i++)
		free(images[i].bytes);
	return totals.n_missed == 0 ? 0 : 1;
}
