# SPDX-License-Identifier: BSD-2-Clause-Patent
"""profd's queries to a real polkitd, and its reactions to yes, no, a password, and no answer at
all."""
import itertools
import os
import pwd
import signal

import pytest

import buses
from buses import DAEMON, NOBODY, POLKIT, PROFILER, ROOT, SYSTEM, GLib, pids, refusal, rules, variant
from recordings import until

AGENT = """
<node><interface name="org.freedesktop.PolicyKit1.AuthenticationAgent">
  <method name="BeginAuthentication">
    <arg type="s" direction="in"/><arg type="s" direction="in"/><arg type="s" direction="in"/>
    <arg type="a{ss}" direction="in"/><arg type="s" direction="in"/><arg type="a(sa{sv})" direction="in"/>
  </method>
  <method name="CancelAuthentication"><arg type="s" direction="in"/></method>
</interface></node>
"""
INTERACTION = "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"
# polkitd waits for the spawned process, and ends it after 10 seconds
WAITS = """polkit.addRule(function(action, subject) {
    if (action.id == "org.profd.record-own" && subject.user == "nobody")
        polkit.spawn(["/bin/sleep", "60"]);
    return subject.user == "daemon" ? polkit.Result.YES : polkit.Result.NO;
});"""


@pytest.fixture
def process(spawn):
    return lambda uid, *command: spawn(*command or ("sleep", 600), user=uid, group=uid, extra_groups=[])


class Agent:
    """A user's password agent: it keeps the prompts of polkit, and answers them."""

    def __init__(self, bus, uid=NOBODY):
        """Registers as the user's agent for the actions of this process. polkit lets root be the agent of
        other users."""
        self.bus, self.client, self.asked, self.cancelled = bus, bus.client(0), [], []
        node = buses.Gio.DBusNodeInfo.new_for_xml(AGENT)
        started = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
        subject = {"pid": variant("u", os.getpid()), "start-time": variant("t", started), "uid": variant("i", uid)}
        with self.client.current():
            self.client.bus.register_object("/agent", node.interfaces[0], self.on_call, None, None)
        self.client.call("/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority",
                         "RegisterAuthenticationAgent",
                         variant("((sa{sv})ss)", (("unix-process", subject), "C", "/agent")), name=POLKIT)

    def on_call(self, connection, sender, path, interface, method, arguments, invocation):
        if method == "BeginAuthentication":
            self.asked.append((arguments.unpack(), invocation))
        else:
            self.cancelled.append(arguments.unpack()[0])
            invocation.return_value(None)

    def message(self):
        return self.asked[0][0][1]

    def answer(self, right):
        (*_, cookie, _), invocation = self.asked.pop()
        if right:  # polkit's setuid helper does this after a correct password
            self.bus.client(0).call(
                "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority",
                "AuthenticationAgentResponse2",
                variant("(us(sa{sv}))", (0, cookie, ("unix-user", {"uid": variant("u", 0)}))), name=POLKIT,
            )
        invocation.return_value(None)


AUTHORITY = """
<node><interface name="org.freedesktop.PolicyKit1.Authority">
  <method name="CheckAuthorization">
    <arg type="(sa{sv})" direction="in"/><arg type="s" direction="in"/><arg type="a{ss}" direction="in"/>
    <arg type="u" direction="in"/><arg type="s" direction="in"/><arg type="(bba{ss})" direction="out"/>
  </method>
  <method name="CancelCheckAuthorization"><arg type="s" direction="in"/></method>
</interface></node>
"""
YES, NO, PASSWORD = (True, False), (False, False), (False, True)


