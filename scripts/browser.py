"""Headless Chromium over a pipe in the DevTools protocol: for tests and screenshots, without a driver or a package."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe"),
)
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, " ": 32}


def found() -> str | None:
    """Where Chromium is, if it is here."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator["Browser"]:
    """A browser with an empty profile; it is gone afterwards."""
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol's pipes are descriptors 3 and 4 of the browser.
        shell = f'exec "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
        process = subprocess.Popen(
            ["bash", "-c", shell, "bash", found() or "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser[0], from_browser[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        with os.fdopen(to_browser[1], "wb") as commands, os.fdopen(from_browser[0], "rb", 0) as answers:
            browser = Browser(commands, answers)
            try:
                yield browser
            finally:
                with suppress(BrokenPipeError):
                    browser.send("Browser.close")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                process.wait()


class Browser:
    """Commands and events of one browser."""

    def __init__(self, commands: Any, answers: Any):
        self._commands, self._answers, self._rest, self._last = commands, answers, b"", 0
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """A command's result; events that come before it are kept."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._last:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait(self, method: str, session: str) -> None:
        """Until such an event has come from a page."""
        while not any(e.get("method") == method and e.get("sessionId") == session for e in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not (more := self._answers.read(1 << 20)):
                raise RuntimeError("Chromium has ended")
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)


class Tab:
    """One page, loaded when this returns. ``dark`` is the preferred scheme."""

    def __init__(self, browser: Browser, url: str, *, dark: bool = False, width: int = 1280, height: int = 900):
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        self._browser, self._target = browser, target
        self._session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Page.navigate", url=url)
        browser.wait("Page.loadEventFired", self._session)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to this page."""
        return self._browser.send(method, self._session, **params)

    def run(self, script: str) -> Any:
        """The value of a script, awaited."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", script))
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Keys by name, others as text."""
        for key in keys:
            code = KEYS.get(key, 0)
            text = {"Enter": "\r"}.get(key, key) if len(key) == 1 or key == "Enter" else ""
            for kind in ("keyDown", "keyUp"):
                self.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text)

    def screenshot(self, **options: Any) -> bytes:
        """What is in view, or what the protocol's ``options`` say, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", **options)["data"])

    def complaints(self) -> list[str]:
        """Errors and warnings of the console so far."""
        own = [e for e in self._browser.events if e.get("sessionId") == self._session]
        return [
            json.dumps(e["params"])
            for e in own
            if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
            or (e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "warning", "assert"))
        ]

    def requests(self) -> list[str]:
        """Addresses that were asked for so far."""
        own = [e for e in self._browser.events if e.get("sessionId") == self._session]
        return [e["params"]["request"]["url"] for e in own if e["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        """Close the page."""
        self._browser.send("Target.closeTarget", targetId=self._target)
