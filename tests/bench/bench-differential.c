/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Bench-differential - walks the samples of a perf.data file with the engine's code and with
 * libdwfl
 *
 *     bench-differential FILE [COMM…]  compares the chains; prints a line of JSON
 *     bench-differential --roots FILE  counts libdwfl's chains that reach a root, by process name
 *
 * Processes and mappings come from the records, in order. Each walk uses the mappings of its time.
 * Tables, maps and the walk are the engine's. Two chains are equal if they have the same pcs, up to
 * the first frame in code without CFI, because beyond it both only guess. Differences are counted
 * by class: which walk ended, and why. bench_differential.py excludes the classes in which libdwfl
 * cannot be right.
 */
#include "arch/base.h"
#include "daemon/engine/model/vdso.h"
#include "daemon/engine/unwind/unwind-file.h"
#include "daemon/engine/unwind/unwind.h"
#include "tests/oracle/peer-walk.h"
#include "tests/oracle/perf-data.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

#define MAX_MODULES 1024
#define PEER_FRAMES 2048 /* more than our limit UNWIND_MAX_FRAMES */
#define NAME_BYTES 32

struct process {
	char name[NAME_BYTES];
	struct maps *maps;
	struct peer_walk peer;
	bool peer_works;
	uint64_t peer_version; /* version of the maps from which `peer` was made */
};

/* A count for a class or a name. */
struct count {
	uint64_t n, roots;
	char *example;
};

struct differential {
	GHashTable *processes; /* by pid */
	struct images images;
	struct unwind_tables *tables;
	struct unwind *unwind;
	char *vdso; /* path of a copy of the vdso */
	const char *const *names;
	size_t n_names;
	bool roots_only;
	uint64_t peer_pcs[PEER_FRAMES];
	uint64_t n, empty, equal, equal_to_jit, outside;
	uint32_t walk;                                /* number of the current walk */
	GHashTable *classes, *by_name, *stops, *ends; /* struct count */
};

/* ---- Files ---- */

static void want(struct image *image, const struct mapping *mapping, int32_t pid, void *data)
{
	struct differential *d = data;
	CLEANUP_CLOSE int fd = open(image->path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	image->requested = true;
	image->unwind_state = IMAGE_UNWIND_NONE;
	if (fd < 0 || fstat(fd, &st) < 0)
		return;
	image->opened.dev = st.st_dev;
	image->opened.inode = st.st_ino;
	image->size = (uint64_t)st.st_size;
	image->ctime_ns = st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
	unwind_tables_add(d->tables, image, steal_fd(&fd));
}

static void wait_for_tables(struct differential *d)
{
	struct pollfd wait = { .fd = unwind_tables_fd(d->tables), .events = POLLIN };

	while (unwind_tables_waiting(d->tables) > 0) {
		poll(&wait, 1, 1000);
		unwind_tables_receive(d->tables);
	}
}

/* Stores the difference between addresses in the mapping and in the file. Returns false if the file
 * has no such code. Also returns false for the second mapping of a program with fixed addresses
 * (node maps its code twice), because libdwfl cannot handle two mappings. */
static bool get_bias(const char *path, const struct mapping *mapping, uint64_t *ret_bias)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf64_Ehdr header;
	Elf64_Phdr segment;

	if (fd < 0 || pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	for (unsigned int i = 0; i < header.e_phnum; i++) {
		if (pread(fd, &segment, sizeof(segment),
			  (off_t)(header.e_phoff + i * sizeof(segment))) != sizeof(segment))
			return false;
		if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X) ||
		    (segment.p_offset & ~UINT64_C(4095)) > mapping->file_offset ||
		    segment.p_offset + segment.p_filesz <= mapping->file_offset)
			continue;
		*ret_bias = mapping->start - mapping->file_offset + segment.p_offset -
			    segment.p_vaddr;
		return header.e_type != ET_EXEC || *ret_bias == 0;
	}
	return false;
}

