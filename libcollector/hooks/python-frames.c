/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Python frames - the Python functions that the calling thread executes
 *
 * The interpreter keeps a list of the thread's frames, which is walked in the same way as by the
 * BPF program for samples (daemon/broker/bpf/cpython.bpf.c).
 *
 * If the thread holds the interpreter's lock, the list is what the interpreter itself would follow
 * now, and is loaded directly; tracemalloc does the same at each allocation. In a free-threaded
 * build, each thread that executes Python counts as holding the lock: no other thread changes its
 * list, which keeps its code objects alive. The list may be in the middle of a change only if a
 * signal interrupted that change. A thread without the lock reads the same list through
 * safe-read.c, because its state may have been released at the interpreter's end. The ranges that
 * the last such walk read are read with one system call, since most are needed again. errno does
 * not change.
 * Invariants: (1) memory is loaded directly only with the lock, and outside of signal handlers
 *                 [test-python-walk: unlocked]
 *             (2) the work is bounded, whatever the list contains  [test-python-walk: endless]
 *             (3) a list that contradicts itself is not returned  [test-python-walk: torn]
 *             (4) without the lock, nothing faults, whatever is in memory  [fuzz_python_frames]
 */
#include "libcollector/hooks/python-frames.h"

#include "arch/cpu.h"
#include "arch/regs.h"
#include "base/hash.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>

/* maximum number of frames that a walk with the lock examines */
#define MAX_STEPS (8 * PYTHON_MAX_FRAMES)
#define MAX_KEYS 1024u /* PTHREAD_KEYS_MAX of glibc */
#define FRAME_BYTES 112u
#define CODE_BYTES 160u
#define MAX_NAME 511u
#define MAX_FILE 1023u
#define MAX_LINES 8191u
#define FINAL_RELEASE 15 /* in Py_Version */
/* A walk without the lock may take a system call for each part of a frame. */
#define CAREFUL_FRAMES 128u
#define CAREFUL_STEPS (2 * CAREFUL_FRAMES + 1)
#define STATE_BYTES 4096 /* at least the size of a thread's state */
/* bits that are not set in the address of an object */
#define NO_OBJECT (~(UINT64_MAX >> 17) | 7u)
/* The walk is compiled twice, because the direct one must be fast. */
#define INLINE inline __attribute__((always_inline))

struct python_interpreter python_interpreter;
const char *python_unread;

/* ---- The interpreter ------------------------------------------------------------------------- */

/* Returns the minor version; 0 if it is not known. */
static unsigned find_minor(void)
{
	/* Versions before 3.11 are recognized by the functions that they have. */
	static const struct {
		const char *name;
		unsigned minor;
	} since[] = { { "Py_IsTrue", 10 },
		      { "PyObject_CallNoArgs", 9 },
		      { "PyConfig_InitPythonConfig", 8 } };
	const unsigned long *version = dlsym(RTLD_DEFAULT, "Py_Version");

	/* Structures may still change before the release. */
	if (version)
		return *version >> 24 == 3 && (*version >> 4 & 15) == FINAL_RELEASE
			       ? *version >> 16 & 255
			       : 0;
	for (size_t i = 0; i < ARRAY_SIZE(since); i++)
		if (dlsym(RTLD_DEFAULT, since[i].name))
			return since[i].minor;
	return 0;
}

