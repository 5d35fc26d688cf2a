/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Control - the protocol by which a process gets its rings from profd
 *
 * docs/ring.md, "Registration", is the specification. The socket is SOCK_SEQPACKET; each message is
 * one packet of CONTROL_BYTES. The process sends a hello, and later requests for more rings. Each
 * message gets an answer. An answer with the status CONTROL_OK carries an arena's memfd
 * (SCM_RIGHTS); other answers carry no descriptor. The kernel, not a message, identifies the
 * process. Integers are little-endian; reserved fields are written as 0 and ignored.
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

/* Time limit for the connection and the answer together. A process that gets no answer by then
 * records nothing. */
#define CONTROL_WAIT_NS UINT64_C(500000000)

/* control_hello.wants */
#define CONTROL_WANTS_ALLOCATIONS 0x01u /* makes rings lossless, unless the session has a policy */
#define CONTROL_WANTS_ROOM \
	0x02u /* its threads never wait for room, so memory for all rings is needed at once */

/* The first packet of a connection. */
struct control_hello {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes;                     /* CONTROL_BYTES */
	uint8_t token[CONTROL_TOKEN_BYTES]; /* zeros: no token */
	uint32_t wants;                     /* CONTROL_WANTS_* */
	/* PID of the process that forked this one, in that process's PID namespace; 0: none */
	uint32_t parent_tgid;
	uint64_t parent_start; /* start time in clock ticks, as in /proc/PID/stat; 0: unknown */
	uint8_t reserved[16];
};
static_assert(sizeof(struct control_hello) == CONTROL_BYTES, "hello");
static_assert(offsetof(struct control_hello, token) == 16, "token");
static_assert(offsetof(struct control_hello, wants) == 32, "wants");
static_assert(offsetof(struct control_hello, parent_start) == 40, "parent's start");

/*
 * Why a process whose allocations are requested did not register. The process may have no free file
 * descriptor for a report. So for reason N above 0, it briefly makes N pages of the preloaded
 * library executable, and the kernel reports a mapping of that length. Other lengths have no
 * meaning.
 */
enum control_reason {
	CONTROL_REASON_NONE, /* the process allocated nothing */
	CONTROL_REASON_NO_DESCRIPTORS,
	CONTROL_REASON_NO_MEMORY,
	CONTROL_REASON_SANITIZER,
	CONTROL_REASON_ENVIRONMENT, /* PROF_CONTROL or PROF_MEMORY is not set or not valid */
	CONTROL_REASON_OTHER,
	CONTROL_N_REASONS
};
#define CONTROL_REASON_PAGE 4096u

/* Every later packet from the process: a request for another arena. */
struct control_request {
	uint64_t magic;
	uint32_t version;
	uint32_t bytes;          /* CONTROL_BYTES */
	uint64_t min_data_bytes; /* minimum data size of each ring; 0: as in the first arena */
	uint32_t n_rings;
	uint8_t reserved[36];
};
static_assert(sizeof(struct control_request) == CONTROL_BYTES, "request");
static_assert(offsetof(struct control_request, min_data_bytes) == 16, "data bytes");
static_assert(offsetof(struct control_request, n_rings) == 24, "rings");

enum control_status {
	CONTROL_OK,
	CONTROL_NOT_A_TARGET, /* the session does not record this process */
	/* no session has this token or, without a token, no session may record this process */
	CONTROL_NO_SESSION,
	/* answer to a hello of another version; `version` is then the supported one */
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
	uint32_t status; /* enum control_status; treat unknown values as a refusal */
	uint32_t reserved_0;
	uint64_t session; /* session number; 0: none */
	uint8_t reserved_1[32];
};
static_assert(sizeof(struct control_answer) == CONTROL_BYTES, "answer");
static_assert(offsetof(struct control_answer, status) == 16, "status");
static_assert(offsetof(struct control_answer, session) == 24, "session");

/* ---- The switch of a session: the option "switch" of CreateSession ---- */

#define CONTROL_SWITCH_MAGIC UINT64_C(0x0a48435457536650) /* "PfSWTCH\n" */

/* Sent to the engine. The engine returns it with the same serial when the change is complete. */
struct control_switch {
	uint64_t magic;
	uint64_t serial;
	uint32_t on; /* 1: sampling on, 0: off; in an answer: the current state */
	uint8_t reserved[12];
};
static_assert(sizeof(struct control_switch) == 32, "switch");
static_assert(offsetof(struct control_switch, on) == 16, "on");

/* ---- Reports of `profctl record --control` to the process that started it ---- */

#define CONTROL_REPORT_MAGIC UINT64_C(0x0a54525045526650) /* "PfREPRT\n" */
#define CONTROL_REPORT_TEXT 968u

enum control_report_kind {
	/* `text` is a value for PROF_CONTROL; the packet carries the descriptor of the switch */
	CONTROL_REPORT_READY,
	CONTROL_REPORT_ENDED, /* `status` is set, and `text` is the error */
};

/* Nothing is sent in the other direction. Shut down the socket to end the recording. */
struct control_report {
	uint64_t magic;
	uint32_t version; /* CONTROL_VERSION */
	uint32_t kind;    /* enum control_report_kind */
	uint32_t status;  /* exit status of profctl */
	uint32_t reserved;
	char text[CONTROL_REPORT_TEXT]; /* NUL-terminated */
};
static_assert(sizeof(struct control_report) == 992, "report");
static_assert(offsetof(struct control_report, text) == 24, "text");
