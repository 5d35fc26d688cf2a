/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "config.h"

#include "tools/profcapture/redact.h"

#include <string.h>

static const char user_text[] = "USER", host_text[] = "HOST";
/* The replacement for hosts that are known only from addresses. Many of these are services whose
 * name is also a common word, so they are replaced only in prose. Code distinguishes this text from
 * host_text by its pointer. */
static const char address_host_text[] = "HOST";

#define LONGEST_NAME 64u /* maximum length of a learned name */

struct redactor {
	GHashTable *names; /* name in lower case → the text that replaces it */
	size_t longest;    /* length of the longest name */
	bool first[256];   /* first letters of names */
};

struct redactor *redactor_new(void)
{
	struct redactor *redactor = g_new0(struct redactor, 1);

	redactor->names = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
	return redactor;
}

void redactor_free(struct redactor *redactor)
{
	if (redactor)
		g_hash_table_unref(redactor->names);
	g_free(redactor);
}

/* ---- characters ------------------------------------------------------------------------------ */

/* Without the test of `c`, strchr() would find the end of the string. */
static bool is_any_of(char c, const char *characters)
{
	return c && strchr(characters, c);
}

static bool is_slash(char c)
{
	return c == '/' || c == '\\';
}

/* Returns whether a character may be in a relative path. */
static bool is_of_token(char c)
{
	return g_ascii_isalnum(c) || (signed char)c < 0 || is_any_of(c, "._-+@~$/\\");
}

static bool is_drive(const char *at)
{
	return g_ascii_isalpha(at[0]) && at[1] == ':' && is_slash(at[2]);
}

