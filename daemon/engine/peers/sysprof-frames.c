/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Sysprof frames - converts frames of sysprof's library into records of profd's own rings
 *
 * A frame has a header (length, CPU, pid, time, type) and a body of that type. All fields are in
 * native byte order and packed; texts have a fixed width and may lack their NUL. Marks, counters
 * and logs become records. Maps, forks and the like are ignored, because the side band reports them
 * better. Other frames (samples, allocations, JIT maps, files) are not converted and count as lost.
 * Names become strings of the producer, in a fixed number of slots: a name that is not in its slot
 * is defined again, so that memory does not grow with the number of names. The record of a
 * span has the time of its end, because rows are ordered by end, and sysprof also writes the frame
 * then. A record whose time is before the previous one's, or in the future, gets the nearest valid
 * time; a span keeps its duration unless it ends in the future.
 * Invariants: (1) no contents of a frame cause a read outside it
 *                 [test-engine-sysprof: short, fuzz_sysprof_frames]
 *             (2) a frame that is not ignored becomes a record or is counted
 *                 [test-engine-sysprof: refused]
 *             (3) a counter id refers only to counters of its own process
 *                 [test-engine-sysprof: counters]
 */
#include "daemon/engine/peers/sysprof-frames.h"

#include "arch/base.h"
#include "base/hash.h"

#include <string.h>

#define MAX_NAME 40
#define ARGUMENT_STRING 3u /* argument kind of struct ring_argument */
#define N_SLOTS 256u

/* String ids: one for each slot, then the message of a mark, which each mark redefines, then the
 * name of the mark's argument. */
enum { STRING_SLOTS = 1, STRING_MESSAGE = STRING_SLOTS + N_SLOTS, STRING_ARGUMENT };

struct slot {
	uint8_t n_bytes; /* 0: free */
	char text[MAX_NAME];
};

/* The definition of a counter id. */
struct definition {
	char category[32], name[32];
	uint32_t kind; /* RING_COUNTER_* flags */
};

struct sysprof_counters {
	GHashTable *definitions; /* struct definition by counter id */
};

struct sysprof_frames {
	sysprof_put put;
	void *data;
	uint64_t last_ns;
	uint64_t now_ns;
	uint64_t lost;
	GHashTable *defined; /* set of counter ids that are defined for the producer */
	bool has_argument;   /* STRING_ARGUMENT is defined */
	struct slot slots[N_SLOTS];
};

struct sysprof_counters *sysprof_counters_new(void)
{
	struct sysprof_counters *counters = g_new0(struct sysprof_counters, 1);

	counters->definitions = g_hash_table_new_full(g_direct_hash, g_direct_equal, NULL, g_free);
	return counters;
}

void sysprof_counters_free(struct sysprof_counters *counters)
{
	if (!counters)
		return;
	g_hash_table_destroy(counters->definitions);
	g_free(counters);
}

struct sysprof_frames *sysprof_frames_new(uint64_t from_ns, sysprof_put put, void *data)
{
	struct sysprof_frames *frames = g_new0(struct sysprof_frames, 1);

	frames->put = put;
	frames->data = data;
	frames->last_ns = from_ns;
	frames->defined = g_hash_table_new(g_direct_hash, g_direct_equal);
	return frames;
}

void sysprof_frames_free(struct sysprof_frames *frames)
{
	if (!frames)
		return;
	g_hash_table_destroy(frames->defined);
	g_free(frames);
}

uint64_t sysprof_frames_last_ns(const struct sysprof_frames *frames)
{
	return frames->last_ns;
}

size_t sysprof_frame_bytes(const uint8_t *frame, size_t n)
{
	const struct sysprof_frame *header = (const void *)frame;

	if (n < sizeof(*header) || header->bytes < sizeof(*header) || header->bytes % 8 != 0 ||
	    header->bytes > n)
		return 0;
	return header->bytes;
}

