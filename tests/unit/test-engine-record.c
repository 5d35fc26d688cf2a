/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/perf/record.c: the fields of each kind, and inconsistent records.
 */
#include "arch/regs.h"
#include "daemon/engine/perf/record.h"
#include "tests/unit/engine.h"

static bool parse(struct bytes *bytes, struct record *record)
{
	return record_parse((const void *)bytes->data, 0, record);
}

static void put_mmap2(struct bytes *bytes, uint16_t misc, uint64_t length, uint8_t build_id_bytes,
		      const char *name)
{
	size_t at = record_begin(bytes, PERF_RECORD_MMAP2, misc);
	uint8_t id[24] = { build_id_bytes, 0, 0, 0, 0xab, 0xcd };

	put_u32(bytes, 10);
	put_u32(bytes, 11);
	put_u64(bytes, 0x400000);
	put_u64(bytes, length);
	put_u64(bytes, 0x1000);
	put(bytes, id, sizeof(id));
	put_u32(bytes, PROT_READ | PROT_EXEC);
	put_u32(bytes, 0);
	put_name(bytes, name);
	record_end(bytes, at, 10, 11, 99);
}

static void test_sample(void)
{
	const uint64_t ips[] = { (uint64_t)PERF_CONTEXT_USER, 0x401000, 0x402000 };
	struct bytes bytes = { .length = 0 };
	struct record record;
	uint64_t time_ns = 0;

	put_sample(&bytes, PERF_RECORD_MISC_USER, 10, 11, 77, ips, 3);
	REQUIRE(parse(&bytes, &record));
	CHECK_INT(record.kind, RECORD_SAMPLE);
	CHECK_INT(record.tid, 11);
	CHECK_INT(record.time_ns, 77);
	CHECK_INT(record.event_id, 7);
	CHECK_INT(record.sample.n_ips, 3);
	CHECK_INT(record.sample.ips[2], 0x402000);
	CHECK_INT(record.sample.period, 1001001);
	CHECK_INT(record.sample.cgroup, 1);
	CHECK(record_time((const void *)bytes.data, &time_ns));
	CHECK_INT(time_ns, 77);
}

/* Appends a sample with registers and a stack of `room` bytes. The sample claims that `filled` of
 * these bytes are valid. */
static void put_stack_sample(struct bytes *bytes, uint64_t abi, uint64_t room, uint64_t filled)
{
	const size_t n = regs_get(REGS_NATIVE)->perf_n;
	size_t at = record_begin(bytes, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER), i;

	put_u64(bytes, 7);
	put_u64(bytes, 0x1234);
	put_u64(bytes, 10 | UINT64_C(11) << 32);
	put_u64(bytes, 77);
	put_u64(bytes, 0);
	put_u64(bytes, 1001001);
	put_u64(bytes, 0); /* no chain */
	put_u64(bytes, abi);
	for (i = 0; abi != PERF_SAMPLE_REGS_ABI_NONE && i < n; i++)
		put_u64(bytes, 0x100 + i);
	put_u64(bytes, room);
	for (i = 0; i < room / 8 && i < 64; i++)
		put_u64(bytes, i);
	bytes->length += room % 8;
	if (room)
		put_u64(bytes, filled);
	put_u64(bytes, 99); /* cgroup */
	record_close(bytes, at);
}

static bool parse_stack(uint64_t abi, uint64_t room, uint64_t filled, struct record *record)
{
	static struct bytes bytes;

	bytes.length = 0;
	put_stack_sample(&bytes, abi, room, filled);
	return record_parse((const void *)bytes.data, RECORD_STACKS, record);
}