/* Returns the length of a compiler's option before its path, as in -I/usr/include; 0: none. */
static size_t option_length(const char *at)
{
	size_t n = 1;

	if (*at != '-')
		return 0;
	while (g_ascii_isalpha(at[n]))
		n++;
	return n > 1 && (is_any_of(at[n], "/\\~") || (n == 2 && (at[n] == '.' || is_drive(at + n))))
		       ? n
		       : 0;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Returns the length of the IPv4 address that begins at `at`, or 0 if no address begins there,
 * as in a longer version number. */
static size_t ipv4_length(const char *at)
{
	size_t length = 0;

	for (unsigned part = 0; part < 4; part++) {
		unsigned value = 0;
		size_t digits = 0;

		for (; digits < 4 && g_ascii_isdigit(at[length + digits]); digits++)
			value = 10 * value + (unsigned)(at[length + digits] - '0');
		if (digits < 1 || digits > 3 || value > 255 ||
		    (part < 3 && at[length + digits] != '.'))
			return 0;
		length += digits + (part < 3);
	}
	if (at[length] == '.' && !is_of_token(at[length + 1]))
		return length; /* the end of a sentence */
	return is_of_token(at[length]) && at[length] != '/' ? 0 : length;
}

/*
 * Returns the length of an IPv6 address, with its zone, or of an Ethernet address; 0: neither. In
 * C++, "ad::Bed" is a name. So text with "::" is an address only if a group begins with a digit,
 * which no name does, or if the text has an IPv4 address at its end, a zone, a prefix length or
 * brackets.
 */
static size_t ipv6_length(const char *text, const char *at)
{
	unsigned groups = 0, pairs = 0;
	bool has_gap = false, is_certain = false;
	size_t n = 0, zone = 1;

	if (at - text >= 2 && at[-1] == ':' && at[-2] == ':')
		return 0;
	for (size_t digits = 0, tail; groups <= 8; n += digits, groups++) {
		if (at[n] == ':' && at[n + 1] == ':' && !has_gap) {
			has_gap = true;
			n += 2;
		} else if (groups > 0 && at[n] == ':' && g_ascii_isxdigit(at[n + 1])) {
			n++;
		} else if (groups > 0) {
			break;
		}
		for (digits = 0; digits < 5 && g_ascii_isxdigit(at[n + digits]);)
			digits++;
		if (digits == 0 || digits > 4)
			break;
		if (groups > 0 && (tail = ipv4_length(at + n))) {
			n += tail;
			groups += 2;
			is_certain = true;
			break;
		}
		is_certain |= g_ascii_isdigit(at[n]);
		pairs += digits == 2;
	}
	if (at[n] == '%') {
		while (g_ascii_isalnum(at[n + zone]) || is_any_of(at[n + zone], "_-."))
			zone++;
		n += zone > 1 ? zone : 0;
		is_certain |= zone > 1;
	}
	if (g_ascii_isalnum(at[n]) || at[n] == '_' || groups == 0 ||
	    (at[n] == ':' && (at[n + 1] == ':' || at[n - 1] == ':')))
		return 0;
	is_certain |= (at[n] == '/' && g_ascii_isdigit(at[n + 1])) ||
		      (at[n] == ']' && at > text && at[-1] == '[');
	if (has_gap)
		return groups < 8 && is_certain ? n : 0;
	return groups == 8 || (groups == 6 && pairs == 6) ? n : 0;
}

static size_t address_length(const char *text, const char *at)
{
	size_t length = ipv4_length(at);

	return length ? length : ipv6_length(text, at);
}

/* Returns the length of the host name that begins at `at`, or 0 if no name begins there. The
 * version of a symbol (memcpy@GLIBC_2.2.5), the suffix of an entry in a linkage table (memcpy@plt)
 * and the version of a module (yaml@v3.0.1) are not host names. */
static size_t host_length(const char *at)
{
	size_t length = 0;

	if (!g_ascii_isalpha(*at) || (*at == 'v' && g_ascii_isdigit(at[1])))
		return 0;
	while (g_ascii_isalnum(at[length]) ||
	       (is_any_of(at[length], ".-") && g_ascii_isalnum(at[length + 1])))
		length++;
	return is_any_of(at[length], "_@") || (length == 3 && strncmp(at, "plt", 3) == 0) ? 0
											  : length;
}

/* Returns the length of the domain after the name of a host, as in ".corp.example". A single label
 * must be a known domain, because it may also be a file's suffix or the member of a structure. */
static size_t domain_length(const char *at)
{
	static const char *const domains[] = { "local",       "lan",  "home",    "internal",
					       "localdomain", "corp", "com",     "net",
					       "org",         "edu",  "gov",     "mil",
					       "example",     "test", "invalid", NULL };
	size_t n = 0, label = 0;
	unsigned labels = 0;
	bool is_class = false;

	while (labels < 8 && at[n] == '.' && g_ascii_isalnum(at[n + 1])) {
		label = ++n;
		while (g_ascii_isalnum(at[n]) || (at[n] == '-' && g_ascii_isalnum(at[n + 1])))
			n++;
		is_class |= g_ascii_isupper(at[label]) && g_ascii_islower(at[n - 1]);
		labels++;
	}
	if (labels == 0 || is_class || !g_ascii_isalpha(at[label]) || is_any_of(at[n], "(_") ||
	    strncmp(at + n, "::", 2) == 0)
		return 0;
	for (size_t i = 0; labels < 2 && domains[i]; i++)
		if (strlen(domains[i]) == n - label &&
		    g_ascii_strncasecmp(at + label, domains[i], n - label) == 0)
			return n;
	return labels < 2 ? 0 : n;
}

/* ---- names that are learned ------------------------------------------------------------------ */

static void learn_name(struct redactor *redactor, const char *name, size_t length,
		       const char *instead)
{
	/* names that many machines have, so they identify nobody */
	static const char *const common[] = {
		"root",   "user",      "users",         "home",      "host",    "localhost",
		"nobody", "admin",     "administrator", "guest",     "public",  "default",
		"shared", "all users", "lost+found",    "linuxbrew", "ubuntu",  "debian",
		"fedora", "vagrant",   "runner",        "build",     "builder", "main",
		"test",   "none",      "(none)",        NULL
	};
	/* hosts that many machines talk to, and common parts of host names */
	static const char *const services[] = {
		"www",      "api",        "mail",       "cdn",    "static", "raw",
		"docs",     "git",        "data",       "cache",  "proxy",  "example",
		"github",   "github.com", "gitlab",     "google", "golang", "k8s.io",
		"gopkg.in", "golang.org", "gitlab.com", NULL
	};
	g_autofree char *lower = g_ascii_strdown(name, (gssize)length);
	bool has_letter = false, is_weak = instead == address_host_text;
	const char *known;

	for (size_t i = 0; i < length; i++)
		has_letter |= g_ascii_isalpha(name[i]) || (signed char)name[i] < 0;
	known = g_hash_table_lookup(redactor->names, lower);
	if (length < 2 || length > LONGEST_NAME || !has_letter || *name == '.' ||
	    g_strv_contains(common, lower) ||
	    (is_weak && (length == 2 || g_strv_contains(services, lower))) ||
	    (known && (known != address_host_text || is_weak)))
		return;
	redactor->first[(uint8_t)*lower] = true;
	g_hash_table_insert(redactor->names, g_steal_pointer(&lower), (char *)instead);
	redactor->longest = MAX_OF(redactor->longest, length);
}

/* Learns a host, its short name, and its domain if that has a dot. */
static void learn_host(struct redactor *redactor, const char *name, size_t length,
		       const char *instead)
{
	const char *dot = memchr(name, '.', length), *end = name + length;

	learn_name(redactor, name, length, instead);
	if (!dot)
		return;
	learn_name(redactor, name, (size_t)(dot - name), instead);
	if (memchr(dot + 1, '.', (size_t)(end - dot) - 1))
		learn_name(redactor, dot + 1, (size_t)(end - dot) - 1, address_host_text);
}

/* Returns the position after the prefix `folders`, in which each '/' stands for one or more slashes
 * or backslashes; NULL: the text does not begin with the prefix. */
static const char *skip_folders(const char *at, const char *folders)
{
	for (; *folders; folders++) {
		if (*folders != '/' && g_ascii_tolower(*at) != g_ascii_tolower(*folders))
			return NULL;
		if (*folders == '/' && !is_slash(*at))
			return NULL;
		at++;
		while (*folders == '/' && is_slash(*at))
			at++;
	}
	return at;
}

/* Learns the name of a user from the path at `at`, if the path is in a user's folder. */
static void learn_path(struct redactor *redactor, const char *at)
{
	static const char *const parents[] = { "/home/",
					       "/homes/",
					       "/usr/home/",
					       "/var/home/",
					       "/export/home/",
					       "/data/home/",
					       "/media/",
					       "/run/media/",
					       "/var/mail/",
					       "/var/spool/mail/",
					       "/documents and settings/",
					       "/users/",
					       NULL };
	const char *name = NULL, *drive = skip_folders(at, "/mnt/"); /* drive of Windows in WSL */
	bool is_windows = is_drive(at) || (drive && g_ascii_isalpha(*drive) && is_slash(drive[1]));

	if (*at == '~' && is_slash(at[strcspn(at, "/\\ \t\n\"'<>|:()=;")]))
		name = at + 1;
	else if (is_windows)
		at = is_drive(at) ? at + 2 : drive + 1;
	while (strncmp(at, "..", 2) == 0 && is_slash(at[2]))
		at += strncmp(at + 3, "..", 2) == 0 ? 3 : 2;
	for (size_t i = 0; !name && parents[i]; i++)
		name = skip_folders(at, parents[i]);
	/* only "/Users/" of macOS counts, because "/users/" is frequent in URLs */
	if (!name ||
	    (!is_windows && is_slash(*at) && strncmp(at + strspn(at, "/\\"), "users", 5) == 0))
		return;
	/* learn both: a space may be part of the name, or end the path */
	learn_name(redactor, name, strcspn(name, "/\\\"'<>|:\t\n ,;)]"), user_text);
	learn_name(redactor, name, strcspn(name, "/\\\"'<>|:\t\n"), user_text);
}

static void learn_variable(struct redactor *redactor, const char *at)
{
	static const struct {
		const char *name, *instead;
	} variables[] = {
		{ "USER=", user_text },       { "LOGNAME=", user_text },
		{ "USERNAME=", user_text },   { "SUDO_USER=", user_text },
		{ "USERDOMAIN=", host_text }, { "HOSTNAME=", host_text },
		{ "HOST=", host_text },       { "COMPUTERNAME=", host_text },
	};

	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const char *value;

		if (!g_str_has_prefix(at, variables[i].name))
			continue;
		value = at + strlen(variables[i].name);
		value += is_any_of(*value, "\"'");
		(variables[i].instead == host_text ? learn_host : learn_name)(
			redactor, value, strcspn(value, " \t\n\"';,:)/\\"), variables[i].instead);
	}
}

