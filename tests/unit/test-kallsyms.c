/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of daemon/engine/model/kallsyms.c: the symbol of an address, in a file with lines in any
 * order, hidden addresses, or other text; and in this machine's file, which must have each returned
 * name at its address.
 */
#include "daemon/engine/model/kallsyms.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#define ADDRESSES 1000

static const char *const lines[] = {
	"0000000000000000 A fixed_percpu_data",
	"ffffffff81000000 T _text",
	"ffffffff81000000 T startup_64",
	"ffffffff81000000 T _stext",
	"ffffffff81000100 t __do_one",
	"ffffffff81000100 T do_one",
	"ffffffff81000100 W do_one_weak_name",
	"ffffffff81000200 t do_two.cold",
	"ffffffff81000240 T __ia32_sys_getpid",
	"ffffffff81000240 T __x64_sys_getpid",
	"ffffffff81000280 T _etext",
	"ffffffff81400000 D some_data",
	"ffffffffc0201f00 t last_of_ext4\t[ext4]",
	"ffffffffc0200000 t first_of_ext4\t[ext4]",
	"ffffffffc0202f00 d ext4_data\t[ext4]",
	"ffffffffc0300000 t bpf_prog_6deef7357e7b4530_sd\t[bpf]",
};

static int open_text(const char *text)
{
	int fd = memfd_create("kallsyms", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		CHECK(!"cannot write");
	return fd;
}

/* Opens a file of the fixture's lines, rotated by `shift`. So each line is the first one for some
 * shift. */
static int open_lines(size_t shift)
{
	char text[4096] = "";

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		strcat(text, lines[(i + shift) % ARRAY_SIZE(lines)]);
		strcat(text, "\n");
	}
	return open_text(text);
}

struct expected {
	uint64_t address;
	uint64_t start;
	uint64_t end;
	const char *name;
	const char *module;
};

static const struct expected expected[] = {
	{ 0xffffffff80ffffff, 0, 0, NULL, NULL },
	{ 0xffffffff81000000, 0xffffffff81000000, 0xffffffff81000100, "startup_64", NULL },
	{ 0xffffffff810000ff, 0xffffffff81000000, 0xffffffff81000100, "startup_64", NULL },
	{ 0xffffffff81000100, 0xffffffff81000100, 0xffffffff81000200, "do_one_weak_name", NULL },
	{ 0xffffffff81000150, 0xffffffff81000100, 0xffffffff81000200, "do_one_weak_name", NULL },
	{ 0xffffffff8100023f, 0xffffffff81000200, 0xffffffff81000240, "do_two.cold", NULL },
	{ 0xffffffff8100027f, 0xffffffff81000240, 0xffffffff81000280, "__x64_sys_getpid", NULL },
	{ 0xffffffff81000280, 0, 0, NULL, NULL },
	{ 0xffffffff81400010, 0, 0, NULL, NULL },
	{ 0xffffffffc0200010, 0xffffffffc0200000, 0xffffffffc0201f00, "first_of_ext4", "ext4" },
	{ 0xffffffffc0202000, 0xffffffffc0201f00, 0xffffffffc0202f00, "last_of_ext4", "ext4" },
	{ 0xffffffffc0202f10, 0, 0, NULL, NULL },
	{ 0xffffffffc0300fff, 0xffffffffc0300000, 0xffffffffc0302000,
	  "bpf_prog_6deef7357e7b4530_sd", "bpf" },
	{ 0xffffffffc0302000, 0, 0, NULL, NULL },
};

static void check_expected(int fd)
{
	struct kallsyms_symbol symbols[ARRAY_SIZE(expected)];
	uint64_t addresses[ARRAY_SIZE(expected)];

	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		addresses[i] = expected[i].address;
	REQUIRE(kallsyms_read(fd, addresses, ARRAY_SIZE(expected), symbols) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		CHECK_STR(symbols[i].name, expected[i].name);
		CHECK_STR(symbols[i].module, expected[i].module);
		CHECK_INT(symbols[i].start, expected[i].start);
		CHECK_INT(symbols[i].length, expected[i].end - expected[i].start);
	}
	kallsyms_done(symbols, ARRAY_SIZE(expected));
}

static void test_order(void)
{
	for (size_t shift = 0; shift < ARRAY_SIZE(lines); shift++) {
		CLEANUP_CLOSE int fd = open_lines(shift);

		check_expected(fd);
	}
}

static void test_stext(void)
{
	CLEANUP_CLOSE int fd = open_lines(0);
	CLEANUP_CLOSE int without = open_text("ffffffff81000000 T _text\n");
	uint64_t stext = 0;

	CHECK_INT(kallsyms_read_stext(fd, &stext), 0);
	CHECK_INT(stext, 0xffffffff81000000);
	CHECK_INT(kallsyms_read_stext(without, &stext), -ENOENT);
}

