"""Publishes tasks by templates: many calls at once, single calls faster, and from asyncio."""
