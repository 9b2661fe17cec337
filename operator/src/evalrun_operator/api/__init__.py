"""The API types, one package a version, and what reads a manifest with them.

Pure data: imported by every part that reads a spec, imports nothing of the operator. The models are the single source
of the CRD (`evalrun_operator.crd`); what they refuse is refused by the API server with the same schema and rules.
"""
