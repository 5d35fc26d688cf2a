/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * JIT frames - unwind tables of generated code, from a file that the program writes
 *
 * A program that generates code may describe it in a file, jit-PID.dump, which grows while the
 * program runs. A function may be preceded by its .eh_frame section. The worker reads what was
 * appended and makes a table for each function; the drain thread receives all functions at once,
 * sorted by address. If two functions overlap, the one later in the file replaces the other. A
 * function that was moved keeps its table. Times are ignored, because a stack is unwound soon after
 * its sample was taken. The file's writer may be hostile.
 * Invariants:
 *      (1) nothing in the file is trusted: lengths are checked, work is linear except for sorting
 *          [fuzz_jit_frames]
 *      (2) the tables of a session share a memory limit  [test-engine-jit: limit]
 *      (3) a partly written record is read once it is complete
 *          [test-engine-jit: growing]
 * Threads: `received` belongs to the drain thread. `made` belongs to the worker during a job, else
 * to the drain thread. Everything else belongs to the worker.
 */
#include "daemon/engine/unwind/jit-frames.h"

#include "arch/jit-dump.h"
#include "base/order.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_BYTES 64u              /* more than the size of the header */
#define READ_BYTES (1u << 20)        /* per read */
#define MAX_RECORD_BYTES (16u << 20) /* a larger record ends the reading */
#define MAX_FUNCTIONS (1u << 18)

struct made_table {
	struct unwind_table table;
	void *bytes;
};

struct jit_function {
	uint64_t address, size;
	uint64_t made_at; /* address for which `table` was made */
	uint64_t order;   /* number of its record in the file */
	const struct made_table *table;
};

struct jit_frames {
	int fd; /* -1: nothing more will be read */
	uint64_t offset;
	struct jit_dump dump; /* parsed header; `bytes` is invalid: only copies have a buffer */
	uint64_t n_read;
	uint8_t *eh_frame; /* .eh_frame of the next load; NULL: none */
	size_t eh_frame_bytes;
	GPtrArray *tables;       /* struct made_table; freed with this object */
	GArray *functions;       /* struct jit_function, by address; they do not overlap */
	GArray *made, *received; /* copies of `functions` for the drain thread; NULL: none */
};

/* The functions added by one reading, in the order of the file. */
struct added {
	GArray *functions;
	GHashTable *by_address; /* index + 1 of the last function at each address */
};

static ssize_t read_at(int fd, void *buffer, size_t size, uint64_t offset)
{
	ssize_t n;

	do {
		n = pread(fd, buffer, size, (off_t)offset);
	} while (n < 0 && errno == EINTR);
	return n;
}

static void free_table(gpointer data)
{
	struct made_table *made = data;

	free(made->bytes);
	g_free(made);
}

struct jit_frames *jit_frames_new(int fd)
{
	uint8_t header[FIRST_BYTES];
	ssize_t n = read_at(fd, header, sizeof(header), 0);
	struct jit_frames *frames;
	struct jit_dump dump;

	if (n <= 0 || !jit_dump_open(&dump, header, (size_t)n) || dump.swapped)
		return NULL;
	frames = g_new0(struct jit_frames, 1);
	frames->fd = fd;
	frames->offset = dump.at;
	frames->dump = dump;
	frames->tables = g_ptr_array_new_with_free_func(free_table);
	frames->functions = g_array_new(FALSE, FALSE, sizeof(struct jit_function));
	return frames;
}

static void end_reading(struct jit_frames *frames)
{
	if (frames->fd >= 0)
		close(frames->fd);
	frames->fd = -1;
}

void jit_frames_free(struct jit_frames *frames)
{
	if (!frames)
		return;
	end_reading(frames);
	g_free(frames->eh_frame);
	g_ptr_array_free(frames->tables, TRUE);
	g_array_free(frames->functions, TRUE);
	g_clear_pointer(&frames->made, g_array_unref);
	g_clear_pointer(&frames->received, g_array_unref);
	g_free(frames);
}

