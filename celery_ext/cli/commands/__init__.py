"""The subcommands of ``delayq``, a file each."""
