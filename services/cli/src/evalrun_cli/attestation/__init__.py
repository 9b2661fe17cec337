"""`evalrun attest` and `evalrun verify`: signs a run's outputs, and checks them with answers judged again."""
