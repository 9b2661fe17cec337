"""Receiver of what the watch of EvalSchedules observed."""

from collections.abc import Callable
from typing import Any


class Schedules:
    """Takes over EvalSchedules, and leaves out those whose runs another operator class serves.

    Args:
        saw: called with an EvalSchedule as it was seen, and whether it is gone.
        operator_class: what `spec.template.operatorClass` must be; empty: absent.
    """

    def __init__(self, saw: Callable[[dict[str, Any], bool], None], operator_class: str = "") -> None:
        self._saw = saw
        self._operator_class = operator_class

    def put(self, manifest: dict[str, Any]) -> tuple[str, str, str] | None:
        """Take over an EvalSchedule, without the fields that only the API server reads."""
        template = (manifest.get("spec") or {}).get("template") or {}
        if (template.get("operatorClass") or "") != self._operator_class:
            return None
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "managedFields"}
        self._saw({**manifest, "metadata": metadata}, False)  # noqa: FBT003 - it is not gone
        return metadata["namespace"], metadata["name"], metadata["uid"]

    def drop(self, known: tuple[str, str, str]) -> None:
        """Forget an EvalSchedule that is gone."""
        namespace, name, uid = known
        self._saw({"metadata": {"namespace": namespace, "name": name, "uid": uid}}, True)  # noqa: FBT003 - gone
