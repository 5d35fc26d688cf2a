/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Record - parses perf records
 *
 * The layout follows from the sample types in daemon/protocol.h. A sample consists of struct
 * sample_fixed, the call chain, a tracepoint's fields, registers and stack if they are recorded,
 * and the cgroup. Every other record consists of a body and struct trailer (sample_id_all). The
 * layouts are those of <linux/perf_event.h>, enum perf_event_type.
 * Invariants: (1) nothing outside [header, header + size) is read     [fuzz_perf_record]
 *             (2) names end within the record                         [test-engine-record: names]
 *             (3) a chain never exceeds the record                    [test-engine-record: hostile]
 * Pure functions.
 */
#include "daemon/engine/perf/record.h"

#include "arch/base.h"
#include "arch/regs.h"
#include "daemon/protocol.h"

#include <sys/mman.h>

struct trailer {
	int32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, pad;
	uint64_t event_id;
};

struct sample_fixed {
	struct perf_event_header header;
	uint64_t event_id;
	uint64_t ip;
	int32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, pad;
	uint64_t period;
	uint64_t n_ips;
	uint64_t ips[];
};

/* the start of a sample of ENGINE_WAKEUP_TYPE or ENGINE_SLEEP_TYPE, or of one with a code object */
struct wakeup_fixed {
	struct perf_event_header header;
	uint64_t event_id;
	uint64_t ip;
	int32_t pid, tid;
	uint64_t time_ns;
	uint32_t cpu, pad;
	uint32_t raw_bytes;
	uint8_t raw[];
};

struct mmap2_fixed {
	struct perf_event_header header;
	int32_t pid, tid;
	uint64_t start, length, file_offset;
	union {
		struct {
			uint32_t dev_major, dev_minor;
			uint64_t inode, inode_generation;
		};
		struct {
			uint8_t build_id_bytes, pad[3];
			uint8_t build_id[RECORD_BUILD_ID_MAX];
		};
	};
	uint32_t protection, flags;
	char name[];
};

struct comm_fixed {
	struct perf_event_header header;
	int32_t pid, tid;
	char name[];
};

struct task_fixed {
	struct perf_event_header header;
	int32_t pid, ppid, tid, ptid;
	uint64_t time_ns;
};

struct switch_fixed {
	struct perf_event_header header;
	int32_t other_pid, other_tid;
};

struct lost_fixed {
	struct perf_event_header header;
	uint64_t event_id;
	uint64_t lost;
};

struct lost_samples_fixed {
	struct perf_event_header header;
	uint64_t lost;
};

struct throttle_fixed {
	struct perf_event_header header;
	uint64_t time_ns, event_id, stream_id;
};

struct ksymbol_fixed {
	struct perf_event_header header;
	uint64_t address;
	uint32_t length;
	uint16_t type, flags;
	char name[];
};

struct cgroup_fixed {
	struct perf_event_header header;
	uint64_t id;
	char path[];
};

_Static_assert(sizeof(struct mmap2_fixed) == 72, "layout of PERF_RECORD_MMAP2");
_Static_assert(sizeof(struct sample_fixed) == 64, "layout of PERF_RECORD_SAMPLE");
_Static_assert(offsetof(struct wakeup_fixed, time_ns) == offsetof(struct sample_fixed, time_ns),
	       "record_time()");
_Static_assert(sizeof(struct trailer) == 32, "layout of sample_id");

/* Returns whether the name that starts at `name` ends before the trailer. */
static bool name_ends(const struct perf_event_header *header, const char *name)
{
	const char *end = (const char *)header + header->size - sizeof(struct trailer);

	return name < end && memchr(name, 0, end - name);
}

/* Parses registers and stack at `at`. Returns the address after them, or NULL if they do not fit.
 * The stack's length need not be a multiple of 8. */
static const uint8_t *parse_stack(const uint64_t *at, const uint8_t *end,
				  struct record_sample *sample)
{
	const struct regs *regs = regs_get(REGS_NATIVE);
	size_t words = (size_t)(end - (const uint8_t *)at) / 8, left;
	const uint8_t *stack;
	uint64_t abi, size;

