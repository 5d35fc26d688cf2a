/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Order - functions for qsort(), bsearch() and GLib that compare two elements
 *
 *     COMPARE_BY(compare_spans, struct span, ORDER(a->thread, b->thread), ORDER(b->ns, a->ns))
 *
 * defines a function that sorts by thread, then by ns, greatest first. Each order is an expression
 * of the two elements `a` and `b`.
 */
#pragma once

#define ORDER(a, b)                    \
	({                             \
		__auto_type x_ = (a);  \
		__auto_type y_ = (b);  \
		(x_ > y_) - (x_ < y_); \
	})

/* Returns the first of up to six orders that is not 0. Later orders are not evaluated. */
#define ORDER_BY(...) \
	ORDER_PICK(__VA_ARGS__, ORDER_6, ORDER_5, ORDER_4, ORDER_3, ORDER_2, ORDER_1)(__VA_ARGS__)
#define ORDER_PICK(a, b, c, d, e, f, order, ...) order
#define ORDER_1(a) (a)
#define ORDER_2(a, b) ((a) ?: (b))
#define ORDER_3(a, ...) ((a) ?: ORDER_2(__VA_ARGS__))
#define ORDER_4(a, ...) ((a) ?: ORDER_3(__VA_ARGS__))
#define ORDER_5(a, ...) ((a) ?: ORDER_4(__VA_ARGS__))
#define ORDER_6(a, ...) ((a) ?: ORDER_5(__VA_ARGS__))

#define COMPARE_BY(name, type, ...)                             \
	static int name(const void *left_, const void *right_)  \
	{                                                       \
		const type *const a = left_, *const b = right_; \
                                                                \
		return ORDER_BY(__VA_ARGS__);                   \
	}

/* The elements are pointers. */
#define COMPARE_AT(name, type, ...)                                 \
	static int name(const void *left_, const void *right_)      \
	{                                                           \
		const type *const a = *(const type *const *)left_;  \
		const type *const b = *(const type *const *)right_; \
                                                                    \
		return ORDER_BY(__VA_ARGS__);                       \
	}

/* The orders may also depend on `data`, for g_qsort_with_data() and similar functions. */
#define COMPARE_WITH(name, type, ...)                                      \
	static int name(const void *left_, const void *right_, void *data) \
	{                                                                  \
		const type *const a = left_, *const b = right_;            \
                                                                           \
		(void)data;                                                \
		return ORDER_BY(__VA_ARGS__);                              \
	}