int32_t sysprof_frame_pid(const uint8_t *frame)
{
	const struct sysprof_frame *header = (const void *)frame;

	return header->type == SYSPROF_FRAME_END ? 0 : header->pid;
}

/* ---- Strings and times ----------------------------------------------------------------------- */

static void put(struct sysprof_frames *frames, enum ring_type type, const void *fixed,
		uint32_t n_fixed, const void *text, uint32_t n_text)
{
	frames->put(type, frames->last_ns, fixed, n_fixed, text, n_text, frames->data);
}

static void define(struct sysprof_frames *frames, uint32_t id, const char *text, size_t n)
{
	const struct ring_string string = { .id = id, .n_bytes = (uint32_t)n };

	put(frames, RING_STRING, &string, sizeof(string), text, string.n_bytes);
}

/* Hashes whole words, because the width of a field is a multiple of 8. Masks the bytes after the
 * text, which are undefined. */
static uint32_t hash_of(const char *field, size_t n)
{
	uint64_t hash = n, word;

	for (size_t i = 0; i < n; i += sizeof(word)) {
		memcpy(&word, field + i, sizeof(word));
		if (n - i < sizeof(word))
			word &= (UINT64_C(1) << 8 * (n - i)) - 1;
		hash = (hash ^ word) * HASH_ODD;
		hash ^= hash >> 32;
	}
	return (uint32_t)hash;
}

/* Returns the producer's id of the text in a field of `width` bytes; 0: empty. Valid until the next
 * text in the same slot. `avoided`: an id whose slot must be kept. */
static uint32_t name_id(struct sysprof_frames *frames, const char *field, size_t width,
			uint32_t avoided)
{
	size_t n = strnlen(field, width);
	uint32_t i = hash_of(field, n) % N_SLOTS;
	struct slot *slot;

	if (n == 0)
		return 0;
	/* The record also refers to `avoided`, so that slot must keep its text. */
	if (STRING_SLOTS + i == avoided)
		i = (i + 1) % N_SLOTS;
	slot = &frames->slots[i];
	if (slot->n_bytes != n || memcmp(slot->text, field, n) != 0) {
		slot->n_bytes = (uint8_t)n;
		memcpy(slot->text, field, n);
		define(frames, STRING_SLOTS + i, field, n);
	}
	return STRING_SLOTS + i;
}

static uint64_t positive(int64_t value)
{
	return value > 0 ? (uint64_t)value : 0;
}

/* Sets the time of the current record: at least the time of the last record, at most now. */
static void reach(struct sysprof_frames *frames, uint64_t time_ns)
{
	frames->last_ns = MIN_OF(MAX_OF(time_ns, frames->last_ns), frames->now_ns);
}

/* ---- Types ----------------------------------------------------------------------------------- */

static enum sysprof_result add_mark(struct sysprof_frames *frames,
				    struct sysprof_counters *counters, const void *frame,
				    size_t n_bytes)
{
	const struct sysprof_mark *from = frame;
	const char *message = (const char *)(from + 1);
	struct {
		struct ring_mark mark;
		struct ring_argument argument;
	} record = { .argument = { STRING_ARGUMENT, ARGUMENT_STRING, STRING_MESSAGE } };
	size_t n_message;
	uint64_t begin_ns, duration_ns;
	bool is_span;

	if (n_bytes < sizeof(*from))
		return SYSPROF_BAD;
	n_message = strnlen(message, n_bytes - sizeof(*from));
	begin_ns = positive(from->header.time_ns);
	/* Times are below 2^63, so the sum of two cannot overflow. */
	duration_ns = positive(from->duration_ns);
	/* GTK's "mapped window" gives its start in microseconds. No real span begins so early. */
	is_span = from->duration_ns > 0 && begin_ns > (begin_ns + duration_ns) / 1000;
	reach(frames, begin_ns + duration_ns);
	if (begin_ns + duration_ns > frames->now_ns)
		duration_ns = frames->last_ns - MIN_OF(begin_ns, frames->last_ns);
	record.mark.kind = is_span ? RING_MARK_COMPLETE : RING_MARK_INSTANT;
	record.mark.duration_ns = is_span ? MIN_OF(duration_ns, frames->last_ns) : 0;
	record.mark.group = name_id(frames, from->group, sizeof(from->group), 0);
	record.mark.name = name_id(frames, from->name, sizeof(from->name), record.mark.group);
	record.mark.n_arguments = n_message > 0;
	if (n_message && !frames->has_argument) {
		define(frames, STRING_ARGUMENT, "message", strlen("message"));
		frames->has_argument = true;
	}
	if (n_message)
		define(frames, STRING_MESSAGE, message, n_message);
	put(frames, RING_MARK, &record, n_message ? sizeof(record) : sizeof(record.mark), NULL, 0);
	return SYSPROF_ADDED;
}

