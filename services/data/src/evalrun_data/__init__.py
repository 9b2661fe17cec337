"""Problem records: readers of every accepted format, prompts, the built-in demo set.

Knows what a problem is, not how it is judged.
"""
