"""OpenAI-compatible endpoints: requests, errors, load balancing, health."""