static enum sysprof_result add_log(struct sysprof_frames *frames, struct sysprof_counters *counters,
				   const void *frame, size_t n_bytes)
{
	/* By bit of GLogLevelFlags: the levels that GLib sends to the journal. */
	static const uint8_t levels[] = { [2] = 3, [3] = 4, [4] = 4, [5] = 5, [6] = 6, [7] = 7 };
	const struct sysprof_log *from = frame;
	const char *message = (const char *)(from + 1);
	struct ring_log log = { 0 };
	uint32_t flags;

	if (n_bytes < sizeof(*from))
		return SYSPROF_BAD;
	reach(frames, positive(from->header.time_ns));
	flags = from->level & 0xfcu;
	log.level = flags ? levels[__builtin_ctz(flags)] : 6;
	log.domain = name_id(frames, from->domain, sizeof(from->domain), 0);
	log.n_bytes = (uint32_t)strnlen(message, n_bytes - sizeof(*from));
	put(frames, RING_LOG, &log, sizeof(log), message, log.n_bytes);
	return SYSPROF_ADDED;
}

/* A definition has only the low 24 bits of the counter number, a value has all 32. The library
 * counts from 1, or from the pid shifted left by 16, so the low 24 bits may be 0. Ids in a ring
 * must not be 0. */
static uint32_t counter_number(uint32_t id)
{
	return (id & 0xffffff) | 1u << 24;
}

static void put_counter(struct sysprof_frames *frames, uint32_t id,
			const struct definition *definition)
{
	struct ring_counter counter = { .id = id, .kind = definition->kind };

	counter.group = name_id(frames, definition->category, sizeof(definition->category), 0);
	counter.name = name_id(frames, definition->name, sizeof(definition->name), counter.group);
	put(frames, RING_COUNTER, &counter, sizeof(counter), NULL, 0);
	g_hash_table_add(frames->defined, GUINT_TO_POINTER(id));
}

static bool define_counter(struct sysprof_frames *frames, struct sysprof_counters *counters,
			   const struct sysprof_counter *from)
{
	uint32_t id = counter_number(from->id_and_type), type = from->id_and_type >> 24;
	gpointer key = GUINT_TO_POINTER(id);
	struct definition *definition;

	if (type > 1 || g_hash_table_size(frames->defined) >= SYSPROF_MAX_COUNTERS ||
	    (g_hash_table_size(counters->definitions) >= SYSPROF_MAX_COUNTERS &&
	     !g_hash_table_contains(counters->definitions, key)))
		return false;
	definition = g_new0(struct definition, 1);
	memcpy(definition->category, from->category, sizeof(definition->category));
	memcpy(definition->name, from->name, sizeof(definition->name));
	definition->kind = type == 1 ? RING_COUNTER_DOUBLE : 0;
	g_hash_table_replace(counters->definitions, key, definition);
	put_counter(frames, id, definition);
	return true;
}

