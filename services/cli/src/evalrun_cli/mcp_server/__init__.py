"""`evalrun serve mcp`: runs and their samples for an assistant that speaks the Model Context Protocol, read-only."""
