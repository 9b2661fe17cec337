"""Starts a run: loads its problems and given completions, warns the user, and creates or resumes its ledger."""
