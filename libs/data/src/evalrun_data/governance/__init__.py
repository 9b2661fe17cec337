"""Data governance: prepares datasets, writes their manifests, and audits them for duplicates and leakage."""
