#!/bin/bash
# check_includes.sh - the include rules between the parts, as tests: docs/architecture.md tells why they stand.
#
# Prints TAP, two tests a part: it includes nothing that it must not know, and its headers compile alone.
set -u
cd "$(dirname "$0")/.." || exit 1

CC=${CC:-cc}
server=$("${PG_CONFIG:-pg_config}" --includedir-server)
libc='(assert|cpuid|ctype|dirent|dlfcn|endian|errno|fcntl|fenv|float|immintrin|inttypes|limits|malloc|math|poll|pthread'
libc+='|sched|semaphore|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string|strings|time'
libc+='|unistd|x86intrin|sys/[a-z_]+|linux/[a-z_]+)\.h'
devices='.*(cuda|cudnn|cublas|nccl|dnnl).*|omp\.h|pthread\.h'
count=0
failed=0

result()
{
	count=$((count + 1))
	if [ -n "$2" ]
	then
		failed=$((failed + 1))
		echo "not ok $count - $1"
		printf '%s\n' "$2" | sed 's/^/# /'
	else
		echo "ok $count - $1"
	fi
}

sources()
{
	find "$@" \( -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' \) | sort
}

# includes FILE: the names it includes: ours (in quotes, paths from the root or beside the file) or foreign.
includes()
{
	local quote name

	sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*\([<"]\)\([^>"]*\)[>"].*/\1 \2/p' "$1" | while read -r quote name
	do
		if [ "$quote" = '<' ] || { [ ! -f "$name" ] && [ ! -f "$(dirname "$1")/$name" ]; }
		then
			echo "foreign $name"
		elif [ -f "$name" ]
		then
			echo "ours $name"
		else
			echo "beside $name"
		fi
	done
}

# part NAME ALLOWED FILES...: every include of the files is one of ALLOWED (an extended regular expression over
# "ours PATH" and "foreign NAME"), and with FORBIDDEN set none of FORBIDDEN.
part()
{
	local name=$1 allowed=$2 file line wrong=
	shift 2

	[ $# -gt 0 ] || return
	for file
	do
		while read -r line
		do
			if ! [[ $line =~ ^($allowed)$ ]] || [[ -n ${FORBIDDEN-} && ${line#* } =~ ^($FORBIDDEN)$ ]]
			then
				wrong+="$file includes ${line#* }"$'\n'
			fi
		done < <(includes "$file")
	done
	result "$name: includes only what it may" "${wrong%$'\n'}"
}

# headers NAME FLAGS PRELUDE FILES...: each compiles with nothing before it but the prelude.
headers()
{
	local name=$1 flags=$2 prelude=$3 file text wrong=
	shift 3

	[ $# -gt 0 ] || return
	for file
	do
		# shellcheck disable=SC2086
		if ! text=$(printf '%s\n#include "%s"\n' "$prelude" "$file" |
			$CC -I. $flags -Wall -Werror -fsyntax-only -x c - 2>&1)
		then
			wrong+=$text$'\n'
		fi
	done
	result "the headers of $name compile alone" "${wrong%$'\n'}"
}

mapfile -t extension < <(sources extension)
mapfile -t loader < <(sources loader)
mapfile -t engine < <(sources engine)
mapfile -t onednn < <(sources kernels/cpu | grep '/onednn')
mapfile -t kernels < <(sources kernels | grep -v -e '/onednn' -e '^kernels/cuda/')
mapfile -t cuda < <([ ! -d kernels/cuda ] || sources kernels/cuda)

FORBIDDEN=$devices
part extension 'ours (extension|loader)/.*|ours kernels/error\.h|ours engine/(spec|ring|protocol|model)\.h|foreign .*' \
	"${extension[@]}"
part loader 'ours loader/.*|ours extension/compat\.h|ours kernels/error\.h|ours engine/(spec|ring)\.h|foreign .*' "${loader[@]}"
FORBIDDEN=
part engine "ours engine/.*|ours kernels/(backend|philox|error)\.h|foreign $libc" "${engine[@]}"
part "kernels in plain C" "ours kernels/[a-z0-9_]+\.h|ours kernels/cpu/.*|foreign $libc|foreign omp\.h" "${kernels[@]}"
part "kernels/cpu on oneDNN" "ours kernels/[a-z0-9_]+\.h|ours kernels/cpu/.*|foreign $libc|foreign omp\.h|foreign (oneapi/)?dnnl.*" \
	"${onednn[@]}"
FORBIDDEN='.*(dnnl|postgres|libpq).*|fmgr\.h'
part kernels/cuda 'ours kernels/[a-z0-9_]+\.h|ours kernels/cuda/.*|ours regress/cudasim/device\.h|foreign .*' "${cuda[@]}"
FORBIDDEN=

mapfile -t module_headers < <(sources extension loader | grep '\.h$')
mapfile -t engine_headers < <(sources engine kernels | grep '\.h$' | grep -v '^kernels/cuda/')
headers "the module" "-I$server" '#include "postgres.h"' "${module_headers[@]}"
headers "the engine and the kernels" "-std=c11 -D_GNU_SOURCE -Wextra" '' "${engine_headers[@]}"

echo "1..$count"
[ $failed -eq 0 ] && [ $count -gt 0 ]