static char *make_vdso_file(void)
{
	size_t size;
	const uint8_t *bytes = vdso_find(&size);
	char *path = g_strdup("/var/tmp/prof-vdso-XXXXXX");
	CLEANUP_CLOSE int fd = mkstemp(path);

	if (!bytes || fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		g_clear_pointer(&path, g_free);
	return path;
}

/* ---- Processes ---- */

static void free_process(gpointer data)
{
	struct process *process = data;

	maps_unref(process->maps);
	if (process->peer.dwfl)
		peer_walk_done(&process->peer);
	g_free(process);
}

static struct process *get_process(struct differential *d, int32_t pid)
{
	struct process *process = g_hash_table_lookup(d->processes, GINT_TO_POINTER(pid));

	if (!process) {
		process = g_new0(struct process, 1);
		process->maps = maps_new();
		g_hash_table_insert(d->processes, GINT_TO_POINTER(pid), process);
	}
	return process;
}

static void on_map(struct differential *d, const struct perf_data_event *event)
{
	struct image_key key = {
		.path = event->path,
		.path_bytes = strlen(event->path),
		.start = event->start,
	};
	struct mapping mapping = {
		.start = event->start,
		.end = event->end,
		.file_offset = event->offset,
		.time_ns = event->time_ns,
	};

	if (event->pid == -1)
		return;
	mapping.image = images_of_mapping(&d->images, &key);
	maps_insert(&get_process(d, event->pid)->maps, &mapping);
}

static void on_exec(struct differential *d, const struct perf_data_event *event)
{
	struct process *process = get_process(d, event->pid);

	if (event->tid == event->pid)
		g_strlcpy(process->name, event->name, sizeof(process->name));
	if (!event->is_exec)
		return;
	maps_unref(process->maps);
	process->maps = maps_new();
}

static void on_fork(struct differential *d, const struct perf_data_event *event)
{
	const struct process *parent;
	struct process *process;

	if (event->pid == event->parent_pid)
		return;
	parent = get_process(d, event->parent_pid);
	process = get_process(d, event->pid);
	maps_unref(process->maps);
	process->maps = maps_ref(parent->maps);
	memcpy(process->name, parent->name, sizeof(process->name));
}

/* Returns whether the module is in the list already: a file with two executable segments has two
 * mappings, but is one module. */
static bool has_module(const struct peer_module *modules, size_t n,
		       const struct peer_module *module)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(modules[i].path, module->path) == 0 && modules[i].bias == module->bias)
			return true;
	return false;
}

static bool make_peer(struct differential *d, struct process *process, int32_t pid)
{
	static struct peer_module modules[MAX_MODULES];
	const struct maps *maps = process->maps;
	size_t n = 0;

	for (uint32_t i = 0; i < maps->n && n < MAX_MODULES; i++) {
		const struct mapping *mapping = &maps->mappings[i];
		struct peer_module *module = &modules[n];

		if (!mapping->image)
			continue;
		module->path = mapping->image->kind == PROF_IMAGE_VDSO ? d->vdso
								       : mapping->image->path;
		if (module->path && get_bias(module->path, mapping, &module->bias))
			n += !has_module(modules, n, module);
	}
	if (process->peer.dwfl)
		peer_walk_done(&process->peer);
	process->peer_version = maps->version;
	process->peer_works = peer_walk_init_modules(&process->peer, pid, modules, n);
	return process->peer_works;
}

static size_t walk_peer(struct differential *d, struct process *process,
			const struct perf_data_event *event)
{
	if (process->peer_version != process->maps->version)
		make_peer(d, process, event->pid);
	if (!process->peer_works)
		return 0;
	return peer_walk_run(&process->peer, &event->sample, d->peer_pcs, PEER_FRAMES);
}

/* ---- Our walk ---- */

static void walk(struct differential *d, const struct process *process,
		 const struct perf_data_event *event, struct unwind_stack *ret_stack)
{
	const uint64_t *registers = event->sample.registers;
	struct unwind_input input = {
		.registers = { .pc = registers[16], .sp = registers[7], .fp = registers[6] },
		.stack = event->sample.stack,
		.stack_bytes = event->sample.stack_size,
		.full_bytes = LIVE_STACK_BYTES,
		.thread = ++d->walk, /* always a new thread, so that no walk is stitched */
		.pid = event->pid,
		.in_kernel = event->in_kernel,
	};
	struct image *missing;

	while (!unwind_run(d->unwind, &input, process->maps, true, false, ret_stack, &missing))
		wait_for_tables(d);
}

