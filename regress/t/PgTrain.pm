# PgTrain.pm - what the TAP tests of pg_train share: servers with the extension, sessions in the background, and a
# look at processes through /proc.

package PgTrain;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(start_server small_table long_training slow_loading quiet_session start_session finish_session wait_for_phase wait_until engines
  rss_kb leftovers_ok other_session_ok seconds LIMIT);

# Cancel and the like must end a training within this time.  One second is what pg_train promises; the rest is for
# psql to end and for a test machine that has other work.
use constant PROMISE => 1.0;
use constant SLACK => 1.0;
use constant LIMIT => PROMISE + SLACK;

my $engine_program;

# A running server whose database postgres has the extension.
sub start_server
{
	my ($name, %init) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%init);
	$node->append_conf('postgresql.conf', "fsync = off\nrestart_after_crash = on\nmax_wal_size = '1GB'\n");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION pg_train');
	return $node;
}

# Table "small": two numbers and a class that follows from them.
sub small_table
{
	my ($node, $rows) = @_;

	$node->safe_psql(
		'postgres', "
		CREATE TABLE small AS
			SELECT i AS id, sin(i)::real AS a, cos(2 * i)::real AS b, (sin(i) > 0.3)::int AS y
			FROM generate_series(1, $rows) i");
	return;
}

# A statement that trains for hours, on table small of 20,000 rows, and one that loads for minutes.
sub long_training
{
	my ($model) = @_;

	return "SELECT * FROM train_model('$model', 'small', 'y', features => '{a,b}', task => 'classification', "
	  . "epochs => 1000000, batch_size => 32)";
}

sub slow_loading
{
	my ($model) = @_;

	return "SELECT * FROM train_model('$model', 'SELECT a, b, y FROM small, pg_sleep(0.01 + 0 * a)', 'y', "
	  . "task => 'classification', epochs => 1)";
}

# psql in the background, whose query_safe takes anything that a statement reports for a failure: without reports.
sub quiet_session
{
	my ($node) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_safe("SET client_min_messages = 'warning'");
	$session->query_safe('SET pg_train.report_epochs = off');
	return $session;
}

# Start psql on a statement and return at once.  {backend} is the pid of its server process.
sub start_session
{
	my ($node, $sql, %options) = @_;
	my $name = 'session_' . int(rand(1e9));
	my $session = { node => $node, stdout => '', stderr => '', stdin => '' };
	my @command = (
		$node->installed_command('psql'), '-X', '-A', '-t', '-q', '-d',
		$node->connstr($options{dbname} // 'postgres') . " application_name=$name");

	push @command, ('-U', $options{role}) if $options{role};
	push @command, map { ('-c', $_) } ref $sql ? @$sql : ($sql);
	$session->{run} = IPC::Run::start(\@command, '<', \$session->{stdin}, '>', \$session->{stdout}, '2>', \$session->{stderr});
	wait_until(
		'the session to appear',
		sub {
			$session->{run}->pump_nb if $session->{run}->pumpable;
			$session->{backend} =
			  $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE application_name = '$name'");
			return $session->{backend} ne '' || !$session->{run}->pumpable;
		});
	return $session;
}

# Wait for the session's end: true when psql was content.  {stdout} and {stderr} hold what it said.
sub finish_session
{
	my ($session, $limit) = @_;
	my $run = $session->{run};

	$limit //= $PostgreSQL::Test::Utils::timeout_default;
	wait_until('the session to end', sub { $run->pump_nb if $run->pumpable; return !$run->pumpable; }, $limit);
	$run->finish;
	return $run->result(0) == 0;
}

# Wait until the session's training has come to a phase: "loading" or "training".
sub wait_for_phase
{
	my ($session, $phase) = @_;

	wait_until(
		"the session to be $phase",
		sub {
			$session->{run}->pump_nb if $session->{run}->pumpable;
			die "the session ended early: $session->{stderr}" if !$session->{run}->pumpable;
			return $session->{stderr} =~ /epoch 2/ if $phase eq 'training';
			# The loader asks the server for rows once the engine is there, and sleeps in between.
			return engines($session->{backend})
			  && $session->{node}->safe_psql('postgres',
				"SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $session->{backend}") eq 't';
		});
	return;
}

# Poll often: what is measured here is in tenths of a second.
sub wait_until
{
	my ($what, $condition, $limit) = @_;
	my $end = time + ($limit // $PostgreSQL::Test::Utils::timeout_default);

	until ($condition->())
	{
		die "waited too long for $what" if time > $end;
		sleep 0.02;
	}
	return;
}

# Process ids of engines: all that run from this installation (another server may have its own), or the children of a
# backend.
sub engines
{
	my ($backend) = @_;
	my @found;

	if (!defined $engine_program)
	{
		chomp(my $folder = `pg_config --pkglibdir`);
		$engine_program = "$folder/pg_train_engine";
	}
	for my $folder (glob '/proc/[0-9]*')
	{
		my $exe = readlink "$folder/exe" or next;
		next if $exe ne $engine_program && $exe ne "$engine_program (deleted)";
		if (defined $backend)
		{
			open my $stat, '<', "$folder/stat" or next;
			my $line = <$stat> // next;
			# pid (name) state parent ...
			next if $line !~ /^\d+ \(.*\) (\S) (\d+) / || $2 != $backend || $1 eq 'Z';
		}
		push @found, $folder =~ m{(\d+)$};
	}
	return @found;
}

# Resident memory of a process that is its own: not what it shares with others, such as shared buffers.
sub rss_kb
{
	my ($pid) = @_;
	my $kb = 0;

	open my $status, '<', "/proc/$pid/status" or die "no process $pid: $!";
	while (<$status>)
	{
		$kb += $1 if /^RssAnon:\s+(\d+) kB/;
	}
	close $status;
	return $kb;
}

# Nothing of a failed training is left: process, shared segment, temporary file, model.
sub leftovers_ok
{
	my ($node, $model, $what) = @_;
	my @engines = engines();
	my @files = grep { -f } glob($node->data_dir . '/base/pgsql_tmp/* /dev/shm/*pg_train* /tmp/*pg_train_engine*');

	is_deeply(\@engines, [], "$what: no engine is left");
	is_deeply(\@files, [], "$what: no temporary file is left");
	is($node->safe_psql('postgres', "SELECT count(*) FROM pgtrain.model WHERE name = '$model'"), '0', "$what: no model is left");
	return;
}

# A session that was there all the time still is, and its transaction is whole.
sub other_session_ok
{
	my ($other, $what) = @_;

	is($other->query_safe("SELECT count(*) FROM pg_stat_activity WHERE pid = pg_backend_pid()"), '1', "$what: another session goes on");
	return;
}

sub seconds
{
	my ($code) = @_;
	my $start = time;

	$code->();
	return time - $start;
}

1;
