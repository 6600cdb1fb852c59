# Training reads rows as the caller; models belong to their owner.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use PgTrain;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = start_server('main');
small_table($node, 500);
$node->safe_psql(
	'postgres', "
	CREATE ROLE alice LOGIN;
	CREATE ROLE bob LOGIN;
	CREATE ROLE carol LOGIN;
	GRANT CREATE ON SCHEMA public TO alice;
	CREATE TABLE secret AS SELECT * FROM small;
	CREATE TABLE partly AS SELECT * FROM small;
	GRANT SELECT (id, a, y) ON partly TO alice;
	CREATE TABLE walled AS SELECT * FROM small;
	ALTER TABLE walled ENABLE ROW LEVEL SECURITY;
	CREATE POLICY first_rows ON walled USING (id <= 300);
	GRANT SELECT ON small, walled TO alice;
	GRANT SELECT ON small TO bob, carol;");

# (rc, stdout, stderr) of a statement run as a role.
sub as
{
	my ($role, $sql) = @_;

	return $node->psql('postgres', $sql, extra_params => [ '-U', $role ], on_error_stop => 1);
}

sub works
{
	my ($role, $sql, $what, $expected) = @_;
	my ($rc, $out, $err) = as($role, $sql);

	is($rc, 0, $what) or diag $err;
	is($out, $expected, "$what: the answer") if defined $expected;
	return;
}

sub fails
{
	my ($role, $sql, $message, $what) = @_;
	my ($rc, $out, $err) = as($role, $sql);

	isnt($rc, 0, $what);
	like($err, $message, "$what: the error");
	return;
}

sub train
{
	my ($model, $source, $features) = @_;

	return "SELECT rows_used FROM train_model('$model', '$source', 'y', features => '$features', task => 'classification', epochs => 1)";
}

fails('alice', train('m', 'secret', '{a,b}'), qr/permission denied for table secret/, 'no training on a table without SELECT');
fails('alice', train('m', 'SELECT * FROM secret', '{a,b}'), qr/permission denied for table secret/, 'nor through a SELECT');
works('alice', train('m', 'SELECT a, y FROM partly', '{a}'), 'columns that are granted can be trained on', 500);
fails('alice', train('m', 'SELECT a, b, y FROM partly', '{a,b}'), qr/permission denied for table partly/, 'others cannot');
works('alice', train('walled', 'walled', '{a,b}'), 'row security holds while training', 300);
is_deeply([ engines() ], [], 'no engine is left');

works('alice', train('own', 'small', '{a,b}'), 'alice trains', 500);
works('alice', "SELECT count(predict('own', s)) FROM small s", 'and scores', 500);
my $score = "SELECT count(predict('own', s)) FROM small s";
fails('bob', $score, qr/ERROR:/, 'another role cannot score with it');
fails('bob', train('own', 'small', '{a,b}'), qr/ERROR:/, 'nor train it anew');
fails('bob', "SELECT drop_model('own')", qr/ERROR:/, 'nor drop it');
fails('bob', "SELECT grant_model('own', 'bob')", qr/ERROR:/, 'nor grant it');
works('bob', "SELECT count(*) FROM pgtrain.models", 'nor see it', 0);
fails('bob', 'SELECT * FROM pgtrain.weight', qr/permission denied/, 'the weights are closed');
for my $table ('model', 'model_version', 'weight', 'epoch_metric', 'model_grant')
{
	fails('bob', "DELETE FROM pgtrain.$table", qr/permission denied/, "nobody writes pgtrain.$table");
}

works('alice', "SELECT grant_model('own', 'bob')", 'alice grants it to bob');
works('bob', $score, 'then bob can score', 500);
fails('bob', "SELECT drop_model('own')", qr/ERROR:/, 'but not drop it');
fails('carol', $score, qr/ERROR:/, 'and carol cannot');
works('alice', "SELECT revoke_model('own', 'bob')", 'alice takes it back');
fails('bob', $score, qr/ERROR:/, 'then bob cannot');
works('alice', "SELECT grant_model('own', 'public')", 'alice grants it to everybody');
works('carol', $score, 'then carol can', 500);

# A source is data, not a way to run statements as somebody else.
fails('alice', train('m', 'DELETE FROM small', '{a,b}'), qr/ERROR:/, 'a source that is no SELECT is refused');
works('postgres', 'SELECT count(*) FROM small', 'and nothing was deleted', 500);

$node->stop;
done_testing();
