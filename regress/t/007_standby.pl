# A streaming replica scores, with the numbers of its primary, and follows when a new version is deployed there.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use PgTrain;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = start_server('primary', allows_streaming => 1);
small_table($primary, 1000);

my $train = "SELECT version FROM train_model('m', 'small', 'y', features => '{a,b}', task => 'classification', epochs => 2, seed => %d)";
my $score = "SELECT id, predict_class('m', s), predict_proba('m', s) FROM small s ORDER BY id";
$primary->safe_psql('postgres', sprintf($train, 1));

$primary->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'copy', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));

is($standby->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 't', 'it is a standby');
my $first = $primary->safe_psql('postgres', $score);
is($standby->safe_psql('postgres', $score), $first, 'a standby scores as its primary does');

# In one session: its cache must follow what is replayed.
my $session = $standby->background_psql('postgres');
is($session->query_safe($score), $first, 'so does a session that stays');
$primary->safe_psql('postgres', sprintf($train, 2));
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
my $second = $primary->safe_psql('postgres', $score);
isnt($second, $first, 'a new version answers otherwise');
is($session->query_safe($score), $second, 'a session on the standby follows');
$session->quit;

my ($rc, $out, $err) = $standby->psql('postgres', sprintf($train, 3));
isnt($rc, 0, 'a standby does not train');
like($err, qr/cannot execute train_model\(\) during recovery/, 'and says why');
is_deeply([ engines() ], [], 'without having started an engine that stays');

$standby->stop;
$primary->stop;
done_testing();
