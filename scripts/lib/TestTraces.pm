# SPDX-License-Identifier: BSD-3-Clause
#
# What a test leaves in the machine, for scripts/run_tests: processes of its session or with its mark
# in their environment, files in its $TMPDIR, and files in folders that are everybody's.

package TestTraces;

use strict;
use warnings;

use Errno ();    # for %!
use Exporter qw(import);
use File::Find ();
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);

our @EXPORT_OK = qw(child_ended processes_end shared_files shared_left strays_end tmpdir_left);

my $grace  = 5;    # seconds from SIGTERM to SIGKILL
my $settle = 3;    # seconds in which the children of an ended program may end too

sub now
{
    return clock_gettime(CLOCK_MONOTONIC);
}

# --- processes: the session may not be known, the mark is the value of ANGARA_TEST_MARK -----------

# What /proc says of a process; nothing, if it is gone.
sub process_stat
{
    my ($pid) = @_;
    open(my $file, '<', "/proc/$pid/stat") or return;
    my ($command, $rest) = (<$file> // '') =~ /^\d+ \((.*)\) (.*)/s or return;
    my @fields = split ' ', $rest;
    my ($state, $parent, $session, $threads) = @fields[0, 1, 3, 17];
    # The first thread may have ended before others.
    my $ended = $state =~ /[ZX]/ && $threads <= 1;
    return {
        pid     => $pid,
        parent  => $parent,
        session => $session,
        command => $command,
        ended   => $ended
    };
}

# Its environment; empty where it has none, as a kernel's thread, a process that has ended, or one
# that starts another program just now.
sub process_environment
{
    my ($pid) = @_;
    local $/;
    for my $path ("/proc/$pid/environ", glob "/proc/$pid/task/*/environ") {
        if (open(my $file, '<', $path)) {
            my $text = <$file> // '';
            return $text if $text ne '';
        } elsif ($!{EACCES} || $!{EPERM}) {
            return 'of another user';
        }
    }
    return '';
}

# One look at all processes: those that are the test's; and those of which it can't be said, as they
# have ended or have no environment. $kill: each as soon as seen.
sub processes_look
{
    my ($session, $mark, $kill) = @_;
    my (@found, @unclear);
    opendir(my $proc, '/proc') or die "run_tests: /proc: $!\n";
    # The newest first, before it is gone.
    for my $pid (sort { $b <=> $a } grep { /^\d+$/ && $_ != $$ } readdir $proc) {
        my $process = process_stat($pid);
        if (!$process || $process->{ended}) {
            push @unclear, $process ? "$pid ended" : "$pid gone";
            next;
        }
        if (!defined $session || $process->{session} != $session) {
            my $environment = process_environment($pid);
            push @unclear, "$pid bare" if $environment eq '';
            # A mark within it is that of a test which runs tests.
            next unless "\0$environment" =~ m{\0ANGARA_TEST_MARK=\Q$mark\E[\0/]};
        }
        kill 'KILL', $pid if $kill;
        push @found, $process;
    }
    return (\@found, \@unclear);
}

# The living ones, wherever they went, and whether those are all. One that ended during a look may
# have started another that was not in the list yet: "none" is certain where two looks, one after the
# other, show the same of all that was unclear.
sub processes_search
{
    my ($session, $mark, $kill) = @_;
    my %known;
    for (1 .. 10) {
        my ($found, $unclear) = processes_look($session, $mark, $kill);
        return ($found, 1) if @$found || !grep { !$known{$_} } @$unclear;
        %known = map { $_ => 1 } @$unclear;
    }
    return ([], 0);
}

# Has that child ended? It isn't waited for: as long as nobody does, its number is its session's.
sub child_ended
{
    my ($pid) = @_;
    my $process = process_stat($pid);
    return !$process || $process->{ended};
}

# With the leader of the session, which may not have it yet, if it is this process' child.
sub processes_living
{
    my ($session, $mark, $kill) = @_;
    my ($found, $certain) = processes_search($session, $mark, $kill);
    my $leader = defined $session ? process_stat($session) : undef;
    if (   $leader
        && !$leader->{ended}
        && $leader->{parent} == $$
        && !grep { $_->{pid} == $session } @$found)
    {
        kill 'KILL', $session if $kill;
        push @$found, $leader;
    }
    return ($found, $certain);
}

sub processes_kill
{
    my ($session, $mark) = @_;
    for (1 .. 200) {
        my ($living, $certain) = processes_living($session, $mark, 1);
        return if $certain && !@$living;
        sleep 0.01;
    }
    return;
}

sub processes_end
{
    my ($session, $mark) = @_;
    my %told;
    my $deadline = now() + $grace;
    while (now() < $deadline) {
        my ($living, $certain) = processes_living($session, $mark);
        return if $certain && !@$living;
        # From the top, each once: mpirun, told to end, ends its ranks and tidies up.
        my %lives = map { $_->{pid} => 1 } @$living;
        my @top   = grep { !$told{$_}++ } map { $_->{pid} } grep { !$lives{ $_->{parent} } } @$living;
        kill 'TERM', @top;
        kill 'CONT', @top;
        sleep 0.05;
    }
    processes_kill($session, $mark);
    return;
}

# Ends those that outlive their test, and returns their names. They get a moment: a rank may end
# after its mpirun. Of processes that start each other, a look may see none: only "certain" ends this.
sub strays_end
{
    my ($session, $mark) = @_;
    my $deadline = now() + $settle;
    my ($strays, $certain);
    do {
        ($strays, $certain) = processes_search($session, $mark);
        return if $certain && !@$strays;
        sleep 0.05 if now() < $deadline;
    } while (now() < $deadline || (!@$strays && now() < $deadline + $grace));
    processes_kill($session, $mark);
    return map { "process $_->{pid} ($_->{command})" } @$strays if @$strays;
    return 'processes that start each other faster than they can be seen';
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
