"""Checks that the SandboxFusion server that the user names replies, before a run begins."""

from evalrun_judge.sandboxes import SandboxAbsentError, SandboxError, SandboxUnreachableError
from evalrun_judge.sandboxes.fusion_http import FusionServer
from evalrun_judge.settings import JudgeSettings
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.exits import BadInputError
from evalrun_runtime.settings import load_settings

CHECK_SECONDS = 5.0


async def check_fusion_server(url: str) -> None:
    """Raise BadInputError if nothing replies at this address, or another kind of server does.

    A server that is slow or reports a failure counts as present: the judge waits for it.
    """
    settings = load_settings(
        JudgeSettings, ["--sandbox", url, "--backend", "SandboxFusion"], program="evalrun serve judge"
    )
    tokens = BearerTokens.load(settings.sandbox_token, settings.sandbox_token_file)
    server = FusionServer(url, tokens, TlsFiles.load(settings.sandbox_tls_folder))
    try:
        await server.check_there(CHECK_SECONDS)
    except (SandboxUnreachableError, SandboxAbsentError) as error:
        raise BadInputError(
            f"--sandbox-fusion: {error}: write the address of a SandboxFusion server, http://HOST:PORT"
        ) from error
    except SandboxError:
        return
    finally:
        await server.close()
