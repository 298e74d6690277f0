"""How hypothesis runs here."""

from hypothesis import HealthCheck, settings

# Other tests run at the same time: how long an example takes says nothing about the code.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
