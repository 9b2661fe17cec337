"""The test families: each plans a request, runs it, and turns the result into records."""
