"""The rooms behind awe_client.api: one file per resource, and what they share."""
