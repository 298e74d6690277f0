"""How the tests are cut."""

from tests.support import ROOT
from tests.support.cut import CONTRACT


def test_the_contract_names_what_there_is() -> None:
    """Each file and folder of the contract exists."""
    assert [path for path in CONTRACT if not (ROOT / path).exists()] == []