/* Learns the host of user@host or of a URL, if the '@' or "://" is at `at`. A host without lower
 * case is ignored, because it is probably the version of a symbol, as in SSL_read@OPENSSL. */
static void learn_address(struct redactor *redactor, const char *text, const char *at)
{
	const char *host;
	size_t length;

	if (at == text || !(g_ascii_isalnum(at[-1]) || is_any_of(at[-1], "._%+-")) ||
	    (*at != '@' && strncmp(at, "://", 3) != 0))
		return;
	host = at + (*at == '@' ? 1 : 3);
	length = host_length(host);
	if ((length > 8 && strncmp(host + length - 8, ".service", 8) == 0) ||
	    (*at == ':' &&
	     (host[length] == '@' || (host[length] == ':' && !g_ascii_isdigit(host[length + 1])))))
		return; /* a unit of systemd, or the user in a URL */
	for (size_t i = 0; i < length; i++) {
		if (g_ascii_islower(host[i])) {
			learn_host(redactor, host, length, address_host_text);
			return;
		}
	}
}

void redactor_learn(struct redactor *redactor, const char *text)
{
	for (const char *at = text; *at; at++) {
		size_t option = option_length(at);
		bool is_first = at == text || is_any_of(at[-1], "=:;\"'(");

		if (*at == '@' || *at == ':')
			learn_address(redactor, text, at);
		if (!is_first && !is_any_of(at[-1], " \t\n"))
			continue;
		learn_variable(redactor, at);
		/* after a space or in a URL, a path is probably a web server's */
		if (option > 0 || *at == '~' || is_drive(at) || strncmp(at, "..", 2) == 0 ||
		    (is_first && strncmp(at, "//", 2) != 0))
			learn_path(redactor, at + option);
	}
}