static void test_hidden(void)
{
	CLEANUP_CLOSE int fd = open_text("0000000000000000 T _stext\n0000000000000000 t f\t[m]\n");
	uint64_t address = 0xffffffff81000000, stext;
	struct kallsyms_symbol symbol;

	CHECK_INT(kallsyms_read_stext(fd, &stext), KALLSYMS_HIDDEN);
	CHECK_INT(kallsyms_read(fd, &address, 1, &symbol), KALLSYMS_HIDDEN);
}

static void check_bad(const char *text)
{
	CLEANUP_CLOSE int fd = open_text(text);
	struct kallsyms_symbol symbol;
	uint64_t address = 1;

	CHECK_INT(kallsyms_read(fd, &address, 1, &symbol), -EBADMSG);
}

static void test_bad(void)
{
	CLEANUP_FREE char *endless = calloc(1, 200001);

	REQUIRE(endless != NULL);
	memset(endless, 'a', 200000);
	check_bad("hello\n");
	check_bad("ffffffff81000000 T cut");
	check_bad("ffffffff81000000 T \n");
	check_bad("ffffffff81000000  x\n");
	check_bad("11112222333344445 T f\n");
	check_bad("ffffffff81000000 T f\tm\n");
	check_bad("ffffffff81000000 T f\t[\n");
	check_bad("ffffffff81000000 T f\t[]\n");
	check_bad("ffffffff81000000 T \t[m]\n");
	check_bad("\n");
	check_bad(endless);
	CHECK_INT(kallsyms_read(-1, NULL, 0, NULL), -EBADF);
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

static size_t drop_doubles(uint64_t *addresses, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (kept == 0 || addresses[i] != addresses[kept - 1])
			addresses[kept++] = addresses[i];
	return kept;
}

/* Picks every `step`th address of the kernel's own functions. */
static size_t pick_addresses(uint64_t *addresses, size_t step)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[1024], type, name[600];
	uint64_t address;
	size_t n = 0, number = 0;

	while (file && n < ADDRESSES && fgets(line, sizeof(line), file))
		if (sscanf(line, "%" SCNx64 " %c %599s", &address, &type, name) == 3 &&
		    address != 0 && strchr("tTW", type) && name[0] != '_' && !strchr(line, '[') &&
		    number++ % step == 0)
			addresses[n++] = address;
	if (file)
		fclose(file);
	qsort(addresses, n, sizeof(*addresses), compare_addresses);
	return drop_doubles(addresses, n);
}

/* Counts the addresses for which /proc/kallsyms has the returned name. */
static size_t count_right(const uint64_t *addresses, const struct kallsyms_symbol *symbols,
			  size_t n)
{
	FILE *file = fopen("/proc/kallsyms", "re");
	char line[1024], type, name[600];
	uint64_t address;
	size_t right = 0;

	while (file && fgets(line, sizeof(line), file)) {
		const uint64_t *found;

		if (sscanf(line, "%" SCNx64 " %c %599s", &address, &type, name) != 3)
			continue;
		found = bsearch(&address, addresses, n, sizeof(*addresses), compare_addresses);
		if (found && symbols[found - addresses].name &&
		    strcmp(symbols[found - addresses].name, name) == 0)
			right++;
	}
	if (file)
		fclose(file);
	return right;
}

static uint64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void test_real(void)
{
	CLEANUP_CLOSE int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	static struct kallsyms_symbol symbols[ADDRESSES];
	static uint64_t addresses[ADDRESSES];
	uint64_t stext, begin;
	struct rusage before, after;
	size_t n = pick_addresses(addresses, 97);

	REQUIRE(fd >= 0);
	if (n == 0) { /* kptr_restrict hides addresses from users without privileges */
		CHECK_INT(kallsyms_read_stext(fd, &stext), KALLSYMS_HIDDEN);
		return;
	}
	CHECK_INT(kallsyms_read_stext(fd, &stext), 0);
	getrusage(RUSAGE_SELF, &before);
	begin = now_us();
	REQUIRE(kallsyms_read(fd, addresses, n, symbols) == 0);
	printf("# %zu addresses in %" PRIu64 " us\n", n, now_us() - begin);
	getrusage(RUSAGE_SELF, &after);
	CHECK(after.ru_maxrss - before.ru_maxrss < 2048);
	for (size_t i = 0; i < n; i++) {
		CHECK_INT(symbols[i].start, addresses[i]);
		CHECK(symbols[i].length > 0 &&
		      (i + 1 == n || addresses[i] == addresses[i + 1] ||
		       symbols[i].length <= addresses[i + 1] - addresses[i]));
	}
	CHECK_INT(count_right(addresses, symbols, n), n);
	kallsyms_done(symbols, n);
}

int main(void)
{
	RUN(test_order);
	RUN(test_stext);
	RUN(test_hidden);
	RUN(test_bad);
	RUN(test_real);
	return test_end();
}
