"""What holds for every level."""

import os

# As the services are started: where gRPC runs threads, its fork handlers disturb children that start as another user
# (a probe of /usr/bin/python3 once ended with gRPC's complaint instead of its answer). Read when grpc is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
