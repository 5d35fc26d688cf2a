/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of unwind-file.c, unwind-tables.c, unwind.c and sample-queue.c in daemon/engine: with this
 * program's own file, mappings and stack, and with invalid files.
 */
#include "config.h"
#include "daemon/engine/unwind/sample-queue.h"
#include "daemon/engine/unwind/unwind-file.h"
#include "tests/unit/elf-builder.h"
#include "tests/unit/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <ucontext.h>
#include <zlib.h>
#include <zstd.h>

#define MANY (UINT64_C(64) << 20)

/* ---- Files ---- */

static int open_self(void)
{
	return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
}

static void test_file(void)
{
	struct unwind_source source = { .fd = open_self() };
	struct unwind_file *file;
	uint64_t address, last = 0;
	int error = 0;

	file = unwind_file_new(&source, MANY, &error);
	REQUIRE(file);
	CHECK(file->table.n_rows > 100);
	CHECK(file->n_segments >= 1);
	CHECK(unwind_file_address(file, file->segments[0].offset, &address));
	CHECK(address == file->segments[0].address);
	last = file->segments[0].offset + file->segments[0].size;
	CHECK(!unwind_file_address(file, last, &address));
	CHECK(!unwind_file_address(file, UINT64_MAX, &address));
	unwind_file_free(file);
	close(source.fd);
}

/* Without section headers, a file gives the same table as with them. */
static void test_stripped(void)
{
	static uint8_t bytes[64 << 20];
	int fd = open_self(), error = 0;
	ssize_t n = read(fd, bytes, sizeof(bytes));
	const struct unwind_source source = { .fd = -1, .bytes = bytes, .size = n };
	struct unwind_file *whole, *stripped;
	Elf64_Ehdr *header = (void *)bytes;

	close(fd);
	REQUIRE(n > 0 && n < (ssize_t)sizeof(bytes));
	whole = unwind_file_new(&source, MANY, &error);
	header->e_shoff = header->e_shnum = header->e_shstrndx = 0;
	stripped = unwind_file_new(&source, MANY, &error);
	REQUIRE(whole && stripped);
	CHECK_INT(stripped->table.n_rows, whole->table.n_rows);
	unwind_file_free(whole);
	unwind_file_free(stripped);
}

static int error_of(const uint8_t *bytes, size_t size, uint64_t max_bytes)
{
	const struct unwind_source source = { .fd = -1, .bytes = bytes, .size = size };
	int error = 0;
	struct unwind_file *file = unwind_file_new(&source, max_bytes, &error);

	unwind_file_free(file);
	return file ? 0 : error;
}

/* Files are cut anywhere, have a wrong byte, or false sizes. The result is an error or a table,
 * never a crash. */
