/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tools/profile/wait-causes.h"

#include "base/order.h"
#include "tools/common/keyed.h"
#include "tools/profile/profile-tree.h"

#include <string.h>

const char *const wait_cause_names[] = { "futex",   "file", "network", "timer",   "pipe", "fault",
					 "process", "poll", "other",   "unknown", NULL };

struct known {
	const char *name;
	enum wait_cause cause;
	const char *call; /* NULL: same as `name` */
};

/* Sorted by name. Names of system calls lack the kernel's prefix. Names of C library functions,
 * which are often the same, lack leading underscores. A wait in kernel_clone() itself is for a
 * child of vfork(); one in copy_process(), which it calls, is not. */
static const struct known table[] = {
	{ "accept", WAIT_NETWORK, NULL },
	{ "accept4", WAIT_NETWORK, NULL },
	{ "access", WAIT_FILE, NULL },
	{ "anon_pipe_read", WAIT_PIPE, "pipe" },
	{ "anon_pipe_write", WAIT_PIPE, "pipe" },
	{ "asm_exc_page_fault", WAIT_FAULT, "page fault" },
	{ "chmod", WAIT_FILE, NULL },
	{ "chown", WAIT_FILE, NULL },
	{ "clock_nanosleep", WAIT_TIMER, "timer" },
	{ "close", WAIT_FILE, NULL },
	{ "connect", WAIT_NETWORK, NULL },
	{ "copy_file_range", WAIT_FILE, NULL },
	{ "copy_process", WAIT_OTHER, "fork" },
	{ "creat", WAIT_FILE, "open" },
	{ "do_exit", WAIT_OTHER, "exit" },
	{ "do_mem_abort", WAIT_FAULT, "page fault" },
	{ "do_signal_stop", WAIT_OTHER, "stop" },
	{ "epoll_pwait", WAIT_POLL, "epoll" },
	{ "epoll_pwait2", WAIT_POLL, "epoll" },
	{ "epoll_wait", WAIT_POLL, "epoll" },
	{ "eventfd_read", WAIT_OTHER, "eventfd" },
	{ "exc_page_fault", WAIT_FAULT, "page fault" },
	{ "execve", WAIT_FILE, NULL },
	{ "execveat", WAIT_FILE, "execve" },
	{ "faccessat", WAIT_FILE, "access" },
	{ "faccessat2", WAIT_FILE, "access" },
	{ "fallocate", WAIT_FILE, NULL },
	{ "fchmod", WAIT_FILE, "chmod" },
	{ "fchmodat", WAIT_FILE, "chmod" },
	{ "fchown", WAIT_FILE, "chown" },
	{ "fchownat", WAIT_FILE, "chown" },
	{ "fcntl", WAIT_FILE, NULL },
	{ "fdatasync", WAIT_FILE, NULL },
	{ "flock", WAIT_FILE, NULL },
	{ "fstat", WAIT_FILE, "stat" },
	{ "fstatfs", WAIT_FILE, "statfs" },
	{ "fsync", WAIT_FILE, NULL },
	{ "ftruncate", WAIT_FILE, NULL },
	{ "futex", WAIT_FUTEX, NULL },
	{ "futex_abstimed_wait_common", WAIT_FUTEX, "futex" },
	{ "futex_wait", WAIT_FUTEX, "futex" },
	{ "futex_waitv", WAIT_FUTEX, "futex" },
	{ "getdents64", WAIT_FILE, NULL },
	{ "inotify_read", WAIT_OTHER, "inotify" },
	{ "io_getevents", WAIT_FILE, NULL },
	{ "io_uring_enter", WAIT_FILE, NULL },
	{ "kernel_clone", WAIT_PROCESS, "vfork" },
	{ "kernel_wait4", WAIT_PROCESS, "wait" },
	{ "link", WAIT_FILE, NULL },
	{ "linkat", WAIT_FILE, "link" },
	{ "lll_lock_wait", WAIT_FUTEX, "futex" },
	{ "lll_lock_wait_private", WAIT_FUTEX, "futex" },
	{ "lstat", WAIT_FILE, "stat" },
	{ "mkdir", WAIT_FILE, NULL },
	{ "mkdirat", WAIT_FILE, "mkdir" },
	{ "msync", WAIT_FILE, NULL },
	{ "n_tty_read", WAIT_OTHER, "terminal" },
	{ "nanosleep", WAIT_TIMER, "timer" },
	{ "newfstat", WAIT_FILE, "stat" },
	{ "newfstatat", WAIT_FILE, "stat" },
	{ "newlstat", WAIT_FILE, "stat" },
	{ "newstat", WAIT_FILE, "stat" },
	{ "open", WAIT_FILE, NULL },
	{ "openat", WAIT_FILE, "open" },
	{ "openat2", WAIT_FILE, "open" },
	{ "page fault", WAIT_FAULT, NULL },
	{ "pause", WAIT_OTHER, "signal" },
	{ "pipe_read", WAIT_PIPE, "pipe" },
	{ "pipe_write", WAIT_PIPE, "pipe" },
	{ "poll", WAIT_POLL, NULL },
	{ "ppoll", WAIT_POLL, "poll" },
	{ "pread64", WAIT_FILE, "read" },
	{ "preadv", WAIT_FILE, "read" },
	{ "preadv2", WAIT_FILE, "read" },
	{ "pselect6", WAIT_POLL, "select" },
	{ "ptrace_stop", WAIT_OTHER, "trace stop" },
	{ "pwrite64", WAIT_FILE, "write" },
	{ "pwritev", WAIT_FILE, "write" },
	{ "pwritev2", WAIT_FILE, "write" },
	{ "read", WAIT_FILE, NULL },
	{ "read of a pipe", WAIT_PIPE, "pipe" },
	{ "read of a socket", WAIT_NETWORK, NULL },
	{ "read of a terminal", WAIT_OTHER, "terminal" },
	{ "read of a timer", WAIT_TIMER, "timer" },
	{ "read of another object", WAIT_OTHER, "read" },
	{ "readahead", WAIT_FILE, NULL },
	{ "readlink", WAIT_FILE, NULL },
	{ "readlinkat", WAIT_FILE, "readlink" },
	{ "readv", WAIT_FILE, "read" },
	{ "recv", WAIT_NETWORK, NULL },
	{ "recvfrom", WAIT_NETWORK, "recv" },
	{ "recvmmsg", WAIT_NETWORK, "recv" },
	{ "recvmsg", WAIT_NETWORK, "recv" },
	{ "rename", WAIT_FILE, NULL },
	{ "renameat", WAIT_FILE, "rename" },
	{ "renameat2", WAIT_FILE, "rename" },
	{ "rmdir", WAIT_FILE, NULL },
	{ "rt_sigsuspend", WAIT_OTHER, "signal" },
	{ "rt_sigtimedwait", WAIT_OTHER, "signal" },
	{ "select", WAIT_POLL, NULL },
	{ "send", WAIT_NETWORK, NULL },
	{ "sendfile", WAIT_FILE, NULL },
	{ "sendfile64", WAIT_FILE, "sendfile" },
	{ "sendmmsg", WAIT_NETWORK, "send" },
	{ "sendmsg", WAIT_NETWORK, "send" },
	{ "sendto", WAIT_NETWORK, "send" },
	{ "signalfd_read", WAIT_OTHER, "signal" },
	{ "signalfd_read_iter", WAIT_OTHER, "signal" },
	{ "sigsuspend", WAIT_OTHER, "signal" },
	{ "sock_read_iter", WAIT_NETWORK, "read of a socket" },
	{ "sock_write_iter", WAIT_NETWORK, "write to a socket" },
	{ "splice", WAIT_PIPE, NULL },
	{ "stat", WAIT_FILE, NULL },
	{ "statfs", WAIT_FILE, NULL },
	{ "statx", WAIT_FILE, "stat" },
	{ "stop", WAIT_OTHER, NULL },
	{ "symlink", WAIT_FILE, NULL },
	{ "symlinkat", WAIT_FILE, "symlink" },
	{ "sync", WAIT_FILE, NULL },
	{ "sync_file_range", WAIT_FILE, NULL },
	{ "syncfs", WAIT_FILE, NULL },
	{ "tee", WAIT_PIPE, NULL },
	{ "timerfd_read", WAIT_TIMER, "timer" },
	{ "timerfd_read_iter", WAIT_TIMER, "timer" },
	{ "trace stop", WAIT_OTHER, NULL },
	{ "truncate", WAIT_FILE, NULL },
	{ "tty_read", WAIT_OTHER, "terminal" },
	{ "umount", WAIT_FILE, NULL },
	{ "umount2", WAIT_FILE, "umount" },
	{ "unlink", WAIT_FILE, NULL },
	{ "unlinkat", WAIT_FILE, "unlink" },
	{ "userfaultfd_read", WAIT_OTHER, "userfaultfd" },
	{ "utimensat", WAIT_FILE, NULL },
	{ "vfork", WAIT_PROCESS, NULL },
	{ "vmsplice", WAIT_PIPE, "splice" },
	{ "wait4", WAIT_PROCESS, "wait" },
	{ "wait_for_vfork_done", WAIT_PROCESS, "vfork" },
	{ "waitid", WAIT_PROCESS, "wait" },
	{ "write", WAIT_FILE, NULL },
	{ "write to a pipe", WAIT_PIPE, "pipe" },
	{ "write to a socket", WAIT_NETWORK, NULL },
	{ "write to a terminal", WAIT_OTHER, "terminal" },
	{ "write to another object", WAIT_OTHER, "write" },
	{ "writev", WAIT_FILE, "write" },
};

