"""Registries of what a contributor adds: languages, comparators, limits and metrics, each described once, as data.

Every part of evalrun may import this library, so it imports nothing except the standard library. It holds descriptions,
and of behaviour only what defines the thing and is pure: a comparator's function on two texts. What runs a program or
computes a metric stays with the part that does so.
"""
