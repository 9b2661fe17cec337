"""What a person changes about a run while it goes on: the acts, who may ask for them, and how they are asked for."""
