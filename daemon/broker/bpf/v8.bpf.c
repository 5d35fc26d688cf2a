/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * V8.bpf - reads the frames of a JavaScript program at the moment of a sample, or before a sleep
 *
 * Frames of code that V8 generated are linked by their frame pointers. A frame has the type of its
 * code; the frame of a function has an object in that place, and then the function. C++ code may
 * use the frame pointer's register for other values, so the isolate stores the address of the frame
 * in which generated code called C++ last. When C++ calls generated code, the outermost frame of
 * that code is an entry: it stores the address of the frame in which generated code had called that
 * C++. The isolate also stores the address of the outermost entry, so a chain that ends elsewhere
 * is torn. A frame that is not complete yet is left out: its function has not begun.
 *
 * The garbage collector moves objects, so a function is identified by the number of its script and
 * by its own number in the script. Reads are bounded, and a process can harm only its own samples.
 * No read goes beyond the end of an object, because memory that was never used cannot be read.
 */
#include "daemon/broker/bpf/interp.bpf.h"

#define TAG 1ull
#define TAG_MASK 3
#define SMALL(word) ((__u32)((word) >> 32))

/* src/objects/string.h: instance types of strings */
#define STRING_KIND 7
#define STRING_SEQUENTIAL 0
#define STRING_CONS 1
#define STRING_EXTERNAL 2
#define STRING_SLICED 3
#define STRING_THIN 5
#define STRING_ONE_BYTE 8
#define STRING_UNCACHED 16
#define MAX_STRINGS 5 /* maximum length of a chain of strings that refer to each other */
#define MAX_PARTS 8   /* maximum number of parts of a name; a power of two */

/* src/objects/scope-info.tq */
#define SCOPE_KIND 15
/* Scopes of functions have a position. So do scopes of SCOPES_BEFORE_FUNCTION kinds right before
 * the kind of functions, and of SCOPES_AFTER_FUNCTION kinds right after it. */
#define SCOPES_BEFORE_FUNCTION 1
#define SCOPES_AFTER_FUNCTION 2
#define SCOPE_HAS_CLASS_VARIABLE (1 << 10)
#define SCOPE_HAS_FUNCTION_NAME (3 << 12)
#define SCOPE_HAS_INFERRED_NAME (1 << 14)
/* maximum number of words from the function's name to the position, both included */
#define SCOPE_TAIL 4

/* src/objects/shared-function-info.tq */
#define FLAGS_SYNTAX(flags) ((flags) >> 7 & 7)
#define SYNTAX_WRAPPED 4

#define MAX_FRAMES_OF_ALL_TYPES 1024
#define SCRIPT_BYTES 72

/* Lines of a text are counted part by part; a sample counts at most PARTS_OF_SAMPLE parts. */
#define PART_BYTES 1024
#define PARTS_OF_CHECKPOINT 16
#define PARTS_OF_SAMPLE 256
#define NEWLINES 0x0a0a0a0a0a0a0a0aull
#define LOW_BITS 0x7f7f7f7f7f7f7f7full
#define WIDE_NEWLINES 0x000a000a000a000aull
#define WIDE_LOW_BITS 0x7fff7fff7fff7fffull

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, V8_VERSIONS);
	__type(key, __u32);
	__type(value, struct interp_v8);
} v8_layouts SEC(".maps");

/* Key of the number of newlines before a group of PARTS_OF_CHECKPOINT parts of a script's text;
 * `part` is the group's number. The value for LAST_PART is the number of the last known group. */
#define LAST_PART 0xffffffffu
struct v8_checkpoint {
	__u64 script;
	__u32 memory, part;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct v8_checkpoint);
	__type(value, __u32);
} v8_lines SEC(".maps");

struct v8_walk {
	struct walk common;
	const struct interp_v8 *layout;
	__u64 isolate;
	__u64 frame, end; /* the next frame; the outermost entry */
	__u64 sp;
	bool is_done;
};

