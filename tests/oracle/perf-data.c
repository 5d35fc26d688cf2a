/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Maps the file and sorts its records by time once. For layouts, see the kernel's
 * tools/perf/Documentation/perf.data-file-format.txt and, for records, <linux/perf_event.h>.
 */
#include "tests/oracle/perf-data.h"

#include "arch/base.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define USER_RECORDS 64 /* types from here on are perf's own records, without a time */
#define MAX_ATTRS 64
#define TRAILER_BITS                                                                   \
	(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | \
	 PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER)
#define PROT_EXEC_BIT 4u
#define ABI_64 2

struct section {
	uint64_t offset, size;
};

struct file_header {
	char magic[8];
	uint64_t size, attr_size;
	struct section attrs, data, event_types;
};

struct attr {
	struct perf_event_attr attr;
	struct section ids;
};

struct place {
	uint64_t time_ns, at;
};

struct perf_data {
	const uint8_t *bytes;
	size_t size;
	struct attr attrs[MAX_ATTRS];
	size_t n_attrs;
	struct place *places;
	size_t n, allocated, next;
	uint64_t lost;
};

/* DWARF numbers of perf's registers, in perf's order: AX BX CX DX SI DI BP SP IP FLAGS CS SS DS ES
 * FS GS R8... */
static const int8_t dwarf_numbers[] = { 0,  3,  2,  1,  4, 5, 6,  7,  16, -1, -1, -1,
					-1, -1, -1, -1, 8, 9, 10, 11, 12, 13, 14, 15 };

static const struct perf_event_header *record_at(const struct perf_data *data, uint64_t at)
{
	return (const struct perf_event_header *)(data->bytes + at);
}

static const struct perf_event_attr *find_attr(const struct perf_data *data, uint64_t id)
{
	for (size_t i = 0; i < data->n_attrs; i++) {
		const struct section *ids = &data->attrs[i].ids;

		for (uint64_t at = 0; at + 8 <= ids->size; at += 8)
			if (load_le64(data->bytes + ids->offset + at) == id)
				return &data->attrs[i].attr;
	}
	return &data->attrs[0].attr;
}

/* Returns the attr of a record. If there are several attrs, perf writes the id first in samples and
 * last in other records. */
static const struct perf_event_attr *attr_of(const struct perf_data *data,
					     const struct perf_event_header *header)
{
	const uint8_t *bytes = (const uint8_t *)header;

	if (!(data->attrs[0].attr.sample_type & PERF_SAMPLE_IDENTIFIER))
		return &data->attrs[0].attr;
	return find_attr(data,
			 load_le64(header->type == PERF_RECORD_SAMPLE ? bytes + sizeof(*header)
								      : bytes + header->size - 8));
}

static unsigned int count_bits(uint64_t word)
{
	return (unsigned int)__builtin_popcountll(word);
}

/* Returns the offset of `field` in a sample, for fields that only fixed-size fields precede. */
static size_t sample_field(uint64_t type, uint64_t field)
{
	static const uint64_t order[] = { PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_IP,
					  PERF_SAMPLE_TID,        PERF_SAMPLE_TIME,
					  PERF_SAMPLE_ADDR,       PERF_SAMPLE_ID,
					  PERF_SAMPLE_STREAM_ID,  PERF_SAMPLE_CPU,
					  PERF_SAMPLE_PERIOD };
	size_t at = sizeof(struct perf_event_header);

	for (size_t i = 0; i < ARRAY_SIZE(order) && order[i] != field; i++)
		at += type & order[i] ? 8 : 0;
	return at;
}

static uint64_t time_of(const struct perf_data *data, const struct perf_event_header *header)
{
	const struct perf_event_attr *attr = attr_of(data, header);
	uint64_t type = attr->sample_type, before = PERF_SAMPLE_TID;
	size_t trailer = 8 * count_bits(type & TRAILER_BITS);

	if (header->type == PERF_RECORD_SAMPLE)
		return load_le64((const uint8_t *)header + sample_field(type, PERF_SAMPLE_TIME));
	if (!attr->sample_id_all || header->size < trailer)
		return 0;
	return load_le64((const uint8_t *)header + header->size - trailer +
			 (type & before ? 8 : 0));
}

static bool is_wanted(const struct perf_data *data, const struct perf_event_header *header)
{
	switch (header->type) {
	case PERF_RECORD_SAMPLE:
		return attr_of(data, header)->sample_type & PERF_SAMPLE_STACK_USER;
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
	case PERF_RECORD_COMM:
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		return true;
	default:
		return false;
	}
}

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

static bool add_place(struct perf_data *data, uint64_t time_ns, uint64_t at)
{
	if (data->n == data->allocated) {
		size_t allocated = data->allocated ? data->allocated * 2 : 4096;
		void *grown = realloc(data->places, allocated * sizeof(*data->places));

		if (!grown)
			return false;
		data->places = grown;
		data->allocated = allocated;
	}
	data->places[data->n++] = (struct place){ time_ns, at };
	return true;
}

static bool index_records(struct perf_data *data, const struct section *section)
{
	uint64_t at = section->offset, end = section->offset + section->size;

	while (at + sizeof(struct perf_event_header) <= end) {
		const struct perf_event_header *header = record_at(data, at);

		if (header->size < sizeof(*header) || header->size > end - at)
			return false;
		if (header->type == PERF_RECORD_LOST)
			data->lost += load_le64((const uint8_t *)header + sizeof(*header) + 8);
		else if (header->type == PERF_RECORD_LOST_SAMPLES)
			data->lost += load_le64((const uint8_t *)header + sizeof(*header));
		if (header->type < USER_RECORDS && is_wanted(data, header) &&
		    !add_place(data, time_of(data, header), at))
			return false;
		at += header->size;
	}
	qsort(data->places, data->n, sizeof(*data->places), compare_places);
	return data->n > 0;
}

