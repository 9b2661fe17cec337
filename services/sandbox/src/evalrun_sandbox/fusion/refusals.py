"""Why a request gets no verdict, by HTTP status. None of these says anything about a program.

FusionRefusal
├── BadRequest     400: change the request
├── NotHere        404: the row, or the route, is not on this server
└── TryAgain       504: nothing is known about the program; send it again
"""


class FusionRefusal(Exception):  # noqa: N818 - an answer, not a failure of ours
    """An answer that is not 200; the message is its `detail`."""

    status = 500


class BadRequest(FusionRefusal):
    """The request can never be served here."""

    status = 400


class NotHere(FusionRefusal):
    """What it names is not on this server."""

    status = 404


class TryAgain(FusionRefusal):
    """No verdict now. 504 because verl's client retries that and nothing else; SandboxFusion's own retries all."""

    status = 504
