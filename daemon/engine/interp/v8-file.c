/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * V8-file - finds V8 in an ELF file
 *
 * Node.js exports the variables and functions of the V8 that it contains, and the offsets and types
 * that debuggers need. A thread's isolate is the value of a key or of a thread-local variable. If
 * the variable is not exported, it is found in the code of an exported function that returns it.
 * Invariants: (1) a build with another offset, type or size than the known ones is not used
 *                 [test-v8: files]
 *             (2) a build whose code is not as expected is not used  [test-v8: files]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/v8-file.h"

#include "arch/base.h"
#include "base/v8-layouts.h"

#define TAGGED_BYTES 8
#define LOAD_BYTES 10u

static bool read_number(const struct interp_elf *elf, enum interp_symbol symbol,
			int32_t *ret_number)
{
	uint8_t bytes[4];

	if (!interp_elf_has(elf, symbol) ||
	    !interp_elf_address(elf, bytes, sizeof(bytes), elf->found[symbol].st_value))
		return false;
	*ret_number = (int32_t)load_le32(bytes);
	return true;
}

/* Returns the version; 0 if it is not known. */
static unsigned find_version(const struct interp_elf *elf)
{
	int32_t major, minor;

	return read_number(elf, V8_MAJOR_NUMBER, &major) && major > 0 &&
			       major < (int32_t)V8_VERSIONS / 10 &&
			       read_number(elf, V8_MINOR_NUMBER, &minor) && minor >= 0 && minor < 10
		       ? V8_VERSION((unsigned)major, (unsigned)minor)
		       : 0;
}

static bool is_known_build(const struct interp_elf *elf, const struct interp_v8 *layout)
{
	static const struct {
		enum interp_symbol symbol;
		size_t field;
	} constants[] = {
		{ V8_FRAME_TYPE, offsetof(struct interp_v8, frame_type) },
		{ V8_FRAME_FUNCTION, offsetof(struct interp_v8, frame_function) },
		{ V8_ENTRY, offsetof(struct interp_v8, entry_type) },
		{ V8_CONSTRUCT_ENTRY, offsetof(struct interp_v8, construct_entry_type) },
		{ V8_BUILTIN_EXIT, offsetof(struct interp_v8, builtin_exit_type) },
		{ V8_MAP_TYPE, offsetof(struct interp_v8, map_type) },
		{ V8_TYPE_FUNCTION_INFO, offsetof(struct interp_v8, type_function_info) },
		{ V8_TYPE_SCRIPT, offsetof(struct interp_v8, type_script) },
		{ V8_TYPE_SCOPE_INFO, offsetof(struct interp_v8, type_scope_info) },
		{ V8_TYPE_DEBUG_INFO, offsetof(struct interp_v8, type_debug_info) },
		{ V8_TYPE_ODDBALL, offsetof(struct interp_v8, type_oddball) },
		{ V8_TYPES_OF_STRINGS, offsetof(struct interp_v8, types_of_strings) },
		{ V8_FUNCTION_INFO, offsetof(struct interp_v8, function_info) },
		{ V8_INFO_NAME, offsetof(struct interp_v8, info_name) },
		{ V8_INFO_SCRIPT, offsetof(struct interp_v8, info_script) },
		{ V8_INFO_FLAGS, offsetof(struct interp_v8, info_flags) },
		{ V8_SCRIPT_SOURCE, offsetof(struct interp_v8, script_source) },
		{ V8_SCRIPT_NAME, offsetof(struct interp_v8, script_name) },
		{ V8_STRING_LENGTH, offsetof(struct interp_v8, string_length) },
		{ V8_STRING_BYTES, offsetof(struct interp_v8, string_bytes) },
		{ V8_STRING_FIRST, offsetof(struct interp_v8, string_first) },
		{ V8_STRING_SECOND, offsetof(struct interp_v8, string_second) },
		{ V8_STRING_PARENT, offsetof(struct interp_v8, string_parent) },
		{ V8_STRING_OFFSET, offsetof(struct interp_v8, string_offset) },
	};
	int32_t number;

	if (!read_number(elf, V8_TAGGED_SIZE, &number) || number != TAGGED_BYTES)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		const uint16_t want =
			*(const uint16_t *)((const char *)layout + constants[i].field);
		const bool is_below = constants[i].symbol == V8_FRAME_TYPE ||
				      constants[i].symbol == V8_FRAME_FUNCTION;

		if (!read_number(elf, constants[i].symbol, &number) ||
		    number != (is_below ? -(int32_t)want : (int32_t)want))
			return false;
	}
	return true;
}

/* Finds the variable in the code of a program's function that returns it. The code must end with
 * mov %fs:OFFSET,%rax; ret. Returns false if it does not. */
static bool find_in_code(const struct interp_elf *elf, struct interp_runtime *runtime)
{
	static const uint8_t load[] = { 0x64, 0x48, 0x8b, 0x04, 0x25 };
	uint8_t code[INTERP_ELF_MAX_CODE];
	const size_t size = interp_elf_code(elf, V8_CURRENT, code);
	const size_t at = size - LOAD_BYTES;
	int64_t offset;

	if (size < LOAD_BYTES || memcmp(code + at, load, sizeof(load)) != 0 ||
	    code[size - 1] != 0xc3)
		return false;
	offset = (int32_t)load_le32(code + at + sizeof(load));
	runtime->addresses[INTERP_V8_OFFSET] = (uint64_t)offset;
	return offset < 0 && offset > -(int64_t)INTERP_ELF_MAX_BLOCK;
}

/* Finds the thread-local variable that points to the thread's isolate, or the pthread key of the
 * isolates. Returns false if neither can be located. */
static bool find_isolate(const struct interp_elf *elf, struct interp_runtime *runtime)
{
	struct interp_thread_local variable;

	if (interp_elf_thread_local(elf, V8_ISOLATE, &variable)) {
		runtime->addresses[INTERP_V8_OF_MODULE] = variable.of_module;
		runtime->addresses[INTERP_V8_OF_OFFSET] = variable.of_offset;
		runtime->addresses[INTERP_V8_OFFSET] = variable.offset;
		return true;
	}
	runtime->addresses[INTERP_V8_KEY] = elf->found[V8_ISOLATE_KEY].st_value;
	return runtime->addresses[INTERP_V8_KEY] != 0 || find_in_code(elf, runtime);
}

bool v8_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime)
{
	const struct interp_v8 *layout;

	if (!interp_elf_has(elf, V8_MAJOR_NUMBER))
		return false;
	*ret_runtime = (struct interp_runtime){
		.family = INTERP_V8,
		.minor = find_version(elf),
	};
	layout = v8_layout(ret_runtime->minor);
	ret_runtime->found = !layout ? INTERP_OTHER_VERSION
			     : elf->is_x86_64 && is_known_build(elf, layout) &&
					     find_isolate(elf, ret_runtime)
				     ? INTERP_FOUND
				     : INTERP_OTHER_BUILD;
	for (size_t i = 0; i < elf->n_segments && ret_runtime->code_bias == 0; i++)
		if (elf->segments[i].p_type == PT_LOAD && elf->segments[i].p_flags & PF_X)
			ret_runtime->code_bias = elf->segments[i].p_vaddr -
						 elf->segments[i].p_offset;
	return true;
}
