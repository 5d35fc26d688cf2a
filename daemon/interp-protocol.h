/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-protocol - definitions shared by profd, the engine and the BPF programs for interpreters
 *
 * A BPF program runs when a sample is taken. If the process is in the program's map, the program
 * reads the interpreter's list of frames from the process's memory, and writes the sample with a
 * struct interp_sample as its raw data, instead of the sample that the kernel would have written.
 * When a thread is about to sleep, a second program reads the frames, and writes them in a separate
 * record before the kernel's. A new code object is described by a struct interp_code in an earlier
 * record. The bytes of all records come from the process, so nothing in them is trusted.
 * Interpreters of one family have the same kinds of frames and code objects; each family has a
 * walker, which consists of a BPF program for samples and one for sleeps.
 *
 * Raw data in a perf record is aligned to 4 bytes only. BPF code includes this header, so it does
 * not use libc.
 */
#pragma once

#include "base/cpython-layouts.h"
#include "base/perl-layouts.h"
#include "base/php-layouts.h"
#include "base/ruby-layouts.h"
#include "base/v8-layouts.h"

#define INTERP_MAX_FRAMES 128u
#define INTERP_MAX_NAME 511u /* bytes; like the next two, a power of two minus one */
#define INTERP_MAX_FILE 1023u
#define INTERP_MAX_LINES 8191u
/* Maximum number of code objects described before a sample; later samples describe the rest. */
#define INTERP_MAX_NEW_CODES 24u

enum interp_family {
	INTERP_NONE,
	INTERP_PYTHON,
	INTERP_RUBY,
	INTERP_PHP,
	INTERP_PERL,
	INTERP_V8,
	INTERP_FAMILIES
};
/* The names for messages, by family. */
#define INTERP_FAMILY_NAMES                                                               \
	{                                                                                 \
		[INTERP_PYTHON] = "Python", [INTERP_RUBY] = "Ruby", [INTERP_PHP] = "PHP", \
		[INTERP_PERL] = "Perl", [INTERP_V8] = "V8",                               \
	}
/* The `kind` of functions in a capture, by family. */
#define INTERP_FAMILY_KINDS                                                               \
	{                                                                                 \
		[INTERP_PYTHON] = "python", [INTERP_RUBY] = "ruby", [INTERP_PHP] = "php", \
		[INTERP_PERL] = "perl", [INTERP_V8] = "javascript",                       \
	}

/* A version is MAJOR.minor. V8 has several major versions, and minor versions of one digit, so its
 * `minor` has both (V8_VERSION()). In CPython's `minor`, CPYTHON_FREE_THREADED is added for
 * free-threaded builds. */
static inline unsigned interp_major(enum interp_family family, unsigned minor)
{
	static const unsigned majors[INTERP_FAMILIES] = {
		[INTERP_PYTHON] = 3, [INTERP_RUBY] = 3, [INTERP_PHP] = 8, [INTERP_PERL] = 5
	};

	return family == INTERP_V8 ? minor / 10 : majors[family];
}

static inline unsigned interp_minor(enum interp_family family, unsigned minor)
{
	return family == INTERP_V8       ? minor % 10
	       : family == INTERP_PYTHON ? minor % CPYTHON_FREE_THREADED
					 : minor;
}

/* Returns what follows the version in the names of a build's files: "t" if the build is
 * free-threaded. */
static inline const char *interp_suffix(enum interp_family family, unsigned minor)
{
	return family == INTERP_PYTHON && minor >= CPYTHON_FREE_THREADED ? "t" : "";
}

/* Returns the family that the name of a program or library, without its folder, indicates. */
static inline enum interp_family interp_family_of_name(const char *name)
{
	static const struct {
		const char *prefix;
		enum interp_family family;
	} names[] = {
		{ "python", INTERP_PYTHON }, { "libpython", INTERP_PYTHON },
		{ "ruby", INTERP_RUBY },     { "libruby", INTERP_RUBY },
		{ "php", INTERP_PHP },       { "libphp", INTERP_PHP },
		{ "perl", INTERP_PERL },     { "libperl", INTERP_PERL },
		{ "node", INTERP_V8 },       { "libnode", INTERP_V8 },
	};
	unsigned length;

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		for (length = 0;
		     names[i].prefix[length] && name[length] == names[i].prefix[length];)
			length++;
		if (!names[i].prefix[length])
			return names[i].family;
	}
	return INTERP_NONE;
}

