"""The service's side of zygotes: starts them, requests runners, and reads what runners and programs send."""
