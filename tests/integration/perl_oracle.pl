# SPDX-License-Identifier: BSD-2-Clause-Patent
# A deterministic Perl program whose chains of calls are all known.
#
#     perl_oracle.pl record FILE            write each chain that can exist, by the debugger's hook
#     perl_oracle.pl run SECONDS [THREADS]  do the same work for this CPU time
#
# A chain is innermost first: "NAME@1:LINE|…". Its outermost function is once(). Each function has a
# statement before it calls another function, so that its own chain is recorded. Blocks of sort and
# regex are not subs, so their lines are marked with a comment; the caller's line is that of its last
# statement outside of the block. Perl may give a statement with sort the line at which its block
# begins, so such a block also sets $sorts.
use strict;
use warnings;
use List::Util qw(first reduce);

our $sorts = 0;
my (%chains, %kind, %statement);

BEGIN {
    no warnings 'once';
    if (@ARGV && $ARGV[0] eq 'record') {
        open my $self, '<', __FILE__ or die;
        while (<$self>) {
            $kind{$.} = $1 if /# in (sort|regex)$/;
        }
        *DB::DB = \&record_chain;
        $^P = 2;    # code that is compiled from here on calls DB::DB before each statement
        $DB::single = 1;
    }
}

# Each list that caller() returns begins with the package, file and line of the call.
sub record_chain {
    my @frames;
    my $line = (caller(0))[2];
    my $file = (caller(0))[1];
    for (my $i = 1;; $i++) {
        my ($package, $outer_file, $outer_line, $name, undef, undef, $text, $is_require) = caller($i);
        last if !defined $name;
        my $block = $file eq __FILE__ && $kind{$line};
        if ($block && ($sorts || $block eq 'regex')) {
            push @frames, "$block block (perl_oracle.pl)\@1:$line";
            $line = $statement{$name};
        } elsif ($i == 1) {
            $statement{$name} = $line;
        }
        if ($name eq '(eval)') {
            next if !defined $text;
            if ($is_require) {
                push @frames, "require $text\@1:$line";
            } else {
                push @frames, "eval (perl_oracle.pl)\@1:$outer_line";
            }
        } else {
            my ($base) = $file =~ m{([^/]*)$};
            $name .= $file =~ /eval/ ? ' (eval)' : " ($base)" if $name =~ /::(?:__ANON__|BEGIN)$/;
            push @frames, "$name\@1:$line";
        }
        ($file, $line) = ($outer_file, $outer_line);
        last if $name eq 'main::once';
    }
    $chains{ join '|', @frames } = 1 if @frames && $frames[-1] =~ /^main::once@/;
}

sub spin {
    my ($n) = @_;
    my $total = 0;
    for my $i (1 .. $n) {
        $total += $i & 7;
    }
    return $total;
}

sub recursion {
    my ($n) = @_;
    my $m = $n - 1;
    return $n == 0 ? spin(30) : recursion($m) + 1;
}

sub even {
    my ($n) = @_;
    my $m = $n - 1;
    return $n == 0 ? spin(3) : odd($m);
}

sub odd {
    my ($n) = @_;
    my $m = $n - 1;
    return $n == 0 ? 0 : even($m);
}

sub by_number {
    spin(2);
    return $a <=> $b;
}

sub by_prototype($$) {
    my ($x, $y) = @_;
    spin(2);
    return $x <=> $y;
}

sub compared {
    my ($x, $y) = @_;
    spin(2);
    return $x <=> $y;
}

sub sorts {
    my @list = map { $_ * 7 % 13 } 1 .. 12;
    my @sorted = sort by_number @list;
    @sorted = reverse sort by_prototype @list;
    @sorted = sort { $b <=> $a } @list;
    @sorted = sort {
        local $sorts = 1;    # in sort
        spin(2);    # in sort
        compared($a, $b);    # in sort
    } @list;
    @sorted = sort {
        local $sorts = 1;    # in sort
        my $x = spin(2);    # in sort
        compared($a, $b) || $x;    # in sort
    } @list;
    my $comparator = sub {
        my $m = spin(1);
        return $a <=> $b;
    };
    @sorted = sort $comparator @list;
    return scalar @sorted;
}

sub callbacks {
    my $n = 3;
    my $found = first {
        my $x = $_;
        spin($n) && $x > 4;
    }
    1 .. 6;
    $found = reduce {
        my ($x, $y) = ($a, $b);
        spin(2);
        $x + $y;
    }
    1 .. 6;
    my @nested = sort {
        local $sorts = 1;    # in sort
        my ($x, $y) = ($a, $b);    # in sort
        found($x) <=> found($y);    # in sort
    } 3, 1, 2;
    my @squares = grep { $_ > spin(1) } map { spin(2) * $_ } 1 .. 5;
    my $flag = first { my $z = $_; Number->new(spin(1)) } 1 .. 3;
    return $found + @squares;
}

sub found {
    my ($x) = @_;
    return first { my $z = $_; spin(1); $z } $x;
}

sub regexes {
    my $count = 0;
    "abcabc" =~ /
        (?{ $count += spin(2) })b(?{ spin(3) })c   # in regex
    /x;
    my $text = "a b c d";
    $text =~ s/(\w)/replacement($1)/ge;
    return $count + length $text;
}

