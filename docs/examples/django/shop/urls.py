"""The URLs of the site."""

from django.contrib import admin
from django.urls import include, path
from orders import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("delayq/", include("celery_ext.serve.django_urls")),
    path("orders/", views.place),
    path("orders/<int:number>/pay/", views.pay),
    path("orders/<int:number>/later/", views.later),
]