static void test_bad_files(void)
{
	const struct build_fde fdes[] = { { 0x401000, 0x100 }, { 0x401100, 0x80 } };
	const struct build build = { .fdes = fdes, .n_fdes = 2 };
	static uint8_t bytes[BUILD_FILE_BYTES];
	int fd = build_elf(&build);
	Elf64_Ehdr *header = (void *)bytes;
	size_t i;

	REQUIRE(pread(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
	close(fd);
	CHECK_INT(error_of(bytes, sizeof(bytes), MANY), 0);
	CHECK_INT(error_of(bytes, 0, MANY), ENOEXEC);
	for (i = 1; i < sizeof(Elf64_Ehdr) + 5 * sizeof(Elf64_Phdr); i++)
		CHECK_INT(error_of(bytes, i, MANY), ENOEXEC);
	for (i = sizeof(Elf64_Ehdr); i < sizeof(bytes); i += 64)
		error_of(bytes, i, MANY);
	for (i = 0; i < 0x500; i++) {
		bytes[i] ^= 0xff;
		error_of(bytes, sizeof(bytes), MANY);
		bytes[i] ^= 0xff;
	}
	CHECK_INT(error_of(bytes, sizeof(bytes), 32), E2BIG);
	header->e_machine = EM_S390;
	CHECK_INT(error_of(bytes, sizeof(bytes), MANY), ENOEXEC);
	header->e_machine = EM_X86_64;
	header->e_ident[EI_CLASS] = ELFCLASS32;
	CHECK_INT(error_of(bytes, sizeof(bytes), MANY), ENOEXEC);
}

/* A section in a small file claims 2^40 bytes. Within the limit for memory, the loader reads only
 * what the file has; beyond the limit, it rejects the file. */
static void test_lying_section(void)
{
	const struct build_fde fdes[] = { { 0x401000, 0x100 } };
	const struct build build = { .fdes = fdes, .n_fdes = 1 };
	static uint8_t bytes[BUILD_FILE_BYTES];
	int fd = build_elf(&build);
	Elf64_Shdr *sections = (void *)(bytes + BUILD_SECTIONS_OFFSET);

	REQUIRE(pread(fd, bytes, sizeof(bytes), 0) == sizeof(bytes));
	close(fd);
	sections[3].sh_size = UINT64_C(1) << 40;
	CHECK_INT(error_of(bytes, sizeof(bytes), UINT64_C(1) << 50), 0); /* uses .eh_frame_hdr */
	sections[3].sh_offset = UINT64_MAX - 8;
	CHECK_INT(error_of(bytes, sizeof(bytes), MANY), E2BIG);
}

enum packing { PLAIN, ZLIB, ZSTD, GNU, N_PACKINGS };

struct frames {
	enum packing packing;
	uint64_t size;    /* size that the header claims; 0: the correct one */
	size_t n_zeros;   /* zeros after the records */
	size_t cut_bytes; /* bytes removed from the end of the stream */
};

/* .debug_frame: a CIE, and an FDE for 0x401000 to 0x401100. CFA = sp + 8; the return address is
 * below the CFA. */
static const uint8_t records[] = {
	20,   0,    0,    0, 0xff, 0xff, 0xff, 0xff, 4,  0, 8, 0, 1, 0x78, 16, 0x0c,
	7,    8,    0x90, 1, 0,    0,    0,    0,    20, 0, 0, 0, 0, 0,    0,  0,
	0x00, 0x10, 0x40, 0, 0,    0,    0,    0,    0,  1, 0, 0, 0, 0,    0,  0,
};

/* Compresses a section. Adds the header of ELF, or the older header of GNU tools. */
static size_t pack(const struct frames *frames, const uint8_t *plain, size_t plain_bytes,
		   uint8_t *ret_packed, size_t room)
{
	uint64_t claimed = frames->size ? frames->size : plain_bytes;
	const Elf64_Chdr header = {
		.ch_type = frames->packing == ZSTD ? 2 : ELFCOMPRESS_ZLIB,
		.ch_size = claimed,
	};
	const uint64_t big_endian = htobe64(claimed);
	size_t at = frames->packing == GNU ? 12 : sizeof(header);
	uLongf n = room - at;

	if (frames->packing == GNU) {
		memcpy(ret_packed, "ZLIB", 4);
		memcpy(ret_packed + 4, &big_endian, 8);
	} else {
		memcpy(ret_packed, &header, sizeof(header));
	}
	if (frames->packing == ZSTD)
		n = ZSTD_compress(ret_packed + at, n, plain, plain_bytes, 3);
	else if (compress(ret_packed + at, &n, plain, plain_bytes) != Z_OK)
		abort();
	return at + n - frames->cut_bytes;
}

/* Returns the table of a file whose only CFI is a .debug_frame; NULL and an error if it has
 * none. */
static struct unwind_file *load_debug_frame(const struct frames *frames, uint64_t max_bytes,
					    int *ret_error)
{
	const struct build build = { .no_table = true };
	const char *name = frames->packing == GNU ? ".zdebug_frame" : ".debug_frame";
	size_t plain_bytes = sizeof(records) + frames->n_zeros, n;
	g_autofree uint8_t *plain = g_malloc0(plain_bytes);
	static uint8_t bytes[BUILD_FILE_BYTES];
	const struct unwind_source source = { .fd = -1, .bytes = bytes, .size = sizeof(bytes) };
	Elf64_Shdr *section = (Elf64_Shdr *)(void *)(bytes + BUILD_SECTIONS_OFFSET) + 3;
	int fd = build_elf(&build);

	if (pread(fd, bytes, sizeof(bytes), 0) != sizeof(bytes))
		abort();
	close(fd);
	memcpy(plain, records, sizeof(records));
	if (frames->packing == PLAIN)
		memcpy(bytes + BUILD_FRAME_OFFSET, plain, n = plain_bytes);
	else
		n = pack(frames, plain, plain_bytes, bytes + BUILD_FRAME_OFFSET, 0x1000);
	memcpy(bytes + BUILD_NAMES_OFFSET + 0x200, name, strlen(name) + 1);
	section->sh_name = 0x200;
	section->sh_flags = frames->packing == ZLIB || frames->packing == ZSTD ? SHF_COMPRESSED : 0;
	section->sh_addr = 0;
	section->sh_offset = BUILD_FRAME_OFFSET;
	section->sh_size = n;
	return unwind_file_new(&source, max_bytes, ret_error);
}

static void test_packed(void)
{
	enum packing packing;

	for (packing = PLAIN; packing < N_PACKINGS; packing++) {
		const struct frames frames = { .packing = packing };
		const struct cfi_rule *rule;
		struct unwind_file *file;
		int error = 0;

		file = load_debug_frame(&frames, MANY, &error);
		CHECK_INT(error, 0);
		REQUIRE(file);
		rule = table_get(&file->table, 0x401080);
		CHECK_INT(rule->cfa, CFI_CFA_SP);
		CHECK_INT(rule->cfa_offset, 8);
		CHECK_INT(rule->ra_offset, -8);
		CHECK_INT(table_get(&file->table, 0x401100)->cfa, CFI_CFA_NONE);
		unwind_file_free(file);
	}
}

/* If sizes are impossible, or streams are too long or too short, there is no table. */
static void test_lying_packed(void)
{
	const uint64_t huge = UINT64_C(16) << 30;
	const struct {
		struct frames frames;
		uint64_t max_bytes;
		int error;
	} lies[] = {
		{ { .packing = ZLIB, .size = huge }, UINT64_MAX, ENODATA },
		{ { .packing = GNU, .size = huge }, UINT64_MAX, ENODATA },
		{ { .packing = GNU, .size = UINT64_MAX }, UINT64_MAX, ENODATA },
		{ { .packing = ZSTD, .size = huge }, MANY, E2BIG },
		{ { .packing = ZSTD, .size = UINT64_MAX }, MANY, E2BIG },
		{ { .packing = ZLIB, .n_zeros = 1 << 20 }, 1 << 20, E2BIG },
		{ { .packing = ZSTD, .n_zeros = 1 << 20 }, 1 << 20, E2BIG },
		{ { .packing = ZLIB, .n_zeros = 1 << 20 }, MANY, 0 },
		{ { .packing = ZSTD, .n_zeros = 1 << 20 }, MANY, 0 },
		{ { .packing = ZLIB, .size = 4096 }, MANY, ENODATA },
		{ { .packing = ZSTD, .size = 4096 }, MANY, ENODATA },
		{ { .packing = ZLIB, .size = 16 }, MANY, ENODATA },
		{ { .packing = ZSTD, .size = 16 }, MANY, ENODATA },
		{ { .packing = ZLIB, .cut_bytes = 8 }, MANY, ENODATA },
		{ { .packing = GNU, .cut_bytes = 8 }, MANY, ENODATA },
		{ { .packing = ZSTD, .cut_bytes = 8 }, MANY, ENODATA },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(lies); i++) {
		int error = 0;
		struct unwind_file *file =
			load_debug_frame(&lies[i].frames, lies[i].max_bytes, &error);

		if (!CHECK_INT(error, lies[i].error))
			printf("# lie %zu\n", i);
		CHECK(!file == !!lies[i].error);
		unwind_file_free(file);
	}
}

/* ---- Tables ---- */

static void wait_for(struct unwind_tables *tables)
{
	while (unwind_tables_waiting(tables) > 0) {
		unwind_tables_receive(tables);
		g_usleep(1000);
	}
}

static struct image *named_image(struct images *images, const char *path, uint64_t inode)
{
	const struct image_key key = { .path = path, .path_bytes = strlen(path), .inode = inode };

	return images_of_mapping(images, &key);
}

static void test_shared(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	struct image *first, *second, *other, *late;
	struct images images;

	REQUIRE(tables);
	images_init(&images);
	first = named_image(&images, "/bin/a", 1);
	second = named_image(&images, "/bin/same", 1);
	other = named_image(&images, "/bin/other", 2);
	late = named_image(&images, "/bin/late", 1);
	unwind_tables_add(tables, first, open_self());
	unwind_tables_add(tables, second, open_self());
	unwind_tables_add(tables, other, open("/dev/null", O_RDONLY | O_CLOEXEC));
	CHECK_INT(unwind_tables_waiting(tables), 2);
	CHECK_INT(second->unwind_state, IMAGE_UNWIND_WAITING);
	wait_for(tables);
	CHECK_INT(first->unwind_state, IMAGE_UNWIND_READY);
	CHECK(first->unwind && first->unwind == second->unwind);
	CHECK_INT(other->unwind_state, IMAGE_UNWIND_NONE);
	unwind_tables_add(tables, late, open_self());
	CHECK(late->unwind == first->unwind);
	unwind_tables_free(tables);
	images_done(&images);
}

/* A file is a different one if any part of its identity differs. */
static void test_identity(void)
{
	const struct message_image one = { .dev = 1,
					   .inode = 2,
					   .size = 3,
					   .ctime_ns = 4,
					   .build_id = { 5 },
					   .build_id_size = 20 };
	struct message_image files[] = { one, one, one, one, one, one, one };
	struct image *images_of[ARRAY_SIZE(files)];
	struct unwind_tables *tables = unwind_tables_new(NULL);
	struct images images;
	char name[32];
	size_t i, j;

	REQUIRE(tables);
	images_init(&images);
	files[1].dev++;
	files[2].inode++;
	files[3].size++;
	files[4].ctime_ns++;
	files[5].build_id[19]++;
	files[6].build_id_size = 0;
	for (i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(name, sizeof(name), "/bin/%zu", i);
		images_of[i] = named_image(&images, name, i);
		image_opened(images_of[i], &files[i]);
		unwind_tables_add(tables, images_of[i], open_self());
	}
	wait_for(tables);
	for (i = 0; i < ARRAY_SIZE(files); i++)
		for (j = 0; j < i; j++)
			CHECK(images_of[i]->unwind && images_of[i]->unwind != images_of[j]->unwind);
	unwind_tables_free(tables);
	images_done(&images);
}

/* The worker is stopped while it has work, which includes invalid files. */
static void test_bad(void)
{
	struct unwind_tables *tables = unwind_tables_new(NULL);
	struct images images;
	char name[32];
	int i;

	REQUIRE(tables);
	images_init(&images);
	for (i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "/bin/%d", i);
		unwind_tables_add(tables, named_image(&images, name, 100 + i),
				  i % 2 ? open("/", O_RDONLY | O_CLOEXEC) : open_self());
	}
	unwind_tables_free(tables);
	images_done(&images);
}

static int count_open(int max)
{
	int n = 0;

	for (int fd = 0; fd < max; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* A process that maps many files does not use up the descriptors. */
static void test_many_open(void)
{
	enum { MAX_OPEN = 1024, N = MAX_OPEN + 50, MAX_FDS = 2 * N };
	const struct build_fde fdes[] = { { 0x401000, 0x100 } };
	const struct build build = { .fdes = fdes, .n_fdes = 1 };
	struct rlimit limit;
	struct unwind_tables *tables;
	struct images images;
	int fd, before, n_ready = 0;
	char name[32];

	REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = MAX_OF(limit.rlim_cur, (rlim_t)MAX_FDS);
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		SKIP("needs more descriptors than the hard limit allows");
	tables = unwind_tables_new(NULL);
	REQUIRE(tables);
	images_init(&images);
	fd = build_elf(&build);
	before = count_open(MAX_FDS);
	for (uint64_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "/bin/%" PRIu64, i);
		unwind_tables_add(tables, named_image(&images, name, i + 1), dup(fd));
	}
	wait_for(tables);
	for (uint64_t i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "/bin/%" PRIu64, i);
		n_ready += named_image(&images, name, i + 1)->unwind_state == IMAGE_UNWIND_READY;
	}
	CHECK_INT(n_ready, N);
	CHECK_INT(count_open(MAX_FDS) - before, MAX_OPEN);
	unwind_tables_free(tables);
	CHECK_INT(count_open(MAX_FDS), before - 1); /* the tables' event is closed, too */
	close(fd);
	images_done(&images);
}

/* ---- Walks of this program's stack ---- */

struct self {
	struct parts parts;
	struct unwind_tables *tables;
	struct unwind *unwind;
	struct maps *maps;
	unsigned int wanted; /* number of requests */
	int32_t pid;
};

static void want(struct image *image, const struct mapping *mapping, int32_t pid, void *data)
{
	((struct self *)data)->wanted++;
	image->requested = true;
	image->requested_pid = pid;
}

static void read_maps(struct self *self)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512], path[256], permissions[8];
	struct mapping mapping;

	while (file && fgets(line, sizeof(line), file)) {
		path[0] = 0;
		mapping = (struct mapping){ 0 };
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %255s",
			   &mapping.start, &mapping.end, permissions, &mapping.file_offset,
			   path) < 4 ||
		    permissions[2] != 'x')
			continue;
		mapping.image = named_image(&self->parts.images, path, mapping.start);
		maps_insert(&self->maps, &mapping);
	}
	if (file)
		fclose(file);
}

