/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Broker and files - the messages between profd and the process that opens files of targets
 *
 * profd-files reads /proc and opens mapped files. This may block forever, because targets choose
 * the files. The process has a SOCK_SEQPACKET socket as fd FILES_SOCKET_FD and a shared page
 * (struct files_status) as fd FILES_STATUS_FD. The first datagram is struct files_config; each
 * later one is a struct files_request, answered in order by a struct files_answer. Several requests
 * may be in flight; profd-files works on one at a time. The broker may kill the process at any
 * time, and a new process then continues: a snapshot's memfd is complete up to files_status.bytes.
 */
#pragma once

#include "arch/probe-file.h"
#include "daemon/protocol.h"

#define FILES_SOCKET_FD 3
#define FILES_STATUS_FD 4
#define FILES_MAX_BARE 16u
#define FILES_USAGE_MEMORY 0x1u   /* smaps_rollup or statm */
#define FILES_USAGE_COUNTERS 0x2u /* stat, io, and the number of descriptors */
#define FILES_USAGE_STACKS 0x4u   /* the stacks of sleeping threads */

struct files_config {
	uint32_t uid; /* the client's */
	uint32_t own_only;
	uint32_t any_image;
	uint32_t kernel;    /* files with kernel addresses may be read */
	uint32_t probes;    /* 1: all requests are FILES_PROBE, so few rights are needed */
	uint32_t n_targets; /* 0: the session records the whole system */
	int32_t targets[ENGINE_MAX_TARGETS];
};

/* Shared memory. The broker stores `stop`, profd-files all other fields; each store is atomic. */
struct files_status {
	uint64_t bytes;    /* complete bytes of the snapshot: whole processes only */
	uint32_t progress; /* changes whenever profd-files begins a file */
	int32_t pid;       /* the process whose files are being read */
	uint32_t serial;   /* serial of the current request */
	uint32_t stop;     /* not 0: exit before the next request */
};

enum files_type { FILES_SNAPSHOT = 1, FILES_IMAGE, FILES_PROBE };

/* Processes to read bare: without the files whose reading they can block. */
struct files_bare {
	uint32_t uid;
	int32_t pid; /* 0: all processes of the user */
};

/* Sent with the snapshot's memfd. Processes with a pid of at least `from_pid` are written at
 * `offset`. */
struct files_snapshot {
	int32_t pid; /* 0: all processes */
	int32_t from_pid;
	/* a process to read bare; 0: none */
	int32_t bare_pid;
	uint32_t n_bare;
	struct files_bare bare[FILES_MAX_BARE]; /* further processes to read bare */
	uint32_t targets_only;                  /* 1: with pid 0, read only the config's targets */
	uint32_t maps_known;                    /* 1: omit the mappings */
	uint64_t offset;
	/* not 0: read only the usage of the processes `usage_pids`, which are sorted by absolute
	 * value. A process with a negative pid is read bare. */
	uint32_t n_usage_pids;
	uint32_t usage; /* FILES_USAGE_* */
	int32_t usage_pids[ENGINE_MAX_USAGE_PIDS];
};

struct files_image {
	struct message_image_request request; /* the path, of path_bytes bytes, follows */
	uint64_t copy_bytes;                  /* maximum size of a copy */
	/* 1: open by path only, and refuse filesystems that a server answers for (FUSE, NFS) */
	uint32_t careful;
	uint32_t pad;
};

struct files_probe {
	uint32_t text_bytes; /* "/FILE:NAME" follows */
	uint32_t optimizes_nops;
};

struct files_request {
	uint32_t type; /* enum files_type */
	uint32_t serial;
	union {
		struct files_snapshot snapshot;
		struct files_image image;
		struct files_probe probe;
	};
};

/* Sent with a descriptor for reading: that of an opened image (the file or a copy), or of the file
 * in which the places of a probe were found. */
struct files_answer {
	uint32_t serial;
	int32_t error;        /* errno */
	uint32_t is_copy;     /* the descriptor is a memfd, because the file could block readers */
	uint32_t client_read; /* the client itself has permission to read the file */
	uint64_t snapshot_bytes;
	struct message_image image;
	uint32_t n_places;
	uint32_t pad;
	struct probe_place places[PROBE_MAX_PLACES];
	char reason[PROBE_REASON_BYTES]; /* why there are no places */
};