class Polkit:
    """Replaces polkitd, which answers queries one after the other, so that a test decides when and
    in which order they are answered."""

    def __init__(self, bus):
        self.client, self.open, self.prompts, self.cancelled = bus.client(pwd.getpwnam("polkitd").pw_uid), [], [], []
        node = buses.Gio.DBusNodeInfo.new_for_xml(AUTHORITY)
        with self.client.current():
            self.client.bus.register_object("/org/freedesktop/PolicyKit1/Authority", node.interfaces[0], self.on_call, None, None)
        self.client.call("/org/freedesktop/DBus", buses.BUS, "RequestName", variant("(su)", (POLKIT, 4)), name=buses.BUS)

    def on_call(self, connection, sender, path, interface, method, arguments, invocation):
        if method == "CancelCheckAuthorization":
            self.cancelled.append(arguments.unpack()[0])
            invocation.return_value(None)
            return
        _, action, _, flags, _ = arguments.unpack()
        self.open.append((action.removeprefix("org.profd."), invocation))
        if flags:
            self.prompts.append(self.open[-1][0])

    def wait(self, *actions):
        """Waits until exactly these queries are open."""
        self.client.spin(lambda: len(self.open) >= len(actions))
        self.client.sleep(0.05)
        assert sorted(action for action, _ in self.open) == sorted(actions)

    def answer(self, action, result):
        index = [name for name, _ in self.open].index(action)
        self.open.pop(index)[1].return_value(variant("((bba{ss}))", ((*result, {}),)))
        self.client.bus.flush_sync()


@pytest.fixture
def polkit(bus):
    try:
        pwd.getpwnam("polkitd")
    except KeyError:
        pytest.skip("there is no user polkitd, whom the bus would let have polkit's name")
    bus.start(polkit=False)
    return Polkit(bus)


# ---- all at once


OWN = ("record-own", "record-others", "kernel-addresses")


@pytest.mark.parametrize("order", itertools.permutations(OWN))
def test_answers_in_any_order(bus, polkit, file, process, order):
    """All actions are queried before the first answer, and there is no session before the last
    answer."""
    client = bus.client(NOBODY)
    pending = client.begin_create(pids(process(NOBODY).pid), file)
    polkit.wait(*OWN)
    for action in order:
        client.get(ROOT, "Version", PROFILER)  # returns after profd has read polkit's last answer
        while client.context.iteration(False):
            pass
        assert not pending.done
        polkit.answer(action, YES)
    client.spin(lambda: pending.done)
    assert pending.error is None and client.get(pending.reply[0], "Options")["kernel"] is True
    assert polkit.prompts == []


@pytest.mark.parametrize("refused", OWN)
def test_one_is_denied(bus, polkit, file, process, refused):
    client = bus.client(NOBODY)
    options = {**pids(process(NOBODY).pid), "events": variant("as", ["cpu-clock"])}
    pending = client.begin_create(options, file, interactive=True)
    polkit.wait(*OWN)
    for action in OWN:
        polkit.answer(action, NO if action == refused else YES)
    client.spin(lambda: pending.done)
    if refused == "record-own":
        assert pending.error[0] == "NotAuthorized" and "org.profd.record-own" in pending.error[1]
        assert client.objects() == {}
    else:
        assert client.get(pending.reply[0], "Options")["kernel"] is (refused != "kernel-addresses")
    assert polkit.prompts == []


def test_denied_while_others_hang(bus, polkit, file, process):
    """After a denial, profd cancels the other queries, and does not wait for them."""
    client = bus.client(NOBODY)
    pending = client.begin_create(pids(process(NOBODY).pid), file)
    polkit.wait(*OWN)
    polkit.answer("record-own", NO)
    client.spin(lambda: pending.done)
    assert len(polkit.open) == 2
    assert pending.error[0] == "NotAuthorized" and "org.profd.record-own" in pending.error[1]
    polkit.client.spin(lambda: len(polkit.cancelled) == 2)


def test_one_hangs(bus, polkit, file, process):
    """A query without an answer within ten seconds counts as denied."""
    client = bus.client(NOBODY)
    pending = client.begin_create(pids(process(NOBODY).pid), file)
    polkit.wait(*OWN)
    polkit.answer("record-own", YES)
    polkit.answer("record-others", YES)
    refused = client.begin_create(pids(process(NOBODY).pid), file)
    polkit.wait("kernel-addresses", *OWN)
    assert not pending.done
    client.spin(lambda: pending.done and refused.done, 60)
    assert client.get(pending.reply[0], "Options")["kernel"] is False
    assert refused.error[0] == "NotAuthorized" and "in time" in refused.error[1]
    polkit.client.spin(lambda: len(polkit.cancelled) == 4)


