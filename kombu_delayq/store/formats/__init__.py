"""How each form of backup writes ids, priorities and bodies: a module a form."""