/* Returns the layout of the current process's version, or NULL. */
static __always_inline const struct interp_v8 *find_layout(void)
{
	struct scratch *scratch = get_scratch();
	__u32 minor;

	if (!scratch)
		return 0;
	minor = scratch->process.minor;
	return bpf_map_lookup_elem(&v8_layouts, &minor);
}

/* Reads an object. While the garbage collector runs, a moved object has its new address instead of
 * its map; if so, changes *object to the new address, and reads there. */
static __always_inline long read_object(void *to, __u32 size, __u64 *object)
{
	__u64 map;

	if ((*object & TAG_MASK) != TAG || read_user(to, size, *object - TAG))
		return -1;
	map = *(const __u64 *)to;
	if (map & TAG)
		return 0;
	*object = map + TAG;
	return read_user(to, size, map);
}

/* Returns the type of an object; 0xffff: it has none. Changes `object` like read_object(). */
static __always_inline __u16 type_of(const struct interp_v8 *layout, __u64 *object)
{
	__u64 map = 0;
	__u16 type = 0xffff;

	if (read_object(&map, 8, object) || (map & TAG_MASK) != TAG ||
	    read_user(&type, 2, map - TAG + layout->map_type))
		return 0xffff;
	return type;
}

/* The characters of a string. */
struct v8_text {
	__u64 at;
	/* `length`: number of characters; 0: empty, not a string, or unknown. `width`: bytes of a
	 * character. */
	__u32 length, width;
	__u32 is_cut;
};

/* Finds the characters of a string, or of its first part, if it has several. Returns -1 on failure.
 * Not static: the kernel verifies a global function once. */
__noinline int v8_find_text(__u64 object, struct v8_text *text)
{
	const struct interp_v8 *layout = find_layout();
	__u64 words[4] = {}, offset = 0;
	__u32 length = 0xffffffff;
	__u16 type, kind;

	if (!layout || !text)
		return -1;
	text->length = text->is_cut = 0;
	for (int i = 0; i < MAX_STRINGS; i++) {
		type = type_of(layout, &object);
		kind = type & STRING_KIND;
		if (type >= layout->types_of_strings ||
		    (kind == STRING_EXTERNAL && type & STRING_UNCACHED) ||
		    read_user(words,
			      kind == STRING_SEQUENTIAL ? 16
			      : kind == STRING_THIN     ? 24
							: 32,
			      object - TAG))
			return -1;
		if (length > words[1] >> 32)
			length = words[1] >> 32;
		switch (kind) {
		case STRING_CONS:
			/* The second part of a string that was made flat is empty. */
			if (read_user(words, 4, words[3] - TAG + layout->string_length))
				return -1;
			text->is_cut |= (__u32)words[0] != 0;
			object = words[2];
			continue;
		case STRING_THIN:
			object = words[2];
			continue;
		case STRING_SLICED:
			object = words[2];
			offset += SMALL(words[3]);
			continue;
		case STRING_EXTERNAL:
			text->at = words[3];
			break;
		default:
			text->at = object - TAG + layout->string_bytes;
		}
		text->width = type & STRING_ONE_BYTE ? 1 : 2;
		text->at += offset * text->width;
		text->length = length;
		return 0;
	}
	return -1;
}

/* Reads at most `most` bytes of a string. Returns their number. */
static __always_inline __u32 read_string(__u64 object, __u8 *to, __u64 most, __u8 *ret_width,
					 bool *ret_cut)
{
	struct v8_text text = {};
	__u64 bytes;

	if (v8_find_text(object, &text))
		return 0;
	bytes = (__u64)text.length * text.width;
	*ret_width = text.width;
	*ret_cut = text.is_cut || bytes > most;
	if (bytes > most)
		bytes = text.width == 1 ? most : most & ~1ull;
	bytes = masked(bytes, most);
	return read_user(to, bytes, text.at) ? 0 : bytes;
}

/* Appends a string to the name in scratch->code. Overwrites the bytes after the name. Returns 1 if
 * the name is cut there. Not static, like v8_find_text(). */
