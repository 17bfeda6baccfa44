# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium, driven through its debugging pipe (Chrome DevTools Protocol); standard library only."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class BrowserError(Exception):
    pass


class Browser:
    """One page. Collects what the console said and which addresses were asked for."""

    def __init__(self, program="chromium", timeout=60):
        self.timeout = timeout
        self.console = []
        self.requests = []
        self._next_id = 0
        self._pending = b""
        self._answers = {}
        self._events = []
        self._profile = tempfile.mkdtemp(prefix="browser-", dir=os.environ.get("TEST_TMPDIR"))
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()

        def place_pipes():
            # Chromium's ends are 3 and 4; through higher numbers, in case they are each other's.
            a, b = os.dup(to_read), os.dup(from_write)
            high_a, high_b = 100, 101
            os.dup2(a, high_a)
            os.dup2(b, high_b)
            os.dup2(high_a, 3)
            os.dup2(high_b, 4)

        self._process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
             "--user-data-dir=" + self._profile, "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env=dict(os.environ, HOME=self._profile))
        os.close(to_read)
        os.close(from_write)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, **parameters):
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        wanted = self._next_id
        self._until(lambda: wanted in self._answers, method)
        answer = self._answers.pop(wanted)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def open(self, url, width, dark):
        """Loads a page as a window of this width shows it, light or dark."""
        self.console.clear()
        self.requests.clear()
        self._events.clear()
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)
        self._until(lambda: "Page.loadEventFired" in self._events, "loading " + url)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise BrowserError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def screenshot(self, path, clip=None):
        """PNG; clip: (x, y, width, height), or all of the page."""
        if clip is None:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = (0, 0, size["width"], size["height"])
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                            clip={"x": clip[0], "y": clip[1], "width": clip[2], "height": clip[3],
                                  "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def _until(self, done, what):
        end = time.monotonic() + self.timeout
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                raise BrowserError(f"{what}: no answer within {self.timeout} s")
            ready, _, _ = select.select([self._from], [], [], left)
            if not ready:
                continue
            data = os.read(self._from, 1 << 16)
            if not data:
                raise BrowserError(f"{what}: the browser ended")
            *messages, self._pending = (self._pending + data).split(b"\0")
            for message in messages:
                self._take(json.loads(message))

    def _take(self, message):
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, parameters = message["method"], message.get("params", {})
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(f"{parameters['type']}: {parameters['args']}")
        elif method == "Log.entryAdded":
            self.console.append(parameters["entry"]["text"])
