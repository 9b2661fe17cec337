"""verl's configuration files as input. Pure: document, generation. I/O: commands, evaluation."""