/* Returns the CFI rule for a pc; NULL if the mapping or the file's table is unknown. */
static const struct cfi_rule *rule_at(struct differential *d, const struct process *process,
				      uint64_t pc)
{
	const struct mapping *mapping = maps_find(process->maps, pc);
	const struct unwind_file *file = mapping && mapping->image ? mapping->image->unwind : NULL;
	uint64_t address;

	if (mapping && mapping->image && mapping->image->kind == PROF_IMAGE_VDSO)
		file = unwind_tables_vdso(d->tables);
	if (!file ||
	    !unwind_file_address(file, pc - mapping->start + mapping->file_offset, &address))
		return NULL;
	return table_get(&file->table, address);
}

static bool is_root(struct differential *d, const struct process *process, uint64_t pc,
		    bool is_exact)
{
	const struct cfi_rule *rule = rule_at(d, process, pc - !is_exact);

	return rule && rule->cfa != CFI_CFA_NONE && rule->ra == CFI_UNDEFINED;
}

/* ---- Counting ---- */

static struct count *get_count(GHashTable *counts, const char *name)
{
	struct count *count = g_hash_table_lookup(counts, name);

	if (!count) {
		count = g_new0(struct count, 1);
		g_hash_table_insert(counts, g_strdup(name), count);
	}
	return count;
}

static char *place_name(struct differential *d, const struct process *process, uint64_t pc)
{
	const struct mapping *mapping = maps_find(process->maps, pc);
	Dwfl_Module *module = process->peer_works ? dwfl_addrmodule(process->peer.dwfl, pc) : NULL;
	const char *symbol = NULL;
	GElf_Off offset = 0;
	GElf_Sym unused;

	if (!mapping)
		return g_strdup_printf("0x%" PRIx64, pc);
	if (module)
		symbol = dwfl_module_addrinfo(module, pc, &offset, &unused, NULL, NULL, NULL);
	return g_strdup_printf("%s+0x%" PRIx64 "%s%s",
			       mapping->image ? mapping->image->path : "//anon",
			       pc - mapping->start + mapping->file_offset, symbol ? " " : "",
			       symbol ? symbol : "");
}

static const char *const stop_names[] = {
	[PROF_STOP_ROOT] = "root",           [PROF_STOP_COPY_END] = "copy-end",
	[PROF_STOP_NO_TABLE] = "no-table",   [PROF_STOP_NO_RULE] = "no-rule",
	[PROF_STOP_BAD_FRAME] = "bad-frame", [PROF_STOP_DEPTH] = "depth",
	[PROF_STOP_UNKNOWN] = "unknown",
};

static const char *stop_name(enum prof_user_stop stop)
{
	return stop < ARRAY_SIZE(stop_names) && stop_names[stop] ? stop_names[stop] : "other";
}

static void count_class(struct differential *d, const struct process *process,
			const struct perf_data_event *event, const struct unwind_stack *stack,
			size_t at, size_t n_peer, const char *class)
{
	struct count *count = get_count(d->classes, class);
	g_autofree char *common = NULL, *ours = NULL, *theirs = NULL;

	count->n++;
	if (count->example && !getenv("BENCH_VERBOSE"))
		return;
	if (at > 0)
		common = place_name(d, process, (stack->ips[at - 1] & ~UNWIND_EXACT) - (at > 1));
	if (at < stack->n)
		ours = place_name(d, process, stack->ips[at] & ~UNWIND_EXACT);
	if (at < n_peer)
		theirs = place_name(d, process, d->peer_pcs[at]);
	g_free(count->example);
	count->example = g_strdup_printf(
		"pid %d at %" PRIu64
		": both at frame %zu %s; then ours (of %zu, %s) %s, libdwfl's (of %zu%s%s) %s",
		event->pid, event->time_ns, at, common ? common : "-", stack->n,
		stop_name(stack->stop), ours ? ours : "ends", n_peer,
		process->peer.error ? ", " : "",
		process->peer.error ? dwfl_errmsg(process->peer.error) : "",
		theirs ? theirs : "ends");
	if (getenv("BENCH_VERBOSE"))
		fprintf(stderr, "%s: %s\n", class, count->example);
}