static char *text_of(const struct prof_array *column, size_t row)
{
	size_t length = column->offsets[row + 1] - column->offsets[row];
	char *text = g_strndup("", length);

	for (size_t i = 0; i < length; i++) {
		char c = (char)column->bytes[column->offsets[row] + i];

		text[i] = c ? c : ' ';
	}
	return text;
}

static void learn_batch(struct redactor *redactor, bool has_keys, const struct prof_batch *batch)
{
	for (size_t i = 0; batch->columns->offsets && i < batch->rows; i++) {
		g_autofree char *text = text_of(batch->columns, i);
		g_autofree char *key = NULL;

		redactor_learn(redactor, text);
		if (!has_keys || !batch->columns[1].offsets)
			continue;
		key = text_of(&batch->columns[1], i);
		if (strcmp(key, "host") != 0)
			continue;
		learn_host(redactor, text, strlen(text), host_text);
	}
}

int redactor_learn_capture(struct redactor *redactor, const struct prof_reader *reader)
{
	size_t n_tables;
	const struct prof_table_def *const *tables = prof_reader_tables(reader, &n_tables);

	for (size_t i = 0; i < n_tables; i++) {
		for (unsigned c = 0; c < tables[i]->n_columns; c++) {
			const struct prof_column_def *column = &tables[i]->columns[c];
			const uint16_t columns[] = { column->id, PROF_METADATA_KEY };
			bool has_keys = tables[i]->id == PROF_TABLE_METADATA &&
					column->id == PROF_METADATA_VALUE;
			const struct prof_cursor_options options = { .table = tables[i]->id,
								     .columns = columns,
								     .n_columns = has_keys ? 2
											   : 1 };
			struct prof_cursor *cursor = NULL;
			struct prof_batch batch;
			int r;

			if (column->type != PROF_TYPE_TEXT)
				continue;
			r = prof_cursor_new(reader, &options, &cursor);
			while (r == 0 && (r = prof_cursor_next(cursor, &batch)) == 0)
				learn_batch(redactor, has_keys, &batch);
			prof_cursor_free(cursor);
			if (r != PROF_END && r != PROF_NO_TABLE)
				return r;
		}
	}
	return 0;
}

/* ---- syntax: each function returns how much of the text it replaced; 0: nothing -------------- */

static size_t redact_url(const char *at, GString *out)
{
	size_t scheme = 0, rest;

	while (g_ascii_isalnum(at[scheme]) || (scheme && is_any_of(at[scheme], "+-.")))
		scheme++;
	if (scheme < 2 || strncmp(at + scheme, "://", 3) != 0)
		return 0;
	rest = strcspn(at + scheme + 3, " \t\n\"'<>|)]");
	g_string_append_len(out, at, (gssize)scheme + 3);
	if (rest > 0)
		g_string_append(out, host_text);
	return scheme + 3 + rest;
}

/* Returns whether a path begins at `at`, perhaps after the option of a compiler. */
static bool begins_path(const char *at)
{
	at += option_length(at);
	return is_any_of(*at, "/\\~") || is_drive(at) || strncmp(at, "..", 2) == 0;
}

/* Replaces the value of an environment variable. A number stays, and a path is left to
 * redact_path(). */
