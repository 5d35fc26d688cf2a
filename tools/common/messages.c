/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Messages - where the messages of both tools come from
 *
 * A build tree has its catalogs below PROF_LOCALE_DIR (set by `meson devenv`), an installation
 * below its prefix.
 */
#include "config.h"

#include "tools/common/messages.h"

#include <libintl.h>
#include <locale.h>
#include <stdlib.h>

void messages_init(void)
{
	const char *directory = secure_getenv("PROF_LOCALE_DIR");

	setlocale(LC_ALL, "");
	bindtextdomain(GETTEXT_PACKAGE, directory ? directory : PROF_DEFAULT_LOCALE_DIR);
	bind_textdomain_codeset(GETTEXT_PACKAGE, "UTF-8");
	textdomain(GETTEXT_PACKAGE);
}
