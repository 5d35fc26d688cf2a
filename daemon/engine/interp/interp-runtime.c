/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-runtime - the interpreter in an ELF file
 *
 * Invariants: (1) memory and work are bounded, whatever the file says  [fuzz_interp_runtime]
 *             (2) a build without glibc is not used if its threads are found through glibc's data,
 *                 except for CPython with musl  [test-cpython: offsets of the file]
 * Pure functions of the file.
 */
#include "daemon/engine/interp/interp-runtime.h"

#include "daemon/engine/interp/cpython-file.h"
#include "daemon/engine/interp/interp-elf.h"
#include "daemon/engine/interp/perl-file.h"
#include "daemon/engine/interp/php-file.h"
#include "daemon/engine/interp/ruby-file.h"
#include "daemon/engine/interp/v8-file.h"

/* Returns whether the BPF program finds a thread's state through glibc's data of the thread. */
static bool needs_glibc(const struct interp_runtime *runtime)
{
	const uint64_t *addresses = runtime->addresses;

	switch (runtime->family) {
	case INTERP_RUBY:
		return addresses[INTERP_RUBY_MODULE] != 0;
	case INTERP_PYTHON:
	case INTERP_PHP:
		return false;
	case INTERP_V8:
		return addresses[INTERP_V8_KEY] != 0 || addresses[INTERP_V8_OF_MODULE] != 0;
	default:
		return true;
	}
}

enum interp_found interp_runtime_find(int fd, struct interp_runtime *ret_runtime)
{
	struct interp_elf elf;

	*ret_runtime = (struct interp_runtime){ .found = INTERP_FOUND_NONE };
	if (interp_elf_read(&elf, fd) && !cpython_file_describe(&elf, ret_runtime) &&
	    !ruby_file_describe(&elf, ret_runtime) && !php_file_describe(&elf, ret_runtime) &&
	    !perl_file_describe(&elf, ret_runtime))
		v8_file_describe(&elf, ret_runtime);
	if (ret_runtime->found == INTERP_FOUND && elf.needs_musl && needs_glibc(ret_runtime))
		ret_runtime->found = INTERP_OTHER_BUILD;
	if (ret_runtime->family == INTERP_PYTHON)
		ret_runtime->addresses[INTERP_PYTHON_MUSL] = elf.needs_musl;
	return ret_runtime->found;
}

void interp_runtime_locate(const struct interp_runtime *runtime, uint64_t bias,
			   uint64_t ret_addresses[INTERP_ADDRESSES])
{
	for (unsigned i = 0; i < INTERP_ADDRESSES; i++)
		ret_addresses[i] = runtime->addresses[i];
	if (runtime->family == INTERP_PYTHON) {
		ret_addresses[INTERP_PYTHON_RUNTIME] += bias;
		ret_addresses[INTERP_PYTHON_CODE_TYPE] += bias;
	} else if (runtime->family == INTERP_RUBY) {
		if (ret_addresses[INTERP_RUBY_MODULE] != 0)
			ret_addresses[INTERP_RUBY_MODULE] += bias;
		ret_addresses[INTERP_RUBY_EVAL] += bias;
		ret_addresses[INTERP_RUBY_EVAL_END] += bias;
	} else if (runtime->family == INTERP_PHP) {
		ret_addresses[INTERP_PHP_GLOBALS] += bias;
		if (ret_addresses[INTERP_PHP_OF_GLOBALS] != 0)
			ret_addresses[INTERP_PHP_OF_GLOBALS] += bias;
		if (ret_addresses[INTERP_PHP_OF_POINTER] != 0)
			ret_addresses[INTERP_PHP_OF_POINTER] += bias;
	} else if (runtime->family == INTERP_PERL) {
		for (unsigned i = 0; i < INTERP_ADDRESSES; i++)
			ret_addresses[i] += ret_addresses[i] != 0 ? bias : 0;
	} else if (runtime->family == INTERP_V8) {
		for (unsigned i = 0; i < INTERP_ADDRESSES; i++)
			if (i != INTERP_V8_OFFSET && ret_addresses[i] != 0)
				ret_addresses[i] += bias;
	}
}
