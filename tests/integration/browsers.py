# SPDX-License-Identifier: BSD-2-Clause-Patent
"""Opens pages in Chromium and Firefox, performs steps in the pages, and returns the results:

    with chromium(folder) as drive:
        (title,) = drive(page, {"open": "tab=flame"}, {"text": "#title"})

drive_page.mjs lists the steps. Each call of drive() opens a new tab; the browser starts once.
Chromium is driven by playwright. Firefox is driven by Marionette, which is part of Firefox: JSON
messages over a socket, each preceded by its length and a colon.
"""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

NODE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "profd-tests/node_modules"
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")

KEYS = {"Escape": "\ue00c", "Enter": "\ue007", "Control": "\ue009", "Shift": "\ue008", "ArrowLeft": "\ue012", "ArrowUp": "\ue013",
        "ArrowRight": "\ue014", "ArrowDown": "\ue015"}
PREFERENCES = {"marionette.port": 0, "app.update.enabled": False, "browser.shell.checkDefaultBrowser": False, "network.captive-portal-service.enabled": False,
               "network.connectivity-service.enabled": False, "datareporting.policy.dataSubmissionEnabled": False, "ui.prefersReducedMotion": 1,
               "dom.ipc.processPrelaunch.enabled": False, "fission.autostart": False, "browser.newtab.preload": False, "browser.newtabpage.enabled": False,
               "browser.startup.page": 0}  # the last five prevent processes that no test uses
# Returns the errors of the page's scripts, without those of the browser's own scripts.
ERRORS = """return Services.console.getMessageArray().filter((m) => m instanceof Ci.nsIScriptError && !(m.flags & 4) && m.sourceName.startsWith('file:'))
	.map((m) => m.toString());"""
SETTLE = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));"


