"""Downloads a model of the Hugging Face hub: `python -m evalrun_generator.gpu_host.model_download ID [REVISION]`.

Runs in the interpreter with verl. The last line on stdout is the directory; the last line on stderr says what is wrong.
"""

import sys
from collections.abc import Sequence
from typing import Final

from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.termination import end_with

OTHER_WEIGHTS: Final = ("*.bin", "*.pt", "*.pth", "*.gguf", "*.onnx", "*.h5", "*.msgpack", "original/*")
"""The same weights in other formats, which are not needed beside safetensors."""


def list_ignored_files(names: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of a model's files that the engine does not need. Pure."""
    return OTHER_WEIGHTS if any(name.endswith(".safetensors") for name in names) else ()


def download(model: str, revision: str | None) -> str:
    """Return the directory of a model, downloaded unless it is in the hub's cache.

    Raises:
        BadInputError: there is no such model, or this machine may not read it.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        names = [str(entry.rfilename) for entry in HfApi().model_info(model, revision=revision).siblings or ()]
        return str(snapshot_download(model, revision=revision, ignore_patterns=list(list_ignored_files(names))))
    except HFValidationError as error:
        raise BadInputError(f"model.path: {model}: neither a directory on this machine nor a hub id") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        try:
            return str(snapshot_download(model, revision=revision, local_files_only=True))
        except LocalEntryNotFoundError:
            why = " ".join(str(error).split())[:300]
            raise BadInputError(
                f"model.path: {model}: no directory here, not in the hub's cache, and not to be downloaded: {why}"
            ) from error


def main(argv: Sequence[str]) -> int:
    """Download, print the directory, and return the exit code."""
    try:
        directory = download(argv[0], argv[1] if len(argv) > 1 else None)
    except BadInputError as error:
        return end_with(error, ExitCode.BAD_INPUT)
    sys.stdout.write(f"{directory}\n")
    return ExitCode.SUCCEEDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
