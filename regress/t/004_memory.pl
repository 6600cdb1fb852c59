# The memory of a backend stays flat however often it trains and scores.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use PgTrain;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main');
small_table($node, 200);

# What a run may add after warming up.  A leak of 1 kB a call would add 800 kB below; the rest is what malloc and the
# caches of the server take or give back.
use constant GROWTH_KB => 700;

my $session = quiet_session($node);
# What LLVM takes once a query is expensive enough is the server's, too.
$session->query_safe('SET jit = off');
my $backend = $session->query_safe('SELECT pg_backend_pid()');

sub flat_ok
{
	my ($warm_up, $run, $what) = @_;

	$session->query_safe($warm_up);
	my $before = rss_kb($backend);
	$session->query_safe($run);
	my $after = rss_kb($backend);
	note("$what: $before kB before, $after kB after");
	cmp_ok($after - $before, '<', GROWTH_KB, "$what leave the backend's memory flat");
	return;
}

# One transaction a training, as a client would; dropping the model bounds the catalog.
$session->query_safe(
	q{CREATE PROCEDURE train_often(times int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. times LOOP
			PERFORM train_model('m', 'small', 'y', features => '{a,b}', task => 'classification', epochs => 1);
			IF i % 10 = 0 THEN
				PERFORM drop_model('m');
			END IF;
			COMMIT;
		END LOOP;
	END $$});
flat_ok('CALL train_often(200)', 'CALL train_often(800)', '1,000 trainings');
is_deeply([ engines() ], [], 'no engine is left');

$session->query_safe("SELECT train_model('m', 'small', 'y', features => '{a,b}', task => 'classification', epochs => 1)");
my $score = q{SELECT count(predict('m', s)), count(predict_class('m', ARRAY[s.a, s.b])), count((predict_proba('m', s))[1])
	FROM small s, generate_series(1, %d)};
flat_ok(sprintf($score, 170), sprintf($score, 1500), '1,000,000 predictions');

# One prediction a statement, models in turn, trained anew in between: the cache gives back what it dropped.
$session->query_safe(
	q{CREATE PROCEDURE score_often(times int) LANGUAGE plpgsql AS $$
	DECLARE
		n int := 0;
	BEGIN
		FOR i IN 1 .. times LOOP
			IF i % 100 = 0 THEN
				PERFORM train_model('m', 'small', 'y', features => '{a,b}', task => 'classification', epochs => 1);
				PERFORM drop_model('m@' || (SELECT max(version) - 1 FROM pgtrain.versions WHERE model = 'm'));
			END IF;
			PERFORM predict('m', ARRAY[i, 1]::real[]);
			COMMIT;
		END LOOP;
	END $$});
flat_ok('CALL score_often(2000)', 'CALL score_often(8000)', '10,000 statements that score, with 100 new versions');

$session->quit;
$node->stop;
done_testing();
