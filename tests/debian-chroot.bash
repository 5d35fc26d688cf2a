# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# Installs Debian into a folder, for the scripts of this folder that source this file. Mirrors and
# proxy are the host's.

suite=bookworm
mirror=

# Prints "deb URI SUITE COMPONENTS" for the suite: from $mirror, a mirror of Ubuntu, if that is set;
# else from each of the host's mirrors, because they have Debian's other releases, too.
suite_sources() {
	local host
	if [ -n "$mirror" ]; then
		printf 'deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] %s %s main universe\n' \
			"$mirror" "$suite" "$mirror" "$suite-updates"
		return
	fi
	host=$(. /etc/os-release && echo "$VERSION_CODENAME")
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		sort -u | while read -r uri release component; do
		case "$release" in
		"$host" | "$host-updates" | "$host-security") echo "deb $uri $suite${release#"$host"} $component" ;;
		esac
	done
}

host_proxy() {
	apt-config dump | grep -Ei '^Acquire::(http|https)::([^ ]*::)?proxy' || true
}

# install_debian FOLDER [PACKAGE…]: installs the essential packages and PACKAGE….
install_debian() {
	local folder=$1 sources proxy include
	shift
	include=$(IFS=,; echo "apt,$*") # Ubuntu does not count apt among the essential ones
	include=${include%,}
	sources=$(suite_sources)
	[ -n "$sources" ] || {
		echo "${0##*/}: apt on this host has no source to take $suite from" >&2
		return 1
	}
	proxy=$(mktemp)
	host_proxy >"$proxy"
	mmdebstrap --variant=minbase --include="$include" --aptopt="$proxy" "$suite" "$folder" - <<<"$sources" || {
		rm -f "$proxy"
		return 1
	}
	mv "$proxy" "$folder/etc/apt/apt.conf.d/99proxy"
	chmod 0644 "$folder/etc/apt/apt.conf.d/99proxy"
}
