#!/bin/bash
# check.sh - every test there is: "make check".
#
#   include rules          scripts/check_includes.sh
#   unit tests             programs named by UNIT_TESTS in the makefiles, those on simulated CUDA where its headers are
#   the same, sanitized    programs named by SANITIZED_UNIT_TESTS, built with ASan and UBSan
#   pg_regress             regress/sql against regress/expected
#   isolation              regress/specs, where the installation has pg_isolation_regress
#   TAP                    regress/t/*.pl
#
# CHECK="regress tap" runs only the kinds named (includes, unit, sanitized, regress, isolation, tap); TESTS="cancel"
# only those programs and files whose name contains one of the words.  BATCH_QUERIES=2000 tries more random queries.
# Logs stay in build/check.  The last line counts single tests over all kinds; it fails when one failed or none ran.
set -u
cd "$(dirname "$0")/.." || exit 1
. scripts/private.sh

CHECK=${CHECK:-includes unit sanitized regress isolation tap}
TESTS=${TESTS:-}
TIME_LIMIT=${TIME_LIMIT:-300}
LOGS=build/check
passed=0
failed=0
skipped=0
failures=()

# judge NAME LOG RC SECONDS: count the TAP in the log.  A program that fails without saying which test, or that ends
# before its plan is done, or that runs nothing, has failed one test.
judge()
{
	local name=$1 log=$2 rc=$3 seconds=$4 ok not_ok skip planned word

	read -r ok not_ok skip planned < <(awk '
		/^not ok [0-9]/ && / # TODO/ { next }
		/^ok [0-9]/ && / # [Ss][Kk][Ii][Pp]/ { skip++; next }
		/^ok [0-9]/ { ok++ }
		/^not ok [0-9]/ { bad++ }
		/^1\.\.[0-9]+/ { plan = substr($1, 4); planned = 1; if (plan == 0) skip++ }
		END {
			ran = ok + bad + skip
			complete = planned && (plan == 0 || plan == ran)
			print ok + 0, bad + 0, skip + 0, complete + 0
		}' "$log")
	word=
	if [ "$rc" = 124 ] || [ "$rc" = 137 ]
	then
		not_ok=$((not_ok + 1))
		word="timed out or was killed"
	elif [ "$planned" = 0 ] || { [ "$rc" != 0 ] && [ "$not_ok" = 0 ]; }
	then
		not_ok=$((not_ok + 1))
		word="ended early, with exit status $rc"
	fi
	passed=$((passed + ok))
	failed=$((failed + not_ok))
	skipped=$((skipped + skip))

	if [ "$not_ok" = 0 ]
	then
		printf '%-44s %5d passed%s  %6.1f s\n' "$name" "$ok" "$([ "$skip" = 0 ] || echo ", $skip skipped")" "$seconds"
	else
		printf '%-44s %5d passed, %d FAILED  %6.1f s\n' "$name" "$ok" "$not_ok" "$seconds"
		grep -B 20 -A 20 '^not ok' "$log" | grep -v '^ok ' | head -60 | sed 's/^/    /'
		if [ -n "$word" ]
		then
			echo "    $name $word; the end of its log:"
			tail -30 "$log" | sed 's/^/    /'
		fi
		failures+=("$name")
		while read -r word
		do
			failures+=("    ${word#not ok }")
		done < <(grep '^not ok' "$log")
	fi
}

# program NAME COMMAND...: run a program that prints TAP.
program()
{
	local name=$1 log rc start
	shift

	log=$LOGS/$(echo "$name" | tr '/ ' '__').log
	start=$(date +%s.%N)
	interruptible "$@" >"$log" 2>&1
	rc=$?
	judge "$name" "$log" $rc "$(echo "$(date +%s.%N) $start" | awk '{ print $1 - $2 }')"
}

wanted()
{
	local word

	[ -n "$TESTS" ] || return 0
	for word in $TESTS
	do
		[[ $1 != *"$word"* ]] || return 0
	done
	return 1
}

# Programs of a make variable.
programs_of()
{
	make -s --no-print-directory print-"$1"
}

# What cannot be tested on this machine, and why.
skip_whole()
{
	printf '%-44s skipped: %s\n' "$1" "$2"
	skipped=$((skipped + 1))
}

unit_tests()
{
	local kind=$1 variable=$2 file
	local -a files=() environment=()

	# On processors with AMX, oneDNN 2.6 reads past its own heap blocks while it makes a convolution: harmless without a
	# sanitizer, the end of the program with one.  What is watched here is our code, which is the same either way.
	[ "$kind" != sanitized ] || environment=(env ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16)
	for file in $(programs_of "$variable")
	do
		wanted "$file" && files+=("$file")
	done
	[ ${#files[@]} -gt 0 ] || return 0
	if ! interruptible make -s --no-print-directory -j"$(nproc)" "${files[@]}" >"$LOGS/$kind.build.log" 2>&1
	then
		echo "the $kind tests do not build:"
		tail -30 "$LOGS/$kind.build.log"
		failed=$((failed + 1))
		failures+=("$kind tests: do not build")
		return
	fi
	for file in "${files[@]}"
	do
		program "$kind/$(basename "$file")" "${environment[@]}" timeout --foreground -k 10 "$TIME_LIMIT" "$file"
	done
}

# pg_regress and its sister say "test NAME ... ok" before release 16, TAP from there on.
as_tap()
{
	awk '
		/^(test )?[ ]*[^ ]+ +\.\.\. +(ok|FAILED|failed)/ {
			name = $1 == "test" ? $2 : $1
			print (/ \.\.\. +ok/ ? "ok " : "not ok ") ++n " - " name
			old = 1
			next
		}
		{ print }
		END { if (old) print "1.." n }'
}

# regress KIND PROGRAM FOLDER SUFFIX
regress()
{
	local kind=$1 tool=$2 folder=$3 suffix=$4 file rc start log=$LOGS/$1.log out=$PRIVATE/out/$1
	local -a names=()

	for file in regress/"$folder"/*"$suffix"
	do
		[ -f "$file" ] && wanted "$file" && names+=("$(basename "$file" "$suffix")")
	done
	[ ${#names[@]} -gt 0 ] || return 0
	as_user mkdir -p "$out"
	start=$(date +%s.%N)
	interruptible as_user timeout --foreground -k 10 "$TIME_LIMIT" "$tool" --inputdir="$PRIVATE/regress" \
		--outputdir="$out" --bindir="$PGBIN" --temp-instance="$out/instance" \
		--dbname=regression --encoding=UTF8 --no-locale "${names[@]}" \
		>"$log.raw" 2>&1
	rc=$?
	as_tap <"$log.raw" >"$log"
	rm -f "$log.raw"
	judge "$kind" "$log" $rc "$(echo "$(date +%s.%N) $start" | awk '{ print $1 - $2 }')"
	if [ -f "$out/regression.diffs" ] && [ -s "$out/regression.diffs" ]
	then
		cp "$out/regression.diffs" "$LOGS/$kind.diffs"
		cat "$LOGS/$kind.diffs"
	fi
	rm -rf "$LOGS/$kind.results"
	[ ! -d "$out/results" ] || cp -R "$out/results" "$LOGS/$kind.results"
	[ $rc = 0 ] || cp "$out/log/postmaster.log" "$LOGS/$kind.postmaster.log" 2>/dev/null
}

tap_tests()
{
	local file name

	for file in regress/t/*.pl
	do
		[ -f "$file" ] && wanted "$file" || continue
		name=$(basename "$file" .pl)
		rm -rf "$LOGS/$name"
		as_user mkdir -p "$PRIVATE/tap/$name"
		program "tap/$name" as_user PG_REGRESS="$TEST_TOOLS/regress/pg_regress" TESTDIR="$PRIVATE/tap/$name" \
			TESTDATADIR="$PRIVATE/tap/$name/tmp_check" TESTLOGDIR="$PRIVATE/tap/$name/tmp_check/log" PG_TEST_TIMEOUT_DEFAULT=120 \
			BATCH_QUERIES="${BATCH_QUERIES:-300}" BATCH_SEED="${BATCH_SEED:-1}" \
			timeout --foreground -k 20 "$TIME_LIMIT" perl -I "$TEST_TOOLS/perl" -I "$PRIVATE/regress/t" "$PRIVATE/$file"
		[ ! -d "$PRIVATE/tap/$name/tmp_check/log" ] || cp -R "$PRIVATE/tap/$name/tmp_check/log" "$LOGS/$name"
		rm -rf "$PRIVATE/tap/$name"
	done
}

start_all=$SECONDS
scripts/deps.sh || exit 1
rm -rf "$LOGS"
mkdir -p "$LOGS"
if ! make --no-print-directory -j"$(nproc)" all >"$LOGS/build.log" 2>&1 </dev/null
then
	tail -40 "$LOGS/build.log"
	echo "pg_train does not build; the whole log is $LOGS/build.log"
	echo "0 passed, 1 failed"
	exit 1
fi
private_begin || { echo "0 passed, 1 failed"; exit 1; }
cp -R regress "$PRIVATE/regress" && chmod -R a+rX "$PRIVATE/regress" || exit 1
TEST_TOOLS=$(dirname "$("$PG_CONFIG" --pgxs)")/../test
TEST_TOOLS=$(cd "$TEST_TOOLS" && pwd) || exit 1

for kind in $CHECK
do
	case $kind in
		includes) wanted includes && program includes scripts/check_includes.sh ;;
		unit)
			unit_tests unit UNIT_TESTS
			reason=$(programs_of CUDASIM_SKIPPED)
			[ -z "$reason" ] || skip_whole "unit/test_cudasim, unit/test_ops_cuda" "$reason"
			;;
		sanitized) unit_tests sanitized SANITIZED_UNIT_TESTS ;;
		regress) regress regress "$TEST_TOOLS/regress/pg_regress" sql .sql ;;
		isolation)
			if [ -x "$TEST_TOOLS/isolation/pg_isolation_regress" ]
			then
				regress isolation "$TEST_TOOLS/isolation/pg_isolation_regress" specs .spec
			fi
			;;
		tap) tap_tests ;;
		*) echo "check.sh: there is no kind of test called \"$kind\"" >&2; exit 1 ;;
	esac
done

if [ ${#failures[@]} -gt 0 ]
then
	echo
	echo "failed:"
	printf '  %s\n' "${failures[@]}"
fi
echo
echo "$((SECONDS - start_all)) seconds"
[ $skipped = 0 ] && echo "$passed passed, $failed failed" || echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
