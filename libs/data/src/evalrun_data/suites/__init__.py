"""Makes programs and tests that show how good a test suite is: mutants of programs, and tests with varied inputs."""