static enum sysprof_result add_counters(struct sysprof_frames *frames,
					struct sysprof_counters *counters, const void *frame,
					size_t n_bytes)
{
	const struct sysprof_list *list = frame;
	const struct sysprof_counter *from = (const void *)(list + 1);

	if (n_bytes < sizeof(*list) || list->n > (n_bytes - sizeof(*list)) / sizeof(*from))
		return SYSPROF_BAD;
	reach(frames, positive(list->header.time_ns));
	for (uint32_t i = 0; i < list->n; i++)
		frames->lost += !define_counter(frames, counters, &from[i]);
	return frames->lost ? SYSPROF_REFUSED : SYSPROF_ADDED;
}

/* Sets a counter. If the thread has not defined it, uses another thread's definition. Returns false
 * if no thread has defined the counter, or if there is no room. */
static bool set_counter(struct sysprof_frames *frames, struct sysprof_counters *counters,
			uint32_t id, uint64_t value)
{
	const struct ring_counter_value set = { .id = id, .value = value };
	gpointer key = GUINT_TO_POINTER(id);

	if (!g_hash_table_contains(frames->defined, key)) {
		const struct definition *definition =
			g_hash_table_lookup(counters->definitions, key);

		if (!definition || g_hash_table_size(frames->defined) >= SYSPROF_MAX_COUNTERS)
			return false;
		put_counter(frames, id, definition);
	}
	put(frames, RING_COUNTER_VALUE, &set, sizeof(set), NULL, 0);
	return true;
}

static enum sysprof_result add_values(struct sysprof_frames *frames,
				      struct sysprof_counters *counters, const void *frame,
				      size_t n_bytes)
{
	const struct sysprof_list *list = frame;
	const struct sysprof_values *groups = (const void *)(list + 1);

	if (n_bytes < sizeof(*list) || list->n > (n_bytes - sizeof(*list)) / sizeof(*groups))
		return SYSPROF_BAD;
	reach(frames, positive(list->header.time_ns));
	for (uint32_t i = 0; i < list->n; i++)
		for (size_t k = 0; k < SYSPROF_GROUP; k++)
			if (groups[i].ids[k] != 0)
				frames->lost += !set_counter(frames, counters,
							     counter_number(groups[i].ids[k]),
							     groups[i].values[k]);
	return frames->lost ? SYSPROF_REFUSED : SYSPROF_ADDED;
}

static enum sysprof_result ignore(struct sysprof_frames *frames, struct sysprof_counters *counters,
				  const void *frame, size_t n_bytes)
{
	return SYSPROF_ADDED;
}

static enum sysprof_result (*const adders[SYSPROF_FRAME_LAST + 1])(struct sysprof_frames *,
								   struct sysprof_counters *,
								   const void *, size_t) = {
	[SYSPROF_FRAME_TIMESTAMP] = ignore,  [SYSPROF_FRAME_MAP] = ignore,
	[SYSPROF_FRAME_PROCESS] = ignore,    [SYSPROF_FRAME_FORK] = ignore,
	[SYSPROF_FRAME_EXIT] = ignore,       [SYSPROF_FRAME_COUNTERS] = add_counters,
	[SYSPROF_FRAME_VALUES] = add_values, [SYSPROF_FRAME_MARK] = add_mark,
	[SYSPROF_FRAME_LOG] = add_log,
};

enum sysprof_result sysprof_frame_add(struct sysprof_frames *frames,
				      struct sysprof_counters *counters, const uint8_t *frame,
				      size_t n_bytes, uint64_t now_ns, uint64_t *ret_lost)
{
	uint8_t type = ((const struct sysprof_frame *)(const void *)frame)->type;
	enum sysprof_result result = SYSPROF_REFUSED;

	*ret_lost = 0;
	if (type == 0)
		return SYSPROF_BAD;
	if (type == SYSPROF_FRAME_END)
		return SYSPROF_END;
	frames->now_ns = MAX_OF(now_ns, frames->last_ns);
	frames->lost = 0;
	if (type <= SYSPROF_FRAME_LAST && adders[type])
		result = adders[type](frames, counters, frame, n_bytes);
	else
		frames->lost = 1;
	*ret_lost = frames->lost;
	return result;
}