__noinline int v8_append_name(__u64 object)
{
	struct scratch *scratch = get_scratch();
	__u64 bytes, more;
	__u8 width = 1;
	bool cut = false;

	if (!scratch)
		return 1;
	bytes = masked(scratch->code.name_bytes, INTERP_MAX_NAME);
	more = read_string(object, scratch->code.name + bytes, INTERP_MAX_NAME, &width, &cut);
	if (more && bytes && width != scratch->code.name_width) {
		cut = true;
	} else if (more) {
		scratch->code.name_width = width;
		bytes += more;
	}
	if (bytes > INTERP_MAX_NAME) {
		bytes = width == 1 ? INTERP_MAX_NAME : INTERP_MAX_NAME & ~1ull;
		cut = true;
	}
	scratch->code.name_bytes = bytes;
	if (cut)
		scratch->code.flags |= INTERP_CODE_NAME_CUT;
	return cut;
}

/* Reads the name of a function into scratch->code: names such as {{"Till", "."}, "sell"} have
 * several parts. Not static, like v8_find_text(). */
__noinline int v8_read_name(__u64 object)
{
	const struct interp_v8 *layout = find_layout();
	struct scratch *scratch = get_scratch();
	__u64 words[4] = {};
	__u64 *parts;
	__u32 n = 0;

	if (!scratch || !layout)
		return -1;
	parts = (__u64 *)scratch->staged;
	for (int i = 0; i < MAX_PARTS; i++) {
		const __u16 type = type_of(layout, &object);

		if (type >= layout->types_of_strings || (type & STRING_KIND) != STRING_CONS ||
		    read_user(words, sizeof(words), object - TAG))
			break;
		object = words[2];
		parts[i] = words[3];
		n++;
	}
	for (int i = 0; i <= MAX_PARTS; i++) {
		if (v8_append_name(object) || n == 0)
			break;
		n--;
		object = parts[masked(n, MAX_PARTS - 1)];
	}
	return 0;
}

struct line_count {
	struct scratch *scratch;
	struct v8_checkpoint key;
	__u64 at;
	__u32 bytes, wide, lines, done;
	bool has_failed;
};

/* Counts the newlines in scratch->staged. `wide`: characters have 2 bytes. Not static, like
 * v8_find_text(). */
__noinline __u32 v8_count_newlines(__u32 wide)
{
	const struct scratch *scratch = get_scratch();
	const __u64 newlines = wide ? WIDE_NEWLINES : NEWLINES;
	const __u64 low = wide ? WIDE_LOW_BITS : LOW_BITS;
	__u64 sum = 0, word;

	if (!scratch)
		return 0;
	/* The XOR turns newlines into 0. The sum counts the characters that are 0 after the XOR. */
	for (int i = 0; i < PART_BYTES / 8; i++) {
		word = ((const __u64 *)scratch->staged)[i] ^ newlines;
		sum += ~(((word & low) + low) | word | low) >> (wide ? 15 : 7);
	}
	/* Each byte of the sum is at most 128. */
	sum = (sum & 0x00ff00ff00ff00ffull) + (sum >> 8 & 0x00ff00ff00ff00ffull);
	return sum * 0x0001000100010001ull >> 48;
}

/* Counts the lines of the next part of the text. Returns 1 to end the loop. */
static long count_part(__u32 index, struct line_count *count)
{
	__u64 bytes = count->bytes - count->done;
	__u32 lines, part;

	if (bytes == 0 || count->scratch->parts == 0)
		return 1;
	count->scratch->parts--;
	if (bytes > PART_BYTES)
		bytes = PART_BYTES;
	if (bytes < PART_BYTES)
		__builtin_memset(count->scratch->staged, 0, PART_BYTES);
	asm volatile("" : "+r"(bytes));
	if (bytes > PART_BYTES ||
	    read_user(count->scratch->staged, bytes, count->at + count->done)) {
		count->has_failed = true;
		return 1;
	}
	count->lines += v8_count_newlines(count->wide);
	count->done += bytes;
	if (bytes == PART_BYTES && count->done % (PART_BYTES * PARTS_OF_CHECKPOINT) == 0) {
		part = count->done / (PART_BYTES * PARTS_OF_CHECKPOINT);
		lines = count->lines;
		count->key.part = part;
		bpf_map_update_elem(&v8_lines, &count->key, &lines, BPF_ANY);
		count->key.part = LAST_PART;
		bpf_map_update_elem(&v8_lines, &count->key, &part, BPF_ANY);
	}
	return 0;
}

