"""The headline metrics of a finished run in the formats of public sites; nothing is sent. Pure."""
