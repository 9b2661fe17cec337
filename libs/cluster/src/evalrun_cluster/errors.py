"""Errors of the API server, by what the caller should do.

    ClusterError
      RetryError              try the pass again, after a delay that grows
        ConflictError         another client changed the object: observe again at once
        UnreachableError      the API server or its network is away
      RefusedError            the API server will not have it: tell the user, try again seldom
        NameTakenError        an object of somebody else has the name: never take it over
        NamespaceGoneError    the namespace is being deleted, and the run with it: say nothing

Whatever a handler of kopf does ends as one of these or as kopf's own TemporaryError and PermanentError.
"""


class ClusterError(Exception):
    """Root of this module's errors."""


class RetryError(ClusterError):
    """The same pass may succeed later."""


class ConflictError(RetryError):
    """The object has changed since it was read (409)."""


class UnreachableError(RetryError):
    """There was no reply, or a reply that asks to come back: timeouts, 429, 5xx."""


class RefusedError(ClusterError):
    """The API server refuses the request and will refuse it again: 400, 403, 422. The message says which object."""


class NameTakenError(RefusedError):
    """An object of that name belongs to another owner, or to none. The message names the object and any owner."""


class NamespaceGoneError(RefusedError):
    """The namespace is being deleted: nothing can be created in it, and all objects in it end."""