def test_caller_leaves_between_answers(bus, polkit, file, process):
    """Invariant 5 of authority.c: if the caller leaves, its grants are void, and its queries no
    longer count."""
    client, other, root = bus.client(NOBODY), bus.client(NOBODY), bus.client(0)
    target = process(NOBODY)
    client.begin_create(pids(target.pid), file)
    polkit.wait(*OWN)
    polkit.answer("record-own", YES)
    polkit.answer("kernel-addresses", YES)
    client.close()
    polkit.client.spin(lambda: len(polkit.cancelled) == 1)
    polkit.answer("record-others", YES)
    assert root.objects() == {}
    pending = [other.begin_create(pids(target.pid), file) for _ in range(8)]
    polkit.wait(*OWN * 8)
    assert not any(p.done for p in pending)
    assert refusal(bus.client(NOBODY).create, pids(target.pid), file)[0] == "LimitExceeded"


@pytest.mark.parametrize("system", [YES, NO])
def test_no_prompt_about_the_kernel_of_a_session_that_is_refused(bus, polkit, file, system):
    client = bus.client(NOBODY)
    pending = client.begin_create({**SYSTEM, "kernel": variant("b", True)}, file, interactive=True)
    polkit.wait("record-system", "kernel-addresses")
    polkit.answer("kernel-addresses", PASSWORD)
    assert polkit.prompts == []
    polkit.answer("record-system", system)
    if system == YES:
        polkit.wait("kernel-addresses")
        assert polkit.prompts == ["kernel-addresses"] and not pending.done
        polkit.answer("kernel-addresses", YES)
    client.spin(lambda: pending.done)
    assert (pending.error is None) == (system == YES)
    assert polkit.prompts == ["kernel-addresses"][:system == YES]


def test_what_a_password_is_asked_for_first(bus, polkit, file, process):
    """After a password, the other actions are queried again."""
    client = bus.client(NOBODY)
    pending = client.begin_create(pids(process(NOBODY).pid), file, interactive=True)
    polkit.wait(*OWN)
    polkit.answer("kernel-addresses", YES)
    polkit.answer("record-others", YES)
    polkit.answer("record-own", PASSWORD)
    polkit.wait("record-own")
    assert polkit.prompts == ["record-own"]
    polkit.answer("record-own", YES)
    polkit.wait("record-others", "kernel-addresses")
    polkit.answer("record-others", NO)
    polkit.answer("kernel-addresses", NO)
    client.spin(lambda: pending.done)
    assert client.get(pending.reply[0], "Options")["kernel"] is False
    assert polkit.prompts == ["record-own"]


# ---- the end of profd: a leak sanitizer would see unanswered queries


def test_end_with_open_questions(bus, polkit, file, process):
    """Invariant 7 of authority.c holds for every method that queries, also after a password."""
    client, other = bus.client(NOBODY), bus.client(DAEMON)
    made = other.begin_create(pids(process(DAEMON).pid), file)
    polkit.wait(*OWN)
    for action in OWN:
        polkit.answer(action, YES)
    other.spin(lambda: made.done)
    other.begin_create(pids(process(DAEMON).pid), file, interactive=True)
    polkit.wait(*OWN)
    for action in reversed(OWN):
        polkit.answer(action, PASSWORD if action == "record-own" else NO)
    polkit.wait("record-own")
    polkit.answer("record-own", YES)  # answers the prompt; then the other actions are queried again
    client.begin_create(pids(process(NOBODY).pid), file)
    client.begin(ROOT, PROFILER, "GetCapabilities")
    client.begin(ROOT, buses.MANAGER, "GetManagedObjects")
    client.begin(made.reply[0], buses.SESSION, "Start")
    polkit.wait(*OWN[1:], *OWN, "record-system", "record-others", "kernel-addresses", "manage-others", "manage-others")
    assert bus.end(bus.profd) == 0
    assert os.fstat(file).st_size == 0


