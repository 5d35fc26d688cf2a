# SPDX-License-Identifier: BSD-2-Clause-Patent
# A file that perl_oracle.pl compiles again and again.
package OracleRequired;
BEGIN {
    my $n = 2;
    main::spin($n);
}
my $made = main::spin(3);
$made += main::spin(2);

sub value {
    my $n = $made;
    return main::spin($n > 0 ? 2 : 1);
}
1;
