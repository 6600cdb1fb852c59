#!/bin/bash
# bench.sh - pg_train beside PyTorch, in one run, in one table: "make bench".
#
#   QUICK=1          fewer rounds and rows, PyTorch's settings not probed: a few minutes, and rougher figures
#   ROUNDS=7         rounds that a median is of
#   ROWS=1000000     rows of the tabular data
#   ONLY="cnn sql"   only the lines whose name contains one of the words
#   PYTHON=...       interpreters that can import torch, numpy and psycopg2, separated by spaces; python3 is always
#                    tried.  Each line of the table takes the PyTorch that does best on it.
#   PROBE=1          look for PyTorch's best settings anew (they are kept in build/bench/torch.json)
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/private.sh

QUICK=${QUICK:-0}
if [ "$QUICK" = 1 ]
then
	ROUNDS=${ROUNDS:-3}
	ROWS=${ROWS:-200000}
fi
ROUNDS=${ROUNDS:-7}
ROWS=${ROWS:-1000000}

pythons=()
for python in ${PYTHON:-} python3
do
	python=$(command -v "$python") || continue
	if "$python" -c 'import torch, numpy, psycopg2' 2>/dev/null && [[ " ${pythons[*]-} " != *" $python "* ]]
	then
		pythons+=("$python")
	fi
done
if [ ${#pythons[@]} -eq 0 ]
then
	{
		echo "make bench compares with PyTorch, and no Python here imports torch, numpy and psycopg2."
		echo "On Debian or Ubuntu: apt-get install python3-torch python3-psycopg2; or name an interpreter: make bench PYTHON=..."
	} >&2
	exit 1
fi

scripts/deps.sh || exit 1
mkdir -p build/bench
if ! make --no-print-directory -j"$(nproc)" all >build/bench/build.log 2>&1 </dev/null
then
	tail -40 build/bench/build.log >&2
	exit 1
fi
private_begin || exit 1
server_start "shared_buffers = 512MB" "max_wal_size = 8GB" "autovacuum = off" "work_mem = 64MB" || exit 1
cp scripts/fashion_mnist.pl "$PRIVATE/" && chmod a+rX "$PRIVATE/fashion_mnist.pl" || exit 1

echo "preparing the data" >&2
interruptible as_user ${FASHION_MNIST:+FASHION_MNIST="$FASHION_MNIST"} ROWS="$ROWS" bash -e -o pipefail -c '
	psql -X -q -v ON_ERROR_STOP=1 -c "CREATE EXTENSION pg_train" \
		-c "CREATE TABLE fashion_train (id int, label int, pixels bytea)" \
		-c "CREATE TABLE fashion_test (id int, label int, pixels bytea)"
	for part in train test
	do
		perl fashion_mnist.pl $part | psql -X -q -v ON_ERROR_STOP=1 -c "COPY fashion_$part FROM STDIN (FORMAT binary)"
	done
	columns=$(for i in $(seq 1 30); do echo -n "random()::real AS f$i, "; done)
	psql -X -q -v ON_ERROR_STOP=1 -c "SET max_parallel_workers_per_gather = 0" -c "SELECT setseed(0.5)" -o /dev/null \
		-c "CREATE TABLE tabular AS SELECT id, $columns 0::real AS y FROM generate_series(1, $ROWS) id WHERE false" \
		-c "INSERT INTO tabular SELECT f.*, sin(6 * f1) + f2 * f3 - f4 * f4 + 0.1 * random()
			FROM (SELECT id, ${columns%, } FROM generate_series(1, $ROWS) id OFFSET 0) f" \
		-c "VACUUM (ANALYZE, FREEZE)" -c "CHECKPOINT"' || exit 1

export PGHOST=$PRIVATE/socket PGUSER=postgres PGDATABASE=postgres
BENCH_QUICK=$QUICK BENCH_ROUNDS=$ROUNDS BENCH_ROWS=$ROWS BENCH_ONLY=${ONLY:-} BENCH_PROBE=${PROBE:-0} \
	BENCH_PYTHONS="${pythons[*]}" BENCH_CACHE=build/bench/torch.json \
	interruptible "${pythons[0]}" bench/bench.py
