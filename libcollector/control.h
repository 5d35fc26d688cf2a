/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Control - the protocol by which a process gets its rings from profd
 *
 * docs/ring.md, "Registration", is the specification. SOCK_SEQPACKET, one message a packet, each of
 * CONTROL_BYTES: a hello or a request for more from the process, an answer to each, with an arena's
 * memfd (SCM_RIGHTS) if the status is CONTROL_OK, and no descriptor otherwise. The kernel
 * identifies the process, not a message. Little-endian; reserved fields are written as 0 and
 * ignored.
 */
#pragma once

#include "arch/base.h"

#include <assert.h>

#define CONTROL_HELLO_MAGIC UINT64_C(0x0a4f4c4c45486650)   /* "PfHELLO\n" */
#define CONTROL_REQUEST_MAGIC UINT64_C(0x000a45524f4d6650) /* "PfMORE\n\0" */
#define CONTROL_ANSWER_MAGIC UINT64_C(0x0a5257534e416650)  /* "PfANSWR\n" */
#define CONTROL_VERSION 1u
#define CONTROL_BYTES 64u
#define CONTROL_TOKEN_BYTES 16u

#define CONTROL_VARIABLE "PROF_CONTROL"
#define CONTROL_WELL_KNOWN "/run/profd/control"

/* How long a process waits for connection and answer together; after that it records nothing. */
#define CONTROL_WAIT_NS UINT64_C(500000000)

/* control_hello.wants */
#define CONTROL_WANTS_ALLOCATIONS 0x01u /* so rings are lossless, unless the session has a policy */
#define CONTROL_WANTS_ROOM \
	0x02u /* its threads never wait for room, so all rings must be populated */

/* The first packet of a connection. */
struct control_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes;                     /* CONTROL_BYTES */
	uint8_t token[CONTROL_TOKEN_BYTES]; /* zeros: none */
	uint32_t wants;                     /* CONTROL_WANTS_* */
	uint32_t parent_tgid; /* of the process that forked it, in its own PID namespace; 0: none */
	uint64_t parent_start; /* in clock ticks, as in /proc/PID/stat; 0: unknown */
	uint8_t reserved[16];
};
static_assert(sizeof(struct control_hello) == CONTROL_BYTES, "hello");
static_assert(offsetof(struct control_hello, token) == 16, "token");
static_assert(offsetof(struct control_hello, wants) == 32, "wants");
static_assert(offsetof(struct control_hello, parent_start) == 40, "parent's start");

/*
 * The reason why a process whose allocations are requested registers no heap, if it can report one.
 * It may have no descriptor to report it with, so it briefly makes that many pages of the preloaded
 * library executable: the kernel reports a mapping of that length. Other lengths have no meaning.
 */
enum control_reason {
	CONTROL_REASON_NONE, /* it allocated nothing */
	CONTROL_REASON_NO_DESCRIPTORS,
	CONTROL_REASON_NO_MEMORY,
	CONTROL_REASON_SANITIZER,
	CONTROL_REASON_ENVIRONMENT, /* without PROF_CONTROL */
	CONTROL_REASON_OTHER,
	CONTROL_N_REASONS
};
#define CONTROL_REASON_PAGE 4096u

/* All later packets: a request for another arena. */
struct control_request {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes;          /* CONTROL_BYTES */
	uint64_t min_data_bytes; /* of each ring; 0: as in the first arena */
	uint32_t n_rings;
	uint8_t reserved[36];
};
static_assert(sizeof(struct control_request) == CONTROL_BYTES, "request");
static_assert(offsetof(struct control_request, min_data_bytes) == 16, "data bytes");
static_assert(offsetof(struct control_request, n_rings) == 24, "rings");

enum control_status {
	CONTROL_OK,
	CONTROL_NOT_A_TARGET, /* the session does not record this process */
	CONTROL_NO_SESSION,   /* no session of this token, or none that records this process */
	/* answer to a hello of another version; `version` is the supported one */
	CONTROL_VERSION_UNKNOWN,
	CONTROL_LIMIT, /* the session, or the user, has reached its maximum */
	CONTROL_FAILED,
	CONTROL_NOT_AUTHORISED, /* the session may not see this process */
	CONTROL_N_STATUSES
};

