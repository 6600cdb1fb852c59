# Random queries that score rows: with pg_train.batch_scoring on they return the same rows in the same order, or end in
# the same error, as with it off.
#
#   BATCH_QUERIES=n   queries to try (300)
#   BATCH_SEED=n      of the first one (1)
#
# The networks here are so small that sums are rounded in the same order one at a time and in a batch; larger ones may
# differ in their last digits.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use FindBin;
use lib $FindBin::Bin;
use PgTrain;

my $queries = $ENV{BATCH_QUERIES} // 300;
my $seed = $ENV{BATCH_SEED} // 1;

sub one_of { return $_[ int(rand(@_)) ]; }
sub chance { return rand() < $_[0]; }

# What a query is about: aliases of its tables, and whether it has something that may end in an error.
my %from_table = (
	alone => ['one x', ['x']],
	parts => ['parts x', ['x']],
	join => ['one x JOIN two y ON x.k = y.k', [ 'x', 'y' ]],
	outer => ['one x LEFT JOIN two y ON x.id = y.id', [ 'x', 'y' ]]);
my $risky;

sub column
{
	my ($aliases, $type) = @_;

	return one_of(@$aliases) . '.' . one_of($type eq 'int' ? ('k', 'id') : ('a', 'b', 'd'));
}

sub row
{
	my ($aliases, $depth) = @_;

	return one_of(@$aliases) if chance(0.6);
	# a subquery's row, pulled up or not: columns by name, whatever they are made of
	my $a = number($aliases, $depth - 1);
	my $b = number($aliases, $depth - 1);
	return "(SELECT q FROM (SELECT ($a)::real AS a, ($b)::real AS b, 1 AS k) q)" if chance(0.1);
	return "(ROW(0, ($a)::real, ($b)::real, @{[ column($aliases, 'int') ]}, 'x', 0, 0, NULL, NULL)::scored)";
}

sub model
{
	my ($kind) = @_;

	if (chance(0.1))
	{
		$risky++;
		return "'risky'" if $kind ne 'class';
	}
	return 'NULL' if chance(0.02);
	return one_of("'line'", "'line'", "'line\@1'", "'side'") if $kind eq 'value';
	return one_of("'side'", "'three'", "'image'");
}

# A score as a number
sub score
{
	my ($aliases, $depth) = @_;
	my $choice = rand();

	return "predict(@{[ model('value') ]}, @{[ row($aliases, $depth) ]})" if $choice < 0.6;
	return "predict('line', ARRAY[@{[ column($aliases, 'real') ]}, @{[ column($aliases, 'real') ]}, @{[ column($aliases, 'int') ]}]::real[])"
	  if $choice < 0.75;
	return "length(predict_class(@{[ model('class') ]}, @{[ one_of(@$aliases) ]}))" if $choice < 0.9;
	return "(predict_proba(@{[ one_of(q('three'), q('side')) ]}, @{[ row($aliases, $depth) ]}))[@{[ one_of(1, 2) ]}]";
}

sub number
{
	my ($aliases, $depth) = @_;
	my $choice = rand();

	return one_of(column($aliases, 'real'), column($aliases, 'int'), int(rand(7)) - 2) if $depth <= 0 || $choice < 0.2;
	return score($aliases, $depth - 1) if $choice < 0.6;
	return "CASE WHEN @{[ condition($aliases, $depth - 1) ]} THEN @{[ number($aliases, $depth - 1) ]} "
	  . "WHEN @{[ condition($aliases, $depth - 1) ]} THEN @{[ number($aliases, $depth - 1) ]} ELSE @{[ number($aliases, $depth - 1) ]} END"
	  if $choice < 0.7;
	return "CASE @{[ column($aliases, 'int') ]} WHEN 1 THEN @{[ number($aliases, $depth - 1) ]} WHEN 3 THEN @{[ number($aliases, $depth - 1) ]} END"
	  if $choice < 0.75;
	return "COALESCE(@{[ number($aliases, $depth - 1) ]}, @{[ number($aliases, $depth - 1) ]}, 0)" if $choice < 0.85;
	return "GREATEST(@{[ number($aliases, $depth - 1) ]}, @{[ number($aliases, $depth - 1) ]})" if $choice < 0.9;
	return "(@{[ number($aliases, $depth - 1) ]} + @{[ number($aliases, $depth - 1) ]})" if $choice < 0.95;
	return "(SELECT max(w.a) FROM two w WHERE w.k = @{[ column($aliases, 'int') ]})" if $choice < 0.97;
	return "(SELECT sum(@{[ score([ @$aliases, 'w' ], 1) ]} + 0 * w.id) FROM two w WHERE w.k = @{[ column($aliases, 'int') ]} AND w.id < 20)";
}

