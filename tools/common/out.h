/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Out - buffered output that remembers write errors
 *
 * Every verb prints its result through a struct out, never through stdio. It handles short writes,
 * EINTR and non-blocking pipes. The first error is kept with its errno, and all later output is
 * dropped. So a verb writes without checks, and cli_main() reports a full disk once, at the end.
 * Not for use by several threads at once.
 */
#pragma once

#include "arch/base.h"

#include <glib.h>
#include <string.h>

struct out {
	int fd;         /* -1: in memory; everything stays in `text` */
	int error;      /* errno of the first failure, or 0 */
	uint64_t bytes; /* number of bytes that the caller has written */
	GString *text;  /* bytes not yet passed to the kernel */
};

/* Appends bytes. Unlike g_string_append_len(), calls no function if there is room, because tables
 * of millions of rows consist of short texts. */
static inline void out_append(GString *to, const void *bytes, size_t length)
{
	if (length == 0)
		return; /* `bytes` may be NULL */
	if (to->allocated_len - to->len <= length) {
		g_string_append_len(to, bytes, (gssize)length);
		return;
	}
	memcpy(to->str + to->len, bytes, length);
	to->len += length;
	to->str[to->len] = '\0';
}

/* Returns room for `length` bytes after the text. Store them there, then call out_added(). */
static inline char *out_room(GString *to, size_t length)
{
	if (to->allocated_len - to->len <= length) {
		gsize before = to->len;

		g_string_set_size(to, before + length);
		g_string_truncate(to, before);
	}
	return to->str + to->len;
}

void out_init(struct out *out, int fd); /* borrows fd */
/* Does not flush: call out_flush() first. */
void out_done(struct out *out);
/* Returns a struct out in memory: CLEANUP_OUT struct out line = out_buffer(); its bytes are
 * line.text. */
struct out out_buffer(void);
#define CLEANUP_OUT CLEANUP(out_done)

/* Returns the struct out for standard output. cli_main() flushes and checks it after the verb. */
struct out *out_stdout(void);

void out_write(struct out *out, const void *bytes, size_t length);
/* Appends the bytes that the caller stored in out_room(out->text, …). */
void out_added(struct out *out, size_t length);
void out_text(struct out *out, const char *text);
void out_char(struct out *out, char c);
void out_printf(struct out *out, const char *format, ...) PRINTF_LIKE(2, 3);

/* Passes all bytes to the kernel. Returns 0, or -errno of the first failure since out_init(). Does
 * nothing for a buffer in memory. */
int out_flush(struct out *out);
/* Returns whether anything has failed so far. Loops over millions of rows check this from time to
 * time, and stop. */
bool out_failed(const struct out *out);
