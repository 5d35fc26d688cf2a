# SPDX-License-Identifier: BSD-2-Clause-Patent
"""The programs with which unwinding without frame pointers is measured: Debian's own, which are
built without them.

Each entry has the command to run repeatedly, and the names of its processes.
"""

import os

import bench

PYTHON = """
import json, re, sqlite3, zlib, hashlib
def tree(n): return {"k%d" % i: (tree(n - 1) if n else i) for i in range(4)}
def deep(n): return n and deep(n - 1) or len(json.dumps(tree(3)))
class Number:
    def __init__(self, n): self.n = n
    def __lt__(self, other): return self.n < other.n
for _ in range(12):
    json.loads(json.dumps(tree(4)))
    sorted((Number(i * 7919 % 1000) for i in range(2000)))
    re.sub(r"w(\\d+)", lambda m: m.group(1), "w12 " * 400)
    deep(40)
    zlib.compress(json.dumps(tree(5)).encode())
    hashlib.sha256(b"x" * 200000).hexdigest()
    base = sqlite3.connect(":memory:")
    base.create_function("twice", 1, lambda x: 2 * x)
    base.execute("with recursive c(x) as (select 1 union all select x+1 from c limit 4000) select sum(twice(x)) from c").fetchall()
"""

NODE = """
const crypto = require('crypto'), zlib = require('zlib');
function tree(n) { return n ? [tree(n - 1), tree(n - 1), 'x' + n] : { n: Math.random() }; }
const until = Date.now() + 1500;
while (Date.now() < until) {
  const text = JSON.stringify(tree(10)); JSON.parse(text);
  [...Array(3000).keys()].map(String).sort((a, b) => a < b ? -1 : 1).join().replace(/1/g, 'y');
  for (let i = 0; i < 200; i++) crypto.createHash('sha256').update(text.slice(0, 1000)).digest('hex');
  zlib.gzipSync(text); new RegExp('(a|b)*c' + Math.random()).test(text);
}
zlib.gzip('x'.repeat(1e6), () => crypto.pbkdf2('a', 'b', 3000, 64, 'sha512', () => 0));
"""

PERL = r"""
for (1 .. 30) {
  my %h = map { $_ => $_ ** 2 } 1 .. 2000; join ",", sort { $h{$a} <=> $h{$b} } keys %h;
  my $s = "abc def 123 " x 500; $s =~ s/(\w+) (\d+)/$2 . lc($1)/ge; sprintf "%s %d", $s, length $s;
  sub fib { my $n = shift; $n < 2 ? $n : fib($n - 1) + fib($n - 2) } fib(16);
}
"""

SQL = """create table t(a integer primary key, b text, c real);
with recursive n(x) as (select 1 union all select x+1 from n limit 40000) insert into t select x, hex(randomblob(8)), x*1.5 from n;
create index i on t(b); select count(*), sum(c) from t where b like 'A%' group by substr(b, 1, 2) order by 2;
select count(*) from t x join t y on x.a = y.a + 1 where x.b > y.b; update t set c = c + 1 where a % 3 = 0;
delete from t where a % 5 = 0; vacuum; select max(b), min(b) from t;
"""


def big_source(n):
    functions = "".join(
        f"int f{i}(int *a, int n) {{ int s = {i}; for (int i = 0; i < n; i++) {{ a[i] = a[i] * {i} + s; s ^= a[i] >> ({i} % 7);"
        f" if (s % 3 == 0) printf(\"%d\\n\", s); switch (s & 7) {{ case 1: s += a[0]; break; case 2: s *= 3; break;"
        f" case 5: return s; default: s--; }} }} return s; }}\n" for i in range(n))
    return "int printf(const char *, ...);\n" + functions


def programs(work, folder):
    """Returns {name: (command, names of processes)} of the installed programs. Creates their files
    in `folder`."""
    source, script = work.file("source.c", bench.C_SOURCE), work.file("script.sql", SQL)
    big = work.file("big.c", big_source(300))
    python, perl, node = work.file("work.py", PYTHON), work.file("work.pl", PERL), work.file("work.js", NODE)
    found = {
        "python3.11": (["/usr/bin/python3.11", python], ["python3.11"]),
        "node": (["/usr/bin/node", node], ["node"]),
        "clang": (["/usr/bin/clang-14", "-O2", "-c", big, "-o", os.path.join(folder, "clang.o")], ["clang-14"]),
        "cc1": (["/usr/bin/gcc", "-O2", "-c", source, "-o", os.path.join(folder, "cc1.o")], ["gcc", "cc1", "as"]),
        "git": (["/usr/bin/git", "-C", "/usr/include", "grep", "--no-index", "-cE", "(a|e)+.*(n|t)+.*[xyz]+.*(q|w)"], ["git"]),
        "sqlite3": (["/bin/sh", "-c", f"exec /usr/bin/sqlite3 :memory: < {script}"], ["sqlite3"]),
        "perl": (["/usr/bin/perl", perl], ["perl"]),
    }
    return {name: entry for name, entry in found.items() if os.path.exists(entry[0][0])}
