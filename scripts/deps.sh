#!/bin/bash
# deps.sh - see to what the build, the demo and the tests need.
#
# Every need is probed by what it is for, so that a PostgreSQL or a oneDNN built from source counts too.  What is
# missing is installed on Debian and Ubuntu, as root or through sudo; elsewhere it is named, and this fails.
set -u

cd "$(dirname "$0")/.." || exit 1
PG_CONFIG=${PG_CONFIG:-pg_config}
FASHION_MNIST=${FASHION_MNIST:-/usr/share/datasets/fashion-mnist}
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

have()
{
	command -v "$1" >/dev/null 2>&1
}

compiles()
{
	echo "#include <$1>" | ${CC:-cc} -E -x c - >/dev/null 2>&1
}

# Fills missing with lines of "what it is|Debian package".
probe()
{
	missing=()
	local bindir include

	{ have "${CC:-cc}" && have ar && compiles stdio.h; } || missing+=("a C compiler with its libraries|build-essential")
	[ "${HAVE_ONEDNN:-}" = no ] || compiles dnnl.h || missing+=("oneDNN with its headers (dnnl.h)|libdnnl-dev")
	if have "$PG_CONFIG" && [ -f "$("$PG_CONFIG" --pgxs)" ]
	then
		bindir=$("$PG_CONFIG" --bindir)
		include=$("$PG_CONFIG" --includedir-server)
		[ -f "$include/postgres.h" ] ||
			missing+=("the headers of the PostgreSQL server ($include)|postgresql-server-dev-$(pg_major)")
		[ -x "$bindir/postgres" ] || missing+=("a PostgreSQL server ($bindir)|postgresql-$(pg_major)")
	else
		missing+=("a PostgreSQL server|postgresql-MAJOR")
		missing+=("the headers of the PostgreSQL server (or PG_CONFIG=/path/to/pg_config)|postgresql-server-dev-MAJOR")
	fi
	have perl && perl -MIPC::Run -MTest::More -e 1 2>/dev/null ||
		missing+=("Perl with IPC::Run and Test::More|libipc-run-perl")
	have setpriv || missing+=("setpriv|util-linux")
	have gzip || missing+=("gzip|gzip")
	[ -r "$FASHION_MNIST/train-images-idx3-ubyte.gz" ] ||
		missing+=("the Fashion-MNIST files ($FASHION_MNIST, or set FASHION_MNIST)|dataset-fashion-mnist")
	[ ${#missing[@]} -eq 0 ]
}

pg_major()
{
	"$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/'
}

probe && exit 0

as_root=
if [ "$(id -u)" != 0 ]
then
	if have sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }
	then
		as_root=sudo
	else
		as_root=no
	fi
fi

if ! have apt-get || [ "$as_root" = no ]
then
	{
		echo "pg_train needs, and this machine lacks:"
		printf '  %s\n' "${missing[@]%%|*}"
		echo "On Debian or Ubuntu, as root:"
		echo "  apt-get update && apt-get install" "${missing[@]##*|}" | sed 's/  *$//'
		case "${missing[*]}" in
			*MAJOR*) echo "  (MAJOR: the PostgreSQL release, such as 15)" ;;
		esac
	} >&2
	exit 1
fi

echo "installing what is missing; the log is build/deps.log"
$as_root apt-get update -qq || exit 1
packages=("${missing[@]##*|}")
case "${packages[*]}" in
	*MAJOR*)
		# The release whose headers are here already, else the newest that there is.
		major=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 'postgresql-server-dev-[0-9]*' 2>/dev/null |
			sed -n 's/^ii *postgresql-server-dev-//p' | sort -n | tail -1)
		[ -n "$major" ] ||
			major=$(apt-cache search --names-only '^postgresql-server-dev-[0-9]+$' |
				sed 's/^postgresql-server-dev-\([0-9]*\).*/\1/' | sort -n | tail -1)
		if [ -z "$major" ]
		then
			echo "no package of the PostgreSQL server's headers is known to apt-get" >&2
			exit 1
		fi
		packages=("${packages[@]//MAJOR/$major}")
		;;
esac
mkdir -p build
if ! $as_root apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >build/deps.log 2>&1
then
	tail -40 build/deps.log >&2
	exit 1
fi

if ! probe
then
	echo "still missing after the installation:" >&2
	printf '  %s\n' "${missing[@]%%|*}" >&2
	exit 1
fi
