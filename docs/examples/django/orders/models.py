"""What the database has of orders."""

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    customer = models.CharField(max_length=100)
    is_paid = models.BooleanField(default=False)
    is_reminded = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.pk} of {self.customer}"

    @property
    def reminder_id(self) -> str:
        """Id of the task that reminds of the order, so that it can be found without being kept."""
        return f"remind-{self.pk}"
