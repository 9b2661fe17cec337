"""The options of several commands about whom to trust."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class TrustFiles:
    """Keys, an identity and a list of revocations, as the user named them."""

    keys: Sequence[Path] = ()
    identity: str | None = None
    issuer: str | None = None
    trust_config: Path | None = None
    revocations: Path | None = None

    @property
    def names_anybody(self) -> bool:
        """Whether a key or an identity is named."""
        return bool(self.keys) or self.identity is not None or self.issuer is not None


NOBODY: Final = TrustFiles()
