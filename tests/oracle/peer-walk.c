/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* libdwfl reads memory and registers through callbacks, which return those of the sample. */
#include "tests/oracle/peer-walk.h"

#include "arch/base.h"

static pid_t next_thread(Dwfl *dwfl, void *data, void **thread)
{
	struct peer_walk *peer = data;

	if (*thread)
		return 0;
	*thread = data;
	return peer->pid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *data, void **thread)
{
	*thread = data;
	return true;
}

static bool read_memory(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *result, void *data)
{
	const struct live_sample *sample = ((struct peer_walk *)data)->sample;
	uint64_t at = address - sample->registers[7];

	if (at >= sample->stack_size || sample->stack_size - at < 8)
		return false;
	*result = load_le64(sample->stack + at);
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *data)
{
	const struct live_sample *sample = ((struct peer_walk *)data)->sample;
	Dwarf_Word registers[LIVE_REGISTERS];

	for (size_t i = 0; i < LIVE_REGISTERS; i++)
		registers[i] = sample->registers[i];
	return dwfl_thread_state_registers(thread, 0, LIVE_REGISTERS, registers);
}

static int add_frame(Dwfl_Frame *frame, void *data)
{
	struct peer_walk *peer = data;
	Dwarf_Addr pc;

	if (peer->n == peer->n_allocated || !dwfl_frame_pc(frame, &pc, NULL) || pc == 0)
		return DWARF_CB_ABORT;
	peer->pcs[peer->n++] = pc;
	return DWARF_CB_OK;
}

static const Dwfl_Thread_Callbacks threads = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = read_memory,
	.set_initial_registers = set_registers,
};

bool peer_walk_init(struct peer_walk *peer, pid_t pid)
{
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_linux_proc_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
	};

	*peer = (struct peer_walk){ .dwfl = dwfl_begin(&callbacks), .pid = pid };
	return peer->dwfl && dwfl_linux_proc_report(peer->dwfl, pid) == 0 &&
	       dwfl_report_end(peer->dwfl, NULL, NULL) == 0 &&
	       dwfl_attach_state(peer->dwfl, NULL, pid, &threads, peer);
}

bool peer_walk_init_modules(struct peer_walk *peer, pid_t pid, const struct peer_module *modules,
			    size_t n)
{
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_build_id_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
	};

	*peer = (struct peer_walk){ .dwfl = dwfl_begin(&callbacks), .pid = pid };
	if (!peer->dwfl)
		return false;
	for (size_t i = 0; i < n; i++)
		dwfl_report_elf(peer->dwfl, modules[i].path, modules[i].path, -1, modules[i].bias,
				true);
	return dwfl_report_end(peer->dwfl, NULL, NULL) == 0 &&
	       dwfl_attach_state(peer->dwfl, NULL, pid, &threads, peer);
}

void peer_walk_done(struct peer_walk *peer)
{
	dwfl_end(peer->dwfl);
}

size_t peer_walk_run(struct peer_walk *peer, const struct live_sample *sample, uint64_t *pcs,
		     size_t n)
{
	peer->sample = sample;
	peer->pcs = pcs;
	peer->n = 0;
	peer->n_allocated = n;
	dwfl_errno();
	peer->error = dwfl_getthread_frames(peer->dwfl, peer->pid, add_frame, peer) < 0
			      ? dwfl_errno()
			      : 0;
	return peer->n;
}
