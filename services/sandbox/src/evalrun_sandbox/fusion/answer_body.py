"""Writes an answer with files as JSON, in chunks if files are large: encoding them at once would block all requests."""

import base64
import json
from collections.abc import Iterator, Mapping

from aiohttp import web

from evalrun_sandbox.fusion.schemas import RunCodeResponse, RunJupyterResponse

_PIECE = 3 << 16
"""Bytes per chunk; a multiple of 3, so that the chunks' base64 texts can be joined."""
_SMALL_BYTES = 1 << 20


async def send(
    request: web.Request, answer: RunCodeResponse | RunJupyterResponse, files: Mapping[str, bytes]
) -> web.StreamResponse:
    """Send the response.

    Args:
        request: the request.
        answer: the answer without files.
        files: names and contents of the files to return.
    """
    if sum(map(len, files.values())) <= _SMALL_BYTES:
        return web.Response(body=b"".join(pieces(answer, files)), content_type="application/json")
    response = web.StreamResponse()
    response.content_type = "application/json"
    response.enable_chunked_encoding()
    await response.prepare(request)
    for piece in pieces(answer, files):
        await response.write(piece)
    await response.write_eof()
    return response


def pieces(answer: RunCodeResponse | RunJupyterResponse, files: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the JSON text in chunks."""
    yield answer.model_dump_json(exclude={"files"}).encode().removesuffix(b"}") + b',"files":{'
    for number, (name, content) in enumerate(files.items()):
        yield (b"," if number else b"") + json.dumps(name).encode() + b':"'
        view = memoryview(content)
        for start in range(0, len(view), _PIECE):
            yield base64.b64encode(view[start : start + _PIECE])
        yield b'"'
    yield b"}}"
