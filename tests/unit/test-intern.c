/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks of libcollector/register/intern.c: measuring strings at the end of a page, and finding
 * ids. */
#include "libcollector/register/intern.h"
#include "tests/unit/test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

static struct intern intern;

static struct text measured(const char *bytes)
{
	struct text text = { 0 };

	intern_measure(bytes, &text);
	return text;
}

/* Strings of every length at every distance from an unmapped page: the result is the same as
 * elsewhere, and no byte beyond the page is accessed. */
static void test_page_end(void)
{
	char *page = mmap(NULL, 2 * INTERN_PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = page + INTERN_PAGE;
	char elsewhere[128];

	REQUIRE(page != MAP_FAILED);
	REQUIRE(munmap(end, INTERN_PAGE) == 0);
	for (size_t n = 0; n < 64; n++)
		for (size_t distance = 0; distance < 16; distance++) {
			char *at = end - n - 1 - distance;
			struct text text, other;

			memset(page + INTERN_PAGE - 128, 'x', 128);
			memset(elsewhere, 0, sizeof(elsewhere));
			for (size_t i = 0; i < n; i++)
				at[i] = elsewhere[i + 3] = (char)(i * 37 % 255 + 1);
			at[n] = 0;
			text = measured(at);
			other = measured(elsewhere + 3);
			if (!CHECK_INT(text.n_bytes, n) || !CHECK(text.hash == other.hash))
				return;
		}
	munmap(page, INTERN_PAGE);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Slightly different strings have different hashes. */
static void test_hashes(void)
{
	static uint64_t hashes[200000];
	size_t n = 0;

	for (int i = 0; i < 100000; i++) {
		char bytes[64];

		snprintf(bytes, sizeof(bytes), "%d", i);
		hashes[n++] = measured(bytes).hash;
		snprintf(bytes, sizeof(bytes), "%c......%c......%c%d", i % 50 + 40,
			 i / 50 % 50 + 40, i / 2500 + 40, 7);
		hashes[n++] = measured(bytes).hash;
	}
	qsort(hashes, n, sizeof(hashes[0]), compare);
	for (size_t i = 1; i < n; i++)
		if (!CHECK(hashes[i] != hashes[i - 1]))
			return;
}

static void add(const char *bytes)
{
	struct text text = measured(bytes);

	text.id = intern_new_id(&intern);
	intern_add(&intern, &text, intern.epoch);
}

static uint32_t find(const char *bytes)
{
	struct text text = measured(bytes);

	return intern_find(&intern, &text) ? text.id : UINT32_MAX;
}

static void test_epochs(void)
{
	struct text text = measured("late");

	memset(&intern, 0, sizeof(intern));
	intern_restart(&intern);
	CHECK_INT(find(""), 0);
	CHECK_INT(find("a"), UINT32_MAX);
	add("a");
	add("b");
	CHECK_INT(find("a"), 1);
	CHECK_INT(find("b"), 2);
	text.id = 7;
	intern_reset(&intern);
	intern_add(&intern, &text, intern.epoch - 1);
	CHECK_INT(find("late"), UINT32_MAX);
	CHECK_INT(find("a"), UINT32_MAX);
	add("a");
	CHECK_INT(find("a"), 3);
	intern_restart(&intern);
	CHECK_INT(intern_new_id(&intern), 1);
}

/* More strings than fit into the table: the last ones of each set are found, and no string gets
 * another string's id. */
static void test_full(void)
{
	uint32_t n_found = 0;

	memset(&intern, 0, sizeof(intern));
	intern_restart(&intern);
	for (uint32_t i = 1; i <= 4000; i++) {
		char bytes[16];

		snprintf(bytes, sizeof(bytes), "%u", i);
		add(bytes);
		CHECK_INT(find(bytes), i);
	}
	for (uint32_t i = 1; i <= 4000; i++) {
		char bytes[16];
		uint32_t id;

		snprintf(bytes, sizeof(bytes), "%u", i);
		id = find(bytes);
		n_found += id == i;
		CHECK(id == i || id == UINT32_MAX);
	}
	CHECK_INT(n_found, INTERN_SETS * INTERN_WAYS);
}

/* An entry is invalid if two writers interrupted each other while writing it. */
static void test_interrupted(void)
{
	struct text a = measured("a"), b = measured("b");
	struct intern_entry entry;

	memset(&intern, 0, sizeof(intern));
	intern_restart(&intern);
	a.id = 1;
	b.id = 2;
	b.hash = (b.hash & ~(uint64_t)(INTERN_SETS - 1)) | a.hash % INTERN_SETS;
	intern_add(&intern, &a, intern.epoch);
	entry = intern.entries[a.hash % INTERN_SETS][0];
	memset(intern.entries, 0, sizeof(intern.entries));
	intern_add(&intern, &b, intern.epoch);
	intern.entries[a.hash % INTERN_SETS][0].id = entry.id;
	CHECK(!intern_find(&intern, &a) && !intern_find(&intern, &b));
}

static void place(const char *bytes, uint32_t id)
{
	struct text text = measured(bytes);

	text.id = id;
	intern_add_place(&intern, &text, intern.epoch);
}

/* If a string at a known address has changed (a byte, the length, the epoch), it is not confused
 * with the old one. */
static void test_places(void)
{
	char bytes[64] __attribute__((aligned(64)));

	memset(&intern, 0, sizeof(intern));
	intern_restart(&intern);
	for (uint32_t n = 1; n < 8 * INTERN_PLACE_WORDS; n++) {
		memset(bytes, 0, sizeof(bytes));
		memset(bytes, 'a', n);
		place(bytes, n);
		CHECK_INT(intern_find_place(&intern, bytes), n);
		for (uint32_t i = 0; i <= n; i++) {
			char before = bytes[i];

			bytes[i] = 'b';
			CHECK_INT(intern_find_place(&intern, bytes), 0);
			bytes[i] = before;
		}
		bytes[n + 1] = 'c';
		CHECK_INT(intern_find_place(&intern, bytes), n);
		bytes[n - 1] = 0;
		CHECK_INT(intern_find_place(&intern, bytes), 0);
	}
	memset(bytes, 'a', 8 * INTERN_PLACE_WORDS);
	place(bytes, 7);
	CHECK_INT(intern_find_place(&intern, bytes), 0);
	place("again", 8);
	intern_reset(&intern);
	CHECK_INT(intern_find_place(&intern, "again"), 0);
}

/* Strings at the end of a page; the next page is inaccessible. A string is not cached if its words
 * (8 bytes) reach beyond the page. */
static void test_places_page_end(void)
{
	char *page = mmap(NULL, 2 * INTERN_PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = page + INTERN_PAGE;

	REQUIRE(page != MAP_FAILED);
	memset(&intern, 0, sizeof(intern));
	intern_restart(&intern);
	for (uint32_t distance = 1; distance < 40; distance++) {
		char *at = end - distance;

		memset(at, 'a', 31);
		at[31] = 0;
		place(at, distance);
		CHECK_INT(intern_find_place(&intern, at), distance < 32 ? 0 : distance);
		memset(at, 0, 32);
		at[0] = 'b';
		place(at, distance);
		REQUIRE(mprotect(end, INTERN_PAGE, PROT_NONE) == 0);
		at[0] = 'b';
		CHECK_INT(intern_find_place(&intern, at), distance < 8 ? 0 : distance);
		REQUIRE(mprotect(end, INTERN_PAGE, PROT_READ | PROT_WRITE) == 0);
	}
	munmap(page, 2 * INTERN_PAGE);
}

/* A handler that interrupts a write adds nothing, and does not find the unfinished entry. */
static void test_places_interrupted(void)
{
	memset(&intern, 0, sizeof(intern));
	intern_restart(&intern);
	place("one", 1);
	intern.is_placing = 1;
	place("another", 2);
	CHECK_INT(intern_find_place(&intern, "another"), 0);
	intern.is_placing = 0;
	for (uint32_t i = 0; i < INTERN_PLACES; i++)
		intern.places[i].id = 0;
	CHECK_INT(intern_find_place(&intern, "one"), 0);
}

/* A child's look-up that a signal interrupts. */
struct lookup {
	const char *at;
	volatile int *is_running; /* shared with the test */
	volatile uint32_t id;     /* the result; written so that the compiler keeps all reads */
};
static struct lookup lookup;

static void replace_place(int number)
{
	place(lookup.at, 2);
}

static void look_up(void)
{
	signal(SIGUSR1, replace_place);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		_exit(9);
	raise(SIGSTOP);
	*lookup.is_running = 1;
	lookup.id = intern_find_place(&intern, lookup.at);
	*lookup.is_running = 0;
	_exit(0);
}

/* Sends the signal after n instructions of the look-up. Returns false if the look-up is shorter.
 * *ret_status: how the child ended. */
static bool interrupt_after(size_t n, int *ret_status)
{
	bool is_reached;
	pid_t pid;

	*lookup.is_running = 0;
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		look_up();
	for (size_t steps = 0;
	     waitpid(pid, ret_status, 0) == pid && WIFSTOPPED(*ret_status) && steps <= n;
	     steps += *lookup.is_running != 0)
		ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
	is_reached = WIFSTOPPED(*ret_status);
	if (is_reached)
		ptrace(PTRACE_DETACH, pid, NULL, (void *)(intptr_t)SIGUSR1);
	return is_reached && waitpid(pid, ret_status, 0) == pid;
}

/* A handler replaces an entry by one with fewer words, while the entry is compared with the last
 * string of a page. The number of words of the replaced entry would lead beyond the page. */
static void test_places_replaced(void)
{
	static char others[INTERN_PLACES * 64];
	char *page = mmap(NULL, 2 * INTERN_PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *other = others;
	int status;
	size_t n = 0;

	REQUIRE(page != MAP_FAILED);
	REQUIRE(mprotect(page + INTERN_PAGE, INTERN_PAGE, PROT_NONE) == 0);
	lookup.at = strcpy(page + INTERN_PAGE - 8, "aaaaaaa");
	lookup.is_running =
		mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(lookup.is_running != MAP_FAILED);
	while (intern_place_of(other) != intern_place_of(lookup.at))
		other++;
	memset(&intern, 0, sizeof(intern));
	intern_restart(&intern);
	place(strcpy(other, "aaaaaaabbbbbbbb"), 1);
	CHECK_INT(intern_find_place(&intern, other), 1);
	while (interrupt_after(n, &status) && CHECK(WIFEXITED(status)))
		n++;
	CHECK(n > 5);
	munmap((void *)lookup.is_running, sizeof(int));
	munmap(page, 2 * INTERN_PAGE);
}

int main(void)
{
	RUN(test_places);
	RUN(test_places_page_end);
	RUN(test_places_interrupted);
	RUN(test_places_replaced);
	RUN(test_page_end);
	RUN(test_hashes);
	RUN(test_epochs);
	RUN(test_full);
	RUN(test_interrupted);
	return test_end();
}
