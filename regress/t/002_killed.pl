# An engine that is killed fails one statement, with the signal named; no other session notices.  A backend that is
# killed takes its engine along.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use PgTrain;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = start_server('main');
small_table($node, 20_000);
my %statement = (loading => \&slow_loading, training => \&long_training);
my $other = $node->background_psql('postgres');
my $postmaster_start = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');

$other->query_safe('BEGIN');
$other->query_safe('CREATE TEMP TABLE mine (i int)');
for my $phase ('loading', 'training')
{
	for my $signal (9, 11)
	{
		# The second statement shows that the same session goes on.
		my $session = start_session($node, [ $statement{$phase}->('killed'), "SELECT 'still here'" ]);
		wait_for_phase($session, $phase);
		my ($engine) = engines($session->{backend});
		my $from = time;
		kill $signal, $engine;
		ok(finish_session($session), "signal $signal while $phase: the session lives on");
		cmp_ok(time - $from, '<', LIMIT, "signal $signal while $phase: the statement fails at once");
		like($session->{stdout}, qr/still here/, "signal $signal while $phase: the session answers");
		like($session->{stderr}, qr/ERROR:.*engine.*signal $signal\b/, "signal $signal while $phase: the error names the signal");
		leftovers_ok($node, 'killed', "signal $signal while $phase");
	}
}
$other->query_safe('INSERT INTO mine VALUES (1)');
is($other->query_safe('SELECT count(*) FROM mine'), '1', 'the open transaction of another session goes on');
$other->query_safe('COMMIT');
$other->quit;
is($node->safe_psql('postgres', "SELECT pg_postmaster_start_time() = '$postmaster_start'"),
	't', 'the server was not restarted');
unlike(slurp_file($node->logfile), qr/terminating any other active server processes|server process .* was terminated/,
	'no session was thrown out');

# PostgreSQL itself restarts all sessions when a backend is killed; the engine must not outlive its own.
for my $phase ('loading', 'training')
{
	my $session = start_session($node, $statement{$phase}->('orphan'));
	wait_for_phase($session, $phase);
	my $from = time;
	kill 'KILL', $session->{backend};
	wait_until('the engine to end', sub { !engines() });
	cmp_ok(time - $from, '<', LIMIT, "a backend killed while $phase: its engine is gone at once");
	finish_session($session);
	$node->poll_query_until('postgres', 'SELECT true');
	leftovers_ok($node, 'orphan', "a backend killed while $phase");
}

$node->stop;
done_testing();
