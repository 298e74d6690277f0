"""What is ordered."""

from django.db import models


class Order(models.Model):
    """An order. Its state is ``open``, ``paid`` or ``cancelled``."""

    item = models.CharField(max_length=100)
    state = models.CharField(max_length=20, default="open")