sub condition
{
	my ($aliases, $depth) = @_;
	my $choice = rand();

	return one_of(
		column($aliases, 'real') . ' > 0.1',
		column($aliases, 'int') . ' % 3 = 0',
		column($aliases, 'real') . ' IS NULL',
		column($aliases, 'real') . ' IS NOT NULL') if $depth <= 0 || $choice < 0.2;
	return "@{[ number($aliases, $depth - 1) ]} @{[ one_of('>', '<', '>=') ]} @{[ number($aliases, $depth - 1) ]}" if $choice < 0.5;
	return "predict_class('three', @{[ one_of(@$aliases) ]}) = '@{[ one_of('red', 'green', 'blue') ]}'" if $choice < 0.6;
	return "(@{[ condition($aliases, $depth - 1) ]} AND @{[ condition($aliases, $depth - 1) ]})" if $choice < 0.75;
	return "(@{[ condition($aliases, $depth - 1) ]} OR @{[ condition($aliases, $depth - 1) ]})" if $choice < 0.87;
	return "NOT (@{[ condition($aliases, $depth - 1) ]})" if $choice < 0.92;
	return "EXISTS (SELECT FROM two w WHERE w.k = @{[ column($aliases, 'int') ]} AND @{[ condition([ @$aliases, 'w' ], 1) ]})"
	  if $choice < 0.96;
	return "@{[ column($aliases, 'int') ]} IN (SELECT w.k FROM two w WHERE @{[ condition(['w'], 1) ]})";
}

sub random_query
{
	my ($from, $aliases) = @{ $from_table{ one_of('alone', 'alone', 'alone', 'parts', 'join', 'outer') } };
	my $choice = rand();

	$risky = 0;
	if (chance(0.1))
	{
		($from, $aliases) = ("(SELECT x.*, @{[ number(['x'], 2) ]} AS extra FROM one x WHERE @{[ condition(['x'], 1) ]} @{[ one_of('', 'OFFSET 0') ]}) x", ['x']);
	}
	elsif (chance(0.1))
	{
		($from, $aliases) = ("one x, LATERAL (SELECT * FROM two y WHERE y.k = x.k AND @{[ condition([ 'x', 'y' ], 1) ]} ORDER BY y.id LIMIT 3) y", [ 'x', 'y' ]);
	}
	elsif (chance(0.1) && @$aliases == 2)
	{
		$from .= ' AND ' . condition($aliases, 2);
	}
	my @conditions = map { condition($aliases, 1 + int(rand(2))) } 1 .. int(rand(3));
	my $where = @conditions ? ' WHERE ' . join(' AND ', @conditions) : '';

	return "UPDATE one x SET d = @{[ number(['x'], 2) ]} WHERE @{[ condition(['x'], 2) ]} RETURNING x.id, x.d, @{[ score(['x'], 1) ]}"
	  if $choice < 0.07;
	return "DELETE FROM one x WHERE @{[ condition(['x'], 2) ]} RETURNING x.id" if $choice < 0.1;
	if ($choice < 0.55)
	{
		my $targets = join(', ', map { number($aliases, 3) . " AS n$_" } 1 .. 1 + int(rand(3)));
		my $order = join(', ', map { "$_.id" } @$aliases);
		my $ids = join(', ', map { "$_.id AS ${_}_id" } @$aliases);
		my $tail = chance(0.4) ? " ORDER BY $order" . (chance(0.5) ? ' LIMIT ' . (1 + int(rand(40))) : '') : '';

		return "SELECT $ids, $targets FROM $from$where$tail";
	}
	if ($choice < 0.8)
	{
		my $group = one_of(column($aliases, 'int'), "predict_class('three', $aliases->[0])", "round((@{[ number($aliases, 2) ]})::numeric, 2)");

		return "SELECT $group AS g, round(sum((@{[ number($aliases, 2) ]})::numeric), 3), count(@{[ number($aliases, 2) ]}) "
		  . "FILTER (WHERE @{[ condition($aliases, 2) ]}), max(@{[ number($aliases, 1) ]}) FROM $from$where GROUP BY 1";
	}
	return "SELECT round(avg((@{[ number($aliases, 3) ]})::numeric), 3), count(*) FILTER (WHERE @{[ condition($aliases, 2) ]}) FROM $from$where"
	  if $choice < 0.9;
	return "SELECT $aliases->[0].id, count(@{[ number($aliases, 2) ]}) OVER (PARTITION BY @{[ column($aliases, 'int') ]}), "
	  . "@{[ number($aliases, 2) ]} AS n FROM $from$where";
}

