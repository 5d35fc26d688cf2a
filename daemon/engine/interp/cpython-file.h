/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Cpython-file - finds CPython in an ELF file
 *
 * The interpreter exports its state and types, also from stripped programs and from programs that
 * it is embedded in. The file's bytes are not trusted.
 */
#pragma once

#include <stdint.h>

enum cpython_found {
	CPYTHON_NONE, /* the file has no interpreter, or is no ELF file of this machine */
	CPYTHON_FOUND,
	CPYTHON_OTHER_VERSION,
	CPYTHON_OTHER_BUILD, /* without the interpreter's lock, or with another layout */
};

/* Addresses are those of the file. */
struct cpython_file {
	unsigned minor;   /* of 3.MINOR; 0: not known */
	uint64_t runtime; /* _PyRuntime */
	uint64_t code_type;
	uint64_t eval, eval_size; /* _PyEval_EvalFrameDefault */
	uint64_t code_bias;       /* address of code, less its offset in the file */
	enum cpython_found found;
};

/* Fills in `minor` also if the version is not supported. Also returns `found`. */
enum cpython_found cpython_file_find(int fd, struct cpython_file *ret_file);
