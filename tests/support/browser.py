"""Debian's Chromium without a screen, controlled by its DevTools protocol over a pipe.

Source: https://chromedevtools.github.io/devtools-protocol/ (each message ends with a zero byte).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", "--remote-debugging-pipe")  # fmt: skip
PROBLEMS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")


class Chromium:
    """A browser with one page. `events` are those of the page since it was opened."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        command = [_program(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # The shell gives the pipes the numbers that Chromium expects.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", *command], pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._unread, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a method."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, url: str, *, width: int, scheme: str) -> None:
        """Load a page in a window of this width (CSS pixels) with a light or dark theme."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                 deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", media="screen", features=[theme])
        self.events.clear()
        self.ask("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    @property
    def requests(self) -> list[str]:
        """Return the URLs that the page asked for."""
        sent = (each for each in self.events if each.get("method") == "Network.requestWillBeSent")
        return [each["params"]["request"]["url"] for each in sent]

    @property
    def problems(self) -> list[dict[str, Any]]:
        """Return what the page wrote to the console, and what the browser did about it."""
        return [event["params"] for event in self.events if event.get("method") in PROBLEMS]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            read = os.read(self._from, 1 << 20)
            assert read, "Chromium has exited"
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


def _program() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
    if not found:
        pytest.skip("chromium missing: apt-get install chromium")
    return found