	if (!regs || words < 2)
		return NULL;
	abi = *at++;
	if (abi != PERF_SAMPLE_REGS_ABI_NONE) {
		if (words < regs->perf_n + (size_t)2)
			return NULL;
		if (abi == PERF_SAMPLE_REGS_ABI_64)
			sample->registers = at;
		at += regs->perf_n;
	}
	size = *at++;
	stack = (const uint8_t *)at;
	if (size == 0)
		return stack;
	/* After the room for the stack comes the number of bytes that were filled. */
	left = (size_t)(end - stack);
	if (size > left || left - size < 8 || load_le64(stack + size) > size)
		return NULL;
	sample->stack = stack;
	sample->stack_bytes = load_le64(stack + size);
	return stack + size + 8;
}

/* Parses the raw part at `at`: 32 bits of length, then the bytes, which end at a multiple of 8.
 * Returns the address after them, or NULL if they do not fit. */
static const uint8_t *parse_raw(const uint8_t *at, const uint8_t *end, struct record_sample *sample)
{
	uint32_t bytes;

	if (end - at < 8)
		return NULL;
	memcpy(&bytes, at, sizeof(bytes));
	at += sizeof(bytes);
	if (bytes > (size_t)(end - at) || (bytes + sizeof(bytes)) % 8 != 0)
		return NULL;
	sample->raw = at;
	sample->raw_bytes = bytes;
	return at + bytes;
}

static bool parse_sample(const struct perf_event_header *header, unsigned parts,
			 struct record *record)
{
	const struct sample_fixed *fixed = (const void *)header;
	const uint8_t *end = (const uint8_t *)header + header->size, *at;

	if (header->size < sizeof(*fixed) + 8 ||
	    fixed->n_ips > (header->size - sizeof(*fixed)) / 8 - 1)
		return false;
	record->kind = RECORD_SAMPLE;
	record->pid = fixed->pid;
	record->tid = fixed->tid;
	record->time_ns = fixed->time_ns;
	record->cpu = fixed->cpu;
	record->event_id = fixed->event_id;
	record->sample = (struct record_sample){
		.ip = fixed->ip,
		.period = fixed->period,
		.ips = fixed->ips,
		.n_ips = fixed->n_ips,
	};
	at = (const uint8_t *)(fixed->ips + fixed->n_ips);
	if (parts & RECORD_FIELDS)
		at = parse_raw(at, end, &record->sample);
	if (at && (parts & RECORD_STACKS))
		at = parse_stack((const uint64_t *)(const void *)at, end, &record->sample);
	if (!at || end - at < 8)
		return false;
	record->sample.cgroup = load_le64(at);
	return true;
}

static bool parse_mmap2(const struct perf_event_header *header, struct record *record)
{
	const struct mmap2_fixed *fixed = (const void *)header;
	struct record_mmap *mmap = &record->mmap;
	uint64_t end;

	if (!name_ends(header, fixed->name) || fixed->length == 0 ||
	    !add_u64(fixed->start, fixed->length, &end))
		return false;
	record->pid = fixed->pid;
	record->tid = fixed->tid;
	*mmap = (struct record_mmap){
		.start = fixed->start,
		.length = fixed->length,
		.file_offset = fixed->file_offset,
		.name = fixed->name,
		.executable = fixed->protection & PROT_EXEC,
		.is_shared = fixed->flags & MAP_SHARED,
		.dev_major = fixed->dev_major,
		.dev_minor = fixed->dev_minor,
		.inode = fixed->inode,
		.inode_generation = fixed->inode_generation,
		.build_id = fixed->build_id,
	};
	if ((header->misc & PERF_RECORD_MISC_MMAP_BUILD_ID) &&
	    fixed->build_id_bytes <= RECORD_BUILD_ID_MAX)
		mmap->build_id_bytes = fixed->build_id_bytes;
	return true;
}

