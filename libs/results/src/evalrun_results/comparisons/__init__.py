"""Two runs side by side: differences over the problems judged in both, and the gate that they feed. Pure.

Input is totals by problem, output is plain values. `stored_run` reads files, and the command line renders views.
"""
