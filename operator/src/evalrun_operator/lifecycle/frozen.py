"""The settings that a run keeps from its start on, as its status holds them. Pure.

An upgrade of the operator brings other images and defaults. An active run must not see them: half of its verdicts would
come from one image and half from another.
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
"""The frozen settings, by their names in the status."""


TOKENS = "tokens"
"""Key in the status that records how the run's parts authenticate to each other. It is no setting: runs that began
before tokens were per hop continue with the single token that their pods hold."""
PER_HOP = "perHop"
WEIGHTS = "weights"
"""Key in the status that records where a bucket's model is stored. Runs that began before this key existed continue
without the cache, which their image does not support."""
ON_CLAIM = "claim"
TLS = "tls"
"""Key in the status that records what an unset `spec.tls` means. Runs that began when it meant plain text continue with
plain text: a port that requires TLS would refuse the existing pods, and their images may not support TLS."""
ISSUED = "issued"
LOST_NODES = "lostNodes"
"""Key in the status that records whether stateless pods leave a lost node soon. Pods of runs that began before this key
existed are not recreated for that."""
LEFT_SOON = "leftSoon"


class ThawedSettings(OperatorSettings):
    """Settings from given values alone.

    The environment's settings are the operator's: pydantic would merge them into the labels and placements that a run
    has kept.
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
    """Return the settings that a run keeps, as text; unset settings are left out."""
    values = settings.model_dump(mode="json", include=set(FROZEN.values()))
    given = {key: values[name] for key, name in FROZEN.items() if values[name] is not None}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    return {**texts, TOKENS: PER_HOP, WEIGHTS: ON_CLAIM, TLS: ISSUED, LOST_NODES: LEFT_SOON}


def has_hop_tokens(kept: Mapping[str, str]) -> bool:
    """Return whether the settings frozen for a run give it a token per hop."""
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
        UnreadableSettingsError: this operator does not know a value.
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
    """Return placements without the affinity fields that only earlier releases allowed.

    A run that began under such a release continues with the rest of its affinity. Refusing to read its settings would
    stop the run.
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
    """Return the model in a field's type, which may be optional or a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_within, get_args(annotation))), None)


def _may_be_unset(name: str) -> bool:
    return RunDefaults.model_fields[name].default is None


def _value(name: str, text: str) -> object:
    default = RunDefaults.model_fields[name].default
    # The field holds text, or an object such as resources.
    if default is None:
        return json.loads(text) if text.startswith("{") else text
    value = text if isinstance(default, str) else json.loads(text)
    return _drop_removed_fields(value) if name == "placement" else value
