"""Who calls, what the caller may do, and which requests are refused before anything looks at them."""
