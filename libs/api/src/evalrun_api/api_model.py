"""Building blocks of the API's models: the base class, rules in CEL, and the types of text fields.

A rule that spans fields is a `Rule` beside the fields it reads: a model lists them in `RULES`, a field carries them in
its `Annotated`. Both end in the JSON schema as `x-kubernetes-validations`, so the API server and the command line
evaluate the very same expression. Pydantic itself checks only types and bounds.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

VALIDATIONS = "x-kubernetes-validations"
PLACE = "x-evalrun-place"
"""Marks, inside the model's own schema only, a rule that a cluster alone can break; the CRD does not show it."""

MAX_BYTES = "x-evalrun-max-bytes"
"""Marks, inside the model's own schema only, an object that is bounded as a whole; it becomes a rule."""


@dataclass(frozen=True)
class Rule:
    """A CEL rule of the CRD.

    Plain CEL only (no `quantity`, `isURL`, `format`, optionals): the command line's library has no more than that.
    """

    expression: str
    """True where the object is good; `self` is the value that carries the rule, `oldSelf` its former state."""
    message: str
    """One line for the user: what is wrong and what to write instead."""
    field_path: str = ""
    """The field to blame, relative to the carrier, e.g. `.samples`; the carrier itself if empty."""
    place: Literal["everywhere", "cluster"] = "everywhere"
    """`cluster`: evaluated in a cluster only; what it refuses is fine for a run on one machine."""

    def as_schema(self) -> dict[str, str]:
        """Return the rule as an item of `x-kubernetes-validations`."""
        item = {"rule": self.expression, "message": self.message}
        if self.field_path:
            item["fieldPath"] = self.field_path
        if self.place != "everywhere":
            item[PLACE] = self.place
        return item

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        schema[VALIDATIONS] = [*schema.get(VALIDATIONS, []), self.as_schema()]
        return schema


@dataclass(frozen=True)
class Choice:
    """Allows only texts that a registry lists. The field has the schema and errors of a Literal of these texts."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: object, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.literal_schema([*self.names])


class ApiModel(BaseModel):
    """A frozen object of the API: snake_case in Python, camelCase on the wire, no unknown fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, defer_build=True
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()
    """Rules for the object as a whole."""
    MAX_BYTES: ClassVar[int | None] = None
    """Bound of the object as a whole, as JSON; None: the bounds of its fields are enough."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add `RULES` to the object's schema."""
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        if cls.RULES:
            schema[VALIDATIONS] = [rule.as_schema() for rule in cls.RULES]
        if cls.MAX_BYTES is not None:
            schema[MAX_BYTES] = cls.MAX_BYTES
        return reference

    def to_wire(self) -> dict[str, Any]:
        """Return the object as a manifest holds it: camelCase, JSON types, unset fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def list_type(kind: Literal["atomic", "set", "map"], *keys: str) -> dict[str, Any]:
    """Return the schema extension that says how server-side apply merges a list; `keys` name a map's items."""
    extension: dict[str, Any] = {"x-kubernetes-list-type": kind}
    if keys:
        extension["x-kubernetes-list-map-keys"] = list(keys)
    return extension


DECIMAL_PATTERN = r"^[0-9]{1,6}(\.[0-9]{1,9})?$"
TOLERANCE_PATTERN = r"^[0-9]{1,6}(\.[0-9]{1,12})?([eE]-?[0-9]{1,2})?$"

DecimalText = Annotated[str, Field(max_length=16, pattern=DECIMAL_PATTERN)]
"""A non-negative decimal, in quotes: `"0.8"`. (The API has no floats: their text is not stable.)"""
FractionText = Annotated[
    str,
    Field(max_length=16, pattern=DECIMAL_PATTERN),
    Rule("double(self) <= 1.0", 'write a fraction from "0.0" to "1.0"'),
]
PositiveFractionText = Annotated[
    str,
    Field(max_length=16, pattern=DECIMAL_PATTERN),
    Rule("double(self) > 0.0 && double(self) <= 1.0", 'write a fraction above "0.0" and up to "1.0"'),
]
ToleranceText = Annotated[str, Field(max_length=24, pattern=TOLERANCE_PATTERN)]
"""A decimal that may have an exponent: `"1e-6"`."""

