/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Report-page-parts - the page before and after its data
 *
 * data/report/bundle.py makes both from the files beside it.
 */
#pragma once

#include <stddef.h>

extern const unsigned char report_page_head[], report_page_tail[];
extern const size_t report_page_head_size, report_page_tail_size;
