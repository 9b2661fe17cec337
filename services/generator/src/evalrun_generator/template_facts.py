"""The chat template that a server applies, as facts for run_info.json. Pure."""

import hashlib
from typing import Final

MAX_TEMPLATE_CHARACTERS: Final = 65_536
"""A longer template is recorded by its digest alone; those of common models have up to 8,000 characters."""


def template_facts(template: str) -> dict[str, str]:
    """Return the template's text and SHA-256; nothing for an empty one."""
    if not template:
        return {}
    digest = {"chat_template_sha256": hashlib.sha256(template.encode()).hexdigest()}
    return digest if len(template) > MAX_TEMPLATE_CHARACTERS else {**digest, "chat_template": template}