/* Positions in interp_process.addresses, by family. */
enum interp_python_address {
	INTERP_PYTHON_RUNTIME,   /* _PyRuntime */
	INTERP_PYTHON_CODE_TYPE, /* PyCode_Type */
	INTERP_PYTHON_MUSL,      /* not an address: 1 if the C library is musl, 0 if it is glibc */
};
/* The variable that points to the thread's state is thread-local. */
enum interp_ruby_address {
	/* address of the word that has the number of the variable's module; 0: the variable is in
	 * the program */
	INTERP_RUBY_MODULE,
	/* the variable's offset from the start of the module's TLS block; in the program, from the
	 * thread pointer */
	INTERP_RUBY_OFFSET,
	INTERP_RUBY_EVAL, /* rb_vm_exec() */
	INTERP_RUBY_EVAL_END,
};
enum interp_php_address {
	/* address of executor_globals; with thread safety, address of the word that has the offset
	 * of the globals in the thread's memory (INTERP_PHP_POINTER) */
	INTERP_PHP_GLOBALS,
	/* address of a word that points to the globals; 0: use INTERP_PHP_GLOBALS. A program that
	 * uses a library's globals directly has its own copy of them, to which the word points. */
	INTERP_PHP_OF_GLOBALS,
	/* offset from the thread pointer at which the thread has the pointer to its memory;
	 * OF_POINTER: address of a word that has this offset. Both are 0 without thread safety. */
	INTERP_PHP_POINTER,
	INTERP_PHP_OF_POINTER,
};
/* As in PHP, a library's variables may be in the program's memory. OF_...: address of a word that
 * points to the variable; 0: no such word. */
enum interp_perl_address {
	INTERP_PERL_KEY, /* PL_thr_key, the key of each thread's state */
	INTERP_PERL_OF_KEY,
	INTERP_PERL_FIRST, /* PL_curinterp, which points to the state that was made first */
	INTERP_PERL_OF_FIRST,
};
/* The variable that points to the thread's isolate is thread-local, or V8 has a key for it. */
enum interp_v8_address {
	/* address of the word that has the variable's offset; 0: use INTERP_V8_OFFSET */
	INTERP_V8_OF_OFFSET,
	/* the variable's offset from the thread pointer, or from the start of the module's TLS
	 * block */
	INTERP_V8_OFFSET,
	INTERP_V8_KEY, /* address of the word that has the key; 0: the variable is thread-local */
	/* address of the word that has the module's number; 0: INTERP_V8_OFFSET is from the thread
	 * pointer */
	INTERP_V8_OF_MODULE,
};
#define INTERP_ADDRESSES 4u

/* A process with a known interpreter. The map's key is the pid. */
struct interp_process {
	__u32 family; /* enum interp_family; 0: no interpreter */
	__u32 minor;  /* as in interp_major() */
	__u64 addresses[INTERP_ADDRESSES];
	/* start of the process's stack (mm_struct.start_stack): equal in a forked child, different
	 * after exec */
	__u64 start_stack;
};

enum interp_record {
	INTERP_RECORD_SAMPLE = 0x70796631,
	INTERP_RECORD_CODE = 0x70796332,
	INTERP_RECORD_SLEEP = 0x70797333, /* a struct interp_sample without `period` and `event` */
};

enum interp_flags {
	INTERP_WALKED = 1 << 0,    /* the list was read up to its end, or to the limit */
	INTERP_NO_THREAD = 1 << 1, /* the thread has no state of the interpreter */
	INTERP_FAULT = 1 << 2,     /* memory could not be read */
	INTERP_DEEPER = 1 << 3,    /* more than INTERP_MAX_FRAMES frames, or callers are missing */
	INTERP_TORN = 1 << 4,      /* the list contradicts itself */
	INTERP_FORKED = 1 << 5,    /* the process was found by its parent's entry */
	/* PHP: all frames are on a native stack other than the one that the thread uses now */
	INTERP_OTHER_STACK = 1 << 6,
	/* Perl: the last frame is that of the main program. It ends a run, unless the program is
	 * still being compiled or has ended. */
	INTERP_MAIN = 1 << 7,
};

/* The frame is the outermost of an activation: one C function that runs frames. */
#define INTERP_FRAME_ENDS_RUN 1u
/* PHP: the frames after it are on another native stack. */
#define INTERP_FRAME_ENDS_STACK 2u
/* Perl: the run is executed repeatedly; between two executions, it has no activation. */
#define INTERP_FRAME_REPEATS 4u

struct interp_frame {
	__u64 code; /* address of the code object */
	__u64 at;   /* ENDS_RUN: an address in the C function's frame; 0: not known */
	/* distinguishes code objects that had the same address at different times */
	__u32 id;
	/* position of the instruction; Python: bytes from the start of the code object, up to 3.10
	 * f_lasti; Ruby: index of a word in the iseq; PHP and Perl: the line, 0: unknown; V8: 0 */
	__u32 position;
	__u32 flags;
	__u32 reserved;
};

#define INTERP_RUNS_UNKNOWN 0xffffu