static void test_stack(void)
{
	struct record record;

	REQUIRE(parse_stack(PERF_SAMPLE_REGS_ABI_64, 64, 40, &record));
	CHECK_INT(record.sample.registers[1], 0x101);
	CHECK_INT(record.sample.stack_bytes, 40);
	CHECK_INT(record.sample.stack[8], 1);
	CHECK_INT(record.sample.cgroup, 99);
	REQUIRE(parse_stack(PERF_SAMPLE_REGS_ABI_NONE, 0, 0, &record));
	CHECK(!record.sample.registers && !record.sample.stack);
	CHECK_INT(record.sample.cgroup, 99);
	REQUIRE(parse_stack(PERF_SAMPLE_REGS_ABI_32, 64, 64, &record));
	CHECK(!record.sample.registers); /* a 32-bit program has other registers */
	CHECK_INT(record.sample.cgroup, 99);
	REQUIRE(parse_stack(PERF_SAMPLE_REGS_ABI_64, 0, 0, &record));
	CHECK_INT(record.sample.stack_bytes, 0);
	/* a stack up to the end of the address space */
	REQUIRE(parse_stack(PERF_SAMPLE_REGS_ABI_64, 61, 59, &record));
	CHECK_INT(record.sample.stack_bytes, 59);
	CHECK_INT(record.sample.cgroup, 99);
	/* contradictory sizes */
	CHECK(!parse_stack(PERF_SAMPLE_REGS_ABI_64, 64, 72, &record));
	CHECK(!parse_stack(PERF_SAMPLE_REGS_ABI_64, 64, UINT64_MAX, &record));
	CHECK(!parse_stack(PERF_SAMPLE_REGS_ABI_64, 63, 64, &record));
	CHECK(!parse_stack(PERF_SAMPLE_REGS_ABI_64, 4096, 40, &record));
	CHECK(!parse_stack(PERF_SAMPLE_REGS_ABI_64, UINT64_MAX - 7, 40, &record));
}

/* Cuts the record at each word. */
static void test_stack_cut(void)
{
	struct bytes bytes = { .length = 0 };
	struct perf_event_header *header = (void *)bytes.data;
	struct record record;
	size_t whole;

	put_stack_sample(&bytes, PERF_SAMPLE_REGS_ABI_64, 64, 64);
	whole = header->size;
	for (header->size -= 8; header->size > 0; header->size -= 8)
		CHECK(!record_parse(header, RECORD_STACKS, &record));
	header->size = whole;
	CHECK(record_parse(header, RECORD_STACKS, &record));
}

