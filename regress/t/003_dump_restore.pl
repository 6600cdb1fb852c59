# A dump carries the models: restored into another database they give the same numbers, and training goes on there.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use PgTrain;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main');
small_table($node, 2000);
$node->safe_psql('postgres', "SELECT setseed(0.5); CREATE TABLE picture AS
	SELECT i AS id, i % 3 AS label, decode(string_agg(lpad(to_hex((i * j * 37 + j) % 256), 2, '0'), ''), 'hex') AS pixels
	FROM generate_series(1, 300) i, generate_series(1, 64) j GROUP BY i");
$node->safe_psql('postgres', "SELECT train_model('class', 'small', 'y', features => '{a,b}', task => 'classification', epochs => 2)") for 1 .. 2;
$node->safe_psql('postgres', "SELECT train_model('value', 'small', 'a', features => '{b}', task => 'regression', epochs => 2)");
$node->safe_psql('postgres', q{SELECT train_model('picture', 'picture', 'label', features => '{pixels}', task => 'classification',
	input_shape => '{1,8,8}', epochs => 1, architecture => '[{"conv2d": {"out": 4, "kernel": 3}}, {"batchnorm": {}}, "relu", "flatten"]')});

my @questions = (
	q{SELECT id, predict('class', s), predict('class@1', s), predict_class('class', s), predict_proba('class', s), predict('value', s) FROM small s ORDER BY id},
	q{SELECT id, predict_proba('picture', p) FROM picture p ORDER BY id},
	q{SELECT * FROM pgtrain.metrics ORDER BY 1, 2, 3, 4, 5},
	q{SELECT model, version, deployed, created, features, classes, architecture, options FROM pgtrain.versions ORDER BY 1, 2});
my @answers = map { $node->safe_psql('postgres', $_) } @questions;

my $dump = $node->basedir . '/dump';
for my $format ('plain', 'custom')
{
	my $database = "restored_$format";

	$node->command_ok([ 'pg_dump', '-F', $format, '-f', "$dump.$format", $node->connstr('postgres') ], "$format dump");
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->command_ok(
		$format eq 'plain'
		? [ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.$format", '-d', $node->connstr($database) ]
		: [ 'pg_restore', '--exit-on-error', '-d', $node->connstr($database), "$dump.$format" ],
		"$format restore");
	for my $i (0 .. $#questions)
	{
		is($node->safe_psql($database, $questions[$i]), $answers[$i], "$format: question $i has the same answer");
	}
	# The sequence came along: no duplicate key.
	is( $node->safe_psql($database, "SELECT version FROM train_model('class', 'small', 'y', features => '{a,b}', task => 'classification', epochs => 1)"),
		'3', "$format: training again makes the next version");
	is( $node->safe_psql($database, "SELECT version FROM train_model('new', 'small', 'y', features => '{a,b}', task => 'classification', epochs => 1)"),
		'1', "$format: a new model can be trained");
	is($node->safe_psql($database, 'SELECT count(*) = count(DISTINCT model_id) FROM pgtrain.model'), 't', "$format: models keep apart");
}

$node->stop;
done_testing();
