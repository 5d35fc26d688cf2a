/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Out - buffered output that remembers write errors
 *
 * Invariants: (1) bytes reach the fd in order and once each       [test-out: short writes]
 *             (2) nothing is written after an error               [test-out: full disk]
 */
#include "tools/common/out.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>

#define OUT_BUFFER_BYTES (64 * 1024)

struct out out_buffer(void)
{
	return (struct out){ .fd = -1, .text = g_string_sized_new(256) };
}

void out_init(struct out *out, int fd)
{
	*out = out_buffer();
	out->fd = fd;
}

void out_done(struct out *out)
{
	if (out->text)
		g_string_free(out->text, TRUE);
	*out = (struct out){ .fd = -1 };
}

struct out *out_stdout(void)
{
	static struct out standard;

	if (!standard.text)
		out_init(&standard, STDOUT_FILENO);
	return &standard;
}

static int out_write_all(int fd, const char *bytes, size_t length)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLOUT };

	while (length > 0) {
		ssize_t n = write(fd, bytes, length);

		if (n > 0) {
			bytes += n;
			length -= (size_t)n;
		} else if (n < 0 && errno == EAGAIN) {
			/* If poll() cannot watch the fd, the next write() fails. */
			(void)poll(&pollfd, 1, -1);
		} else if (n < 0 && errno != EINTR) {
			return errno;
		} else if (n == 0) {
			return EIO;
		}
	}
	return 0;
}

int out_flush(struct out *out)
{
	if (out->fd < 0)
		return 0;
	if (!out->error && out->text->len > 0)
		out->error = out_write_all(out->fd, out->text->str, out->text->len);
	g_string_truncate(out->text, 0);
	return -out->error;
}

bool out_failed(const struct out *out)
{
	return out->error != 0;
}

static void out_count(struct out *out, size_t length)
{
	out->bytes += length;
	if (out->fd >= 0 && out->text->len >= OUT_BUFFER_BYTES)
		(void)out_flush(out);
}

void out_write(struct out *out, const void *bytes, size_t length)
{
	if (out->error)
		return;
	out_append(out->text, bytes, length);
	out_count(out, length);
}

void out_added(struct out *out, size_t length)
{
	if (out->error)
		return;
	out->text->len += length;
	out->text->str[out->text->len] = '\0';
	out_count(out, length);
}

void out_text(struct out *out, const char *text)
{
	out_write(out, text, strlen(text));
}

void out_char(struct out *out, char c)
{
	if (out->error)
		return;
	g_string_append_c(out->text, c);
	out_count(out, 1);
}

void out_printf(struct out *out, const char *format, ...)
{
	size_t before = out->text->len;
	va_list arguments;

	if (out->error)
		return;
	va_start(arguments, format);
	g_string_append_vprintf(out->text, format, arguments);
	va_end(arguments);
	out_count(out, out->text->len - before);
}
