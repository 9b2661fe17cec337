"""SandboxFusion's routes, and its server's address without the route that many settings end in."""

from typing import Final

ROUTES: Final = (
    "/run_code", "/run_jupyter", "/submit", "/get_prompts", "/get_prompt_by_id", "/list_ids", "/list_datasets",
    "/get_metrics", "/get_metrics_function", "/v1/ping", "/health",
)  # fmt: skip


def server_url(url: str) -> str:
    """Return a server's address. verl's `sandbox_fusion.url`, for example, ends in `/run_code`."""
    plain = url.rstrip("/")
    return next((plain.removesuffix(route) for route in ROUTES if plain.endswith(route)), plain)
