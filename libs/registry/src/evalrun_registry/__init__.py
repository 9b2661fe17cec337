"""Registries of what a contributor adds: languages, comparators, limits and metrics, each described once, as data.

Every part of evalrun may import this library, so it imports nothing except the standard library, and it holds
descriptions only: what runs a program, compares outputs or computes a metric stays with the part that does so.
"""
