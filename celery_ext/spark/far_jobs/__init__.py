"""Work on the far tier: promote and cancel what is in it, and remove what nobody needs."""
