/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "arch/base.h"
#include "arch/uapi.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>

/* The kernel's answer for this program's code is right only if our layout of the struct is
 * right. */
static void test_procmap_query(void)
{
	char name[PATH_MAX] = "";
	char exe[PATH_MAX] = "";
	unsigned char build_id[32] = { 0 };
	struct uapi_procmap_query query = {
		.size = sizeof(query),
		.query_flags = UAPI_PROCMAP_QUERY_VMA_EXECUTABLE |
			       UAPI_PROCMAP_QUERY_FILE_BACKED_VMA,
		.query_addr = (uintptr_t)test_procmap_query,
		.vma_name_size = sizeof(name),
		.vma_name_addr = (uintptr_t)name,
		.build_id_size = sizeof(build_id),
		.build_id_addr = (uintptr_t)build_id,
	};
	CLEANUP_CLOSE int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	REQUIRE(fd >= 0);
	if (ioctl(fd, UAPI_PROCMAP_QUERY, &query) < 0) {
		CHECK_INT(errno, ENOTTY);
		SKIP("this kernel has no PROCMAP_QUERY (Linux 6.11)");
	}
	CHECK(query.vma_start <= query.query_addr && query.query_addr < query.vma_end);
	CHECK(query.vma_flags & UAPI_PROCMAP_QUERY_VMA_EXECUTABLE);
	CHECK(query.inode != 0);
	REQUIRE(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	CHECK_STR(name, exe);
	CHECK_INT(query.vma_name_size, strlen(exe) + 1);
}

int main(void)
{
	RUN(test_procmap_query);
	return test_end();
}