/* Builds the tables of all mapped files. */
static void make_tables(struct self *self)
{
	uint32_t i;

	for (i = 0; i < self->maps->n; i++) {
		struct image *image = self->maps->mappings[i].image;

		if (image && image->kind == PROF_IMAGE_FILE &&
		    image->unwind_state == IMAGE_UNWIND_UNREQUESTED)
			unwind_tables_add(self->tables, image,
					  open(image->path, O_RDONLY | O_CLOEXEC));
	}
	wait_for(self->tables);
}

static bool self_init(struct self *self)
{
	memset(self, 0, sizeof(*self));
	parts_init(&self->parts);
	self->tables = unwind_tables_new(NULL);
	if (!self->tables)
		return false;
	self->unwind = g_new(struct unwind, 1);
	unwind_init(self->unwind, self->tables);
	self->unwind->request_image = want;
	self->pid = 1;
	self->unwind->data = self;
	self->maps = maps_new();
	read_maps(self);
	return true;
}

static void self_done(struct self *self)
{
	maps_unref(self->maps);
	unwind_done(self->unwind);
	g_free(self->unwind);
	unwind_tables_free(self->tables);
	parts_finish(&self->parts);
	parts_done(&self->parts);
}

#if defined(__x86_64__) && !defined(__clang__)
#define KEEPS_FP optimize("no-omit-frame-pointer"),
#define KEEPS_FP_ALWAYS true
#else /* whether frame pointers are kept depends on the options of the build */
#define KEEPS_FP
#define KEEPS_FP_ALWAYS false
#endif