@pytest.mark.parametrize("how", ["caller stays", "caller leaves", "polkit hangs"])
def test_end_with_open_prompt(bus, file, process, how):
    bus.start(rules(ask={"record-own": ["nobody"]}))
    client, agent = bus.client(NOBODY), Agent(bus)
    client.begin_create(pids(process(NOBODY).pid), file, interactive=True)
    agent.client.spin(lambda: agent.asked)
    if how == "caller leaves":
        client.close()
    elif how == "polkit hangs":
        os.kill(bus.polkit.pid, signal.SIGSTOP)
    assert bus.end(bus.profd) == 0


def test_end_before_the_bus_says_who_called(bus):
    bus.start(polkit=False)
    client = bus.client(NOBODY)
    os.kill(bus.profd.pid, signal.SIGSTOP)
    for _ in range(4):
        client.begin(ROOT, PROFILER, "GetCapabilities")
    for _ in range(2):  # when the bus has answered these, it has passed the earlier calls on
        client.call("/org/freedesktop/DBus", buses.BUS, "GetId", name=buses.BUS)
    os.kill(bus.profd.pid, signal.SIGTERM)
    assert bus.end(bus.profd) == 0


# ---- which action


@pytest.mark.parametrize("allowed, own, system, others", [
    ([], "NotAuthorized", "NotAuthorized", "NotAuthorized"),
    (["record-own"], None, "NotAuthorized", "NotAuthorized"),
    (["record-others"], "NotAuthorized", "NotAuthorized", None),
    (["record-system"], "NotAuthorized", None, "NotAuthorized"),
    (["kernel-addresses", "manage-others"], "NotAuthorized", "NotAuthorized", "NotAuthorized"),
    (["record-own", "record-others", "record-system"], None, None, None),
])
def test_each_action_is_for_its_sessions(bus, file, process, allowed, own, system, others):
    bus.start(rules(allow={action: ["nobody"] for action in allowed}))
    client = bus.client(NOBODY)
    mine, foreign = process(NOBODY), process(DAEMON)
    for options, error in ((pids(mine.pid), own), (SYSTEM, system), (pids(foreign.pid), others),
                           (pids(mine.pid, foreign.pid), others), (pids(1), others)):
        if error:
            assert refusal(client.create, options, file)[0] == error
            assert client.objects() == {}
        else:
            client.session(client.create(options, file), "Close")


def test_without_a_rule_nothing_is_allowed(bus, file, process):
    """Without a rule, our policy's defaults apply; outside of active local sessions they require a
    password for each action."""
    bus.start()
    client = bus.client(NOBODY)
    for options, action in ((pids(process(NOBODY).pid), "own"), (pids(process(DAEMON).pid), "others"), (SYSTEM, "system")):
        name, message = refusal(client.create, options, file)
        assert name == INTERACTION and f"org.profd.record-{action}" in message
    root = bus.client(0)
    path = root.create(SYSTEM, file)
    assert client.objects() == {}
    assert refusal(client.session, path, "Start")[0] == INTERACTION
    assert bus.engines() == []


def test_refusals_are_not_logged(bus, file, process, capfd):
    """Refusals are reported to callers only, so that repeated calls do not fill the journal."""
    bus.start(rules())
    client = bus.client(NOBODY)
    capfd.readouterr()
    target = process(NOBODY)
    for _ in range(20):
        assert refusal(client.create, pids(target.pid), file)[0] == "NotAuthorized"
    client.get(ROOT, "Version", PROFILER)
    assert capfd.readouterr().err == ""


def test_root_is_asked_about_too(bus, file):
    """profd queries polkit for a root caller, too; the permission comes from polkit."""
    bus.start(rules())
    client = bus.client(0)
    client.session(client.create(SYSTEM, file), "Close")
    bus.stop_polkit()
    name, message = refusal(client.create, SYSTEM, file)
    assert name == "NotAuthorized" and "polkit cannot be asked" in message


