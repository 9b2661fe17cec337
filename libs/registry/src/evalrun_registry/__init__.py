"""Registries of what a contributor adds: languages, comparators, limits and metrics, each described once, as data.

Every part of evalrun may import this library, so it imports nothing except the standard library. It holds descriptions.
The only behaviour here is pure and defines its entry, such as a comparator's function on two texts. What runs a program
or computes a metric stays with the part that does so.
"""
