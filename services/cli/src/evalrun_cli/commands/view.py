"""The command `view`."""

from pathlib import Path

import click

from evalrun_cli.commands.group import EXIT_CODES, NAMESPACE, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@NAMESPACE
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1. Default: a free one.")
@click.option(
    "--export",
    "site",
    metavar="SITE",
    type=click.Path(path_type=Path),
    help="Write the page as static files to this new directory, for any web server or bucket, and end.",
)
def view(places: tuple[str, ...], namespace: str | None, port: int, site: Path | None) -> ExitCode:
    """Serve a page with every sample of the runs in PLACE: filter, search, compare, read.

    PLACE is the directory of a run, running or ended, a directory of such directories, or the URL of a run's outputs;
    er/NAME is an EvalRun of the current cluster, which needs the right `create` on pods/portforward. The printed
    address holds a token, works on this machine alone, and changes no run.

    \b
    evalrun view outputs/
    evalrun view outputs/night --export site/
    evalrun view er/night -n evaluations
    """
    if site is not None:
        from evalrun_cli.viewer.export import export_view

        export_view(places, site)
        click.echo(f"{site}: serve this directory, e.g. python3 -m http.server --directory {site} --bind 127.0.0.1")
        return ExitCode.SUCCEEDED
    from evalrun_cli.viewer.commands import serve_view

    return serve_view(places, port, namespace)