@pytest.mark.parametrize("command", [
    ["setpriv", "--reuid=65534", "--", "sleep", "600"],  # root started it: the saved uid is nobody's too, and the process is dumpable
    ["setpriv", "--euid=65534", "--", "sleep", "600"],
    ["setpriv", "--ruid=65534", "--", "sleep", "600"],
])
def test_own_is_own_in_every_respect(bus, file, spawn, command, require):
    require("setpriv")
    bus.start(rules(allow={"record-own": ["nobody"]}))
    client, target = bus.client(NOBODY), spawn(*command)
    until(lambda: open(f"/proc/{target.pid}/comm").read() == "sleep\n")
    if command[1] == "--reuid=65534":
        client.create(pids(target.pid), file)
    else:
        assert refusal(client.create, pids(target.pid), file)[0] == "NotAuthorized"


def test_not_dumpable_is_not_own(bus, file, compile_c, process):
    program = compile_c("secret", """#include <sys/prctl.h>
#include <unistd.h>
int main(void) { prctl(PR_SET_DUMPABLE, 0); for (;;) pause(); }""")
    program = buses.Path(buses.shutil.copy(program, bus.folder))
    bus.start(rules(allow={"record-own": ["nobody"]}))
    target = process(NOBODY, program)
    until(lambda: os.stat(f"/proc/{target.pid}/status").st_uid == 0)
    assert refusal(bus.client(NOBODY).create, pids(target.pid), file)[0] == "NotAuthorized"


@pytest.mark.parametrize("event, own", [
    ("cpu-clock", True), ("page-faults", True), ("cpu-clock:u", True), ("r1a8", False), ("sched:sched_switch", False),
    ("software/config=0/", False),
])
def test_events_of_own_processes(bus, file, process, event, own):
    """With record-own alone, only events with fixed names are allowed, because profd opens events
    with its own rights."""
    bus.start(rules(allow={"record-own": ["nobody"], "record-others": ["daemon"]}))
    options = {"events": variant("as", [event])}
    nobody, daemon = bus.client(NOBODY), bus.client(DAEMON)
    mine = {**pids(process(NOBODY).pid), **options}
    daemon.session(daemon.create(mine, file), "Close")
    if own:
        nobody.create(mine, file)
    else:
        name, message = refusal(nobody.create, mine, file)
        assert name == "NotAuthorized" and event in message


@pytest.mark.parametrize("own", [True, False])
def test_who_may_not_have_an_event_is_not_told_whether_it_exists(bus, file, process, own):
    bus.start(rules(allow={"record-own": ["nobody"] if own else [], "record-system": ["daemon"]}))
    nobody, target = bus.client(NOBODY), process(NOBODY)

    def told(event):
        wanted = pids(target.pid) if own else SYSTEM
        name, message = refusal(nobody.create, {**wanted, "events": variant("as", [event])}, file)
        return name, message.replace(event, "EVENT")

    for there, absent in (("sched:sched_switch", "sched:sched_snitch"), ("software/config=0/", "hardware/config=0/")):
        assert told(there) == told(absent) and told(there)[0] == "NotAuthorized"
    name, message = refusal(bus.client(DAEMON).create, {**SYSTEM, "events": variant("as", ["sched:sched_swich"])}, file)
    assert name == "InvalidOption" and "did you mean" in message


# ---- the kernel's addresses


@pytest.mark.parametrize("allowed", [True, False])
def test_kernel_asked_for(bus, file, process, allowed):
    bus.start(rules(allow={"record-own": ["nobody"], "kernel-addresses": ["nobody"] if allowed else []}))
    client = bus.client(NOBODY)
    options = {**pids(process(NOBODY).pid), "kernel": variant("b", True)}
    if allowed:
        assert client.get(client.create(options, file), "Options")["kernel"] is True
    else:
        name, message = refusal(client.create, options, file)
        assert name == "NotAuthorized" and "org.profd.kernel-addresses" in message


