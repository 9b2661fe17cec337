"""lightkube's requests over aiohttp, which kopf brings anyway.

A request costs a fifth of the CPU that it costs over httpx2's own transport (0.14 against 0.5 ms, both measured against
the same server, without TLS), and requests are most of what the operator's one thread does: benchmarks/operator_scale.
"""

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies

import aiohttp
import httpx2
from yarl import URL


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends httpx2's requests through an aiohttp session, made in the loop that first uses it.

    Args:
        context: how the server is verified, and the client's certificate; None uses aiohttp's default.
        proxy: URL of an HTTP proxy, or None.
    """

    def __init__(self, context: ssl.SSLContext | None = None, proxy: str | None = None) -> None:
        self._context = context
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises httpx2's errors."""
        session = self._session
        if session is None:
            session = self._session = self._open()
        limits = request.extensions.get("timeout", {})
        timeout = aiohttp.ClientTimeout(
            total=None, connect=limits.get("pool"), sock_connect=limits.get("connect"), sock_read=limits.get("read")
        )
        body = await request.aread()
        with translate_errors(request):
            response = await session.request(
                request.method,
                URL(str(request.url), encoded=True),
                data=body or None,
                headers=request.headers.multi_items(),
                timeout=timeout,
                allow_redirects=False,
            )
            headers = [(name.decode(), value.decode("latin-1")) for name, value in response.raw_headers]
            if "watch=true" in request.url.query.decode():
                return httpx2.Response(response.status, headers=headers, stream=Stream(response, request))
            try:
                content = await response.read()
            finally:
                response.release()
        return httpx2.Response(response.status, headers=headers, content=content)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=True if self._context is None else self._context)
        # httpx2 decompresses, by the headers that it is given. Not `trust_env`: it has a thread look for a netrc file
        # at each request, which on a busy machine takes longer than the request.
        return aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, proxy=self._proxy
        )


class Stream(httpx2.AsyncByteStream):
    """A watch's answer, as it comes.

    Args:
        response: aiohttp's, not read yet.
        request: the request of this response.
    """

    def __init__(self, response: aiohttp.ClientResponse, request: httpx2.Request) -> None:
        self._response = response
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the chunks. Raises httpx2's errors."""
        with translate_errors(self._request):
            async for chunk in self._response.content.iter_any():
                yield chunk

    async def aclose(self) -> None:
        """Drop the connection without draining it: the rest of a watch is useless."""
        self._response.close()


def find_proxy(url: str) -> str | None:
    """Return the proxy that the environment (HTTPS_PROXY, ALL_PROXY, NO_PROXY) names for a server.

    NO_PROXY takes names, which stand for their subdomains too, addresses, networks (10.96.0.0/12), each of them with
    or without a port, and `*`. urllib's own rules know no networks, which a cluster's NO_PROXY mostly names.
    """
    parts = urlsplit(url)
    named = getproxies()
    if any(_is_covered(rule.strip(), parts.hostname or "", parts.port) for rule in named.get("no", "").split(",")):
        return None
    proxy = named.get(parts.scheme) or named.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def _is_covered(rule: str, host: str, port: int | None) -> bool:
    """Return whether an entry of NO_PROXY is about a server."""
    if rule == "*":
        return True
    rule = rule.rpartition("://")[2]
    # More than one colon without brackets is an IPv6 address.
    if rule.count(":") == 1 or rule.startswith("["):
        rule, _, own = rule.rpartition(":") if not rule.endswith("]") else (rule, "", "")
        if own and own != str(port):
            return False
        rule = rule.strip("[]")
    try:
        return ip_address(host) in ip_network(rule, strict=False)
    except ValueError:
        name = rule.lstrip(".*").lower()
        return bool(name) and (host == name or host.endswith(f".{name}"))


@contextmanager
def translate_errors(request: httpx2.Request) -> Iterator[None]:
    """Translate aiohttp's errors raised inside the block into httpx2's."""
    try:
        yield
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
        raise httpx2.ConnectError(str(error) or type(error).__name__, request=request) from error
    except TimeoutError as error:
        raise httpx2.ReadTimeout(str(error) or "no answer in time", request=request) from error
    except (aiohttp.ClientError, OSError) as error:
        raise httpx2.ReadError(str(error) or type(error).__name__, request=request) from error
