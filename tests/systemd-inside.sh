#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The commands that tests/systemd-chroot.sh runs under systemd.

set -euo pipefail
cd /tmp

fail() {
	echo "FAILED: $*" >&2
	journalctl --no-pager -q -u profd -u polkit -n 40 >&2
	exit 1
}

# field FILE NAME: prints the first number in FILE that has this name in JSON
field() {
	grep -o "\"$2\":[0-9]*" "$1" | head -1 | cut -d: -f2
}

echo "systemd: $(systemctl is-system-running --wait || true), kernel.perf_event_paranoid $(cat /proc/sys/kernel/perf_event_paranoid)"

# two programs of another user, which only that user may read; one is deleted while it runs
id somebody >/dev/null 2>&1 || useradd -m somebody
home=$(getent passwd somebody | cut -d: -f6)
rm -f "$home"/*.cap /etc/polkit-1/rules.d/10-test.rules
cat >spin.c <<'END'
int spin_here(void) { static volatile int i; for (;;) i++; return i; }
int main(void) { return spin_here(); }
END
gcc -g -O1 -o $home/spin spin.c
cp $home/spin $home/gone
chmod 0700 $home $home/spin $home/gone
chown somebody: $home/spin $home/gone
as_somebody=(setpriv --reuid=somebody --regid=somebody --init-groups)
"${as_somebody[@]}" $home/spin &
pid=$!
"${as_somebody[@]}" $home/gone &
sleep 0.5
rm $home/gone
trap 'kill $(jobs -p)' EXIT

systemctl is-active -q profd && fail "profd runs before anybody called it"

profctl record --bus system --json -a -d 2 -o system.cap >system.json || fail "record -a: $?"
[ "$(field system.json samples)" -gt 500 ] || fail "record -a: $(cat system.json)"
systemctl is-active -q profd || fail "the bus did not start profd.service"
[ "$(systemctl show -P NRestarts profd)" = 0 ] || fail "profd was started again"

profcapture report --limit 40 system.cap >report
grep -q spin_here report || fail "no name of a function of somebody's: $(cat report)"
profcapture info --verbose system.cap | grep "$home/gone" || fail "nothing of the program that is gone"
grep -q '\[kernel\]' report || fail "no kernel functions: $(cat report)"

profctl record --bus system --json -p $pid -d 1 -o pid.cap >pid.json || fail "record -p: $?"

# without a password, users may record their own processes only in a local session, unlike this one
if "${as_somebody[@]}" profctl record --bus system --json -p $pid -d 1 -o $home/own.cap 2>refused; then
	fail "somebody was not asked for a password"
fi
mkdir -p /etc/polkit-1/rules.d
cat >/etc/polkit-1/rules.d/10-test.rules <<'END'
polkit.addRule(function(action, subject) {
    if (action.id == "org.profd.record-own") return polkit.Result.YES;
});
END
sleep 1
"${as_somebody[@]}" profctl record --bus system --json -p $pid -d 1 -o $home/own.cap >own.json ||
	fail "record of an own process: $?"
[ "$(field own.json samples)" -gt 100 ] || fail "record of an own process: $(cat own.json)"
profctl doctor || fail "doctor: $?"
systemd-analyze security --no-pager profd | tail -1
systemctl stop profd || fail "stop"
[ "$(systemctl show -P Result profd)" = success ] || fail "profd ended with $(systemctl show -P Result profd)"
echo "systemd-chroot: all is well"
