# SPDX-License-Identifier: BSD-3-Clause
#
# What a test's output (TAP) and end say, for scripts/run_tests: of a test that ran, {tap}, {status}
# (undefined if it was ended), {timed_out} and {seconds} are read, to {passed}, {failures} and
# {skips} is added.

package TestTap;

use strict;
use warnings;

use Exporter qw(import);
use TAP::Parser;

our @EXPORT_OK = qw(status_text tap_judge);

# A framework that reports its groups one after another prints one plan for each: parse them apart.
# What was reported before the first is a part, too: one without a plan.
sub parts
{
    my ($tap) = @_;
    my $plans = () = $tap =~ /^1\.\.\d+/mg;
    return $tap if $plans <= 1;
    return grep { /^(?:1\.\.\d|(?:not )?ok\b|Bail out!)/m } split /^(?=1\.\.\d+)/m, $tap;
}

sub result_add
{
    my ($test, $result) = @_;
    my $text = join ' ', grep { length } $result->number, $result->description =~ s/^- //r;
    if ($result->has_skip) {    # "not ok", says cmocka
        push @{ $test->{skips} }, "$text: " . ($result->explanation || 'no reason given');
    } elsif (!$result->is_actual_ok) {    # though it be expected
        push @{ $test->{failures} }, $text;
    } else {
        $test->{passed}++;
    }
    return;
}

sub part_add
{
    my ($test, $part) = @_;
    # The parser takes an empty text for a missing one.
    my $parser = TAP::Parser->new({ tap => length $part ? $part : "\n" });
    my $bailed = 0;
    while (my $result = $parser->next) {
        if ($result->is_bailout) {
            $bailed = 1;
            push @{ $test->{failures} }, 'bailed out: ' . $result->explanation;
        } elsif ($result->is_test) {
            result_add($test, $result);
        }
    }
    if ($parser->skip_all) {
        push @{ $test->{skips} }, $parser->skip_all;
    } elsif (!$test->{timed_out} && !$bailed && $parser->parse_errors) {
        push @{ $test->{failures} },
            'TAP: ' . ($parser->parse_errors)[0] . status_text($test->{status});
    }
    return;
}

sub tap_judge
{
    my ($test) = @_;
    part_add($test, $_) for parts($test->{tap});
    if ($test->{timed_out}) {
        push @{ $test->{failures} }, "not ended after $test->{seconds} s";
    } elsif ($test->{status} && !@{ $test->{failures} }) {
        push @{ $test->{failures} }, 'all reported tests passed' . status_text($test->{status});
    }
    return;
}

# How a process ended, with a comma before; nothing if well.
sub status_text
{
    my ($status) = @_;
    my $signal = $status & 127;
    return
          $signal ? ", killed by signal $signal"
        : $status ? ', exit status ' . ($status >> 8)
        :           '';
}

1;