static bool parse_comm(const struct perf_event_header *header, struct record *record)
{
	const struct comm_fixed *fixed = (const void *)header;

	if (!name_ends(header, fixed->name))
		return false;
	record->pid = fixed->pid;
	record->tid = fixed->tid;
	record->comm.name = fixed->name;
	record->comm.exec = header->misc & PERF_RECORD_MISC_COMM_EXEC;
	return true;
}

static bool parse_task(const struct perf_event_header *header, struct record *record)
{
	const struct task_fixed *fixed = (const void *)header;

	record->task = (struct task_ids){ fixed->pid, fixed->ppid, fixed->tid, fixed->ptid };
	return true;
}

static bool parse_switch(const struct perf_event_header *header, struct record *record)
{
	const struct switch_fixed *fixed = (const void *)header;

	record->switched = (struct record_switch){
		.out = header->misc & PERF_RECORD_MISC_SWITCH_OUT,
		.preempted = header->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
	};
	/* Records of per-task events do not name the other task. */
	if (header->type == PERF_RECORD_SWITCH_CPU_WIDE) {
		record->switched.other_pid = fixed->other_pid;
		record->switched.other_tid = fixed->other_tid;
	}
	return true;
}

static bool parse_lost(const struct perf_event_header *header, struct record *record)
{
	record->lost = ((const struct lost_fixed *)(const void *)header)->lost;
	return true;
}

static bool parse_lost_samples(const struct perf_event_header *header, struct record *record)
{
	record->lost = ((const struct lost_samples_fixed *)(const void *)header)->lost;
	return true;
}

static bool parse_ksymbol(const struct perf_event_header *header, struct record *record)
{
	const struct ksymbol_fixed *fixed = (const void *)header;
	uint64_t end;

	if (!name_ends(header, fixed->name) || !add_u64(fixed->address, fixed->length, &end))
		return false;
	record->ksymbol = (struct record_ksymbol){
		.address = fixed->address,
		.length = fixed->length,
		.unregister = fixed->flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER,
		.name = fixed->name,
	};
	return true;
}

static bool parse_cgroup(const struct perf_event_header *header, struct record *record)
{
	const struct cgroup_fixed *fixed = (const void *)header;

	if (!name_ends(header, fixed->path))
		return false;
	record->cgroup = (struct record_cgroup){ .id = fixed->id, .path = fixed->path };
	return true;
}

/* `parse` is NULL if only the trailer is used. */
static const struct layout {
	enum record_kind kind;
	uint32_t fixed_bytes;
	bool (*parse)(const struct perf_event_header *header, struct record *record);
} layouts[] = {
	[PERF_RECORD_MMAP2] = { RECORD_MMAP, sizeof(struct mmap2_fixed), parse_mmap2 },
	[PERF_RECORD_LOST] = { RECORD_LOST, sizeof(struct lost_fixed), parse_lost },
	[PERF_RECORD_COMM] = { RECORD_COMM, sizeof(struct comm_fixed), parse_comm },
	[PERF_RECORD_EXIT] = { RECORD_EXIT, sizeof(struct task_fixed), parse_task },
	[PERF_RECORD_THROTTLE] = { RECORD_THROTTLE, sizeof(struct throttle_fixed), NULL },
	[PERF_RECORD_UNTHROTTLE] = { RECORD_UNTHROTTLE, sizeof(struct throttle_fixed), NULL },
	[PERF_RECORD_FORK] = { RECORD_FORK, sizeof(struct task_fixed), parse_task },
	[PERF_RECORD_LOST_SAMPLES] = { RECORD_LOST_SAMPLES, sizeof(struct lost_samples_fixed),
				       parse_lost_samples },
	[PERF_RECORD_SWITCH] = { RECORD_SWITCH, sizeof(struct perf_event_header), parse_switch },
	[PERF_RECORD_SWITCH_CPU_WIDE] = { RECORD_SWITCH, sizeof(struct switch_fixed),
					  parse_switch },
	[PERF_RECORD_KSYMBOL] = { RECORD_KSYMBOL, sizeof(struct ksymbol_fixed), parse_ksymbol },
	[PERF_RECORD_CGROUP] = { RECORD_CGROUP, sizeof(struct cgroup_fixed), parse_cgroup },
};