DnsName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""The name of a Kubernetes object."""
DatasetName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
ImageName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=512,
        pattern=r"^([a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*"
        r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[a-f0-9]{64})?$",
    ),
]
"""An image as a container runtime takes it: `registry.example.com:5000/team/image:tag@sha256:...`."""
Quantity = Annotated[
    str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?([munkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?$")
]
"""A Kubernetes quantity in quotes: `"4"`, `"500m"`, `"64Gi"`."""

ResourceName = Annotated[
    str, Field(max_length=317, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]
"""The name of an extended resource: `nvidia.com/gpu`."""

PVC_RULE = Rule(
    r"!self.startsWith('pvc://') || self.matches('^pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?/.+$')",
    "write pvc://CLAIM/PATH: the claim's name, then the path inside the volume",
)
INSIDE_VOLUME_RULE = Rule(
    "!self.startsWith('pvc://') || !self.matches('/[.][.](/|$)')",
    "'..' leads out of the volume: write pvc://CLAIM/PATH with the path from the volume's root",
)
PRINTABLE_RULE = Rule(
    "!self.matches('[[:cntrl:]]')",
    "holds a line break or another control character: write it on one line, in quotes",
)
NAMED_STORE_RULE = Rule(
    "self.startsWith('file://') || !self.matches('^[A-Za-z0-9+.-]+://([/?#]|$)')",
    "names no bucket or host after '://': write e.g. s3://BUCKET/PATH",
)
KNOWN_STORE_RULE = Rule(
    # A chain, e.g. simplecache::file:///etc/passwd, would have fsspec read the pod's own files.
    "!self.contains('://') || (self.matches('^(pvc|s3|gs|https?|file)://') && !self.matches('::[A-Za-z0-9]+://'))",
    "unsupported kind of store: write s3://..., gs://..., pvc://CLAIM/PATH or, to read, https://...",
    place="cluster",
)
NO_CREDENTIALS_RULE = Rule(
    "!self.matches('^[A-Za-z0-9+.-]+://[^/]*@')",
    "no credentials in a URL, since the spec is shown and recorded: put them into a Secret and name it here",
)
PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
URL_RULE = Rule(
    "!self.matches('^https?://[^/]') || self.matches('^https?://([^/@]*@)?([-A-Za-z0-9._]+|\\\\[[0-9A-Fa-f:.]+\\\\])"
    f"(:{PORT})?(/[^[:cntrl:][:space:]?#]*)?$')",
    "is not a valid URL: write SCHEME://HOST:PORT/PATH without blanks, '?' and '#', the port from 1 to 65535",
)
"""Rule for each field that names a server, besides its scheme."""
PLACE_RULES = (PVC_RULE, INSIDE_VOLUME_RULE, PRINTABLE_RULE, NAMED_STORE_RULE, KNOWN_STORE_RULE, NO_CREDENTIALS_RULE)
"""Rules for each field that names a file or directory in a store or on a volume."""


class SecretKeyReference(ApiModel):
    """A key of a Secret in the run's namespace."""

    name: DnsName = Field(description="The Secret's name.")
    key: str = Field(
        min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$", description="The key inside the Secret."
    )


class SecretReference(ApiModel):
    """A Secret in the run's namespace, every key of which becomes an environment variable."""

    name: DnsName = Field(description="The Secret's name.")


class LocalObjectReference(ApiModel):
    """An object in the run's namespace."""

    name: DnsName = Field(description="The object's name.")


class Resources(ApiModel):
    """Requests and limits of a container."""

    requests: dict[str, Quantity] = Field(
        {}, max_length=16, description='Resources that the scheduler reserves, e.g. cpu: "4", memory: 64Gi.'
    )
    limits: dict[str, Quantity] = Field({}, max_length=16, description="Maximum that the container may use.")
