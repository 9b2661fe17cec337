"""Interface and inputs of an exporter."""

from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from evalrun_results.exports.content import ExportContent


class ExportError(Exception):
    """The service is unreachable or refused the export. The message is one line without secrets."""


class WandbTarget(BaseModel):
    """A project of Weights & Biases."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["wandb"] = "wandb"
    project: str
    entity: str | None = None
    name: str | None = None
    """None: the run's own name."""
    group: str | None = None
    """None: the run's namespace."""
    tags: tuple[str, ...] = ()
    mode: Literal["online", "offline"] = "online"


class MlflowTarget(BaseModel):
    """An MLflow tracking server, or a store of files."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["mlflow"] = "mlflow"
    tracking_uri: str


Target = Annotated[WandbTarget | MlflowTarget, Field(discriminator="kind")]


class Exported(BaseModel):
    """Result of the export."""

    model_config = ConfigDict(frozen=True)

    url: str = ""
    """Address of the run's page; empty if it has none yet."""
    files: str = ""
    """Directory of the files that were written on this machine, relative to the outputs."""


class ExportJob(BaseModel):
    """An export, as read by the process that does it."""

    model_config = ConfigDict(frozen=True)

    target: Target
    content: ExportContent
    directory: Path
    """Directory of the outputs; a service's own files may be left in it."""
    scratch: Path
    """A directory for all other files; it is removed afterwards."""


class Exporter(Protocol):
    """Sends a run to a service. Sending it again replaces the previous export."""

    def export(self, content: ExportContent) -> Exported:
        """Send the run; blocking.

        Raises:
            ExportError: the run could not be sent, or only a part of it.
        """
        ...