my @plans = (
	'', '',
	'enable_hashjoin=off enable_mergejoin=off',
	'enable_hashjoin=off enable_nestloop=off enable_hashagg=off',
	'parallel_setup_cost=0 parallel_tuple_cost=0 min_parallel_table_scan_size=0',
	'enable_seqscan=off',
	'work_mem=64kB');

my $node = start_server('batch_queries');
$node->safe_psql('postgres', <<'SQL');
SET client_min_messages = warning;
SET pg_train.report_epochs = off;
CREATE TABLE one (id int PRIMARY KEY, a real, b real, k int, s text, d float8, e real, image bytea, wide text);
CREATE TYPE scored AS (id int, a real, b real, k int, s text, d float8, e real, image bytea, wide text);
CREATE TABLE source AS
	SELECT sin(i)::real AS a, cos(2 * i)::real AS b, i % 7 AS k, sin(i)::real AS e, 3 * sin(i) - cos(2 * i) AS y, sin(i) > cos(2 * i) AS side,
		(ARRAY['red', 'green', 'blue'])[1 + (i % 7) / 3] AS colour, decode(md5(i::text), 'hex') AS image
	FROM generate_series(1, 400) i;
SELECT train_model('line', 'source', 'y', features => '{a,b,k}', architecture => '["flatten"]', epochs => 3);
SELECT train_model('side', 'source', 'side', features => '{a,b}', architecture => '["flatten"]', epochs => 3);
SELECT train_model('three', 'source', 'colour', features => '{a,b,k}', architecture => '[{"linear": 3}, "tanh"]', epochs => 3);
SELECT train_model('risky', 'source', 'y', features => '{e,b}', architecture => '["flatten"]', epochs => 1);
SELECT train_model('image', 'source', 'side', features => '{image}', input_shape => '{1,4,4}',
	architecture => '[{"conv2d": {"out": 2, "kernel": 3}}, "relu", "flatten"]', epochs => 1);
INSERT INTO one
	SELECT i, nullif(sin(i)::real, sin(9)::real), cos(i)::real, i % 7, repeat('z', i % 5), i / 7.0, CASE WHEN i % 61 = 60 THEN 'infinity' ELSE i / 9.0 END,
		CASE WHEN i % 11 > 0 THEN decode(md5(i::text), 'hex') END, repeat(md5(i::text), (i % 3) * 40)
	FROM generate_series(1, 180) i;
UPDATE one SET a = NULL WHERE id % 9 = 4;
CREATE TABLE two (junk int, LIKE one);
ALTER TABLE two DROP COLUMN junk;
INSERT INTO two SELECT * FROM one WHERE id <= 90;
UPDATE two SET k = id % 11, a = a / 2;
CREATE INDEX ON two (k);
CREATE TABLE parts (LIKE one) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (80);
CREATE TABLE parts_high (wide text, image bytea, b real, a real, id int NOT NULL, k int, s text, e real, d float8);
ALTER TABLE parts ATTACH PARTITION parts_high FOR VALUES FROM (80) TO (1000);
INSERT INTO parts SELECT * FROM one;
ANALYZE;

-- The rows of a query in order, or its error; changes are undone.  kept: run to the end at once, which may be in parallel.
CREATE FUNCTION outcome(query text, kept boolean) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	r record;
	result text[] := '{}';
BEGIN
	BEGIN
		IF kept THEN
			EXECUTE 'CREATE TEMP TABLE outcome_row ON COMMIT DROP AS ' || query;
			FOR r IN SELECT o::text AS line FROM outcome_row o LOOP
				result := result || r.line;
			END LOOP;
		ELSE
			FOR r IN EXECUTE query LOOP
				result := result || r::text;
			END LOOP;
		END IF;
		RAISE EXCEPTION 'undo' USING ERRCODE = 'TTTTT';
	EXCEPTION
		WHEN SQLSTATE 'TTTTT' THEN RETURN result;
		WHEN OTHERS THEN RETURN ARRAY['ERROR', SQLERRM];
	END;
