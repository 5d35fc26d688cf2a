/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tests/unit/test.h"
#include "tools/profile/function-names.h"

#include <glib.h>
#include <locale.h>
#include <string.h>

static void check_people(const char *name, const char *simple, const char *people)
{
	g_autofree char *a = function_name_simplify(name, "_Z1f");
	g_autofree char *b = function_name_for_people(name, "_Z1f");

	CHECK_STR(a, simple);
	CHECK_STR(b, people);
}

#define STRING "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >"

static void test_people(void)
{
	check_people("shop::add(" STRING " const&, double)",
		     "shop::add(std::string const&, double)", "shop::add");
	check_people(STRING "::compare(" STRING " const&) const",
		     "std::string::compare(std::string const&) const", "std::string::compare");
	check_people("double shop::kernel<double>(double, int)",
		     "shop::kernel<double>(double, int)", "shop::kernel<double>");
	check_people(
		"std::vector<shop::Order, std::allocator<shop::Order> >::push_back(shop::Order const&)",
		"std::vector<shop::Order>::push_back(shop::Order const&)",
		"std::vector<shop::Order>::push_back");
	check_people("std::map<" STRING ", double, std::less<" STRING
		     " >, std::allocator<std::pair<" STRING
		     " const, double> > >::operator[](" STRING "&&)",
		     "std::map<std::string, double>::operator[](std::string&&)",
		     "std::map<std::string, double>::operator[]");
	check_people(
		"void std::_Rb_tree<int, std::pair<int const, long>, std::_Select1st<std::pair<int const, long> >, std::less<int>, std::allocator<std::pair<int const, long> > >::clear()",
		"std::_Rb_tree<int, std::pair<int const, long>>::clear()",
		"std::_Rb_tree<int, std::pair<int const, long>>::clear");
	check_people("std::set<int, std::greater<int>, std::allocator<int> >::find(int)",
		     "std::set<int, std::greater<int>>::find(int)",
		     "std::set<int, std::greater<int>>::find");
	/* Only templates of the standard library have these defaults. */
	check_people("mine::list<int, std::allocator<int> >::add()",
		     "mine::list<int, std::allocator<int>>::add()",
		     "mine::list<int, std::allocator<int>>::add");
	check_people("shop::run(int)::{lambda(int)#1}::operator()(int) const",
		     "shop::run(int)::{lambda(int)#1}::operator()(int) const",
		     "shop::run::{lambda(int)#1}::operator()");
	check_people("(anonymous namespace)::f(int)", "(anonymous namespace)::f(int)",
		     "(anonymous namespace)::f");
	check_people("Foo::operator bool() const", "Foo::operator bool() const",
		     "Foo::operator bool");
	check_people(
		"std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
		"std::operator<< <std::char_traits<char>>(std::ostream&, char const*)",
		"std::operator<< <std::char_traits<char>>");
	check_people(
		"bool std::operator< <char, std::char_traits<char>, std::allocator<char> >(int)",
		"std::operator< <char>(int)", "std::operator< <char>");
	check_people("non-virtual thunk to Foo::bar(int)", "non-virtual thunk to Foo::bar(int)",
		     "non-virtual thunk to Foo::bar(int)");
	check_people("<alloc::vec::Vec<T> as core::ops::Drop>::drop",
		     "<alloc::vec::Vec<T> as core::ops::Drop>::drop",
		     "<alloc::vec::Vec<T> as core::ops::Drop>::drop");
	check_people(
		"std::basic_string<wchar_t, std::char_traits<wchar_t>, std::allocator<wchar_t> >::size()",
		"std::wstring::size()", "std::wstring::size");
	/* Malformed names remain unchanged. */
	check_people("a<b", "a<b", "a<b");
	check_people("", "", "");
}

static void test_not_mangled(void)
{
	g_autofree char *inlined =
		function_name_for_people("shop::f<std::vector<int, std::allocator<int> > >",
					 "shop::f<std::vector<int, std::allocator<int> > >");
	g_autofree char *js = function_name_for_people("LazyCompile:*f /a b.js:1:2",
						       "LazyCompile:*f /a b.js:1:2");
	g_autofree char *syscall = function_name_for_people("__x64_sys_read", "__x64_sys_read");
	g_autofree char *go = function_name_for_people("main.(*T).f", "main.(*T).f");

	CHECK_STR(inlined, "shop::f<std::vector<int>>");
	CHECK_STR(js, "LazyCompile:*f /a b.js:1:2");
	CHECK_STR(syscall, "read");
	CHECK_STR(go, "main.(*T).f");
}

static void check_fit(const char *name, unsigned columns, const char *want)
{
	g_autofree char *fitted = function_name_fit(name, columns);

	CHECK_STR(fitted, want);
}

