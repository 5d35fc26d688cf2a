/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * refuse-bpf - preloaded, makes the kernel seem to refuse the BPF programs whose names begin with
 * the value of REFUSE_BPF
 */
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) long syscall(long number, ...)
{
	static long (*next)(long, ...);
	const char *refused = getenv("REFUSE_BPF");
	long given[6];
	va_list arguments;

	va_start(arguments, number);
	for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
		given[i] = va_arg(arguments, long);
	va_end(arguments);
	if (number == SYS_bpf && given[0] == BPF_PROG_LOAD && refused) {
		const union bpf_attr *attr = (const union bpf_attr *)given[1];

		if (strncmp(attr->prog_name, refused, strlen(refused)) == 0) {
			errno = EINVAL;
			return -1;
		}
	}
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "syscall");
	return next(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