static void test_wakeup(void)
{
	struct bytes bytes = { .length = 0 };
	struct perf_event_header *header = (void *)bytes.data;
	struct record record;
	uint64_t time_ns;
	size_t at, raw_at, whole;

	at = record_begin(&bytes, PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
	put_u64(&bytes, 5);
	put_u64(&bytes, 0x1234);
	put_u64(&bytes, 10 | UINT64_C(11) << 32);
	put_u64(&bytes, 77);
	put_u64(&bytes, 3);
	raw_at = bytes.length;
	put_u64(&bytes, 36); /* length; the word also has four bytes of data */
	put_u64(&bytes, 0);
	put_u64(&bytes, 0);
	put_u64(&bytes, UINT64_C(42) << 32);
	put_u64(&bytes, 0);
	record_close(&bytes, at);
	/* the fields follow the length; the woken thread's tid is at offset 24 */
	store_le32(bytes.data + raw_at + 4 + 24, 42);
	CHECK(record_time(header, &time_ns));
	CHECK_INT(time_ns, 77);
	REQUIRE(record_parse_wakeup(header, &record));
	CHECK_INT(record.kind, RECORD_WAKEUP);
	CHECK_INT(record.woken_tid, 42);
	CHECK_INT(record.cpu, 3);
	CHECK_INT(record.time_ns, 77);
	/* A waker's record also has registers; their ABI is 0 in a kernel thread. */
	put_u64(&bytes, 0);
	header->size += 8;
	REQUIRE(record_parse_waking(header, &record));
	CHECK_INT(record.waking.tid, 42);
	CHECK(!record.waking.in_interrupt && !record.waking.has_registers);
	bytes.data[raw_at + 4 + ENGINE_FLAGS_OFFSET] = 0x8;
	store_le64(bytes.data + header->size - 8, PERF_SAMPLE_REGS_ABI_64);
	CHECK(!record_parse_waking(header, &record));
	for (int i = 0; i < 3; i++)
		put_u64(&bytes, 7);
	header->size += 24;
	REQUIRE(record_parse_waking(header, &record));
	CHECK(record.waking.in_interrupt && record.waking.has_registers);
	CHECK_INT(record.waking.pc, 7);
	header->size -= 32;
	CHECK(!record_parse_waking(header, &record));
	whole = header->size;
	for (header->size -= 8; header->size > 0; header->size -= 8)
		CHECK(!record_parse_wakeup(header, &record));
	header->size = whole;
	store_le32(bytes.data + raw_at, 27);
	CHECK(!record_parse_wakeup(header, &record));
	store_le32(bytes.data + raw_at, UINT32_MAX);
	CHECK(!record_parse_wakeup(header, &record));
}

static void test_mmap(void)
{
	struct bytes bytes = { .length = 0 };
	struct record record;

	put_mmap2(&bytes, PERF_RECORD_MISC_MMAP_BUILD_ID, 0x2000, 20, "/bin/program");
	REQUIRE(parse(&bytes, &record));
	CHECK_INT(record.kind, RECORD_MMAP);
	CHECK_INT(record.pid, 10);
	CHECK_INT(record.mmap.build_id_bytes, 20);
	CHECK_INT(record.mmap.build_id[1], 0xcd);
	CHECK_STR(record.mmap.name, "/bin/program");
	CHECK(record.mmap.executable);

	bytes.length = 0;
	put_mmap2(&bytes, 0, 0x2000, 8, "//anon");
	REQUIRE(parse(&bytes, &record));
	CHECK_INT(record.mmap.build_id_bytes, 0);
	CHECK_INT(record.mmap.dev_major, 8);

	bytes.length = 0;
	put_mmap2(&bytes, PERF_RECORD_MISC_MMAP_BUILD_ID, 0x2000, 21, "/bin/program");
	REQUIRE(parse(&bytes, &record)); /* the flag can be another profiler's: see on_mmap() */
	CHECK_INT(record.mmap.build_id_bytes, 0);
	CHECK_INT(record.mmap.dev_major, 21);
	bytes.length = 0;
	put_mmap2(&bytes, 0, UINT64_MAX - 0x100, 8, "//anon");
	CHECK(!parse(&bytes, &record));
	bytes.length = 0;
	put_mmap2(&bytes, 0, 0, 8, "//anon");
	CHECK(!parse(&bytes, &record));
}

/* A name must end before the trailer. */
static void test_names(void)
{
	struct bytes bytes = { .length = 0 };
	struct record record;
	size_t at;

	put_comm(&bytes, 5, "worker", true, 3);
	REQUIRE(parse(&bytes, &record));
	CHECK_INT(record.kind, RECORD_COMM);
	CHECK(record.comm.exec);
	CHECK_STR(record.comm.name, "worker");

	bytes.length = 0;
	at = record_begin(&bytes, PERF_RECORD_COMM, 0);
	put_u64(&bytes, 5);
	put(&bytes, "endless!", 8);
	record_end(&bytes, at, 5, 5, 3);
	CHECK(!parse(&bytes, &record));

	bytes.length = 0;
	at = record_begin(&bytes, PERF_RECORD_COMM, 0);
	put_u64(&bytes, 5);
	record_end(&bytes, at, 5, 5, 3);
	CHECK(!parse(&bytes, &record));
}

static void test_switch(void)
{
	struct bytes bytes = { .length = 0 };
	struct record record;
	size_t at = record_begin(&bytes, PERF_RECORD_SWITCH_CPU_WIDE,
				 PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);

	put_u32(&bytes, 8);
	put_u32(&bytes, 9);
	record_end(&bytes, at, 5, 6, 3);
	REQUIRE(parse(&bytes, &record));
	CHECK_INT(record.kind, RECORD_SWITCH);
	CHECK(record.switched.out && record.switched.preempted);
	CHECK_INT(record.switched.other_tid, 9);
	CHECK_INT(record.tid, 6);
}

/* Records of the event that copies stacks have the stream id in their trailers. */
static void test_copies_lost(void)
{
	struct bytes bytes = { .length = 0 };
	struct record record;
	uint64_t time_ns;

	for (unsigned int with_stream = 0; with_stream < 2; with_stream++) {
		size_t at;

		bytes.length = 0;
		at = record_begin(&bytes, PERF_RECORD_LOST, 0);
		put_u64(&bytes, 7);
		put_u64(&bytes, 12);
		put_u64(&bytes, 10 | UINT64_C(11) << 32);
		put_u64(&bytes, 4000);
		if (with_stream)
			put_u64(&bytes, 1234);
		put_u64(&bytes, 3); /* the CPU */
		put_u64(&bytes, 7);
		record_close(&bytes, at);
		CHECK(record_time((const void *)bytes.data, &time_ns));
		CHECK_INT(time_ns, 4000);
		CHECK(parse(&bytes, &record));
		CHECK_INT(record.kind, RECORD_LOST);
		CHECK_INT(record.lost, 12);
		CHECK_INT(record.pid, 10);
		CHECK_INT(record.tid, 11);
		CHECK_INT(record.cpu, 3);
		CHECK_INT(record.event_id, 7);
	}
}

/* If several events receive a record of a kernel symbol, old contents of the ring are at the
 * record's end. */
static void test_long_ksymbol(void)
{
	struct bytes bytes = { .length = 0 };
	struct record record;
	uint64_t time_ns;

	for (unsigned int words = 0; words < 6; words++) {
		size_t at;

		bytes.length = 0;
		at = record_begin(&bytes, PERF_RECORD_KSYMBOL, 0);
		put_u64(&bytes, 0xffffffffc0000000);
		put_u32(&bytes, 100);
		put_u32(&bytes, PERF_RECORD_KSYMBOL_TYPE_BPF);
		put_name(&bytes, "bpf_prog_1234567");
		record_end(&bytes, at, 5, 6, 4000);
		for (unsigned int i = 0; i < words; i++)
			put_u64(&bytes, UINT64_MAX - i);
		record_close(&bytes, at);
		CHECK(record_time((const void *)bytes.data, &time_ns));
		CHECK_INT(time_ns, 4000);
		REQUIRE(parse(&bytes, &record));
		CHECK_INT(record.kind, RECORD_KSYMBOL);
		CHECK_INT(record.tid, 6);
		CHECK_STR(record.ksymbol.name, "bpf_prog_1234567");
	}
}

static void test_hostile(void)
{
	const uint64_t ips[4] = { 1, 2, 3, 4 };
	struct bytes bytes = { .length = 0 };
	struct perf_event_header *header = (void *)bytes.data;
	struct record record;
	uint64_t time_ns = 1;
	uint16_t whole;

	put_sample(&bytes, PERF_RECORD_MISC_USER, 1, 1, 5, ips, 4);
	whole = header->size;
	for (header->size = 0; header->size < whole; header->size++)
		CHECK(!parse(&bytes, &record));
	header->size = 56;
	CHECK(!record_time(header, &time_ns));
	CHECK_INT(time_ns, 1);
	header->size = whole;
	memset(bytes.data + 56, 0xff, 8); /* n_ips */
	CHECK(!parse(&bytes, &record));

	bytes.length = 0;
	put_comm(&bytes, 5, "worker", false, 3);
	whole = header->size;
	for (header->size = 0; header->size < whole; header->size++)
		(void)parse(&bytes, &record);
}

/* Tries many types with every short length. A record of unknown type needs only its trailer. */
static void test_unknown(void)
{
	struct bytes bytes = { .length = 0 };
	struct perf_event_header *header = (void *)bytes.data;
	struct record record;

	put_comm(&bytes, 5, "worker", false, 3);
	header->type = 4711;
	REQUIRE(parse(&bytes, &record));
	CHECK_INT(record.kind, RECORD_OTHER);
	CHECK_INT(record.time_ns, 3);
	for (header->type = 0; header->type < 64; header->type++)
		for (header->size = 0; header->size <= 48; header->size += 4)
			(void)parse(&bytes, &record);
	header->type = UINT32_MAX;
	header->size = 40;
	CHECK(parse(&bytes, &record));
	header->size = 32;
	CHECK(!parse(&bytes, &record));
}

int main(void)
{
	RUN(test_sample);
	RUN(test_stack);
	RUN(test_stack_cut);
	RUN(test_wakeup);
	RUN(test_mmap);
	RUN(test_names);
	RUN(test_switch);
	RUN(test_copies_lost);
	RUN(test_long_ksymbol);
	RUN(test_hostile);
	RUN(test_unknown);
	return test_end();
}
