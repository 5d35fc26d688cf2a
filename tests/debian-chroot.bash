# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# Debian in a folder, for the scripts beside it that source this: sources and proxy are the host's.

suite=bookworm

# "deb URI SUITE COMPONENT" of each of the host's sources that belong to the suite.
host_sources() {
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		sort -u | while read -r uri release component; do
		case "$release" in
		"$suite" | "$suite-updates" | "$suite-security") ;;
		*) continue ;;
		esac
		echo "deb $uri $release $component"
	done
}

host_proxy() {
	apt-config dump | grep -Ei '^Acquire::(http|https)::([^ ]*::)?proxy' || true
}

# install_debian FOLDER [PACKAGE…]: the essential packages and these.
install_debian() {
	local folder=$1 sources proxy include
	shift
	include=$(IFS=,; echo "$*")
	sources=$(host_sources)
	[ -n "$sources" ] || {
		echo "${0##*/}: this host's apt knows no source of $suite" >&2
		return 1
	}
	proxy=$(mktemp)
	host_proxy >"$proxy"
	mmdebstrap --variant=minbase ${include:+--include="$include"} --aptopt="$proxy" "$suite" "$folder" - <<<"$sources" || {
		rm -f "$proxy"
		return 1
	}
	mv "$proxy" "$folder/etc/apt/apt.conf.d/99proxy"
	chmod 0644 "$folder/etc/apt/apt.conf.d/99proxy"
}