struct snapshot_of_self {
	struct walk_registers registers;
	uint8_t *stack;
	size_t bytes;
	bool only_pc_sp, in_kernel;
};

static uintptr_t stack_top(void)
{
	pthread_attr_t attributes;
	void *base;
	size_t size;

	if (pthread_getattr_np(pthread_self(), &attributes) != 0)
		abort();
	pthread_attr_getstack(&attributes, &base, &size);
	pthread_attr_destroy(&attributes);
	return (uintptr_t)base + size;
}

/* Keeps a frame pointer if that can be requested, for test_from_sp. Not instrumented by
 * AddressSanitizer, which does not allow reading stacks. */
__attribute__((KEEPS_FP noinline, no_sanitize("address"))) static void take_snapshot(
	struct snapshot_of_self *ret_snapshot)
{
	uintptr_t top = stack_top();
	ucontext_t context;
	size_t i;

	if (getcontext(&context) != 0)
		abort();
#if defined(__x86_64__)
	ret_snapshot->registers = (struct walk_registers){
		.pc = context.uc_mcontext.gregs[REG_RIP],
		.sp = context.uc_mcontext.gregs[REG_RSP],
		.fp = context.uc_mcontext.gregs[REG_RBP],
	};
#elif defined(__aarch64__)
	ret_snapshot->registers = (struct walk_registers){
		.pc = context.uc_mcontext.pc,
		.sp = context.uc_mcontext.sp,
		.fp = context.uc_mcontext.regs[29],
		.lr = context.uc_mcontext.regs[30],
	};
#endif
	ret_snapshot->bytes = (top - ret_snapshot->registers.sp) & ~(size_t)7;
	ret_snapshot->stack = malloc(ret_snapshot->bytes);
	for (i = 0; i < ret_snapshot->bytes; i += 8)
		*(uint64_t *)(void *)(ret_snapshot->stack + i) =
			*(volatile uint64_t *)(ret_snapshot->registers.sp + i);
}

