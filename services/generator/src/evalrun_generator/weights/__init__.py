"""Puts the weights of another checkpoint into an engine that runs, and proves that they are there.

The modules run in the engine's own processes: they need verl and vLLM, and nothing else of this package needs them.
"""
