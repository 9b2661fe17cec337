"""The test families: for each, how a request is planned, run and turned into records."""
