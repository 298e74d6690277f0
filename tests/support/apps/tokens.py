"""A credential provider, as that of a cloud: its token is another one after a short time."""

import os
from pathlib import Path

from redis.credentials import CredentialProvider


class Provider(CredentialProvider):
    """Has the name of the user ``app``, and the token that a file has now."""

    def get_credentials(self) -> tuple[str, str]:
        """Returns the user and the token."""
        return "app", Path(os.environ["TOKEN_FILE"]).read_text(encoding="ascii")
