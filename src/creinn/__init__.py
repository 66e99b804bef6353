"""creinn."""
