"""Orders in the admin."""

from django.contrib import admin

from .models import Order

admin.site.register(Order, list_display=["customer", "is_paid", "is_reminded"])
