"""The API types, one module a version. Pure data: imported by every part that reads a spec."""
