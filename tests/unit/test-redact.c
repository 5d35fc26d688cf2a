/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks of what --redact removes from a text: folders, addresses and variables by their syntax,
 * and the names of users and hosts that texts of the same capture give away.
 */
#include "arch/base.h"
#include "tests/unit/test.h"
#include "tools/profcapture/redact.h"

#define HOME "/home"
#define USERS "/Users"

static void check_text(struct redactor *redactor, const char *text, const char *wanted)
{
	g_autofree char *got = redact_text(redactor, text);
	g_autofree char *again = redact_text(redactor, got);

	CHECK_STR(got, wanted);
	CHECK_STR(again, got);
}

static void test_syntax(void)
{
	static const char *const texts[][2] = {
		/* folders */
		{ HOME "/jane/src/x.c", "x.c" },
		{ HOME "/jane", "~" },
		{ HOME "/jane/", "~" },
		{ "/opt/acme/jane/lib/libx.so", "libx.so" },
		{ "/usr/home/jane/x", "x" },
		{ "/usr/home/jane", "~" },
		{ "/srv/build/jane/x.c", "x.c" },
		{ "/var/home/jane/x y.c", "x y.c" },
		{ "/var/home/jane", "~" },
		{ USERS "/jane", "~" },
		{ "~jane/src/x.c", "x.c" },
		{ "see ~jane/src/x.c:12", "see x.c:12" },
		{ "C:\\Users\\jane\\x.c", "x.c" },
		{ "c:" USERS "/jane/x.c", "x.c" },
		{ "C:\\\\Users\\\\jane", "~" },
		{ "at D:\\work\\jane\\x.c:12", "at x.c:12" },
		{ "\\\\moon\\share\\x.c", "x.c" },
		{ "\\\\moon", "HOST" },
		{ "//moon/share/x.c", "x.c" },
		{ "../.." HOME "/jane/x.c", "x.c" },
		{ "../jane/x.c", "x.c" },
		{ "home/jane/x.c", "x.c" },
		{ "-I" HOME "/jane/include", "-Iinclude" },
		{ "-I../jane/include", "-Iinclude" },
		{ "-isystem/srv/jane/include", "-isysteminclude" },
		{ "open(/srv/jane/x.c)", "open(x.c)" },
		{ "/usr/lib:" HOME "/jane/lib", "/usr/lib:lib" },
		{ "/usr/lib/../../home/jane/x", "x" },
		{ "/proc/1/root/home/jane/x", "x" },
		{ "{lambda(/srv/jane/x.c:12)#1}::f", "{lambda(x.c:12)#1}::f" },
		/* addresses */
		{ "GET https:"
		  "//jane@moon.example/a?b=jane 200",
		  "GET https:"
		  "//HOST 200" },
		{ "file:///srv/jane/x", "file://HOST" },
		{ "mail jane.doe@moon.example now", "mail USER@HOST now" },
		{ "jane@moon:/srv/jane/x", "USER@HOST:x" },
		{ "jane@10.0.0.7", "USER@HOST" },
		{ "connect 10.0.0.7:80", "connect HOST:80" },
		{ "no answer from 10.0.0.7.", "no answer from HOST." },
		{ "connect [2001:db8::7]:80 as jane@[fe80::7]",
		  "connect [HOST]:80 as USER@[HOST]" },
		{ "2001:DB8:0:1:2:3:4:5, ::ffff:10.0.0.7.", "HOST, HOST." },
		{ "from fe80::be%eth0: lost fd00::/8", "from HOST: lost HOST/8" },
		{ "dst=2001:db8::1: refused jane@2001:db8::2", "dst=HOST: refused USER@HOST" },
		{ "ether 02:42:ac:11:00:02", "ether HOST" },
		/* variables */
		{ "PATH=/usr/bin:/opt/jane/bin", "PATH=/usr/bin:bin" },
		{ "TOKEN=secret SIZE=12 MODE='a b' x", "TOKEN=… SIZE=12 MODE=… x" },
		/* texts that stay as they are */
		{ "/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1" },
		{ "/usr/include/c++/12/bits/stl.h", "/usr/include/c++/12/bits/stl.h" },
		{ "src/main.c", "src/main.c" },
		{ "read/write 1/2 a // b", "read/write 1/2 a // b" },
		{ "operator/(a, b)", "operator/(a, b)" },
		{ "shop::Cart::~Cart()", "shop::Cart::~Cart()" },
		{ "App\\Models\\Cart::find", "App\\Models\\Cart::find" },
		{ "github.com/yaml/yaml@v3.0.1/decode.go",
		  "github.com/yaml/yaml@v3.0.1/decode.go" },
		{ "ad::Bed::add(fe::ed, be::d0)", "ad::Bed::add(fe::ed, be::d0)" },
		{ "ad::be at 12:34:56, f<12>::bed, a::b::c",
		  "ad::be at 12:34:56, f<12>::bed, a::b::c" },
		{ "core::ops::add::hfe80abcd12345678", "core::ops::add::hfe80abcd12345678" },
		{ "memcpy@plt", "memcpy@plt" },
		{ "memcpy@GLIBC_2.2.5", "memcpy@GLIBC_2.2.5" },
		{ "memcpy@@GLIBC_2.14", "memcpy@@GLIBC_2.14" },
		{ "libx.so.1.2.3.4", "libx.so.1.2.3.4" },
		{ "if (a == b) T=int", "if (a == b) T=int" },
		{ "[kernel]", "[kernel]" },
		{ "", "" },
	};
	struct redactor *redactor = redactor_new();

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		check_text(redactor, texts[i][0], texts[i][1]);
	redactor_free(redactor);
}

