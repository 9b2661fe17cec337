"""The commit of a dataset on the Hugging Face hub: the version of data that is read from there."""

import re
from typing import Final

from evalrun_data.store_problems import store_problem
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

HUB_SCHEME: Final = "hf://"
_PLACE: Final = re.compile(r"^hf://datasets/(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?/")


def hub_commit(source: str) -> str:
    """Return the commit of an `hf://datasets/` source; empty for other repositories.

    Raises:
        BadInputError: the hub does not say, or its client is missing.
    """
    place = _PLACE.match(source)
    if place is None:
        return ""
    try:
        import huggingface_hub
    except ImportError as error:
        raise BadInputError(f"{source}: the package huggingface_hub is missing: {describe_install('data')}") from error
    try:
        info = huggingface_hub.HfApi().dataset_info(place["repo"], revision=place["revision"])
    # The client's classes share no base: OSError, ValueError and its own.
    except Exception as error:
        raise BadInputError(f"{source}: cannot be read: {store_problem(error).text}") from error
    return str(info.sha or "")
