# private.sh - a PostgreSQL of our own for check, demo and bench; to be sourced by bash, in the project's root.
#
# private_begin copies the installation that PG_CONFIG names into a new folder, where the extension is installed
# beside it: the system's files stay as they are, and no rights over them are needed.  (PostgreSQL finds its
# libraries and shared files relative to its programs.)  Servers listen on a socket in that folder only.  Run by
# root, everything that touches a server runs as an unprivileged user, since PostgreSQL refuses root.
#
#   PRIVATE    the folder; removed when the script ends, however it ends, unless private_keep was called
#   PGBIN      the copy's programs
#   PGPKGLIB   the copy's libraries

PG_CONFIG=${PG_CONFIG:-pg_config}
PRIVATE=
private_child=

# Run a command as the unprivileged user, in the private folder, with a clean environment.
as_user()
{
	local -a user=() extra=()

	if [ "$(id -u)" = 0 ]
	then
		user=(setpriv --reuid "$private_user" --regid "$(id -g "$private_user")" --init-groups --)
	fi
	# Assignments before the command go to env.
	while [[ ${1-} == *=* ]]
	do
		extra+=("$1")
		shift
	done
	(cd "$PRIVATE" &&
		exec "${user[@]}" env -i PATH="$PGBIN:$PATH" HOME="$PRIVATE" TMPDIR="$PRIVATE/tmp" LC_ALL=C.UTF-8 TZ=UTC \
			PGHOST="$PRIVATE/socket" PGUSER=postgres PGDATABASE=postgres "${extra[@]}" "$@")
}

# Run a command so that a signal to this script ends it at once: bash holds a trap back while it waits for a
# child in the foreground.  The child gets a process group of its own, which the trap ends.
interruptible()
{
	local rc

	set -m
	"$@" </dev/null &
	private_child=$!
	set +m
	wait "$private_child"
	rc=$?
	private_child=
	return $rc
}

# private_adopt FOLDER: work on a folder that private_begin made, now or in an earlier script.
private_adopt()
{
	system_bin=$("$PG_CONFIG" --bindir) && system_lib=$("$PG_CONFIG" --pkglibdir) &&
		system_share=$("$PG_CONFIG" --sharedir) || return 1
	PRIVATE=$1
	PGBIN=$PRIVATE/root$system_bin
	PGPKGLIB=$PRIVATE/root$system_lib
	private_user=nobody
	if id postgres >/dev/null 2>&1
	then
		private_user=postgres
	fi
}

private_begin()
{
	local base share

	trap private_end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	# The path of a Unix socket holds some hundred bytes.
	base=${TMPDIR:-/tmp}
	[ ${#base} -le 40 ] || base=/tmp
	PRIVATE=$(mktemp -d "$base/pg_train.XXXXXX") && private_adopt "$PRIVATE" || return 1
	share=$PRIVATE/root$system_share
	mkdir -p "$PGBIN" "$PGPKGLIB" "$share" "$PRIVATE/socket" "$PRIVATE/tmp" || return 1
	cp -RLp "$system_bin/." "$PGBIN/" && cp -RLp "$system_lib/." "$PGPKGLIB/" && cp -RLp "$system_share/." "$share/" ||
		return 1
	make -s install DESTDIR="$PRIVATE/root" >"$PRIVATE/install.log" 2>&1 || { cat "$PRIVATE/install.log" >&2; return 1; }
	if [ "$(id -u)" = 0 ]
	then
		chown -R "$private_user:" "$PRIVATE" || return 1
	fi
}

private_end()
{
	local rc=$? pidfile

	trap '' INT TERM HUP
	trap - EXIT
	if [ -n "$private_child" ]
	then
		kill -TERM -- "-$private_child" 2>/dev/null
		wait "$private_child" 2>/dev/null
	fi
	if [ -n "$PRIVATE" ]
	then
		# Ours, and what a test may have left behind.
		find "$PRIVATE" -name postmaster.pid 2>/dev/null | while read -r pidfile
		do
			as_user pg_ctl -D "$(dirname "$pidfile")" -m immediate -w stop >/dev/null 2>&1 </dev/null
		done
		rm -rf "$PRIVATE"
	fi
	exit "$rc"
}

# From here on the folder and its server outlive the script.
private_keep()
{
	trap - EXIT INT TERM HUP
}

# server_start [option=value ...]: a fresh cluster in PRIVATE/data, its user postgres, without durability.
server_start()
{
	local option

	as_user initdb -D "$PRIVATE/data" -U postgres -A trust -N --no-instructions --locale=C.UTF-8 \
		>"$PRIVATE/initdb.log" 2>&1 || { cat "$PRIVATE/initdb.log" >&2; return 1; }
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$PRIVATE/socket'"
		echo "fsync = off"
		for option
		do
			echo "$option"
		done
	} >>"$PRIVATE/data/postgresql.conf" || return 1
	as_user pg_ctl -D "$PRIVATE/data" -l "$PRIVATE/server.log" -w start >"$PRIVATE/start.log" 2>&1 ||
		{ cat "$PRIVATE/start.log" "$PRIVATE/server.log" >&2; return 1; }
}
