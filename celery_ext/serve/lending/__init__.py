"""Hands messages out to consumers over HTTP: each take has a lease. Knows the store, and no HTTP."""
