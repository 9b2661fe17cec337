"""The start of a run: its problems, answers made elsewhere, warnings, and its ledger, created or resumed."""
