"""Problem records: readers of every accepted format, prompts, completions made elsewhere, the built-in demo set.

The package knows what a problem is, but not how its completions are judged. Every error of a user is a `BadInputError`
that names file and line.
"""
