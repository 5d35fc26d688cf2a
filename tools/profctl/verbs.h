/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The verbs of profctl. Each is in a file of the same name; control and status are in sessions.c.
 * argv[0] is the verb. Each returns an exit status (cli.h). */
#pragma once

int profctl_control(int argc, char **argv); /* stop, pause and resume */
int profctl_doctor(int argc, char **argv);
int profctl_list(int argc, char **argv);
int profctl_record(int argc, char **argv);
int profctl_stat(int argc, char **argv);
int profctl_status(int argc, char **argv);
int profctl_top(int argc, char **argv);