static size_t redact_variable(const char *at, GString *out)
{
	size_t name = 0, value;
	char quote;

	while (g_ascii_isupper(at[name]) ||
	       (name && (g_ascii_isdigit(at[name]) || at[name] == '_')))
		name++;
	if (name < 2 || at[name] != '=' || is_any_of(at[name + 1], "=\n\t "))
		return 0;
	g_string_append_len(out, at, (gssize)++name);
	at += name;
	quote = *at;
	if (begins_path(at + is_any_of(quote, "\"'")) || g_ascii_isdigit(*at) || !*at)
		return name;
	value = is_any_of(quote, "\"'") ? 1 + strcspn(at + 1, quote == '"' ? "\"\n" : "'\n")
					: strcspn(at, " \t\n\"';,)]");
	value += value && is_any_of(quote, "\"'") && at[value] == quote;
	if (value > 0)
		g_string_append(out, "…");
	return name + value;
}

static size_t redact_address(const char *text, const char *at, GString *out)
{
	size_t user = 0, host = address_length(text, at);

	if (host) {
		g_string_append(out, host_text);
		return host;
	}
	while (g_ascii_isalnum(at[user]) || is_any_of(at[user], "._%+-"))
		user++;
	if (user == 0 || at[user] != '@')
		return 0;
	if (at[++user] == '[' && ipv6_length(text, at + user + 1)) {
		g_string_append_printf(out, "%s@", user_text);
		return user;
	}
	host = address_length(text, at + user);
	host = host ? host : host_length(at + user);
	if (host)
		g_string_append_printf(out, "%s@%s", user_text, host_text);
	return host ? user + host : 0;
}

static size_t component_length(const char *at, size_t length)
{
	size_t n = 0;

	while (n < length && !is_slash(at[n]))
		n++;
	return n;
}

/* Returns whether a component of a path, other than the last, is one of `folders`. */
static bool has_folder(const char *at, size_t length, const char *const *folders)
{
	for (size_t i = 0, n; i < length; i += n + 1) {
		n = component_length(at + i, length - i);
		for (size_t k = 0; folders[k] && i + n < length; k++)
			if (strlen(folders[k]) == n && strncmp(at + i, folders[k], n) == 0)
				return true;
	}
	return false;
}

/* Returns whether an absolute path is below a folder that is the same on all machines. */
static bool is_shared(const char *at)
{
	static const char *const shared[] = { "/usr/bin/",
					      "/usr/sbin/",
					      "/usr/lib/",
					      "/usr/lib32/",
					      "/usr/lib64/",
					      "/usr/libx32/",
					      "/usr/libexec/",
					      "/usr/include/",
					      "/usr/share/",
					      "/usr/src/",
					      "/usr/local/bin/",
					      "/usr/local/sbin/",
					      "/usr/local/lib/",
					      "/usr/local/lib64/",
					      "/usr/local/include/",
					      "/usr/local/share/",
					      "/lib/",
					      "/lib32/",
					      "/lib64/",
					      "/bin/",
					      "/sbin/",
					      "/snap/",
					      "/nix/store/",
					      "/gnu/store/",
					      NULL };
	static const char *const leaving[] = { "..", "home", "Users", "root", "cwd", NULL };

	size_t length = strcspn(at, " \t\n\"'<>|:;,)]");
	bool is_below = false;

	for (size_t i = 0; shared[i] && !is_below; i++) {
		size_t n = strlen(shared[i]);

		is_below = strncmp(at, shared[i], n) == 0 ||
			   (length == n - 1 && strncmp(at, shared[i], length) == 0);
	}
	return is_below && !has_folder(at, length, leaving);
}

/* Redacts a path: drops its folders. The path of a user's home folder becomes "~". */
static size_t redact_path(const char *text, const char *at, GString *out)
{
	static const char *const leaving[] = { "..", "home", "Users", NULL };
	static const char *const homes[] = { "home", "homes", "Users", NULL };
	bool is_network = at[0] == '\\' && at[1] == '\\';
	size_t token = 0, length, end, last, above;
	const char *next;

	while (is_of_token(at[token]))
		token++;
	if (*at == '/' ? is_shared(at)
		       : !is_network && !is_drive(at) &&
				 !(*at == '~' && component_length(at, token) < token) &&
				 !has_folder(at, token, leaving))
		return 0;
	/* folders may have spaces; a text that starts with a path is only this path or a list of
	 * paths */
	length = is_drive(at) ? 2 : 0;
	length += strcspn(at + length, at == text ? "\n" : "\t\n\"'<>|:)]");
	next = at == text ? g_strstr_len(at, (gssize)length, ":/") : NULL;
	length = next && !is_drive(at) ? (size_t)(next - at) : length;
	for (end = length; end > 0 && is_slash(at[end - 1]);)
		end--;
	for (last = end; last > 0 && !is_slash(at[last - 1]);)
		last--;
	for (above = last; above > 0 && is_slash(at[above - 1]);)
		above--;
	if (above == 0) { /* the path is one name without a folder */
		if (!is_network || last == end)
			return 0;
		g_string_append(out, host_text);
		return length;
	}
	end = above;
	while (above > 0 && !is_slash(at[above - 1]))
		above--;
	for (size_t i = 0; homes[i]; i++) {
		if (strlen(homes[i]) == end - above &&
		    strncmp(at + above, homes[i], end - above) == 0) {
			g_string_append_c(out, '~');
			return length;
		}
	}
	return last;
}

