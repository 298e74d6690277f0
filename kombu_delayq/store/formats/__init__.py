"""How each form of backup writes ids, priorities and bodies: one module for each form."""