/* Recurses `depth` levels, with frames of about 256 bytes. */
__attribute__((noinline)) static unsigned int dive(unsigned int depth,
						   struct snapshot_of_self *ret_snapshot)
{
	volatile char room[200];

	room[depth % sizeof(room)] = 1;
	if (depth == 0)
		take_snapshot(ret_snapshot);
	else
		dive(depth - 1, ret_snapshot);
	return room[depth % sizeof(room)];
}

static bool run(struct self *self, const struct snapshot_of_self *snapshot, size_t bytes,
		uint32_t thread, bool last_chance, struct unwind_stack *stack,
		struct image **missing)
{
	const struct unwind_input input = {
		.registers = snapshot->registers,
		.stack = snapshot->stack,
		.stack_bytes = bytes,
		.full_bytes = 4096,
		.thread = thread,
		.pid = self->pid,
		.only_pc_sp = snapshot->only_pc_sp,
		.in_kernel = snapshot->in_kernel,
	};

	return unwind_run(self->unwind, &input, self->maps, true, last_chance, stack, missing);
}

/* Repeats a walk until the code that it needs has been read. */
static bool run_when_read(struct self *self, const struct snapshot_of_self *snapshot,
			  struct unwind_stack *stack)
{
	struct image *missing = NULL;

	for (unsigned int i = 0; i < 5000; i++) {
		if (run(self, snapshot, snapshot->bytes, 1, false, stack, &missing))
			return true;
		g_usleep(1000);
		unwind_tables_receive(self->tables);
	}
	return false;
}

/* If only pc and sp are known, the stack is the same as with all registers, or incomplete. */
static void test_from_sp(void)
{
	const uint64_t words[][2] = { { 0, 0 }, { 0, (uintptr_t)stack_top } };
	struct snapshot_of_self snapshot = { 0 };
	struct unwind_stack stack;
	g_autofree uint64_t *whole = NULL;
	struct image *missing = NULL;
	struct self self;
	size_t n, fp_at;
	bool is_repaired;

	REQUIRE(self_init(&self));
	make_tables(&self);
	dive(20, &snapshot);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
	CHECK_INT(stack.stop, PROF_STOP_ROOT);
	n = stack.n;
	whole = g_memdup2(stack.ips, n * sizeof(*whole));
	fp_at = snapshot.registers.fp - snapshot.registers.sp;
	snapshot.registers.fp = 0;
	snapshot.only_pc_sp = true;
	/* The innermost frame's size is read only when a walk needs it, so the first walk fails
	 * (if frame pointers are kept). */
	CHECK(!KEEPS_FP_ALWAYS ||
	      !run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
	REQUIRE(run_when_read(&self, &snapshot, &stack));
	CHECK_INT(stack.stop, PROF_STOP_ROOT);
	is_repaired = stack.method == PROF_METHOD_FP_REPAIRED;
	CHECK(is_repaired || (!KEEPS_FP_ALWAYS && stack.method == PROF_METHOD_CFI));
	REQUIRE(stack.n == n && memcmp(stack.ips, whole, n * sizeof(*whole)) == 0);
	/* The words at fp are no frame, but perhaps a pointer to a function. */
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		memcpy(snapshot.stack + MIN_OF(fp_at, snapshot.bytes - 16), words[i], 16);
		REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
		CHECK(stack.method == PROF_METHOD_CFI);
		CHECK(!is_repaired || (stack.stop == PROF_STOP_NO_RULE && stack.n == 1));
	}
	self_done(&self);
	/* A session that reads no stacks of sleeping threads requests no sizes of frames. */
	REQUIRE(self_init(&self));
	unwind_tables_limit(self.tables, UNWIND_TABLES_TABLE);
	make_tables(&self);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
	CHECK(!is_repaired || (stack.stop == PROF_STOP_NO_RULE && stack.n == 1));
	free(snapshot.stack);
	self_done(&self);
}

