/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Perl-layouts - the numbers that a walk needs, for each supported version of Perl
 *
 * For builds with threads, on 64-bit machines, without debugging. The structures of contexts and
 * subs are equal in these versions. profd gives these numbers to the BPF program, so that an engine
 * cannot choose what is read.
 *
 * BPF code includes this header, so it does not use libc.
 */
#pragma once

#include <linux/types.h>

#define PERL_FIRST_MINOR 36u
#define PERL_LAST_MINOR 40u

struct interp_perl {
	__u16 minor; /* of version 5.MINOR */
	/* size of the interpreter's state; builds with another size have other offsets */
	__u16 state_bytes;
	__u16 state_compiling, state_phase, state_script; /* offsets in the state */
	__u16 op_nextstate, op_require, op_entertry;      /* types of operations */
};

/* Returns NULL if the version 5.MINOR is not supported. */
static inline const struct interp_perl *perl_layout(unsigned minor)
{
	static const struct interp_perl layouts[] = {
		{ .minor = 36,
		  .state_bytes = 3768,
		  .state_compiling = 1936,
		  .state_phase = 2512,
		  .state_script = 1472,
		  .op_nextstate = 195,
		  .op_require = 342,
		  .op_entertry = 347 },
		{ .minor = 38,
		  .state_bytes = 3896,
		  .state_compiling = 1720,
		  .state_phase = 2336,
		  .state_script = 1240,
		  .op_nextstate = 198,
		  .op_require = 345,
		  .op_entertry = 350 },
		{ .minor = 40,
		  .state_bytes = 3768,
		  .state_compiling = 1720,
		  .state_phase = 2216,
		  .state_script = 1240,
		  .op_nextstate = 198,
		  .op_require = 345,
		  .op_entertry = 350 },
	};

	for (unsigned i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (layouts[i].minor == minor)
			return &layouts[i];
	return 0;
}
