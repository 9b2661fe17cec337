"""The harness that runs a problem's assertions with a stand-in for the program, in a contained child of the gateway.

It is shipped as text and loaded there in the order of `assertions.ASSERTION_HARNESS`. The modules import only each
other, the executor's `calls.values` and the standard library.
"""
