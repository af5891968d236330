"""Headless Chromium, steered over pipes (its option --remote-debugging-pipe).

No package is needed: messages are JSON that ends with a zero byte, on descriptors 3 and 4.
"""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome")


def program():
    """Return the path of the browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """A page of the browser; `errors` has the exceptions of its scripts."""

    def __init__(self, to_browser, from_browser):
        self._to, self._from, self._rest = to_browser, from_browser, b""
        self._count, self._session = 0, None
        self.errors = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Call a method of the DevTools protocol; return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._count:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _receive(self):
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 20)
            if not read:
                raise RuntimeError("the browser has ended")
            self._rest += read
        text, self._rest = self._rest.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", details).get("description", str(details)))
        return message

    def run(self, expression):
        """Return the value of a JavaScript expression; wait for it if it is a promise."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", details).get("description", str(details)))
        return result["result"].get("value")

    def open(self, file):
        self.call("Page.navigate", url=file.absolute().as_uri())
        self.run(
            "new Promise(done => document.readyState === 'complete' ? done() : "
            "addEventListener('load', () => done()))"
        )
        self.drawn()

    def drawn(self):
        """Wait for what is drawn in the next frame."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def size(self, width, height, scheme, scale=1):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.drawn()

    def press(self, *keys):
        """Press keys: letters, or names as "Tab"; "Shift+Tab" holds Shift."""
        for key in keys:
            shift, name = (8, key[6:]) if key.startswith("Shift+") else (0, key)
            text = {"text": name} if len(name) == 1 else {}
            text |= {"text": "\r"} if name == "Enter" else {}
            code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(name, 0)
            event = {"key": name, "modifiers": shift, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)
        self.drawn()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.drawn()

    def picture(self, file, kind="png", whole=True, **clip):
        """Write a picture of the page, or of the part of it that `clip` names."""
        more = {"quality": 80} if kind == "webp" else {}
        if clip:
            more["clip"] = {"scale": 1, **clip}
        result = self.call(
            "Page.captureScreenshot", format=kind, captureBeyondViewport=whole, **more
        )
        file.write_bytes(base64.b64decode(result["data"]))


def _pipe():
    """Return the ends of a pipe, away from the descriptors 3 and 4 of the browser."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved


@contextlib.contextmanager
def tab():
    """Start the browser, give a tab of it, and end it."""
    (theirs_in, ours_out), (ours_in, theirs_out) = _pipe(), _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            *(program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run"),
        ]
        actions = [
            *((os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)),
            *((os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_WRONLY, 0) for n in (1, 2)),
        ]
        process = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Tab(ours_out, ours_in)
        finally:
            os.close(ours_out)  # which ends the browser
            os.waitpid(process, 0)
            os.close(ours_in)