sub replacement {
    my ($letter) = @_;
    spin(3);
    return uc $letter;
}

sub evals {
    my $n = 5;
    my $got = eval { spin($n); thrown($n); 1 };
    $got = eval { eval { thrown($n) }; spin(2); die { code => spin(1) } };
    $got = eval 'spin($n); compared(1, 2)';
    $got = eval 'die spin(2)';
    $got = eval 'sub { my $m = $_[0]; spin($m) }';
    $got->(4);
    return $n;
}

sub thrown {
    my ($n) = @_;
    spin(2);
    die "thrown\n" if $n == 5;
    return $n;
}

sub requires {
    my $n = 1;
    delete $INC{'perl_oracle_required.pm'};
    require perl_oracle_required;
    return OracleRequired::value() + spin($n);
}

package Number;
use overload
    '+' => \&add,
    '""' => sub { my ($self) = @_; main::spin(2); "number $self->{value}" },
    'bool' => sub { my ($self) = @_; main::spin(2); $self->{value} },
    '<=>' => sub { my ($x, $y) = @_; main::spin(2); 0 };

sub new {
    my ($class, $value) = @_;
    main::spin(1);
    return bless { value => $value }, $class;
}

sub add {
    my ($self, $other) = @_;
    main::spin(2);
    return Number->new($self->{value});
}

package Tied;

sub TIESCALAR { my ($class) = @_; return bless [], $class }
sub FETCH { my ($self) = @_; main::spin(3); return Tied::inner($self) }
sub STORE { my ($self, $value) = @_; main::spin(3); $self->[0] = $value }
sub inner {
    my ($self) = @_;
    my @list = sort {
        local $main::sorts = 1;    # in sort
        my $m = main::spin(1);    # in sort
        $a <=> $b;    # in sort
    } 2, 1;
    return $list[0];
}
sub TIEHASH { my ($class) = @_; return bless {}, $class }
sub EXISTS { my ($self, $key) = @_; return eval { main::spin(2); 1 } }

package Animal;
our $AUTOLOAD;

sub new {
    my ($class, %with) = @_;
    my $self = bless {%with}, $class;
    $self->init(2);
    return $self;
}

sub init { my ($self, $n) = @_; return main::spin($n) }

sub AUTOLOAD {
    my ($self, @arguments) = @_;
    my $name = $AUTOLOAD;
    main::spin(3);
    return $name;
}

sub DESTROY {
    my ($self) = @_;
    main::spin(2);
    eval { main::spin(1); die "in vain\n" };
    main::spin(1);
}

package Dog;
our @ISA = ('Animal');

sub init { my ($self, $n) = @_; main::spin(2); return $self->SUPER::init($n) }
sub speak { my ($self) = @_; main::spin(2); goto &Dog::bark }
sub bark { my ($self) = @_; return main::spin(4) }

package main;

sub methods {
    my $dog = Dog->new(name => "Rex");
    $dog->speak;
    $dog->sits_down(1, 2);
    my $method = "bark";
    $dog->$method;
    my $other = Dog->new;
    undef $other;
    return Animal->can('new') ? spin(2) : 0;
}

sub magic {
    my $n = 2;
    tie my $scalar, 'Tied';
    tie my %hash, 'Tied';
    $scalar = $n + $scalar;
    my $exists = exists $hash{key};
    my $sum = Number->new(3) + Number->new(4);
    my $text = "$sum";
    my @list = sort { $a <=> $b } Number->new(1), Number->new(2);
    return $sum ? length $text : 0;
}

sub handlers {
    my $n = 2;
    local $SIG{USR1} = sub { my ($name) = @_; spin(5); eval { spin($n) } };
    local $SIG{__WARN__} = sub { my ($text) = @_; spin($n) };
    local $SIG{__DIE__} = sub { my ($text) = @_; spin($n) };
    kill USR1 => $$ if !$INC{'threads.pm'};
    spin(1);
    warn "a warning\n";
    eval { die "an error\n" };
    return $n;
}

sub closures {
    my $n = 2;
    my @subs = map { my $m = $_; sub { my $x = $m; spin($x + $n) } } 1 .. 4;
    $_->() for @subs;
    my $again;
    $again = sub { my ($k) = @_; $k > 0 ? $again->($k - 1) : spin(3) };
    my $got = $again->(4);
    undef $again;
    return $got;
}

sub once {
    my $total = recursion(12);
    $total += even(7) + odd(6);
    $total += sorts();
    $total += callbacks();
    $total += regexes();
    $total += evals();
    $total += requires();
    $total += methods();
    $total += magic();
    $total += handlers();
    $total += closures();
    return $total;
}

my ($action, $argument, $threads) = @ARGV;
if ($action eq 'record') {
    once() for 1 .. 5;
    open my $file, '>', $argument or die "$argument: $!";
    print $file '{"generators": [], "chains": [', join(",\n", map { "\"$_\"" } sort keys %chains), "]}\n";
    close $file or die;
    exit;
}
$SIG{__WARN__} = sub { };
my $work = sub { once() while times < $argument };
if ($threads) {
    require threads;
    $_->join for map { threads->create($work) } 1 .. $threads;
} else {
    $work->();
}