/* Returns how many bytes of a record come before its trailer. If several events of a CPU receive a
 * KSYMBOL record, even events of other programs, Linux (6.18) makes each copy longer than the
 * previous one, but does not write the added bytes. So the trailer is right after the name. */
static size_t bytes_before_trailer(const struct perf_event_header *header)
{
	const size_t bytes = header->size - sizeof(struct trailer);
	const struct ksymbol_fixed *fixed = (const void *)header;
	const char *end;

	if (header->type != PERF_RECORD_KSYMBOL || bytes <= sizeof(*fixed))
		return bytes;
	end = memchr(fixed->name, 0, bytes - sizeof(*fixed));
	return end ? (size_t)(end - (const char *)header) / 8 * 8 + 8 : bytes;
}

/* Reads the trailer of a record that is not a sample. Returns false if the record is too short.
 * Events of ENGINE_COPY_TYPE also report losses and throttling, with a trailer that has the stream
 * id between the time and the CPU. Such a record has only a fixed part, so its size shows which
 * trailer it has. */
static bool parse_trailer(const struct perf_event_header *header, struct trailer *ret_trailer)
{
	const size_t bytes = sizeof(*ret_trailer), before = offsetof(struct trailer, cpu);
	const uint8_t *at;
	bool has_stream = false;

	if (header->size < sizeof(*header) + bytes || header->size % 8 != 0)
		return false;
	if (header->type == PERF_RECORD_LOST || header->type == PERF_RECORD_THROTTLE ||
	    header->type == PERF_RECORD_UNTHROTTLE)
		has_stream = header->size == layouts[header->type].fixed_bytes + bytes + 8;
	at = (const uint8_t *)header + bytes_before_trailer(header);
	memcpy(ret_trailer, at, bytes);
	if (has_stream)
		memcpy(ret_trailer, at - 8, before);
	return true;
}

/* Parses a sample with fields, but without a stack. */
static bool parse_short(const struct perf_event_header *header, enum record_kind kind,
			uint32_t least_bytes, struct record *ret_record)
{
	const struct wakeup_fixed *fixed = (const void *)header;
	const size_t fixed_bytes = offsetof(struct wakeup_fixed, raw);

	if (header->size < fixed_bytes || fixed->raw_bytes > header->size - fixed_bytes ||
	    fixed->raw_bytes < least_bytes)
		return false;
	*ret_record = (struct record){
		.kind = kind,
		.cpumode = header->misc & PERF_RECORD_MISC_CPUMODE_MASK,
		.pid = fixed->pid,
		.tid = fixed->tid,
		.cpu = fixed->cpu,
		.time_ns = fixed->time_ns,
		.event_id = fixed->event_id,
		.sample = { .raw = fixed->raw, .raw_bytes = fixed->raw_bytes },
	};
	return true;
}

bool record_parse_wakeup(const struct perf_event_header *header, struct record *ret_record)
{
	const struct wakeup_fixed *fixed = (const void *)header;

	if (!parse_short(header, RECORD_WAKEUP, ENGINE_WAKEUP_TID_OFFSET + sizeof(uint32_t),
			 ret_record))
		return false;
	ret_record->woken_tid = (int32_t)load_le32(fixed->raw + ENGINE_WAKEUP_TID_OFFSET);
	return true;
}

/* Finds the registers after a tracepoint's fields, in the order of `mask`. *ret_registers: NULL if
 * the record has none, or has those of a 32-bit program. Returns false if the record is too
 * short. */
static bool find_registers(const struct perf_event_header *header, uint64_t mask,
			   const uint64_t **ret_registers)
{
	const struct wakeup_fixed *fixed = (const void *)header;
	/* The kernel pads the fields, so that what follows is aligned. */
	const uint64_t *registers = (const void *)(fixed->raw + fixed->raw_bytes);
	size_t words = ((const uint8_t *)header + header->size - (const uint8_t *)registers) / 8;

	*ret_registers = NULL;
	if ((uintptr_t)registers % 8 != 0 || words == 0)
		return false;
	if (mask == 0 || registers[0] != PERF_SAMPLE_REGS_ABI_64)
		return true;
	*ret_registers = registers + 1;
	return words > (size_t)__builtin_popcountll(mask);
}

