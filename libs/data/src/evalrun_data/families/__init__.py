"""The families of tests, a module each: what a record holds of them, how it is read and written, prompts, messages."""
