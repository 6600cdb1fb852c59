#!/bin/bash
# demo.sh - train and score Fashion-MNIST in a private server: "make demo".
#
# The server and its files are removed at the end.  With KEEP=1 they stay, to be gone on with in psql, until
# "make demo-stop" (demo.sh stop).
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/private.sh

KEPT=build/demo.kept			# the folder of a server that was kept

if [ "${1-}" = stop ]
then
	if [ ! -f "$KEPT" ]
	then
		echo "no demo server was kept"
		exit 0
	fi
	PRIVATE=$(cat "$KEPT")
	if [ -f "$PRIVATE/data/postmaster.pid" ]
	then
		private_adopt "$PRIVATE" && as_user pg_ctl -D "$PRIVATE/data" -m fast -w -s stop || exit 1
	fi
	rm -rf "$PRIVATE" "$KEPT"
	exit 0
fi

if [ -f "$KEPT" ] && [ -f "$(cat "$KEPT")/data/postmaster.pid" ]
then
	echo "the server of an earlier demo is still there: \"make demo-stop\" ends it" >&2
	exit 1
fi

scripts/deps.sh || exit 1
mkdir -p build
if ! make --no-print-directory -j"$(nproc)" all >build/demo.build.log 2>&1 </dev/null
then
	tail -40 build/demo.build.log >&2
	exit 1
fi

start=$SECONDS
private_begin || exit 1
cp scripts/demo.sql scripts/fashion_mnist.pl "$PRIVATE/" || exit 1
chmod a+rX "$PRIVATE/demo.sql" "$PRIVATE/fashion_mnist.pl"
server_start "shared_buffers = 256MB" "max_wal_size = 2GB" || exit 1

echo "Loading Fashion-MNIST into a server of its own ($PRIVATE)"
interruptible as_user ${FASHION_MNIST:+FASHION_MNIST="$FASHION_MNIST"} bash -e -o pipefail -c '
	createdb fashion
	export PGDATABASE=fashion
	psql -X -q -v ON_ERROR_STOP=1 <<-"SQL"
		CREATE EXTENSION pg_train;
		CREATE TABLE fashion_train (id int, label int, pixels bytea);
		CREATE TABLE fashion_test (id int, label int, pixels bytea);
		CREATE TABLE fashion_class (label int PRIMARY KEY, name text);
		INSERT INTO fashion_class
			SELECT ordinality - 1, name
			FROM unnest(ARRAY[$$T-shirt$$, $$trouser$$, $$pullover$$, $$dress$$, $$coat$$, $$sandal$$, $$shirt$$,
							  $$sneaker$$, $$bag$$, $$ankle boot$$]) WITH ORDINALITY AS n (name, ordinality);
	SQL
	for part in train test
	do
		perl fashion_mnist.pl $part |
			psql -X -q -v ON_ERROR_STOP=1 -c "COPY fashion_$part FROM STDIN (FORMAT binary)"
	done
	psql -X -q -c "VACUUM ANALYZE"' || exit 1

interruptible as_user bash -c 'exec psql -X -d fashion <demo.sql' || exit 1
echo "$((SECONDS - start)) seconds in all."

if [ "${KEEP:-0}" = 1 ]
then
	echo "$PRIVATE" >"$KEPT"
	private_keep
	echo "The server stays until \"make demo-stop\".  To go on:"
	echo "  psql -h $PRIVATE/socket -U postgres fashion"
else
	echo "The server and its files are removed now.  To go on with it in psql: make demo KEEP=1, which prints"
	echo "  psql -h FOLDER/socket -U postgres fashion"
fi
