"""The command `serve`."""

from collections.abc import Sequence
from pathlib import Path

import click

from evalrun_cli.commands.group import EXISTING_FILE, add_judging_flags, evalrun
from evalrun_cli.local.options import LocalOptions
from evalrun_runtime.exits import BadInputError, ExitCode

SERVICES = {
    "sandbox": "runs programs, contained (HTTP)",
    "judge": "the judge gateway: judges a submission by its tests (gRPC)",
    "aggregator": "a run's ledger, metrics and outputs (gRPC)",
    "reward": "the judge's verdicts as rewards for trainers (HTTP)",
    "recorded": "recorded completions behind an OpenAI-compatible API (HTTP)",
}


@evalrun.group()
def serve() -> None:
    """Serve one part alone.

    Settings are read from flags, the environment (EVALRUN_<SERVICE>_<FLAG>) and --config FILE, in this order. A service
    binds to loopback by default, prints `evalrun <service> ready on <address>` when it is ready, and drains on SIGTERM.
    `evalrun serve <service> --help` lists every setting.
    """


def _add_service(name: str, summary: str) -> None:
    passes_on = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    described = f"{summary[0].upper()}{summary[1:]}."

    @serve.command(name=name, context_settings=passes_on, help=described, short_help=described)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def service(arguments: Sequence[str]) -> int:
        from importlib import import_module

        module = "evalrun_generator.recorded.__main__" if name == "recorded" else f"evalrun_{name}.__main__"
        code: int = import_module(module).main(arguments)
        return code


for _name, _summary in SERVICES.items():
    if _name != "reward":
        _add_service(_name, _summary)


@serve.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    short_help=SERVICES["reward"][0].upper() + SERVICES["reward"][1:] + ".",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@add_judging_flags
def reward(arguments: Sequence[str], options: LocalOptions) -> int:
    """Serve the judge's verdicts as rewards for trainers (HTTP).

    \b
    On one machine:  evalrun serve reward --problems HumanEval.jsonl.gz --port 8090
    Before a judge:  evalrun serve reward --judge dns:///judge:50051 --host 0.0.0.0 --port 8090

    Without --judge a sandbox and a judge are started beside it, and the options below are theirs. With --judge only the
    service itself is served. `evalrun serve reward --settings` lists all of its own settings.
    """
    import os

    from evalrun_cli.local.reward_server import add_default_store, names_a_judge, serve_reward

    arguments = add_default_store(arguments, os.environ, Path.home())
    if "--settings" not in arguments and not names_a_judge(arguments, os.environ):
        return serve_reward(arguments, options)
    if given := [flag for flag, value in options.flags.items() if value]:
        raise click.UsageError(f"{', '.join(given)}: only for a judge that is started here: remove it, or --judge")
    from evalrun_reward.__main__ import main

    code: int = main(["--help" if argument == "--settings" else argument for argument in arguments])
    return code


@serve.command(short_help="Runs and their samples for an assistant, read-only (Model Context Protocol).")
@click.option(
    "--runs", "place", default="outputs", show_default=True, metavar="DIR|URL", help="Directory or URL of the runs."
)
@click.option("--port", type=click.IntRange(0, 65535), help="Serve over HTTP on this port; 0: a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --port: address to listen on.")
@click.option(
    "--token-file",
    type=EXISTING_FILE,
    help="With --port: file with the accepted bearer tokens, one per line, read again when it changes. Default: a "
    "token is drawn and printed.",
)
def mcp(place: str, port: int | None, host: str, token_file: Path | None) -> ExitCode:
    """Serve runs and their samples to an assistant by the Model Context Protocol. Nothing can be changed.

    Tools: list_runs, read_metrics, compare_runs, list_flips, read_sample, explain_failures. Without --port one client
    is served over stdin and stdout, as an assistant starts it:

    \b
      {"mcpServers": {"evalrun": {"command": "evalrun", "args": ["serve", "mcp", "--runs", "/data/outputs"]}}}
    """
    try:
        from evalrun_cli.mcp_server.server import serve_http, serve_stdio
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(("mcp", "uvicorn")):
            raise
        from evalrun_runtime.distribution import describe_install

        raise BadInputError(f"serve mcp needs the extra mcp: {describe_install('mcp')}") from error
    if port is None:
        serve_stdio(place)
    else:
        serve_http(place, host, port, token_file)
    return ExitCode.SUCCEEDED
