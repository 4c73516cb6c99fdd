# SPDX-License-Identifier: BSD-3-Clause
#
# What a test leaves in the machine, for scripts/run_tests: processes of its session or with its mark
# in their environment, files in its $TMPDIR, and files in folders that are everybody's.

package TestTraces;

use strict;
use warnings;

use Exporter qw(import);
use File::Find ();
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(processes_end shared_files shared_left strays_end tmpdir_left);

my $grace  = 5;    # seconds from SIGTERM to SIGKILL
my $settle = 3;    # seconds in which the children of an ended program may end too

# --- processes: the session may not be known, the mark is the value of ANGARA_TEST_MARK -----------

# The living ones, wherever they went.
sub processes_of
{
    my ($session, $mark) = @_;
    my @found;
    opendir(my $proc, '/proc') or return;
    for my $pid (grep { /^\d+$/ && $_ != $$ } readdir $proc) {
        open(my $stat, '<', "/proc/$pid/stat") or next;
        my $line = <$stat> // next;
        my ($command, $rest) = $line =~ /^\d+ \((.*)\) (.*)/s or next;
        my ($state, undef, undef, $its_session) = split ' ', $rest;
        next if $state =~ /[ZX]/;
        my $ours = defined $session && $its_session == $session;
        if (!$ours && open(my $environ, '<', "/proc/$pid/environ")) {
            local $/;
            # A mark within it is that of a test which runs tests.
            $ours = ("\0" . (<$environ> // '')) =~ m{\0ANGARA_TEST_MARK=\Q$mark\E[\0/]};
        }
        push @found, { pid => $pid, command => $command } if $ours;
    }
    return @found;
}

sub processes_kill
{
    my ($session, $mark) = @_;
    kill 'KILL', map { $_->{pid} } processes_of($session, $mark);
    return;
}

# Is that a child of this process that has not ended? It may not have its session yet.
sub is_child
{
    my ($pid) = @_;
    return defined $pid && waitpid($pid, WNOHANG) == 0;
}

sub processes_end
{
    my ($session, $mark) = @_;
    # The leader alone first: mpirun, told to end, ends its ranks and tidies up.
    if (is_child($session)) {
        kill 'TERM', $session;
    } else {
        kill 'TERM', grep { $_ == ($session // 0) } map { $_->{pid} } processes_of($session, $mark);
    }
    my $deadline = time + $grace;
    while (time < $deadline) {
        return unless is_child($session) || processes_of($session, $mark);
        sleep 0.05;
    }
    for (1 .. 20) {
        kill 'KILL', $session if is_child($session);
        processes_kill($session, $mark);
        return unless is_child($session) || processes_of($session, $mark);
        sleep 0.1;
    }
    return;
}

# Ends those that outlive their test, and returns their names. They get a moment: a rank may end
# after its mpirun.
sub strays_end
{
    my ($session, $mark) = @_;
    my @strays;
    my $deadline = time + $settle;
    while (@strays = processes_of($session, $mark)) {
        last if time >= $deadline;
        sleep 0.05;
    }
    return unless @strays;
    my @names = map { "process $_->{pid} ($_->{command})" } @strays;
    processes_kill($session, $mark);
    sleep 0.1;
    return @names;
}

# --- files ---------------------------------------------------------------------------------------

sub tmpdir_left
{
    my ($tmpdir) = @_;
    my @left;
    File::Find::find(
        {
            no_chdir => 1,
            wanted   => sub { push @left, '$TMPDIR' . substr($_, length $tmpdir) if $_ ne $tmpdir },
        },
        $tmpdir
    );
    return @left;
}

# Of /dev/shm and /tmp, only names that this stack and what is below it use are looked at.
sub shared_files
{
    my %files;
    for my $pattern ('/dev/shm/*', '/tmp/angara*', '/tmp/ucx*', '/tmp/ompi.*') {
        for my $path (glob $pattern) {
            next if $path =~ m{^/dev/shm/} && $path !~ m{/(sem\.)?(angara|ucx|vader|ompi|osc|sm_)};
            my @stat = lstat $path or next;
            $files{$path} = 1 if $stat[4] == $>;
        }
    }
    return \%files;
}

# Whether a living process uses the file: then it belongs to somebody else's job.
sub file_in_use
{
    my ($path) = @_;
    for my $proc (glob '/proc/[0-9]*') {
        if (open(my $maps, '<', "$proc/maps")) {
            local $/;
            return 1 if index(<$maps> // '', $path) >= 0;
        }
        for my $fd (glob "$proc/fd/*") {
            return 1 if (readlink($fd) // '') =~ m{^\Q$path\E(/|$)};
        }
    }
    return 0;
}

# What has come there and is nobody's.
sub shared_left
{
    my ($before) = @_;
    my @new = sort grep { !$before->{$_} } keys %{ shared_files() };
    return unless @new;
    # Another job may have been between making the file and mapping it.
    sleep 0.3;
    return grep { lstat $_ && !file_in_use($_) } @new;
}

1;
