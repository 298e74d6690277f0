"""URLs of the project."""

from django.urls import path
from orders import views

urlpatterns = [path("orders/", views.place), path("orders/<int:number>/payment/", views.pay)]
