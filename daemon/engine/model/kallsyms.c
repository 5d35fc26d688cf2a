/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Kallsyms - names of kernel addresses from /proc/kallsyms
 *
 * A line is "ADDRESS TYPE NAME" or "ADDRESS TYPE NAME\t[MODULE]". The kernel's own symbols come
 * sorted; those of modules and other origins do not. The text is 5 MB, and a recording hits only a
 * few hundred of its 120 000 names, so nothing is sorted. The requested addresses divide the
 * address space into gaps (gap i ends at address i). Each line falls into one gap, and only the
 * lowest and the highest symbol of a gap can affect the result. A function ends where the next
 * symbol of any type begins, at the latest at _etext. A function of a module, or a function after
 * which no symbol begins, ends at most a page after the page in which it begins.
 * Invariants: (1) the result does not depend on the order of lines  [test-kallsyms: order]
 *             (2) memory holds only a part of the text, and the names that are kept
 *                 [test-kallsyms: real]
 *             (3) a line that is too long or malformed causes -EBADMSG  [test-kallsyms: bad]
 * No GLib. Any thread. The text comes from the kernel, but is checked like any other.
 */
#include "daemon/engine/model/kallsyms.h"

#include <errno.h>
#include <stdlib.h>

#define BUFFER_BYTES 65536
#define PAGE_BYTES UINT64_C(4096)

/* A line. `name` and `module` point into the buffer and are NUL-terminated. */
struct line {
	uint64_t address;
	char type;
	char *name;
	char *module;
};

/* Returns 0 to continue, 1 to stop without an error, or -errno. */
typedef int line_function(const struct line *line, void *data);

