"""The digital twin: simulated time drives the same core functions that decide in production."""
