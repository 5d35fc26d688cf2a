/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Status - reports progress, so that the broker can decide whether this process is stuck
 *
 * The progress is stored atomically in a shared page, which daemon/broker/files-worker.c reads. In
 * tests there is no page, and nothing is reported.
 */
#include "daemon/files/status.h"

#include "daemon/files-protocol.h"

#include <stddef.h>
#include <sys/mman.h>

static struct files_status nowhere;
static struct files_status *status = &nowhere;

bool status_open(int fd)
{
	void *page = mmap(NULL, sizeof(*status), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		return false;
	status = page;
	return true;
}

bool status_begin(uint32_t serial)
{
	__atomic_store_n(&status->bytes, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&status->pid, 0, __ATOMIC_RELAXED);
	/* Pairs with files_worker_is_at() and files_worker_stop_behind(). */
	__atomic_store_n(&status->serial, serial, __ATOMIC_SEQ_CST);
	status_progress();
	return !__atomic_load_n(&status->stop, __ATOMIC_SEQ_CST);
}

void status_progress(void)
{
	__atomic_store_n(&status->progress, status->progress + 1, __ATOMIC_RELAXED);
}

void status_set_pid(pid_t pid)
{
	__atomic_store_n(&status->pid, pid, __ATOMIC_RELAXED);
	status_progress();
}

void status_set_bytes(uint64_t bytes)
{
	/* Pairs with files_worker_bytes(): all bytes below `bytes` have been written. */
	__atomic_store_n(&status->bytes, bytes, __ATOMIC_RELEASE);
}

uint64_t status_bytes(void)
{
	return status->bytes;
}
