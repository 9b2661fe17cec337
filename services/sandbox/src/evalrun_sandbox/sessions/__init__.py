"""Live Python sessions: contained interpreters that keep their state between executions.

They run beside the executor's programs, below a zygote of their own, and take one of its slots while they execute.
"""
