"""SandboxFusion's HTTP API in front of the executor, so that its clients work unchanged: see docs/sandboxfusion.md.

Lives here: that API's schemas, its status algebra, its extraction and its judging rules, which differ from evalrun's
own on purpose (the first code block wins). Not here: evalrun's own judging, which asks the executor directly.
"""
