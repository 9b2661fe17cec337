"""The `evalrun` command: starts and follows runs, on one machine or in a cluster. It computes no verdict or figure."""
