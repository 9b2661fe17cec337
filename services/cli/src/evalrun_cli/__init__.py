"""The `evalrun` command, which starts and follows runs on one machine or in a cluster. It computes no verdict or
metric."""
