# SPDX-License-Identifier: BSD-3-Clause
#
# The tests that there are, for scripts/run_tests: reads tests/list.d/*.list, and those in tests/list.d/long,
# and chooses among them.

package TestLists;

use strict;
use warnings;

use Exporter qw(import);
use File::Basename qw(basename);

our @EXPORT_OK = qw(lists_read tests_select);

# From fast to slow; but of those whose tests run at the same time, the longest come first. A layer not named
# here comes last.
my @layer_order = qw(style vm unit scripts install conformance uct gpu kmod emu mpi gpu_mpi faults bench);

sub layer_rank
{
    my ($layer) = @_;
    for my $i (0 .. $#layer_order) {
        return $i if $layer_order[$i] eq $layer;
    }
    return scalar @layer_order;
}

# All tests of the project: {layer}, {name}, {seconds}, {command}, {flavor}, {is_long}.
sub lists_read
{
    my ($root, $flavor) = @_;
    my (@tests, %seen);
    for my $path (sort glob("\Q$root\E/tests/list.d/{,long/}*.list")) {
        my $layer   = basename($path, '.list');
        my $is_long = $path =~ m{/long/[^/]+$};
        open(my $file, '<', $path) or die "run_tests: $path: $!\n";
        while (my $line = <$file>) {
            chomp $line;
            next if $line =~ /^\s*(#|$)/;
            my ($name, $seconds, $command) = $line =~ /^\s*(\S+)\s+(\d+)\s+(\S.*?)\s*$/
                or die "run_tests: $path:$.: not `name seconds command`: $line\n";
            die "run_tests: $path:$.: '$name' is there twice\n" if $seen{"$layer/$name"}++;
            push @tests, {
                layer   => $layer,
                name    => "$layer/$name",
                seconds => $seconds,
                flavor  => $command =~ s/^FLAVOR=(\w*)\s+// ? $1 : $flavor,
                command => $command,
                is_long => $is_long,
            };
        }
        close($file);
    }
    return sort { layer_rank($a->{layer}) <=> layer_rank($b->{layer}) } @tests;
}

# Those of some layers, or all, whose name is, or matches, one of some names. Without names: those of the long
# lists, or the others.
sub tests_select
{
    my ($layers, $names, $is_long, @tests) = @_;
    my %known = map { $_->{layer} => 1 } @tests;
    for my $layer (@$layers) {
        die "run_tests: there is no layer '$layer'\n" unless $known{$layer};
    }
    my %wanted = map { $_ => 1 } @$layers;
    @tests = grep { $wanted{ $_->{layer} } } @tests if @$layers;
    return grep { !$_->{is_long} == !$is_long } @tests unless @$names;

    my %chosen;
    for my $name (@$names) {
        my $pattern =
            join '', map { $_ eq '*' ? '.*' : $_ eq '?' ? '.' : quotemeta } split //, $name;
        my @found = grep { $_->{name} =~ m{^(?:[^/]+/)?$pattern$} } @tests;
        die "run_tests: there is no test '$name' (see --list)\n" unless @found;
        $chosen{ $_->{name} } = 1 for @found;
    }
    return grep { $chosen{ $_->{name} } } @tests;
}

1;
