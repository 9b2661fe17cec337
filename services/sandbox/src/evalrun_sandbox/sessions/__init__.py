"""Live Python sessions: contained interpreters that keep their state between executions.

The interpreters run beside the executor's programs, below their own zygote, and hold an executor's slot while they
execute.
"""