struct control_answer {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes;  /* CONTROL_BYTES */
	uint32_t status; /* enum control_status; unknown values are refusals, too */
	uint32_t reserved_0;
	uint64_t session; /* its number; 0: none */
	uint8_t reserved_1[32];
};
static_assert(sizeof(struct control_answer) == CONTROL_BYTES, "answer");
static_assert(offsetof(struct control_answer, status) == 16, "status");
static_assert(offsetof(struct control_answer, session) == 24, "session");

/* ---- The switch of a session: CreateSession's option of that name ---- */

#define CONTROL_SWITCH_MAGIC UINT64_C(0x0a48435457536650) /* "PfSWTCH\n" */

/* control_switch.wants */
#define CONTROL_WANTS_PAGE 0x01u

/* Sent to the engine, which returns it with the same serial when it is done. */
struct control_switch {
	uint64_t magic;
	uint64_t serial;
	uint32_t on;    /* 1: sampling on, 0: off; in an answer: the current state */
	uint32_t wants; /* CONTROL_WANTS_*: send the page's memfd with the answer, once */
	uint8_t reserved[8];
};
static_assert(sizeof(struct control_switch) == 32, "switch");
static_assert(offsetof(struct control_switch, on) == 16, "on");
static_assert(offsetof(struct control_switch, wants) == 20, "wants");

/*
 * The page of a switch, with which most blocks need no answer. If a program has it, only samples
 * between two edges count, and events stay enabled for a while after a block. docs/dbus.md is the
 * specification, gate.c the engine's part.
 */
#define CONTROL_PAGE_ON \
	0x01u /* set by the engine: events are enabled, and stay so while BLOCK is set */
#define CONTROL_PAGE_BLOCK 0x02u /* set by the program, by a compare-and-exchange from ON alone */
#define CONTROL_PAGE_EDGES 480u

struct control_page {
	uint32_t state; /* CONTROL_PAGE_* */
	uint8_t reserved_0[124];
	/* Written by the program. */
	uint64_t n_edges; /* number of edges written */
	uint8_t reserved_1[56];
	/* Written by the engine. */
	uint64_t n_taken; /* number of edges read */
	uint8_t reserved_2[56];
	/* Times of CLOCK_MONOTONIC, the n-th at n % CONTROL_PAGE_EDGES: a begin if n is even, an
	 * end if it is odd. */
	uint64_t edges[CONTROL_PAGE_EDGES];
};
static_assert(sizeof(struct control_page) == 4096, "page");
static_assert(offsetof(struct control_page, n_edges) == 128, "program's line");
static_assert(offsetof(struct control_page, n_taken) == 192, "engine's line");
static_assert(offsetof(struct control_page, edges) == 256, "edges");

/* ---- Reports of `profctl record --control` to its starter, with the end of a switch ---- */

#define CONTROL_REPORT_MAGIC UINT64_C(0x0a54525045526650) /* "PfREPRT\n" */
#define CONTROL_REPORT_TEXT 968u

enum control_report_kind {
	CONTROL_REPORT_READY, /* text: as in PROF_CONTROL; a descriptor: the switch */
	CONTROL_REPORT_ENDED, /* status, and text: the error */
};

/* Nothing is sent in the other direction: shutting down the socket ends the recording. */
struct control_report {
	uint64_t magic;
	uint32_t version; /* CONTROL_VERSION */
	uint32_t kind;    /* enum control_report_kind */
	uint32_t status;  /* the exit status of profctl */
	uint32_t reserved;
	char text[CONTROL_REPORT_TEXT]; /* NUL-terminated */
};
static_assert(sizeof(struct control_report) == 992, "report");
static_assert(offsetof(struct control_report, text) == 24, "text");
