"""An OpenAI-compatible server that returns recorded completions: the demo's model and the benchmarks' load.

It identifies problems only by their prompts. It is a separate server: the generator does not know about it.
"""
