/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-record - parses what the BPF program writes about interpreters
 *
 * Invariants: (1) nothing outside the record is read             [fuzz_interp_record]
 *             (2) texts are valid UTF-8 and end with a NUL       [test-cpython: texts]
 * Pure functions.
 */
#include "daemon/engine/interp/interp-record.h"

#include "arch/base.h"

#include <glib.h>

#define REPLACEMENT 0xfffdu
static const char ellipsis[] = "\xe2\x80\xa6"; /* … */

static bool is_family(uint32_t family)
{
	return family > INTERP_NONE && family < INTERP_FAMILIES;
}

bool interp_record_sample(const uint8_t *bytes, size_t size, struct interp_chain *ret_chain)
{
	const size_t fixed = offsetof(struct interp_sample, frames);
	struct interp_sample head;

	if (size < fixed)
		return false;
	memcpy(&head, bytes, fixed);
	if ((head.record != INTERP_RECORD_SAMPLE && head.record != INTERP_RECORD_SLEEP) ||
	    head.n > INTERP_MAX_FRAMES || !is_family(head.family) ||
	    size - fixed < head.n * sizeof(struct interp_frame))
		return false;
	ret_chain->period = head.period;
	ret_chain->event = head.event;
	ret_chain->family = head.family;
	ret_chain->minor = head.minor;
	ret_chain->flags = head.flags;
	ret_chain->n_undescribed = head.n_undescribed;
	ret_chain->n_more_runs = head.n_more_runs;
	ret_chain->n = head.n;
	memcpy(ret_chain->frames, bytes + fixed, head.n * sizeof(struct interp_frame));
	return true;
}

/* Appends a character in UTF-8. Returns the end. */
static char *put_character(char *to, uint32_t c)
{
	if (c == 0 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		c = REPLACEMENT;
	if (c < 0x80) {
		*to++ = (char)c;
		return to;
	}
	if (c < 0x800) {
		*to++ = (char)(0xc0 | c >> 6);
	} else {
		if (c < 0x10000) {
			*to++ = (char)(0xe0 | c >> 12);
		} else {
			*to++ = (char)(0xf0 | c >> 18);
			*to++ = (char)(0x80 | (c >> 12 & 63));
		}
		*to++ = (char)(0x80 | (c >> 6 & 63));
	}
	*to++ = (char)(0x80 | (c & 63));
	return to;
}

/* Appends characters in UTF-8, and REPLACEMENT for each byte that is not UTF-8. Returns the end. */
static char *put_utf_8(const uint8_t *from, size_t size, char *to)
{
	while (size > 0) {
		const gunichar c = g_utf8_get_char_validated((const char *)from, (gssize)size);
		const size_t n = c <= 0x10ffff ? (size_t)g_utf8_skip[*from] : 1;

		to = put_character(to, c <= 0x10ffff ? c : REPLACEMENT);
		from += n;
		size -= n;
	}
	return to;
}

/* A byte becomes at most three bytes: a NUL becomes REPLACEMENT, which has three. */
bool interp_record_text(const uint8_t *from, size_t size, unsigned width, bool is_cut,
			char *ret_text)
{
	char *to = ret_text;

	if (width != INTERP_UTF_8 && width != 1 && width != 2 && width != 4)
		return size == 0 && (*to = '\0', true);
	if (width == INTERP_UTF_8)
		to = put_utf_8(from, size, to);
	else
		for (size_t i = 0; i + width <= size; i += width)
			to = put_character(to, width == 1   ? from[i]
					       : width == 2 ? load_le16(from + i)
							    : load_le32(from + i));
	if (is_cut) {
		memcpy(to, ellipsis, sizeof(ellipsis) - 1);
		to += sizeof(ellipsis) - 1;
	}
	*to = '\0';
	return true;
}

/* Drops the place from the name of a PHP closure. PHP 8.4 and later add it, as in
 * "{closure:Shop\\sell():12}" or "{closure:/srv/shop.php:3}". The result is the name in earlier
 * versions, which does not change if lines are added above the closure. */
static void drop_place(const struct interp_code *head, struct interp_code_text *code)
{
	static const char closure[] = "{closure:";

	if (head->family == INTERP_PHP && g_str_has_prefix(code->name, closure))
		memcpy(code->name + sizeof(closure) - 2, "}", sizeof("}"));
}

/* Adds the class to a method's name: "block in method" of Ruby becomes "block in Class#method", and
 * "method" of PHP or Perl becomes "Class::method". Other names, such as "<main>", remain as they
 * are. Returns false if the record is wrong. */
static bool add_owner(const struct interp_code *head, const uint8_t *owner,
		      struct interp_code_text *code)
{
	char text[3 * INTERP_MAX_OWNER + 4], *base = code->name, *in;
	size_t n;

	code->has_owner = false;
	if (head->family == INTERP_PYTHON || head->owner_bytes == 0)
		return true;
	if (head->owner_bytes >= INTERP_MAX_OWNER || head->name_bytes >= INTERP_MAX_OWNER)
		return false;
	/* PHP names an anonymous class "class@anonymous", followed by a NUL and a place. */
	n = head->family == INTERP_PHP ? strnlen((const char *)owner, head->owner_bytes)
				       : head->owner_bytes;
	(void)interp_record_text(
		owner, n, head->flags & INTERP_CODE_OWNER_LATIN_1 ? 1 : INTERP_UTF_8, false, text);
	while (head->family == INTERP_RUBY && (in = strstr(base, " in ")))
		base = in + strlen(" in ");
	/* A closure's name repeats the namespace of its class. */
	if (head->family == INTERP_PHP && (in = strrchr(base, '\\')))
		memmove(base, in + 1, strlen(in));
	if (*base == '\0' ||
	    (*base == '<' && g_ascii_isalpha(base[1]) && head->family != INTERP_PERL))
		return true;
	strcat(text, head->family != INTERP_RUBY ? "::" : head->is_singleton ? "." : "#");
	n = strlen(text);
	memmove(base + n, base, strlen(base) + 1);
	memcpy(base, text, n);
	code->has_owner = true;
	return true;
}

bool interp_record_code(const uint8_t *bytes, size_t size, struct interp_code_text *ret_code)
{
	const size_t fixed = offsetof(struct interp_code, name);
	const uint8_t *name = bytes + fixed, *file = bytes + offsetof(struct interp_code, file);
	struct interp_code head;

	if (size < offsetof(struct interp_code, lines))
		return false;
	memcpy(&head, bytes, fixed);
	if (head.record != INTERP_RECORD_CODE || !is_family(head.family) ||
	    head.name_bytes > INTERP_MAX_NAME || head.file_bytes > INTERP_MAX_FILE ||
	    head.lines_bytes > size - offsetof(struct interp_code, lines) ||
	    !interp_record_text(name, head.name_bytes, head.name_width,
				head.flags & INTERP_CODE_NAME_CUT, ret_code->name) ||
	    !interp_record_text(file, head.file_bytes, head.file_width,
				head.flags & INTERP_CODE_FILE_CUT, ret_code->file))
		return false;
	drop_place(&head, ret_code);
	if (!add_owner(&head, name + INTERP_MAX_OWNER, ret_code))
		return false;
	ret_code->pid = head.pid;
	ret_code->code = head.code;
	ret_code->id = head.id;
	ret_code->first_line = head.first_line;
	ret_code->family = head.family;
	ret_code->minor = head.minor;
	ret_code->kind = head.kind;
	ret_code->lines = bytes + offsetof(struct interp_code, lines);
	ret_code->lines_bytes = head.lines_bytes;
	return true;
}