/* ---- The worker ------------------------------------------------------------------------------ */

static void *resize(void *data, void *block, size_t old_bytes, size_t new_bytes)
{
	if (new_bytes > 0)
		return realloc(block, new_bytes);
	free(block);
	return NULL;
}

/* Returns NULL if no table can be made, or if it would take more than max_bytes. */
static struct made_table *make_table(const struct jit_frames *frames,
				     const struct jit_dump_entry *load, uint64_t max_bytes,
				     size_t *ret_bytes)
{
	static const struct table_memory memory = { .resize = resize };
	const struct cfi_section section = {
		.bytes = frames->eh_frame,
		.size = frames->eh_frame_bytes,
		.address = jit_dump_eh_frame_address(load->address, load->size),
		.arch = REGS_NATIVE,
	};
	const struct table_source source = {
		.sections = &section,
		.n_sections = 1,
		.low = load->address,
		.high = load->address + load->size,
		.max_bytes = max_bytes,
	};
	struct made_table made;

	if (table_build(&source, &memory, &made.bytes, ret_bytes) != 0)
		return NULL;
	if (table_init(&made.table, made.bytes, *ret_bytes) != 0) {
		free(made.bytes);
		return NULL;
	}
	return g_memdup2(&made, sizeof(made));
}

/* Returns the last of the sorted functions that begins at or before the address, or NULL. */
static const struct jit_function *find_function(const GArray *functions, uint64_t address)
{
	guint low = 0, high = functions ? functions->len : 0;

	while (low < high) {
		guint middle = low + (high - low) / 2;

		if (g_array_index(functions, struct jit_function, middle).address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 ? &g_array_index(functions, struct jit_function, low - 1) : NULL;
}

static void add(struct added *added, const struct jit_function *function)
{
	g_array_append_val(added->functions, *function);
	/* index + 1, because 0 means none */
	g_hash_table_insert(added->by_address, GSIZE_TO_POINTER(function->address),
			    GUINT_TO_POINTER(added->functions->len));
}

static uint64_t add_load(struct jit_frames *frames, const struct jit_dump_entry *load,
			 uint64_t max_bytes, struct added *added)
{
	struct jit_function function = { load->address, load->size, load->address, frames->n_read,
					 NULL };
	struct made_table *made = NULL;
	size_t bytes = 0;

	if (frames->eh_frame && max_bytes > sizeof(*made))
		made = make_table(frames, load, max_bytes, &bytes);
	g_clear_pointer(&frames->eh_frame, g_free);
	if (made)
		g_ptr_array_add(frames->tables, made);
	function.table = made;
	/* A function without a table is also added, because it replaces those that it overlaps. */
	if (made || frames->tables->len > 0)
		add(added, &function);
	return made ? bytes + sizeof(*made) : 0;
}

static void add_move(struct jit_frames *frames, const struct jit_dump_entry *move,
		     struct added *added)
{
	guint place = GPOINTER_TO_UINT(
		g_hash_table_lookup(added->by_address, GSIZE_TO_POINTER(move->from)));
	const struct jit_function *from =
		place ? &g_array_index(added->functions, struct jit_function, place - 1)
		      : find_function(frames->functions, move->from);
	struct jit_function function;

	if (!from || from->address != move->from)
		return;
	function = *from;
	if (move->address > UINT64_MAX - function.size)
		return;
	function.address = move->address;
	function.order = frames->n_read;
	add(added, &function);
}

static uint64_t receive_entries(struct jit_frames *frames, struct jit_dump *dump,
				uint64_t max_bytes, struct added *added)
{
	struct jit_dump_entry entry;
	uint64_t bytes = 0;

	while (jit_dump_next(dump, &entry)) {
		frames->n_read++;
		if (entry.kind == JIT_DUMP_UNWINDING) {
			g_free(frames->eh_frame);
			/* g_memdup2() returns NULL for 0 bytes. */
			frames->eh_frame = g_memdup2(entry.eh_frame, entry.eh_frame_bytes);
			frames->eh_frame_bytes = entry.eh_frame_bytes;
		} else if (entry.kind == JIT_DUMP_LOAD) {
			bytes += add_load(frames, &entry, max_bytes - MIN_OF(bytes, max_bytes),
					  added);
		} else if (entry.kind == JIT_DUMP_MOVE) {
			add_move(frames, &entry, added);
		}
	}
	return bytes;
}

COMPARE_BY(compare_functions, struct jit_function, ORDER(a->address, b->address),
	   ORDER(a->order, b->order))

/* Adds functions, and removes older ones that they overlap. */
static void merge(struct jit_frames *frames, const GArray *added)
{
	GArray *all = frames->functions;
	guint kept = 0;

	g_array_append_vals(all, added->data, added->len);
	g_array_sort(all, compare_functions);
	for (guint i = 0; i < all->len; i++) {
		struct jit_function *next = &g_array_index(all, struct jit_function, i);
		struct jit_function *last = NULL;

		while (kept > 0) {
			last = &g_array_index(all, struct jit_function, kept - 1);
			if (next->address - last->address >= last->size ||
			    last->order > next->order)
				break;
			kept--;
			last = NULL;
		}
		if (last && next->address - last->address < last->size)
			continue;
		g_array_index(all, struct jit_function, kept++) = *next;
	}
	g_array_set_size(all, MIN_OF(kept, MAX_FUNCTIONS));
}

/* Continues to read after the last whole record. Returns false if nothing more can be read, now or
 * ever. */
static bool read_some(struct jit_frames *frames, uint8_t **buffer, size_t *size, uint64_t max_bytes,
		      uint64_t *bytes, struct added *added)
{
	ssize_t n = read_at(frames->fd, *buffer, *size, frames->offset);
	struct jit_dump dump = frames->dump;

	if (n <= 0) {
		if (n < 0)
			end_reading(frames);
		return false;
	}
	dump.bytes = *buffer;
	dump.size = (size_t)n;
	dump.at = 0;
	*bytes += receive_entries(frames, &dump, max_bytes - MIN_OF(*bytes, max_bytes), added);
	frames->offset += dump.at;
	if (dump.at > 0)
		return true;
	if ((size_t)n < *size)
		return false; /* the end of the record is not written yet */
	if (*size >= MAX_RECORD_BYTES) {
		end_reading(frames);
		return false;
	}
	*size *= 2;
	*buffer = g_realloc(*buffer, *size);
	return true;
}

uint64_t jit_frames_read(struct jit_frames *frames, uint64_t max_bytes)
{
	g_autoptr(GArray) functions = g_array_new(FALSE, FALSE, sizeof(struct jit_function));
	g_autoptr(GHashTable) by_address = g_hash_table_new(g_direct_hash, g_direct_equal);
	struct added added = { functions, by_address };
	size_t size = READ_BYTES;
	uint8_t *buffer = g_malloc(size);
	uint64_t bytes = 0;

	while (frames->fd >= 0 && functions->len + frames->functions->len < MAX_FUNCTIONS &&
	       read_some(frames, &buffer, &size, max_bytes, &bytes, &added))
		;
	g_free(buffer);
	if (functions->len == 0)
		return 0;
	merge(frames, functions);
	g_clear_pointer(&frames->made, g_array_unref);
	frames->made = g_array_copy(frames->functions);
	return bytes;
}

/* ---- The drain thread ------------------------------------------------------------------------ */

bool jit_frames_receive(struct jit_frames *frames)
{
	if (!frames->made)
		return false;
	g_clear_pointer(&frames->received, g_array_unref);
	frames->received = steal_ptr(&frames->made);
	return true;
}

const struct unwind_table *jit_frames_find(const struct jit_frames *frames, uint64_t pc,
					   uint64_t *ret_address)
{
	const struct jit_function *function = find_function(frames->received, pc);

	if (!function || !function->table || pc - function->address >= function->size)
		return NULL;
	*ret_address = pc - function->address + function->made_at;
	return &function->table->table;
}