/* Each text shows by its syntax which word is a name. The name is then removed from other texts,
 * which have it without such syntax. */
static void test_names(void)
{
	static const char *const users[] = {
		HOME "/jane/x",
		"/usr/home/jane/x",
		"/var/home/jane",
		USERS "/jane",
		"/run/media/jane/usb",
		"/mnt/c/Users/jane/x",
		"C:\\Users\\Jane\\x",
		"c:\\\\users\\\\jane",
		"PATH=/usr/bin:" HOME "/jane/bin",
		"HOME=" HOME "/jane",
		"USER=jane",
		"say LOGNAME='jane' there",
		"cc -I" HOME "/jane/include",
		"~jane/x",
		"../.." HOME "/jane/x",
		"lambda(" HOME "/jane/x.c:1)",
		HOME "/jane failed, like a/b",
		"C:\\Users\\Jane Doe\\x",
	};
	static const char *const harmless[] = {
		HOME "/guest/x",
		"GET " HOME "/index 200",
		"/users/index",
		"http:/" HOME "/index",
		"~index",
		"HOST=localhost",
		"USER=1000",
		"app/home/index.py",
		HOME "/x",
		HOME "/",
		"~",
		"USER=",
	};

	for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
		struct redactor *redactor = redactor_new();

		redactor_learn(redactor, users[i]);
		check_text(redactor, "jane logged in", "USER logged in");
		check_text(redactor, "janet, trajane", "janet, trajane");
		check_text(redactor, "Jane_cache::get", "USER_cache::get");
		check_text(redactor, "_ZN4jane3getEv", "_ZN4USER3getEv");
		check_text(redactor, "/usr/lib/jane/x", "/usr/lib/USER/x");
		check_text(redactor, "/srv/jane", "USER");
		check_text(redactor, "jane", "USER");
		redactor_free(redactor);
	}
	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
		struct redactor *redactor = redactor_new();

		redactor_learn(redactor, harmless[i]);
		check_text(redactor, "index guest localhost x 1000 main",
			   "index guest localhost x 1000 main");
		redactor_free(redactor);
	}
}

/* A host that a variable or an address gives away is removed from texts, and so is its domain. A
 * host that is known only from an address stays in identifiers. */
static void test_hosts(void)
{
	static const char *const sources[] = {
		"HOST=moon",
		"HOSTNAME=moon.corp.example",
		"ssh jane@moon:/srv",
		"GET https:"
		"//jane:pw@moon.corp.example:8080/a",
		"(redis:"
		"//Moon)",
	};
	static const char *const texts[][2] = {
		{ "lost MOON, Moon.local and moon.", "lost HOST, HOST and HOST." },
		{ "moon.corp.example: MOON.CORP.EXAMPLE", "HOST: HOST" },
		{ "from moon:80 (moon)", "from HOST:80 (HOST)" },
		{ "moonlight, trimoon", "moonlight, trimoon" },
	};
	static const char *const names[] = {
		"moon::Cart::add", "moon_add",   "shop.moon.add", "github.com/shop/moon.add",
		"moon.Cart.add",   "moon.add()", "moon()",        "std::moon",
		"moon-add",
	};

	for (size_t i = 0; i < ARRAY_SIZE(sources); i++) {
		struct redactor *redactor = redactor_new();

		redactor_learn(redactor, sources[i]);
		for (size_t k = 0; k < ARRAY_SIZE(texts); k++)
			check_text(redactor, texts[k][0], texts[k][1]);
		/* a host in an address may be a service, whose name is also a word in function
		 * names */
		for (size_t k = 0; i >= 2 && k < ARRAY_SIZE(names); k++)
			check_text(redactor, names[k], names[k]);
		if (strstr(sources[i], "corp"))
			check_text(redactor, "sun.corp.example", "sun.HOST");
		redactor_learn(redactor, "HOST=moon");
		check_text(redactor, "moon::Cart::add", "HOST::Cart::add");
		redactor_free(redactor);
	}
}