/* Returns the index of the first frame without CFI; stack->n if all frames have CFI. */
static size_t find_guess(const struct differential *d, const struct unwind_stack *stack)
{
	const struct walk_frame *frames = unwind_last_frames(d->unwind);
	size_t i;

	for (i = 0; i < stack->n; i++)
		if ((frames[i].flags & WALK_FRAME_JIT) ||
		    (i + 1 < stack->n && (frames[i + 1].flags & WALK_FRAME_FP)))
			return i;
	return stack->n;
}

/* Returns whether, according to CFI, the caller's frame pointer is saved below the innermost
 * frame's sp, as between `pop rbp` and `ret`. */
static bool is_popped(struct differential *d, const struct process *process,
		      const struct unwind_stack *stack)
{
	const struct cfi_rule *rule = rule_at(d, process, stack->ips[0] & ~UNWIND_EXACT);

	return rule && rule->cfa == CFI_CFA_SP && rule->fp == CFI_AT_CFA &&
	       rule->cfa_offset + rule->fp_offset < 0;
}

static bool is_program_entry(const struct process *process, uint64_t tagged)
{
	uint64_t pc = tagged & ~UNWIND_EXACT, address;
	const struct mapping *mapping = maps_find(process->maps, pc);
	const struct unwind_file *file = mapping && mapping->image ? mapping->image->unwind : NULL;

	return (tagged & UNWIND_EXACT) && file &&
	       unwind_file_address(file, pc - mapping->start + mapping->file_offset, &address) &&
	       address == file->entry;
}

/* Stores in `class` why two chains that agree in the frames before i differ from i on. */
static void name_class(struct differential *d, const struct process *process,
		       const struct unwind_stack *stack, size_t i, size_t n_peer, char *class,
		       size_t size)
{
	const char *error = process->peer.error ? dwfl_errmsg(process->peer.error) : "no error";

	if (stack->n == 0)
		snprintf(
			class, size,
			"in exec: the registers are still those of the program before, and no code is there");
	else if (i == stack->n && is_program_entry(process, stack->ips[i - 1]))
		snprintf(
			class, size,
			"beyond the entry: libdwfl takes the count of arguments for a return address");
	else if (i == stack->n)
		snprintf(class, size, "libdwfl goes on where ours ends: %s",
			 stop_name(stack->stop));
	else if (i == n_peer && is_popped(d, process, stack))
		snprintf(
			class, size,
			"popped: libdwfl looks for rbp below rsp, where no copy reaches; ours ends: %s",
			stop_name(stack->stop));
	else if (i == n_peer)
		snprintf(class, size, "libdwfl ends where ours goes on: %s", error);
	else
		snprintf(class, size, "both go on, elsewhere");
}

static void compare(struct differential *d, const struct process *process,
		    const struct perf_data_event *event, const struct unwind_stack *stack,
		    size_t n_peer)
{
	size_t guess = find_guess(d, stack), i = 0;
	char class[200];

	while (i < stack->n && i < n_peer && (stack->ips[i] & ~UNWIND_EXACT) == d->peer_pcs[i])
		i++;
	if (i == stack->n && i == n_peer) {
		d->equal++;
		return;
	}
	if (i > guess) {
		d->equal_to_jit++;
		return;
	}
	name_class(d, process, stack, i, n_peer, class, sizeof(class));
	count_class(d, process, event, stack, i, n_peer, class);
}

/* Counts a walk twice: by the reason of its end, and by that reason together with the function or
 * file of its outermost frame. */
static void count_end(struct differential *d, const struct process *process,
		      const struct unwind_stack *stack)
{
	const char *stop = stop_name(stack->stop);
	g_autofree char *place = NULL, *name = NULL;
	const char *symbol;
	uint64_t pc;

	get_count(d->stops, stop)->n++;
	if (stack->n == 0)
		return;
	pc = stack->ips[stack->n - 1];
	place = place_name(d, process, (pc & ~UNWIND_EXACT) - !(pc & UNWIND_EXACT));
	symbol = strchr(place, ' ');
	name = g_strdup_printf("%s: %s", stop, symbol ? symbol + 1 : place);
	get_count(d->ends, name)->n++;
}

