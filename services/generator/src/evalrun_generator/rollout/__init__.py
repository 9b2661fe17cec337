"""Launches, monitors, replaces and ends a run's verl standalone replicas on Ray.

Pure: order, engine, policy, vital_signs, starts. Ray and verl: supervisor, launcher (inside the cluster), ray_cluster
(the driver's side), with `fake_cluster` as their fake. HTTP: replica_endpoint, replica_monitor. `replica_manager`
combines them.
"""
