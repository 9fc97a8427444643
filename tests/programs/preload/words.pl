# Hashes of arrays and strings, made and dropped so many times; one line that depends on them.
use strict;
my (%kept, $sum);
for my $round (1 .. $ARGV[0]) {
    $kept{ ($_ * 7919 + $round) % 50000 } = [$_, "x$_" x ($_ % 5), { round => $round }] for 0 .. 20000;
    delete @kept{ grep { $_ % 7 == $round % 7 } keys %kept } if $round % 3 == 0;
    $sum = (($sum // 0) * 31 + $kept{$_}[0] + length($kept{$_}[1]) + $kept{$_}[2]{round}) % 1000000007
        for sort { $a <=> $b } keys %kept;
}
print "$sum\n";