static void test_waits(void)
{
	struct snapshot_of_self snapshot = { 0 }, other;
	struct image *missing = NULL;
	struct unwind_stack stack;
	struct self self;

	REQUIRE(self_init(&self));
	dive(20, &snapshot);
	CHECK(!run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
	REQUIRE(missing && missing->requested);
	CHECK_INT(self.wanted, 1);
	/* a walk that may not wait returns the frames so far and the reason no-table */
	CHECK(run(&self, &snapshot, snapshot.bytes, 1, true, &stack, &missing));
	CHECK_INT(stack.stop, PROF_STOP_NO_TABLE);
	CHECK(stack.n >= 1 && stack.ips[0] == (snapshot.registers.pc | UNWIND_EXACT));
	/* the same in a system call, with a frame pointer that points to words that are no frame */
	other = snapshot;
	other.stack = g_memdup2(snapshot.stack, snapshot.bytes);
	other.in_kernel = true;
	other.registers.fp = snapshot.registers.sp + 16;
	memcpy(other.stack + 16, (const uint64_t[]){ snapshot.registers.sp + 64, 1 }, 16);
	CHECK(run(&self, &other, other.bytes, 1, true, &stack, &missing));
	CHECK_INT(stack.stop, PROF_STOP_NO_TABLE);
	g_free(other.stack);
	make_tables(&self);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
	CHECK_INT(stack.stop, PROF_STOP_ROOT);
	CHECK_INT(stack.method, PROF_METHOD_CFI);
	CHECK(stack.n > 21);
	CHECK(!(stack.ips[1] & UNWIND_EXACT));
	free(snapshot.stack);
	self_done(&self);
}

/* Walks as process `pid`. If the walk requests a file, the request fails. Returns whether the walk
 * waits for the file. */
static bool request_fails(struct self *self, const struct snapshot_of_self *snapshot, int32_t pid,
			  enum image_failure failure, struct image **ret_file)
{
	struct unwind_stack stack;
	bool is_done;

	self->pid = pid;
	is_done = run(self, snapshot, snapshot->bytes, 1, false, &stack, ret_file);
	if (*ret_file && (*ret_file)->requested && (*ret_file)->requested_pid == pid)
		image_request_failed(*ret_file, failure);
	return !is_done;
}

/* If a process ends before a file can be opened for it, its stacks wait, because the file may be
 * requested for another process. A file is requested at most once for each process. The stacks of a
 * refused process do not wait. */
static void test_failed_requests(void)
{
	struct snapshot_of_self snapshot = { 0 }, other;
	struct image *file = NULL, *missing = NULL;
	struct unwind_stack stack;
	struct self self;
	bool is_done;

	REQUIRE(self_init(&self));
	dive(20, &snapshot);
	for (int i = 0; i < 1000; i++)
		CHECK(request_fails(&self, &snapshot, 1 + i % 2, IMAGE_ENDED, &file));
	CHECK_INT(self.wanted, 2);
	CHECK(file && !file->requested && file->unwind_state == IMAGE_UNWIND_UNREQUESTED);
	CHECK(request_fails(&self, &snapshot, 3, IMAGE_REFUSED, &file));
	CHECK_INT(self.wanted, 3);
	/* A first frame that is found without a table is no evidence that the memory belongs to
	 * another program. */
	other = snapshot;
	other.stack = g_memdup2(snapshot.stack, snapshot.bytes);
	other.in_kernel = true;
	other.registers.fp = snapshot.registers.sp + 16;
	memcpy(other.stack + 16, (const uint64_t[]){ snapshot.registers.sp + 64, 1 }, 16);
	REQUIRE(run(&self, &other, other.bytes, 1, false, &stack, &missing));
	CHECK(stack.n == 1 && stack.stop != PROF_STOP_NO_MEMORY);
	g_free(other.stack);
	/* A walk by frame pointers may reach another file. */
	is_done = run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing);
	CHECK(is_done ? stack.method != PROF_METHOD_CFI : missing != file);
	CHECK_INT(self.wanted, is_done ? 3 : 4);
	/* With the table, the refused process has complete stacks, although the cache has a walk
	 * that was made without the table. */
	make_tables(&self);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
	CHECK_INT(stack.stop, PROF_STOP_ROOT);
	CHECK_INT(stack.method, PROF_METHOD_CFI);
	self_done(&self);
	/* After the request was refused for several processes, the file is not requested again. */
	REQUIRE(self_init(&self));
	request_fails(&self, &snapshot, 1, IMAGE_REFUSED, &file);
	for (int i = 0; i < 1000; i++)
		request_fails(&self, &snapshot, 2 + i, IMAGE_REFUSED, &missing);
	CHECK_INT(file->unwind_state, IMAGE_UNWIND_NONE);
	CHECK_INT(file->n_refused, 4);
	self_done(&self);
	/* After many processes ended before the file could be opened for them, the file is still
	 * requested for another process, but the stacks of that process do not wait. */
	REQUIRE(self_init(&self));
	for (int i = 0; i < 100; i++)
		CHECK(request_fails(&self, &snapshot, 1 + i, IMAGE_ENDED, &file));
	for (int i = 0; i < 2; i++) {
		missing = NULL;
		CHECK(!request_fails(&self, &snapshot, 101, IMAGE_ENDED, &missing) ||
		      missing != file);
		CHECK_INT(file->n_ended, 100);
		CHECK(file->requested && file->requested_pid == 101);
	}
	free(snapshot.stack);
	self_done(&self);
}

/* Two callers, at the same stack depth, whose callees have the same frames. The asm prevents
 * merging and tail calls. */
