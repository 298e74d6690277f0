"""What a failover costs: of Redis behind Sentinel, and of the leading transfer worker."""
