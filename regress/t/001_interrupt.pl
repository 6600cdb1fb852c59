# Cancel, timeouts, termination and shutdown end a training at once, while it loads and while it trains, and leave
# nothing behind.

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

# From the moment of the interruption until the session has its answer and the engine is gone.
sub interrupted_ok
{
	my ($session, $from, $message, $what) = @_;

	ok(!finish_session($session), "$what: the statement fails");
	my $answered = time - $from;
	wait_until('the engine to end', sub { !engines() });
	my $gone = time - $from;

	like($session->{stderr}, $message, "$what: it says why");
	cmp_ok($answered, '<', LIMIT, "$what: the session is free at once");
	cmp_ok($gone, '<', LIMIT, "$what: the engine is gone at once");
	return;
}

for my $phase ('loading', 'training')
{
	my $session = start_session($node, $statement{$phase}->('cancelled'));
	wait_for_phase($session, $phase);
	is(scalar engines($session->{backend}), 1, "$phase: there is one engine, the backend's child");
	my $from = time;
	$other->query_safe("SELECT pg_cancel_backend($session->{backend})");
	interrupted_ok($session, $from, qr/ERROR:  canceling statement due to user request/, "cancel while $phase");
	leftovers_ok($node, 'cancelled', "cancel while $phase");

	# Ctrl-C in psql.
	$session = start_session($node, $statement{$phase}->('cancelled'));
	wait_for_phase($session, $phase);
	$from = time;
	$session->{run}->signal('INT');
	interrupted_ok($session, $from, qr/ERROR:  canceling statement due to user request|^Cancel request sent/m, "Ctrl-C while $phase");
	leftovers_ok($node, 'cancelled', "Ctrl-C while $phase");

	my $timeout = 2;
	$session = start_session($node, [ "SET statement_timeout = '${timeout}s'", $statement{$phase}->('late') ]);
	wait_for_phase($session, $phase);
	my $started = $node->safe_psql('postgres',
		"SELECT extract(epoch FROM query_start) FROM pg_stat_activity WHERE pid = $session->{backend}");
	interrupted_ok($session, $started + $timeout, qr/ERROR:  canceling statement due to statement timeout/, "statement_timeout while $phase");
	leftovers_ok($node, 'late', "statement_timeout while $phase");

	$session = start_session($node, $statement{$phase}->('terminated'));
	wait_for_phase($session, $phase);
	$from = time;
	$other->query_safe("SELECT pg_terminate_backend($session->{backend})");
	interrupted_ok($session, $from, qr/FATAL:  terminating connection due to administrator command/, "pg_terminate_backend while $phase");
	leftovers_ok($node, 'terminated', "pg_terminate_backend while $phase");
}

# A savepoint survives: the session can go on in its transaction.
my $output = $node->safe_psql(
	'postgres', "
	BEGIN;
	CREATE TABLE kept (i int);
	SAVEPOINT before;
	DO \$\$
	BEGIN
		PERFORM set_config('statement_timeout', '0', true);
		PERFORM train_model('no_such_column', 'small', 'nothing');
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END \$\$;
	INSERT INTO kept VALUES (1);
	COMMIT;
	SELECT count(*) FROM kept;");
is($output, '1', 'an error inside a block leaves the transaction usable');
leftovers_ok($node, 'no_such_column', 'an error inside a block');

# An engine that hangs cannot hold the backend up.
my $session = start_session($node, long_training('hung'));
wait_for_phase($session, 'training');
my ($engine) = engines($session->{backend});
kill 'STOP', $engine;
my $from = time;
$other->query_safe("SELECT pg_cancel_backend($session->{backend})");
interrupted_ok($session, $from, qr/ERROR:  canceling statement due to user request/, 'cancel with an engine that hangs');
leftovers_ok($node, 'hung', 'cancel with an engine that hangs');

other_session_ok($other, 'after all that');
$other->quit;

for my $phase ('loading', 'training')
{
	$session = start_session($node, $statement{$phase}->('shut_down'));
	wait_for_phase($session, $phase);
	$from = time;
	$node->stop('fast');
	my $stopped = time - $from;
	finish_session($session);
	is_deeply([ engines() ], [], "fast shutdown while $phase: no engine is left");
	# The server's own shutdown checkpoint is inside this time.
	cmp_ok($stopped, '<', LIMIT + 1, "fast shutdown while $phase: it does not wait");
	$node->start;
	leftovers_ok($node, 'shut_down', "fast shutdown while $phase");
}

$node->stop;
done_testing();
