/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of arch/base.h: arithmetic that fails instead of wrapping, loads at odd addresses,
 * ownership of resources.
 */
#include "arch/base.h"
#include "tests/unit/test.h"

#include <fcntl.h>

static void test_checked_arithmetic(void)
{
	uint64_t v = 7;

	CHECK(add_u64(UINT64_MAX - 1, 1, &v));
	CHECK(v == UINT64_MAX);
	CHECK(!add_u64(UINT64_MAX, 1, &v));
	CHECK(v == UINT64_MAX);
	CHECK(mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 31, &v));
	CHECK(v == UINT64_C(1) << 63);
	CHECK(!mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &v));
	CHECK(v == UINT64_C(1) << 63);
}

static void test_little_endian(void)
{
	unsigned char bytes[9] = { 0 };

	store_le64(bytes + 1, UINT64_C(0x0102030405060708));
	CHECK_INT(bytes[1], 8);
	CHECK_INT(bytes[8], 1);
	CHECK(load_le64(bytes + 1) == UINT64_C(0x0102030405060708));
	CHECK_INT(load_le32(bytes + 1), 0x05060708);
	CHECK_INT(load_le16(bytes + 1), 0x0708);
	store_le32(bytes + 1, 0xa0b0c0d0);
	CHECK_INT(bytes[1], 0xd0);
	store_le16(bytes + 1, 0x1122);
	CHECK_INT(bytes[2], 0x11);
}

static void test_steal(void)
{
	CLEANUP_FREE char *text = strdup("x");
	CLEANUP_FREE char *taken = NULL;
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int taken_fd = steal_fd(&fd);

	taken = steal_ptr(&text);
	CHECK(text == NULL);
	CHECK_STR(taken, "x");
	CHECK_INT(fd, -1);
	CHECK(taken_fd >= 0);
}

static void test_cleanup_closes(void)
{
	int number;

	{
		CLEANUP_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		number = fd;
		CHECK(fcntl(fd, F_GETFD) >= 0);
	}
	CHECK_INT(fcntl(number, F_GETFD), -1);
}

static unsigned count(unsigned *calls)
{
	return ++*calls;
}

/* MIN_OF() and MAX_OF() evaluate each argument only once, even the one that they return. */
static void test_min_max(void)
{
	unsigned calls = 0;

	CHECK_INT(MIN_OF(5u, count(&calls)), 1);
	CHECK_INT(MAX_OF(count(&calls), MIN_OF(count(&calls), 1u)), 2);
	CHECK_INT(calls, 3);
	CHECK_INT(MIN_OF(-1, MAX_OF(-3, -2)), -2);
}

int main(void)
{
	RUN(test_min_max);
	RUN(test_checked_arithmetic);
	RUN(test_little_endian);
	RUN(test_steal);
	RUN(test_cleanup_closes);
	return test_end();
}
