"""Decides the life of an EvalRun from its spec, its status, the observed objects and the time. Pure."""
