"""Replicas on this machine's GPUs: which GPUs, which interpreter, how many replicas fit, and what this host lacks.

Pure: replica_fit, part_times. Programs and files: gpus, interpreter, environment. What runs lies in
`evalrun_generator.gpu_host`.
"""