static int compare_known(const void *key, const void *member)
{
	return strcmp(key, ((const struct known *)member)->name);
}

enum wait_cause wait_cause_of(const char *name, const char **ret_call)
{
	static const char *const prefixes[] = { "__x64_sys_", "__arm64_sys_", "__riscv_sys_",
						"__do_sys_",  "__se_sys_",    "__ia32_sys_",
						"__sys_",     "ksys_",        "__libc_",
						"__GI_",      "sys_",         NULL };
	const struct known *known;

	for (size_t i = 0; prefixes[i]; i++) {
		if (!g_str_has_prefix(name, prefixes[i]))
			continue;
		name += strlen(prefixes[i]);
		break;
	}
	name += strspn(name, "_");
	known = bsearch(name, table, ARRAY_SIZE(table), sizeof(table[0]), compare_known);
	*ret_call = known ? (known->call ? known->call : known->name) : NULL;
	return known ? known->cause : WAIT_UNKNOWN;
}

const char *wait_call_name(const struct wait_call *wait)
{
	static const struct {
		const char *object, *read, *write;
	} kinds[] = {
		{ "pipe:", "read of a pipe", "write to a pipe" },
		{ "socket:", "read of a socket", "write to a socket" },
		{ "/dev/pts/", "read of a terminal", "write to a terminal" },
		{ "/dev/tty", "read of a terminal", "write to a terminal" },
		{ "anon_inode:[timerfd]", "read of a timer", "write to another object" },
		{ "/", "read", "write" },
	};
	const char *known;
	bool reads;

	if (wait->source == PROF_STACK_COPIED)
		return NULL;
	/* A stop only interrupts the call, so the stop is the cause. */
	if (wait->state == PROF_WAIT_STOPPED || wait->state == PROF_WAIT_TRACED)
		return wait->state == PROF_WAIT_STOPPED ? "stop" : "trace stop";
	/* Captures of earlier versions have no name for page faults. */
	if (!wait->call)
		return wait->source == PROF_STACK_LATE ? "page fault" : NULL;
	/* A wait in clone() is long enough for its call to be read only if the call is a vfork(),
	 * as in posix_spawn(). */
	if (strcmp(wait->call, "clone") == 0 || strcmp(wait->call, "clone3") == 0)
		return "vfork";
	if (wait_cause_of(wait->call, &known) != WAIT_FILE ||
	    (strcmp(known, "read") != 0 && strcmp(known, "write") != 0))
		return wait->call;
	reads = strcmp(known, "read") == 0;
	for (size_t i = 0; wait->object && i < ARRAY_SIZE(kinds); i++)
		if (g_str_has_prefix(wait->object, kinds[i].object))
			return reads ? kinds[i].read : kinds[i].write;
	return reads ? "read of another object" : "write to another object";
}

