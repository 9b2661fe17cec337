"""The GPU side: verl standalone replicas on Ray, launched, watched, replaced and let go for one run.

Pure: order, engine, policy, vital_signs, starts. Ray and verl: supervisor, launcher (inside the cluster), ray_cluster
(the driver's side); `fake_cluster` stands in for them. HTTP: replica_endpoint, watch. `keeper` ties them together.
"""
