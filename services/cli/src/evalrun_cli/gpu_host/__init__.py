"""Replicas on this machine's GPUs: chooses GPUs and interpreter, computes how many fit, and finds what is missing.

Pure: replica_fit, part_times. Programs and files: gpus, interpreter, environment. What runs lies in
`evalrun_generator.gpu_host`.
"""
