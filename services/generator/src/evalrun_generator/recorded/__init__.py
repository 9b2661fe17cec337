"""An endpoint that speaks the OpenAI API and answers with recorded completions: the demo's model, the benchmarks' load.

Knows problems only by their prompts. It is a server of its own: the generator knows nothing of it.
"""
