"""Control of a running run: the acts, who may request them, and how they are requested."""