#define CALLER(NAME)                                                                      \
	__attribute__((noinline)) static void NAME(struct snapshot_of_self *ret_snapshot) \
	{                                                                                 \
		dive(50, ret_snapshot);                                                   \
		__asm__ volatile("# " #NAME ::: "memory");                                \
	}
CALLER(dive_here)
CALLER(dive_there)

static void test_stitch(void)
{
	struct snapshot_of_self snapshot = { 0 }, other = { 0 };
	struct image *missing = NULL;
	struct unwind_stack whole, cut;
	struct self self;
	uint64_t ips[UNWIND_MAX_FRAMES];
	size_t n, i;

	REQUIRE(self_init(&self));
	make_tables(&self);
	dive_here(&snapshot);
	dive_there(&other);
	CHECK_INT(other.registers.sp, snapshot.registers.sp);
	for (i = 0; i < 7; i++)
		REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &whole, &missing));
	/* not seen often enough yet */
	REQUIRE(run(&self, &snapshot, 2000, 1, false, &cut, &missing));
	CHECK_INT(cut.stop, PROF_STOP_COPY_END);
	CHECK_INT(cut.method, PROF_METHOD_CFI);
	CHECK(cut.deeper);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &whole, &missing));
	CHECK_INT(whole.stop, PROF_STOP_ROOT);
	CHECK_INT(whole.method, PROF_METHOD_CFI);
	CHECK(!whole.deeper);
	n = whole.n;
	memcpy(ips, whole.ips, n * sizeof(*ips));
	REQUIRE(run(&self, &snapshot, 2000, 1, false, &cut, &missing));
	CHECK_INT(cut.stop, PROF_STOP_ROOT);
	CHECK_INT(cut.method, PROF_METHOD_STITCHED);
	CHECK(!cut.deeper);
	CHECK_INT(cut.n, n);
	CHECK(memcmp(cut.ips, ips, n * sizeof(*ips)) == 0);
	/* another thread in the same slot is not affected */
	REQUIRE(run(&self, &snapshot, 2000, 1 + 64, false, &cut, &missing));
	CHECK_INT(cut.stop, PROF_STOP_COPY_END);
	/* once another caller was seen, the frames are ambiguous */
	REQUIRE(run(&self, &other, other.bytes, 1, false, &whole, &missing));
	CHECK(memcmp(whole.ips, ips, n * sizeof(*ips)) != 0);
	for (i = 0; i < 20; i++)
		REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &whole, &missing));
	REQUIRE(run(&self, &snapshot, 2000, 1, false, &cut, &missing));
	CHECK_INT(cut.stop, PROF_STOP_COPY_END);
	CHECK(cut.deeper);
	free(snapshot.stack);
	free(other.stack);
	self_done(&self);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* For another process with the same files, reading the mappings and walking the first stack take
 * little time. */
static void test_first_sample(void)
{
	struct snapshot_of_self snapshot = { 0 };
	struct image *missing = NULL;
	struct unwind_stack stack;
	struct self self;
	uint64_t start, took;

	REQUIRE(self_init(&self));
	make_tables(&self);
	dive(20, &snapshot);
	maps_unref(self.maps);
	start = cpu_ns();
	self.maps = maps_new();
	read_maps(&self);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &stack, &missing));
	took = cpu_ns() - start;
	CHECK_INT(stack.stop, PROF_STOP_ROOT);
	CHECK_INT(stack.method, PROF_METHOD_CFI);
	CHECK_INT(self.wanted, 0);
	printf("# the first sample of a new process: %" PRIu64 " us\n", took / 1000);
	CHECK(PROF_SANITIZED || took < 50000000);
	free(snapshot.stack);
	self_done(&self);
}

/* A stack deeper than the limit keeps leaf and root. The gap is counted. */
static void test_cut(void)
{
	struct snapshot_of_self snapshot = { 0 };
	struct image *missing = NULL;
	struct unwind_stack stack, shallow;
	struct self self;
	uint64_t root;

	REQUIRE(self_init(&self));
	make_tables(&self);
	dive(3, &snapshot);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 1, false, &shallow, &missing));
	root = shallow.ips[shallow.n - 1];
	free(snapshot.stack);
	dive(3000, &snapshot);
	REQUIRE(run(&self, &snapshot, snapshot.bytes, 2, false, &stack, &missing));
	CHECK_INT(stack.n, UNWIND_MAX_FRAMES);
	CHECK_INT(stack.stop, PROF_STOP_DEPTH);
	CHECK(stack.n_cut > 3000 - UNWIND_MAX_FRAMES);
	CHECK(stack.cut_at > 0 && stack.cut_at < stack.n);
	CHECK(stack.ips[stack.n - 1] == root);
	free(snapshot.stack);
	self_done(&self);
}

/* ---- The queue ---- */

struct emitted {
	uint64_t times[8];
	enum prof_user_stop stops[8];
	size_t n;
};

static void emit(const struct sample *sample, struct maps **maps, void *data)
{
	struct emitted *emitted = data;

	if (emitted->n < 8) {
		emitted->times[emitted->n] = sample->time_ns;
		emitted->stops[emitted->n] = sample->user.stop;
	}
	emitted->n++;
}

struct waiting {
	struct self self;
	struct snapshot_of_self snapshot;
	struct unwind_input input;
	struct sample sample;
	struct emitted emitted;
	struct sample_queue queue;
	struct image *missing;
	struct unwind_stack stack;
};

static bool waiting_init(struct waiting *waiting)
{
	struct thread *thread;

	memset(waiting, 0, sizeof(*waiting));
	if (!self_init(&waiting->self))
		return false;
	dive(5, &waiting->snapshot);
	thread = tasks_found(&waiting->self.parts.tasks, 10, 10, 1);
	thread->process->maps_known = true;
	maps_unref(thread->process->maps);
	thread->process->maps = maps_ref(waiting->self.maps);
	waiting->sample = (struct sample){ .thread = thread, .time_ns = 1 };
	waiting->input = (struct unwind_input){
		.registers = waiting->snapshot.registers,
		.stack = waiting->snapshot.stack,
		.stack_bytes = waiting->snapshot.bytes,
		.full_bytes = 65528,
		.thread = 1,
		.pid = 10,
	};
	sample_queue_init(&waiting->queue, waiting->self.unwind, emit, &waiting->emitted);
	return !run(&waiting->self, &waiting->snapshot, waiting->snapshot.bytes, 1, false,
		    &waiting->stack, &waiting->missing);
}

