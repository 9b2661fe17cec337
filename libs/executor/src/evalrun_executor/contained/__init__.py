"""Processes inside the containment: the zygote, its runners, and the children that become programs.

Standard library only, Python 3.9 or newer: these modules are loaded by the candidates' interpreter, not by ours
(`evalrun_executor.zygotes.zygote_process` ships their source), and everything imported here makes each fork dearer.
"""
