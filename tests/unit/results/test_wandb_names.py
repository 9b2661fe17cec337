"""What a run is called at Weights & Biases."""

from evalrun_api.v1alpha1 import Exports
from evalrun_results.exports.run_exports import list_targets


def test_name_group_and_tags_are_the_specs() -> None:
    wandb = {"project": "p", "name": "n", "group": "g", "tags": ["a", "b"], "mode": "offline"}
    (target,) = list_targets(Exports.model_validate({"wandb": wandb}))
    assert target.model_dump() == {"kind": "wandb", "entity": None, **wandb, "tags": ("a", "b")}
