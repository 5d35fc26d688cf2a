#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Shows that profd works as the hardened service that is installed: systemd, dbus and polkit of a
# minimal Debian run in separate namespaces, the bus starts profd, and profctl records through it.
#
#     tests/systemd-chroot.sh [-k FOLDER] [BUILD]      BUILD: a build folder to install from; default: a new one
#
# -k keeps the chroot in FOLDER, and uses it again if it exists. Needs root, mmdebstrap, cgroup2,
# and a Debian host whose apt is updated. The kernel and the network are the host's. The host's
# processes and files are invisible.

set -euo pipefail

source=$(dirname "$(dirname "$(readlink -f "$0")")")
source "$source/tests/debian-chroot.bash"
folder='' keep=no work='' init=''

if [ "${1-}" = -k ]; then
	folder=$(readlink -f -- "${2:?-k needs a folder}") keep=yes
	shift 2
fi
packages=(systemd systemd-sysv dbus polkitd gcc libc6-dev
	libglib2.0-0 libpolkit-gobject-1-0 libseccomp2 libzstd1 zlib1g libxxhash0 libelf1 libdw1)

install_profd() {
	local build=${1-}
	# neither the bus nor polkit reads files below /usr/local
	[ -n "$build" ] || {
		build=$work/build
		meson setup -Dprefix=/usr --buildtype=debugoptimized "$build" "$source" >/dev/null
	}
	[ "$(meson introspect --buildoptions "$build" | python3 -c '
import json, sys
print(next(option["value"] for option in json.load(sys.stdin) if option["name"] == "prefix"))')" = /usr ] || {
		echo "systemd-chroot: \"$build\" has another prefix than /usr" >&2
		return 1
	}
	DESTDIR=$folder meson install -C "$build" >/dev/null
}

# Starts systemd as a container manager does: with separate /dev, /proc and /sys, and with the
# kernel's settings read-only.
start_systemd() {
	mkdir -p "$cgroup"
	# shellcheck disable=SC2016
	bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$cgroup" unshare --fork --pid --mount --ipc --uts --cgroup --propagation private bash -euc '
		folder=$1
		mount --bind "$folder" "$folder"
		cd "$folder"
		mount -t proc proc proc
		mount --bind proc/sys proc/sys
		mount -o remount,bind,ro proc/sys
		mount -t sysfs -o ro sysfs sys
		mount -t tmpfs tmpfs sys/fs/cgroup 2>/dev/null || true
		mount -t cgroup2 cgroup2 sys/fs/cgroup
		mount -t tmpfs -o mode=755 tmpfs dev
		mount -t tmpfs -o mode=755 tmpfs run
		mount -t tmpfs -o mode=1777 tmpfs tmp
		mkdir dev/pts dev/shm
		for name in null zero full random urandom tty; do
			touch "dev/$name"
			mount --bind "/dev/$name" "dev/$name"
		done
		ln -s pts/ptmx dev/ptmx
		ln -s /proc/self/fd dev/fd
		mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
		mount -t tmpfs -o mode=1777 tmpfs dev/shm
		mkdir -p old
		pivot_root . old
		umount -l /old
		mount --make-rshared /
		hostname systemd-chroot
		exec env -i container=chroot PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
			--log-target=console --log-level=warning systemd.unit=multi-user.target
	' systemd-chroot "$folder" </dev/null >"$work/systemd.log" 2>&1 &
	init=$!
}

# Prints the pid that the first process in the namespaces has on the host.
first_process() {
	cat "/proc/$init/task/$init/children" 2>/dev/null | tr -d ' '
}

inside() {
	nsenter --target "$(first_process)" --mount --pid --ipc --uts --cgroup --root --wd \
		env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

wait_for_bus() {
	local try
	for try in $(seq 300); do
		[ -n "$(first_process)" ] && inside test -S /run/dbus/system_bus_socket 2>/dev/null &&
			inside systemctl is-active -q dbus.service 2>/dev/null && return 0
		kill -0 "$init" || break
		sleep 0.1
	done
	echo "systemd-chroot: there is no system bus" >&2
	return 1
}

cleanup() {
	local pid
	pid=$(first_process || true)
	[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
	[ -z "$init" ] || wait "$init" 2>/dev/null || true
	[ ! -d "$cgroup" ] || find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
	rm -rf "$work"
	[ "$keep" = yes ] || rm -rf --one-file-system "$folder"
}

[ "$(id -u)" = 0 ] || { echo "systemd-chroot: needs root" >&2; exit 1; }
cgroup=$(findmnt -n -t cgroup2 -o TARGET | head -1)/profd-systemd-chroot
work=$(mktemp -d)
[ -n "$folder" ] || folder=$(mktemp -d)
chmod 0755 "$folder"
trap cleanup EXIT
[ -e "$folder/lib/systemd/systemd" ] || install_debian "$folder" "${packages[@]}"
install_profd "${1-}"
cp "$source/tests/systemd-inside.sh" "$folder/opt/"
start_systemd
wait_for_bus
inside bash /opt/systemd-inside.sh
