"""The harness that runs a problem's assertions with a stand-in for the program, in a contained child of the gateway.

Shipped as text and loaded there in order, see `assertions.ASSERTION_HARNESS`: the modules import each other, the
executor's `calls.values` and the standard library, nothing else.
"""
