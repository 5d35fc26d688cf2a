/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Interp-files - checks that the tests of interpreters share: which runtimes the files of the fuzz
 * corpus have, and how functions are named
 */
#pragma once

#include "arch/base.h"
#include "daemon/engine/interp/interp-functions.h"
#include "daemon/engine/interp/interp-runtime.h"
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>

/* A file of the corpus, and the addresses of its runtime in a process that maps the file at
 * 0x1000. */
struct interp_file_case {
	const char *name;
	enum interp_found found;
	unsigned minor;
	uint64_t addresses[INTERP_ADDRESSES];
};

/* `check`: checks other members of a runtime that was found; may be NULL. */
static inline void check_interp_files(enum interp_family family,
				      const struct interp_file_case *files, size_t n,
				      void (*check)(const struct interp_runtime *runtime))
{
	if (!getenv("PROF_SOURCE_DIR"))
		SKIP("PROF_SOURCE_DIR is not set");
	for (size_t i = 0; i < n; i++) {
		CLEANUP_CLOSE int fd = -1;
		uint64_t addresses[INTERP_ADDRESSES];
		struct interp_runtime runtime;
		char path[512];

		snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/interp_runtime/%s",
			 getenv("PROF_SOURCE_DIR"), files[i].name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		CHECK(fd >= 0);
		CHECK_INT(interp_runtime_find(fd, &runtime), files[i].found);
		CHECK_INT(runtime.family, family);
		CHECK_INT(runtime.minor, files[i].minor);
		if (runtime.found != INTERP_FOUND)
			continue;
		interp_runtime_locate(&runtime, 0x1000, addresses);
		for (size_t j = 0; j < INTERP_ADDRESSES; j++)
			CHECK_INT(addresses[j], files[i].addresses[j]);
		if (check)
			check(&runtime);
	}
}

/* Checks the name and the file of a function. `code`: the other members of the function's
 * description. `owner` may contain NUL bytes if code.owner_bytes is set. */
static inline void check_interp_name(struct interp_code code, const char *name, const char *owner,
				     const char *file, const char *want, const char *want_file)
{
	struct interp_functions *functions = interp_functions_new(1u << 20, 5);
	const struct interp_frame frame = { .code = 0x1000, .id = 3, .position = 12 };
	const struct interp_function *function;
	struct interp_code_text text;

	code.record = INTERP_RECORD_CODE;
	code.pid = 7;
	code.code = frame.code;
	code.id = frame.id;
	code.name_bytes = (uint16_t)strlen(name);
	code.file_bytes = (uint16_t)strlen(file);
	if (code.owner_bytes == 0)
		code.owner_bytes = (uint16_t)strlen(owner);
	memcpy(code.name, name, code.name_bytes);
	memcpy(code.file, file, code.file_bytes);
	memcpy(code.name + INTERP_MAX_OWNER, owner, code.owner_bytes);
	REQUIRE(interp_record_code((const uint8_t *)&code, offsetof(struct interp_code, lines),
				   &text));
	CHECK(interp_functions_add(functions, 1, &text));
	function = interp_functions_find(functions, 1, &frame);
	REQUIRE(function);
	CHECK_STR(function->name, want);
	CHECK_STR(function->file, want_file);
	CHECK_INT(function->first_line, code.first_line);
	CHECK_INT(interp_function_line(function, &frame), 12);
	CHECK(!interp_function_is_hidden(function));
	interp_functions_free(functions);
}