bool record_parse_sleep(const struct perf_event_header *header, struct record *ret_record)
{
	const struct wakeup_fixed *fixed = (const void *)header;
	const struct regs *regs = regs_get(REGS_NATIVE);

	if (!parse_short(header, RECORD_SLEEP, ENGINE_SLEEP_STATE_OFFSET + sizeof(uint64_t),
			 ret_record))
		return false;
	ret_record->sleep.state = load_le64(fixed->raw + ENGINE_SLEEP_STATE_OFFSET);
	return find_registers(header, regs ? regs->perf_sleep_mask : 0,
			      &ret_record->sleep.registers);
}

bool record_parse_waking(const struct perf_event_header *header, struct record *ret_record)
{
	const struct wakeup_fixed *fixed = (const void *)header;
	const struct regs *regs = regs_get(REGS_NATIVE);
	struct record_waking *waking = &ret_record->waking;
	const uint64_t *registers;

	if (!parse_short(header, RECORD_WAKING, ENGINE_WAKEUP_TID_OFFSET + sizeof(uint32_t),
			 ret_record) ||
	    !find_registers(header, regs ? regs_waking_mask(regs) : 0, &registers))
		return false;
	waking->tid = (int32_t)load_le32(fixed->raw + ENGINE_WAKEUP_TID_OFFSET);
	/* The idle thread wakes others only in interrupts. */
	waking->in_interrupt = fixed->raw[ENGINE_FLAGS_OFFSET] & ENGINE_FLAGS_INTERRUPT ||
			       fixed->tid == 0;
	if (!registers)
		return true;
	waking->has_registers = true;
	waking->pc = registers[regs_waking_position(regs, regs->perf_pc_bit)];
	waking->sp = registers[regs_waking_position(regs, regs->perf_sp_bit)];
	waking->argument = registers[regs_waking_position(regs, regs->perf_argument_bit)];
	return true;
}

bool record_parse_code(const struct perf_event_header *header, struct record *ret_record)
{
	return parse_short(header, RECORD_CODE, 0, ret_record);
}

uint64_t record_event_id(const struct perf_event_header *header)
{
	if (header->size < sizeof(*header) + sizeof(uint64_t))
		return 0;
	return load_le64((const uint8_t *)(header + 1));
}

bool record_time(const struct perf_event_header *header, uint64_t *ret_time_ns)
{
	struct trailer trailer;

	if (header->type == PERF_RECORD_SAMPLE) {
		if (header->size < sizeof(struct sample_fixed))
			return false;
		*ret_time_ns = ((const struct sample_fixed *)(const void *)header)->time_ns;
		return true;
	}
	if (!parse_trailer(header, &trailer))
		return false;
	*ret_time_ns = trailer.time_ns;
	return true;
}

bool record_parse(const struct perf_event_header *header, unsigned parts, struct record *ret_record)
{
	struct trailer trailer;
	const struct layout *layout;

	*ret_record = (struct record){
		.kind = RECORD_OTHER,
		.cpumode = header->misc & PERF_RECORD_MISC_CPUMODE_MASK,
	};
	if (header->type == PERF_RECORD_SAMPLE)
		return parse_sample(header, parts, ret_record);
	if (!parse_trailer(header, &trailer))
		return false;
	ret_record->pid = trailer.pid;
	ret_record->tid = trailer.tid;
	ret_record->time_ns = trailer.time_ns;
	ret_record->cpu = trailer.cpu;
	ret_record->event_id = trailer.event_id;
	if (header->type >= ARRAY_SIZE(layouts) || layouts[header->type].fixed_bytes == 0)
		return true;
	layout = &layouts[header->type];
	ret_record->kind = layout->kind;
	return header->size >= layout->fixed_bytes + sizeof(trailer) &&
	       (!layout->parse || layout->parse(header, ret_record));
}
