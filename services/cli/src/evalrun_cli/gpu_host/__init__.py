"""Replicas on this machine's GPUs: chooses GPUs and interpreter, computes how many fit, and finds what is missing.

Pure: options, part_times, replica_fit. Programs, files and network: doctor, environment, gpus, interpreter,
preparation, ray_address. The code that runs the replicas is `evalrun_generator.gpu_host`.
"""
