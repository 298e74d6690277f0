"""The JSON of the API: what requests and answers consist of. The OpenAPI document is made from the same types."""
