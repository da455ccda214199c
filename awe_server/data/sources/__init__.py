"""Files that are not in our node store: asked about, and read in pieces to be indexed.

A source is looked at on the event loop (web.py, shock.py, objects.py) or in a thread (shared.py); the process
that indexes it reads it in pieces (reading.py), never more than it needs to.
"""
