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
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);

our @EXPORT_OK = qw(processes_end shared_files shared_left strays_end tmpdir_left);

my $grace  = 5;    # seconds from SIGTERM to SIGKILL
my $settle = 3;    # seconds in which the children of an ended program may end too

sub now
{
    return clock_gettime(CLOCK_MONOTONIC);
}

# --- processes: the session may not be known, the mark is the value of ANGARA_TEST_MARK -----------

# One look at all processes: those that are the test's, and the numbers of those of which it can't be
# said, as they have ended, end, or start another program just now. $kill: each as soon as seen.
sub processes_look
{
    my ($session, $mark, $kill) = @_;
    my (@found, @unclear);
    opendir(my $proc, '/proc') or die "run_tests: /proc: $!\n";
    # The newest first, before it is gone.
    for my $pid (sort { $b <=> $a } grep { /^\d+$/ && $_ != $$ } readdir $proc) {
        my $line;
        if (open(my $stat, '<', "/proc/$pid/stat")) {
            $line = <$stat>;
        }
        my ($command, $rest) = ($line // '') =~ /^\d+ \((.*)\) (.*)/s;
        my ($state, $parent, undef, $its_session) = split ' ', $rest // 'X';
        if ($state =~ /[ZX]/) {
            push @unclear, $pid;
            next;
        }
        my $ours = defined $session && $its_session == $session;
        if (!$ours && open(my $environ, '<', "/proc/$pid/environ")) {
            local $/;
            my $text = <$environ> // '';
            push @unclear, $pid unless length $text;
            # A mark within it is that of a test which runs tests.
            $ours = "\0$text" =~ m{\0ANGARA_TEST_MARK=\Q$mark\E[\0/]};
        }
        next unless $ours;
        kill 'KILL', $pid if $kill;
        push @found, { pid => $pid, parent => $parent, command => $command };
    }
    return (\@found, \@unclear);
}

# The living ones, wherever they went. One that ended during a look may have started another that
# was not in the list yet: "none" takes a look in which no such thing happened, or ten.
sub processes_of
{
    my ($session, $mark, $kill) = @_;
    my (%known, $found, $unclear);
    for (1 .. 10) {
        ($found, $unclear) = processes_look($session, $mark, $kill);
        return @$found if @$found || !grep { !$known{$_} } @$unclear;
        %known = map { $_ => 1 } @$unclear;
    }
    return;
}

# Is that a child of this process that has not ended? It may not have its session yet.
sub is_child
{
    my ($pid) = @_;
    return defined $pid && waitpid($pid, WNOHANG) == 0;
}

sub processes_living
{
    my ($session, $mark, $kill) = @_;
    my @found = processes_of($session, $mark, $kill);
    if (is_child($session) && !grep { $_->{pid} == $session } @found) {
        kill 'KILL', $session if $kill;
        push @found, { pid => $session, parent => $$ };
    }
    return @found;
}

sub processes_kill
{
    my ($session, $mark) = @_;
    for (1 .. 200) {
        return unless processes_living($session, $mark, 1);
        sleep 0.01;
    }
    return;
}

sub processes_end
{
    my ($session, $mark) = @_;
    my %told;
    my $deadline = now() + $grace;
    while (my @living = processes_living($session, $mark)) {
        last if now() >= $deadline;
        # From the top, each once: mpirun, told to end, ends its ranks and tidies up.
        my %lives = map { $_->{pid} => 1 } @living;
        my @top   = map { $_->{pid} } grep { !$lives{ $_->{parent} } } @living;
        kill 'TERM', grep { !$told{$_}++ } @top;
        sleep 0.05;
    }
    processes_kill($session, $mark);
    return;
}

# Ends those that outlive their test, and returns their names. They get a moment: a rank may end
# after its mpirun.
sub strays_end
{
    my ($session, $mark) = @_;
    my @strays;
    my $deadline = now() + $settle;
    while (@strays = processes_of($session, $mark)) {
        last if now() >= $deadline;
        sleep 0.05;
    }
    return unless @strays;
    my @names = map { "process $_->{pid} ($_->{command})" } @strays;
    processes_kill($session, $mark);
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
