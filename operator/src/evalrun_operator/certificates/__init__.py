"""Issues certificates for the parts of a run and for the judge of the chart. Pure: time and seed are arguments.

Only this package and its callers need `cryptography`; the objects of a run, in `resources`, do not.
"""
