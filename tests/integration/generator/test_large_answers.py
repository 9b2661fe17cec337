"""An answer whose size has no end costs the generator a failed request, and not its memory."""

import gzip

from aiohttp import web
from aiohttp.test_utils import TestServer

from evalrun_generator.endpoints.base_url import base_url
from evalrun_generator.endpoints.endpoint import MAX_ANSWER_MIB, HttpEndpoint, open_session
from evalrun_generator.endpoints.openai_api import CHAT_PATH, ModelRequest
from evalrun_generator.endpoints.retry import RequestFailure, RetryAction


async def test_a_small_body_that_unpacks_to_more_than_the_bound_is_a_failed_request() -> None:
    packed = gzip.compress(bytes((MAX_ANSWER_MIB << 20) + 1))

    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(body=packed, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    app = web.Application()
    app.router.add_post(CHAT_PATH, answer)
    async with TestServer(app) as server, open_session(None) as session:
        endpoint = HttpEndpoint(session, base_url(f"{server.make_url('/v1')}"), "model")
        failure = await endpoint.ask(ModelRequest(CHAT_PATH, b"{}"), 60)
    assert isinstance(failure, RequestFailure)
    assert (failure.action, failure.reason) == (RetryAction.RETRY, "the answer is larger than 64 MiB")
