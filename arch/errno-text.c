/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Errno text - errors that a limit of the process makes
 */
#include "arch/errno-text.h"

#include "arch/base.h"

#include <errno.h>
#include <sys/resource.h>

/* EAGAIN is that of fork(), clone() and pthread_create(). */
static const struct {
	int error;
	__rlimit_resource_t resource;
	const char *name, *unit;
} limits[] = {
	{ EMFILE, RLIMIT_NOFILE, "RLIMIT_NOFILE, `ulimit -n`", "" },
	{ EFBIG, RLIMIT_FSIZE, "RLIMIT_FSIZE, `ulimit -f`", " bytes" },
	{ EAGAIN, RLIMIT_NPROC, "RLIMIT_NPROC, `ulimit -u`", "" },
};

static void append(char *buffer, const char *text)
{
	size_t n = strlen(buffer);

	for (; *text && n < ERRNO_TEXT_BYTES - 1; n++, text++)
		buffer[n] = *text;
	buffer[n] = '\0';
}

static void append_number(char *buffer, uint64_t number)
{
	char digits[21] = "";
	size_t at = sizeof(digits) - 1;

	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number > 0);
	append(buffer, digits + at);
}

const char *errno_text(int error, char *buffer)
{
	char room[ERRNO_TEXT_BYTES];
	struct rlimit limit;

	buffer[0] = '\0';
	/* GNU's strerror_r() may return a text that is not in the buffer. */
	append(buffer, strerror_r(error, room, sizeof(room)));
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		if (limits[i].error != error || getrlimit(limits[i].resource, &limit) < 0 ||
		    limit.rlim_cur == RLIM_INFINITY)
			continue;
		append(buffer, " (");
		append(buffer, limits[i].name);
		append(buffer, ", is ");
		append_number(buffer, limit.rlim_cur);
		append(buffer, limits[i].unit);
		append(buffer, ")");
	}
	return buffer;
}
