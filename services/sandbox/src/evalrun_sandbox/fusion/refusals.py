"""Reasons why a request gets no verdict, by HTTP status. They never depend on the program.

FusionRefusal
├── BadRequest     400: change the request
├── NotHere        404: the row, or the route, is not on this server
└── TryAgain       504: the program was not judged; send it again
"""


class FusionRefusal(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A reply with another status than 200; the message is its `detail`."""

    status = 500


class BadRequest(FusionRefusal):
    """This server can never serve the request."""

    status = 400


class NotHere(FusionRefusal):
    """The row or route is not on this server."""

    status = 404


class TryAgain(FusionRefusal):
    """No verdict now. 504 is the only status that verl's client retries; SandboxFusion's own client retries all."""

    status = 504
