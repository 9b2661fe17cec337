"""Drives a real Chromium over its DevTools protocol: pages, scripts, screenshots, and every request that it makes."""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--hide-scrollbars", "--disable-dev-shm-usage",
    "--remote-debugging-port=0", "about:blank",
)  # fmt: skip
WAIT_SECONDS: Final = 45.0
_PAUSE_SECONDS: Final = 0.05


@dataclass
class Browser:
    """One page of a running Chromium."""

    socket: aiohttp.ClientWebSocketResponse
    session: str = ""
    requests: list[str] = field(default_factory=list)
    """Addresses of everything that the page asked for."""
    messages: list[str] = field(default_factory=list)
    """What the console and the content security policy said."""
    unanswered: dict[str, str] = field(default_factory=dict)
    """Addresses that the page asked for and has not wholly got, by request."""
    _number: int = 0
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)

    async def call(self, method: str, **parameters: object) -> Any:
        """Call a method of the protocol and return its result."""
        self._number += 1
        number = self._number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        await self.socket.send_json(message)
        return await asyncio.wait_for(answer, WAIT_SECONDS)

    async def listen(self) -> None:
        """Take answers and events until the connection closes."""
        async for message in self.socket:
            content = json.loads(message.data)
            if "id" in content:
                answer = self._answers.pop(content["id"])
                if answer.done():
                    continue
                if "error" in content:
                    answer.set_exception(RuntimeError(str(content["error"])))
                else:
                    answer.set_result(content["result"])
                continue
            self._take_event(content["method"], content["params"])

    def _take_event(self, method: str, event: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
            self.unanswered[event["requestId"]] = event["request"]["url"]
        elif method in {"Network.loadingFinished", "Network.loadingFailed"}:
            self.unanswered.pop(event["requestId"], None)
        elif method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded":
            self.messages.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page; of a promise what it comes to."""
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def open(self, address: str) -> None:
        """Open an address."""
        await self.call("Page.navigate", url=address)

    async def until(self, script: str) -> Any:
        """Return the value of an expression once it is true.

        Raises:
            AssertionError: it never was; the message holds what the page shows.
        """
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while True:
            if await self.run(f"!!({script})"):
                return
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"never true: {script}\n{await self._describe_page()}")
            await asyncio.sleep(_PAUSE_SECONDS)  # a page has no event for "it looks like this now"

    async def _describe_page(self) -> str:
        """Tell what the page shows, where the keys go, and what it still waits for."""
        where = await self.run("`${location.hash}, focus on ${document.activeElement?.outerHTML.slice(0, 200)}`")
        shown = await self.run("document.body.innerText.slice(0, 500)")
        return (
            f"address: {where}\nmessages: {self.messages}\nlast requests: {self.requests[-5:]}\n"
            f"unanswered: {[*self.unanswered.values()]}\n{shown}"
        )

    async def look(self, width: int, height: int = 900, scheme: str = "light") -> None:
        """Set the window's size and the colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str, text: str = "") -> None:
        """Press a key where the focus is."""
        extra = {"text": text} if text else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **extra)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def screenshot(self, file: Path) -> None:
        """Write what the window shows as a PNG file."""
        answer = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(answer["data"]))


@asynccontextmanager
async def open_browser(profile: Path) -> AsyncIterator[Browser]:
    """Give a page of a new Chromium, which ends with the context."""
    process = await asyncio.create_subprocess_exec(
        str(CHROMIUM), *FLAGS[:-1], f"--user-data-dir={profile}", FLAGS[-1],
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            address = await _address_of(process)
        async with aiohttp.ClientSession() as client, client.ws_connect(address, max_msg_size=0) as socket:
            browser = Browser(socket)
            listening = asyncio.create_task(browser.listen())
            try:
                target = await browser.call("Target.createTarget", url="about:blank")
                attached = await browser.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
                browser.session = attached["sessionId"]
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await browser.call(f"{domain}.enable")
                yield browser
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _address_of(process: asyncio.subprocess.Process) -> str:
    """Return where the browser's debugger listens, which it prints when it does."""
    if process.stderr is None:
        raise AssertionError("the browser's messages are not read")
    async for line in process.stderr:
        _, found, address = line.decode(errors="replace").partition("DevTools listening on ")
        if found:
            return address.strip()
    raise AssertionError("Chromium ended before it listened")