/* ---- places ---------------------------------------------------------------------------------- */

static const struct wait_place unknown_place = { .function = FUNCTION_NO_STACK,
						 .cause = WAIT_UNKNOWN };

KEYED_BY(place, struct wait_place, (uint64_t)a->function << 32 | a->cause, (uintptr_t)a->call)

static void add(struct wait_places *places, const struct wait_place *key, struct amount amount)
{
	struct wait_place *place;

	if (!places->all)
		places->all = g_hash_table_new_full(place_hash, place_equal, g_free, NULL);
	place = keyed_at(places->all, key, sizeof(*key));
	place->weight += amount.weight;
	place->n += amount.samples;
}

void wait_places_add_unknown(struct wait_places *places, struct amount amount)
{
	add(places, &unknown_place, amount);
}

/* Turns the place of a stack into the place of the same stack with a call of `function` added. */
static void enter(struct wait_place *place, const struct functions *functions, uint32_t function)
{
	const struct function *f = functions_at(functions, function);
	enum code_origin origin = function > FUNCTION_LOST ? code_origin_of(functions, function)
							   : CODE_ORIGIN_UNKNOWN;
	enum wait_cause cause;
	const char *call;

	if (origin == CODE_ORIGIN_OWN)
		place->function = function;
	if (origin != CODE_ORIGIN_KERNEL && origin != CODE_ORIGIN_LIBC)
		return;
	cause = wait_cause_of(f->raw_name ? f->raw_name : f->name, &call);
	/* Only kernel functions show whether the descriptor is a file, a pipe or a socket. */
	if (origin == CODE_ORIGIN_LIBC && cause == WAIT_FILE &&
	    (strcmp(call, "read") == 0 || strcmp(call, "write") == 0))
		cause = WAIT_OTHER;
	if (cause != WAIT_UNKNOWN) {
		place->cause = cause;
		place->call = call;
	} else if (origin == CODE_ORIGIN_KERNEL && place->cause == WAIT_UNKNOWN) {
		place->cause = WAIT_OTHER;
	}
}

