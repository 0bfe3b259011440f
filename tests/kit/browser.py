"""A headless Chromium, driven by the DevTools protocol over aiohttp's WebSocket client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

WITHIN = 30.0
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed (Debian: chromium)"
)

_T = TypeVar("_T")
_LISTENS = re.compile(r"DevTools listening on (ws://\S+)")


class Browser:
    """One Chromium with a profile of its own. Its loop runs in a thread: tests make plain calls."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.mkdtemp(prefix="debug-relay-chromium-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._process = subprocess.Popen(
            [
                *(CHROMIUM, "--headless=new", "--remote-debugging-port=0", "--no-first-run"),
                *("--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
                *("--disable-background-networking", "--disable-component-update"),
                # One process draws all tabs: each takes a quarter of a second to start.
                *("--renderer-process-limit=1", "--disable-extensions"),
                *("--no-sandbox",) * (os.geteuid() == 0),
                *(f"--user-data-dir={self._profile}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._tabs: dict[str, Tab] = {}
        try:
            self._run(self._connect(self._address()))
        except BaseException:
            self.close()
            raise

    def _address(self) -> str:
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if found := _LISTENS.search(line):
                # Whatever it says later must not fill the pipe.
                threading.Thread(target=self._process.stderr.read, daemon=True).start()
                return found[1]
        raise AssertionError(f"Chromium does not start: {''.join(said)[-2000:]}")

    async def _connect(self, address: str) -> None:
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(address, max_msg_size=64 << 20)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            waiting = self._answers.pop(told["id"], None) if "id" in told else None
            if waiting is not None and not waiting.done():
                waiting.set_result(told)
            elif told.get("sessionId") in self._tabs:
                self._tabs[told["sessionId"]].told(told["method"], told["params"])

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, WITHIN), self._loop).result()

    def command(self, method: str, tab: str | None = None, **params: Any) -> Any:
        async def send() -> Any:
            self._numbers += 1
            number = self._numbers
            answer = self._answers[number] = self._loop.create_future()
            message = {"id": number, "method": method, "params": params}
            if tab is not None:
                message["sessionId"] = tab
            await self._socket.send_json(message)
            return await answer

        told = self._run(send())
        assert "error" not in told, (method, told["error"])
        return told["result"]

    def tab(self, url: str = "about:blank") -> Tab:
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = self._tabs[session] = Tab(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.command(f"{domain}.enable")
        if url != "about:blank":
            tab.open(url)
        return tab

    def close(self) -> None:
        async def end() -> None:
            if hasattr(self, "_socket"):
                await self._socket.close()
                await self._reading
            if hasattr(self, "_http"):
                await self._http.close()

        self._run(end())
        self._process.terminate()
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        shutil.rmtree(self._profile, ignore_errors=True)


class Tab:
    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.complaints: list[str] = []  # errors, warnings and refusals in the console
        self.requested: list[str] = []  # every URL
        self.sockets: set[str] = set()  # open WebSockets, by the browser's number

    def told(self, method: str, params: Any) -> None:
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Network.webSocketCreated":
            self.requested.append(params["url"])
            self.sockets.add(params["requestId"])
        elif method == "Network.webSocketClosed":
            self.sockets.discard(params["requestId"])

    def command(self, method: str, **params: Any) -> Any:
        return self._browser.command(method, self._session, **params)

    def open(self, url: str) -> None:
        self.command("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def js(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        told = self.command(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, expression: str, within: float = WITHIN) -> Any:
        """The value of the expression, as soon as it is true."""
        ends = time.monotonic() + within
        while True:
            value = self.js(expression)
            if value:
                return value
            shown = "document.body && document.body.innerText.slice(0, 3000)"
            assert time.monotonic() < ends, f"{expression}\n{self.js(shown)}\n{self.complaints}"
            time.sleep(0.03)

    def press(self, key: str, *, code: str = "", modifiers: int = 0) -> None:
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key, "")
        about = {"key": key, "code": code or key, "modifiers": modifiers}
        number = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38}.get(key)
        if key.startswith("F") and key[1:].isdigit():
            number = 111 + int(key[1:])
        if number is not None:
            about["windowsVirtualKeyCode"] = number
        self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.command("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        self.command("Input.insertText", text=text)

    def looks(
        self, *, width: int = 1280, height: int = 800, dark: bool = False, phone: bool = False
    ) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        shot = self.command("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._browser.command("Target.closeTarget", targetId=self._target)
