"""The vocabulary of server and client: documents, ids, states, messages, errors. No IO, nobody above it."""
