# SPDX-License-Identifier: Apache-2.0
# What the row perl runs, some times over, on C source: words, hashes, regular expressions, sorting,
# formats, checksums. reports.pl ROUNDS FILE...
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);

my $rounds = shift @ARGV;
my @lines = <>;

sub words {
  my %count;
  for (@lines) { $count{$_}++ for /[A-Za-z_]\w*/g; }
  my @most = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
  return map { sprintf '%-24s %6d', $_, $count{$_} } @most;
}

sub functions {
  my ($name, %calls);
  for (@lines) {
    $name = $1 if /^(?:static\s+|LUA_API\s+)?\w[\w\s*]*?\b(\w+)\s*\([^;]*$/;
    next unless defined $name;
    $calls{$name}{$1} = 1 while /\b(lua\w*)\s*\(/g;
  }
  return map { "$_: " . join ' ', sort keys %{$calls{$_}} } sort keys %calls;
}

sub turned {
  my $text = join '', @lines;
  $text =~ s{/\*.*?\*/}{}gs;
  $text =~ s/\b([a-z]+)_([a-z]+)\b/"$1" . ucfirst $2/ge;
  $text =~ tr/a-zA-Z/n-za-mN-ZA-M/;
  return join "\n", map { scalar reverse } split /\n/, $text;
}

for my $round (1 .. $rounds) {
  print join(' ', $round, map { substr sha256_hex(join "\n", $_->()), 0, 16 } \&words, \&functions,
             \&turned), "\n";
}
