#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Shows that a new machine needs nothing but this repository: clones it into a Debian that has only
# its essential packages, and runs a newcomer's commands there.
#
#     tests/bare-chroot.sh [-s SUITE] [-m MIRROR] [-k FOLDER] [COMMAND…]      default: ./dev demo && ./dev test
#
# -s installs another release than bookworm, -m a release of Ubuntu from MIRROR. -k keeps the
# chroot in FOLDER, and uses it again if it exists. Needs root, mmdebstrap, ubuntu-keyring for
# Ubuntu, and a Debian host whose apt is updated: proxy and name resolution are the host's.
# Uncommitted changes are not tested.

set -euo pipefail

source=$(dirname "$(dirname "$(readlink -f "$0")")")
source "$source/tests/debian-chroot.bash"
folder='' keep=no

while getopts s:m:k: option; do
	case $option in
	s) suite=$OPTARG ;;
	m) mirror=$OPTARG ;;
	k) folder=$(readlink -f -- "$OPTARG") keep=yes ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))
command=${*:-./dev demo && ./dev test}

clone() {
	rm -rf "$folder/src"
	git -c safe.directory='*' clone -q --no-hardlinks "$source" "$folder/src"
	cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
}

# The chroot has /proc, /sys and /dev of the host, because profd profiles the host's processes and
# kernel. The mounts belong to a mount namespace, and end with it.
run_inside() {
	unshare --mount --propagation private bash -euc '
		for name in proc sys dev; do mount --rbind "/$name" "$1/$name"; done
		exec chroot "$1" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			TERM="${TERM:-dumb}" bash -ec "cd /src; $2"' bare-chroot "$folder" "$command"
}

cleanup() {
	[ "$keep" = yes ] || rm -rf --one-file-system "$folder"
}

[ "$(id -u)" = 0 ] || { echo "bare-chroot: needs root" >&2; exit 1; }
[ -n "$folder" ] || folder=$(mktemp -d)
trap cleanup EXIT
[ -e "$folder/etc/debian_version" ] || install_debian "$folder"
clone
run_inside