struct wait_place wait_place_below(const struct wait_place *caller,
				   const struct functions *functions, uint32_t function)
{
	struct wait_place place = caller ? *caller : unknown_place;

	enter(&place, functions, function);
	return place;
}

struct wait_place *wait_places_of_nodes(const GArray *nodes, const struct functions *functions)
{
	struct wait_place *places = g_new(struct wait_place, nodes->len);

	for (guint i = 0; i < nodes->len; i++) {
		const struct profile_node *node = &g_array_index(nodes, struct profile_node, i);

		places[i] = i ? places[node->parent] : unknown_place;
		if (i)
			enter(&places[i], functions, functions_whole(functions, node->entity));
	}
	return places;
}

void wait_places_count(struct wait_places *places, const struct functions *functions,
		       const struct stacks *stacks)
{
	/* by node: place of the stack that ends in the node */
	g_autofree struct wait_place *known = g_new0(struct wait_place, stacks->n);

	for (size_t i = 0; i < stacks->n; i++) {
		uint32_t row = stacks->order[i], parent = stacks->parent[row];

		known[row] = parent == STACKS_NO_ROW ? unknown_place : known[parent];
		if (stacks->total[row].samples == 0)
			continue;
		enter(&known[row], functions, functions_whole(functions, stacks->entity[row]));
		if (stacks->self[row].samples)
			add(places, &known[row], stacks->self[row]);
	}
}

void wait_places_done(struct wait_places *places)
{
	g_clear_pointer(&places->all, g_hash_table_unref);
}

COMPARE_BY(compare_places, struct wait_place, ORDER(b->weight, a->weight),
	   ORDER(a->function, b->function), g_strcmp0(a->call, b->call))

GArray *wait_places_rows(const struct wait_places *places)
{
	return places->all ? keyed_copies(places->all, sizeof(struct wait_place), compare_places)
			   : g_array_new(FALSE, FALSE, sizeof(struct wait_place));
}
