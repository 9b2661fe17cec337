"""Loads the weights of another checkpoint into a running engine, and proves that they are there.

`kept_server` and `worker_extension` run in the engine's own processes and need verl and vLLM; `file_to_device` needs
torch. The generator itself uses only `checkpoint_files`, and the header's name in `weights_guard`.
"""
