"""Runs a rollout on one machine: starts Ray, runs the generator on it, and leaves no process behind.

`python -m evalrun_generator.gpu_host` runs in the interpreter of the command `evalrun`, needs neither Ray nor verl, and
starts both in another interpreter. `ray_head` starts Ray, `processes` finds and kills the processes that remain,
`model_download` runs in the other interpreter, `host` combines them.
"""
