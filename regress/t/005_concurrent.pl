# Sessions that train and score at the same time.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use PgTrain;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main');
small_table($node, 2000);

sub training
{
	my ($model, $seed) = @_;

	return "SELECT version FROM train_model('$model', 'small', 'y', features => '{a,b}', task => 'classification', "
	  . "epochs => 20, seed => $seed)";
}

# Both make a version: neither fails, neither is lost.
my @sessions = map { start_session($node, training('same', $_)) } 1 .. 4;
my @versions;
for my $session (@sessions)
{
	ok(finish_session($session), 'a training of the same name beside others succeeds') or diag $session->{stderr};
	push @versions, $session->{stdout} =~ /(\d+)/;
}
is_deeply([ sort @versions ], [ 1 .. 4 ], 'every one made a version of its own');
is($node->safe_psql('postgres', "SELECT count(DISTINCT seed) FROM pgtrain.versions WHERE model = 'same'"), '4', 'with its own weights');

# An uncommitted version is seen by its own transaction only; a commit is seen by sessions that have scored before.
my $proba = "SELECT predict_proba('same', ARRAY[0.5, 0.5]::real[])";
my $trainer = quiet_session($node);
my $scorer = quiet_session($node);
my $old = $scorer->query_safe($proba);
$trainer->query_safe('BEGIN');
$trainer->query_safe(training('same', 99));
my $new = $trainer->query_safe($proba);
isnt($new, $old, 'the transaction that trained scores with the new version');
is($scorer->query_safe($proba), $old, 'another session scores with the old one before the commit');
$trainer->query_safe('COMMIT');
is($scorer->query_safe($proba), $new, 'and with the new one after it');

# A rollback takes the version back, for the session itself too.
$trainer->query_safe('BEGIN');
$trainer->query_safe(training('same', 100));
isnt($trainer->query_safe($proba), $new, 'a version inside a transaction counts there');
$trainer->query_safe('ROLLBACK');
is($trainer->query_safe($proba), $new, 'and no longer after a rollback');

# Scoring while the name is trained over and over never fails.
my $busy = start_session($node, [ map { training('same', $_) } 1 .. 5 ]);
my $scored = 0;
until (!$busy->{run}->pumpable)
{
	$busy->{run}->pump_nb;
	$scorer->query_safe($proba);
	$scored++;
}
ok(finish_session($busy), "trained while another session scored $scored times") or diag $busy->{stderr};
cmp_ok($scored, '>', 5, 'scoring went on meanwhile');

# Dropped elsewhere: an error that says so, not an old answer.
$trainer->query_safe("SELECT drop_model('same')");
my ($rc, $out, $err) = $node->psql('postgres', $proba);
isnt($rc, 0, 'a dropped model cannot be scored with');
like($err, qr/model "same" does not exist/, 'and the error says so');
my ($lines, $failed) = $scorer->query($proba);
ok($failed || $lines eq '', 'not in a session that had it in its cache either');
$trainer->quit;
$scorer->quit;

$node->stop;
done_testing();
