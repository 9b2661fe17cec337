"""The sandboxes: discovery, health, slots, fair queue, hedging, retries."""
