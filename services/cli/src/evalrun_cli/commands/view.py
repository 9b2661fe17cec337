"""The command `view`."""

from pathlib import Path

import click

from evalrun_cli.commands.group import EXISTING_FILE, EXIT_CODES, NAMESPACE, evalrun
from evalrun_runtime.exits import ExitCode


@evalrun.command(epilog=EXIT_CODES)
@click.argument("places", metavar="PLACE...", nargs=-1, required=True)
@NAMESPACE
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on. Default: a free one.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Beyond this machine only with --token-file or --trusted-header.",
)
@click.option(
    "--token-file",
    type=EXISTING_FILE,
    help="For others: file with the accepted tokens, one per line, of mode 0400, read again when it changes. Browsers "
    "get a login page, programs send 'Authorization: Bearer TOKEN'.",
)
@click.option(
    "--trusted-header",
    metavar="NAME",
    help="For others: header in which an authenticating proxy names the user, e.g. X-Auth-Request-User.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    metavar="CIDR",
    multiple=True,
    help="Address or block of the proxy that may send that header. May be repeated.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="For others: host name under which browsers ask for the page. May be repeated.",
)
@click.option(
    "--export",
    "site",
    metavar="SITE",
    type=click.Path(path_type=Path),
    help="Write the page as static files to this new directory, for any web server or bucket, and end.",
)
def view(
    places: tuple[str, ...],
    namespace: str | None,
    port: int,
    host: str,
    token_file: Path | None,
    trusted_header: str | None,
    trusted_proxies: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    site: Path | None,
) -> ExitCode:
    """Serve a page with every sample of the runs in PLACE: filter, search, compare, read.

    PLACE is the directory or URL of a run, or of runs; er/NAME is an EvalRun of the current cluster, er/ every one of
    the namespace that goes on, which needs the right `create` on pods/portforward. The printed address holds a token
    and works on this machine alone, unless the page is for others. It changes no run.

    \b
    evalrun view outputs/
    evalrun view outputs/night --export site/
    evalrun view er/night -n evaluations
    evalrun view /data --host 0.0.0.0 --port 8017 --token-file token --allowed-host evals.example.com
    """
    if site is not None:
        from evalrun_cli.viewer.export import export_view

        export_view(places, site)
        click.echo(f"{site}: serve this directory, e.g. python3 -m http.server --directory {site} --bind 127.0.0.1")
        return ExitCode.SUCCEEDED
    from evalrun_cli.viewer.access import SharedOptions
    from evalrun_cli.viewer.commands import Listening, serve_view

    shared = SharedOptions(token_file, trusted_header, trusted_proxies, allowed_hosts)
    return serve_view(places, Listening(port, host, shared), namespace)