END
$$;

-- Compare the outcomes: the verdict, and whether the plan has a batch node.
CREATE FUNCTION compare(query text, settings text, kept boolean, ordered boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	setting text;
	line text;
	one_by_one text[];
	batched text[];
	has_node boolean := false;
BEGIN
	FOREACH setting IN ARRAY string_to_array(settings, ' ') LOOP
		PERFORM set_config(split_part(setting, '=', 1), split_part(setting, '=', 2), true);
	END LOOP;
	SET LOCAL pg_train.batch_scoring = off;
	one_by_one := outcome(query, kept);
	SET LOCAL pg_train.batch_scoring = on;
	batched := outcome(query, kept);
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		has_node := has_node OR line LIKE '%PredictBatch%';
	END LOOP;
	IF NOT ordered AND one_by_one[1] IS DISTINCT FROM 'ERROR' THEN
		one_by_one := ARRAY(SELECT unnest(one_by_one) ORDER BY 1);
		batched := ARRAY(SELECT unnest(batched) ORDER BY 1);
	END IF;
	RETURN concat_ws('|', CASE WHEN one_by_one = batched THEN 'same'
			WHEN one_by_one[1] = 'ERROR' AND batched[1] = 'ERROR' THEN 'other error' ELSE 'different' END,
		CASE WHEN has_node THEN 'batched' ELSE 'one by one' END,
		CASE WHEN one_by_one[1] = 'ERROR' THEN 'error: ' || one_by_one[2] ELSE cardinality(one_by_one) || ' rows' END,
		CASE WHEN one_by_one <> batched THEN (SELECT concat_ws(' / ', o, b)
			FROM unnest(one_by_one, batched) u (o, b) WHERE o IS DISTINCT FROM b LIMIT 1) END);
END
$$;
SQL

my %count = (same => 0, batched => 0, error => 0, rows => 0);
my @tried;
my $script = "SET statement_timeout = '30s';\n";
for my $i (0 .. $queries - 1)
{
	srand($seed + $i);
	my $query = random_query();
	my $plan = one_of(@plans);
	my $kept = $query =~ /^SELECT/ && chance(0.5) ? 'true' : 'false';
	my $ordered = $query =~ / ORDER BY [xy.id, ]+( LIMIT \d+)?$/ ? 'true' : 'false';

	push @tried, { query => $query, plan => $plan, risky => $risky, seed => $seed + $i };
	$script .= "SELECT compare(\$q\$$query\$q\$, '$plan', $kept, $ordered);\n";
}
my @verdicts = split(/\n/, $node->safe_psql('postgres', $script, timeout => 3000));
is(scalar(@verdicts), $queries, 'every query has a verdict');

my @wrong;
for my $i (0 .. $#verdicts)
{
	my ($verdict, $way, $outcome, $difference) = split(/\|/, $verdicts[$i], 4);
	my $query = $tried[$i];

	$count{batched}++ if $way eq 'batched';
	$count{error}++ if $outcome =~ /^error/;
	$count{rows}++ if $outcome =~ /^[1-9]\d* rows/;
	next if $verdict eq 'same';
	# Which of several errors comes first is nobody's promise.
	next if $verdict eq 'other error' && $query->{risky} > 1;
	push @wrong, "seed $query->{seed}: $verdicts[$i]\n  $query->{plan}\n  $query->{query}";
}
is(scalar(@wrong), 0, 'rows and errors are the same') or diag(join("\n", @wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ]));
note("one by one: $tried[$_]{query}") for grep { $verdicts[$_] =~ /one by one/ } 0 .. $#verdicts;
note("$count{batched} of $queries queries were batched, $count{rows} returned rows, $count{error} ended in an error");
cmp_ok($count{batched}, '>', 0.7 * $queries, 'most queries are batched');
cmp_ok($count{rows}, '>', 0.5 * $queries, 'most queries return rows');
cmp_ok($count{error}, '>', 0.01 * $queries, 'some end in an error');
my @mistakes = grep { /error: (?!value of column "e" is not finite|row has no column "e")/ } @verdicts;
is(scalar(@mistakes), 0, 'errors come from scored rows only') or diag(join("\n", @mistakes[ 0 .. ($#mistakes < 4 ? $#mistakes : 4) ]));

$node->stop;
done_testing();
