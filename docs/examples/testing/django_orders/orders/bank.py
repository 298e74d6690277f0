"""Stands for a bank that is away at times."""


class Away(Exception):
    """The bank does not answer."""


def charge(number: int) -> None:
    """Charges an order."""
    raise Away
