/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Php-file - finds PHP in an ELF file
 *
 * PHP exports its globals. No symbol has the version, but a constant text has the date of the
 * interface for Zend extensions, which differs between minor versions. A build with thread
 * safety has globals for each thread, at an exported offset from a thread-local pointer. The place
 * of this pointer is read from the code of an exported function that returns it.
 * Invariants: (1) a build without thread safety is not used if its globals are smaller than those
 *                 of its version; a debug build is used only with exactly that size, and without
 *                 thread safety
 *                 [test-zend: files, threads]
 *             (2) a build whose code is not as expected is not used  [test-zend: threads]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/php-file.h"

#include "arch/base.h"
#include "base/php-layouts.h"

#define DAY_DIGITS 8u
#define MODE_BYTES 5u         /* ",NTS" and its NUL */
#define POINTER_CODE_MOST 24u /* maximum bytes of a function that only returns a number */
#define POINTER_MOST INT64_C(0x40000000) /* maximum bytes of thread-local variables */

/* Returns the minor version; 0 if it is not known (8.0 has no layout, so 0 can mean this).
 * `ret_mode`: the text after the date, such as ",TS". */
static unsigned find_minor(const struct interp_elf *elf, char ret_mode[MODE_BYTES])
{
	static const struct {
		char day[DAY_DIGITS + 1];
		unsigned minor;
	} days[] = { { "20210902", 1 }, { "20220829", 2 }, { "20230831", 3 },
		     { "20240924", 4 }, { "20250925", 5 }, { "20260924", 6 } };
	char found[DAY_DIGITS + MODE_BYTES];

	if (!interp_elf_after_text(elf, "API4", found, sizeof(found)))
		return 0;
	memcpy(ret_mode, found + DAY_DIGITS, MODE_BYTES);
	for (size_t i = 0; i < ARRAY_SIZE(days); i++)
		if (memcmp(found, days[i].day, DAY_DIGITS) == 0)
			return days[i].minor;
	return 0;
}

/* Finds the place of a thread's pointer. Returns false if the code is not as expected. */
static bool find_pointer(const struct interp_elf *elf, struct interp_runtime *runtime)
{
	static const uint8_t constant[] = { 0x48, 0xc7, 0xc0 }, /* mov $OFFSET,%rax */
		word[] = { 0x48, 0x8b, 0x05 };                  /* mov WORD(%rip),%rax */
	uint8_t code[INTERP_ELF_MAX_CODE];
	const size_t size = interp_elf_code(elf, PHP_POINTER, code);

	for (size_t i = 0; size <= POINTER_CODE_MOST && i + 8 <= size; i++) {
		const int64_t number = (int32_t)load_le32(code + i + 3);
		const uint64_t at = elf->found[PHP_POINTER].st_value + i + 7 + (uint64_t)number;

		if (memcmp(code + i, constant, sizeof(constant)) == 0) {
			runtime->addresses[INTERP_PHP_POINTER] = (uint64_t)number;
			return number < 0 && number > -POINTER_MOST;
		}
		if (memcmp(code + i, word, sizeof(word)) == 0) {
			runtime->addresses[INTERP_PHP_OF_POINTER] = at;
			return interp_elf_is_relocated(elf, at, R_X86_64_TPOFF64);
		}
	}
	return false;
}

/* Returns whether the size of the globals agrees with the layout. Only a build of mode ",NTS" may
 * have larger ones: distributions add members at the end in security updates, so that extensions
 * that were built earlier still find the other members. */
static bool has_layout(const Elf64_Sym *globals, const struct interp_php *layout, const char *mode)
{
	return globals->st_size == layout->globals_bytes ||
	       (globals->st_size > layout->globals_bytes && memcmp(mode, ",NTS", MODE_BYTES) == 0);
}

bool php_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime)
{
	const enum interp_symbol symbol = interp_elf_has(elf, PHP_GLOBALS) ? PHP_GLOBALS
									   : PHP_GLOBALS_OFFSET;
	const Elf64_Sym *globals = &elf->found[symbol], *execute = &elf->found[PHP_EXECUTE];
	const struct interp_php *layout;
	char mode[MODE_BYTES] = "";

	if (!interp_elf_has(elf, PHP_EXECUTE) || !interp_elf_has(elf, symbol))
		return false;
	*ret_runtime = (struct interp_runtime){
		.family = INTERP_PHP,
		.minor = find_minor(elf, mode),
		.addresses = { [INTERP_PHP_GLOBALS] = globals->st_value },
		.eval = execute->st_value,
		.eval_size = execute->st_size,
		.code_bias = interp_elf_code_bias(elf, execute->st_value),
	};
	layout = php_layout(ret_runtime->minor);
	if (!layout)
		ret_runtime->found = INTERP_OTHER_VERSION;
	else if (elf->is_x86_64 &&
		 (symbol == PHP_GLOBALS ? has_layout(globals, layout, mode)
					: memcmp(mode, ",TS", sizeof(",TS")) == 0 &&
						  find_pointer(elf, ret_runtime)))
		ret_runtime->found = INTERP_FOUND;
	else
		ret_runtime->found = INTERP_OTHER_BUILD;
	if (ret_runtime->found == INTERP_FOUND)
		ret_runtime->addresses[INTERP_PHP_OF_GLOBALS] =
			interp_elf_relocation(elf, symbol, R_X86_64_GLOB_DAT);
	return true;
}
