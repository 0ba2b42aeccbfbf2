#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens pages of `thimble plan --html` in headless Chromium and uses them.

usage: plan_html_browser.py THIMBLE
Mouse and keyboard go through the browser's own input, over its DevTools pipe.
What the page must say is taken from `plan --explain` and `--json`, not from the
page. Exits 77 (skipped) where there is no Chromium.
"""
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

TIMEOUT = 60.0  # seconds that any one answer may take
THIMBLE = ""


class Browser:
    """A headless Chromium with one tab, spoken to in JSON over two pipes."""

    def __init__(self, program, folder):
        # Above the descriptors 3 and 4, which the browser reads and writes.
        commands, self.to_browser = os.pipe()
        self.from_browser, answers = os.pipe()
        inherited = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10)
                     for fd in (commands, answers)]
        for fd in (commands, answers):
            os.close(fd)
        args = [program, "--headless=new", "--remote-debugging-pipe",
                "--user-data-dir=" + folder, "--no-first-run", "--disable-gpu",
                "--disable-dev-shm-usage", "--disable-background-networking"]
        if os.geteuid() == 0:
            args.append("--no-sandbox")
        self.process = subprocess.Popen(
            ["bash", "-c",
             f'exec "$0" "$@" 3<&{inherited[0]} 4>&{inherited[1]}', *args],
            pass_fds=inherited, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        for fd in inherited:
            os.close(fd)
        self.received = b""
        self.events = []
        self.next_id = 0
        self.session = None

    def open_tab(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
        except (EOFError, OSError):
            pass  # it has ended already
        os.close(self.to_browser)
        os.close(self.from_browser)
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def receive(self):
        deadline = time.monotonic() + TIMEOUT
        while b"\0" not in self.received:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self.from_browser], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.from_browser, 1 << 16)
            if not piece:
                raise EOFError("the browser has ended")
            self.received += piece
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url="file://" + path)
        while not self.seen("Page.loadEventFired"):
            self.events.append(self.receive())

    def seen(self, method):
        return [e["params"] for e in self.events if e.get("method") == method]

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def text(self, element):
        """What the page shows in it; None where it is not there."""
        return self.run(f"document.getElementById('{element}')?.innerText")

    def box(self, selector):
        return self.run(f"""(() => {{
          const e = document.querySelector({json.dumps(selector)});
          e.scrollIntoView({{block: "center"}});
          const b = e.getBoundingClientRect();
          return {{left: b.left, top: b.top, width: b.width, height: b.height}};
        }})()""")

    def hover(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        # The page answers with the next frame.
        self.run("new Promise((done) => requestAnimationFrame(() => "
                 "requestAnimationFrame(() => done(0))))")

    def press(self, key, code=None, modifiers=0, text=None):
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key,
                      code=code or key, modifiers=modifiers,
                      windowsVirtualKeyCode={"Tab": 9, " ": 32}.get(key, 0),
                      **(more if kind == "keyDown" else {}))

    def tab_to(self, condition):
        """Presses Tab until the focused element `e` meets the condition."""
        for _ in range(30):
            self.press("Tab")
            if self.run(f"((e) => {condition})(document.activeElement)"):
                return
        raise AssertionError(f"Tab never comes to: {condition}")


def thimble(*args):
    return subprocess.run([THIMBLE, *args], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


class Plan:
    """A plan as the tool prints it, and its page."""

    def __init__(self, folder, model, *options):
        command = ["plan", model, "--batch", "20", "--threads", "2", *options]
        self.path = os.path.join(folder, model + ".html")
        self.bytes = json.loads(
            thimble(*command, "--json", "--html", self.path))["bytes"]
        explained = thimble(*command, "--explain")
        self.ops = re.findall(r"^ +\d+ (\S+) +\S+ (.+)$", explained, re.M)
        self.peak = int(re.search(r"^arena .* at (\d+)$", explained, re.M)[1])
        self.buffers = [
            (int(offset), int(size), int(begin), int(end), role, name)
            for offset, size, begin, end, role, name in re.findall(
                r"^ +(\d+)\+(\d+) +\[(\d+), (\d+)\) (\S+) (.+)$", explained,
                re.M)]

    def op(self, time_):
        phase, name = self.ops[time_]
        return f"'{name}' (op {time_}, {phase})"

    def live(self, time_):
        return sorted(b for b in self.buffers if b[2] <= time_ < b[3])


class PlanHtml(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.plans = [Plan(cls.folder.name, "cnn"),
                     Plan(cls.folder.name, "wrn-28-2")]
        cls.browser = Browser(shutil.which("chromium"),
                              os.path.join(cls.folder.name, "profile"))
        cls.addClassCleanup(cls.browser.close)
        cls.browser.open_tab()

    def setUp(self):
        self.browser.call("Emulation.setDeviceMetricsOverride", width=1280,
                          height=900, deviceScaleFactor=1, mobile=False)

    def expect_shown(self, plan, buffer):
        offset, size, begin, end, role, name = buffer
        shown = {e: self.browser.text(e)
                 for e in ("name", "role", "bytes", "offset", "from", "to")}
        self.assertEqual(shown["name"], name)
        self.assertEqual(shown["role"], role)
        self.assertIn(f"{size:,} bytes" if size >= 1000 else f"{size} B",
                      shown["bytes"])
        self.assertEqual(shown["offset"], f"{offset:,}")
        self.assertEqual(shown["from"], plan.op(begin))
        self.assertEqual(shown["to"], plan.op(end - 1))

    def test_hovering_a_buffer_tells_all_about_it(self):
        for plan in self.plans:
            self.browser.open(plan.path)
            box = self.browser.box("#picture")
            across = box["width"] / len(plan.ops)
            up = box["height"] / plan.bytes["arena"]
            hovered = set()
            for buffer in plan.buffers:
                offset, size, begin, end, role, _ = buffer
                # Those that a hand could point at; three of each role do.
                if ((end - begin) * across < 3 or size * up < 3 or
                        sum(b[4] == role for b in hovered) >= 3):
                    continue
                hovered.add(buffer)
                self.browser.hover(
                    box["left"] + (begin + end) / 2 * across,
                    box["top"] + box["height"] - (offset + size / 2) * up)
                self.expect_shown(plan, buffer)
            self.assertGreaterEqual(len(hovered), 6)

    def test_the_peak_is_marked_where_it_is(self):
        for plan in self.plans:
            self.browser.open(plan.path)
            self.assertEqual(self.browser.text("now"), plan.op(plan.peak))
            self.assertIn(f"{plan.bytes['lower_bound']:,} bytes",
                          self.browser.text("live-now"))
            curve = self.browser.box("#curve")
            mark = self.browser.box("#curve line.peak")
            place = (mark["left"] + mark["width"] / 2 - curve["left"])
            self.assertEqual(int(place / curve["width"] * len(plan.ops)),
                             plan.peak)

    def test_the_keyboard_reaches_every_live_buffer(self):
        plan = self.plans[0]
        self.browser.open(plan.path)
        self.browser.tab_to("e.id === 'plots'")
        for buffer in plan.live(plan.peak):
            self.browser.press("ArrowUp")
            self.expect_shown(plan, buffer)
        self.browser.press("ArrowDown")
        self.expect_shown(plan, plan.live(plan.peak)[-2])
        self.browser.press("ArrowRight")
        self.assertEqual(self.browser.text("now"), plan.op(plan.peak + 1))
        self.browser.press("End")
        self.assertEqual(self.browser.text("now"), plan.op(len(plan.ops) - 1))
        self.browser.press("ArrowLeft", modifiers=8)  # Shift
        self.assertEqual(self.browser.text("now"), plan.op(len(plan.ops) - 11))
        self.browser.press("p", "KeyP", text="p")
        self.assertEqual(self.browser.text("now"), plan.op(plan.peak))
        self.browser.press("Home")
        self.assertEqual(self.browser.text("now"), plan.op(0))

    def test_a_role_can_be_switched_off_by_keyboard(self):
        self.browser.open(self.plans[0].path)
        shown = ("getComputedStyle(document.querySelector("
                 "'#picture g[data-role=activation]')).display !== 'none'")
        self.assertTrue(self.browser.run(shown))
        self.browser.tab_to("e.dataset.role === 'activation'")
        self.browser.press(" ", "Space", text=" ")
        self.assertFalse(self.browser.run(shown))
        self.browser.press(" ", "Space", text=" ")
        self.assertTrue(self.browser.run(shown))

    def test_it_fits_1280_pixels_and_scrolls_only_when_stretched(self):
        for plan in self.plans:
            self.browser.open(plan.path)
            self.assertLessEqual(
                self.browser.run("document.documentElement.scrollWidth"), 1280)
            wide = "document.getElementById('plots').scrollWidth"
            before = self.browser.run(wide)
            self.browser.tab_to("e.id === 'zoom'")
            self.browser.press("ArrowRight")
            self.assertEqual(self.browser.run("document.activeElement.value"),
                             "2")
            self.assertAlmostEqual(self.browser.run(wide) / before, 2, places=2)
            self.assertLessEqual(
                self.browser.run("document.documentElement.scrollWidth"), 1280)

    def test_text_can_be_read_by_day_and_by_night(self):
        def luminance(colour):
            parts = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
            linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
                      for c in parts]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        pages = {}
        self.browser.open(self.plans[0].path)
        for scheme in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia", features=[
                {"name": "prefers-color-scheme", "value": scheme}])
            page = luminance(self.browser.run(
                "getComputedStyle(document.body).backgroundColor"))
            pages[scheme] = page
            for element in ("body", "p", "dt", "td"):
                text = luminance(self.browser.run(
                    f"getComputedStyle(document.querySelector('{element}'))"
                    ".color"))
                dark, bright = sorted((page, text))
                # What WCAG 2 asks of text.
                self.assertGreaterEqual((bright + 0.05) / (dark + 0.05), 4.5,
                                        f"{element}, {scheme}")
        self.assertGreater(pages["light"], pages["dark"])

    def test_it_loads_nothing_and_raises_no_error(self):
        for plan in self.plans:
            self.browser.open(plan.path)
            box = self.browser.box("#picture")
            for i in range(10):
                self.browser.hover(box["left"] + i * box["width"] / 10,
                                   box["top"] + i * box["height"] / 10)
            asked = [r["request"]["url"]
                     for r in self.browser.seen("Network.requestWillBeSent")]
            self.assertEqual(asked, ["file://" + plan.path])
            self.assertEqual(self.browser.seen("Runtime.exceptionThrown"), [])
            self.assertEqual(self.browser.seen("Log.entryAdded"), [])


def main():
    global THIMBLE
    if len(sys.argv) != 2:
        sys.exit("usage: plan_html_browser.py THIMBLE")
    THIMBLE = os.path.abspath(sys.argv.pop())
    if not shutil.which("chromium"):
        print("skipped: there is no chromium here; scripts/install-deps long "
              "installs it")
        sys.exit(77)
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