def test_kernel_not_spoken_of(bus, file, capture, profcapture, process):
    """If a client does not mention the kernel and may not see it, no function or address of the kernel
    is in the capture."""
    bus.start(rules(allow={"record-system": ["nobody"]}, ask={"kernel-addresses": ["nobody"]}))
    client = bus.client(NOBODY)
    path = client.create({**SYSTEM, "events": variant("as", ["cpu-clock", "context-switches"])}, file, interactive=True)
    assert client.get(path, "Options")["kernel"] is False
    process(NOBODY, "sh", "-c", "while :; do /bin/true; done")
    client.session(path, "Start")
    client.wait("Warning", path, first="no-kernel")  # on a busy machine a warning about processes may come before it
    client.wait_samples(path, 100)
    client.session(path, "Stop")
    assert client.wait("Finished", path)[0]

    def rows(table):
        return profcapture.json("dump", capture, "--table", table, "--limit", "0")["data"]["rows"]

    images = {row["id"]: row for row in rows("image")}
    kernel = {number for number, row in images.items() if row["kind"] in ("kernel", "module", "bpf")}
    assert [row for row in rows("frame") if row["image"] in kernel] == []
    assert [row for row in rows("symbol") if row["image"] in kernel] == []
    assert [row for row in rows("mapping") if row["image"] in kernel or int(str(row["start"]), 0) >= 1 << 63] == []


# ---- passwords


def test_challenge_without_interaction(bus, file, process):
    bus.start(rules(ask={"record-own": ["nobody"]}))
    client, target = bus.client(NOBODY), process(NOBODY)
    name, message = refusal(client.create, pids(target.pid), file)
    assert name == INTERACTION and "org.profd.record-own" in message
    # interaction is allowed, but there is no agent
    assert refusal(lambda: client.create(pids(target.pid), file, interactive=True))[0] == INTERACTION


@pytest.mark.parametrize("right", [True, False])
def test_password(bus, file, process, right):
    bus.start(rules(ask={"record-others": ["nobody"]}))
    client = bus.client(NOBODY)
    agent = Agent(bus)
    target = process(DAEMON)
    pending = client.begin_create(pids(target.pid), file, interactive=True)
    agent.client.spin(lambda: agent.asked)
    message = agent.message()
    assert f"sleep ({target.pid})" in message and f"process {os.getpid()} of user {NOBODY}" in message
    assert not pending.done
    agent.answer(right)
    client.spin(lambda: pending.done)
    if right:
        assert pending.error is None and pending.reply[0] in client.objects()
    else:
        assert pending.error[0] in ("NotAuthorized", INTERACTION)


def test_prompt_says_nothing_that_a_name_could_mean(bus, file, spawn):
    """A prompt shows the process's name with "?" for special characters, because a name could contain
    $(x) or <b>."""
    bus.start(rules(ask={"record-own": ["nobody"]}))
    client = bus.client(NOBODY)
    agent = Agent(bus)
    script = "import sys; open('/proc/self/comm', 'w').write('<b>$(pid)&\\n'); sys.stdin.read()"
    target = spawn("/usr/bin/python3", "-c", script, stdin=buses.subprocess.PIPE, user=NOBODY, group=NOBODY, extra_groups=[])
    until(lambda: "<b>" in open(f"/proc/{target.pid}/comm").read())
    client.begin_create(pids(target.pid), file, interactive=True)
    agent.client.spin(lambda: agent.asked)
    assert f"?b???pid?? ({target.pid})" in agent.message()


def test_prompt_goes_with_the_caller(bus, file, process):
    """Invariant 6 of authority.c: when the caller leaves, polkit removes the prompt from the user's
    screen."""
    bus.start(rules(ask={"record-others": ["nobody"]}))
    client, agent = bus.client(NOBODY), Agent(bus)
    client.begin_create(pids(process(DAEMON).pid), file, interactive=True)
    agent.client.spin(lambda: agent.asked)
    client.close()
    agent.client.spin(lambda: agent.cancelled)
    assert bus.client(0).objects() == {}


