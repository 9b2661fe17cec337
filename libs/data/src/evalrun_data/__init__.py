"""Problem records: readers of every accepted format, prompts, completions made elsewhere, the built-in demo set.

The package knows problems, and nothing about judging. Every error of a user is a `BadInputError` that names file
and line.
"""