static void waiting_done(struct waiting *waiting)
{
	sample_queue_done(&waiting->queue);
	free(waiting->snapshot.stack);
	self_done(&waiting->self);
}

static void add_complete(struct waiting *waiting, uint64_t time_ns)
{
	static const uint64_t ip = 0x1234;

	waiting->sample.time_ns = time_ns;
	waiting->sample.user = (struct unwind_stack){
		.ips = &ip, .n = 1, .cut_at = 1, .method = PROF_METHOD_FP, .stop = PROF_STOP_ROOT
	};
	sample_queue_add(&waiting->queue, &waiting->sample);
}

static void test_queue_order(void)
{
	struct waiting waiting;

	REQUIRE(waiting_init(&waiting));
	CHECK(sample_queue_is_empty(&waiting.queue));
	CHECK(sample_queue_add_waiting(&waiting.queue, &waiting.sample, &waiting.input,
				       waiting.missing, 0));
	add_complete(&waiting, 2);
	add_complete(&waiting, 3);
	sample_queue_run(&waiting.queue, 1);
	CHECK_INT(waiting.emitted.n, 0);
	make_tables(&waiting.self);
	/* all requested files have a table now, so the walk completes */
	waiting.missing->unwind_state = IMAGE_UNWIND_READY;
	sample_queue_run(&waiting.queue, 2);
	CHECK_INT(waiting.emitted.n, 3);
	CHECK_INT(waiting.emitted.times[0], 1);
	CHECK_INT(waiting.emitted.stops[0], PROF_STOP_ROOT);
	CHECK_INT(waiting.emitted.times[2], 3);
	CHECK(sample_queue_is_empty(&waiting.queue));
	CHECK_INT(waiting.queue.bytes, 0);
	waiting_done(&waiting);
}

static void test_queue_late(void)
{
	struct waiting waiting;

	REQUIRE(waiting_init(&waiting));
	CHECK(sample_queue_add_waiting(&waiting.queue, &waiting.sample, &waiting.input,
				       waiting.missing, 1000));
	add_complete(&waiting, 2);
	sample_queue_run(&waiting.queue, 1000 + SAMPLE_QUEUE_WAIT_NS - 1);
	CHECK_INT(waiting.emitted.n, 0);
	sample_queue_run(&waiting.queue, 1000 + SAMPLE_QUEUE_WAIT_NS);
	CHECK_INT(waiting.emitted.n, 2);
	CHECK_INT(waiting.emitted.stops[0], PROF_STOP_NO_TABLE);
	CHECK_INT(waiting.emitted.stops[1], PROF_STOP_ROOT);
	CHECK_INT(waiting.queue.n_waiting, 0);
	waiting_done(&waiting);
}

/* A sample does not wait for files whose request for its process was refused. */
static void test_queue_refused(void)
{
	struct waiting waiting;

	REQUIRE(waiting_init(&waiting));
	CHECK(sample_queue_add_waiting(&waiting.queue, &waiting.sample, &waiting.input,
				       waiting.missing, 0));
	for (uint32_t i = 0; i < waiting.self.maps->n; i++) {
		struct image *image = waiting.self.maps->mappings[i].image;

		if (!image || image->kind != PROF_IMAGE_FILE || image_failure(image, 10))
			continue;
		image->requested_pid = 10;
		image_request_failed(image, IMAGE_REFUSED);
	}
	sample_queue_run(&waiting.queue, 1);
	CHECK_INT(waiting.emitted.n, 1);
	CHECK_INT(waiting.self.wanted, 1);
	waiting_done(&waiting);
}

static void test_queue_room(void)
{
	const size_t size = 1 << 20;
	struct waiting waiting;
	unsigned int n = 0;
	uint8_t *stack = calloc(1, size);

	REQUIRE(waiting_init(&waiting));
	memcpy(stack, waiting.snapshot.stack, MIN_OF(size, waiting.snapshot.bytes));
	waiting.input.stack = stack;
	waiting.input.stack_bytes = size;
	while (n < 100 && sample_queue_add_waiting(&waiting.queue, &waiting.sample, &waiting.input,
						   waiting.missing, 0))
		n++;
	CHECK_INT(n, 63);
	waiting_done(&waiting);
	free(stack);
}

int main(void)
{
	RUN(test_file);
	RUN(test_stripped);
	RUN(test_bad_files);
	RUN(test_lying_section);
	RUN(test_packed);
	RUN(test_lying_packed);
	RUN(test_shared);
	RUN(test_identity);
	RUN(test_bad);
	RUN(test_many_open);
	RUN(test_waits);
	RUN(test_failed_requests);
	RUN(test_from_sp);
	RUN(test_first_sample);
	RUN(test_stitch);
	RUN(test_cut);
	RUN(test_queue_order);
	RUN(test_queue_late);
	RUN(test_queue_refused);
	RUN(test_queue_room);
	return test_end();
}
