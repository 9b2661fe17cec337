"""Measures test suites: makes mutants of correct programs, and tests with varied inputs."""