/* Names of Ruby, PHP and Perl have spaces, brackets and operators that are not those of C++. */
static void test_scripts(void)
{
	static const char *const names[] = {
		"Shop::Till#sell",
		"block in Shop::Till#sell",
		"rescue in block (2 levels) in Shop::Till.open",
		"Shop::Till#<=>",
		"Shop::Till.made (eval)",
		"block in <class:Shop::Till> (shop.rb)",
		"Shop\\Till::sell",
		"Shop\\Till::{closure} (till.php)",
		"{closure} (till.php)",
		"class@anonymous::sell (till.php)",
		"Shop\\Till@anonymous::sell (till.php)",
		"eval (till.php(3) : eval()'d code)",
		"{main} (till.php)",
		"Shop::Till::sell",
		"Shop::Till::__ANON__ (till.pl)",
		"Shop::__ANON__ (eval)",
		"main::BEGIN (till.pl)",
		"format main::STDOUT",
		"require Shop/Till.pm",
		"regex block (till.pl)",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		g_autofree char *simple = function_name_simplify(names[i], names[i]);
		g_autofree char *people = function_name_for_people(names[i], names[i]);

		CHECK_STR(simple, names[i]);
		CHECK_STR(people, names[i]);
	}
}

static void test_fit(void)
{
	check_fit("std::_Rb_tree<std::string, int>::_M_lower_bound", 60,
		  "std::_Rb_tree<std::string, int>::_M_lower_bound");
	check_fit("std::_Rb_tree<std::string, int>::_M_lower_bound", 45,
		  "std::_Rb_tree<std::string…>::_M_lower_bound");
	check_fit("std::_Rb_tree<std::string, int>::_M_lower_bound", 34,
		  "std::_Rb_tree<…>::_M_lower_bound");
	check_fit("std::_Rb_tree<std::string, int>::_M_lower_bound", 30,
		  "…::_Rb_tree<…>::_M_lower_bound");
	check_fit("std::_Rb_tree<std::string, int>::_M_lower_bound", 5, "…::_M_lower_bound");
	check_fit("a_long_name_of_c", 5, "a_long_name_of_c");
	check_fit("a::operator<", 5, "…::operator<");
	check_fit("a<b", 1, "a<…>");
	check_fit("std::map<int, int>::find < shop::Stats::add  +3", 60,
		  "std::map<int, int>::find < shop::Stats::add  +3");
	check_fit("std::map<int, int>::find < shop::Stats::add  +3", 42,
		  "std::map<…>::find < shop::Stats::add  +3");
	check_fit("hot.score.<locals>.<genexpr>", 40, "hot.score.<locals>.<genexpr>");
	check_fit("hot.score.<locals>.<genexpr>", 20, "….<locals>.<genexpr>");
	check_fit("hot.score.<locals>.<genexpr>", 15, "….<genexpr>");
	check_fit("json.encoder.JSONEncoder.iterencode", 24, "….JSONEncoder.iterencode");
	check_fit("main.(*T).Method", 10, "….Method");
	check_fit("shop::main::{lambda(int)}::operator()", 5, "…::{lambda(int)}::operator()");
	check_fit("block in <class:A>", 5, "block in <class:A>");
	check_fit("<main>", 3, "<main>");
	check_fit("libc.so.6+0x26000", 5, "libc.so.6+0x26000");
	check_fit("<alloc::vec::Vec<T> as core::ops::Drop>::drop", 20, "<…>::drop");
	/* The template arguments of both names are dropped before any scope. */
	check_fit("std::map<int, int>::find < shop::each<int>::run", 42,
		  "std::map<…>::find < shop::each<int>::run");
	check_fit("std::map<int, int>::find < shop::each<int>::run", 38,
		  "std::map<…>::find < shop::each<…>::run");
}

static void check_apart(const char *name, const char *other, unsigned columns, const char *want)
{
	g_autofree char *fitted = function_name_fits.apart(name, other, columns);

	CHECK_STR(fitted, want);
}

static void test_apart(void)
{
	check_apart("std::vector<shop::Order>::push_back", "std::vector<int>::push_back", 40,
		    "std::vector<shop::Order>::push_back");
	check_apart("std::vector<shop::Order>::push_back", "std::vector<shop::Item>::push_back", 34,
		    "std::vector<…Order>::push_back");
	check_apart("std::map<int, shop::Order>::find", "std::map<int, shop::Item>::find", 21,
		    "…::map<…Order>::find");
	check_apart("std::map<int, shop::Order>::find", "std::map<int, shop::Item>::find", 18,
		    "…<…Order>::find");
	check_apart("one::shared::run", "two::shared::run", 30, "one::shared::run");
	check_apart("outer::one::shared::run", "outer::two::shared::run", 20, "…one::shared::run");
	check_apart("std::vector<int>::push_back < main", "std::vector<long>::push_back < main", 40,
		    "std::vector<int>::push_back < main");
	check_apart("f < std::vector<a::B>::g  +3", "f < std::vector<a::C>::g  +3", 26,
		    "f < std::vector<…B>::g  +3");
}