/* Returns whether a name is outside of identifiers, paths and qualified names. A domain may be a
 * part of a longer domain. */
static bool is_in_prose(const char *text, const char *at, const char *end)
{
	char before = at == text ? ' ' : at[-1];

	if (before == '.' && memchr(at, '.', (size_t)(end - at)))
		before = ' ';
	return !g_ascii_isalnum(before) && !is_any_of(before, "_.-/\\$") &&
	       !(at - text >= 2 && at[-1] == ':' && at[-2] == ':') && !g_ascii_isalnum(*end) &&
	       !is_any_of(*end, "(_-/\\$") && strncmp(end, "::", 2) != 0 &&
	       !(*end == '.' && g_ascii_isalnum(end[1]));
}

/* Returns the text that replaces the name at `at`, and the length of the name and its domain; NULL:
 * no name begins there. */
static const char *replacement_at(const struct redactor *redactor, const char *text, const char *at,
				  size_t *ret_length)
{
	char name[LONGEST_NAME + 1], before = at == text ? ' ' : at[-1];
	size_t length = strnlen(at, redactor->longest), domain;

	if (g_ascii_isalpha(before) || !redactor->first[(uint8_t)g_ascii_tolower(*at)])
		return NULL;
	for (size_t i = 0; i < length; i++)
		name[i] = g_ascii_tolower(at[i]);
	for (; length >= 2; length--) {
		const char around[] = { before, at[length] };
		const char *instead;
		bool is_word = !g_ascii_isalpha(at[length]);

		/* A short name inside an identifier is probably another word. */
		for (size_t k = 0; length < 4 && k < sizeof(around); k++)
			is_word &= !g_ascii_isdigit(around[k]) && around[k] != '_';
		name[length] = '\0';
		instead = is_word ? g_hash_table_lookup(redactor->names, name) : NULL;
		domain = instead && instead != user_text ? domain_length(at + length) : 0;
		if (instead &&
		    (instead != address_host_text || is_in_prose(text, at, at + length + domain))) {
			*ret_length = length + domain;
			return instead;
		}
	}
	return NULL;
}

char *redact_text(const struct redactor *redactor, const char *text)
{
	GString *out = g_string_new(NULL);
	bool begins = true; /* at the start, or directly after replaced text */

	for (const char *at = text; *at;) {
		const char *instead;
		size_t done = 0, option;

		/* A '/' may also be an operator, or in the middle of a relative path. */
		if (begins || at == text || !is_of_token(at[-1]) ||
		    (*at == '/' && is_any_of(at[-1], "@$"))) {
			if ((option = option_length(at))) {
				g_string_append_len(out, at, (gssize)option);
				at += option;
			}
			if (!(done = redact_url(at, out)) && !(done = redact_variable(at, out)) &&
			    !(done = redact_address(text, at, out)))
				done = redact_path(text, at, out);
		}
		begins = done > 0;
		if (!begins && (instead = replacement_at(redactor, text, at, &done)))
			g_string_append(out, instead);
		else if (!begins)
			g_string_append_c(out, *at);
		at += done ? done : 1;
	}
	return g_string_free(out, FALSE);
}

GBytes *redact_metadata(const struct redactor *redactor, const char *key, const void *value,
			size_t length)
{
	g_autofree char *text = g_strndup(value, length);
	char *shown;

	if (strcmp(key, "host") == 0 || strcmp(key, "options") == 0)
		return NULL;
	if (strcmp(key, "command") == 0) { /* each word ends with NUL: keep only the first word */
		g_autofree char *name = g_path_get_basename(text);

		shown = redact_text(redactor, name);
	} else {
		shown = redact_text(redactor, text);
	}
	return g_bytes_new_take(shown, strlen(shown));
}
