/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Broker and files - the messages between profd and the process that opens what targets can name
 *
 * profd-files reads /proc and opens mapped files, which may block forever, because targets choose
 * what they are. It has a SOCK_SEQPACKET socket as fd FILES_SOCKET_FD and a shared page (struct
 * files_status) as FILES_STATUS_FD. The first datagram is struct files_config; each later one is a
 * struct files_request, answered in order by a struct files_answer. Several may be in flight; one
 * is worked on. The broker may kill the process at any time, and another one continues: a
 * snapshot's memfd is complete up to files_status.bytes.
 */
#pragma once

#include "daemon/protocol.h"

#define FILES_SOCKET_FD 3
#define FILES_STATUS_FD 4
#define FILES_MAX_BARE 16u

struct files_config {
	uint32_t uid; /* the client's */
	uint32_t own_only;
	uint32_t any_image;
	uint32_t kernel;    /* files with kernel addresses may be read */
	uint32_t n_targets; /* 0: the session records everything that runs */
	int32_t targets[ENGINE_MAX_TARGETS];
};

/* Each field is written by one store: `stop` by the broker, the others by profd-files. */
struct files_status {
	uint64_t bytes;    /* of the snapshot: only whole processes */
	uint32_t progress; /* changes whenever a file is begun */
	int32_t pid;       /* whose files are read now */
	uint32_t serial;   /* of the current request */
	uint32_t stop;     /* begin no other request */
};

enum files_type { FILES_SNAPSHOT = 1, FILES_IMAGE };

/* Everything of a user, or of one process of root's. */
struct files_bare {
	uint32_t uid;
	int32_t pid; /* 0: all processes of the user */
};

/* fd: the memfd. Processes from from_pid on are read, and written after `offset`. */
struct files_snapshot {
	int32_t pid; /* 0: all */
	int32_t from_pid;
	/* nothing is read of this process that it can block; 0: none */
	int32_t bare_pid;
	uint32_t n_bare;
	struct files_bare bare[FILES_MAX_BARE]; /* the same for each of these */
	uint32_t targets_only;                  /* of all processes, only those of the config */
	uint32_t maps_known;                    /* omit the mappings */
	uint64_t offset;
	/* not 0: read only the memory usage of these processes. Ascending without their signs;
	 * negative: nothing is read of the process that it can block */
	uint32_t n_usage_pids;
	int32_t usage_pids[ENGINE_MAX_USAGE_PIDS];
};

struct files_image {
	struct message_image_request request; /* path_bytes of path follow the files_request */
	uint64_t copy_bytes;                  /* the limit of a copy */
	uint32_t careful; /* by path only, and not on a filesystem whose server might not answer */
	uint32_t pad;
};

struct files_request {
	uint32_t type; /* enum files_type */
	uint32_t serial;
	union {
		struct files_snapshot snapshot;
		struct files_image image;
	};
};

/* For an image without an error, fd is the file or a copy, open for reading. */
struct files_answer {
	uint32_t serial;
	int32_t error;        /* errno */
	uint32_t is_copy;     /* a memfd: the file's filesystem could block its readers */
	uint32_t client_read; /* the client may read the file by its own rights */
	uint64_t snapshot_bytes;
	struct message_image image;
};