void python_find(void)
{
	struct python_interpreter found = {
		.runtime = (uintptr_t)dlsym(RTLD_DEFAULT, "_PyRuntime"),
	};
	const struct interp_cpython *layout;
	const ElfW(Sym) *symbol = NULL;
	unsigned minor = find_minor();
	Dl_info info;
	void *eval, *get_thread;

	if (found.runtime == 0)
		return;
	if (minor >= CPYTHON_FIRST_DEBUG_MINOR)
		minor = cpython_build(minor, (const __u64 *)(uintptr_t)found.runtime);
	found.code_type = (uintptr_t)dlsym(RTLD_DEFAULT, "PyCode_Type");
	eval = dlsym(RTLD_DEFAULT, "_PyEval_EvalFrameDefault");
	get_thread = dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked");
	if (!get_thread)
		get_thread = dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet");
	layout = cpython_layout(minor);
	python_unread = layout ? "another build than is supported"
			       : "another version than is supported";
	/* The layouts are those of builds for x86-64. */
	if (!layout || REGS_NATIVE != REGS_X86_64 || found.code_type == 0 || !eval ||
	    !dladdr1(eval, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
		return;
	if (minor >= CPYTHON_FIRST_DEBUG_MINOR &&
	    !cpython_offsets_agree(layout, (const __u64 *)(uintptr_t)found.runtime))
		return;
	found.eval = (uintptr_t)eval;
	found.eval_end = found.eval + symbol->st_size;
	if (layout->runtime_current == INTERP_ABSENT) {
		if (!get_thread)
			return;
		memcpy(&found.get_thread, &get_thread, sizeof(get_thread));
	}
	found.layout = layout;
	python_unread = NULL;
	python_interpreter = found;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Reads the ranges that the last walk read, with one system call. */
static void read_ahead(struct python_memory *memory)
{
	size_t size = 0, n = 0, got;

	for (; n < memory->n_ranges; n++) {
		if (memory->ranges[n].iov_len > sizeof(memory->bytes) - size)
			break;
		size += memory->ranges[n].iov_len;
	}
	got = n > 0 && memory->may_call
		      ? safe_read_ranges(&memory->safe, memory->ranges, n, memory->bytes, size)
		      : 0;
	memory->n_valid = memory->n_used = 0;
	for (size = 0; memory->n_valid < n; memory->n_valid++) {
		size += memory->ranges[memory->n_valid].iov_len;
		if (size > got)
			break;
	}
	memory->n_read = 0;
}

/* Returns the bytes at an address, which were read ahead, or are copied into `buffer`; NULL if they
 * cannot be read. */
static const uint8_t *fetch(struct python_memory *memory, uint64_t at, size_t size, uint8_t *buffer)
{
	const uint8_t *known = memory->bytes + memory->n_read;
	const uint32_t i = memory->n_used;
	struct iovec *range = &memory->ranges[i < PYTHON_RANGES ? i : 0];

	if (i < memory->n_valid && range->iov_base == (void *)(uintptr_t)at &&
	    range->iov_len == size) {
		memory->n_used++;
		memory->n_read += size;
		return known;
	}
	/* From here on, the list differs from the one that was read ahead. */
	memory->n_valid = 0;
	if (!memory->may_call || !safe_read(&memory->safe, at, buffer, size))
		return NULL;
	if (i < PYTHON_RANGES) {
		*range = (struct iovec){ (void *)(uintptr_t)at, size };
		memory->n_used++;
		memory->n_ranges = MAX_OF(memory->n_ranges, memory->n_used);
	}
	return buffer;
}

/* Returns the bytes at an address: in place if `is_direct`, or copied into `buffer`. Returns NULL
 * if they cannot be read, or if no object can be there. */
static INLINE const uint8_t *view(struct python_memory *memory, bool is_direct, uint64_t at,
				  size_t size, uint8_t *buffer)
{
	if (__builtin_expect((at & NO_OBJECT) != 0 || at < SAFE_READ_PAGE, 0))
		return NULL;
	if (is_direct)
		return (const uint8_t *)(uintptr_t)at;
	return fetch(memory, at, size, buffer);
}

__attribute__((no_sanitize("address"))) static INLINE uint64_t word_at(const uint8_t *bytes,
								       unsigned offset)
{
	return *(const volatile uint64_t *)(const void *)(bytes + offset);
}

__attribute__((no_sanitize("address"))) static INLINE uint32_t half_at(const uint8_t *bytes,
								       unsigned offset)
{
	return *(const volatile uint32_t *)(const void *)(bytes + offset);
}

__attribute__((no_sanitize("address"))) static INLINE uint8_t byte_at(const uint8_t *bytes,
								      unsigned offset)
{
	return *(const volatile uint8_t *)(bytes + offset);
}

static INLINE bool read_word(struct python_memory *memory, bool is_direct, uint64_t at,
			     uint64_t *ret_word)
{
	uint64_t buffer;
	const uint8_t *bytes = view(memory, is_direct, at, sizeof(buffer), (uint8_t *)&buffer);

	if (!bytes)
		return false;
	*ret_word = word_at(bytes, 0);
	return true;
}

/* ---- The list -------------------------------------------------------------------------------- */

/* Returns this thread's state in the interpreter, or 0 if the thread has none. Sets is_direct if
 * the thread holds the lock. Does not call the interpreter in a signal handler (`stack` is NULL),
 * because the call may make the loader allocate the thread's variable. */
static uint64_t find_thread(struct python_memory *memory, const struct python_stack *stack)
{
	const struct interp_cpython *layout = python_interpreter.layout;
	const uint8_t *runtime = (const uint8_t *)(uintptr_t)python_interpreter.runtime;
	const uint32_t is_set = half_at(runtime, layout->runtime_tss),
		       key = half_at(runtime, layout->runtime_tss + 4u);
	uint64_t state, current, id;

	if (stack && python_interpreter.get_thread) {
		current = (uintptr_t)python_interpreter.get_thread();
		memory->is_direct = current != 0;
		if (current)
			return current;
	}
	if (!is_set || key >= MAX_KEYS)
		return 0;
	state = (uintptr_t)pthread_getspecific(key);
	if (!state || python_interpreter.get_thread)
		return state;
	current = word_at(runtime, layout->runtime_current);
	/* Another thread may hold the lock with this state, but not while this thread evaluates. */
	memory->is_direct = current == state && stack && stack->evaluates;
	/* The thread may hold the lock for another interpreter, with the state `current`. Read that
	 * state through safe-read.c, because another thread's state may be released meanwhile. */
	if (current == state || !current || !memory->may_call ||
	    !safe_read(&memory->safe, current + layout->thread_id, &id, sizeof(id)) ||
	    id != cpu_thread_pointer())
		return state;
	return current;
}

struct python_walk {
	struct python_chain *chain;
	const struct python_stack *stack;
	uint64_t thread, frame, cframe;
};

static bool fail(struct python_walk *walk)
{
	walk->chain->is_unreadable = true;
	return false;
}

/* Returns whether an activation (3.11's _PyCFrame) can be at this address: with `is_direct`, only
 * on the thread's stack or in the thread's state. An activation that longjmp() left may be on a
 * stack that was unmapped. */
static INLINE bool is_activation(const struct python_walk *walk, bool is_direct, uint64_t at)
{
	return !is_direct || at - walk->thread < STATE_BYTES ||
	       (at >= walk->stack->low && at < walk->stack->high);
}

/* Marks the last frame as the outermost of its run. */
static INLINE void end_run(struct python_walk *walk, uint64_t at)
{
	struct python_chain *chain = walk->chain;
	struct python_frame *last = &chain->frames[chain->n > 0 ? chain->n - 1 : 0];

	if (chain->n == 0 || last->ends_run)
		return;
	last->ends_run = true;
	last->at = at;
	chain->hash = hash_words(chain->hash, at);
}

/* 3.11: the frame is the outermost of its activation. Its caller must be the current frame of the
 * previous activation. */
static INLINE bool end_entry(struct python_walk *walk, bool is_direct)
{
	const struct interp_cpython *layout = python_interpreter.layout;
	struct python_memory *memory = &walk->chain->memory;
	uint64_t previous = 0, top = 0;

	end_run(walk, walk->cframe);
	if (!read_word(memory, is_direct, walk->cframe + layout->cframe_previous, &previous) ||
	    (previous != 0 &&
	     (!is_activation(walk, is_direct, previous) ||
	      !read_word(memory, is_direct, previous + layout->cframe_frame, &top) ||
	      top != walk->frame)))
		return fail(walk);
	walk->cframe = previous;
	return true;
}

/* An object without references is being freed. In a free-threaded build, 32 bits count the
 * references by the object's own thread; the next word counts those by other threads, above two
 * flag bits. */
static INLINE bool is_referenced(const struct interp_cpython *layout, const uint8_t *object)
{
	return layout->minor < CPYTHON_FREE_THREADED
		       ? word_at(object, 0) != 0
		       : half_at(object, 12) != 0 || word_at(object, 16) >> 2 != 0;
}

/* Converts the frame's position in the thread's copy of the bytecode to the position in the code
 * object, which has `size` instructions. Checks the result, because a signal handler may interrupt
 * the thread when only one of a frame's copy and position has changed. */
static INLINE bool leave_copy(struct python_walk *walk, bool is_direct, struct python_frame *frame,
			      uint32_t index, uint64_t size)
{
	const struct interp_cpython *layout = python_interpreter.layout;
	struct python_memory *memory = &walk->chain->memory;
	uint64_t copies, copy = frame->code + layout->code_start;

	if (index != 0 &&
	    (!read_word(memory, is_direct, frame->code + layout->code_copies, &copies) ||
	     !read_word(memory, is_direct, copies + 8 + UINT64_C(8) * index, &copy)))
		return false;
	frame->position -= (uint32_t)copy - (uint32_t)frame->code - layout->code_start;
	return frame->position - layout->code_start < 2 * size;
}

/* Identifies a code object by the same fields as the BPF program. The name is interned, so its hash
 * is always stored. A module's code object may be at the address of an earlier module's, with the
 * same name, first line and table of lines; but the file differs, and usually the size. */
static INLINE bool identify(struct python_walk *walk, bool is_direct, struct python_frame *frame,
			    uint32_t copy)
{
	const struct interp_cpython *layout = python_interpreter.layout;
	struct python_memory *memory = &walk->chain->memory;
	uint8_t buffer[CODE_BYTES];
	const uint8_t *code = view(memory, is_direct, frame->code, sizeof(buffer), buffer);
	uint64_t hash, lines;

	if (!code || !is_referenced(layout, code) ||
	    word_at(code, layout->object_type) != python_interpreter.code_type ||
	    !read_word(memory, is_direct,
		       word_at(code, layout->code_name) + CPYTHON_TEXT_HASH(layout), &hash))
		return fail(walk);
	if (layout->frame_copy != INTERP_ABSENT &&
	    !leave_copy(walk, is_direct, frame, copy, word_at(code, CPYTHON_SIZE(layout))))
		return fail(walk);
	frame->first_line = half_at(code, layout->code_first_line);
	lines = word_at(code, layout->code_lines);
	hash = hash_words(hash ^ word_at(code, CPYTHON_SIZE(layout)),
			  word_at(code, layout->code_file));
	frame->identity = hash_words(frame->code ^ hash, lines ^ (uint64_t)frame->first_line << 48);
	return true;
}

/* Reads one frame. Returns false at the end, or if the list is unreadable. */
static INLINE bool step(struct python_walk *walk, bool is_direct)
{
	const struct interp_cpython *layout = python_interpreter.layout;
	struct python_chain *chain = walk->chain;
	const uint64_t at = walk->frame;
	uint8_t buffer[FRAME_BYTES], owner = 0;
	const uint8_t *bytes = view(&chain->memory, is_direct, at, sizeof(buffer), buffer);
	struct python_frame *frame;

	if (!bytes)
		return fail(walk);
	walk->frame = word_at(bytes, layout->frame_previous);
	if (layout->frame_owner != INTERP_ABSENT)
		owner = byte_at(bytes, layout->frame_owner);
	if (owner >= 3 && layout->frame_is_entry == INTERP_ABSENT) {
		/* Since 3.12, a frame on the C stack ends a run. */
		end_run(walk, at);
		return true;
	}
	if (chain->n == (is_direct ? PYTHON_MAX_FRAMES : CAREFUL_FRAMES)) {
		chain->is_cut = true;
		/* Frames that do not fit are searched only for the end of the last run. */
		if (layout->frame_is_entry != INTERP_ABSENT &&
		    byte_at(bytes, layout->frame_is_entry))
			end_run(walk, walk->cframe);
		return !chain->frames[chain->n - 1].ends_run;
	}
	frame = &chain->frames[chain->n];
	/* The lowest bits may be a tag. */
	frame->code = word_at(bytes, layout->frame_code) & ~UINT64_C(3);
	frame->ends_run = false;
	frame->position = half_at(bytes, layout->frame_position);
	if (layout->code_start != INTERP_ABSENT)
		frame->position -= (uint32_t)frame->code;
	if (!identify(walk, is_direct, frame,
		      layout->frame_copy != INTERP_ABSENT ? half_at(bytes, layout->frame_copy) : 0))
		return false;
	chain->hash = hash_words(chain->hash ^ frame->identity, frame->position);
	chain->n++;
	if (layout->frame_owner == INTERP_ABSENT)
		end_run(walk, 0);
	else if (layout->frame_is_entry != INTERP_ABSENT && byte_at(bytes, layout->frame_is_entry))
		return end_entry(walk, is_direct);
	return true;
}

static INLINE void read_list(struct python_walk *walk, bool is_direct)
{
	const uint64_t thread = walk->thread;
	const struct interp_cpython *layout = python_interpreter.layout;
	struct python_memory *memory = &walk->chain->memory;
	bool is_read;

	if (layout->thread_cframe != INTERP_ABSENT)
		is_read = read_word(memory, is_direct, thread + layout->thread_cframe,
				    &walk->cframe) &&
			  is_activation(walk, is_direct, walk->cframe) &&
			  read_word(memory, is_direct, walk->cframe + layout->cframe_frame,
				    &walk->frame);
	else
		is_read = read_word(memory, is_direct, thread + layout->thread_frame, &walk->frame);
	if (!is_read)
		fail(walk);
	for (uint32_t i = 0; is_read && walk->frame != 0; i++) {
		if (i == (is_direct ? MAX_STEPS : CAREFUL_STEPS)) {
			walk->chain->is_cut = true;
			break;
		}
		if (!step(walk, is_direct))
			break;
	}
}

static void read_carefully(struct python_walk *walk)
{
	struct python_memory *memory = &walk->chain->memory;

	read_ahead(memory);
	read_list(walk, false);
	memory->n_ranges = memory->n_used;
	memory->n_valid = 0;
}

void python_walk(struct python_chain *chain, const struct python_stack *stack, bool may_call)
{
	struct python_walk walk = { .chain = chain, .stack = stack };
	struct python_memory *memory = &chain->memory;
	int error = errno;

	memory->safe = (struct safe_read){ .way = SAFE_READ_UNKNOWN };
	memory->may_call = may_call;
	memory->is_direct = false;
	memory->n_valid = memory->n_used = 0;
	chain->n = 0;
	chain->is_cut = chain->is_unreadable = false;
	chain->hash = 0;
	walk.thread = find_thread(memory, stack);
	if (walk.thread && memory->is_direct)
		read_list(&walk, true);
	else if (walk.thread)
		read_carefully(&walk);
	errno = error;
	/* An unreadable list must not have the hash of another list. */
	if (chain->is_unreadable) {
		chain->n = 0;
		chain->hash = 1;
	}
}

/* ---- Code objects ---------------------------------------------------------------------------- */

/* Measures a str object. Returns the number of its bytes to copy; 0: none, or they cannot be
 * read. */
static uint16_t measure_text(struct python_memory *memory, uint64_t object, size_t max,
			     uint64_t *ret_at, uint8_t *ret_width, bool *ret_is_cut)
{
	const struct interp_cpython *layout = python_interpreter.layout;
	uint8_t buffer[32]; /* type, length, hash, state */
	const uint8_t *head = view(memory, memory->is_direct, object + layout->object_type,
				   sizeof(buffer), buffer);
	uint32_t state, width;
	uint64_t n;

	*ret_width = 0;
	*ret_is_cut = false;
	if (!head)
		return 0;
	n = word_at(head, 8);
	state = cpython_text_state(half_at(head, 24));
	width = state & 7;
	/* The characters of a string that is not compact, such as an instance of a subclass of str,
	 * are elsewhere, and are not read. */
	if ((state >> 3 & 1) == 0)
		return 0;
	if (width != 1 && width != 2 && width != 4)
		return 0;
	*ret_width = (uint8_t)width;
	*ret_is_cut = n > max / width;
	*ret_at = object + (state >> 4 & 1 ? layout->text_ascii : layout->text_other);
	return (uint16_t)(MIN_OF(n, (uint64_t)(max / width)) * width);
}

void python_measure(struct python_chain *chain, const struct python_frame *frame, size_t room,
		    struct python_code *ret_code)
{
	const struct interp_cpython *layout = python_interpreter.layout;
	struct python_memory *memory = &chain->memory;
	struct ring_code *head = &ret_code->head;
	uint8_t buffer[CODE_BYTES];
	const uint8_t *code = view(memory, memory->is_direct, frame->code, sizeof(buffer), buffer);
	uint64_t lines, n_lines = 0, max;
	bool is_cut;

	*ret_code = (struct python_code){
		.head = { .minor = layout->minor,
			  .first_line = frame->first_line,
			  .interpreter = python_interpreter.eval },
	};
	if (!code)
		return;
	head->name_bytes = measure_text(memory, word_at(code, layout->code_qualname),
					MIN_OF(room / 4, (size_t)MAX_NAME), &ret_code->name,
					&head->name_width, &is_cut);
	head->flags |= is_cut ? RING_CODE_NAME_CUT : 0;
	head->file_bytes = measure_text(memory, word_at(code, layout->code_file),
					MIN_OF(room / 4, (size_t)MAX_FILE), &ret_code->file,
					&head->file_width, &is_cut);
	head->flags |= is_cut ? RING_CODE_FILE_CUT : 0;
	lines = word_at(code, layout->code_lines);
	max = MIN_OF(room - head->name_bytes - head->file_bytes, (size_t)MAX_LINES);
	if (!read_word(memory, memory->is_direct, lines + CPYTHON_SIZE(layout), &n_lines))
		n_lines = 0;
	ret_code->lines = lines + CPYTHON_BYTES(layout);
	head->n_bytes = head->name_bytes + head->file_bytes + (uint32_t)MIN_OF(n_lines, max);
}

static void copy_part(struct python_memory *memory, uint64_t at, size_t size, uint8_t *to)
{
	if (size == 0)
		return;
	if (memory->is_direct)
		memcpy(to, (const void *)(uintptr_t)at, size);
	else if (!memory->may_call || !safe_read(&memory->safe, at, to, size))
		memset(to, 0, size);
}

void python_copy(struct python_chain *chain, const struct python_code *code, uint8_t *to)
{
	const size_t texts = code->head.name_bytes + code->head.file_bytes;

	copy_part(&chain->memory, code->name, code->head.name_bytes, to);
	copy_part(&chain->memory, code->file, code->head.file_bytes, to + code->head.name_bytes);
	copy_part(&chain->memory, code->lines, code->head.n_bytes - texts, to + texts);
}
