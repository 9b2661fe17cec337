"""The families of tests, one module per family: records, prompts and messages."""
