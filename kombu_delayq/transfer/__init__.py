"""The transfer worker, which pushes each delayed message to its queue the moment it is due."""
