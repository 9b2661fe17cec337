"""SandboxFusion's HTTP API before the executor, so that its clients work unchanged; see docs/sandboxfusion.md.

Contains that API's schemas, status rules, extraction and judging rules, which deliberately differ from evalrun's own
(the first code block wins). Evalrun's own judging is not here: it calls the executor directly.
"""
