"""Why kombu-delayq does not lead, where it does not."""

#: The reason in Markdown, by the key of a measure. The page shows it only where others are better.
REASONS: dict[str, str] = {}
