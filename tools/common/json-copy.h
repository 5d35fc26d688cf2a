/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Json-copy - copies a JSON text from a file as a value
 *
 * The text is untrusted, and is parsed first. Anything that is not one JSON value (or nests deeper
 * than 32) is written as null. Numbers that are not 64-bit integers are written as doubles.
 */
#pragma once

#include "tools/common/json.h"

void json_copy(struct json *json, const char *key, const char *text);