/* Splits a NUL-terminated line. */
static bool parse_line(char *text, struct line *ret_line)
{
	struct line line = { .address = 0 };
	char *tab;
	size_t length;

	for (length = 0;; length++) {
		char c = text[length];

		if ((c < '0' || c > '9') && (c < 'a' || c > 'f'))
			break;
		line.address = line.address << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	if (length == 0 || length > 16 || text[length] != ' ' || text[length + 1] == '\0' ||
	    text[length + 2] != ' ' || text[length + 3] == '\0')
		return false;
	line.type = text[length + 1];
	line.name = text + length + 3;
	tab = strchr(line.name, '\t');
	if (tab) {
		size_t bracket = strlen(tab + 1);

		if (tab[1] != '[' || bracket < 3 || tab[bracket] != ']')
			return false;
		*tab = '\0';
		tab[bracket] = '\0';
		line.module = tab + 2;
	}
	*ret_line = line;
	return line.name[0] != '\0';
}

/* Calls the function for each whole line of the buffer. *ret_used: size of these lines in bytes. */
static int each_line(char *buffer, size_t size, line_function *function, void *data,
		     size_t *ret_used)
{
	char *at = buffer, *newline;
	int r = 0;

	while (r == 0 && (newline = memchr(at, '\n', (size_t)(buffer + size - at)))) {
		struct line line;

		*newline = '\0';
		if (memchr(at, '\0', (size_t)(newline - at)) || !parse_line(at, &line))
			return -EBADMSG;
		r = function(&line, data);
		at = newline + 1;
	}
	*ret_used = (size_t)(at - buffer);
	return r;
}

static int walk(int fd, line_function *function, void *data)
{
	CLEANUP_FREE char *buffer = malloc(BUFFER_BYTES);
	size_t held = 0, used = 0;
	off_t offset = 0;
	ssize_t n;
	int r;

	if (!buffer)
		return -ENOMEM;
	for (;;) {
		do
			n = pread(fd, buffer + held, BUFFER_BYTES - held, offset);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return -errno;
		if (n == 0)
			return held > 0 ? -EBADMSG : 0;
		offset += n;
		held += (size_t)n;
		r = each_line(buffer, held, function, data, &used);
		if (r != 0)
			return r < 0 ? r : 0;
		held -= used;
		memmove(buffer, buffer + used, held);
		if (held == BUFFER_BYTES)
			return -EBADMSG;
	}
}

static bool is_function(const struct line *line)
{
	static const char *const ends[] = { "_etext", "_einittext" };

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (strcmp(line->name, ends[i]) == 0)
			return false;
	return strchr("tTwW", line->type) != NULL;
}

/* ---- _stext ---- */

static int find_stext(const struct line *line, void *data)
{
	uint64_t **stext = data;

	if (strcmp(line->name, "_stext") != 0 || line->module)
		return 0;
	**stext = line->address;
	*stext = NULL;
	return 1;
}

int kallsyms_read_stext(int fd, uint64_t *ret_stext)
{
	uint64_t stext = 0, *wanted = &stext;
	int r = walk(fd, find_stext, &wanted);

	if (r < 0)
		return r;
	if (wanted)
		return -ENOENT;
	if (stext == 0)
		return KALLSYMS_HIDDEN;
	*ret_stext = stext;
	return 0;
}

/* ---- Names ---- */

/* A text that keeps its memory when it is replaced, because a gap's highest symbol changes with
 * nearly every line. */
struct text {
	char *bytes;
	size_t capacity;
};

struct gap {
	uint64_t lowest; /* UINT64_MAX: no symbol in this gap */
	uint64_t highest;
	bool function; /* the symbol at `highest` is a function */
	bool has_module;
	struct text name; /* name of the symbol at `highest` */
	struct text module;
};

struct search {
	const uint64_t *addresses;
	size_t n;
	size_t last;      /* gap that was found last; most lines are in it */
	struct gap *gaps; /* n + 1 */
	bool visible;     /* at least one line has an address other than zero */
};

static int text_set(struct text *text, const char *value)
{
	size_t size = strlen(value) + 1;

	if (size > text->capacity) {
		char *bytes = realloc(text->bytes, size + 32);

		if (!bytes)
			return -ENOMEM;
		text->bytes = bytes;
		text->capacity = size + 32;
	}
	memcpy(text->bytes, value, size);
	return 0;
}

/* Returns the index of the first requested address that is not below `address`. */
static size_t find_gap(struct search *search, uint64_t address)
{
	size_t low = 0, high = search->n, last = search->last;

	if ((last == 0 || search->addresses[last - 1] < address) &&
	    (last == search->n || address <= search->addresses[last]))
		return last;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (search->addresses[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	search->last = low;
	return low;
}

static size_t underscores(const char *name)
{
	return strspn(name, "_");
}

/* Returns whether the name is that of a system call's entry for programs of another ABI: 32-bit or
 * x32. Such an entry may have the same address as the native one. */
static bool is_compat(const char *name)
{
	static const char *const prefixes[] = { "__ia32_", "__x32_", "__arm64_compat_" };

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* Returns whether the line is preferred over the gap's symbol at the same address. Prefers, in this
 * order: a function; a name that is not is_compat(); fewer leading underscores; the longer name;
 * the first name in byte order. prefer() in symbols-elf.c has the last three rules, too. */
static bool is_better(const struct line *line, const struct gap *gap)
{
	bool function = is_function(line);
	int order;

	if (function != gap->function)
		return function;
	if (is_compat(line->name) != is_compat(gap->name.bytes))
		return is_compat(gap->name.bytes);
	if (underscores(line->name) != underscores(gap->name.bytes))
		return underscores(line->name) < underscores(gap->name.bytes);
	if (strlen(line->name) != strlen(gap->name.bytes))
		return strlen(line->name) > strlen(gap->name.bytes);
	order = strcmp(line->name, gap->name.bytes);
	return order < 0 || (order == 0 && !line->module && gap->has_module);
}

static int add_line(const struct line *line, void *data)
{
	struct search *search = data;
	struct gap *gap;
	int r;

	if (line->address == 0 || line->type == 'A' || line->type == 'a')
		return 0;
	search->visible = true;
	gap = &search->gaps[find_gap(search, line->address)];
	if (gap->lowest != UINT64_MAX &&
	    (line->address < gap->highest ||
	     (line->address == gap->highest && !is_better(line, gap)))) {
		gap->lowest = MIN_OF(gap->lowest, line->address);
		return 0;
	}
	gap->lowest = MIN_OF(gap->lowest, line->address);
	gap->highest = line->address;
	gap->function = is_function(line);
	gap->has_module = line->module != NULL;
	r = text_set(&gap->name, line->name);
	return r < 0 || !line->module ? r : text_set(&gap->module, line->module);
}

static int fill_symbol(struct kallsyms_symbol *symbol, const struct gap *gap, uint64_t address,
		       uint64_t next)
{
	uint64_t end = next, limit;

	if (!gap || !gap->function)
		return 0;
	limit = (gap->highest | (PAGE_BYTES - 1)) + 1 + PAGE_BYTES;
	if ((gap->has_module || next == UINT64_MAX) && limit >= gap->highest)
		end = MIN_OF(next, limit);
	if (address >= end)
		return 0;
	symbol->start = gap->highest;
	symbol->length = end - gap->highest;
	symbol->name = strdup(gap->name.bytes);
	symbol->module = gap->has_module ? strdup(gap->module.bytes) : NULL;
	return !symbol->name || (gap->has_module && !symbol->module) ? -ENOMEM : 0;
}

static int fill_symbols(const struct search *search, struct kallsyms_symbol *symbols)
{
	CLEANUP_FREE uint64_t *next = calloc(search->n + 1, sizeof(*next));
	const struct gap *gap = NULL;

	if (!next)
		return -ENOMEM;
	next[search->n] = search->gaps[search->n].lowest;
	for (size_t i = search->n; i-- > 0;)
		next[i] = MIN_OF(search->gaps[i].lowest, next[i + 1]);
	for (size_t i = 0; i < search->n; i++) {
		int r;

		if (search->gaps[i].lowest != UINT64_MAX)
			gap = &search->gaps[i];
		r = fill_symbol(&symbols[i], gap, search->addresses[i], next[i + 1]);
		if (r < 0)
			return r;
	}
	return 0;
}

static void search_done(struct search *search)
{
	for (size_t i = 0; search->gaps && i <= search->n; i++) {
		free(search->gaps[i].name.bytes);
		free(search->gaps[i].module.bytes);
	}
	free(search->gaps);
}

int kallsyms_read(int fd, const uint64_t *addresses, size_t n, struct kallsyms_symbol *ret_symbols)
{
	CLEANUP(search_done) struct search search = { .addresses = addresses, .n = n };
	CLEANUP_FREE struct kallsyms_symbol *symbols = calloc(n + 1, sizeof(*symbols));
	int r;

	search.gaps = calloc(n + 1, sizeof(*search.gaps));
	if (!search.gaps || !symbols)
		return -ENOMEM;
	for (size_t i = 0; i <= n; i++)
		search.gaps[i].lowest = UINT64_MAX;
	r = walk(fd, add_line, &search);
	if (r == 0 && !search.visible)
		return KALLSYMS_HIDDEN;
	if (r == 0)
		r = fill_symbols(&search, symbols);
	if (r == 0)
		memcpy(ret_symbols, symbols, n * sizeof(*symbols));
	else
		kallsyms_done(symbols, n);
	return r;
}

void kallsyms_done(struct kallsyms_symbol *symbols, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(symbols[i].name);
		free(symbols[i].module);
	}
}