/* Counts the lines of a script's text up to the line of the character at `position`. *ret_lines is
 * 0 if they cannot be counted. Returns 1 if a later sample has to continue, and -1 on errors. Not
 * static, like v8_find_text(). */
__noinline int v8_count_lines(__u64 source, __u32 position, __u64 script, __u32 *ret_lines)
{
	struct scratch *scratch = get_scratch();
	struct v8_text text = {};
	struct line_count count = {};
	__u32 *known, part;

	if (!scratch || !ret_lines)
		return -1;
	*ret_lines = 0;
	if (v8_find_text(source, &text) || text.is_cut || position > text.length)
		return 0;
	count.scratch = scratch;
	count.key.script = script;
	count.key.memory = scratch->memory;
	count.at = text.at;
	count.wide = text.width == 2;
	count.bytes = position << count.wide;
	count.key.part = part = count.bytes / (PART_BYTES * PARTS_OF_CHECKPOINT);
	known = bpf_map_lookup_elem(&v8_lines, &count.key);
	if (!known) {
		count.key.part = LAST_PART;
		known = bpf_map_lookup_elem(&v8_lines, &count.key);
		if (known && *known < part) {
			count.key.part = *known;
			known = bpf_map_lookup_elem(&v8_lines, &count.key);
		} else {
			known = 0;
		}
	}
	if (known) {
		count.lines = *known;
		count.done = count.key.part * PART_BYTES * PARTS_OF_CHECKPOINT;
	}
	bpf_loop(PARTS_OF_SAMPLE, count_part, &count, 0);
	if (count.has_failed)
		return 0;
	if (count.done < count.bytes)
		return 1;
	*ret_lines = count.lines + 1;
	return 0;
}

static __always_inline bool has_text(__u64 object)
{
	struct v8_text text = {};

	return !v8_find_text(object, &text) && text.length;
}

/* The parts of a ScopeInfo that describe its function. */
struct v8_scope {
	__u64 name;
	__u32 start;
	bool has_start, is_function;
};

static __always_inline void read_scope(const struct interp_v8 *layout, __u64 object,
				       struct v8_scope *scope)
{
	__u64 tail[SCOPE_TAIL] = {}, at, bytes;
	__u32 flags = 0, kind, n = 0, position = 0, i = 0;

	if (read_user(&flags, 4, object - TAG + layout->scope_flags) ||
	    read_user(&n, 4, object - TAG + layout->scope_n_names))
		return;
	kind = (flags & SCOPE_KIND) - (layout->scope_function - SCOPES_BEFORE_FUNCTION);
	at = object - TAG + layout->scope_names;
	at += 8 * ((__u64)n + (n < layout->scope_most_names ? n : 1));
	at += 8 * !!(flags & SCOPE_HAS_CLASS_VARIABLE);
	bytes = 8 * (2 * !!(flags & SCOPE_HAS_FUNCTION_NAME) + !!(flags & SCOPE_HAS_INFERRED_NAME) +
		     !layout->scope_position);
	if (read_user(tail, bytes, at))
		return;
	if (flags & SCOPE_HAS_FUNCTION_NAME) {
		scope->name = tail[0];
		i = 2;
	}
	if (flags & SCOPE_HAS_INFERRED_NAME) {
		if (!has_text(scope->name))
			scope->name = i ? tail[2] : tail[0];
		i++;
	}
	scope->is_function = kind == SCOPES_BEFORE_FUNCTION;
	if (layout->scope_position) {
		if (read_user(&position, 4, object - TAG + layout->scope_position + 4))
			return;
	} else {
		if (kind > SCOPES_BEFORE_FUNCTION + SCOPES_AFTER_FUNCTION)
			return;
		position = SMALL(i == 0 ? tail[0] : i == 1 ? tail[1] : i == 2 ? tail[2] : tail[3]);
	}
	scope->start = position;
	scope->has_start = true;
}

