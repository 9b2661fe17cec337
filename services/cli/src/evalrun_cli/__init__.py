"""The `evalrun` command: the same services on one machine. Starts and follows; decides no verdict and no figure."""