static bool read_attrs(struct perf_data *data, const struct file_header *header)
{
	size_t attr_bytes = header->attr_size - sizeof(struct section);

	for (uint64_t at = 0;
	     at + header->attr_size <= header->attrs.size && data->n_attrs < MAX_ATTRS;
	     at += header->attr_size) {
		const uint8_t *bytes = data->bytes + header->attrs.offset + at;
		struct attr *attr = &data->attrs[data->n_attrs++];

		memcpy(&attr->attr, bytes, MIN_OF(attr_bytes, sizeof(attr->attr)));
		memcpy(&attr->ids, bytes + attr_bytes, sizeof(attr->ids));
	}
	return data->n_attrs > 0;
}

struct perf_data *perf_data_open(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct perf_data *data = calloc(1, sizeof(*data));
	const struct file_header *header;
	struct stat st;
	void *bytes;

	if (!data || fd < 0 || fstat(fd, &st) < 0 || (size_t)st.st_size < sizeof(*header)) {
		free(data);
		return NULL;
	}
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes != MAP_FAILED) {
		data->bytes = bytes;
		data->size = (size_t)st.st_size;
		header = bytes;
		if (memcmp(header->magic, "PERFILE2", 8) == 0 && read_attrs(data, header) &&
		    index_records(data, &header->data))
			return data;
	}
	perf_data_close(data);
	return NULL;
}

void perf_data_close(struct perf_data *data)
{
	if (!data)
		return;
	if (data->bytes)
		munmap((void *)data->bytes, data->size);
	free(data->places);
	free(data);
}

/* ---- Records ---- */

/* Layout: u32 pid, tid; u64 address, length, offset; MMAP2: 24 bytes of identity, u32 protection,
 * flags; path. */
static bool take_map(const struct perf_event_header *header, const uint8_t *body,
		     struct perf_data_event *event)
{
	bool is_2 = header->type == PERF_RECORD_MMAP2;

	event->kind = PERF_DATA_MAP;
	event->start = load_le64(body + 8);
	event->end = event->start + load_le64(body + 16);
	event->offset = load_le64(body + 24);
	event->path = (const char *)body + (is_2 ? 64 : 32);
	return is_2 ? load_le32(body + 56) & PROT_EXEC_BIT
		    : !(header->misc & PERF_RECORD_MISC_MMAP_DATA);
}

/* Layout of the end: u64 abi, registers, u64 size, stack, u64 valid size. Fields of variable size
 * precede it. */
static void take_sample(const struct perf_data *data, const struct perf_event_header *header,
			struct perf_data_event *event)
{
	const struct perf_event_attr *attr = attr_of(data, header);
	const uint8_t *at = (const uint8_t *)header;
	unsigned int bit;
	uint64_t room;

	event->kind = PERF_DATA_SAMPLE;
	event->in_kernel = (header->misc & PERF_RECORD_MISC_CPUMODE_MASK) ==
			   PERF_RECORD_MISC_KERNEL;
	event->pid = (int32_t)load_le32(at + sample_field(attr->sample_type, PERF_SAMPLE_TID));
	event->tid = (int32_t)load_le32(at + sample_field(attr->sample_type, PERF_SAMPLE_TID) + 4);
	at += sample_field(attr->sample_type, 0);
	if (attr->sample_type & PERF_SAMPLE_CALLCHAIN)
		at += 8 + 8 * load_le64(at);
	if (load_le64(at) != ABI_64)
		return;
	at += 8;
	for (bit = 0; bit < ARRAY_SIZE(dwarf_numbers); bit++) {
		if (!(attr->sample_regs_user >> bit & 1))
			continue;
		if (dwarf_numbers[bit] >= 0)
			event->sample.registers[dwarf_numbers[bit]] = load_le64(at);
		at += 8;
	}
	room = load_le64(at);
	if (room == 0)
		return;
	event->sample.stack = (uint8_t *)at + 8;
	event->sample.stack_size = load_le64(at + 8 + room);
	event->has_user = event->sample.stack_size > 0;
}

static bool take(const struct perf_data *data, const struct place *place,
		 struct perf_data_event *event)
{
	const struct perf_event_header *header = record_at(data, place->at);
	const uint8_t *body = (const uint8_t *)(header + 1);

	*event = (struct perf_data_event){
		.pid = (int32_t)load_le32(body),
		.tid = (int32_t)load_le32(body + 4),
		.time_ns = place->time_ns,
	};
	switch (header->type) {
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
		return take_map(header, body, event);
	case PERF_RECORD_COMM:
		event->kind = PERF_DATA_EXEC;
		event->name = (const char *)body + 8;
		event->is_exec = header->misc & PERF_RECORD_MISC_COMM_EXEC;
		return true;
	case PERF_RECORD_FORK: /* u32 pid, ppid, tid, ptid */
	case PERF_RECORD_EXIT:
		event->kind = header->type == PERF_RECORD_FORK ? PERF_DATA_FORK : PERF_DATA_EXIT;
		event->parent_pid = (int32_t)load_le32(body + 4);
		event->tid = (int32_t)load_le32(body + 8);
		return true;
	default:
		take_sample(data, header, event);
		return true;
	}
}

bool perf_data_next(struct perf_data *data, struct perf_data_event *ret_event)
{
	while (data->next < data->n)
		if (take(data, &data->places[data->next++], ret_event))
			return true;
	return false;
}

uint64_t perf_data_lost(const struct perf_data *data)
{
	return data->lost;
}