/* Names may have any bytes. Also tries each prefix of a name. */
static void test_hostile(void)
{
	const char *const names[] = { "a<b<c>(d)::{e}[f]>::operator<<(g->h) const::i",
				      "<<<<<<<<>",
				      "((((",
				      "}}}}",
				      "operator",
				      "operator<",
				      "::",
				      "<",
				      "a::<",
				      "->" };
	g_autofree char *deep = g_strnfill(20000, '<');

	for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
		for (size_t length = 0; length <= strlen(names[i]); length++) {
			g_autofree char *name = g_strndup(names[i], length);

			for (unsigned columns = 0; columns < 20; columns++) {
				g_free(function_name_fit(name, columns));
				g_free(function_name_fits.apart(name, "a<b<d>(d)", columns));
				g_free(function_name_fits.apart("a<b<d>(d)", name, columns));
			}
			g_free(function_name_for_people(name, "_Z1f"));
			CHECK(function_name_match(name, "_Z1f", "x") == FUNCTION_NAME_DIFFERS);
		}
	}
	g_free(function_name_for_people(deep, "_Z1f"));
	g_free(function_name_fit(deep, 10));
}

static void test_match(void)
{
	static const struct {
		const char *name, *text;
		enum function_name_match match;
	} cases[] = {
		{ "main", "main", FUNCTION_NAME_WHOLE },
		{ "main", "", FUNCTION_NAME_DIFFERS },
		{ "main", "mai", FUNCTION_NAME_DIFFERS },
		{ "main", "_raw", FUNCTION_NAME_WHOLE },
		{ "a::b(int) const", "a::b", FUNCTION_NAME_PLAIN },
		{ "a::b(int) const", "b", FUNCTION_NAME_COMPONENT },
		{ "a::b(int) const", "a", FUNCTION_NAME_DIFFERS },
		{ "unsigned int f<16>(short*)", "f<16>", FUNCTION_NAME_PLAIN },
		{ "unsigned int f<16>(short*)", "f<>", FUNCTION_NAME_PLAIN },
		{ "unsigned int f<16>(short*)", "f", FUNCTION_NAME_COMPONENT },
		{ "std::map<int, x<y> >::find(z<int> const&)", "find", FUNCTION_NAME_COMPONENT },
		{ "std::map<int, x<y> >::find(z<int> const&)", "std::map<>::find",
		  FUNCTION_NAME_PLAIN },
		{ "std::map<int, x<y> >::find(z<int> const&)", "std::map::find",
		  FUNCTION_NAME_COMPONENT },
		{ "double shop::kernel<double>(double, int)", "shop::kernel",
		  FUNCTION_NAME_COMPONENT },
		{ "double shop::kernel<double>(double, int)", "shop", FUNCTION_NAME_DIFFERS },
		{ "std::ostream& std::operator<<(std::ostream&)", "operator<<",
		  FUNCTION_NAME_COMPONENT },
		{ "p<int>::operator()(int) const", "p<int>::operator()", FUNCTION_NAME_PLAIN },
		{ "p::operator bool() const", "p::operator bool", FUNCTION_NAME_PLAIN },
		{ "(anonymous namespace)::f(int)", "f", FUNCTION_NAME_COMPONENT },
		{ "a::f(int)::{lambda(char)#1}::g() const", "a::f", FUNCTION_NAME_DIFFERS },
		{ "a::f(int)::{lambda(char)#1}::g() const", "g", FUNCTION_NAME_COMPONENT },
		{ "<alloc::vec::Vec<T> as Drop>::drop", "drop", FUNCTION_NAME_COMPONENT },
		{ "main.(*T).f", "main.(*T).f", FUNCTION_NAME_WHOLE },
		{ "a<b", "a", FUNCTION_NAME_COMPONENT },
		{ ")>", "x", FUNCTION_NAME_DIFFERS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		CHECK_INT(function_name_match(cases[i].name, "_raw", cases[i].text),
			  cases[i].match);
}

/* A name can be selected as it is shown. */
static void test_match_shown(void)
{
	const char *name = "std::map<" STRING ", double>::operator[](" STRING "&&)";

	CHECK_INT(function_name_match(name, "_Z1f", "std::map<std::string, double>::operator[]"),
		  FUNCTION_NAME_PLAIN);
	CHECK_INT(function_name_match(name, "_Z1f", "std::map<std::string…>::operator[]"),
		  FUNCTION_NAME_PLAIN);
	CHECK_INT(function_name_match("a::f<b, c>(int)", "_Z1f", "a::f<…>"), FUNCTION_NAME_PLAIN);
}

int main(void)
{
	setlocale(LC_ALL, "C.UTF-8");
	RUN(test_people);
	RUN(test_not_mangled);
	RUN(test_scripts);
	RUN(test_fit);
	RUN(test_apart);
	RUN(test_hostile);
	RUN(test_match);
	RUN(test_match_shown);
	return test_end();
}
