"""The harness that runs a problem's assertions with a stand-in for the program, in a contained child of the gateway.

The modules are sent to the child as text and loaded in the order of `assertions.ASSERTION_HARNESS`. They import only
each other, the executor's `calls.values` and the standard library.
"""