/* Describes, in scratch->code, the function whose SharedFunctionInfo is in scratch->object, and
 * whose script is in scratch->frame. Returns 1 if its line is not known yet, and -1 on errors. Not
 * static, like v8_find_text(). */
__noinline int v8_describe(__u64 number, __u32 id)
{
	const struct interp_v8 *layout = find_layout();
	struct scratch *scratch = get_scratch();
	struct v8_scope scope = {};
	struct interp_code *code;
	__u32 lines = 0, flags;
	bool cut = false;
	__u64 name;

	if (!scratch || !layout)
		return -1;
	code = begin_code(scratch, number, id, 0, INTERP_V8, layout->version);
	name = word_at(scratch->object, layout->info_name, 0xf8);
	flags = *(const __u32 *)(scratch->object + masked(layout->info_flags, 0xfc));
	if (type_of(layout, &name) == layout->type_scope_info) {
		read_scope(layout, name, &scope);
		name = scope.name;
	}
	v8_read_name(name);
	code->kind = INTERP_V8_NATIVE;
	if (number >> 32) {
		code->kind = scope.is_function && FLAGS_SYNTAX(flags) != SYNTAX_WRAPPED
				     ? INTERP_V8_FUNCTION
				     : INTERP_V8_MODULE;
		code->file_bytes = read_string(word_at(scratch->frame, layout->script_name, 0x1f8),
					       code->file, INTERP_MAX_FILE, &code->file_width,
					       &cut);
		if (cut)
			code->flags |= INTERP_CODE_FILE_CUT;
	}
	if (scope.has_start && number >> 32) {
		if (v8_count_lines(word_at(scratch->frame, layout->script_source, 0x1f8),
				   scope.start, scratch->script, &lines))
			return 1;
		if (lines)
			code->first_line =
				lines + SMALL(word_at(scratch->frame, layout->script_line, 0x1f8));
	}
	return 0;
}

/* Returns whether an object with this map has this type. */
static __always_inline bool has_type(const struct interp_v8 *layout, __u64 map, __u16 type,
				     __u64 *known_map)
{
	__u16 found = 0;

	if (map == *known_map)
		return true;
	if ((map & TAG_MASK) != TAG || read_user(&found, 2, map - TAG + layout->map_type) ||
	    found != type)
		return false;
	*known_map = map;
	return true;
}

/* Reads the script of the function in scratch->object into scratch->frame. Returns the script's
 * number, 0 if the function has no script, -EFAULT if the script cannot be read, and -EINVAL if the
 * object is not a script. Not static, for the reason given at v8_find_text(). */
__noinline __s64 v8_read_script(void)
{
	const struct interp_v8 *layout = find_layout();
	struct scratch *scratch = get_scratch();
	__u64 script;
	__u16 type;

	if (!scratch || !layout)
		return -EFAULT;
	script = word_at(scratch->object, layout->info_script, 0xf8);
	for (int i = 0; i < 2; i++) {
		if (read_object(scratch->frame, SCRIPT_BYTES, &script))
			return -EFAULT;
		if (has_type(layout, *(const __u64 *)scratch->frame, layout->type_script,
			     &scratch->script_map))
			return SMALL(word_at(scratch->frame, layout->script_id, 0x1f8));
		type = type_of(layout, &script);
		if (type != layout->type_debug_info)
			break;
		script = word_at(scratch->frame, layout->debug_info_script, 0x1f8);
	}
	return type == layout->type_oddball ? 0 : -EINVAL;
}

/* Returns the hash and the length of a string, which do not change when the string moves. If V8
 * computes the hash later, functions are described again. */