/* Words after '@' or "://" that are not hosts are kept, and so are hosts that identify nobody. */
static void test_no_hosts(void)
{
	static const char *const texts[] = {
		"SSL_read@OPENSSL",
		"memcpy@GLIBC_2.2.5",
		"yaml@v3.0.1",
		"memcpy@plt",
		"@OPENSSL",
		"getty@plt.service",
		"file:"
		"///OPENSSL/plt",
		"https:"
		"//plt:x@[::1]/",
		"a://",
		"https:"
		"//github.com/plt",
		"https:"
		"//www.plt",
		"x@",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct redactor *redactor = redactor_new();

		redactor_learn(redactor, texts[i]);
		check_text(redactor, "plt service openssl glibc github.com/a www v3",
			   "plt service openssl glibc github.com/a www v3");
		redactor_free(redactor);
	}
}

static void test_short_names(void)
{
	struct redactor *redactor = redactor_new();

	redactor_learn(redactor, "HOST=vm1");
	redactor_learn(redactor, HOME "/bo/x");
	check_text(redactor, "on vm1, of bo", "on HOST, of USER");
	check_text(redactor, "vm1_alloc _ZN2bo1f bo_x", "vm1_alloc _ZN2bo1f bo_x");
	redactor_free(redactor);
}

static void test_long_names(void)
{
	struct redactor *redactor = redactor_new();
	g_autofree char *name = g_strnfill(5000, 'j');
	g_autofree char *path = g_strdup_printf("/home/%s/x", name);

	redactor_learn(redactor, path);
	check_text(redactor, path, "x");
	check_text(redactor, name, name);
	redactor_learn(redactor, HOME "/jane/x");
	redactor_learn(redactor, "HOST=jane-moon");
	check_text(redactor, "jane-moon jane", "HOST USER");
	redactor_free(redactor);
}

/* The time to learn from a text, and to redact it, is in proportion to its length. */
static void test_long_texts(void)
{
	static const char *const parts[] = { "=~",  "~=",  "/a ", "1.",   "1",     "-x",
					     "../", "A=",  "a@",  "\\\\", "(",     "jane/",
					     "1:",  "a::", "a@b", "://",  "jane.", "host.moon." };
	/* The sanitizer's strict_string_checks read a text to its end in each call. */
	const size_t n_bytes = getenv("ASAN_OPTIONS") ? 1 << 13 : 1 << 18;
	struct redactor *redactor = redactor_new();

	redactor_learn(redactor,
		       HOME "/0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmn/x");
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		g_autoptr(GString) text = g_string_new(NULL);
		g_autofree char *shown = NULL;

		while (text->len < n_bytes)
			g_string_append(text, parts[i]);
		redactor_learn(redactor, text->str);
		shown = redact_text(redactor, text->str);
		CHECK(strlen(shown) <= 4 * text->len);
	}
	redactor_free(redactor);
}

static void test_metadata(void)
{
	static const char command[] = "/srv/jane/city\0--password=hunter2";
	struct redactor *redactor = redactor_new();
	g_autoptr(GBytes) shown = redact_metadata(redactor, "command", command, sizeof(command));
	g_autoptr(GBytes) kernel =
		redact_metadata(redactor, "kernel", "6.1.0 jane@moon", strlen("6.1.0 jane@moon"));

	CHECK(g_bytes_get_size(shown) == 4 &&
	      memcmp(g_bytes_get_data(shown, NULL), "city", 4) == 0);
	CHECK(g_bytes_get_size(kernel) == strlen("6.1.0 USER@HOST"));
	CHECK(!redact_metadata(redactor, "host", "moon", 4));
	CHECK(!redact_metadata(redactor, "options", "{}", 2));
	redactor_free(redactor);
}

int main(void)
{
	RUN(test_syntax);
	RUN(test_names);
	RUN(test_hosts);
	RUN(test_no_hosts);
	RUN(test_short_names);
	RUN(test_long_names);
	RUN(test_long_texts);
	RUN(test_metadata);
	return test_end();
}
