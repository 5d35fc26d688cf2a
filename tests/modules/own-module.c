/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A library for unit tests of the unwinder, built twice: with the same code except for the size of
 * a frame. */
int own_module_call(int (*function)(void));

__attribute__((visibility("default"))) int own_module_call(int (*function)(void))
{
	volatile char room[OWN_MODULE_FRAME];

	room[0] = 1;
	room[OWN_MODULE_FRAME - 1] = (char)function();
	return room[0] + room[OWN_MODULE_FRAME - 1];
}