THREAD = "import threading; e = threading.Event(); threading.Thread(target=e.wait).start()"


def thread_of(process):
    return max(map(int, os.listdir(f"/proc/{process.pid}/task")))


def test_prompts_of_a_user_are_bounded(bus, file, process):
    """Invariant 4 of authority.c: a user's open prompts are limited; other users are not
    affected."""
    bus.start(rules(ask={"record-others": ["nobody", "daemon"]}))
    clients, agent = [bus.client(NOBODY) for _ in range(3)], Agent(bus)
    target = process(2, "/usr/bin/python3", "-c", THREAD)
    until(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == 2)
    pending = [client.begin_create(pids(target.pid), file, interactive=True) for client in clients for _ in range(4)]

    def refused():
        for client in clients:
            client.sleep(0.02)
        return sum(p.done for p in pending) >= 4

    until(refused)
    agent.client.spin(lambda: len(agent.asked) == 8)
    assert [p.error[0] for p in pending if p.done] == ["LimitExceeded"] * 4
    # queries without a prompt are still answered
    assert refusal(clients[0].create, pids(target.pid), file)[0] == INTERACTION
    assert refusal(bus.client(DAEMON).create, pids(thread_of(target)), file)[0] == "Failed"
    assert refusal(bus.client(DAEMON).create, pids(target.pid), file)[0] == INTERACTION


# ---- a pid that becomes another process's


def test_target_that_ended_before_start(bus, file, process):
    bus.start(rules(allow={"record-own": ["nobody"]}))
    client, target = bus.client(NOBODY), process(NOBODY)
    path = client.create(pids(target.pid), file)
    target.kill()
    target.wait()
    assert refusal(client.session, path, "Start")[0] == "Failed"
    assert client.get(path, "State") == "failed"


@pytest.mark.alone  # a process of another case might have the pid for the whole time
@pytest.mark.parametrize("action, uid", [("record-own", NOBODY), ("record-others", DAEMON)])
def test_pid_of_another_process(bus, file, process, action, uid):
    """A process of a third user gets the target's pid between CreateSession and Start."""
    bus.start(rules(allow={action: ["nobody"]}))
    client, target = bus.client(NOBODY), process(uid)
    path = client.create(pids(target.pid), file)
    target.kill()
    target.wait()
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:  # tools for checkpoints choose a pid in this way
        for _ in range(300):
            last.seek(0)
            last.write(str(target.pid - 1))
            last.flush()
            new = process(2)
            if new.pid == target.pid:
                break
            new.kill()
        else:
            pytest.skip("no process got the number")
    assert refusal(client.session, path, "Start")[0] in ("Failed", "NotAuthorized")
    until(lambda: bus.engines() == [])


def test_target_that_stops_being_own(bus, file, spawn):
    bus.start(rules(allow={"record-own": ["nobody"]}))
    client = bus.client(NOBODY)
    script = """import ctypes, os, sys
os.setresuid(65534, 65534, 65534)
dumpable = lambda yes: ctypes.CDLL(None).prctl(4, yes)
dumpable(1)
print(flush=True)
sys.stdin.read(1)
dumpable(0)
sys.stdin.read(1)"""
    target = spawn("/usr/bin/python3", "-c", script, stdin=buses.subprocess.PIPE, stdout=buses.subprocess.PIPE)
    target.stdout.readline()
    path = client.create(pids(target.pid), file)
    target.stdin.write(b"x")
    target.stdin.flush()
    until(lambda: os.stat(f"/proc/{target.pid}/status").st_uid == 0)
    assert refusal(client.session, path, "Start")[0] == "NotAuthorized"


# ---- a missing polkit


def test_without_polkit_nothing_is_recorded(bus, file):
    """Without polkit, everything is denied: not even root gets a session."""
    bus.start(polkit=False)
    for uid in (0, NOBODY):
        client = bus.client(uid)
        name, message = refusal(client.create, SYSTEM, file)
        assert name == "NotAuthorized" and "polkit" in message
        assert refusal(client.create, pids(os.getpid()), file)[0] == "NotAuthorized"
        assert client.objects() == {}
        capabilities, = client.call(ROOT, PROFILER, "GetCapabilities")
        assert not capabilities["system"] and not capabilities["kernel"] and not capabilities["tracepoints"]
        assert "record-others" in capabilities["tracepoints-reason"]
    assert bus.engines() == []


