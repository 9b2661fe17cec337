"""Suites of tests, and programs that tell how good they are: mutants, and tests made by varying inputs."""
