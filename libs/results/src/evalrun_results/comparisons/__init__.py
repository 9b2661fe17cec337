"""Two runs side by side: differences over the problems judged in both, and the gate that they feed. Pure.

What is compared comes in as totals by problem, what is shown goes out as plain values; files are read elsewhere
(`stored_run`), and views are the command line's.
"""
