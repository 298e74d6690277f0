"""How each layout writes ids, priorities and bodies: one module for each layout."""
