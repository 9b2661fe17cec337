"""The settings that a run keeps from its start on, as its status holds them. Pure.

An upgrade of the operator brings other images and defaults. A run that lives must not see them: half of its verdicts
would come from one image and half from the other.
"""

import json
from collections.abc import Mapping
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from evalrun_api.v1alpha1.affinity import Affinity
from evalrun_operator.settings import OperatorSettings, RunDefaults
from evalrun_runtime.settings import ServiceSettings

FROZEN = {
    to_camel(name): name for name in sorted(RunDefaults.model_fields.keys() - ServiceSettings.model_fields.keys())
}
"""By its name in the status, each setting that is frozen."""


TOKENS = "tokens"
"""By this name in the status, how the run's parts know each other. It is no setting: runs that began before there was
one token per hop go on with the one that their pods hold."""
PER_HOP = "perHop"
WEIGHTS = "weights"
"""By this name in the status, where a bucket's model lies. Runs that began before go on without the cache: their image
knows of none."""
ON_CLAIM = "claim"
TLS = "tls"
"""By this name in the status, what an unset `spec.tls` means. Runs that began when it meant plain text go on so: a port
that takes TLS alone would turn the pods away that are there already, and their images may know of none."""
ISSUED = "issued"
LOST_NODES = "lostNodes"
"""By this name in the status, whether gateways and sandboxes leave a lost node soon. Pods of runs that began before are
not made again for that.
"""
LEFT_SOON = "leftSoon"


class ThawedSettings(OperatorSettings):
    """Settings from given values alone. Those of the environment are the operator's, which pydantic would merge into
    the labels and placements that a run has kept.
    """

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing but the constructor's arguments."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


class UnreadableSettingsError(Exception):
    """Raised when the settings in a status cannot be read."""


def freeze_settings(settings: OperatorSettings) -> dict[str, str]:
    """Return the settings that a run keeps, as text; those that are not set are left out."""
    values = settings.model_dump(mode="json", include=set(FROZEN.values()))
    given = {key: values[name] for key, name in FROZEN.items() if values[name] is not None}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    return {**texts, TOKENS: PER_HOP, WEIGHTS: ON_CLAIM, TLS: ISSUED, LOST_NODES: LEFT_SOON}


def has_hop_tokens(kept: Mapping[str, str]) -> bool:
    """Return whether a run has one token per hop, by the settings that it has kept."""
    return kept.get(TOKENS) == PER_HOP


def has_weights_on_claim(kept: Mapping[str, str]) -> bool:
    """Return whether the settings frozen for a run keep a bucket's model on the cache's claim."""
    return kept.get(WEIGHTS) == ON_CLAIM


def has_tls_unless_disabled(kept: Mapping[str, str]) -> bool:
    """Return whether the settings frozen for a run give it TLS if its spec does not mention TLS."""
    return kept.get(TLS) == ISSUED


def leaves_lost_nodes(kept: Mapping[str, str]) -> bool:
    """Return whether the settings frozen for a run let its stateless pods leave a lost node soon."""
    return kept.get(LOST_NODES) == LEFT_SOON


def thaw_settings(settings: OperatorSettings, kept: Mapping[str, str]) -> OperatorSettings:
    """Return the operator's settings, overridden by those frozen for a run.

    Raises:
        UnreadableSettingsError: a value is none that this operator knows.
    """
    texts = {FROZEN[key]: text for key, text in kept.items() if key in FROZEN}
    if not texts:
        return settings
    unset = {name: None for name in FROZEN.values() if name not in texts and _may_be_unset(name)}
    try:
        return ThawedSettings.model_validate(
            {**settings.model_dump(), **unset, **{name: _value(name, text) for name, text in texts.items()}}
        )
    except (ValidationError, json.JSONDecodeError) as error:
        raise UnreadableSettingsError(f"status.settings: {error}") from error


def _drop_removed_fields(placements: object) -> object:
    """Return placements without the affinity fields that releases before its bounded schema took.

    A run that began then goes on with the rest of its affinity; refusing to read its settings would stop it.
    """
    if not isinstance(placements, dict):
        return placements
    return {
        part: {**placement, "affinity": _known_fields(Affinity, placement["affinity"])}
        if isinstance(placement, dict) and isinstance(placement.get("affinity"), dict)
        else placement
        for part, placement in placements.items()
    }


def _known_fields(model: type[BaseModel], given: Mapping[str, object]) -> dict[str, object]:
    known: dict[str, object] = {}
    for name, field in model.model_fields.items():
        for key in (field.alias or name, name):
            if key in given:
                known[key] = _known_values(_model_within(field.annotation), given[key])
    return known


def _known_values(model: type[BaseModel] | None, value: object) -> object:
    if model is not None and isinstance(value, dict):
        return _known_fields(model, value)
    if model is not None and isinstance(value, list):
        return [_known_values(model, item) for item in value]
    return value


def _model_within(annotation: object) -> type[BaseModel] | None:
    """Return the model that a field's type names, be it optional or a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_within, get_args(annotation))), None)


def _may_be_unset(name: str) -> bool:
    return RunDefaults.model_fields[name].default is None


def _value(name: str, text: str) -> object:
    default = RunDefaults.model_fields[name].default
    if default is None:  # text, or an object such as resources
        return json.loads(text) if text.startswith("{") else text
    value = text if isinstance(default, str) else json.loads(text)
    return _drop_removed_fields(value) if name == "placement" else value
