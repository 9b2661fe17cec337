"""The operator and the API users see: `api` is the source of the CRDs and imports nothing of ours."""