def test_polkit_comes_and_goes(bus, file, process):
    bus.start(rules(allow={"record-own": ["nobody"]}))
    client, target = bus.client(NOBODY), process(NOBODY)
    for _ in range(2):
        path = client.create(pids(target.pid), file)
        bus.stop_polkit()
        assert refusal(client.create, pids(target.pid), file)[0] == "NotAuthorized"
        assert client.get(path, "State") == "created"  # existing sessions are not closed
        client.session(path, "Close")
        bus.start_polkit(rules(allow={"record-own": ["nobody"]}))


def test_polkit_that_hangs(bus, file, process):
    """A hanging polkit delays only callers that need it; test_one_hangs checks for how long."""
    bus.start(rules(allow={"record-own": ["nobody", "daemon"]}))
    client, other = bus.client(NOBODY), bus.client(DAEMON)
    target = process(NOBODY)
    path = client.create(pids(target.pid), file)
    client.session(path, "Start")
    os.kill(bus.polkit.pid, signal.SIGSTOP)
    pending = client.begin_create(pids(target.pid), os.memfd_create("capture"))
    assert client.get(path, "State") == "running"
    assert other.get(ROOT, "Version", PROFILER)
    assert client.objects()
    client.session(path, "Stop")
    client.wait("Finished", path)
    assert not pending.done
    os.kill(bus.polkit.pid, signal.SIGCONT)
    client.spin(lambda: pending.done)
    assert pending.error is None and pending.reply[0] in client.objects()


def test_rule_that_waits(bus, file, process):
    """polkitd ends a waiting rule after a while; until then only callers that need a query have to
    wait."""
    bus.start(WAITS)
    client = bus.client(NOBODY)
    assert refusal(client.create, pids(process(NOBODY).pid), file)[0] == "NotAuthorized"
    daemon = bus.client(DAEMON)

    def served():
        try:
            daemon.create(pids(process(DAEMON).pid), file)
        except GLib.Error:
            return False
        return True

    until(served, 100)


def test_caller_who_leaves_while_polkit_hangs(bus, file, process):
    """Queries of a caller that has left no longer count, and a late permission creates no session."""
    bus.start(rules(allow={"record-own": ["nobody"]}))
    root, client, other = bus.client(0), bus.client(NOBODY), bus.client(NOBODY)
    target = process(NOBODY, "/usr/bin/python3", "-c", THREAD)
    until(lambda: len(os.listdir(f"/proc/{target.pid}/task")) == 2)
    os.kill(bus.polkit.pid, signal.SIGSTOP)
    questions = []

    def is_full():
        """Returns whether a call is refused because eight queries are open, and not because a process's
        owner is unknown."""
        questions.append(client.begin_create(pids(target.pid), file, interactive=True))
        client.sleep(0.01)
        return any(one.done and "wait for polkit" in one.error[1] for one in questions)

    until(is_full)
    assert refusal(other.create, pids(target.pid), file)[0] == "LimitExceeded"
    # profd does no work for a query that it cannot make: it does not even check whether the pid is
    # a thread's
    assert refusal(other.create, pids(thread_of(target)), file)[0] == "LimitExceeded"
    client.close()

    def asked():
        """Returns whether a call is no longer refused. Calls are refused until profd has noticed that
        `client` is gone."""
        pending = other.begin_create(pids(target.pid), file)
        other.get(ROOT, "Version", PROFILER)
        while other.context.iteration(False):
            pass
        return not pending.done

    until(asked)
    other.close()
    os.kill(bus.polkit.pid, signal.SIGCONT)
    # polkit answers the queries of these calls after all earlier ones
    assert root.objects() == {} and root.objects() == {}
    assert root.get(ROOT, "Version", PROFILER)