static void on_sample(struct differential *d, const struct perf_data_event *event)
{
	struct process *process = get_process(d, event->pid);
	struct unwind_stack stack;
	struct count *by_name;
	size_t n_peer, i;

	for (i = 0; i < d->n_names && strcmp(d->names[i], process->name) != 0; i++)
		continue;
	if (d->n_names > 0 && i == d->n_names) {
		d->outside++;
		return;
	}
	d->n++;
	if (!event->has_user) {
		d->empty++;
		return;
	}
	by_name = get_count(d->by_name, process->name);
	by_name->n++;
	walk(d, process, event, &stack);
	n_peer = walk_peer(d, process, event);
	by_name->roots += n_peer > 0 && is_root(d, process, d->peer_pcs[n_peer - 1], n_peer == 1);
	if (d->roots_only)
		return;
	compare(d, process, event, &stack, n_peer);
	count_end(d, process, &stack);
}

static void run(struct differential *d, struct perf_data *data)
{
	struct perf_data_event event;

	while (perf_data_next(data, &event)) {
		switch (event.kind) {
		case PERF_DATA_MAP:
			on_map(d, &event);
			break;
		case PERF_DATA_EXEC:
			on_exec(d, &event);
			break;
		case PERF_DATA_FORK:
			on_fork(d, &event);
			break;
		case PERF_DATA_EXIT:
			if (event.pid == event.tid)
				g_hash_table_remove(d->processes, GINT_TO_POINTER(event.pid));
			break;
		case PERF_DATA_SAMPLE:
			on_sample(d, &event);
			break;
		}
	}
}

/* ---- Output ---- */

static void free_count(gpointer data)
{
	g_free(((struct count *)data)->example);
	g_free(data);
}

static void print_counts(const char *name, GHashTable *counts)
{
	GHashTableIter iter;
	gpointer key, value;
	const char *between = "";

	printf(", \"%s\": {", name);
	g_hash_table_iter_init(&iter, counts);
	while (g_hash_table_iter_next(&iter, &key, &value)) {
		const struct count *count = value;

		printf("%s\"%s\": {\"n\": %" PRIu64 ", \"roots\": %" PRIu64
		       ", \"example\": \"%s\"}",
		       between, (char *)key, count->n, count->roots,
		       count->example ? count->example : "");
		between = ", ";
	}
	printf("}");
}

static void print(const struct differential *d, const struct perf_data *data)
{
	printf("{\"samples\": %" PRIu64 ", \"lost\": %" PRIu64 ", \"empty\": %" PRIu64
	       ", \"outside\": %" PRIu64 ", \"equal\": %" PRIu64 ", \"equal_to_jit\": %" PRIu64,
	       d->n, perf_data_lost(data), d->empty, d->outside, d->equal, d->equal_to_jit);
	print_counts("classes", d->classes);
	print_counts("names", d->by_name);
	print_counts("stops", d->stops);
	print_counts("ends", d->ends);
	printf("}\n");
}

static GHashTable *new_counts(void)
{
	return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, free_count);
}

int main(int argc, char **argv)
{
	bool roots_only = argc > 1 && strcmp(argv[1], "--roots") == 0;
	int first = roots_only ? 2 : 1;
	struct differential d = {
		.processes = g_hash_table_new_full(NULL, NULL, NULL, free_process),
		.names = (const char *const *)argv + first + 1,
		.n_names = argc > first ? (size_t)(argc - first - 1) : 0,
		.roots_only = roots_only,
		.unwind = g_new(struct unwind, 1),
		.classes = new_counts(),
		.by_name = new_counts(),
		.stops = new_counts(),
		.ends = new_counts(),
	};
	struct perf_data *data = argc > first ? perf_data_open(argv[first]) : NULL;

	if (!data) {
		fprintf(stderr, "bench-differential: Reading '%s' failed\n",
			argc > first ? argv[first] : "");
		return 1;
	}
	images_init(&d.images);
	d.tables = unwind_tables_new(NULL);
	unwind_init(d.unwind, d.tables);
	d.unwind->request_image = want;
	d.unwind->data = &d;
	d.vdso = make_vdso_file();
	run(&d, data);
	print(&d, data);
	if (d.vdso)
		unlink(d.vdso);
	return 0;
}