static __always_inline __u64 hash_of(const struct interp_v8 *layout, __u64 object)
{
	__u64 word = 0;

	if ((object & TAG_MASK) == TAG)
		read_user(&word, 8, object - TAG + layout->string_hash);
	return word;
}

/* Adds the frame of a function. Returns 1 to end the loop. */
static __always_inline long add_function(struct v8_walk *walk, __u64 function, __u64 at)
{
	const struct interp_v8 *layout = walk->layout;
	struct scratch *scratch = walk->common.scratch;
	struct interp_frame *frame;
	__u64 info = 0, hash, data;
	__s64 script;

	frame = add_frame(&walk->common);
	if (!frame)
		return 1;
	if ((function & TAG_MASK) != TAG ||
	    read_user(&info, 8, function - TAG + layout->function_info) ||
	    read_object(scratch->object, masked(layout->info_number + 4, 0xff), &info)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	if (!has_type(layout, *(const __u64 *)scratch->object, layout->type_function_info,
		      &scratch->info_map)) {
		walk->common.flags |= INTERP_TORN;
		return 1;
	}
	script = v8_read_script();
	if (script < 0) {
		walk->common.flags |= script == -EFAULT ? INTERP_FAULT : INTERP_TORN;
		return 1;
	}
	hash = (walk->isolate >> 3) * 0x9e3779b97f4a7c15ull;
	data = word_at(scratch->object, layout->info_data, 0xf8);
	*frame = (struct interp_frame){};
	if (script) {
		hash ^= hash_of(layout, word_at(scratch->frame, layout->script_name, 0x1f8)) *
			0xff51afd7ed558ccdull;
		hash ^= script * 0xc4ceb9fe1a85ec53ull;
		frame->code = (__u64)script << 32 |
			      *(const __u32 *)(scratch->object + masked(layout->info_number, 0xfc));
		scratch->script = hash;
	} else {
		hash ^= hash_of(layout, word_at(scratch->object, layout->info_name, 0xf8)) *
			0xff51afd7ed558ccdull;
		frame->code = data & TAG ? 0xffffffff : SMALL(data);
	}
	frame->id = (__u32)(hash >> 32) ^ (__u32)hash;
	walk->common.n++;
	end_run(&walk->common, at);
	if (is_new_code(&walk->common, frame)) {
		const int is_unknown = v8_describe(frame->code, frame->id);

		if (is_unknown > 0)
			scratch->sample.n_undescribed++;
		else
			count_code(&walk->common, frame,
				   is_unknown ? is_unknown
					      : bpf_perf_event_output(
							walk->common.ctx, &code_outputs,
							BPF_F_CURRENT_CPU, &scratch->code,
							__builtin_offsetof(struct interp_code,
									   lines)));
	}
	return 0;
}

/* Reads one frame. Returns 1 to end the loop. */
static long step(__u32 index, struct v8_walk *walk)
{
	const struct interp_v8 *layout = walk->layout;
	__u64 words[6] = {}, at = walk->frame, type;
	bool is_object;

	/* The frame is not on the stack, or not outside of the previous frame. */
	if (at & 7 || at < walk->sp || at > walk->end) {
		walk->common.flags |= INTERP_TORN;
		return 1;
	}
	/* {function, type or object, frame of the caller, return address, 2 arguments} */
	if (read_user(words, sizeof(words), at - layout->frame_function)) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	type = words[1];
	walk->frame = words[2];
	if (index == 0 &&
	    at - walk->sp < (type & TAG ? layout->frame_function : layout->frame_type))
		return 0;
	walk->sp = at + 8;
	is_object = type & TAG;
	type = (__u32)type >> 1;
	if (is_object || type == layout->builtin_exit_type)
		return add_function(walk, is_object ? words[0] : words[5], at);
	if (type != layout->entry_type && type != layout->construct_entry_type)
		return 0;
	if (read_user(&walk->frame, 8, at - layout->entry_exit_frame) ||
	    (!walk->frame && layout->entry_fast_call_frame &&
	     read_user(&walk->frame, 8, at - layout->entry_fast_call_frame))) {
		walk->common.flags |= INTERP_FAULT;
		return 1;
	}
	if (walk->frame)
		return 0;
	walk->is_done = true;
	if (at != walk->end)
		walk->common.flags |= INTERP_TORN;
	return 1;
}

static __always_inline __u64 get_fsbase(void)
{
	struct task_struct___kernel *task = (struct task_struct___kernel *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread.fsbase);
}

/* Returns whether an address is on the current thread's stack, which is at `sp`. A thread's data,
 * at fsbase, is at the outer end of its stack; the main thread's stack is above all such data. */
static __always_inline bool is_on_stack(__u64 address, __u64 sp)
{
	const __u64 fsbase = get_fsbase();

	return address >= sp && (sp >= fsbase || address < fsbase);
}

/* Returns the isolate of the current thread, or 0. */
static __always_inline __u64 find_isolate(const struct interp_process *process)
{
	const __u64 fsbase = get_fsbase();
	const __u64 of_module = process->addresses[INTERP_V8_OF_MODULE];
	const __u64 block = of_module ? read_thread_block(fsbase, of_module) : fsbase;
	__u64 offset = process->addresses[INTERP_V8_OFFSET], isolate = 0;
	__u32 key = 0;

	if (process->addresses[INTERP_V8_KEY])
		return read_user(&key, 4, process->addresses[INTERP_V8_KEY])
			       ? 0
			       : read_specific(fsbase, key);
	if (process->addresses[INTERP_V8_OF_OFFSET] &&
	    read_user(&offset, 8, process->addresses[INTERP_V8_OF_OFFSET]))
		return 0;
	return !block || read_user(&isolate, 8, block + offset) ? 0 : isolate;
}

/* Reads the frames of the current thread into the sample. */
static __always_inline void walk_thread(struct v8_walk *walk)
{
	const struct pt_regs___kernel *regs =
		(const struct pt_regs___kernel *)bpf_task_pt_regs(bpf_get_current_task_btf());
	const struct interp_v8 *layout = walk->layout;

	walk->isolate = find_isolate(&walk->common.scratch->process);
	if (!walk->isolate) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	if (read_user(&walk->end, 8, walk->isolate + layout->isolate_entry_frame) ||
	    read_user(&walk->frame, 8, walk->isolate + layout->isolate_exit_frame)) {
		walk->common.flags |= INTERP_FAULT;
		return;
	}
	walk->sp = BPF_CORE_READ(regs, sp);
	/* The thread executes no JavaScript. */
	if (!walk->end) {
		walk->common.flags |= INTERP_WALKED;
		return;
	}
	/* The thread may collect garbage for the thread that the isolate belongs to. */
	if (!is_on_stack(walk->end, walk->sp)) {
		walk->common.flags |= INTERP_NO_THREAD;
		return;
	}
	if (!walk->frame)
		read_user(&walk->frame, 8, walk->isolate + layout->isolate_fast_call_frame);
	/* The isolate still refers to a frame for two instructions after the frame ended. */
	if (walk->frame < walk->sp)
		walk->frame = BPF_CORE_READ(regs, bp);
	bpf_loop(MAX_FRAMES_OF_ALL_TYPES, step, walk, 0);
	if (walk->common.flags & (INTERP_FAULT | INTERP_TORN))
		return;
	if (!walk->is_done)
		walk->common.flags |= INTERP_DEEPER;
	walk->common.flags |= INTERP_WALKED;
}

static __always_inline bool read_v8(struct v8_walk *walk, void *ctx)
{
	struct scratch *scratch = get_scratch();

	if (!scratch)
		return false;
	scratch->info_map = scratch->script_map = 0;
	scratch->parts = PARTS_OF_SAMPLE;
	*walk = (struct v8_walk){
		.common = begin_walk(ctx, scratch),
		.layout = find_layout(),
	};
	if (!walk->layout || walk->layout->version != scratch->process.minor)
		return false;
	walk_thread(walk);
	return true;
}

INTERP_WALKER(v8, read_v8);
