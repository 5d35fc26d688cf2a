/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Php-file - finds PHP in an ELF file
 *
 * PHP exports its globals. No symbol has the version, but a constant text has the day of the
 * interface for extensions of Zend, which is another one in each minor version.
 * Invariants: (1) a build whose globals have another size is not used
 *                 [test-zend: files]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/php-file.h"

#include "arch/base.h"
#include "base/php-layouts.h"

#define DAY_DIGITS 8u

/* Returns the minor version; 0 if it is not known. Of 8.0 there is no layout either. */
static unsigned find_minor(const struct interp_elf *elf)
{
	static const struct {
		char day[DAY_DIGITS + 1];
		unsigned minor;
	} days[] = { { "20210902", 1 }, { "20220829", 2 }, { "20230831", 3 },
		     { "20240924", 4 }, { "20250925", 5 }, { "20260924", 6 } };
	char day[DAY_DIGITS];

	if (!interp_elf_after_text(elf, "API4", day, sizeof(day)))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(days); i++)
		if (memcmp(day, days[i].day, sizeof(day)) == 0)
			return days[i].minor;
	return 0;
}

bool php_file_describe(const struct interp_elf *elf, struct interp_runtime *ret_runtime)
{
	const Elf64_Sym *globals = &elf->found[PHP_GLOBALS], *execute = &elf->found[PHP_EXECUTE];
	const struct interp_php *layout;

	if (!interp_elf_has(elf, PHP_EXECUTE) ||
	    (!interp_elf_has(elf, PHP_GLOBALS) && !interp_elf_has(elf, PHP_GLOBALS_OFFSET)))
		return false;
	*ret_runtime = (struct interp_runtime){
		.family = INTERP_PHP,
		.minor = find_minor(elf),
		.addresses = { [INTERP_PHP_GLOBALS] = globals->st_value },
		.eval = execute->st_value,
		.eval_size = execute->st_size,
		.code_bias = interp_elf_code_bias(elf, execute->st_value),
	};
	layout = php_layout(ret_runtime->minor);
	ret_runtime->found = !layout ? INTERP_OTHER_VERSION
			     : elf->is_x86_64 && interp_elf_has(elf, PHP_GLOBALS) &&
					     globals->st_size == layout->globals_bytes
				     ? INTERP_FOUND
				     : INTERP_OTHER_BUILD;
	if (ret_runtime->found == INTERP_FOUND)
		ret_runtime->addresses[INTERP_PHP_OF_GLOBALS] =
			interp_elf_relocation(elf, PHP_GLOBALS, R_X86_64_GLOB_DAT);
	return true;
}
