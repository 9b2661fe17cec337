"""What can go wrong at the operator's edge, by what the caller should do.

    OperatorError
      RetryError              try the pass again, after a delay that grows
        ConflictError         someone wrote in between: observe anew, at once
        UnreachableError      the API server or its network is away
      RefusedError            the API server will not have it: tell the user, try again seldom
      AggregatorError         the run's aggregator does not answer: go on without its figures

Whatever a handler of kopf does ends as one of these or as kopf's own TemporaryError and PermanentError.
"""


class OperatorError(Exception):
    """Root of this module's errors."""


class RetryError(OperatorError):
    """The same pass may succeed later."""


class ConflictError(RetryError):
    """The object has changed since it was read (409)."""


class UnreachableError(RetryError):
    """No answer, or one that says to come back: time-outs, 429, 5xx."""


class RefusedError(OperatorError):
    """The API server refuses the request and will refuse it again: 400, 403, 422. The message says which object."""


class AggregatorError(OperatorError):
    """The run's aggregator does not answer."""