/* Frames are innermost first. The record ends after frames[n - 1]. */
struct interp_sample {
	__u32 record; /* INTERP_RECORD_SAMPLE, INTERP_RECORD_SLEEP */
	__u16 n;
	__u16 flags;
	__u64 period;
	__u64 event; /* PERF_EVENT_IOC_ID of the event; if the event is inherited, of its parent */
	__u16 minor;
	/* number of new code objects that later samples must describe: those beyond
	 * INTERP_MAX_NEW_CODES, and V8's functions whose line is not known yet */
	__u16 n_undescribed;
	__u16 family; /* enum interp_family */
	/* PHP, Perl: number of runs that end after `frames`, or INTERP_RUNS_UNKNOWN */
	__u16 n_more_runs;
	struct interp_frame frames[INTERP_MAX_FRAMES];
};

#define INTERP_CODE_NAME_CUT 1u
#define INTERP_CODE_FILE_CUT 2u
#define INTERP_CODE_LINES_CUT 4u
#define INTERP_CODE_OWNER_LATIN_1 8u

/* The width of a character is 1, 2 or 4 bytes, or this value for UTF-8. */
#define INTERP_UTF_8 0u

/* Ruby, PHP and Perl: at this offset, `name` has the name of the method's class, module or package,
 * in UTF-8 (Perl: or Latin-1, see INTERP_CODE_OWNER_LATIN_1). Both names are shorter than this
 * number of bytes. */
#define INTERP_MAX_OWNER 256u
#define INTERP_RUBY_OWNER INTERP_MAX_OWNER

/* Kinds of functions of PHP; code of a file or text outside of functions has no name. */
enum interp_php_kind {
	INTERP_PHP_FUNCTION = 1,
	INTERP_PHP_INTERNAL, /* a C function: without file and line */
	INTERP_PHP_MAIN,     /* code of the file that was executed first */
	INTERP_PHP_INCLUDE,
	INTERP_PHP_EVAL,
};

/* Kinds of functions of Perl. Functions of the kinds from INTERP_PERL_EVAL on have no name. */
enum interp_perl_kind {
	INTERP_PERL_SUB = 1,
	INTERP_PERL_FORMAT,
	INTERP_PERL_REQUIRE, /* the name is that of the file, as given to require */
	INTERP_PERL_EVAL,    /* code of a text; file and line are where the text is executed */
	INTERP_PERL_SORT,  /* block that compares for sort(); file and line: where it is executed */
	INTERP_PERL_REGEX, /* code in a pattern; file and line: where it is executed */
	INTERP_PERL_MAIN,  /* code of the file that is executed */
};

/* Kinds of functions of JavaScript; anonymous ones and code outside of functions have no name, and
 * code that eval() compiles has no file. */
enum interp_v8_kind {
	INTERP_V8_FUNCTION = 1,
	INTERP_V8_NATIVE, /* function of V8 or in C++: without file and line */
	INTERP_V8_MODULE, /* code of a file outside of functions */
};

/* Ruby's `lines` begin with this struct. The line numbers follow, as __u32, then the set of
 * positions, as Ruby keeps it (ruby-lines.c). */
struct interp_ruby_lines {
	__u32 n; /* number of line numbers that the iseq has */
	__u32 n_read;
};
#define INTERP_RUBY_MAX_LINES 1500u
/* bytes; line numbers and positions together fit in `lines` */
#define INTERP_RUBY_MAX_POSITIONS 2047u

/* The record ends after lines[lines_bytes - 1]. */
struct interp_code {
	__u32 record; /* INTERP_RECORD_CODE */
	__u32 pid;
	__u64 code;
	__u32 id;
	__u32 first_line;
	__u16 name_bytes, file_bytes, lines_bytes, minor;
	__u8 name_width, file_width; /* INTERP_UTF_8, or bytes of a character */
	__u8 flags;
	__u8 family;       /* enum interp_family */
	__u16 owner_bytes; /* bytes of the class's name; 0: unknown, or not a method */
	__u8 is_singleton; /* Ruby: a method of the class itself, not of its instances */
	__u8 kind;         /* enum interp_php_kind, enum interp_perl_kind, enum interp_v8_kind */
	__u8 name[INTERP_MAX_NAME + 1], file[INTERP_MAX_FILE + 1], lines[INTERP_MAX_LINES + 1];
};

/* The program's counts on one CPU. */
struct interp_counts {
	__u64 samples, walked, lost, codes, codes_lost;
	__u64 walk_ns;
	/* in the program for sleeps: time of its walks in the interval that ends at sleeps_end_ns,
	 * and the chance that a sleep is walked */
	__u64 sleeps_end_ns, sleeps_walk_ns, sleeps_chance;
};