class Marionette:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.rest, self.number = b"", 0
        self.receive()

    def receive(self):
        while b":" not in self.rest or len(self.rest) < self.rest.index(b":") + 1 + int(self.rest[:self.rest.index(b":")]):
            part = self.socket.recv(1 << 16)
            if not part:
                raise ConnectionError("Firefox ended")
            self.rest += part
        start = self.rest.index(b":") + 1
        end = start + int(self.rest[:start - 1])
        message, self.rest = json.loads(self.rest[start:end]), self.rest[end:]
        return message

    def call(self, command, **parameters):
        self.number += 1
        message = json.dumps([0, self.number, command, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(message), message))
        _, number, error, result = self.receive()
        assert number == self.number and not error, (command, error)
        return result.get("value", result) if isinstance(result, dict) else result

    def run(self, script, *args):
        return self.call("WebDriver:ExecuteScript", script=script, args=list(args))

    def controls(self):
        """Returns [role, name, True] of each control, as assistive technology sees it. True: the control
        can have the focus."""
        elements = self.run("return [...document.querySelectorAll('button, a, input, [tabindex]')].filter((element) => element.checkVisibility());")
        of = [[self.call(f"WebDriver:GetComputed{what}", id=next(iter(element.values()))) for what in ("Role", "Label")] for element in elements]
        return [[role, name, True] for role, name in of]

    def settle(self):
        self.call("WebDriver:ExecuteAsyncScript", script=SETTLE, args=[])

    def keys(self, *strokes):
        self.call("WebDriver:PerformActions", actions=[{"type": "key", "id": "keys", "actions": [{"type": kind, "value": KEYS.get(key, key)} for kind, key in strokes]}])

    def pointer(self, selector, y, *actions):
        """Performs mouse actions on an element. Each action is (x, kind); kind None only moves the mouse.
        x and y: from the element's left and top edge."""
        left, top = self.run("const box = document.querySelector(arguments[0]).getBoundingClientRect(); return [box.x, box.y];", selector)
        steps = []
        for x, kind in actions:
            steps.append({"type": "pointerMove", "x": round(left + x), "y": round(top + y), "duration": 0})
            if kind:
                steps.append({"type": kind, "button": 0})
        self.call("WebDriver:PerformActions", actions=[{"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps}])

    def open(self, url):
        if self.call("WebDriver:GetCurrentURL") != "about:blank":
            self.call("WebDriver:Navigate", url="about:blank")
        self.call("WebDriver:Navigate", url=url)
        deadline = time.monotonic() + 60
        while not self.run("const d = document.documentElement.dataset; return !!(d.ready || d.failed);"):
            assert time.monotonic() < deadline, "the page does not become ready"
            time.sleep(0.05)

    def drag(self, selector, x0, x1, y, key=None):
        if key:
            self.keys(("keyDown", key))
        self.pointer(selector, y, (x0, "pointerDown"), ((x0 + x1) / 2, None), (x1, "pointerUp"))
        if key:
            self.keys(("keyUp", key))


def checked(answer, page):
    """Returns the results of the steps, after checking that the page had no errors and loaded
    nothing but itself."""
    assert answer["errors"] == []
    assert {url.split("#")[0] for url in answer["requests"]} <= {page.as_uri(), "about:blank"}
    return answer["results"]


@contextlib.contextmanager
def chromium(folder):
    if not (CHROMIUM and shutil.which("node") and (NODE / "playwright-core").is_dir()):
        pytest.skip("Chromium and playwright-core are not installed: ./dev setup --peers")
    command = ["node", Path(__file__).with_name("drive_page.mjs"), CHROMIUM, NODE / "playwright-core"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, text=True, env={**os.environ, "HOME": str(folder)}) as process:

        def drive(page, *steps, size=(1280, 800)):
            print(json.dumps({"page": page.as_uri(), "size": size, "steps": steps}), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline() or '{"failed": "the browser ended"}')
            assert "failed" not in answer, answer["failed"]
            return checked(answer, page)

        try:
            yield drive
        finally:
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def firefox(folder):
    if not FIREFOX:
        pytest.skip("Firefox is not installed: ./dev setup --peers")
    profile = folder / "firefox"
    profile.mkdir()
    (profile / "user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in PREFERENCES.items()))
    environment = {**os.environ, "HOME": str(folder), "MOZ_HEADLESS_WIDTH": "1280", "MOZ_HEADLESS_HEIGHT": "800"}
    process = subprocess.Popen([FIREFOX, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", profile],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        deadline, port = time.monotonic() + 90, profile / "MarionetteActivePort"
        while not (port.exists() and port.read_text().strip()):
            assert process.poll() is None and time.monotonic() < deadline, "Firefox does not start"
            time.sleep(0.1)
        browser = Marionette(int(port.read_text()))
        browser.call("WebDriver:NewSession")
        yield lambda page, *steps: checked(drive_tab(browser, page.as_uri(), steps), page)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def in_chrome(browser, script):
    browser.call("Marionette:SetContext", value="chrome")
    value = browser.run(script)
    browser.call("Marionette:SetContext", value="content")
    return value


def drive_tab(browser, url, steps):
    results = []
    verbs = {
        "open": lambda fragment: browser.open(f"{url}#{fragment}"),
        "key": lambda key: browser.keys(("keyDown", key), ("keyUp", key)),
        "type": lambda value: (browser.run("const box = document.querySelector(arguments[0]); box.focus(); box.value = arguments[1]; box.dispatchEvent(new Event('input', { bubbles: true }));", *value), time.sleep(0.3)),
        "at": lambda value: browser.pointer(value[0], value[2], (value[1], "pointerDown"), (value[1], "pointerUp")),
        "drag": lambda value: browser.drag(value[0], value[1], value[2], value[3], *value[4:]),
        "text": lambda selector: results.append(browser.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent);", selector)),
        "eval": lambda code: results.append(browser.run(f"return ({code});")),
        "accessibility": lambda _: results.append(browser.controls()),
    }
    in_chrome(browser, "Services.console.reset();")
    browser.call("WebDriver:SwitchToWindow", handle=browser.call("WebDriver:NewWindow", type="tab")["handle"])
    for step in steps:
        (verb, value), = step.items()
        verbs[verb](value)
        browser.settle()
    requests = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name);")
    errors = in_chrome(browser, ERRORS)
    handle, *_ = browser.call("WebDriver:CloseWindow")
    browser.call("WebDriver:SwitchToWindow", handle=handle)
    return {"results": results, "errors": errors, "requests": requests}
